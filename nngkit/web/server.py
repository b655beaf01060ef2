"""A small HTTP server for pages of ours: files of one folder and JSON values, by GET and HEAD. trio and h11.

    async with trio.open_nursery() as nursery:
        site = Site.load(page_folder(), json={"config.json": config}, connect=peer.repair_addresses)
        server = await nursery.start(serve, site)
        print(server.url)                               # http://127.0.0.1:40123/
        ...
        nursery.cancel_scope.cancel()                   # closes it, and every connection with it

It is for browsers of people who were given a link, not for the open Internet: there is no TLS (put a proxy in front),
no ranges; text is compressed for clients that accept gzip. It does not trust them all the same: every request has a
limit in size and time, bodies are refused, a connection more than `connections` gets 503. Nothing is logged;
`Server.stats` counts. A secret belongs into the fragment of a link (`link`), which browsers do not send.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket as stdlib_socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

import h11
import trio

from nngkit.errors import ConfigError, Unreachable
from nngkit.web.site import Answer, Site, refusal

__all__ = ["Limits", "Server", "Stats", "link", "serve"]

READ: Final = 16 * 1024  # bytes at a time
REASONS: Final = {
    200: b"OK",
    304: b"Not Modified",
    400: b"Bad Request",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    413: b"Content Too Large",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    503: b"Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may take. The defaults suit a page of some 200 KB for tens of people."""

    connections: int = 256
    """At once; a browser opens six for a page."""
    head: int = 16 * 1024
    """Bytes of a request, or up to one reading more. A browser's has under 2 KiB, cookies of others aside."""
    reading: float = 10.0
    """Seconds from a request's first byte, or the connection's start, to its last."""
    idle: float = 30.0
    """Seconds that a connection may wait for its next request."""
    writing: float = 30.0
    """Seconds for an answer to be taken: 200 KB at 56 kbit/s."""
    requests: int = 1000
    """On one connection; a client that wants more makes another."""


@dataclass(frozen=True, slots=True)
class Stats:
    """What a server has done so far. `answers` by status; `cut`: connections that ended with a request half said."""

    connections: int
    open: int
    answers: Mapping[int, int]
    cut: int
    sent: int
    """Bytes of bodies."""


@dataclass(slots=True)
class Server:
    """A server that runs: where it listens, and what it has done. `serve` gives it to its nursery."""

    host: str
    port: int
    _connections: int = 0
    _open: int = 0
    _answers: Counter[int] = field(default_factory=Counter)
    _cut: int = 0
    _sent: int = 0

    @property
    def url(self) -> str:
        """For a browser on this machine, or wherever `host` leads here."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host and host[0] != '[' else host}:{self.port}/"

    @property
    def stats(self) -> Stats:
        """Until now."""
        return Stats(self._connections, self._open, dict(self._answers), self._cut, self._sent)


def link(url: str, **secrets: str | None) -> str:
    """`url` with `secrets` (token="...", doc="...") in its fragment, which browsers do not send. None is left out."""
    fragment = urlencode({name: value for name, value in secrets.items() if value is not None})
    return f"{url}#{fragment}" if fragment else url


async def serve(
    site: Site,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    limits: Limits | None = None,
    task_status: trio.TaskStatus[Server] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `site` until cancelled; `task_status` gets the `Server`, once it listens. Port 0 has one chosen.

    Cancelling closes the listeners and all connections, whatever they are at.
    Raises Unreachable where it cannot listen, ConfigError for a port that is none.
    """
    limits = limits or Limits()
    if not 0 <= port <= 65535:
        raise ConfigError("port", f"{port} is not from 0 to 65535", port)
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except OSError as error:  # a gaierror for the host among them
        raise Unreachable(f"http://{host}:{port}", error.strerror or str(error)) from error
    if port == 0 and len(listeners) > 1:  # a name with two addresses got two ports; one URL has room for one
        for listener in listeners[1:]:
            await listener.aclose()
        del listeners[1:]
    server = Server(host, listeners[0].socket.getsockname()[1])

    async def connected(stream: trio.SocketStream) -> None:
        server._connections += 1
        server._open += 1
        try:
            # A peer that goes, or that cannot be told, is no news; anything else is a bug of ours and ends the server.
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await _Connection(stream, site, server, limits).run()
        finally:
            server._open -= 1
            await trio.aclose_forcefully(stream)

    await trio.serve_listeners(connected, listeners, task_status=_Started(task_status, server))


class _Started:
    """Hands our Server on where trio would hand on its listeners."""

    def __init__(self, status: trio.TaskStatus[Server], server: Server) -> None:
        self._status = status
        self._server = server

    def started(self, _listeners: object = None) -> None:
        self._status.started(self._server)


class _Connection:
    """One client, from its first request to its last."""

    def __init__(self, stream: trio.SocketStream, site: Site, server: Server, limits: Limits) -> None:
        self._stream = stream
        self._site = site
        self._server = server
        self._limits = limits
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head)
        self._begun = False  # a request: some of its bytes are here

    async def run(self) -> None:
        """Answer request after request until either side has enough."""
        if self._server._open > self._limits.connections:
            await self._refuse(503, "too many at once; try again")
            return
        for _ in range(self._limits.requests):
            answer = await self._next()
            if answer is None:
                return
            await self._write(answer)
            if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
                break
            self._h11.start_next_cycle()
        await self._linger()

    async def _next(self) -> Answer | None:
        """The answer to the next request; None: there will be none, and the client has been told so if it can be."""
        self._begun = bool(self._h11.trailing_data[0])
        try:
            request = await self._read(self._limits.reading if self._begun else self._limits.idle)
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint if error.error_status_hint in REASONS else 400
            await self._refuse(status, "that is no request of HTTP/1.1")
            return None
        if request is None:
            if self._begun:
                self._server._cut += 1
                await self._refuse(408, "the request took too long")
            return None
        headers: dict[str, str] = {}
        for raw, value in request.headers:  # a list may come in several lines; h11 refuses the others twice
            name, text = raw.decode("latin1"), value.decode("latin1")
            headers[name] = f"{headers[name]}, {text}" if name in headers else text
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            await self._refuse(413, "no request here has a body")
            return None
        target = request.target.decode("ascii")  # h11 lets nothing else through
        return self._site.answer(
            request.method.decode("ascii"),
            target,
            host=headers.get("host"),
            etag=headers.get("if-none-match"),
            encodings=headers.get("accept-encoding"),
        )

    async def _read(self, patience: float) -> h11.Request | None:
        """The next request with its end; None: the client is gone, or too slow. Raises h11.RemoteProtocolError."""
        request: h11.Request | None = None
        with trio.move_on_after(patience) as scope:
            while True:
                event = self._h11.next_event()
                if event is h11.NEED_DATA:
                    data = await self._stream.receive_some(READ)
                    if not data:
                        self._server._cut += self._begun
                        self._begun = False  # nobody is there to be told
                        return None
                    if not self._begun:
                        self._begun = True
                        scope.deadline = trio.current_time() + self._limits.reading
                    self._h11.receive_data(data)
                elif isinstance(event, h11.Request):
                    request = event
                    if _has_body(request):
                        return request
                elif isinstance(event, h11.EndOfMessage):
                    return request
                else:  # h11.PAUSED, ConnectionClosed: it has said its last
                    self._begun = False
                    return None
        return None

    async def _refuse(self, status: int, why: str) -> None:
        if self._h11.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        answer = refusal(status, why)
        await self._write(dataclasses.replace(answer, headers=(*answer.headers, ("Connection", "close"))))
        await self._linger()

    async def _write(self, answer: Answer) -> None:
        headers = [(name.encode("ascii"), value.encode("ascii")) for name, value in answer.headers]
        if answer.status != 304:
            headers.append((b"Content-Length", b"%d" % answer.size))
        response = h11.Response(status_code=answer.status, headers=headers, reason=REASONS[answer.status])
        wire = self._h11.send(response) or b""
        if answer.body:
            wire += self._h11.send(h11.Data(data=answer.body)) or b""
        wire += self._h11.send(h11.EndOfMessage()) or b""
        with trio.move_on_after(self._limits.writing) as scope:
            await self._stream.send_all(wire)
        if scope.cancelled_caught:
            raise trio.BrokenResourceError("the client does not take its answer")
        self._server._answers[answer.status] += 1
        self._server._sent += len(answer.body)

    async def _linger(self) -> None:
        """Let the last answer arrive: closing with unread bytes would reset the connection and take it back."""
        with contextlib.suppress(trio.BrokenResourceError, OSError), trio.move_on_after(1):
            self._stream.socket.shutdown(stdlib_socket.SHUT_WR)
            for _ in range(64):  # 1 MiB, or whatever comes in a second
                if not await self._stream.receive_some(READ):
                    return


def _has_body(request: h11.Request) -> bool:
    return any(
        (name == b"content-length" and value.strip(b"0")) or name == b"transfer-encoding"
        for name, value in request.headers
    )
