"""The extra `spark`, on the machine's Java: a journal is recorded, its manifest rebuilt, and it is read three ways."""

from __future__ import annotations

from pathlib import Path

import trio

from nngkit.journal import Recorder, rebuild_manifest
from nngkit.spark import scan, session
from nngkit.spark.analytics.quality import distinct
from nngkit.spark.session import SMALL


async def record() -> None:
    async with Recorder("j") as recorder:
        for number in range(100):
            recorder.put(b"%d" % number, topic="t", protocol="sub", headers={"id": b"%d" % (number % 10)})


trio.run(record)
Path("j/partition-00000/manifest.json").unlink()
assert rebuild_manifest("j").adopted
with session("local[1]", conf=SMALL) as spark:
    rows = spark.read.format("nng").option("includeHeaders", "true").load("j")
    assert (rows.count(), distinct(rows).count(), scan(spark, "j").count()) == (100, 10, 100)
    stream = spark.readStream.format("nng").option("startingOffsets", "earliest").load("j").writeStream
    query = stream.format("memory").queryName("all").trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert spark.table("all").count() == 100
