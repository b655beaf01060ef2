"""Counts and times of a gateway's requests by route."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from nngkit.histogram import Histogram
from nngkit.instruments import Instrument, Spread

OTHER: Final = "other"  # paths that are no route; those of the status page, too


@dataclass(frozen=True, slots=True)
class RouteStats:
    """Counters of a route."""

    responses: Annotated[Mapping[int, int], Instrument("counter", label="status")]
    """Responses by status."""
    times: Spread
    """Time until the response is made; of a stream, until it begins."""


@dataclass(slots=True)
class _Route:
    responses: Counter[int] = field(default_factory=Counter)
    times: Histogram = field(default_factory=Histogram)


class Routes:
    """Counts by method and route."""

    def __init__(self) -> None:
        self._routes: defaultdict[str, _Route] = defaultdict(_Route)

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a response. `route`: its path as the router has it, "" if it has none."""
        counts = self._routes[f"{method} {route}" if route else OTHER]
        counts.responses[status] += 1
        counts.times.add(seconds)

    @property
    def stats(self) -> dict[str, RouteStats]:
        """Current counters by method and path."""
        return {
            name: RouteStats(dict(each.responses), each.times.distribution()) for name, each in self._routes.items()
        }
