"""Every registered job, as `nngkit spark run` calls it, in batch and as a stream."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nngkit.journal import open_journal
from nngkit.spark.jobs.snapshots import load, progress
from nngkit.spark.registry import JOBS
from nngkit.spark.run import JobOptions, SkipCount, batch, stream_of
from tests.spark.cluster_journal import cluster_journal
from tests.spark.journals import append, opened, write
from tests.spark.rows import at, eight, micros, seen
from tests.spark.test_documents import conversation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

WRITE = ("documents", "report")  # write to --output and return nothing


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a journal: a service that goes down, gaps, a duplicate, pauses, a document, a cluster, a device."""
    records: list[dict[str, Any]] = [seen("s", "a", 10 * n, n not in (3, 4), 0.01) for n in range(8)]
    for number in (0, 1, 2, 5, 5):
        headers = {"id": eight(number), "seq": eight(number), "from": b"p", "sent": eight(micros(at(7 * number)) - 900)}
        records.append({"timestamp": at(7 * number), "peer": "tcp://10.0.0.1:1", "headers": headers})
    records += [each | {"topic": "documents"} for each in conversation("d", 12, random.Random(1))[0]]
    records += cluster_journal(50).rows
    for what, peer in ((b"request", "tcp://10.0.0.2:1"), (b"reply", None)):
        headers = {"number": eight(1)}
        records.append({"topic": "d", "key": what, "protocol": "queue", "headers": headers, "peer": peer})
    hours = [*(9 * 24 + 0.1 * number for number in range(8)), 9 * 24 + 3]  # more than a week before, in a whole hour
    records += [{"topic": "late", "timestamp": at(3600 * hour), "peer": "p"} for hour in hours]
    folder = tmp_path_factory.mktemp("jobs") / "j"
    with opened(folder) as partition:
        append(partition, records)
    return folder


@pytest.mark.parametrize("name", [name for name in JOBS if name not in WRITE])
def test_every_job_returns_rows_in_batch_and_stream(spark: SparkSession, journal: Path, name: str) -> None:
    rows = batch(spark, name, JobOptions(str(journal)))
    assert rows is not None
    assert rows.count() > 0
    if JOBS[name].stream:
        as_stream = stream_of(spark, name, JobOptions(str(journal)))
        assert as_stream.isStreaming
        assert as_stream.columns == [column for column in rows.columns if column in as_stream.columns]


def test_job_writes_parquet_and_never_overwrites(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    asked = JobOptions(str(journal), window="1 minute", output=str(tmp_path / "out"))
    assert batch(spark, "rates", asked) is None
    assert sum(row.messages for row in spark.read.parquet(str(tmp_path / "out")).collect()) == open_journal(
        journal
    ).end(0)
    with pytest.raises(Exception, match="PATH_ALREADY_EXISTS"):
        batch(spark, "rates", asked)


def test_job_honours_topics_and_times(spark: SparkSession, journal: Path) -> None:
    asked = JobOptions(str(journal), ("t",), at(6).isoformat(), at(20).isoformat(), "1 hour")
    rows = batch(spark, "rates", asked)
    assert rows is not None
    assert [(row.topic, row.messages) for row in rows.collect()] == [("t", 2)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["edges", "report"])
def test_job_reports_skipped_records(spark: SparkSession, tmp_path: Path, name: str) -> None:
    for first in (0, 100):
        write(tmp_path / "j", 100, first=first)
    next((tmp_path / "j").glob("partition-00000/*.parquet")).unlink()
    skips = SkipCount()
    asked = JobOptions(str(tmp_path / "j"), output=str(tmp_path / "out"), skip_missing=True)
    assert batch(spark, name, asked, skips) is None
    assert skips.rows == 100
    if name == "report":
        assert "<h1>j: journal report</h1>" in (tmp_path / "out").read_text()


def test_documents_job_resumes_where_it_ended(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    asked = JobOptions(str(journal), output=str(tmp_path / "out"))
    for _ in range(2):  # the second run finds nothing new
        assert batch(spark, "documents", asked) is None
        found = progress(spark, str(tmp_path / "out"))
        assert (found.generation, found.offsets) == (1, {0: open_journal(journal).end(0)})
    assert [(row.doc, row["updates"]) for row in load(spark, str(tmp_path / "out")).collect()] == [("d", 12)]


@pytest.mark.slow
def test_report_is_written_to_output(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    assert batch(spark, "report", JobOptions(str(journal), output=str(tmp_path / "page.html"))) is None
    text = (tmp_path / "page.html").read_text()
    for part in ("Worst hours", "Requests", "Documents", "Sessions", "Hosts"):
        assert re.search(f"<h2>{part}</h2>.*?<td", text), part
    assert 'class="node" title="p"' in text
