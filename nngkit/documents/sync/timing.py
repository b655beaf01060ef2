"""When to say something again, and how long to wait for an answer. Pure: `now` is given, in seconds.

`Pace` spaces the beats of a peer: soon after something changed, ever more seldom while nothing does::

    >>> pace = Pace(0.02, 0.2)
    >>> pace.changed(10.0); round(pace.due, 3)
    10.02
    >>> pace.sent(10.02, 1.0); round(pace.due, 3)
    10.054

All hear the beats of all, so what one may say shrinks with how many there are, as that of RTCP does (RFC 3550, 6.2)::

    >>> pace.company(present=15, editing=15); pace.changed(20.0); round(pace.due, 3)
    20.096

`RoundTrips` holds what is known of each peer's answers, as RFC 6298 does: smoothed time and its variation.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

__all__ = ["UNKNOWN", "Pace", "RoundTrips"]

GROWTH: Final = 1.7  # of the time between beats: four of them within the first quarter of a second, then few
TOGETHER: Final = 0.006  # seconds a heartbeat, of all who edit: a lost edit is known of as soon, whoever tells it
RESTING: Final = 0.04  # ... of all who are there, at rest
SELDOM: Final = 0.6  # seconds: five of them fit into those after which somebody is missed, however many there are
UNKNOWN: Final = 0.1  # seconds, of a peer that has never answered: a network in one country
LEAST: Final = 0.03  # seconds: answering takes a turn of a busy loop, whatever the network takes
MOST: Final = 2.0


class Pace:
    """The time of the next heartbeat: `first` seconds after a change, then growing up to `last` seconds apart; both longer
    where many speak (`company`). `jitter`: about 1, different at every peer, so that they do not all speak at once.
    """

    def __init__(self, first: float, last: float) -> None:
        self._least = first, last
        self.first = first
        self.last = last
        self.due = 0.0  # at once
        self._interval = first
        self._since: float | None = None  # what was said first of all that no beat has told of yet

    def company(self, present: int, editing: int) -> None:
        """So many others are there, and so many of them have edited lately."""
        first, last = self._least
        self.last = max(last, min(RESTING * (1 + present), SELDOM))
        self.first = max(first, min(TOGETHER * (1 + editing), SELDOM))

    def changed(self, now: float, jitter: float = 1.0) -> None:
        """We said something that may be lost. While more of it follows, that speaks for what went before."""
        self._interval = self.first
        if self._since is None:
            self._since = now
        self.due = min(now + self.first * jitter, self._since + self.last)

    def hurry(self, now: float) -> None:
        """Somebody came who has heard nothing yet."""
        self.due = min(self.due, now)

    def sent(self, now: float, jitter: float = 1.0) -> None:
        """A beat went."""
        self._since = None
        self._interval = min(self._interval * GROWTH, self.last)
        self.due = now + self._interval * jitter


class RoundTrips:
    """How long the answers of each peer take."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[float, float]] = {}

    def measured(self, peer: Hashable, seconds: float) -> None:
        """An answer of `peer` took this long."""
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
        """Seconds that an answer of `peer` takes; a guess if there was none yet."""
        return self._known.get(peer, (UNKNOWN, 0.0))[0]

    def slowest(self) -> float:
        """Seconds that an answer of the slowest takes, at most MOST; 0 before the first."""
        return min(max((smooth for smooth, _ in self._known.values()), default=0.0), MOST)

    def patience(self, peer: Hashable) -> float:
        """Seconds after which an answer of `peer` is late, and somebody else may be asked too."""
        smooth, vary = self._known.get(peer, (UNKNOWN, UNKNOWN / 2))
        return min(max(smooth + 4 * vary, LEAST), MOST)

    def forget(self, peer: Hashable) -> None:
        """`peer` has gone."""
        self._known.pop(peer, None)
