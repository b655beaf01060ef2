"""Headers: metadata beside a body, as a map of names to text or bytes. Pure.

::

    {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tenant": "oslo", "key": b"\\x00\\x17"}

Names are case-sensitive, and lower case by convention. Writers and readers have the same caps: MOST_HEADERS of them,
with at most MOST_BYTES of names and values together, as HTTP servers commonly allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta

from nngkit import envelope
from nngkit.errors import BadMessage, ConfigError, TooLarge

MOST_HEADERS: Final = 64
MOST_NAME: Final = 128
"""Bytes of a name."""
MOST_BYTES: Final = 8192

MOST_PACKED: Final = MOST_BYTES + MOST_HEADERS * 6 + 2
"""Bytes of headers as CBOR."""

Headers: TypeAlias = Mapping[str, str | bytes]


def check_headers(headers: Headers) -> dict[str, str | bytes]:
    """Return the headers of a program, as a copy. Raises ConfigError, and TooLarge over MOST_BYTES."""
    if not isinstance(headers, Mapping):
        raise ConfigError("headers", f"{type(headers).__name__} is not a mapping of names to text or bytes", headers)
    try:
        size = _size(headers)
    except ValueError as error:
        raise ConfigError("headers", str(error), headers) from error
    if size > MOST_BYTES:
        raise TooLarge(size, MOST_BYTES, what="headers")
    return dict(headers)


def pack_headers(headers: dict[str, str | bytes]) -> bytes:
    """Return checked headers as CBOR."""
    return envelope.encode(headers)


def unpack_headers(data: bytes) -> dict[str, str | bytes]:
    """Return the headers in CBOR of a peer. Raises BadMessage, TooLarge."""
    found: dict[str, Any] = envelope.as_map(envelope.decode(data, what="headers", limit=MOST_PACKED), what="headers")
    try:
        _check_read(found)
    except ValueError as error:
        raise BadMessage("headers", str(error)) from error
    return found


def _check_read(headers: dict[str, Any]) -> None:
    """Raise ValueError for headers of a peer that `check_headers` would refuse."""
    if (size := _size(headers)) > MOST_BYTES:
        raise ValueError(f"{size} bytes; at most {MOST_BYTES}")


def _size(headers: Mapping[Any, Any]) -> int:
    if len(headers) > MOST_HEADERS:
        raise ValueError(f"{len(headers)} headers; at most {MOST_HEADERS}")
    size = 0
    for name, value in headers.items():
        if not isinstance(name, str) or not name or not name.isprintable() or len(encoded := name.encode()) > MOST_NAME:
            raise ValueError(f"{name!r:.80} is not a name: printable text of 1 to {MOST_NAME} bytes")
        if isinstance(value, str):
            value = value.encode()  # a ValueError for text that UTF-8 cannot carry
        elif not isinstance(value, bytes):
            raise ValueError(f"{name!r} is {type(value).__name__}, neither text nor bytes")
        size += len(encoded) + len(value)
    return size


WireHeaders: TypeAlias = Annotated[dict[str, Any], Meta(max_length=MOST_HEADERS, extra={"check": _check_read})]
"""Headers as a field of a message: see nngkit.messages."""
