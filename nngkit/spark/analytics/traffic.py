"""Traffic: rates, sizes, silences and latency by topic and peer; slowest respondents; senders and their topics.

::

    rates(rows, "1 minute").orderBy("start").show()
    edges(rows).show()                                # sender -> topic, as a graph's edges

All but `silences` and `slowest` can be streamed with a watermark on `timestamp`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from nngkit.spark.analytics.availability import WHERE, answered, replies
from nngkit.spark.jobs.grouping import ACCURACY, by_columns, by_window, quantiles
from nngkit.spark.jobs.headers import need, peer, seconds_between, sent

PACE: Final = 10.0  # times the usual pause: with random senders, 1 pause in 1,000 is longer (2 ** -10)
SHORTEST: Final = 0.1  # seconds: shorter pauses are caused by schedulers and garbage collection


def rates(rows: DataFrame, window: str = "1 minute") -> DataFrame:
    """Return, by window, topic and peer, messages and bytes, both also a second, and message sizes."""
    need(rows, "value", "topic", "timestamp", "peer")
    size = F.octet_length("value")
    figures = {"smallest": F.min(size), **quantiles(size), "largest": F.max(size)}
    counted = by_window(rows, "timestamp", window, *_who(rows), messages=F.count("*"), bytes=F.sum(size), **figures)
    seconds = seconds_between("start", "end")
    totals = ("messages", "bytes")
    each_second = ((F.col(name) / seconds).alias(f"{name}_per_second") for name in totals)
    return counted.select("start", "end", "topic", "peer", *totals, *each_second, *figures)


def latency(rows: DataFrame, window: str = "1 minute") -> DataFrame:
    """Return, by window, topic and peer, recorder's clock minus sender's clock in seconds, for records with ``sent``.

    Includes the difference of the clocks, which quality.skew estimates.
    """
    need(rows, "topic", "timestamp", "peer", "headers")
    return by_window(timed(rows), "timestamp", window, *_who(rows), **latencies())


def timed(rows: DataFrame) -> DataFrame:
    """Return the rows with a send time, and the `seconds` from the sender's clock to the recorder's."""
    return rows.withColumn("seconds", seconds_between(sent(), "timestamp")).where("seconds is not null")


def latencies() -> dict[str, Column]:
    """Return the figures of rows that are `timed`."""
    return {"messages": F.count("*"), **quantiles("seconds"), "slowest": F.max("seconds")}


def _who(rows: DataFrame) -> tuple[Column | str, ...]:
    return "topic", peer(rows).alias("peer")


def silences(rows: DataFrame, over: float | None = None) -> DataFrame:
    """Return, by topic and peer, the number of pauses over `over` seconds, and the longest pause. Batch only.

    By default, `over` follows each topic's pace: `PACE` times the peer's median pause on it, and at least `SHORTEST`.
    So a topic with one message an hour is not always silent, and one with a hundred a second is after 0.1 s.
    """
    need(rows, "topic", "timestamp", "peer", "partition", "offset")
    named = rows.select("topic", peer(rows).alias("peer"), "timestamp", "partition", "offset")
    before = F.lag("timestamp").over(Window.partitionBy("topic", "peer").orderBy("timestamp", "partition", "offset"))
    paused = named.withColumn("seconds", seconds_between(before, "timestamp"))
    who = ["topic", "peer"]
    usual = by_columns(paused, *who, usual=F.percentile_approx("seconds", 0.5, ACCURACY))
    own = F.greatest(F.col("usual") * PACE, F.lit(SHORTEST)) if over is None else F.lit(float(over))
    return by_columns(
        paused.join(usual.withColumn("over", own), who),
        *(*who, "usual", "over"),
        messages=F.count("*"),
        silences=F.count_if(F.col("seconds") > F.col("over")),
        longest=F.max("seconds"),
        first=F.min("timestamp"),
        last=F.max("timestamp"),
    )


def slowest(seen: DataFrame, most: int = 10) -> DataFrame:
    """Return the providers with the slowest responses, by p95; `seen` is from availability.observations. Batch only."""
    by_provider = by_columns(answered(seen), *WHERE, **replies())
    return by_provider.orderBy(F.desc("p95"), "service", "provider").limit(most)


def edges(rows: DataFrame) -> DataFrame:
    """Return edges from senders to topics, by protocol, with messages, bytes, first and last time."""
    need(rows, "value", "topic", "timestamp", "peer", "protocol")
    who = peer(rows).alias("source"), F.col("topic").alias("target"), "protocol"
    return by_columns(rows, *who, **totals(F.octet_length("value"), "timestamp"))


def totals(size: Column | str, at: str) -> dict[str, Column]:
    """Return the figures of messages of this size at this time: their number, bytes, first and last time."""
    return {"messages": F.count("*"), "bytes": F.sum(size), "first": F.min(at), "last": F.max(at)}
