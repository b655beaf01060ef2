"""Sessions, anomalies, latency of requests, dependencies and schemas, compared with plain Python on small journals."""

from __future__ import annotations

import datetime as dt
import json
import random
import statistics
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from nngkit.cluster.records import ClusterRecords
from nngkit.envelope import encode
from nngkit.errors import ConfigError
from nngkit.spark.analytics.anomalies import anomalies
from nngkit.spark.analytics.dependencies import dependencies
from nngkit.spark.analytics.requests import request_latency, requests
from nngkit.spark.analytics.sessions import peers, sessions, with_unseen
from nngkit.spark.jobs.cbor_text import from_cbor, register
from nngkit.spark.jobs.schemas import schemas
from tests.spark.cluster_journal import row_of
from tests.spark.journals import append, opened
from tests.spark.rows import at, eight, frame, micros, seen

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

HOUR = 3600
WEEK = 7 * 24


def test_sessions_end_with_a_gap(spark: SparkSession) -> None:
    rng = random.Random(5)
    records: list[dict[str, Any]] = [
        {"timestamp": at(round(rng.uniform(0, 3000), 3)), "peer": rng.choice("ab"), "topic": rng.choice("tu")}
        for _ in range(60)
    ]
    expected = []
    for peer in "ab":
        ordered = sorted((each for each in records if each["peer"] == peer), key=lambda each: each["timestamp"])
        parts: list[list[dict[str, Any]]] = []
        for each in ordered:
            if not parts or (each["timestamp"] - parts[-1][-1]["timestamp"]).total_seconds() >= 60:
                parts.append([])
            parts[-1].append(each)
        for part in parts:
            span = micros(part[-1]["timestamp"]) - micros(part[0]["timestamp"])
            expected.append((peer, span, len(part), sorted({each["topic"] for each in part})))
    found = sessions(frame(spark, records), "1 minute").orderBy("peer", "start").collect()
    assert len(expected) > 10
    assert [(row.peer, round(row.seconds * 1e6), row.messages, row.topics) for row in found] == expected
    assert sum(row["bytes"] for row in found) == 60


def test_unseen_peers_of_a_stream_are_those_that_the_journal_does_not_have(spark: SparkSession, tmp_path: Path) -> None:
    old: list[dict[str, Any]] = [{"peer": "a"}, {"peer": "a", "topic": "u"}, {"headers": {"from": b"b"}, "peer": "x"}]
    new: list[dict[str, Any]] = [{"peer": "a"}, {"peer": "c"}, {"peer": "c", "headers": {"from": b"b"}}]
    with opened(tmp_path / "j") as partition:
        append(partition, [*old, *({**each, "timestamp": at(60)} for each in new)])
    start = at(30).isoformat()
    headers = {"includeHeaders": "true"}
    known = spark.read.format("nng").options(**headers, endingTimestamp=start).load(str(tmp_path / "j"))
    before = peers(known)
    assert {(row.peer, row.messages, *row.topics) for row in before.collect()} == {("a", 2, "t", "u"), ("b", 1, "t")}
    rows = spark.readStream.format("nng").options(**headers, startingTimestamp=start).load(str(tmp_path / "j"))
    stream = with_unseen(rows, before).writeStream.format("memory").queryName("unseen_peers")
    assert stream.trigger(availableNow=True).start().awaitTermination(100)
    found = {(row.sender, row.unseen) for row in spark.table("unseen_peers").collect()}
    assert found == {("a", False), ("b", False), ("c", True)}


def hour_of(moment: dt.datetime) -> int:
    return int((moment.timestamp() - at(0).timestamp()) / HOUR)


def expected_anomalies(counts: dict[tuple[str, str | None], Counter[int]], hours: int) -> set[tuple[Any, ...]]:
    """Return topic, peer, hour, messages, messages a week before, score: in two loops over all windows."""
    found = set()
    for (topic, peer), by_hour in counts.items():
        windows = range(WEEK, hours)
        changes = {hour: by_hour[hour] - by_hour[hour - WEEK] for hour in windows}
        usual = statistics.median(changes.values())
        spread = 1.4826 * statistics.median(abs(change - usual) for change in changes.values())
        for hour, change in changes.items():
            before = by_hour[hour - WEEK]
            score = (change - usual) / max(spread, before**0.5, 1.0)
            if abs(score) >= 5:
                found.add((topic, peer, hour, by_hour[hour], before, round(score, 6)))
    return found


def test_anomalies_are_far_from_the_same_hour_a_week_before(spark: SparkSession) -> None:
    rng = random.Random(2)
    hours = WEEK + 40
    records: list[dict[str, Any]] = []

    def send(topic: str, peer: str, hour: int, count: int) -> None:
        records.extend({"topic": topic, "peer": peer, "timestamp": at(HOUR * (hour + 0.001 * n))} for n in range(count))

    for hour in range(hours):
        send("even", "a", hour, 0 if hour == WEEK + 7 else 90 if hour == WEEK + 9 else rng.randint(28, 32))
    for hour in (WEEK + 3, WEEK + 4):
        send("rare", "b", hour, 9)
    send("even", "c", WEEK + 20, 4)  # too few
    records.append({"topic": "end", "peer": "x", "timestamp": at(HOUR * hours)})  # so that the last hour is whole
    counts: dict[tuple[str, str | None], Counter[int]] = defaultdict(Counter)
    for each in records:
        hour = (micros(each["timestamp"]) - micros(at(0))) // 3_600_000_000
        for peer in (each["peer"], None):
            counts[each["topic"], peer][hour] += 1
    expected = expected_anomalies(counts, hours)
    rows = frame(spark, records)
    found = anomalies(rows).collect()
    assert {
        (row.topic, row.peer, hour_of(row.start), row.messages, row.before, round(row.score, 6)) for row in found
    } == expected
    assert {("even", "a"), ("even", None), ("rare", "b"), ("rare", None)} == {(row.topic, row.peer) for row in found}
    gone = [row for row in found if row.messages == 0]
    assert [row.ratio for row in gone] == [0.0, 0.0]
    with pytest.raises(ConfigError, match="a week is not a multiple of '5 hours'"):
        anomalies(rows, "5 hours")


def test_journal_of_less_than_eight_days_has_no_anomalies(spark: SparkSession) -> None:
    records = [{"timestamp": at(0)}, *({"timestamp": at(HOUR * (WEEK + 2))} for _ in range(50))]
    short = [*records, {"timestamp": at(HOUR * (WEEK + 23.9))}]
    assert anomalies(frame(spark, short)).count() == 0
    assert anomalies(frame(spark, [*records, {"timestamp": at(HOUR * (WEEK + 24))}])).count() == 2


def exchange(what: str, number: int, seconds: float, peer: str | None = None, kind: str = "queue") -> dict[str, Any]:
    side = "front" if what == "request" else "back"
    headers = {"number": eight(number)}
    record = {"key": what.encode(), "topic": side, "headers": headers, "peer": peer, "protocol": kind}
    return {**record, "timestamp": at(seconds)}


EXCHANGES = [
    exchange("request", 1, 0, "tcp://10.0.0.1:40001"),
    exchange("request", 2, 0.5, "tcp://10.0.0.1:40002"),
    exchange("reply", 1, 1),
    exchange("request", 1, 2, "tcp://10.0.0.9:1"),  # the device was restarted: number 2 got no reply
    exchange("request", 2, 3, "tcp://10.0.0.9:1"),
    exchange("reply", 2, 3.25),
    exchange("request", 1, 10, "tcp://10.0.0.9:1", "survey"),
    exchange("reply", 1, 10.1, "tcp://here:9000", "survey"),
    exchange("reply", 1, 10.2, "tcp://there:9000", "survey"),
    {"key": b"request", "timestamp": at(11), "peer": "tcp://s:1"},  # not a device's: it has no number
    seen("answer", "tcp://here:9000", 0, True),
]


def test_requests_are_joined_with_their_first_reply(spark: SparkSession) -> None:
    rows = frame(spark, EXCHANGES)
    found = requests(rows).orderBy("at").collect()
    assert [(row.service, row.replier, row.seconds) for row in found] == [
        ("queue", None, 1.0),
        ("queue", None, None),
        ("queue", None, None),
        ("queue", None, 0.25),
        ("answer", "tcp://here:9000", pytest.approx(0.1)),
    ]
    summed = request_latency(rows, "1 hour").orderBy("service").collect()
    assert [(row.service, row.requests, row.answered, row.slowest) for row in summed] == [
        ("answer", 1, 1, pytest.approx(0.1)),
        ("queue", 4, 2, 1.0),
    ]


def test_dependencies_name_both_ends(spark: SparkSession) -> None:
    nodes = ClusterRecords("farm", "x", 1)
    sent = [nodes.message("chat", "a/b", 1, n, b"hello", to=to) for n, to in ((1, "c"), (2, None), (3, "c"))]
    published: list[dict[str, Any]] = [{"peer": f"tcp://[::1]:{port}", "topic": "weather"} for port in (1, 2)]
    published += [{"peer": "tcp://here:9000", "topic": "prices"}, {"headers": {"from": b"shop"}, "topic": "weather"}]
    rows = frame(spark, EXCHANGES + published + [row_of(each, 0) for each in sent])
    found = {(row.source, row.target, row.kind): row.messages for row in dependencies(rows).collect()}
    assert found == {
        ("tcp://10.0.0.1", "queue", "calls"): 2,
        ("tcp://10.0.0.9", "queue", "calls"): 2,
        ("tcp://10.0.0.9", "answer", "calls"): 1,
        ("tcp://s", "t", "publishes"): 1,
        ("tcp://[::1]", "weather", "publishes"): 2,
        ("answer", "prices", "publishes"): 1,
        ("shop", "weather", "publishes"): 1,
        ("a/b", "c", "sends"): 2,
        ("a/b", "all nodes", "sends"): 1,
    }


def test_schemas_list_the_kinds_and_fields_of_each_topic(spark: SparkSession) -> None:
    values = [encode({"n": number, "who": {"name": "x"}, "tags": [b"", 1.5]}) for number in range(6)]
    values += [json.dumps({"n": None}).encode(), b"plain text", b"\xff\xfe", bytes(20_000)]
    rows = frame(spark, [{"value": each, "topic": "mixed"} for each in values] + [{"topic": "other"}] * 50)
    found = {(row.topic, row.kind, row.field, row.type): row.share for row in schemas(rows, 20).collect()}
    fields = {
        ("n", "integer"): 0.6,
        ("who", "map"): 0.6,
        ("who.name", "text"): 0.6,
        ("tags", "array"): 0.6,
        ("tags[]", "bytes"): 0.6,
        ("tags[]", "float"): 0.6,
    }
    assert found == {("mixed", "cbor", *field): share for field, share in fields.items()} | {
        ("mixed", "cbor", None, None): 0.6,
        ("mixed", "json", None, None): 0.1,
        ("mixed", "json", "n", "null"): 0.1,
        ("mixed", "text", None, None): 0.1,
        ("mixed", "binary", None, None): 0.1,
        ("mixed", "long", None, None): 0.1,
        ("other", "text", None, None): 1.0,
    }
    (other,) = schemas(rows, 20).where("topic = 'other'").collect()
    assert (other.sampled, other.records) == (20, 50)


def test_cbor_is_read_by_functions_and_in_sql(spark: SparkSession) -> None:
    value = encode({"name": 'a"b', "size": 2**40, "data": b"\x00\xff", "ok": True})
    rows = frame(spark, [{"value": value}, {"value": b"no"}])
    found = rows.select(from_cbor("value", "name string, size bigint, data binary, ok boolean").alias("x")).collect()
    assert [row.x and (row.x.name, row.x.size, bytes(row.x.data), row.x.ok) for row in found] == [
        ('a"b', 2**40, b"\x00\xff", True),
        None,
    ]
    register(spark)
    rows.createOrReplaceTempView("with_cbor")
    texts = spark.sql("SELECT from_cbor(value) AS text FROM with_cbor ORDER BY offset").collect()
    assert [row.text and json.loads(row.text)["data"] for row in texts] == ["AP8=", None]
