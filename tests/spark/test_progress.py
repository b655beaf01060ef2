"""Progress of streams: offsets behind, skipped records, Prometheus. One test runs a stream."""

from __future__ import annotations

import http.client
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from nngkit.errors import ConfigError, Unreachable
from nngkit.journal import open_journal
from nngkit.journal.manifest import save_manifest
from nngkit.spark.reading.progress import Figures, Metrics, Progress, behind, counted, serve
from nngkit.testing import eventually
from tests.spark.journals import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def told(batch: int, rows: int, end: Any, latest: Any, skipped: int | None = None, late: int = 0) -> dict[str, Any]:
    """Return what Spark 4.3 reports of a micro-batch, as far as it is used."""
    return {
        "id": "5f0e",
        "runId": "a1",
        "name": "mine",
        "timestamp": "2026-11-01T12:00:00.500Z",
        "batchId": batch,
        "batchDuration": 250,
        "numInputRows": rows,
        "processedRowsPerSecond": rows * 4.0,
        "observedMetrics": {} if skipped is None else {"nngkit": {"skipped": skipped, "damages": skipped // 7}},
        "sources": [{"startOffset": None, "endOffset": end, "latestOffset": latest}],
        "stateOperators": [{"numRowsDroppedByWatermark": late}, {"numRowsDroppedByWatermark": 0}],
    }


def test_offsets_behind_are_by_journal_and_partition() -> None:
    assert behind({"0": 10, "1": 5}, {"0": 30, "1": 5, "2": 4}) == {("", 0): 20, ("", 1): 0, ("", 2): 4}
    assert behind({"eu": {"0": 1}}, {"eu": {"0": 3}, "us": {"4": 2}}) == {("eu", 0): 2, ("us", 4): 2}
    assert behind(None, {"0": 3}) == {("", 0): 3}
    assert behind({"logOffset": 3}, {"logOffset": 9}) == {}  # a source of files
    assert behind(None, None) == {}


def test_figures_add_up_over_batches(caplog: pytest.LogCaptureFixture) -> None:
    progress = Progress()
    with caplog.at_level(logging.INFO, "nngkit.spark"):
        progress.note(told(0, 10, {"0": 10}, {"0": 30}, skipped=7))
        progress.note(told(1, 5, {"0": 25}, {"0": 31}, skipped=0, late=2))
    assert progress.figures == {"mine": Figures(2, 14, 7, {("", 0): 6}, 20.0, 0.25, 1793534400.5, late=2)}
    assert caplog.messages == [
        "query mine, batch 0: 9 rows in 0.250 s, 20 offsets behind",
        "query mine, batch 0: 7 records were skipped",
        "query mine, batch 1: 5 rows in 0.250 s, 6 offsets behind",
        "query mine, batch 1: 2 rows came after the watermark, dropped",
    ]


def test_metrics_are_in_prometheus_text_format() -> None:
    progress = Progress()
    progress.note(told(0, 10, {"0": 10}, {"0": 30}, late=3) | {"name": 'a "b"'})
    registry = CollectorRegistry()
    registry.register(Metrics(progress))
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }
    query = ("query", 'a "b"')
    assert found["nngkit_spark_offsets_behind", ("journal", ""), ("partition", "0"), query] == 20
    assert found["nngkit_spark_rows_total", query] == 10
    assert found["nngkit_spark_late_rows_total", query] == 3
    assert {name for name, *_ in found} >= {"nngkit_spark_batches_total", "nngkit_spark_batch_seconds"}


def get(address: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_metrics_are_served() -> None:
    progress = Progress()
    progress.note(told(0, 10, {"0": 10}, {"0": 30}))
    with serve(progress, "0") as address:
        code, text = get(address, "/metrics")
        assert code == 200
        assert "nngkit_spark_rows_total" in text
        with pytest.raises(Unreachable, match="cannot listen"), serve(progress, address):
            pass
    with pytest.raises(ConfigError, match="neither a port nor host:port"), serve(progress, "localhost:http"):
        pass


def test_a_stream_reports_its_lag_and_what_it_skipped(spark: SparkSession, tmp_path: Path) -> None:
    for first in (0, 20):
        write(tmp_path / "data" / "eu", 20, first=first)
    write(tmp_path / "data" / "us", 10)
    journal = open_journal(tmp_path / "data" / "eu")
    manifest = journal.manifest(0)
    save_manifest(journal.storage, manifest.retained(0.0, age=None, size=manifest.segments[-1].bytes))
    rows = spark.readStream.format("nng").options(
        startingOffsets='{"eu": {"0": 5}}', failOnDataLoss="false", includeSkipped="true", maxOffsetsPerTrigger="30"
    )
    seen: list[tuple[str, int]] = []
    progress = Progress()
    spark.streams.addListener(progress)
    try:
        query = (
            counted(rows.load(f"{tmp_path}/data/*"))
            .writeStream.queryName("lagging")
            .foreachBatch(lambda batch, _: seen.extend((row.journal, int(row.value)) for row in batch.collect()))
            .option("checkpointLocation", str(tmp_path / "c"))
            .start()
        )
        try:
            query.processAllAvailable()
            assert eventually(lambda: progress.figures.get("lagging", Figures()).batches == 2)
            now = progress.figures["lagging"]
            first, last = (each["sources"][0] for each in query.recentProgress)
        finally:
            query.stop()
    finally:
        spark.streams.removeListener(progress)
    assert sorted(seen) == [("eu", value) for value in range(20, 40)] + [("us", value) for value in range(10)]
    assert (now.rows, now.skipped, now.behind) == (30, 15, {("eu", 0): 0, ("us", 0): 0})
    assert json.loads(first["startOffset"]) is None
    assert sum(behind(json.loads(first["endOffset"]), json.loads(first["latestOffset"])).values()) == 15
    assert last["startOffset"] == first["endOffset"]
    assert json.loads(last["endOffset"]) == json.loads(last["latestOffset"]) == {"eu": {"0": 40}, "us": {"0": 10}}


def test_a_stream_counts_the_rows_that_its_watermark_drops(spark: SparkSession, tmp_path: Path) -> None:
    for first, count in ((100, 10), (200, 10), (0, 5)):  # times are the numbers, in seconds
        write(
            tmp_path / "j", count, first=first
        )  # a micro-batch each: the last one is behind the first one's watermark
    rows = spark.readStream.format("nng").options(startingOffsets="earliest", maxOffsetsPerTrigger="10")

    def run(batch: DataFrame, _: int) -> None:
        batch.collect()

    windows = rows.load(f"{tmp_path}/j").withWatermark("timestamp", "1 second").groupBy("timestamp").count()
    progress = Progress()
    spark.streams.addListener(progress)
    try:
        query = (
            windows.writeStream.queryName("late")
            .foreachBatch(run)
            .option("checkpointLocation", str(tmp_path / "c"))
            .start()
        )
        try:
            query.processAllAvailable()
            assert eventually(lambda: progress.figures.get("late", Figures()).late == 5)
        finally:
            query.stop()
    finally:
        spark.streams.removeListener(progress)
