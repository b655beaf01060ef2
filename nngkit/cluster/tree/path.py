"""Path of a node to the root, and the rule by which it takes another one. Pure.

Two nodes that attach to each other at once, each by news that was true a moment ago, make a loop, in which all wait for
ever. A check of the path does not prevent it, as paths are old when they arrive. So each node has a label, which never
falls while a node is attached below it::

    label = (term, number, -depth)     number: given to its path by the root of the term, more than once in a term
                                       depth: the smallest that the node had with this term and number

The rule: a node attaches only to a node that announces a greater label: a later term, or a later number, or the same
ones and a smaller depth than its own smallest. (This is the feasibility condition of Babel, RFC 8966, section 3.5.1.)

It is sound. A node's label comes from its parent's announcement, so the parent's label is greater, at the moment of
attaching and later, as labels do not fall. Along a loop each label would be greater than the one before, and the first
one greater than itself. That news travels slowly changes nothing: what was announced was the label or less.

What the rule forbids is not forbidden for long: the root gives out a new number when it is asked to (`Fresh`), which
arrives at every node of the tree, and at nodes below the one that asks not before it. A node without children has
nothing below it, and may take a lower label, though never an older term.

Invariants:

1. A node's label does not fall while it has children, or has accepted joiners.
2. The label of a parent is greater than that of its child; so there is no loop, at any time.
3. A path of an older term never replaces one of a newer term.
"""

from __future__ import annotations

from msgspec.structs import replace

from nngkit.cluster.tree.messages import MOST_PATH, Ancestry, Label


class Standing:
    """Path and label of one node.

    Attributes:
        path: Ids from the root to the node; () without a path.
        label: See above; None before the first path.
        term: Term of the path, or of the last one.
        known: The highest term that was heard of.
        host: Address of the root.
        leading: True at the root.
    """

    __slots__ = ("host", "id", "known", "label", "leading", "path")

    def __init__(self, own: str) -> None:
        self.id = own
        self.path: tuple[str, ...] = ()
        self.label: Label | None = None
        self.known = 0
        self.host: str | None = None
        self.leading = False

    @property
    def term(self) -> int:
        return self.label.term if self.label else 0

    @property
    def stale(self) -> bool:
        """True if a host of a later term is known."""
        return self.known > self.term

    def hear(self, term: int) -> None:
        """Note a term that has a host."""
        self.known = max(self.known, term)

    def usable(self, place: Ancestry) -> bool:
        """Return True if the announced place has a path that a child could have some day."""
        return 0 < len(place.path) < MOST_PATH and self.id not in place.path and place.term >= self.term

    def allows(self, place: Ancestry, *, childless: bool) -> bool:
        """Return True if the node may attach to a node that announces this place. See the rule above."""
        if not self.usable(place):
            return False
        label = self.label
        if label is None or childless or (place.term, place.number) > (label.term, label.number):
            return True
        return (place.term, place.number) == (label.term, label.number) and len(place.path) <= label.depth

    def attach(self, place: Ancestry) -> None:
        """Take the path below a new parent, which `allows` has approved."""
        self.leading = False
        self.label = Label(place.term, place.number, len(place.path))
        self._set(place)

    def follow(self, place: Ancestry, *, frozen: bool) -> bool:
        """Take the parent's new path; return False if it is none.

        `frozen`: keep the number, because a path with the next number is awaited from another node, and would not be
        allowed any more if the same number came over the parent first.
        """
        label = self.label
        if not self.usable(place) or label is None or (place.term, place.number) < (label.term, label.number):
            return False
        depth = len(place.path)
        if place.term == label.term and (frozen or place.number == label.number):
            self.label = replace(label, depth=min(depth, label.depth))
        else:
            self.label = Label(place.term, place.number, depth)
        self._set(place)
        return True

    def _set(self, place: Ancestry) -> None:
        self.path = (*place.path, self.id)
        self.host = place.host
        self.hear(place.term)

    def lead(self, term: int, address: str | None) -> bool:
        """Become the root of a term; return False if that term is past."""
        if term <= self.term:
            return False
        self.label = Label(term, 0, 0)
        self.path = (self.id,)
        self.host, self.leading = address, True
        self.hear(term)
        return True

    def renumber(self) -> None:
        """Give the next number to the paths of this root."""
        if self.label and self.leading:
            self.label = replace(self.label, number=self.label.number + 1)

    def lose(self) -> None:
        """Have no path any more. The label stays, for those below."""
        self.path = ()
        self.leading = False

    def announced(self, grandparent: str | None, sibling: str | None) -> Ancestry:
        """Return what a child is told."""
        number = self.label.number if self.label else 0
        return Ancestry(self.term, number, self.path, self.host, grandparent, sibling)
