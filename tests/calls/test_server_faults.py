"""Server: handlers that raise anything or hang, results without an encoding, garbage, large requests, lost callers."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import trio

from nngkit.calls import Server
from nngkit.calls.messages import CallRequest, CancelRequest, ErrorReply, MoreRequest, parse_reply
from nngkit.errors import Closed, RemoteError, TimedOut
from nngkit.protocols import Req
from nngkit.testing import aeventually
from tests.calls.providers import WAIT
from tests.calls.servers import CBOR, Gate, ask, direct, echo
from tests.protocols.queueing import LARGE, MANY
from tests.protocols.raw_peer import REQ, WORD, RawPeer


async def test_a_thread_that_never_returns_is_abandoned_logged_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stop = threading.Event()

    def stuck(body: Any) -> None:
        stop.wait(WAIT)

    try:
        async with Server("answer", stuck, codec="cbor", concurrency=2) as server, direct(server, **CBOR) as answer:
            with pytest.raises(TimedOut):
                await answer.request(1, timeout=0.1)
            await aeventually(lambda: server.stats.abandoned == 1)
            assert server.stats.in_progress == 0
            stop.set()
            await aeventually(lambda: server.stats.abandoned == 0)
        assert caplog.text.count("runs on after its call has ended") == 1
    finally:
        stop.set()


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class Panic(BaseException):
    """As of a library in Rust."""


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("codec", ["cbor", "json"])
async def test_no_exception_or_result_of_a_handler_stops_the_server(codec: Any) -> None:
    raised = {
        "text that is no UTF-8": OSError("\udcff"),
        "data without an encoding": RemoteError("no", data=object()),
        "data over the limit": RemoteError("no", data="x" * 2_000_000),
        "kind and message of other types": RemoteError(None, kind=5),  # type: ignore[arg-type]
        "no text": Unprintable(),
    }
    returned = {"deep": nested(5000), "integer": 1 << 80, "text": "\udcff", "object": object(), "long": "x" * 2_000_000}

    async def handler(body: str) -> Any:
        if body in raised:
            raise raised[body]
        return returned.get(body, "fine")

    async with Server("answer", handler, codec=codec) as server, direct(server, codec=codec) as answer:
        for body in [*raised, *returned]:
            with pytest.raises(RemoteError):
                await answer.request(body)
            assert await answer.request("?") == "fine"
        assert sum(server.stats.errors.values()) == len(raised) + len(returned)


@pytest.mark.parametrize("codec", [None, "cbor"])
async def test_a_plain_function_may_return_a_coroutine(codec: Any) -> None:
    async with (
        Server("answer", lambda body: echo(bytes(body)), codec=codec) as server,
        direct(server, codec=codec) as answer,
    ):
        assert await answer.request(b"hi") == b"hi"


EXITS = [
    (SystemExit(2), "SystemExit: 2"),
    (Panic("at the disco"), "Panic: at the disco"),
    (BaseExceptionGroup("of a nursery", [SystemExit(2)]), "SystemExit: 2"),
]


@pytest.mark.parametrize("how", ["async", "thread", "stream", "stream of a thread"])
@pytest.mark.parametrize(("error", "says"), EXITS)
async def test_an_exception_that_would_end_a_program_ends_its_call_alone(
    error: BaseException, says: str, how: str
) -> None:
    async def asynchronous(body: bool) -> bool:
        return threaded(body)

    def threaded(body: bool) -> bool:
        if body:
            raise error
        return body

    async def stream(body: bool) -> AsyncIterator[bool]:
        yield threaded(body)

    def stream_of_a_thread(body: bool) -> Iterator[bool]:
        yield threaded(body)

    handlers = {"async": asynchronous, "thread": threaded, "stream": stream, "stream of a thread": stream_of_a_thread}
    async with Server("answer", handlers[how], codec="cbor") as server, direct(server, **CBOR) as answer:

        async def call(body: bool) -> Any:
            if "stream" not in how:
                return await answer.request(body)
            async with answer.stream(body) as parts:
                return [part async for part in parts]

        with pytest.raises(RemoteError, match=says):
            await call(True)
        assert await call(False) == ([False] if "stream" in how else False)


@pytest.mark.parametrize(("error", "says"), [*EXITS, (Closed("a client of the handler's own"), "Closed")])
async def test_an_exception_that_would_end_a_program_or_worker_ends_its_request_without_a_codec_alone(
    error: BaseException, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(body: bytes) -> bytes:
        if body == b"fail":
            raise error
        return body

    async with Server("answer", handler, concurrency=1) as server:
        with Req(dial=server.address) as req:
            await req.await_for_peers(1, WAIT)  # a request that times out before it is sent is not handled
            with pytest.raises(TimedOut):
                await req.arequest(b"fail", timeout=0.05)
            assert await req.arequest(b"hi", timeout=WAIT) == b"hi"
        assert server.stats.errors == {"failed": 1}
    assert says.partition(":")[0] in caplog.text


async def test_a_health_check_that_would_end_a_program_is_a_failed_one(caplog: pytest.LogCaptureFixture) -> None:
    def healthy() -> bool:
        raise SystemExit(2)

    async with Server("answer", echo, codec="cbor", healthy=healthy, health_interval=0.02) as server:
        await aeventually(lambda: "not healthy" in caplog.text)
        with Req(dial=server.address) as req:
            assert await ask(req, CallRequest("a", 1)) == ErrorReply("unhealthy", "SystemExit: 2", ran=False)


@pytest.mark.slow
@pytest.mark.parametrize("codec", [None, "cbor"])
async def test_a_handler_that_fails_as_its_server_leaves_is_logged_and_does_not_keep_it(
    codec: Any, caplog: pytest.LogCaptureFixture
) -> None:
    began = trio.Event()

    async def clean_up() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise SystemExit("in its clean-up")

    async def handler(body: Any) -> Any:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(clean_up)
            began.set()

    with trio.fail_after(WAIT):
        async with (
            trio.open_nursery() as nursery,
            Server("answer", handler, codec=codec, drain_timeout=0.0) as server,
            Req(dial=server.address) as req,
        ):
            data = b"" if codec is None else CallRequest("a", 1).encode(codec)
            nursery.start_soon(req.arequest, data)
            await began.wait()
            nursery.cancel_scope.cancel()
    assert "in its clean-up" in caplog.text


async def test_the_kinds_that_handlers_make_are_counted_up_to_a_cap() -> None:
    async def handler(body: int) -> None:
        raise RemoteError("no", kind=f"kind {body}")

    async with Server("answer", handler, codec="cbor") as server, direct(server, **CBOR) as answer:
        for number in range(80):
            with pytest.raises(RemoteError) as caught:
                await answer.request(number)
            assert caught.value.kind == f"kind {number}"
        assert (len(server.stats.errors), server.stats.errors["other"]) == (65, 16)


async def test_a_server_with_only_stuck_calls_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("nngkit.calls.serving.progress.STUCK", 0.02)
    gate = Gate()
    async with Server("answer", gate, concurrency=1) as server, direct(server) as answer:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer.request, b"")
            await aeventually(lambda: "run for over" in caplog.text)
            gate.event.set()
        assert await answer.request(b"hi") == b"hi"
    assert caplog.text.count("run for over") == 1


async def test_a_request_over_the_limit_cuts_only_its_connection() -> None:
    async with Server("answer", echo, codec="cbor") as server, direct(server, **CBOR) as answer:
        with Req(dial=server.address) as req, pytest.raises(TimedOut):
            await req.arequest(bytes(10_000_000), timeout=0.1)
        assert await answer.request("hi") == "hi"
        assert server.stats.socket.too_large >= 1


async def test_garbage_is_refused_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with Server("answer", echo, codec="cbor") as server:
        with Req(dial=server.address) as req:
            for garbage in (b"", b"garbage", b"\xa0", bytes(100_000)):
                data = await req.arequest(garbage, timeout=WAIT)
                reply = parse_reply(data, "cbor", limit=1 << 20)
                assert isinstance(reply, ErrorReply)
                assert (reply.kind, reply.ran) == ("bad request", False)
            assert await ask(req, MoreRequest("x")) == ErrorReply("gone", "there is no stream x")
            await ask(req, CancelRequest("x"))
        assert server.stats.bad == 4
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


async def test_a_timeout_in_a_generator_is_its_own_error() -> None:
    async def late(body: Any) -> AsyncIterator[int]:
        yield 1
        with trio.fail_after(0):
            await trio.sleep_forever()

    async with Server("answer", late, codec="cbor") as server, direct(server, **CBOR) as answer:
        stream = answer.stream(None)
        assert await anext(stream) == 1
        with pytest.raises(RemoteError) as caught:
            await anext(stream)
        assert (caught.value.kind, caught.value.error) == ("failed", "TooSlowError")


async def test_the_stream_of_a_caller_that_vanished_is_stopped() -> None:
    async def rare(body: Any) -> AsyncIterator[int]:
        yield 1
        await trio.sleep_forever()

    async with Server("answer", rare, codec="cbor") as server:
        with Req(dial=server.address) as req:
            await ask(req, CallRequest("a", None, stream=True))
            assert server.stats.in_progress == 1
        await aeventually(lambda: server.stats.in_progress == 0)


async def test_a_health_check_that_hangs_takes_one_thread(caplog: pytest.LogCaptureFixture) -> None:
    stop = threading.Event()
    begun = []

    def hangs() -> bool:
        begun.append(1)
        return stop.wait(WAIT)

    async with Server("answer", echo, codec="cbor", healthy=hangs, health_interval=0.01) as server:
        try:
            with Req(dial=server.address) as req:
                await aeventually(lambda: "not healthy" in caplog.text)
                reply = await ask(req, CallRequest("a", 1))
                assert isinstance(reply, ErrorReply)
                assert reply.kind == "unhealthy"
                with trio.move_on_after(0.3):  # two more checks fall into it
                    await trio.sleep_forever()
                assert begun == [1]
                stop.set()
                await aeventually(lambda: len(begun) > 1)
        finally:
            stop.set()


async def test_a_reply_does_not_wait_for_a_handler_that_waits() -> None:
    gate = trio.Event()
    got: list[bytes] = []

    async def wait(body: bytes) -> bytes:
        if body == b"wait":
            await gate.wait()
        return body

    async with Server("answer", wait, concurrency=2) as server, direct(server) as client:
        await client.wait_for_providers(1, WAIT)

        async def call(body: bytes) -> None:
            got.append(await client.request(body))

        async with trio.open_nursery() as nursery:
            for body in (b"1", b"wait", b"2", b"3"):
                nursery.start_soon(call, body)
            await aeventually(lambda: len(got) == 3)
            assert server.stats.in_progress == 1
            gate.set()
        assert sorted(got) == [b"1", b"2", b"3", b"wait"]
        assert (server.stats.replies, server.stats.in_progress) == (4, 0)


async def test_a_caller_that_does_not_read_its_replies_keeps_no_other_from_theirs() -> None:
    async def large(body: bytes) -> bytes:
        return LARGE if body == b"large" else body

    async with Server("answer", large, concurrency=4) as server, direct(server) as client:
        await client.wait_for_providers(1, WAIT)
        with RawPeer(server.address, REQ) as slow:
            for one in range(MANY):
                slow.send(WORD.pack(0x80000000 + one) + b"large")
            await aeventually(lambda: server.stats.requests > 0)
            assert await client.request(b"small") == b"small"
        assert await client.request(b"small") == b"small"
