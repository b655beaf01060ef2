"""The clock of the replicated log: one for the cluster, whatever the wall clocks of its hosts say. Pure.

::

    clock = LogClock()
    clock.heard(7, table.clock, now)                 # at a follower, for entries that come from the live host of term 7
    wall = clock.lead(table.clock, now, time.time()) # at a new host: what its entries and due times go by

Delays, pauses and deadlines are times of this clock, in seconds. Its first host begins it with its own wall clock, and
each later one goes on from what it heard of the host before it, by its monotonic clock: so a host whose wall clock is
an hour ahead starts nothing early, and one whose clock goes back holds nothing up. What a follower hears is at most the
delay of an entry late, never early, as the host writes the time when its term begins and when a voter connects.

A voter that has heard no host in its run, as all voters were restarted, has only its wall clock for the time that it
was down: it goes on from that, but not behind the last entry.
"""

from __future__ import annotations

from typing import Final

NEVER: Final = float("inf")  # the time of what is not due
DRIFT: Final = 2e-4  # by which two clocks may drift apart: crystals are within 1e-4 of their rate


class LogClock:
    """The clock as one voter knows it."""

    def __init__(self) -> None:
        self._offset: float | None = None
        self._term, self._heard_at = 0, 0.0

    def heard(self, term: int, time: float, now: float) -> None:
        """Take over the time of a live host's entry that came at `now`, in seconds of the monotonic clock.

        One that comes later than others of its term, as this voter was stopped or cut off, moves the clock by a drift
        at most. Each host has a clock of its own, as it heard the one before: a little later than that.
        """
        offset = time - now
        if self._offset is not None and term == self._term:
            offset = max(offset, self._offset - DRIFT * (now - self._heard_at))
        self._term, self._offset, self._heard_at = term, offset, now

    def lead(self, last: float, now: float, wall: float) -> float:
        """Return the time at `now` for a new host. `last`: time of the last entry; `wall`: its own wall clock."""
        time = max(wall, last) if self._offset is None else now + self._offset
        self._offset = time - now
        return time
