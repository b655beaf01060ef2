"""Server: a provider of a service: listens, registers with discovery, runs handlers, drains and says goodbye.

::

    async def answer(body: bytes) -> bytes: ...

    async with Server("answer", answer, discovery=["tcp://daemon:5555"]):
        await trio.sleep_forever()

    server = Server("calc", discovery=[...], codec="cbor")      # with methods
    @server.method
    async def add(body): return body["a"] + body["b"]

As many worker tasks as calls may run at once receive in turn, run the handler and reply, so a call costs no new task;
one more receives while all run, to queue or refuse calls and to obey cancellations. serving/ has the way of a call.

Leaving: the record is marked as draining, calls in progress end, goodbye is said, and the socket stays open until the
callers that follow discovery have left, at most LEAVING seconds: closed before they have heard, it would cut the calls
that they are just sending.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Self, TypeVar, overload

import trio

from nngkit import tracing
from nngkit.background import Background, UnderTrio, WakeUp
from nngkit.calls.handlers import name_of
from nngkit.calls.messages import Codec, check_codec
from nngkit.calls.middleware import Middleware, check_middleware
from nngkit.calls.serving.health_check import check_health
from nngkit.calls.serving.running import Running
from nngkit.discovery import _sigterm
from nngkit.discovery.domains import check_domain
from nngkit.discovery.provider import PRIORITY, Provider, short_name
from nngkit.discovery.service import OnQuestion, Service, check_callable
from nngkit.discovery.settings import ServiceSettings, names_daemons
from nngkit.errors import ConfigError
from nngkit.histogram import NO_TIMES
from nngkit.instruments import ByCode, ByKind, Gauge, Seconds, Spread, Total
from nngkit.protocols import TLS, PeerEvent, Rep, Stats
from nngkit.protocols.own_host import own_host, reachable
from nngkit.trust import Choice, Trust, chosen

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("nngkit.calls")

MIB: Final = 1024 * 1024
LEAVING: Final = 1.0
"""Seconds to wait for callers to disconnect after the goodbye: ours do within milliseconds, others never do."""
MOST_CONCURRENCY: Final = 65_536


@dataclass(frozen=True, slots=True)
class ServerStats:
    """Counters of a Server, and of its `socket`. Times are those of handlers; None before the first call."""

    requests: Total = 0
    """Calls received, without control messages (cancellations, streams' next parts)."""
    replies: Total = 0
    """Results sent."""
    errors: ByKind = field(default_factory=dict)
    """Replies with an error, by kind."""
    in_progress: Gauge = 0
    """Handlers running, streams included."""
    queued: Gauge = 0
    """Calls that wait for a handler."""
    bad: Total = 0
    """Messages that are no requests."""
    abandoned: Gauge = 0
    """Threads that run on after their caller has given up."""
    mean: Seconds = None
    """Mean time of a call."""
    p50: Seconds = None
    """Median time of a call."""
    p99: Seconds = None
    """99th percentile of the time of a call."""
    times: Spread = NO_TIMES
    """Time of a call."""
    refused: ByCode = field(default_factory=dict)
    """Calls and connections of callers that may not call this service, by code."""
    socket: Stats = field(default_factory=Stats)


class Server(UnderTrio):
    """A provider of the service `name`. Use it with `async with`, under trio.

    handler       see handlers.py; also by `@server.method`, for calls that name a method
    discovery     survey addresses of all daemons; default: from the environment, as for Service, if it names any.
                  Without any, callers need the address; () says so whatever the environment
    listen        address to listen on; default: a free port of loopback if all daemons are there, else of this host's
                  address towards them, by TLS with a trust. The server opens once a daemon's name has an address
    address       said to callers instead of the one that is listened on; default: this host's address towards the
                  daemons in place of all interfaces
    codec         "cbor" or "json"; None: bytes, which any REQ can send, and no methods, errors, deadlines or streams
    concurrency   calls that run at once; queue: calls that wait beyond them. Further calls are refused as busy, or
                  with codec None not read from the sockets
    middleware    async functions around each call, the first one outermost, see nngkit.calls.middleware
    healthy       async or plain function, called every `health_interval` seconds: while it returns a false value, or
                  raises, or takes longer, the server drains and refuses calls
    drain_timeout seconds that calls in progress may take when leaving; then they are cancelled
    recv_max_size bytes of the largest request, and with a codec of the largest reply
    load          said to discovery: a number or function; default: the share of `concurrency` that is in use
    tls           certificates of the socket; daemon_tls: towards the daemons
    trust         for both, in place of tls and daemon_tls, or OPEN; default: NNGKIT_TRUST. Callers then need the right
                  to `call` the service or its method
    on_question, domain   see Service; INFO and STATS questions get the server's own information and counters
    sigterm       drain and leave on SIGTERM, if the program leaves that signal at its default
    id, version, zone, priority, weight, tags: see Provider

    Entering raises ConfigError for an unusable value, Unreachable if it cannot listen.
    """

    def __init__(
        self,
        name: str,
        handler: Callable[..., Any] | None = None,
        *,
        discovery: str | Iterable[str] | None = None,
        listen: str | None = None,
        address: str | None = None,
        codec: Codec | None = None,
        concurrency: int = 64,
        queue: int = 1024,
        middleware: Iterable[Middleware] = (),
        healthy: Callable[[], Any] | None = None,
        health_interval: float = 1.0,
        drain_timeout: float = 10.0,
        recv_max_size: int = MIB,
        load: float | Callable[[], float] | None = None,
        id: str | None = None,
        version: str = "",
        zone: str = "",
        priority: int | None = None,
        weight: int = 100,
        tags: str | Iterable[str] = (),
        tls: TLS | None = None,
        trust: Choice | None = None,
        daemon_tls: TLS | None = None,
        domain: str = "",
        on_question: OnQuestion | None = None,
        sigterm: bool = True,
    ) -> None:
        if not isinstance(concurrency, int) or not 1 <= concurrency <= MOST_CONCURRENCY:
            raise ConfigError("concurrency", f"{concurrency!r} is not from 1 to {MOST_CONCURRENCY}", concurrency)
        if not isinstance(queue, int) or not 0 <= queue <= 1_000_000:
            raise ConfigError("queue", f"{queue!r} is not from 0 to 1000000", queue)
        for what, seconds in (("health_interval", health_interval), ("drain_timeout", drain_timeout)):
            if not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e9:
                raise ConfigError(what, f"{seconds!r} is not a number of seconds", seconds)
        self.name = name
        if discovery is None and names_daemons():
            settings = ServiceSettings.from_environment()
            discovery, domain, zone = settings.discovery, domain or settings.domain, zone or settings.zone
            priority = settings.priority if priority is None else priority
            daemon_tls = settings.certificates.beside(daemon_tls, trust)
        discovery = discovery or ()
        self._concurrency = concurrency
        self._daemons = _several(discovery)
        self._listen = listen
        self._said = address
        self._healthy = healthy
        self._health_interval = health_interval
        self._drain_timeout = drain_timeout
        self._load = load
        self._tls = tls
        self._trust = chosen(trust, tls)
        self._daemon_tls = daemon_tls
        self._sigterm = sigterm
        self._domain = check_domain(domain)
        self._on_question = on_question
        self._record: dict[str, Any] = {
            "id": id,
            "version": version,
            "zone": zone,
            "priority": PRIORITY if priority is None else priority,
            "weight": weight,
            "tags": _several(tags),
        }
        self._recv_max_size = recv_max_size
        self._background = Background()
        self._running = Running(
            name,
            self._background,
            codec=check_codec(codec),
            concurrency=concurrency,
            queue=queue,
            limit=recv_max_size,
            info=self._described,
            trust=self._trust if isinstance(self._trust, Trust) else None,
            spans=tracing.spans,
            middleware=check_middleware(middleware),
        )
        self._methods = self._running.methods
        if handler is not None:
            self._methods.add("", handler)
        self._service: Service | None = None
        self._began = time.time()
        self._left = False
        Provider(name, "tcp://127.0.0.1:1")  # checks the name

    @overload
    def method(self, handler: str) -> Callable[[F], F]: ...
    @overload
    def method(self, handler: F) -> F: ...
    def method(self, handler: Any) -> Any:
        """Register a handler for calls that name its method: `@server.method`, or `@server.method("name")`.

        If its body is annotated with a type that msgspec reads, it runs with bodies of that type only.

        Raises ConfigError for a second handler of one name, for one without a name, or without a codec.
        """
        if isinstance(handler, str):
            name = handler

            def register(function: F) -> F:
                self._methods.add(name, function)
                return function

            return register
        self._methods.add(name_of(handler), handler)
        return handler

    # Lifecycle

    async def __aenter__(self) -> Self:
        self._entering()
        self._methods.check()
        self._token = trio.lowlevel.current_trio_token()
        self._peers_changed = WakeUp()
        self._terminated = WakeUp()
        self._leaving = trio.Lock()
        host = await own_host(self._daemons) if self._daemons and not self._listen else "127.0.0.1"
        scheme = "tls+tcp" if self._tls is not None or isinstance(self._trust, Trust) else "tcp"
        self._rep = Rep(
            listen=self._listen or f"{scheme}://{host}:0",
            name=short_name(self.name),
            recv_max_size=self._recv_max_size,
            tls=self._tls,
            trust=self._trust,
            peers=() if self._methods.permits is None else self._methods.permits.admit,
            linger=1.0,
        )
        try:
            self._rep.on_peer(self._peer)
            said = self._said or await reachable(self._rep.address, self._daemons)
            check_callable(said)
            self._address = said
            await self._background.open()
        except BaseException:
            self._rep.close(0.0)
            raise
        self._running.start(self._rep)
        if self._daemons:
            self._service = Service(
                self.name,
                said,
                discovery=self._daemons,
                load=self._running.load if self._load is None else self._load,
                tls=self._daemon_tls,
                trust=self._trust if self._daemon_tls is None else None,
                domain=self._domain,
                on_question=self._on_question,
                info=self._info,
                stats=self._running.counters,
                sigterm=False,
                **self._record,
            )
            try:
                await self._service.__aenter__()
            except BaseException as error:
                self._rep.close(0.0)
                await self._background.close(type(error), error, error.__traceback__)
                raise
        if self._healthy is not None:
            told = self.name, self._healthy, self._health_interval, self._health_changed
            self._background.start_calling(check_health, *told)
        if self._sigterm:
            self._key = _sigterm.on_sigterm(self._sigterm_came)
            self._background.start(self._leave_on_sigterm)
        return self

    async def _before_end(self) -> None:
        try:
            await self.aclose()
        finally:
            if self._service is not None:
                await self._service.__aexit__(None, None, None)

    async def aclose(self) -> None:
        """Drain, say goodbye and close, before the block ends; also when cancelled. Idempotent.

        Takes milliseconds without calls in progress; else up to `drain_timeout`, and LEAVING seconds more. In a handler
        of its own it returns at once: the server closes when that has ended, too, and has its reply sent.
        """
        if not self._is_inside:
            await self._leave()
        elif not self._left:
            self.drain()
            self._put_off(partial(self._background.start, self._leave))
        await trio.lowlevel.checkpoint()

    @property
    def _is_inside(self) -> bool:
        """True in a handler, a check of its health, and an answer to a question."""
        return self._background.is_inside or (self._service is not None and self._service._is_inside)

    def _put_off(self, end: Callable[[], object]) -> None:
        """Call `end` once the check or the answer that closes the server has returned; leaving waits for handlers."""
        if self._service is not None and self._service._is_inside:
            self._service._put_off(end)
        else:
            self._background.put_off(end)

    async def _leave(self) -> None:
        with trio.CancelScope(shield=True):
            async with self._leaving:
                if not self._left:
                    await self._leave_once()

    async def _leave_once(self) -> None:
        self._left = True
        self.drain()
        with trio.move_on_after(self._drain_timeout):
            await self._running.until_idle()
        if self._service is not None:
            await self._service.aclose()
            with trio.move_on_after(LEAVING):
                while self._rep.pipes:
                    await self._peers_changed.wait()
        with trio.move_on_after(LEAVING):  # calls that arrived meanwhile end too
            await self._running.until_idle()
        await self._running.end()
        await self._rep.aclose(1.0 if self._rep.pipes else 0.0)
        self._background.end()
        if self._sigterm:
            _sigterm.gone(self._key)

    def drain(self) -> None:
        """Announce that no new callers are accepted. With a codec, further calls are refused, and go elsewhere.

        Calls in progress continue. With codec None new calls of connected callers are still served.
        """
        self._methods.draining = True
        if self._service is not None:
            self._service.drain()

    def _peer(self, event: PeerEvent) -> None:
        # From any thread
        self._peers_changed.wake_soon()
        if event.kind == "left":
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._running.caller_left, event.pipe.id)

    def _sigterm_came(self) -> None:
        if not self._terminated.wake_soon():
            _sigterm.gone(self._key)

    def _health_changed(self, why: str) -> None:
        self._methods.unhealthy = why
        if self._service is not None and not self._left and not self._methods.draining:
            self._service.update(draining=bool(why))

    async def _leave_on_sigterm(self) -> None:
        await self._terminated.wait()
        await self.aclose()

    # State

    @property
    def address(self) -> str:
        """The address that callers dial."""
        return self._address

    @property
    def provider(self) -> Provider:
        """The record as said to discovery. Raises ConfigError without discovery."""
        if self._service is None:
            raise ConfigError("discovery", "this server has no daemon", self._daemons)
        return self._service.provider

    @property
    def stats(self) -> ServerStats:
        """Counters of calls, and of the socket. Any thread may read them."""
        return ServerStats(**self._running.counters(), times=self._running.times(), socket=self._rep.stats)

    def update(self, **changes: Any) -> None:
        """Change the record as `Service.update` does: version, zone, priority, weight, tags, load."""
        if self._service is not None:
            if changes.get("tags") is not None:
                changes["tags"] = _several(changes["tags"])  # read twice
            self._service.update(**changes)
            said = {key: value for key, value in changes.items() if key in self._record and value is not None}
            self._record.update(said)

    async def wait_for_daemons(self, n: int = 1, timeout: float | None = None) -> None:
        """Wait until `n` daemons are connected. Raises TimedOut, Closed."""
        if self._service is not None:
            await self._service.wait_for_peers(n, timeout)

    def _info(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "address": self._address,
            "methods": self._methods.names(),
            "concurrency": self._concurrency,
            "started": self._began,
            **{key: value for key, value in self._record.items() if value and key != "tags"},
            "tags": sorted(self._record["tags"]),
        }

    def _described(self) -> dict[str, Any]:
        """Return what a caller gets; an answer to a question of discovery has no room for schemas."""
        return {**self._info(), "schemas": self._methods.described()}


def _several(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
