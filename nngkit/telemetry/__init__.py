"""Metrics and spans of every room, for Prometheus and OpenTelemetry. Imported only where a program asks for it.

::

    from nngkit.telemetry import Metrics

    metrics = Metrics()
    metrics.watch(client)           # a Client, Server, Publisher, Recorder, socket, ...: whatever has `stats`
    print(metrics.text())           # pip install 'nngkit[telemetry]'
    instrument()                    # spans of calls, discovery, messages, jobs, by the process's SDK of OpenTelemetry

==============  =====================================================================
`declared`      the metrics that a class of `stats` declares, and samples of one
`metrics`       objects that are watched, and their samples
`prometheus`    samples as Prometheus's text
`otel`          samples as instruments of an OpenTelemetry meter
`spans`         spans of calls, discovery, messages, jobs and a gateway's requests, for the hook nngkit.tracing
`propagation`   context of a span in headers
==============  =====================================================================

It imports no room: the objects are given to it.
"""

from nngkit.lazy import lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nngkit.telemetry.declared import Family, Metric
    from nngkit.telemetry.metrics import Metrics, Watched
    from nngkit.telemetry.spans import instrument, process, uninstrument

__all__ = ["Family", "Metric", "Metrics", "Watched", "instrument", "process", "uninstrument"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "declared": "Family Metric",
            "metrics": "Metrics Watched",
            "spans": "instrument process uninstrument",
        },
    )
