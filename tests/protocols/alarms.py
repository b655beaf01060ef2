"""Signal handlers that raise at any point, for tests of what an interruption loses."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def stop_alarms() -> None:
    """Make the handler of SIGALRM do nothing, and stop its timer.

    A last signal may still arrive, by way of another thread. The default handler would end the process, and Python
    reports a signal that it has noted for a handler that was taken away ("ignored due to race condition").
    """
    signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def alarms_raise(exception: type[Exception]) -> Iterator[None]:
    """Make SIGALRM raise ``exception`` in the block; afterwards stop its timer.

    No garbage is collected meanwhile: cycles left by earlier tests have finalizers, in which Python swallows an
    exception of a handler and reports it.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise exception

    gc.collect()
    gc.disable()
    signal.signal(signal.SIGALRM, interrupt)
    try:
        yield
    finally:
        stop_alarms()
        gc.enable()
