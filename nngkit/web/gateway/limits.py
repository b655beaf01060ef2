"""Rates of clients: a bucket of tokens for each, in a table that is capped. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MOST: Final = 10_000
"""Clients in the table; the one that asked least lately is forgotten, and so has a full bucket again."""


class Rates:
    """Buckets that hold `rate` tokens, at least one, and fill in a second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._most = max(1.0, rate)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and when they were counted

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, client: str, now: float) -> float:
        """Take a token and return 0; without one return the seconds until there is one."""
        tokens, counted = self._buckets.pop(client, (self._most, now))
        tokens = min(self._most, tokens + max(0.0, now - counted) * self._rate)
        wait = 0.0 if tokens >= 1.0 else (1.0 - tokens) / self._rate
        self._buckets[client] = (tokens if wait else tokens - 1.0), now
        if len(self._buckets) > MOST:
            self._buckets.popitem(last=False)
        return wait
