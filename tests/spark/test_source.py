"""`format("nng")` on real journals: records read, splits and limits, and errors."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from nngkit.journal import open_journal
from nngkit.journal.writing.partition import Partition, Retention
from nngkit.spark.reading.one import BatchReader
from nngkit.spark.reading.options import ReadOptions
from nngkit.spark.reading.sealed import scan
from tests.spark.journals import append, opened, write
from tests.spark.rows import at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, folder: Path, **options: str) -> DataFrame:
    return spark.read.format("nng").options(**options).load(str(folder))


def values(rows: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in rows.select("value").collect())


def error_of(action: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def test_tasks_report_skipped_records_that_add_up(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nngkit.spark.reading.one.freeze", lambda: None)  # only for a worker process
    write(tmp_path / "j", 100)
    segment = open_journal(tmp_path / "j").segments(0)[0]
    (tmp_path / "j" / "partition-00000" / segment.file).unlink()
    for tasks in (1, 2, 7):
        given = {"path": str(tmp_path / "j"), "failOnDataLoss": "false", "minPartitions": str(tasks)}
        reader = BatchReader(ReadOptions.of(given, streaming=False), ("value", "offset"))
        slices = reader.partitions()
        assert len(slices) == tasks
        assert [batch for each in slices for batch in reader.read(each)] == []
        counts = re.findall(rf"^nngkit: .*{segment.file}: skipped (\d+) records", capfd.readouterr().err, re.MULTILINE)
        assert (len(counts), sum(map(int, counts))) == (tasks, 100)


# ---- batch -----------------------------------------------------------------------------------------------------------


@pytest.mark.every_java
def test_sealed_and_unsealed_records_form_one_table(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "j", 100)
    with opened(tmp_path / "j") as partition:
        append(partition, [{"key": b"k", "headers": {"id": b"7"}, "peer": None}], first=100)
        rows = read(spark, tmp_path / "j", includeHeaders="true")
        assert values(rows) == list(range(101))
        last = rows.where("offset = 100").collect()[0]
    assert last.asDict(recursive=True) == {
        "key": b"k",
        "value": b"100",
        "topic": "t",
        "partition": 0,
        "offset": 100,
        "timestamp": at(100).astimezone().replace(tzinfo=None),
        "timestampType": 1,
        "headers": [{"key": "id", "value": b"7"}],
        "protocol": "sub",
        "peer": None,
    }


def test_columns_are_those_of_the_kafka_source_plus_two(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "j", 1)
    names = read(spark, tmp_path / "j").columns
    assert names[:7] == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert names[7:] == ["protocol", "peer"]


def test_requested_schema_limits_the_columns(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "j", 3)
    rows = spark.read.format("nng").schema("offset bigint, timestampType int").load(str(tmp_path / "j"))
    assert sorted(map(tuple, rows.collect())) == [(0, 1), (1, 1), (2, 1)]
    text = error_of(lambda: spark.read.format("nng").schema("offset string").load(str(tmp_path / "j")).collect())
    assert "column offset is a bigint, not a string" in text


@pytest.mark.slow
def test_offsets_and_times_bound_the_read(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "j", 50)
    write(tmp_path / "j", 20, partition=1)
    some = read(spark, tmp_path / "j", startingOffsets='{"0": 40, "1": -2}', endingOffsets='{"0": 45, "1": 3}')
    assert values(some) == sorted([40, 41, 42, 43, 44, 0, 1, 2])
    timed = read(spark, tmp_path / "j", startingTimestamp=at(17).isoformat(), endingTimestamp=at(19).isoformat())
    assert values(timed) == [17, 17, 18, 18]


@pytest.mark.every_java
def test_filters_are_pushed_down(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "j", 60, topics=("a", "b", "c"))
    rows = read(spark, tmp_path / "j")
    for condition, expected in (
        ("topic = 'a' and offset >= 30 and offset < 36", [30, 33]),
        ("topic in ('a', 'b') and offset <= 4 and offset > 0", [1, 3, 4]),
        ("offset = 7", [7]),
        ("partition = 1", []),
        ("partition in (0, 5) and offset > 57", [58, 59]),
        (f"timestamp >= timestamp'{at(58).isoformat()}'", [58, 59]),
        (f"timestamp = timestamp'{at(3).isoformat()}'", [3]),
        (f"timestamp < timestamp'{at(1).isoformat()}' and topic = 'b'", []),
        ("topic = 'a' and topic = 'b'", []),
    ):
        chosen = rows.where(condition)
        assert values(chosen) == expected, condition
        plan = chosen._jdf.queryExecution().executedPlan().toString()
        assert "Filter" not in re.sub(r"(?i)pushedfilters|filters?:|post.?scan", "", plan), plan
    # Spark evaluates the other filters.
    assert values(rows.where("topic like '%c%' and offset % 10 = 2 and peer is not null")) == [2, 32]


def test_range_is_split_into_tasks(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "j", 1000)
    assert read(spark, tmp_path / "j").rdd.getNumPartitions() == 1
    rows = read(spark, tmp_path / "j", maxRecordsPerPartition="300")
    assert rows.rdd.getNumPartitions() == 4
    assert values(rows) == list(range(1000))
    assert values(read(spark, tmp_path / "j", minPartitions="7")) == list(range(1000))


def test_empty_journal_is_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "j", 0)
    assert read(spark, tmp_path / "j").count() == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffset": "earliest"}, "startingoffset: unknown option; did you mean startingOffsets?"),
        ({"startingOffsets": "latest"}, "a batch read that starts at the latest offset is always empty"),
        ({"startingOffsets": '{"3": 1}'}, "startingOffsets: the journal has no partition 3; it has 0"),
        ({"startingOffsets": "yesterday"}, "'yesterday' is neither earliest nor latest, nor JSON"),
        ({"startingTimestamp": "noon"}, "startingTimestamp: 'noon' is neither ISO 8601 nor milliseconds"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger: is for readStream only"),
        ({"listen": "tcp://127.0.0.1:0", "protocol": "pull"}, "listen: is for readStream only"),
        ({"endingOffsets": '{"0": 99}'}, "offset 98 of partition 0 is not in"),
    ],
)
def test_invalid_options_are_reported(spark: SparkSession, tmp_path: Path, options: dict[str, str], words: str) -> None:
    write(tmp_path / "j", 10)
    assert words in error_of(lambda: read(spark, tmp_path / "j", **options).collect())


def test_missing_journal_is_reported_with_its_path(spark: SparkSession, tmp_path: Path) -> None:
    assert str(tmp_path / "nowhere") in error_of(lambda: read(spark, tmp_path / "nowhere").collect())


@pytest.mark.every_java
def test_missing_segment_is_reported_with_offset_and_advice(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "j", 100)
    write(tmp_path / "j", 100, first=100)
    (first, _second) = sorted((tmp_path / "j").glob("partition-00000/*.parquet"))
    first.rename(tmp_path / "elsewhere")
    text = error_of(lambda: read(spark, tmp_path / "j").collect())
    assert first.name in text
    assert "offset 0" in text
    assert "restore the file from a backup" in text
    assert values(read(spark, tmp_path / "j", failOnDataLoss="false")) == list(range(100, 200))


def test_damaged_segment_is_reported_and_left_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "j", 100)
    (segment,) = (tmp_path / "j").glob("partition-00000/*.parquet")
    changed = bytearray(segment.read_bytes())
    changed[60] ^= 1
    segment.write_bytes(changed)
    assert segment.name in error_of(lambda: read(spark, tmp_path / "j").collect())
    assert segment.read_bytes() == changed


@pytest.mark.slow
def test_skipped_damage_is_returned_on_request(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "j", 100)
    write(tmp_path / "j", 100, first=100)
    (segment, _) = sorted((tmp_path / "j").glob("partition-00000/*.parquet"))
    changed = bytearray(segment.read_bytes())
    changed[60] ^= 1
    segment.write_bytes(changed)
    for tasks in ("1", "7"):
        rows = read(spark, tmp_path / "j", failOnDataLoss="false", includeSkipped="true", minPartitions=tasks)
        assert values(rows.where("skipped is null").drop("skipped")) == list(range(100, 200))
        found = rows.where("skipped is not null").collect()
        assert sum(row.skipped for row in found) == 100
        assert {row.peer for row in found} == {str(segment)}
    assert "skipped" not in read(spark, tmp_path / "j").columns


@pytest.mark.slow
def test_offsets_skipped_after_a_lost_head_cost_no_tasks(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "j", 10)
    (tmp_path / "j" / "partition-00000" / "head").unlink()
    with opened(tmp_path / "j", salvage=True) as partition:
        append(partition, [{}] * 10, 10)
    rows = read(spark, tmp_path / "j", maxRecordsPerPartition="1000000")  # the lost range alone would make 4,295 tasks
    assert rows.rdd.getNumPartitions() == 2
    assert values(rows) == list(range(20))
    assert values(scan(spark, str(tmp_path / "j"))) == list(range(20))


@pytest.mark.slow
def test_limited_stream_skips_lost_offsets_at_once(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "j", 10)
    (tmp_path / "j" / "partition-00000" / "head").unlink()
    with opened(tmp_path / "j", salvage=True) as partition:
        append(partition, [{}] * 10, 10)
    run = Run(spark, tmp_path / "j", tmp_path / "c", startingOffsets="earliest", maxOffsetsPerTrigger="5")
    assert run.all == list(range(20))
    assert len(run.batches) <= 6


def test_journal_of_another_version_is_rejected(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "j", 10)
    manifest = tmp_path / "j" / "partition-00000" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "version": 9}))
    text = error_of(lambda: read(spark, tmp_path / "j").collect())
    assert "manifest.json: format version 9; this nngkit reads versions 1 to 2" in text


def test_incomplete_record_at_the_end_is_ignored(spark: SparkSession, tmp_path: Path) -> None:
    with opened(tmp_path / "j") as partition:
        append(partition, [{}] * 5)
        shutil.copytree(tmp_path / "j", tmp_path / "crashed")  # as if the machine stopped now
    (log,) = (tmp_path / "crashed").glob("partition-00000/*.log")
    with log.open("ab") as file:
        file.write(b"half a record")
    assert values(read(spark, tmp_path / "crashed")) == list(range(5))


def test_shared_storage_is_read_by_uri_and_unsealed_records_from_the_spool(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    uri, spool = f"file://{tmp_path}/share/j", str(tmp_path / "spool")
    partition = Partition.open(uri, 0, spool=spool)
    append(partition, [{}] * 5)
    partition.close()  # seals the records
    partition = Partition.open(uri, 0, spool=spool)
    try:
        append(partition, [{}] * 3, first=5)
        assert values(spark.read.format("nng").load(uri)) == list(range(5))
        assert values(spark.read.format("nng").option("spool", spool).load(uri)) == list(range(8))
    finally:
        partition.close()


# ---- streams ---------------------------------------------------------------------------------------------------------


class Run:
    """Run a stream into memory over the available data."""

    def __init__(self, spark: SparkSession, folder: Path, checkpoint: Path, **options: str) -> None:
        self.batches: list[list[int]] = []

        def keep(rows: DataFrame, _number: int) -> None:
            self.batches.append(values(rows))

        stream = spark.readStream.format("nng").options(**options).load(str(folder))
        query = (
            stream.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(100)
        finally:
            query.stop()

    @property
    def all(self) -> list[int]:
        return sorted(value for batch in self.batches for value in batch)


@pytest.mark.slow
@pytest.mark.every_java
def test_stream_resumes_at_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "j", 30)
    assert Run(spark, tmp_path / "j", tmp_path / "c", startingOffsets="earliest").all == list(range(30))
    write(tmp_path / "j", 12, first=30)
    write(tmp_path / "j", 5, partition=1, first=42)  # a new partition is read from its start
    assert Run(spark, tmp_path / "j", tmp_path / "c", startingOffsets="earliest").all == list(range(30, 47))
    assert Run(spark, tmp_path / "j", tmp_path / "c").all == []


@pytest.mark.slow
def test_new_stream_begins_at_the_latest_offset(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "j", 30)
    assert Run(spark, tmp_path / "j", tmp_path / "c").all == []
    write(tmp_path / "j", 3, first=30)
    assert Run(spark, tmp_path / "j", tmp_path / "c").all == [30, 31, 32]


@pytest.mark.slow
@pytest.mark.every_java
def test_limit_makes_several_batches_without_loss(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "j", 90)
    write(tmp_path / "j", 10, partition=1, first=90)
    run = Run(spark, tmp_path / "j", tmp_path / "c", startingOffsets="earliest", maxOffsetsPerTrigger="40")
    assert [len(batch) for batch in run.batches] == [40, 40, 20]
    assert run.all == list(range(100))


@pytest.mark.slow
def test_stream_takes_topics_and_a_start_time(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "j", 30, topics=("a", "b"))
    since = str(int(at(20).timestamp() * 1000))
    assert Run(spark, tmp_path / "j", tmp_path / "c", subscribe="b", startingTimestamp=since).all == [
        21,
        23,
        25,
        27,
        29,
    ]


@pytest.mark.slow
def test_stream_with_an_expired_offset_reports_advice(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "one", 30)
    Run(spark, tmp_path / "one", tmp_path / "c", startingOffsets="earliest")
    write(tmp_path / "two", 10)
    (tmp_path / "one").rename(tmp_path / "gone")
    (tmp_path / "two").rename(tmp_path / "one")
    text = error_of(lambda: Run(spark, tmp_path / "one", tmp_path / "c"))
    assert "offset 29 of partition 0 is not in" in text
    assert "the checkpoint belongs to another journal" in text
    assert "failOnDataLoss=false" in text


@pytest.mark.slow
def test_stream_overtaken_by_retention_fails_or_skips(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "j", 10)
    Run(spark, tmp_path / "j", tmp_path / "c", startingOffsets='{"0": 5}')
    write(tmp_path / "j", 10, first=10)
    write(tmp_path / "j", 10, first=20)
    newest = open_journal(tmp_path / "j").segments(0)[-1]
    with opened(tmp_path / "j", retention=Retention(size=newest.bytes)) as partition:
        deadline = time.monotonic() + 20
        while partition.manifest.start < 20 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert partition.manifest.start == 20
    text = error_of(lambda: Run(spark, tmp_path / "j", tmp_path / "c"))
    assert f"offset 10 of partition 0 has expired, the earliest in {tmp_path / 'j'} is 20" in text
    assert Run(spark, tmp_path / "j", tmp_path / "c", failOnDataLoss="false").all == list(range(20, 30))


@pytest.mark.every_java
def test_log_is_read_while_it_is_written(spark: SparkSession, tmp_path: Path) -> None:
    found: list[int] = []

    def keep(rows: DataFrame, _number: int) -> None:
        found.extend(values(rows))

    with opened(tmp_path / "j") as partition:
        append(partition, [{}] * 5)
        stream = spark.readStream.format("nng").option("startingOffsets", "earliest").load(str(tmp_path / "j"))
        query = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "c")).start()
        try:
            for first in range(5, 50, 5):
                append(partition, [{}] * 5, first)
                query.processAllAvailable()
                assert sorted(found) == list(range(first + 5))
                if first == 25:
                    partition.log.rotate()
        finally:
            query.stop()
