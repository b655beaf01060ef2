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

from nngkit.spark.analytics.availability import ACCURACY
from nngkit.spark.jobs.headers import need, peer, seconds_between, sent

PACE: Final = 10.0  # times the usual pause: with random senders, 1 pause in 1,000 is longer (2 ** -10)
SHORTEST: Final = 0.1  # seconds: shorter pauses are caused by schedulers and garbage collection
QUANTILES: Final = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


def _quantiles(of: Column) -> Column:
    return F.percentile_approx(of, [share for _name, share in QUANTILES], ACCURACY)


def _apart(quantiles: str) -> list[Column]:
    return [F.col(quantiles)[index].alias(name) for index, (name, _share) in enumerate(QUANTILES)]


def rates(rows: DataFrame, window: str = "1 minute") -> DataFrame:
    """Return, by window, topic and peer, messages and bytes, both also a second, and message sizes."""
    need(rows, "value", "topic", "timestamp", "peer")
    size = F.octet_length("value")
    seconds = seconds_between("w.start", "w.end")
    return (
        rows.groupBy(F.window("timestamp", window).alias("w"), "topic", peer(rows).alias("peer"))
        .agg(
            F.count("*").alias("messages"),
            F.sum(size).alias("bytes"),
            F.min(size).alias("smallest"),
            _quantiles(size).alias("q"),
            F.max(size).alias("largest"),
        )
        .select(
            F.col("w.start").alias("start"),
            F.col("w.end").alias("end"),
            "topic",
            "peer",
            "messages",
            "bytes",
            (F.col("messages") / seconds).alias("messages_per_second"),
            (F.col("bytes") / seconds).alias("bytes_per_second"),
            "smallest",
            *_apart("q"),
            "largest",
        )
    )


def latency(rows: DataFrame, window: str = "1 minute") -> DataFrame:
    """Return, by window, topic and peer, recorder's clock minus sender's clock in seconds, for records with ``sent``.

    Includes the difference of the clocks, which quality.skew estimates.
    """
    need(rows, "topic", "timestamp", "peer", "headers")
    seconds = seconds_between(sent(), "timestamp")
    return (
        rows.withColumn("seconds", seconds)
        .where("seconds is not null")
        .groupBy(F.window("timestamp", window).alias("w"), "topic", peer(rows).alias("peer"))
        .agg(F.count("*").alias("messages"), _quantiles(F.col("seconds")).alias("q"), F.max("seconds").alias("slowest"))
        .select(
            F.col("w.start").alias("start"),
            F.col("w.end").alias("end"),
            "topic",
            "peer",
            "messages",
            *_apart("q"),
            "slowest",
        )
    )


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
    usual = paused.groupBy(*who).agg(F.percentile_approx("seconds", 0.5, ACCURACY).alias("usual"))
    own = F.greatest(F.col("usual") * PACE, F.lit(SHORTEST)) if over is None else F.lit(float(over))
    return (
        paused.join(usual.withColumn("over", own), who)
        .groupBy(*who, "usual", "over")
        .agg(
            F.count("*").alias("messages"),
            F.count_if(F.col("seconds") > F.col("over")).alias("silences"),
            F.max("seconds").alias("longest"),
            F.min("timestamp").alias("first"),
            F.max("timestamp").alias("last"),
        )
    )


def slowest(seen: DataFrame, most: int = 10) -> DataFrame:
    """Return the providers with the slowest responses, by p95; `seen` is from availability.observations. Batch only."""
    return (
        seen.where("up and seconds is not null")
        .groupBy("service", "provider", "zone")
        .agg(F.count("*").alias("replies"), _quantiles(F.col("seconds")).alias("q"), F.max("seconds").alias("slowest"))
        .select("service", "provider", "zone", "replies", *_apart("q"), "slowest")
        .orderBy(F.desc("p95"), "service", "provider")
        .limit(most)
    )


def edges(rows: DataFrame) -> DataFrame:
    """Return edges from senders to topics, by protocol, with messages, bytes, first and last time."""
    need(rows, "value", "topic", "timestamp", "peer", "protocol")
    return rows.groupBy(peer(rows).alias("source"), F.col("topic").alias("target"), "protocol").agg(
        F.count("*").alias("messages"),
        F.sum(F.octet_length("value")).alias("bytes"),
        F.min("timestamp").alias("first"),
        F.max("timestamp").alias("last"),
    )
