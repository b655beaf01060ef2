"""Spans: one tree from an HTTP client to a job, and what each span says. Read by OpenTelemetry's own SDK."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider, _disable_tracer_configurator
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    DEFAULT_OFF,
    Decision,
    ParentBased,
    ParentBasedTraceIdRatio,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import StatusCode

from nngkit import Client, Publisher, RemoteError, Server, Subscriber, TimedOut, aio, blocking
from nngkit.calls import Calling
from nngkit.cluster import Host, JobRun
from nngkit.discovery import Daemon, DaemonSettings
from nngkit.fanout import Published
from nngkit.headers import MOST_HEADERS
from nngkit.journal.record import Record
from nngkit.telemetry import instrument, process, uninstrument
from nngkit.testing import aeventually, eventually
from nngkit.testing.cluster_memory import ClusterMemory
from nngkit.web.gateway import Gateway
from tests.telemetry.tracing_doubles import Collector, Spans, instrumented
from tests.web.gateways import calculating, served

pytestmark = pytest.mark.timeout(30)
PATIENCE = 10.0  # seconds for any one event, on a loaded machine
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
UNSAMPLED = f"{TRACE[:-2]}00"


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else int(span.parent.span_id)


def links_of(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def said(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def current() -> int:
    return int(trace.get_current_span().get_span_context().span_id)


def place(address: str) -> dict[str, Any]:
    host, port = address.removeprefix("tcp://").split(":")
    return {"server.address": host, "server.port": int(port)}


async def echo(body: Any) -> Any:
    return body


async def test_a_trace_from_http_through_two_services_to_a_job_is_one_tree_at_a_collector() -> None:
    collector = Collector()
    with collector.open() as url:
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(url, timeout=PATIENCE)))
        instrument(provider)
        try:
            await ask_for_a_render(provider)
        finally:
            uninstrument()
            await trio.to_thread.run_sync(provider.shutdown)
    before = ("GET /services", "discover")  # of the wait, and at the beginning of clients
    collector.spans = [span for span in collector.spans if span.name not in before]
    by_id = {span.span_id: span for span in collector.spans}
    internal, server, client, producer, consumer = 1, 2, 3, 4, 5  # OTLP's numbers of kinds
    tree = []
    for span in collector.spans:
        parent = by_id.get(span.parent_span_id)
        tree.append((span.name, span.kind, None if parent is None else (parent.name, parent.kind)))
    http = "POST /call/{name}/{method}"
    assert set(tree) == {
        ("browser", internal, None),
        (http, server, ("browser", internal)),
        ("pages/render", client, (http, server)),
        ("pages/render", server, ("pages/render", client)),
        ("images/draw", client, ("pages/render", server)),
        ("resolve images", internal, ("images/draw", client)),  # it has begun after the call
        ("images/draw", server, ("images/draw", client)),
        ("submit paint", producer, ("images/draw", server)),
        ("process paint", consumer, ("submit paint", producer)),
    }
    assert len(tree) == 9
    assert len({span.trace_id for span in collector.spans}) == 1
    assert not any(span.status.code for span in collector.spans)


async def ask_for_a_render(provider: TracerProvider) -> None:
    memory = ClusterMemory()
    async with (
        Daemon(DaemonSettings(listen=("tcp://127.0.0.1:0",), interval=0.1)) as daemon,
        Host("c", transport=memory.transport("a"), id="a") as host,
        Client("images", daemons=daemon.query_addresses, codec="cbor") as images,
    ):

        @host.work("paint")
        async def paint(run: JobRun) -> bytes:
            return run.payload.upper()

        async def draw(value: str) -> str:
            job = await host.submit("paint", value.encode())
            return (await job.result(PATIENCE)).decode()

        async def render(value: str) -> Any:
            nursery.start_soon(serve, inner)
            return await images.request(value, method="draw", timeout=PATIENCE)

        async def serve(server: Server) -> None:
            async with server:
                await trio.sleep_forever()

        inner = Server("images", discovery=daemon.addresses, codec="cbor")
        outer = Server("pages", discovery=daemon.addresses, codec="json")
        inner.method(draw)
        outer.method(render)
        gateway = Gateway(daemons=daemon.query_addresses, json=("pages",))
        async with outer, served(gateway) as home, trio.open_nursery() as nursery:
            await home.knows("pages")
            with provider.get_tracer("test").start_as_current_span("browser"):
                headers: dict[str, str] = {}
                propagate.inject(headers)
                reply = await home.call("pages/render", "cat", **headers)
            assert (reply.status, reply.value) == (200, "CAT")
            nursery.cancel_scope.cancel()


async def test_names_of_attributes_are_those_of_the_semantic_conventions() -> None:
    known = set()
    for room in ("opentelemetry.semconv.attributes", "opentelemetry.semconv._incubating.attributes"):
        for module in pkgutil.iter_modules(importlib.import_module(room).__path__, f"{room}."):
            constants = vars(importlib.import_module(module.name)).values()
            known |= {value for value in constants if isinstance(value, str)}
    with instrumented() as spans:
        await ask_for_a_render(spans.provider)
        async with Publisher("tcp://127.0.0.1:0") as publisher, Subscriber(publisher.address) as subscriber:
            await publisher.wait_for_peers(1, PATIENCE)
            publisher.publish_many([("a", b""), ("b", b"")])
            await subscriber.receive_many(timeout=PATIENCE)
        found = {name for span in spans.all() for name in said(span)}
    assert {name for name in found - known if not name.startswith("nngkit.")} == set()
    assert {"rpc.system.name", "messaging.batch.message_count", "http.route", "url.scheme"} <= found


async def test_the_span_of_a_call_has_its_provider_and_what_went_wrong() -> None:
    async def fail(body: Any) -> Any:
        raise KeyError("gone")

    async def decline(body: Any) -> Any:
        raise RemoteError("not for you", kind="declined")

    with instrumented() as spans:
        server = Server("calc", echo, discovery=(), codec="cbor")
        server.method(fail)
        server.method(decline)
        server.method("hang")(lambda body: trio.from_thread.run(trio.sleep, 0.1))
        async with server, Client("calc", addresses=server.address, codec="cbor") as client:
            assert await client.request(1) == 1
            for method, timeout in (("fail", PATIENCE), ("decline", PATIENCE), ("hang", 0.02)):
                with pytest.raises((RemoteError, TimedOut)):
                    await client.request(1, method=method, timeout=timeout)
        ok, answered = spans.one("calc", "CLIENT"), spans.one("calc", "SERVER")
        assert said(ok) == {"rpc.system.name": "nngkit", "rpc.method": "calc", **place(server.address)}
        assert (ok.status.status_code, list(ok.events)) == (StatusCode.UNSET, [])
        assert said(answered)["network.peer.address"] == "127.0.0.1"
        assert parent_of(answered) == id_of(ok)
        types = {(span.name, span.kind.name): said(span).get("error.type") for span in spans.all()}
        assert types[("calc/fail", "SERVER")] == "KeyError"
        assert types[("calc/fail", "CLIENT")] == "failed"
        assert types[("calc/decline", "SERVER")] == types[("calc/decline", "CLIENT")] == "declined"
        assert types[("calc/hang", "CLIENT")] == "nngkit.errors.TimedOut"
        assert types[("calc/hang", "SERVER")] == "trio.Cancelled"
        assert spans.one("calc/fail", "CLIENT").status.status_code is StatusCode.ERROR


async def test_each_attempt_of_a_retried_call_is_an_event_with_its_provider() -> None:
    with instrumented() as spans:
        leaving, staying = (Server("calc", echo, discovery=(), codec="cbor") for _ in range(2))
        async with (
            leaving,
            staying,
            Client("calc", addresses=(leaving.address, staying.address), codec="cbor") as client,
        ):
            await client.wait_for_providers(2, PATIENCE)
            leaving.drain()
            while not client.stats.retried:
                await client.request(1, timeout=PATIENCE)
        retried = [span for span in spans.all() if span.events]
        (span,) = retried
        assert said(span) == {"rpc.system.name": "nngkit", "rpc.method": "calc", **place(staying.address)}
        events: list[dict[str, Any]] = [dict(event.attributes or {}) for event in span.events]
        assert [event.pop("nngkit.attempt.duration") >= 0 for event in events] == [True, True]
        assert events == [
            {**place(leaving.address), "nngkit.attempt.outcome": "refused"},
            {**place(staying.address), "nngkit.attempt.outcome": "reply"},
        ]
        assert all((span.start_time or 0) <= event.timestamp + 1_000_000 for event in span.events)


async def hang(body: Any) -> Any:
    await trio.sleep(PATIENCE)


def outcomes_of(span: Any) -> tuple[Any, dict[Any, dict[str, Any]]]:
    """Return a span, and what it tells of its attempts, by their outcome."""
    attempts = [dict(event.attributes or {}) for event in span.events]
    return span, {each["nngkit.attempt.outcome"]: each for each in attempts}


def check_hedged(spans: Spans, slow: Any, quick: Any) -> None:
    hedged, found = outcomes_of([span for span in spans.all() if span.events][-1])  # the last one: its hedge has won
    assert place(slow.address).items() <= found["cancelled"].items()
    assert place(quick.address).items() <= found["reply"].items()
    assert place(quick.address).items() <= said(hedged).items()
    servers = [span for span in spans.all() if span.kind.name == "SERVER" and parent_of(span) == id_of(hedged)]
    assert {said(span).get("error.type") for span in servers} == {None, "trio.Cancelled"}


async def test_both_attempts_of_a_hedged_call_are_events() -> None:
    with instrumented() as spans:
        slow, quick = (Server("calc", handler, discovery=(), codec="cbor") for handler in (hang, echo))
        async with slow, quick, Client("calc", addresses=(slow.address, quick.address), codec="cbor") as client:
            await client.wait_for_providers(2, PATIENCE)
            while not client.stats.hedge_wins:
                await client.request(1, hedge=0.02, timeout=PATIENCE)
            await aeventually(lambda: not slow.stats.in_progress)
            check_hedged(spans, slow, quick)


def test_both_attempts_of_a_call_that_a_thread_hedges_are_events() -> None:
    with instrumented() as spans:
        slow, quick = (blocking.Server("calc", handler, discovery=(), codec="cbor") for handler in (hang, echo))
        with slow, quick, blocking.Client("calc", addresses=(slow.address, quick.address), codec="cbor") as client:
            client.wait_for_providers(2, PATIENCE)
            while not client.stats.hedge_wins:
                client.request(1, hedge=0.02, timeout=PATIENCE)
            eventually(lambda: not slow.stats.in_progress)
            check_hedged(spans, slow, quick)


def test_both_attempts_of_a_call_that_asyncio_hedges_are_events() -> None:
    async def sleep(body: Any) -> None:
        await asyncio.sleep(PATIENCE)

    async def main(spans: Spans) -> None:
        slow, quick = (aio.Server("calc", handler, discovery=(), codec="cbor") for handler in (sleep, echo))
        async with slow, quick, aio.Client("calc", addresses=(slow.address, quick.address), codec="cbor") as client:
            await client.wait_for_providers(2, PATIENCE)
            while not client.stats.hedge_wins:
                await client.request(1, hedge=0.02, timeout=PATIENCE)
            await aeventually(lambda: not slow.stats.in_progress)
            check_hedged(spans, slow, quick)

    with instrumented() as spans:
        asyncio.run(main(spans))


async def test_the_span_of_a_streamed_call_ends_with_the_stream() -> None:
    seen = []

    async def count(body: int) -> Any:
        for number in range(body):
            seen.append(current())
            yield number

    with instrumented() as spans:
        async with (
            Server("calc", count, discovery=(), codec="cbor") as server,
            Client("calc", addresses=server.address, codec="cbor") as client,
        ):
            assert [part async for part in client.stream(3)] == [0, 1, 2]
        called, ran = spans.one("calc", "CLIENT"), spans.one("calc", "SERVER")
        assert seen == [id_of(ran)] * 3
        assert parent_of(ran) == id_of(called)
        assert place(server.address).items() <= said(called).items()


def test_the_context_flows_through_asyncio_programs() -> None:
    inside: list[int] = []

    async def handler(body: Any, calling: Calling) -> Any:
        inside.append(current())
        return baggage.get_baggage("tenant")

    async def main(spans: Spans) -> None:
        async with (
            aio.Server("calc", handler, discovery=(), codec="cbor") as server,
            aio.Client("calc", addresses=server.address, codec="cbor") as client,
        ):
            with spans.tracer.start_as_current_span("program"):
                token = context.attach(baggage.set_baggage("tenant", "oslo"))
                assert await client.request(1, timeout=PATIENCE) == "oslo"
                context.detach(token)

    with instrumented() as spans:
        asyncio.run(main(spans))
        called, ran = spans.one("calc", "CLIENT"), spans.one("calc", "SERVER")
        assert parent_of(called) == id_of(spans.one("program"))
        assert (parent_of(ran), inside) == (id_of(called), [id_of(ran)])


def test_the_context_flows_through_threads() -> None:
    inside: list[int] = []

    def handler(body: Any) -> Any:
        inside.append(current())
        return body

    with instrumented() as spans:
        with (
            blocking.Server("calc", handler, discovery=(), codec="cbor") as server,
            blocking.Client("calc", addresses=server.address, codec="cbor") as client,
            spans.tracer.start_as_current_span("program"),
        ):
            assert client.request(1, timeout=PATIENCE) == 1
        called, ran = spans.one("calc", "CLIENT"), spans.one("calc", "SERVER")
        assert parent_of(called) == id_of(spans.one("program"))
        assert (parent_of(ran), inside) == (id_of(called), [id_of(ran)])


async def test_without_a_codec_a_trace_ends_at_the_client() -> None:
    with instrumented() as spans:
        async with Server("calc", echo, discovery=()) as server, Client("calc", addresses=server.address) as client:
            assert await client.request(b"x") == b"x"
        assert [(span.name, span.kind.name) for span in spans.all()] == [("calc", "CLIENT")]


async def test_a_trace_that_is_not_sampled_is_not_sampled_downstream() -> None:
    headers: list[dict[str, Any]] = []

    async def note(body: Any, calling: Calling) -> None:
        headers.append(dict(calling.headers))

    with instrumented() as spans:
        async with Server("calc", note, discovery=(), codec="cbor") as server:
            for sampler in (ALWAYS_OFF, ALWAYS_ON):
                instrument(TracerProvider(sampler=sampler))
                async with Client("calc", addresses=server.address, codec="cbor") as client:
                    await client.request(1)
        assert [int(each["traceparent"].rpartition("-")[2], 16) & 1 for each in headers] == [0, 1]
        assert len(spans.all()) == 1  # at the server


class Bold(ParentBased):
    """A sampler of a program, which chooses by itself."""

    def should_sample(self, *arguments: Any, **options: Any) -> SamplingResult:
        return ALWAYS_ON.should_sample(*arguments, **options)


@pytest.mark.parametrize(
    ("sampler", "recorded"),
    [
        (ParentBased(ALWAYS_ON), 0),
        (ParentBased(ALWAYS_ON, remote_parent_not_sampled=ALWAYS_ON, local_parent_not_sampled=ALWAYS_ON), 2),
        (ParentBased(ALWAYS_ON, local_parent_not_sampled=ALWAYS_ON), 1),
        (ALWAYS_ON, 2),
        (Bold(ALWAYS_OFF), 2),
        (ALWAYS_OFF, 0),
        (ParentBasedTraceIdRatio(1.0), 0),
    ],
)
async def test_below_a_span_that_is_not_sampled_the_sampler_has_its_say(sampler: Sampler, recorded: int) -> None:
    headers = []

    async def note(body: Any, calling: Calling) -> None:
        headers.append(dict(calling.headers))

    with instrumented(sampler) as spans:
        async with (
            Server("last", note, discovery=(), codec="cbor") as last,
            Client("last", addresses=last.address, codec="cbor") as inner,
            Server("calc", inner.request, discovery=(), codec="cbor") as server,
        ):
            uninstrument()
            async with Client("calc", addresses=server.address, codec="cbor") as client:
                await client.request(1, headers={"traceparent": UNSAMPLED})
        (sent,) = headers
        trace_id, flags = str(sent["traceparent"]).split("-")[1::2]
        assert trace_id == UNSAMPLED.split("-")[1]
        made = {(span.name, span.kind.name) for span in spans.all()} - {("last", "SERVER")}
        assert len(made) == recorded
        assert int(flags, 16) & 1 == (("last", "CLIENT") in made)


class Kept(RandomIdGenerator):
    """Keeps the ids of traces."""

    def __init__(self) -> None:
        self.drawn: list[int] = []

    def generate_trace_id(self) -> int:
        self.drawn.append(super().generate_trace_id())
        return self.drawn[-1]


class Noted(TraceIdRatioBased):
    """Keeps the attributes of the spans that it was asked for."""

    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        self.asked: list[Any] = []

    def should_sample(self, *arguments: Any, **options: Any) -> SamplingResult:
        self.asked.append(options["attributes"])
        return super().should_sample(*arguments, **options)


async def traceparents(calls: int) -> list[str]:
    """Return those of calls that begin traces."""
    headers = []

    async def note(body: Any, calling: Calling) -> None:
        headers.append(str(calling.headers.get("traceparent")))

    async with (
        Server("calc", note, discovery=(), codec="cbor") as server,
        Client("calc", addresses=server.address, codec="cbor") as client,
    ):
        for _ in range(calls):
            await client.request(1)
    return headers


@pytest.mark.parametrize("root", [TraceIdRatioBased(0.5), Noted(0.5), ALWAYS_OFF, ALWAYS_ON])
async def test_each_trace_has_the_first_id_drawn_for_it_and_the_samplers_choice_for_that(root: Sampler) -> None:
    ids = Kept()
    with instrumented(ParentBased(root), ids) as spans:
        sent = await traceparents(40)
        if isinstance(root, Noted):
            assert root.asked == [{"rpc.system.name": "nngkit", "rpc.method": "calc"}] * 40
        roots = [span.context.trace_id for span in spans.all() if span.kind.name == "CLIENT" and span.context]
    assert [int(each.split("-")[1], 16) for each in sent] == ids.drawn
    expected = [sampled(root, trace_id) for trace_id in ids.drawn]
    assert [each.rpartition("-")[2] for each in sent] == [f"{2 + each:02x}" for each in expected]  # 2: random
    assert roots == [trace_id for trace_id, taken in zip(ids.drawn, expected, strict=True) if taken]


def sampled(root: Sampler, trace_id: int) -> bool:
    return root.should_sample(None, trace_id, "", attributes=None).decision is Decision.RECORD_AND_SAMPLE


async def test_spans_are_made_for_the_metrics_of_the_sdk_and_none_by_a_tracer_that_is_disabled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED", "true")
    reader = InMemoryMetricReader()
    instrument(TracerProvider(sampler=DEFAULT_OFF, meter_provider=MeterProvider([reader])))
    try:
        await traceparents(3)
        told = json.loads(reader.get_metrics_data().to_json())  # type: ignore[union-attr]
        metrics = told["resource_metrics"][0]["scope_metrics"][0]["metrics"]
        (started,) = [each for each in metrics if each["name"] == "otel.sdk.span.started"]
        assert sum(point["value"] for point in started["data"]["data_points"]) == 6
        provider = TracerProvider(sampler=DEFAULT_OFF)
        instrument(provider)
        provider._set_tracer_configurator(tracer_configurator=_disable_tracer_configurator)
        assert await traceparents(1) == ["None"]
    finally:
        uninstrument()


async def test_in_the_handler_of_a_trace_that_is_not_sampled_its_context_is_current() -> None:
    seen = []

    async def note(body: Any, calling: Calling) -> None:
        context_there = trace.get_current_span().get_span_context()
        headers: dict[str, str] = {}
        propagate.inject(headers)
        seen.append((context_there.is_remote, context_there.is_valid, headers == dict(calling.headers)))

    with instrumented(DEFAULT_OFF):
        async with (
            Server("calc", note, discovery=(), codec="cbor") as server,
            Client("calc", addresses=server.address, codec="cbor") as client,
        ):
            await client.request(1)
            await client.request(1, headers={"traceparent": UNSAMPLED})
    assert seen == [(True, True, True)] * 2


async def test_headers_of_a_stranger_break_no_call() -> None:
    wrong: list[dict[str, str | bytes]] = [
        {"traceparent": b"\xff\x00"},
        {"traceparent": TRACE.encode()},
        {"traceparent": "00-" + "0" * 32 + "-" + "0" * 16 + "-01"},
        {"traceparent": TRACE, "tracestate": "=,=;" * 1000, "baggage": b"%%%=\xff;,"},
    ]
    with instrumented() as spans:
        async with Server("calc", echo, discovery=(), codec="cbor") as server:
            uninstrument()
            async with Client("calc", addresses=server.address, codec="cbor") as client:
                for headers in wrong:
                    assert await client.request(1, headers=headers, timeout=PATIENCE) == 1
        parents = [parent_of(span) for span in spans.all()]
    assert parents == [None, int("00f067aa0ba902b7", 16), None, int("00f067aa0ba902b7", 16)]


async def test_full_headers_stay_as_they_are() -> None:
    async def count(body: Any, calling: Calling) -> int:
        return len(calling.headers)

    with instrumented():
        async with (
            Server("calc", count, discovery=(), codec="cbor") as server,
            Client("calc", addresses=server.address, codec="cbor") as client,
        ):
            many = {f"name-{number}": "" for number in range(MOST_HEADERS)}
            assert await client.request(1, headers=many) == MOST_HEADERS
            assert await client.request(1, headers={"large": "x" * 8180}) == 1
            assert await client.request(1, headers={"large": "x" * 8000}) == 2


async def test_a_published_message_has_the_context_of_its_span() -> None:
    with instrumented() as spans:
        async with Publisher("tcp://127.0.0.1:0") as publisher, Subscriber(publisher.address) as subscriber:
            await publisher.wait_for_peers(1, PATIENCE)
            number = publisher.publish("weather.oslo", b"3", headers={"tenant": "oslo"})
            message = await subscriber.receive(PATIENCE)
            assert isinstance(message, Published)
            assert (message.headers or {})["tenant"] == "oslo"
            with process(message):
                worked = current()
            with spans.tracer.start_as_current_span("program"), process(message):
                pass
            publisher.publish("own", b"", headers={"traceparent": TRACE})
            own = await subscriber.receive(PATIENCE)
            assert isinstance(own, Published)
            assert own.headers == {"traceparent": TRACE}
        sent, got = spans.one("publish weather.oslo", "PRODUCER"), spans.one("receive weather.oslo", "CLIENT")
        assert said(sent) == {
            "messaging.system": "nngkit",
            "messaging.operation.name": "publish",
            "messaging.operation.type": "send",
            "messaging.destination.name": "weather.oslo",
            "messaging.message.id": f"{publisher.id.hex()}.{publisher.epoch}.{number}",
        }
        assert (parent_of(got), links_of(got)) == (None, [id_of(sent)])
        alone, within = (span for span in spans.all() if span.name == "process weather.oslo")
        assert (id_of(alone), parent_of(alone), links_of(alone)) == (worked, id_of(sent), [id_of(sent)])
        assert (parent_of(within), links_of(within)) == (id_of(spans.one("program")), [id_of(sent)])
        assert links_of(spans.one("publish own", "CLIENT")) == [int("00f067aa0ba902b7", 16)]


def test_a_record_with_a_context_is_processed_below_its_sender() -> None:
    headers = (("traceparent", TRACE.encode()), ("seq", b"\xff"))
    record = Record(None, b"3", "weather", 0, 7, 0, headers, "sub", None)
    with process(record):  # not instrumented: nothing
        assert not current()
    with instrumented() as spans:
        with pytest.raises(ValueError, match="wet"), process(record):
            raise ValueError("wet")
        span = spans.one("process weather", "CONSUMER")
        sender = int("00f067aa0ba902b7", 16)
        assert (parent_of(span), links_of(span)) == (sender, [sender])
        assert said(span)["error.type"] == "ValueError"


async def test_each_try_of_a_job_is_a_child_of_its_submission() -> None:
    memory = ClusterMemory()
    with instrumented() as spans:
        async with Host("c", transport=memory.transport("a"), id="a") as host:

            @host.work("paint")
            async def paint(run: JobRun) -> bytes:
                if run.try_number == 1:
                    raise OSError("no paint")
                return b"%x" % current()

            job = await host.submit("paint", b"", headers={"tenant": "oslo"})
            within = await job.result(PATIENCE)
            assert [result async for result in host.map("paint", [b""])] != []
        tries = [span for span in spans.all() if span.name == "process paint"]
        submitted, mapped = (span for span in spans.all() if span.name == "submit paint")
        assert said(submitted)["messaging.message.id"] == str(job.id)
        assert [(parent_of(span), links_of(span)) for span in tries] == [
            (id_of(each), [id_of(each)]) for each in (submitted, submitted, mapped, mapped)
        ]
        assert [said(span)["nngkit.job.try"] for span in tries] == [1, 2, 1, 2]
        assert [said(span).get("error.type") for span in tries[:2]] == ["OSError", None]
        assert int(within, 16) == id_of(tries[1])


async def test_requests_of_a_gateway_have_spans_until_their_streams_end() -> None:
    with instrumented() as spans:
        async with calculating() as (home, _):
            assert (await home.call("calc/fail", traceparent=TRACE)).status == 500
            reply = await home.call("calc/count", 2, Accept="application/x-ndjson")
            assert reply.body == b"0\n1\n"
            assert (await home.ask("BREW", "/call/calc?secret=1")).status == 405
        failed = next(span for span in spans.all() if span.name == "POST /call/{name}/{method}")
        assert parent_of(failed) == int("00f067aa0ba902b7", 16)
        assert said(failed)["http.response.status_code"] == 500
        assert (said(failed)["error.type"], failed.status.status_code) == ("500", StatusCode.ERROR)
        called = spans.one("calc/count", "CLIENT")
        (streamed,) = [span for span in spans.all() if id_of(span) == parent_of(called)]
        assert (streamed.end_time or 0) >= (called.end_time or 0)
        wrong = spans.one("HTTP")
        assert (said(wrong)["http.request.method"], said(wrong)["url.path"]) == ("_OTHER", "/call/calc")
        assert "secret" not in repr(said(wrong))


ONE_CALL = """
import trio
from nngkit import Client, Server
async def handler(body):
    return body
async def main():
    async with Server("a", handler, listen="tcp://127.0.0.1:0", discovery=(), codec="cbor") as server:
        async with Client("a", addresses=server.address, codec="cbor") as client:
            await client.request(1)
trio.run(main)
"""


@pytest.mark.slow
def test_the_command_of_opentelemetry_instruments_a_program_that_knows_nothing_of_it() -> None:
    collector = Collector()
    with collector.open() as url:
        command = [f"{Path(sys.executable).parent}/opentelemetry-instrument", sys.executable, "-c", ONE_CALL]
        exporters = {"OTEL_TRACES_EXPORTER": "otlp_proto_http", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": url}
        none = {"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
        ran = subprocess.run(
            command, env={**os.environ, **exporters, **none}, capture_output=True, text=True, timeout=25
        )
        assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
    client, server = sorted(collector.spans, key=lambda span: -int(span.kind))
    assert (client.name, client.kind, server.name, server.kind) == ("a", 3, "a", 2)
    assert (server.trace_id, server.parent_span_id) == (client.trace_id, client.span_id)
