"""One change at a daemon with many services and watchers: CPU of the daemon a change, and its memory.

    python3 benchmarks/_one_change.py [--services 1000] [--watchers 50] [--changes 200]

The daemon is a process of its own; services and watchers share this one. A change is a new weight of one service;
the next one follows when all watchers have it. CPU: the daemon's utime and stime, less those without changes.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import trio

from nngkit import Service
from nngkit.discovery import Daemon, DaemonSettings, Resolver
from nngkit.testing import aeventually

WAIT = 60.0


async def daemon() -> None:
    async with Daemon(DaemonSettings(listen=("tcp://127.0.0.1:0",), interval=1000)) as running:
        print(running.addresses[0], running.query_addresses[0], flush=True)
        await trio.sleep_forever()


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(services: int, watchers: int, changes: int, survey: str, query: str, pid: int) -> None:
    async with AsyncExitStack() as stack:
        for number in range(services):
            one = Service(f"s{number}", f"tcp://10.0.{number // 250}.{number % 250 + 1}:9000", discovery=survey)
            await stack.enter_async_context(one)
        resolvers = [await stack.enter_async_context(Resolver(query)) for _ in range(watchers)]
        for each in resolvers:
            await aeventually(lambda each=each: len(each.snapshot()) == services, WAIT)  # type: ignore[misc]
        await trio.sleep(1.0)
        before, began = cpu(pid), time.perf_counter()
        await trio.sleep(2.0)
        idle = (cpu(pid) - before) / (time.perf_counter() - began)
        before, began = cpu(pid), time.perf_counter()
        for number in range(changes):
            one.update(weight=number + 1)
            while any(each.resolve(one.provider.name).weight != number + 1 for each in resolvers):  # noqa: ASYNC110
                await trio.sleep(0.001)
        took = time.perf_counter() - began
        spent = cpu(pid) - before - idle * took
        memory = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())  # noqa: ASYNC240
        print(
            f"{services} services, {watchers} watchers: {spent / changes * 1000:.2f} ms CPU a change, "
            f"{took / changes * 1000:.1f} ms until all have it, idle {idle * 100:.1f} %, "
            f"memory {int(memory.group(1)) // 1024 if memory else 0} MiB"
        )


def main() -> None:
    given = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    given.add_argument("--services", type=int, default=1000)
    given.add_argument("--watchers", type=int, default=50)
    given.add_argument("--changes", type=int, default=200)
    given.add_argument("--daemon", action="store_true", help=argparse.SUPPRESS)
    arguments = given.parse_args()
    if arguments.daemon:
        trio.run(daemon)
        return
    with subprocess.Popen([sys.executable, __file__, "--daemon"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            survey, query = process.stdout.readline().split()
            trio.run(measure, arguments.services, arguments.watchers, arguments.changes, survey, query, process.pid)
        finally:
            process.kill()


if __name__ == "__main__":
    main()
