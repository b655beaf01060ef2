"""Trie of byte prefixes with a bounded search: does a message begin with one of them, and with which?

::

    root  head ""   ends {}          next {"orders.1": node, "weather.": ("oslo", "rome")}
    node  head ""   ends {"7", "85"}  next {}                     for orders.17, orders.185

A node stands at a multiple of 8 bytes. Members that end within the next 8 bytes are its ``ends``; longer ones are
found by those 8 bytes. Up to 16 members below one such window are a tuple of what follows it, which ``startswith``
searches in C; more become a node. ``head`` is what all members below a node have in common, a multiple of 8 bytes, so
that a long common beginning costs one comparison.

A search visits one node for at most 8 lookups of at most 8 bytes, and passes 8 bytes of the message at each: it is
bounded by the length of the message, whatever the members are. An addition or removal touches one path.

Every change becomes visible by a single assignment, so one that is interrupted leaves the other members as they are,
and can be repeated. Pure: may not know sockets, threads, clocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

WINDOW: Final = 8  # less means more nodes on the way, more means more lengths of `ends` to try at each
BUCKET: Final = 16  # `startswith` compares some 3 ns each; a node costs 150 ns, and 400 bytes

Leaf = tuple[bytes, ...]


class _Node:
    __slots__ = ("ends", "head", "lengths", "next")

    def __init__(self, head: bytes) -> None:
        self.head = head
        self.ends: set[bytes] = set()
        self.lengths: tuple[int, ...] = ()  # of `ends`, ascending; some may have gone
        self.next: dict[bytes, _Node | Leaf] = {}

    def shortened(self, size: int) -> _Node:
        """Return this node as one that is ``size`` bytes further along its head."""
        node = _Node(self.head[size:])
        node.ends, node.lengths, node.next = self.ends, self.lengths, self.next
        return node


class PrefixTrie:
    """Set of byte strings that finds those with which a message begins."""

    def __init__(self, members: Iterable[bytes] = ()) -> None:
        self._root = _Node(b"")
        self._count = 0
        for member in members:
            self.add(member)

    def __len__(self) -> int:
        return self._count

    # ------------------------------------------------------------------ searching

    def match(self, message: bytes) -> bool:
        """Return True if the message begins with a member."""
        node, at = self._root, 0
        while True:
            if node.head:
                if not message.startswith(node.head, at):
                    return False
                at += len(node.head)
            ends = node.ends
            if ends:
                for length in node.lengths:
                    if message[at : at + length] in ends:
                        return True
            below = node.next.get(message[at : at + WINDOW])
            if below is None:
                return False
            at += WINDOW
            if type(below) is tuple:
                return message.startswith(below, at)
            node = below  # type: ignore[assignment]

    def longest(self, message: bytes) -> bytes | None:
        """Return the longest member that the message begins with; None if there is none."""
        node, at, best = self._root, 0, -1
        while True:
            if node.head:
                if not message.startswith(node.head, at):
                    break
                at += len(node.head)
            for length in reversed(node.lengths):
                if (end := message[at : at + length]) in node.ends:
                    best = at + len(end)
                    break
            below = node.next.get(message[at : at + WINDOW])
            if below is None:
                break
            at += WINDOW
            if isinstance(below, tuple):
                best = max((at + len(rest) for rest in below if message.startswith(rest, at)), default=best)
                break
            node = below
        return None if best < 0 else message[:best]

    # ------------------------------------------------------------------ changing

    def add(self, member: bytes) -> None:
        """Add a member. Idempotent."""
        node, at, above, key = self._root, 0, None, b""
        while True:
            if not member.startswith(node.head, at):
                node = self._split(node, member[at:], above, key)
            at += len(node.head)
            if len(member) - at < WINDOW:
                if (end := member[at:]) in node.ends:
                    return
                if len(end) not in node.lengths:
                    node.lengths = tuple(sorted((*node.lengths, len(end))))
                node.ends.add(end)
                break
            above, key = node, member[at : at + WINDOW]
            below = node.next.get(key)
            at += WINDOW
            if isinstance(below, _Node):
                node = below
                continue
            leaf = below or ()
            if (rest := member[at:]) in leaf:
                return
            leaf = (*leaf, rest)
            node.next[key] = leaf if len(leaf) <= BUCKET else _node(leaf)
            break
        self._count += 1

    def discard(self, member: bytes) -> None:
        """Remove a member, if it is one, and the nodes that it leaves empty."""
        node, at = self._root, 0
        path: list[tuple[_Node, bytes]] = []
        while True:
            if not member.startswith(node.head, at):
                return
            at += len(node.head)
            if len(member) - at < WINDOW:
                if (end := member[at:]) not in node.ends:
                    return
                node.ends.discard(end)
                if not node.ends:
                    node.lengths = ()
                break
            key = member[at : at + WINDOW]
            below = node.next.get(key)
            at += WINDOW
            if isinstance(below, _Node):
                path.append((node, key))
                node = below
                continue
            rest = member[at:]
            if below is None or rest not in below:
                return
            if left := tuple(each for each in below if each != rest):
                node.next[key] = left
            else:
                del node.next[key]
            break
        self._count -= 1
        while path and not node.ends and not node.next:
            node, key = path.pop()
            del node.next[key]

    def _split(self, node: _Node, member: bytes, above: _Node | None, key: bytes) -> _Node:
        """Return a new node in the place of ``node``, whose head ``member`` does not share, with it below."""
        size = _common(node.head, member)
        upper = _Node(node.head[:size])
        upper.next[node.head[size : size + WINDOW]] = node.shortened(size + WINDOW)
        if above is None:
            self._root = upper
        else:
            above.next[key] = upper
        return upper


def _node(members: Leaf) -> _Node:
    """Return a node with these members, whose head is what they have in common."""
    least, most = min(members), max(members)
    size = _common(least, most)
    made = PrefixTrie()
    made._root = _Node(least[:size])
    for member in members:
        made.add(member)
    return made._root


def _common(one: bytes, other: bytes) -> int:
    """Return the length of the common beginning, rounded down to windows."""
    size = 0
    while size + WINDOW <= len(one) and one[size : size + WINDOW] == other[size : size + WINDOW]:
        size += WINDOW
    return size
