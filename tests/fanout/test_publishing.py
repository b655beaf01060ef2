"""Publisher and Subscriber over sockets: gaps, slow subscribers, late joiners, restarts, what a publisher sees."""

import math
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from nngkit.errors import ConfigError, NotFound, SlowSubscriber, TooLarge
from nngkit.fanout import (
    Gap,
    HighWater,
    Keep,
    Published,
    Publisher,
    Restarted,
    Subscriber,
    Synchronized,
)
from nngkit.fanout.numbered.lag import HEARTBEAT, MOST_PUBLISHERS, pack_trailer
from nngkit.fanout.numbered.messages import HEARTBEATS, REPLIES, REQUESTS, Position, PublisherHeartbeat, RefusedQuery
from nngkit.headers import MOST_BYTES
from nngkit.protocols import Pub, Req, Sub
from nngkit.testing import aeventually
from tests.driving import limits
from tests.fanout.joining import WAIT, joined

ANY = "tcp://127.0.0.1:0"


async def read(subscriber: Subscriber, until: Callable[[Any], bool]) -> list[Any]:
    """Return the events up to the one that `until` accepts."""
    found = []
    with trio.fail_after(WAIT):
        async for event in subscriber:
            found.append(event)
            if until(event):
                return found
    raise AssertionError("unreachable")


def numbered(number: int) -> Callable[[Any], bool]:
    return lambda event: isinstance(event, Published) and event.number >= number


async def test_messages_arrive_with_number_and_time_and_only_the_wanted_topics() -> None:
    async with Publisher(ANY) as publisher, Subscriber(publisher.address, "weather.") as subscriber:
        await joined(subscriber, publisher)
        publisher.publish("weather.oslo", b" 3")
        publisher.publish("news", b" none")
        assert publisher.publish(b"weather.rome", b" 21") == 3
        events = await read(subscriber, numbered(3))
        assert [(event.data, event.number) for event in events] == [(b"weather.oslo 3", 1), (b"weather.rome 21", 3)]
        assert events[0].publisher == publisher.id
        assert events[0].epoch <= events[0].time
        assert subscriber.stats.received == 3
        assert subscriber.stats.missed == 0


async def test_headers_travel_with_a_message_and_are_capped() -> None:
    headers: dict[str, str | bytes] = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-01", "key": b"\0"}
    most = {"a": "x" * (MOST_BYTES - 1)}
    async with (
        Publisher(ANY, plain=ANY) as publisher,
        Subscriber(publisher.address, recv_max_size=1000) as subscriber,
        Sub(dial=publisher.plain_address, topics="") as plain,
    ):
        await joined(subscriber, publisher)
        await plain.await_for_peers(1, WAIT)
        publisher.publish("a", bytes(999), headers=headers)
        publisher.publish_many([("b", b"1"), ("c", b"2")], headers=most)
        publisher.publish("d", b"3")
        for wrong, error in (({"a": 1}, ConfigError), ({"ab": "x" * MOST_BYTES}, TooLarge)):
            with pytest.raises(error, match="headers"):
                publisher.publish("e", b"", headers=wrong)  # type: ignore[arg-type]
        events = await read(subscriber, numbered(4))
        assert [(each.topic, each.headers) for each in events] == [
            (b"a", headers),
            (b"b", most),
            (b"c", most),
            (b"d", None),
        ]
        assert events[1].body == b"1"
        assert await plain.arecv() == b"a" + bytes(999)


async def test_many_events_are_received_at_once() -> None:
    async with Publisher(ANY) as publisher, Subscriber(publisher.address) as subscriber:
        await joined(subscriber, publisher)
        publisher.publish_many([("a", b"")] * 100)
        await aeventually(lambda: subscriber.stats.unread == 100)
        assert [len(await subscriber.receive_many(70)) for _ in range(2)] == [70, 30]


async def test_what_a_full_queue_drops_is_reported_exactly() -> None:
    async with (
        Publisher(ANY, heartbeat=0.05, send_buffer=16) as publisher,
        Subscriber(publisher.address) as subscriber,
    ):
        await joined(subscriber, publisher)
        publisher.publish_many([("a", bytes(100_000))] * 3_000)  # in one step: the connection cannot take all
        events = await read(subscriber, numbered(3_000))
        got = sum(isinstance(event, Published) for event in events)
        missing = sum(event.count for event in events if isinstance(event, Gap))
        assert missing > 0
        assert got + missing == 3_000
        assert missing == publisher.stats.dropped


async def test_a_missing_tail_shows_with_the_next_heartbeat() -> None:
    async with (
        Publisher(ANY, heartbeat=0.05, send_buffer=1) as publisher,
        Subscriber(publisher.address) as subscriber,
    ):
        await joined(subscriber, publisher)
        publisher.publish_many([("a", bytes(500_000))] * 100)
        total = 0
        with trio.fail_after(WAIT):
            while total < 100:
                event = await subscriber.receive()
                total += event.count if isinstance(event, Gap) else isinstance(event, Published)
        assert total == 100


async def test_a_slow_program_is_told_where_messages_are_missing() -> None:
    mark = HighWater(messages=10, warn=None)
    async with Publisher(ANY) as publisher, Subscriber(publisher.address, high_water=mark) as subscriber:
        await joined(subscriber, publisher)
        publisher.publish_many([("a", b"")] * 100)
        await aeventually(lambda: subscriber.stats.dropped == 90)
        events = await read(subscriber, numbered(100))
        assert events[0] == Gap(publisher.id, publisher.epoch, 1, 90, 90, "slow")
        assert [event.number for event in events[1:]] == list(range(91, 101))


async def test_the_policy_raise_disconnects_a_slow_subscriber() -> None:
    mark = HighWater(messages=10)
    async with (
        Publisher(ANY) as publisher,
        Subscriber(publisher.address, policy="raise", high_water=mark) as subscriber,
    ):
        await joined(subscriber, publisher)
        publisher.publish_many([("a", b"")] * 11)
        await aeventually(lambda: subscriber.stats.dropped == 11)
        with pytest.raises(SlowSubscriber, match="11 messages are unread") as told:
            await subscriber.receive()
        assert (told.value.messages, told.value.cut) == (11, False)
        await aeventually(lambda: publisher.stats.published == 11)


async def test_the_policy_resync_continues_with_the_newest_state() -> None:
    mark = HighWater(messages=50, warn=None)
    async with (
        Publisher(ANY, keep=Keep()) as publisher,
        Subscriber(publisher.address, policy="resync", high_water=mark) as subscriber,
    ):
        await read(subscriber, lambda event: isinstance(event, Synchronized))
        publisher.publish_many([(f"key{number % 3}=", b"%d" % number) for number in range(60)])
        await aeventually(lambda: subscriber.stats.snapshots == 2)
        publisher.publish("key0=", b"new")
        events = await read(subscriber, numbered(61))
        assert events[0] == Synchronized(publisher.id, publisher.epoch, 60, 3)
        assert [event.data for event in events[1:]] == [b"key0=57", b"key1=58", b"key2=59", b"key0=new"]


async def test_a_late_joiner_gets_the_last_messages_and_then_all_later_ones() -> None:
    async with Publisher(ANY, keep=Keep()) as publisher:
        for number in range(100):
            publisher.publish(f"key{number % 10}=", b"%d" % number)
        async with Subscriber(publisher.address, ["key1", "key2"], last=True) as subscriber:
            first = await subscriber.receive()
            assert first == Synchronized(publisher.id, publisher.epoch, 100, 2)
            publisher.publish("key1=", b"live")
            events = await read(subscriber, numbered(101))
            assert [event.data for event in events] == [b"key1=91", b"key2=92", b"key1=live"]


@pytest.mark.parametrize("pages", [1, 5])
async def test_the_join_has_neither_gap_nor_duplicate(pages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The publisher counts up without a pause; each snapshot must meet the live messages."""
    if pages > 1:
        monkeypatch.setattr("nngkit.fanout.numbered.publisher.PAGE_LIMIT", 100)
    async with Publisher(ANY, keep=Keep(), send_buffer=8192) as publisher, trio.open_nursery() as nursery:
        publisher.publish("count=", b"0")

        async def count() -> None:
            while True:
                publisher.publish_many([(f"key{number % 7}=", b"") for number in range(20)])
                await trio.sleep(0.0004)

        nursery.start_soon(count)
        for _ in range(10):
            async with Subscriber(publisher.address, last=True) as subscriber:
                since = await subscriber.receive()
                assert isinstance(since, Synchronized)
                assert since.count == 8
                for _ in range(since.count):
                    assert (await subscriber.receive()).number <= since.number  # type: ignore[union-attr]
                for number in range(since.number + 1, since.number + 300):
                    event = await subscriber.receive()
                    assert isinstance(event, Published)
                    assert event.number == number
        nursery.cancel_scope.cancel()


async def test_a_snapshot_function_gives_the_state() -> None:
    state = {"a=": b"1"}
    async with (
        Publisher(ANY, snapshot=state.items) as publisher,
        Subscriber(publisher.address, last=True) as subscriber,
    ):
        events = await read(subscriber, lambda event: isinstance(event, Published))
        assert [event.data for event in events[1:]] == [b"a=1"]


async def test_a_snapshot_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    failing = True

    def snapshot() -> list[tuple[str, bytes]]:
        if failing:
            raise RuntimeError("not now")
        return [("a", b"1")]

    async with (
        Publisher(ANY, snapshot=snapshot) as publisher,
        Subscriber(publisher.address, last=True) as subscriber,
    ):
        await aeventually(lambda: "the snapshot failed" in caplog.text)
        failing = False
        assert isinstance(await subscriber.receive(), Synchronized)


async def test_without_kept_messages_a_subscriber_begins_with_live_ones() -> None:
    async with Publisher(ANY) as publisher, Subscriber(publisher.address, last=True) as subscriber:
        await joined(subscriber, publisher)
        publisher.publish("a", b"1")
        assert [event.number for event in await read(subscriber, numbered(1))] == [1]


async def test_a_publisher_that_restarts_is_known_by_its_id(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/rates"
    async with Subscriber(address) as subscriber:
        async with Publisher(address, id="rates") as publisher:
            await joined(subscriber, publisher)
            publisher.publish_many([("a", b"")] * 3)
            await read(subscriber, numbered(3))
            before = publisher.epoch
        async with Publisher(address, id="rates") as publisher:
            await publisher.wait_for_peers(1, WAIT)
            publisher.publish("a", b" new")
            events = await read(subscriber, numbered(1))
            assert events == [Restarted(publisher.id, publisher.epoch, before, 3), events[-1]]
            assert events[-1].data == b"a new"


async def test_a_publisher_sees_its_subscribers_and_may_cut_one() -> None:
    mark = HighWater(warn=None)
    async with (
        Publisher(ANY, heartbeat=0.02) as publisher,
        Subscriber(publisher.address, id="slow", high_water=mark) as slow,
        Subscriber(publisher.address, id="quick") as quick,
    ):
        await joined(slow, publisher)
        await joined(quick, publisher)
        publisher.publish_many([("a", b"")] * 50)
        await read(quick, numbered(50))
        await aeventually(lambda: publisher.subscribers()[0].unread == 50)
        first, second = publisher.subscribers()
        assert (first.id, first.behind, first.missed) == ("slow", 0, 0)
        assert first.since > 0
        assert second.id == "quick"
        await aeventually(lambda: publisher.subscribers()[1].since == 0)
        with pytest.raises(NotFound):
            publisher.cut("unknown")
        publisher.cut("slow", "50 behind")
        with pytest.raises(SlowSubscriber, match="cut it off: 50 behind") as told:
            await read(slow, numbered(math.inf))  # type: ignore[arg-type]
        assert told.value.cut


@pytest.mark.slow
async def test_a_slow_subscriber_takes_nothing_from_the_others() -> None:
    """Eight subscribers, of which one does not read: the other seven get every message of a fixed rate."""
    got: list[int] = []

    async def follow(subscriber: Subscriber) -> None:
        events = await read(subscriber, numbered(5_000))
        assert all(isinstance(event, Published) for event in events)
        got.append(len(events))

    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(Publisher(ANY, heartbeat=0.05))
        marks = [HighWater(messages=1000, warn=None)] + [HighWater(warn=None)] * 7
        stopped, *others = [
            await stack.enter_async_context(Subscriber(publisher.address, high_water=mark)) for mark in marks
        ]
        await aeventually(lambda: len(publisher.subscribers()) == 8)
        async with trio.open_nursery() as nursery:
            for subscriber in others:
                nursery.start_soon(follow, subscriber)
            for _ in range(500):
                publisher.publish_many([("a", bytes(100))] * 10)
                await trio.sleep(0.001)
        await aeventually(lambda: stopped.stats.unread == 1000)
        assert stopped.stats.dropped == 4_000
    assert got == [5_000] * 7


async def test_plain_subscribers_get_messages_as_they_are() -> None:
    async with Publisher(ANY, plain=ANY) as publisher, Sub(dial=publisher.plain_address, topics="a") as plain:
        await aeventually(lambda: publisher.stats.plain == 1)
        publisher.publish("a", b"1")
        publisher.publish("b", b"2")
        publisher.publish("a", b"3")
        assert [await plain.arecv(WAIT) for _ in range(2)] == [b"a1", b"a3"]


async def test_bad_requests_are_refused_and_counted() -> None:
    async with Publisher(ANY) as publisher, Subscriber(publisher.address) as subscriber:
        await joined(subscriber, publisher)
        with Req(dial=publisher._rep.address) as req:
            for body in (b"", b"\xff" * 100, b"\xa1\x61v\x01", REQUESTS.encode(Position("x" * 65, 1, 1, 0, 0, 0.0))):
                assert isinstance(REPLIES.decode(await req.arequest(body, timeout=WAIT), limit=1 << 16), RefusedQuery)
        assert publisher.stats.bad == 4
        publisher.publish("a", b"1")
        await read(subscriber, numbered(1))


async def test_a_publisher_that_has_gone_is_not_dialed_for_ever_and_may_return(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/news"
    with limits(fanout__numbered__subscriber={"QUIET": 0.2, "UNHEARD": 0.2}):
        async with Subscriber(address, last=True) as subscriber:
            async with Publisher(address, id="news", heartbeat=0.05) as publisher:
                await joined(subscriber, publisher)
                publisher.publish("a", b"1")
                await read(subscriber, numbered(1))
            await aeventually(lambda: subscriber._sources[publisher.id].epoch == 0)
            async with Publisher(address, id="news", heartbeat=0.05) as again:
                await joined(subscriber, again)
                number = again.publish("a", b"2")
                events = await read(subscriber, lambda event: isinstance(event, Published) and event.body == b"2")
                assert [event.last for event in events if isinstance(event, Restarted)] == [1]
            assert subscriber.stats.received == 1 + number


@pytest.mark.parametrize("last", [False, True])
async def test_a_publisher_that_lies_takes_bounded_memory(last: bool, caplog: pytest.LogCaptureFixture) -> None:
    beyond = MOST_PUBLISHERS + 50
    async with (
        Pub(listen=ANY, send_buffer=8192) as liar,
        Publisher(ANY, heartbeat=0.2) as honest,
        Subscriber([liar.address, honest.address], last=last) as subscriber,
    ):
        await joined(subscriber, honest)
        await liar.await_for_peers(1, WAIT)
        wrong = HEARTBEATS.encode(PublisherHeartbeat(1.0, "no address at all"))
        frames = [HEARTBEAT + wrong + pack_trailer(b"%8d" % n, 1, 0, 0) for n in range(100)]
        frames += [HEARTBEAT + b"\xff" + pack_trailer(b"%8d" % n, 1, 0, 0) for n in range(100, beyond)]
        frames += [b"data" + pack_trailer(b"%8d" % n, 1, 2**62, 0) for n in range(beyond)]
        frames += [b"\0" * 100, b"", b"x" + pack_trailer(honest.id, 1, 1, 1)]
        liar.send_many(frames)
        await aeventually(lambda: subscriber.stats.refused["no number"] == 2)
        assert len(subscriber._sources) <= MOST_PUBLISHERS
        assert len(subscriber.lag()) <= MOST_PUBLISHERS
        assert caplog.text.count("a heartbeat is ignored") == 1
        # The last frame claims to be another run of the honest one: if its account was kept, that is believed until two
        # heartbeats of the true run have come.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish_again_and_again, honest)
            events = await read(subscriber, lambda event: getattr(event, "data", b"") == b"a1")
            nursery.cancel_scope.cancel()
        assert events[-1].publisher == honest.id


async def publish_again_and_again(publisher: Publisher) -> None:
    while True:
        publisher.publish("a", b"1")
        await trio.sleep(0.05)


async def test_unusable_values_are_named() -> None:
    for wrong, what in (
        (lambda: Publisher((), heartbeat=1.0), "listen"),
        (lambda: Publisher(ANY, heartbeat=0.0), "heartbeat"),
        (lambda: Publisher(ANY, keep=Keep(), snapshot=list), "snapshot"),
        (lambda: Subscriber(ANY, policy="wait"), "policy"),  # type: ignore[arg-type]
        (lambda: Subscriber(ANY, ()), "topics"),
        (lambda: Subscriber(ANY, id="x" * 65), "id"),
        (lambda: Keep(topics=0), "topics"),
    ):
        with pytest.raises(ConfigError) as told:
            wrong()
        assert told.value.what == what
    async with Publisher(ANY) as publisher:
        with pytest.raises(ConfigError, match="zero byte"):
            publisher.publish(b"\0a", b"")
        assert publisher.number == 0


async def test_a_call_that_is_refused_leaves_no_last_message() -> None:
    async with Publisher(ANY, keep=Keep()) as publisher, Subscriber(publisher.address, last=True) as subscriber:
        with pytest.raises(ConfigError, match="at most 4095"):
            publisher.publish_many([("never", b"sent"), ("t" * 5000, b"")])
        assert publisher.publish("is", b"sent") == 1
        events = await read(subscriber, numbered(1))
        assert [event.data for event in events if type(event) is Published] == [b"issent"]


async def test_an_empty_message_is_sent_by_every_publisher() -> None:
    first_zero = next(str(n) for n in range(5000) if Publisher(ANY, id=str(n)).id[0] == 0)  # the first byte on the wire
    async with Publisher(ANY, id=first_zero) as publisher, Subscriber(publisher.address) as subscriber:
        await joined(subscriber, publisher)
        publisher.publish("", b"")
        (event,) = await read(subscriber, numbered(1))
        assert (event.topic, event.body) == (b"", b"")
