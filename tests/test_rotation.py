"""A realm's key is replaced under load, with kills: a small round of `python3 dev.py bench rotation` in three rooms."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("room", ["mesh", "documents", "cluster"])
def test_no_exchange_fails_while_the_key_is_replaced_and_processes_are_killed(room: str, tmp_path: Path) -> None:
    words = ["--seconds", "0.2", "--pause", "0.05", "--only", f"peers of {room}", "--json"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "rotation.py"), *words],
        capture_output=True,
        text=True,
        timeout=110,
        env=os.environ | {"NNGKIT_BENCH_RESULTS": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ((row,),) = (group["rows"] for group in json.loads(done.stdout)["groups"])
    assert row["failed"] == row.get("lost", 0) == 0, done.stderr
    assert row["times"] == 12  # renames, issuers, members
    assert row["calls"] > 50
    assert row["cut_ms"] <= 2000
