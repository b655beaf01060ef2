"""Every benchmark runs and says what it measured; the figures themselves are for a quiet machine and not for here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SPARK = "pipeline_spark"
SHORT = {
    "one_way": ["--only", "tcp, 16 B", "--only", "a sender without buffer"],
    "round_trips": ["--only", "64 in flight, ipc", "--only", "2,000 in flight"],
    "batching": ["--only", "tcp, 16 B"],
    "documents": [
        *("--only", "30% lost", "--only", "5 edits each", "--only", "64 in flight", "--only", "comes late"),
        *("--only", "viewers", "--only", "history", "--edits", "600", "--longer", "1"),
    ],
    "growth": ["--only", ", 3 peers", "--only", "1,000 peers", "--only", "one connection", "--messages", "20000"],
    "pipeline": ["--only", "appended", "--only", "one record", "--only", "replay at 2,000"],
    "publishing": ["--only", "tcp, 16 B"],
    "start_up": ["--only", "import pynng"],
    "surveys": ["--only", "10 respondents"],
}


def bench(name: str, *arguments: str, results: Path, seconds: float) -> subprocess.CompletedProcess[str]:
    """Run it, its figures into a folder of the test's: those of a quiet machine stay where they are."""
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), "--json", *arguments]
    environment = os.environ | {"NNGKIT_BENCH_RESULTS": str(results)}
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SHORT)
def test_a_benchmark_measures_every_way(name: str, tmp_path: Path) -> None:
    done = bench(name, "--rounds", "1", "--seconds", "0.1", *SHORT[name], results=tmp_path, seconds=280)
    assert done.returncode == 0, done.stderr
    groups = json.loads(done.stdout)["groups"]
    assert groups
    for group in groups:
        for row in group["rows"]:
            assert row.get("per_second", row.get("p50_us", row.get("p50_ms"))) > 0, row
            assert row["cpu_us"] > 0, row


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_benchmark_of_spark_ends_unless_all_agree(tmp_path: Path) -> None:
    only = ("--only", "availability", "--only", "local[1]", "--only", "one process")
    done = bench(SPARK, "--times", "1", *only, results=tmp_path, seconds=580)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["line"]: row for group in json.loads(done.stdout)["groups"] for row in group["rows"]}
    assert rows.keys() == {"Spark, local[2]", "DuckDB, 2 threads", "local[1]", "one process, one by one"}
    assert all(row["seconds"] > 0 for row in rows.values())
    assert 0 < rows["local[1]"]["again_times"] < 100  # documents of a thousand that the second run touched


@pytest.mark.slow
def test_what_is_measured_later_joins_what_was_measured_before(tmp_path: Path) -> None:
    kept, times = tmp_path / "pipeline.json", ("--rounds", "1", "--seconds")
    for seconds, only in (("0.1", "appended in turns"), ("0.2", "replay at 2,000"), ("0.3", "appended in turns")):
        done = bench("pipeline", *times, seconds, "--only", only, results=tmp_path, seconds=50)
        assert done.returncode == 0, done.stderr
    groups = json.loads(kept.read_text())["groups"]
    sittings = {row["way"]: row["sitting"]["seconds"] for group in groups for row in group["rows"]}
    assert sittings == {"appended in turns of 256": 0.3, "replay at 2,000/s": 0.2}
    assert [len(group["promises"]) for group in groups] == [1, 1]


@pytest.mark.slow
def test_the_plot_of_the_same_figures_is_the_same_file(tmp_path: Path) -> None:
    rows = [{"line": line, "of": "peer", "at": at, "cpu_us": at / 7} for line in ("one", "other") for at in (1, 10)]
    plot = "import _page, json, pathlib, sys; _page.plot(json.loads(sys.argv[1]), pathlib.Path(sys.argv[2]))"
    groups = json.dumps([{"group": "a group", "rows": rows}])
    pictures = []
    for name in ("once.svg", "again.svg"):
        words = [sys.executable, "-c", plot, groups, str(tmp_path / name)]
        done = subprocess.run(words, cwd=ROOT / "benchmarks", capture_output=True, text=True, timeout=55)
        assert done.returncode == 0, done.stderr
        pictures.append((tmp_path / name).read_text())
    assert pictures[0] == pictures[1]
    assert "fill: #ffffff" in pictures[0]


def test_every_benchmark_is_run_here() -> None:
    assert {*SHORT, SPARK} == {path.stem for path in (ROOT / "benchmarks").glob("[!_]*.py")}
