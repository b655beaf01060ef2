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
from typing import Annotated, Final, TypeAlias

from msgspec import Meta, field

from nngkit import envelope
from nngkit.errors import BadMessage, NotStored
from nngkit.messages import ANY_TEXT, Natural63, Row, Rows

ID: Final = "id"  # header with the message id
MOST_VALUES: Final = 65536  # records a request, as messages a batch
_U32: Final = struct.Struct(">I")

Header: TypeAlias = Annotated[str, Meta(extra=ANY_TEXT)]


class IngestRequest(Row, frozen=True, tag=1):
    """Request to store `values`. `named`: the headers, as pairs if a name occurs twice."""

    id: Annotated[bytes, Meta(max_length=64)]
    values: Annotated[list[bytes], Meta(min_length=1, max_length=MOST_VALUES)]
    key: bytes | None = None
    named: dict[Header, bytes] | tuple[tuple[Header, bytes], ...] | None = field(default=None, name="headers")
    topic: Annotated[str, Meta(min_length=1, max_length=200)] | None = None

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """The headers, in order."""
        return tuple(self.named.items() if isinstance(self.named, dict) else self.named or ())

    def headers_of(self, number: int) -> tuple[tuple[str, bytes], ...]:
        """Return the headers of record `number`: its id first, if the request has one."""
        return ((ID, self.id + _U32.pack(number)), *self.headers) if self.id else self.headers


class Stored(Row, frozen=True, tag=1):
    """Reply: the records are on disk, at the offsets `first` to `end` - 1 of `partition`."""

    partition: Natural63
    first: Natural63
    end: Natural63


class NotIngested(Row, frozen=True, tag=0):
    """Reply: the records are not stored, or that is unknown."""

    why: Annotated[str, Meta(extra=ANY_TEXT)]


Reply: TypeAlias = Stored | NotIngested

REQUESTS: Final = Rows[IngestRequest]("ingest request", IngestRequest)
REPLIES: Final = Rows[Reply]("ingest reply", Stored, NotIngested)


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
    named = None if not pairs else by_name if len(by_name) == len(pairs) else tuple(pairs)
    return REQUESTS.encode(IngestRequest(id, list(values), key, named, topic))


def parse_request(body: bytes, *, limit: int | None = None, peer: str | None = None) -> IngestRequest:
    """Decode a request. Raises BadMessage, and TooLarge over `limit` bytes."""
    request = REQUESTS.decode(body, peer, limit=len(body) if limit is None else limit)
    if request.named and any(name == ID for name, _ in request.headers):
        raise BadMessage(REQUESTS.what, f"the header {ID!r} is reserved", peer)
    return request


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
    return REPLIES.encode(NotIngested(envelope.shown(why)))


def parse_reply(body: bytes, peer: str | None = None) -> Stored:
    """Decode a reply. Raises NotStored if the recorder refused, BadMessage for an invalid reply."""
    reply = REPLIES.decode(body, peer)
    if isinstance(reply, NotIngested):
        raise NotStored(reply.why)
    return reply
