"""Snapshots equal the document of a peer that applied every update in order, however they were recorded."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycrdt import Doc, Text

from nngkit import envelope
from nngkit.documents.versions import EditStream, to_wire
from nngkit.errors import NotFound
from nngkit.spark.jobs.causal import Update, in_order
from nngkit.spark.jobs.documents import as_of, compact, edits, of_rows, updates
from nngkit.spark.jobs.snapshots import advance, load, progress
from tests.spark.rows import at, eight, frame

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


class Author:
    """Peer that edits one document and receives others' edits on request."""

    def __init__(self, name: str, document: str) -> None:
        self.stream = EditStream(name.encode().ljust(8, b"."), 1)
        self.document = document
        self.seen: dict[EditStream, int] = {}
        self.doc: Doc[Any] = Doc()
        self.doc["body"] = self.text = Text()

    def insert(self, position: int, text: str) -> dict[str, Any]:
        before = self.doc.get_state()
        self.text.insert(position, text)
        deps = dict(self.seen)
        self.seen[self.stream] = self.seen.get(self.stream, 0) + 1
        return {
            "key": self.document.encode(),
            "value": self.doc.get_update(before),
            "protocol": "bus",
            "headers": {
                "origin": self.stream.origin,
                "epoch": eight(1),
                "seq": eight(self.seen[self.stream]),
                "deps": envelope.encode(to_wire(deps)),
                "from": self.stream.origin.strip(b"."),
            },
        }

    def see(self, record: dict[str, Any], by: Author) -> None:
        self.doc.apply_update(record["value"])
        self.seen[by.stream] = int.from_bytes(record["headers"]["seq"], "big")


def conversation(document: str, rounds: int, rng: random.Random) -> tuple[list[dict[str, Any]], str]:
    """Return the records of two authors that alternate, in causal order, and the final text."""
    ann, bob = Author("ann", document), Author("bob", document)
    records = []
    for number in range(rounds):
        writer, reader = (ann, bob) if rng.random() < 0.5 else (bob, ann)
        record = writer.insert(rng.randint(0, len(str(writer.text))), f"{writer.stream.origin[:1].decode()}{number};")
        reader.see(record, writer)
        records.append(record)
    assert str(ann.text) == str(bob.text)
    return records, str(ann.text)


def text_of(snapshot: bytes) -> str:
    doc: Doc[Any] = Doc()
    doc.apply_update(bytes(snapshot))
    return str(doc.get("body", type=Text))


@pytest.mark.slow
@pytest.mark.every_java
def test_snapshots_equal_a_peers_content_in_any_order_of_updates(spark: SparkSession) -> None:
    rng = random.Random(1)
    records, expected = [], {}
    for number in range(12):
        document = f"doc {number}"
        said, expected[document] = conversation(document, 30, rng)
        records += said
    rng.shuffle(records)
    records += rng.sample(records, 40)  # and some twice
    rows = frame(spark, records).repartition(3)
    found = {row.doc: row for row in compact(rows).collect()}
    assert {document: text_of(row.snapshot) for document, row in found.items()} == expected
    assert {row["updates"] for row in found.values()} == {30}
    assert all(not row.held for row in found.values())


@pytest.mark.slow
def test_updates_with_unrecorded_dependencies_are_held_and_applied_later(spark: SparkSession, tmp_path: Path) -> None:
    records, expected = conversation("d", 30, random.Random(2))
    other, other_text = conversation("other", 5, random.Random(3))
    missing = records.pop(10)
    folder = str(tmp_path / "out")
    first = advance(spark, of_rows(frame(spark, records[:20] + other)), {0: 25}, folder)
    held = {row.doc: len(row.held) for row in load(spark, folder).collect()}
    assert held["d"] > 0
    assert held["other"] == 0
    assert (first.generation, first.offsets) == (1, {0: 25})

    advance(spark, of_rows(frame(spark, [*records[20:], missing])), {0: 35}, folder)
    found = {row.doc: row for row in load(spark, folder).collect()}
    assert {name: text_of(row.snapshot) for name, row in found.items()} == {"d": expected, "other": other_text}
    assert found["d"]["updates"] == 30
    assert not found["d"].held
    # Only changed documents were written.
    newest = spark.read.parquet(f"{folder}/snapshots/generation=2")
    assert [row.doc for row in newest.collect()] == ["d"]
    assert progress(spark, folder).offsets == {0: 35}


@pytest.mark.slow
def test_interrupted_generation_is_ignored(spark: SparkSession, tmp_path: Path) -> None:
    records, _text = conversation("d", 4, random.Random(4))
    folder = str(tmp_path / "out")
    advance(spark, of_rows(frame(spark, records[:2])), {0: 2}, folder)
    compact(frame(spark, records)).write.parquet(f"{folder}/snapshots/generation=2")
    assert [row["updates"] for row in load(spark, folder).collect()] == [2]
    advance(spark, of_rows(frame(spark, records[2:])), {0: 4}, folder)
    assert [row["updates"] for row in load(spark, folder).collect()] == [4]


@pytest.mark.every_java
def test_document_as_of_a_time(spark: SparkSession) -> None:
    ann = Author("ann", "d")
    records = [ann.insert(2 * number, f"{number};") for number in range(5)]
    rows = frame(spark, records)
    assert text_of(as_of(rows, "d", at(2))) == "0;1;2;"
    with pytest.raises(NotFound, match="no update of the document 'd' was recorded until"):
        as_of(rows, "d", at(-1))


def test_edits_by_author(spark: SparkSession) -> None:
    records, _text = conversation("d", 20, random.Random(5))
    by_hand = {name: sum(each["headers"]["from"] == name.encode() for each in records) for name in ("ann", "bob")}
    found = edits(updates(frame(spark, records))).collect()
    assert {row.author: row["updates"] for row in found} == by_hand
    assert sum(row["bytes"] for row in found) == sum(len(each["value"]) for each in records)


# ---- the order, without Spark ----------------------------------------------------------------------------------------


def history(rng: random.Random, streams: int, length: int) -> list[Update]:
    """Return updates in causal order; each author has seen a random part of the others'."""
    names = [EditStream(bytes([number]) * 8, 1) for number in range(streams)]
    seen: dict[EditStream, dict[EditStream, int]] = {name: {} for name in names}
    written = dict.fromkeys(names, 0)
    made: list[Update] = []
    for number in range(length):
        name = rng.choice(names)
        for other in names:
            if other != name and written[other] and rng.random() < 0.4:
                seen[name][other] = written[other]
        # Dependencies are transitive.
        for other, upto in list(seen[name].items()):
            for each in made:
                if each.stream == other and each.last <= upto:
                    for third, seq in each.deps.items():
                        if third != name:
                            seen[name][third] = max(seq, seen[name].get(third, 0))
        written[name] += 1
        made.append(Update(name, written[name], written[name], dict(seen[name]), bytes([number % 256])))
    return made


def assert_causal(ready: list[Update]) -> None:
    have: dict[EditStream, int] = {}
    for each in ready:
        assert each.stream is not None
        assert each.first <= have.get(each.stream, 0) + 1
        assert all(have.get(stream, 0) >= seq for stream, seq in each.deps.items() if stream != each.stream)
        have[each.stream] = max(each.last, have.get(each.stream, 0))


@given(st.randoms(use_true_random=False), st.integers(1, 4), st.integers(0, 40))
def test_any_order_becomes_causal_without_loss(rng: random.Random, streams: int, length: int) -> None:
    made = history(rng, streams, length)
    came = made + rng.sample(made, min(5, len(made)))
    rng.shuffle(came)
    ordered = in_order(came, {})
    assert ordered.held == []
    assert sorted((each.stream, each.first) for each in ordered.ready) == sorted(
        (each.stream, each.first) for each in made
    )
    assert_causal(ordered.ready)


@given(st.randoms(use_true_random=False), st.integers(1, 4), st.integers(1, 40))
def test_missing_update_holds_back_only_its_dependents(rng: random.Random, streams: int, length: int) -> None:
    made = history(rng, streams, length)
    gone = made.pop(rng.randrange(len(made)))
    ordered = in_order(made, {})
    assert_causal(ordered.ready)
    assert len(ordered.ready) + len(ordered.held) == len(made)
    again = in_order([*ordered.held, gone], ordered.versions)
    assert again.held == []
