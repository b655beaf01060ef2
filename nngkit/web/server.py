"""Small HTTP server for nngkit's pages and its gateway. trio and h11.

    async with trio.open_nursery() as nursery:
        site = Site.load(page_folder(), json={"config.json": config}, connect=peer.repair_addresses)
        server = await nursery.start(serve, site)
        print(server.url)                               # http://127.0.0.1:40123/, with tls= https://
        ...
        nursery.cancel_scope.cancel()                   # closes it and all its connections

What is served is an `App` of exchange.py. Every request is limited in size and time, and parsed strictly: what h11 does
not take for one request, as two lengths, is refused. The response to a client that leaves, or only ends its side of the
connection, is cancelled within 0.1 s. A body is accepted up to `ServerLimits.body`, which is 0 for
pages; connections above `connections`, or above `from_one` of one address, get 503, with TLS none. Nothing is logged;
`Server.stats` counts. Put secrets into the fragment of a link (`link`), which browsers do not send.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import select
import socket as stdlib_socket
import ssl
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlencode

import h11
import trio

from nngkit.background import WakeUp
from nngkit.errors import ConfigError, Unreachable
from nngkit.instruments import BytesTotal, Gauge, Instrument, Total
from nngkit.protocols import TLS
from nngkit.trust import Trust
from nngkit.trust.guests import guest_pass
from nngkit.web.exchange import REASONS, App, Headers, Request, Response, Streamed
from nngkit.web.site import misdirected

if TYPE_CHECKING:
    from nngkit.trust.realm import Realm

EXPOSED: Final = (
    "ETag, Location, Retry-After, Stream-Next-Offset, Stream-Up-To-Date, Stream-Closed, Stream-Cursor, Stream-TTL, "
    "Stream-Expires-At, Stream-SSE-Data-Encoding, Producer-Epoch, Producer-Seq, Producer-Expected-Seq, "
    "Producer-Received-Seq"
)
"""Headers that pages of other sites may see, besides those that every page may."""
LAST: Final = 1.0  # seconds at the end for the last bytes of streams; a client that reads gets them in milliseconds
LOOK: Final = 0.1  # seconds between two looks at which clients are too slow
READ: Final = 16 * 1024  # bytes of one read
STREAM_BUFFER: Final = 128 * 1024  # bytes that the kernel keeps for the client of a stream; by default megabytes
LEFT: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
"""Events of a connection whose client sends no more. POLLRDHUP is Linux's."""
UNHEARD: Final = 1 << 16  # bytes that the client of a stream may send, to no use
LEFT_ALONE: Final = 30_000  # milliseconds until a client that acknowledges nothing is gone


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits for clients. The defaults suit a page of some 200 KB for tens of users."""

    connections: int = 256
    """Open connections; a browser opens six for a page."""
    head: int = 16 * 1024
    """Bytes of a request, exceeded by at most one read. A browser's has under 2 KiB without other sites' cookies."""
    handshake: float = 10.0
    """Seconds for a TLS handshake, which takes two round trips and 3 ms of CPU."""
    reading: float = 10.0
    """Seconds from the first byte of a request, or the start of the connection, to its last byte."""
    idle: float = 30.0
    """Seconds between two requests of a connection."""
    writing: float = 30.0
    """Seconds to send a response: 200 KB at 56 kbit/s."""
    requests: int = 1000
    """Requests on one connection; a client that needs more opens another."""
    body: int = 0
    """Bytes of the body of a request."""
    bodies: int = 64 << 20
    """Bytes of the bodies of all requests in progress together; beyond it they get 503."""
    from_one: int | None = None
    """Open connections of one address; None: as many as `connections`."""


@dataclass(frozen=True, slots=True)
class ServerStats:
    """Counters of a server."""

    connections: Total
    """Connections accepted."""
    open: Gauge
    """Open connections."""
    answers: Annotated[Mapping[int, int], Instrument("counter", label="status")]
    """Responses by status."""
    cut: Total
    """Connections that ended within a request."""
    sent: BytesTotal
    """Bytes of response bodies."""
    streams: Gauge = 0
    """Streamed responses that are open."""
    refused: Total = 0
    """Connections whose TLS handshake failed, took too long, or was not begun as there were too many."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class Server:
    """A running server, with its address and counters. `serve` passes it to its nursery."""

    host: str
    port: int
    names: frozenset[str] | None = frozenset()
    """Names under which it is asked, besides localhost and addresses; None: those of its certificate."""
    name: str = ""
    """The name in `url`, if it listens at all addresses."""
    origins: frozenset[str] = frozenset()
    """Other sites whose pages may ask."""
    _connections: int = 0
    _open: int = 0
    _answers: Counter[int] = field(default_factory=Counter)
    _cut: int = 0
    _sent: int = 0
    _streams: int = 0
    _bodies: int = 0  # bytes that are held
    _of: Counter[str] = field(default_factory=Counter)  # open connections by address
    _refused: int = 0
    _draining: bool = False
    _listening: trio.CancelScope = field(default_factory=trio.CancelScope)
    _ended: trio.Event = field(default_factory=trio.Event)

    def drain(self) -> None:
        """Accept no more connections, and have `serve` return once the requests in progress are answered.

        Connections without a request are closed at once. Streams that do not end by themselves end with what they have
        begun to write and `Streamed.last`; one whose client does not read it within LAST seconds is cut.
        """
        self._draining = True
        self._listening.cancel()

    async def aclose(self) -> None:
        """Drain, and wait until `serve` has returned, at most LAST seconds, also when cancelled; then cancel it."""
        self.drain()
        with trio.move_on_after(LAST, shield=True):
            await self._ended.wait()

    @property
    def url(self) -> str:
        """URL for a browser on this machine, or on another one where `host` resolves to it."""
        everywhere = {"0.0.0.0": self.name or "127.0.0.1", "::": self.name or "[::1]"}
        host = everywhere.get(self.host, self.host)
        scheme = "http" if self.names is not None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host and host[0] != '[' else host}:{self.port}/"

    @property
    def stats(self) -> ServerStats:
        """Current counters."""
        answers = dict(self._answers)
        return ServerStats(self._connections, self._open, answers, self._cut, self._sent, self._streams, self._refused)


def link(
    url: str, *, guest: str | None = None, hours: float = 8.0, realm: Realm | None = None, **secrets: str | None
) -> str:
    """Return `url` with `secrets` (token="...", doc="...") in its fragment, which browsers do not send; skips None.

    `guest`: a name, of which the link has a pass for `hours`, signed by `realm`. Raises ConfigError.
    """
    if guest is not None:
        if realm is None:
            raise ConfigError("guest", "the realm has to sign the pass of a guest: set realm=", guest)
        secrets["pass"] = guest_pass(realm, guest, hours)
    fragment = urlencode({name: value for name, value in secrets.items() if value is not None})
    return f"{url}#{fragment}" if fragment else url


async def serve(
    app: App,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    names: Iterable[str] = (),
    origins: Iterable[str] = (),
    tls: TLS | Trust | None = None,
    limits: ServerLimits | None = None,
    task_status: trio.TaskStatus[Server] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `app` until cancelled; `task_status` gets the `Server` once it listens. Port 0 chooses a free port.

    `names`: host names under which browsers ask, besides `host`, that of this machine (also with ".local"), localhost
    and IP addresses. A request for another name is refused (421), and one of another site's page (403) unless `origins`
    has the site, as "https://example.org", or is "*" (CORS).
    `tls`: the certificate of https, or a trust whose pass is shown; as the files are at each connection. No client is
    asked for a certificate, and any name may be asked for: browsers check it.

    Cancelling closes the listeners and all connections at once; `Server.drain` lets requests in progress end.
    Raises Unreachable if it cannot listen, ConfigError for an invalid port or certificate.
    """
    limits = limits or ServerLimits()
    contexts = _contexts(tls)
    if not 0 <= port <= 65535:
        raise ConfigError("port", f"{port} is not from 0 to 65535", port)
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except OSError as error:  # a gaierror for the host among them
        raise Unreachable(f"http{'s' * (tls is not None)}://{host}:{port}", error.strerror or str(error)) from error
    if port == 0 and len(listeners) > 1:  # a host with two addresses got two ports, but there is one URL
        for listener in listeners[1:]:
            await listener.aclose()
        del listeners[1:]
    here = stdlib_socket.gethostname()
    names = tuple(names)
    known = frozenset(name.lower() for name in (host, here, f"{here}.local", *names)) if contexts is None else None
    shown = "" if contexts is None else next(iter(names), here)
    server = Server(host, listeners[0].socket.getsockname()[1], known, shown, frozenset(origins))

    connections: dict[_Connection | None, None] = {}
    joined = WakeUp()

    async def watch() -> None:
        """End what takes too long, and responses whose client has left.

        A look for all is cheaper than a deadline of trio's, and a task that reads, for each request.
        """
        while True:
            if not connections:
                await joined.wait()
            await trio.sleep(LOOK)
            now = trio.current_time()
            for connection in connections:
                if connection is not None and (connection.due < now or connection.is_left()):
                    connection.scope.cancel()

    async def connected(stream: trio.SocketStream) -> None:
        server._connections += 1
        server._open += 1
        client, connection = "", None
        try:
            # A peer that has gone, or does not read, is expected; any other exception is a bug and ends the server.
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                client = _address_of(stream)
                server._of[client] += 1
                secure = None
                if contexts is None or (secure := await _shaken(stream, contexts, server, limits)) is not None:
                    connection = _Connection(stream, secure, app, server, limits, client)
                    connections[connection] = None
                    joined.wake()
                    await connection.run()
        finally:
            connections.pop(connection, None)
            server._open -= 1
            server._of[client] -= 1
            if server._of[client] <= 0:
                del server._of[client]
            await trio.aclose_forcefully(stream)

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            async with trio.open_nursery() as handlers:
                task_status.started(server)
                with server._listening:
                    await trio.serve_listeners(connected, listeners, handler_nursery=handlers)
                app.drain()
                for connection in connections:
                    if connection is not None:
                        connection.leave()
            nursery.cancel_scope.cancel()
    finally:
        server._ended.set()


def _address_of(stream: trio.SocketStream) -> str:
    try:
        return str(stream.socket.getpeername()[0])
    except OSError as gone:
        raise trio.BrokenResourceError("the client has left") from gone


def _contexts(tls: TLS | Trust | None) -> Callable[[], ssl.SSLContext] | None:
    """Return what gives OpenSSL's settings for a new connection. Raises ConfigError."""
    if not isinstance(tls, Trust):
        return None if tls is None else dataclasses.replace(tls, ca=None).contexts(server=True)
    trust = tls

    def of_trust() -> ssl.SSLContext:
        trust.refresh(now=True)
        return trust.context(server=True, asks=False)

    return of_trust


async def _shaken(
    stream: trio.SocketStream, contexts: Callable[[], ssl.SSLContext], server: Server, limits: ServerLimits
) -> trio.SSLStream[trio.SocketStream] | None:
    """Return the stream with TLS; None, and count it, if the handshake fails."""
    secure = trio.SSLStream(stream, contexts(), server_side=True, https_compatible=True)
    if server._open <= limits.connections:
        with contextlib.suppress(trio.BrokenResourceError), trio.move_on_after(limits.handshake):
            await secure.do_handshake()
            return secure
    server._refused += 1
    return None


class _Connection:
    """One client connection, from its first request to its last. It is the channel of its streamed response."""

    def __init__(
        self,
        stream: trio.SocketStream,
        secure: trio.SSLStream[trio.SocketStream] | None,
        app: App,
        server: Server,
        limits: ServerLimits,
        client: str,
    ) -> None:
        self._socket = stream
        self._stream: trio.SocketStream | trio.SSLStream[trio.SocketStream] = secure or stream
        self._app = app
        self._server = server
        self._limits = limits
        self._client = client
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head)  # of this request
        self.scope = trio.CancelScope()  # of reading requests
        self.due = math.inf  # when it is cancelled
        self._answered = False
        self._responding = False  # True while the program works at a response
        self._leaves = False  # True if the client said so: h11 forgets it where another protocol is asked for
        self._begun = False  # True while part of a request has been received
        self._held = 0  # bytes of this request's body
        self._early = False  # True once `read` has returned what came with the request
        self._endless: trio.CancelScope | None = None  # of a stream that does not end by itself
        self._leaving = False  # True once that is to end
        self._whole = True  # False while a write is half sent

    async def run(self) -> None:
        """Answer requests until either side closes, or the client is too slow."""
        with self.scope:
            await self._run()
        if self.scope.cancelled_caught and self._begun:
            self._server._cut += 1
            await self._refuse(408, "request timeout")

    def leave(self) -> None:
        """Close the connection, unless it has a request that is yet to be answered."""
        if self._endless is not None:
            self._leaving = True
            self._endless.deadline = trio.current_time() + LAST
            self._end_if_whole()
        elif not self._begun:
            self.scope.cancel()

    def is_left(self) -> bool:
        """Return True if the client has left while a response was made for it; its request counts as cut."""
        if not self._responding:
            return False
        poll = select.poll()
        poll.register(self._socket.socket.fileno(), LEFT)
        if not poll.poll(0):
            return False
        self._responding = self._begun = False  # no client is there to be told
        self._server._cut += 1
        return True

    async def _run(self) -> None:
        from_one = self._limits.from_one or self._limits.connections
        if self._server._open > self._limits.connections or self._server._of[self._client] > from_one:
            await self._refuse(503, "too many connections; try again")
            return
        try:
            for _ in range(self._limits.requests):
                request = await self._next()
                if request is None:
                    return
                self._responding = True
                response = await self._respond(request)
                self._responding = False
                if isinstance(response, Streamed):
                    await self._run_stream(response)
                    return
                await self._write(response)
                self._release()
                if not self._stays:
                    break
                self._begin()
        finally:
            self._release()
        await self._linger()

    @property
    def _stays(self) -> bool:
        """True if another request may follow this one."""
        ends = self._leaves or self._server._draining
        return not ends and self._h11.their_state not in (h11.MUST_CLOSE, h11.CLOSED, h11.ERROR)

    def _begin(self) -> None:
        """Expect the next request, perhaps with bytes that have come already.

        h11 reads requests. Responses are written here: it would take as long for these as for all else together.
        """
        early, ended = self._h11.trailing_data
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.head)
        self._answered = False
        if early:
            self._h11.receive_data(early)
        if ended:
            self._h11.receive_data(b"")

    def _release(self) -> None:
        self._server._bodies -= self._held
        self._held = 0

    async def _respond(self, request: Request) -> Response | Streamed:
        """Return the response, with the headers of CORS for a page of another site."""
        origin = request.headers.get("origin")
        names, origins = self._server.names, self._server.origins
        wrong = misdirected(request.headers.get("host"), origin, names, origins)
        if wrong is not None:
            return self._app.refusal(*wrong)
        if origin is None or not origins:
            return await self._app.respond(request)
        if request.method == "OPTIONS" and "access-control-request-method" in request.headers:
            return Response(204, (*_admitting(origin, origins), *_preflight(request)), b"", 0)
        response = await self._app.respond(request)
        admitted = _admitting(origin, origins)
        named = {name for name, _ in admitted}
        kept = [each for each in response.headers if each[0] not in named]
        return dataclasses.replace(response, headers=(*kept, *admitted))

    async def _next(self) -> Request | None:
        """Return the next request; None if there is none, after informing the client if possible."""
        self._begun = bool(self._h11.trailing_data[0])
        self.due = trio.current_time() + (self._limits.reading if self._begun else self._limits.idle)
        body = bytearray()
        head = refused = None
        try:
            head = await self._read(body)
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint if error.error_status_hint in REASONS else 400
            refused = _Refused(status, "not a valid HTTP request")
        except _Refused as error:
            refused = error
        self.due = math.inf
        if refused is not None:
            await self._refuse(refused.status, refused.why)
        if head is None:
            return None
        request, headers = head
        self._leaves = "close" in headers.get("connection", "").lower()
        return Request(
            request.method.decode("ascii"),
            request.target.decode("ascii"),  # h11 admits ASCII only
            headers,
            bytes(body),
            self._client,
            request.http_version < b"1.1",
            self._server.url.partition(":")[0],
        )

    async def _read(self, body: bytearray) -> tuple[h11.Request, dict[str, str]] | None:
        """Return the head of the next complete request, and add its body; None if the client left.

        Raises h11.RemoteProtocolError, _Refused.
        """
        head: tuple[h11.Request, dict[str, str]] | None = None
        while True:
            event = self._h11.next_event()
            if event is h11.NEED_DATA:
                if self._h11.they_are_waiting_for_100_continue:
                    more = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
                    await self._stream.send_all(self._h11.send(more) or b"")
                data = await self._stream.receive_some(READ)
                if not data:
                    self._server._cut += self._begun
                    self._begun = False  # the client is gone: no response
                    return None
                if not self._begun:
                    self._begun = True
                    self.due = trio.current_time() + self._limits.reading
                self._h11.receive_data(bytes(data))
            elif isinstance(event, h11.Data):
                self._hold(len(event.data))
                body += event.data
                if len(body) > self._limits.body:
                    raise _Refused(413, f"the body is over {self._limits.body} bytes")
            elif isinstance(event, h11.Request):
                head = event, _headers_of(event)
                self._check_body(head[1], event.http_version < b"1.1")
            elif isinstance(event, h11.EndOfMessage):
                return head
            else:  # h11.PAUSED, ConnectionClosed: no more requests
                self._begun = False
                return None

    def _check_body(self, headers: Mapping[str, str], old: bool) -> None:
        """Raise _Refused for a body that others may delimit differently, or that is too large before any has come."""
        if "transfer-encoding" in headers and ("content-length" in headers or old):
            raise _Refused(400, "the length of the body is not clear")
        if not self._limits.body and (headers.get("content-length", "0") != "0" or "transfer-encoding" in headers):
            raise _Refused(413, "requests with a body are not accepted")
        if "content-length" in headers and int(headers["content-length"]) > self._limits.body:  # h11 admits digits only
            raise _Refused(413, f"the body is over {self._limits.body} bytes")

    def _hold(self, size: int) -> None:
        self._server._bodies += size
        self._held += size
        if self._server._bodies > self._limits.bodies:
            raise _Refused(503, "too many large requests; try again")

    async def _refuse(self, status: int, why: str) -> None:
        if self._answered:
            return
        await self._write(self._app.refusal(status, why), last=True)
        await self._linger()

    async def _write(self, response: Response, *, last: bool = False) -> None:
        more = "" if response.status in (204, 304) else f"Content-Length: {response.size}\r\n"
        if last or not self._stays:
            more += "Connection: close\r\n"
        self._answered = True
        await self.write(_head(response.status, response.headers, more) + response.body)
        self._server._answers[response.status] += 1
        self._server._sent += len(response.body)

    # Streamed responses

    async def _run_stream(self, response: Streamed) -> None:
        """Write a streamed response; the connection ends with it."""
        self._socket.setsockopt(stdlib_socket.SOL_SOCKET, stdlib_socket.SO_SNDBUF, STREAM_BUFFER)
        if hasattr(stdlib_socket, "TCP_USER_TIMEOUT"):
            self._socket.setsockopt(stdlib_socket.IPPROTO_TCP, stdlib_socket.TCP_USER_TIMEOUT, LEFT_ALONE)
        more = "" if response.status == 101 else "Connection: close\r\n"
        await self.write(_head(response.status, response.headers, more))
        self._server._answers[response.status] += 1
        self._server._streams += 1
        self._release()
        over = False
        try:
            async with trio.open_nursery() as nursery:
                if not response.ends:
                    self._endless = nursery.cancel_scope
                if self._server._draining:
                    self.leave()
                if not response.reads:
                    nursery.start_soon(self._leave_with_client, nursery.cancel_scope)
                with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await response.run(self)
                over = True
                nursery.cancel_scope.cancel()
        finally:
            self._server._streams -= 1
        if not self._whole:
            return
        if self._leaving and not over:
            with trio.move_on_after(LAST):
                await self.write(response.last)
        await self._linger()

    async def _leave_with_client(self, scope: trio.CancelScope) -> None:
        """Cancel the stream once the client has left."""
        heard = 0
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while heard < UNHEARD and (data := await self._stream.receive_some(READ)):
                heard += len(data)
        scope.cancel()

    def write_now(self, data: bytes) -> int:
        """Write what the kernel takes at once; return how many bytes. 0 under TLS, and for a stream that is to end."""
        if self._stream is not self._socket or (self._leaving and self._whole):
            return 0
        try:
            sent = os.write(self._socket.socket.fileno(), data)
        except BlockingIOError:
            return 0
        except OSError as gone:
            raise trio.BrokenResourceError("the client has left") from gone
        self._whole = sent == len(data)
        if self._leaving:
            self._end_if_whole()
        return sent

    def _end_if_whole(self) -> None:
        if self._whole and self._endless is not None:
            self._endless.cancel()

    async def write(self, data: bytes) -> None:
        """Write these bytes, within the server's `writing` seconds."""
        sent = self.write_now(data)  # mostly the kernel takes them at once
        if sent == len(data):
            return
        if self._leaving and self._whole:
            await trio.lowlevel.checkpoint()  # a stream that is to end begins nothing new
        self._whole = False
        with trio.move_on_after(self._limits.writing) as scope:
            await self._stream.send_all(data[sent:])
        if scope.cancelled_caught:
            raise trio.BrokenResourceError("the client does not read the response")
        self._whole = True
        if self._leaving:
            self._end_if_whole()

    async def read(self) -> bytes:
        """Return what the client sends; b"" at its end."""
        early, _ = self._h11.trailing_data
        if early and not self._early:
            self._early = True
            return bytes(early)
        return bytes(await self._stream.receive_some(READ))

    def count(self, sent: int) -> None:
        """Count bytes of a streamed body."""
        self._server._sent += sent

    async def _linger(self) -> None:
        """Wait for the last response to arrive: closing with unread bytes would reset the connection and discard it."""
        with contextlib.suppress(trio.BrokenResourceError, OSError), trio.move_on_after(1):
            if isinstance(self._stream, trio.SSLStream):
                await self._stream.aclose()  # says to the client that this is all
                return
            self._socket.socket.shutdown(stdlib_socket.SHUT_WR)
            for _ in range(64):  # at most 1 MiB or a second
                if not await self._socket.receive_some(READ):
                    return


class _Refused(Exception):
    """A request that is refused before it is whole."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


def _headers_of(request: h11.Request) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw, value in request.headers:  # lists may span several lines; h11 refuses two lengths and two hosts
        name, text = raw.decode("latin1"), value.decode("latin1")
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


def _head(status: int, headers: Headers, more: str) -> bytes:
    """Return the head of a response. Raises ValueError for a value that would be more than one line."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
        raise ValueError(f"a header has a line end: {lines!r}")
    return f"HTTP/1.1 {status} {REASONS[status]}\r\n{lines}{more}\r\n".encode("ascii")


def _admitting(origin: str, origins: Collection[str]) -> Headers:
    """Return the headers by which a browser lets a page of `origin` see the response, if `origins` admit it."""
    if (origin not in origins and "*" not in origins) or not origin.isascii():  # no origin has other characters
        return (("Vary", "Origin"),)
    return (
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Expose-Headers", EXPOSED),
        ("Cross-Origin-Resource-Policy", "cross-origin"),
        ("Vary", "Origin"),
    )


def _preflight(request: Request) -> Headers:
    """Return what a browser may send: every header that it names; what a request may do is decided when it comes."""
    headers = [("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE"), ("Access-Control-Max-Age", "600")]
    named = request.headers.get("access-control-request-headers", "")
    if named and all(each.isalnum() or each in "-, " for each in named) and named.isascii():
        headers.append(("Access-Control-Allow-Headers", named))
    return tuple(headers)
