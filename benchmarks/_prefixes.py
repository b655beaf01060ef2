"""Subscribed prefixes, messages of which every second one matches, and the cost of adding and removing a prefix.

Keys of a task: ``prefixes``, their number; ``rate``, messages a second; ``names``, true for names of
many lengths instead of identifiers of one; ``slash``, true for Zenoh, whose keys are paths.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from _child import Meter, fail, peak, quantile, report, resident

SENT = 20_000  # messages that a publisher repeats: far more topics than the processor's caches keep
CHANGED = 2000  # prefixes added and removed
REST = b" 16 bytes of body"
CHECKED = 2000  # messages whose topics are checked, during the warm-up


def prefix(task: dict[str, Any], number: int) -> bytes:
    """Return a prefix: of 15 bytes, or of 10 to 40."""
    if task.get("slash"):
        return b"orders/%07d" % number
    if not task.get("names"):
        return b"orders.%07d." % number
    scrambled = number * 2_654_435_761 % (1 << 32)
    words = b"abcdefghijklmnopqrstuvwxyz"
    first = bytes(words[scrambled >> shift & 15] for shift in range(3 + scrambled % 9))
    return b"%s.%s.%x." % (first, words[: 3 + (scrambled >> 8) % 16], number)


def prefixes(task: dict[str, Any]) -> list[bytes]:
    """Return the subscribed ones, in random order."""
    found = [prefix(task, number) for number in range(task["prefixes"])]
    random.Random(1).shuffle(found)
    return found


def messages(task: dict[str, Any]) -> list[bytes]:
    """Return what a publisher sends: every second message begins with a subscribed prefix, chosen at random."""
    rng, many = random.Random(2), task["prefixes"]
    numbers = (rng.randrange(many) + (many if place % 2 else 0) for place in range(SENT))
    return [prefix(task, number) + REST for number in numbers]


def send_at_pace(send_many: Callable[[list[bytes]], object], task: dict[str, Any]) -> None:
    """Publish ``rate`` messages a second, those of a millisecond at once, until the process is killed."""
    sent, burst = messages(task), task["rate"] // 1000
    start = time.monotonic()
    for turn in itertools.count(1):
        at = turn * burst % (SENT - burst)
        send_many(sent[at : at + burst])
        time.sleep(max(0.0, start + turn / 1000 - time.monotonic()))


def send_each(send: Callable[[bytes], object]) -> Callable[[list[bytes]], None]:
    """Return ``send_many`` for a publisher that has none."""

    def send_many(messages: list[bytes]) -> None:
        for message in messages:
            send(message)

    return send_many


class Received:
    """Measures a subscriber by sent messages: those ``read``, if it counts them, else twice those it received."""

    def __init__(self, task: dict[str, Any], read: Callable[[], int] | None = None) -> None:
        self._meter = Meter(task)
        self._known = {*prefixes(task)}
        self._checked = self._received = self._seen = 0
        self._read = read

    def add(self, came: Sequence[bytes]) -> bool:
        if self._known:
            self._check(came)
        if self._read is None:
            return self._meter.add(2 * len(came))
        seen, self._seen = self._seen, self._read()
        if self._meter.counting:
            self._received += len(came)
            self._meter.more["part"] = 2 * self._received / max(1, self._meter.count + self._seen - seen)
        return self._meter.add(self._seen - seen)

    def _check(self, came: Sequence[bytes]) -> None:
        for message in came:
            if message.removesuffix(REST) not in self._known:
                fail(f"nothing is subscribed that {message!r} begins with")
        self._checked += len(came)
        if self._checked >= CHECKED:
            self._known = set()


def change(add: Callable[[bytes], object], remove: Callable[[bytes], object], task: dict[str, Any]) -> None:
    """Measure additions to, or with ``removes`` removals from, the subscribed prefixes, each undone afterwards."""
    subscribed = prefixes(task)
    begun = resident()
    for each in subscribed:
        add(each)
    grown = resident() - begun
    if task.get("removes"):
        do, undo, changed = remove, add, subscribed[:CHANGED]
    else:
        do, undo, changed = add, remove, [prefix(task, len(subscribed) + number) for number in range(CHANGED)]
    took: list[float] = []
    cpu = total = 0.0
    end = time.perf_counter() + task["seconds"]
    while not total or time.perf_counter() < end:
        begun, used = time.perf_counter(), time.process_time()
        for each in changed:
            do(each)
        cpu, total = cpu + time.process_time() - used, total + time.perf_counter() - begun
        for each in changed:
            undo(each)
        for each in changed:
            begun = time.perf_counter()
            do(each)
            took.append(time.perf_counter() - begun)
        for each in changed:
            undo(each)
    report(
        per_second=len(took) / total,
        cpu_us=cpu / len(took) * 1e6,
        p99_us=quantile(took, 0.99) * 1e6,
        grown_mib=max(grown, 0.0),
        rss_mib=peak(),
    )
