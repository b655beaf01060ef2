"""The alarm thread rings however often and however closely it is set, on a busy machine too."""

from __future__ import annotations

import threading

from nngkit.protocols._alarm import Alarm
from tests.protocols.wires import WAIT, Background

RINGS = 8_000


class Often:
    """Rings again after two microseconds, which are over before the thread has gone to sleep, or just not."""

    def __init__(self) -> None:
        self.rung = 0
        self.done = threading.Event()

    def due(self) -> float | None:
        self.rung += 1
        if self.rung == RINGS:
            self.done.set()
            return None
        return 2e-6


def test_an_alarm_that_is_set_for_a_moment_rings() -> None:
    """With CPython's SimpleQueue.get(timeout=) alone it fell silent after some hundred rings."""
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    often, busy = Often(), Background(spin)  # which takes the GIL away at any point
    alarm = Alarm(often.due)
    try:
        alarm.set(0.0)
        assert often.done.wait(2 * WAIT), f"silent after {often.rung}"
    finally:
        stop.set()
        busy.result()
        alarm.close()
