"""Calling something later, or now from elsewhere: one thread for all sockets of the process, asleep while none is set.

Not NNG's timers: when one is over, NNG 1.11 goes round in circles for the rest of that millisecond, on a CPU of its own
(``nni_aio_expire_loop`` asks for "before now" where it waited for "now"; docs/nng/timer_spins.py).

May not know: sockets, messages, NNG.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import operator
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any
from weakref import WeakMethod

log = logging.getLogger("nngkit.protocols")

_order = itertools.count()  # so that entries of one time compare
_requests: SimpleQueue[tuple[float, int, Callable[[], None]]] = SimpleQueue()
_starting = threading.Lock()
_thread: threading.Thread | None = None


def _run() -> None:
    waiting: list[tuple[float, int, Callable[[], None]]] = []
    while True:
        with suppress(Empty):
            heapq.heappush(waiting, _next(max(0.0, waiting[0][0] - time.monotonic()) if waiting else None))
        while waiting and waiting[0][0] <= time.monotonic():
            try:
                heapq.heappop(waiting)[2]()
            except Exception:
                log.exception("an alarm failed")


def _next(timeout: float | None) -> tuple[float, int, Callable[[], None]]:
    """The next request; raises Empty.

    CPython's ``get(timeout=)`` (3.11) waits for ever if its lock is free when it comes and the time is over before it
    looks at the clock again: it then waits for a negative time, which means no end. After a ``get`` that found nothing
    and did not wait, the lock is not free until something is put. (tests/protocols/test_alarm.py)
    """
    with suppress(Empty):
        return _requests.get(block=False)
    return _requests.get(timeout=timeout)


def _start() -> None:
    global _thread
    with _starting:
        if _thread is None:
            # daemon: what is still to be called has been done by the close of its socket, or is for nobody
            _thread = threading.Thread(target=_run, name="nngkit-alarm", daemon=True)
            _thread.start()


class Alarm:
    """Calls ``due()`` on the alarm thread; it says in how many seconds to be called again, None for not.

    ``due`` is a method, and may be called once too often; it must be quick, as all other alarms wait for it. Its object
    is not kept alive for it: a socket that nobody holds is garbage at once, and not when its alarm is due.
    """

    __slots__ = ("_closed", "_due", "is_set")

    def __init__(self, due: Callable[[], float | None]) -> None:
        self._due = WeakMethod(due)
        self._closed = False
        self.is_set = False  # a call is to come
        _start()

    def set(self, seconds: float) -> None:
        """Call ``due`` in ``seconds``, unless a call is set already."""
        if not self.is_set:
            deque(itertools.starmap(operator.call, self.steps(seconds)), 0)

    def steps(self, seconds: float) -> list[tuple[Any, ...]]:
        """Return ``set`` as calls for one step of C: cut short in between, it would seem set and never be called."""
        entry = (time.monotonic() + seconds, next(_order), self._call)
        return [(setattr, self, "is_set", True), (_requests.put, entry)]

    def now(self) -> None:
        """Call ``due`` at once, besides what is set."""
        _requests.put((0.0, next(_order), self._call))

    def _call(self) -> None:
        # before the look: what is changed after it sets the alarm again
        self.is_set = False
        due = self._due()
        if not self._closed and due is not None and (again := due()) is not None:
            self.set(again)

    def close(self) -> None:
        """Make no more calls; one that has begun may still be under way."""
        self._closed = True
