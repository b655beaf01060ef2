"""Availability from hand-made rounds with known results; batch and stream agree."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nngkit.spark.analytics.availability import (
    availability,
    flaps,
    intervals,
    intervals_stream,
    observations,
    reply_times,
    within_watermark,
)
from tests.spark.rows import at, frame, seen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def story(spark: SparkSession) -> DataFrame:
    """Provider `a` is up, down from 30 to 50 s, and up again; `b`, in another zone, is always up."""
    records = [seen("s", "a", 10 * n, n not in (3, 4), 0.010 * (n + 1), zone="x") for n in range(8)]
    records += [seen("s", "b", 10 * n, True, 0.002, zone="y") for n in range(8)]
    random.Random(6).shuffle(records)
    return observations(frame(spark, records))


def test_values_that_are_not_survey_rounds_are_ignored(spark: SparkSession) -> None:
    records = [seen("s", "a", 0, True), {"value": b"{", "protocol": "survey"}, {"value": b"{}", "protocol": "survey"}]
    records += [
        {"value": seen("s", "a", 0, True)["value"], "protocol": "sub"},
        {"value": b"\xff", "protocol": "survey"},
    ]
    change = {"name": "s", "address": "a", "state": "down", "round": 3, "reason": "missed"}
    records += [{"value": json.dumps(change).encode(), "protocol": "survey", "topic": "discovery.events"}]
    assert observations(frame(spark, records)).count() == 1


def test_up_intervals_begin_and_end_where_observations_change(spark: SparkSession) -> None:
    found = intervals(story(spark)).orderBy("provider", "start").collect()
    rows = [(row.provider, row.up, row.start.timestamp(), row.end.timestamp(), row.rounds, row.ended) for row in found]
    zero = at(0).timestamp()
    assert [(p, up, start - zero, end - zero, n, ended) for p, up, start, end, n, ended in rows] == [
        ("a", True, 0, 30, 3, True),
        ("a", False, 30, 50, 2, True),
        ("a", True, 50, 70, 3, False),
        ("b", True, 0, 70, 8, False),
    ]


def test_flaps_are_counted_in_the_window_of_the_change(spark: SparkSession) -> None:
    found = flaps(story(spark), "1 hour").collect()
    assert [(row.provider, row.flaps) for row in found] == [("a", 1)]
    # Counted in the window of the change; the state carries over from the previous window.
    split = flaps(story(spark), "30 seconds").collect()
    assert [(row.provider, row.start.timestamp() - at(0).timestamp()) for row in split] == [("a", 30)]


@pytest.mark.every_java
def test_availability_and_reply_times_by_window(spark: SparkSession) -> None:
    found = availability(story(spark), "40 seconds").orderBy("provider", "start").collect()
    assert [(row.provider, row.rounds, row.answered, row.availability) for row in found] == [
        ("a", 4, 3, 0.75),
        ("a", 4, 3, 0.75),
        ("b", 4, 4, 1.0),
        ("b", 4, 4, 1.0),
    ]
    times = reply_times(story(spark), "1 hour").orderBy("provider").collect()
    assert [(row.provider, row.zone, row.replies, row.p50, row.slowest) for row in times] == [
        ("a", "x", 6, 0.03, 0.08),
        ("b", "y", 8, 0.002, 0.002),
    ]


def run_to_end(stream: DataFrame, folder: Path, mode: str = "append") -> list[Any]:
    """Run a stream over the available data; return its rows."""
    name = f"out_{abs(hash(str(folder)))}"
    query = (
        stream.writeStream.format("memory")
        .queryName(name)
        .outputMode(mode)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(50)
        return stream.sparkSession.table(name).collect()
    finally:
        query.stop()


def in_files(rows: DataFrame, folder: Path, files: int) -> DataFrame:
    """Return the rows as a stream of `files` micro-batches in time order."""
    ordered = rows.orderBy("at").collect()
    for number in range(files):
        part = ordered[number * len(ordered) // files : (number + 1) * len(ordered) // files]
        rows.sparkSession.createDataFrame(part, rows.schema).coalesce(1).write.mode("append").parquet(str(folder))
    return rows.sparkSession.readStream.schema(rows.schema).option("maxFilesPerTrigger", "1").parquet(str(folder))


@pytest.mark.slow
@pytest.mark.every_java
def test_streamed_intervals_equal_those_of_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(7)
    records = [
        seen("s", provider, 10 * n + rng.random(), rng.random() < 0.7, zone="z")
        for provider in ("a", "b", "c")
        for n in range(40)
    ]
    records += [seen("s", "end", 10_000 + n, True) for n in range(2)]  # moves the watermark past all others
    rows = observations(frame(spark, records))
    expected = {
        (row.provider, row.up, row.start, row.end, row.rounds) for row in intervals(rows).where("ended").collect()
    }
    assert len(expected) > 20
    stream = in_files(rows, tmp_path / "in", 4)
    found = run_to_end(intervals_stream(stream, "30 seconds"), tmp_path)
    assert {(row.provider, row.up, row.start, row.end, row.rounds) for row in found} == expected
    assert len(found) == len(expected)


@pytest.mark.slow
def test_availability_can_be_streamed(spark: SparkSession, tmp_path: Path) -> None:
    rows = observations(frame(spark, [seen("s", "a", n, n % 4 > 0, 0.01) for n in range(200)]))
    expected = availability(rows, "1 minute").collect()
    found = run_to_end(
        availability(within_watermark(in_files(rows, tmp_path / "in", 3), "10 seconds"), "1 minute"),
        tmp_path,
        "complete",
    )
    assert sorted(map(tuple, found)) == sorted(map(tuple, expected))
    times = run_to_end(
        reply_times(within_watermark(in_files(rows, tmp_path / "in2", 3), "10 seconds"), "1 minute"),
        tmp_path / "times",
        "complete",
    )
    assert sum(row.replies for row in times) == 150
