"""Small HTTP server for nngkit's pages: the files of one folder and JSON values, by GET and HEAD. trio and h11.

    async with trio.open_nursery() as nursery:
        site = Site.load(page_folder(), json={"config.json": config}, connect=peer.repair_addresses)
        server = await nursery.start(serve, site)
        print(server.url)                               # http://127.0.0.1:40123/
        ...
        nursery.cancel_scope.cancel()                   # closes it and all its connections

It serves browsers of invited users, not the open Internet: there is no TLS (put a proxy in front) and no range
requests; text is compressed for clients that accept gzip. Clients are not trusted all the same: every request is
limited in size and time, request bodies are refused, connections above `connections` get 503. Nothing is logged;
`Server.stats` counts. Put secrets into the fragment of a link (`link`), which browsers do not send.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket as stdlib_socket
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import h11
import trio

from nngkit.errors import ConfigError, Unreachable
from nngkit.trust.guests import guest_pass
from nngkit.web.site import Response, Site, misdirected, refusal

if TYPE_CHECKING:
    from nngkit.trust.realm import Realm

READ: Final = 16 * 1024  # bytes of one read
REASONS: Final = {
    200: b"OK",
    304: b"Not Modified",
    400: b"Bad Request",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    413: b"Content Too Large",
    421: b"Misdirected Request",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    503: b"Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits for clients. The defaults suit a page of some 200 KB for tens of users."""

    connections: int = 256
    """Open connections; a browser opens six for a page."""
    head: int = 16 * 1024
    """Bytes of a request, exceeded by at most one read. A browser's has under 2 KiB without other sites' cookies."""
    reading: float = 10.0
    """Seconds from the first byte of a request, or the start of the connection, to its last byte."""
    idle: float = 30.0
    """Seconds between two requests of a connection."""
    writing: float = 30.0
    """Seconds to send a response: 200 KB at 56 kbit/s."""
    requests: int = 1000
    """Requests on one connection; a client that needs more opens another."""


@dataclass(frozen=True, slots=True)
class ServerStats:
    """Counters of a server. `answers`: responses by status; `cut`: connections that ended within a request."""

    connections: int
    open: int
    answers: Mapping[int, int]
    cut: int
    sent: int
    """Bytes of response bodies."""


@dataclass(slots=True)
class Server:
    """A running server, with its address and counters. `serve` passes it to its nursery."""

    host: str
    port: int
    names: frozenset[str] = frozenset()
    """Names under which it is asked, besides localhost and addresses."""
    _connections: int = 0
    _open: int = 0
    _answers: Counter[int] = field(default_factory=Counter)
    _cut: int = 0
    _sent: int = 0

    @property
    def url(self) -> str:
        """URL for a browser on this machine, or on another one where `host` resolves to it."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host and host[0] != '[' else host}:{self.port}/"

    @property
    def stats(self) -> ServerStats:
        """Current counters."""
        return ServerStats(self._connections, self._open, dict(self._answers), self._cut, self._sent)


def link(
    url: str, *, guest: str | None = None, hours: float = 8.0, realm: Realm | None = None, **secrets: str | None
) -> str:
    """Return `url` with `secrets` (token="...", doc="...") in its fragment, which browsers do not send; skips None.

    `guest`: a name, of which the link has a pass for `hours`, signed by `realm`. Raises ConfigError.
    """
    if guest is not None:
        if realm is None:
            raise ConfigError("guest", "the realm has to sign the pass of a guest: set realm=", guest)
        secrets |= {"guest": guest, "pass": guest_pass(realm, guest, hours)}
    fragment = urlencode({name: value for name, value in secrets.items() if value is not None})
    return f"{url}#{fragment}" if fragment else url


async def serve(
    site: Site,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    names: Iterable[str] = (),
    limits: ServerLimits | None = None,
    task_status: trio.TaskStatus[Server] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `site` until cancelled; `task_status` gets the `Server` once it listens. Port 0 chooses a free port.

    `names`: host names under which browsers ask, besides `host`, that of this machine (also with ".local"), localhost
    and IP addresses. A request for another name is refused (421), and one of another site's page (403).

    Cancelling closes the listeners and all connections at once.
    Raises Unreachable if it cannot listen, ConfigError for an invalid port.
    """
    limits = limits or ServerLimits()
    if not 0 <= port <= 65535:
        raise ConfigError("port", f"{port} is not from 0 to 65535", port)
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except OSError as error:  # a gaierror for the host among them
        raise Unreachable(f"http://{host}:{port}", error.strerror or str(error)) from error
    if port == 0 and len(listeners) > 1:  # a host with two addresses got two ports, but there is one URL
        for listener in listeners[1:]:
            await listener.aclose()
        del listeners[1:]
    here = stdlib_socket.gethostname()
    known = frozenset(name.lower() for name in (host, here, f"{here}.local", *names))
    server = Server(host, listeners[0].socket.getsockname()[1], known)

    async def connected(stream: trio.SocketStream) -> None:
        server._connections += 1
        server._open += 1
        try:
            # A peer that has gone, or does not read, is expected; any other exception is a bug and ends the server.
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await _Connection(stream, site, server, limits).run()
        finally:
            server._open -= 1
            await trio.aclose_forcefully(stream)

    await trio.serve_listeners(connected, listeners, task_status=_Started(task_status, server))


class _Started:
    """Passes on our Server where trio passes on its listeners."""

    def __init__(self, status: trio.TaskStatus[Server], server: Server) -> None:
        self._status = status
        self._server = server

    def started(self, _listeners: object = None) -> None:
        self._status.started(self._server)


class _Connection:
    """One client connection, from its first request to its last."""

    def __init__(self, stream: trio.SocketStream, site: Site, server: Server, limits: ServerLimits) -> None:
        self._stream = stream
        self._site = site
        self._server = server
        self._limits = limits
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head)
        self._begun = False  # True while part of a request has been received

    async def run(self) -> None:
        """Answer requests until either side closes."""
        if self._server._open > self._limits.connections:
            await self._refuse(503, "too many connections; try again")
            return
        for _ in range(self._limits.requests):
            response = await self._next()
            if response is None:
                return
            await self._write(response)
            if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
                break
            self._h11.start_next_cycle()
        await self._linger()

    async def _next(self) -> Response | None:
        """Return the response to the next request; None if there is none, after informing the client if possible."""
        self._begun = bool(self._h11.trailing_data[0])
        try:
            request = await self._read(self._limits.reading if self._begun else self._limits.idle)
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint if error.error_status_hint in REASONS else 400
            await self._refuse(status, "not a valid HTTP request")
            return None
        if request is None:
            if self._begun:
                self._server._cut += 1
                await self._refuse(408, "request timeout")
            return None
        headers: dict[str, str] = {}
        for raw, value in request.headers:  # lists may span several lines; h11 refuses other duplicates
            name, text = raw.decode("latin1"), value.decode("latin1")
            headers[name] = f"{headers[name]}, {text}" if name in headers else text
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            await self._refuse(413, "requests with a body are not accepted")
            return None
        target = request.target.decode("ascii")  # h11 admits ASCII only
        wrong = misdirected(headers.get("host"), headers.get("origin"), self._server.names)
        return wrong or self._site.answer(
            request.method.decode("ascii"),
            target,
            host=headers.get("host"),
            etag=headers.get("if-none-match"),
            encodings=headers.get("accept-encoding"),
        )

    async def _read(self, patience: float) -> h11.Request | None:
        """Return the next complete request; None if the client left or was too slow. Raises h11.RemoteProtocolError."""
        request: h11.Request | None = None
        with trio.move_on_after(patience) as scope:
            while True:
                event = self._h11.next_event()
                if event is h11.NEED_DATA:
                    data = await self._stream.receive_some(READ)
                    if not data:
                        self._server._cut += self._begun
                        self._begun = False  # the client is gone: no response
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
                else:  # h11.PAUSED, ConnectionClosed: no more requests
                    self._begun = False
                    return None
        return None

    async def _refuse(self, status: int, why: str) -> None:
        if self._h11.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        response = refusal(status, why)
        await self._write(dataclasses.replace(response, headers=(*response.headers, ("Connection", "close"))))
        await self._linger()

    async def _write(self, response: Response) -> None:
        headers = [(name.encode("ascii"), value.encode("ascii")) for name, value in response.headers]
        if response.status != 304:
            headers.append((b"Content-Length", b"%d" % response.size))
        head = h11.Response(status_code=response.status, headers=headers, reason=REASONS[response.status])
        wire = self._h11.send(head) or b""
        if response.body:
            wire += self._h11.send(h11.Data(data=response.body)) or b""
        wire += self._h11.send(h11.EndOfMessage()) or b""
        with trio.move_on_after(self._limits.writing) as scope:
            await self._stream.send_all(wire)
        if scope.cancelled_caught:
            raise trio.BrokenResourceError("the client does not read the response")
        self._server._answers[response.status] += 1
        self._server._sent += len(response.body)

    async def _linger(self) -> None:
        """Wait for the last response to arrive: closing with unread bytes would reset the connection and discard it."""
        with contextlib.suppress(trio.BrokenResourceError, OSError), trio.move_on_after(1):
            self._stream.socket.shutdown(stdlib_socket.SHUT_WR)
            for _ in range(64):  # at most 1 MiB or a second
                if not await self._stream.receive_some(READ):
                    return


def _has_body(request: h11.Request) -> bool:
    return any(
        (name == b"content-length" and value.strip(b"0")) or name == b"transfer-encoding"
        for name, value in request.headers
    )
