"""Tests that use pyiceberg get its pool of threads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lakehouse.pyiceberg_pool import pool

__all__ = ["pool"]

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the pool to the tests that use pyiceberg."""
    for item in items:  # of all folders
        if item.path.parent != FOLDER:
            continue
        if isinstance(item, pytest.Function) and ("iceberg" in item.name or "in_place" in item.name):
            item.fixturenames.insert(0, "pool")
