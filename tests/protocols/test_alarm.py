"""The alarm thread calls however often and closely alarms are set, also on a busy machine."""

from __future__ import annotations

import threading
import time

from nngkit.protocols._waiting.alarm import Alarm
from nngkit.testing import Background, eventually
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


class Periodic:
    def __init__(self) -> None:
        self.calls = 0

    def due(self) -> float:
        self.calls += 1
        return 0.05


def test_calls_besides_leave_one_period() -> None:
    """Each call had set the next one, besides the pending one."""
    periodic = Periodic()
    alarm = Alarm(periodic.due)
    alarm.set(0.05)
    for _ in range(50):
        alarm.now()
    eventually(lambda: periodic.calls >= 50)
    before = periodic.calls
    time.sleep(0.3)
    alarm.close()
    assert 0 < periodic.calls - before < 20
