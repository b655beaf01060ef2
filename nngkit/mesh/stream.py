"""One stream of a mesh: the messages of one run of one origin, as one node knows them. Pure.

::

    1 ... floor ... next ................ head
          |--kept--|  missing and held

    below floor   delivered or given up, and forgotten
    kept          delivered, and kept for neighbours that ask
    held          received, and waiting for an earlier message
    missing       known or said to exist: what the node asks for

Numbers below `next` are never accepted again, so nothing is delivered twice; the two dictionaries are the only memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Claim(NamedTuple):
    """State of a stream at a neighbour: see `mesh_wire.Line`. `guessed`: from a message it relayed, not told by it."""

    floor: int
    next: int
    head: int
    guessed: bool = False


@dataclass(slots=True, eq=False)
class Link:
    """Neighbour: when it was last heard, its id, its answers since the last digest; `greeted`: it told its streams."""

    heard: float
    id: str | None = None
    greeted: bool = False
    answers: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class Stream:
    """Order, gaps and memory of one stream.

    Attributes:
        next: Lowest number that is neither delivered nor given up.
        head: Highest number that is known or said to exist, at least `next` - 1.
        sure: Highest number that is confirmed (see MeshState), if it is above `next` - 1.
        doubt: A number above `sure` that was said to exist, and `doubted`, the time at which it was.
        source: Link that brought the last message in order.
        born: When its first message was sent, by the local clock.
        changed: When a message was last accepted.
        claims: State of the stream at neighbours that have more than is here, by link.
        asked: Link of the ask that is not answered yet.
        ask_at: When to ask again.
        pause: Seconds until an ask that brings nothing is repeated.
        since: Since when it has not moved although a neighbour is connected.
        given_up: True if some numbers were given up: messages below `next` may be new, and are late.
    """

    key: bytes
    origin: str
    epoch: int
    next: int
    born: float
    changed: float
    head: int = field(init=False)
    kept: dict[int, bytes] = field(default_factory=dict)
    held: dict[int, bytes] = field(default_factory=dict)
    claims: dict[int, Claim] = field(default_factory=dict)
    asked: int | None = None
    ask_at: float = field(init=False)
    since: float = field(init=False)
    pause: float = 0.0
    progress: float = 0.0
    sure: int = 0
    doubt: int = 0
    doubted: float = 0.0
    source: int | None = None
    given_up: list[tuple[int, int]] = field(default_factory=list)
    silent: bool = False  # an earlier run of this node: relayed, not delivered

    def __post_init__(self) -> None:
        self.head = self.next - 1
        self.ask_at = self.since = self.changed

    @property
    def floor(self) -> int:
        """Lowest number that may be kept; `next` if nothing is."""
        return next(iter(self.kept), self.next)

    @property
    def behind(self) -> bool:
        """True if messages are missing."""
        return self.head >= self.next

    @property
    def confirmed(self) -> int:
        """Highest number that is delivered, given up or confirmed: what a digest says."""
        return max(self.sure, self.next - 1)

    def confirm(self, number: int, now: float) -> None:
        """Note that the messages up to `number` exist. What is said beyond is a new doubt if the last one is over."""
        self.sure = max(self.sure, number)
        self.head = max(self.head, number)
        if self.doubt <= self.confirmed:
            self.doubt, self.doubted = self.head, now

    def say(self, number: int, now: float) -> None:
        """Note that a neighbour says that the messages up to `number` exist."""
        if self.doubt <= self.confirmed:
            self.doubt, self.doubted = number, now
        self.head = max(self.head, number)

    def missing(self, most: int, window: int) -> Iterator[tuple[int, int]]:
        """Yield the first ranges that are missing, at most `most` of them, not beyond `next` + `window`."""
        first, last = self.next, min(self.head, self.next + window - 1)
        for number in sorted(self.held):
            if number > last:
                break
            if number > first:
                yield first, number - 1
                most -= 1
                if not most:
                    return
            first = number + 1
        if first <= last:
            yield first, last

    def frames(self, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Yield the messages here from `first` to `last`, in order, at a cost of those that are here."""
        for box in (self.kept, self.held):
            if last - first < len(box):
                for number in range(first, last + 1):
                    frame = box.get(number)
                    if frame is not None:
                        yield number, frame
            else:
                for number in sorted(number for number in box if first <= number <= last):
                    yield number, box[number]

    def answer(self, ranges: Iterable[tuple[int, int]], most: int, room: int) -> list[bytes]:
        """Return the frames of the ranges that are here: at most `most`, and at least one or `room` bytes."""
        found: list[bytes] = []
        for first, last in ranges:
            for _, frame in self.frames(first, min(last, first + most - 1)):
                if len(found) >= most or (found and room < len(frame)):
                    return found
                found.append(frame)
                room -= len(frame)
        return found

    def release(self) -> list[tuple[int, bytes]]:
        """Remove and return the held messages that are next, in order; `next` moves past them."""
        ready = []
        number, held = self.next, self.held
        while held:
            frame = held.pop(number, None)
            if frame is None:
                break
            ready.append((number, frame))
            number += 1
        self.next = number
        return ready

    def provider(self, first: int, heard: Mapping[int, float]) -> int | None:
        """Return the link to ask for `first`: not the last one, one that surely had it, the one heard latest.

        `heard`: when each link was heard. None if no neighbour claims to have it.
        """
        claims = self.claims
        return max(
            (link for link, claim in claims.items() if claim.floor <= first <= claim.head and link in heard),
            key=lambda link: (link != self.asked, claims[link].next > first, heard[link]),
            default=None,
        )

    def floor_of_all(self) -> int | None:
        """Return the lowest number beyond the missing ones that a neighbour keeps; None if no neighbour has any."""
        return min((claim.floor for claim in self.claims.values() if claim.floor > self.next), default=None)
