"""Three kinds of waiter with one interface: a thread, a trio task, an asyncio task.

A caller waits here or in the poller, never inside NNG, so a close, a timeout and Ctrl-C always reach it::

    waiter.wake()              from any thread, any number of times; the next wait() returns at the latest
    waiter.wait(deadline)      ThreadWaiter: blocks; the others: awaits. False once time.monotonic() passes deadline

A wake-up is a hint to check again and hands nothing over: a waiter that is cancelled or interrupted loses nothing. May
not know: NNG, sockets.
"""

from __future__ import annotations

import logging
import operator
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import starmap
from math import inf
from typing import TYPE_CHECKING, Any, Final, final
from weakref import WeakMethod

from sniffio import thread_local as _library

from nngkit.protocols._waiting.alarm import Alarm
from nngkit.protocols._waiting.faults import check_ours

if TYPE_CHECKING:
    import asyncio

    import trio


log = logging.getLogger("nngkit.protocols")

SIGNALS: Final = 0.05  # seconds after which the main thread notices a signal that came as it began to wait
MOST: Final = 4e5  # seconds from which a wait grows no more: poll counts milliseconds in 32 bits


@final
class Default:
    """The type of ``DEFAULT``: the socket's own setting applies."""

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final = Default()
Timeout = float | Default | None


def first_wait(thread: int) -> float:
    """Return the most seconds of the first wait of ``thread``, the calling one; each next one may be four times longer.

    A signal interrupts a wait of the main thread, unless it arrives after the interpreter's last check and before the
    system call: of 100 processes signalled as they began to wait, 9 did not end. So the main thread's first wait is
    short; the interpreter checks for signals between them.
    """
    return SIGNALS if thread == _main else MOST


_main = threading.main_thread().ident


def _forked() -> None:
    global _main
    _main = threading.main_thread().ident


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class ThreadWaiter:
    """A thread waiting on a lock; signals interrupt acquire, so Ctrl-C works.

    ``lock`` is held until it is woken. ``wake_poll``: while the thread polls descriptors instead, makes one of them
    readable.
    """

    __slots__ = ("__weakref__", "lock", "thread", "wake_poll")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.wake_poll: Callable[[], None] | None = None
        self.thread = 0

    def wake(self) -> None:
        # without locked() first: two threads may wake at once
        try:  # noqa: SIM105 - contextlib.suppress costs more than the release
            self.lock.release()
        except RuntimeError:
            pass
        wake_poll = self.wake_poll  # the thread may stop polling at any time
        if wake_poll is not None and threading.get_ident() != self.thread:
            wake_poll()

    def wake_from(self, loop: object) -> None:
        """Like ``wake``, called in the loop ``loop``."""
        self.wake()

    def wait(self, deadline: float | None = None) -> bool:
        longest = first_wait(threading.get_ident())
        while (left := longest if deadline is None else min(deadline - time.monotonic(), longest)) > 0:
            if self.lock.acquire(timeout=left):
                return True
            if longest < MOST:
                longest *= 4
        return self.lock.acquire(blocking=False)


class Deadlines:
    """Deadlines of all tasks that wait: one alarm for the earliest, in place of a timer of its loop for each wait.

    A wait costs an entry of a dict. The alarm may come when the wait that it was set for is over; it then finds the
    earliest of those that are left. An earlier deadline sets a further alarm. Any thread may call.
    """

    def __init__(self) -> None:
        self.waiting: dict[TaskWaiter, float] = {}
        self._at = inf  # an alarm comes no later than this
        self._alarms: dict[float, None] = {}  # times of all alarms to come: without them each would set another one
        self._alarm: Alarm | None = None  # its thread starts with the first wait, not with the import
        self.timed: object = None  # the last trio run that was found to have the system's clock

    def add(self, waiter: TaskWaiter, deadline: float) -> None:
        """Release ``waiter`` at ``deadline``, unless it is removed from `waiting` first."""
        self.waiting[waiter] = deadline
        if deadline < self._at:
            self._set(deadline)

    def _set(self, at: float) -> None:
        if self._alarm is None:
            self._alarm = Alarm(self._due)
        # neither a signal handler nor the alarm between them: a time without its alarm would keep later ones from it
        noted = (setattr, self, "_at", at), (operator.setitem, self._alarms, at, None)
        deque(starmap(operator.call, [*noted, self._alarm.step(at)]), 0)

    def _due(self) -> None:
        now, first = time.monotonic(), inf
        for at in list(self._alarms):
            if at <= now:
                self._alarms.pop(at, None)
        self._at = min(list(self._alarms), default=inf)  # a waiter with an earlier deadline sets an alarm from here on
        waiting = self.waiting.copy()
        for waiter, deadline in waiting.items():
            if deadline <= now:
                self.waiting.pop(waiter, None)
                waiter.call(waiter.release)
            elif deadline < first:
                first = deadline
        # looking at n waiters takes 0.1 us for each: at most a tenth of one CPU
        first = max(first, now + len(waiting) * 1e-6)
        if first < self._at:
            self._set(first)


deadlines: Final = Deadlines()


class _Woken:
    """Outcome of a task that is rescheduled: as outcome.Value(None), which unwraps once and takes long to make."""

    __slots__ = ()
    unwrap = type(None)  # returns None, in C


_WOKEN: Final[Any] = _Woken()


class TrioWaiter:
    """The current trio task; ``loop`` is its run's token, ``lowlevel`` the module.

    ``wait`` is a checkpoint. If cancelled, it leaves nothing behind.
    """

    __slots__ = ("_set", "_task", "loop", "lowlevel")

    def __init__(self) -> None:
        self.lowlevel = lowlevel = sys.modules["trio"].lowlevel
        self.loop: trio.lowlevel.TrioToken = lowlevel.current_trio_token()
        self._task: Any = None
        self._set = False

    @property
    def ended(self) -> bool:
        """True once the run has ended."""
        return not self.call(_nothing)

    def wake(self) -> None:
        self.call(self.wake_here)

    def call(self, function: Any) -> bool:
        """Run ``function`` soon in the waiter's loop, from any thread; return False if that loop has ended."""
        try:
            self.loop.run_sync_soon(function)
        except sys.modules["trio"].RunFinishedError:
            return False
        return True

    def wake_from(self, loop: object) -> None:
        """Like ``wake``, called in the loop ``loop``: direct if it is the waiter's own."""
        if loop is self.loop:
            self.wake_here()
        else:
            self.wake()

    def wake_here(self) -> None:
        """Like ``wake``, called in the waiter's own loop."""
        self._set = True
        task, self._task = self._task, None
        if task is not None:
            self.lowlevel.reschedule(task, _WOKEN)

    def release(self) -> None:
        """End the wait, in the waiter's own loop."""
        task, self._task = self._task, None
        if task is not None:
            self.lowlevel.reschedule(task, _WOKEN)

    def _abort(self, _: Any) -> Any:
        self._task = None
        return self.lowlevel.Abort.SUCCEEDED

    def _find_timed(self) -> bool:
        """Return True, and note it, if the run has the system's clock."""
        found = type(self.lowlevel.current_clock()).__name__ == "SystemClock"
        if found:
            deadlines.timed = self.loop
        return found

    async def wait(self, deadline: float | None = None) -> bool:
        lowlevel = self.lowlevel
        if self._set or (deadline is not None and deadline <= time.monotonic()):
            await lowlevel.checkpoint()
        elif deadline is not None and deadlines.timed is not self.loop and not self._find_timed():
            # a clock of tests, whose time passes as it likes
            with sys.modules["trio"].move_on_after(deadline - time.monotonic()):
                return await self.wait()
            return False
        else:
            if deadline is not None:
                deadlines.add(self, deadline)
            try:
                self._task = lowlevel.current_task()
                await lowlevel.wait_task_rescheduled(self._abort)
            finally:
                self._task = None
                if deadline is not None:
                    deadlines.waiting.pop(self, None)
        woken, self._set = self._set, False
        return woken or deadline is None or time.monotonic() < deadline


class AsyncioWaiter:
    """The current asyncio task. If cancelled, it leaves nothing behind. ``loop``: its loop."""

    __slots__ = ("_future", "_set", "loop")

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = sys.modules["asyncio"].get_running_loop()
        self._future: asyncio.Future[None] | None = None
        self._set = False

    @property
    def ended(self) -> bool:
        """True once the loop is closed."""
        return self.loop.is_closed()

    def wake(self) -> None:
        self.call(self.wake_here)

    def call(self, function: Any) -> bool:
        """Run ``function`` soon in the waiter's loop, from any thread; return False if that loop has ended."""
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            return False
        return True

    def wake_from(self, loop: object) -> None:
        """Like ``wake``, called in the loop ``loop``: direct if it is the waiter's own."""
        if loop is self.loop:
            self.wake_here()
        else:
            self.wake()

    def wake_here(self) -> None:
        """Like ``wake``, called in the waiter's own loop."""
        self._set = True
        self.release()

    def release(self) -> None:
        """End the wait, in the waiter's own loop."""
        future, self._future = self._future, None
        if future is not None and not future.done():
            future.set_result(None)

    async def wait(self, deadline: float | None = None) -> bool:
        if self._set or (deadline is not None and deadline <= time.monotonic()):
            await sys.modules["asyncio"].sleep(0)
        else:
            future = self._future = self.loop.create_future()
            if deadline is None:
                await future
            else:
                deadlines.add(self, deadline)
                try:
                    await future
                finally:
                    deadlines.waiting.pop(self, None)
        woken, self._set = self._set, False
        return woken or deadline is None or time.monotonic() < deadline


def _nothing() -> None:
    pass


TaskWaiter = TrioWaiter | AsyncioWaiter
Waiter = ThreadWaiter | TrioWaiter | AsyncioWaiter


def wake_all(waiters: set[Any], loop: object = None) -> None:
    """Wake each waiter; ``loop``: the loop in which this is called, if known. One that raises is logged."""
    for waiter in waiters.copy():
        try:
            if loop is None:
                waiter.wake()  # the only method that a batcher has, which waits for room too
            else:
                waiter.wake_from(loop)
        except Exception as wrong:
            check_ours(wrong)
            log.exception("a waiter could not be woken")


def in_trio() -> bool:
    """Return True in a trio run, a guest run under asyncio included."""
    return _library.name == "trio"  # trio sets it; its in_trio_task takes six times as long where there is no task


def task_waiter() -> TaskWaiter:
    """Return a waiter for the running task. Raises RuntimeError outside trio and asyncio."""
    return TrioWaiter() if _library.name == "trio" else AsyncioWaiter()


async def checkpoint_before() -> bool:
    """Run the cancellable checkpoint before anything is taken; return True under trio.

    Under asyncio the yield is here too: an await after taking a message could lose it to a cancellation.
    """
    if in_trio():
        await sys.modules["trio"].lowlevel.checkpoint_if_cancelled()
        return True
    await sys.modules["asyncio"].sleep(0)
    return False


async def checkpoint_after(trio_task: bool) -> None:
    """Run the schedule point that trio requires after something was taken; it cannot be cancelled."""
    if trio_task:
        await sys.modules["trio"].lowlevel.cancel_shielded_checkpoint()


def soon(function: Callable[[], None]) -> None:
    """Run ``function`` in the running loop, after the tasks that are ready now."""
    if in_trio():
        sys.modules["trio"].lowlevel.current_trio_token().run_sync_soon(function, idempotent=True)
    else:
        sys.modules["asyncio"].get_running_loop().call_soon(function)


async def sleep(seconds: float) -> None:
    """Let other tasks run for ``seconds``."""
    await sys.modules["trio" if in_trio() else "asyncio"].sleep(seconds)


def weakly(method: Callable[..., Any], otherwise: Any = None) -> Callable[..., Any]:
    """Return a callback for ``method`` that does not keep its object alive, and then returns ``otherwise``."""
    reference = WeakMethod(method)

    def call(*arguments: Any) -> Any:
        bound = reference()
        return otherwise if bound is None else bound(*arguments)

    return call
