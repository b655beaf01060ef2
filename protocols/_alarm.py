"""A timer of NNG's that calls Python: no thread, no loop, and next to nothing while it is not set.

May not know: sockets, messages.
"""

from __future__ import annotations

import itertools
import operator
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ._nng import ffi, lib, new_aio


@ffi.callback("void (*)(void *)")  # type: ignore[untyped-decorator]
def _rang(handle: Any) -> None:
    ffi.from_handle(handle)._ring()


class Alarm:
    """Calls ``due()`` on an NNG thread; it says in how many seconds to be called again, None for not.

    ``due`` holds the alarm's lock: it has to be quick and must not set the alarm.
    """

    def __init__(self, due: Callable[[], float | None]) -> None:
        self._due = due
        self._lock = threading.Lock()
        self._closing = False
        self.ticking = False
        self._handle = ffi.new_handle(self)
        self._aio = new_aio(_rang, self._handle)

    def set(self, seconds: float) -> None:
        """Have it ring in ``seconds``, unless it is set already."""
        if not self.ticking:
            with self._lock:
                if not self.ticking and not self._closing:
                    self._start(seconds)

    def _start(self, seconds: float) -> None:
        # in one call into C: interrupted after the first step, it would be taken for set and never ring
        steps = ((setattr, self, "ticking", True), (lib.nng_sleep_aio, max(1, round(seconds * 1000)), self._aio))
        deque(itertools.starmap(operator.call, steps), 0)

    def _ring(self) -> None:
        with self._lock:
            self.ticking = False
            if not self._closing and (again := self._due()) is not None:
                self._start(again)

    def free(self) -> None:
        """Give it back. Not stopped: nng_aio_stop may take one that is just ringing for idle (see ``Ring.free``)."""
        with self._lock:
            self._closing = True
        lib.nng_aio_cancel(self._aio)
        while self.ticking:  # microseconds, until it has rung for the last time
            time.sleep(0.0001)
        lib.nng_aio_wait(self._aio)
        lib.nng_aio_free(self._aio)
