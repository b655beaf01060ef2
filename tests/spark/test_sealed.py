"""`scan` returns the rows of `format("nng")`, and reads the sealed ones with Spark's Parquet reader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nngkit.errors import Broken, Damaged, NotFound
from nngkit.journal import open_journal
from nngkit.spark.reading.one import BatchReader
from nngkit.spark.reading.options import ReadOptions
from nngkit.spark.reading.sealed import scan
from nngkit.spark.run import in_a_line
from tests.spark.journals import append, opened, write
from tests.spark.rows import at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEGMENTS = 5
ROWS = 20  # of each segment


def sealed(folder: Path, partition: int = 0) -> None:
    for number in range(SEGMENTS):
        write(folder, ROWS, partition, ("a", "b"), first=number * ROWS)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Provide a journal of two partitions with segments and unsealed records, in a folder named like a pattern."""
    folder = tmp_path_factory.mktemp("scan") / "j [0]*{x}"
    sealed(folder)
    sealed(folder, 1)
    with ExitStack() as stack:
        for partition in (0, 1):
            part = stack.enter_context(opened(folder, partition))
            records = [{"topic": "b", "key": b"k", "headers": {"id": b"7"}, "peer": None}] * (3 * partition)
            append(part, records, SEGMENTS * ROWS)
        yield folder


# ---- planning, without Spark -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "until", "planned"),
    [
        (None, 20, [(0, 20)]),  # the first segment
        (95, None, [(95, 100)]),
        (45, 55, [(45, 60)]),  # from the first record to the end of its segment
        (38, 62, [(38, 80)]),
        (None, 0, []),
        (200, 300, []),
    ],
)
def test_segments_outside_the_requested_time_cause_no_tasks(
    tmp_path: Path, since: int | None, until: int | None, planned: list[tuple[int, int]]
) -> None:
    sealed(tmp_path / "j")
    given = {"path": str(tmp_path / "j"), "minPartitions": "4"}
    given |= {"startingTimestamp": at(since).isoformat()} if since is not None else {}
    given |= {"endingTimestamp": at(until).isoformat()} if until is not None else {}
    slices = BatchReader(ReadOptions.of(given, streaming=False), ("offset",)).partitions()
    ranges = [each.value for each in slices if each.value is not None]
    assert {offset for each in ranges for offset in range(each.start, each.end)} == {
        offset for start, end in planned for offset in range(start, end)
    }
    assert len(slices) > 1 if planned else [each.value for each in slices] == [None]  # Spark needs one task


# ---- with Spark ------------------------------------------------------------------------------------------------------


def rows_of(found: DataFrame) -> list[tuple[object, ...]]:
    return sorted((tuple(map(str, row)) for row in found.collect()), key=str)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"includeHeaders": "true"}, 203),
        ({"startingOffsets": '{"0": 30, "1": 101}', "endingOffsets": '{"0": 45, "1": 102}'}, 16),
        ({"startingTimestamp": at(95).isoformat(), "endingTimestamp": at(102).isoformat(), "subscribe": "b"}, 8),
        ({"endingTimestamp": at(0).isoformat(), "includeSkipped": "true"}, 0),
        ({"failOnDataLoss": "false", "subscribe": "a"}, 100),
    ],
)
def test_rows_are_those_of_the_data_source(
    spark: SparkSession, journal: Path, options: dict[str, str], count: int
) -> None:
    found = scan(spark, str(journal), **options)
    expected = spark.read.format("nng").options(**options).load(str(journal))
    assert found.schema.simpleString() == expected.schema.simpleString()
    rows = rows_of(found)
    assert len(rows) == count
    assert rows == rows_of(expected)


@pytest.mark.slow
def test_sealed_rows_do_not_pass_through_python(spark: SparkSession, journal: Path) -> None:
    options = {"startingTimestamp": at(45).isoformat(), "endingTimestamp": at(55).isoformat()}
    found = scan(spark, str(journal), startingOffsets='{"0": 0, "1": 0}', endingOffsets='{"0": 100, "1": 100}')
    assert "nng" not in found._jdf.queryExecution().executedPlan().toString().replace(str(journal.parent), "")
    assert len(found.inputFiles()) == 2 * SEGMENTS
    assert len(scan(spark, str(journal), **options).inputFiles()) == 2


@pytest.mark.slow
def test_damage_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    sealed(tmp_path / "j")
    segments = open_journal(tmp_path / "j").segments(0)
    files = [tmp_path / "j" / "partition-00000" / each.file for each in segments]
    with pytest.raises(NotFound, match="offset 200"):
        scan(spark, str(tmp_path / "j"), endingOffsets='{"0": 201}')
    data = bytearray(files[1].read_bytes())
    at_value = data.index(b"\x28\xb5\x2f\xfd")  # a page's compressed data, as Zstandard marks it
    data[at_value + 8] ^= 1
    files[1].write_bytes(data)
    with pytest.raises(Broken, match=rf"^{files[1]}: .*CRC.*; restore the file"), in_a_line():
        scan(spark, str(tmp_path / "j")).collect()
    assert scan(spark, str(tmp_path / "j"), endingOffsets='{"0": 20}').count() == 20
    files[2].write_bytes(files[2].read_bytes()[:-1])
    with pytest.raises(Damaged, match=f"{files[2].name}.*the manifest expects"):
        scan(spark, str(tmp_path / "j"))
    files[0].unlink()
    with pytest.raises(Damaged, match=f"{files[0].name}.*missing"):
        scan(spark, str(tmp_path / "j"))
