"""Tables that are read again and again while a page is open, and rates of counters.

::

    Section({"jobs": "Jobs by kind."}, partial(poll, lambda: {job.kind: asdict(job) for job in node.stats.jobs}))
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import trio

from nngkit.errors import NngkitError
from nngkit.web.status.table import Table

EVERY: Final = 1.0  # seconds between two readings

Read = Callable[[], Mapping[str, object] | Awaitable[Mapping[str, object]]]


async def poll(read: Read, table: Table, *, every: float = EVERY) -> None:
    """Have the rows of `read` in a table, for ever. Errors of nngkit and of the disk are said there."""
    while True:
        try:
            rows = read()
            table.replace(rows if isinstance(rows, Mapping) else await rows)
        except (NngkitError, OSError) as error:
            table.fail(f"{type(error).__name__}: {error}")
        else:
            table.fail("")
        await trio.sleep(every)


class RateOf:
    """Rates of counters by key: changes a second since the last call. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before: dict[str, tuple[int, float]] = {}

    def __call__(self, counts: Mapping[str, int]) -> dict[str, float]:
        """Return the rates of these counters, of which the new ones have 0."""
        now, before = self._clock(), self._before
        self._before = {key: (count, now) for key, count in counts.items()}
        rates: dict[str, float] = {}
        for key, count in counts.items():
            old, then = before.get(key, (count, now))
            rates[key] = round(max(0, count - old) / (now - then), 1) if now > then else 0.0
        return rates
