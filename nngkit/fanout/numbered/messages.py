"""Messages between publishers and subscribers, beside the published ones. Pure; CDDL in docs/wire.md.

::

    publisher  ->  subscribers, PUB   heartbeat: interval, and the address of its REP socket
    subscriber ->  publisher, REQ     position: what it has accounted for and has not read; says who lags, by how much
               <-  publisher, REP     the publisher's last number, or that the subscriber is cut off
    subscriber ->  publisher, REQ     snapshot: the last message of each topic, as of one number, in pages
               <-  publisher, REP     one page
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from nngkit.messages import ADDRESS, ANY_TEXT, Fields, Flag, Maps, Natural63, Seconds

PAGE_LIMIT: Final = 4 << 20
"""Bytes of a page of a snapshot; a single message may be larger."""
MAX_REASON: Final = 256

Subscriber: TypeAlias = Annotated[str, Meta(max_length=64, extra=ANY_TEXT)]
Why: TypeAlias = Annotated[str, Meta(max_length=MAX_REASON, extra=ANY_TEXT)]


class PublisherHeartbeat(Fields, frozen=True):
    """Body of a heartbeat. `control`: address of the REP socket, "" without one. `keeps`: it answers snapshots."""

    interval: Annotated[float, Meta(ge=0.001, le=3600)]
    control: Annotated[str, Meta(max_length=1024, extra=ADDRESS)] = ""
    keeps: Flag = False


class Position(Fields, frozen=True, tag="position"):
    """A subscriber's report. `number`: all up to it is accounted for. `missed`, `unread`: messages; `age`: seconds."""

    subscriber: Subscriber
    epoch: Natural63
    number: Natural63
    missed: Natural63
    unread: Natural63
    age: Seconds


class SnapshotQuery(Fields, frozen=True, tag="snapshot"):
    """Request a page: of a new snapshot, or after `page` pages of the snapshot `number`."""

    subscriber: Subscriber
    number: Natural63 = 0
    page: Natural63 = 0


class PositionReply(Fields, frozen=True, tag="last"):
    """The publisher's last number. `cut`: the reason for which the subscriber has to leave, "" if it has not."""

    epoch: Natural63
    number: Natural63
    cut: Why = ""


class SnapshotPage(Fields, frozen=True, tag="page"):
    """Messages (number, stamp, data) of the state after message `number`; `more`: pages follow."""

    epoch: Natural63
    number: Natural63
    messages: tuple[tuple[Annotated[int, Meta(ge=0)], Annotated[int, Meta(ge=0)], bytes], ...]
    more: Flag


class RefusedQuery(Fields, frozen=True, tag="refused"):
    """The publisher cannot answer."""

    why: Why


Request: TypeAlias = Position | SnapshotQuery
Reply: TypeAlias = PositionReply | SnapshotPage | RefusedQuery

HEARTBEATS: Final = Maps[PublisherHeartbeat]("heartbeat", PublisherHeartbeat, version=1)
REQUESTS: Final = Maps[Request]("subscriber's request", Position, SnapshotQuery, version=1)
REPLIES: Final = Maps[Reply]("publisher's reply", PositionReply, SnapshotPage, RefusedQuery, version=1, limit=None)
