"""A subscriber as a process that tests pause, kill and cut off, and a publisher.

    python -m tests.fanout.subscribing subscribe URL LOG PAUSE HIGH_WATER
    python -m tests.fanout.subscribing publish URL

The publisher publishes as each line `COUNT RATE` of its input says, and then prints the last number and its number of
subscribers. The subscriber appends to LOG a line for each run of numbers it received (`got FIRST LAST`) and for each
Gap (`gap FIRST LAST`), in their order, and waits PAUSE seconds after each batch of events.
"""

import os
import sys
from functools import partial

import trio

from nngkit.fanout import Gap, HighWater, Published, Publisher, Subscriber


async def subscribe(url: str, log: str, pause: str, high_water: str) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    async with Subscriber(url, high_water=HighWater(int(high_water), warn=None)) as subscriber:
        while True:
            lines: list[str] = []
            first = last = 0
            for event in await subscriber.receive_many(500):
                if isinstance(event, Published) and event.number == last + 1:
                    last = event.number
                    continue
                if first:
                    lines.append(f"got {first} {last}\n")
                    first = last = 0
                if isinstance(event, Published):
                    first = last = event.number
                elif isinstance(event, Gap):
                    lines.append(f"gap {event.first} {event.last}\n")
            if first:
                lines.append(f"got {first} {last}\n")
            os.write(file, "".join(lines).encode())
            await trio.sleep(float(pause))


async def publish(publisher: Publisher, count: int, rate: int) -> None:
    """Publish `count` messages, `rate` a second."""
    began, first = trio.current_time(), publisher.number
    while publisher.number < first + count:
        publisher.publish_many([("a", b"x" * 100)] * 50)
        await trio.sleep_until(began + (publisher.number - first) / rate)


async def publish_as_told(url: str) -> None:
    async with Publisher(url, heartbeat=0.1, send_buffer=1000) as publisher:
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            count, rate = map(int, line.split())
            await publish(publisher, count, rate)
            sys.stdout.write(f"{publisher.number} {len(publisher.subscribers())}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    if role == "publish":
        trio.run(partial(publish_as_told, *arguments))
    else:
        trio.run(partial(subscribe, *arguments))
