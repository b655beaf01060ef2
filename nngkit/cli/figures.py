"""Figures of many measurements in little memory. Pure.

::

    spread = Spread()
    for seconds in measured: spread.add(seconds)
    spread.least, spread.mean, spread.at(0.99), spread.most

Measurements are counted in buckets, each 1 % wider than the one before: from a nanosecond to a day that is some 3,200
of them, however long it goes on, and a percentile is wrong by 1 % at most. Least, most and mean are exact.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["Spread", "milliseconds"]

FLOOR: Final = 1e-9  # seconds: what is less, or nothing at all, is that; no clock here tells them apart
STEP: Final = math.log(1.01)


class Spread:
    """How measurements in seconds are spread."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.least = math.inf
        self.most = 0.0
        self._buckets: dict[int, int] = {}

    def add(self, seconds: float) -> None:
        """One more."""
        seconds = max(FLOOR, seconds)
        self.count += 1
        self.total += seconds
        self.least = min(self.least, seconds)
        self.most = max(self.most, seconds)
        bucket = math.floor(math.log(seconds / FLOOR) / STEP)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    @property
    def mean(self) -> float:
        """The average; 0 of none."""
        return self.total / self.count if self.count else 0.0

    def at(self, share: float) -> float:
        """What that share of them does not exceed, by nearest rank, give or take 1 %; 0 of none."""
        rank, passed = max(1, math.ceil(share * self.count)), 0
        for bucket in sorted(self._buckets):
            passed += self._buckets[bucket]
            if passed >= rank:
                middle = FLOOR * math.exp((bucket + 0.5) * STEP)
                return min(max(middle, self.least), self.most)
        return 0.0

    def fields(self, *shares: float) -> dict[str, float | None]:
        """In JSON: min, avg, a p for each share (0.999 is p999), max; null of none."""
        found = {"min": self.least, "avg": self.mean}
        found |= {f"p{f'{share * 100:g}'.replace('.', '')}": self.at(share) for share in shares}
        found["max"] = self.most
        return {name: round(value, 9) if self.count else None for name, value in found.items()}


def milliseconds(seconds: float | None) -> str:
    """For people: three digits that count, in ms."""
    if seconds is None:
        return "-"
    value = seconds * 1000
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"
