"""Sessions of peers, and peers that a journal has not seen before. Both can be streamed.

::

    sessions(rows, "5 minutes").show()
    before = peers(spark.read.format("nng").load("journal"))      # a batch aggregate
    with_unseen(spark.readStream.format("nng").load("journal"), before).where("unseen")
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from nngkit.spark.jobs.grouping import by_columns
from nngkit.spark.jobs.headers import need, peer, seconds_between

GAP: Final = "5 minutes"  # the usual end of a visit; a sender with a heartbeat every minute may miss four


def sessions(rows: DataFrame, gap: str = GAP) -> DataFrame:
    """Return the sessions of each peer: records with less than `gap` between two, with their bytes and topics.

    `start` and `end` are the times of the first and of the last record, `seconds` is between them. As a stream, with a
    watermark on `timestamp`, a session is returned when the watermark has passed `gap` after its end.
    """
    need(rows, "value", "topic", "timestamp", "peer")
    return by_columns(
        rows,
        F.session_window("timestamp", gap).alias("w"),
        peer(rows).alias("peer"),
        start=F.min("timestamp"),
        end=F.max("timestamp"),
        seconds=seconds_between(F.min("timestamp"), F.max("timestamp")),
        messages=F.count("*"),
        bytes=F.sum(F.octet_length("value")),
        topics=F.sort_array(F.collect_set("topic")),
    ).drop("w")


def peers(rows: DataFrame) -> DataFrame:
    """Return each peer with its first and last time, its messages and topics. Batch only."""
    need(rows, "topic", "timestamp", "peer")
    return by_columns(
        rows,
        peer(rows).alias("peer"),
        first=F.min("timestamp"),
        last=F.max("timestamp"),
        messages=F.count("*"),
        topics=F.sort_array(F.collect_set("topic")),
    )


def with_unseen(rows: DataFrame, before: DataFrame) -> DataFrame:
    """Return `rows`, usually a stream, with `sender` and with `unseen`: True if it is not one of the peers `before`.

    `before` is a result of `peers`. If that is read from the journal that the stream continues, limit it to the time
    before the stream's start: otherwise each micro-batch reads the journal again, with the stream's own records in it.
    """
    need(rows, "peer")
    known = before.select(F.col("peer").alias("sender"), F.lit(False).alias("unseen"))
    named = rows.withColumn("sender", peer(rows))
    # Peers are few compared with records, so that each task gets all of them, and the stream is not shuffled.
    return named.join(F.broadcast(known), "sender", "left").withColumn("unseen", F.coalesce("unseen", F.lit(True)))
