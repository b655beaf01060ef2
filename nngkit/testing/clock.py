"""A virtual clock: calls at times that pass at once. Pure: it knows no real time, no loop and no chance."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Timer:
    """A call that a VirtualClock will make at `time`, in seconds of the clock."""

    __slots__ = ("_call", "time")

    def __init__(self, time: float, call: Callable[[], object]) -> None:
        self.time = time
        self._call: Callable[[], object] | None = call

    @property
    def pending(self) -> bool:
        """True until the call is made or cancelled."""
        return self._call is not None

    def cancel(self) -> None:
        """Prevent the call; without effect once it was made."""
        self._call = None

    def fire(self) -> None:
        """Make the call now, unless it was made or cancelled."""
        call, self._call = self._call, None
        if call is not None:
            call()


class VirtualClock:
    """A clock that goes from one scheduled call to the next.

    Calls of the same time are made in the order in which they were scheduled, so a run is reproducible.

    Args:
        now: The time at the start, in seconds.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._scheduled = 0
        self._queue: list[tuple[float, int, Callable[[], object]]] = []

    def call_at(self, time: float, call: Callable[[], object]) -> Timer:
        """Schedule `call` at `time`, or now if that is over. The clock makes it during `run_until`."""
        timer = Timer(max(time, self.now), call)
        self.schedule(timer.time, timer.fire)
        return timer

    def schedule(self, time: float, call: Callable[[], object]) -> None:
        """Schedule `call` like `call_at`, but without a timer: it cannot be cancelled, and costs half as much."""
        self._scheduled += 1
        heapq.heappush(self._queue, (max(time, self.now), self._scheduled, call))

    def call_later(self, seconds: float, call: Callable[[], object]) -> Timer:
        """Schedule `call` in `seconds`."""
        return self.call_at(self.now + seconds, call)

    def run_until(self, time: float, condition: Callable[[], object] | None = None) -> bool:
        """Make the calls up to and including `time`, in order; stop early once `condition` is true after a call.

        Exceptions of a call end the run and are passed on; the remaining calls stay scheduled.

        Returns:
            True if `condition` became true, with `now` the time of the call after which it did. False otherwise, with
            `now` equal to `time`.
        """
        queue = self._queue
        while queue and queue[0][0] <= time:
            self.now, _, call = heapq.heappop(queue)
            call()
            if condition is not None and condition():
                return True
        self.now = max(self.now, time)
        return False
