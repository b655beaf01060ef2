"""Wake-ups for threads, trio tasks and asyncio tasks that wait for a change of a pool.

A wake-up is a hint: the waiter looks at the pool again. A change between looking and waiting is not missed, as the
waiter passes the version that it has seen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from sniffio import thread_local as _library


def under_trio() -> bool:
    """Return True in a trio run."""
    return _library.name == "trio"


class Changes:
    """Count of changes, and its waiters. Any thread may call."""

    def __init__(self) -> None:
        self.version = 0
        self._condition = threading.Condition()
        self._wakes: set[Callable[[], object]] = set()

    def notify(self) -> None:
        """Count a change, and wake all waiters."""
        with self._condition:
            self.version += 1
            wakes, self._wakes = self._wakes, set()
            self._condition.notify_all()
        for wake in wakes:
            wake()

    def wait(self, version: int, seconds: float) -> None:
        """Block until the count differs from `version`, at most `seconds`."""
        deadline = time.monotonic() + seconds
        with self._condition:
            while self.version == version and (left := deadline - time.monotonic()) > 0:
                self._condition.wait(min(left, threading.TIMEOUT_MAX))

    async def await_(self, version: int, seconds: float) -> None:
        """Like `wait`, for a task."""
        if under_trio():
            await self._under_trio(version, seconds)
        else:
            await self._under_asyncio(version, seconds)

    def _register(self, version: int, wake: Callable[[], object]) -> bool:
        with self._condition:
            if self.version != version:
                return False
            self._wakes.add(wake)
            return True

    def _unregister(self, wake: Callable[[], object]) -> None:
        with self._condition:
            self._wakes.discard(wake)

    async def _under_trio(self, version: int, seconds: float) -> None:
        import trio

        event = trio.Event()
        token = trio.lowlevel.current_trio_token()

        def wake() -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(event.set)

        if not self._register(version, wake):
            await trio.lowlevel.checkpoint()
            return
        try:
            with trio.move_on_after(seconds):
                await event.wait()
        finally:
            self._unregister(wake)

    async def _under_asyncio(self, version: int, seconds: float) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def done() -> None:
            if not future.done():
                future.set_result(None)

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(done)

        if not self._register(version, wake):
            await asyncio.sleep(0)
            return
        timer = None if seconds == float("inf") else loop.call_later(seconds, done)
        try:
            await future
        finally:
            if timer is not None:
                timer.cancel()
            self._unregister(wake)
