"""Base for objects that are used with `async with` under trio: background tasks, wake-ups, and checks of their use.

`Background` runs tasks that end with the object. A nursery alone would wrap exceptions of the body in an exception
group, so that `except ServiceNotFound` around `async with ServiceDiscovery(...)` would never match. Here the body's own
exception passes unchanged. A background task that fails (a bug: network errors are handled where they occur) cancels
the body, and its exception is raised.

`WakeUp` is a reusable wake-up for tasks. `UnderTrio` is the base class of these objects.

Depends on trio and nngkit.errors only.
"""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import trio

from nngkit.errors import Closed, ConfigError

_inside: contextvars.ContextVar[tuple[Background, ...]] = contextvars.ContextVar("inside", default=())
_calling: contextvars.ContextVar[Calling | None] = contextvars.ContextVar("calling", default=None)
_ALTERNATIVES: Final = "asyncio programs use nngkit.aio, and programs without an event loop nngkit.blocking"


def demand_trio(what: str, *, blocking: bool = True) -> None:
    """Raise ConfigError, naming `what`, unless called under trio. `blocking`: nngkit.blocking offers it as well."""
    try:
        trio.lowlevel.current_trio_token()
    except RuntimeError:
        why = "it runs under trio, and no trio loop is running: start one with trio.run(main)"
        raise ConfigError(what, f"{why}; {_ALTERNATIVES}" if blocking else why) from None


class UnderTrio:
    """Base class of objects that are used with `async with`, under trio; it reports any other use with a remedy.

    A subclass calls `_entering` first in `__aenter__`. Attributes that exist only inside the block are created there
    and begin with "_": before the block, reading one raises Closed. Its tasks are those of `_background`. At the end of
    the block `_before_end` is called, they are ended, and `_after_end` is called, whatever has failed before.
    """

    _background: Background

    def _entering(self) -> None:
        """Raise ConfigError unless called under trio."""
        demand_trio(type(self).__name__)
        self.__dict__["_entered"] = True

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            try:
                await self._before_end()
            finally:
                await self._background.close(kind, value, traceback)
        finally:
            await self._after_end()

    @property
    def closed(self) -> bool:
        """True once its block has ended, or begun to end."""
        background: Background | None = self.__dict__.get("_background")
        return "_is_closed" in self.__dict__ or (background is not None and background.is_over)

    @property
    def _is_inside(self) -> bool:
        """True in a function that the object has called, see `Background.is_inside`."""
        background: Background | None = self.__dict__.get("_background")
        return background is not None and background.is_inside

    def _put_off(self, end: Callable[[], object]) -> None:
        """Call `end`, which closes the object, once that function has returned; see `Background.put_off`."""
        background: Background | None = self.__dict__.get("_background")
        if background is None:
            end()
        else:
            background.put_off(end)

    async def _before_end(self) -> None:
        """Close what the tasks use, while they still run."""

    async def _after_end(self) -> None:
        """Free what the tasks have used."""

    if not TYPE_CHECKING:  # with a __getattr__ in sight, mypy would accept any misspelt attribute

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") and not name.startswith("__") and "_entered" not in self.__dict__:
                use = f"this {type(self).__name__} is not open: use it in an `async with`, under trio"
                raise Closed(f"{use}; {_ALTERNATIVES}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)


class WakeUp:
    """Reusable wake-up for trio tasks. Create it inside trio.

    A wake-up is a hint: it carries no value, several in a row may merge into one, and a wake-up without a waiter is
    kept for the next `wait`. A waiter therefore re-checks its condition after every return::

        while not condition():
            await wake_up.wait()
    """

    def __init__(self) -> None:
        self._event = trio.Event()
        self._token = trio.lowlevel.current_trio_token()

    def wake(self) -> None:
        """Wake all waiters; without one, the next `wait` returns at once. Call it in the loop's thread."""
        self._event.set()

    def wake_soon(self) -> bool:
        """Schedule `wake` from any thread. Return False if the loop has ended."""
        try:
            self._token.run_sync_soon(self.wake, idempotent=True)
        except trio.RunFinishedError:
            return False
        return True

    def clear(self) -> None:
        """Discard a wake-up that is kept."""
        if self._event.is_set():
            self._event = trio.Event()

    async def wait(self) -> None:
        """Wait for the next wake-up, or consume the one that is kept."""
        event = self._event
        await event.wait()
        if event is self._event:  # the first of several waiters re-arms
            self._event = trio.Event()


class Calling:
    """Task that calls functions of the program, one after the other: what such a function closes is closed once it has
    returned, as the end of `background` would cancel it.

    The task calls `returned` after each of them, if anything is `put_off`.
    """

    def __init__(self, background: Background) -> None:
        self.background = background
        self.put_off: deque[Callable[[], object]] = deque()
        self._over = False

    async def run(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Run the task: `function` gets this object first."""
        _calling.set(self)
        try:
            await function(self, *arguments)
        finally:
            self._over = True
            self.returned()

    def add(self, end: Callable[[], object]) -> None:
        """Have `end` called by `returned`; at once after the task, as in an abandoned thread. Any thread may call."""
        self.put_off.append(end)
        if self._over:
            self.returned()

    def returned(self) -> None:
        """Do what the function has put off."""
        while self.put_off:
            with suppress(IndexError):  # another thread was faster
                self.put_off.popleft()()


class Background:
    """Tasks that end with an `async with` block. `open` and `close` are called by the same task.

    It is such a block itself: `async with Background() as tasks`. A cancellation from outside reaches the body alone;
    the tasks run until `end` or `close`.
    """

    def __init__(self) -> None:
        self._failure: Exception | None = None
        self._outer: Any = None
        self._inner: trio.Nursery | None = None
        self._early: list[tuple[Any, ...]] = []
        self.is_over = False
        """True once the tasks were cancelled. Any thread may read it."""

    @property
    def is_inside(self) -> bool:
        """True in these tasks and what they have called or started, in threads and other loops too: a handler's code.

        A caller that waits there for all of these tasks waits for itself.
        """
        return self in _inside.get()

    def put_off(self, end: Callable[[], object]) -> None:
        """Call `end` once the function of the program that these tasks have called has returned; elsewhere at once."""
        calling = _calling.get()
        if calling is None or calling.background is not self:
            end()
        else:
            calling.add(end)

    @property
    def failure(self) -> Exception | None:
        """Exception of the first task that failed, which ends the block."""
        return self._failure

    def ended(self, why: str) -> Exception:
        """Return the error for waiters of an object that has ended: that of the task that failed, else Closed."""
        return self._failure or Closed(why)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close(kind, value, traceback)

    @trio.lowlevel.enable_ki_protection
    async def open(self) -> None:
        """Open the nursery, in `__aenter__`, without a checkpoint. The same task must call `close`."""
        self._outer = trio.open_nursery()
        outer: trio.Nursery = await self._outer.__aenter__()
        # Tasks run in a nested nursery: ending them must not cancel the body, which belongs to the outer one. It is
        # not waited for: `Nursery.start` never returns if a Ctrl-C or a cancellation comes meanwhile to a task that
        # is shielded, as trio then neither hands it over nor can end it.
        outer.start_soon(self._hold)

    async def _hold(self) -> None:
        # shielded: a block that is cancelled from outside still needs its tasks to leave in order, and then ends them
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as self._inner:
                for context, function, *arguments in self._early:
                    context.run(self._inner.start_soon, self._run, function, *arguments)
                self._early.clear()
                if self.is_over:
                    self._inner.cancel_scope.cancel()
                await trio.sleep_forever()

    def start(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Start a task that runs until it returns or the block ends. Does nothing after `end`."""
        if self.is_over or (self._inner is not None and self._inner.cancel_scope.cancel_called):
            return
        if self._inner is None:  # the holder has not had its first turn
            self._early.append((contextvars.copy_context(), function, *arguments))
        else:
            self._inner.start_soon(self._run, function, *arguments)

    def start_calling(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Start a task that calls functions of the program; `function` gets a `Calling` first."""
        self.start(Calling(self).run, function, *arguments)

    async def _run(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        if not self.is_inside:
            _inside.set((*_inside.get(), self))
        try:
            await function(*arguments)
        except Exception as failure:
            self._failure = self._failure or failure
            raise

    def end(self) -> None:
        """Cancel the tasks. They have ended when `close` returns."""
        self.is_over = True
        if self._inner is not None:
            self._inner.cancel_scope.cancel()

    async def close(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Cancel the tasks and wait for them, in `__aexit__`. Raises the exception of the first task that failed."""
        self.end()
        try:
            if self._failure is None:
                await self._outer.__aexit__(None, None, None)
            else:  # the body was cancelled by the nursery itself, which must see that Cancelled again
                await self._outer.__aexit__(kind, value, traceback)
        except BaseExceptionGroup as group:
            if self._failure is None:
                raise
            raise self._failure from group
