"""pyiceberg's pool of threads, which outlives the tests that use it."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator

import pytest

THREADS = 2


@pytest.fixture(scope="session")
def pool() -> Generator[None]:
    """Start all threads of the pool before the first test looks which threads are there."""
    os.environ["PYICEBERG_MAX_WORKERS"] = str(THREADS)
    from pyiceberg.utils.concurrent import ExecutorFactory

    executor = ExecutorFactory.get_or_create()
    together = threading.Barrier(THREADS)
    assert len(list(executor.map(lambda _: together.wait(10), range(THREADS)))) == THREADS
    yield
    executor.shutdown()
    os.environ.pop("PYICEBERG_MAX_WORKERS", None)  # a test may have restored the environment
