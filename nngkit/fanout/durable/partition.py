"""Records of one partition that a named consumer has in flight. Pure: no clock, no file, no socket.

======================  ==========================================================================================
offset                  meaning
======================  ==========================================================================================
below `cursor`          delivered at least once, or not selected; settled unless it is in `open`
in `open`               delivered, and not yet settled: in flight until its deadline, or ready for redelivery
in `ahead`              `cursor` or above, and settled: acknowledged after a power loss took the note of its delivery
======================  ==========================================================================================

A record belongs to the sessions that it was delivered to, and only they may settle it; postpone it, only the last one.
Records that were restored after a restart may have been delivered to any session, so any may settle them.

A record is settled once: acknowledged, terminated, given up after `max_deliver` deliveries, or no longer readable. A
settled record is never delivered again. The records of one delivery share a `Flight`, so that a batch costs little
more than one record.

    >>> state = Partition(Limits(ack_wait=30.0), cursor=0)
    >>> state.deliver([0, 1, 2], behind=3, now=0.0, session="a")
    >>> state.settle([(0, 2)], session="b"), state.settle([(0, 2)], session="a")
    ((0, [0, 1]), (2, []))
    >>> state.expire(30.0), state.again(10, now=30.0, session="b")
    ([], [(2, 2)])
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from nngkit.errors import ConfigError

MOST_NAME: Final = 64
MOST_PENDING: Final = 1 << 20  # records in flight: 100 bytes of memory each
_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")

ANY: Final = ""
"""Session of records that were delivered before the server was restarted: it is not known any more."""

Runs: TypeAlias = list[tuple[int, int]]
"""Offsets as (first, count)."""


def check_name(name: object) -> str:
    """Return a consumer's name, which is also a file's. Raises ConfigError."""
    if type(name) is not str or not 1 <= len(name) <= MOST_NAME or not _LETTERS.issuperset(name) or name[0] in ".-":
        why = f"{name!r} is not 1 to {MOST_NAME} letters, digits, '_', '-' or '.', beginning with none of '-' and '.'"
        raise ConfigError("consumer", why, name)
    return name


def runs_of(offsets: Sequence[int]) -> Runs:
    """Return ascending offsets as runs."""
    if not offsets:
        return []
    if offsets[-1] - offsets[0] == len(offsets) - 1:  # the usual case costs no loop
        return [(offsets[0], len(offsets))]
    runs: Runs = []
    first = before = offsets[0]
    for offset in offsets[1:]:
        if offset != before + 1:
            runs.append((first, before + 1 - first))
            first = offset
        before = offset
    runs.append((first, before + 1 - first))
    return runs


def offsets_in(runs: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Yield the offsets of runs."""
    for first, count in runs:
        yield from range(first, first + count)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a consumer. `ack_wait`: seconds until a record in flight is delivered again.

    `max_deliver`: deliveries after which a record is given up; None: no limit. `max_ack_pending`: records in flight.
    Raises ConfigError.
    """

    ack_wait: float = 30.0
    max_deliver: int | None = None
    max_ack_pending: int = 65_536

    def __post_init__(self) -> None:
        if not 0.01 <= self.ack_wait <= 86_400 * 30:
            raise ConfigError("ack_wait", f"{self.ack_wait!r} is not from 0.01 s to 30 days", self.ack_wait)
        if self.max_deliver is not None and not 1 <= self.max_deliver < 1 << 31:
            raise ConfigError("max_deliver", f"{self.max_deliver!r} is neither None nor 1 or more", self.max_deliver)
        if not 1 <= self.max_ack_pending <= MOST_PENDING:
            why = f"{self.max_ack_pending!r} is not from 1 to {MOST_PENDING}"
            raise ConfigError("max_ack_pending", why, self.max_ack_pending)


@dataclass(slots=True, eq=False)
class Flight:
    """Records delivered together for the `count`-th time. `due` is None while they are ready for redelivery.

    `session`: holder of the records; None while they wait for one, ANY for those that were restored.
    """

    count: int
    due: float | None
    offsets: Sequence[int]
    session: str | None


NONE: Final = Flight(0, None, (), None)


class Partition:
    """State of one partition. Every `now` is in seconds on one clock."""

    def __init__(self, limits: Limits, cursor: int) -> None:
        self.limits = limits
        self.cursor = cursor
        self.open: dict[int, Flight] = {}
        self.ahead: set[int] = set()
        self.settled = 0
        self.redelivered = 0
        self.given_up = 0
        self.skipped = 0  # offsets that retention or damage took before they were settled
        self._ready: list[int] = []
        self._flights: list[tuple[float, int, Flight]] = []
        self._serial = 0
        self._former: dict[int, frozenset[str]] = {}  # sessions that had an open record before, if there are any

    @property
    def room(self) -> int:
        """Records that may be delivered for the first time now."""
        return max(0, self.limits.max_ack_pending - len(self.open))

    @property
    def floor(self) -> int:
        """All offsets below are settled. Costs a pass over the records in flight."""
        return min(self.open, default=self.cursor)

    def below(self, start: int) -> int:
        """Return how many offsets that are not settled are below `start`. Costs a pass over the records in flight."""
        return max(0, start - self.cursor) + sum(offset < start for offset in self.open)

    @property
    def ready(self) -> bool:
        """True if a record waits for redelivery."""
        return bool(self._ready)

    def due(self) -> float | None:
        """Return the earliest time at which `expire` may have something to do."""
        return self._flights[0][0] if self._flights else None

    def deliver(
        self, offsets: Sequence[int], *, behind: int, now: float, session: str, count: int = 1, due: float | None = None
    ) -> None:
        """Note the first delivery of `offsets`, ascending; the cursor moves to `behind`."""
        self._fly(offsets, count, now + self.limits.ack_wait if due is None else due, session)
        self.cursor = max(self.cursor, behind)
        if self.ahead:
            self.ahead = {offset for offset in self.ahead if offset >= self.cursor}

    def unsettled(self, offsets: Sequence[int]) -> Sequence[int]:
        """Return those of the new `offsets` that were not settled ahead of the cursor."""
        return [offset for offset in offsets if offset not in self.ahead] if self.ahead else offsets

    def again(self, most: int, *, now: float, session: str) -> list[tuple[int, int]]:
        """Deliver up to `most` ready records again; return (offset, delivery number), ascending."""
        found: list[tuple[int, int]] = []
        by_count: dict[int, list[int]] = {}
        while self._ready and len(found) < most:
            offset = heapq.heappop(self._ready)
            flight = self.open.get(offset)
            if flight is None or flight.due is not None or (found and found[-1][0] == offset):
                continue  # settled meanwhile, or listed twice
            found.append((offset, flight.count + 1))
            by_count.setdefault(flight.count + 1, []).append(offset)
        for count, offsets in by_count.items():
            self._fly(offsets, count, now + self.limits.ack_wait, session)
        self.redelivered += len(found)
        return found

    def settle(
        self, runs: Sequence[tuple[int, int]], *, session: str | None = None, end: int | None = None
    ) -> tuple[int, list[int]]:
        """Settle the records; return how many were open, and those of other sessions. Unknown ones are ignored.

        `session`: None settles the records of all. `end`: the partition's end; offsets from the cursor to there are
        settled ahead of their delivery.
        """
        known = 0
        foreign: list[int] = []
        take, last = self.open.pop, NONE  # most records of a run are of one flight
        for first, count in runs:
            for offset in range(first, min(first + count, self.cursor)):
                flight = take(offset, None)
                if flight is not last:
                    if flight is None:
                        continue
                    if session in (None, flight.session):
                        last = flight
                    elif not self._had(offset, flight, session):
                        self.open[offset] = flight
                        foreign.append(offset)
                        continue
                known += 1
            if end is not None and first + count > self.cursor:
                for offset in range(max(first, self.cursor), min(first + count, end)):
                    if len(self.ahead) >= self.limits.max_ack_pending:
                        break
                    if offset not in self.ahead:
                        self.ahead.add(offset)
                        known += 1
        self.settled += known
        if self._former:
            for first, count in runs:
                for offset in range(first, min(first + count, self.cursor)):
                    if offset not in self.open:
                        self._former.pop(offset, None)
        return known, foreign

    def _had(self, offset: int, flight: Flight, session: str | None) -> bool:
        """Return True if the record was delivered to the session before, or may have been."""
        if flight.session == ANY:
            return True
        former = self._former.get(offset, ())
        return session in former or ANY in former

    def retry(
        self, runs: Iterable[tuple[int, int]], *, now: float, delay: float, session: str
    ) -> tuple[list[int], dict[int, list[int]]]:
        """Deliver the records that the session has again after `delay` seconds.

        Return those given up instead, which are now settled, and the others by the number of their last delivery.
        """
        given_up: list[int] = []
        by_count: dict[int, list[int]] = {}
        for first, count in runs:
            for offset in range(first, min(first + count, self.cursor)):
                flight = self.open.get(offset)
                if flight is None or flight.due is None or flight.session not in (session, ANY):
                    continue
                if self.limits.max_deliver is not None and flight.count >= self.limits.max_deliver:
                    given_up.append(offset)
                else:
                    by_count.setdefault(flight.count, []).append(offset)
        for number, offsets in by_count.items():
            if delay > 0:
                self._remember(offsets)
                self._fly(offsets, number, now + delay, None)
            else:
                self._make_ready(offsets, number)
        return self._give_up(given_up), by_count

    def extend(self, runs: Iterable[tuple[int, int]], *, now: float, session: str) -> dict[int, list[int]]:
        """Give records that the session has another `ack_wait`; return them by the number of their delivery."""
        by_count: dict[tuple[int, str], list[int]] = {}
        for first, count in runs:
            for offset in range(first, min(first + count, self.cursor)):
                flight = self.open.get(offset)
                if flight is not None and flight.due is not None and flight.session in (session, ANY):
                    by_count.setdefault((flight.count, flight.session), []).append(offset)
        for (number, holder), offsets in by_count.items():
            self._fly(offsets, number, now + self.limits.ack_wait, holder)
        extended: dict[int, list[int]] = {}
        for (number, _), offsets in by_count.items():
            extended.setdefault(number, []).extend(offsets)
        return {number: sorted(offsets) for number, offsets in extended.items()}

    def release(self, session: str, offsets: Iterable[int]) -> dict[int, list[int]]:
        """Make records of a session ready at once, without counting their last delivery: it was not received.

        Return them by the number of the delivery before.
        """
        by_count: dict[int, list[int]] = {}
        for offset in offsets:
            flight = self.open.get(offset)
            if flight is not None and flight.due is not None and flight.session == session:
                by_count.setdefault(flight.count - 1, []).append(offset)
        for count, found in by_count.items():
            self._make_ready(found, count)
        return by_count

    def expire(self, now: float) -> list[int]:
        """Make records whose deadline has passed ready; return those given up: these are now settled."""
        given_up: list[int] = []
        while self._flights and self._flights[0][0] <= now:
            flight = heapq.heappop(self._flights)[2]
            due = [offset for offset in flight.offsets if self.open.get(offset) is flight]
            if not due:
                continue
            if self.limits.max_deliver is not None and flight.count >= self.limits.max_deliver:
                given_up += due
            else:
                self._make_ready(due, flight.count)
        return self._give_up(given_up)

    def in_flight(self) -> list[tuple[int, float | None, Runs]]:
        """Return (count, due, runs) of the open records, for a snapshot."""
        groups: dict[int, tuple[Flight, list[int]]] = {}
        for offset, flight in self.open.items():
            groups.setdefault(id(flight), (flight, []))[1].append(offset)
        return [(flight.count, flight.due, runs_of(sorted(offsets))) for flight, offsets in groups.values()]

    def _fly(self, offsets: Sequence[int], count: int, due: float, session: str | None) -> None:
        if not offsets:
            return
        flight = Flight(count, due, offsets, session)
        self.open.update(dict.fromkeys(offsets, flight))
        self._serial += 1
        heapq.heappush(self._flights, (due, self._serial, flight))
        if len(self._flights) > 2 * len(self.open) + 64:  # settled flights, which would otherwise stay until due
            self._flights = [each for each in self._flights if self._is_live(each[2])]
            heapq.heapify(self._flights)

    def _is_live(self, flight: Flight) -> bool:
        return any(self.open.get(offset) is flight for offset in flight.offsets)

    def _remember(self, offsets: Iterable[int]) -> None:
        """Note the sessions that have the records, before they wait for another."""
        for offset in offsets:
            session = self.open[offset].session
            if session is not None:
                self._former[offset] = self._former.get(offset, frozenset()) | {session}

    def _make_ready(self, offsets: list[int], count: int) -> None:
        self._remember(offsets)
        self.open.update(dict.fromkeys(offsets, Flight(count, None, (), None)))
        for offset in offsets:
            heapq.heappush(self._ready, offset)

    def _give_up(self, offsets: list[int]) -> list[int]:
        for offset in offsets:
            self.open.pop(offset, None)
            self._former.pop(offset, None)
        self.given_up += len(offsets)
        self.settled += len(offsets)
        return sorted(offsets)
