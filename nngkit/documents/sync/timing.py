"""Timing of heartbeats, and round-trip estimates. Pure: `now` is given, in seconds.

`Pace` schedules the heartbeats of a peer: soon after a change, then at growing intervals::

    >>> pace = Pace(0.02, 0.2)
    >>> pace.changed(10.0); round(pace.due, 3)
    10.02
    >>> pace.sent(10.02, 1.0); round(pace.due, 3)
    10.054

Each peer receives the heartbeats of all, so the intervals grow with the number of peers, as those of RTCP do
(RFC 3550, 6.2)::

    >>> pace.company(present=15, editing=15); pace.changed(20.0); round(pace.due, 3)
    20.096

`RoundTrips` estimates each peer's reply time as RFC 6298 does: smoothed time and variation.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

GROWTH: Final = 1.7  # factor between intervals: four heartbeats within the first 0.25 s, then few
TOGETHER: Final = 0.006  # seconds per heartbeat, over all editing peers: each of them reveals a lost edit
RESTING: Final = 0.04  # seconds per heartbeat, over all present peers at rest
SELDOM: Final = 0.6  # seconds: five of them fit into the silence after which a peer counts as absent
UNKNOWN: Final = 0.1  # seconds, for a peer that has not replied yet: a network within one country
LEAST: Final = 0.03  # seconds: a reply takes a turn of a busy loop, whatever the network takes
MOST: Final = 2.0


class Pace:
    """The time of the next heartbeat: `first` seconds after a change, then at intervals growing to `last` seconds.

    Both grow with the number of peers (`company`). `jitter`: a factor near 1, random at each peer, against
    synchronization.
    """

    def __init__(self, first: float, last: float) -> None:
        self._least = first, last
        self.first = first
        self.last = last
        self.due = 0.0  # immediately
        self._interval = first
        self._since: float | None = None  # time of the first change that no heartbeat has reported

    def company(self, present: int, editing: int) -> None:
        """Set the number of other peers, and of those that edited recently."""
        first, last = self._least
        self.last = max(last, min(RESTING * (1 + present), SELDOM))
        self.first = max(first, min(TOGETHER * (1 + editing), SELDOM))

    def changed(self, now: float, jitter: float = 1.0) -> None:
        """Record a published change, which may be lost.

        Further changes postpone the heartbeat, as they reveal earlier losses.
        """
        self._interval = self.first
        if self._since is None:
            self._since = now
        self.due = min(now + self.first * jitter, self._since + self.last)

    def hurry(self, now: float) -> None:
        """Send a heartbeat now: a peer has joined."""
        self.due = min(self.due, now)

    def sent(self, now: float, jitter: float = 1.0) -> None:
        """Record a sent heartbeat."""
        self._since = None
        self._interval = min(self._interval * GROWTH, self.last)
        self.due = now + self._interval * jitter


class RoundTrips:
    """Estimates of the reply time of each peer."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[float, float]] = {}

    def measured(self, peer: Hashable, seconds: float) -> None:
        """Record the seconds that a reply took."""
        known = self._known.get(peer)
        if known is None:
            self._known[peer] = seconds, seconds / 2
        else:
            smooth, vary = known
            self._known[peer] = (
                smooth + (seconds - smooth) / 8,
                vary + (abs(seconds - smooth) - vary) / 4,
            )

    def usual(self, peer: Hashable) -> float:
        """Return the smoothed seconds per reply; a guess before the first."""
        return self._known.get(peer, (UNKNOWN, 0.0))[0]

    def slowest(self) -> float:
        """Return the smoothed seconds per reply of the slowest peer, at most MOST; 0 before the first."""
        return min(max((smooth for smooth, _ in self._known.values()), default=0.0), MOST)

    def patience(self, peer: Hashable) -> float:
        """Return the seconds after which a reply is late, and another peer may be asked."""
        smooth, vary = self._known.get(peer, (UNKNOWN, UNKNOWN / 2))
        return min(max(smooth + 4 * vary, LEAST), MOST)

    def forget(self, peer: Hashable) -> None:
        """Drop the estimate of a peer that left."""
        self._known.pop(peer, None)
