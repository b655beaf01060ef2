"""Documents from a journal: snapshots compacted from updates, a document as of a time, and edits by author.

::

    edits = updates(rows)                                   # the recorded updates
    compact(edits)                                          # a snapshot of each document
    compact(edits.where("at > '2026-11-01'"), before)       # only documents with updates, on top of `before`
    as_of(edits, "minutes", when)                           # one document as of a time

Compaction has two steps. Before the shuffle, `mapInArrow` merges neighbouring updates of a stream, so that less is
shuffled. After it, `applyInArrow` takes a bucket of documents at a time (a call for each document costs more than the
document) and applies each one's updates in causal order (causal.py). An update with an unrecorded dependency is not
applied but kept in ``held``, and an incremental run tries it again.

A merge, the whole state that a peer sent to a recorder (`nngkit record`, docs/wire.md), is an update of many edits
without numbers of its own: it counts for all of its ``versions``, at the time it was recorded.

A snapshot is a Yjs update with the whole document: ``Doc().apply_update(snapshot)``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from nngkit.errors import NotFound
from nngkit.spark.jobs.headers import header, need, number, sender

if TYPE_CHECKING:
    import pyarrow as pa

    from nngkit.spark.jobs.causal import Update

__all__ = ["BUCKETS", "as_of", "compact", "edits", "updates"]

BUCKETS: Final = 64  # of a compaction: one call holds a 64th of the updates in memory
HELD_ROWS: Final = 100_000  # rows in which the first step looks for neighbours: some 10 MB

UPDATE: Final = (
    "doc string, update binary, origin binary, epoch bigint, first bigint, last bigint, deps binary, versions binary, "
    "partition int, offset bigint, at timestamp"
)
HELD: Final = (
    "array<struct<update:binary, origin:binary, epoch:bigint, first:bigint, last:bigint, deps:binary, versions:binary>>"
)
SNAPSHOT: Final = f"doc string, snapshot binary, versions binary, updates bigint, at timestamp, held {HELD}"


def updates(rows: DataFrame) -> DataFrame:
    """Select the rows that are updates of documents: those with an origin and a number, or with versions."""
    need(rows, "key", "value", "headers", "partition", "offset", "timestamp")
    seq = number(header("seq"))
    return rows.select(
        F.col("key").cast("string").alias("doc"),
        F.col("value").alias("update"),
        header("origin").alias("origin"),
        number(header("epoch")).alias("epoch"),
        seq.alias("first"),
        seq.alias("last"),
        header("deps").alias("deps"),
        header("versions").alias("versions"),
        "partition",
        "offset",
        F.col("timestamp").alias("at"),
        sender().alias("author"),
    ).where(
        "doc is not null and (versions is not null or (origin is not null and epoch is not null and first is not null))"
    )


def compact(edits: DataFrame, before: DataFrame | None = None, buckets: int = BUCKETS) -> DataFrame:
    """Return a snapshot of each document in `edits`: (doc, snapshot, versions, updates, at, held). Batch only.

    `before` has snapshots of an earlier run: those of documents in `edits` are extended, others are neither read nor
    returned. `at` is the time of the newest update, `updates` the number of updates in the snapshot.
    """
    columns = [name.split()[0] for name in UPDATE.split(", ")]
    together = edits.select(*columns).mapInArrow(_merge_neighbours, UPDATE)
    if before is not None:
        touched = before.join(edits.select("doc").distinct(), "doc", "left_semi")
        base = touched.select(
            "doc",
            F.col("snapshot").alias("update"),
            *(F.lit(None).cast(kind).alias(name) for name, kind in _kinds("origin", "epoch", "first", "last", "deps")),
            "versions",
            F.lit(-1).cast("int").alias("partition"),  # sorts before all new updates
            F.lit(-1).cast("bigint").alias("offset"),
            "at",
        )
        still = touched.select("doc", "at", F.inline("held")).select(
            "doc",
            "update",
            "origin",
            "epoch",
            "first",
            "last",
            "deps",
            "versions",
            F.lit(-1).cast("int").alias("partition"),
            F.lit(0).cast("bigint").alias("offset"),
            "at",
        )
        together = together.unionByName(base).unionByName(still)
    bucket = F.pmod(F.xxhash64("doc"), F.lit(buckets)).alias("bucket")
    return together.groupBy(bucket).applyInArrow(_snapshots, SNAPSHOT)


def as_of(edits: DataFrame, document: str, when: dt.datetime) -> bytes:
    """Return the snapshot of one document from the updates recorded until `when`. Runs immediately.

    Raises NotFound if there was none yet.
    """
    until = edits.where((F.col("doc") == document) & (F.col("at") <= F.lit(when)))
    found = compact(until, buckets=1).select("snapshot").collect()
    if not found:
        raise NotFound(f"no update of the document {document!r} was recorded until {when.isoformat()}")
    return bytes(found[0]["snapshot"])


def edits(updates: DataFrame, window: str = "1 day") -> DataFrame:
    """Return, by window, document and author, the updates, their bytes, first and last time.

    Streamable with a watermark on `at`.

    A merge counts as one update of the author `unknown`, as it has many.
    """
    return (
        updates.groupBy(F.window("at", window).alias("w"), "doc", "author")
        .agg(
            F.count("*").alias("updates"),
            F.sum(F.octet_length("update")).alias("bytes"),
            F.min("at").alias("first"),
            F.max("at").alias("last"),
        )
        .select(
            F.col("w.start").alias("start"),
            F.col("w.end").alias("end"),
            "doc",
            "author",
            "updates",
            "bytes",
            "first",
            "last",
        )
    )


def _kinds(*names: str) -> Iterator[tuple[str, str]]:
    kinds = dict(part.split() for part in UPDATE.split(", "))
    return ((name, kinds[name]) for name in names)


# ---- in the workers --------------------------------------------------------------------------------------------------


def _update_of(row: dict[str, Any]) -> Update:
    from nngkit import envelope
    from nngkit.documents.versions import EditStream, from_wire
    from nngkit.spark.jobs.causal import Update

    deps = from_wire(envelope.decode(row["deps"], what="deps"), what="deps") if row["deps"] else {}
    if row["versions"] is not None:
        versions = from_wire(envelope.decode(row["versions"], what="versions"), what="versions")
        return Update(None, 0, 0, deps, row["update"], versions)
    return Update(EditStream(row["origin"], row["epoch"]), row["first"], row["last"], deps, row["update"])


def _merge_neighbours(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge neighbouring updates of a stream into one row, with the newest of their times."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= HELD_ROWS:
            yield from _merged(pa.Table.from_batches(waiting)).to_batches()
            waiting, rows = [], 0
    if rows:
        yield from _merged(pa.Table.from_batches(waiting)).to_batches()


def _merged(table: pa.Table) -> pa.Table:
    import pyarrow as pa
    from pycrdt import merge_updates

    from nngkit.spark.jobs.causal import runs

    order = [("doc", "ascending"), ("origin", "ascending"), ("epoch", "ascending"), ("first", "ascending")]
    table = _times_as_numbers(table.sort_by(order))
    found: list[dict[str, Any]] = []
    for rows in _by_document(table):
        fresh = [row for number, row in enumerate(rows) if not number or not _same(row, rows[number - 1])]
        position = 0
        for run in runs(map(_update_of, fresh)):
            first, last = fresh[position], fresh[position + len(run) - 1]
            together = fresh[position : position + len(run)]
            position += len(run)
            said = [each.update for each in run if each.update]  # an update rejected by peers is recorded as empty
            update = said[0] if len(said) == 1 else merge_updates(*said) if said else b""
            found.append(
                first
                | {
                    "update": update,
                    "last": last["last"],
                    "offset": min(row["offset"] for row in together),
                    "at": max(row["at"] for row in together),
                }
            )
    return _numbers_as_times(pa.Table.from_pylist(found, schema=table.schema))


def _times_as_numbers(table: pa.Table) -> pa.Table:
    """Convert times to microseconds: as Python objects they would cost more than the rest of a row."""
    import pyarrow as pa

    place = table.schema.get_field_index("at")
    return table.set_column(place, "at", table.column("at").cast(pa.int64()))


def _numbers_as_times(table: pa.Table) -> pa.Table:
    import pyarrow as pa

    place = table.schema.get_field_index("at")
    return table.set_column(place, "at", table.column("at").cast(pa.timestamp("us", tz="UTC")))


def _same(row: dict[str, Any], other: dict[str, Any]) -> bool:
    if row["versions"] is not None:  # a merge has no number to compare
        return False
    return all(row[name] == other[name] for name in ("origin", "epoch", "first", "last"))


def _by_document(table: pa.Table) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of each document; the table is sorted by document."""
    rows: list[dict[str, Any]] = []
    for row in table.to_pylist():
        if rows and row["doc"] != rows[0]["doc"]:
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows


def _snapshots(table: pa.Table) -> pa.Table:
    """Compact one bucket's documents."""
    import pyarrow as pa

    table = table.sort_by([("doc", "ascending"), ("partition", "ascending"), ("offset", "ascending")])
    found = [_snapshot(rows) for rows in _by_document(_times_as_numbers(table))]
    struct = pa.struct(
        [
            ("update", pa.binary()),
            ("origin", pa.binary()),
            ("epoch", pa.int64()),
            ("first", pa.int64()),
            ("last", pa.int64()),
            ("deps", pa.binary()),
            ("versions", pa.binary()),
        ]
    )
    schema = pa.schema(
        [
            ("doc", pa.string()),
            ("snapshot", pa.binary()),
            ("versions", pa.binary()),
            ("updates", pa.int64()),
            ("at", pa.int64()),
            ("held", pa.list_(struct)),
        ]
    )
    return _numbers_as_times(pa.Table.from_pylist(found, schema=schema))


def _snapshot(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    from pycrdt import Doc

    from nngkit import envelope
    from nngkit.documents.versions import STREAMS, prune, to_wire
    from nngkit.spark.jobs.causal import in_order

    rows = list(rows)
    given = [(_update_of(row), row) for row in rows]  # an earlier snapshot is the first, a merge without dependencies
    ordered = in_order((update for update, _row in given), {})
    doc: Doc[Any] = Doc()
    for each in ordered.ready:
        if each.update:
            doc.apply_update(each.update)
    updates = sum(ordered.versions.values())
    if len(ordered.versions) > STREAMS:  # more than a version vector may list; each page load is a stream
        prune(ordered.versions)
    waiting = {id(each) for each in ordered.held}
    held = [row for update, row in given if id(update) in waiting]
    kept = ("update", "origin", "epoch", "first", "last", "deps", "versions")
    return {
        "doc": rows[0]["doc"],
        "snapshot": doc.get_update(),
        "versions": envelope.encode(to_wire(ordered.versions)),
        "updates": updates,
        "at": max(row["at"] for row in rows),
        "held": [{name: row[name] for name in kept} for row in held],
    }
