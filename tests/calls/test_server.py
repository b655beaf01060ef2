"""Server: handlers of every kind, limits, deadlines, cancellation, streams, health, and leaving without a lost call."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import nngkit.aio
from nngkit.calls import Calling, Client, Server
from nngkit.calls.messages import CallRequest, ErrorReply, InfoRequest, PingRequest, Reply, ResultReply, StatsRequest
from nngkit.discovery import INFO, STATS, ServiceDiscovery, deadline
from nngkit.errors import ConfigError, RemoteError, TimedOut
from nngkit.protocols import Req
from nngkit.testing import aeventually
from tests.calls.providers import ANY, WAIT
from tests.calls.servers import CBOR, Gate, ask, direct, echo
from tests.preloaded import Popen

ROOT = Path(__file__).parents[2]


# ---- handlers --------------------------------------------------------------------------------------------------------


async def test_any_req_calls_a_server_without_a_codec() -> None:
    async def upper(body: bytes) -> bytes:
        return body.upper()

    async with Server("answer", upper) as server:
        with Req(dial=server.address) as req:
            assert await req.arequest(b"hi", timeout=WAIT) == b"HI"
        stats = server.stats
        assert (stats.requests, stats.replies, stats.in_progress, stats.errors) == (1, 1, 0, {})
        assert stats.p50 is not None


async def test_a_plain_function_runs_in_a_thread() -> None:
    def where(body: Any) -> str:
        return threading.current_thread().name

    async with Server("answer", where, codec="json") as server, direct(server, codec="json") as answer:
        assert await answer.request(None) != threading.current_thread().name


async def test_handlers_get_the_calling_if_they_take_it() -> None:
    async def seen(body: Any, calling: Calling) -> dict[str, Any]:
        assert calling.peer is not None
        return {"method": calling.method, "left": calling.remaining, "peer": calling.peer.address}

    async def with_default(body: Any, scale: int = 3) -> int:
        return scale

    server = Server("answer", codec="cbor")
    server.method("seen")(seen)
    server.method(with_default)
    async with server, direct(server, **CBOR) as answer:
        told = await answer.request(1, method="seen", timeout=WAIT)
        assert told["method"] == "seen"
        assert WAIT - 5 < told["left"] <= WAIT
        assert told["peer"].startswith("tcp://127.0.0.1:")
        assert await answer.request(1, method="with_default") == 3


async def test_the_calling_without_a_codec_has_the_service_and_the_body() -> None:
    async def seen(body: bytes, calling: Calling) -> bytes:
        return f"{calling.service} {calling.body!r} {calling.peer is not None}".encode()

    async with Server("answer", seen) as server, direct(server) as answer:
        assert await answer.request(b"hi") == b"answer b'hi' True"


async def test_methods_are_called_by_name() -> None:
    server = Server("calc", codec="cbor")

    @server.method
    async def add(body: dict[str, int]) -> int:
        return body["a"] + body["b"]

    @server.method("times")
    def product(body: dict[str, int]) -> int:
        return body["a"] * body["b"]

    async with server, direct(server, **CBOR) as calc:
        assert await calc.request({"a": 2, "b": 3}, method="add") == 5
        assert await calc.request({"a": 2, "b": 3}, method="times") == 6
        with pytest.raises(RemoteError, match="no method 'divide'; known: add, times"):
            await calc.request({}, method="divide")
        with pytest.raises(RemoteError, match="a method must be named; known: add, times"):
            await calc.request({})


async def test_an_exception_of_the_handler_is_the_callers_remote_error_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(body: Any) -> None:
        if body == "own":
            raise RemoteError("not enough money", kind="declined", data={"missing": 3})
        raise ValueError("no\nsecond line")

    async with Server("answer", fail, codec="cbor") as server, direct(server, **CBOR) as answer:
        for _ in range(3):
            with pytest.raises(RemoteError, match="ValueError: no") as told:
                await answer.request(1)
            assert (told.value.kind, told.value.error) == ("failed", "ValueError")
            assert "second" not in told.value.message
        with pytest.raises(RemoteError, match="declined: not enough money") as declined:
            await answer.request("own")
        assert (declined.value.kind, declined.value.data) == ("declined", {"missing": 3})
        assert server.stats.errors == {"failed": 3, "declined": 1}
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


async def test_a_reply_that_cannot_be_encoded_is_an_error() -> None:
    async def wrong(body: str) -> Any:
        return object() if body == "object" else "x" * 2000

    async with Server("answer", wrong, codec="cbor", recv_max_size=1000) as server, direct(server, **CBOR) as answer:
        with pytest.raises(RemoteError, match="cannot be encoded"):
            await answer.request("object")
        with pytest.raises(RemoteError, match="too large"):
            await answer.request("large")


async def test_without_a_codec_a_failing_handler_gives_no_reply_and_harms_no_other() -> None:
    async def fail(body: bytes) -> Any:
        if body == b"bad":
            raise ValueError
        return None if body == b"none" else body

    async with Server("answer", fail) as server, direct(server) as answer:
        with pytest.raises(TimedOut):
            await answer.request(b"bad", timeout=0.1)
        assert await answer.request(b"good") == b"good"
        assert await answer.request(b"none") == b""
        assert server.stats.errors == {"failed": 1}


# ---- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [None, "cbor"])
async def test_at_most_concurrency_handlers_run_and_the_rest_waits(codec: Any) -> None:
    gate = Gate()
    async with (
        Server("answer", gate, concurrency=4, codec=codec) as server,
        direct(server, codec=codec) as answer,
        trio.open_nursery() as nursery,
    ):
        for number in range(20):
            nursery.start_soon(answer.request, b"%d" % number)
        await aeventually(lambda: gate.running == 4)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert gate.running == 4
        gate.event.set()
        await aeventually(lambda: server.stats.replies == 20)
        assert gate.most == 4


async def test_calls_over_the_queue_are_refused_as_busy() -> None:
    gate = Gate()
    async with Server("answer", gate, concurrency=1, queue=1, codec="cbor") as server:
        with Req(dial=server.address) as req:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, req, CallRequest("a", 1))
                await aeventually(lambda: gate.running == 1)
                nursery.start_soon(ask, req, CallRequest("b", 1))
                await aeventually(lambda: server.stats.queued == 1)
                refused = await ask(req, CallRequest("c", 1))
                assert refused == ErrorReply("busy", "1 calls run and 1 wait", ran=False)
                assert server.stats.errors == {"busy": 1}
                gate.event.set()


async def test_the_deadline_reaches_the_handler_and_a_queued_call_does_not_run_after_it() -> None:
    gate = Gate()
    async with Server("answer", gate, concurrency=1, codec="cbor") as server:
        with Req(dial=server.address) as req:
            replies: list[Reply] = []

            async def call(number: str, timeout: float) -> None:
                replies.append(await ask(req, CallRequest(number, 1, timeout=timeout)))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(call, "a", 1.0)
                await aeventually(lambda: gate.running)
                nursery.start_soon(call, "b", 0.05)
            told = {(each.kind, each.ran) for each in replies if isinstance(each, ErrorReply)}
            assert told == {("deadline", True), ("deadline", False)}
            assert (gate.cancelled, gate.most) == (1, 1)


async def test_a_cancellation_reaches_the_handler_even_while_all_slots_are_taken() -> None:
    gate = Gate()
    async with Server("answer", gate, concurrency=1, codec="cbor") as server, direct(server, **CBOR) as answer:
        await answer.wait_for_providers(timeout=WAIT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer.request, 1)
            await aeventually(lambda: gate.running)
            nursery.cancel_scope.cancel()
        await aeventually(lambda: gate.cancelled == 1)
        gate.event.set()
        assert await answer.request(2) == 2
        assert server.stats.errors == {"cancelled": 1}


async def test_a_second_call_with_the_id_of_a_queued_or_running_one_is_refused() -> None:
    gate = Gate()
    async with Server("answer", gate, concurrency=1, codec="cbor") as server:
        with Req(dial=server.address) as req:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, req, CallRequest("a", 1))
                await aeventually(lambda: gate.running)
                nursery.start_soon(ask, req, CallRequest("b", 1))
                await aeventually(lambda: server.stats.queued == 1)
                for number in ("a", "b"):
                    assert await ask(req, CallRequest(number, 1)) == ErrorReply(
                        "bad request", f"the call {number} is in progress", ran=False
                    )
                gate.event.set()
            assert await ask(req, CallRequest("b", 1)) == ResultReply(1)  # free again


async def test_the_end_of_one_call_is_not_that_of_the_next_one_in_its_worker() -> None:
    """A deadline that has passed, a handler that was stopped, or was to be and replies all the same."""

    async def handle(body: Any) -> Any:
        if body == "stopped":
            await trio.sleep_forever()
        if body == "in a group":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
        with trio.CancelScope(shield=body == "late"):
            await trio.sleep(0.02)
        return body

    async with Server("answer", handle, codec="cbor", concurrency=1) as server:
        with Req(dial=server.address) as req:
            for number, body in enumerate(("stopped", "next", "late", "next", "in a group", "next", "late", "late")):
                reply = await ask(req, CallRequest(str(number), body, "", WAIT if body == "next" else 0.01))
                if body in ("stopped", "in a group"):
                    assert isinstance(reply, ErrorReply)
                    assert (reply.kind, reply.ran) == ("deadline", True)
                else:
                    assert reply == ResultReply(body)
        stats = server.stats
        assert (stats.requests, stats.replies, stats.errors) == (8, 6, {"deadline": 2})
        await aeventually(lambda: server.stats.in_progress == 0)


async def test_every_server_tells_what_it_is() -> None:
    async with Server("answer", echo, codec="cbor", version="2.1", tags=["b", "a"]) as server:
        with Req(dial=server.address) as req:
            assert (await ask(req, PingRequest())).body == {"name": "answer"}  # type: ignore[union-attr]
            info = (await ask(req, InfoRequest())).body  # type: ignore[union-attr]
            assert (info["name"], info["version"], info["tags"]) == ("answer", "2.1", ["a", "b"])
            await ask(req, CallRequest("a", 1))
            stats = (await ask(req, StatsRequest())).body  # type: ignore[union-attr]
            assert (stats["requests"], stats["replies"]) == (1, 1)


# ---- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_generator_streams_its_parts(kind: str) -> None:
    async def count(body: int) -> AsyncIterator[int]:
        for number in range(body):
            yield number

    def count_plainly(body: int) -> Iterator[int]:
        yield from range(body)

    handler = count if kind == "async" else count_plainly
    async with Server("answer", handler, codec="cbor") as server, direct(server, **CBOR) as answer:
        for most in (0, 1, 200):
            assert [part async for part in answer.stream(most)] == list(range(most))
        with pytest.raises(RemoteError, match="its reply is a stream"):
            await answer.request(1)
        await aeventually(lambda: server.stats.in_progress == 0)
        assert server.stats.replies == 3


async def test_a_stream_of_a_function_has_one_part() -> None:
    async with Server("answer", echo, codec="cbor") as server, direct(server, **CBOR) as answer:
        assert [part async for part in answer.stream("x")] == ["x"]


async def test_a_slow_reader_holds_the_generator_back() -> None:
    made = 0

    async def endless(body: Any) -> AsyncIterator[int]:
        nonlocal made
        while True:
            made += 1
            yield made

    async with Server("answer", endless, codec="cbor") as server, direct(server, **CBOR) as answer:
        async with answer.stream(None) as parts:
            assert await anext(parts) == 1
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert made <= 200
        await aeventually(lambda: server.stats.in_progress == 0)  # left early: cancelled


async def test_parts_larger_than_one_reply_come_in_several() -> None:
    async def large(body: Any) -> AsyncIterator[bytes]:
        for _ in range(20):
            yield bytes(300)

    async with (
        Server("answer", large, codec="cbor", recv_max_size=1000) as server,
        direct(server, **CBOR) as answer,
    ):
        assert [len(part) async for part in answer.stream(None)] == [300] * 20


async def test_an_error_in_a_generator_follows_its_parts() -> None:
    async def fails(body: Any) -> AsyncIterator[int]:
        yield 1
        raise ValueError("no more")

    async with Server("answer", fails, codec="cbor") as server, direct(server, **CBOR) as answer:
        stream = answer.stream(None)
        assert await anext(stream) == 1
        with pytest.raises(RemoteError, match="ValueError: no more"):
            await anext(stream)
        assert server.stats.errors == {"failed": 1}


async def test_the_deadline_ends_a_stream() -> None:
    async def waits(body: Any) -> AsyncIterator[int]:
        yield 1
        await trio.sleep_forever()

    async with Server("answer", waits, codec="cbor") as server, direct(server, **CBOR) as answer:
        stream = answer.stream(None, timeout=0.2)
        assert await anext(stream) == 1
        with pytest.raises(TimedOut):
            await anext(stream)
        await aeventually(lambda: server.stats.in_progress == 0)


# ---- discovery -------------------------------------------------------------------------------------------------------


async def test_a_server_is_found_by_name_says_its_load_and_leaves_with_a_goodbye() -> None:
    gate = Gate()
    async with ServiceDiscovery(listen=ANY, interval=0.05) as discovery:
        async with (
            Server("answer", gate, discovery=discovery.address, zone="ny", concurrency=4) as server,
            Client("answer", discovery=discovery, timeout=WAIT) as answer,
            trio.open_nursery() as nursery,
        ):
            for _ in range(2):
                nursery.start_soon(answer.request, b"x")
            await aeventually(lambda: gate.running == 2)
            await aeventually(lambda: any(row.provider.load == 0.5 for row in discovery.view()))
            assert discovery.resolve("answer").zone == "ny"
            assert server.provider.address == server.address
            gate.event.set()
        await aeventually(lambda: "answer" not in discovery.snapshot())
        assert [row.reason for row in discovery.view()] == ["bye"]


async def test_leaving_waits_for_calls_in_progress_and_refuses_new_ones() -> None:
    gate = Gate()
    async with ServiceDiscovery(listen=ANY, interval=1000) as discovery, trio.open_nursery() as nursery:
        replies: list[Any] = []

        async def call() -> None:
            replies.append(await answer.request(1))

        async with Client("answer", discovery=discovery, codec="cbor", timeout=WAIT) as answer:
            async with Server("answer", gate, discovery=discovery.address, codec="cbor") as server:
                nursery.start_soon(call)
                await aeventually(lambda: gate.running)
                nursery.start_soon(server.aclose)
                await aeventually(lambda: "answer" not in discovery.snapshot())
                assert not replies
                gate.event.set()
            await aeventually(lambda: replies == [1])


async def test_calls_that_outlast_the_drain_are_cancelled() -> None:
    gate = Gate()
    async with Server("answer", gate, codec="cbor", drain_timeout=0.1) as server, direct(server, **CBOR) as answer:
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                with pytest.raises(RemoteError, match="cancelled: answer has left"):
                    await answer.request(1)

            nursery.start_soon(call)
            await aeventually(lambda: gate.running)
            started = time.monotonic()
            await server.aclose()
            assert time.monotonic() - started < 5
        assert gate.cancelled == 1


async def test_no_call_is_lost_while_servers_come_and_go() -> None:
    """Rolling restart: three servers are replaced in turn under calls that are not idempotent."""
    async with (
        ServiceDiscovery(listen=ANY, interval=1000) as discovery,
        Client("answer", discovery=discovery, timeout=WAIT) as answer,
        trio.open_nursery() as nursery,
    ):
        done = 0
        stop = trio.Event()

        async def calls() -> None:
            nonlocal done
            while not stop.is_set():
                await answer.request(b"x")
                done += 1

        async def serve(until: trio.Event, task_status: trio.TaskStatus[Server]) -> None:
            async with Server("answer", echo, discovery=discovery.address) as server:
                task_status.started(server)
                await until.wait()

        def answered(address: str) -> bool:
            return address in answer.stats.providers

        ends = [trio.Event() for _ in range(6)]
        for end in ends[:3]:
            await nursery.start(serve, end)
        await answer.wait_for_providers(3, timeout=WAIT)
        for _ in range(8):
            nursery.start_soon(calls)
        for old, new in zip(ends, ends[3:], strict=False):
            started = await nursery.start(serve, new)
            await aeventually(partial(answered, started.address))
            old.set()
            await aeventually(lambda: len(answer.stats.providers) == 3)
        await aeventually(lambda: done > 500)
        stop.set()
        for end in ends:
            end.set()
        assert answer.stats.failed == 0


async def test_an_unhealthy_server_drains_refuses_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    well = True

    async def healthy() -> bool:
        if not well:
            raise OSError("disk is full")
        return True

    async with (
        ServiceDiscovery(listen=ANY, interval=1000) as discovery,
        Server(
            "answer", echo, discovery=discovery.address, codec="cbor", healthy=healthy, health_interval=0.02
        ) as server,
    ):
        await aeventually(lambda: "answer" in discovery.snapshot())
        well = False
        await aeventually(lambda: "answer" not in discovery.snapshot())
        with Req(dial=server.address) as req:
            reply = await ask(req, CallRequest("a", 1))
        assert reply == ErrorReply("unhealthy", "OSError: disk is full", ran=False)
        well = True
        await aeventually(lambda: "answer" in discovery.snapshot())
    assert len([record for record in caplog.records if "not healthy" in record.message]) == 1


PROGRAM = """
import sys, trio
from nngkit.calls import Server
async def slow(body):
    await trio.sleep(0.3)
    return body
async def main():
    async with Server("answer", slow, discovery=sys.argv[1]) as server:
        print("ready", flush=True)
        await trio.sleep_forever()
trio.run(main)
"""


@pytest.mark.slow
async def test_sigterm_finishes_the_calls_in_progress(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    async with (
        ServiceDiscovery(listen=ANY, interval=1000) as discovery,
        Client("answer", discovery=discovery, timeout=WAIT) as answer,
    ):
        process = Popen([sys.executable, str(path), discovery.address], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            await answer.wait_for_providers(timeout=WAIT)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(answer.request, b"x")
                await aeventually(lambda: any(each.outstanding for each in answer.stats.providers.values()))
                await trio.sleep(0.05)  # the request reaches the handler
                process.send_signal(signal.SIGTERM)
            assert await trio.to_thread.run_sync(partial(process.wait, timeout=WAIT)) == -signal.SIGTERM
            assert answer.stats.failed == 0
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


# ---- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"codec": "xml"}, "codec"),
        ({"concurrency": 0}, "concurrency"),
        ({"queue": -1}, "queue"),
        ({"drain_timeout": -1}, "drain_timeout"),
    ],
)
def test_an_unusable_value_is_named(options: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError) as told:
        Server("answer", echo, **options)
    assert told.value.what == what


async def test_unusable_handlers_are_named() -> None:
    def nothing() -> None: ...
    def three(a: Any, b: Any, c: Any) -> None: ...
    async def parts(body: Any) -> AsyncIterator[int]:
        yield 1

    for wrong in (nothing, three, "text", parts):
        with pytest.raises(ConfigError, match="handler"):
            Server("answer", wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="methods need a codec"):
        Server("answer").method(echo)
    with pytest.raises(ConfigError, match="has a handler already"):
        Server("answer", echo, codec="cbor").method("")(echo)
    for name in ("x" * 129, "\ud800"):  # no caller could say it, or read the names
        with pytest.raises(ConfigError, match="is not UTF-8 text of at most 128 bytes"):
            Server("answer", codec="cbor").method(name)(echo)
    for kind in (Server, nngkit.aio.Server):  # it would be the handler of calls that name none
        with pytest.raises(ConfigError, match="has no name"):
            kind("answer", codec="cbor").method(partial(echo))
    with pytest.raises(ConfigError, match="has none"):
        async with Server("answer", codec="cbor"):
            pass


# ---- questions -------------------------------------------------------------------------------------------------------


async def test_a_server_answers_questions_with_its_information_and_counters() -> None:
    async with ServiceDiscovery(listen="tcp://127.0.0.1:0", deadline=5.0, interval=0.05, domain="a") as discovery:
        server = Server(
            "calc", discovery=discovery.address, codec="cbor", domain="a", on_question=lambda question: b"42"
        )

        @server.method
        async def add(body: list[int]) -> int:
            return sum(body)

        async with server:
            await aeventually(lambda: "calc" in discovery.snapshot())
            (answer,) = (await discovery.ask(b"?", "calc", until=deadline(5))).answers
            assert answer.body == b"42"
            (info,) = (await discovery.ask(INFO, "calc", until=deadline(5))).answers
            assert info.fields["info"]["methods"] == ["add"]
            (stats,) = (await discovery.ask(STATS, "calc", until=deadline(5))).answers
            assert stats.fields["stats"]["requests"] == 0
