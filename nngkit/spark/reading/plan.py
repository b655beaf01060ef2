"""Plan a read: the offsets it covers, and their split into tasks. Pure arithmetic: no journal, no Spark.

::

    limited({0: 10, 1: 10}, {0: 1010, 1: 110}, 100)      {0: 100, 1: 20}: the limit is shared by backlog
    split([(0, 0, 1000)], max_rows=400)                  [(0, 0, 334), (0, 334, 667), (0, 667, 1000)]

Spark stores a stream's offsets as JSON, whose keys are strings: `to_json` and `from_json` convert.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeVar

from nngkit.errors import ConfigError, NotFound
from nngkit.spark.reading.positions import EARLIEST, LATEST, Offsets, Times

Key = TypeVar("Key", bound=Hashable)  # a partition, or (journal, partition)


class OffsetRange(NamedTuple):
    """Offsets `start` to `end` - 1 of one partition."""

    partition: int
    start: int
    end: int


class Available(NamedTuple):
    """Offsets `start` to `end` - 1 that the journal has of one partition.

    `lost`: ranges (first, end) known to have no record; the one left by a lost head spans 2**32 offsets.
    """

    start: int
    end: int
    lost: tuple[tuple[int, int], ...] = ()


class Missing(NamedTuple):
    """Offsets `first` to `end` - 1 of one partition that are requested and not there, and why."""

    partition: int
    first: int
    end: int
    why: str

    def __str__(self) -> str:
        return (
            f"{self.why}; skipped {self.end - self.first} offsets of partition {self.partition}, "
            f"{self.first} to {self.end - 1}"
        )


def to_json(offsets: Offsets) -> dict[str, int]:
    """Return the offsets in the form that Spark stores."""
    return {str(partition): offsets[partition] for partition in sorted(offsets)}


def from_json(value: Mapping[str, int]) -> Offsets:
    """Return the offsets that `to_json` was given."""
    return {int(partition): offset for partition, offset in value.items()}


def resolve(asked: int | Offsets, kept: Mapping[int, Available], what: str, default: int) -> Offsets:
    """Return an offset for each partition; `default` for those that `asked` does not name.

    Raises ConfigError for an unknown partition.
    """
    if isinstance(asked, dict):
        _must_exist(asked, kept, what)
    found = {}
    for partition, bounds in kept.items():
        offset = asked.get(partition, default) if isinstance(asked, dict) else asked
        found[partition] = {EARLIEST: bounds.start, LATEST: bounds.end}.get(offset, offset)
    return found


def at_times(
    times: Times, kept: Mapping[int, Available], what: str, find: Callable[[int, int], int], strict: bool = False
) -> Offsets:
    """Return the offset of each partition in `times`: the first record from its time on, the end if there is none.

    `find`: the journal's `offset_at`. Raises ConfigError for an unknown partition, and with `strict` if there is none.
    """
    _must_exist(times, kept, what)
    found = {partition: find(partition, time) for partition, time in times.items()}
    for partition, offset in found.items():
        if strict and offset >= kept[partition].end:
            moment = dt.datetime.fromtimestamp(times[partition] / 1e6, dt.UTC).isoformat()
            why = f"partition {partition} has no record from {moment} on; it ends before offset {kept[partition].end}. "
            raise ConfigError(what, why + "With startingOffsetsByTimestampStrategy=latest it begins there", partition)
    return found


def _must_exist(asked: Iterable[int], kept: Mapping[int, Available], what: str) -> None:
    unknown = sorted({*asked} - {*kept})
    if unknown:
        there = ", ".join(map(str, kept)) or "none"
        raise ConfigError(what, f"the journal has no partition {unknown[0]}; it has {there}", unknown[0])


def begin_within(starts: Offsets, kept: Mapping[int, Available], where: str) -> None:
    """Raise ConfigError if an offset of startingOffsets is not in the journal: expired, or beyond its end."""
    for partition, offset in starts.items():
        bounds = kept[partition]
        if offset < bounds.start:
            why = f"has expired, the earliest in {where} is {bounds.start}; begin there or later, or at -2 (earliest)"
        elif offset > bounds.end:
            why = f"does not exist yet, {where} ends before {bounds.end}; begin there or earlier, or at -1 (latest)"
        else:
            continue
        raise ConfigError("startingOffsets", f"offset {offset} of partition {partition} {why}", offset)


def checked(wanted: OffsetRange, kept: Available, where: str, fail: bool) -> tuple[OffsetRange, list[Missing]]:
    """Return the available part of `wanted`, and what is missing before and after it; with `fail`, raise that.

    Raises NotFound.
    """
    partition, start, end = wanted
    if start >= kept.start and end <= kept.end:
        return wanted, []
    gone = []
    if start < kept.start:
        why = (
            f"offset {start} of partition {partition} has expired, the earliest in {where} is {kept.start}: "
            "retention deleted the records before it (nngkit record --keep-age, --keep-size)"
        )
        gone.append(Missing(partition, start, max(start, min(end, kept.start)), why))
    if end > kept.end:
        why = (
            f"offset {end - 1} of partition {partition} is not in {where}, which ends before {kept.end}: "
            "the checkpoint belongs to another journal, or the journal has lost its newest part"
        )
        gone.append(Missing(partition, min(end, max(start, kept.end)), end, why))
    if fail:
        why = "; ".join(each.why for each in gone)
        raise NotFound(
            f"{why}. With failOnDataLoss=false the query continues with what is available; "
            "a batch read may give other startingOffsets or endingOffsets"
        )
    first = min(max(start, kept.start), kept.end)
    return OffsetRange(partition, first, max(first, min(end, kept.end))), gone


@dataclass
class Pace:
    """When a micro-batch starts: at `least` new offsets, or `delay` seconds after the last one. None: at once.

    The first one starts at once, as in Kafka's source.
    """

    least: int | None
    delay: float
    last: float | None = None  # when the last one started; the caller's clock

    def waits(self, start: Mapping[Key, int], end: Mapping[Key, int], now: float) -> bool:
        """Return True if no micro-batch should start yet; otherwise note that one starts if there are new offsets."""
        new = sum(end[key] - start.get(key, end[key]) for key in end)
        if self.least is not None and self.last is not None and new < self.least and now - self.last < self.delay:
            return True
        if new:
            self.last = now
        return False


def limited(start: Mapping[Key, int], end: Mapping[Key, int], most: int) -> dict[Key, int]:
    """Return ends at most `most` offsets beyond `start` in total, shared in proportion to each partition's backlog.

    If `most` is below the number of partitions with a backlog, the first ones get one offset each.
    """
    waiting = {partition: end[partition] - start.get(partition, end[partition]) for partition in end}
    total = sum(waiting.values())
    if total <= most:
        return dict(end)
    taken = {partition: rows * most // total for partition, rows in waiting.items()}
    left = most - sum(taken.values())
    for partition in sorted(waiting, key=lambda each: (taken[each] > 0, -waiting[each])):
        if left > 0 and taken[partition] < waiting[partition]:
            taken[partition] += 1
            left -= 1
    return {partition: start.get(partition, end[partition]) + taken[partition] for partition in end}


def without_lost(wanted: OffsetRange, kept: Available) -> list[OffsetRange]:
    """Return `wanted` without the lost ranges, so that they cause no tasks."""
    parts, at = [], wanted.start
    for first, end in sorted(kept.lost):
        if at < min(first, wanted.end):
            parts.append(OffsetRange(wanted.partition, at, min(first, wanted.end)))
        at = max(at, end)
    if at < wanted.end:
        parts.append(OffsetRange(wanted.partition, at, wanted.end))
    return parts


def lost_in(wanted: OffsetRange, kept: Available) -> list[Missing]:
    """Return the parts of `wanted` that the journal lists as lost."""
    why = f"the journal has lost records of partition {wanted.partition}, as its manifest says"
    parts = [(max(first, wanted.start), min(end, wanted.end)) for first, end in sorted(kept.lost)]
    return [Missing(wanted.partition, first, end, why) for first, end in parts if first < end]


def over_lost(offset: int, kept: Available) -> int:
    """Return the end of the lost range that `offset` is in, so that no micro-batch is spent on it."""
    return max((min(end, kept.end) for first, end in kept.lost if first <= offset < end), default=offset)


def split(ranges: Iterable[OffsetRange], max_rows: int, min_tasks: int = 1) -> list[OffsetRange]:
    """Split the ranges into pieces of at most `max_rows`, and into at least `min_tasks` if there are as many rows."""
    held = [each for each in ranges if each.end > each.start]
    total = sum(each.end - each.start for each in held)
    rows = max(1, min(max_rows, -(-total // max(1, min_tasks))))
    pieces = []
    for partition, start, end in held:
        count = -(-(end - start) // rows)
        edges = [start + (end - start) * number // count for number in range(count + 1)]
        pieces += [OffsetRange(partition, a, b) for a, b in pairwise(edges)]
    return pieces
