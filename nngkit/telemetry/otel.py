"""Samples as observable instruments of an OpenTelemetry meter, which a program's SDK exports by OTLP.

A distribution, for which the API has no observable instrument, becomes two counters: `..._count` and `..._sum`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from nngkit.errors import ConfigError
from nngkit.histogram import Distribution
from nngkit.telemetry.declared import Family

try:
    from opentelemetry.metrics import CallbackOptions, Observation
except ImportError as error:
    raise ConfigError("telemetry", "it needs opentelemetry-api, which each SDK of OpenTelemetry brings") from error

TOGETHER = 0.1  # seconds: an export reads all instruments one after the other
UNITS = {"seconds": "s", "bytes": "By", "": "1"}


def observed(meter: Any, families: Callable[[], Mapping[str, Family]]) -> Callable[[], None]:
    """Make an instrument for each family; return a function that does so again for new ones."""
    known: set[str] = set()
    at, kept = float("-inf"), dict[str, Family]()

    def observe(name: str, part: str, _: CallbackOptions) -> Iterable[Observation]:
        nonlocal at, kept
        if time.monotonic() - at > TOGETHER:
            kept, at = dict(families()), time.monotonic()
        family = kept.get(name)
        return [] if family is None else list(_observations(family, part))

    def add() -> None:
        for name, family in families().items():
            if name in known:
                continue
            known.add(name)
            metric = family.metric
            unit = UNITS[metric.unit]
            if metric.kind == "histogram":
                for part, its in (("count", "1"), ("sum", unit)):
                    meter.create_observable_counter(
                        f"{name}_{part}", [partial(observe, name, part)], unit=its, description=metric.help
                    )
                continue
            create = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
            create(name.removesuffix("_total"), [partial(observe, name, "")], unit=unit, description=metric.help)

    add()
    return add


def _observations(family: Family, part: str) -> Iterator[Observation]:
    for labels, value in family.samples.items():
        if isinstance(value, Distribution):
            value = value.count if part == "count" else value.total
        yield Observation(value, dict(labels))
