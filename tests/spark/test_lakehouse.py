"""Tables of `nngkit journal export` in Spark: Python reads the metadata, and Spark's Parquet reader the rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import nngkit.spark
from nngkit.lakehouse import export
from tests.lakehouse.pyiceberg_pool import pool
from tests.spark.journals import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["pool"]


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_table_is_the_journal_now_or_as_of_a_snapshot_or_an_offset(
    spark: SparkSession, pool: None, tmp_path: Path, kind: str
) -> None:
    journal, target = tmp_path / "j", tmp_path / "a table [1]"
    write(journal, 20, topics=("a", "b"))
    first = export(journal, target, kind)
    write(journal, 10, topics=("a", "b"), first=20)
    export(journal, target, kind)

    rows = nngkit.spark.table(spark, target)
    direct = spark.read.format("nng").option("includeHeaders", "true").load(str(journal)).drop("timestampType")
    assert sorted(rows.columns) == sorted(direct.columns)
    found, wanted = (
        sorted(each.select(*direct.columns).collect(), key=lambda row: row["offset"]) for each in (rows, direct)
    )
    assert found == wanted
    assert len(found) == 30
    assert nngkit.spark.table(spark, target, snapshot=first.snapshot).count() == 20
    some = nngkit.spark.table(spark, target, offsets={0: 25})
    assert sorted(row["offset"] for row in some.select("offset").collect()) == list(range(25))
