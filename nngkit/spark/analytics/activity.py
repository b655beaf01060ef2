"""Figures of the report about hours, sessions, requests, dependencies and documents. Batch only.

Each is fetched only if the journal has its records, so that a report on other traffic does not pay for it. The results
are bounded, whatever the journal's size.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from nngkit.spark.analytics import cluster
from nngkit.spark.analytics.dependencies import dependencies
from nngkit.spark.analytics.graph import Edge
from nngkit.spark.analytics.requests import is_exchange, latencies, requests
from nngkit.spark.analytics.sessions import sessions
from nngkit.spark.analytics.tables import ROWS, Table, as_table, ms, rounded, share_text, utc
from nngkit.spark.jobs import documents
from nngkit.spark.jobs.grouping import ACCURACY, by_columns
from nngkit.spark.jobs.headers import header, seconds_between, sent

EDGES: Final = 60  # in the picture of dependencies: more are not told apart


class Activity(NamedTuple):
    """`hours`: those with the highest latency and the most failed rounds. None: the journal has no such records."""

    hours: Table
    sessions: Table
    edges: list[Edge]
    edges_cut: bool
    requests: Table | None
    documents: Table | None


def collect_activity(rows: DataFrame, seen: DataFrame) -> Activity:
    """Return the figures. `seen` is from availability.observations."""
    kinds = rows.agg(
        F.coalesce(F.bool_or(is_exchange()), F.lit(False)).alias("requests"),
        F.coalesce(F.bool_or(F.coalesce(header("origin"), header("versions")).isNotNull()), F.lit(False)).alias(
            "edits"
        ),
    ).collect()[0]
    busiest = dependencies(rows).orderBy(F.desc("messages"), "source", "target", "kind").limit(EDGES + 1).collect()
    return Activity(
        hours=_hours(rows, seen),
        sessions=_sessions(rows),
        edges=[Edge(row.source, row.target, row.kind, row.messages) for row in busiest[:EDGES]],
        edges_cut=len(busiest) > EDGES,
        requests=_requests(rows) if kinds.requests else None,
        documents=_documents(rows) if kinds.edits else None,
    )


def _hours(rows: DataFrame, seen: DataFrame) -> Table:
    """Return the hours in which latency and failed rounds are furthest above their means over all hours."""
    traffic = by_columns(
        rows.withColumn("seconds", seconds_between(sent(), "timestamp")),
        F.date_trunc("hour", "timestamp").alias("hour"),
        messages=F.count("*"),
        bytes=F.sum(F.octet_length("value")),
        p95=F.percentile_approx("seconds", 0.95, ACCURACY),
        slowest=F.max("seconds"),
    )
    failed = F.avg((~F.col("up")).cast("double"))
    rounds = by_columns(seen, F.date_trunc("hour", "at").alias("hour"), failed=failed)
    everything = Window.partitionBy()  # of hours: some 10,000 rows a year
    joined = traffic.join(rounds, "hour", "left")
    above = sum(
        (F.coalesce(F.try_divide(name, F.avg(name).over(everything)), F.lit(0.0)) for name in ("p95", "failed")),
        F.lit(0.0),
    )
    worst = joined.withColumn("above", above).where("above > 0").orderBy(F.desc("above"), "hour").limit(ROWS + 1)
    return as_table(
        ("hour", "messages", "bytes", "latency p95 ms", "slowest ms", "rounds failed"),
        [
            (
                utc(row.hour)[:16],
                row.messages,
                row["bytes"],
                _or_none(row.p95),
                _or_none(row.slowest),
                share_text(row.failed),
            )
            for row in worst.collect()
        ],
    )


def _or_none(seconds: float | None) -> Any:
    return "-" if seconds is None else ms(seconds)


def _sessions(rows: DataFrame) -> Table:
    between = rows.where(~F.col("protocol").isin("survey", cluster.PROTOCOL))
    by_peer = by_columns(
        sessions(between),
        "peer",
        sessions=F.count("*"),
        messages=F.sum("messages"),
        bytes=F.sum("bytes"),
        median=F.median("seconds"),
        longest=F.max("seconds"),
        last=F.max("end"),
    )
    return as_table(
        ("from", "sessions", "messages", "bytes", "median s", "longest s", "last seen"),
        [
            (
                row.peer,
                row.sessions,
                row.messages,
                row["bytes"],
                rounded(row.median),
                rounded(row.longest),
                utc(row.last),
            )
            for row in by_peer.orderBy(F.desc("messages"), "peer").limit(ROWS + 1).collect()
        ],
    )


def _requests(rows: DataFrame) -> Table:
    by_service = by_columns(requests(rows), "service", **latencies())
    return as_table(
        ("service", "requests", "answered", "p50 ms", "p95 ms", "p99 ms", "slowest ms"),
        [
            (row.service, row.requests, row.answered, *map(_or_none, (row.p50, row.p95, row.p99, row.slowest)))
            for row in by_service.orderBy(F.desc("requests"), "service").limit(ROWS + 1).collect()
        ],
    )


def _documents(rows: DataFrame) -> Table:
    by_document = by_columns(
        documents.updates(rows),
        "doc",
        updates=F.count("*"),
        bytes=F.sum(F.octet_length("update")),
        authors=F.count_distinct("author"),
        first=F.min("at"),
        last=F.max("at"),
    )
    return as_table(
        ("document", "updates", "bytes", "authors", "first", "last"),
        [
            (row.doc, row.updates, row["bytes"], row.authors, utc(row["first"]), utc(row["last"]))
            for row in by_document.orderBy(F.desc("updates"), "doc").limit(ROWS + 1).collect()
        ],
    )
