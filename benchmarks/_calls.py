"""nngkit's Client and Server as contenders, and policies before uneven providers."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio

from _child import report
from _numbered import aask_all, ask_in_flight, ask_in_flight_asyncio
from nngkit import Client, Server
from nngkit.protocols import Req

NAME = "answer"
WAIT = 60.0  # seconds for any one event
ANY = "tcp://127.0.0.1:0"


async def _echo(body: Any) -> Any:
    return body


# ---- servers and callers ---------------------------------------------------------------------------------------------


def serve(task: dict[str, Any]) -> None:
    """Serve with a Server, echoing."""

    async def main() -> None:
        async with Server(NAME, _echo, listen=task["url"], codec=task.get("codec")) as server:
            report(url=server.address)
            await trio.sleep_forever()

    trio.run(main)


@asynccontextmanager
async def _client(task: dict[str, Any]) -> AsyncIterator[Callable[[bytes], Awaitable[Any]]]:
    codec = task.get("codec")
    async with Client(NAME, addresses=task["url"], codec=codec) as client:
        await client.wait_for_providers(timeout=WAIT)

        async def ask(body: bytes) -> Any:
            return await client.request(body, timeout=10.0)

        yield ask


@asynccontextmanager
async def _req(task: dict[str, Any]) -> AsyncIterator[Callable[[bytes], Awaitable[Any]]]:
    async with Req(dial=task["url"]) as req:
        await req.await_for_peers(1, WAIT)

        async def ask(body: bytes) -> Any:
            return await req.arequest(body, timeout=10.0)

        yield ask


def req_trio(task: dict[str, Any]) -> None:
    """Ask with a bare Req, with a timeout as every call of a Client has."""

    async def main() -> None:
        async with _req(task) as ask:
            await aask_all(ask, task)

    trio.run(main)


def req_many_trio(task: dict[str, Any]) -> None:
    async def main() -> None:
        async with _req(task) as ask, trio.open_nursery() as nursery:
            await ask_in_flight(ask, task, nursery.start_soon, trio.sleep)

    trio.run(main)


class _Counted:
    """The least that a Client promises of each call, over a bare Req: for one provider, which never fails.

    A choice of the provider, a deadline, a budget of retries, and counts of calls and of their times. Calls of other
    threads, and readers of the counts, may come between any two statements.
    """

    def __init__(self, req: Req) -> None:
        self._lock = threading.Lock()
        self._usable = [req]
        self.requests = self.in_progress = self.failures = 0
        self.budget = 0.0
        self.last_reply = 0.0
        self.times: list[float] = []

    async def request(self, body: bytes, timeout: float) -> bytes:
        began = time.monotonic()
        with self._lock:
            req = self._usable[0]
            self.requests += 1
            self.in_progress += 1
            self.budget += 0.2
        try:
            reply = await req.arequest(body, timeout=timeout)
        except BaseException:
            with self._lock:
                self.in_progress -= 1
                self.failures += 1
            raise
        now = time.monotonic()
        with self._lock:
            self.in_progress -= 1
            self.failures = 0
            self.last_reply = now
            self.times.append(now - began)
            if len(self.times) >= 256:
                self.times.clear()
        return reply


def counted_many_trio(task: dict[str, Any]) -> None:
    async def main() -> None:
        async with Req(dial=task["url"], resend=None, lost="raise") as req, trio.open_nursery() as nursery:
            await req.await_for_peers(1, WAIT)
            counted = _Counted(req)

            async def ask(body: bytes) -> bytes:
                return await counted.request(body, timeout=10.0)

            await ask_in_flight(ask, task, nursery.start_soon, trio.sleep)

    trio.run(main)


def ask_trio(task: dict[str, Any]) -> None:
    async def main() -> None:
        async with _client(task) as ask:
            await aask_all(ask, task)

    trio.run(main)


def ask_many_trio(task: dict[str, Any]) -> None:
    async def main() -> None:
        async with _client(task) as ask, trio.open_nursery() as nursery:
            await ask_in_flight(ask, task, nursery.start_soon, trio.sleep)

    trio.run(main)


@asynccontextmanager
async def _aio_client(task: dict[str, Any]) -> AsyncIterator[Callable[[bytes], Awaitable[Any]]]:
    from nngkit import aio

    async with aio.Client(NAME, addresses=task["url"], codec=task.get("codec")) as client:
        await client.wait_for_providers(timeout=WAIT)

        async def ask(body: bytes) -> Any:
            return await client.request(body, timeout=10.0)

        yield ask


def ask_asyncio(task: dict[str, Any]) -> None:
    async def main() -> None:
        async with _aio_client(task) as ask:
            await aask_all(ask, task)

    asyncio.run(main())


def ask_many_asyncio(task: dict[str, Any]) -> None:
    async def main() -> None:
        async with _aio_client(task) as ask:
            await ask_in_flight_asyncio(ask, task)

    asyncio.run(main())


# ---- uneven providers ------------------------------------------------------------------------------------------------


def uneven(task: dict[str, Any]) -> None:
    """Call three providers that take 1, 2 and 4 ms, 4 calls at a time each, by the policy of the task."""
    trio.run(_uneven, task)


async def _uneven(task: dict[str, Any]) -> None:
    report(url="")
    times: list[float] = []

    def handler(seconds: float) -> Callable[[Any], Awaitable[Any]]:
        async def handle(body: Any) -> Any:
            await trio.sleep(seconds)
            return body

        return handle

    async with AsyncExitStack() as stack:
        addresses = []
        for seconds in (0.004, 0.008, 0.016):
            server = await stack.enter_async_context(Server(NAME, handler(seconds), concurrency=4))
            addresses.append(server.address)
        client = await stack.enter_async_context(Client(NAME, addresses=addresses, policy=task["policy"]))
        await client.wait_for_providers(3, timeout=WAIT)
        end = trio.current_time() + task["seconds"]

        async def call() -> None:
            began = time.perf_counter()
            await client.request(b"x", timeout=WAIT)
            times.append(time.perf_counter() - began)

        async with trio.open_nursery() as nursery:
            due = trio.current_time()
            while due < end:  # open loop: a slow reply does not slow down the next call
                nursery.start_soon(call)
                due += 1 / task["rate"]
                await trio.sleep_until(due)
    times.sort()
    report(
        times=len(times),
        p50_ms=statistics.median(times) * 1000,
        p99_ms=times[int(len(times) * 0.99)] * 1000,
    )
