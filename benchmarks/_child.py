"""One process of a measurement: ``python _child.py MODULE:FUNCTION TASK``, TASK a JSON object.

The function is given the task and says (``say``) the URL it listens at, then its figures. It is killed when the other
end is done, so it need not end. A measurement runs in for a quarter of a second, or as long as it takes
if that is less, before it counts.

Of a task: ``url``, ``size``, ``seconds``; ``listens``, whether it is this end that does; ``processes``, the file with
the ids of all processes of the measurement; ``run_in``, other seconds to run in.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

RUN_IN = 0.25  # seconds, for rings to grow and connections to warm up


def say(**figures: Any) -> None:
    """Tell the parent."""
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


def fail(reason: str) -> NoReturn:
    """End this process, whatever thread or callback this is, and with it the run."""
    sys.stderr.write(f"{' '.join(sys.argv[1:2])}: {reason}\n")
    sys.stderr.flush()
    os._exit(1)


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


def cpu_of(processes: Sequence[int]) -> float:
    """Seconds of CPU that processes have used, all their threads."""
    # the number of a process's clock on Linux, as clock_getcpuclockid(3) makes it of the id
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in processes)


def others(task: dict[str, Any]) -> list[int]:
    """Ids of the other processes that take part in this measurement."""
    listed = Path(task["processes"]).read_text().split()
    return [pid for pid in map(int, listed) if pid != os.getpid()]


class Meter:
    """Counts units a second and CPU a unit from when it has run in until its time is over::

    meter = Meter(task)
    while meter.add(number_of_units_moved):
        ...

    It runs in from the first units on. Of a whole task, and not of its seconds alone, it tells the CPU of the other
    processes too. ``more``: figures to be told with its own; ``check`` is called before.
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
        """Whether it has run in."""
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
        say(per_second=self.count / (now - self._begin), cpu_us=cpu / count * 1e6, rss_mib=peak(), **self.more)
        return False


class Stopwatch:
    """Times round trips, 2,000 at least, after a tenth of them to run in."""

    LEAST = 2000  # so that twenty are slower than the 99th percentile

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
        say(
            p50_us=times[len(times) // 2] * 1e6,
            p99_us=times[len(times) * 99 // 100] * 1e6,
            cpu_us=cpu / len(times) * 1e6,
            other_us=other / len(times) * 1e6,
            all_us=(cpu + other) / len(times) * 1e6,
            rss_mib=peak(),
        )
        return False


if __name__ == "__main__":
    module, _, function = sys.argv[1].partition(":")
    if "NNGKIT_BENCH_BEFORE" in os.environ:
        import nngkit

        assert Path(nngkit.__file__).is_relative_to(os.environ["NNGKIT_BENCH_BEFORE"]), nngkit.__file__
    getattr(importlib.import_module(module), function)(json.loads(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)  # bare pynng may hang at exit with a peer that still sends
