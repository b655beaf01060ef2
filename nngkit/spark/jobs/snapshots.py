"""A folder of document snapshots that grows by what has changed: generations, and how far each has read.

::

    folder/snapshots/generation=7/*.parquet      the documents that were touched since generation 6
    folder/progress/generation=7/*.json          {"partition": 0, "offset": 1234} and so on; written last

    advance(spark, rows, ends, "folder")         # rows: what came since `progress`

A generation without its progress was interrupted: it is not read, and written anew under its number. Every 16th holds
all documents, so that a reader never has more than 16 to look through. Only Spark touches the folder, so it may be
wherever Spark can write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F

from nngkit.spark.jobs.documents import BUCKETS, SNAPSHOT, compact, updates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Progress", "advance", "load", "progress"]

WHOLE: Final = 16  # generations from one that holds all documents to the next
PROGRESS: Final = "partition int, offset bigint, whole int"


class Progress(NamedTuple):
    """`generation` 0: none yet. `whole`: the last one that holds all documents. `offsets`: the first not read yet."""

    generation: int
    whole: int
    offsets: dict[int, int]


def _exists(spark: SparkSession, path: str) -> bool:
    jvm: Any = spark._jvm
    place = jvm.org.apache.hadoop.fs.Path(path)
    return bool(place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).exists(place))


def progress(spark: SparkSession, folder: str) -> Progress:
    """How far the folder's snapshots have come."""
    if not _exists(spark, f"{folder}/progress"):
        return Progress(0, 1, {})
    told = spark.read.schema(f"{PROGRESS}, generation int").json(f"{folder}/progress")
    newest = told.where(F.col("generation") == told.agg(F.max("generation")).collect()[0][0]).collect()
    return Progress(
        newest[0].generation,
        newest[0].whole,
        {row.partition: row.offset for row in newest if row.partition is not None},
    )


def load(spark: SparkSession, folder: str) -> DataFrame:
    """The newest snapshot of each document."""
    have = progress(spark, folder)
    if not have.generation:
        return spark.createDataFrame([], SNAPSHOT)
    kept = (
        spark.read.schema(f"{SNAPSHOT}, generation int")
        .parquet(f"{folder}/snapshots")
        .where(F.col("generation").between(have.whole, have.generation))
    )
    rank = F.row_number().over(Window.partitionBy("doc").orderBy(F.desc("generation")))
    return kept.withColumn("rank", rank).where("rank = 1").drop("rank", "generation")


def advance(
    spark: SparkSession, rows: DataFrame, ends: dict[int, int], folder: str, buckets: int = BUCKETS
) -> Progress:
    """Put what is in `rows`, the journal's from `progress` up to `ends`, into a new generation. Runs now."""
    have = progress(spark, folder)
    number = have.generation + 1
    before = load(spark, folder)
    edits = updates(rows)
    touched = compact(edits, before if have.generation else None, buckets)
    whole = have.whole
    if number - whole >= WHOLE:
        whole = number
        touched = touched.unionByName(before.join(edits.select("doc").distinct(), "doc", "left_anti"))
    touched.write.mode("overwrite").parquet(f"{folder}/snapshots/generation={number}")
    told: list[tuple[int | None, int | None, int]] = [
        (partition, offset, whole) for partition, offset in (have.offsets | ends).items()
    ]
    spark.createDataFrame(told or [(None, None, whole)], PROGRESS).coalesce(1).write.mode("overwrite").json(
        f"{folder}/progress/generation={number}"
    )
    return Progress(number, whole, have.offsets | ends)
