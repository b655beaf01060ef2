"""Compaction of a partition, without Spark: whatever order and batches its rows come in."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st
from pycrdt import Doc, Text

from nngkit import envelope
from nngkit.documents.versions import EditStream, from_wire, to_wire
from nngkit.spark.jobs.compaction import snapshots
from nngkit.spark.jobs.packing import COLUMNS, names, packing, unpacked
from nngkit.spark.reading.schema import arrow_schema

SCHEMA = arrow_schema(COLUMNS)
PART, ROWS = pa.field("part", pa.int32()), pa.field("rows", pa.binary())


def eight(number: int) -> bytes:
    return number.to_bytes(8, "big")


def conversation(name: str, length: int, rng: random.Random) -> tuple[list[dict[str, Any]], str]:
    """Return the rows of a document's authors in causal order, and its text."""
    count = rng.randint(1, 3)
    docs: list[Doc[Any]] = [Doc() for _ in range(count)]
    texts = [doc.get("body", type=Text) for doc in docs]
    streams = [EditStream(f"{name}{number}".encode().ljust(8, b"."), 1 + number) for number in range(count)]
    seen: list[dict[EditStream, int]] = [{} for _ in range(count)]
    missed: list[list[tuple[EditStream, int, bytes]]] = [[] for _ in range(count)]
    rows = []
    for _ in range(length):
        me = rng.randrange(count)
        if rng.random() < 0.5:
            for stream, number, update in missed[me]:
                docs[me].apply_update(update)
                seen[me][stream] = number
            missed[me].clear()
        state = docs[me].get_state()
        texts[me].insert(rng.randint(0, len(str(texts[me]))), rng.choice("abc"))
        own = seen[me][streams[me]] = seen[me].get(streams[me], 0) + 1
        update = docs[me].get_update(state)
        deps = {stream: number for stream, number in seen[me].items() if stream != streams[me]}
        for other in range(count):
            if other != me:
                missed[other].append((streams[me], own, update))
        headers = [("from", b"x"), ("origin", streams[me].origin), ("epoch", eight(streams[me].epoch))]
        headers += [("seq", eight(own))] + ([("deps", envelope.encode(to_wire(deps)))] if deps else [])
        rows.append({"key": name.encode(), "value": update, "headers": headers, "partition": 0})
    for number in range(count):
        for _, _, update in missed[number]:
            docs[number].apply_update(update)
    assert len({str(text) for text in texts}) == 1
    return rows, str(texts[0])


def numbered(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "offset": offset, "timestamp": offset} for offset, row in enumerate(rows)]


def compacted(rows: Sequence[dict[str, Any]], rng: random.Random) -> dict[str, dict[str, Any]]:
    """Compact rows that come in any batches and order."""
    shuffled = list(rows)
    if rng.random() < 0.5:
        rng.shuffle(shuffled)
    size = rng.randint(1, 50)
    batches = [
        pa.RecordBatch.from_pylist(shuffled[at : at + size], schema=SCHEMA) for at in range(0, len(shuffled), size)
    ]
    packed = pa.Table.from_batches(packing(rng.randint(1, 3))(iter(batches)), pa.schema([PART, ROWS]))
    found: dict[str, dict[str, Any]] = {}
    for part in set(packed.column("part").to_pylist()):  # as a shuffle does
        values = packed.filter(pc.equal(packed.column("part"), part)).to_batches()
        for batch in snapshots(iter(values)):
            for row in batch.to_pylist():
                assert row["doc"] not in found
                found[row["doc"]] = row
    return found


def text_of(snapshot: bytes) -> str:
    doc: Doc[Any] = Doc()
    doc.apply_update(snapshot)
    return str(doc.get("body", type=Text))


@settings(max_examples=60)
@given(st.integers(0, 1 << 30), st.integers(1, 6), st.booleans(), st.booleans())
def test_snapshots_are_the_documents_in_any_order_of_recording(
    seed: int, documents: int, in_order: bool, twice: bool
) -> None:
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    expected = {}
    for number in range(documents):
        said, expected[f"d{number}"] = conversation(f"d{number}", rng.randint(1, 25), rng)
        rows += said
    if not in_order:
        rng.shuffle(rows)
    if twice:
        rows += rng.sample(rows, len(rows) // 2)
    found = compacted(numbered(rows), rng)
    assert {name: text_of(row["snapshot"]) for name, row in found.items()} == expected
    assert not any(row["held"] for row in found.values())
    for name, row in found.items():
        assert row["updates"] == len({tuple(each["headers"][1:4]) for each in rows if each["key"] == name.encode()})
        newest = max(offset for offset, each in enumerate(rows) if each["key"] == name.encode())
        assert round(row["at"].timestamp() * 1e6) == newest


@settings(max_examples=60)
@given(st.integers(0, 1 << 30))
def test_a_second_run_goes_on_from_a_snapshot_and_what_was_held(seed: int) -> None:
    rng = random.Random(seed)
    rows, text = conversation("d", rng.randint(2, 30), rng)
    rows = numbered(rows)
    gone = rows.pop(rng.randrange(len(rows)))
    middle = rng.randrange(len(rows) + 1)
    first = compacted(rows[:middle], rng).get("d")
    more: list[dict[str, Any]] = []
    if first is not None:
        base = {"key": b"d", "partition": -1, "timestamp": 0}
        more = [base | {"value": first["snapshot"], "headers": [("versions", first["versions"])], "offset": -1}]
        more += [
            base | {"value": each["update"], "offset": 0, "headers": [(h["key"], h["value"]) for h in each["headers"]]}
            for each in first["held"]
        ]
    found = compacted([*more, *rows[middle:], gone], rng)["d"]
    assert text_of(found["snapshot"]) == text
    assert (found["updates"], found["held"]) == (len(rows) + 1, [])


def test_rows_that_are_no_updates_are_left_out() -> None:
    rng = random.Random(1)
    rows, text = conversation("d", 5, rng)
    origin = ("origin", b"o" * 8)
    wrong: list[list[tuple[str, bytes]] | None] = [
        None,
        [],
        [origin],
        [origin, ("epoch", eight(1))],
        [origin, ("epoch", b"1"), ("seq", eight(1))],
        [origin, ("epoch", eight(1)), ("seq", b"1234567")],
        [origin, ("epoch", eight(1)), ("seq", b"\xff" * 8)],
    ]
    strange = [{"key": name, "value": b"x", "headers": each, "partition": 0} for each in wrong for name in (b"d", b"e")]
    found = compacted(numbered([*strange, *rows]), rng)
    assert {name: text_of(row["snapshot"]) for name, row in found.items()} == {"d": text}
    assert compacted([], rng) == {}


def test_an_update_without_its_dependency_is_held_with_its_headers() -> None:
    rows, _ = conversation("d", 6, random.Random(3))
    (found,) = compacted(numbered(rows[3:]), random.Random(1)).values()
    assert [each["update"] for each in found["held"]] == [row["value"] for row in rows[3:]][-len(found["held"]) :]
    assert found["held"][0]["headers"][1]["key"] == "origin"
    assert sum(from_wire(envelope.decode(found["versions"], what="v"), what="v").values()) == found["updates"]


@given(st.lists(st.none() | st.binary(max_size=3), max_size=40), st.integers(1, 5), st.integers(1, 7))
def test_packed_rows_come_out_as_they_went_in_each_key_in_one_part(
    keys: list[bytes | None], parts: int, size: int
) -> None:
    rows = [{"key": key, "value": b"v", "partition": 0, "offset": n, "timestamp": n} for n, key in enumerate(keys)]
    batches = [pa.RecordBatch.from_pylist(rows[at : at + size], schema=SCHEMA) for at in range(0, len(rows), size)]
    packed = list(packing(parts)(iter(batches)))
    part_of: dict[bytes, int] = {}
    for batch in packed:
        for part, value in zip(batch.column("part"), batch.column("rows"), strict=True):
            one = pa.RecordBatch.from_arrays(
                [pa.array([part.as_py()]), pa.array([value.as_py()], pa.binary())], ["part", "rows"]
            )
            for key in unpacked(iter([one])).column("key").to_pylist():
                assert part_of.setdefault(key, part.as_py()) == part.as_py() < parts
    kept = [offset for offset, key in enumerate(keys) if key is not None and _is_text(key)]
    assert sorted(unpacked(iter(packed)).column("offset").to_pylist()) == kept
    named = {name for batch in names(iter(batches)) for name in batch.column("doc").to_pylist()}
    assert named == {key.decode() for key in part_of}


def _is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True
