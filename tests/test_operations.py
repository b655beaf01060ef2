"""Everything as processes: the short form of `python3 dev.py bench operations`, with two faults and shorter rules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SHORT = ("--seconds", "10", "--divide", "5", "--fault", "only provider", "--fault", "pass is not renewed", "--json")
ZERO = {
    "processes that ended by themselves",
    "alerts that fired",
    "alerts that did not fire",
    "alerts that did not rest",
    "alerts that no fault explains",
}  # memory is not judged by ten seconds


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.needs_program("prometheus", package="prometheus")
def test_alerts_are_quiet_under_churn_and_each_fires_by_its_fault(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "operations.py"), *SHORT],
        capture_output=True,
        text=True,
        timeout=170,
        env=os.environ | {"NNGKIT_BENCH_RESULTS": str(tmp_path), "TMPDIR": str(tmp_path)},
    )
    assert done.stdout, done.stderr
    memory, load, faults = json.loads(done.stdout)["groups"]
    found = {each["what"]: each["ratio"] for group in (memory, load, faults) for each in group["promises"]}
    assert {what: found[what] for what in ZERO} == dict.fromkeys(ZERO, 0), done.stderr
    assert len(memory["rows"]) > 20
    assert all(row["times"] > 0 for row in load["rows"]), load["rows"]
    assert [row["way"].partition(":")[0] for row in faults["rows"]] == [
        "NngkitServiceWithoutProvider",
        "NngkitPassEndsSoon",
    ]


def test_durations_of_the_rules_are_divided_and_nothing_else() -> None:
    program = """
from _operations_fleet import RULES, divided

assert divided("for: 5m\\n", 10) == "for: 30s\\n"
assert divided("rate(a[10m])", 20) == "rate(a[30s])"
assert divided("max_over_time(x[5m:])", 5) == "max_over_time(x[60s:])"
assert divided("[1s]", 10) == "[1s]"
shorter = divided(RULES.read_text(), 7)
assert shorter.count("\\n") == RULES.read_text().count("\\n")
assert "5m]" not in shorter
assert "[5m:" not in shorter
assert "< 86400" in shorter
"""
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=ROOT / "benchmarks", capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stderr
