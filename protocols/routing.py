"""Fair scheduling of peers: which peer gets the next messages, and which is read next. Pure.

::

    Push, Pair, Req             one queue: each peer with room gets a `share`, in turn (`Rotation`)
    Push, Req with priorities   the same among the peers of the first lane that has any (`Lanes`)
    Pub, Bus, Surveyor          a queue for each peer
    Rep, Respondent             the peer that asked
    Pull and all receivers      a number of messages from each peer with data, in turn (`Rotation`)

Knows no socket, clock or message: peers are any hashable objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

PRIORITIES: Final = (1, 16)
PRIORITY: Final = 8
"""Range and default of nanomsg's NN_SNDPRIO: 1 is tried first."""


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


class Lanes(Rotation[Peer]):
    """Rotation of peers with a priority each: those of the lowest number that is present precede all others.

    ``present``: all connected peers, also those that cannot take a message now. The others get messages only while
    ``full()``: the queue has no room left, because no peer of the first lane takes any.
    """

    __slots__ = ("_full", "_present", "_priority")

    def __init__(
        self, priority: Callable[[Peer], int], present: Callable[[], Iterable[Peer]], full: Callable[[], bool]
    ) -> None:
        super().__init__()
        self._priority = priority
        self._present = present
        self._full = full

    def best(self) -> list[Peer]:
        """Return the present peers of the first lane."""
        present = list(self._present())
        first = min(map(self._priority, present), default=None)
        return [peer for peer in present if self._priority(peer) == first]

    def may_take(self, peer: Peer) -> bool:
        """Return True if ``peer`` may take messages now."""
        first = min(map(self._priority, self._present()), default=self._priority(peer))
        return self._priority(peer) <= first or self._full()

    def first(self) -> Peer | None:
        """Return the next peer that may take messages; None if there is none."""
        peer = min(self.peers, key=self._priority, default=None)
        return peer if peer is not None and self.may_take(peer) else None
