"""Traces: a call that waits for its provider, a job that its handler submits, a message: spans of OpenTelemetry.

::

    pip install 'nngkit[telemetry]' opentelemetry-sdk
    python3 examples/traces.py

prints::

    discover
    program
      orders/place  client
        resolve orders
        orders/place  server
          submit print  producer
            process print  consumer, linked
          publish orders.placed  producer
            process orders.placed  consumer, linked
    receive orders.placed  client, linked

The SDK is the program's. This one keeps the spans in memory; one in service exports them, by OTLP, to a collector:
`BatchSpanProcessor(OTLPSpanExporter())`. docs/telemetry.md
"""

from __future__ import annotations

import trio
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nngkit import Client, Publisher, Server, Subscriber
from nngkit.cluster import Host, JobRun
from nngkit.discovery import Daemon, DaemonSettings
from nngkit.telemetry import instrument, process


async def read_orders(subscriber: Subscriber, read: trio.Event) -> None:
    message = await anext(subscriber.messages())
    with process(message):
        read.set()  # what is done here, calls too, is below this span


async def main() -> None:
    read = trio.Event()
    async with (
        Daemon(DaemonSettings(listen=("tcp://127.0.0.1:0",))) as daemon,
        Host("printers", listen="tcp://127.0.0.1:0", token="t") as host,
        Publisher("tcp://127.0.0.1:0") as publisher,
        Subscriber(publisher.address) as subscriber,
        trio.open_nursery() as nursery,
    ):

        @host.work("print")
        async def print_order(run: JobRun) -> bytes:
            return run.payload

        async def place(order: str) -> None:
            job = await host.submit("print", order.encode())
            await job.result(timeout=10)
            publisher.publish("orders.placed", order.encode())

        server = Server("orders", discovery=daemon.addresses, codec="cbor")
        server.method(place)
        await publisher.wait_for_peers(1)
        nursery.start_soon(read_orders, subscriber, read)
        async with Client("orders", daemons=daemon.query_addresses, codec="cbor") as orders, server:
            with trace.get_tracer("example").start_as_current_span("program"):
                await orders.request("ten pens", method="place", timeout=10)
            await read.wait()


def show(spans: list[ReadableSpan], parent: int | None = None, depth: int = 0) -> None:
    for span in spans:
        if (span.parent.span_id if span.parent else None) == parent:
            kind = "" if span.kind is trace.SpanKind.INTERNAL else f"  {span.kind.name.lower()}"
            print("  " * depth + span.name + kind + (", linked" if span.links else ""))
            show(spans, span.context.span_id if span.context else None, depth + 1)


if __name__ == "__main__":
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    trace.set_tracer_provider(provider)
    instrument()  # before clients and servers are made
    trio.run(main)
    show(sorted(kept.get_finished_spans(), key=lambda span: span.start_time or 0))
