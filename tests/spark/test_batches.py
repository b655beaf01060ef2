"""A function over a journal's Arrow batches, in Spark's workers: the rows are those of `format("nng")`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from nngkit.errors import ConfigError
from nngkit.spark import map_batches
from tests.spark.journals import append, opened, write
from tests.spark.rows import at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ("partition", "offset", "topic", "value")
SCHEMA = "partition int, offset bigint, topic string, value binary"


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield one row for a task: the number of its records, which come in order."""
    offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert offsets == sorted(offsets)
    yield pa.RecordBatch.from_pydict({"rows": [len(offsets)]})


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Path]:
    """Provide a journal of two partitions, sealed segments and unsealed records."""
    for partition in (0, 1):
        for first in (0, 50):
            write(tmp_path / "j", 50, partition, ("a", "b"), first)
    with opened(tmp_path / "j", 1) as part:
        append(part, [{"topic": "b"}] * 7, 100)
        yield tmp_path / "j"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"subscribe": "b"},
        {"startingOffsets": '{"0": 30, "1": 90}', "endingOffsets": '{"0": 60, "1": 103}'},
        {"startingTimestamp": at(40).isoformat(), "endingTimestamp": at(55).isoformat()},
        {"maxRecordsPerPartition": "9"},
        {"startingOffsets": '{"0": 100, "1": 107}'},
    ],
)
def test_batches_have_the_rows_of_the_data_source(spark: SparkSession, journal: Path, options: dict[str, str]) -> None:
    rows = spark.read.format("nng").options(**options).load(str(journal)).select(*COLUMNS)
    found = map_batches(spark, str(journal), same, SCHEMA, columns=COLUMNS, **options)
    assert sorted(found.collect()) == sorted(rows.collect())


def test_tasks_are_slices(spark: SparkSession, journal: Path) -> None:
    found = map_batches(spark, str(journal), tasks, "rows bigint", columns=["offset"], maxRecordsPerPartition="30")
    counts = [row.rows for row in found.collect()]
    assert sum(counts) == 207
    assert max(counts) <= 30
    whole = map_batches(spark, str(journal), tasks, "rows bigint", columns=["offset"], minPartitions="1")
    assert sorted(row.rows for row in whole.collect()) == [100, 107]  # a task for each partition


def test_damage_fails_the_query_or_is_skipped(spark: SparkSession, journal: Path) -> None:
    lost = sorted((journal / "partition-00000").glob("*.parquet"))[0]
    lost.unlink()
    with pytest.raises(Exception, match=lost.name):
        map_batches(spark, str(journal), tasks, "rows bigint", columns=["offset"]).collect()
    found = map_batches(spark, str(journal), tasks, "rows bigint", columns=["offset"], failOnDataLoss="false")
    assert sum(row.rows for row in found.collect()) == 157


def test_wrong_options_are_named(spark: SparkSession, journal: Path) -> None:
    with pytest.raises(ConfigError, match="startingOffset"):
        map_batches(spark, str(journal), same, SCHEMA, columns=COLUMNS, startingOffset="latest")
    with pytest.raises(ConfigError, match="colour"):
        map_batches(spark, str(journal), same, SCHEMA, columns=["colour"])
