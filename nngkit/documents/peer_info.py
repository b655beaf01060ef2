"""Reports of a DocumentPeer: other peers, refused input, and counters. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from nngkit.documents.versions import EditStream
from nngkit.instruments import ByKind, BytesTotal, Total


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """Another peer from which a message was received recently.

    `address`: the remote address of its connection. `documents`: the open documents it has announced. `round_trip`:
    smoothed seconds per answer. `askable`: it has a REP socket, so missing edits can be requested from it. `relay`:
    it forwards the messages of other peers.
    """

    stream: EditStream
    name: str | None
    address: str | None
    documents: frozenset[str]
    round_trip: float
    askable: bool
    relay: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """Input from a peer that was rejected. `when`: seconds since 1970."""

    when: float
    peer: str
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class PeerStats:
    """Counters of a peer since it was opened. `history.Counts` tells more of `delivered` to `differed`."""

    sent: Total
    """BUS messages sent."""
    received: Total
    """BUS messages received."""
    bytes_sent: BytesTotal
    """Bytes sent, each message once per connected peer."""
    bytes_received: BytesTotal
    """Bytes of messages received."""
    edits: Total
    """Local edits."""
    delivered: Total
    """Edits delivered."""
    duplicates: Total
    """Edits received again."""
    held: Total
    """Edits held back until what they depend on has come."""
    gaps: Total
    """Gaps found in streams of edits."""
    overflow: Total
    """Edits dropped beyond the limit of those held."""
    old: Total
    """Edits of earlier runs."""
    differed: Total
    """Edits that differed from one with the same number."""
    requests: Total
    """Own repair requests."""
    failed: Total
    """Own repair requests that got no reply."""
    request_bytes: BytesTotal
    """Bytes of own repair requests and their replies."""
    answered: ByKind
    """Requests of other peers, by kind."""
    early: Total
    """Messages on a connection before its first heartbeat."""
    not_open: Total
    """Messages about documents that are not open here."""
    refused: ByKind
    """Rejected input, by kind."""
