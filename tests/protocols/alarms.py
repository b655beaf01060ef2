"""Signal handlers that raise in the midst of anything, for tests of what is lost by it."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def alarms_raise(exception: type[Exception]) -> Iterator[None]:
    """Within, SIGALRM raises ``exception``; at the end its timer is off and its handler as before.

    Nothing is collected meanwhile: the cycles that earlier tests left have finalizers, in which Python swallows what a
    handler raises and complains of it.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise exception

    gc.collect()
    gc.disable()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
