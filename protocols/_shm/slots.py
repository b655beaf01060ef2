"""Accounting of slots in segments of shared memory.

A segment is divided into slots of one size. Small slots share a segment, a large one has its own. A slot that a lost
peer may still look at is given back as dead: it is not used again, and its segment is dropped once nothing else in it
is in use.

Pure: no memory is touched here, and numbers of segments are never used twice. A signal handler may interrupt ``take``
and ``give``: the place is noted first, and giving it (again) restores the books.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

LEAST: Final = 4096  # bytes of a slot: a page
SLAB: Final = 2 * 1024 * 1024  # bytes up to which small slots share a segment
MOST_SEGMENTS: Final = 128  # each is a descriptor in the sender, and a mapping in each peer


class Place(NamedTuple):
    """Place of a slot: the number of its segment, and its offset and size in bytes."""

    segment: int
    offset: int
    size: int


@lru_cache
def slot_size(size: int) -> int:
    """Return the bytes of a slot for ``size`` bytes: four sizes in each power of two, so at most a fifth is unused."""
    unit = max(LEAST, 1 << max(0, (size - 1).bit_length() - 3))
    return max(1, -(-size // unit)) * unit


class Segment:
    """Slots of ``slot`` bytes, ``size`` together. ``dead``: some may still be looked at and are not used again."""

    __slots__ = ("dead", "free", "size", "slot", "used")

    def __init__(self, slot: int, count: int) -> None:
        self.slot = slot
        self.size = slot * count
        self.free = [slot * index for index in reversed(range(count))]  # offsets, the next one last
        self.used: set[int] = set()  # offsets
        self.dead = False


class Slots:
    """Slots of ``limit`` bytes together, in ``segments`` by number. Those that leave the dictionary are to be freed.

    ``shrunk``: some may have left; the caller sets it back once it has freed them.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.segments: dict[int, Segment] = {}
        self.shrunk = False
        self._slab = max(SLAB, limit // MOST_SEGMENTS)
        self._last = 0

    @property
    def total(self) -> int:
        """Bytes of all segments."""
        return sum(one.size for one in self.segments.values())

    @property
    def used(self) -> int:
        """Number of slots in use."""
        return sum(len(one.used) for one in self.segments.values())

    def take(self, size: int, noted: list[Place]) -> bool:
        """Append the place of a slot for ``size`` bytes, perhaps in a new segment; return False if there is no room."""
        slot = slot_size(size)
        for number in reversed(self.segments):
            segment = self.segments[number]
            if segment.free and segment.slot == slot:
                break
        else:
            if not (count := self._room(slot)):
                return False
            self._last = number = self._last + 1
            self.segments[number] = segment = Segment(slot, count)
        offset = segment.free[-1]
        noted.append(Place(number, offset, slot))
        segment.used.add(offset)
        segment.free.pop()
        return True

    def _room(self, slot: int) -> int:
        """Return how many slots a new segment may have; drop idle ones for as many as a segment normally has."""
        count = max(1, self._slab // slot)
        while (left := (self.limit - self.total) // slot) < count or len(self.segments) >= MOST_SEGMENTS:
            idle = next((number for number, one in self.segments.items() if not one.used), None)
            if idle is None:
                return left if len(self.segments) < MOST_SEGMENTS else 0
            self.shrunk = True
            del self.segments[idle]
        return count

    def give(self, place: Place, *, dead: bool = False) -> None:
        """Take back a slot. ``dead``: it is not used again. No effect if it is not in use."""
        segment = self.segments.get(place.segment)
        if segment is None or place.offset not in segment.used:
            return
        if dead:
            segment.dead = True
        elif place.offset not in segment.free:
            segment.free.append(place.offset)
        segment.used.remove(place.offset)
        if segment.dead and not segment.used:
            self.shrunk = True
            del self.segments[place.segment]
