"""Whose turn it is: which peer gets the next messages, and of which peer is read next. Pure.

::

    Push, Pair, Req             one queue: `share` of it to each peer that has room, in turn (`Rotation`)
    Pub, Bus, Surveyor          every peer has a queue of its own
    Rep, Respondent             the peer that asked
    Pull and all who receive    from each peer that has something a number of messages, in turn (`Rotation`)

Knows no socket, no clock and no message: peers are any hashable objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["Rotation", "share"]


Peer = TypeVar("Peer")


def share(waiting: int, takers: int) -> int:
    """Return how many of ``waiting`` messages the next of ``takers`` peers gets.

    Alone it gets all. Of several each gets an equal part of what there is, so that a long queue reaches all of them,
    and a peer that is quicker comes again the sooner.
    """
    if takers <= 1:
        return waiting
    return min(waiting, max(-(-waiting // takers), 1))


class Rotation(Generic[Peer]):
    """Peers that wait for their turn, the one that waits longest first: the order of ``peers``, each once at most."""

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
        """Put ``peer`` at the end, unless it waits already."""
        self.peers.setdefault(peer, None)

    def discard(self, peer: Peer) -> None:
        """Take ``peer`` out, if it is there."""
        self.peers.pop(peer, None)

    def first(self) -> Peer | None:
        """Return the peer whose turn it is; None if nobody waits."""
        return next(iter(self.peers), None)

    def turn(self, peer: Peer) -> None:
        """Put ``peer``, which has had its turn, at the end."""
        if peer in self.peers:
            del self.peers[peer]
            self.peers[peer] = None
