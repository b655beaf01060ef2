"""Encoding of the messages between the peers of a document. Pure; docs/wire.md ("Documents") is the specification.

::

    >>> from nngkit.documents.sync.messages import Bye
    >>> from nngkit.documents.versions import EditStream
    >>> decode_bus(encode(Bye(EditStream(b"aaaaaaaa", 1))))
    Bye(sender=EditStream(origin=b'aaaaaaaa', epoch=1))

A message is a CBOR array that begins with its kind, a number. Decoding validates every field of hostile input, and
raises BadMessage or TooLarge. Knows neither sockets nor time, nor the content of updates.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar, get_args

from nngkit import envelope
from nngkit.documents.sync.messages import (
    BUS_LIMIT,
    REPLY_LIMIT,
    REQUEST_LIMIT,
    VERSION,
    VERSION_WHAT,
    BusMessage,
    Give,
    Heartbeat,
    Hello,
    Proof,
    SyncReply,
    SyncRequest,
    Welcome,
)
from nngkit.errors import BadMessage
from nngkit.messages import Rows

BUS: Final = Rows[BusMessage]("BUS message", *get_args(BusMessage))
REQUESTS: Final = Rows[SyncRequest]("request", *get_args(SyncRequest))
REPLIES: Final = Rows[SyncReply]("reply", *get_args(SyncReply))
M = TypeVar("M")
_OF: Final[dict[type[Any], Rows[Any]]] = {
    kind: family for family in (BUS, REQUESTS, REPLIES) for kind in family.kinds.values()
}


def encode(message: BusMessage | SyncRequest | SyncReply) -> bytes:
    """Encode any message."""
    items = _OF[type(message)].pack(message)
    if (isinstance(message, Give) and not message.deps) or (isinstance(message, Proof) and not message.certificate):
        items.pop()  # only a part of what is missing has dependencies, only a guest a certificate
    return envelope.encode(items)


def decode_bus(data: bytes, *, peer: str | None = None) -> BusMessage:
    """Decode a BUS message. Raises BadMessage, TooLarge."""
    return _decode(data, BUS, BUS_LIMIT, peer)


def decode_request(data: bytes, *, peer: str | None = None) -> SyncRequest:
    """Decode a request. Raises BadMessage, TooLarge."""
    return _decode(data, REQUESTS, REQUEST_LIMIT, peer)


def decode_reply(data: bytes, *, peer: str | None = None) -> SyncReply:
    """Decode a reply. Raises BadMessage, TooLarge."""
    return _decode(data, REPLIES, REPLY_LIMIT, peer)


def _decode(data: bytes, family: Rows[M], limit: int, peer: str | None) -> M:
    row = envelope.decode(data, what=family.what, limit=limit, peer=peer)
    kind = family.kinds.get(row[0]) if type(row) is list and row and type(row[0]) is int else None
    if kind in (Heartbeat, Hello, Welcome, Proof):  # the version first: a newer one may have other fields
        at = kind.__struct_fields__.index("about") + 1
        if len(row) > at and type(row[at]) is dict:
            envelope.check_version(row[at], VERSION, what=VERSION_WHAT, peer=peer)
    message = family.parse(row, peer)
    if message is None:
        raise BadMessage(family.what, f"unknown kind {row[0]}", peer)
    return message
