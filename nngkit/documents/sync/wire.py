"""Encoding of the messages between the peers of a document. Pure; docs/wire.md ("Documents") is the specification.

::

    >>> from nngkit.documents.versions import EditStream
    >>> decode_bus(encode(Bye(EditStream(b"aaaaaaaa", 1))))
    Bye(sender=EditStream(origin=b'aaaaaaaa', epoch=1))

A message is a CBOR array that begins with its kind, a number. Decoding validates every field of hostile input, and
raises BadMessage or TooLarge. Knows neither sockets nor time, nor the content of updates.
"""

from __future__ import annotations

from typing import Any, Final

from nngkit import envelope
from nngkit.documents.sync.messages import (
    BUS_LIMIT,
    REPLY_LIMIT,
    REQUEST_LIMIT,
    VERSION,
    VERSION_WHAT,
    Aware,
    BusMessage,
    Bye,
    Chunks,
    Diff,
    Give,
    Given,
    Has,
    Have,
    Heartbeat,
    HeartbeatRow,
    Hello,
    HelloRow,
    Nack,
    Pull,
    Refused,
    Resent,
    SyncReply,
    SyncRequest,
    Updates,
    Want,
    Welcome,
    WelcomeRow,
)
from nngkit.errors import BadMessage
from nngkit.messages import Rows

_BUS: Final = Rows[Any]("BUS message", Updates, HeartbeatRow, Aware, Bye)
_REQUESTS: Final = Rows[Any]("request", HelloRow, Nack, Want, Pull, Give, Have)
_REPLIES: Final = Rows[Any]("reply", WelcomeRow, Resent, Diff, Chunks, Given, Has, Refused)
_OF: Final = {kind: family for family in (_BUS, _REQUESTS, _REPLIES) for kind in family.kinds.values()}


def encode(message: BusMessage | SyncRequest | SyncReply) -> bytes:
    """Encode any message."""
    row: Any = message
    match message:
        case Heartbeat():
            row = HeartbeatRow.of(message)
        case Hello():
            row = HelloRow.of(message)
        case Welcome():
            row = WelcomeRow.of(message)
    items = _OF[type(row)].pack(row)
    if isinstance(message, Give) and not message.deps:
        items.pop()  # only a part of what is missing has any
    return envelope.encode(items)


def decode_bus(data: bytes, *, peer: str | None = None) -> BusMessage:
    """Decode a BUS message. Raises BadMessage, TooLarge."""
    message: BusMessage = _decode(data, _BUS, BUS_LIMIT, peer)
    return message


def decode_request(data: bytes, *, peer: str | None = None) -> SyncRequest:
    """Decode a request. Raises BadMessage, TooLarge."""
    message: SyncRequest = _decode(data, _REQUESTS, REQUEST_LIMIT, peer)
    return message


def decode_reply(data: bytes, *, peer: str | None = None) -> SyncReply:
    """Decode a reply. Raises BadMessage, TooLarge."""
    message: SyncReply = _decode(data, _REPLIES, REPLY_LIMIT, peer)
    return message


def _decode(data: bytes, family: Rows[Any], limit: int, peer: str | None) -> Any:
    row = envelope.decode(data, what=family.what, limit=limit, peer=peer)
    kind = family.kinds.get(row[0]) if type(row) is list and row and type(row[0]) is int else None
    if kind in (HeartbeatRow, HelloRow, WelcomeRow):  # the version first: a newer one may have other fields
        at = kind.__struct_fields__.index("about") + 1
        if len(row) > at and type(row[at]) is dict:
            envelope.check_version(row[at], VERSION, what=VERSION_WHAT, peer=peer)
    message = family.parse(row, peer)
    if message is None:
        raise BadMessage(family.what, f"unknown kind {row[0]}", peer)
    return message.value() if isinstance(message, HeartbeatRow | HelloRow | WelcomeRow) else message
