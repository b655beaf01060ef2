"""Description of a gateway for `GET /openapi.json`: OpenAPI 3.1 of the routes that it has. Pure.

::

    describe([("POST", "/call/{name}"), ("GET", "/services")], {})["paths"].keys()      # /call/{name}, /services

A name of several segments has one parameter here, as OpenAPI has none that takes a "/". Of a service whose methods are
given, as INFO tells of them, each method has a path of its own, with the JSON Schemas of its body and reply::

    describe(routes, {"calc": {"double": {"body": {"type": "integer"}, "reply": {"type": "integer"}}}})
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

from nngkit.web.gateway import bodies
from nngkit.web.gateway.jobs import NUMBERS, SECONDS
from nngkit.web.gateway.problems import KIND
from nngkit.web.health import HEALTHZ, READYZ
from nngkit.web.openapi import (
    ANY,
    OBJECT,
    SEGMENT,
    TEXT,
    Operation,
    Schema,
    component,
    document,
    header,
    moved,
    query,
    record,
)

Methods = Mapping[str, Mapping[str, Any]]
"""Methods of a service, each with JSON Schemas under "body" and "reply", if they are known."""

BINARY: Final[Schema] = {"type": "string", "format": "binary"}
ALWAYS: Final = (400, 401, 403, 429, 500, 503)
"""Problems that any route may tell: of the request, the token, the rights, the rate and the state of the gateway."""

PROBLEM: Final = record(
    {
        "title": TEXT,
        "status": {"type": "integer"},
        "detail": TEXT,
        "code": {"type": "string", "description": "For programs; see docs/gateway.md."},
        "ran": {"type": "boolean", "description": "False if the handler has surely not run."},
    },
    "ran",
)
PROVIDER: Final = record(
    {
        "id": TEXT,
        "version": TEXT,
        "zone": TEXT,
        "priority": {"type": "integer"},
        "weight": {"type": "integer"},
        "tags": {"type": "array", "items": TEXT},
        "load": {"type": "number"},
    }
)
SERVICES: Final = record(
    {
        "fresh": {"type": "boolean", "description": "True while a discovery daemon answers."},
        "services": {"type": "object", "additionalProperties": {"type": "array", "items": PROVIDER}},
    }
)
JOB: Final = record(
    {
        "id": TEXT,
        "kind": TEXT,
        "state": {"enum": ["accepted", "done", "failed"]},
        "progress": {},
        "result": TEXT,
        "encoding": {"const": "base64"},
        "problem": {"$ref": "#/components/schemas/Problem"},
    },
    *("progress", "result", "encoding", "problem"),
)


def _told(
    summary: str,
    good: Mapping[int, Mapping[str, Schema]],
    bad: tuple[int, ...] = (),
    parameters: tuple[Schema, ...] = (),
    takes: Mapping[str, Schema] | None = None,
) -> Operation:
    """Return an operation. `bad`: statuses of its problems, besides ALWAYS."""
    problem = {KIND: {"$ref": "#/components/schemas/Problem"}}
    return Operation(summary, {**good, **dict.fromkeys(sorted({*ALWAYS, *bad}), problem)}, parameters, takes or {})


DEADLINE: Final = header(
    "grpc-timeout",
    "Deadline: up to eight digits and H, M, S, m, u or n.",
    {"type": "string", "pattern": "^[0-9]{1,8}[HMSmun]$"},
)
IDEMPOTENT: Final = header("idempotent", "?1 if running it twice does no harm.", {"enum": ["?0", "?1"]})
STREAMS: Final = {bodies.EVENTS: TEXT, bodies.LINES: TEXT}
VALUES: Final = {bodies.JSON: ANY, bodies.CBOR: BINARY}
CALL_PROBLEMS: Final = (404, 406, 413, 415, 422, 502, 504)
OFFSET: Final = {"type": "string", "pattern": "^(-1|now|[0-9]{16}_[0-9]{16})$"}
READ: Final = (
    query("offset", "Where to begin: a Stream-Next-Offset, -1 or now.", OFFSET),
    query("live", "Wait for what follows; it needs an offset.", {"enum": ["long-poll", "sse"]}),
    query("cursor", "The last Stream-Cursor."),
)
PIECES: Final = {200: {"*/*": ANY, bodies.EVENTS: TEXT}, 204: {}, 304: {}}
EVENTS: Final = {200: {bodies.EVENTS: TEXT}}
ANY_BODY: Final = {"application/json": ANY, bodies.BYTES: BINARY}

OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("POST", "/call/{name}"): _told(
        "Call a service.",
        {200: {**VALUES, bodies.BYTES: BINARY, **STREAMS}},
        CALL_PROBLEMS,
        (DEADLINE, IDEMPOTENT),
        {**VALUES, bodies.BYTES: BINARY},
    ),
    ("POST", "/call/{name}/{method}"): _told(
        "Call a method of a service.", {200: {**VALUES, **STREAMS}}, CALL_PROBLEMS, (DEADLINE, IDEMPOTENT), VALUES
    ),
    ("GET", "/healthz"): HEALTHZ,
    ("HEAD", "/healthz"): HEALTHZ,
    ("GET", "/readyz"): READYZ,
    ("HEAD", "/readyz"): READYZ,
    ("GET", "/services"): _told("Services that the client may call.", {200: {bodies.JSON: SERVICES}}),
    ("GET", "/v1/events"): _told("Tables of the status page, as server-sent events.", EVENTS),
    ("GET", "/metrics"): _told("Metrics.", {200: {"text/plain": TEXT}}),
    ("GET", "/openapi.json"): _told(
        "This description.",
        {200: {bodies.JSON: OBJECT}},
        (404, 502, 504),
        (query("service", "A service whose methods are described too.", {"type": "array", "items": SEGMENT}),),
    ),
    ("GET", "/sub"): _told(
        "Follow published messages, as server-sent events or over a WebSocket.",
        {**EVENTS, 101: {}},
        (426,),
        (
            query("topic", "Prefixes of topics; without it, all.", {"type": "array", "items": TEXT}),
            query("last", "1: begin with the last message of each topic.", {"enum": ["0", "1"]}),
            query("after", "Id of an event: what came since is sent."),
            header("last-event-id", "The same, as browsers send it."),
        ),
    ),
    ("POST", "/pub"): _told(
        "Publish the body.",
        {202: {bodies.JSON: record({"id": TEXT})}},
        (413,),
        (query("topic", "Topic of the message.", SEGMENT, needed=True),),
        {bodies.BYTES: BINARY},
    ),
    ("POST", "/submit/{kind}"): _told(
        "Submit the body as a job.",
        {202: {bodies.JSON: JOB}},
        (404, 409, 413, 504),
        (
            DEADLINE,
            query("key", "Jobs of one key are one job."),
            *(query(name, "See Member.submit.", {"type": "integer"}) for name in NUMBERS),
            *(query(name, "Seconds; see Member.submit.", {"type": "number", "minimum": 0}) for name in SECONDS),
        ),
        {bodies.BYTES: BINARY},
    ),
    ("GET", "/jobs/{id}"): _told(
        "State and result of a job.",
        {200: {bodies.JSON: JOB}},
        (404,),
        (query("wait", "Seconds to wait for its end.", {"type": "number", "minimum": 0}),),
    ),
    ("DELETE", "/jobs/{id}"): _told("Ask for the end of a job.", {202: {bodies.JSON: JOB}}, (404,)),
    ("GET", "/topics/{topic}"): _told("Read a topic of the journal.", PIECES, (404, 410), READ),
    ("HEAD", "/topics/{topic}"): _told("Its end.", {200: {}}, (404,)),
    ("GET", "/topics/{topic}/{partition}"): _told("Read a topic in a partition.", PIECES, (404, 410), READ),
    ("HEAD", "/topics/{topic}/{partition}"): _told("Its end.", {200: {}}, (404,)),
    ("GET", "/streams/{name}"): _told("Read a stream.", PIECES, (404, 410, 501), READ),
    ("HEAD", "/streams/{name}"): _told("Its end.", {200: {}}, (404, 501)),
    ("PUT", "/streams/{name}"): _told(
        "Create a stream; the body is its beginning.", {200: {}, 201: {}}, (404, 409, 410, 413, 501), (), ANY_BODY
    ),
    ("POST", "/streams/{name}"): _told(
        "Append the body to a stream, or close it.", {200: {}, 204: {}}, (404, 409, 410, 413, 501), (), ANY_BODY
    ),
    ("DELETE", "/streams/{name}"): _told("Delete a stream.", {204: {}}, (404, 410, 501)),
}


def describe(routes: Iterable[tuple[str, str]], services: Mapping[str, Methods]) -> dict[str, Any]:
    """Return the OpenAPI document of these methods and paths, and of the methods of services."""
    paths: dict[str, dict[str, Any]] = {}
    for method, path in routes:
        operation = OPERATIONS.get((method, path))
        if operation is not None:
            paths.setdefault(path, {})[method.lower()] = operation.fields(path)
    schemas: dict[str, Schema] = {"Problem": PROBLEM}
    for service, methods in services.items():
        for name, told in methods.items():
            path = f"/call/{quote(service, safe='')}/{quote(name, safe='')}"
            paths[path] = {"post": _method(service, name, told, schemas).fields(path)}
    found = document("nngkit gateway", "docs/gateway.md", paths, schemas)
    bearer = {"type": "http", "scheme": "bearer", "description": "Needed under a trust: `nngkit trust token`."}
    found["components"]["securitySchemes"] = {"token": bearer}
    return found | {"security": [{}, {"token": []}]}


def _method(service: str, name: str, told: Mapping[str, Any], schemas: dict[str, Schema]) -> Operation:
    """Return a method of a service; definitions of its types go to `schemas`, and that of a stream's parts."""
    body = moved(told.get("body"), f"{service}.{name}.body", schemas)
    reply = moved(told.get("reply"), f"{service}.{name}.reply", schemas)
    doc = told.get("doc")
    good: Mapping[str, Schema] = {bodies.JSON: reply, bodies.CBOR: BINARY}
    if told.get("stream") is True:  # OpenAPI 3.1 has no schema of the parts of a stream
        good = STREAMS
        schemas[component(f"{service}.{name}.part", schemas)] = reply
    return _told(
        doc if isinstance(doc, str) else f"Call {name} of {service}.",
        {200: good},
        CALL_PROBLEMS,
        (DEADLINE, IDEMPOTENT),
        {bodies.JSON: body, bodies.CBOR: BINARY},
    )


def methods_of(told: Mapping[str, Any]) -> Methods:
    """Return the methods of a service from its answer to INFO, which is untrusted."""
    names, schemas = told.get("methods"), told.get("schemas")
    known = schemas if isinstance(schemas, dict) else {}
    found = [name for name in names if isinstance(name, str) and name] if isinstance(names, list) else []
    return {name: each if isinstance(each := known.get(name), dict) else {} for name in found}
