"""The replay of editing traces in benchmarks/: through real peers, in all kinds of text, and invalid files."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from importlib import import_module
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from tests import preloaded
from tests.traces import at_the_same_place, by_one, by_several

pytestmark = pytest.mark.slow  # programs of seconds; CI runs them

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def _modules() -> tuple[Any, ...]:
    sys.path.append(str(BENCHMARKS))  # they are scripts, and import each other as such
    try:
        return tuple(import_module(name) for name in ("_trace", "_trace_drafts", "_replay_trace"))
    finally:
        sys.path.remove(str(BENCHMARKS))


trace_file, drafts, replaying = _modules()
draft, orders, plan = drafts.draft, drafts.orders, replaying.plan
BadTrace, parsed, unzipped = trace_file.BadTrace, trace_file.parsed, trace_file.unzipped


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script."""
    command = [sys.executable, str(BENCHMARKS / "_replay_trace.py"), *arguments]
    return preloaded.run(command, capture_output=True, text=True, timeout=55)


def replay(
    tmp_path: Path, trace: dict[str, Any], *arguments: str, code: int = 0, zipped: bool = False
) -> dict[str, Any]:
    """Replay the trace, and return the script's JSON."""
    path = tmp_path / "trace.json"
    data = json.dumps(trace).encode()
    path.write_bytes(gzip.compress(data) if zipped else data)
    done = run(str(path), "--json", *arguments)
    assert (done.returncode, done.stderr) == (code, ""), done
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("peers", "transport"), [("1", "tcp"), ("2", "tcp"), ("3", "ipc"), ("2", "ws"), ("2", "inproc")]
)
def test_a_history_of_one_author_ends_as_recorded(tmp_path: Path, peers: str, transport: str) -> None:
    trace = by_one(1, 300, start="Anfang 漢😀\n")
    told = replay(tmp_path, trace, "--peers", peers, "--transport", transport, zipped=True)
    assert (told["text"], told["alike"], told["peers"]) == ("equal", True, int(peers))
    assert told["edits"] == sum(len(txn["patches"]) for txn in trace["txns"])
    assert told["characters"] == len(trace["endContent"])
    assert (told["bytes"] > 0) == (peers != "1")


@pytest.mark.parametrize(("authors", "peers"), [(2, "2"), (3, "3"), (3, "2"), (2, "4"), (5, "3")])
def test_histories_of_several_authors_end_as_recorded(tmp_path: Path, authors: int, peers: str) -> None:
    told = replay(tmp_path, by_several(authors, authors, 300), "--peers", peers)
    assert (told["text"], told["alike"], told["authors"]) == ("equal", True, authors)
    assert (told["order"], told["determined"]) == (list(range(authors)), None)


def test_a_history_of_one_author_with_branches_ends_as_recorded(tmp_path: Path) -> None:
    trace = by_several(7, 3, 150, branching=True)
    assert replay(tmp_path, trace, "--peers", "2")["text"] == "equal"


@pytest.mark.parametrize("lanes", [1, 2])
def test_evicted_documents_are_rebuilt(monkeypatch: pytest.MonkeyPatch, lanes: int) -> None:
    monkeypatch.setattr(drafts, "LANES", lanes)
    trace = parsed(json.dumps(by_several(8, 4, 120)).encode())
    assert draft(trace, range(4)).text == trace.end


@pytest.mark.parametrize("seed", range(20))
def test_drafts_make_the_recorded_end(seed: int) -> None:
    trace = parsed(json.dumps(by_several(seed, 2 + seed % 3, 60)).encode())
    assert draft(trace, range(trace.agents)).text == trace.end


def test_all_authors_begin_with_the_start_content(tmp_path: Path) -> None:
    trace = by_several(3, 2, 50)
    first, *rest = trace["txns"]
    trace["startContent"] = first["patches"][0][2]
    first["patches"] = []
    assert replay(tmp_path, {**trace, "txns": [first, *rest]}, "--peers", "2")["text"] == "equal"


@pytest.mark.parametrize("order", list(permutations(["one", "zwei", "drei"])))
def test_the_recorded_order_of_concurrent_insertions_is_found(tmp_path: Path, order: tuple[str, ...]) -> None:
    texts = ("one", "zwei", "drei")
    told = plan(parsed(json.dumps(at_the_same_place(*texts, end="".join(order) + ".")).encode()))
    assert told.drafted is not None
    assert told.drafted.text == "".join(order) + "."
    assert [texts[agent] for agent in told.order] == list(order)
    assert told.determined is (None if order == texts else False)


def test_an_order_that_the_crdt_cannot_make_is_reported_as_undetermined(tmp_path: Path) -> None:
    trace = at_the_same_place("ab", "cd", end="acbd.")
    told = replay(tmp_path, trace)
    assert (told["ok"], told["text"], told["determined"], told["same_characters"]) == (
        True,
        "undetermined",
        False,
        True,
    )
    path = tmp_path / "trace.json"
    assert "order not compared" in run(str(path)).stdout
    told = replay(tmp_path, at_the_same_place("ab", "cd", end="abc."), code=1)  # a character is missing
    assert (told["text"], told["alike"]) == ("differs", True)


@pytest.mark.parametrize("several", [False, True])
def test_another_end_is_exit_code_1_and_names_the_place(tmp_path: Path, several: bool) -> None:
    trace = by_several(4, 2, 40) if several else by_one(4, 40)
    end = trace["endContent"]
    trace["endContent"] = end[:7] + "?" + end[8:]
    told = replay(tmp_path, trace, code=1)
    assert (told["ok"], told["text"], told["alike"], told["first_difference"]) == (False, "differs", True, 7)
    assert told["determined"] is (True if several else None)
    assert "DIFFERS from the recorded end at 7" in run(str(tmp_path / "trace.json")).stdout


def test_two_orders_are_tried_for_many_authors() -> None:
    assert len(orders(3)) == 6
    assert orders(4) == [(0, 1, 2, 3), (3, 2, 1, 0)]


GOOD: dict[str, Any] = {"endContent": "", "txns": []}
ONE = {"parents": [], "agent": 0, "patches": []}


@pytest.mark.parametrize(
    ("trace", "says"),
    [
        ([], "not a JSON object"),
        ({}, "txns: not a list"),
        ({"txns": []}, "endContent: missing"),
        ({**GOOD, "kind": "tree"}, "kind: 'tree'"),
        ({**GOOD, "startContent": 1}, "startContent"),
        ({**GOOD, "txns": [1]}, "txns[0]: not an object"),
        ({**GOOD, "txns": [{}]}, "txns[0]: patches: not a list"),
        ({**GOOD, "txns": [{"patches": [[0, 0]]}]}, "txns[0]: patches[0]: not [position, deleted, inserted]"),
        ({**GOOD, "txns": [{"patches": [[-1, 0, ""]]}]}, "patches[0]: -1 is not a whole number"),
        ({**GOOD, "txns": [{"patches": [[0, True, ""]]}]}, "True is not a whole number"),
        ({**GOOD, "txns": [{"patches": [[0, 0, None]]}]}, "patches[0]"),
        ({**GOOD, "txns": [{"patches": [[0, 0, "a"], [2, 0, "b"]]}]}, "txns[0]: patches[1]: position 2 in a text of 1"),
        ({**GOOD, "txns": [{"patches": [[0, 0, "😀"], [0, 2, ""]]}]}, "2 code points from 0 in a text of 1"),
        ({**GOOD, "txns": [{"patches": [[0, 0, "\ud83d"]]}]}, "half a character"),
        ({**GOOD, "kind": "concurrent", "numAgents": 0}, "numAgents: 0"),
        ({**GOOD, "kind": "concurrent", "txns": [{**ONE, "agent": 1}]}, "txns[0]: agent: 1"),
        ({**GOOD, "kind": "concurrent", "txns": [{**ONE, "parents": [0]}]}, "there is no transaction before it"),
        ({**GOOD, "kind": "concurrent", "txns": [ONE, {**ONE, "parents": [1]}]}, "txns[1]: parents: 1"),
        ({**GOOD, "kind": "concurrent", "txns": [{**ONE, "patches": [[1, 0, "x"]]}]}, "position 1 in a text of 0"),
    ],
)
def test_an_invalid_trace_is_rejected_with_the_place(trace: Any, says: str) -> None:
    with pytest.raises(BadTrace) as refused:
        plan(parsed(json.dumps(trace).encode()))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe{", "not UTF-8"),
        (b"[" * 200_000, "nested too deep"),
        (gzip.compress(b"{}", mtime=0)[:-9], "cut off"),
        (b"\x1f\x8bnonsense", "not a gzip file"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_broken_file_is_a_one_line_error(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(data)
    done = run(str(path))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    assert says in done.stderr
    assert str(path) in done.stderr


def test_a_decompression_bomb_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "MOST_BYTES", 1 << 20)
    with pytest.raises(BadTrace, match="over 1048576 bytes"):
        unzipped(gzip.compress(bytes(8 << 20)))
    assert unzipped(gzip.compress(b"a") + gzip.compress(b"b")) == b"ab"


def test_a_long_history_ends_as_recorded(tmp_path: Path) -> None:
    told = replay(tmp_path, by_one(9, 8000), "--peers", "3")
    assert told["text"] == "equal"
