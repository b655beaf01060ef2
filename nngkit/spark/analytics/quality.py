"""Quality of the recorded data: duplicates, lost ranges, and clock skew.

::

    duplicates(rows).show()         # records with the same id
    lost(rows).show()               # sequence numbers that were never recorded
    skew(rows).show()               # recorder's clock minus sender's
    distinct(rows)                  # each record once; can be streamed

Each job uses headers that senders may set (headers.py); records without them are ignored.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from nngkit.spark.analytics.traffic import timed
from nngkit.spark.jobs.grouping import by_window
from nngkit.spark.jobs.headers import header, need, number, sender


def duplicates(rows: DataFrame) -> DataFrame:
    """Return, by topic and id, how often it was recorded, if more than once, and where. Batch only.

    Of several journals, an id is one record in each of them, and the result has the column `journal`.
    """
    need(rows, "topic", "headers", "partition", "offset", "timestamp")
    by = [*_journal(rows), "topic"]
    return (
        rows.select(*by, header("id").alias("id"), "partition", "offset", "timestamp")
        .where("id is not null")
        .groupBy(*by, "id")
        .agg(
            F.count("*").alias("times"),
            F.sort_array(F.collect_list(F.struct("partition", "offset"))).alias("at"),
            F.min("timestamp").alias("first"),
            F.max("timestamp").alias("last"),
        )
        .where("times > 1")
    )


def distinct(rows: DataFrame, late: str | None = None) -> DataFrame:
    """Return each record once: the first of each id, and all records without an id. Two journals share no record.

    For a stream, `late` limits how long ids are remembered, such as "10 minutes"; later duplicates pass.
    """
    need(rows, "topic", "headers", "timestamp", "partition", "offset")
    # A record without an id is identified by its offset, which is unique.
    own = F.concat(F.col("partition").cast("string"), F.lit(":"), F.col("offset").cast("string"))
    keyed, key = rows.withColumn("_id", F.coalesce(F.hex(header("id")), own)), [*_journal(rows), "topic", "_id"]
    if late is not None:
        return keyed.withWatermark("timestamp", late).dropDuplicatesWithinWatermark(key).drop("_id")
    return keyed.dropDuplicates(key).drop("_id")


def _journal(rows: DataFrame) -> list[str]:
    """Return the column by which rows of several journals differ; none for those of one."""
    return ["journal"] if "journal" in rows.columns else []


def lost(rows: DataFrame) -> DataFrame:
    """Return, by topic and sender, the missing ranges of sequence numbers after the first one. Batch only.

    A sender that restarts its numbers begins a new run, and nothing counts as lost: a run begins where a number is
    lower than an earlier one and near 0. Documents' updates are ignored: they are numbered in each document, and their
    recorder requests missing ones.
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
    # A number that goes back is a reordering or a duplicate; a run begins when the numbers start near 0 again.
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
    """Return, by window, sender and partition, the minimum of recorder's clock minus sender's clock, in seconds.

    The minimum is the clock difference plus the fastest delivery. If negative, the sender's clock is ahead by at least
    that much; if far above the network's delay, it is behind. Streamable with a watermark on `timestamp`.
    """
    need(rows, "headers", "partition", "timestamp", "peer")
    return by_window(
        timed(rows),
        "timestamp",
        window,
        sender().alias("sender"),
        "partition",
        messages=F.count("*"),
        least=F.min("seconds"),
        median=F.median("seconds"),
        most=F.max("seconds"),
    )
