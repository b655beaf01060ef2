"""Public values that describe a connection and a socket: Pipe, PeerEvent, PipeStats, Stats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
    """Counters of a socket since it was opened; messages, unless stated otherwise.

    ``sent``: accepted for sending. ``received``: returned to the program, or ready for it. ``dropped``: dropped because
    a send or receive queue was full, or without a handler (``Sub.serve``). ``broken``: being written when their
    connection ended, so it is unknown whether the peer received them. ``too_large``: over ``recv_max_size``; the
    connection was cut. ``bad``: malformed. ``late``: replies after their deadline. ``duplicate``: numbered messages
    received again. ``resent``: requests sent again. ``lost``: gaps in numbered messages. ``written``, ``read``: on all
    connections. ``unwritten``: accepted, and not yet written, dropped or broken. ``pipes``: current connections;
    ``joined``, ``left``, ``refused`` (by ``admit``), ``cut`` (for breaking a rule or for silence; see ``cuts``): totals
    of connections. On shm, ``shared``: bodies sent in shared memory; ``copied``: large ones that were sent in the
    connection instead, as no memory was free, or copied at arrival, as the program keeps many views; ``abandoned``:
    bodies that a lost peer may still look at, whose memory is not used again.
    """

    sent: int = 0
    received: int = 0
    dropped: int = 0
    broken: int = 0
    too_large: int = 0
    bad: int = 0
    late: int = 0
    duplicate: int = 0
    resent: int = 0
    lost: int = 0
    written: int = 0
    read: int = 0
    unwritten: int = 0
    pipes: int = 0
    joined: int = 0
    left: int = 0
    refused: int = 0
    cut: int = 0
    shared: int = 0
    copied: int = 0
    abandoned: int = 0
