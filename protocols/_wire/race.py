"""One try of a dialer: attempts at all addresses of a name, by the rules of RFC 8305 (Happy Eyeballs). Pure.

::

    race = Race(4, now=0.0, limit=2.0)      # four addresses, in the order of `interleaved`
    race.step(0.0)                          # Step(start=[0], stop=[])
    race.step(0.25)                         # Step(start=[1], stop=[]): no answer from the first for `DELAY` seconds
    race.failed(1, 0.26)                    # refused, so the third may start at once
    race.step(0.26)                         # Step(start=[2], stop=[])
    race.connected(0)                       # [2]: attempts to stop; the race is decided

An attempt without an answer in ``limit`` seconds is stopped. The race is ``over`` without a winner when no attempt is
in progress and no address is left. It takes the current time as an argument, and returns what is to be done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

DELAY: Final = 0.25  # seconds between the starts of two attempts (RFC 8305, section 5: Connection Attempt Delay)
# Seconds for one attempt. The kernel repeats a lost SYN after 1, 3 and 7 s, at increasing distances. With a new attempt
# every 2 s, a network that has returned is found within 1 s.
LIMIT: Final = 2.0
# Every PATIENT-th try of a dialer waits longer, so that a peer with a round trip above 2 s can be reached, too. The
# SYNs of such an attempt, and the first of the next one, are at most 2 s apart.
LONG_LIMIT: Final = 5.0
PATIENT: Final = 4

Item = TypeVar("Item")


def limit_of(number: int) -> float:
    """Return the seconds for an attempt in a dialer's ``number``-th try (from 1) since it was last connected."""
    return LIMIT if number % PATIENT else LONG_LIMIT


def interleaved(items: Iterable[Item], family: Callable[[Item], object]) -> tuple[Item, ...]:
    """Return the items with their families in turn, from the first item's; within a family they keep their order."""
    queues: dict[object, list[Item]] = {}
    for item in dict.fromkeys(items):
        queues.setdefault(family(item), []).append(item)
    rounds = range(max(map(len, queues.values()), default=0))
    return tuple(queue[turn] for turn in rounds for queue in queues.values() if turn < len(queue))


@dataclass(frozen=True, slots=True)
class Step:
    """Attempts to start and to stop now, by index."""

    start: Sequence[int]
    stop: Sequence[int]


@dataclass(slots=True)
class Race:
    """Attempts at ``count`` addresses; the first connection wins."""

    count: int
    now: float  # time of the beginning; later the earliest start of the next attempt
    limit: float
    _next: int = 0
    _deadlines: dict[int, float] = field(default_factory=dict)  # of the attempts in progress
    _decided: bool = False

    def step(self, now: float) -> Step:
        """Return what is to be done at ``now``; it counts as done."""
        stop = [index for index, deadline in self._deadlines.items() if deadline <= now]
        for index in stop:
            del self._deadlines[index]
        if self._decided or self._next == self.count or (self._deadlines and now < self.now):
            return Step((), stop)
        index = self._next
        self._next += 1
        self._deadlines[index] = now + self.limit
        self.now = now + DELAY
        return Step((index,), stop)

    def failed(self, index: int, now: float) -> None:
        """Note the end of an attempt; the next one need not wait."""
        if self._deadlines.pop(index, None) is not None:
            self.now = now

    def connected(self, index: int) -> Sequence[int]:
        """Note that the attempt has connected: the race is decided. Return the attempts to stop."""
        self._decided = True
        losers = tuple(other for other in self._deadlines if other != index)
        self._deadlines.clear()
        return losers

    @property
    def over(self) -> bool:
        """True if nothing is left to do."""
        return not self._deadlines and (self._decided or self._next == self.count)

    @property
    def due(self) -> float:
        """Time of the next step, while the race is not over."""
        times = list(self._deadlines.values())
        if self._next < self.count:
            times.append(self.now)
        return min(times)
