"""One process of a measurement: ``python _child.py MODULE:FUNCTION TASK``, TASK a JSON object.

The function is given the task and says (``say``) the URL it listens at, then its figures. It is killed when the other
end is done, so it need not end. A measurement runs in for a quarter of a second before it counts.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

RUN_IN = 0.25  # seconds, for rings to grow and connections to warm up


def say(**figures: Any) -> None:
    """Tell the parent."""
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


def as_many_files_as_allowed() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def peak() -> float:
    """MiB of resident memory at most. Not ``ru_maxrss``: it begins with that of the process that started this one."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


def lowest_peak() -> None:
    """From now on, `peak` tells of what follows."""
    with open("/proc/self/clear_refs", "w") as forget:
        forget.write("5")


def resident() -> float:
    """MiB of resident memory now."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / (1 << 20)


class Meter:
    """Counts units a second and CPU a unit from when it has run in until its time is over::

    meter = Meter(seconds)
    while meter.add(number_of_units_moved):
        ...

    ``more``: figures to be told with its own.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begin = time.perf_counter() + RUN_IN
        self._end = 0.0
        self._cpu = 0.0
        self.count = 0
        self.more: dict[str, float] = {}

    @property
    def counting(self) -> bool:
        """Whether it has run in."""
        return self._end > 0.0

    def add(self, units: int) -> bool:
        now = time.perf_counter()
        if not self._end:
            if now >= self._begin:
                self._begin, self._end, self._cpu = now, now + self._seconds, time.process_time()
            return True
        self.count += units
        if now < self._end:
            return True
        cpu = time.process_time() - self._cpu
        say(
            per_second=self.count / (now - self._begin),
            cpu_us=cpu / max(self.count, 1) * 1e6,
            rss_mib=peak(),
            **self.more,
        )
        return False


class Stopwatch:
    """Times round trips, 10,000 at least, after a tenth of them to run in."""

    def __init__(self, seconds: float, least: int = 10_000) -> None:
        self._times: list[float] = []
        self._least = least
        self._skip = least // 10
        self._seconds = seconds
        self._start = time.perf_counter()
        self._cpu = 0.0

    def add(self, seconds: float) -> bool:
        if self._skip:
            self._skip -= 1
            self._start, self._cpu = time.perf_counter(), time.process_time()
            return True
        times = self._times
        times.append(seconds)
        if len(times) < self._least or time.perf_counter() - self._start < self._seconds:
            return True
        cpu = time.process_time() - self._cpu
        times.sort()
        say(
            p50_us=times[len(times) // 2] * 1e6,
            p99_us=times[len(times) * 99 // 100] * 1e6,
            cpu_us=cpu / len(times) * 1e6,
            rss_mib=peak(),
        )
        return False


def stop_watch(ask: Callable[[], object], seconds: float) -> None:
    """Time a blocking round trip again and again."""
    watch, clock = Stopwatch(seconds), time.perf_counter
    start = clock()
    ask()
    while watch.add(clock() - start):
        start = clock()
        ask()


async def stop_watch_async(ask: Callable[[], Awaitable[object]], seconds: float) -> None:
    """Time an awaited round trip again and again."""
    watch, clock = Stopwatch(seconds), time.perf_counter
    start = clock()
    await ask()
    while watch.add(clock() - start):
        start = clock()
        await ask()


# ---- publishing ------------------------------------------------------------------------------------------------------

NUMBER = struct.Struct(">Q")  # what a published message begins with


def numbered(size: int) -> Callable[[int], bytes]:
    """Makes the n-th message of ``size`` bytes that a publisher sends."""
    pack, rest = NUMBER.pack, b"x" * (size - NUMBER.size)
    return lambda number: pack(number) + rest


class Audience:
    """What several subscribers of one process heard of one publisher, measured by looking at them now and then.

    Subscriber ``i`` leaves in ``heard[i]`` how many messages it has received and the last of them: one tuple, so that
    no look sees one without the other. From the numbers of the last ones follows what was published meanwhile.
    """

    PAUSE = 0.01  # seconds between two looks

    def __init__(self, seconds: float, subscribers: int) -> None:
        self.heard: list[tuple[int, bytes]] = [(0, NUMBER.pack(0))] * subscribers
        self._first: Sequence[tuple[int, bytes]] = ()
        self._seen = 0
        self._seconds = seconds
        self._meter: Meter | None = None  # until all of them are there

    def look(self) -> bool:
        """Whether to go on."""
        heard = self.heard.copy()
        if self._meter is None:
            if not all(count for count, _ in heard):
                return True
            self._meter = Meter(self._seconds)
        if not self._meter.counting:
            self._first = heard
        sent = sum(_number(last) - _number(first) for (_, first), (_, last) in zip(self._first, heard, strict=True))
        came = sum(now - before for (before, _), (now, _) in zip(self._first, heard, strict=True))
        self._meter.more["part"] = came / max(sent, 1)
        count = sum(each for each, _ in heard)
        new, self._seen = count - self._seen, count
        return self._meter.add(new)


def _number(message: bytes) -> int:
    number: int = NUMBER.unpack_from(message)[0]
    return number


if __name__ == "__main__":
    module, _, function = sys.argv[1].partition(":")
    getattr(importlib.import_module(module), function)(json.loads(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)  # bare pynng may hang at exit with a peer that still sends
