"""Descriptors that wake a thread or an event loop.

::

    WakeupDescriptor                    wakes a thread that polls it
    watch(loop's waiter, fd, woken)     `woken()` runs in that loop whenever `fd` is readable

May not know: NNG, connections.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nngkit.protocols._waiting.waiters import AsyncioWaiter, TaskWaiter

if TYPE_CHECKING:
    import asyncio

    import trio


class WakeupDescriptor:
    """A descriptor of a polling thread. It closes with the object."""

    __slots__ = ("_owner", "fd")

    def __init__(self) -> None:
        # An epoll object closes any descriptor that it is given, in C: a signal handler that raises ends a finalizer.
        # In a `for` statement: none runs between the two calls.
        for owner in map(select.epoll.fromfd, map(os.eventfd, (0,), (os.EFD_NONBLOCK | os.EFD_CLOEXEC,))):
            self._owner = owner
        self.fd = self._owner.fileno()

    def set(self) -> None:
        """Report an event to whom polls it edge-triggered, from any thread. It is never read."""
        os.eventfd_write(self.fd, 1)


class AsyncioWatch:
    """A descriptor watched by an asyncio loop. Raises NotImplementedError if the loop cannot (Windows' proactor)."""

    __slots__ = ("_copy", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptor: int, woken: Callable[[], None]) -> None:
        self._loop = loop
        # the socket may close its own at any time; the copy closes with this object, if the loop never runs `_stop`
        for copy in map(select.epoll.fromfd, map(os.dup, (descriptor,))):
            self._copy = copy
        loop.add_reader(self._copy.fileno(), woken)

    @property
    def ended(self) -> bool:
        """True once the loop is closed."""
        return self._loop.is_closed()

    def close(self) -> None:
        """Stop watching, from any thread. Idempotent."""
        if sys.modules["asyncio"]._get_running_loop() is self._loop:
            self._stop()
            return
        try:
            self._loop.call_soon_threadsafe(self._stop)
        except RuntimeError:  # the loop is closed and watches nothing
            self._stop()

    def _stop(self) -> None:
        if self._copy.closed:
            return
        if not self._loop.is_closed():
            self._loop.remove_reader(self._copy.fileno())
        self._copy.close()


class TrioWatch:
    """A descriptor watched by a trio run, in a system task. Raises RuntimeError if the run is about to end."""

    __slots__ = ("_closing", "_descriptor", "_lowlevel", "_token", "_woken", "ended")

    def __init__(
        self, lowlevel: Any, token: trio.lowlevel.TrioToken, descriptor: int, woken: Callable[[], None]
    ) -> None:
        self._lowlevel = lowlevel
        self._token = token
        self._woken = woken
        self._closing = False
        self.ended = False
        self._descriptor = os.dup(descriptor)
        try:
            lowlevel.spawn_system_task(self._watch)
        except BaseException:
            os.close(self._descriptor)
            raise

    async def _watch(self) -> None:
        lowlevel, descriptor = self._lowlevel, self._descriptor
        try:
            while not self._closing:
                await lowlevel.wait_readable(descriptor)
                if not self._closing:
                    self._woken()
        except sys.modules["trio"].ClosedResourceError:  # raised by ``_stop``
            pass
        finally:
            self.ended = True
            os.close(descriptor)

    def close(self) -> None:
        """Stop watching, from any thread. Idempotent."""
        try:
            self._token.run_sync_soon(self._stop)
        except sys.modules["trio"].RunFinishedError:
            pass  # the run has ended the task

    def _stop(self) -> None:
        self._closing = True
        if not self.ended:
            self._lowlevel.notify_closing(self._descriptor)


Watch = AsyncioWatch | TrioWatch


def watch(waiter: TaskWaiter, descriptor: int, woken: Callable[[], None]) -> Watch | None:
    """Run ``woken()`` in the waiter's loop, the running one, whenever ``descriptor`` is readable.

    Return None if the loop cannot watch descriptors or there is no descriptor left.
    """
    try:
        if isinstance(waiter, AsyncioWaiter):
            return AsyncioWatch(waiter.loop, descriptor, woken)
        return TrioWatch(sys.modules["trio"].lowlevel, waiter.loop, descriptor, woken)
    except (NotImplementedError, RuntimeError, OSError):
        return None
