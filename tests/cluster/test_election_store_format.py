"""A voter's file as the module's docstring describes it: built here by hand, read by the store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from struct import pack

import pytest
from google_crc32c import extend as crc32c

from nngkit.cluster.election.log import Snapshot
from nngkit.cluster.election.messages import MOST_VOTERS
from nngkit.cluster.election.values import Restored
from nngkit.envelope import CONTROL_LIMIT, encode
from nngkit.errors import Damaged
from nngkit.mesh.wire import MOST_ORIGIN
from tests.cluster.voter_stores import reopened

MARK = bytes(range(8))
HEAD = 24  # bytes
RECORD = 16  # bytes before its steps


def head(*, magic: bytes = b"NNGKITV\n", version: int = 1, mark: bytes = MARK, crc: int | None = None) -> bytes:
    return pack(">8sHHI8s", magic, version, 0, crc32c(0, mark) if crc is None else crc, mark)


def record(*steps: bytes) -> bytes:
    body = b"".join(steps)
    return pack(">8sII", MARK, len(body), crc32c(crc32c(0, MARK), body)) + body


def meta(value: object) -> bytes:
    data = encode(value)
    return pack(">BI", 0, len(data)) + data


def entries(first: int, term: int, *content: bytes, count: int | None = None) -> bytes:
    number = len(content) if count is None else count
    sizes = b"".join(pack(">I", len(each)) for each in content)
    return pack(">BQQI", 1, first, term, number) + sizes + b"".join(content)


def snapshot(index: int, term: int, state: bytes, keep: int) -> bytes:
    return pack(">BQQBI", 2, index, term, keep, len(state)) + state


NEW = record(meta([0, None, []]))  # as a new voter's file begins


def read(folder: Path, *parts: bytes) -> Restored | None:
    (folder / "voter.log").write_bytes(b"".join(parts))
    return reopened(folder)


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync nothing: test_election_store_power.py is about what a sync saves."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setattr(os, "fdatasync", lambda file: None)


@pytest.mark.parametrize(
    ("records", "found"),
    [
        ([], None),
        ([record(meta([3, None, []]))], Restored(3)),
        ([record(meta([0, "a", []]))], Restored(0, "a")),
        ([record(meta([0, "", []]))], Restored(0, "")),
        ([record(meta([0, None, [["a", 0]]]))], Restored(0, None, (("a", 0),))),
        ([record(entries(1, 1, b"one", b"", b"three"))], Restored(entries=((1, b"one"), (1, b""), (1, b"three")))),
        ([record(entries(1, 1, b"one")), record(entries(1, 1))], None),
        (
            [record(meta([3, "a", []]), entries(1, 1, b"one"), entries(2, 3, b"two"), snapshot(1, 1, b"state", 1))],
            Restored(3, "a", (), Snapshot(1, 1, b"state"), ((3, b"two"),)),
        ),
        (
            [record(entries(1, 1, b"one", b"two"), snapshot(1, 1, b"state", 0))],
            Restored(snapshot=Snapshot(1, 1, b"state")),
        ),
        ([record(entries(1, 1, b"one"), snapshot(0, 0, b"", 0))], None),
        (
            [record(meta([1, None, [["ä" * (MOST_ORIGIN // 2), number] for number in range(MOST_VOTERS)]]))],
            Restored(1, None, tuple(("ä" * (MOST_ORIGIN // 2), number) for number in range(MOST_VOTERS))),
        ),
    ],
)
def test_a_file_is_read_as_it_is_described(tmp_path: Path, records: Sequence[bytes], found: Restored | None) -> None:
    assert read(tmp_path, head(), NEW, *records) == found


UNREADABLE = {
    "unknown kind": b"\x03",
    "half a head of a meta": b"\x00\x00\x00",
    "meta is too short": meta([1, "a", []])[:-1],
    "meta is too long": meta([1, "a", []]) + b"\x00",
    "no CBOR": pack(">BI", 0, 1) + b"\xff",
    "no epochs": meta([1, "a"]),
    "vote is a number": meta([1, 2, []]),
    "term is text": meta(["1", "a", []]),
    "voter without an epoch": meta([1, "a", [["a"]]]),
    "epoch is nothing": meta([1, "a", [["a", 1], ["b", None]]]),
    "too many voters": meta([1, "a", [["a", 1]] * (MOST_VOTERS + 1)]),
    "id is too long": meta([1, "a", [["ä" * (MOST_ORIGIN // 2 + 1), 1]]]),
    "meta is too large": meta([1, "a" * CONTROL_LIMIT, []]),
    "half a head of entries": entries(1, 1, b"one")[:20],
    "entry is too short": entries(1, 1, b"one")[:-1],
    "entry is missing": entries(1, 1, b"one", b"two")[:-3],
    "sizes are missing": entries(1, 1, count=2**32 - 1),
    "entry 0": entries(0, 1, b"one"),
    "hole before an entry": entries(2, 1, b"one"),
    "half a head of a snapshot": snapshot(1, 1, b"state", 0)[:21],
    "state is too short": snapshot(1, 1, b"state", 0)[:-1],
}


@pytest.mark.parametrize("step", UNREADABLE.values(), ids=UNREADABLE)
def test_a_record_that_is_intact_and_cannot_be_read_is_damage(tmp_path: Path, step: bytes) -> None:
    """Also if it is the last one: a torn record is not intact."""
    before = record(meta([1, "a", []]))
    with pytest.raises(Damaged, match="remove the folder only if") as caught:
        read(tmp_path, head(), NEW, before, record(step))
    assert caught.value.position == HEAD + len(NEW) + len(before)
    assert (tmp_path / "voter.log").read_bytes() == head() + NEW + before + record(step)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "the header is incomplete"),
        (head()[:-1], "the header is incomplete"),
        (head(), "a record is not as written"),
        (head() + NEW[:-1], "a record is not as written"),
        (head(magic=b"NNGKITJ\n") + NEW, "the header is not that of a voter"),
        (head(crc=1) + NEW, "the header is not that of a voter"),
        (head(version=0) + NEW, "format version 0"),
        (head(version=2) + NEW, "format version 2; this nngkit reads version 1"),
        (head(mark=b"another!") + NEW, "a record is not as written"),
    ],
    ids=[
        *("empty", "half a head", "no record", "torn record", "other magic", "bad checksum"),
        *("version 0", "version 2", "other mark"),
    ],
)
def test_a_file_that_does_not_begin_as_described_is_damage(tmp_path: Path, data: bytes, why: str) -> None:
    with pytest.raises(Damaged, match=why):
        read(tmp_path, data)
    assert (tmp_path / "voter.log").read_bytes() == data


def test_a_bad_record_with_an_intact_one_anywhere_behind_it_is_damage(tmp_path: Path) -> None:
    one, two = record(meta([1, "a", []])), record(meta([2, "b", []]))
    for bad in (one[:-1], one[:-1] + b"?", one[:9], MARK, MARK * 3, bytes(100), MARK + bytes(100)):
        with pytest.raises(Damaged, match="a record is not as written; remove the folder only if") as caught:
            read(tmp_path, head(), NEW, one, bad, two)
        assert caught.value.position == HEAD + len(NEW) + len(one)
        assert read(tmp_path, head(), NEW, one, bad) == Restored(1, "a")
        assert (tmp_path / "voter.log").read_bytes() == head() + NEW + one


def test_marks_behind_a_torn_record_are_no_records(tmp_path: Path) -> None:
    """A torn record's own mark, and one after which no record is intact."""
    torn = record(entries(1, 1, b"x" * 50))[:-1]
    assert read(tmp_path, head(), NEW, torn + torn + MARK) is None
    assert (tmp_path / "voter.log").read_bytes() == head() + NEW
