"""Public values that describe a connection: Pipe, PeerEvent, PipeStats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Pipe:
    """Handle of a connection: an id that is unique in the process, and the properties of the peer.

    ``address`` is the remote address as a URL (for ipc and inproc, the address of both ends). ``dialed``: this side
    connected. ``pid`` is the peer's process id on ipc and abstract. Under TLS ``verified`` is True if the peer's
    certificate was checked, ``peer_name`` is its common name, and ``alt_names`` are its subject alternative names. On
    an accepted WebSocket ``path`` and ``origin`` are from the HTTP request.
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
