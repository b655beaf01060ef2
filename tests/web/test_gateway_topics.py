"""Published messages through the gateway: events, WebSocket, last values, resumption, and clients that do not read."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import trio
from websockets.sync.client import connect

from nngkit.errors import ConfigError
from nngkit.fanout import Keep, Publisher
from nngkit.testing import aeventually
from nngkit.web.gateway import Gateway
from tests.web.gateways import PATIENCE, Home, served

pytestmark = pytest.mark.timeout(60)


@contextlib.asynccontextmanager
async def publishing(**options: Any) -> AsyncGenerator[tuple[Home, Publisher]]:
    """Serve a gateway that follows a publisher."""
    async with Publisher("tcp://127.0.0.1:0", keep=Keep()) as publisher:
        publisher.publish("weather.la", b"20")
        gateway = Gateway(daemons="tcp://127.0.0.1:1", subscribe=publisher.address, **options)
        async with served(gateway) as home:
            await aeventually(lambda: home.gateway.stats.hub.received == 1, PATIENCE)  # type: ignore[union-attr]
            yield home, publisher


class Events:
    """A client of server-sent events."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._heard = b""
        self.head = b""

    async def begin(self) -> None:
        """Wait until what is published comes here."""
        with trio.fail_after(PATIENCE):
            while b"retry: " not in self._heard:
                await self._more()

    async def next(self) -> dict[str, Any]:
        """Return the fields of the next event, `data` as JSON."""
        with trio.fail_after(PATIENCE):
            while True:
                event, end, rest = self._heard.partition(b"\n\n")
                if end:
                    self._heard = rest
                    lines = [line.partition(":") for line in event.decode().split("\n") if not line.startswith(":")]
                    fields: dict[str, Any] = {name: value.removeprefix(" ") for name, _, value in lines}
                    if "data" in fields:
                        return {**fields, "data": json.loads(fields["data"])}
                    continue
                await self._more()

    async def _more(self) -> None:
        """Read some chunks."""
        raw = await self._stream.receive_some(65536)
        if not raw:
            raise EOFError
        if not self.head:
            self.head, _, raw = bytes(raw).partition(b"\r\n\r\n")
        while raw:
            size, _, rest = raw.partition(b"\r\n")
            count = int(size, 16)
            while len(rest) < count + 2:
                rest += await self._stream.receive_some(65536)
            self._heard += rest[:count]
            raw = rest[count + 2 :]


@contextlib.asynccontextmanager
async def following(home: Home, query: str, *headers: str) -> AsyncGenerator[Events]:
    """Open a stream of events."""
    async with await trio.open_tcp_stream("127.0.0.1", home.http.port) as stream:
        lines = "".join(f"{header}\r\n" for header in ("Host: 127.0.0.1", *headers))
        await stream.send_all(f"GET /sub?{query} HTTP/1.1\r\n{lines}\r\n".encode())
        events = Events(stream)
        await events.begin()
        yield events


async def test_events_of_the_topics_that_were_asked_for() -> None:
    async with publishing() as (home, publisher):
        async with following(home, "topic=weather.n&topic=news") as events:
            publisher.publish("weather.la", b"21")
            publisher.publish("weather.ny", b"4")
            publisher.publish("news", b"\xff")
            first, second = await events.next(), await events.next()
            assert first["data"] == {"topic": "weather.ny", "body": "4"}
            assert first["id"] == f"{publisher.id.hex()}.{publisher.epoch}.3"
            assert second["data"] == {"topic": "news", "body": "/w==", "encoding": "base64"}
            assert b"Content-Type: text/event-stream" in events.head
            assert b"Connection: close" in events.head
        async with following(home, "topic=weather.&last=1") as events:
            assert [(await events.next())["data"]["body"] for _ in range(2)] == ["21", "4"]
        await aeventually(lambda: home.gateway.stats.hub.open == 0, PATIENCE)  # type: ignore[union-attr]
        await aeventually(lambda: home.http.stats.streams == 0, PATIENCE)


async def test_a_client_resumes_by_the_number_of_its_last_event() -> None:
    async with publishing() as (home, publisher):
        for number in range(20):
            publisher.publish(f"t{number % 2}", str(number).encode())
        await aeventually(lambda: home.gateway.stats.hub.received == 21, PATIENCE)  # type: ignore[union-attr]
        run = f"{publisher.id.hex()}.{publisher.epoch}"
        for place in (f"topic=t&after={run}.15", "topic=t"):
            async with following(home, place, f"Last-Event-ID: {run}.15") as events:
                publisher.publish("t0", b"live")
                bodies = [(await events.next())["data"]["body"] for _ in range(7 if "after" in place else 8)]
                assert bodies[:6] == ["14", "15", "16", "17", "18", "19"]
                assert bodies[6:] == ["live"] * (len(bodies) - 6)
        async with following(home, "topic=t", "Last-Event-ID: 0011223344556677.1.5") as events:
            assert (await events.next())["event"] == "gap"


async def test_what_is_posted_is_published_and_streamed() -> None:
    async with served(Gateway(daemons="tcp://127.0.0.1:1", publish="tcp://127.0.0.1:0")) as home:
        async with following(home, "topic=chat.") as events:
            reply = await home.ask("POST", "/pub?topic=chat.lobby", "hello é".encode())
            assert reply.status == 202
            event = await events.next()
            assert event["data"] == {"topic": "chat.lobby", "body": "hello é"}
            assert event["id"] == reply.value["id"]
        for query in ("", "?topic=", "?topic=%00x", f"?topic={'t' * 5000}"):
            assert (await home.ask("POST", f"/pub{query}", b"x")).status == 400


async def test_a_websocket_has_the_same_messages() -> None:
    async with publishing() as (home, publisher):
        url = f"ws://127.0.0.1:{home.http.port}/sub?topic=weather.&last=1"

        def follow() -> list[dict[str, Any]]:
            with connect(url, open_timeout=PATIENCE) as client:
                heard = [json.loads(client.recv(PATIENCE))]
                client.send("of no effect")
                assert client.ping().wait(PATIENCE)
                trio.from_thread.run_sync(publisher.publish, "weather.ny", b"4" * 70_000)
                heard.append(json.loads(client.recv(PATIENCE)))
            assert client.close_code == 1000
            return heard

        first, second = await trio.to_thread.run_sync(follow)
        assert first["body"] == "20"
        assert (second["topic"], second["id"]) == ("weather.ny", f"{publisher.id.hex()}.{publisher.epoch}.2")
        await aeventually(lambda: home.gateway.stats.hub.open == 0, PATIENCE)  # type: ignore[union-attr]
        head = b"GET /sub HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
        assert (await home.say(head + b"Sec-WebSocket-Version: 8\r\nConnection: close\r\n\r\n")).startswith(
            b"HTTP/1.1 426 "
        )


@pytest.mark.slow
async def test_a_client_that_never_reads_is_cut_off_and_memory_is_capped() -> None:
    with contextlib.ExitStack() as closing:
        await _load(closing)


async def _load(closing: contextlib.ExitStack) -> None:
    async with publishing() as (home, publisher):
        slow = [closing.enter_context(socket.socket()) for _ in range(8)]
        for each in slow:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.connect(("127.0.0.1", home.http.port))
            each.send(b"GET /sub?topic=load HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        async with following(home, "topic=load") as events:
            await aeventually(lambda: home.gateway.stats.hub.open == 9, PATIENCE)  # type: ignore[union-attr]
            sent = 0
            with trio.fail_after(PATIENCE):
                while home.gateway.stats.hub.slow < 8:  # type: ignore[union-attr]
                    publisher.publish("load", b"x" * 10_000)
                    sent += 1
                    event = await events.next()  # a client that reads gets all of it meanwhile
                    assert event["id"].endswith(f".{sent + 1}")
            assert sent * 10_000 < 8 << 20
            await aeventually(lambda: home.gateway.stats.hub.open == 1, PATIENCE)  # type: ignore[union-attr]


@pytest.mark.slow
async def test_without_publishers_there_is_no_such_path() -> None:
    async with served(Gateway(daemons="tcp://127.0.0.1:1")) as home:
        assert (await home.ask("GET", "/sub")).status == 404
        assert (await home.ask("POST", "/submit/x")).status == 404
    with pytest.raises(ConfigError):
        async with Gateway(daemons="tcp://127.0.0.1:1", publish="udp://x"):
            pass
