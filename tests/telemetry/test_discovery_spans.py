"""Spans of discovery: what is asked, who answers, what is chosen; below the span that is current."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from nngkit import Client, Server, Service, ServiceDiscovery, ServiceNotFound
from nngkit.discovery import PING, Daemon, DaemonClient, DaemonSettings, Question, Resolver, first
from nngkit.discovery.questions.values import MAX_QUESTION
from nngkit.testing import aeventually
from tests.telemetry.test_spans import PATIENCE, current, id_of, parent_of, place, said
from tests.telemetry.tracing_doubles import Collector, Spans, instrumented

pytestmark = pytest.mark.timeout(30)
LOOPBACK = "tcp://127.0.0.1:0"
ADDRESS = "tcp://127.0.0.1:9"
SETTINGS = DaemonSettings(listen=(LOOPBACK,), interval=0.1)
UP = "up, priority 8, 1 of 1"


def found(spans: Spans, name: str, kind: str = "") -> dict[str, object]:
    """Return what discovery says in the only span of this name and kind."""
    told = said(spans.one(name, kind))
    return {key.removeprefix("nngkit.discovery."): value for key, value in told.items() if "discovery" in key}


async def test_a_survey_and_a_question_have_spans_and_a_choice_from_memory_has_none() -> None:
    inside: list[int] = []

    def answer(question: Question) -> bytes:  # in a thread
        inside.append(current())
        return str(question.headers["tenant"]).encode()

    with instrumented() as spans:
        async with (
            ServiceDiscovery(listen=LOOPBACK) as discovery,
            Service("archive", ADDRESS, discovery=discovery.address, on_question=answer),
        ):
            await discovery.wait_for_peers(1, PATIENCE)
            with spans.tracer.start_as_current_span("program"):
                await discovery.discover(early=True, deadline=PATIENCE)
                result = await discovery.ask(b"7", "archive", until=first(timeout=PATIENCE), headers={"tenant": "oslo"})
                assert (await discovery.ask(PING, "archive", until=first(timeout=PATIENCE))).answered
                assert discovery.resolve("archive").address == ADDRESS
        assert [each.body for each in result.answers] == [b"oslo"]
        program, survey, asked, answered, ping = spans.all()
        assert [span.name for span in (survey, asked, answered, ping)] == ["discover", *["ask archive"] * 3]
        assert [span.kind.name for span in (survey, asked, answered, ping)] == [
            "INTERNAL",
            "CLIENT",
            "SERVER",
            "CLIENT",
        ]
        assert [parent_of(span) for span in (survey, asked, ping)] == [id_of(program)] * 3
        assert (parent_of(answered), inside) == (id_of(asked), [id_of(answered)])
        assert found(spans, "discover") == {"asked": 1, "answered": 1, "providers": 1}
        assert said(asked) == {f"nngkit.discovery.{key}": value for key, value in ASKED.items()}


ASKED = {"service": "archive", "asked": 1, "answered": 1}


async def test_a_daemon_that_is_asked_is_in_the_trace_of_the_caller() -> None:
    with instrumented() as spans:
        async with (
            Daemon(SETTINGS) as daemon,
            Service("archive", ADDRESS, discovery=daemon.addresses, on_question=lambda _: b"here"),
            Resolver(daemon.query_addresses) as resolver,
            DaemonClient(daemon.query_addresses[0], timeout=PATIENCE) as client,
        ):
            await resolver.find("archive", PATIENCE)
            with spans.tracer.start_as_current_span("program"):
                await client.resolve("archive")
                await resolver.ask(b"7", "archive", until=first(timeout=PATIENCE))
                with pytest.raises(ServiceNotFound):
                    await client.resolve("nothing")
        asked, answered = spans.one("resolve archive", "CLIENT"), spans.one("resolve archive", "SERVER")
        assert parent_of(asked) == id_of(spans.one("program"))
        assert said(asked).items() >= {**place(client.address), "nngkit.discovery.provider": ADDRESS}.items()
        assert parent_of(answered) == id_of(asked)
        assert found(spans, "resolve archive", "SERVER") == {"service": "archive", "provider": ADDRESS, "reason": UP}
        assert said(spans.one("resolve nothing", "CLIENT"))["error.type"] == "nngkit.errors.ServiceNotFound"
        assert parent_of(spans.one("resolve nothing", "SERVER")) == id_of(spans.one("resolve nothing", "CLIENT"))
        chain = [span for span in spans.all() if span.name == "ask archive"]
        assert [span.kind.name for span in chain] == ["CLIENT", "SERVER", "CLIENT", "SERVER"]
        parents = [spans.one("program"), *chain[:-1]]
        assert [parent_of(span) for span in chain] == [id_of(parent) for parent in parents]


async def test_a_question_without_room_for_a_context_is_asked_without_it() -> None:
    with instrumented() as spans:
        async with (
            ServiceDiscovery(listen=LOOPBACK) as discovery,
            Service("archive", ADDRESS, discovery=discovery.address, on_question=lambda asked: asked.body[:1]),
        ):
            await discovery.wait_for_peers(1, PATIENCE)
            await discovery.discover(early=True, deadline=PATIENCE)
            result = await discovery.ask(bytes(MAX_QUESTION), "archive", until=first(timeout=PATIENCE))
        assert [each.body for each in result.answers] == [b"\0"]
        assert parent_of(spans.one("ask archive", "SERVER")) is None


async def test_a_resolver_shows_its_start_and_what_it_has_waited_for() -> None:
    with instrumented() as spans:
        async with (
            Daemon(SETTINGS) as daemon,
            Resolver(daemon.query_addresses) as resolver,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(resolver.find, "archive", PATIENCE)
            await trio.testing.wait_all_tasks_blocked()
            async with Service("archive", ADDRESS, discovery=daemon.addresses):
                await aeventually(lambda: "archive" in resolver.snapshot())
                assert (await resolver.find("archive", 0)).address == ADDRESS  # from memory
            with pytest.raises(ServiceNotFound):
                await resolver.find("nothing", 0.01)
        (address,) = daemon.query_addresses
        assert found(spans, "discover") == {"asked": 1, "daemons": (address,), "providers": 0}
        assert found(spans, "resolve archive") == {
            "service": "archive",
            "daemons": (address,),
            "provider": ADDRESS,
            "reason": UP,
        }
        assert said(spans.one("resolve nothing"))["error.type"] == "nngkit.errors.ServiceNotFound"


async def echo(body: object) -> object:
    return body


async def test_a_call_that_waits_for_a_provider_shows_it_and_a_hot_one_does_not() -> None:
    with instrumented() as spans:
        async with Daemon(SETTINGS) as daemon, Client("calc", daemons=daemon.query_addresses, codec="cbor") as client:
            with pytest.raises(ServiceNotFound):
                await client.request(0, timeout=0.01)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.request, 1)
                await trio.testing.wait_all_tasks_blocked()
                server = Server("calc", echo, discovery=daemon.addresses, codec="cbor")
                await nursery.start(serve, server)
                await client.wait_for_providers(1, PATIENCE)
                await client.request(2)
                nursery.cancel_scope.cancel()
        calls = [span for span in spans.all() if span.kind.name == "CLIENT"]
        waits = [span for span in spans.all() if span.name == "resolve calc"]
        assert [parent_of(span) for span in waits] == [id_of(span) for span in calls[:2]]
        failed, waited = waits
        assert (failed.status.is_ok, waited.status.is_ok, len(calls)) == (False, True, 3)
        assert said(waited) == {
            "nngkit.discovery.service": "calc",
            "nngkit.discovery.daemons": daemon.query_addresses,
            "nngkit.discovery.provider": server.address,
            "nngkit.discovery.reason": f"{UP}, two-choices",
        }
        assert (calls[1].start_time or 0) <= (waited.start_time or 0) + 1_000_000
        assert (waited.end_time or 0) <= (calls[1].end_time or 0) + 1_000_000


async def serve(server: Server, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    async with server:
        task_status.started()
        await trio.sleep_forever()


@contextmanager
def exporting(url: str, *arguments: str) -> Iterator[None]:
    """Run the command under OpenTelemetry's own, until the block ends."""
    exporters = {"OTEL_TRACES_EXPORTER": "otlp_proto_http", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": url}
    none = {"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
    command = [f"{Path(sys.executable).parent}/opentelemetry-instrument", sys.executable, "-m", "nngkit", *arguments]
    with subprocess.Popen(command, env={**os.environ, **exporters, **none}) as running:
        try:
            yield
        finally:
            running.terminate()
            assert running.wait(PATIENCE) == 143


@pytest.mark.slow
async def test_a_daemon_of_the_command_sends_its_spans_to_a_collector(tmp_path: Path) -> None:
    collector = Collector()
    survey, query = (f"ipc://{tmp_path}/{name}" for name in ("survey", "query"))
    with (
        collector.open() as url,
        instrumented() as spans,
        exporting(url, "discoverd", "--listen", survey, "--query", query),
    ):
        async with (
            Service("archive", ADDRESS, discovery=survey),
            Resolver(query) as resolver,
            DaemonClient(query, timeout=PATIENCE) as client,
        ):
            await resolver.find("archive", PATIENCE)
            await client.resolve("archive")
        asked = spans.one("resolve archive", "CLIENT")
    assert asked.context is not None
    (answered,) = [span for span in collector.spans if span.name == "resolve archive"]
    assert int.from_bytes(answered.parent_span_id) == asked.context.span_id
    assert int.from_bytes(answered.trace_id) == asked.context.trace_id
