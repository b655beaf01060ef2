"""Headers of requests of the Durable Streams Protocol. Pure.

Raises Problem with the status 400 for a header that is not what the protocol says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from nngkit.web.gateway.problems import Problem
from nngkit.web.gateway.streams.offsets import position

JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"
MOST_NAME: Final = 256  # characters of a producer's id, and of a sequence of writers
MOST_TTL: Final = 100 * 366 * 86400  # seconds
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,15}")
_TYPE: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+(?:[ \t]*;[\t -~]*)?")
_LARGEST: Final = 2**53 - 1  # of a number, by the protocol: what JavaScript has
_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)


def bad(why: str) -> Problem:
    """Return the problem of a request that is not what the protocol says."""
    return Problem(400, "bad-request", why, ran=False)


@dataclass(frozen=True, slots=True)
class Producer:
    """An idempotent producer's number of a request."""

    id: str
    epoch: int
    number: int


@dataclass(frozen=True, slots=True)
class Fork:
    """Point where a stream branches off. `at`: a position; None: the tail. `sub`: messages or bytes past it."""

    path: str
    at: int | None
    sub: int


def closes(headers: Mapping[str, str]) -> bool:
    """Return True if the request closes the stream."""
    return headers.get("stream-closed", "").strip().lower() == "true"


def content_type(headers: Mapping[str, str]) -> str | None:
    """Return the media type of the body; None without one."""
    given = headers.get("content-type", "").strip()
    if not given:
        return None
    if len(given) > MOST_NAME or not _TYPE.fullmatch(given):
        raise bad(f"Content-Type {given[:64]!r} is no media type")
    return given


def essence(kind: str) -> str:
    """Return a media type without its parameters, in lower case."""
    return kind.partition(";")[0].strip().lower()


def lifetime(headers: Mapping[str, str]) -> tuple[int | None, str | None]:
    """Return Stream-TTL, in seconds, and Stream-Expires-At; not both."""
    ttl, at = headers.get("stream-ttl"), headers.get("stream-expires-at")
    if ttl is not None and at is not None:
        raise bad("Stream-TTL and Stream-Expires-At exclude each other")
    if at is not None:
        moment(at)
    return (None if ttl is None else _number("Stream-TTL", ttl, MOST_TTL)), at


def moment(text: str) -> float:
    """Return a time of RFC 3339 in seconds since 1970."""
    try:
        if _RFC3339.fullmatch(text):
            return datetime.fromisoformat(text.upper()).timestamp()
    except (ValueError, OverflowError):
        pass
    raise bad(f"Stream-Expires-At {text[:64]!r} is no time of RFC 3339, as 2030-01-31T12:00:00Z")


def producer(headers: Mapping[str, str]) -> Producer | None:
    """Return the producer of an append; None without one."""
    fields = [headers.get(name) for name in ("producer-id", "producer-epoch", "producer-seq")]
    if fields == [None, None, None]:
        return None
    name, epoch, number = fields
    if name is None or epoch is None or number is None:
        raise bad("Producer-Id, Producer-Epoch and Producer-Seq belong together")
    if not 1 <= len(name) <= MOST_NAME:
        raise bad(f"Producer-Id has not 1 to {MOST_NAME} characters")
    return Producer(name, _number("Producer-Epoch", epoch, _LARGEST), _number("Producer-Seq", number, _LARGEST))


def sequence(headers: Mapping[str, str]) -> str | None:
    """Return Stream-Seq."""
    given = headers.get("stream-seq")
    if given is not None and not 1 <= len(given) <= MOST_NAME:
        raise bad(f"Stream-Seq has not 1 to {MOST_NAME} characters")
    return given


def fork(headers: Mapping[str, str]) -> Fork | None:
    """Return where a new stream branches; None if it does not."""
    path, at, sub = (headers.get(f"stream-{name}") for name in ("forked-from", "fork-offset", "fork-sub-offset"))
    if path is None:
        if at is not None or sub is not None:
            raise bad("Stream-Fork-Offset and Stream-Fork-Sub-Offset need Stream-Forked-From")
        return None
    where = None
    if at is not None and at != "now":
        where = 0 if at == "-1" else position(at)
        if where is None:
            raise bad(f"Stream-Fork-Offset {at[:64]!r} is no offset of this server")
    return Fork(path, where, 0 if sub is None else _number("Stream-Fork-Sub-Offset", sub, _LARGEST))


def messages(body: bytes) -> list[bytes]:
    """Return the messages of a body of JSON: the elements of an array, or the one value."""
    try:
        value = msgspec.json.decode(body)
        if not isinstance(value, list):
            return [body.strip()]
        return [bytes(each) for each in msgspec.json.decode(body, type=list[msgspec.Raw])]
    except (ValueError, RecursionError) as error:  # DecodeError is a ValueError
        raise bad(f"the body is not JSON: {error}") from error


def _number(name: str, given: str, most: int) -> int:
    if not _NUMBER.fullmatch(given) or int(given) > most:
        raise bad(f"{name} {given[:32]!r} is not a whole number from 0 to {most}")
    return int(given)
