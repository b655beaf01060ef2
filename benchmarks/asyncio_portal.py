"""Trio objects in an asyncio program: trio itself, the portal of nngkit.aio, trio's guest mode, side by side.

::

    python benchmarks/asyncio_portal.py [--calls 2000] [--rounds 5] [--json]

Portal: trio runs in a thread of its own. Guest mode: trio runs in the program's loop, and waits for sockets in a
thread. Each round measures the three ways in turn, in this process; printed are medians over the rounds.

a call            that runs one task with one checkpoint: the price of the crossing
a request         DaemonClient.resolve, to a daemon in another process
a cancellation    from `task.cancel()` until the call, which waits for ever, has ended
a heartbeat       longest gap of a task that wakes every 5 ms, while the program computes for 200 ms without a pause
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio
import trio.testing

from nngkit.aio._base import in_portal
from nngkit.discovery import DaemonClient
from nngkit.portal import Host, the_portal

Run = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Runs a coroutine function under trio, and returns its result."""

COMPUTING = 0.2
EVERY = 0.005
DAEMON = """
import time
from nngkit.blocking import Daemon, Resolver, Service
from nngkit.discovery import DaemonSettings
with Daemon(DaemonSettings(listen=("tcp://127.0.0.1:0",))) as daemon:
    with Service("answer", "tcp://127.0.0.1:9", discovery=daemon.addresses):
        with Resolver(daemon.query_addresses) as resolver:
            resolver.find("answer", timeout=10)
        print(daemon.query_addresses[0], flush=True)
        input()
"""


def compute(seconds: float) -> None:
    """Keep the thread busy."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


async def heartbeat(gaps: list[float]) -> None:
    """Record the gaps between wake-ups."""
    last = time.perf_counter()
    while True:
        await trio.sleep(EVERY)
        now = time.perf_counter()
        gaps.append(now - last)
        last = now


async def timed(call: Callable[[], Awaitable[Any]], times: int) -> float:
    """Return the median time of a call, in seconds."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


# ---- the three ways --------------------------------------------------------------------------------------------------


async def under_trio(address: str, calls: int) -> dict[str, float]:
    async def one_task() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.lowlevel.checkpoint)

    cancellations, gaps = [], []
    async with DaemonClient(address) as client:
        call, request = await timed(one_task, calls), await timed(lambda: client.resolve("answer"), calls)
        for _ in range(calls // 10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                await trio.testing.wait_all_tasks_blocked()
                began = time.perf_counter()
                nursery.cancel_scope.cancel()
            cancellations.append(time.perf_counter() - began)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(heartbeat, gaps)
            await trio.sleep(0.05)
            compute(COMPUTING)
            await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
    return figures(call, request, cancellations, gaps)


async def under_asyncio(run: Run, client: DaemonClient, calls: int) -> dict[str, float]:
    """Measure a way to run trio's coroutines from asyncio."""
    call = await timed(lambda: run(trio.lowlevel.checkpoint), calls)
    request = await timed(lambda: run(lambda: client.resolve("answer")), calls)
    cancellations, gaps = [], []
    for _ in range(calls // 10):
        task = asyncio.ensure_future(run(trio.sleep_forever))
        await asyncio.sleep(0.001)
        began = time.perf_counter()
        task.cancel()
        await asyncio.wait([task])
        cancellations.append(time.perf_counter() - began)
    beating = asyncio.ensure_future(run(lambda: heartbeat(gaps)))
    await asyncio.sleep(0.05)
    compute(COMPUTING)
    await asyncio.sleep(0.05)
    beating.cancel()
    await asyncio.wait([beating])
    return figures(call, request, cancellations, gaps)


async def by_portal(address: str, calls: int) -> dict[str, float]:
    client = DaemonClient(address)
    host = await asyncio.to_thread(Host, the_portal(), client)
    await asyncio.to_thread(host.open)
    try:
        return await under_asyncio(lambda function: in_portal(the_portal(), function), client, calls)
    finally:
        await asyncio.to_thread(host.close)


class Guest:
    """Trio in guest mode in the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = trio.Event()
        self.started: asyncio.Future[None] = self._loop.create_future()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._loop.call_soon_threadsafe,
            run_sync_soon_not_threadsafe=self._loop.call_soon,
            host_uses_signal_set_wakeup_fd=True,
            done_callback=lambda _: self.ended.set_result(None),
        )

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as self._nursery:
            self.started.set_result(None)
            await self._stop.wait()

    async def run(self, function: Callable[[], Awaitable[Any]]) -> Any:
        done: asyncio.Future[Any] = self._loop.create_future()
        scope = trio.CancelScope()

        async def there() -> None:
            value = None
            with scope:
                value = await function()
            if not done.done():
                done.set_result(value)

        self._token.run_sync_soon(self._nursery.start_soon, there)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            self._token.run_sync_soon(scope.cancel)
            await done
            raise

    async def end(self) -> None:
        self._token.run_sync_soon(self._stop.set)
        await self.ended


async def by_guest(address: str, calls: int) -> dict[str, float]:
    guest = Guest()
    await guest.started
    client, result = DaemonClient(address), {}
    opened, leave = asyncio.Event(), trio.Event()

    async def hold() -> None:
        async with client:
            opened.set()
            await leave.wait()

    holding = asyncio.ensure_future(guest.run(hold))
    await opened.wait()
    try:
        result = await under_asyncio(guest.run, client, calls)
    finally:
        guest._token.run_sync_soon(leave.set)
        await holding
        await guest.end()
    return result


# ---- the table -------------------------------------------------------------------------------------------------------


def figures(call: float, request: float, cancellations: list[float], gaps: list[float]) -> dict[str, float]:
    return {
        "a call, us": call * 1e6,
        "a request, us": request * 1e6,
        "a cancellation, us": statistics.median(cancellations) * 1e6,
        "a heartbeat, ms": max(gaps) * 1e3,
    }


@contextmanager
def daemon() -> Iterator[str]:
    argv = [sys.executable, "-c", DAEMON]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the figures of each round")
    arguments = parser.parse_args()
    ways: dict[str, Callable[[str, int], dict[str, float]]] = {
        "trio": lambda address, calls: trio.run(under_trio, address, calls),
        "portal": lambda address, calls: asyncio.run(by_portal(address, calls)),
        "guest mode": lambda address, calls: asyncio.run(by_guest(address, calls)),
    }
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    with daemon() as address:
        for _ in range(arguments.rounds):
            for way, measure in ways.items():
                found[way].append(measure(address, arguments.calls))
    if arguments.json:
        print(json.dumps(found))
        return
    print(f"| | {' | '.join(ways)} |\n|---|{'---|' * len(ways)}")
    for figure in found["trio"][0]:
        medians = [statistics.median(each[figure] for each in rounds) for rounds in found.values()]
        print(f"| {figure} | {' | '.join(f'{median:.0f}' for median in medians)} |")


if __name__ == "__main__":
    main()
