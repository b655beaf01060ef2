"""Acknowledged ingest: what a request to a recorder says, and what it is answered. Pure; CBOR through `envelope`.

::

    request = [1, id: bstr, [+ value: bstr], key: bstr / null, headers: {* tstr => bstr} / null, topic: tstr / null]
    reply   = [1, partition: int, first: int, end: int]      stored: these offsets, on the disk
            / [0, why: tstr]                                 not stored

One record or many a request; many share key and headers. Whoever gets no reply sends the same request again, with the
same `id`: a record is so stored at least once, and a reader that drops what has the id of another (`read(...,
distinct=True)`) sees it exactly once. Each record carries the id in its header `id`: that of the request and the
record's place in it, a u32. `topic` is put behind the stream's own: a stream `orders` given `"eu"` stores `orders/eu`.

    >>> parse_request(encode_request(b"42", [b"hello"])).values
    [b'hello']
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from nngkit import envelope
from nngkit.errors import BadMessage, NotStored

__all__ = [
    "ID",
    "Ingest",
    "Stored",
    "encode_refusal",
    "encode_request",
    "encode_stored",
    "parse_reply",
    "parse_request",
]

ID: Final = "id"  # the header that message ids are in
MOST_ID: Final = 64  # bytes of an id: a UUID in text is 36
MOST_VALUES: Final = 65536  # records in a request, as messages in a batch
_STORED, _REFUSED = 1, 0
_VERSION: Final = 1
_WHAT: Final = "ingest request"
_U32: Final = struct.Struct(">I")


class Ingest(NamedTuple):
    """A request. A tuple, as there is one for each, and a frozen dataclass takes four times as long to make."""

    id: bytes
    values: list[bytes]
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    topic: str | None = None

    def headers_of(self, number: int) -> tuple[tuple[str, bytes], ...]:
        """The headers of its record `number`: its id in front, if the request has one."""
        return ((ID, self.id + _U32.pack(number)), *self.headers) if self.id else self.headers


class Stored(NamedTuple):
    """A reply: the records are on the disk, at `first` to `end` - 1 of `partition`."""

    partition: int
    first: int
    end: int


def encode_request(
    id: bytes,
    values: Sequence[bytes],
    *,
    key: bytes | None = None,
    headers: Mapping[str, bytes] | None = None,
    topic: str | None = None,
) -> bytes:
    """The request. Every try of the same records needs the same `id`; empty means that nobody will deduplicate."""
    return envelope.encode([_VERSION, id, list(values), key, dict(headers) if headers else None, topic])


def parse_request(body: bytes, *, limit: int | None = None, peer: str | None = None) -> Ingest:
    """Raises BadMessage, and TooLarge over `limit` bytes."""
    fields = envelope.decode(body, what=_WHAT, limit=len(body) if limit is None else limit, peer=peer)
    if type(fields) is not list or len(fields) != 6:
        raise BadMessage(_WHAT, "an array of six was expected", peer)
    version, message_id, values, key, headers, topic = fields
    if version != _VERSION:
        raise BadMessage(_WHAT, f"version {envelope.shown(version)}, and version {_VERSION} is spoken here", peer)
    if type(message_id) is not bytes or len(message_id) > MOST_ID:
        raise BadMessage(_WHAT, f"an id of up to {MOST_ID} bytes was expected", peer)
    if type(values) is not list or not 1 <= len(values) <= MOST_VALUES or set(map(type, values)) != {bytes}:
        raise BadMessage(_WHAT, f"1 to {MOST_VALUES} byte strings were expected", peer)
    if key is not None and type(key) is not bytes:
        raise BadMessage(_WHAT, "the key is no byte string", peer)
    if topic is not None and (type(topic) is not str or not topic.isprintable() or not 1 <= len(topic.encode()) <= 200):
        raise BadMessage(_WHAT, "the topic is not 1 to 200 bytes of printable text", peer)
    return Ingest(message_id, values, key, _headers(headers, peer), topic)


def _headers(headers: Any, peer: str | None) -> tuple[tuple[str, bytes], ...]:
    if headers is None:
        return ()
    if type(headers) is not dict or not set(map(type, headers.values())) <= {bytes} or ID in headers:
        raise BadMessage(_WHAT, f"headers are byte strings by name, and {ID!r} is the recorder's", peer)
    return tuple(headers.items())


def encode_stored(stored: Stored) -> bytes:
    """The reply that says so. It is made a million times, and of whole numbers alone: so by hand."""
    return b"\x84\x01" + _whole(stored.partition) + _whole(stored.first) + _whole(stored.end)


def _whole(number: int) -> bytes:
    """A whole number, 0 or more, as CBOR's shortest."""
    if number < 24:
        return bytes((number,))
    for code, size in ((24, 1), (25, 2), (26, 4)):
        if number < 1 << 8 * size:
            return bytes((code,)) + number.to_bytes(size, "big")
    return b"\x1b" + number.to_bytes(8, "big")


def encode_refusal(why: str) -> bytes:
    """The reply that says that nothing was stored, or that nobody can tell."""
    return envelope.encode([_REFUSED, envelope.shown(why)])


def parse_reply(body: bytes, peer: str | None = None) -> Stored:
    """Raises NotStored where the recorder refused, BadMessage for what is no reply."""
    match envelope.decode(body, what="ingest reply", peer=peer):
        case [1, int(partition), int(first), int(end)]:
            return Stored(partition, first, end)
        case [0, str(why)]:
            raise NotStored(why)
        case _:
            raise BadMessage("ingest reply", "neither [1, partition, first, end] nor [0, why]", peer)


def new_id() -> bytes:
    """An id that nobody else has: 16 random bytes."""
    return os.urandom(16)
