"""Slow subscribers: what each policy does when a program reads too slowly.

::

    python3 examples/slow_subscriber.py

prints::

    report: 90 messages are missing, then 91 to 100
    raise: it has left, as over 10 messages were unread: True
    resync: the state after message 100, then 101

The publisher sends 100 messages about three topics at once. Each subscriber keeps 10 that its program has not read.
"""

import trio

from nngkit import Publisher, SlowSubscriber, Subscriber
from nngkit.fanout import Gap, HighWater, Keep, Published, Synchronized
from nngkit.testing import aeventually

FEW = HighWater(messages=10, warn=None)


async def report(publisher: Publisher) -> None:
    async with Subscriber(publisher.address, policy="report", high_water=FEW) as subscriber:
        await publish(publisher, subscriber)
        gap = await subscriber.receive()
        messages = [await subscriber.receive() for _ in range(10)]
        assert isinstance(gap, Gap)
        assert isinstance(messages[0], Published)
        print(f"report: {gap.count} messages are missing, then {messages[0].number} to {messages[-1].number}")


async def leave(publisher: Publisher) -> None:
    async with Subscriber(publisher.address, policy="raise", high_water=FEW) as subscriber:
        await publish(publisher, subscriber)
        try:
            await subscriber.receive()
        except SlowSubscriber as error:
            print(f"raise: it has left, as over {FEW.messages} messages were unread: {error.messages > 10}")


async def resync(publisher: Publisher) -> None:
    async with Subscriber(publisher.address, policy="resync", high_water=FEW) as subscriber:
        await publish(publisher, subscriber)
        state = await subscriber.receive()
        assert isinstance(state, Synchronized)
        for _ in range(state.count):
            await subscriber.receive()
        print(f"resync: the state after message {state.number}, then {publisher.publish('a', b'101')}")


async def publish(publisher: Publisher, subscriber: Subscriber) -> None:
    """Publish 100 messages once the publisher knows the subscriber, and wait until all have arrived."""
    await aeventually(lambda: any(each.id == subscriber.id for each in publisher.subscribers()))
    publisher.publish_many([("abc"[number % 3], b"%d" % number) for number in range(1, 101)])
    await aeventually(lambda: subscriber.stats.received == 100 or subscriber.left)


async def main() -> None:
    for policy in (report, leave, resync):
        async with Publisher("tcp://127.0.0.1:0", heartbeat=0.05, keep=Keep()) as publisher:
            await policy(publisher)


trio.run(main)
