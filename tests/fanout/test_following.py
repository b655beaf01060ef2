"""Journal, then live: each message once, in order, what is missing as exact ranges."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from nngkit.errors import ConfigError
from nngkit.fanout import Following, Missing, Publisher
from nngkit.fanout.joining import Join
from nngkit.journal import Recorder
from nngkit.protocols import Pub, Sub

NUMBER = struct.Struct(">QQ")


def number(message: bytes) -> tuple[int, int]:
    source, sequence = NUMBER.unpack_from(message)
    return source, sequence


def message(source: int, sequence: int) -> bytes:
    return NUMBER.pack(source, sequence)


def test_received_and_missing_are_what_was_sent_in_1000_runs() -> None:
    for seed in range(1000):
        joined_at_random(random.Random(seed))


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
