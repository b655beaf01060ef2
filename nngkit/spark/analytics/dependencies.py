"""Dependencies: which node calls, publishes to, sends to or submits jobs to which other. Batch only.

::

    dependencies(rows).orderBy(F.desc("messages")).show()

============  ==================================  =====================================  ===============================
kind          source                              target                                 recorded by
============  ==================================  =====================================  ===============================
``calls``     requester                           service, or kind of the device         `nngkit device --record`
``publishes`` sender                              topic                                  a stream of `nngkit record`
``sends``     node of a cluster                   node, or "all nodes"                   a cluster's node (messages)
``submits``   node that submitted a job           node that worked on it                 a cluster's host (jobs)
============  ==================================  =====================================  ===============================

A recorder does not know the other subscribers of a topic, so a topic is a node of its own. A node is named by the
header ``from``; else by the service that discovery lists at its address; else by its host, as a dialing peer has
another port each time.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from nngkit.spark.analytics import cluster
from nngkit.spark.analytics.requests import is_exchange, requests, services
from nngkit.spark.analytics.traffic import totals
from nngkit.spark.jobs.grouping import by_columns
from nngkit.spark.jobs.headers import header, need

OWN: Final = ("survey", cluster.PROTOCOL)  # protocols of nngkit's own records, which are no traffic between programs
PORT: Final = r"^((?:[a-z+]+://)?(?:\[[^\]]*\]|[^:/]+)):[0-9]+(?:/.*)?$"  # host and port of a URL, or without a scheme


def dependencies(rows: DataFrame) -> DataFrame:
    """Return the edges: source, target, kind, messages, bytes, and the first and last time."""
    need(rows, "key", "value", "topic", "partition", "offset", "timestamp", "protocol", "peer", "headers")
    edges = _named(_published(rows).unionByName(_called(rows)), rows).unionByName(_clusters(rows))
    sums = {name: F.sum(name) for name in ("messages", "bytes")}
    return by_columns(edges, "source", "target", "kind", **sums, first=F.min("first"), last=F.max("last"))


def _published(rows: DataFrame) -> DataFrame:
    sized = rows.where(~F.col("protocol").isin(*OWN) & ~is_exchange()).select(
        F.coalesce(header("from").cast("string"), "peer", F.lit("unknown")).alias("who"),
        F.col("topic").alias("target"),
        F.octet_length("value").alias("size"),
        "timestamp",
    )
    return by_columns(sized, "who", "target", F.lit("publishes").alias("kind"), **totals("size", "timestamp"))


def _called(rows: DataFrame) -> DataFrame:
    asked = requests(rows).withColumn("size", F.col("request_bytes") + F.coalesce("reply_bytes", F.lit(0)))
    ends = F.col("requester").alias("who"), F.col("service").alias("target")
    return by_columns(asked, *ends, F.lit("calls").alias("kind"), **totals("size", "at"))


def _named(edges: DataFrame, rows: DataFrame) -> DataFrame:
    """Replace addresses of sources by the name of the service there, or by the host."""
    known = services(rows).withColumnRenamed("address", "who")
    host = F.regexp_replace("who", PORT, "$1")
    named = edges.join(F.broadcast(known), "who", "left").withColumn("source", F.coalesce("service", host))
    return named.drop("who", "service")


def _clusters(rows: DataFrame) -> DataFrame:
    """Return messages and jobs of clusters. A message's receiver is the end of its id: origin/epoch/seq/receiver."""
    of_cluster = rows.where((F.col("protocol") == cluster.PROTOCOL) & F.col("topic").endswith(".messages"))
    origin = header("from").cast("string")
    parts = of_cluster.select(
        origin.alias("source"),
        # the origin may contain a slash, so it is cut off by its length
        F.substr(header("id").cast("string"), F.length(origin) + 2).alias("rest"),
        F.octet_length("value").alias("size"),
        "timestamp",
    )
    receiver = F.regexp_extract("rest", r"^[0-9]+/[0-9]+/(.*)$", 1)
    target = F.when(receiver != "", receiver).otherwise("all nodes").alias("target")
    known = parts.where("source is not null")
    sent = by_columns(known, "source", target, F.lit("sends").alias("kind"), **totals("size", "timestamp"))
    jobs = cluster.ended(rows).where("worker != ''").withColumn("size", F.col("payload") + F.col("result"))
    ends = F.col("submitter").alias("source"), F.col("worker").alias("target")
    submitted = by_columns(jobs, *ends, F.lit("submits").alias("kind"), **totals("size", "at"))
    return sent.unionByName(submitted)
