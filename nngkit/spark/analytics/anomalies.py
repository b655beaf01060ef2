"""Anomalies: windows with far more or far fewer messages than the same window a week before. Batch only.

::

    anomalies(rows, "1 hour").orderBy(F.desc("score")).show()

The *change* of a window is its number of messages minus that of the window 7 days before. The *score* is the change
minus the usual change, in units of its usual spread: median and 1.4826 times the median absolute deviation (which is
the standard deviation of normal data) over all windows of that topic and peer, those without a record included. The
spread is at least the square root of the number a week before, and at least 1: random arrivals vary by that much, and
perfectly even traffic would make every change infinite.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from nngkit.errors import ConfigError
from nngkit.spark.jobs.headers import need, peer
from nngkit.spark.reading.durations import seconds_of

BEYOND: Final = 5.0  # spreads: of normally distributed changes, 1 in 1,700,000 is beyond
DAYS: Final = 8  # days of a journal at least: a week back, and a day of changes of which the usual one is the median
SECOND: Final = 1_000_000  # microseconds, the unit of times below
WEEK: Final = 7 * 86_400 * SECOND
NORMAL: Final = 1.4826
WHO: Final = ("topic", "peer")


def anomalies(rows: DataFrame, window: str = "1 hour", beyond: float = BEYOND) -> DataFrame:
    """Return the windows of each topic, and of each topic and peer, whose score is beyond `beyond` or -`beyond`.

    `peer` is null where all peers of the topic are counted together. `messages` and `before` are 0 without a record;
    `ratio` is one by the other, null if there was no message a week before. Only windows are compared that the rows
    cover from begin to end, now and a week before. Rows of less than 8 days have no anomalies.

    Raises ConfigError if a week is not a multiple of the window.
    """
    need(rows, "topic", "timestamp", "peer")
    length = round(seconds_of(window, "window") * SECOND)
    if WEEK % length:
        raise ConfigError("window", f"a week is not a multiple of {window!r}, so that no window has one before", window)
    counted = _counts(rows, window)
    changes = _with_spread(_changes(counted).crossJoin(F.broadcast(_covered(counted, length))), length)
    score = (F.col("change") - F.col("usual")) / F.greatest(
        F.col("deviation") * NORMAL, F.sqrt(F.col("before").cast("double")), F.lit(1.0)
    )
    return (
        changes.where("at is not null")
        .withColumn("score", score)
        .where(F.abs("score") >= beyond)
        .select(
            F.timestamp_micros("at").alias("start"),
            F.timestamp_micros(F.col("at") + length).alias("end"),
            *WHO,
            "messages",
            "before",
            F.try_divide("messages", "before").alias("ratio"),
            "score",
        )
    )


def _counts(rows: DataFrame, window: str) -> DataFrame:
    """Return messages by topic, peer and window; with a null peer, those of all peers."""
    each = rows.groupBy(F.window("timestamp", window).alias("w"), "topic", peer(rows).alias("peer")).agg(
        F.count("*").alias("n"), F.min("timestamp").alias("first"), F.max("timestamp").alias("last")
    )
    both = F.explode(F.array(F.lit(None).cast("string"), F.col("peer"))).alias("peer")
    return (
        each.select(F.unix_micros("w.start").alias("at"), "topic", both, "n", "first", "last")
        .groupBy("at", *WHO)
        .agg(F.sum("n").alias("n"), F.min("first").alias("first"), F.max("last").alias("last"))
    )


def _covered(counted: DataFrame, length: int) -> DataFrame:
    """Return, in one row, the first and the last window that are compared."""

    def whole(moment: Column) -> Column:
        return F.floor(moment / length) * length

    first, last = (F.unix_micros(name) for name in ("first", "last"))
    return (
        counted.agg(F.min(first).alias("first"), F.max(last).alias("last"))
        .where(F.col("last") - F.col("first") >= DAYS * 86_400 * SECOND)
        .select(
            (-whole(-F.col("first")) + WEEK).alias("begin"),  # rounded up
            (whole(F.col("last")) - length).alias("final"),
        )
    )


def _changes(counted: DataFrame) -> DataFrame:
    """Return messages now and a week before, of windows with a record in one of the two."""
    zero = F.lit(0).cast("bigint")
    now = F.struct(F.col("at").alias("at"), F.col("n").alias("messages"), zero.alias("before"))
    later = F.struct((F.col("at") + WEEK).alias("at"), zero.alias("messages"), F.col("n").alias("before"))
    return (
        counted.select(*WHO, F.explode(F.array(now, later)).alias("part"))
        .groupBy(*WHO, "part.at")
        .agg(F.sum("part.messages").alias("messages"), F.sum("part.before").alias("before"))
        .withColumn("change", F.col("messages") - F.col("before"))
    )


def _with_spread(changes: DataFrame, length: int) -> DataFrame:
    """Add each topic's and peer's usual change and its deviation, to the windows between `begin` and `final`.

    Windows without a record in either week are many, and equal: one row with a null `at` stands for all of them.
    """
    within = changes.where("at between begin and final")
    all_of_it = Window.partitionBy(*WHO)
    others = (F.col("final") - F.col("begin")) / length + 1 - F.count("*").over(all_of_it)
    numbered = within.withColumn("others", others.cast("bigint")).withColumn(
        "number", F.row_number().over(all_of_it.orderBy("at"))
    )
    zero = F.lit(0).cast("bigint")
    own = F.struct(*(F.col(name) for name in ("at", "messages", "before", "change")), F.lit(1).alias("times"))
    empty = F.struct(
        F.lit(None).cast("bigint").alias("at"),
        *(zero.alias(name) for name in ("messages", "before", "change")),
        F.col("others").cast("int").alias("times"),
    )
    parts = F.when(F.col("number") == 1, F.array(own, empty)).otherwise(F.array(own))
    weighted = numbered.select(*WHO, F.explode(parts).alias("part")).select(*WHO, "part.*")
    usual = F.percentile("change", 0.5, F.col("times")).over(all_of_it)
    changed = weighted.withColumn("usual", usual)
    deviation = F.percentile(F.abs(F.col("change") - F.col("usual")), 0.5, F.col("times")).over(all_of_it)
    return changed.withColumn("deviation", deviation)
