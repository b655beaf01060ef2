"""Figures of the report: Spark's queries, and the bounded results fetched to the driver. Batch only.

Spark counts all rows. The fetched results are bounded, for any journal: `ROWS` rows of each table, `POINTS`
points for each of `COLOURS` topics or kinds of work, and `PARTS` intervals of each of `BARS` providers or hosts. Totals
are of all rows.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from nngkit.spark.analytics import availability, cluster, quality, traffic
from nngkit.spark.analytics.activity import Activity, collect_activity
from nngkit.spark.analytics.charts import COLOURS, Bar
from nngkit.spark.analytics.tables import ROWS, Table, as_table, ms, rounded, seconds_since, share_text, utc
from nngkit.spark.jobs.grouping import ACCURACY, by_columns
from nngkit.spark.jobs.headers import seconds_between

POINTS: Final = 120  # of a plot over time
BARS: Final = 30  # providers in the timeline, by ascending uptime
PARTS: Final = 400  # newest intervals of a provider in the timeline: a plot of 550 pixels shows no more
STEPS: Final = (1, 5, 15, 60, 300, 900, 3600, 21600, 86400, 604800)  # seconds of a plot's points

Points = dict[str, list[tuple[float, float]]]


class ClusterFigures(NamedTuple):
    """Figures of clusters. `by_kind`: ended jobs a second; `bars`: when each node was host.

    `unreadable`: records of jobs and hosts that cannot be read. `bars_cut`: hosts or reigns were left out.
    """

    jobs: int
    unreadable: int
    by_kind: Points
    work: Table
    dead: Table
    bars: list[Bar]
    bars_cut: bool
    reigns: Table


class Figures(NamedTuple):
    """Figures of the page. Times are seconds since 1970, `step` is seconds between points, latency is in ms.

    `skipped`: records left out because of damage, if the rows have them (`includeSkipped`).
    """

    messages: int
    size: int
    first: float | None
    last: float | None
    step: int
    by_topic: Points
    bytes_by_topic: Points
    latency_by_topic: Points
    topic_count: int
    topics: Table
    latency: Table
    bars: list[Bar]
    bars_cut: bool
    providers: Table
    providers_more: bool
    replies: Table
    edges: Table
    silences: Table
    duplicates: int
    skipped: int
    lost: int
    lost_ranges: Table
    skew: Table
    activity: Activity
    cluster: ClusterFigures | None = None


def collect(rows: DataFrame) -> Figures:
    """Return the figures. The rows are read once and cached meanwhile."""
    rows = rows.persist()
    try:
        return _collect(rows)
    finally:
        rows.unpersist()


def _collect(rows: DataFrame) -> Figures:
    skipped = 0
    if "skipped" in rows.columns:
        skipped = rows.agg(F.sum("skipped")).collect()[0][0] or 0
        rows = rows.where("skipped is null").drop("skipped")
    size = F.octet_length("value")
    whole = rows.agg(
        F.count("*").alias("n"),
        F.sum(size).alias("bytes"),
        F.min("timestamp").alias("a"),
        F.max("timestamp").alias("b"),
        F.count_distinct("topic").alias("topics"),
        F.count_if(F.col("protocol") == cluster.PROTOCOL).alias("cluster"),
    ).collect()[0]
    by_size = rows.groupBy("topic", "protocol").agg(F.count("*").alias("n"), F.sum(size).alias("bytes"))
    topics = by_size.orderBy(F.desc("n"), "topic").limit(ROWS + 1).collect()
    busiest = rows.groupBy("topic").agg(F.count("*").alias("n")).orderBy(F.desc("n"), "topic")
    named = [row.topic for row in busiest.limit(COLOURS if whole.topics <= COLOURS else COLOURS - 1).collect()]
    first = None if whole.a is None else seconds_since(whole.a)
    last = None if whole.b is None else seconds_since(whole.b)
    span = (last or 0.0) - (first or 0.0)
    step = next((each for each in STEPS if span / each <= POINTS), STEPS[-1] * math.ceil(span / STEPS[-1] / POINTS))
    messages, volume = _by_topic(rows, named, step)
    seen = availability.observations(rows)
    bars, bars_cut, providers, more = _providers(availability.intervals(seen))
    duplicates = quality.duplicates(rows).agg(F.sum(F.col("times") - 1)).collect()[0][0] or 0
    ranges = quality.lost(rows)
    lost = ranges.agg(F.sum("count")).collect()[0][0] or 0
    longest = ranges.orderBy(F.desc("count"), "topic", "sender", "first").limit(ROWS + 1).collect()
    return Figures(
        messages=whole.n,
        size=whole.bytes or 0,
        first=first,
        last=last,
        step=step,
        by_topic=messages,
        bytes_by_topic=volume,
        latency_by_topic=_latency_by_topic(rows, named, step),
        topic_count=whole.topics,
        topics=as_table(
            ("topic", "protocol", "messages", "bytes", "mean size", "messages/s", "bytes/s"),
            [
                (row.topic, row.protocol, row.n, row.bytes, round(row.bytes / row.n, 1))
                + ((rounded(row.n / span), rounded(row.bytes / span)) if span else ("-", "-"))
                for row in topics
            ],
        ),
        latency=as_table(
            ("topic", "messages", "p50 ms", "p95 ms", "p99 ms", "slowest ms"),
            [
                (row.topic, row.messages, *map(ms, (row.p50, row.p95, row.p99, row.slowest)))
                for row in by_columns(traffic.timed(rows), "topic", **traffic.latencies())
                .orderBy(F.desc("p95"), "topic")
                .limit(ROWS + 1)
                .collect()
            ],
        ),
        bars=bars,
        bars_cut=bars_cut,
        providers=providers,
        providers_more=more,
        replies=as_table(
            ("service", "provider", "replies", "p50 ms", "p95 ms", "p99 ms"),
            [
                (row.service, row.provider, row.replies, *map(ms, (row.p50, row.p95, row.p99)))
                for row in traffic.slowest(seen, ROWS + 1).collect()
            ],
        ),
        edges=as_table(
            ("from", "topic", "protocol", "messages", "bytes"),
            [
                (row.source, row.target, row.protocol, row.messages, row["bytes"])
                for row in traffic.edges(rows)
                .orderBy(F.desc("messages"), "source", "target", "protocol")
                .limit(ROWS + 1)
                .collect()
            ],
        ),
        silences=as_table(
            ("topic", "from", "messages", "usual pause s", "silent after s", "silences", "longest s"),
            [
                (
                    row.topic,
                    row.peer,
                    row.messages,
                    *map(rounded, (row.usual, row.over)),
                    row.silences,
                    rounded(row.longest),
                )
                for row in traffic.silences(rows)
                .where("silences > 0")
                .orderBy(F.desc(F.col("longest") / F.col("over")), "topic", "peer")
                .limit(ROWS + 1)
                .collect()
            ],
        ),
        skipped=int(skipped),
        duplicates=int(duplicates),
        lost=int(lost),
        lost_ranges=as_table(
            ("topic", "from", "first", "last", "count"),
            [(row.topic, row.sender, row.first, row.last, row["count"]) for row in longest],
        ),
        skew=as_table(
            ("from", "messages", "least ms", "median ms", "most ms"),
            [
                (row.sender, row.messages, *map(ms, (row.least, row.median, row.most)))
                for row in quality.skew(rows, "3650 days").orderBy("least", "sender").limit(ROWS + 1).collect()
            ],
        ),
        activity=collect_activity(rows, seen),
        cluster=_cluster(rows, step, whole.a, whole.b) if whole.cluster else None,
    )


def _named(named: Sequence[str], column: str = "topic") -> Column:
    """Return the topic, or "others" for topics not in `named`."""
    topic = F.col(column)
    return (F.when(topic.isin(*named), topic).otherwise("others") if named else topic).alias("name")


def _place(step: int, column: str = "timestamp") -> Column:
    return (F.floor(F.unix_micros(column) / (step * 1_000_000)) * step).alias("place")


def _by_topic(rows: DataFrame, named: Sequence[str], step: int) -> tuple[Points, Points]:
    """Return messages and bytes a second over time: of each topic in `named`, and of all others together."""
    size = F.sum(F.octet_length("value")).alias("bytes")
    counted = rows.groupBy(_named(named), _place(step)).agg(F.count("*").alias("n"), size).collect()
    return _rates(counted, "n", step), _rates(counted, "bytes", step)


def _rates(counted: Sequence[Any], which: str, step: int) -> Points:
    """Return a figure a second over time for each name; the names with the highest counts `n` first."""
    moments = sorted({row.place for row in counted})
    every = range(moments[0], moments[-1] + step, step) if moments else range(0)
    found: dict[str, dict[int, int]] = {}
    counts: dict[str, int] = {}
    for row in counted:
        found.setdefault(row.name, {})[row.place] = row[which]
        counts[row.name] = counts.get(row.name, 0) + row.n
    order = sorted(found, key=lambda each: (-counts[each], each))
    # A second without messages is a 0, not a line between its neighbours.
    return {each: [(float(at), found[each].get(at, 0) / step) for at in every] for each in order}


def _latency_by_topic(rows: DataFrame, named: Sequence[str], step: int) -> Points:
    """Return the p95 latency over time, in ms; no point without messages."""
    p95 = F.percentile_approx("seconds", 0.95, ACCURACY)
    found: Points = {}
    for row in by_columns(traffic.timed(rows), _named(named), _place(step), p95=p95).orderBy("place").collect():
        found.setdefault(row.name, []).append((float(row.place), row.p95 * 1000))
    return {each: found[each] for each in sorted(found)}


def _providers(parts: DataFrame) -> tuple[list[Bar], bool, Table, bool]:
    """Return the bars, whether they are cut, the table, and whether there are more providers than bars.

    Spark aggregates each provider's intervals; at most `BARS` providers with `PARTS` intervals each are fetched.
    """
    who = ("service", "provider", "daemon")
    in_order, newest = (Window.partitionBy(*who).orderBy(order) for order in (F.asc("start"), F.desc("start")))
    seconds = seconds_between("start", "end")
    numbered = parts.withColumn("number", F.row_number().over(in_order)).withColumn("seconds", seconds)
    summed = (
        numbered.groupBy(*who)
        .agg(
            F.coalesce(F.sum(F.when(F.col("up"), F.col("seconds"))), F.lit(0.0)).alias("up"),
            seconds_between(F.min("start"), F.max("end")).alias("whole"),
            F.count_if(~F.col("up") & (F.col("number") > 1)).alias("flaps"),
            F.sum("rounds").alias("rounds"),
            F.count("*").alias("parts"),
        )
        # A provider observed only once has no duration to take a share of.
        .withColumn("share", F.when(F.col("whole") > 0, F.col("up") / F.col("whole")))
        .orderBy(F.asc_nulls_last("share"), F.desc("flaps"), *who)
        .limit(max(BARS, ROWS) + 1)
    )
    found = summed.collect()
    shown = found[:BARS]
    spans: dict[tuple[str, str, str], list[tuple[float, float, bool]]] = {}
    if shown:
        wanted = summed.limit(BARS).select(*who)
        drawn = parts.withColumn("age", F.row_number().over(newest)).where(F.col("age") <= PARTS)
        for row in drawn.join(wanted, list(who)).orderBy("start").collect():
            key = (row.service, row.provider, row.daemon)
            spans.setdefault(key, []).append((seconds_since(row.start), seconds_since(row.end), bool(row.up)))
    bars = []
    for row in shown:
        parts_of = spans.get((row.service, row.provider, row.daemon), [])
        bars.append(Bar(f"{row.service} {row.provider}", parts_of, share_text(row.share)))
    table = [(row.service, row.provider, share_text(row.share), row.flaps, row.rounds) for row in found]
    head = ("service", "provider", "time up", "went down", "rounds")
    return bars, any(row.parts > PARTS for row in shown), as_table(head, table), len(found) > BARS


def _cluster(rows: DataFrame, step: int, first: dt.datetime, last: dt.datetime) -> ClusterFigures:
    decoded = cluster.decoded(rows).persist()  # decoded once for all queries
    try:
        jobs = cluster.readable(decoded)
        bad = cluster.unreadable(rows, decoded).agg(F.sum("records")).collect()[0][0]
        most = BARS * PARTS
        reigns = cluster.hosts(rows, jobs).orderBy(F.desc("start"), "cluster", F.desc("term")).limit(most + 1).collect()
        bars = _host_bars(reigns[:most])
        return ClusterFigures(
            jobs=jobs.count(),
            unreadable=int(bad or 0),
            by_kind=_by_kind(jobs, step, first, last),
            work=_work(jobs),
            dead=as_table(
                ("time", "kind", "job", "worker", "end", "tries", "error"),
                [
                    (utc(row.at), row.kind, row.id, row.worker, row.outcome, row.tries, f"{row.error} {row.text}"[:120])
                    for row in cluster.dead_letters(jobs).orderBy(F.desc("at"), "id").limit(ROWS + 1).collect()
                ],
            ),
            bars=bars[:BARS],
            bars_cut=len(reigns) > most or len(bars) > BARS,
            reigns=_reigns(reigns),
        )
    finally:
        decoded.unpersist()


def _by_kind(jobs: DataFrame, step: int, first: dt.datetime, last: dt.datetime) -> Points:
    """Return ended jobs a second over time, by kind, without ends far outside the journal's time: of a wrong clock."""
    busiest = (
        jobs.groupBy("kind").agg(F.count("*").alias("n")).orderBy(F.desc("n"), "kind").limit(COLOURS + 1).collect()
    )
    named = [row.kind for row in busiest[: COLOURS if len(busiest) <= COLOURS else COLOURS - 1]]
    slack = dt.timedelta(seconds=POINTS * step)
    within = jobs.where(F.col("at").between(first - slack, last + slack))
    counted = within.groupBy(_named(named, "kind"), _place(step, "at")).agg(F.count("*").alias("n")).collect()
    return _rates(counted, "n", step)


def _work(jobs: DataFrame) -> Table:
    by_worker = by_columns(jobs, "worker", "kind", **cluster.figures())
    busiest = by_worker.orderBy(F.desc("busy"), F.desc("jobs"), "worker", "kind")
    times = {
        "queue p50 ms": "waited_p50",
        "queue p95 ms": "waited_p95",
        "run p50 ms": "ran_p50",
        "run p95 ms": "ran_p95",
    }
    return as_table(
        ("worker", "kind", "jobs", "done", "dead", "busy s", *times, "retries"),
        [
            (
                *(row.worker or "-", row.kind, row.jobs, row.done, row.dead, rounded(row.busy)),
                *("-" if row[name] is None else ms(row[name]) for name in times.values()),
                row.retries,
            )
            for row in busiest.limit(ROWS + 1).collect()
        ],
    )


def _reigns(reigns: Sequence[Any]) -> Table:
    return as_table(
        ("cluster", "term", "host", "from", "until", "seconds", "then no host s", "jobs", "reported end"),
        [
            (
                *(row.cluster, row.term, row.host, utc(row.start), utc(row.end) if row.ended else "-"),
                *(rounded(row.seconds), "-" if row.gap is None else rounded(row.gap), row.jobs, row.why or "-"),
            )
            for row in reigns[: ROWS + 1]
        ],
    )


def _host_bars(reigns: Sequence[Any]) -> list[Bar]:
    """Return a bar for each host with its newest reigns, the newest host first."""
    found: dict[tuple[str, str], list[tuple[float, float, bool]]] = {}
    for row in reigns:
        found.setdefault((row.cluster, row.host), []).append((seconds_since(row.start), seconds_since(row.end), True))
    return [Bar(f"{name} {host}", parts[PARTS - 1 :: -1], str(len(parts))) for (name, host), parts in found.items()]
