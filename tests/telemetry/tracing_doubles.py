"""Receivers of spans: in memory, and by OTLP over HTTP."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Sampler

from nngkit.telemetry import instrument, uninstrument


class Spans:
    """Spans of this process that have ended."""

    def __init__(self, sampler: Sampler | None = None, ids: IdGenerator | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler, id_generator=ids)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    def all(self) -> list[ReadableSpan]:
        """Return them in the order of their beginnings."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def one(self, name: str, kind: str = "") -> ReadableSpan:
        """Return the only span of this name and kind."""
        (found,) = [span for span in self.all() if span.name == name and kind in ("", span.kind.name)]
        return found


@contextlib.contextmanager
def instrumented(sampler: Sampler | None = None, ids: IdGenerator | None = None) -> Iterator[Spans]:
    """Instrument the process, with a provider of its own, and keep the spans."""
    spans = Spans(sampler, ids)
    instrument(spans.provider)
    try:
        yield spans
    finally:
        uninstrument()
        spans.provider.shutdown()


class Collector:
    """An HTTP server that takes OTLP, as protobuf. `spans`: those that it got, by name."""

    def __init__(self) -> None:
        self.spans: list[Any] = []

    @contextlib.contextmanager
    def open(self) -> Iterator[str]:
        """Yield the URL for an exporter."""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in resource.scope_spans:
                        collector.spans += scope.spans
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/traces"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
