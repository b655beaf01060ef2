"""A journal in Spark: written, counted by topic, and followed as a stream.

::

    python3 examples/spark.py        needs 'nngkit[spark,journal]', and a Java, or 'nngkit[java]'

prints, beside what Java has to say on stderr::

    topic-0: 10 records
    topic-1: 10 records
    topic-2: 10 records
    the stream brought 10 of topic-1
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import trio

from nngkit.journal import Recorder
from nngkit.spark import session
from nngkit.spark.session import SMALL


async def record(journal: Path) -> None:
    """Thirty records on three topics; leaving the recorder puts them on the disk."""
    async with Recorder(journal) as recorder:
        for number in range(30):
            recorder.put(f"message {number}".encode(), topic=f"topic-{number % 3}", protocol="example")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder, "journal")
        trio.run(record, journal)
        with session("local[2]", conf=SMALL) as spark:
            rows = spark.read.format("nng").load(str(journal))
            for row in rows.groupBy("topic").count().orderBy("topic").collect():
                print(f"{row.topic}: {row['count']} records")
            stream = spark.readStream.format("nng").option("startingOffsets", "earliest").load(str(journal))
            query = (
                stream.where("topic = 'topic-1'")
                .writeStream.format("memory")
                .queryName("ones")
                .option("checkpointLocation", f"{folder}/checkpoint")
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            print(f"the stream brought {spark.table('ones').count()} of topic-1")


if __name__ == "__main__":
    main()
