"""Which offsets a read covers, and how they are split into tasks. Pure: arithmetic on offsets, no journal, no Spark.

::

    limited({0: 10, 1: 10}, {0: 1010, 1: 110}, 100)      {0: 100, 1: 20}: each partition its share of what waits
    split([(0, 0, 1000)], max_rows=400)                  [(0, 0, 334), (0, 334, 667), (0, 667, 1000)]

Offsets of a stream are kept by Spark as JSON, whose keys are text: `to_json` and `from_json` go between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from nngkit.errors import ConfigError, NotFound
from nngkit.spark.options import EARLIEST, LATEST, Offsets

__all__ = [
    "Available",
    "OffsetRange",
    "checked",
    "from_json",
    "limited",
    "over_lost",
    "resolve",
    "split",
    "to_json",
    "without_lost",
]


class OffsetRange(NamedTuple):
    """The offsets from `start` on, before `end`, of one partition."""

    partition: int
    start: int
    end: int


class Available(NamedTuple):
    """What the journal has of one partition: from `start` on, before `end`.

    `lost`: ranges (first, end) that are known to have no record. After a lost head, one has 2**32 offsets.
    """

    start: int
    end: int
    lost: tuple[tuple[int, int], ...] = ()


def to_json(offsets: Offsets) -> dict[str, int]:
    """Return the offsets as Spark keeps them."""
    return {str(partition): offsets[partition] for partition in sorted(offsets)}


def from_json(value: Mapping[str, int]) -> Offsets:
    """Return the offsets that `to_json` was given."""
    return {int(partition): offset for partition, offset in value.items()}


def resolve(asked: int | Offsets, kept: Mapping[int, Available], what: str, default: int) -> Offsets:
    """Return an offset for each partition of the journal; `default` for those that `asked` does not name.

    Raises ConfigError for a partition that there is not.
    """
    if isinstance(asked, dict) and (unknown := asked.keys() - kept.keys()):
        there = ", ".join(map(str, kept)) or "none"
        raise ConfigError(what, f"the journal has no partition {min(unknown)}; there is {there}", min(unknown))
    found = {}
    for partition, bounds in kept.items():
        offset = asked.get(partition, default) if isinstance(asked, dict) else asked
        found[partition] = {EARLIEST: bounds.start, LATEST: bounds.end}.get(offset, offset)
    return found


def checked(wanted: OffsetRange, kept: Available, where: str, fail: bool) -> tuple[OffsetRange, str | None]:
    """Return the part of `wanted` that the journal has, and why the rest is gone; raise that with `fail`.

    Raises NotFound.
    """
    partition, start, end = wanted
    if start >= kept.start and end <= kept.end:
        return wanted, None
    gone = []
    if start < kept.start:
        gone.append(
            f"offset {start} of partition {partition} is gone, the earliest in {where} is {kept.start}: "
            "retention has removed what was before it"
        )
    if end > kept.end:
        gone.append(
            f"offset {end - 1} of partition {partition} is not in {where}, which ends before {kept.end}: "
            "it is another journal than the checkpoint was made with, or has lost its newest part"
        )
    why = "; ".join(gone)
    if fail:
        raise NotFound(f"{why}. With failOnDataLoss=false the query goes on with what there is")
    first = min(max(start, kept.start), kept.end)
    return OffsetRange(partition, first, max(first, min(end, kept.end))), why


def limited(start: Offsets, end: Offsets, most: int) -> Offsets:
    """Return ends that are at most `most` offsets behind `start`, shared by what waits in each partition.

    Where `most` is smaller than the number of partitions with something waiting, the first ones get one each.
    """
    waiting = {partition: end[partition] - start.get(partition, end[partition]) for partition in sorted(end)}
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
    """Return the parts of `wanted` that can have records: a range known as lost must not become tasks."""
    parts, at = [], wanted.start
    for first, end in sorted(kept.lost):
        if at < min(first, wanted.end):
            parts.append(OffsetRange(wanted.partition, at, min(first, wanted.end)))
        at = max(at, end)
    if at < wanted.end:
        parts.append(OffsetRange(wanted.partition, at, wanted.end))
    return parts


def over_lost(offset: int, kept: Available) -> int:
    """Return the offset behind the lost range that `offset` is in: no micro-batch is spent on it."""
    return max((min(end, kept.end) for first, end in kept.lost if first <= offset < end), default=offset)


def split(ranges: Iterable[OffsetRange], max_rows: int, min_tasks: int = 1) -> list[OffsetRange]:
    """Split the ranges into pieces of at most `max_rows`; at least `min_tasks` where there are so many rows."""
    held = [each for each in ranges if each.end > each.start]
    total = sum(each.end - each.start for each in held)
    rows = max(1, min(max_rows, -(-total // max(1, min_tasks))))
    pieces = []
    for partition, start, end in held:
        count = -(-(end - start) // rows)
        edges = [start + (end - start) * number // count for number in range(count + 1)]
        pieces += [OffsetRange(partition, a, b) for a, b in pairwise(edges)]
    return pieces
