"""A plan's run as a process: signals, standard output, and what is left to say at the end.

A first Ctrl-C or SIGTERM ends the conversation in order (what was received is printed, what was accepted is sent), and
a second one the process, at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import BinaryIO

from nngkit.cli.cat.lazy_bricks import load_bricks
from nngkit.cli.cat.plan import Plan, Shown, Stopped, Wrong

__all__ = ["Interruption", "interruptible", "output", "run_stand_in"]


class Interruption:
    """Which signal has come, 0 for none."""

    number = 0

    @property
    def code(self) -> int:
        """The exit code it means."""
        return 128 + self.number


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """SIGINT and SIGTERM raise KeyboardInterrupt, once: the next one ends the process."""
    interruption = Interruption()

    def first(number: int, frame: FrameType | None) -> None:
        # blocked meanwhile: one that came while its handler is taken away would be Python's to complain of, and lost
        signal.pthread_sigmask(signal.SIG_BLOCK, before)
        try:
            for each in before:
                signal.signal(each, signal.SIG_DFL)
            interruption.number = number
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, before)
        raise KeyboardInterrupt

    # who is started with SIGINT ignored (a background job of a shell) is to stay deaf to it
    heard = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, first) for each in heard}
    try:
        yield interruption
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def output() -> BinaryIO:
    """Standard output's bytes; nowhere if it is closed."""
    if sys.stdout is None:
        return open(os.devnull, "wb")
    sys.stdout.flush()
    return sys.stdout.buffer


def run_stand_in(make: Callable[[], Plan], told: Callable[[Stopped], tuple[str, int]]) -> int:
    """Make the plan, do it, and end as the original would: its text on stderr, its exit code."""
    try:
        plan = make()
    except Shown as shown:
        output().write(shown.text.encode())
        return shown.code
    except Wrong as wrong:
        say_exactly(wrong.text)
        return wrong.code
    load_bricks()  # not before the arguments are known to be good, and not while signals raise: see main._unraisable
    from nngkit.cli.cat.conversation import Conversation

    with interruptible() as interruption:
        try:
            Conversation(plan, output()).run()
        except Stopped as stopped:
            text, code = told(stopped)
            say_exactly(f"{text}\n")
            return code
        except KeyboardInterrupt:
            return interruption.code
    return 0


def say_exactly(text: str) -> None:
    """On standard error, as it is."""
    if sys.stderr is not None:
        sys.stderr.buffer.write(text.encode("utf-8", "surrogateescape"))
        sys.stderr.buffer.flush()
