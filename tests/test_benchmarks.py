"""Every benchmark runs and reports its figures; their values are for a quiet machine and are not tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SPARK = "pipeline_spark"
OUTAGES = "outages"  # tests/test_outages.py
FAULTS = "faults"  # tests/test_faults.py
OPERATIONS = "operations"  # tests/test_operations.py
IDLING = {"idle_us", "idle_kib"}  # figures of idle connections, which may be close to zero
SHORT = {
    "one_way": ["--only", "tcp, 16 B"],
    "round_trips": [
        *("--only", "64 in flight, tcp", "--only", "Zenoh", "--only", "a server of bare pynng", "--only", "python-nng"),
    ],
    "batching": ["--only", "ipc, 16 B", "--only", ", 16 bytes"],
    "calls": [
        *("--only", "Client, trio", "--only", "DaemonClient", "--only", "a change"),
        *("--only", "kills of", "--only", "10 services"),
    ],
    "cluster": ["--only", "nngkit"],
    "devices": ["--only", "PAIR1", "--only", "REQ/REP, tcp, 8 B, 64"],
    "documents": [
        *("--only", "30% lost", "--only", "5 edits each", "--only", "64 in flight", "--only", "comes late"),
        *("--only", "as fast as it goes", "--only", "history", "--edits", "600", "--longer", "1"),
    ],
    "gateway": [],
    "growth": [
        *("--only", "many, 3 peers", "--only", "pyzmq PULL, 3 peers", "--only", "Rep, 3 peers", "--only", "idle"),
    ],
    "mesh": ["--messages", "100000"],
    "consumers": ["--records", "20000"],
    "journal_size": ["--only", ", 100 segments"],
    "kills": ["--kills", "12"],
    "fuzz": ["--inputs", "20000"],
    "rotation": ["--only", "peers of calls", "--pause", "0.05"],
    "fanout": ["--only", "as fast as it goes", "--only", "late joins"],
    "large": ["--only", "C, 64 posted", "--only", "Zenoh"],
    "paced": ["--only", "nngkit trio", "--only", "NATS"],
    "pipeline": ["--only", "appended", "--only", "one record", "--only", "replay at 2,000"],
    "publishing": ["--only", "nngkit batched", "--only", "pyzmq", "--only", "Zenoh"],
    "subscriptions": ["--only", "nngkit, 1,000 topics", "--only", "pyzmq, 1,000 topics"],
    "speed": ["--only", "idle CPU", "--only", "Python's sockets", "--only", "nngkit trio, both ends"],
    "shared_memory": ["--only", "shm, loan", "--only", "pyzmq, bytes", "--only", "nngkit ipc"],
    "status_page": ["--only", "100 services"],
    "start_up": ["--only", "import pynng"],
    "telemetry": [],
    "surveys": ["--only", "10 respondents"],
    "hostile": ["--only", "requests"],
    "trust": ["--only", "nngkit, a pass", "--only", "CURVE", "--only", "TLS, connections", "--only", "1,000 roles"],
    "transports": ["--only", "bare pynng sends", "--only", "ws, masked, 16 B"],
}


def bench(name: str, *arguments: str, results: Path, seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a benchmark with its results in the test's folder, so that measured ones are kept."""
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), "--json", *arguments]
    environment = os.environ | {"NNGKIT_BENCH_RESULTS": str(results)}
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SHORT)
def test_benchmark_measures_every_way(name: str, tmp_path: Path) -> None:
    done = bench(name, "--rounds", "1", "--seconds", "0.1", *SHORT[name], results=tmp_path, seconds=280)
    assert done.returncode == 0, done.stderr
    groups = json.loads(done.stdout)["groups"]
    assert groups
    for group in groups:
        for row in group["rows"]:
            if row.keys() & IDLING:
                continue
            if "escaped" in row:
                assert row["inputs"] > 0, row
                assert row["escaped"] == 0, row
                continue
            if "kills" in row:
                assert min(row["kills"], row["records"]) > 0, row
                assert (row["lost"], row["doubled"], row["wrong"]) == (0, 0, 0), row
                continue
            assert row.get("per_second", row.get("p50_us", row.get("p50_ms"))) > 0, row
            assert name != "gateway" or not row.get("lost"), row
            assert row.get("cpu_us", row.get("times")) > 0, row


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_commit_is_measured_beside_this_checkout(tmp_path: Path) -> None:
    arguments = ("--beside", "HEAD", "--rounds", "2", "--seconds", "0.1", "--only", "64 in flight, tcp")
    done = bench("round_trips", *arguments, results=tmp_path, seconds=100)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads((tmp_path / "beside" / "round_trips.json").read_text())["groups"]
    ways = ["nngkit asyncio", "nngkit asyncio, before", "nngkit trio", "nngkit trio, before"]
    assert [row["way"] for row in found["rows"]] == ways
    assert len(found["promises"]) == 4  # messages/s and CPU of two ways


@pytest.mark.parametrize(
    "messages",
    [[0, 1, 2, 4], [1], [0, 0], [0, 2, 1]],
    ids=["one is missing", "the first is missing", "duplicated", "reordered"],
)
def test_wrong_message_ends_the_run(messages: list[int]) -> None:
    check = "import sys, _numbered as n; n.Due(16).check([n.numbered(16)(int(word)) for word in sys.argv[1:]])"
    words = [sys.executable, "-c", check, *map(str, messages)]
    done = subprocess.run(words, cwd=ROOT / "benchmarks", capture_output=True, text=True, timeout=55)
    assert done.returncode == 1
    assert "wrong message" in done.stderr


@pytest.mark.parametrize("fault", ["missing", "doubled"])
def test_wrong_message_of_a_crowd_ends_the_run(fault: str) -> None:
    check = """
import sys, _numbered as n
messages = [n.member_message(i % n.CROWD_TURN, member, 16) for member in range(3) for i in range(40)]
if sys.argv[1:]:
    messages[50:51] = [] if sys.argv[1] == "missing" else messages[50:51] * 2
roll = n.Roll(16)
roll.add(messages)
roll.check()
"""
    for words, code in (([], 0), ([fault], 1)):
        done = subprocess.run(
            [sys.executable, "-c", check, *words], cwd=ROOT / "benchmarks", capture_output=True, text=True, timeout=55
        )
        assert done.returncode == code, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_spark_benchmark_fails_unless_results_agree(tmp_path: Path) -> None:
    only = ("--only", "the journal's JSON", "--only", "scan, 10,000", "--only", "local[1]", "--only", "one process")
    done = bench(SPARK, "--times", "1", "--divide", "50", *only, results=tmp_path, seconds=580)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["line"]: row for group in json.loads(done.stdout)["groups"] for row in group["rows"]}
    assert rows.keys() == {"scan", "Spark, local[2]", "DuckDB, 2 threads", "local[1]", "one process"}
    assert all(row["seconds"] > 0 for row in rows.values())
    assert rows["scan"]["of_whole"] > 0
    assert 0 < rows["local[1]"]["again_times"] < 10  # documents of a hundred touched by the second run


@pytest.mark.slow
def test_later_measurements_are_merged_into_earlier_ones(tmp_path: Path) -> None:
    kept, times = tmp_path / "pipeline.json", ("--rounds", "1", "--seconds")
    for seconds, only in (("0.1", "appended in turns"), ("0.2", "replay at 2,000"), ("0.3", "appended in turns")):
        done = bench("pipeline", *times, seconds, "--only", only, results=tmp_path, seconds=50)
        assert done.returncode == 0, done.stderr
    groups = json.loads(kept.read_text())["groups"]
    sittings = {row["way"]: row["sitting"]["seconds"] for group in groups for row in group["rows"]}
    assert sittings == {"appended in turns of 256": 0.3, "replay at 2,000/s": 0.2}
    assert [len(group["promises"]) for group in groups] == [1, 1]


def in_benchmarks(program: str, *arguments: str) -> None:
    words = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(words, cwd=ROOT / "benchmarks", capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stderr


def test_every_figure_has_a_column_of_the_page() -> None:
    """A benchmark with columns of its own would show them alone: the page is written by another process."""
    in_benchmarks("""
import cluster, pathlib, _page
from _measuring import HEADS, options

known = {*HEADS, "way", "line", "at", "of"}
for path in _page.FIGURES.glob("*.json"):
    for group in _page.groups_of(path.stem):
        assert all(row.keys() <= known for row in group["rows"]), path
for path in pathlib.Path.cwd().glob("*.py"):
    assert path.name == "_measuring.py" or "HEADS |=" not in path.read_text(), path
parser = options("", rounds=1, seconds=1.0)
parser.set_defaults(quick=True, seeds=0)
for group in cluster.groups(parser.parse_args([])):
    assert all(promise.figure in HEADS for promise in group.promises), group
""")


def test_pages_show_the_kept_figures() -> None:
    in_benchmarks("import _page; assert all(page.read_text() == text for page, text in _page.pages().items())")


@pytest.mark.slow
def test_plots_show_the_kept_figures(tmp_path: Path) -> None:
    in_benchmarks("import _page, pathlib, sys; _page.plots(pathlib.Path(sys.argv[1]))", str(tmp_path))
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert drawn == {name: (ROOT / "docs" / name).read_text() for name in drawn}
    assert len(drawn) > 5
    assert max(len(text) for text in drawn.values()) < 60_000


def test_measured_groups_take_the_place_of_kept_ones(tmp_path: Path) -> None:
    sitting = {"machine": "2 cores", "load": 0.123, "rounds": 5, "seconds": 1.0}
    row = {"way": "a way", "sitting": sitting, "cpu_us": 1.23456}
    promise = {"what": "CPU", "ratio": 1.23456, "least": 2, "aim": 1, "spread": [1.23456, 2.0]}
    promise |= {"unit": " us", "bound": "at most", "verdict": "kept"}
    measured, kept = tmp_path / "measured", tmp_path / "figures"
    for folder in (measured, kept):
        folder.mkdir()
    groups = [{"group": "again", "rows": [row], "promises": [promise]}]
    (measured / "large.json").write_text(json.dumps({"groups": groups}))
    old = {"group": "other", "measured": "One round.", "rows": [{"way": "old", "times": 7}], "promises": []}
    (kept / "large.json").write_text(json.dumps([old, {**old, "group": "again"}]))
    program = """
import _page, pathlib, sys
_page.RESULTS, _page.FIGURES = map(pathlib.Path, sys.argv[1:])
_page.merge()
"""
    in_benchmarks(program, str(measured), str(kept))
    assert json.loads((kept / "large.json").read_text()) == [
        old,
        {
            "group": "again",
            "measured": "5 rounds of 1 s, medians; load average 0.1 when it began. 2 cores.",
            "rows": [{"way": "a way", "cpu_us": 1.23}],
            "promises": [{**promise, "ratio": 1.23, "spread": [1.23, 2]}],
        },
    ]


def test_ratios_are_shown_for_both_kinds_of_start_the_worst_first() -> None:
    program = """
from _measuring import BUSY
from _page import both_kinds

def group(name, what, ratio, bound, least, verdict):
    one = {"what": what, "ratio": ratio, "spread": [ratio - 0.01, ratio + 0.01], "bound": bound}
    return {"group": name, "promises": [one | {"least": least, "aim": least, "verdict": verdict}]}

groups = [
    group("a", "rate", 2.0, "at least", 1, "aim"),
    group("b", "time", 1.5, "at most", 2, "kept"),
    group("b" + BUSY, "time", 3.0, "at most", 2, "MISSED"),
    group("c", "other", 0.4, "at least", None, ""),
]
assert both_kinds(groups)[2:] == [
    "| time | **1.50x to 3.00x** | 1.50x (1.49 to 1.51) | 3.00x (2.99 to 3.01) | at most 2x | 2x | kept; **missed** |",
    "| other | **0.40x to 0.40x** | 0.40x (0.39 to 0.41) | - |  |  |  |",
    "| rate | **2.00x to 2.00x** | 2.00x (1.99 to 2.01) | - | at least 1x | 1x | goal reached |",
], both_kinds(groups)
"""
    in_benchmarks(program)


def test_every_benchmark_is_tested() -> None:
    assert {*SHORT, SPARK, OUTAGES, FAULTS, OPERATIONS} == {
        path.stem for path in (ROOT / "benchmarks").glob("[!_]*.py")
    }
