"""Seeds of random histories: some for every run of the tests, more with `--slow`."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(quick: int, count: int) -> list[Any]:
    """Return the parameters 0 to `count` - 1, those from `quick` on marked slow."""
    return [*range(quick), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(quick, count))]
