"""The extra `telemetry`: the metrics of a socket, as Prometheus's text."""

from __future__ import annotations

from nngkit.protocols import Pull
from nngkit.telemetry import Metrics

metrics = Metrics()
with Pull(listen="tcp://127.0.0.1:0", name="in") as pull:
    metrics.watch(pull)
    assert 'nngkit_protocols_pipes{name="in"} 0.0' in metrics.text().decode()
