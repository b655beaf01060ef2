"""Base of the classes of nngkit.blocking: objects in the portal, whose calls block the calling thread."""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import nngkit.protocols  # noqa: F401 - registers its own end of the process
from nngkit.discovery import _sigterm
from nngkit.hosted import Hosted
from nngkit.loop_waits import asked_by, on_behalf
from nngkit.portal import BlockingIterator, Host, end, the_portal

__all__ = ["Blocking", "blocking_call", "iterated"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

atexit.register(end)  # after nngkit.protocols registered its own, hence run before: sockets close last


class Blocking(Hosted[T]):
    """Base class: an async object, hosted by the portal between `__enter__` and `__exit__`."""

    _block = "a `with`"

    def _construct(self, *arguments: Any, **options: Any) -> None:
        super()._construct(*arguments, **options)
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
        """Close the object, as leaving the `with` does. Idempotent."""
        host, self._host = self._host, None
        if host is not None and self._pid == os.getpid():
            host.close()


def blocking_call(method: Callable[Concatenate[T, P], Awaitable[R]]) -> Callable[Concatenate[Blocking[T], P], R]:
    """Wrap a coroutine method: the call blocks until it returns."""

    @on_behalf
    @functools.wraps(method)
    def call(self: Blocking[T], /, *arguments: P.args, **options: P.kwargs) -> R:
        portal, inner = self._open_object()
        return portal.call(method, inner, *arguments, **options)

    return call


def iterated(
    method: Callable[Concatenate[T, P], AsyncGenerator[R, None]],
) -> Callable[Concatenate[Blocking[T], P], BlockingIterator[R]]:
    """Wrap an async generator method as a blocking iterator; closing it closes the generator."""

    @functools.wraps(method)
    def call(self: Blocking[T], /, *arguments: P.args, **options: P.kwargs) -> BlockingIterator[R]:
        portal, inner = self._open_object()
        return BlockingIterator(portal, method(inner, *arguments, **options))

    return call
