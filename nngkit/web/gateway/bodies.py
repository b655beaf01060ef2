"""Bodies of calls as HTTP has them: media types, values, and the deadline. Pure.

A request says by its Content-Type what it is, and by Accept what it wants:

=========================  =======================================================================================
Content-Type               the call's body
=========================  =======================================================================================
application/json           the value; bytes are base64 in replies, as JSON has none
application/cbor           the value
application/octet-stream   these bytes, for a service without a codec; the reply too
none, and no body          null
=========================  =======================================================================================

=========================  =======================================================================================
Accept                     the reply
=========================  =======================================================================================
none, or */*               as the request, JSON if that has no body
application/json           the value as JSON
application/cbor           the value as CBOR (RFC 8949)
text/event-stream          a streamed reply: an event for each part, then the event "end" or "error"
application/x-ndjson       a streamed reply: a line of JSON for each part; it breaks off at an error
=========================  =======================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from nngkit import envelope
from nngkit.errors import BadMessage
from nngkit.web.gateway.problems import Problem

TRACE: Final = ("traceparent", "tracestate", "baggage")
JSON: Final = "application/json"
CBOR: Final = "application/cbor"
BYTES: Final = "application/octet-stream"
EVENTS: Final = "text/event-stream"
LINES: Final = "application/x-ndjson"
OFFERED: Final = (JSON, CBOR, EVENTS, LINES)
_QUALITY: Final = re.compile(r"[qQ]=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)")  # RFC 9110, 12.4.2
_TIMEOUT: Final = re.compile(r"(\d{1,8})([HMSmun])")  # gRPC over HTTP/2, "Timeout"
_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


def media_type(headers: Mapping[str, str], body: bytes) -> str:
    """Return the media type of a request's body: JSON, CBOR or BYTES. Raises Problem for another one."""
    given = headers.get("content-type", "").partition(";")[0].strip().lower()
    if given in (JSON, CBOR, BYTES):
        return given
    if not given and not body:
        return JSON
    what = f"Content-Type {given!r}" if given else "a body without Content-Type"
    raise Problem(415, "media-type", f"{what}: {JSON}, {CBOR} and {BYTES} are known", ran=False)


def value_of(kind: str, body: bytes) -> Any:
    """Return the value of a body that is JSON or CBOR. Raises Problem."""
    try:
        if kind == CBOR:
            return envelope.decode(body, what="body", limit=len(body))
        return msgspec.json.decode(body) if body else None
    except (BadMessage, ValueError, RecursionError) as error:  # DecodeError is a ValueError
        what = kind.rpartition("/")[2].upper()
        raise Problem(400, "bad-request", f"the body is not {what}: {error}", ran=False) from error


def accepted(headers: Mapping[str, str], kind: str) -> str:
    """Return the media type of the reply to a request whose body is of `kind`. Raises Problem if it wants another."""
    accept = headers.get("accept")
    if accept is None or accept in ("*/*", kind):
        return kind
    offered = (BYTES,) if kind == BYTES else (kind, *(each for each in OFFERED if each != kind))
    best, choice = 0.0, ""
    for part in accept.split(","):
        name, *parameters = (word.strip().lower() for word in part.split(";"))
        found = [match for each in parameters if (match := _QUALITY.fullmatch(each))]
        quality = float(found[0][1]) if found else 1.0
        matching = [each for each in offered if name in (each, "*/*", f"{each.partition('/')[0]}/*")]
        if matching and quality > best:
            best, choice = quality, matching[0]
    if not choice:
        raise Problem(406, "not-acceptable", f"the reply is one of {', '.join(offered)}", ran=False)
    return choice


def timeout_of(headers: Mapping[str, str], default: float, most: float) -> float:
    """Return the seconds of a call: of its header grpc-timeout, as "500m" or "5S", at most `most`. Raises Problem."""
    given = headers.get("grpc-timeout")
    if given is None:
        return default
    found = _TIMEOUT.fullmatch(given.strip())
    if found is None:
        why = f"grpc-timeout {given[:32]!r} is not at most 8 digits and a unit: H, M, S, m, u or n, as 500m"
        raise Problem(400, "bad-request", why, ran=False)
    return min(int(found[1]) * _UNITS[found[2]], most)


def flag_of(headers: Mapping[str, str], name: str) -> bool | None:
    """Return a header that is a boolean, ?1 or ?0 (RFC 9651); None without it. Raises Problem."""
    given = headers.get(name)
    if given is None:
        return None
    if given not in ("?1", "?0"):
        raise Problem(400, "bad-request", f"{name}: {given[:32]!r} is neither ?1 nor ?0", ran=False)
    return given == "?1"


def trace_of(headers: Mapping[str, str]) -> dict[str, str | bytes] | None:
    """Return the headers that go on to the service: those of a trace (W3C Trace Context, Baggage); None without one."""
    return {name: headers[name] for name in TRACE if name in headers} or None
