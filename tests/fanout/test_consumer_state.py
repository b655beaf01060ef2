"""The pure state of a consumer, its messages and its file, driven at random and by hostile bytes."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import to_builtins
from msgspec.structs import replace as msgspec_replace

from nngkit import envelope
from nngkit.errors import BadMessage, ConfigError, Damaged, NngkitError, TooLarge
from nngkit.fanout.durable.file import StateFile
from nngkit.fanout.durable.messages import (
    MOST_RECORDS,
    REQUESTS,
    Columns,
    ConsumerInfo,
    Done,
    Fetched,
    FetchRequest,
    OpenRequest,
    Options,
    SettleRequest,
    encode_reply,
    pack_runs,
    parse_reply,
    parse_request,
)
from nngkit.fanout.durable.partition import ANY, MOST_PENDING, Limits, Partition, offsets_in, runs_of

SESSIONS = st.sampled_from("st")
ACK_WAIT = 10.0
MOST = 3
PENDING = 20


class Deliveries(RuleBasedStateMachine):
    """A model that knows each record's fate, beside the state."""

    @initialize()
    def begin(self) -> None:
        self.state = Partition(Limits(ACK_WAIT, MOST, PENDING), 0)
        self.now = 0.0
        self.settled: set[int] = set()
        self.flying: dict[int, tuple[int, float]] = {}  # offset -> (deliveries, due)
        self.waiting: dict[int, int] = {}  # offset -> deliveries so far
        self.holder: dict[int, str | None] = {}  # the session that has it; None while it waits
        self.had: dict[int, set[str]] = {}  # all sessions that had it, ANY for unknown ones
        self.deliver(10)  # Hypothesis leaves out some rules in most of its runs

    def hand(self, offsets: Iterable[int], session: str) -> None:
        for offset in offsets:
            self.holder[offset] = session
            self.had.setdefault(offset, set()).add(session)

    def may_settle(self, offset: int, session: str) -> bool:
        return not self.had[offset].isdisjoint({session, ANY})

    def may_postpone(self, offset: int, session: str) -> bool:
        return offset in self.flying and self.holder[offset] in (session, ANY)

    @rule(count=st.integers(1, 10), session=SESSIONS)
    def deliver(self, count: int, session: str = "s") -> None:
        count = min(count, self.state.room)
        first = self.state.cursor
        offsets = [each for each in range(first, first + count) if each % 5]  # the others are not selected
        self.state.deliver(offsets, behind=first + count, now=self.now, session=session)
        self.hand(offsets, session)
        self.flying |= dict.fromkeys(offsets, (1, self.now + ACK_WAIT))

    @rule(most=st.integers(1, 10), session=SESSIONS)
    def again(self, most: int, session: str) -> None:
        before = self.state.redelivered
        found = self.state.again(most, now=self.now, session=session)
        self.hand([offset for offset, _ in found], session)
        assert self.state.redelivered == before + len(found)
        assert [offset for offset, _ in found] == sorted(self.waiting)[:most]
        for offset, count in found:
            assert count == self.waiting.pop(offset) + 1
            self.flying[offset] = (count, self.now + ACK_WAIT)

    @rule(first=st.integers(0, 20), count=st.integers(1, 5), session=SESSIONS)
    def ack(self, first: int, count: int, session: str) -> None:
        runs = [(first, count)]
        known = {offset for offset in offsets_in(runs) if offset in self.flying or offset in self.waiting}
        foreign = [offset for offset in sorted(known) if not self.may_settle(offset, session)]
        known -= set(foreign)
        assert self.state.settle(runs, session=session) == (len(known), foreign)
        for offset in known:
            self.flying.pop(offset, None)
            self.waiting.pop(offset, None)
        self.settled |= known

    @rule(first=st.integers(0, 20), delay=st.sampled_from([0.0, 3.0]), session=SESSIONS)
    def nak(self, first: int, delay: float, session: str) -> None:
        given_up, _ = self.state.retry([(first, 3)], now=self.now, delay=delay, session=session)
        for offset in range(first, first + 3):
            if self.may_postpone(offset, session):
                count, _ = self.flying.pop(offset)
                self.holder[offset] = None
                if count >= MOST:
                    assert offset in given_up
                    self.settled.add(offset)
                elif delay:
                    self.flying[offset] = (count, self.now + delay)
                else:
                    self.waiting[offset] = count

    @rule(first=st.integers(0, 20), count=st.integers(1, 5), session=SESSIONS)
    def extend(self, first: int, count: int, session: str) -> None:
        expected: dict[int, list[int]] = {}
        for offset in range(first, first + count):
            if self.may_postpone(offset, session):
                number, _ = self.flying[offset]
                self.flying[offset] = (number, self.now + ACK_WAIT)
                expected.setdefault(number, []).append(offset)
        assert self.state.extend([(first, count)], now=self.now, session=session) == expected

    @rule(first=st.integers(0, 20), session=SESSIONS)
    def release(self, first: int, session: str) -> None:
        offsets = [offset for offset in range(first, first + 3) if offset in self.state.open]
        for count, found in self.state.release(session, offsets).items():
            for offset in found:
                assert self.holder[offset] == session
                self.holder[offset] = None
                assert self.flying.pop(offset)[0] == count + 1
                self.waiting[offset] = count

    @rule(seconds=st.floats(0.1, 15.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        given_up = set(self.state.expire(self.now))
        for offset, (count, due) in list(self.flying.items()):
            if due <= self.now:
                del self.flying[offset]
                self.holder[offset] = None
                if count >= MOST:
                    given_up.remove(offset)
                    self.settled.add(offset)
                else:
                    self.waiting[offset] = count
        assert not given_up

    @rule()
    def restart(self) -> None:
        kept = self.state.in_flight()
        state = Partition(self.state.limits, self.state.cursor)
        for count, due, runs in kept:
            state.deliver(
                list(offsets_in(runs)),
                behind=state.cursor,
                now=self.now,
                session=ANY,
                count=count,
                due=self.now if due is None else due,
            )
            self.hand(offsets_in(runs), ANY)
        self.had = {offset: {ANY} for offset in self.state.open}
        self.state = state
        self.wait(0.0)

    @invariant()
    def each_record_has_one_fate(self) -> None:
        if not hasattr(self, "state"):
            return
        assert set(self.state.open) == set(self.flying) | set(self.waiting)
        assert not self.settled & set(self.state.open)
        assert self.state._former.keys() <= self.state.open.keys()
        assert len(self.state.open) <= PENDING
        selected = {each for each in range(self.state.cursor) if each % 5}
        assert selected == self.settled | set(self.state.open)


TestDeliveries = Deliveries.TestCase
TestDeliveries.settings = settings(max_examples=60, stateful_step_count=30)


def test_an_ack_after_a_power_loss_is_kept_ahead_of_the_cursor() -> None:
    state = Partition(Limits(), 5)
    assert state.settle([(3, 10)], session="s", end=8) == (3, [])
    assert list(state.unsettled([5, 6, 7, 8])) == [8]
    state.deliver([8], behind=9, now=0.0, session="s")
    assert (state.floor, state.ahead) == (8, set())


def test_settled_deliveries_take_no_memory_and_leave_the_deadlines_of_others() -> None:
    state = Partition(Limits(ack_wait=5.0), 0)
    state.deliver([0], behind=1, now=0.0, session="s")
    state.deliver([1], behind=2, now=1.0, session="s")
    for offset in range(2, 2000):
        state.deliver([offset], behind=offset + 1, now=2.0, session="s")
        state.settle([(offset, 1)])
        assert len(state._flights) <= 70  # twice the three that were open, and 64
    assert (state.due(), state.expire(5.0), state.again(9, now=5.0, session="s")) == (5.0, [], [(0, 2)])
    assert state.due() == 6.0


def test_no_more_is_settled_ahead_than_may_be_in_flight() -> None:
    state = Partition(Limits(max_ack_pending=3), 5)
    assert state.settle([(5, 10)], session="s", end=20) == (3, [])
    assert state.ahead == {5, 6, 7}
    assert state.settle([(5, 10)], session="s", end=20) == (0, [])


def test_a_fetch_is_capped_and_a_settlement_over_the_cap_is_refused() -> None:
    fetch = FetchRequest("c", "s", 1, MOST_RECORDS + 1, 3, 4, 5.0)
    assert parse_request(REQUESTS.encode(fetch)) == msgspec_replace(fetch, records=MOST_RECORDS)
    whole = SettleRequest("c", "s", "ack", 1, pack_runs([(0, MOST_PENDING - 1), (1 << 30, 1)]))
    assert parse_request(REQUESTS.encode(whole)) == whole
    with pytest.raises(BadMessage, match="records at once"):
        parse_request(REQUESTS.encode(msgspec_replace(whole, flat=pack_runs([(0, MOST_PENDING), (1 << 30, 1)]))))


def test_offsets_before_the_cursor_are_not_behind() -> None:
    info = ConsumerInfo("c", 0, 7, 7, 10, 0, 0, 0, 0, 0)
    assert (info.behind, msgspec_replace(info, end=7).behind, msgspec_replace(info, end=5).behind) == (3, 0, 0)


@given(st.sets(st.integers(0, 200)))
def test_runs_are_the_offsets(offsets: set[int]) -> None:
    runs = runs_of(sorted(offsets))
    assert list(offsets_in(runs)) == sorted(offsets)
    assert len(runs) == sum(offset - 1 not in offsets for offset in offsets)


@given(st.binary(max_size=60))
def test_hostile_requests_raise_the_projects_errors(body: bytes) -> None:
    with pytest.raises(NngkitError):
        parse_request(body)


@pytest.mark.parametrize(
    "fields",
    [
        [1, "settle", "c", "s", "ack", 0, b"123", 0.0],
        [1, "settle", "c", "s", "ack", 0, (1).to_bytes(8, "big") + (1 << 40).to_bytes(8, "big"), 0.0],
        [1, "settle", "c", "s", "burn", 0, b"", 0.0],
        [1, "fetch", "c", "s", 0, 0, 1, 1, 1.0],
        [1, "fetch", "c", "s", 0, 1, 1, 1, 1e9],
        [1, "delete", 5],
        [1, "open", "c", "s" * 33, None],
        [1, "paint", "c"],
        [2, "info", ""],
    ],
)
def test_wrong_fields_are_refused(fields: list[Any]) -> None:
    with pytest.raises(BadMessage):
        parse_request(envelope.encode(fields))


@pytest.mark.parametrize("name", ["../c", "a/b", "", "-c"])
def test_a_wrong_name_is_a_config_error(name: str) -> None:
    with pytest.raises(ConfigError, match="letters, digits"):
        parse_request(envelope.encode([1, "delete", name]))


@pytest.mark.parametrize(
    "limits", [{"ack_wait": 0.0}, {"max_deliver": 0}, {"max_ack_pending": 0}, {"max_ack_pending": 1 << 40}]
)
def test_limits_are_checked(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Limits(**limits)


def test_requests_survive_the_wire() -> None:
    for request in (
        OpenRequest("c", "s", Options("offset", 7, ("a", "b"), 1.0, 2, 3)),
        OpenRequest("c", "s"),
        FetchRequest("c", "s", 1, 2, 3, 4, 5.0),
        SettleRequest("c", "s", "nak", 1, pack_runs([(0, 5), (9, 1)]), 0.5),
    ):
        assert parse_request(REQUESTS.encode(request)) == request


def columns() -> Columns:
    return Columns(
        0,
        array("q", [3, 9]),
        array("q", [1, 2]),
        [1, 2],
        ["a", "b"],
        array("i", [1, 0]),
        array("i", [1, 2]),
        b"xyz",
        array("i", [-1, 1]),
        b"k",
        [[], [["h", b"v"]]],
    )


def test_columns_survive_the_wire() -> None:
    (batch,) = parse_reply(encode_reply(Fetched(7, (columns().batch(),))), Fetched).batches
    read = Columns.of(batch)
    assert (read.values(), read.keys()) == ([b"x", b"yz"], [None, b"k"])
    assert (list(read.offsets), read.headers) == ([3, 9], [[], [("h", b"v")]])


whole = st.integers(-(2**64), 2**64 - 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic_of": array("i", [1, -1])},
        {"topic_of": array("i", [1, 2])},
        {"topic_of": array("i", [1])},
        {"sizes": array("i", [-1, 4])},
        {"sizes": array("i", [1, 3])},
        {"key_sizes": array("i", [-1, 2])},
        {"times": array("q", [1])},
    ],
)
def test_columns_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    assert Columns.of(columns().batch()).offsets == columns().offsets
    with pytest.raises(BadMessage):
        Columns.of(replace(columns(), **wrong).batch())


@given(st.integers(0, 10), st.one_of(st.none(), st.binary(max_size=20), whole, st.just([]), st.just([1])))
def test_hostile_columns_are_refused_or_agree(place: int, value: object) -> None:
    fields = to_builtins(columns().batch(), builtin_types=(bytes,))
    fields[place] = value
    try:
        (batch,) = parse_reply(envelope.encode([1, 7, [fields]]), Fetched).batches
        read = Columns.of(batch)
    except BadMessage:
        return
    assert len(read.values()) == len(read.keys()) == len(read.offsets) > 0


@contextmanager
def opened(folder: Path, entries: list[list[Any]]) -> Iterator[StateFile]:
    file = StateFile(folder, "c", lambda: entries)
    try:
        yield file
    finally:
        file.close()


def test_a_torn_end_is_cut_off_and_damage_before_it_is_reported(tmp_path: Path) -> None:
    with opened(tmp_path, [["options", {}]]) as file:
        file.replace()
        file.append(["settle", 0, b"1"])
        file.append(["settle", 0, b"2"])
        file.sync()
        path = file.path
    whole = path.read_bytes()
    for size in range(len(whole) - 10, len(whole)):
        path.write_bytes(whole[:size])
        with opened(tmp_path, []) as file:
            assert file.entries == [["options", {}], ["settle", 0, b"1"]]
    path.write_bytes(whole[:20] + b"!" + whole[21:])
    with pytest.raises(Damaged, match="checksum mismatch"):
        StateFile(tmp_path, "c", list)
    assert path.read_bytes() == whole[:20] + b"!" + whole[21:]


def test_a_failed_write_is_repaired_by_a_new_file(tmp_path: Path) -> None:
    with opened(tmp_path, [["options", {}]]) as file:
        file.replace()
        os.close(file._file)
        file._file = os.open(file.path, os.O_RDONLY)  # writing to it fails
        file.append(["settle", 0, b"1"])
        assert file.is_over
        file.replace()
        file.append(["settle", 0, b"2"])
        file.sync()
    with opened(tmp_path, []) as file:
        assert file.entries == [["options", {}], ["settle", 0, b"2"]]


def test_a_reply_over_the_limit_is_named() -> None:
    with pytest.raises(TooLarge, match="offset 3"):
        parse_reply(envelope.encode([0, "large", "offset 3 is too large"]), Done)
