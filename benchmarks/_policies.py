"""Plot what each policy of a slow subscriber does: ``python benchmarks/_policies.py`` writes docs/slow-subscribers.svg.

A publisher sends 2,000 messages a second for 8 s. A program reads them, but not from the second to the fourth second,
and from then on at most 3,000 a second. For each policy the figures are sampled 20 times a second: the messages that
wait for the program, the age of the newest message it has handled, and the messages that it will never see.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import trio
from _plots import panels, save

from nngkit import Publisher, Subscriber
from nngkit.errors import SlowSubscriber
from nngkit.fanout import HighWater, Keep, Published, Synchronized

PICTURE = Path(__file__).parent.parent / "docs" / "slow-subscribers.svg"
RATE, FASTEST = 2000, 3000  # messages a second, sent and handled
LASTS, PAUSE = 8.0, (2.0, 4.0)  # seconds
MARK = 2500  # messages unread at the high-water mark
SAMPLES = 20  # a second
TURN = 0.005  # seconds of messages that are handled in one go
STATES = 50  # topics of the publisher's state
WAYS = {
    "no mark reached (100,000)": ("report", 100_000),
    f'"report" at {MARK:,}': ("report", MARK),
    f'"resync" at {MARK:,}': ("resync", MARK),
    f'"raise" at {MARK:,}, then joins anew': ("raise", MARK),
}
PANELS = ("unread messages", "age of what is handled, s", "messages never seen")


class Sample(NamedTuple):
    at: float
    unread: int
    age: float
    missed: int


async def run(policy: str, mark: int) -> list[Sample]:
    """Return the samples of one policy."""
    samples: list[Sample] = []
    async with Publisher("tcp://127.0.0.1:0", keep=Keep(topics=STATES)) as publisher, trio.open_nursery() as nursery:
        began = trio.current_time()
        handled = age = 0.0
        seen = count = missed = 0
        subscriber: Subscriber | None = None

        async def publish() -> None:
            number = 0
            while True:
                for _ in range(RATE // 100):
                    publisher.publish(b"topic %02d " % (number % STATES), b"")
                    number += 1
                await trio.sleep_until(began + number / RATE)

        async def sample() -> None:
            while True:
                unread = 0 if subscriber is None else subscriber.stats.unread
                samples.append(Sample(trio.current_time() - began, unread, age, missed))
                await trio.sleep_until(began + len(samples) / SAMPLES)

        async def handle() -> None:
            nonlocal handled, age, seen, count, missed, subscriber
            while True:
                try:
                    async with Subscriber(
                        publisher.address, policy=policy, high_water=HighWater(mark, warn=None), last=policy == "resync"
                    ) as subscriber:
                        async for event in subscriber:
                            now = trio.current_time() - began
                            if PAUSE[0] <= now < PAUSE[1]:
                                await trio.sleep_until(began + PAUSE[1])
                            if not seen and isinstance(event, Published | Synchronized):
                                count = event.number - isinstance(event, Published)  # it joins here
                            if isinstance(event, Published) and event.number > seen:
                                seen = event.number
                                count += 1
                                age = max(0.0, time.time() - event.time / 1e6)
                                handled = max(handled, now) + 1 / FASTEST
                                if handled > now + TURN:
                                    await trio.sleep_until(began + handled)
                            elif isinstance(event, Synchronized):
                                seen = max(seen, event.number)  # the state says the same; each message is not seen
                            missed = seen - count
                except SlowSubscriber:
                    continue

        nursery.start_soon(publish)
        nursery.start_soon(handle)
        nursery.start_soon(sample)
        await trio.sleep_until(began + LASTS)
        nursery.cancel_scope.cancel()
    return samples


def main() -> None:
    figure, places = panels(len(PANELS))
    for name, (policy, mark) in WAYS.items():
        samples = trio.run(run, policy, mark)
        for axes, what in zip(places, zip(*(each[1:] for each in samples), strict=True), strict=True):
            axes.plot([each.at for each in samples], what, label=name)
    for axes, title in zip(places, PANELS, strict=True):
        axes.axvspan(*PAUSE, alpha=0.1, color="gray", linewidth=0)
        axes.set(title=title, xlabel="seconds; the program does not read in the gray ones")
        axes.grid(alpha=0.3)
    figure.legend(*places[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(WAYS))
    save(figure, PICTURE)


if __name__ == "__main__":
    main()
