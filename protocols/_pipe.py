"""What is known of a connection, for users: its Pipe, its events, its counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Pipe:
    """One connection: an id that no other has in this process, and what is known of the other end.

    ``address`` is the remote address as a URL (for ipc and inproc the one both ends share); ``dialed`` tells which
    side connected, ``pid`` is the other process on ipc and abstract. Under TLS ``verified`` says that the peer's
    certificate was checked, ``peer_name`` is its common name and ``alt_names`` its subject alternative names. On a
    WebSocket that was accepted ``path`` and ``origin`` are those of the request.
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


@dataclass(frozen=True, slots=True)
class PeerEvent:
    """A peer came or went. ``time`` is time.monotonic() seconds; ``reason`` says why it went."""

    kind: Literal["joined", "left"]
    pipe: Pipe
    time: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PipeStats:
    """Counters of one connection. Messages: ``read``, ``written``, ``queued`` for it and not written, and
    ``dropped`` for want of room in its queue, or of what came by it.
    """

    read: int = 0
    written: int = 0
    queued: int = 0
    dropped: int = 0
