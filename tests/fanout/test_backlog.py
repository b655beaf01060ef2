"""Unread messages of a subscriber: capped in number, bytes and age, and reported."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.errors import ConfigError
from nngkit.fanout.numbered.backlog import OVERHEAD, Backlog, CaughtUp, HighWater, Lagging
from nngkit.fanout.numbered.keeping import Keep, LastMessages
from nngkit.fanout.numbered.lag import Gap, Published, Restarted

ME, OTHER = b"publish1", b"publish2"
NO_WARNING = HighWater(messages=5, warn=None)


def message(number: int, publisher: bytes = ME, size: int = 10) -> Published:
    return Published(bytes(size), publisher, 1, number, 0)


def read(backlog: Backlog, now: float = 0.0) -> list[object]:
    found = []
    while (event := backlog.take(now)) is not None:
        found.append(event)
    return found


def test_over_the_mark_the_oldest_are_reported_instead() -> None:
    backlog = Backlog(NO_WARNING, "report")
    assert not backlog.put([message(number) for number in range(1, 9)], 0.0)
    assert len(backlog) == 5
    assert read(backlog) == [Gap(ME, 1, 1, 3, 3, "slow"), *(message(number) for number in range(4, 9))]
    assert backlog.dropped == 3


def test_reports_of_dropped_messages_are_merged_by_publisher_and_reason() -> None:
    backlog = Backlog(NO_WARNING, "report")
    lost = Gap(ME, 1, 2, 3, 2)
    restarted = Restarted(ME, 2, 1, 9)
    backlog.put([message(1), lost, message(4), message(1, OTHER), message(6), restarted], 0.0)
    backlog.put([message(number, OTHER) for number in range(2, 7)], 0.0)
    assert read(backlog) == [
        Gap(ME, 1, 1, 6, 3, "slow"),
        lost,
        Gap(OTHER, 1, 1, 1, 1, "slow"),
        restarted,
        *(message(number, OTHER) for number in range(2, 7)),
    ]


@pytest.mark.parametrize("policy", ["raise", "resync"])
def test_other_policies_give_the_backlog_up(policy: str) -> None:
    backlog = Backlog(NO_WARNING, policy)  # type: ignore[arg-type]
    assert not backlog.put([message(number) for number in range(5)], 0.0)
    assert backlog.put([message(5)], 0.0)
    assert backlog.clear() == 6
    assert backlog.dropped == 6
    assert read(backlog) == []
    assert not backlog.put([message(number) for number in range(100)], 0.0, forced=True)


def test_bytes_and_age_are_marks_too() -> None:
    backlog = Backlog(HighWater(messages=None, bytes=2 * OVERHEAD + 100, warn=None), "raise")
    assert not backlog.put([message(1), message(2)], 0.0)
    assert backlog.put([message(3, size=100)], 0.0)
    backlog = Backlog(HighWater(age=1.0, warn=None), "raise")
    assert not backlog.put([message(1)], 0.0)
    assert not backlog.put([message(2)], 1.0)
    assert backlog.put([message(3)], 1.1)


def test_a_program_is_told_that_it_falls_behind_and_that_it_has_caught_up() -> None:
    backlog = Backlog(HighWater(warn=0.5), "report")
    backlog.put([message(1), message(2)], 0.0)
    assert backlog.take(0.4) == message(1)
    assert backlog.take(0.6) == Lagging(1, 10 + OVERHEAD, 0.6)
    assert backlog.take(0.7) == message(2)
    assert backlog.take(0.8) == CaughtUp(0.8)
    assert backlog.take(0.8) is None


def test_lagging_is_told_again_when_it_has_doubled() -> None:
    backlog = Backlog(HighWater(warn=0.5), "report")
    backlog.put([message(number) for number in range(10)], 0.0)
    told = [type(backlog.take(now)) for now in (0.5, 0.6, 0.9, 1.0, 1.5, 2.0)]
    assert told == [Lagging, Published, Published, Lagging, Published, Lagging]


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=30))
def test_each_message_is_read_or_reported(steps: list[tuple[int, int]]) -> None:
    backlog = Backlog(NO_WARNING, "report")
    number = count = 0
    for puts, takes in steps:
        backlog.put([message(number + index + 1) for index in range(puts)], 0.0)
        number += puts
        for _ in range(takes):
            event = backlog.take(0.0)
            count += event.count if isinstance(event, Gap) else isinstance(event, Published)
    for event in read(backlog):
        count += event.count if isinstance(event, Gap) else 1
    assert count == number
    assert backlog.lag(0.0) == Lagging(0, 0, 0.0)


@pytest.mark.parametrize("wrong", [{"messages": 0}, {"bytes": -1}, {"age": 0.0}, {"warn": -1.0}, {"messages": True}])
def test_an_unusable_mark_is_named(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError) as told:
        HighWater(**wrong)
    assert told.value.what == next(iter(wrong))


def test_the_last_message_of_each_topic_is_kept_within_the_caps() -> None:
    last = LastMessages(Keep(topics=2, bytes=100))
    for number, topic in enumerate([b"a", b"b", b"a", b"c"], 1):
        last.note(topic, number, 0, topic * 10)
    assert last.rows() == [(3, 0, b"a" * 10), (4, 0, b"c" * 10)]
    last.note(b"a", 5, 0, b"a" * 95)
    assert last.rows() == [(5, 0, b"a" * 95)]
    last.note(b"d", 6, 0, b"d" * 101)
    assert last.rows() == []
    assert last.forgotten == 4
