"""Progress of streams: offsets behind the journal, rates, times, skipped and late rows, logged and for Prometheus.

::

    progress = Progress()
    spark.streams.addListener(progress)
    with serve(progress, "127.0.0.1:9464"):       # GET /metrics
        query = counted(rows).writeStream....start()

    progress.figures["my query"].behind           # {("", 0): 120}: by journal (empty if there is one) and partition

Spark's Kafka source reports `offsetsBehindLatest` as metrics of the source. A Python source has no method for them, but
Spark reports its start, end and latest offset for each micro-batch, which is all that they are made of. Spark tells
listeners nothing of skipped records either: `counted` has them observed, on rows that are read with `includeSkipped`.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pyspark.sql.streaming.listener import StreamingQueryListener

from nngkit.errors import Unreachable
from nngkit.spark.reading.options import host_and_port

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logging.getLogger("nngkit.spark")

OBSERVED: Final = "nngkit"  # the observation of `counted`

Behind = dict[tuple[str, int], int]


@dataclass(frozen=True)
class Figures:
    """Progress of one query since its start; the rates and times are those of its last micro-batch.

    `behind`: offsets between the end of that micro-batch and the end of the journal at that time, by journal and
    partition; offsets count all topics. `late`: rows that stateful operators dropped as older than the watermark.
    `seen`: when the query last reported, seconds since 1970.
    """

    batches: int = 0
    rows: int = 0
    skipped: int = 0
    behind: Behind = field(default_factory=dict)
    rows_per_second: float = 0.0
    batch_seconds: float = 0.0
    seen: float = 0.0
    late: int = 0

    def after(self, progress: Mapping[str, Any]) -> Figures:
        """Return the figures after another micro-batch. `progress`: Spark's StreamingQueryProgress as JSON."""
        found: Behind = {}
        for source in progress["sources"]:
            for key, offsets in behind(source.get("endOffset"), source.get("latestOffset")).items():
                found[key] = found.get(key, 0) + offsets
        observed = (progress.get("observedMetrics") or {}).get(OBSERVED) or {}
        return Figures(
            self.batches + 1,
            self.rows + progress["numInputRows"] - (observed.get("damages") or 0),
            self.skipped + (observed.get("skipped") or 0),
            found,
            progress["processedRowsPerSecond"],
            progress["batchDuration"] / 1000,
            _seconds(progress["timestamp"]),
            self.late + sum(each["numRowsDroppedByWatermark"] for each in progress.get("stateOperators") or ()),
        )


def behind(end: object, latest: object) -> Behind:
    """Return the offsets between two of a source's positions; empty for those of another source."""
    reached, there = _flat(end), _flat(latest)
    return {key: max(0, offset - reached.get(key, 0)) for key, offset in there.items()}


def _flat(offsets: object) -> Behind:
    """Return {partition: offset} or {journal: {partition: offset}} by journal and partition."""
    found: Behind = {}
    for key, value in offsets.items() if isinstance(offsets, dict) else ():
        inner = value.items() if isinstance(value, dict) else ((key, value),)
        for partition, offset in inner:
            if not (str(partition).isdigit() and type(offset) is int):
                return {}
            found[(key if isinstance(value, dict) else "", int(partition))] = offset
    return found


def _seconds(moment: str) -> float:
    return dt.datetime.fromisoformat(moment).timestamp()


def counted(rows: DataFrame) -> DataFrame:
    """Return `rows`, read with includeSkipped, as records alone; the number of skipped ones goes to `Progress`."""
    from pyspark.sql import functions as F

    skipped = F.coalesce(F.sum("skipped"), F.lit(0)).alias("skipped")
    damages = F.count("skipped").alias("damages")  # rows that are no records
    return rows.observe(OBSERVED, skipped, damages).where("skipped is null").drop("skipped")


class Progress(StreamingQueryListener):
    """Listener for the streams of a session; logs each micro-batch (info) and what it skipped or dropped (warning).

    Spark calls it in a thread of its own, some time after the micro-batch.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._figures: dict[str, Figures] = {}
        self._names: dict[str, str] = {}  # of running queries, by run

    @property
    def figures(self) -> dict[str, Figures]:
        """Figures of the running queries, by name, or by id if there is none."""
        with self._lock:
            return {name: self._figures[name] for name in self._names.values()}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._begin(str(event.runId), event.name or str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self.note(json.loads(event.progress.json))

    def note(self, progress: Mapping[str, Any]) -> None:
        """Note and log a micro-batch; see `Figures.after`."""
        name = progress.get("name") or progress["id"]
        self._begin(progress["runId"], name)
        with self._lock:
            before = self._figures[name]
            self._figures[name] = now = before.after(progress)
        log.info(
            "query %s, batch %s: %d rows in %.3f s, %d offsets behind",
            name,
            progress["batchId"],
            now.rows - before.rows,
            now.batch_seconds,
            sum(now.behind.values()),
        )
        if now.skipped > before.skipped:
            more = now.skipped - before.skipped
            log.warning("query %s, batch %s: %d records were skipped", name, progress["batchId"], more)
        if now.late > before.late:
            more = now.late - before.late
            log.warning(
                "query %s, batch %s: %d rows came after the watermark, dropped", name, progress["batchId"], more
            )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        with self._lock:
            name = self._names.get(str(event.runId))
            if name is not None:
                self._figures[name] = replace(self._figures[name], seen=_seconds(event.timestamp))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._lock:
            self._names.pop(str(event.runId), None)

    def _begin(self, run: str, name: str) -> None:
        with self._lock:
            if run not in self._names:
                self._names[run] = name
                self._figures[name] = Figures()


METRICS: Final = {
    "batches": (CounterMetricFamily, "Micro-batches since the query's start"),
    "rows": (CounterMetricFamily, "Rows read since the query's start"),
    "skipped_records": (CounterMetricFamily, "Records skipped with failOnDataLoss=false"),
    "late_rows": (CounterMetricFamily, "Rows dropped as older than the watermark"),
    "rows_per_second": (GaugeMetricFamily, "Rows per second in the last micro-batch"),
    "batch_seconds": (GaugeMetricFamily, "Duration of the last micro-batch"),
    "seen_timestamp_seconds": (GaugeMetricFamily, "When the query last reported"),
}


class Metrics(Collector):
    """Prometheus's view of a `Progress`: ``REGISTRY.register(Metrics(progress))``, or `serve`."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the running queries."""
        figures = self._progress.figures
        for number, (name, (kind, what)) in enumerate(METRICS.items()):
            family = kind(f"nngkit_spark_{name}", what, labels=["query"])
            for query, each in figures.items():
                totals = (each.batches, each.rows, each.skipped, each.late)
                family.add_metric([query], (*totals, each.rows_per_second, each.batch_seconds, each.seen)[number])
            yield family
        what = "Offsets between the last micro-batch and the journal's end"
        lag = GaugeMetricFamily("nngkit_spark_offsets_behind", what, labels=["query", "journal", "partition"])
        for query, each in figures.items():
            for (journal, partition), offsets in each.behind.items():
                lag.add_metric([query, journal, str(partition)], offsets)
        yield lag


@contextmanager
def serve(progress: Progress, address: str) -> Iterator[str]:
    """Serve the metrics at http://ADDRESS/metrics; yield the address, with its port if 0 was asked for.

    `address`: host:port, or a port of 127.0.0.1. Raises ConfigError, Unreachable.
    """
    host, port = host_and_port(address)
    registry = CollectorRegistry()
    registry.register(Metrics(progress))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise Unreachable(address, f"cannot listen: {error.strerror or error}") from error
    try:
        yield f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
