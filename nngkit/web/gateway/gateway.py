"""Gateway: what HTTP clients ask, done with nngkit's own objects. It is an `App` of the web server.

::

    async with Gateway(daemons="tcp://127.0.0.1:5556", subscribe="tcp://127.0.0.1:7000") as gateway:
        async with trio.open_nursery() as nursery:
            server = await nursery.start(partial(serve, gateway, port=8080, limits=gateway.limits()))

===============================  ==========================================================================
POST /call/NAME[/METHOD]         call a service; the reply, or a stream of its parts
GET /services                    the services that discovery knows
GET /sub?topic=PREFIX            published messages, as server-sent events or over a WebSocket
POST /pub?topic=TOPIC            publish a message
POST /submit/KIND                submit a job
GET /jobs/ID, DELETE /jobs/ID    its state and result; ask for its end
GET /, GET /v1/events            the status page, and what it shows
GET /healthz, GET /readyz        200 while the loop runs; 200 while a daemon answers, or 503
GET /metrics                     Prometheus's text, if `metrics` is given
GET /openapi.json                a description of all of it (OpenAPI 3.1)
GET /topics/TOPIC                read a topic of a journal, by the Durable Streams Protocol
/streams/NAME                    create, append to, read, close and delete streams, by that protocol
===============================  ==========================================================================
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from wsproto.utilities import generate_accept_token

from nngkit import envelope, tracing
from nngkit.background import Background, UnderTrio
from nngkit.calls import ClientStats, Stream
from nngkit.cluster import Endpoint
from nngkit.discovery.provider import Provider
from nngkit.discovery.resolver import Resolver
from nngkit.errors import ConfigError, NngkitError
from nngkit.fanout import Keep, Publisher, Subscriber
from nngkit.instruments import ByCode, Gauge, Instrument
from nngkit.protocols import TLS
from nngkit.trust import Choice, chosen
from nngkit.web.exchange import CHUNKED, LAST_CHUNK, PROMETHEUS, Channel, Request, Response, Streamed, chunk
from nngkit.web.gateway import bodies
from nngkit.web.gateway.admission import Admission
from nngkit.web.gateway.callers import Callers
from nngkit.web.gateway.counts import Routes, RouteStats
from nngkit.web.gateway.description import Methods, describe, methods_of
from nngkit.web.gateway.feed import GOING_AWAY
from nngkit.web.gateway.hub import Hub, HubStats
from nngkit.web.gateway.jobs import NUMBERS, SECONDS, Jobs
from nngkit.web.gateway.problems import Problem, problem_of, shown
from nngkit.web.gateway.status import sections
from nngkit.web.gateway.streams.reading import StreamsStats
from nngkit.web.gateway.waits import Waits
from nngkit.web.health import HEALTHY, readiness
from nngkit.web.routing import Router, Wrong
from nngkit.web.server import ServerLimits
from nngkit.web.status import Feed, FeedStats, page_site

if TYPE_CHECKING:
    from nngkit.web.gateway.streams.routes import Streams

log = logging.getLogger("nngkit.web")

MIB: Final = 1 << 20
MOST_TOPICS: Final = 64  # of one stream
PROBES: Final = ("/healthz", "/readyz")  # they need no token, as the files of the page
NEEDS: Final = {  # by the first segment of a path
    "sub": "no publisher to follow, and publishes nothing (--subscribe, --publish)",
    "pub": "no address to publish at (--publish)",
    "submit": "no cluster (--cluster)",
    "jobs": "no cluster (--cluster)",
    "topics": "no journal to read (--journal)",
    "streams": "no journal of streams (--streams)",
    "metrics": "no metrics (they need the extra telemetry)",
}
MOST_DESCRIBED: Final = 16  # services whose methods are described in one answer
Answer = Callable[[Request, str | None], Awaitable[Response | Streamed]]


@dataclass(frozen=True, slots=True)
class GatewayStats:
    """Counters of a gateway."""

    clients: Annotated[Mapping[str, ClientStats], Instrument("label", label="service")]
    """Of the clients of services."""
    routes: Annotated[Mapping[str, RouteStats], Instrument("label", label="route")]
    """Of the routes, as "POST /call/{name}"; requests that the server refused are not among them."""
    problems: ByCode
    """Problems told, by code."""
    refused: Annotated[Mapping[str, int], Instrument("counter", label="reason")]
    """Requests refused, by "token", "rate" or the right that is missing."""
    hub: HubStats | None
    """Of the streams; None without publishers."""
    jobs: Gauge
    """Submitted jobs that are remembered."""
    page: FeedStats
    """Of the status page."""
    streams: StreamsStats | None = None
    """Of Durable Streams; None without a journal."""


class Gateway(UnderTrio):
    """An HTTP interface to services, topics and jobs. Use it with `async with`, under trio, and `serve` it.

    daemons      query addresses of discovery daemons; default: from the environment
    subscribe    addresses of publishers (nngkit.fanout.Publisher) that `GET /sub` follows
    publish      address at which it publishes what `POST /pub` brings; its own streams have that, too
    node         an open node of a cluster, by which it submits jobs; it stays the program's
    timeout      seconds of a call whose client names none; `most_timeout` caps those that do
    body         bytes of a request's body; `reply`: of a reply
    rate         requests a second of one name or address; None: any
    connections  open HTTP connections, streams among them; `from_one`: of one address, None: as many
    json         services whose codec is JSON; the others are called with CBOR
    prefer       zones, see Client
    journal      folder or URI of a journal whose topics `GET /topics` reads
    streams      folder of a journal of its own, for the streams of `/streams`; it writes partition 0
    long_poll    seconds of a read that waits
    metrics      returns Prometheus's text for `GET /metrics`, as nngkit.telemetry.Metrics.text does
    tls          for the services, publishers and daemons
    trust        in place of tls; default: NNGKIT_TRUST. Then each request needs a token, and its name the right

    Entering raises ConfigError for an unusable value, Damaged for a journal, Unreachable if it cannot publish there.
    """

    def __init__(
        self,
        *,
        daemons: str | Iterable[str] | None = None,
        subscribe: str | Iterable[str] = (),
        publish: str | None = None,
        node: Endpoint | None = None,
        timeout: float = 5.0,
        most_timeout: float = 60.0,
        body: int = MIB,
        reply: int = MIB,
        rate: float | None = None,
        connections: int = 4096,
        from_one: int | None = None,
        json: Collection[str] = (),
        prefer: str | Iterable[str] = (),
        journal: str | os.PathLike[str] | None = None,
        streams: str | os.PathLike[str] | None = None,
        long_poll: float = 20.0,
        metrics: Callable[[], bytes] | None = None,
        domain: str = "",
        tls: TLS | None = None,
        trust: Choice | None = None,
    ) -> None:
        numbers = {"timeout": timeout, "most_timeout": most_timeout, "rate": rate, "long_poll": long_poll}
        for what, value in numbers.items():
            if value is not None and not 0 < value < 1e9:
                raise ConfigError(what, f"{value!r} is not a number over 0", value)
        self._trust = chosen(trust, tls)
        self._tls = tls
        self._timeout = min(timeout, most_timeout)
        self._most_timeout = most_timeout
        self._body = body
        self._connections = connections
        self._from_one = from_one
        self._json = json
        self._subscribe = (subscribe,) if isinstance(subscribe, str) else tuple(subscribe)
        self._publish = publish
        self._node = node
        self._resolver = Resolver(daemons, domain=domain, tls=tls, trust=trust)
        self._client_options = {
            "prefer": prefer,
            "timeout": most_timeout,
            "recv_max_size": reply,
            "tls": tls,
            "trust": trust,
        }
        self._admission = Admission(self._trust, rate)
        self._journal = journal
        self._store = streams
        self._long_poll = long_poll
        self._metrics = metrics
        self._problems: dict[str, int] = {}
        self._routes = Routes()
        self._background = Background()
        self._router: Router[Answer] = Router()
        self._page = page_site()

    def limits(self) -> ServerLimits:
        """Return the limits for the server that serves it."""
        return ServerLimits(
            connections=self._connections,
            body=self._body,
            bodies=max(self._body, 64 * MIB),
            requests=1_000_000_000,
            from_one=self._from_one,
        )

    async def __aenter__(self) -> Self:
        self._entering()
        self._stack = AsyncExitStack()
        self._waits = Waits()
        self._hub: Hub | None = None
        self._publisher: Publisher | None = None
        self._jobs: Jobs | None = None
        self._streams: Streams | None = None
        secured: dict[str, Any] = {"tls": self._tls, "trust": self._trust}
        followed = list(self._subscribe)
        try:
            await self._stack.enter_async_context(self._resolver)
            if self._publish is not None:
                self._publisher = Publisher(self._publish, keep=Keep(topics=10_000, bytes=32 * MIB), **secured)
                await self._stack.enter_async_context(self._publisher)
                followed.append(self._publisher.address)
            if followed:
                subscriber = await self._stack.enter_async_context(Subscriber(followed, last=True, **secured))
                self._hub = Hub(subscriber)
            if self._journal is not None or self._store is not None:
                from nngkit.web.gateway.streams.routes import Streams  # a journal is an extra of nngkit

                self._streams = Streams(self._admission, self._journal, self._store, self._long_poll, self._waits)
                await self._stack.enter_async_context(self._streams)
            await self._background.open()
        except BaseException:
            await self._after_end()
            raise
        self._begin()
        return self

    def _begin(self) -> None:
        """Start the tasks, and add the routes of what is there."""
        start, add = self._background.start, self._router.add
        self._callers = Callers(self._resolver, self._client_options, self._json, start)
        add("POST", "/call/{name}", self._call)
        add("POST", "/call/{name}/{method}", self._call)
        add("GET", "/services", self._services)
        counts = self._client_stats, lambda: self._problems
        self._feed = Feed("nngkit gateway", sections(self._resolver, *counts, self._hub))
        start(self._feed.run)
        add("GET", "/v1/events", self._events)
        add("GET", "/openapi.json", self._describe)
        for method in ("GET", "HEAD"):
            add(method, "/healthz", self._health)
            add(method, "/readyz", self._ready)
        if self._metrics is not None:
            add("GET", "/metrics", self._tell_metrics)
        if self._publisher is not None:
            add("POST", "/pub", self._pub)
        if self._hub is not None:
            start(self._hub.receive)
            start(self._hub.write)
            start(self._hub.watch, self._refresh)
            add("GET", "/sub", self._sub)
        if self._node is not None:
            self._jobs = Jobs(self._node, self._waits)
            start(self._jobs.forget)
            add("POST", "/submit/{kind}", self._submit)
            add("GET", "/jobs/{id}", self._job)
            add("DELETE", "/jobs/{id}", self._cancel)
        if self._streams is not None:
            for task in self._streams.tasks():
                start(task)
            for method, path, answer in self._streams.routes():
                add(method, path, answer)

    async def _after_end(self) -> None:
        await self._stack.aclose()

    def _refresh(self) -> None:
        if self._admission.trust is not None:
            self._admission.trust.refresh()

    @property
    def address(self) -> str | None:
        """Address at which it publishes."""
        return None if self._publisher is None else self._publisher.address

    @property
    def fresh(self) -> bool:
        """True while a discovery daemon answers."""
        return self._resolver.fresh

    @property
    def stats(self) -> GatewayStats:
        """Current counters."""
        return GatewayStats(
            clients=self._client_stats(),
            routes=self._routes.stats,
            problems=dict(self._problems),
            refused={**self._admission.refused, **self._admission.rights.refusals},
            hub=None if self._hub is None else self._hub.stats,
            jobs=0 if self._jobs is None else len(self._jobs),
            page=self._feed.stats,
            streams=None if self._streams is None else self._streams.stats,
        )

    def _client_stats(self) -> dict[str, ClientStats]:
        known = self._callers.clients.items()
        return {name if values else f"{name} (bytes)": each.stats for (name, values), each in known}

    # Requests

    async def respond(self, request: Request) -> Response | Streamed:
        """Return the response to a request; an error of it is a problem, and a bug is one, too, and logged."""
        begun = time.perf_counter()
        if (spans := tracing.spans) is None:
            response = await self._respond(request)
        else:
            response = await spans.http(request, self._respond)
        self._routes.add(request.method, request.route, response.status, time.perf_counter() - begun)
        if request.method == "HEAD" and isinstance(response, Response):
            return replace(response, body=b"")
        return response

    async def _respond(self, request: Request) -> Response | Streamed:
        try:
            try:
                return await self._answer(request)
            except NngkitError as error:
                raise problem_of(error) from error
        except Problem as problem:
            self._count(problem)
            return problem.response()
        except Exception:
            log.exception("a request to %s failed", request.path[:128])
            bug = Problem(500, "failed", "the gateway has failed; its log says why")
            self._count(bug)
            return bug.response()

    def drain(self) -> None:
        """Answer long polls and waits for jobs at once, as the server is drained."""
        self._waits.end()

    def refusal(self, status: int, why: str) -> Response:
        """Return a refusal of the server as a problem."""
        problem = Problem(status, "refused", why, ran=False)
        self._count(problem)
        return problem.response()

    def _count(self, problem: Problem) -> None:
        code = problem.code if problem.code in self._problems or len(self._problems) < 64 else "other"
        self._problems[code] = self._problems.get(code, 0) + 1

    async def _answer(self, request: Request) -> Response | Streamed:
        found = self._router.find(request.method, request.path)
        if found is None and request.path in self._page.paths:  # it holds nothing that is not public
            return await self._page.respond(request)
        if found is None:
            lacks = NEEDS.get(request.path.split("/")[1])
            why = f": the gateway has {lacks}" if lacks else ""
            raise Problem(404, "no-route", f"no such path: {request.path[:128]}{why}", ran=False)
        if isinstance(found, Wrong):
            methods = ", ".join(found.methods)
            raise Problem(405, "method", f"only {methods} here", headers=(("Allow", methods),), ran=False)
        request.params, request.route = found.params, found.route
        try:
            if request.old:
                raise Problem(505, "version", "HTTP/1.1 is spoken here", ran=False)
            name = None if found.route in PROBES else self._admission.name_of(request, query=_is_stream(request))
            return await found.handler(request, name)
        except ValueError as error:
            if isinstance(error, NngkitError):
                raise
            raise Problem(400, "bad-request", str(error), ran=False) from error  # a query, or what no codec carries

    # Calls

    async def _call(self, request: Request, caller: str | None) -> Response | Streamed:
        name, method = request.params["name"], request.params.get("method", "")
        self._admission.require(caller, "call", f"{name}/{method}" if method else name)
        kind = bodies.media_type(request.headers, request.body)
        wanted = bodies.accepted(request.headers, kind)
        timeout = bodies.timeout_of(request.headers, self._timeout, self._most_timeout)
        idempotent = bodies.flag_of(request.headers, "idempotent")
        values = kind != bodies.BYTES
        if method and not values:
            raise Problem(415, "media-type", f"a method takes {bodies.JSON} or {bodies.CBOR}", ran=False)
        body = bodies.value_of(kind, request.body) if values else request.body
        headers = bodies.trace_of(request.headers) if values else None  # bytes travel as they are, without headers
        held = await self._callers.hold(name, values=values)
        try:
            if wanted in (bodies.EVENTS, bodies.LINES):
                stream = held.client.stream(body, timeout=timeout, method=method, headers=headers)
                return await self._parts(stream, wanted)
            reply = await held.client.request(
                body, timeout=timeout, method=method, idempotent=idempotent, headers=headers
            )
        except TypeError as error:
            raise Problem(400, "bad-request", str(error), ran=False) from error
        finally:
            held.release()
        if wanted == bodies.JSON:
            return Response.of(200, wanted, shown(reply))
        return Response.of(200, wanted, envelope.encode(reply) if wanted == bodies.CBOR else reply)

    async def _parts(self, stream: Stream, wanted: str) -> Streamed:
        """Return a stream, whose first part has come: until then an error has a status of its own."""
        first: list[Any] = []
        try:
            first = [await anext(stream)]
            ended = False
        except StopAsyncIteration:
            ended = True
        events = wanted == bodies.EVENTS

        def encoded(part: Any, event: str = "") -> bytes:
            named = f"event: {event}\n".encode() if event else b""
            return chunk(named + b"data: " + shown(part) + b"\n\n" if events else shown(part) + b"\n")

        async def run(channel: Channel) -> None:
            async with stream:
                for part in first:
                    await channel.write(encoded(part))
                try:
                    while not ended:
                        await channel.write(encoded(await anext(stream)))
                except StopAsyncIteration:
                    pass
                except NngkitError as error:
                    problem = problem_of(error)
                    self._count(problem)
                    if events:
                        await channel.write(encoded(problem.fields(), "error"))
                        await channel.write(LAST_CHUNK)
                    return
                if events:
                    await channel.write(encoded(None, "end"))
                await channel.write(LAST_CHUNK)

        return Streamed(200, (("Content-Type", wanted), ("Cache-Control", "no-store"), CHUNKED), run, ends=True)

    # Services

    async def _services(self, request: Request, caller: str | None) -> Response:
        grants = self._admission.rights.grants
        known = {
            name: [_provider(each) for each in sorted(providers, key=lambda each: (each.priority, each.zone, each.id))]
            for name, providers in sorted(self._resolver.snapshot().items())
            if grants(caller, "call", name)
        }
        return Response.of(200, bodies.JSON, shown({"fresh": self._resolver.fresh, "services": known}))

    async def _events(self, request: Request, caller: str | None) -> Response | Streamed:
        self._admission.require(caller, "view", "gateway")
        valid, grants = self._admission.validity(request), self._admission.rights.grants
        return self._feed.respond(request, lambda: valid() and grants(caller, "view", "gateway"))

    async def _health(self, request: Request, caller: str | None) -> Response:
        return Response.of(200, bodies.JSON, HEALTHY)

    async def _ready(self, request: Request, caller: str | None) -> Response:
        status, body = readiness(None if self._resolver.fresh else "no discovery daemon answers")
        return Response.of(status, bodies.JSON, body)

    async def _tell_metrics(self, request: Request, caller: str | None) -> Response:
        assert self._metrics is not None
        self._admission.require(caller, "view", "gateway")
        return Response.of(200, PROMETHEUS, self._metrics())

    async def _describe(self, request: Request, caller: str | None) -> Response:
        names = request.query().get("service", [])
        if len(names) > MOST_DESCRIBED:
            raise Problem(400, "bad-request", f"at most {MOST_DESCRIBED} services", ran=False)
        services: dict[str, Methods] = {}
        for name in names:
            self._admission.require(caller, "call", name)
            held = await self._callers.hold(name, values=True)
            try:
                told = await held.client.info(timeout=self._timeout)
            finally:
                held.release()
            services[name] = methods_of(told)
        return Response.of(200, bodies.JSON, shown(describe(self._router.routes(), services)))

    # Topics

    async def _pub(self, request: Request, caller: str | None) -> Response:
        assert self._publisher is not None
        (topic,) = request.query().get("topic", [""])[:1]
        if not topic:
            raise Problem(400, "bad-request", "say ?topic=TOPIC", ran=False)
        self._admission.require(caller, "publish", topic)
        number = self._publisher.publish(topic, request.body)
        numbered = f"{self._publisher.id.hex()}.{self._publisher.epoch}.{number}"
        return Response.of(202, bodies.JSON, shown({"id": numbered}))

    async def _sub(self, request: Request, caller: str | None) -> Streamed:
        assert self._hub is not None
        hub, rights = self._hub, self._admission.rights
        query = request.query()
        topics = query.get("topic", [""])
        if len(topics) > MOST_TOPICS:
            raise Problem(400, "bad-request", f"at most {MOST_TOPICS} topics", ran=False)
        for topic in topics:
            self._admission.require(caller, "subscribe", topic)
        after = request.headers.get("last-event-id") or query.get("after", [""])[0] or None
        last = query.get("last", ["0"])[0] not in ("0", "")

        valid = self._admission.validity(request)

        def may() -> bool:
            return valid() and all(rights.grants(caller, "subscribe", topic) for topic in topics)

        if "websocket" in request.headers.get("upgrade", "").lower():
            accept = ("Sec-WebSocket-Accept", _accept_token(request.headers))
            return Streamed(
                101,
                (("Upgrade", "websocket"), ("Connection", "Upgrade"), accept),
                lambda channel: hub.websocket(topics, channel, may, after=after, last=last),
                reads=True,
                last=GOING_AWAY,
            )
        return Streamed(
            200,
            (("Content-Type", bodies.EVENTS), ("Cache-Control", "no-store"), ("X-Accel-Buffering", "no"), CHUNKED),
            lambda channel: hub.events(topics, channel, may, after=after, last=last),
            last=LAST_CHUNK,
        )

    # Jobs

    async def _submit(self, request: Request, caller: str | None) -> Response:
        assert self._jobs is not None
        assert self._node is not None
        kind = request.params["kind"]
        self._admission.require(caller, "submit", f"{self._node.cluster}/{kind}")
        timeout = bodies.timeout_of(request.headers, self._timeout, self._most_timeout)
        options: dict[str, Any] = {}
        for field, values in request.query().items():
            if field in NUMBERS:
                options[field] = int(values[0])
            elif field in SECONDS:
                options[field] = float(values[0])
            elif field != "key":
                raise Problem(400, "bad-request", f"no option {field[:32]!r} of a job", ran=False)
            else:
                # keys of different names are different: no name gets the result of another
                options[field] = values[0] if caller is None else f"{caller} {values[0]}"
        job = await self._jobs.submit(kind, request.body, options, caller, timeout)
        return Response.of(202, bodies.JSON, shown(job), (("Location", f"/jobs/{job['id']}"),))

    async def _job(self, request: Request, caller: str | None) -> Response:
        assert self._jobs is not None
        wait = float(request.query().get("wait", ["0"])[0])
        if not wait >= 0:
            raise Problem(400, "bad-request", "wait is a number of seconds", ran=False)
        wait = min(wait, self._most_timeout)
        return Response.of(200, bodies.JSON, shown(await self._jobs.look(request.params["id"], caller, wait)))

    async def _cancel(self, request: Request, caller: str | None) -> Response:
        assert self._jobs is not None
        return Response.of(202, bodies.JSON, shown(await self._jobs.cancel(request.params["id"], caller)))


def _is_stream(request: Request) -> bool:
    """Return True for what a browser's EventSource or WebSocket may ask for: it sends no headers of a page's."""
    return request.path in ("/sub", "/v1/events") or (
        request.method == "GET" and request.path.startswith(("/streams/", "/topics/"))
    )


def _provider(provider: Provider) -> dict[str, Any]:
    """Return what an HTTP client learns of a provider: not its address, which it does not dial."""
    return {
        "id": provider.id,
        "version": provider.version,
        "zone": provider.zone,
        "priority": provider.priority,
        "weight": provider.weight,
        "tags": sorted(provider.tags),
        "load": provider.load,
    }


def _accept_token(headers: Mapping[str, str]) -> str:
    """Return the answer to the key of a WebSocket's handshake (RFC 6455, 4.2.2). Raises Problem."""
    connection = [word.strip().lower() for word in headers.get("connection", "").split(",")]
    key = headers.get("sec-websocket-key", "")
    if headers.get("sec-websocket-version") != "13":
        wanted = (("Sec-WebSocket-Version", "13"), ("Upgrade", "websocket"))
        raise Problem(426, "websocket", "WebSocket of version 13 is spoken here", headers=wanted)
    if "upgrade" not in connection or len(key) != 24 or not key.isascii():
        raise Problem(400, "bad-request", "not the handshake of a WebSocket")
    return generate_accept_token(key.encode()).decode() if isinstance(key, str) else ""
