"""Base of the classes of nngkit.blocking: objects in the portal, whose calls block the calling thread."""

from __future__ import annotations

import atexit
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

import nngkit.protocols  # noqa: F401 - registers its own end of the process
from nngkit.discovery import _sigterm
from nngkit.hosted import Face, Held, Hosted
from nngkit.loop_waits import asked_by, on_behalf
from nngkit.portal import BlockingIterator, Host, end, the_portal

__all__ = ["Blocking", "Handle", "Waits"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

atexit.register(end)  # after nngkit.protocols registered its own, hence run before: sockets close last


class Waits(Face[T]):
    """Base class: calls that block the calling thread."""

    def _wait(self, method: Callable[Concatenate[T, P], Awaitable[R]], /, *arguments: P.args, **options: P.kwargs) -> R:
        """Run a coroutine method in the portal, and wait until it returns."""
        calls, inner = self._open_object()
        return calls.call(method, inner, *arguments, **options)

    def _iterate(
        self, method: Callable[Concatenate[T, P], AsyncGenerator[R, None]], /, *arguments: P.args, **options: P.kwargs
    ) -> BlockingIterator[R]:
        calls, inner = self._open_object()
        return BlockingIterator(calls, method(inner, *arguments, **options))

    @on_behalf
    def _next(self, method: Callable[[T], Awaitable[R]]) -> R:
        return self._wait(method)

    def _repeat(self, method: Callable[[T], Awaitable[R]]) -> Iterator[R]:
        while True:
            try:
                item = self._next(method)
            except StopAsyncIteration:
                return
            yield item


class Handle(Waits[T], Held[T]):
    """Base class: an object in the portal that an open one has returned."""


class Blocking(Waits[T], Hosted[T]):
    """Base class: an async object, hosted by the portal between `__enter__` and `__exit__`."""

    _block = "a `with`"

    def __init__(self) -> None:
        super().__init__()
        asked_by()  # registers this thread's asyncio loop, if any, for the threads that it starts from now on

    def __enter__(self) -> Self:
        _sigterm.install()  # only the main thread may; the loop runs in another
        host = Host(the_portal(), self._inner)
        host.open()
        self._host = host
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the object, as leaving the `with` does. Idempotent.

        In a function that the object has called, as a handler, or that any object calls in the loop, return at once: it
        closes once that has ended.
        """
        if self._host is not None and (self._is_inside or self._host.portal.is_here):
            self._close_later()
            return
        host, self._host = self._host, None
        if host is not None and self._pid == os.getpid():
            host.close()
