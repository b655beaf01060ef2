"""Jobs on a cluster's records equal the same figures in plain Python, on a generated journal with bad records in it."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest

from nngkit.cluster.jobs.values import JobEnd
from nngkit.cluster.records import ClusterRecords
from nngkit.errors import ConfigError
from nngkit.spark.analytics.cluster import dead_letters, ended, hosts, queue_times, retries, unreadable, work
from nngkit.spark.analytics.figures import collect
from nngkit.spark.analytics.report import page
from nngkit.spark.run import JobOptions, batch, rows_of, stream_of
from tests.spark.cluster_journal import BEGIN, ClusterJournal, cluster_journal, job, row_of
from tests.spark.journals import append, opened
from tests.spark.rows import START, at, frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

JOBS = 30_000
HOUR = dt.timedelta(hours=1)


@pytest.fixture(scope="module")
def made() -> ClusterJournal:
    return cluster_journal(JOBS)


@pytest.fixture(scope="module")
def journal(made: ClusterJournal, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cluster") / "j"
    with opened(folder) as partition:
        append(partition, made.rows)
    return folder


@pytest.fixture
def rows(spark: SparkSession, journal: Path) -> DataFrame:
    return rows_of(spark, JobOptions(str(journal)))


def grouped(ends: Sequence[JobEnd], by: Callable[[JobEnd], tuple[str, ...]]) -> dict[tuple[Any, ...], list[JobEnd]]:
    """Return the jobs by the hour of their end, and by `by`."""
    found: dict[tuple[Any, ...], list[JobEnd]] = defaultdict(list)
    for end in ends:
        hour = int(end.finished - START.timestamp()) // 3600
        found[(hour, *by(end))].append(end)
    return found


def hour_of(start: dt.datetime) -> int:
    return round(start.timestamp() - START.timestamp()) // 3600


def waited(ends: Sequence[JobEnd]) -> list[float]:
    return sorted(max(0.0, end.started - end.queued) for end in ends if end.started)


def ran(ends: Sequence[JobEnd]) -> list[float]:
    return sorted(max(0.0, end.finished - end.started) for end in ends if end.started)


def check_times(row: Any, column: str, values: list[float]) -> None:
    """Compare mean and quantiles; a job's times are recorded to the microsecond."""
    if not values:
        assert row[f"{column}_mean"] is row[f"{column}_p50"] is None
        return
    assert row[f"{column}_mean"] == pytest.approx(fmean(values), abs=1e-6)
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        assert row[f"{column}_{name}"] == pytest.approx(values[math.ceil(share * len(values)) - 1], abs=1e-6)


def outcomes(ends: Sequence[JobEnd], *which: str) -> int:
    return sum(end.outcome in which for end in ends)


def test_ended_jobs_are_those_of_the_records(made: ClusterJournal, rows: DataFrame) -> None:
    found = {row.id: row for row in ended(rows).collect()}
    assert len(found) == len(made.ends) > JOBS - 10
    for end in made.ends[::97]:
        row = found[end.id]
        assert (row.cluster, row.kind, row.worker, row.outcome) == ("farm", end.kind, end.worker, end.outcome)
        assert (row.error, row.text) == end.error
        assert (row.key and bytes(row.key), row.tries, row.term) == (end.key, end.tries, end.term)
        assert (row.payload, row.result) == (len(end.payload), len(end.result))
        assert row.at.timestamp() == pytest.approx(end.finished, abs=1e-6)
        assert (row.started.timestamp() if row.started else 0.0) == pytest.approx(end.started, abs=1e-6)


def test_unreadable_records_are_left_out_and_counted(made: ClusterJournal, rows: DataFrame) -> None:
    found = {row.why: row.records for row in unreadable(rows).collect()}
    assert sum(found.values()) == made.bad > 5
    assert all(why.startswith("bad record of ") for why in found)


def test_work_by_worker_kind_and_hour(made: ClusterJournal, rows: DataFrame) -> None:
    wanted = grouped(made.ends, lambda end: (end.worker, end.kind))
    found = work(ended(rows)).collect()
    assert {(hour_of(row.start), row.worker, row.kind) for row in found} == set(wanted)
    for row in found:
        ends = wanted[hour_of(row.start), row.worker, row.kind]
        assert (row.cluster, row.end - row.start, row.jobs) == ("farm", HOUR, len(ends))
        assert (row.done, row.failed, row.dead, row.cancelled) == tuple(
            outcomes(ends, each) for each in ("result", "failed", "dead", "cancelled")
        )
        assert row.busy == pytest.approx(sum(ran(ends)), abs=1e-6)
        assert row.tries == sum(end.tries for end in ends)
        assert row.retries == sum(max(0, end.tries - 1) for end in ends)
        check_times(row, "waited", waited(ends))
        check_times(row, "ran", ran(ends))


def test_queue_times_by_kind_and_hour(made: ClusterJournal, rows: DataFrame) -> None:
    wanted = grouped(made.ends, lambda end: (end.kind,))
    found = queue_times(ended(rows)).collect()
    assert {(hour_of(row.start), row.kind) for row in found} == set(wanted)
    for row in found:
        times = waited(wanted[hour_of(row.start), row.kind])
        assert (row.jobs, row.longest) == (len(times), pytest.approx(times[-1], abs=1e-6))
        check_times(row, "waited", times)


def test_retries_by_kind_and_hour(made: ClusterJournal, rows: DataFrame) -> None:
    wanted = grouped(made.ends, lambda end: (end.kind,))
    found = retries(ended(rows)).collect()
    assert {(hour_of(row.start), row.kind) for row in found} == set(wanted)
    for row in found:
        ends = wanted[hour_of(row.start), row.kind]
        again = [end for end in ends if end.tries > 1]
        assert (row.jobs, row.retried, row.retries) == (len(ends), len(again), sum(end.tries - 1 for end in again))
        assert (row.most_tries, row.done_after_retry) == (3, outcomes(again, "result"))
        assert row.dead == outcomes(ends, "dead")


def test_dead_letters_have_their_errors(made: ClusterJournal, rows: DataFrame) -> None:
    found = dead_letters(ended(rows)).collect()
    assert sorted(
        (row.id, row.kind, row.worker, row.outcome, row.error, row.text, row.tries) for row in found
    ) == sorted(
        (end.id, end.kind, end.worker, end.outcome, *end.error, end.tries)
        for end in made.ends
        if end.outcome in ("dead", "failed")
    )


def test_reigns_and_the_gaps_between_them(made: ClusterJournal, rows: DataFrame) -> None:
    found = hosts(rows).orderBy("term").collect()
    assert [(row.term, row.host, row.ended, row.jobs) for row in found] == [
        (term, host, end is not None, jobs) for term, host, _start, end, _gap, jobs in made.reigns
    ]
    last = max(end.finished for end in made.ends) - START.timestamp()
    for row, (_term, _host, start, end, gap, _jobs) in zip(found, made.reigns, strict=True):
        until = last if end is None else end
        assert row.start.timestamp() - START.timestamp() == pytest.approx(start, abs=1e-5)
        assert row.end.timestamp() - START.timestamp() == pytest.approx(until, abs=1e-5)
        assert row.seconds == pytest.approx(until - start, abs=1e-5)
        assert row.gap == (None if gap is None else pytest.approx(gap, abs=1e-5))
    assert [row.why for row in found] == ["no heartbeat at 3000", "no heartbeat at 6000", None, None]


@pytest.mark.parametrize("name", ["work", "dead-letters"])
def test_stream_returns_the_rows_of_the_batch(
    spark: SparkSession, journal: Path, tmp_path: Path, made: ClusterJournal, name: str
) -> None:
    stream = stream_of(spark, name, JobOptions(str(journal)))
    writer: Any = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    assert query.awaitTermination(120)
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    rows = batch(spark, name, JobOptions(str(journal)))
    assert rows is not None
    wanted = rows.collect()
    if name == "work":  # the last window is still open
        wanted = [row for row in wanted if hour_of(row.start) < 2]
    assert sorted(map(str, found)) == sorted(map(str, wanted))


def test_report_has_a_part_for_the_cluster(made: ClusterJournal, rows: DataFrame) -> None:
    figures = collect(rows)
    assert figures.cluster is not None
    assert (figures.cluster.jobs, figures.cluster.unreadable) == (len(made.ends), made.bad)
    jobs = sum(value * figures.step for points in figures.cluster.by_kind.values() for _, value in points)
    assert round(jobs) == len(made.ends)
    assert sum(line[2] for line in figures.cluster.work.rows) == len(made.ends)  # 15 pairs, and 3 kinds never started
    assert [line[1:3] for line in figures.cluster.reigns.rows] == [(4, "c"), (3, "a"), (2, "b"), (1, "a")]
    assert [(bar.name, bar.share) for bar in figures.cluster.bars] == [
        ("farm c", "1"),
        ("farm a", "2"),
        ("farm b", "1"),
    ]
    assert [start for start, _, _ in figures.cluster.bars[1].parts] == pytest.approx(
        [START.timestamp(), START.timestamp() + 6001.5]
    )
    assert (len(figures.cluster.dead.rows), figures.cluster.dead.more) == (20, True)
    text = page(figures, at(0))
    assert "<h2>Hosts</h2>" in text
    assert f"{made.bad} records cannot be read" in text
    assert "<scene>" not in text
    assert text.count("<svg") == 3 + 1 + 3 + 1  # messages, bytes, latency; jobs; one for each host; dependencies


def test_wrong_clock_of_a_host_does_not_blow_up_the_plot(spark: SparkSession) -> None:
    late = job(1, 1e9, 1, random.Random(1))
    records = ClusterRecords("farm", "a", 1).ends([late, late._replace(finished=BEGIN + 1)], BEGIN)
    figures = collect(frame(spark, [row_of(record, 2) for record in records]))
    assert figures.cluster is not None
    assert (figures.cluster.jobs, [len(points) for points in figures.cluster.by_kind.values()]) == (2, [1])


def test_rows_without_protocol_are_rejected(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="missing column protocol"):
        ended(frame(spark, []).drop("protocol"))
