"""A gateway with services behind it, and HTTP clients for tests."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from nngkit import RemoteError, Server
from nngkit.calls import Calling
from nngkit.discovery import Daemon, DaemonSettings
from nngkit.web.gateway import Gateway
from nngkit.web.server import Server as HttpServer
from nngkit.web.server import serve

PATIENCE = 10.0  # seconds for any one event, on a loaded machine


@dataclass
class Reply:
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        """The body, which is JSON."""
        return json.loads(self.body)


@dataclass
class Home:
    """A gateway and its HTTP server."""

    gateway: Gateway
    http: HttpServer

    async def ask(self, method: str, path: str, body: bytes = b"", /, **headers: str) -> Reply:
        """Send a request with the standard library's client, in a thread."""

        def ask() -> Reply:
            client = http.client.HTTPConnection("127.0.0.1", self.http.port, timeout=PATIENCE)
            with contextlib.closing(client):
                sent = {name.replace("_", "-"): value for name, value in headers.items()}
                client.request(method, path, body=body or None, headers=sent)
                reply = client.getresponse()
                return Reply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())

        return await trio.to_thread.run_sync(ask)

    async def call(self, path: str, value: Any = None, **headers: str) -> Reply:
        """Call a service with JSON."""
        return await self.ask("POST", f"/call/{path}", json.dumps(value).encode(), **{**JSON, **headers})

    async def knows(self, *names: str) -> None:
        """Wait until discovery has told of these services."""
        with trio.fail_after(PATIENCE):
            while not set(names) <= (await self.ask("GET", "/services")).value["services"].keys():  # noqa: ASYNC110
                await trio.sleep(0.02)

    async def say(self, data: bytes) -> bytes:
        """Send raw bytes, and read until the gateway has closed."""
        with trio.fail_after(PATIENCE):
            async with await trio.open_tcp_stream("127.0.0.1", self.http.port) as stream:
                heard = b""
                with contextlib.suppress(trio.BrokenResourceError):
                    await stream.send_all(data)
                    while more := await stream.receive_some(65536):
                        heard += more
        return heard


JSON = {"Content_Type": "application/json"}


@contextlib.asynccontextmanager
async def served(gateway: Gateway, **options: Any) -> AsyncGenerator[Home]:
    """Open and serve a gateway."""
    limits = options.pop("limits", None)
    async with gateway, trio.open_nursery() as nursery:
        http_server = await nursery.start(partial(serve, gateway, limits=limits or gateway.limits(), **options))
        yield Home(gateway, http_server)
        nursery.cancel_scope.cancel()


class Calc:
    """Methods of a service, by name."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.ran = 0
        self.slow_began, self.slow_ended = trio.Event(), trio.Event()

    async def double(self, value: Any) -> Any:
        self.ran += 1
        return value["n"] * 2

    async def echo(self, value: Any) -> Any:
        return value

    async def heard(self, value: Any, calling: Calling) -> Any:
        return dict(calling.headers)

    async def slow(self, value: Any) -> None:
        self.slow_began.set()
        try:
            await trio.sleep(60)
        finally:
            self.slow_ended.set()

    async def fail(self, value: Any) -> None:
        raise KeyError("secret of the handler")

    async def decline(self, value: Any) -> None:
        raise RemoteError("not for you", kind="declined", data={"limit": 5})

    async def count(self, value: int) -> Any:
        for number in range(value):
            yield number

    async def break_off(self, value: int) -> Any:
        for number in range(value):
            yield number
        raise RemoteError("no more", kind="empty")


@contextlib.asynccontextmanager
async def calculating(**options: Any) -> AsyncGenerator[tuple[Home, Calc]]:
    """Serve a gateway with two services: `calc` with a codec, and `shout` without."""
    http_options = {name: options.pop(name) for name in ("limits", "origins", "tls") if name in options}

    async def shout(body: bytes) -> bytes:
        return body.upper()

    async with Daemon(DaemonSettings(listen=("tcp://127.0.0.1:0",), interval=0.1)) as daemon:
        calc = Calc(daemon)
        server = Server("calc", discovery=daemon.addresses, codec="cbor")
        for method in (
            calc.double,
            calc.echo,
            calc.heard,
            calc.slow,
            calc.fail,
            calc.decline,
            calc.count,
            calc.break_off,
        ):
            server.method(method)
        plain = Server("shout", shout, discovery=daemon.addresses)
        async with server, plain, served(Gateway(daemons=daemon.query_addresses, **options), **http_options) as home:
            await home.knows("calc", "shout")
            yield home, calc
