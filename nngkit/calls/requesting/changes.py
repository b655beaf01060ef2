"""Wake-ups for threads, trio tasks and asyncio tasks that wait for a change of a pool.

A wake-up is a hint: the waiter looks at the pool again. A change between looking and waiting is not missed, as the
waiter passes the version that it has seen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from sniffio import thread_local as _library


def under_trio() -> bool:
    """Return True in a trio run."""
    return _library.name == "trio"


def make_event() -> Any:
    """Return an event of the running loop."""
    if under_trio():
        import trio

        return trio.Event()
    import asyncio

    return asyncio.Event()


async def wait_for(event: Any, seconds: float) -> None:
    """Wait for an event of the running loop, at most `seconds`."""
    if under_trio():
        import trio

        with trio.move_on_after(seconds):
            await event.wait()
    else:
        import asyncio

        with suppress(TimeoutError):
            async with asyncio.timeout(None if seconds == float("inf") else seconds):
                await event.wait()


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
            with suppress(RuntimeError):  # its loop has ended
                wake()

    def wait(self, version: int, seconds: float) -> None:
        """Block until the count differs from `version`, at most `seconds`."""
        deadline = time.monotonic() + seconds
        with self._condition:
            while self.version == version and (left := deadline - time.monotonic()) > 0:
                self._condition.wait(min(left, threading.TIMEOUT_MAX))

    async def await_(self, version: int, seconds: float) -> None:
        """Like `wait`, for a task."""
        event = make_event()
        wake = partial(_soon(), event.set)
        with self._condition:
            if self.version == version:
                self._wakes.add(wake)
            else:
                seconds = 0.0
        try:
            await wait_for(event, seconds)
        finally:
            with self._condition:
                self._wakes.discard(wake)


def _soon() -> Callable[..., object]:
    """Return what calls a function in the running loop, from any thread. It raises RuntimeError once that has ended."""
    if under_trio():
        import trio

        return trio.lowlevel.current_trio_token().run_sync_soon
    import asyncio

    return asyncio.get_running_loop().call_soon_threadsafe
