"""Waits of asyncio tasks for the portal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import trio

from nngkit.portal import Calls, Wait

R = TypeVar("R")


class LoopWait(Wait):
    """Wait of a task of the running loop; the portal sets the outcome."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()

    def over(self, value: Any = None, error: BaseException | None = None) -> None:
        """Set the result; only the first call counts. In the portal's thread."""
        if self._over:
            return
        super().over(value, error)
        with suppress(RuntimeError):  # the program's loop has ended
            self._loop.call_soon_threadsafe(self._set)

    def _set(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def result(self) -> Any:
        """Return or raise the outcome."""
        await asyncio.shield(self._future)
        return self.wait()  # it is there

    async def settled(self) -> asyncio.CancelledError | None:
        """Wait for the outcome, even if cancelled; return the cancellation, which the caller raises."""
        cancelled = None
        while not self._future.done():
            try:
                await asyncio.wait([self._future])
            except asyncio.CancelledError as error:
                cancelled = error
        return cancelled


async def in_portal(portal: Calls, call: Callable[[], Awaitable[R]], unused: Callable[[R], object] | None = None) -> R:
    """Run a coroutine function in the portal. If cancelled, it was cancelled there, and has ended.

    unused   gets the result of a call that returned although it was cancelled
    """
    end, scope = LoopWait(), trio.CancelScope()
    portal.begin(call, end, scope)
    try:
        return cast(R, await end.result())
    except asyncio.CancelledError:
        portal.later(scope.cancel)
        await end.settled()
        with suppress(BaseException):  # the caller gets the cancellation
            value = end.wait()
            if unused is not None:
                unused(value)
        raise
