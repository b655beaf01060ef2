"""Acknowledged ingest: the requests to a recorder and its replies. Pure; CBOR through `envelope`.

::

    request = [1, id: bstr, [+ value: bstr], key: bstr / null, headers / null, topic: tstr / null]
    headers = {* tstr => bstr} / [* [tstr, bstr]]            the second form if a name occurs twice
    reply   = [1, partition: int, first: int, end: int]      stored on disk under these offsets
            / [0, why: tstr]                                 not stored

A request carries one or more records; they share key and headers. A client without a reply repeats the request with
the same `id`, so each record is stored at least once. A reader that drops duplicate ids (`read(..., distinct=True)`)
sees it exactly once. Each record carries its id in the header `id`: the request's id and the record's index in the
request, a u32. `topic` is appended to the stream's topic: a stream `orders` with `"eu"` stores under `orders/eu`.

    >>> parse_request(encode_request(b"42", [b"hello"])).values
    [b'hello']
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from nngkit import envelope
from nngkit.errors import BadMessage, NotStored

__all__ = [
    "ID",
    "IngestRequest",
    "Stored",
    "encode_refusal",
    "encode_request",
    "encode_stored",
    "parse_reply",
    "parse_request",
]

ID: Final = "id"  # header with the message id
MOST_ID: Final = 64  # bytes; a UUID as text has 36
MOST_VALUES: Final = 65536  # records a request, as messages a batch
_STORED, _REFUSED = 1, 0
_VERSION: Final = 1
_WHAT: Final = "ingest request"
_U32: Final = struct.Struct(">I")


class IngestRequest(NamedTuple):
    """Decoded request. A tuple: a frozen dataclass takes four times as long to create."""

    id: bytes
    values: list[bytes]
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    topic: str | None = None

    def headers_of(self, number: int) -> tuple[tuple[str, bytes], ...]:
        """Return the headers of record `number`: its id first, if the request has one."""
        return ((ID, self.id + _U32.pack(number)), *self.headers) if self.id else self.headers


class Stored(NamedTuple):
    """Reply: the records are on disk, at the offsets `first` to `end` - 1 of `partition`."""

    partition: int
    first: int
    end: int


def encode_request(
    id: bytes,
    values: Sequence[bytes],
    *,
    key: bytes | None = None,
    headers: Mapping[str, bytes] | Iterable[tuple[str, bytes]] | None = None,
    topic: str | None = None,
) -> bytes:
    """Return the request. Retries must reuse the `id`; an empty id disables deduplication.

    `headers`: by name, or (name, value) pairs, in which a name may repeat (older recorders refuse those).
    """
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
    by_name = dict(pairs)
    shared = by_name if len(by_name) == len(pairs) else [list(each) for each in pairs]
    return envelope.encode([_VERSION, id, list(values), key, shared or None, topic])


def parse_request(body: bytes, *, limit: int | None = None, peer: str | None = None) -> IngestRequest:
    """Decode a request. Raises BadMessage, and TooLarge over `limit` bytes."""
    fields = envelope.decode(body, what=_WHAT, limit=len(body) if limit is None else limit, peer=peer)
    if type(fields) is not list or len(fields) != 6:
        raise BadMessage(_WHAT, "expected an array of six", peer)
    version, message_id, values, key, headers, topic = fields
    if version != _VERSION:
        raise BadMessage(_WHAT, f"version {envelope.shown(version)} is not supported, only {_VERSION}", peer)
    if type(message_id) is not bytes or len(message_id) > MOST_ID:
        raise BadMessage(_WHAT, f"expected an id of up to {MOST_ID} bytes", peer)
    if type(values) is not list or not 1 <= len(values) <= MOST_VALUES or set(map(type, values)) != {bytes}:
        raise BadMessage(_WHAT, f"expected 1 to {MOST_VALUES} byte strings", peer)
    if key is not None and type(key) is not bytes:
        raise BadMessage(_WHAT, "the key is not a byte string", peer)
    if topic is not None and (type(topic) is not str or not topic.isprintable() or not 1 <= len(topic.encode()) <= 200):
        raise BadMessage(_WHAT, "the topic is not 1 to 200 bytes of printable text", peer)
    return IngestRequest(message_id, values, key, _headers(headers, peer), topic)


def _headers(headers: Any, peer: str | None) -> tuple[tuple[str, bytes], ...]:
    if headers is None:
        return ()
    pairs = list(headers.items()) if type(headers) is dict else headers
    if type(pairs) is not list or not all(map(_is_header, pairs)):
        raise BadMessage(_WHAT, f"headers must map names to byte strings, and {ID!r} is reserved", peer)
    return tuple((name, value) for name, value in pairs)


def _is_header(pair: Any) -> bool:
    if type(pair) not in (tuple, list) or len(pair) != 2:
        return False
    return type(pair[0]) is str and pair[0] != ID and type(pair[1]) is bytes


def encode_stored(stored: Stored) -> bytes:
    """Return the reply for stored records. Encoded by hand, as this runs once a request."""
    return b"\x84\x01" + _whole(stored.partition) + _whole(stored.first) + _whole(stored.end)


def _whole(number: int) -> bytes:
    """Return an integer, 0 or more, in its shortest CBOR encoding."""
    if number < 24:
        return bytes((number,))
    for code, size in ((24, 1), (25, 2), (26, 4)):
        if number < 1 << 8 * size:
            return bytes((code,)) + number.to_bytes(size, "big")
    return b"\x1b" + number.to_bytes(8, "big")


def encode_refusal(why: str) -> bytes:
    """Return the reply for records that were not stored, or of which that is unknown."""
    return envelope.encode([_REFUSED, envelope.shown(why)])


def parse_reply(body: bytes, peer: str | None = None) -> Stored:
    """Decode a reply. Raises NotStored if the recorder refused, BadMessage for an invalid reply."""
    match envelope.decode(body, what="ingest reply", peer=peer):
        case [1, int(partition), int(first), int(end)]:
            return Stored(partition, first, end)
        case [0, str(why)]:
            raise NotStored(why)
        case _:
            raise BadMessage("ingest reply", "expected [1, partition, first, end] or [0, why]", peer)
