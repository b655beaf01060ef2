"""Public values of a mesh: messages, gaps, neighbours, counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

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
    """Counters of a node since its start, and its present sizes.

    Attributes:
        sent: Own messages.
        delivered: Messages of other nodes, in order.
        duplicates: Received messages that were known already: the price of several paths.
        relayed: Received messages that were sent on to neighbours.
        asked: Requests for missing messages.
        repaired: Messages that were received after they had been missing.
        answered: Messages sent to a neighbour that asked for them.
        gaps: Messages reported as missing, in MeshGap events.
        unread: Messages for which the program's queue had no room, in MeshGap events too.
        late: Messages that came after they had been reported as missing; they are not delivered.
        early: Messages of origins that no digest has described yet; asked for later.
        ahead: Messages too far ahead of the ones missing to be held; asked for later.
        unconfirmed: Messages dropped because neither their origin nor its neighbours knew of them in time.
        bad: Frames that are malformed or absurd.
        refused_origins: Origins without room in the table.
        clashes: Claims about this node's own numbers that it never sent: two nodes may have one id.
        epochs_back: Runs that began with an epoch before an earlier one: a clock went back, or two nodes have one id.
        streams: Runs of origins that are remembered.
        behind: Streams with missing messages.
        kept_bytes: Messages kept for neighbours that ask, with 200 bytes for each.
        held_bytes: Messages that wait for earlier ones, with 200 bytes for each.
        refused: Messages and digests in names that their neighbours may not use, by code: "binding". With a trust.
    """

    sent: int = 0
    delivered: int = 0
    duplicates: int = 0
    relayed: int = 0
    asked: int = 0
    repaired: int = 0
    answered: int = 0
    gaps: int = 0
    unread: int = 0
    late: int = 0
    early: int = 0
    ahead: int = 0
    unconfirmed: int = 0
    bad: int = 0
    refused_origins: int = 0
    clashes: int = 0
    epochs_back: int = 0
    streams: int = 0
    behind: int = 0
    kept_bytes: int = 0
    held_bytes: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
