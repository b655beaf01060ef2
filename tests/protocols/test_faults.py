"""An exception of a signal handler is told from an error of our own code."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable

import pytest

from nngkit.protocols._waiting.faults import check_ours


class Interrupted(Exception):
    pass


def raising(number: int, frame: object) -> None:
    def deeper() -> None:
        raise Interrupted

    deeper()


def raising_with_any(*arguments: object) -> None:
    raise Interrupted


class Handler:
    def __call__(self, number: int, frame: object) -> None:
        raise Interrupted


HANDLERS = [raising, raising_with_any, Handler(), functools.partial(raising)]


@pytest.mark.parametrize("handler", HANDLERS, ids=["function", "any arguments", "object", "partial"])
def test_what_a_signal_handler_raises_is_not_ours(handler: Callable[..., None]) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Interrupted) as raised:
            signal.raise_signal(signal.SIGUSR1)
        with pytest.raises(Interrupted):
            check_ours(raised.value)
    finally:
        signal.signal(signal.SIGUSR1, before)
    check_ours(LookupError("never raised"))
    try:
        raising(0, None)
    except Interrupted as called:
        check_ours(called)
