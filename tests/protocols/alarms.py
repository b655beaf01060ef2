"""Signal handlers that raise at any point, for tests of what an interruption loses."""

from __future__ import annotations

import dis
import gc
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_GENERATOR
from types import CodeType, FrameType
from typing import Any


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


class Interrupted(BaseException):
    """Raised by a signal handler."""


# Where CPython checks for signals: at the start of a function, after calls into C, and at the end of a loop's body.
CHECKED = {
    number
    for name, number in dis.opmap.items()
    if name.startswith(("CALL", "JUMP_BACK", "RESUME"))  # and not PRECALL, before the call
}


@contextmanager
def interrupt(which: int, *files: str) -> Iterator[list[str]]:
    """Raise Interrupted at the ``which``-th place in ``files`` where a handler may run in this thread, and catch it.

    Yields a list, which has the place, function and line, once it was reached. ``files``: the beginnings of paths.
    """
    left = which
    codes: dict[CodeType, bytes] = {}
    before: dict[FrameType, int] = {}
    done: list[str] = []

    def pass_by(frame: FrameType) -> None:
        nonlocal left
        if not left:
            done.append(f"{frame.f_code.co_qualname}, line {frame.f_lineno}")
            raise Interrupted
        left -= 1

    def trace(traced: FrameType, event: str, _: object) -> Any:
        code = traced.f_code
        if event == "call" and traced.f_back is not None:
            before[traced.f_back] = -1  # it called a Python function: no check follows its return
        if not code.co_filename.startswith(files) or code.co_flags & CO_GENERATOR:
            return None  # Python swallows and reports an exception in a generator that is being closed
        traced.f_trace_opcodes = True
        if event == "call":
            pass_by(traced)
        elif event == "opcode":
            last = before.get(traced)
            before[traced] = codes.setdefault(code, code.co_code)[traced.f_lasti]
            if last in CHECKED:
                pass_by(traced)
        return trace

    earlier = sys.gettrace()
    gc.disable()  # see alarms_raise
    sys.settrace(trace)
    try:
        yield done
    except Interrupted:
        pass
    finally:
        sys.settrace(earlier)
        gc.enable()
