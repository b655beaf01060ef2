"""Reports of a DocumentPeer: other peers, refused input, and counters. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from nngkit.documents.versions import EditStream


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
    """Counters of a peer since it was opened: BUS messages, edits, requests, and bytes of messages.

    `sent`, `received`: BUS messages. `bytes_sent` counts each message once per connected peer. `edits`: local edits.
    `delivered`, `duplicates`, `held`, `gaps`, `overflow`, `old`, `differed`: see history.Counts. `requests`: own
    repair requests, of which `failed` got no reply; `request_bytes`: the bytes of these requests and their replies.
    `answered`: requests of other peers, by kind. `early`: messages on a connection before its first heartbeat.
    `not_open`: messages about documents that are not open here. `refused`: rejected input, by kind.
    """

    sent: int
    received: int
    bytes_sent: int
    bytes_received: int
    edits: int
    delivered: int
    duplicates: int
    held: int
    gaps: int
    overflow: int
    old: int
    differed: int
    requests: int
    failed: int
    request_bytes: int
    answered: dict[str, int]
    early: int
    not_open: int
    refused: dict[str, int]
