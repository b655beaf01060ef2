"""Run a plan as a process: signals, standard output, and the stand-ins' errors.

The first SIGINT or SIGTERM ends the conversation in order (received messages are printed, accepted ones sent), the
second one ends the process at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import BinaryIO

from nngkit.cli.cat.command_line.plan import Plan, Shown, Stopped, Wrong
from nngkit.cli.cat.lazy_bricks import load_bricks


class Interruption:
    """The signal received, 0 for none."""

    number = 0

    @property
    def code(self) -> int:
        """Return the exit code for it."""
        return 128 + self.number


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Have the first SIGINT or SIGTERM raise KeyboardInterrupt, and the next one end the process."""
    interruption = Interruption()

    def first(number: int, frame: FrameType | None) -> None:
        # blocked meanwhile: Python would report and lose a signal that arrives while its handler is removed
        signal.pthread_sigmask(signal.SIG_BLOCK, before)
        try:
            for each in before:
                signal.signal(each, signal.SIG_DFL)
            interruption.number = number
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, before)
        raise KeyboardInterrupt

    # a process started with SIGINT ignored (a background job of a shell) keeps ignoring it
    handled = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, first) for each in handled}
    try:
        yield interruption
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def output() -> BinaryIO:
    """Return standard output as a binary file, or /dev/null if it is closed."""
    if sys.stdout is None:
        return open(os.devnull, "wb")
    sys.stdout.flush()
    return sys.stdout.buffer


def run_stand_in(make: Callable[[], Plan], failure: Callable[[Stopped], tuple[str, int]]) -> int:
    """Make and run the plan, with the original's error text and exit code, which `failure` returns."""
    try:
        plan = make()
    except Shown as shown:
        output().write(shown.text.encode())
        return shown.code
    except Wrong as wrong:
        say_exactly(wrong.text)
        return wrong.code
    load_bricks()  # only with valid arguments, and not while signals raise: see main._unraisable
    from nngkit.cli.cat.conversation import Conversation

    with interruptible() as interruption:
        try:
            Conversation(plan, output()).run()
        except Stopped as stopped:
            text, code = failure(stopped)
            say_exactly(f"{text}\n")
            return code
        except KeyboardInterrupt:
            return interruption.code
    return 0


def say_exactly(text: str) -> None:
    """Write the text to standard error, unchanged."""
    if sys.stderr is not None:
        sys.stderr.buffer.write(text.encode("utf-8", "surrogateescape"))
        sys.stderr.buffer.flush()
