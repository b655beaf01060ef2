"""Calls with spans, in turns with plain ones: by nngkit.telemetry, by hand with the SDK, and without a context.

For telemetry.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import trio
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased

from _child import cpu_of, others, peak, quantile, report
from nngkit import Client, Server
from nngkit.calls import Calling
from nngkit.telemetry import instrument, uninstrument

WAIT = 60.0  # seconds for any one event
TURN = 100  # calls before those of the other way
LEAST = 4000  # calls of a way, so that p99 has 40 samples above it
ATTRIBUTES = {"rpc.system.name": "nngkit", "rpc.method": "answer"}


class Nowhere(SpanExporter):
    """Drops the spans: what an exporter costs is not nngkit's."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def _provider(task: dict[str, Any]) -> TracerProvider:
    provider = TracerProvider(sampler=ParentBased(ALWAYS_ON if task["sampled"] else ALWAYS_OFF))
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    trace.set_tracer_provider(provider)
    return provider


async def _echo(body: bytes) -> bytes:
    return body


async def serve(task: dict[str, Any]) -> None:
    """Serve with spans, and at another address without."""
    tracer = _provider(task).get_tracer("by hand")

    async def by_hand(body: bytes, calling: Calling) -> bytes:
        parent = propagate.extract(dict(calling.headers), Context())
        with tracer.start_as_current_span("answer", parent, trace.SpanKind.SERVER, ATTRIBUTES):
            return body

    async def bare(body: bytes) -> bytes:
        tracer.start_span("answer", kind=trace.SpanKind.SERVER, attributes=ATTRIBUTES).end()
        return body

    async with AsyncExitStack() as stack:
        servers = [Server("answer", _echo, listen="tcp://127.0.0.1:0", discovery=(), codec="cbor")]
        if task["by"] != "nngkit":
            handler: Any = by_hand if task["by"] == "hand" else bare
            servers.append(Server("answer", handler, listen=task["url"], discovery=(), codec="cbor"))
        else:
            instrument()
            servers.append(Server("answer", _echo, listen=task["url"], discovery=(), codec="cbor"))
            uninstrument()
        plain, traced = [await stack.enter_async_context(server) for server in servers]
        report(url=traced.address, plain=plain.address)
        await trio.sleep_forever()


async def ask_both(task: dict[str, Any]) -> None:
    """Call with spans and plainly, in turns: ``more_us``, the median of the turns' differences at p50."""
    tracer = _provider(task).get_tracer("by hand")
    plain = Client("answer", addresses=task["plain"], codec="cbor")
    if task["by"] == "nngkit":
        instrument()
    traced = Client("answer", addresses=task["url"], codec="cbor")
    uninstrument()
    async with plain, traced:
        for client in (plain, traced):
            await client.wait_for_providers(timeout=WAIT)

        async def by_hand(body: bytes) -> Any:
            headers: dict[str, str] = {}
            with tracer.start_as_current_span("answer", kind=trace.SpanKind.CLIENT, attributes=ATTRIBUTES):
                propagate.inject(headers)
                return await traced.request(body, headers=headers)

        async def bare(body: bytes) -> Any:
            tracer.start_span("answer", kind=trace.SpanKind.CLIENT, attributes=ATTRIBUTES).end()
            return await traced.request(body)

        ways: dict[str, Any] = {"nngkit": traced.request, "hand": by_hand, "bare": bare}
        await _in_turns(task, ways[task["by"]], plain.request)


async def _in_turns(task: dict[str, Any], *ways: Any) -> None:
    clock, body = time.perf_counter, bytes(16)
    times: list[list[float]] = [[] for _ in ways]
    more: list[float] = []
    end, cpu, other, pids = 0.0, 0.0, 0.0, others(task)
    while True:
        middles = []
        for ask, taken in zip(ways, times, strict=True):
            turn = []
            for _ in range(TURN):
                began = clock()
                assert await ask(body) == body
                turn.append(clock() - began)
            taken += turn
            middles.append(quantile(turn, 0.5))
        if not end:  # the first turns are the warm-up
            end = clock() + task["seconds"]
            cpu, other = time.process_time(), cpu_of(pids)
            for taken in times:
                taken.clear()
            continue
        more.append(middles[0] - middles[1])
        if clock() > end and len(times[0]) >= LEAST:
            break
    count = sum(map(len, times))
    report(
        p50_us=quantile(times[0], 0.5) * 1e6,
        p99_us=quantile(times[0], 0.99) * 1e6,
        more_us=quantile(more, 0.5) * 1e6,
        cpu_us=(time.process_time() - cpu) / count * 1e6,
        other_us=(cpu_of(pids) - other) / count * 1e6,
        rss_mib=peak(),
    )
