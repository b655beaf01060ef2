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
    if type(headers) is not dict and not isinstance(headers, Mapping):
        raise ConfigError("headers", f"{type(headers).__name__} is not a mapping of names to text or bytes", headers)
    try:
        size = _size(headers)
    except ValueError as error:
        raise ConfigError("headers", str(error), headers) from error
    if size > MOST_BYTES:
        raise TooLarge(size, MOST_BYTES, what="headers")
    return dict(headers)


def pack_headers(headers: dict[str, str | bytes]) -> bytes:
    """Return checked headers as CBOR: the bytes of `envelope.encode`, in a third of the time."""
    if len(headers) == 1 and type(value := headers.get("traceparent")) is str and len(data := value.encode()) == 55:
        return _TRACEPARENT + data
    items = []
    for name, value in headers.items():
        data = name.encode()
        packed = _TEXTS[len(data)] + data  # a name is shorter than 256 bytes
        if type(value) is str and len(data := value.encode()) < 256:
            packed += _TEXTS[len(data)] + data
        elif type(value) is bytes and len(value) < 256:
            packed += _BYTES[len(value)] + value
        else:
            packed += envelope.encode(value)  # TypeError for other types
        items.append(packed)
    items.sort()  # canonical: the sizes of the names are their first bytes
    count = len(items)
    return (_MAPS[count] if count < _SHORT else bytes((0xB8, count))) + b"".join(items)


def unpack_headers(data: bytes) -> dict[str, str | bytes]:
    """Return the headers in CBOR of a peer. Raises BadMessage, TooLarge."""
    few = unpack_few(data)
    if few is not None:
        return few
    found: dict[str, Any] = envelope.as_map(envelope.decode(data, what="headers", limit=MOST_PACKED), what="headers")
    try:
        _check_read(found)
    except ValueError as error:
        raise BadMessage("headers", str(error)) from error
    return found


def unpack_few(data: bytes) -> dict[str, str | bytes] | None:
    """Return headers as nearly all are: under 24, with names under 24 bytes and values under 256, which fit MOST_BYTES.

    None if the general reader has to look at the bytes: it returns the same, in four times the time, or refuses them.
    """
    try:
        if len(data) == _LENGTH and data.startswith(_TRACEPARENT):  # a trace's context alone, as in most requests
            return {"traceparent": data[-55:].decode()}
        count = data[0] - 0xA0
        if not 0 <= count < _SHORT:
            return None
        found: dict[str, str | bytes] = {}
        at = 1
        for _ in range(count):
            size = data[at] - 0x60
            if not 0 < size < _SHORT:
                return None
            start = at + 1 + size
            name = data[at + 1 : start].decode()
            kind = data[start] & 0xE0
            size = data[start] & 0x1F
            start += 1
            if size >= _SHORT:
                if size != _SHORT:
                    return None
                size = data[start]
                start += 1
            at = start + size
            if kind == 0x60:
                found[name] = data[start:at].decode()
            elif kind == 0x40:
                found[name] = data[start:at]
            else:
                return None
            if not name.isprintable():
                return None
    except (IndexError, UnicodeDecodeError):
        return None
    return found if at == len(data) and len(found) == count else None


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


_TRACEPARENT: Final = b"\xa1\x6btraceparent\x78\x37"  # one header, with the 55 bytes of W3C's first version
_LENGTH: Final = len(_TRACEPARENT) + 55
_SHORT: Final = 24  # bytes or items whose count is in the first byte of CBOR
_MAPS: Final = [bytes((0xA0 + size,)) for size in range(_SHORT)]
_TEXTS: Final = [bytes((0x60 + size,) if size < _SHORT else (0x78, size)) for size in range(256)]
_BYTES: Final = [bytes((0x40 + size,) if size < _SHORT else (0x58, size)) for size in range(256)]


WireHeaders: TypeAlias = Annotated[dict[str, Any], Meta(max_length=MOST_HEADERS, extra={"check": _check_read})]
"""Headers as a field of a message: see nngkit.messages."""
