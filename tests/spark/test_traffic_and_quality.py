"""Traffic and quality jobs on records with known results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from nngkit.errors import ConfigError
from nngkit.spark.analytics.availability import observations
from nngkit.spark.analytics.quality import distinct, duplicates, lost, skew
from nngkit.spark.analytics.traffic import edges, latency, rates, silences, slowest
from nngkit.spark.jobs.headers import seconds_between
from tests.spark.rows import at, eight, frame, micros, seen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rates_and_sizes_by_window_topic_and_peer(spark: SparkSession) -> None:
    records = [{"value": bytes(n % 10), "timestamp": at(n), "peer": "tcp://a:1"} for n in range(120)]
    records += [{"value": b"xx", "topic": "u", "timestamp": at(5), "headers": {"from": b"bob"}, "peer": "tcp://b:1"}]
    found = rates(frame(spark, records), "1 minute").orderBy("topic", "start").collect()
    assert [(row.topic, row.peer, row.messages, row["bytes"], row.smallest, row.largest) for row in found] == [
        ("t", "tcp://a:1", 60, 270, 0, 9),
        ("t", "tcp://a:1", 60, 270, 0, 9),
        ("u", "bob", 1, 2, 2, 2),
    ]
    assert (found[0].messages_per_second, found[0].bytes_per_second) == (1.0, 4.5)


@pytest.mark.every_java
def test_latency_is_from_the_senders_clock_to_the_recorders(spark: SparkSession) -> None:
    records = [
        {"timestamp": at(n), "headers": {"sent": eight(micros(at(n - 0.001 * (n + 1))))}, "peer": "p"}
        for n in range(10)
    ]
    records += [{"timestamp": at(3), "headers": {"sent": b"short"}}, {"timestamp": at(4)}]
    (row,) = latency(frame(spark, records), "1 hour").collect()
    assert row.messages == 10
    assert row.p50 == pytest.approx(0.005, abs=1e-5)
    assert row.slowest == pytest.approx(0.010, abs=1e-5)


def test_silences_are_long_pauses_of_a_peer(spark: SparkSession) -> None:
    times = (0, 0.5, 3.5, 4, 10)
    records = [{"timestamp": at(each), "peer": "p"} for each in times]
    (row,) = silences(frame(spark, records), 1.0).collect()
    assert (row.messages, row.silences, row.longest) == (5, 2, 6.0)


def test_silence_threshold_follows_the_pace_of_the_topic(spark: SparkSession) -> None:
    slow = [{"topic": "hourly", "timestamp": at(3600 * n), "peer": "p"} for n in range(20)]
    fast = [{"topic": "fast", "timestamp": at(0.01 * n + (n >= 50) * 0.5), "peer": "p"} for n in range(100)]
    once = [{"topic": "once", "timestamp": at(0), "peer": "p"}]
    found = {row.topic: row for row in silences(frame(spark, slow + fast + once)).collect()}
    assert (found["hourly"].usual, found["hourly"].over, found["hourly"].silences) == (3600, 36_000, 0)
    assert (found["fast"].over, found["fast"].silences) == (pytest.approx(0.1, abs=1e-3), 1)
    assert found["fast"].longest == pytest.approx(0.51)
    assert (found["once"].messages, found["once"].silences, found["once"].longest) == (1, 0, None)


def test_slowest_respondents_come_first(spark: SparkSession) -> None:
    records = [seen("s", name, n, True, n * 0.001 * k) for n in range(20) for name, k in (("a", 1), ("b", 9), ("c", 3))]
    records += [seen("s", "dead", n, False, None) for n in range(20)]
    found = slowest(observations(frame(spark, records)), most=2).collect()
    assert [row.provider for row in found] == ["b", "c"]


def test_edges_connect_senders_and_topics(spark: SparkSession) -> None:
    records: list[dict[str, Any]] = [
        {"peer": "a", "topic": "t"},
        {"peer": "a", "topic": "t"},
        {"peer": "a", "topic": "u"},
        {"peer": None},
    ]
    found = {(row.source, row.target): row.messages for row in edges(frame(spark, records)).collect()}
    assert found == {("a", "t"): 2, ("a", "u"): 1, ("unknown", "t"): 1}


def test_duplicates_have_the_same_id_and_topic(spark: SparkSession) -> None:
    ids = [b"1", b"2", b"1", b"3", b"1"]
    records = [{"headers": {"id": each}} for each in ids] + [{"headers": {"id": b"2"}, "topic": "u"}, {}, {}]
    rows = frame(spark, records)
    (row,) = duplicates(rows).collect()
    assert (bytes(row.id), row.times, [each.offset for each in row.at]) == (b"1", 3, [0, 2, 4])
    assert distinct(rows).count() == 3 + 1 + 2


def test_two_journals_have_no_record_in_common(spark: SparkSession) -> None:
    ids: list[dict[str, Any]] = [{}, {"headers": {"id": b"1"}}, {"headers": {"id": b"1"}}]
    both = [{"journal": journal, "offset": n} | each for journal in ("eu", "us") for n, each in enumerate(ids)]
    rows = frame(spark, both)
    assert sorted((row.journal, row.offset) for row in distinct(rows).collect()) == [
        (journal, offset) for journal in ("eu", "us") for offset in (0, 1)
    ]
    assert sorted((row.journal, row.times, len(row.at)) for row in duplicates(rows).collect()) == [
        ("eu", 2, 2),
        ("us", 2, 2),
    ]


def test_differences_of_times_are_exact_in_microseconds(spark: SparkSession) -> None:
    # As doubles, these times are multiples of 0.24 us, and the difference is 0.0000011 or 0.0000009.
    pairs = [(at(0.123_456 + n), at(0.123_457 + n)) for n in range(5)]
    rows = spark.createDataFrame(pairs, "since timestamp, until timestamp")
    found = rows.select(seconds_between("since", "until").alias("s"), seconds_between("until", "since").alias("back"))
    assert {tuple(row) for row in found.collect()} == {(0.000_001, -0.000_001)}


@pytest.mark.every_java
def test_lost_ranges_are_missing_sequence_numbers(spark: SparkSession) -> None:
    numbers = [1, 2, 5, 4, 9]  # 3 and 6 to 8 are missing; 5 came before 4
    records = [{"headers": {"seq": eight(n), "from": b"p"}, "timestamp": at(i)} for i, n in enumerate(numbers)]
    # The sender restarts its numbers, and 2 is missing in that run.
    records += [{"headers": {"seq": eight(n), "from": b"p"}, "timestamp": at(10 + i)} for i, n in enumerate((1, 3))]
    found = lost(frame(spark, records)).orderBy("since", "first").collect()
    assert [(row.sender, row.first, row.last, row["count"]) for row in found] == [
        ("p", 3, 3, 1),
        ("p", 6, 8, 3),
        ("p", 2, 2, 1),
    ]


def test_skew_is_the_minimum_delay(spark: SparkSession) -> None:
    def sent(name: bytes, ahead: float) -> list[dict[str, Any]]:
        return [
            {"timestamp": at(n), "headers": {"from": name, "sent": eight(micros(at(n + ahead - 0.01 * (n + 1))))}}
            for n in range(5)
        ]

    found = {row.sender: row.least for row in skew(frame(spark, sent(b"ahead", 2.0) + sent(b"right", 0.0))).collect()}
    assert found["ahead"] == pytest.approx(-1.99, abs=1e-4)
    assert found["right"] == pytest.approx(0.01, abs=1e-4)


def test_rows_without_headers_are_rejected(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="missing column headers: read with includeHeaders=true"):
        latency(frame(spark, []).drop("headers"))
