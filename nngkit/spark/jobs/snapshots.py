"""Incremental folder of document snapshots: generations, and the offsets that each has covered.

::

    folder/snapshots/generation=7/*.parquet      documents with updates since generation 6
    folder/progress/generation=7/*.json          {"partition": 0, "offset": 1234} and so on; written last

    advance(spark, apply, ends, "folder")        # `apply` reaches what was recorded since `progress`

A generation without its progress file was interrupted: it is ignored, and overwritten under its number. Every 16th
generation holds all documents, so a reader opens at most 16. Only Spark accesses the folder, so it may be on any
storage that Spark can write.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F

from nngkit.spark.hadoop import Storage
from nngkit.spark.jobs.documents import SNAPSHOT, Apply, compacted, touched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WHOLE: Final = 16  # generations between two that hold all documents
UPDATES_OF_TASK: Final = 250_000  # some 100 MB in a worker
MOST_TASKS: Final = 1000  # an offset may be far above the number of records, after a lost head
GENERATION: Final = "generation="


class Progress(NamedTuple):
    """`generation` 0: none yet. `whole`: the last one with all documents. `offsets`: next offset by partition."""

    generation: int
    whole: int
    offsets: dict[int, int]


def progress(spark: SparkSession, folder: str) -> Progress:
    """Return the progress of the folder's snapshots."""
    storage = Storage(spark, f"{folder}/progress")
    numbers = {name: int(name.removeprefix(GENERATION)) for name in storage.names() if name.startswith(GENERATION)}
    for name in sorted(numbers, key=lambda each: numbers[each], reverse=True):
        files = [each for each in storage.names(name) if each.endswith(".json") and each[0] not in "._"]
        if files:
            rows = [json.loads(line) for each in files for line in storage.read(f"{name}/{each}").splitlines()]
            offsets = {row["partition"]: row["offset"] for row in rows if "partition" in row}
            return Progress(numbers[name], rows[0]["whole"], offsets)
    return Progress(0, 1, {})


def load(spark: SparkSession, folder: str) -> DataFrame:
    """Return the newest snapshot of each document."""
    return _newest(spark, folder, progress(spark, folder))


def _newest(spark: SparkSession, folder: str, have: Progress, among: DataFrame | None = None) -> DataFrame:
    """Return the newest snapshot of each document, or of those in `among`."""
    if not have.generation:
        return spark.createDataFrame([], SNAPSHOT)
    base = f"{folder}/snapshots"
    paths = [f"{base}/{GENERATION}{number}" for number in range(have.whole, have.generation + 1)]
    kept = spark.read.schema(f"{SNAPSHOT}, generation int").option("basePath", base).parquet(*paths)
    if among is not None:  # before they are ranked, which shuffles them
        kept = kept.join(among, "doc", "left_semi")
    if have.whole == have.generation:
        return kept.drop("generation")
    rank = F.row_number().over(Window.partitionBy("doc").orderBy(F.desc("generation")))
    return kept.withColumn("rank", rank).where("rank = 1").drop("rank", "generation")


def advance(spark: SparkSession, apply: Apply, ends: dict[int, int], folder: str) -> Progress:
    """Write a new generation from the records that `apply` reaches: the journal's from `progress` up to `ends`.

    Runs immediately.
    """
    have = progress(spark, folder)
    number = have.generation + 1
    updates = sum(max(0, end - have.offsets.get(partition, 0)) for partition, end in ends.items())
    tasks = max(spark.sparkContext.defaultParallelism, min(MOST_TASKS, -(-updates // UPDATES_OF_TASK)))
    before = _newest(spark, folder, have, touched(apply)) if have.generation else None
    snapshots = compacted(apply, before, tasks)
    whole = have.whole
    if number - whole >= WHOLE:
        whole = number
        snapshots = snapshots.unionByName(_newest(spark, folder, have).join(touched(apply), "doc", "left_anti"))
    snapshots.write.mode("overwrite").parquet(f"{folder}/snapshots/{GENERATION}{number}")
    offsets = have.offsets | ends
    told = [{"partition": partition, "offset": offset, "whole": whole} for partition, offset in offsets.items()]
    lines = "".join(json.dumps(each) + "\n" for each in told or [{"whole": whole}])
    Storage(spark, f"{folder}/progress").write(f"{GENERATION}{number}/offsets.json", lines)
    return Progress(number, whole, offsets)
