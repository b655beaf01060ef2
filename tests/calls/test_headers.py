"""Headers of calls, and middleware, at both ends."""

from __future__ import annotations

import asyncio
import contextvars
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

import nngkit.aio
import nngkit.blocking
from nngkit import Client, Server
from nngkit.calls import Calling, ClientCall, Proceed, Reply
from nngkit.calls.messages import CallRequest, ErrorReply, ResultReply, parse_reply, parse_request
from nngkit.errors import ConfigError, NngkitError, RemoteError, TooLarge
from nngkit.headers import MOST_BYTES, MOST_HEADERS
from tests.calls.providers import WAIT, answers, provider
from tests.calls.servers import CBOR, direct

TRACE: dict[str, str | bytes] = {
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "key": b"\0\x17",
}


async def mirror(body: Any, calling: Calling) -> Any:
    """Send the headers back."""
    calling.reply_headers.update(calling.headers)
    if body == "raise":
        raise ValueError("no")
    return body


async def count(body: int, calling: Calling) -> AsyncIterator[int]:
    calling.reply_headers.update(calling.headers)
    for number in range(body):
        yield number
    calling.reply_headers["count"] = str(body)


class Noted:
    """Middleware that notes what it sees."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def __call__(self, call: Any, proceed: Proceed) -> Reply:
        self.seen.append(call)
        try:
            reply = await proceed(call)
        except (NngkitError, ValueError) as error:
            self.seen.append(error)
            raise
        self.seen.append(reply)
        return reply


async def test_headers_travel_with_a_call_and_with_its_reply() -> None:
    async with Server("answer", mirror, discovery=(), codec="cbor") as server, direct(server, **CBOR) as client:
        reply = await client.call(1, headers=TRACE)
        assert reply == Reply(1, TRACE, server.address)
        assert await client.call(2) == Reply(2, {}, server.address)
        with pytest.raises(RemoteError, match="no") as told:
            await client.request("raise", headers=TRACE)
        assert told.value.headers == TRACE


async def test_the_headers_of_a_stream_are_there_with_its_first_part_and_complete_at_its_end() -> None:
    async with Server("answer", count, discovery=(), codec="cbor") as server, direct(server, **CBOR) as client:
        stream = client.stream(200, headers=TRACE)
        assert await anext(stream) == 0
        assert stream.headers == TRACE
        assert [part async for part in stream] == list(range(1, 200))
        assert stream.headers == {**TRACE, "count": "200"}


async def test_headers_of_a_call_that_is_tried_again_or_hedged_go_to_each_provider() -> None:
    async with (
        provider(handler=answers(ErrorReply("draining", "", ran=False))) as first,
        Server("answer", mirror, discovery=(), codec="cbor") as server,
        Client("answer", addresses=[first.address, server.address], codec="cbor", timeout=WAIT) as client,
    ):
        await client.wait_for_providers(2, WAIT)
        for _ in range(4):
            assert (await client.call(1, headers=TRACE, hedge=0.01)).headers == TRACE


@pytest.mark.parametrize(
    ("headers", "error", "words"),
    [
        ({"a": 1}, ConfigError, "'a' is int, neither text nor bytes"),
        ({1: "a"}, ConfigError, "1 is not a name"),
        ({"": "a"}, ConfigError, "'' is not a name"),
        ({"a\n": "a"}, ConfigError, "is not a name"),
        ({"a" * 129: "a"}, ConfigError, "is not a name"),
        ([("a", "b")], ConfigError, "list is not a mapping"),
        ({str(each): "" for each in range(MOST_HEADERS + 1)}, ConfigError, "65 headers; at most 64"),
        ({"a": "x" * MOST_BYTES}, TooLarge, "headers of 8193 bytes are over the limit of 8192"),
    ],
)
async def test_unusable_headers_are_refused_with_words(headers: Any, error: type[Exception], words: str) -> None:
    async def give(body: Any, calling: Calling) -> Any:
        calling.reply_headers.update(headers)
        return body

    async with Server("answer", give, discovery=(), codec="cbor") as server, direct(server, **CBOR) as client:
        for call in (client.request, client.call):
            with pytest.raises(error, match=words):
                await call(1, headers=headers)
        with pytest.raises(error, match=words):
            client.stream(1, headers=headers)
        if isinstance(headers, dict):
            with pytest.raises(RemoteError):  # the handler's
                await client.request(1)


async def test_headers_need_a_codec_that_carries_them() -> None:
    async def give(body: Any, calling: Calling) -> Any:
        calling.reply_headers["key"] = b"\0"
        return body

    async with Server("answer", give, discovery=(), codec="json") as server:
        async with direct(server) as plain:
            with pytest.raises(ConfigError, match="headers: need a codec"):
                await plain.request(b"1", headers={"a": "b"})
        async with direct(server, codec="json") as client:
            with pytest.raises(ConfigError, match="JSON has no bytes"):
                await client.request(1, headers={"a": b"b"})
            with pytest.raises(RemoteError, match="cannot be encoded"):
                await client.request(1, headers={"a": "b"})


async def test_middleware_is_around_each_call_at_both_ends_in_its_order() -> None:
    async def outer(call: Any, proceed: Proceed) -> Reply:
        call.headers["path"] = "outer"
        reply = await proceed(replace(call, body=call.body + 1))
        return replace(reply, body=reply.body * 10)

    async def inner(call: Any, proceed: Proceed) -> Reply:
        call.headers["path"] += ", inner"
        return await proceed(call)

    noted = Noted()
    async with (
        Server("answer", mirror, discovery=(), codec="cbor", middleware=[noted]) as server,
        direct(server, middleware=[outer, inner], **CBOR) as client,
    ):
        assert await client.request(1) == 20
        calling, reply = noted.seen
        assert (calling.service, calling.body, calling.headers) == ("answer", 2, {"path": "outer, inner"})
        assert reply == Reply(2, {"path": "outer, inner"})
        assert server.stats.replies == client.stats.requests == 1


async def test_middleware_sees_the_attempts_and_the_error_of_a_call() -> None:
    noted = Noted()
    async with (
        provider(handler=answers(ErrorReply("draining", "", ran=False), ErrorReply("failed", "no"))) as there,
        Client("answer", addresses=there.address, codec="cbor", timeout=WAIT, middleware=[noted]) as client,
    ):
        with pytest.raises(RemoteError):
            await client.request(1)
    call, error = noted.seen
    assert isinstance(call, ClientCall)
    assert [(each.provider, each.outcome) for each in call.attempts] == [
        (there.address, "refused"),
        (there.address, "error"),
    ]
    assert isinstance(error, RemoteError)


async def test_middleware_is_around_a_stream_until_its_end_or_until_it_is_left() -> None:
    there, here = Noted(), Noted()
    async with (
        Server("answer", count, discovery=(), codec="cbor", middleware=[there]) as server,
        direct(server, middleware=[here], **CBOR) as client,
    ):
        async for part in client.stream(200, headers={"a": "b"}):
            assert part or len(here.seen) == 1  # it ends when the last parts have arrived
        assert here.seen[1:] == [Reply(None, {"a": "b", "count": "200"}, server.address)]
        assert [type(each) for each in there.seen] == [Calling, Reply]
        here.seen.clear()
        async with client.stream(200) as left:
            await anext(left)
        assert [type(each) for each in here.seen] == [ClientCall, Reply]
        here.seen.clear()
        with pytest.raises(RemoteError):
            await anext(client.stream("x"))
        assert [type(each) for each in here.seen] == [ClientCall, RemoteError]
        await client.stream(1).aclose()  # not begun
        assert len(here.seen) == 2


async def test_a_middleware_of_the_server_can_refuse_and_one_without_a_codec_sees_bytes() -> None:
    async def refuse(call: Calling, proceed: Proceed) -> Reply:
        if "token" not in call.headers:
            raise RemoteError("no token", kind="unauthenticated")
        return await proceed(call)

    async with (
        Server("answer", mirror, discovery=(), codec="cbor", middleware=[refuse]) as server,
        direct(server, **CBOR) as client,
    ):
        with pytest.raises(RemoteError, match="unauthenticated: no token"):
            await client.request(1)
        assert await client.request(1, headers={"token": "x"}) == 1
    noted = Noted()
    async with (
        Server("answer", lambda body: body, discovery=(), middleware=[noted]) as plain,
        direct(plain, middleware=[noted]) as client,
    ):
        assert await client.request(b"1") == b"1"
    assert [each.body for each in noted.seen] == [b"1"] * 4


async def test_what_is_no_middleware_is_refused() -> None:
    def plain(call: Any, proceed: Proceed) -> Any: ...

    async def forgets(call: Any, proceed: Proceed) -> Any:
        await proceed(call)

    with pytest.raises(ConfigError, match="is not an async function"):
        Client("answer", addresses="tcp://127.0.0.1:1", middleware=[plain])
    with pytest.raises(ConfigError, match="is not an async function"):
        Server("answer", mirror, middleware=[plain])
    async with (
        Server("answer", mirror, discovery=(), codec="cbor", middleware=[forgets]) as server,
        direct(server, **CBOR) as client,
    ):
        with pytest.raises(RemoteError, match="returned NoneType, not the Reply"):
            await client.request(1)


SPAN: contextvars.ContextVar[str] = contextvars.ContextVar("span", default="")


async def spans(call: Any, proceed: Proceed) -> Reply:
    if isinstance(call, ClientCall):
        call.headers["span"] = SPAN.get()
    else:
        SPAN.set(f"{call.headers['span']} > {call.service}")
    return await proceed(call)


@pytest.mark.parametrize("kind", ["async", "plain", "stream"])
def test_context_flows_from_caller_to_handler_under_asyncio(kind: str) -> None:
    async def handler(body: Any) -> Any:
        return SPAN.get()

    def plain(body: Any) -> Any:
        return SPAN.get()

    async def parts(body: Any) -> AsyncIterator[Any]:
        yield SPAN.get()

    async def main() -> Any:
        chosen: Any = {"async": handler, "plain": plain, "stream": parts}[kind]
        SPAN.set("caller")
        async with (
            nngkit.aio.Server("answer", chosen, discovery=(), codec="cbor", middleware=[spans]) as server,
            nngkit.aio.Client("answer", addresses=server.address, codec="cbor", middleware=[spans]) as client,
        ):
            if kind != "stream":
                return (await client.call(1, timeout=WAIT)).body
            [found] = [part async for part in client.stream(1, timeout=WAIT)]
            return found

    assert asyncio.run(main()) == "caller > answer"


def test_middleware_and_headers_of_a_program_without_a_loop() -> None:
    async def waits(call: Any, proceed: Proceed) -> Reply:
        await trio.lowlevel.checkpoint()
        return await proceed(call)

    async def waits_for_a_loop(call: Any, proceed: Proceed) -> Reply:
        await asyncio.sleep(0)
        return await proceed(call)

    def handler(body: Any, calling: Calling) -> Any:
        calling.reply_headers["for"] = calling.headers.get("span", "")
        return body

    def parts(body: Any, calling: Calling) -> Iterator[Any]:
        calling.reply_headers["for"] = calling.headers.get("span", "")
        yield body

    SPAN.set("caller")
    server = nngkit.blocking.Server("answer", handler, discovery=(), codec="cbor")
    server.method("parts")(parts)
    with server:
        options: Any = {"addresses": server.address, "codec": "cbor", "timeout": WAIT}
        with nngkit.blocking.Client("answer", middleware=[spans], **options) as client:
            for hedge in (None, 5.0):
                assert client.call(1, hedge=hedge) == Reply(1, {"for": "caller"}, server.address)
                assert client.request(1, hedge=hedge) == 1
            stream = client.stream(2, method="parts")
            assert list(stream) == [2]
            assert stream.headers == {"for": "caller"}
        for waiting in (waits, waits_for_a_loop):
            client = nngkit.blocking.Client("answer", middleware=[waiting], **options)
            with client, pytest.raises((ConfigError, RuntimeError)):
                client.request(1)
        with nngkit.blocking.Client("answer", **options) as client:
            assert client.call(1, headers={"span": "x"}).headers == {"for": "x"}


def test_the_bytes_on_the_wire_are_those_of_the_page() -> None:
    section = (Path(nngkit.__file__).parents[1] / "docs" / "wire.md").read_text().partition("## Calls\n")[2]
    shown = dict(re.findall(r"^([a-z-]+) += ([0-9a-f]+)$", section.partition("\n## ")[0], re.MULTILINE))
    messages: list[Any] = [
        CallRequest("c1", b"?", "add", 1.5, headers={"a": "b", "k": b"\0"}),
        ResultReply(3, {"a": "b"}),
    ]
    for name, message in zip(("call", "result"), messages, strict=True):
        assert message.encode("cbor").hex() == shown[name]
        parse: Any = parse_request if name == "call" else parse_reply
        assert parse(bytes.fromhex(shown[name]), "cbor", limit=1000) == message
