"""Reading as with Spark's Kafka source: times by partition, patterns, pace, several journals, losses. Without Spark."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from nngkit.errors import ConfigError, Damaged, NotFound
from nngkit.journal import open_journal
from nngkit.journal.manifest import save_manifest
from nngkit.spark.reading.choice import choice
from nngkit.spark.reading.many import ManyBatchReader, ManyStreamReader, journals_of
from nngkit.spark.reading.one import BatchReader, StreamReader
from nngkit.spark.reading.options import ReadOptions
from nngkit.spark.reading.plan import Available, OffsetRange, Pace, checked, lost_in
from tests.journal.partitions import entry as journal_entry
from tests.journal.partitions import stored
from tests.spark.journals import append, opened, write
from tests.spark.rows import at, micros

COLUMNS = ("key", "value", "topic", "partition", "offset")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the journals eu, of two partitions, and us."""
    folder = tmp_path_factory.mktemp("data")
    write(folder / "eu", 30, topics=("orders.eu", "orders.us", "prices"))
    write(folder / "eu", 10, partition=1, first=100)
    with opened(folder / "us") as partition:
        (folder / "checkpoint").mkdir()  # no journal
        append(partition, [{"key": key} for key in (b"user-1", b"user-2", b"shop-1", None, b"user-3\xff")])
    return folder


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nngkit.spark.reading.one.freeze", lambda: None)  # only for a worker process


def batch(path: Path, **options: str) -> BatchReader:
    return BatchReader(ReadOptions.of({"path": str(path), **options}, streaming=False), COLUMNS)


def stream(path: Path, **options: str) -> StreamReader:
    columns = (*COLUMNS, "skipped") if "includeSkipped" in options else COLUMNS
    return StreamReader(ReadOptions.of({"path": str(path), **options}, streaming=True), columns)


def rows(reader: Any, *between: Any) -> list[dict[str, Any]]:
    return [row for task in reader.partitions(*between) for found in reader.read(task) for row in found.to_pylist()]


def values(found: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["value"]) for row in found)


def ms(seconds: float) -> int:
    return micros(at(seconds)) // 1000


# ---- where a read begins and ends ------------------------------------------------------------------------------------


def test_times_by_partition_bound_the_read(data: Path) -> None:
    some = batch(
        data / "eu",
        startingOffsetsByTimestamp=json.dumps({"0": ms(28), "1": at(108).isoformat()}),
        endingOffsetsByTimestamp=json.dumps({"1": ms(109)}),
    )
    assert values(rows(some)) == [28, 29, 108]
    assert stream(data / "eu", startingOffsetsByTimestamp=json.dumps({"0": ms(7)})).initialOffset() == {"0": 7, "1": 0}


def test_a_time_after_the_last_record_is_the_end_or_an_error(data: Path) -> None:
    late = {"startingOffsetsByTimestamp": json.dumps({"0": ms(50)})}
    assert stream(data / "eu", **late).initialOffset() == {"0": 30, "1": 0}
    for options in (late, {"startingTimestamp": str(ms(50))}):
        strict = options | {"startingOffsetsByTimestampStrategy": "error"}
        for reader in (stream(data / "eu", **strict).initialOffset, batch(data / "eu", **strict).partitions):
            with pytest.raises(
                ConfigError, match=r"partition 0 has no record from 2026-11-01T12:00:50.* on; it ends b"
            ):
                reader()


@pytest.fixture
def holed(tmp_path: Path) -> Path:
    """Provide a journal of 30 records whose second segment, 10 to 19, is missing."""
    for first in (0, 10, 20):
        write(tmp_path / "j", 10, first=first)
    (tmp_path / "j" / "partition-00000" / open_journal(tmp_path / "j").segments(0)[1].file).unlink()
    return tmp_path / "j"


WITHIN = [
    {"startingTimestamp": str(ms(15))},
    {"startingOffsetsByTimestamp": json.dumps({"0": ms(15)})},
    {"endingTimestamp": str(ms(15))},
    {"endingOffsetsByTimestamp": json.dumps({"0": ms(15)})},
    {"startingTimestamp": str(ms(12)), "endingTimestamp": str(ms(17))},
]


@pytest.mark.parametrize("options", WITHIN, ids=str)
def test_a_time_in_a_missing_segment_is_an_error_or_counted(
    options: dict[str, str], holed: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Damaged, match="file is missing"):
        rows(batch(holed, **options))
    found = values(rows(batch(holed, failOnDataLoss="false", **options)))
    kept = {*range(20, 30)} if any("starting" in each for each in options) else {*range(10)}
    assert found == sorted(kept if len(options) == 1 else ())
    assert "skipped 10 records, offsets 10 to 19" in capfd.readouterr().err


@pytest.mark.parametrize("options", WITHIN[:2], ids=str)
def test_a_stream_from_a_time_in_a_missing_segment_fails_or_counts(options: dict[str, str], holed: Path) -> None:
    with pytest.raises(Damaged, match="file is missing"):
        stream(holed, **options).initialOffset()
    reader = stream(holed, failOnDataLoss="false", includeSkipped="true", **options)
    begun = reader.initialOffset()
    found = rows(reader, begun, reader.latestOffset(begun, ReadAllAvailable()))
    assert [row["skipped"] for row in found if row["skipped"]] == [10]
    assert values([row for row in found if row["skipped"] is None]) == list(range(20, 30))


def test_a_time_that_no_calendar_has_is_the_nearest(tmp_path: Path) -> None:
    with opened(tmp_path / "j") as partition:
        for stamp in (1_795_713_922_049_132_954, -(1 << 62)):
            stored(partition, [journal_entry(b"v", timestamp=stamp)])
    reader = BatchReader(ReadOptions.of({"path": str(tmp_path / "j")}, streaming=False), ("timestamp",))
    assert [row["timestamp"].year for row in rows(reader)] == [9999, 1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsetsByTimestamp": "5"}, 'is not of the form {"partition": time}'),
        ({"startingOffsetsByTimestamp": '{"x": 5}'}, "has 'x': 5, not a partition and a time"),
        ({"startingOffsetsByTimestamp": '{"0": [5]}'}, "has '0': [5], not a partition and a time"),
        ({"startingOffsetsByTimestamp": '{"0": "noon"}'}, "'noon' is neither ISO 8601"),
        ({"startingOffsetsByTimestamp": '{"0": 5}', "startingOffsets": "latest"}, "conflicts with startingOffsets"),
        ({"endingOffsetsByTimestamp": '{"0": 5}'}, "endingOffsetsByTimestamp: is for batch reads only"),
        ({"startingOffsetsByTimestampStrategy": "error"}, "requires startingTimestamp or startingOffsetsByTimestamp"),
        ({"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "x"}, "'x' is neither error nor latest"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "9 is above maxOffsetsPerTrigger, 8"),
        ({"maxTriggerDelay": "5m"}, "maxTriggerDelay: requires minOffsetsPerTrigger"),
        ({"maxTriggerDelay": "5 ages", "minOffsetsPerTrigger": "1"}, "'5 ages' is not a length of time such as 5m"),
        ({"subscribe": "a", "subscribePattern": "a"}, "subscribePattern: conflicts with subscribe"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "subscribe: conflicts with assign"),
        ({"subscribePattern": "(a"}, "'(a' is not a regular expression: missing )"),
        ({"assign": "0"}, 'is neither of the form {"topic": [0, 1]} nor [0, 1]'),
        ({"assign": '{"a": ["0"]}'}, "a partition is an integer from 0 on"),
        ({"keyPrefix": ""}, "keyPrefix: is empty"),
    ],
)
def test_conflicting_options_are_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ReadOptions.of({"path": "j", **options}, streaming=True)
    assert words in str(caught.value)


# ---- which records ---------------------------------------------------------------------------------------------------


def test_a_pattern_matches_whole_topics(data: Path) -> None:
    assert values(rows(batch(data / "eu", subscribePattern="orders"))) == []
    assert values(rows(batch(data / "eu", subscribePattern=r"orders\.(eu|de)"))) == list(range(0, 30, 3))
    reader = batch(data / "eu", subscribePattern=r"orders\..*")
    assert reader.pushFilters([EqualTo(("topic",), "orders.us"), GreaterThanOrEqual(("offset",), 20)]) == []
    assert values(rows(reader)) == [22, 25, 28]


def test_assigned_partitions_are_read_with_their_topics(data: Path) -> None:
    assert values(rows(batch(data / "eu", assign="[1]"))) == list(range(100, 110))
    assert values(rows(batch(data / "eu", assign='{"prices": [0], "t": [1]}'))) == [*range(2, 30, 3), *range(100, 110)]
    assert stream(data / "eu", assign="[1]", startingOffsets="latest").initialOffset() == {"1": 10}
    # A checkpoint may have more partitions than a changed assignment.
    assert stream(data / "eu", assign="[1]").latestOffset({"0": 3, "1": 4}, ReadAllAvailable()) == {"0": 3, "1": 10}
    with pytest.raises(ConfigError, match="assign: the journal has no partition 7; it has 0, 1"):
        batch(data / "eu", assign="[7]").partitions()


def test_a_key_prefix_selects_records(data: Path) -> None:
    assert values(rows(batch(data / "us", keyPrefix="user-"))) == [0, 1, 4]
    reader = BatchReader(ReadOptions.of({"path": str(data / "us"), "keyPrefix": "shop"}, streaming=False), ("value",))
    assert rows(reader) == [{"value": b"2"}]


@given(
    st.lists(st.tuples(st.sampled_from(["a", "ab", "b"]), st.none() | st.binary(max_size=3))), st.text("ab", max_size=2)
)
def test_selection_agrees_with_python(records: list[tuple[str, bytes | None]], prefix: str) -> None:
    names, keys = ([each[number] for each in records] for number in (0, 1))
    held = pa.record_batch({"topic": pa.array(names, pa.string()), "key": pa.array(keys, pa.binary())})
    chosen = choice({"subscribePattern": "a.*"} | ({"keyPrefix": prefix} if prefix else {}))
    expected = [
        (topic, key)
        for topic, key in records
        if topic.startswith("a") and (not prefix or (key is not None and key.startswith(prefix.encode())))
    ]
    assert [tuple(row.values()) for row in chosen.filtered(held).to_pylist()] == expected


# ---- pace ------------------------------------------------------------------------------------------------------------


def test_a_batch_waits_for_enough_offsets_or_the_delay() -> None:
    pace = Pace(least=10, delay=60)
    assert not pace.waits({0: 0}, {0: 1}, now=1000)  # the first at once, as Kafka's
    assert pace.waits({0: 1, 1: 0}, {0: 5, 1: 5}, now=1001)
    assert not pace.waits({0: 1, 1: 0}, {0: 6, 1: 5}, now=1002)
    assert pace.waits({0: 6}, {0: 7}, now=1061)
    assert not pace.waits({0: 6}, {0: 7}, now=1062)
    assert pace.waits({0: 7}, {0: 8}, now=1063)


def test_a_delay_without_new_records_starts_nothing() -> None:
    pace = Pace(least=10, delay=60, last=0)
    assert not pace.waits({0: 5}, {0: 5}, now=100)
    assert not pace.waits({0: 5}, {0: 6}, now=101)  # it has waited for longer than the delay


def test_a_stream_waits_for_the_minimum_but_not_under_available_now(data: Path) -> None:
    options = {"minOffsetsPerTrigger": "9", "maxTriggerDelay": "1h"}
    reader = stream(data / "eu", **options)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(9)
    assert reader.latestOffset({"0": 0, "1": 0}, limit) == {"0": 30, "1": 10}
    assert reader.latestOffset({"0": 24, "1": 8}, limit) == {"0": 24, "1": 8}
    assert reader.latestOffset({"0": 23, "1": 8}, limit) == {"0": 30, "1": 10}
    assert reader.latestOffset({"0": 24, "1": 8}, ReadAllAvailable()) == {"0": 30, "1": 10}
    both = stream(data / "eu", maxOffsetsPerTrigger="20", **options)
    both.latestOffset({"0": 0, "1": 0}, both.getDefaultReadLimit())
    assert both.getDefaultReadLimit() == ReadMaxRows(20)
    assert both.latestOffset({"0": 24, "1": 8}, ReadMaxRows(20)) == {"0": 24, "1": 8}
    both.prepareForTriggerAvailableNow()
    assert both.latestOffset({"0": 24, "1": 8}, ReadMaxRows(20)) == {"0": 30, "1": 10}


# ---- losses ----------------------------------------------------------------------------------------------------------


@given(*[st.integers(0, 20)] * 4)
def test_available_and_missing_offsets_cover_the_request(start: int, rows_: int, first: int, kept: int) -> None:
    wanted = OffsetRange(0, start, start + rows_)
    found, gone = checked(wanted, Available(first, first + kept), "j", fail=False)
    covered = [*range(found.start, found.end)] + [offset for each in gone for offset in range(each.first, each.end)]
    assert sorted(covered) == [*range(start, start + rows_)]


def test_lost_ranges_are_reported_within_the_request() -> None:
    kept = Available(0, 100, ((50, 60), (10, 20)))
    assert [each[:3] for each in lost_in(OffsetRange(3, 15, 55), kept)] == [(3, 15, 20), (3, 50, 55)]


@pytest.fixture
def retained(tmp_path: Path) -> Path:
    """Provide a journal of which retention has deleted the offsets 0 to 9."""
    write(tmp_path / "j", 10)
    write(tmp_path / "j", 10, first=10)
    journal = open_journal(tmp_path / "j")
    manifest = journal.manifest(0)
    save_manifest(journal.storage, manifest.retained(0.0, age=None, size=manifest.segments[-1].bytes))
    return tmp_path / "j"


def test_expired_offsets_are_logged_once_with_their_number_and_counted(
    retained: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(
        NotFound, match=r"offset 4 of partition 0 has expired, the earliest in .* is 10.*failOnDataLoss"
    ):
        stream(retained).partitions({"0": 4}, {"0": 20})
    reader = stream(retained, includeSkipped="true", failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "nngkit.spark"):
        found = rows(reader, {"0": 4}, {"0": 20})
        assert rows(reader, {"0": 4}, {"0": 20}) == found  # a repeated batch
    assert [row["skipped"] for row in found if row["skipped"] is not None] == [6]
    assert [row["offset"] for row in found] == [*range(10, 20), 4]
    (message,) = caplog.messages
    assert "skipped 6 offsets of partition 0, 4 to 9" in message


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (4, "startingOffsets: offset 4 of partition 0 has expired, the earliest in .* is 10; begin there or later"),
        (21, "startingOffsets: offset 21 of partition 0 does not exist yet, .* ends before 20; begin there or earlier"),
    ],
)
def test_a_start_outside_the_journal_names_option_offset_and_remedy(retained: Path, offset: int, words: str) -> None:
    options = {"startingOffsets": json.dumps({"0": offset})}
    for reader in (stream(retained, **options).initialOffset, batch(retained, **options).partitions):
        with pytest.raises(ConfigError, match=words):
            reader()
    assert len(rows(batch(retained, failOnDataLoss="false", **options))) == (10 if offset == 4 else 0)


# ---- several journals ------------------------------------------------------------------------------------------------


def many(path: str, streaming: bool = False, **options: str) -> Any:
    journals = journals_of({"path" if "*" in path else "paths": path, **options})
    assert journals is not None
    return (ManyStreamReader if streaming else ManyBatchReader)(journals, ("value", "journal"))


def test_journals_of_a_pattern_or_a_list_form_one_table(data: Path) -> None:
    for path in (f"{data}/*", json.dumps([f"{data}/eu/", f"{data}/us"])):
        found = rows(many(path, startingOffsets='{"eu": {"0": 28, "1": 9}}'))
        assert sorted((row["journal"], int(row["value"])) for row in found) == [
            *(("eu", value) for value in (28, 29, 109)),
            *(("us", value) for value in range(5)),
        ]
    journals = journals_of({"path": f"{data}/u*"})
    assert journals
    assert rows(ManyBatchReader(journals, ("journal",))) == [{"journal": "us"}] * 5


def test_a_filter_on_the_journal_reads_no_other(data: Path) -> None:
    reader = many(f"{data}/*")
    assert reader.pushFilters([EqualTo(("journal",), "us"), EqualTo(("key",), b"x")]) == [EqualTo(("key",), b"x")]
    assert {task.value[0] for task in reader.partitions()} == {"us"}


def test_a_stream_of_journals_shares_its_limit_and_resumes(data: Path) -> None:
    reader = many(f"{data}/*", True, startingOffsets="earliest")
    start = reader.initialOffset()
    assert start == {"eu": {"0": 0, "1": 0}, "us": {"0": 0}}
    seen: list[tuple[str, int]] = []
    while (end := reader.latestOffset(start, ReadMaxRows(9))) != start:
        assert sum(end[name][part] - start[name][part] for name in end for part in end[name]) <= 9
        seen += [(row["journal"], int(row["value"])) for row in rows(reader, start, end)]
        start = json.loads(json.dumps(end))
    assert sorted(seen) == [("eu", value) for value in (*range(30), *range(100, 110))] + [
        ("us", value) for value in range(5)
    ]
    assert reader.reportLatestOffset() == start
    for option in ("startingOffsets", "startingOffsetsByTimestamp"):
        given = {option: json.dumps({"eu": {"0": 7 if option == "startingOffsets" else ms(7)}})}
        assert many(f"{data}/*", True, **given).initialOffset() == {"eu": {"0": 7, "1": 0}, "us": {"0": 0}}
    # A journal that the checkpoint does not know is read from its start; one that has gone is reported.
    assert many(f"{data}/*", True).latestOffset({"eu": start["eu"]}, ReadAllAvailable()) == start
    with pytest.raises(NotFound, match="offsets of the journal eu, which is not among us"):
        many(f"{data}/u*", True).latestOffset(start, ReadAllAvailable())
    assert many(f"{data}/u*", True, failOnDataLoss="false").latestOffset(start, ReadAllAvailable()) == start


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "/nowhere/*"}, "path: no journal matches /nowhere/*"),
        ({"path": "s3://b/*"}, "path: patterns are for folders of this machine"),
        ({"paths": "a"}, "paths: 'a' is neither a list of paths"),
        ({"paths": '["/a/j", "/b/j"]'}, "paths: two journals are named j: give names"),
        ({"paths": '["a"]', "path": "b"}, "paths: conflicts with path"),
        ({"paths": '["a"]', "spool": "b"}, "spool: is for a single journal"),
        ({"paths": '["a"]', "startingOffsets": '{"0": 1}'}, 'is not of the form {"journal": {"partition": ...}}'),
        (
            {"paths": '["a"]', "startingOffsets": '{"b": {"0": 1}}'},
            "startingOffsets: there is no journal b; there are a",
        ),
        ({"paths": '["a"]', "zzz": "b"}, "zzz: unknown option"),
    ],
)
def test_invalid_lists_of_journals_are_rejected(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        journals_of(options)
    assert words in str(caught.value)


def test_errors_name_the_journal(data: Path) -> None:
    with pytest.raises(ConfigError, match="assign: journal us: the journal has no partition 1; it has 0"):
        many(f"{data}/*", assign="[1]").partitions()
