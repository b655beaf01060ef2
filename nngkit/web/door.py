"""HTTP door of a daemon: its health, metrics and state, for load balancers, Prometheus and scripts. No sockets.

::

    door = Door("nngkit discoverd", {"v1/services": Rows("Providers.", view, fields, schema)}, ready=ready)
    server = await nursery.start(partial(serve, door, port=8080))       # nngkit.web.server

========================  =============================================================================
/healthz                  200 while the loop runs
/readyz                   200, or 503 with the reason
/metrics                  Prometheus's text, if `metrics` is given
/v1/...                   JSON, by `routes`
/v1/events                the state and its changes as server-sent events, if `events` is given
/openapi.json             a description of all of it (OpenAPI 3.1)
========================  =============================================================================

By GET and HEAD. What a route answers is kept for AGE seconds, so a client that asks in a loop costs a lookup. Lists are
read in pages: ?limit=100&offset=200. Any other path is that of `beyond`, a page that is served at the same port. The
status page is one; it reads `events`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl

from nngkit.errors import NngkitError
from nngkit.web.exchange import PROMETHEUS, Request, Response, Streamed
from nngkit.web.health import HEALTHY, HEALTHZ, READYZ, readiness
from nngkit.web.openapi import JSON, OBJECT, TEXT, Operation, Schema, document, moved, query, record
from nngkit.web.site import COMMON_HEADERS, HOST, TYPES, Site, refusal
from nngkit.web.status import Feed, Section
from nngkit.web.status.sections import poll

AGE: Final = 1.0  # seconds that an answer is kept
KEPT: Final = 64  # answers kept; beyond, all are forgotten
PAGE: Final = 1000  # rows of a page: some 500 KB
MOST: Final = 999_999_999  # largest offset
WHOLE: Final = re.compile(r"0|[1-9]\d{0,8}", re.ASCII)  # up to MOST

STREAM: Final = (
    'Event "begin": {"name": ..., "tables": {NAME: SUMMARY}, "time": SECONDS}. Messages: {NAME: {"set": {KEY: ROW}}},'
    ' {NAME: {"gone": [KEY]}} or {NAME: {"about": {"error": ..., "cut": ...}}}; the rows come first, then changes.'
)

COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
LINE: Final[Mapping[str, Schema]] = {"text/plain": TEXT}


@dataclass(frozen=True, slots=True)
class Value:
    """A JSON value, made when it is asked for. `schema`: its JSON Schema. `refresh` is awaited before, if given."""

    summary: str
    value: Callable[[], object]
    schema: Schema = field(default_factory=lambda: OBJECT)
    refresh: Callable[[], Awaitable[object]] | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """A list. `rows` returns all of it, `fields` makes JSON of a row; `schema`: the JSON Schema of that.

    `refresh` is awaited before, if given.
    """

    summary: str
    rows: Callable[[], Sequence[Any]]
    fields: Callable[[Any], object]
    schema: Schema = field(default_factory=lambda: OBJECT)
    refresh: Callable[[], Awaitable[object]] | None = None


Route = Value | Rows


def section(path: str, route: Route) -> Section:
    """Return the table of a route for the status page, at most PAGE rows of it."""

    def read() -> dict[str, object]:
        if isinstance(route, Rows):
            return {str(number): route.fields(row) for number, row in enumerate(route.rows()[:PAGE])}
        return {"": route.value()}

    return Section({path.removeprefix("v1/"): route.summary}, partial(poll, read))


class Door(Site):
    """Answers of a daemon. `name`: its command. `ready` returns why it is not ready, or None."""

    def __init__(
        self,
        name: str,
        routes: Mapping[str, Route],
        *,
        ready: Callable[[], str | None] = lambda: None,
        metrics: Callable[[], bytes] | None = None,
        beyond: Site | None = None,
        events: Feed | None = None,
    ) -> None:
        super().__init__({}, {}, ())
        self._events = events
        self._name = name
        self._routes = dict(routes)
        self._ready = ready
        self._metrics = metrics
        self._beyond = beyond
        self._made: dict[str, tuple[float, bytes]] = {}
        self._openapi = json.dumps(_openapi(name, self._routes, metrics is not None, events is not None)).encode()

    async def respond(self, request: Request) -> Response | Streamed:
        """Return the response to a request; that of /v1/events is a stream."""
        route = self._routes.get(request.path[1:])
        if route is not None and route.refresh is not None and request.method in ("GET", "HEAD"):
            try:
                await route.refresh()
            except (NngkitError, OSError) as error:
                return _failed(error)
        if self._events is None or request.path != "/v1/events":
            return await super().respond(request)
        if request.method not in ("GET", "HEAD"):
            return refusal(405, "only GET and HEAD are allowed", (("Allow", "GET, HEAD"),))
        if HOST.fullmatch(request.headers.get("host", "")) is None:
            return refusal(400, "invalid host")
        return self._events.respond(request)

    def answer(
        self, method: str, target: str, *, host: str | None, etag: str | None, encodings: str | None = None
    ) -> Response:
        """Return the response to a request: 503 if a route raises an error of nngkit or of the disk."""
        path, _, query = target.partition("?")
        name = path[1:] if path.startswith("/") else ""
        known = name in self._routes or name in ("healthz", "readyz", "openapi.json")
        if not known and not (name == "metrics" and self._metrics is not None):
            if self._beyond is not None:
                return self._beyond.answer(method, target, host=host, etag=etag, encodings=encodings)
            return refusal(404, "not found")
        if method not in ("GET", "HEAD"):
            return refusal(405, "only GET and HEAD are allowed", (("Allow", "GET, HEAD"),))
        if HOST.fullmatch(host or "") is None:
            return refusal(400, "invalid host")
        status, kind = 200, TYPES[".json"]
        if name == "healthz":
            body = HEALTHY
        elif name == "readyz":
            status, body = readiness(self._ready())
        elif name == "openapi.json":
            body = self._openapi
        else:
            page = _page(query) if isinstance(self._routes.get(name), Rows) else (0, 0)
            if isinstance(page, str):
                return refusal(400, page)
            try:
                body = self._kept(name, *page)
            except (NngkitError, OSError) as error:
                return _failed(error)
            kind = PROMETHEUS if name == "metrics" else kind
        date = ("Date", formatdate(usegmt=True))  # `nngkit doctor` compares clocks
        headers = (("Content-Type", kind), ("Cache-Control", "no-store"), date, *COMMON_HEADERS)
        return Response(status, headers, body if method == "GET" else b"", len(body))

    def _kept(self, name: str, limit: int, offset: int) -> bytes:
        """Return an answer that is at most AGE old."""
        now, place = time.monotonic(), f"{name} {limit} {offset}"
        made = self._made.get(place)
        if made is not None and now - made[0] < AGE:
            return made[1]
        body = self._make(name, limit, offset)
        if len(self._made) >= KEPT:
            self._made.clear()
        self._made[place] = now, body
        return body

    def _make(self, name: str, limit: int, offset: int) -> bytes:
        if name == "metrics":
            assert self._metrics is not None
            return self._metrics()
        route = self._routes[name]
        if isinstance(route, Value):
            return json.dumps(route.value()).encode()
        rows = route.rows()
        page = [route.fields(row) for row in rows[offset : offset + limit]]
        return json.dumps({"total": len(rows), "offset": offset, "rows": page}).encode()


def _failed(error: Exception) -> Response:
    return refusal(503, f"{type(error).__name__}: {error}")


def _page(query: str) -> tuple[int, int] | str:
    """Return limit and offset of a query string, or what is wrong with it. Other parameters are ignored."""
    given = {"limit": PAGE, "offset": 0}
    bounds = {"limit": PAGE, "offset": MOST}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=20)
    except ValueError:
        return "more than 20 parameters"
    for name, value in pairs:
        if name not in given:
            continue
        if WHOLE.fullmatch(value) is None or int(value) > bounds[name]:
            return f"{name} is not a whole number from 0 to {bounds[name]}"
        given[name] = int(value)
    return given["limit"], given["offset"]


# ---- OpenAPI ---------------------------------------------------------------------------------------------------------


def _openapi(name: str, routes: Mapping[str, Route], metrics: bool, events: bool) -> dict[str, Any]:
    schemas: dict[str, Schema] = {}
    operations = {
        "/healthz": HEALTHZ,
        "/readyz": READYZ,
        "/openapi.json": Operation("This description.", {200: {JSON: OBJECT}}),
    }
    if metrics:
        operations["/metrics"] = Operation("Metrics in Prometheus's text, at most a second old.", {200: LINE})
    if events:
        operations["/v1/events"] = Operation(
            "The state and its changes, as server-sent events.",
            {200: {"text/event-stream": TEXT}, 503: LINE},
            told={200: STREAM, 503: "Too many are open."},
        )
    for path, route in routes.items():
        schema = moved(route.schema, path.removeprefix("v1/"), schemas)
        bad: dict[int, Mapping[str, Schema]] = {503: LINE}
        parameters: tuple[Schema, ...] = ()
        if isinstance(route, Rows):
            schema = record({"total": COUNT, "offset": COUNT, "rows": {"type": "array", "items": schema}})
            parameters = _whole("limit", PAGE, "rows of the page"), _whole("offset", MOST, "first")
            bad[400] = LINE
        operations[f"/{path}"] = Operation(
            route.summary,
            {200: {JSON: schema}, **bad},
            parameters,
            told={200: "At most a second old.", 400: "A bad parameter.", 503: "The state cannot be read, and why."},
        )
    paths = {path: {"get": operation.fields(path)} for path, operation in operations.items()}
    return document(name, "State of a daemon, by GET and HEAD.", paths, schemas)


def _whole(name: str, most: int, description: str) -> Schema:
    return query(name, description, {**COUNT, "maximum": most})
