"""Percentiles of many measurements in bounded memory. Pure.

::

    histogram = Histogram()
    for seconds in measured: histogram.add(seconds)
    histogram.least, histogram.mean, histogram.at(0.99), histogram.most

Measurements are counted in buckets, each 1 % wider than the one before: some 3,200 of them from a nanosecond to a day.
A percentile is off by at most 1 %; least, most and mean are exact.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from operator import truediv
from typing import Final

FLOOR: Final = 1e-9  # seconds: less counts as this; no clock here resolves less
STEP: Final = math.log(1.01)
BOUNDS: Final = tuple(each * 10.0**power for power in range(-4, 2) for each in (1, 2.5, 5))
"""Upper bounds of the buckets of a distribution, in seconds: three for each power of ten, from 100 us to 50 s."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Measurements by BOUNDS. `counts`: those up to each bound, smaller ones included; `count`, `total`: of all."""

    counts: tuple[int, ...] = (0,) * len(BOUNDS)
    count: int = 0
    total: float = 0.0

    def __add__(self, other: Distribution) -> Distribution:
        counts = tuple(map(sum, zip(self.counts, other.counts, strict=True)))
        return Distribution(counts, self.count + other.count, self.total + other.total)


NO_TIMES: Final = Distribution()


class Histogram:
    """Distribution of measurements in seconds."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.least = math.inf
        self.most = 0.0
        self._buckets: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Count a measurement."""
        seconds = max(FLOOR, seconds)
        self.count += 1
        self.total += seconds
        self.least = min(self.least, seconds)
        self.most = max(self.most, seconds)
        self._buckets[math.floor(math.log(seconds / FLOOR) / STEP)] += 1

    def add_many(self, several: Sequence[float]) -> None:
        """Count several measurements: a quarter of the time of as many calls of `add`, as all loops are in C."""
        if not several:
            return
        self.count += len(several)
        self.total += sum(several)
        if (least := min(several)) < FLOOR:
            least, several = FLOOR, [max(seconds, FLOOR) for seconds in several]
        self.least = min(self.least, least)
        self.most = max(self.most, *several)
        logs = map(math.log, map(truediv, several, repeat(FLOOR)))
        self._buckets.update(map(math.floor, map(truediv, logs, repeat(STEP))))

    def distribution(self) -> Distribution:
        """Return the measurements by BOUNDS, each counted within 1 % of its value."""
        counts = [0] * (len(BOUNDS) + 1)
        for bucket, count in self._buckets.items():
            counts[bisect_left(BOUNDS, FLOOR * math.exp((bucket + 0.5) * STEP))] += count
        return Distribution(tuple(accumulate(counts[:-1])), self.count, self.total)

    @property
    def mean(self) -> float:
        """Return the average; 0 without measurements."""
        return self.total / self.count if self.count else 0.0

    def at(self, share: float) -> float:
        """Return the percentile of `share` (0.99), by nearest rank, within 1 %; 0 without measurements."""
        rank, passed = max(1, math.ceil(share * self.count)), 0
        for bucket in sorted(self._buckets):
            passed += self._buckets[bucket]
            if passed >= rank:
                middle = FLOOR * math.exp((bucket + 0.5) * STEP)
                return min(max(middle, self.least), self.most)
        return 0.0

    def typical(self) -> dict[str, float | None]:
        """Return mean, p50 and p99 in seconds; None without measurements."""
        found = {"mean": self.mean, "p50": self.at(0.5), "p99": self.at(0.99)}
        return {name: value if self.count else None for name, value in found.items()}

    def fields(self, *shares: float) -> dict[str, float | None]:
        """Return min, avg, a p for each share (0.999 is p999), and max for JSON; null without measurements."""
        found = {"min": self.least, "avg": self.mean}
        found |= {f"p{f'{share * 100:g}'.replace('.', '')}": self.at(share) for share in shares}
        found["max"] = self.most
        return {name: round(value, 9) if self.count else None for name, value in found.items()}


def milliseconds(seconds: float | None) -> str:
    """Format seconds as milliseconds with three significant digits."""
    if seconds is None:
        return "-"
    value = seconds * 1000
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"
