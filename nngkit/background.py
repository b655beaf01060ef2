"""The tasks behind an object that is used with `async with`: they end with it, and stay out of its user's way.

A nursery alone would wrap whatever the body raises into an exception group, so that `except ServiceNotFound` around
`async with ServiceDiscovery(...)` would never see one. Here the body's own exception passes untouched; a background
task that fails (a bug of ours: what the network does is handled where it happens) cancels the body and is raised
itself. Knows trio, and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

import trio

__all__ = ["Background"]


class Background:
    """Tasks that end with a block. `start` from the second half of `__aenter__` on; opened and closed by one task."""

    def __init__(self) -> None:
        self._failure: Exception | None = None
        self._outer: Any = None
        self._inner: trio.Nursery | None = None

    async def open(self) -> None:
        """Begin. `close` has to follow, in the same task."""
        self._outer = trio.open_nursery()
        outer: trio.Nursery = await self._outer.__aenter__()
        # The tasks live one nursery further in: ending them must not cancel the body, which is a part of the outer one.
        self._inner = await outer.start(self._hold)

    async def _hold(self, task_status: trio.TaskStatus[trio.Nursery]) -> None:
        async with trio.open_nursery() as inner:
            task_status.started(inner)
            await trio.sleep_forever()

    def start(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Run it until it ends or this does. Does nothing once that has begun."""
        if self._inner is not None and not self._inner.cancel_scope.cancel_called:
            self._inner.start_soon(self._run, function, *arguments)

    async def _run(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        try:
            await function(*arguments)
        except Exception as failure:
            self._failure = self._failure or failure
            raise

    def end(self) -> None:
        """Cancel the tasks; they have ended when `close` returns."""
        if self._inner is not None:
            self._inner.cancel_scope.cancel()

    async def close(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """The end of the block: cancel the tasks and wait for them. Raises what made one of them fail."""
        self.end()
        try:
            if self._failure is None:
                await self._outer.__aexit__(None, None, None)
            else:  # what cancelled the body is the nursery's own, so it has to see it
                await self._outer.__aexit__(kind, value, traceback)
        except BaseExceptionGroup as group:
            if self._failure is None:
                raise
            raise self._failure from group
