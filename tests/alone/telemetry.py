"""The extra `telemetry`: the metrics of a socket, as Prometheus's text; spans, by OpenTelemetry's API alone."""

from __future__ import annotations

from importlib.util import find_spec

from nngkit import blocking
from nngkit.protocols import Pull
from nngkit.telemetry import Metrics, instrument

metrics = Metrics()
with Pull(listen="tcp://127.0.0.1:0", name="in") as pull:
    metrics.watch(pull)
    assert 'nngkit_protocols_pipes{name="in"} 0.0' in metrics.text().decode()

assert find_spec("opentelemetry.sdk") is None
instrument()
with (
    blocking.Server("echo", lambda body: body, discovery=(), codec="cbor") as server,
    blocking.Client("echo", addresses=server.address, codec="cbor") as client,
):
    assert client.request(1, timeout=10) == 1
