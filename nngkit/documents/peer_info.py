"""Reports of a DocumentPeer: other peers, refused input, and counters. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from nngkit.documents.versions import EditStream

__all__ = ["PeerInfo", "PeerStats", "Refusal"]


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """Another peer that was heard recently.

    `address`: the remote address of its connection. `documents`: the open documents it has announced. `round_trip`:
    smoothed seconds per answer. `askable`: it has a REP endpoint, so missing edits can be requested from it. `relay`:
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
    """Counters of a peer since it was opened: BUS messages, edits, requests, and bytes of messages.

    `said`, `heard`: BUS messages sent and received. `bytes_said` counts each message once per connected peer.
    `edits`: local edits. `delivered`, `duplicates`, `held`, `gaps`, `overflow`, `old`, `differed`: see
    history.Counts. `asked`, `failed`: our requests; `answered`: requests of other peers, by kind; `bytes_asked`: our
    requests and their replies. `early`: messages on a connection before its first heartbeat. `elsewhere`: messages
    about documents that are not open here. `refused`: rejected input, by kind.
    """

    said: int
    heard: int
    bytes_said: int
    bytes_heard: int
    edits: int
    delivered: int
    duplicates: int
    held: int
    gaps: int
    overflow: int
    old: int
    differed: int
    asked: int
    failed: int
    bytes_asked: int
    answered: dict[str, int]
    early: int
    elsewhere: int
    refused: dict[str, int]
