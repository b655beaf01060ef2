"""Holders: the nodes that have each document open, known at the host, and the partner that each compares with. Pure.

::

    holders.opened("minutes", "c", now, parent="b", avoid="")   -> ("b", 3): compare with b; 3 nodes have it
    if now >= holders.wake_at:
        for name, node, partner, count in holders.decide(now): ...

The partner is the parent if that has the document open, else the host, else the node that opened it first. So every
chain of partners ends at one node. The table of a new host is empty; the nodes tell it again. Until they have, it names
no partner for a document that the host did not have itself: a node that has just opened it would be told that it is the
first one. Capped, with a counter.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from nngkit.cluster.log_clock import NEVER

MOST_NAMES: Final = 65_536  # documents: a table of 30 MB
MOST_ENTRIES: Final = 262_144  # holders of all documents together: 10,000 nodes with 26 each, 40 MB


class Holders:
    """Nodes by document. `host`: the id of this node, which comes first if it has the document.

    `complete_at`: when all nodes have told it of theirs; `known`: documents of which it knows enough before.
    """

    def __init__(self, host: str, complete_at: float = -NEVER, known: Collection[str] = ()) -> None:
        self.refused = 0
        self._host = host
        self._complete_at = complete_at
        self._known = frozenset(known)
        self._undecided: dict[tuple[str, str], tuple[str, str]] = {}
        self._filled: set[tuple[str, str]] = set()
        self._nodes: dict[str, dict[str, None]] = {}
        self._entries = 0

    @property
    def wake_at(self) -> float:
        """When to call `decide`."""
        return self._complete_at if self._undecided else NEVER

    def decide(self, now: float) -> list[tuple[str, str, str, int]]:
        """Return the answers to `opened` that were put off: document, node, its partner, and the number of nodes."""
        if now < self._complete_at:
            return []
        undecided, self._undecided = self._undecided, {}
        for name in dict.fromkeys(name for name, _ in undecided):
            nodes = self._nodes[name]  # a filled one comes first
            self._nodes[name] = dict.fromkeys(sorted(nodes, key=lambda node: (name, node) not in self._filled))
        self._filled.clear()
        return [
            (name, node, *self._partner(name, node, parent, avoid))
            for (name, node), (parent, avoid) in undecided.items()
        ]

    def opened(
        self, name: str, node: str, now: float, *, parent: str, avoid: str, filled: bool = False
    ) -> tuple[str, int] | None:
        """Record that `node` has a document; return its partner, `node` itself if it is the first, and the number.

        None if the table is full, or not complete yet. `filled`: the node has compared its copy before.
        """
        nodes = self._nodes.get(name)
        if nodes is None:
            if len(self._nodes) >= MOST_NAMES:
                self.refused += 1
                return None
            nodes = self._nodes[name] = {}
        if node not in nodes:
            if self._entries >= MOST_ENTRIES:
                self.refused += 1
                if not nodes:
                    del self._nodes[name]
                return None
            nodes[node] = None
            self._entries += 1
        if now < self._complete_at and name not in self._known:
            self._undecided[name, node] = parent, avoid
            if filled:
                self._filled.add((name, node))
            return None
        return self._partner(name, node, parent, avoid)

    def _partner(self, name: str, node: str, parent: str, avoid: str) -> tuple[str, int]:
        nodes = self._nodes[name]
        if node == self._host or (self._host not in nodes and next(iter(nodes)) == node):
            return node, len(nodes)
        if parent in nodes and parent != avoid and parent != node:
            return parent, len(nodes)
        if self._host in nodes and self._host != avoid:
            return self._host, len(nodes)
        return next((one for one in nodes if one != avoid), node), len(nodes)

    def closed(self, name: str, node: str) -> None:
        """Record that `node` has closed a document."""
        nodes = self._nodes.get(name)
        if nodes is not None and node in nodes:
            del nodes[node]
            self._undecided.pop((name, node), None)
            self._filled.discard((name, node))
            self._entries -= 1
            if not nodes:
                del self._nodes[name]

    def node_removed(self, node: str) -> None:
        """Record that `node` has left the cluster."""
        for name in [name for name, nodes in self._nodes.items() if node in nodes]:
            self.closed(name, node)

    def of(self, name: str) -> tuple[str, ...]:
        """Return the nodes that have a document, in the order in which they opened it."""
        return tuple(self._nodes.get(name, ()))
