"""`nngkit doc replay`: traces through real peers, in text of all kinds, and files that are none."""

from __future__ import annotations

import gzip
import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from nngkit.cli.doc import drafts
from nngkit.cli.doc.drafts import draft, orders
from nngkit.cli.doc.replaying import plan
from nngkit.cli.doc.trace import BadTrace, parsed, unzipped
from tests.cli.commands import assert_fails, nngkit, valid
from tests.cli.traces import at_the_same_place, by_one, by_several


def replay(
    tmp_path: Path, trace: dict[str, Any], *arguments: str, code: int = 0, zipped: bool = False
) -> dict[str, Any]:
    """What `doc replay` says of it."""
    path = tmp_path / "trace.json"
    data = json.dumps(trace).encode()
    path.write_bytes(gzip.compress(data) if zipped else data)
    done = nngkit("doc", "replay", str(path), "--json", *arguments)
    assert (done.returncode, done.stderr) == (code, ""), done
    return valid(done.stdout, "doc-replay.json")


@pytest.mark.parametrize(
    ("peers", "transport"), [("1", "tcp"), ("2", "tcp"), ("3", "ipc"), ("2", "ws"), ("2", "inproc")]
)
def test_one_authors_history_ends_as_it_was_recorded(tmp_path: Path, peers: str, transport: str) -> None:
    trace = by_one(1, 300, start="Anfang 漢😀\n")
    told = replay(tmp_path, trace, "--peers", peers, "--transport", transport, zipped=True)
    assert (told["text"], told["alike"], told["peers"]) == ("equal", True, int(peers))
    assert told["edits"] == sum(len(txn["patches"]) for txn in trace["txns"])
    assert told["characters"] == len(trace["endContent"])
    assert (told["bytes"] > 0) == (peers != "1")


@pytest.mark.parametrize(("authors", "peers"), [(2, "2"), (3, "3"), (3, "2"), (2, "4"), (5, "3")])
def test_several_authors_histories_do(tmp_path: Path, authors: int, peers: str) -> None:
    told = replay(tmp_path, by_several(authors, authors, 300), "--peers", peers)
    assert (told["text"], told["alike"], told["authors"]) == ("equal", True, authors)
    assert (told["order"], told["determined"]) == (list(range(authors)), None)


def test_a_history_of_one_author_with_branches_does(tmp_path: Path) -> None:
    trace = by_several(7, 3, 150, branching=True)
    assert replay(tmp_path, trace, "--peers", "2")["text"] == "equal"


@pytest.mark.parametrize("lanes", [1, 2])
def test_documents_that_were_let_go_are_filled_again(monkeypatch: pytest.MonkeyPatch, lanes: int) -> None:
    monkeypatch.setattr(drafts, "LANES", lanes)
    trace = parsed(json.dumps(by_several(8, 4, 120)).encode())
    assert draft(trace, range(4)).text == trace.end


@pytest.mark.parametrize("seed", range(20))
def test_what_the_authors_saw_makes_the_recorded_end(seed: int) -> None:
    trace = parsed(json.dumps(by_several(seed, 2 + seed % 3, 60)).encode())
    assert draft(trace, range(trace.agents)).text == trace.end


def test_a_start_is_what_all_authors_begin_with(tmp_path: Path) -> None:
    trace = by_several(3, 2, 50)
    first, *rest = trace["txns"]
    trace["startContent"] = first["patches"][0][2]
    first["patches"] = []
    assert replay(tmp_path, {**trace, "txns": [first, *rest]}, "--peers", "2")["text"] == "equal"


@pytest.mark.parametrize("order", list(permutations(["one", "zwei", "drei"])))
def test_where_all_wrote_at_once_an_order_that_was_recorded_is_found(tmp_path: Path, order: tuple[str, ...]) -> None:
    texts = ("one", "zwei", "drei")
    told = plan(parsed(json.dumps(at_the_same_place(*texts, end="".join(order) + ".")).encode()))
    assert told.drafted is not None
    assert told.drafted.text == "".join(order) + "."
    assert [texts[agent] for agent in told.order] == list(order)
    assert told.determined is (None if order == texts else False)


def test_an_order_that_no_crdt_of_ours_makes_is_not_compared_and_that_is_said(tmp_path: Path) -> None:
    trace = at_the_same_place("ab", "cd", end="acbd.")
    told = replay(tmp_path, trace)
    assert (told["ok"], told["text"], told["determined"], told["same_characters"]) == (
        True,
        "undetermined",
        False,
        True,
    )
    path = tmp_path / "trace.json"
    assert "not compared in its order" in nngkit("doc", "replay", str(path)).stdout
    told = replay(tmp_path, at_the_same_place("ab", "cd", end="abc."), code=1)  # a character is missing
    assert (told["text"], told["alike"]) == ("differs", True)


@pytest.mark.parametrize("several", [False, True])
def test_another_end_is_exit_code_1_and_says_where(tmp_path: Path, several: bool) -> None:
    trace = by_several(4, 2, 40) if several else by_one(4, 40)
    end = trace["endContent"]
    trace["endContent"] = end[:7] + "?" + end[8:]
    told = replay(tmp_path, trace, code=1)
    assert (told["ok"], told["text"], told["alike"], told["first_difference"]) == (False, "differs", True, 7)
    assert told["determined"] is (True if several else None)
    assert "DIFFERS from the recorded end at 7" in nngkit("doc", "replay", str(tmp_path / "trace.json")).stdout


def test_many_authors_have_two_orders() -> None:
    assert len(orders(3)) == 6
    assert orders(4) == [(0, 1, 2, 3), (3, 2, 1, 0)]


GOOD: dict[str, Any] = {"endContent": "", "txns": []}
ONE = {"parents": [], "agent": 0, "patches": []}


@pytest.mark.parametrize(
    ("trace", "says"),
    [
        ([], "has to be a JSON object"),
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
        ({**GOOD, "kind": "concurrent", "txns": [{**ONE, "parents": [0]}]}, "there is nothing before it"),
        ({**GOOD, "kind": "concurrent", "txns": [ONE, {**ONE, "parents": [1]}]}, "txns[1]: parents: 1"),
        ({**GOOD, "kind": "concurrent", "txns": [{**ONE, "patches": [[1, 0, "x"]]}]}, "position 1 in a text of 0"),
    ],
)
def test_a_trace_that_is_none_is_refused_where_it_is_wrong(trace: Any, says: str) -> None:
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
        (gzip.compress(b"{}")[:-9], "cut off"),
        (b"\x1f\x8bnonsense", "not a gzip file"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(data)
    assert_fails(nngkit("doc", "replay", str(path)), 2, says, str(path))


def test_a_file_that_would_fill_the_memory_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nngkit.cli.doc.trace.MOST_BYTES", 1 << 20)
    with pytest.raises(BadTrace, match="over 1048576 bytes"):
        unzipped(gzip.compress(bytes(8 << 20)))
    assert unzipped(gzip.compress(b"a") + gzip.compress(b"b")) == b"ab"


@pytest.mark.slow
def test_a_long_history_takes_seconds(tmp_path: Path) -> None:
    told = replay(tmp_path, by_one(9, 8000), "--peers", "3")
    assert told["text"] == "equal"
