"""How good the record is: duplicates, what is lost, and clocks that disagree.

::

    duplicates(rows).show()         # records with the id of another
    lost(rows).show()               # numbers that a sender gave out and nobody recorded
    skew(rows).show()               # sender's clock against the recorder's
    distinct(rows)                  # each record once; a stream too

Each looks at headers that whoever sends may set (headers.py); records without them are counted by nobody here.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from nngkit.spark.jobs.headers import header, need, number, sender, sent

__all__ = ["distinct", "duplicates", "lost", "skew"]


def duplicates(rows: DataFrame) -> DataFrame:
    """By topic and id: how often it was recorded, where it was twice or more, and the offsets. Batch only."""
    need(rows, "topic", "headers", "partition", "offset", "timestamp")
    return (
        rows.select("topic", header("id").alias("id"), "partition", "offset", "timestamp")
        .where("id is not null")
        .groupBy("topic", "id")
        .agg(
            F.count("*").alias("times"),
            F.sort_array(F.collect_list(F.struct("partition", "offset"))).alias("at"),
            F.min("timestamp").alias("first"),
            F.max("timestamp").alias("last"),
        )
        .where("times > 1")
    )


def distinct(rows: DataFrame, late: str | None = None) -> DataFrame:
    """Each record once: the one with an id of its own, and all that have none.

    For a stream say how much `late` a copy may come, such as "10 minutes": ids are remembered for that long.
    """
    need(rows, "topic", "headers", "timestamp", "partition", "offset")
    # A record without an id is its own: where it is, nobody else is.
    own = F.concat(F.col("partition").cast("string"), F.lit(":"), F.col("offset").cast("string"))
    keyed = rows.withColumn("_id", F.coalesce(F.hex(header("id")), own))
    if late is not None:
        return keyed.withWatermark("timestamp", late).dropDuplicatesWithinWatermark(["topic", "_id"]).drop("_id")
    return keyed.dropDuplicates(["topic", "_id"]).drop("_id")


def lost(rows: DataFrame) -> DataFrame:
    """By topic and sender: ranges of its numbers that are not there, from the first one that is. Batch only.

    A sender that starts again at a lower number is taken for a new run of the same one, not for a loss: where a number
    comes that is lower than one before it in time, the count begins again. Documents' updates are not looked at: they
    are numbered in each document, and their recorder asks for what is lost.
    """
    need(rows, "topic", "headers", "partition", "offset", "timestamp", "peer")
    in_time = Window.partitionBy("topic", "sender").orderBy("timestamp", "partition", "offset")
    numbered = (
        rows.where(header("origin").isNull())
        .select(
            "topic", sender().alias("sender"), number(header("seq")).alias("seq"), "timestamp", "partition", "offset"
        )
        .where("seq is not null")
        .withColumn("fell", F.col("seq") <= F.lag("seq").over(in_time))
    )
    # A step back of one place is a reordering or a copy; a run begins where the numbers start near 0 again.
    begins = F.when(F.col("fell") & (F.col("seq") <= 1), 1).otherwise(0)
    runs = numbered.withColumn("run", F.sum(begins).over(in_time))
    by_number = Window.partitionBy("topic", "sender", "run").orderBy("seq")
    return (
        runs.select("topic", "sender", "run", "seq", "timestamp")
        .withColumn("before", F.lag("seq").over(by_number))
        .withColumn("since", F.lag("timestamp").over(by_number))
        .where("seq > before + 1")
        .select(
            "topic",
            "sender",
            (F.col("before") + 1).alias("first"),
            (F.col("seq") - 1).alias("last"),
            (F.col("seq") - F.col("before") - 1).alias("count"),
            "since",
            F.col("timestamp").alias("until"),
        )
    )


def skew(rows: DataFrame, window: str = "1 hour") -> DataFrame:
    """By window, sender and partition: the least time, in seconds, from the sender's clock to the recorder's.

    The least is the clocks' difference and the fastest way there. Under 0 the sender's clock is ahead, by at least as
    much; far over what the network takes, it is behind. A stream too, once there is a watermark on `timestamp`.
    """
    need(rows, "headers", "partition", "timestamp", "peer")
    seconds = F.col("timestamp").cast("double") - sent().cast("double")
    return (
        rows.withColumn("seconds", seconds)
        .where("seconds is not null")
        .groupBy(F.window("timestamp", window).alias("w"), sender().alias("sender"), "partition")
        .agg(
            F.count("*").alias("messages"),
            F.min("seconds").alias("least"),
            F.median("seconds").alias("median"),
            F.max("seconds").alias("most"),
        )
        .select(
            F.col("w.start").alias("start"),
            F.col("w.end").alias("end"),
            "sender",
            "partition",
            "messages",
            "least",
            "median",
            "most",
        )
    )
