"""Subscriber: topics, waits, restarts of a publisher; and the list of subscribers that a publisher keeps."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
import trio

from nngkit import aio, blocking
from nngkit.errors import ConfigError, TimedOut
from nngkit.fanout import Gap, Keep, Pattern, Published, Publisher, Restarted, Subscriber, Synchronized
from nngkit.fanout.numbered.messages import REQUESTS, Position
from nngkit.protocols import Req
from nngkit.testing import aeventually, eventually
from tests.fanout.joining import WAIT, joined

ANY = "tcp://127.0.0.1:0"
NOW = time.time_ns
WANTED: list[str | bytes | Pattern] = [Pattern("px.*.S1"), "news", b"raw", Pattern("log.>")]
SENT = [(topic, b" body") for topic in ("px.eu.S1", "px.us.S2", "news", "raw", "log.a.b", "log", "px.us.S1")]
MATCH = [(topic, b" body") for topic in (b"px.eu.S1", b"news", b"raw", b"log.a.b", b"px.us.S1")]


def clock_of(monkeypatch: pytest.MonkeyPatch, hours: float) -> None:
    """Set the wall clock that publishers read."""
    ahead = NOW() - time.monotonic_ns() + int(hours * 3600e9)
    monkeypatch.setattr("nngkit.fanout.numbered.publisher.time.time_ns", lambda: time.monotonic_ns() + ahead)


async def take(subscriber: Subscriber, count: int) -> list[Published]:
    """Return the next messages."""
    found: list[Published] = []
    with trio.fail_after(WAIT):
        while len(found) < count:
            if isinstance(event := await subscriber.receive(), Published):
                found.append(event)
    return found


@pytest.mark.parametrize("last", [False, True])
async def test_patterns_and_prefixes_select_topics_and_the_topic_is_told(last: bool) -> None:
    async with (
        Publisher(ANY, keep=Keep()) as publisher,
        Subscriber(publisher.address, WANTED, last=last) as subscriber,
    ):
        if not last:
            await joined(subscriber, publisher)
        publisher.publish_many(SENT)
        found = await take(subscriber, len(MATCH))
        assert [(message.topic, message.body) for message in found] == MATCH
        assert all(message.data == message.topic + message.body for message in found)


@pytest.mark.parametrize("last", [False, True])
def test_patterns_are_topics_for_threads_and_asyncio(last: bool) -> None:
    async def under_asyncio(address: str) -> list[tuple[bytes, bytes]]:
        async with aio.Subscriber(address, WANTED, last=last) as subscriber:
            eventually(lambda: len(publisher.subscribers()) == 2)
            publisher.publish_many(SENT)
            async with asyncio.timeout(WAIT):
                messages = subscriber.messages()
                found = [await anext(messages) for _ in MATCH]
            return [(message.topic, message.body) for message in found]

    with (
        blocking.Publisher(ANY, keep=Keep()) as publisher,
        blocking.Subscriber(publisher.address, Pattern("px.*.S1"), last=last) as subscriber,
    ):
        assert asyncio.run(under_asyncio(publisher.address)) == MATCH
        event = subscriber.receive(WAIT)
        while not isinstance(event, Published):
            event = subscriber.receive(WAIT)
        assert event.topic == b"px.eu.S1"


@pytest.mark.parametrize("wrong", [5, None, [5], [None], ["a", 5], []])
def test_a_topic_that_is_none_is_named(wrong: object) -> None:
    with pytest.raises((ConfigError, TypeError)):
        Subscriber(ANY, wrong)  # type: ignore[arg-type]


async def test_a_topic_over_the_limit_is_refused_and_the_rest_of_the_call_too() -> None:
    async with Publisher(ANY) as publisher:
        assert publisher.publish("t" * 4095, b"") == 1
        with pytest.raises(ConfigError, match="4096 bytes; at most 4095"):
            publisher.publish_many([("a", b""), ("t" * 4096, b"")])
        assert publisher.number == 1


def test_a_wait_of_a_thread_ends_after_its_timeout_and_loses_nothing() -> None:
    with blocking.Publisher(ANY) as publisher, blocking.Subscriber(publisher.address, id="it") as subscriber:
        eventually(lambda: len(publisher.subscribers()) == 1)
        for receive in (subscriber.receive, subscriber.receive_many):
            with pytest.raises(TimedOut, match=r"<Subscriber it>: no event in 0.01 s") as told:
                receive(timeout=0.01)
            assert told.value.seconds == 0.01
            with pytest.raises(TimedOut):
                receive(timeout=0)
        publisher.publish("a", b"1")
        event = subscriber.receive(timeout=WAIT)
        assert isinstance(event, Published)
        assert event.body == b"1"


@pytest.mark.slow
@pytest.mark.parametrize("last", [False, True])
async def test_a_publisher_whose_clock_went_back_has_restarted(
    last: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"ipc://{tmp_path}/rates"
    async with Subscriber(address, last=last) as subscriber:
        before: list[int] = []
        for hours in (1, 0, -5, 2):
            clock_of(monkeypatch, hours)
            async with Publisher(address, id="rates", keep=Keep(), heartbeat=0.05) as publisher:
                await joined(subscriber, publisher)
                publisher.publish_many([("a", b"1"), ("a", b"2")])
                found: list[object] = []
                with trio.fail_after(WAIT):
                    while not (found and isinstance(found[-1], Published) and found[-1].number == 2):
                        found.append(await subscriber.receive())
            found = [event for event in found if not isinstance(event, Synchronized)]
            if before:
                assert found[0] == Restarted(publisher.id, publisher.epoch, before[-1], 2)
                assert [event.body for event in found if isinstance(event, Published)] == [b"1", b"2"]
                assert not any(isinstance(event, Gap) for event in found)
            before.append(publisher.epoch)
        assert before[2] < before[1] < before[0] < before[3]
        assert subscriber.stats.refused["earlier run"] == 0


async def test_a_snapshot_of_a_run_whose_clock_went_back_is_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscriber that needs a snapshot at each gap gets that of the new run."""
    address = f"ipc://{tmp_path}/state"
    async with Subscriber(address, policy="resync") as subscriber:
        for hours, body in ((1, b"old"), (0, b"new")):
            clock_of(monkeypatch, hours)
            async with Publisher(address, id="state", keep=Keep(), heartbeat=0.05) as publisher:
                publisher.publish("key", body)  # before the subscriber is there: the next numbers show a gap
                await joined(subscriber, publisher)
                with trio.fail_after(WAIT):
                    [message] = await take(subscriber, 1)
                    while message.body != body:
                        [message] = await take(subscriber, 1)
                assert message.epoch == publisher.epoch


async def test_a_subscriber_that_reads_everything_is_not_behind() -> None:
    """At a rate of 100 messages between two of its reports, published since the last one."""
    async with Publisher(ANY, heartbeat=0.2) as publisher, Subscriber(publisher.address) as subscriber:
        await joined(subscriber, publisher)
        worst, ends = 0, trio.current_time() + 0.7
        while trio.current_time() < ends:
            publisher.publish_many([("a", b"")] * 20)
            await take(subscriber, 20)
            [told] = publisher.subscribers()
            worst = max(worst, told.behind)
            assert told.since < 0.6
        assert worst <= 40
        assert publisher.number > 1000


async def test_a_report_that_is_overdue_is_compared_with_what_was_published_since(tmp_path: Path) -> None:
    control = f"ipc://{tmp_path}/control"
    async with Publisher(ANY, heartbeat=0.02, control=control) as publisher, Req(dial=control) as req:
        report = REQUESTS.encode(Position("stopped", publisher.epoch, 0, 0, 0, 0.0))
        await req.arequest(report, timeout=WAIT)
        publisher.publish_many([("a", b"")] * 50)
        await aeventually(lambda: publisher.subscribers()[0].behind == 50)
        assert publisher.subscribers()[0].since > 0


async def test_a_subscriber_whose_connection_ended_is_forgotten_and_known_again(tmp_path: Path) -> None:
    control = f"ipc://{tmp_path}/control"
    async with Publisher(ANY, control=control) as publisher:
        report = REQUESTS.encode(Position("it", publisher.epoch, 0, 0, 0, 0.0))
        for _ in range(3):
            async with Req(dial=control) as req:
                await req.arequest(report, timeout=WAIT)
                assert [each.id for each in publisher.subscribers()] == ["it"]
            await aeventually(lambda: not publisher.subscribers())


@pytest.mark.slow
def test_a_subscriber_that_leaves_is_forgotten_at_once() -> None:
    with blocking.Publisher(ANY) as publisher:
        for _ in range(3):
            with blocking.Subscriber(publisher.address, id="it"), blocking.Subscriber(publisher.address, id="other"):
                eventually(lambda: len(publisher.subscribers()) == 2)
            began = time.monotonic()
            eventually(lambda: not publisher.subscribers())
            assert time.monotonic() - began < 1.0


def test_two_threads_that_wait_get_one_message_each() -> None:
    with blocking.Publisher(ANY) as publisher, blocking.Subscriber(publisher.address) as subscriber:
        eventually(lambda: len(publisher.subscribers()) == 1)
        found: list[object] = []
        threads = [threading.Thread(target=lambda: found.append(subscriber.receive(WAIT))) for _ in range(2)]
        for thread in threads:
            thread.start()
        publisher.publish_many([("a", b"1"), ("a", b"2")])
        for thread in threads:
            thread.join(WAIT)
        assert sorted(event.body for event in found if isinstance(event, Published)) == [b"1", b"2"]
