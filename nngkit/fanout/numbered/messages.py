"""Messages between publishers and subscribers, beside the published ones. Pure; CDDL in docs/wire.md.

::

    publisher  ->  subscribers, PUB   heartbeat: interval, and the address of its REP socket
    subscriber ->  publisher, REQ     position: what it has accounted for and has not read; says who lags, by how much
               <-  publisher, REP     the publisher's last number, or that the subscriber is cut off
    subscriber ->  publisher, REQ     snapshot: the last message of each topic, as of one number, in pages
               <-  publisher, REP     one page
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from nngkit import envelope
from nngkit.errors import BadMessage

__all__ = [
    "PAGE_LIMIT",
    "Position",
    "PositionReply",
    "PublisherHeartbeat",
    "RefusedQuery",
    "SnapshotPage",
    "SnapshotQuery",
    "parse_query",
    "parse_reply",
]

VERSION: Final = 1
PAGE_LIMIT: Final = 4 << 20
"""Bytes of a page of a snapshot; a single message may be larger."""
MAX_ID: Final = 64
MAX_ADDRESS: Final = 1024
MAX_REASON: Final = 256


@dataclass(frozen=True, slots=True)
class PublisherHeartbeat:
    """Body of a heartbeat. `control`: address of the REP socket, "" without one. `keeps`: it answers snapshots."""

    interval: float
    control: str = ""
    keeps: bool = False

    def encode(self) -> bytes:
        """Encode the body."""
        fields = {"v": VERSION, "interval": self.interval, "control": self.control, "keeps": self.keeps}
        return envelope.encode(fields, limit=envelope.CONTROL_LIMIT)

    @classmethod
    def parse(cls, body: bytes, peer: str | None = None) -> PublisherHeartbeat:
        """Decode the body. Raises BadMessage, TooLarge."""
        what = "heartbeat"
        fields = _map(body, what, peer, envelope.CONTROL_LIMIT)
        control = envelope.field(fields, "control", str, what=what, peer=peer, max_len=MAX_ADDRESS)
        if not envelope.is_address(control):
            raise BadMessage(what, f"no address: {envelope.shown(control)}", peer)
        return cls(
            envelope.field(fields, "interval", float, what=what, peer=peer, low=0.001, high=3600),
            control,
            envelope.field(fields, "keeps", bool, what=what, peer=peer),
        )


@dataclass(frozen=True, slots=True)
class Position:
    """A subscriber's report. `number`: all up to it is accounted for. `missed`, `unread`: messages; `age`: seconds."""

    subscriber: str
    epoch: int
    number: int
    missed: int
    unread: int
    age: float

    def encode(self) -> bytes:
        """Encode the message."""
        fields = {
            "v": VERSION,
            "type": "position",
            "subscriber": self.subscriber,
            "epoch": self.epoch,
            "number": self.number,
            "missed": self.missed,
            "unread": self.unread,
            "age": self.age,
        }
        return envelope.encode(fields, limit=envelope.CONTROL_LIMIT)


@dataclass(frozen=True, slots=True)
class PositionReply:
    """The publisher's last number. `cut`: the reason for which the subscriber has to leave, "" if it has not."""

    epoch: int
    number: int
    cut: str = ""

    def encode(self) -> bytes:
        """Encode the message."""
        fields = {"v": VERSION, "type": "last", "epoch": self.epoch, "number": self.number, "cut": self.cut}
        return envelope.encode(fields, limit=envelope.CONTROL_LIMIT)


@dataclass(frozen=True, slots=True)
class SnapshotQuery:
    """Request a page: of a new snapshot, or after `page` pages of the snapshot `number`."""

    subscriber: str
    number: int = 0
    page: int = 0

    def encode(self) -> bytes:
        """Encode the message."""
        fields = {
            "v": VERSION,
            "type": "snapshot",
            "subscriber": self.subscriber,
            "number": self.number,
            "page": self.page,
        }
        return envelope.encode(fields, limit=envelope.CONTROL_LIMIT)


@dataclass(frozen=True, slots=True)
class SnapshotPage:
    """Messages (number, stamp, data) of the state after message `number`; `more`: pages follow."""

    epoch: int
    number: int
    messages: tuple[tuple[int, int, bytes], ...]
    more: bool

    def encode(self) -> bytes:
        """Encode the message."""
        fields = {
            "v": VERSION,
            "type": "page",
            "epoch": self.epoch,
            "number": self.number,
            "messages": self.messages,
            "more": self.more,
        }
        return envelope.encode(fields)


@dataclass(frozen=True, slots=True)
class RefusedQuery:
    """The publisher cannot answer."""

    why: str

    def encode(self) -> bytes:
        """Encode the message."""
        return envelope.encode({"v": VERSION, "type": "refused", "why": self.why[:MAX_REASON]})


def parse_query(body: bytes, peer: str | None = None) -> Position | SnapshotQuery:
    """Decode a subscriber's request. Raises BadMessage, TooLarge."""
    what = "subscriber's request"
    fields = _map(body, what, peer, envelope.CONTROL_LIMIT)

    def number(key: str) -> int:
        return envelope.field(fields, key, int, what=what, peer=peer, low=0, high=2**63 - 1)

    kind = envelope.field(fields, "type", str, what=what, peer=peer, max_len=16)
    subscriber = envelope.field(fields, "subscriber", str, what=what, peer=peer, max_len=MAX_ID)
    if kind == "position":
        age = envelope.field(fields, "age", float, what=what, peer=peer, low=0)
        return Position(subscriber, number("epoch"), number("number"), number("missed"), number("unread"), age)
    if kind == "snapshot":
        return SnapshotQuery(subscriber, number("number"), number("page"))
    raise BadMessage(what, f"unknown type {kind!r}", peer)


def parse_reply(body: bytes, limit: int, peer: str | None = None) -> PositionReply | SnapshotPage | RefusedQuery:
    """Decode a publisher's reply of at most `limit` bytes. Raises BadMessage, TooLarge."""
    what = "publisher's reply"
    fields = _map(body, what, peer, limit)

    def number(key: str) -> int:
        return envelope.field(fields, key, int, what=what, peer=peer, low=0, high=2**63 - 1)

    match envelope.field(fields, "type", str, what=what, peer=peer, max_len=16):
        case "last":
            cut = envelope.field(fields, "cut", str, what=what, peer=peer, max_len=MAX_REASON)
            return PositionReply(number("epoch"), number("number"), cut)
        case "page":
            rows = envelope.field(fields, "messages", list, what=what, peer=peer)
            more = envelope.field(fields, "more", bool, what=what, peer=peer)
            return SnapshotPage(number("epoch"), number("number"), tuple(_row(row, what, peer) for row in rows), more)
        case "refused":
            return RefusedQuery(envelope.field(fields, "why", str, what=what, peer=peer, max_len=MAX_REASON))
        case kind:
            raise BadMessage(what, f"unknown type {kind!r}", peer)


def _row(row: object, what: str, peer: str | None) -> tuple[int, int, bytes]:
    if not isinstance(row, list) or [type(part) for part in row] != [int, int, bytes] or min(row[0], row[1]) < 0:
        raise BadMessage(what, "messages are not [number, stamp, data]", peer)
    return row[0], row[1], row[2]


def _map(body: bytes, what: str, peer: str | None, limit: int) -> dict[str, Any]:
    fields = envelope.as_map(envelope.decode(body, what=what, limit=limit, peer=peer), what=what, peer=peer)
    envelope.check_version(fields, VERSION, what=what, peer=peer)
    return fields
