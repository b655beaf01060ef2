"""Objects that are watched, and their samples: one registry for all rooms.

::

    metrics = Metrics()
    with metrics.watch(client): ...         # or without `with`: until it is closed, or nothing else refers to it
    metrics.families()                      # {name: Family}, as they are now

A sample has the label `name`, of the object that is watched, the labels that its `stats` declare, and `owner` if its
stats are a part of those of another object, as a server's socket. Objects with equal labels are added up. A family
has at most `most` samples: those of further labels are added up under "(other)".
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final, Protocol, Self

from nngkit.errors import Closed, ConfigError
from nngkit.histogram import Distribution
from nngkit.log_lines import LogLines
from nngkit.telemetry.declared import Family, Labels, declared, is_stats

log = logging.getLogger("nngkit.telemetry")

MOST: Final = 1000  # samples of a family: about 100 KB of text
NAME: Final = 120  # characters of a label's value


class Watchable(Protocol):
    """An object that can be watched. If it has `closed`, a property, it is forgotten once that is True."""

    @property
    def stats(self) -> Any:
        """A dataclass whose fields have types of nngkit/instruments.py."""


class Watched:
    """An object that is watched, until `close` or the end of a `with` block."""

    def __init__(self, metrics: Metrics, number: int) -> None:
        self._metrics = metrics
        self._number = number

    def close(self) -> None:
        """Watch it no longer. Idempotent."""
        self._metrics._forget(self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Metrics:
    """Registry of objects with `stats`. `most`: samples of one metric. Any thread may call.

    It is a collector of prometheus_client, too: ``prometheus_client.REGISTRY.register(Metrics())``.
    """

    def __init__(self, *, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._number = 0
        self._objects: dict[int, tuple[str, weakref.ref[Any]]] = {}
        self._lines = LogLines()
        self._kept: tuple[float, bytes] = (float("-inf"), b"")

    def watch(self, thing: Watchable, name: str | None = None) -> Watched:
        """Make metrics of an object until it is closed. `name`: its label; default: its own name or id.

        The object is not kept alive. Its `stats` are read in the thread that reads the metrics; those of a class of
        nngkit under trio should be read in its loop. Raises ConfigError for an object without `stats`.
        """
        if not hasattr(type(thing), "stats"):
            raise ConfigError("watch", f"a {type(thing).__name__} has no stats", thing)
        label = _name(thing) if name is None else name
        with self._lock:
            self._number += 1
            number = self._number
            self._objects[number] = label[:NAME], weakref.ref(thing, lambda _: self._forget(number))
            self._kept = float("-inf"), b""  # it has nothing of this object
        return Watched(self, number)

    def _forget(self, number: int) -> None:
        self._objects.pop(number, None)  # without the lock: the collector of garbage may call at any time

    def families(self) -> dict[str, Family]:
        """Return the present samples of all objects, by the name of the metric."""
        found: dict[str, Family] = {}
        for number, (name, reference) in list(self._objects.items()):
            thing = reference()
            if thing is None or getattr(thing, "closed", False) is True:
                self._forget(number)
                continue
            try:
                stats = thing.stats
            except Closed:
                self._forget(number)
                continue
            except Exception as error:  # one object must not hide the others
                text = f"no metrics of a {type(thing).__name__}: {type(error).__name__}: {error}"
                if (line := self._lines.add(text, time.monotonic())) is not None:
                    log.warning("%s", line)
                continue
            self._add(found, stats, (("name", name),) if name else (), "")
        return found

    def _add(self, found: dict[str, Family], stats: Any, labels: Labels, owner: str) -> None:
        known = declared(type(stats))
        labels = (*labels, *((name, str(getattr(stats, name))[:NAME]) for name in known.labels))
        own = (*labels, ("owner", owner)) if owner else labels
        for metric in known.metrics:
            value = getattr(stats, metric.attribute)
            family = found.get(metric.name)
            if family is None:
                family = found[metric.name] = Family(metric)
            if metric.label:
                for key, number in value.items():
                    family.add((*own, (metric.label, str(key)[:NAME])), number, self._most)
            elif isinstance(value, Distribution):
                family.add(own, value, self._most)
            elif metric.unit != "seconds" or value is not None:
                family.add(own, value is not None if value is None or isinstance(value, str) else value, self._most)
        for name in known.parts:
            value = getattr(stats, name)
            if name in known.keyed:
                for key, part in value.items():
                    self._add(found, part, (*labels, (known.keyed[name], str(key)[:NAME])), owner)
                continue
            of = owner or known.prefix.removeprefix("nngkit_")
            several = isinstance(value, tuple | list)
            for part in value if several else (value,):
                if is_stats(part):
                    # one part of several has labels of its own; two of one class are told apart by their fields
                    self._add(found, part, labels, "" if several else f"{of}_{name}")

    def collect(self) -> Iterable[Any]:
        """Return the families of prometheus_client, which needs the extra `telemetry`."""
        from nngkit.telemetry.prometheus import collected

        return collected(self.families())

    def text(self, *, age: float = 0.0) -> bytes:
        """Return the metrics as Prometheus's text, of this process too; those made up to `age` seconds ago if any.

        Raises ConfigError without the extra `telemetry`.
        """
        now = time.monotonic()
        at, kept = self._kept
        if now - at >= age or not kept:
            from nngkit.telemetry.prometheus import text

            kept = text(self.families())
            self._kept = now, kept
        return kept

    def observe(self, meter: Any) -> Callable[[], None]:
        """Make instruments of an OpenTelemetry meter; return a function that adds those of classes seen since.

        Call it once the objects are watched: an instrument has to be there before it is read. Needs an SDK of
        OpenTelemetry. Raises ConfigError.
        """
        from nngkit.telemetry.otel import observed

        return observed(meter, self.families)


def _name(thing: object) -> str:
    """Return the name or id of an object, if it has one that says something."""
    for attribute in ("name", "id"):
        value = getattr(thing, attribute, None)
        if isinstance(value, str):
            return value
    return ""
