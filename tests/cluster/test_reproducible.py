"""A seed is the same history in each run, so that a broken one can be looked at."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_histories_do_not_depend_on_the_hash_seed() -> None:
    printed = []
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.cluster.digests"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=50,
            check=True,
        )
        printed.append(done.stdout.splitlines())
    assert [int(line.split()[1]) > 500 for line in printed[0]] == [True] * 4
    assert printed[0] == printed[1]
