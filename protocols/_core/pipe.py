"""Public values that describe a connection and a socket: Pipe, PeerEvent, PipeStats, Stats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nngkit.instruments import Gauge, Total


@dataclass(frozen=True, slots=True)
class Pipe:
    """Handle of a connection: an id that is unique in the process, and the properties of the peer.

    ``address`` is the remote address as a URL (for ipc and inproc, the address of both ends). ``dialed``: this side
    connected. ``pid`` is the peer's process id on ipc and abstract. Under TLS ``verified`` is True if the peer's
    certificate was checked; then ``peer_name`` is its common name, ``alt_names`` are its DNS names, and ``alt_uris``
    and ``alt_ips`` its URIs and IP addresses. On an accepted WebSocket ``path``, ``origin`` and ``host`` are from
    the HTTP request. ``who``: the name of the peer under a trust, "@uid.N" on a Unix socket, "@local" from this
    machine, "@anyone" otherwise; None under TLS without a trust. ``serial``: serial number of its pass,
    hexadecimal, or "".
    """

    id: int
    address: str
    dialed: bool
    peer_name: str | None = None
    alt_names: tuple[str, ...] = ()
    verified: bool = False
    pid: int | None = None
    path: str | None = None
    origin: str | None = None
    alt_uris: tuple[str, ...] = ()
    alt_ips: tuple[str, ...] = ()
    who: str | None = None
    serial: str = ""
    host: str | None = None


@dataclass(frozen=True, slots=True)
class PeerEvent:
    """A peer joined or left. ``time`` is time.monotonic() seconds; ``reason`` says why it left."""

    kind: Literal["joined", "left"]
    pipe: Pipe
    time: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PipeStats:
    """Message counters of one connection: ``read``, ``written``, ``queued`` for it and not written, ``dropped``.

    ``dropped`` counts sent messages for which its queue had no room, and received messages that were dropped.
    """

    read: int = 0
    written: int = 0
    queued: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters of a socket since it was opened, and its present sizes."""

    sent: Total = 0
    """Messages accepted for sending."""
    received: Total = 0
    """Messages returned to the program, or ready for it."""
    dropped: Total = 0
    """Messages dropped because a send or receive queue was full, or without a handler (``Sub.serve``)."""
    broken: Total = 0
    """Messages being written when their connection ended: it is unknown whether the peer received them."""
    too_large: Total = 0
    """Messages over ``recv_max_size``; the connection was cut."""
    bad: Total = 0
    """Malformed messages."""
    late: Total = 0
    """Replies after their deadline."""
    duplicate: Total = 0
    """Numbered messages received again."""
    resent: Total = 0
    """Requests sent again."""
    lost: Total = 0
    """Messages missing in gaps of numbered ones."""
    written: Total = 0
    """Messages written, on all connections."""
    read: Total = 0
    """Messages read, on all connections."""
    unwritten: Gauge = 0
    """Messages accepted, and not yet written, dropped or broken."""
    pipes: Gauge = 0
    """Current connections."""
    joined: Total = 0
    """Connections that joined."""
    left: Total = 0
    """Connections that left."""
    refused: Total = 0
    """Connections refused by ``admit``."""
    cut: Total = 0
    """Connections cut for breaking a rule or for silence; see ``cuts``."""
    shared: Total = 0
    """On shm: bodies sent in shared memory."""
    copied: Total = 0
    """On shm: large bodies sent in the connection, as no memory was free, or copied at arrival, as the program keeps
    many views."""
    abandoned: Gauge = 0
    """On shm: bodies that a lost peer may still look at, whose memory is not used again."""
