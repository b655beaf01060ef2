"""Fair scheduling of peers: which peer gets the next messages, and which is read next. Pure.

::

    Push, Pair, Req             one queue: each peer with room gets a `share`, in turn (`Rotation`)
    Pub, Bus, Surveyor          a queue for each peer
    Rep, Respondent             the peer that asked
    Pull and all receivers      a number of messages from each peer with data, in turn (`Rotation`)

Knows no socket, clock or message: peers are any hashable objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["Rotation", "share"]


Peer = TypeVar("Peer")


def share(waiting: int, takers: int) -> int:
    """Return how many of ``waiting`` messages the next of ``takers`` peers gets.

    A single peer gets all. Several get equal parts, so that a long queue reaches all of them; a faster peer returns
    sooner.
    """
    if takers <= 1:
        return waiting
    return min(waiting, max(-(-waiting // takers), 1))


class Rotation(Generic[Peer]):
    """Peers waiting for their turn, in the order of ``peers``: the one that waits longest first."""

    __slots__ = ("peers",)

    def __init__(self) -> None:
        self.peers: dict[Peer, None] = {}

    def __len__(self) -> int:
        return len(self.peers)

    def __contains__(self, peer: Peer) -> bool:
        return peer in self.peers

    def __iter__(self) -> Iterator[Peer]:
        return iter(list(self.peers))

    def add(self, peer: Peer) -> None:
        """Append ``peer``, unless it waits already."""
        self.peers.setdefault(peer, None)

    def discard(self, peer: Peer) -> None:
        """Remove ``peer``, if present."""
        self.peers.pop(peer, None)

    def first(self) -> Peer | None:
        """Return the next peer; None if there is none."""
        return next(iter(self.peers), None)

    def turn(self, peer: Peer) -> None:
        """Move ``peer``, which has had its turn, to the end."""
        if peer in self.peers:
            del self.peers[peer]
            self.peers[peer] = None
