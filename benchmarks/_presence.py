"""Presence among many services: how soon one that starts is found, one that is killed is gone; what a change costs.

nngkit's part; `_nats.py` and `_zenoh.py` have the same with NATS micro and Zenoh's liveliness.
"""

from __future__ import annotations

import signal
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import trio
from _restarted import WAIT, Restarted, ports

from _child import as_many_files_as_allowed, cpu_of, report
from nngkit import NngkitError, Resolver, Service
from nngkit.testing import aeventually

NAME = "answer"
NAMES = 1000  # the other services share so many names
FLEETS = 4  # processes of the other services
IDLE = 2.0  # seconds in which the daemon's CPU without changes is measured
PAUSE = 0.2  # seconds from the last resolver that has found the victim to its end


async def announce(task: dict[str, Any]) -> None:
    """Announce `count` services that nothing serves, named after `first` and the following numbers."""
    as_many_files_as_allowed()
    async with AsyncExitStack() as stack:
        for number in range(task["first"], task["first"] + task["count"]):
            name = task.get("name") or f"s{number % NAMES}"
            address = f"tcp://10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:9000"
            await stack.enter_async_context(Service(name, address, discovery=task["daemons"], sigterm=False))
        report(ready=task["count"])
        await trio.sleep_forever()


async def start_fleets(stack: AsyncExitStack, task: dict[str, Any], function: str, survey: str) -> None:
    """Start the processes of ``services`` services, which are killed with ``stack``."""
    count = task["services"]
    for index in range(FLEETS):
        first, after = index * count // FLEETS, (index + 1) * count // FLEETS
        fleet = Restarted(task, function, daemons=[survey], first=first, count=after - first)
        stack.callback(fleet.kill)
        await trio.to_thread.run_sync(fleet.start)


async def killed_of(task: dict[str, Any]) -> None:
    """Kill one provider among `services` others, `rounds` times; report the time of the last stale `resolve`."""
    stale: list[float] = []
    found: list[float] = []
    async with AsyncExitStack() as stack:
        daemon, survey, resolvers = await _crowd(stack, task)
        victim = Restarted(task, "_presence:announce", daemons=[survey], first=(1 << 20), count=1, name=NAME)
        stack.callback(victim.kill)
        for _ in range(task["rounds"]):
            await trio.to_thread.run_sync(victim.start)
            began = time.perf_counter()
            for each in resolvers:
                await each.find(NAME, timeout=WAIT)
            found.append(time.perf_counter() - began)
            await trio.sleep(PAUSE)
            killed = time.perf_counter()
            victim.process.send_signal(signal.SIGKILL)
            left = set(resolvers)
            while left:
                for each in list(left):
                    try:
                        each.resolve(NAME)
                    except NngkitError:
                        left.discard(each)
                await trio.sleep(0.0005)
            stale.append(time.perf_counter() - killed)
            await trio.to_thread.run_sync(victim.kill)
        cpu = cpu_of([daemon])
    report(**times(found, stale), cpu_s=cpu)


async def changes(task: dict[str, Any]) -> None:
    """Change a service beside `services` others, `rounds` times, each time once all `resolvers` have the change before.

    Report the daemon's CPU a change, less what it takes without changes.
    """
    async with AsyncExitStack() as stack:
        daemon, survey, resolvers = await _crowd(stack, task)
        one = await stack.enter_async_context(Service(NAME, "tcp://10.0.0.1:9", discovery=survey, sigterm=False))
        for each in resolvers:
            await each.find(NAME, timeout=WAIT)
        used = cpu_of([daemon])
        await trio.sleep(IDLE)
        idle = (cpu_of([daemon]) - used) / IDLE
        used, took = cpu_of([daemon]), []
        for weight in range(2, task["rounds"] + 2):
            began = time.perf_counter()
            one.update(weight=weight)
            while any(each.resolve(NAME).weight != weight for each in resolvers):  # noqa: ASYNC110
                await trio.sleep(0.0005)
            took.append(time.perf_counter() - began)
        spent = cpu_of([daemon]) - used - idle * sum(took)
    report(times=len(took), p50_ms=statistics.median(took) * 1000, other_us=spent / len(took) * 1e6)


async def _crowd(stack: AsyncExitStack, task: dict[str, Any]) -> tuple[int, str, list[Resolver]]:
    """Start a daemon, services and resolvers that know them; return the daemon's id and address, and the resolvers."""
    as_many_files_as_allowed()
    report(url="")
    survey, query = ports(2)
    running = Restarted(task, "_reconnecting:daemon", survey=survey, query=query)
    stack.callback(running.kill)
    await trio.to_thread.run_sync(running.start)
    await start_fleets(stack, task, "_presence:announce", survey)
    resolvers = [await stack.enter_async_context(Resolver(query)) for _ in range(task["resolvers"])]
    for each in resolvers:
        await aeventually(lambda each=each: sum(map(len, each.snapshot().values())) >= task["services"], WAIT)  # type: ignore[misc]
    return running.process.pid, survey, resolvers


def times(found: Sequence[float], gone: Sequence[float]) -> dict[str, float]:
    """Return the figures of services that were found after their start, and gone after SIGKILL, in seconds."""
    ordered = sorted(gone)
    return {
        "times": len(gone),
        "p50_ms": statistics.median(gone) * 1000,
        "p99_ms": ordered[min(len(gone) - 1, int(len(gone) * 0.99))] * 1000,
        "found_ms": statistics.median(found) * 1000,
    }
