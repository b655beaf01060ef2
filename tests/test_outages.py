"""All rooms across a network that is away for 12 s: the short form of `python3 dev.py bench outages`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hosts import unavailable

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_every_pair_reads_again_within_five_seconds_and_reports_what_it_lost(tmp_path: Path) -> None:
    if (reason := unavailable()) is not None:
        pytest.skip(reason)
    command = [sys.executable, str(ROOT / "benchmarks" / "outages.py"), "--json", "--logs"]
    done = subprocess.run(
        [*command, "--seconds", "12", "--faults", "both ways"],
        capture_output=True,
        text=True,
        timeout=170,
        env=os.environ | {"NNGKIT_BENCH_RESULTS": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    groups = json.loads(done.stdout)["groups"]
    assert [group["group"] for group in groups] == ["both ways", "both ways, without TCP_RTO_MAX_MS"]
    for group in groups:
        assert len(group["rows"]) >= 33
        late = {row["way"]: row["after_12"] for row in group["rows"] if row["after_12"] >= 5.0}
        silent = {row["way"]: row["unreported"] for row in group["rows"] if row.get("unreported")}
        assert (late, silent) == ({}, {}), done.stderr
