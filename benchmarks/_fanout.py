"""Publisher and Subscriber: their rate, late joins, and a stopped subscriber. A wrong account ends the run."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import trio

from _child import Meter, fail, peak, quantile, report
from nngkit import Publisher, Subscriber
from nngkit.fanout import Gap, HighWater, Keep, Published, Synchronized
from nngkit.protocols import Pub, Sub
from nngkit.testing import aeventually

ANY = "tcp://127.0.0.1:0"
BURST = 64  # messages published in one call
KEYS = 1000
LIVE = 2000  # messages that are checked after each join
NO_WARNING = HighWater(warn=None)


async def publish(task: dict[str, Any]) -> None:
    """Publish with numbers, as fast as it goes or at `rate` messages a second; topics are `keys` in turn."""
    body = bytes(task["size"])
    keep = Keep() if task.get("keep") else None
    async with Publisher(task["url"], keep=keep, send_buffer=8192) as publisher:
        report(url=publisher.address)
        if keep is None:
            await publisher.wait_for_peers(1, 60.0)
        messages = [(b"key%05d=" % (number % KEYS), body) for number in range(BURST * KEYS)]
        began, sent = trio.current_time(), 0
        while True:
            publisher.publish_many(messages[sent % len(messages) :][:BURST])
            sent += BURST
            rate = task.get("rate")
            await trio.sleep(max(0.0, began + sent / rate - trio.current_time()) if rate else 0.0)


async def subscribe(task: dict[str, Any]) -> None:
    """Receive and account for all numbers; a gap that was none, or a number twice, ends the run."""
    async with Subscriber(task["url"], high_water=NO_WARNING) as subscriber:
        meter = Meter(task)
        first = last = received = missing = 0
        while True:
            before = received
            for event in await subscriber.receive_many():
                if isinstance(event, Published):
                    first, last, received = first or event.number, event.number, received + 1
                elif isinstance(event, Gap):
                    last, missing = event.last, missing + event.count
            stats = subscriber.stats
            if received + missing != last - first + 1 or stats.late or any(stats.refused.values()):
                fail(f"{received} received, {missing} missing of {first} to {last}: {stats}")
            meter.more["part"] = received / (received + missing)
            if not meter.add(received - before):
                return


async def publish_plain(task: dict[str, Any]) -> None:
    """Publish without numbers, in the same bursts."""
    async with Pub(listen=task["url"], send_buffer=8192) as pub:
        report(url=pub.address)
        await pub.await_for_peers(1, 60.0)
        messages = [b"key00000=" + bytes(task["size"])] * BURST
        while True:
            await pub.asend_many(messages)
            await trio.lowlevel.checkpoint()


async def subscribe_plain(task: dict[str, Any]) -> None:
    """Receive without accounts."""
    async with Sub(dial=task["url"], topics=b"", recv_buffer=8192) as sub:
        meter = Meter(task)
        while meter.add(len(await sub.arecv_many())):
            pass


async def join_late(task: dict[str, Any]) -> None:
    """Join `joins` times while messages are published: the state, then every later message."""
    took = []
    for _ in range(task["joins"]):
        began = time.perf_counter()
        async with Subscriber(task["url"], last=True, high_water=NO_WARNING) as subscriber:
            since = await subscriber.receive()
            if not isinstance(since, Synchronized):
                fail(f"the first event is {since!r}")
            took.append(time.perf_counter() - began)
            for _ in range(since.count):
                event = await subscriber.receive()
                if not isinstance(event, Published) or event.number > since.number:
                    fail(f"after {since!r}: {event!r}")
            for number in range(since.number + 1, since.number + LIVE):
                event = await subscriber.receive()
                if not isinstance(event, Published) or event.number != number:
                    fail(f"{number} is due after {since!r}: {event!r}")
    report(times=len(took), p50_ms=quantile(took, 0.5) * 1000, p99_ms=quantile(took, 0.99) * 1000)


async def stop_one(task: dict[str, Any]) -> None:
    """Stop one of eight subscribers; report the part of the messages that the others get, and the memory."""

    async def read(subscriber: Subscriber, counts: list[int]) -> None:
        async for event in subscriber:
            counts[0] += isinstance(event, Published)
            counts[1] += event.count if isinstance(event, Gap) else 0

    report(url="")
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(Publisher(ANY, heartbeat=0.1))
        marks = [HighWater(messages=10_000, warn=None)] + [NO_WARNING] * 7
        stopped, *others = [
            await stack.enter_async_context(Subscriber(publisher.address, high_water=mark)) for mark in marks
        ]
        await aeventually(lambda: len(publisher.subscribers()) == 8)
        counts = [[0, 0] for _ in others]
        async with trio.open_nursery() as nursery:
            for subscriber, each in zip(others, counts, strict=True):
                nursery.start_soon(read, subscriber, each)
            async for _ in _ticks(task["lasts"], 0.01):
                publisher.publish_many([("a", bytes(task["size"]))] * (task["rate"] // 100))
            await aeventually(lambda: all(sum(each) == publisher.number for each in counts), 60.0)
            nursery.cancel_scope.cancel()
        told = stopped.stats
        if told.dropped + told.unread + told.missed != publisher.number:
            fail(f"the stopped one knows of {told}, of {publisher.number}")
        got = sum(each[0] for each in counts)
        report(part=got / (7 * publisher.number), times=publisher.number, rss_mib=peak())


async def _ticks(seconds: float, pause: float) -> AsyncIterator[None]:
    """Yield every `pause` seconds, for `seconds`."""
    began, number = trio.current_time(), 0
    while number * pause < seconds:
        await trio.sleep_until(began + number * pause)
        yield
        number += 1
