"""Journal, then live: each message once, in order, what is missing as exact ranges."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from nngkit.errors import ConfigError
from nngkit.fanout import Following, Missing, Publisher
from nngkit.fanout.numbered.joining import MOST_SOURCES, Join
from nngkit.journal import Recorder
from nngkit.protocols import Pub, Sub
from nngkit.testing import aeventually

NUMBER = struct.Struct(">QQ")


def number(message: bytes) -> tuple[int, int]:
    source, sequence = NUMBER.unpack_from(message)
    return source, sequence


def message(source: int, sequence: int) -> bytes:
    return NUMBER.pack(source, sequence)


def test_received_and_missing_are_what_was_sent_in_1000_runs() -> None:
    for seed in range(1000):
        joined_at_random(random.Random(seed))


def test_positions_have_a_cap_and_those_of_quiet_sources_go_first() -> None:
    join, steady, held = Join(), -1, -2
    join.recorded([(held, 1, b"a")])
    join.hold([(held, 2, b"b"), (held, 4, b"d")])
    for source in range(3 * MOST_SOURCES):
        assert join.recorded([(source, 7, b"x")]) == [b"x"]
        assert join.recorded([(steady, source, b"y")]) == [b"y"]
    assert len(join.positions) == MOST_SOURCES
    assert join.forgotten == 2 * MOST_SOURCES + 2
    assert join.recorded([(0, 3, b"z")]) == [b"z"]  # forgotten: its next message is its first
    assert join.finish() == [b"b", Missing(held, 3, 3), b"d"]
    for source in range(MOST_SOURCES, 2 * MOST_SOURCES):
        join.live([(source, 9, b"x")])
    assert held not in join.positions
    assert (len(join.positions), join.duplicates) == (MOST_SOURCES, 0)


def joined_at_random(chance: random.Random) -> None:
    join = Join(most=chance.choice([3, 30, 1000]))
    sent: list[tuple[int, int, bytes]] = []
    counts = [0, 0]
    for _ in range(chance.randrange(5, 80)):
        source = chance.randrange(2)
        sent.append((source, counts[source], message(source, counts[source])))
        counts[source] += 1
    lost = chance.choice([0.0, 0.1])
    journal = [each for each in sent if chance.random() >= lost]
    live = [each for each in sent[chance.randrange(len(sent)) :] if chance.random() >= lost]
    out: list[bytes | Missing] = []
    catching_up = True
    while journal or live:
        if live and chance.random() < 0.4:
            some, live = live[:5], live[5:]
            if catching_up:
                join.hold(some)
            else:
                found, rest = join.live(some)
                out += found
                if rest:
                    join.hold(rest)
                    catching_up = True
        elif journal and catching_up:
            some, journal = journal[:7], journal[7:]
            out += join.recorded(some)
        elif not journal and catching_up:
            out += join.finish()
            catching_up = False
        elif not live:
            break
    out += join.finish()
    for source in (0, 1):
        mine = [number(each)[1] for each in out if isinstance(each, bytes) and number(each)[0] == source]
        gaps = [each for each in out if isinstance(each, Missing) and each.source == source]
        missing = [each for gap in gaps for each in range(gap.first, gap.last + 1)]
        assert mine == sorted(set(mine))
        if mine:
            assert sorted([*mine, *missing]) == list(range(mine[0], mine[-1] + 1))


async def test_a_late_subscriber_gets_all_of_a_running_publisher(tmp_path: Path) -> None:
    half = 1500
    async with (
        Pub(listen="tcp://127.0.0.1:0", send_buffer=8192) as pub,
        Sub(dial=pub.address, topics="", recv_buffer=8192) as recorded,
        Recorder(tmp_path / "j") as recorder,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(recorder.record, recorded, "ticks")
        await pub.await_for_peers(1)
        published = Flow(lambda sequence: pub.send(message(7, sequence)), half)
        nursery.start_soon(published.run)
        await published.begun.wait()
        async with (
            Sub(dial=pub.address, topics="", recv_buffer=8192) as sub,
            Following(sub, tmp_path / "j", number, topic="ticks") as following,
        ):
            found = await live(following)
            assert len(found) > half
            assert found == [message(7, sequence) for sequence in range(len(found))]
            assert following.stats.missing == 0
        nursery.cancel_scope.cancel()


class Flow:
    """Messages without an end, 20 a millisecond at most: how soon a subscriber is live depends on the machine."""

    def __init__(self, publish: Callable[[int], object], begun: int) -> None:
        self.publish = publish
        self.begun = trio.Event()
        self._after = begun

    async def run(self) -> None:
        for number in itertools.count():
            self.publish(number)
            if number == self._after:
                self.begun.set()
            if not number % 20:
                await trio.sleep(0.001)


async def live(following: Following) -> list[bytes | Missing]:
    """Return what comes until live messages do, and the next 100 of them."""
    found: list[bytes | Missing] = []
    with trio.fail_after(30):
        while not following.stats.live:
            found.append(await anext(following))
        found += [await anext(following) for _ in range(100)]
    assert following.is_live
    return found


async def test_a_publishers_messages_need_no_function(tmp_path: Path) -> None:
    async with (
        Publisher(listen="tcp://127.0.0.1:0", heartbeat=0.05) as publisher,
        Sub(dial=publisher.address, topics="", recv_buffer=8192) as recorded,
        Recorder(tmp_path / "j") as recorder,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(recorder.record, recorded, "ticks")
        await recorded.await_for_peers(1)
        await publisher.wait_for_peers(1)
        published = Flow(lambda number: publisher.publish(b"odd." if number % 2 else b"even.", b"%d" % number), 1000)
        nursery.start_soon(published.run)
        await published.begun.wait()
        async with (
            Sub(dial=publisher.address, topics="", recv_buffer=8192) as sub,
            Following(sub, tmp_path / "j", topic="ticks") as following,
        ):
            found = await live(following)
            assert len(found) > 1000
            assert found == [b"odd.%d" % number if number % 2 else b"even.%d" % number for number in range(len(found))]
            assert following.stats.missing == 0
        nursery.cancel_scope.cancel()


async def test_a_message_in_neither_is_missing_and_a_live_gap_is_read_from_the_journal(tmp_path: Path) -> None:
    async with (
        Pub(listen="tcp://127.0.0.1:0") as pub,
        Recorder(tmp_path / "j") as recorder,
        Sub(dial=pub.address, topics="") as sub,
    ):
        await pub.await_for_peers(1)
        await recorder.store([message(1, 0), message(1, 1)], topic="t", protocol="test")
        async with Following(sub, tmp_path / "j", number, topic="t", patience=0.05) as following:
            with trio.fail_after(5):
                assert [await anext(following) for _ in range(2)] == [message(1, 0), message(1, 1)]
                pub.send(message(1, 2))
                assert await anext(following) == message(1, 2)
                await recorder.store([message(1, 3)], topic="t", protocol="test")
                pub.send(message(1, 4))
                assert [await anext(following) for _ in range(2)] == [message(1, 3), message(1, 4)]
                pub.send(message(1, 7))
                assert [await anext(following) for _ in range(2)] == [Missing(1, 5, 6), message(1, 7)]


async def test_wrong_use_is_one_clear_line(tmp_path: Path) -> None:
    async with Sub() as sub:
        with pytest.raises(ConfigError, match="since"):
            Following(sub, tmp_path, number, topic="t", since=-1)
        with pytest.raises(ConfigError, match="not found"):
            async with Following(sub, tmp_path / "none", number, topic="t"):
                pass


async def test_leaving_the_block_ends_the_waits_of_other_tasks(tmp_path: Path) -> None:
    ended = trio.Event()

    async def wait(following: Following) -> None:
        with pytest.raises(StopAsyncIteration):
            await following.receive_many()
        ended.set()

    async with Recorder(tmp_path / "j") as recorder, Sub() as sub, trio.open_nursery() as nursery:
        await recorder.store([message(1, 0)], topic="t", protocol="test")
        async with Following(sub, tmp_path / "j", number, topic="t", patience=0.0) as following:
            assert await anext(following) == message(1, 0)
            nursery.start_soon(wait, following)
            await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(5):
            await ended.wait()


@pytest.mark.parametrize(
    ("recorded", "held", "found"),
    [
        ([3], [], [3]),  # the journal begins where it begins
        ([1, 2, 4], [], [1, 2, Missing("s", 3, 3), 4]),  # a gap of one
        ([1, 2, 4], [3], [1, 2, 3, 4]),
        ([1, 2, 4], [3, 5], [1, 2, 3, 4, 5]),
        ([1, 2, 5], [3], [1, 2, 3, Missing("s", 4, 4), 5]),
        ([1, 2, 5], [4], [1, 2, Missing("s", 3, 3), 4, 5]),
        ([1, 2, 5], [3, 4], [1, 2, 3, 4, 5]),
        ([3], [2], [3]),  # a held message that is older than the journal
        ([1, 2, 4], [2, 3], [1, 2, 3, 4]),
        ([1, 2, 4], [3, 4], [1, 2, 3, 4]),
        ([1, 2, 2, 3], [], [1, 2, 3]),  # the journal read again from its last record
        ([1, 2], [2, 3], [1, 2, 3]),  # overlapping by one
        ([1, 2], [3], [1, 2, 3]),  # adjacent
        ([1, 2], [4], [1, 2, Missing("s", 3, 3), 4]),
        ([1, 2], [5], [1, 2, Missing("s", 3, 4), 5]),
    ],
)
@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_the_edges_of_recorded_and_held_messages_meet_exactly(
    recorded: list[int], held: list[int], found: list[object], chunk: int
) -> None:
    join = Join()
    join.hold([("s", at, b"%d" % at) for at in held])
    got: list[object] = []
    for first in range(0, len(recorded), chunk):
        got += join.recorded([("s", at, b"%d" % at) for at in recorded[first : first + chunk]])
    last = recorded[-1]
    assert join.caught_up() == (not held or held[0] <= last + 1)
    got += join.finish()
    assert [each if isinstance(each, Missing) else int(each) for each in got] == found  # type: ignore[call-overload]
    again = [at for at in recorded if recorded.count(at) > 1][1:]
    assert join.duplicates == len(again) + len([at for at in held if at <= last])
    assert join.positions == {"s": max(recorded + held)}


@pytest.mark.parametrize(
    ("numbers", "joined", "rest"), [([3, 4], [3, 4], []), ([4, 5], [], [4, 5]), ([3, 5], [3], [5]), ([2, 3], [3], [])]
)
def test_live_messages_stop_before_a_gap_of_one(numbers: list[int], joined: list[int], rest: list[int]) -> None:
    join = Join()
    join.recorded([("s", 1, b"1"), ("s", 2, b"2")])
    found, left = join.live([("s", at, b"%d" % at) for at in numbers])
    assert found == [b"%d" % at for at in joined]
    assert [at for _, at, _ in left] == rest


def test_the_first_live_message_of_a_source_is_joined_and_the_cap_is_exact() -> None:
    join = Join(most=2)
    assert join.live([("new", 5, b"5")]) == ([b"5"], [])
    join.hold([("new", 6, b"6"), ("new", 7, b"7")])
    assert (join.held, join.dropped) == (2, 0)
    join.hold([("new", 8, b"8")])
    assert (join.held, join.dropped) == (2, 1)
    assert not join.caught_up()
    assert join.finish() == [Missing("new", 6, 6), b"7", b"8"]


def test_a_held_message_older_than_the_journal_is_not_put_before_it() -> None:
    join = Join()
    join.hold([("s", 2, b"2")])
    assert join.recorded([("other", 1, b"1"), ("s", 3, b"3")]) == [b"1", b"3"]
    assert (join.finish(), join.duplicates) == ([], 1)


async def test_what_a_slow_program_leaves_is_kept_by_the_journal_alone(tmp_path: Path) -> None:
    async with (
        Publisher(listen="tcp://127.0.0.1:0") as publisher,
        Sub(dial=publisher.address, topics="", recv_buffer=8192) as recorded,
        Sub(dial=publisher.address, topics="", recv_buffer=8192) as sub,
        Recorder(tmp_path / "j") as recorder,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(recorder.record, recorded, "ticks")
        await publisher.wait_for_peers(2)
        async with Following(sub, tmp_path / "j", topic="ticks", held=50) as following:
            found: list[bytes | Missing] = []
            with trio.fail_after(30):
                while not following.is_live:
                    publisher.publish("t", b"0")
                    found.append(await anext(following))
                begun = publisher.number
                for number in range(1000):
                    publisher.publish("t", b"%d" % number)
                await aeventually(lambda: sum(stream.received for stream in recorder.stats.streams) > begun + 1000)
                await aeventually(lambda: following.stats.held)
                assert following.stats.held <= 50
                await recorder.flush()
                while not found or found[-1] != b"t999":
                    found.append(await anext(following))
        assert found[-1000:] == [b"t%d" % number for number in range(1000)]
        assert (len(found), following.stats.missing) == (begun + 1000, 0)
        nursery.cancel_scope.cancel()
