"""Base of the classes that are used with `async with`: their background tasks, and the errors of other uses.

The tasks of a `Background` end with the object, and stay out of its user's way.

A nursery alone would wrap whatever the body raises into an exception group, so that `except ServiceNotFound` around
`async with ServiceDiscovery(...)` would never see one. Here the body's own exception passes untouched; a background
task that fails (a bug of ours: what the network does is handled where it happens) cancels the body and is raised
itself.

`UnderTrio` is the base class of these objects. Knows trio and the errors, and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import trio

from nngkit.errors import Closed, ConfigError

__all__ = ["Background", "UnderTrio", "demand_trio"]

_OTHERWISE: Final = (
    "programs without a loop use nngkit.blocking, those under asyncio too, in threads (asyncio.to_thread)"
)


def demand_trio(what: str, *, blocking: bool = True) -> None:
    """Raise ConfigError, which names `what`, unless a trio loop runs here. `blocking`: nngkit.blocking has it too."""
    try:
        trio.lowlevel.current_trio_token()
    except RuntimeError:
        why = "it runs under trio, and no trio loop runs here: trio.run(main) starts one"
        raise ConfigError(what, f"{why}; {_OTHERWISE}" if blocking else why) from None


class UnderTrio:
    """Base class of what is used with `async with`, under trio. It tells who uses it otherwise what to do.

    A subclass calls `_entering` first in `__aenter__`, and makes there, under names that begin with "_", what only
    exists in the block. Before the block such a name raises Closed. `_blocking`: nngkit.blocking has the class too.
    """

    _blocking: ClassVar[bool] = True

    def _entering(self) -> None:
        """Raise ConfigError unless a trio loop runs here."""
        demand_trio(type(self).__name__, blocking=self._blocking)
        self.__dict__["_entered"] = True

    if not TYPE_CHECKING:  # mypy would take every misspelt attribute for one of these

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") and not name.startswith("__") and "_entered" not in self.__dict__:
                use = f"this {type(self).__name__} is not open: use it in an `async with`, under trio"
                raise Closed(f"{use}; {_OTHERWISE}" if self._blocking else use)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)


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
