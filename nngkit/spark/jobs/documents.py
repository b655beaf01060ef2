"""Documents from a journal: snapshots compacted from updates, a document as of a time, and edits by author.

::

    compact(rows)                                           # a snapshot of each document
    compact(rows.where("offset >= 1000"), before)           # only documents with updates, on top of `before`
    as_of(rows, "minutes", when)                            # one document as of a time
    edits(updates(rows))                                    # who edited what, and when

Compaction packs the rows by document (packing.py), shuffles the packets, and applies the updates in the workers
(compaction.py), each all updates of some documents at a time. An update with an unrecorded dependency is not applied
but kept in ``held``, and an incremental run tries it again.

A merge, the whole state that a peer sent to a recorder (`nngkit record`, docs/wire.md), is an update of many edits
without numbers of its own: it counts for all of its ``versions``, at the time it was recorded. So does the snapshot of
an earlier run.

A snapshot is a Yjs update with the whole document: ``Doc().apply_update(snapshot)``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Final, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from nngkit.errors import NotFound
from nngkit.spark.jobs.compaction import snapshots
from nngkit.spark.jobs.grouping import by_window
from nngkit.spark.jobs.headers import header, need, number, sender
from nngkit.spark.jobs.packing import COLUMNS, PACKED, names, packing
from nngkit.spark.reading.batches import BatchFunction

Apply: TypeAlias = Callable[[BatchFunction, str], DataFrame]
"""Applies a function to all batches of records with packing.COLUMNS, in Spark's workers; given the result's schema."""

TASKS: Final = 32
HEADERS: Final = "array<struct<key:string, value:binary>>"
WAITING: Final = f"struct<update:binary, headers:{HEADERS}>"
SNAPSHOT: Final = f"doc string, snapshot binary, versions binary, updates bigint, at timestamp, held array<{WAITING}>"


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


def of_rows(rows: DataFrame) -> Apply:
    """Return what applies a function to batches of rows, for `compacted`."""
    need(rows, *COLUMNS)
    narrow = rows.select(*COLUMNS)
    return narrow.mapInArrow


def compact(rows: DataFrame, before: DataFrame | None = None, tasks: int = TASKS) -> DataFrame:
    """Return a snapshot of each document in `rows`: (doc, snapshot, versions, updates, at, held). Batch only.

    `rows` are those of the journal, with their headers; those that are no updates are left out. `before` has snapshots
    of an earlier run: those of documents in `rows` are extended, others are neither read nor returned. `at` is the time
    of the newest update, `updates` the number of updates in the snapshot. Each of `tasks` has the updates of its
    documents in memory.
    """
    apply = of_rows(rows)
    extended = None if before is None else before.join(touched(apply), "doc", "left_semi")
    return compacted(apply, extended, tasks)


def touched(apply: Apply) -> DataFrame:
    """Return the names of the documents in the batches, `doc`, which are few: to be joined with, by each task."""
    return F.broadcast(apply(names, "doc string").distinct())


def compacted(apply: Apply, before: DataFrame | None, tasks: int) -> DataFrame:
    """Return `compact` of the batches that `apply` applies a function to, on top of the snapshots `before`."""
    packed = apply(packing(tasks), PACKED)
    if before is not None:
        versions = "array(named_struct('key', 'versions', 'value', versions))"
        base = f"cast(named_struct('update', snapshot, 'headers', {versions}) as {WAITING})"
        states = f"posexplode(concat(array({base}), held)) as (place, row)"
        earlier = before.selectExpr("doc", "at", states).selectExpr(
            "cast(doc as binary) as key",
            "row.update as value",
            "row.headers",
            "-1 as partition",  # sorts before all new updates
            "cast(place as bigint) as offset",
            "at as timestamp",
        )
        packed = packed.unionByName(of_rows(earlier)(packing(tasks), PACKED))
    return packed.repartitionById(tasks, "part").mapInArrow(snapshots, SNAPSHOT)


def as_of(rows: DataFrame, document: str, when: dt.datetime) -> bytes:
    """Return the snapshot of one document from the updates recorded until `when`. Runs immediately.

    Raises NotFound if there was none yet.
    """
    until = rows.where((F.col("key") == F.lit(document).cast("binary")) & (F.col("timestamp") <= F.lit(when)))
    found = compact(until, tasks=1).select("snapshot").collect()
    if not found:
        raise NotFound(f"no update of the document {document!r} was recorded until {when.isoformat()}")
    return bytes(found[0]["snapshot"])


def edits(updates: DataFrame, window: str = "1 day") -> DataFrame:
    """Return, by window, document and author, the updates, their bytes, first and last time.

    Streamable with a watermark on `at`.

    A merge counts as one update of the author `unknown`, as it has many.
    """
    figures = {"updates": F.count("*"), "bytes": F.sum(F.octet_length("update"))}
    return by_window(updates, "at", window, "doc", "author", **figures, first=F.min("at"), last=F.max("at"))
