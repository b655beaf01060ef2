"""The alarm thread calls however often and closely alarms are set, also on a busy machine."""

from __future__ import annotations

import threading

from nngkit.protocols._waiting.alarm import Alarm
from nngkit.testing import Background
from tests.protocols.wires import WAIT

CALLS = 8_000


class Often:
    """Called again after two microseconds, which are over before, or just after, the thread goes to sleep."""

    def __init__(self) -> None:
        self.calls = 0
        self.done = threading.Event()

    def due(self) -> float | None:
        self.calls += 1
        if self.calls == CALLS:
            self.done.set()
            return None
        return 2e-6


def test_an_alarm_set_for_a_moment_is_called() -> None:
    """CPython's SimpleQueue.get(timeout=) alone stopped returning after some hundred calls."""
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    often, busy = Often(), Background(spin)  # switches threads at any point
    alarm = Alarm(often.due)
    try:
        alarm.set(0.0)
        assert often.done.wait(2 * WAIT), f"silent after {often.calls}"
    finally:
        stop.set()
        busy.result()
        alarm.close()
