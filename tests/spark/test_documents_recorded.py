"""A recording of real peers by `nngkit.recording`, through Spark: current and earlier states of their documents."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import trio

from nngkit.documents import Document, DocumentPeer, NetworkFaults
from nngkit.documents.versions import EditStream
from nngkit.journal import Recorder, open_journal
from nngkit.recording import DocumentRecorder
from nngkit.spark.analytics.quality import distinct, duplicates, lost
from nngkit.spark.jobs.causal import Update, in_order
from nngkit.spark.jobs.documents import as_of, compact, edits, of_rows, updates
from nngkit.spark.jobs.snapshots import advance, load
from nngkit.testing import aeventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

HERE = "tcp://127.0.0.1:0"
PATIENCE = 30.0  # seconds: an upper bound for a busy machine; tests wait for events, not for times


class Recorded(NamedTuple):
    """Recording: `digests` at the end; `minutes` was `text` at time `then`, when the journal ended at `middle`."""

    journal: Path
    digests: dict[str, bytes]
    then: dt.datetime
    text: str
    middle: int


async def record(journal: Path) -> Recorded:
    """Record two peers that edit under loss; the recorder joins late, leaves, and returns."""
    async with (
        DocumentPeer(listen=HERE, name="ada", faults=NetworkFaults(loss=0.2)) as ada,
        DocumentPeer(listen=HERE, dial=ada.address, name="grace", faults=NetworkFaults(loss=0.2)) as grace,
    ):
        mine = [ada.open(name) for name in ("minutes", "notes")]
        theirs = [grace.open(name) for name in ("minutes", "notes")]
        both = list(zip(mine, theirs, strict=True))
        await grace.wait_for_peers(1, PATIENCE)

        async def edit(words: str) -> None:
            for number in range(100):
                for pair in both:
                    body = pair[number % 2].text("body")
                    body.insert(len(body) // 2, f"{words}{number};")
                    if number % 7 == 6:
                        del body[1:4]
                await trio.lowlevel.checkpoint()
            await aeventually(lambda: all(one.digest() == other.digest() for one, other in both), timeout=30.0)

        then, text, middle = dt.datetime.now(dt.UTC), "", 0
        await edit("before é ")
        for start in range(2):
            dial = [ada.address, grace.address]
            async with Recorder(journal) as recorder, DocumentRecorder(recorder, dial=dial) as kept:
                # This recorder joined late, so it gets the earlier edits as one merge.
                await aeventually(lambda: kept.digests == {doc.name: doc.digest() for doc in mine}, timeout=30.0)
                await edit(f"while {start} ")
                for doc in mine:
                    await doc.synced(1, PATIENCE)
                if not start:
                    then, text = dt.datetime.now(dt.UTC), str(mine[0].text("body"))
                    middle = recorder.stats.end
            if not start:
                await edit("between ")
        return Recorded(journal, {doc.name: doc.digest() for doc in mine}, then, text, middle)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return trio.run(record, tmp_path_factory.mktemp("recorded") / "j")


def rows(spark: SparkSession, recorded: Recorded) -> DataFrame:
    return spark.read.format("nng").option("includeHeaders", "true").load(str(recorded.journal))


def document(name: str, snapshot: bytes) -> Document:
    made = Document(name)
    made.merge(bytes(snapshot), None)
    return made


def digests(snapshots: DataFrame) -> dict[str, bytes]:
    found = snapshots.collect()
    assert not any(row.held for row in found)
    return {row.doc: document(row.doc, row.snapshot).digest() for row in found}


@pytest.mark.slow
def test_recording_compacts_to_the_peers_documents(spark: SparkSession, recorded: Recorded) -> None:
    came = updates(rows(spark, recorded))
    assert came.where("versions is not null").count() >= 2, "a late recorder gets each document as a whole"
    assert came.where("origin is not null").count() >= 200
    assert digests(compact(rows(spark, recorded))) == recorded.digests
    twice = rows(spark, recorded).union(rows(spark, recorded))
    assert digests(compact(twice.repartition(3))) == recorded.digests
    assert digests(compact(distinct(twice))) == recorded.digests
    assert duplicates(rows(spark, recorded)).count() == 0
    assert lost(rows(spark, recorded)).count() == 0, "merged edits count as lost"


def test_recorded_document_as_of_a_time(spark: SparkSession, recorded: Recorded) -> None:
    snapshot = as_of(rows(spark, recorded), "minutes", recorded.then)
    assert str(document("minutes", snapshot).text("body")) == recorded.text


@pytest.mark.slow
def test_recording_is_compacted_incrementally(spark: SparkSession, recorded: Recorded, tmp_path: Path) -> None:
    folder = str(tmp_path / "out")
    every, end = rows(spark, recorded), open_journal(recorded.journal).bounds(0).end
    advance(spark, of_rows(every.where(f"offset < {recorded.middle - 7}")), {0: recorded.middle - 7}, folder)
    advance(spark, of_rows(every.where(f"offset >= {recorded.middle - 7}")), {0: end}, folder)
    assert digests(load(spark, folder)) == recorded.digests


def test_recorded_edits_have_their_authors_names(spark: SparkSession, recorded: Recorded) -> None:
    found = {row.author for row in edits(updates(rows(spark, recorded))).collect()}
    assert found == {"ada", "grace", "unknown"}, "unknown is the author of merges"


# ---- the order, without Spark ----------------------------------------------------------------------------------------

ADA, BOB = EditStream(b"ada.....", 1), EditStream(b"bob.....", 1)


def test_merge_waits_for_its_dependencies_and_covers_its_versions() -> None:
    first = Update(ADA, 1, 1, {}, b"1")
    merge = Update(None, 0, 0, {ADA: 1}, b"2 to 9, and Bob's", {ADA: 9, BOB: 4})
    covered = Update(BOB, 2, 2, {}, b"Bob's second")
    after = Update(ADA, 10, 10, {BOB: 4}, b"10")
    ordered = in_order([after, merge, covered, first], {})
    assert [each.update for each in ordered.ready] == [b"1", b"2 to 9, and Bob's", b"10"]
    assert (ordered.held, ordered.versions) == ([], {ADA: 10, BOB: 4})
    alone = in_order([after, merge], {})
    assert (len(alone.held), alone.ready, alone.versions) == (2, [], {})
    again = in_order([*alone.held, first], alone.versions)
    assert (again.held, again.versions) == ([], {ADA: 10, BOB: 4})


def test_streams_too_old_to_be_listed_count_as_present_as_a_last_resort() -> None:
    starts = [EditStream(b"ada.....", epoch) for epoch in range(2, 40)]
    many = [Update(stream, 1, 1, {}, b"%d" % stream.epoch) for stream in starts]
    needs_old = Update(BOB, 1, 1, {ADA: 1}, b"Bob")
    assert not in_order([needs_old, *many], {}).held, "no version vector lists the first start any more"
    came_late = in_order([needs_old, *many, Update(ADA, 1, 1, {}, b"the first")], {})
    order = [each.update for each in came_late.ready]
    assert order.index(b"the first") < order.index(b"Bob"), "a recorded dependency must come first"
    few = in_order([needs_old, *many[:5]], {})
    assert few.held == [needs_old]
