"""A table of `nngkit journal export` in Spark, without the JARs of Iceberg or Delta Lake.

::

    nngkit.spark.table(spark, "lake/events").groupBy("topic").count()
    nngkit.spark.table(spark, "lake/events", offsets={0: 5000})         # as of an offset

The driver reads the table's metadata in Python, which decides on the files; Spark's own Parquet reader reads these,
with its pushdown of columns and filters. A session that has the JARs reads the table by itself: docs/lakehouse.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from nngkit.lakehouse.formats import open_table
from nngkit.spark.reading.sealed import parquet_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table(
    spark: SparkSession,
    target: str | os.PathLike[str],
    *,
    snapshot: int | None = None,
    offsets: Mapping[int, int] | None = None,
) -> DataFrame:
    """Return a snapshot's rows, with the journal's columns; default: of the last one at the time of the call.

    `offsets`: only records below these offsets, by partition, of the oldest snapshot that has them all. The table's
    folder must be visible to the workers. Raises ConfigError if there is no table; NotFound for an unknown snapshot.
    """
    opened = open_table(target)
    if offsets is not None and snapshot is None:
        snapshot = opened.snapshot_at(offsets).id
    rows = parquet_files(spark, [path if "://" in path else f"file://{path}" for path in opened.paths(snapshot)])
    if offsets is None:
        return rows
    wanted = [(F.col("partition") == partition) & (F.col("offset") < end) for partition, end in offsets.items()]
    return rows.where(reduce(lambda one, other: one | other, wanted, F.lit(False)))
