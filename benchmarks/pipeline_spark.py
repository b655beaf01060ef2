"""Spark on a journal: reading, latency of a stream, compaction, availability; each by size of the input.

    python3 dev.py bench pipeline_spark [--from N] [--times N] [--rounds N] [--seconds S] [--only TEXT] [--json]

Each group is measured at its own size times 1, 3, 10 and so on, from ``--from`` up to ``--times``; 100 needs an idle
machine and an hour, and means 10 million updates of 100,000 documents and 50 million survey rows. Input data is
generated in a folder that is deleted after the run, or in NNGKIT_BENCH_FOLDER, where it is kept for the next one.
``--seconds`` applies to the stream only.

Results are compared, and a difference ends the benchmark: Spark's snapshots with those of one process that applies the
updates in a transaction for each document, and checks no dependency; Spark's availability and flaps with DuckDB's. "s
with start" includes the start of Spark, "s cold" is the first time in a session, the others are warm. "x base" is the
rate by that of Spark's Parquet reader, in turns with it in one session, "s base" its time. "again" is
an incremental compaction of a hundredth more updates, in a hundredth of the documents, cold and warm: "x again" is its
time by that of the first one, both warm.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import _measuring as bench
from _measuring import Group, Promise, Way

READ = 300_000  # rows
RANGE = 500_000  # rows
SURVEY = 500_000  # rows
DOCUMENTS, UPDATES = 1000, 100  # documents, and updates of each
MASTERS = ("local[1]", "local[2]", "cluster")
WAYS = ("nng", "nng, with headers", "nng, two columns", "scan")


def sizes(first: int, times: range) -> Iterator[int]:
    """Yield `first` times each of 1, 3, 10, 30 and so on in `times`."""
    for exponent in range(9):
        for digit in (1, 3):
            if digit * 10**exponent in times:
                yield first * digit * 10**exponent


def reading(times: range) -> Group:
    ways = [
        Way(way, "_spark_read:read", task={"way": way, "rows": rows}, at=(rows,), of="row")
        for rows in sizes(READ, times)
        for way in WAYS
    ]
    largest = f"{max(sizes(READ, times)):,} rows"
    promises = (
        Promise("rows from the journal", f"nng, {largest}", None, 500_000, 800_000),
        Promise("scan, of Parquet's reader", f"scan, {largest}", None, 0.85, 0.95, "base_part"),
    )
    return Group("from the journal through Spark, 100 B, local[2]", tuple(ways), promises)


def in_time(times: range) -> Group:
    ways = [
        Way(way, "_spark_read:a_hundredth", task={"way": way, "rows": rows}, at=(rows,), of="row")
        for rows in sizes(RANGE, times)
        for way in ("nng", "scan")
    ]
    largest = f"{max(sizes(RANGE, times)):,} rows"
    promises = tuple(
        Promise(f"{way}: a hundredth, of all", f"{way}, {largest}", None, 0.03, 0.015, "of_whole")
        for way in ("nng", "scan")
    )
    return Group("a hundredth of the rows, by time, local[2]", tuple(ways), promises)


def surveying(times: range, *, from_json: bool = False) -> Group:
    contenders = (("Spark, local[2]", "spark_side"), ("DuckDB, 2 threads", "duck_side"))
    ways = [
        Way(name, f"_spark_survey:{function}", task={"rows": rows, "json": from_json}, at=(rows,), of="row")
        for rows in sizes(SURVEY, times)
        for name, function in contenders
    ]
    largest = f"{max(sizes(SURVEY, times)):,} rows"
    spark, duck = (f"{name}, {largest}" for name, _ in contenders)
    promise = Promise("Spark, warm, of DuckDB's time", spark, duck, 1.8, 1.2, "seconds")
    name = "availability and flaps of surveys"
    source = "the journal's JSON" if from_json else "Parquet"
    return Group(f"{name}, from {source}", tuple(ways), (promise,))


def compacting(times: range) -> Group:
    ways = []
    for documents in sizes(DOCUMENTS, times):
        task, at = {"documents": documents, "updates": UPDATES}, (documents * UPDATES,)
        ways += [
            Way(
                "two workers" if each == "cluster" else each,
                "_spark_documents:compaction",
                task={**task, "master": each},
                at=at,
                of="update",
            )
            for each in MASTERS
        ]
        ways.append(Way("one process", "_spark_documents:sequential", task=task, at=at, of="update"))
    largest = f"{max(sizes(DOCUMENTS, times)) * UPDATES:,} updates"
    promises = (
        Promise("updates/s vs one process", f"local[2], {largest}", f"one process, {largest}", 0.9, 1.2),
        Promise("again, of the first time", f"local[2], {largest}", None, 0.04, 0.02, "again_part"),
    )
    return Group("updates of documents into snapshots", tuple(ways), promises)


STREAM = Group(
    "from a sender through Spark to a receiver, 10,000 records/s, local[2]",
    (Way("PULL to PUSH", "_spark_stream:latency", task={"rate": 10_000}),),
    (
        Promise("half of them", "PULL to PUSH", None, 250, 180, "p50_ms"),
        Promise("19 of 20", "PULL to PUSH", None, 350, 250, "p95_ms"),
    ),
)

if __name__ == "__main__":
    parser = bench.options(__doc__, rounds=1, seconds=30.0)
    parser.add_argument("--times", type=int, default=3, help="how often the first size is in the last (%(default)s)")
    parser.add_argument("--from", type=int, default=1, dest="least", help="and in the first (%(default)s)")
    parser.add_argument("--divide", type=int, default=1, metavar="N", help="the first sizes by this, for a test")
    given = parser.parse_args()
    READ, RANGE, SURVEY, DOCUMENTS = (each // given.divide for each in (READ, RANGE, SURVEY, DOCUMENTS))
    times = range(given.least, given.times + 1)
    if not any(sizes(1, times)):
        parser.error(f"none of 1, 3, 10, 30 and so on is from {given.least} to {given.times}")
    groups = (
        *(reading(times), in_time(times), STREAM),
        *(surveying(times), surveying(times, from_json=True), compacting(times)),
    )
    bench.RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=bench.RESULTS, prefix="spark-") as scratch:
        kept = os.environ.get("NNGKIT_BENCH_FOLDER")
        os.environ["NNGKIT_BENCH_JOURNALS"] = str(Path(kept, "spark")) if kept else scratch
        Path(os.environ["NNGKIT_BENCH_JOURNALS"]).mkdir(parents=True, exist_ok=True)
        bench.run("pipeline_spark", groups, given)
