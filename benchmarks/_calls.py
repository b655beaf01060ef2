"""nngkit's Client and Server as contenders, and policies before uneven providers."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import sniffio
import trio

from _child import report
from _numbered import aask_all, ask_in_flight
from nngkit import Client, Server, Service, aio
from nngkit.discovery import Daemon, DaemonClient, DaemonSettings
from nngkit.protocols import Req
from nngkit.testing import aeventually

NAME = "answer"
WAIT = 60.0  # seconds for any one event
ANY = "tcp://127.0.0.1:0"


async def _echo(body: Any) -> Any:
    return body


# ---- servers and callers ---------------------------------------------------------------------------------------------


async def serve(task: dict[str, Any]) -> None:
    """Serve with a Server, echoing."""
    async with Server(NAME, _echo, listen=task["url"], codec=task.get("codec")) as server:
        report(url=server.address)
        await trio.sleep_forever()


@asynccontextmanager
async def _client(task: dict[str, Any]) -> AsyncIterator[Callable[[bytes], Awaitable[Any]]]:
    """Connect a client of the running loop."""
    kind: Any = Client if sniffio.current_async_library() == "trio" else aio.Client
    async with kind(NAME, addresses=task["url"], codec=task.get("codec")) as client:
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


async def req(task: dict[str, Any]) -> None:
    """Ask with a bare Req, with a timeout as every call of a Client has."""
    async with _req(task) as ask:
        await aask_all(ask, task)


async def req_many(task: dict[str, Any]) -> None:
    async with _req(task) as ask:
        await ask_in_flight(ask, task)


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


async def counted_many(task: dict[str, Any]) -> None:
    async with Req(dial=task["url"], resend=None, lost="raise") as req:
        await req.await_for_peers(1, WAIT)
        counted = _Counted(req)

        async def ask(body: bytes) -> bytes:
            return await counted.request(body, timeout=10.0)

        await ask_in_flight(ask, task)


async def ask(task: dict[str, Any]) -> None:
    async with _client(task) as ask:
        await aask_all(ask, task)


async def ask_many(task: dict[str, Any]) -> None:
    async with _client(task) as ask:
        await ask_in_flight(ask, task)


# ---- questions to a daemon -------------------------------------------------------------------------------------------


async def daemon(task: dict[str, Any]) -> None:
    """Run a daemon that knows one provider."""
    async with (
        Daemon(DaemonSettings(listen=(ANY,))) as running,
        Service(NAME, "tcp://127.0.0.1:9", discovery=running.addresses),
    ):
        await aeventually(lambda: NAME in running.discovery.snapshot(), WAIT)
        report(url=running.query_addresses[0])
        await trio.sleep_forever()


async def find(task: dict[str, Any]) -> None:
    """Ask for the provider. Under asyncio each question crosses over to trio's thread."""
    kind: Any = DaemonClient if sniffio.current_async_library() == "trio" else aio.DaemonClient
    async with kind(task["url"]) as client:

        async def ask(body: bytes) -> bytes:
            await client.resolve(NAME)
            return body

        await aask_all(ask, task)


# ---- uneven providers ------------------------------------------------------------------------------------------------


async def uneven(task: dict[str, Any]) -> None:
    """Call three providers that take 1, 2 and 4 ms, 4 calls at a time each, by the policy of the task."""
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
