"""Join of recorded and live messages by their numbers: each once, in order, gaps as exact ranges. Pure.

::

    live messages   --> hold --------------------+
                                                 |  caught_up? finish
    journal, from an offset on --> recorded -----+------------------> live

While the journal is read, live messages are held. The journal has caught up once it has, of every source, the number
before the first held one. A source is one run of a publisher, which numbers its messages one by one. The held messages
have a cap: the oldest are dropped, and the journal is then read further.

    >>> join = Join()
    >>> join.hold([("p", 3, b"c"), ("p", 4, b"d")])
    >>> join.recorded([("p", 1, b"a"), ("p", 2, b"b"), ("p", 3, b"c")]), join.caught_up()
    ([b'a', b'b', b'c'], True)
    >>> join.finish(), join.live([("p", 4, b"d"), ("p", 6, b"f")])
    ([b'd'], ([], [('p', 6, b'f')]))
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

MOST: Final = 100_000  # held messages: two seconds at 50,000 a second
SEARCH: Final = 64  # positions looked at for one to forget: as many more than the cap may stay as messages are held
MOST_SOURCES: Final = 10_000  # positions, of a few megabytes: a week of a publisher that starts anew each minute

Numbered: TypeAlias = tuple[Hashable, int, bytes]
"""Source, number, message."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Messages `first` to `last` of `source` that neither the journal nor the live connection had."""

    source: Hashable
    first: int
    last: int


class Join:
    """State of a join. `positions`: the last number of each source. `dropped`: held messages over the cap.

    `forgotten`: sources over MOST_SOURCES, those first that were quiet for longest. What one of them sends later is
    taken as new, and nothing before it is missed. A source of a held message is not forgotten.
    """

    def __init__(self, most: int = MOST) -> None:
        self.positions: dict[Hashable, int] = {}  # the quiet ones first
        self.dropped = 0
        self.duplicates = 0
        self.forgotten = 0
        self._most = most
        self._held: deque[Numbered] = deque()
        self._held_of: dict[Hashable, int] = {}  # held messages of each source

    @property
    def held(self) -> int:
        """Messages that are held."""
        return len(self._held)

    def hold(self, messages: Sequence[Numbered]) -> None:
        """Keep live messages until `finish`."""
        self._held.extend(messages)
        for source, _, _ in messages:
            self._held_of[source] = self._held_of.get(source, 0) + 1
        while len(self._held) > self._most:
            self._next_held()
            self.dropped += 1

    def _next_held(self) -> Numbered:
        source = self._held[0][0]
        if (left := self._held_of.pop(source) - 1) > 0:
            self._held_of[source] = left
        return self._held.popleft()

    def recorded(self, messages: Sequence[Numbered]) -> list[bytes | Missing]:
        """Return what is new of the journal's messages. Where the journal has a gap, held messages fill it."""
        if not messages:
            return []
        source, first, _ = messages[0]
        count = len(messages)
        if self.positions.get(source, first - 1) == first - 1:  # the usual case: one run of one source
            sources, numbers, bodies = zip(*messages, strict=True)
            if numbers == tuple(range(first, first + count)) and sources.count(source) == count:
                self.positions.pop(source, None)
                self._put(source, first + count - 1)
                return list(bodies)
        found: list[bytes | Missing] = []
        for source, number, message in messages:
            position = self.positions.get(source, number - 1)
            if number > position + 1:
                between = {each[1]: each[2] for each in self._held if each[0] == source and position < each[1] < number}
                for filled in sorted(between):
                    self._step(source, filled, between[filled], found)
            self._step(source, number, message, found)
        return found

    def caught_up(self) -> bool:
        """Return True if nothing is missing between what was returned and the first held message of each source."""
        first: dict[Hashable, int] = {}
        for source, number, _ in self._held:
            first.setdefault(source, number)
        return all(self.positions.get(source, -1) >= number - 1 for source, number in first.items())

    def finish(self) -> list[bytes | Missing]:
        """Return what is new of the held messages, with what is missing before them."""
        found: list[bytes | Missing] = []
        while self._held:
            self._step(*self._next_held(), found)
        return found

    def live(self, messages: Sequence[Numbered]) -> tuple[list[bytes | Missing], list[Numbered]]:
        """Return what is new, and from the first gap on, the messages that are not joined yet."""
        found: list[bytes | Missing] = []
        for place, (source, number, message) in enumerate(messages):
            if number > self.positions.get(source, number - 1) + 1:
                return found, list(messages[place:])
            self._step(source, number, message, found)
        return found, []

    def _step(self, source: Hashable, number: int, message: bytes, found: list[bytes | Missing]) -> None:
        position = self.positions.pop(source, None)
        if position is not None:
            if number <= position:
                self.positions[source] = position
                self.duplicates += 1
                return
            if number > position + 1:
                found.append(Missing(source, position + 1, number - 1))
        self._put(source, number)
        found.append(message)

    def _put(self, source: Hashable, position: int) -> None:
        """Set the position of a source, which is the last one then; forget a quiet one over the cap."""
        positions = self.positions
        positions[source] = position
        for _ in range(SEARCH if len(positions) > MOST_SOURCES else 0):
            first = next(iter(positions))
            if first not in self._held_of:
                del positions[first]
                self.forgotten += 1
                return
            positions[first] = positions.pop(first)
