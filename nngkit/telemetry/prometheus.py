"""Samples as Prometheus's text, and as families of prometheus_client. The only module here that imports it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nngkit.errors import ConfigError
from nngkit.histogram import BOUNDS, Distribution
from nngkit.telemetry.declared import Family

try:
    from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
    from prometheus_client.core import Metric
except ImportError as error:
    raise ConfigError("telemetry", "it needs prometheus-client: pip install 'nngkit[telemetry]'") from error

TYPE = "text/plain; version=0.0.4; charset=utf-8"


def collected(families: Mapping[str, Family]) -> Iterator[Metric]:
    """Yield families of prometheus_client."""
    for name, family in families.items():
        if not family.samples:
            continue
        kind, metric = family.metric.kind, Metric(name.removesuffix("_total"), family.metric.help, family.metric.kind)
        for labels, value in family.samples.items():
            of = dict(labels)
            if isinstance(value, Distribution):
                for bound, count in zip(BOUNDS, value.counts, strict=True):
                    metric.add_sample(f"{name}_bucket", {**of, "le": f"{bound:g}"}, count)
                metric.add_sample(f"{name}_bucket", {**of, "le": "+Inf"}, value.count)
                metric.add_sample(f"{name}_count", of, value.count)
                metric.add_sample(f"{name}_sum", of, value.total)
            else:
                metric.add_sample(name if kind == "counter" else metric.name, of, float(value))
        yield metric


class _Once:
    """A collector of families that are there."""

    def __init__(self, families: Mapping[str, Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return collected(self._families)

    def describe(self) -> list[Any]:
        return []


def text(families: Mapping[str, Family]) -> bytes:
    """Return the text of these families, and of the process: memory, descriptors, processor time, collections."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(_Once(families))
    return generate_latest(registry)
