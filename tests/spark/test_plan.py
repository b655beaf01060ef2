"""Planning of reads: offsets, limits and tasks; validation of options. Without Spark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.errors import ConfigError, NotFound
from nngkit.spark.reading.ids import LENGTH, MessageId, query_key
from nngkit.spark.reading.ids import split as split_id
from nngkit.spark.reading.options import ReadOptions, RecorderOptions, WriteOptions
from nngkit.spark.reading.plan import (
    Available,
    OffsetRange,
    checked,
    from_json,
    limited,
    over_lost,
    resolve,
    split,
    to_json,
    without_lost,
)
from nngkit.spark.reading.positions import EARLIEST, LATEST, parse_time

offsets = st.dictionaries(st.integers(0, 5), st.integers(0, 10_000), max_size=6)


@given(st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 999), st.integers(0, 999))), st.integers(1, 3000))
def test_limit_is_respected_and_makes_progress(waiting: dict[int, tuple[int, int]], most: int) -> None:
    start = {partition: begin for partition, (begin, _) in waiting.items()}
    end = {partition: begin + rows for partition, (begin, rows) in waiting.items()}
    until = limited(start, end, most)
    taken = sum(until[partition] - start[partition] for partition in start)
    assert taken == min(most, sum(rows for _, rows in waiting.values()))
    assert all(start[each] <= until[each] <= end[each] for each in start)


def test_limit_is_shared_between_partitions() -> None:
    assert limited({0: 10, 1: 10}, {0: 1010, 1: 110}, 110) == {0: 110, 1: 20}


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 999), st.integers(0, 999)), max_size=5), st.integers(1, 400)
)
def test_pieces_cover_each_offset_once_within_the_size_limit(ranges: list[tuple[int, int, int]], rows: int) -> None:
    given_ = [OffsetRange(partition, start, start + length) for partition, start, length in ranges]
    pieces = split(given_, rows)
    assert sum(each.end - each.start for each in pieces) == sum(each.end - each.start for each in given_)
    assert all(0 < each.end - each.start <= rows for each in pieces)
    covered = sorted((each.partition, offset) for each in pieces for offset in range(each.start, each.end))
    assert covered == sorted((each.partition, offset) for each in given_ for offset in range(each.start, each.end))


def test_split_makes_the_requested_number_of_tasks() -> None:
    assert len(split([OffsetRange(0, 0, 100), OffsetRange(1, 0, 100)], 1000, min_tasks=7)) >= 7
    assert split([OffsetRange(0, 0, 3)], 1000, min_tasks=7) == [OffsetRange(0, n, n + 1) for n in range(3)]


@given(offsets)
def test_offsets_round_trip_through_json(value: dict[int, int]) -> None:
    assert from_json(to_json(value)) == value


def test_requested_positions_resolve_to_offsets() -> None:
    kept = {0: Available(10, 20), 1: Available(0, 5)}
    assert resolve(LATEST, kept, "x", EARLIEST) == {0: 20, 1: 5}
    assert resolve({1: LATEST}, kept, "x", EARLIEST) == {0: 10, 1: 5}
    assert resolve({0: 13}, kept, "x", LATEST) == {0: 13, 1: 5}
    with pytest.raises(ConfigError, match="no partition 7; it has 0, 1"):
        resolve({7: 1}, kept, "x", EARLIEST)


def test_expired_offsets_raise_or_are_left_out() -> None:
    assert checked(OffsetRange(0, 10, 20), Available(10, 20), "j", fail=True) == (OffsetRange(0, 10, 20), [])
    with pytest.raises(NotFound, match="offset 3 of partition 0 has expired, the earliest in j is 10"):
        checked(OffsetRange(0, 3, 20), Available(10, 20), "j", fail=True)
    found, gone = checked(OffsetRange(0, 3, 25), Available(10, 20), "j", fail=False)
    assert found == OffsetRange(0, 10, 20)
    assert [each[:3] for each in gone] == [(0, 3, 10), (0, 20, 25)]
    assert "offset 24 of partition 0 is not in j, which ends before 20" in str(gone[1])
    assert "skipped 5 offsets of partition 0, 20 to 24" in str(gone[1])


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01T00:00:01", 1_000_000),
        ("1970-01-01 01:00:00.000001+01:00", 1),
        ("1500", 1_500_000),
        ("-1", -1000),
    ],
)
def test_times(text: str, micros: int) -> None:
    assert parse_time(text) == micros


@pytest.mark.parametrize("text", ["1795713922049132954", "-62135596800001"])
def test_a_time_that_no_calendar_has_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"startingTimestamp: .* not in the years 1 to 9999"):
        parse_time(text, "startingTimestamp")


def test_own_recorder_keeps_its_journal_under_the_checkpoint() -> None:
    options = ReadOptions.of(
        {"LISTEN": "tcp://h:1", "protocol": "Sub", "prefix": "a.", "checkpointLocation": "/c/"}, streaming=True
    )
    assert options.path == "/c/nng-journal"
    assert options.listening == RecorderOptions("sub", "tcp://h:1", None, "sub", "a.")
    assert options.starting == EARLIEST


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({}, "path: name the journal"),
        ({"listen": "tcp://h:1", "protocol": "pull"}, "or checkpointLocation"),
        ({"path": "j", "listen": "tcp://h:1"}, "protocol: listen requires one of sub, pull"),
        ({"path": "j", "listen": "tcp://h:1", "protocol": "push"}, "protocol: listen requires one of sub, pull"),
        ({"path": "j", "protocol": "pull"}, "protocol: is for the query's own recorder"),
        ({"path": "j", "dial": "tcp://h:1", "protocol": "pull", "prefix": "a"}, "prefix: is for sub only"),
        ({"path": "j", "endingOffsets": "latest"}, "endingOffsets: is for batch reads only"),
        ({"path": "j", "startingOffsets": "{}"}, "is not of the form"),
        ({"path": "j", "startingOffsets": '{"0": -3}'}, "not a partition and an offset"),
        ({"path": "j", "startingOffsets": '{"0": 1}', "startingTimestamp": "0"}, "conflicts with startingOffsets"),
        ({"path": "j", "maxOffsetsPerTrigger": "0"}, "'0' is not an integer above 0"),
        ({"path": "j", "failOnDataLoss": "no"}, "'no' is neither true nor false"),
        ({"path": "j", "zzz": "1"}, "zzz: unknown option; known are path,"),
    ],
)
def test_invalid_read_options_are_rejected(given_: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ReadOptions.of(given_, streaming=True)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"protocol": "push"}, "dial: "),
        ({"dial": "tcp://h:1"}, "protocol: push, pub, or req"),
        ({"dial": "tcp://h:1", "protocol": "pull"}, "'pull' is not one of push, pub, req"),
        ({"listen": "tcp://h:1", "protocol": "pub"}, "of which only one could listen"),
        ({"dial": "tcp://h:1", "protocol": "pub", "topic": "x"}, "topic: is for req only"),
        ({"dial": "tcp://h:1", "protocol": "req", "withIds": "true"}, "withIds: is for push and pub"),
        ({"dial": "tcp://h:1", "protocol": "req", "timeout": "soon"}, "'soon' is not a number of seconds"),
        ({"dial": "tcp://h:1", "protocol": "req", "timeuot": "1"}, "did you mean timeout?"),
    ],
)
def test_invalid_write_options_are_rejected(given_: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        WriteOptions.of(given_)
    assert words in str(caught.value)


@given(
    st.binary(min_size=16, max_size=16), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
)
def test_message_id_round_trips(query: bytes, batch: int, partition: int, number: int) -> None:
    origin = MessageId(query, batch, partition, number)
    assert len(origin.pack()) == LENGTH
    assert split_id(origin.pack() + b"rest") == (origin, b"rest")


def test_query_key_accepts_a_uuid_or_a_name() -> None:
    assert query_key("2ba4e617-2818-4939-a020-45d2c275d699").hex() == "2ba4e61728184939a02045d2c275d699"
    assert query_key("mine") != query_key("yours")
    assert len(query_key("mine")) == 16


def test_lost_ranges_cause_no_task_and_no_micro_batch() -> None:
    kept = Available(0, (1 << 32) + 200, ((100, 100 + (1 << 32)), (3, 5)))
    whole = OffsetRange(0, 0, kept.end)
    assert without_lost(whole, kept) == [
        OffsetRange(0, 0, 3),
        OffsetRange(0, 5, 100),
        OffsetRange(0, (1 << 32) + 100, kept.end),
    ]
    assert without_lost(OffsetRange(0, 50, 60), kept) == [OffsetRange(0, 50, 60)]
    assert without_lost(OffsetRange(0, 200, 300), kept) == []
    assert [over_lost(each, kept) for each in (2, 3, 4, 5)] == [2, 5, 5, 5]
    assert over_lost(100, kept) == (1 << 32) + 100
