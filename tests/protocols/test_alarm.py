"""The alarm thread calls however often and closely alarms are set, also on a busy machine."""

from __future__ import annotations

import gc
import threading
import time

from nngkit.protocols._waiting.alarm import SWEPT, Alarm
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


def test_closed_alarms_are_forgotten_before_their_time() -> None:
    """A client that came for one request was remembered for the minute after which it would have been sent again."""
    periodic = Periodic()

    def kept() -> int:
        return sum(type(one) is Alarm and one._due() == periodic.due for one in gc.get_objects())

    for _ in range(20 * SWEPT):
        alarm = Alarm(periodic.due)
        alarm.set(3600.0)
        alarm.close()
    last = Alarm(periodic.due)
    last.set(0.01)
    eventually(lambda: periodic.calls)
    assert kept() <= SWEPT + 2
    last.close()
