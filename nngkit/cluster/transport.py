"""Interface between a node of a cluster and what carries its frames: sockets, or memory in tests.

A *link* is a connection of two neighbours, with a number that is unique at this node and never used again. Between
`link_up` and `link_down` it is FIFO and loses nothing, except frames that were sent with `droppable`, which have room
for half of its queue. If a frame that is not droppable finds no room, the link ends: its peer does not read.

A transport calls its `Sink` in the thread of the loop, and never within a call of its own methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

Start: TypeAlias = Callable[..., None]
"""Starts a task: called with an async function and its arguments."""


class Sink(Protocol):
    """Interface of the node, for its transport."""

    def link_up(self, link: int, peer: str, dialed: str | None, who: str | None = None) -> None:
        """Report a connection.

        `peer`: its address, for messages and logs; `dialed`: the address given to `dial`; `who`: the name that the peer
        has proven, as `Pipe.who`. A node with a trust takes no neighbour without one.
        """

    def link_down(self, link: int, why: str) -> None:
        """Report the end of a connection, except after `drop`."""

    def dial_failed(self, address: str, why: str) -> None:
        """Report that a `dial` has not led to a connection."""

    def received(self, link: int, frames: Sequence[bytes]) -> None:
        """Take in frames of one neighbour, in order."""


class Transport(Protocol):
    """Carrier of frames between neighbours. One object serves one node, once."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses at which it accepts neighbours; empty if it does not listen."""

    async def open(self, sink: Sink, start: Start) -> None:
        """Begin to accept connections. `start` starts tasks that end with the node. Raises Unreachable, ConfigError."""

    async def aclose(self) -> None:
        """Write what was sent, for at most a second, and end all connections. Idempotent."""

    def dial(self, address: str) -> None:
        """Try to connect once: `link_up` or `dial_failed` follows. Raises ConfigError for an unusable address."""

    def send(self, link: int, frames: Sequence[bytes], *, droppable: bool = False) -> bool:
        """Queue frames, all or none; return False if they were dropped or the link has ended. Never waits."""

    def drop(self, link: int) -> None:
        """End a connection once what was sent is written, or after a second. Does nothing if it has ended."""

    def busy(self, links: Sequence[int]) -> bool:
        """Return True if the queues of all of these links are over a quarter full."""

    @property
    def overflows(self) -> int:
        """Links that ended because their peer did not read."""
