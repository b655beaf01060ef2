"""Signal handlers that raise at any point, for tests of what an interruption loses."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def alarms_raise(exception: type[Exception]) -> Iterator[None]:
    """Make SIGALRM raise ``exception`` in the block; afterwards stop its timer and restore the handler.

    No garbage is collected meanwhile: cycles left by earlier tests have finalizers, in which Python swallows an
    exception of a handler and reports it.
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
