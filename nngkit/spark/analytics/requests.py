"""Requests and their replies, joined by number, and the latency of services. Batch only.

::

    requests(rows).where("seconds is null").show()        # without a reply
    request_latency(rows, "1 hour").orderBy(F.desc("p95")).show()

The facts are those that `nngkit device --record` writes of a queue: each request and each reply as the device has
received it, with the key ``request`` or ``reply`` and, in the header ``number``, 8 bytes, big-endian, the same number
for both. Other programs may record theirs in this form. Both times are the recorder's, so no clocks are compared; the
way from the requester to the device and back is not included.

A *service* is the name under which discovery lists the replier's address, if the journal has its rounds; else that
address; else (a queue's replies have none) the kind of the device, which is the record's protocol.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from nngkit.spark.analytics.availability import observations
from nngkit.spark.jobs.grouping import by_window, quantiles
from nngkit.spark.jobs.headers import header, need, number, peer, seconds_between


def is_exchange() -> Column:
    """Return True for a record of a request or of a reply."""
    return F.coalesce(F.col("key").isin(b"request", b"reply") & number(header("number")).isNotNull(), F.lit(False))


def services(rows: DataFrame) -> DataFrame:
    """Return the newest name of each address that a discovery daemon has listed: address, service. Batch only."""
    seen = observations(rows)
    return seen.groupBy(F.col("provider").alias("address")).agg(F.max_by("service", "at").alias("service"))


def requests(rows: DataFrame) -> DataFrame:
    """Return each request: service, requester, replier, its time, and the seconds to its first reply, null without one.

    A device counts from 1 again when it is restarted: a reply belongs to the last request of its number before it.
    """
    need(rows, "key", "value", "topic", "partition", "offset", "timestamp", "protocol", "peer", "headers")
    in_order = Window.partitionBy("partition", "protocol", "number").orderBy("offset")
    parts = rows.where(is_exchange()).select(
        "partition",
        "offset",
        "protocol",
        number(header("number")).alias("number"),
        (F.col("key") == F.lit(b"request")).alias("asks"),
        F.col("timestamp").alias("at"),
        F.octet_length("value").alias("size"),
        F.col("peer").alias("address"),
        peer(rows).alias("who"),
    )
    reply = F.lead(F.struct("asks", "at", "size", "address")).over(in_order)
    joined = (
        parts.withColumn("next", reply).where("asks").withColumn("reply", F.when(~F.col("next.asks"), F.col("next")))
    )
    seconds = seconds_between("at", "reply.at")
    asked = joined.select(
        F.col("reply.address").alias("address"),
        F.col("who").alias("requester"),
        "protocol",
        "at",
        seconds.alias("seconds"),
        F.col("size").alias("request_bytes"),
        F.col("reply.size").alias("reply_bytes"),
        "partition",
        "offset",
    )
    named = asked.join(F.broadcast(services(rows)), "address", "left")
    return named.select(
        F.coalesce("service", "address", "protocol").alias("service"),
        "requester",
        F.col("address").alias("replier"),
        "at",
        "seconds",
        "request_bytes",
        "reply_bytes",
        "partition",
        "offset",
    )


def latencies() -> dict[str, Column]:
    """Return the figures of requests: their number, those answered, and p50, p95, p99 and the slowest in seconds."""
    counts = {"requests": F.count("*"), "answered": F.count("seconds")}
    return {**counts, **quantiles("seconds"), "slowest": F.max("seconds")}


def request_latency(rows: DataFrame, window: str = "1 hour") -> DataFrame:
    """Return, by window and service, requests, those answered, and p50, p95, p99 of the seconds to the reply."""
    return by_window(requests(rows), "at", window, "service", **latencies())
