"""Delayed calls: one thread for all sockets of the process, asleep while no alarm is set.

NNG's timers are not used: when one expires, NNG 1.11 busy-waits for the rest of that millisecond
(``nni_aio_expire_loop`` looks for "before now" where it waited for "now"; docs/nng/timer_spins.py).

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
from typing import Any, Final
from weakref import WeakMethod

log = logging.getLogger("nngkit.protocols")

SWEPT: Final = 64  # pending calls, or twice those that were left: with more, those of closed alarms are dropped
RETRY: Final = 1.0  # seconds after which a call that raised is made again: what it does must not end for ever

_order = itertools.count()  # so that entries of the same time compare
_requests: SimpleQueue[tuple[float, int, Any]] = SimpleQueue()  # (time, its number, method of an alarm)
_starting = threading.Lock()
_thread: threading.Thread | None = None


def _run() -> None:
    waiting: list[tuple[float, int, Any]] = []
    most = SWEPT
    while True:
        with suppress(Empty):
            heapq.heappush(waiting, _next(max(0.0, waiting[0][0] - time.monotonic()) if waiting else None))
        while waiting and waiting[0][0] <= time.monotonic():
            _, number, call = heapq.heappop(waiting)
            call(number)
        if len(waiting) > most:
            waiting = [one for one in waiting if one[2].__self__.is_open]
            heapq.heapify(waiting)
            most = max(SWEPT, 2 * len(waiting))


def _next(timeout: float | None) -> tuple[float, int, Any]:
    """Return the next request. Raises Empty.

    CPython 3.11's ``get(timeout=)`` waits for ever if its lock is free at first and the time passes before it reads the
    clock again: the remaining time is then negative, which means no timeout. After a ``get`` that found nothing without
    waiting, the lock is not free until something is put. (tests/protocols/test_alarm.py)
    """
    with suppress(Empty):
        return _requests.get(block=False)
    return _requests.get(timeout=timeout)


def _start() -> None:
    global _thread
    with _starting:
        if _thread is None:
            # daemon: the close of a socket has made the calls that matter
            _thread = threading.Thread(target=_run, name="nngkit-alarm", daemon=True)
            _thread.start()


class Alarm:
    """Call ``due()`` on the alarm thread. It returns the seconds until its next call, or None.

    ``due`` is a bound method and may be called once more than set. It must be quick, as all alarms share the thread.
    The alarm does not keep its object alive: an abandoned socket is garbage at once. If ``due`` raises, the error is
    logged, the first one of a row, and it is called again after RETRY.
    """

    __slots__ = ("_closed", "_due", "_failed", "_number", "is_set")

    def __init__(self, due: Callable[[], float | None]) -> None:
        self._due = WeakMethod(due)
        self._closed = False
        self._failed = False  # the last call raised
        self._number = 0  # of the call that was set last; two threads may set one at once
        self.is_set = False  # a call is pending
        _start()

    @property
    def is_open(self) -> bool:
        """True until it is closed, or its object is garbage."""
        return not self._closed and self._due() is not None

    def set(self, seconds: float) -> None:
        """Call ``due`` in ``seconds``, unless a call is pending."""
        if not self.is_set:
            deque(itertools.starmap(operator.call, self.steps(seconds)), 0)

    def steps(self, seconds: float) -> list[tuple[Any, ...]]:
        """Return ``set`` as calls for ``atomically``.

        Interrupted between them, an alarm would seem set and never be called.
        """
        number = next(_order)
        request = (time.monotonic() + seconds, number, self._call)
        return [(setattr, self, "is_set", True), (setattr, self, "_number", number), (_requests.put, request)]

    def step(self, when: float) -> tuple[Any, ...]:
        """Return a call of ``due`` at ``when`` of time.monotonic(), as one for ``atomically``; pending ones stay."""
        return (_requests.put, (when, next(_order), self._call_besides))

    def now(self) -> None:
        """Call ``due`` at once, besides the pending call."""
        _requests.put((0.0, next(_order), self._call_besides))

    def _call(self, number: int) -> None:
        if number == self._number:
            # before the call: later changes set the alarm again
            self.is_set = False
            self._call_besides(number)

    def _call_besides(self, _: int) -> None:
        due = self._due()
        if self._closed or due is None:
            return
        try:
            again = due()
            self._failed = False
        except Exception:
            if not self._failed:
                log.exception("%r failed, and is called again", due)
            self._failed = True
            again = RETRY
        if again is not None:
            self.set(again)

    def close(self) -> None:
        """Make no more calls; one that has begun may still be running."""
        self._closed = True
