"""Base of the classes of nngkit.aio: objects in the portal, whose methods are awaited in an asyncio loop."""

from __future__ import annotations

import asyncio
import atexit
import functools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Concatenate, Generic, ParamSpec, Self, TypeVar, cast

import trio

import nngkit.protocols  # noqa: F401 - registers its own end of the process
from nngkit.aio._bridge import Bridge
from nngkit.aio._waits import LoopWait, in_portal
from nngkit.discovery import _sigterm
from nngkit.errors import Closed, ConfigError
from nngkit.hosted import Face, Held, Hosted
from nngkit.portal import Calls, Host, Pump, end, the_portal

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

atexit.register(end)  # after nngkit.protocols registered its own, hence run before: sockets close last


class AsyncioIterator(AsyncIterator[R], Generic[R]):
    """Async iterator over an async generator in the portal. `aclose` ends it; so does garbage collection.

    A cancelled wait takes no item. With `whole` it ends the iteration, as that of an async generator: what it has begun
    must not go on for as long as the exception, whose traceback has the iterator, is kept.
    """

    def __init__(self, portal: Calls, source: AsyncGenerator[R, None], *, whole: bool = False) -> None:
        self._portal = portal
        self._whole = whole
        self._pump = Pump(source)
        self._begun = False
        self._closed = False
        self._kept: deque[R] = deque()  # items that arrived while their wait was cancelled

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> R:
        if self._closed:
            raise StopAsyncIteration
        if self._kept:
            return self._kept.popleft()
        if not self._begun:
            self._begun = True
            self._portal.spawn(self._pump.run)
        try:
            return await in_portal(self._portal, self._pump.receive.receive, self._kept.append)
        except asyncio.CancelledError:
            if self._whole:
                self._end()
            raise
        except trio.EndOfChannel:
            failure, self._pump.failure = self._pump.failure, None
            if failure is not None:
                raise failure from None
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """End the iteration. Idempotent."""
        self._end()
        await asyncio.sleep(0)

    def _end(self) -> None:
        self._closed = True
        if self._begun:
            self._portal.later(self._pump.scope.cancel)

    def close(self) -> None:
        """End the iteration, without a checkpoint. Idempotent."""
        self._end()

    def __del__(self) -> None:
        self._end()


class Waits(Face[T]):
    """Base class: calls that are awaited."""

    async def _wait(
        self, method: Callable[Concatenate[T, P], Awaitable[R]], /, *arguments: P.args, **options: P.kwargs
    ) -> R:
        """Await a coroutine method in the portal."""
        calls, inner = self._open_object()
        return await in_portal(calls, functools.partial(method, inner, *arguments, **options))

    def _iterate(
        self, method: Callable[Concatenate[T, P], AsyncGenerator[R, None]], /, *arguments: P.args, **options: P.kwargs
    ) -> AsyncioIterator[R]:
        calls, inner = self._open_object()
        return AsyncioIterator(calls, method(inner, *arguments, **options))

    async def _repeat(self, method: Callable[[T], Awaitable[R]]) -> AsyncGenerator[R, None]:
        while True:
            yield await self._wait(method)


class Handle(Waits[T], Held[T]):
    """Base class: an object in the portal that an open one has returned."""


class Aio(Waits[T], Hosted[T]):
    """Base class: an async object, hosted by the portal between `__aenter__` and `__aexit__`."""

    _block = "an `async with`"

    def __init__(self) -> None:
        super().__init__()
        self._bridge = Bridge()  # to functions of the program

    async def __aenter__(self) -> Self:
        try:
            self._bridge.loop = asyncio.get_running_loop()
        except RuntimeError:
            why = "it runs under asyncio, and no asyncio loop is running; trio programs use the class of the same name"
            raise ConfigError(type(self).__name__, f"{why} in nngkit") from None
        _sigterm.install()  # only the main thread may; the portal is another
        host = Host(the_portal(), self._inner, LoopWait)
        opened = cast(LoopWait, host.opened)
        try:
            await opened.result()
        except BaseException:
            with suppress(Closed):
                host.portal.soon(host.go)
            await cast(LoopWait, host.left).settled()
            raise
        self._host = host
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the object, as leaving the `async with` does; also when cancelled. Idempotent.

        In a function that the object has called, as a handler, return at once: it closes once that has ended.
        """
        if self._host is not None and self._is_inside:
            self._close_later()
            return
        host, self._host = self._host, None
        if host is None:
            return
        try:
            host.portal.soon(host.go)
        except Closed:
            return  # it was closed at the end of the process
        left = cast(LoopWait, host.left)
        cancelled = await left.settled()
        left.wait()
        if cancelled is not None:
            raise cancelled
