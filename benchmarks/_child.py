"""Process of a measurement: ``python _child.py MODULE:FUNCTION TASK``, TASK a JSON object.

A coroutine function runs under trio, or where ``_trio`` or ``_asyncio`` follows its name, in that loop.

The function gets the task and reports (``report``) the URL it listens at, then its figures. It is killed when the
other end has finished, so it need not end. A measurement warms up for a quarter of a second, or for its own duration if
that is less, before it counts.

Keys of a task: ``url``, ``size``, ``seconds``; ``listens``, whether this end listens; ``processes``, the file with the
ids of all processes of the measurement; ``run_in``, another duration of the warm-up in seconds.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

RUN_IN = 0.25  # seconds of warm-up, for buffers to grow and connections to be established


def report(**figures: Any) -> None:
    """Print a line of JSON for the parent."""
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


def fail(reason: str) -> NoReturn:
    """End this process, from any thread or callback, and with it the run."""
    sys.stderr.write(f"{' '.join(sys.argv[1:2])}: {reason}\n")
    sys.stderr.flush()
    os._exit(1)


def as_many_files_as_allowed() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def peak(pid: int | str = "self") -> float:
    """Return the peak resident memory of a process in MiB. Not ``ru_maxrss``, which starts at the parent's value."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


def lowest_peak() -> None:
    """Reset `peak`."""
    with open("/proc/self/clear_refs", "w") as forget:
        forget.write("5")


def resident(pid: int | str = "self") -> float:
    """Return the resident memory of a process in MiB."""
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / (1 << 20)


def cpu_of(processes: Sequence[int]) -> float:
    """Return the CPU seconds of processes, all their threads."""
    # Linux's clock id of a process, computed from its id as by clock_getcpuclockid(3)
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in processes)


def others(task: dict[str, Any]) -> list[int]:
    """Return the ids of the other processes of this measurement."""
    listed = Path(task["processes"]).read_text().split()
    return [pid for pid in map(int, listed) if pid != os.getpid()]


def quantile(values: Sequence[float], share: float) -> float:
    """Return the quantile `share` of the values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Meter:
    """Count units a second and CPU a unit, from the end of the warm-up until the time is over::

    meter = Meter(task)
    while meter.add(number_of_units_moved):
        ...

    The warm-up begins with the first units. Given a task rather than a number of seconds, it also reports the CPU of
    the other processes. ``more``: further figures to report; ``check`` is called before.
    """

    def __init__(self, of: float | dict[str, Any]) -> None:
        self._task = of if isinstance(of, dict) else None
        self._seconds: float = of["seconds"] if isinstance(of, dict) else of
        self._begin = 0.0
        self._end = 0.0
        self._cpu = self._others_cpu = 0.0
        self._others: list[int] = []
        self.count = 0
        self.more: dict[str, float] = {}
        self.check: Callable[[], object] = int

    @property
    def counting(self) -> bool:
        """Return True once the warm-up is over."""
        return self._end > 0.0

    def add(self, units: int) -> bool:
        now = time.perf_counter()
        if not self._end:
            if not self._begin:
                self._begin = now + (self._task or {}).get("run_in", min(RUN_IN, self._seconds))
            elif now >= self._begin:
                self._others = others(self._task) if self._task else []
                self._others_cpu = cpu_of(self._others)
                self._begin, self._end, self._cpu = now, now + self._seconds, time.process_time()
            return True
        self.count += units
        if now < self._end:
            return True
        cpu, count = time.process_time() - self._cpu, max(self.count, 1)
        if self._others:
            other = cpu_of(self._others) - self._others_cpu
            self.more |= {"other_us": other / count * 1e6, "all_us": (cpu + other) / count * 1e6}
        self.check()
        report(per_second=self.count / (now - self._begin), cpu_us=cpu / count * 1e6, rss_mib=peak(), **self.more)
        return False


class Stopwatch:
    """Measure round trips, at least 2,000, after a tenth of them as warm-up."""

    LEAST = 2000  # so that the 99th percentile has twenty samples above it

    def __init__(self, task: dict[str, Any]) -> None:
        self._times: list[float] = []
        self._skip = self.LEAST // 10
        self._task = task
        self._start = time.perf_counter()
        self._cpu = self._others_cpu = 0.0
        self._others: list[int] = []

    def add(self, seconds: float) -> bool:
        if self._skip:
            self._skip -= 1
            if not self._skip:
                self._others = others(self._task)
                self._others_cpu = cpu_of(self._others)
                self._start, self._cpu = time.perf_counter(), time.process_time()
            return True
        times = self._times
        times.append(seconds)
        if len(times) < self.LEAST or time.perf_counter() - self._start < self._task["seconds"]:
            return True
        cpu, other = time.process_time() - self._cpu, cpu_of(self._others) - self._others_cpu
        times.sort()
        report(
            p50_us=times[len(times) // 2] * 1e6,
            p99_us=times[len(times) * 99 // 100] * 1e6,
            cpu_us=cpu / len(times) * 1e6,
            other_us=other / len(times) * 1e6,
            all_us=(cpu + other) / len(times) * 1e6,
            rss_mib=peak(),
        )
        return False


def run(words: str, task: dict[str, Any]) -> None:
    """Run MODULE:FUNCTION, a coroutine function in its loop."""
    module, _, name = words.partition(":")
    found = importlib.import_module(module)
    function = getattr(found, name, None) or getattr(found, name.removesuffix("_trio").removesuffix("_asyncio"))
    if not inspect.iscoroutinefunction(function):
        function(task)
    elif name.endswith("_asyncio"):
        import asyncio

        asyncio.run(function(task))
    else:
        import trio

        trio.run(function, task)


if __name__ == "__main__":
    if "NNGKIT_BENCH_BEFORE" in os.environ:
        import nngkit

        assert Path(nngkit.__file__).is_relative_to(os.environ["NNGKIT_BENCH_BEFORE"]), nngkit.__file__
    run(sys.argv[1], json.loads(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)  # bare pynng may hang at exit with a peer that still sends
