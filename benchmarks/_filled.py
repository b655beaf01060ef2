"""Arrays that a sender fills with a number and a receiver sums: both ends pass over all bytes, as programs do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from _child import Meter, fail

WORD = 8  # bytes


def fill(buffer: Any, number: int) -> None:
    """Fill ``buffer`` with ``number``."""
    np.frombuffer(buffer, np.uint64)[:] = number


def mark(buffer: Any, number: int) -> None:
    """Write ``number`` to the beginning and the end of a frame, which a camera's driver has filled."""
    np.frombuffer(buffer, np.uint64)[:: len(buffer) // WORD - 1] = number


class Sums:
    """Meter of filled messages: each must have ``size`` bytes of one number, the next one.

    With ``marked`` in the task, of frames that a publisher may drop: only their ends are looked at, and some may miss.
    """

    def __init__(self, task: dict[str, Any]) -> None:
        self._words = task["size"] // WORD
        self._marked = task.get("marked", False)
        self._last: int | None = None
        self._meter = Meter(task)

    def add(self, message: Any) -> bool:
        """Sum a message; return False once the time is over."""
        array = np.frombuffer(message, np.uint64)
        number = int(array[0])
        whole = int(array[-1]) == number if self._marked else int(array.sum()) == number * self._words
        due = self._last is None or number == self._last + 1 or (self._marked and number > self._last)
        if not whole or not due or len(array) != self._words:
            fail(f"{number} after {self._last}, {len(array)} words")
        self._last = number
        return self._meter.add(1)


def sum_all(recv: Callable[[], Any], task: dict[str, Any]) -> None:
    """Sum what ``recv`` returns until the time is over; go on receiving then, as other subscribers are measured."""
    sums = Sums(task)
    while sums.add(recv()):
        pass
    while task.get("others", 1) > 1:
        recv()
