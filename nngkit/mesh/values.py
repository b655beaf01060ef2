"""Public values of a mesh: messages, gaps, neighbours, counters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from nngkit.instruments import ByCode, Bytes, Gauge, Total

GapReason = Literal["gone", "patience", "unread"]


class MeshMessage(NamedTuple):
    """A message of another node.

    ``origin`` is the node's id, ``epoch`` the start of its run in microseconds since 1970, ``sequence`` the number of
    the message in that run, from 1.
    """

    origin: str
    epoch: int
    sequence: int
    body: bytes


@dataclass(frozen=True, slots=True)
class MeshGap:
    """Messages of another node that are not delivered: ``first`` to ``last``, both included.

    ``reason``: "gone" - no neighbour keeps them any more; "patience" - no neighbour sent them in time; "unread" - the
    program read too slowly, and its queue was full.
    """

    origin: str
    epoch: int
    first: int
    last: int
    reason: GapReason

    @property
    def count(self) -> int:
        """Number of missing messages."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class MeshNeighbour:
    """A connected neighbour: its ``id`` (None until its first digest), ``address``, and the messages queued for it."""

    id: str | None
    address: str
    queued: int


@dataclass(frozen=True, slots=True)
class MeshStats:
    """Counters of a node since its start, and its present sizes."""

    sent: Total = 0
    """Own messages."""
    delivered: Total = 0
    """Messages of other nodes, in order."""
    duplicates: Total = 0
    """Received messages that were known already: the price of several paths."""
    relayed: Total = 0
    """Received messages that were sent on to neighbours."""
    asked: Total = 0
    """Requests for missing messages."""
    repaired: Total = 0
    """Messages that were received after they had been missing."""
    answered: Total = 0
    """Messages sent to a neighbour that asked for them."""
    gaps: Total = 0
    """Messages reported as missing, in MeshGap events."""
    unread: Total = 0
    """Messages for which the program's queue had no room, in MeshGap events too."""
    late: Total = 0
    """Messages that came after they had been reported as missing; they are not delivered."""
    early: Total = 0
    """Messages of origins that no digest has described yet; asked for later."""
    ahead: Total = 0
    """Messages too far ahead of the ones missing to be held; asked for later."""
    unconfirmed: Total = 0
    """Messages dropped because neither their origin nor its neighbours knew of them in time."""
    bad: Total = 0
    """Frames that are malformed or absurd."""
    refused_origins: Total = 0
    """Origins without room in the table."""
    clashes: Total = 0
    """Claims about this node's own numbers that it never sent: two nodes may have one id."""
    epochs_back: Total = 0
    """Runs that began with an epoch before an earlier one: a clock went back, or two nodes have one id."""
    streams: Gauge = 0
    """Runs of origins that are remembered."""
    behind: Gauge = 0
    """Streams with missing messages."""
    kept_bytes: Bytes = 0
    """Messages kept for neighbours that ask, with 200 bytes for each."""
    held_bytes: Bytes = 0
    """Messages that wait for earlier ones, with 200 bytes for each."""
    refused: ByCode = field(default_factory=dict)
    """Messages and digests in names that their neighbours may not use, by code: "binding". With a trust."""
