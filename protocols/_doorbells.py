"""A descriptor watched inside an event loop: NNG's word reaches the loop without a thread of NNG's in between.

A callback of NNG's runs Python on a thread of its own: it needs the GIL, which the loop works with, and then has to
wake the loop. A descriptor that the loop polls anyway costs neither. It is a duplicate, so that NNG may close its own
at any time, and it is level-triggered: what is not taken rings again, so no ring is lost::

    bell = waiter.doorbell(descriptor, rung)    in the loop; None where this loop cannot watch descriptors
    bell.listen()                               in the loop: ``rung()`` runs there when there is something to take,
                                                and goes on to be called as long as it returns True
    bell.close()                                from any thread

May not know: NNG, sockets.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    import trio


class AsyncioDoorbell:
    """In an asyncio loop. Raises NotImplementedError where the loop watches no descriptors (Windows' proactor)."""

    __slots__ = ("_descriptor", "_loop", "_rung", "listening")

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptor: int, rung: Callable[[], bool]) -> None:
        self._descriptor = -1
        self._loop = loop
        self._rung = rung
        self.listening = False
        self._descriptor = os.dup(descriptor)

    @property
    def ended(self) -> bool:
        """Whether the loop is no more."""
        return self._loop.is_closed()

    def listen(self) -> None:
        """See above. Idempotent."""
        if not self.listening and self._descriptor >= 0:
            self._loop.add_reader(self._descriptor, self._readable)
            self.listening = True

    def _readable(self) -> None:
        if not self._rung() and self.listening:
            self.listening = False
            self._loop.remove_reader(self._descriptor)

    def close(self) -> None:
        """See above. Idempotent."""
        if sys.modules["asyncio"]._get_running_loop() is self._loop:
            self._stop()
            return
        try:
            self._loop.call_soon_threadsafe(self._stop)
        except RuntimeError:  # closed, and with it what it watched
            self._stop()

    def _stop(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        if self.listening and not self._loop.is_closed():
            self._loop.remove_reader(descriptor)
        self.listening = False
        os.close(descriptor)

    def __del__(self) -> None:
        # a loop that was closed before it ran ``_stop``
        if self._descriptor >= 0:
            os.close(self._descriptor)


class TrioDoorbell:
    """In a trio run, as a system task. Raises RuntimeError where the run is about to end."""

    __slots__ = ("_closing", "_descriptor", "_lowlevel", "_parked", "_rung", "_token", "ended", "listening")

    def __init__(
        self, lowlevel: Any, token: trio.lowlevel.TrioToken, descriptor: int, rung: Callable[[], bool]
    ) -> None:
        self._lowlevel = lowlevel
        self._token = token
        self._rung = rung
        self._parked: Any = None
        self._closing = False
        self.listening = False
        self.ended = False
        self._descriptor = os.dup(descriptor)
        try:
            lowlevel.spawn_system_task(self._watch)
        except BaseException:
            os.close(self._descriptor)
            raise

    def listen(self) -> None:
        """See above. Idempotent."""
        if not self.ended:
            self.listening = True
            self._unpark()

    def _unpark(self) -> None:
        task, self._parked = self._parked, None
        if task is not None:
            self._lowlevel.reschedule(task)

    def _abort(self, _: Any) -> Any:
        self._parked = None
        return self._lowlevel.Abort.SUCCEEDED

    async def _watch(self) -> None:
        lowlevel, descriptor = self._lowlevel, self._descriptor
        try:
            while not self._closing:
                if not self.listening:
                    self._parked = lowlevel.current_task()
                    await lowlevel.wait_task_rescheduled(self._abort)
                    continue
                await lowlevel.wait_readable(descriptor)
                if not self._closing:
                    self.listening = self._rung()
        except sys.modules["trio"].ClosedResourceError:  # from ``_stop``
            pass
        finally:
            self.ended, self.listening = True, False
            os.close(descriptor)

    def close(self) -> None:
        """See above. Idempotent."""
        try:
            self._token.run_sync_soon(self._stop)
        except sys.modules["trio"].RunFinishedError:
            pass  # which ended the task

    def _stop(self) -> None:
        self._closing = True
        self._unpark()
        if not self.ended:
            self._lowlevel.notify_closing(self._descriptor)


Doorbell = AsyncioDoorbell | TrioDoorbell
