"""Services that reconnect to a daemon that was killed and started again: how soon it knows all, and who seemed down."""

from __future__ import annotations

import statistics
import time
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import _presence
import trio
from _restarted import WAIT, Restarted, ports

from _child import as_many_files_as_allowed, cpu_of, report
from nngkit import Resolver
from nngkit.discovery import Daemon, DaemonSettings, State
from nngkit.testing import aeventually
from nngkit.trust import OPEN, use

AFTER = 5.0  # seconds for which downs are counted after the daemon is back: longer than a resolver's grace


async def daemon(task: dict[str, Any]) -> None:
    """Run a discovery daemon at the two ports of the task, by a pass if there are some."""
    as_many_files_as_allowed()
    use(task["passes"][0] if "passes" in task else OPEN)
    settings = DaemonSettings(listen=(task["survey"],), query=(task["query"],), deadline=1.0, interval=0.5)
    async with Daemon(settings) as running:
        report(survey=running.addresses[0], query=running.query_addresses[0])
        await running.run()


async def announce(task: dict[str, Any]) -> None:
    if "passes" in task:
        use(task["passes"][1])
    await _presence.announce(task)


async def known_again(task: dict[str, Any]) -> None:
    """Kill the daemon of ``services`` services and start it again, ``rounds`` times.

    ``p50_ms``: until it knows all services; ``false_downs``: those that a resolver took for down.
    """
    as_many_files_as_allowed()
    if "passes" in task:
        use(task["passes"][1])
    scheme = "tls+tcp" if "passes" in task else "tcp"
    survey, query = (address.replace("tcp", scheme) for address in ports(2))
    count, downs = task["services"], 0
    took: list[float] = []
    used: list[float] = []

    async def watch(resolver: Resolver) -> None:
        nonlocal downs
        async for event in resolver.events():
            downs += event.new is State.DOWN

    async with AsyncExitStack() as stack:
        running = Restarted(task, "_reconnecting:daemon", survey=survey, query=query)
        stack.callback(running.kill)
        await trio.to_thread.run_sync(running.start)
        await _presence.start_fleets(stack, task, "_reconnecting:announce", survey)
        nursery = await stack.enter_async_context(trio.open_nursery())
        resolver = await stack.enter_async_context(Resolver(query))
        await aeventually(partial(knows, resolver, count), WAIT)
        nursery.start_soon(watch, resolver)
        for _ in range(task["rounds"]):
            running.kill()
            await trio.to_thread.run_sync(running.start)
            began = time.perf_counter()
            async with Resolver(query) as fresh:
                await aeventually(partial(knows, fresh, count), WAIT)
                took.append(time.perf_counter() - began)
            used.append(cpu_of([running.process.pid]))
            await trio.sleep(AFTER)
        nursery.cancel_scope.cancel()
    middle, most, cpu = statistics.median(took) * 1000, max(took) * 1000, statistics.median(used)
    report(p50_ms=middle, max_ms=most, false_downs=downs, cpu_s=cpu, times=len(took))


def knows(resolver: Resolver, count: int) -> bool:
    return sum(map(len, resolver.snapshot().values())) >= count
