"""Shape of the tree of a cluster: where a node joins, and which nodes move. Pure functions.

::

    choose(branches, used, leaves, fanout, joiner)  a joiner asks a node: accept it, refer it to a child, or ...
    plan_moves(shape, limit)                        the root, when nothing has changed for a while
    sibling(children, child)                        which child watches which

The rules of `choose` keep a tree that only grows as low as possible:

- A node that may have children (a *host* here) is accepted if there is room, and else referred to the child with the
  fewest hosts below. Subtrees of sizes within one of each other are as low as their size allows, at every level.
- A node that may have none (a *leaf*) goes where hosts have the fewest leaves on average: so 100 clients of 4 hosts are
  25 each. If a host finds leaves in its way, one of them is displaced: it moves below the new host.
- The head of a subtree that lost its parent is accepted beyond the fan-out, up to twice of it: so a tree with a dead
  node is whole again after one exchange, and becomes as low as before by moves, for which no message waits.

`plan_moves` undoes both with few moves: first nodes with more children than their fan-out, then nodes that are more
than one level below the ideal depth, each by moving the largest subtree that fits elsewhere. Then it moves leaves: away
from busy hosts, one after the other, and until no other host has two more than another one with a free place.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeVar

SLACK: Final = 2  # times the fan-out that a node accepts of moved or orphaned subtrees: its own, and those of one child
REPAIR: Final = 16  # moves of the longest repair: with 4, one of 10,000 random trees was repaired for ever

K = TypeVar("K", bound=Hashable)


class Branch(NamedTuple):
    """Subtree of one child, itself included: nodes that may have children, nodes that may not, free places."""

    hosts: int
    leaves: int
    free: int


class Joiner(NamedTuple):
    """Node that looks for a parent: how many children it may have, and the nodes of its subtree."""

    fanout: int
    size: int = 1


class Decision(NamedTuple):
    """Answer to a joiner. ``child``: the one to ask, or to displace."""

    kind: Literal["accept", "refer", "displace", "full"]
    child: object = None


def choose(branches: Mapping[K, Branch], used: int, fanout: int, joiner: Joiner) -> Decision:
    """Return what a node with these children answers to a joiner.

    `branches`: children that may be asked or displaced. `used`: places of the node that are taken or promised.
    """
    single_leaves = [child for child, branch in branches.items() if branch.hosts == 0]
    if joiner.fanout > 0 or joiner.size > 1:
        if used < fanout or (joiner.size > 1 and used < SLACK * fanout):
            return Decision("accept")
        if single_leaves and used < SLACK * fanout:
            return Decision("displace", single_leaves[0])
        # Without free places a host still finds a leaf to displace, unless the subtree has none. The child with the
        # fewest hosts comes first even then: hosts would crowd where places are free, several levels too deep.
        able = {child: each for child, each in branches.items() if each.hosts and (each.free or each.leaves)}
        if not able:
            return Decision("full")
        return Decision(
            "refer", min(able, key=lambda child: (able[child].hosts, not able[child].free, sum(able[child])))
        )
    best: float | None = len(single_leaves) if used < fanout else None
    chosen: object = None
    for child, branch in branches.items():
        if branch.hosts and branch.free and (best is None or branch.leaves / branch.hosts < best):
            best, chosen = branch.leaves / branch.hosts, child
    if best is None:
        return Decision("full")
    return Decision("accept") if chosen is None else Decision("refer", chosen)


def sibling(children: Sequence[K], child: K) -> K | None:
    """Return the child that `child` watches: the next one in turn. None if there is no other.

    `children` need not contain `child`: it then watches the first one.
    """
    if child not in children:
        return children[0] if children else None
    other = children[(children.index(child) + 1) % len(children)]
    return other if other != child else None


class Shape(NamedTuple):
    """A tree: parents by node, None for the root; how many children a node may have; and which nodes have too much to
    do."""

    parents: Mapping[str, str | None]
    fanout: Mapping[str, int]
    busy: frozenset[str] = frozenset()


class Move(NamedTuple):
    """One move: the node, with its subtree, attaches to another parent."""

    node: str
    parent: str


def depths_of(parents: Mapping[str, str | None]) -> dict[str, int]:
    """Return the depths of the nodes below a root, which has 0. Nodes that no root reaches are left out."""
    return _depths(_children(parents))


def _children(parents: Mapping[str, str | None]) -> dict[str | None, list[str]]:
    children: dict[str | None, list[str]] = {}
    for node, parent in parents.items():
        children.setdefault(parent, []).append(node)
    return children


def _depths(children: Mapping[str | None, list[str]]) -> dict[str, int]:
    depths: dict[str, int] = {}
    level, depth = children.get(None, []), 0
    while level:
        depths |= dict.fromkeys(level, depth)
        level = [child for node in level for child in children.get(node, ())]
        depth += 1
    return depths


def ideal_depth(fanouts: Iterable[int]) -> int:
    """Return the smallest depth of a tree of nodes that may have so many children each.

    The nodes with the highest fan-out stand on top. If the places do not suffice, the rest is ignored.
    """
    left = sorted(fanouts, reverse=True)
    depth, places, at = 0, 1, 0
    while at + places < len(left) and (below := sum(left[at : at + places])):
        depth, places, at = depth + 1, below, at + places
    return depth


def plan_moves(shape: Shape, limit: int, *, avoid: Collection[Move] = (), lighten: Collection[str] = ()) -> list[Move]:
    """Return at most `limit` moves, to be made in this order, after which the tree is lower or its nodes less crowded.

    `limit`: at least `REPAIR`: half of a repair may leave a tree for which another one is planned, and so on for ever.
    `lighten`: busy hosts that give away a leaf each. No node is moved below itself.

    Without a move, no node has more children than its fan-out, none is deeper than one level below the ideal, and no
    host has over one leaf more than another that is not busy and has a free place for it, unless the moves of `avoid`
    were needed.
    """
    limit = max(limit, REPAIR)
    plan = _Plan(shape, frozenset(avoid))
    while len(plan.moves) < limit and (plan.relieve() or plan.lift() or plan.disperse()):
        pass
    plan.even(limit, lighten)
    return plan.moves[:limit]


class _Plan:
    """A tree on which moves are tried."""

    def __init__(self, shape: Shape, avoid: frozenset[Move]) -> None:
        self.fanout = shape.fanout
        self.busy = shape.busy
        self.parents = dict(shape.parents)
        self.avoid = avoid
        self.moves: list[Move] = []
        self.moved: set[str] = set()
        reached = depths_of(self.parents)
        self.parents = {node: parent for node, parent in self.parents.items() if node in reached}
        self.limit = ideal_depth(self.fanout[node] for node in self.parents) + 1
        self._measure()

    def _measure(self) -> None:
        self.children = _children(self.parents)
        self.depths = _depths(self.children)
        self.heights = dict.fromkeys(self.parents, 0)
        for node in sorted(self.parents, key=self.depths.__getitem__, reverse=True):
            parent = self.parents[node]
            if parent is not None:
                self.heights[parent] = max(self.heights[parent], self.heights[node] + 1)
        self.slots = sorted(
            (node for node in self.parents if self._free(node) > 0), key=lambda node: (self.depths[node], node)
        )

    def _free(self, node: str) -> int:
        return self.fanout[node] - len(self.children.get(node, ()))

    def _below(self, node: str | None, head: str) -> bool:
        """Return True if `node` is `head` or below it."""
        while node is not None and node != head:
            node = self.parents[node]
        return node == head

    def _move(self, node: str, parent: str) -> bool:
        move = Move(node, parent)
        if move in self.avoid or node in self.moved:
            return False
        self.moves.append(move)
        self.moved.add(node)
        self.parents[node] = parent
        self._measure()
        return True

    def _place(self, node: str, deepest: int) -> bool:
        """Move a node to a free place at which its subtree ends at `deepest` or above: the deepest such place."""
        found = None
        for slot in self.slots:
            if self.depths[slot] + 1 + self.heights[node] > deepest:
                break
            if slot != self.parents[node] and Move(node, slot) not in self.avoid and not self._below(slot, node):
                found = slot
        return found is not None and self._move(node, found)

    def even(self, limit: int, lighten: Collection[str]) -> None:
        """Move leaves: one from each host that is to be lightened, then from hosts with more of them than others."""
        leaves = _Leaves(self)
        for host in sorted(leaves.of.keys() & lighten):
            leaves.give(host, -len(self.parents))
        givers = [host for host in sorted(leaves.of) if host not in self.busy and leaves.count[host] > 1]
        while givers and len(self.moves) < limit:
            most = max(givers, key=lambda host: (leaves.count[host], host))
            if not leaves.give(most, 2):
                givers.remove(most)

    def _crowded(self) -> list[tuple[str, list[str]]]:
        """Return the nodes with too many children, and these: hosts without children last, as others fit below them."""
        found = []
        for node in self.parents:
            if self._free(node) < 0:
                movable = [child for child in self.children[node] if child not in self.moved]
                movable.sort(
                    key=lambda child: (self._free(child) == self.fanout[child] != 0, self.heights[child], child)
                )
                found.append((node, movable))
        return found

    def disperse(self) -> bool:
        """Move a child of a crowded node to the highest free place, however deep, where nothing better is possible."""
        for _, movable in self._crowded():
            for child in movable:
                for slot in self.slots:
                    if slot != self.parents[child] and not self._below(slot, child) and self._move(child, slot):
                        return True
        return False

    def relieve(self) -> bool:
        """Move a child of a crowded node elsewhere; first make room by a node without children, if there is none."""
        for node, movable in self._crowded():
            if any(self._place(child, self.limit) for child in movable):
                return True
            if any(self._relay(node, child) for child in movable):
                return True
            if any(self._shrink(child) for child in movable):
                return True
        return False

    def _shrink(self, child: str) -> bool:
        """Move a node up from the deepest level, so that the subtree of `child` will fit one level below."""
        if self.depths[child] + self.heights[child] < self.limit:
            return False
        level = [child]
        while below := [each for node in level for each in self.children.get(node, ())]:
            level = below
        return any(self._place(node, self.limit - 1) for node in sorted(level) if node not in self.moved)

    def _relay(self, node: str, child: str) -> bool:
        """Bring a host without children to `node`, for subtrees that need a place there."""
        if self.depths[node] + 2 + self.heights[child] > self.limit:
            return False
        spare = [
            each
            for each in self.slots
            if each not in self.moved and not self.heights[each] and self.depths[each] > self.depths[node] + 1
        ]
        return any(self._move(each, node) for each in reversed(spare) if not self._below(each, child))

    def lift(self) -> bool:
        """Move a subtree up that ends below the limit; or exchange a high leaf for it, if there is no free place."""
        deepest = max(self.parents, key=lambda node: (self.depths[node], node), default=None)
        if deepest is None or self.depths[deepest] <= self.limit:
            return False
        line = [deepest]
        while (parent := self.parents[line[-1]]) is not None:
            line.append(parent)
        heads = [node for node in line[-2::-1] if node not in self.moved]  # the largest subtree first
        if any(self._place(head, self.limit) for head in heads):
            return True
        if any(self._place(head, self.depths[deepest] - 1) for head in heads):
            return True
        return any(self._exchange(head) for head in heads)

    def _exchange(self, head: str) -> bool:
        """Move a leaf that stands higher than `head` to a free place, and `head` to its place.

        Without a free place the leaf gets that of `head`, whose new parent has one child too many for a moment.
        """
        if not self.fanout[head]:
            return False
        leaves = [node for node in self.parents if not self.fanout[node] and node not in self.moved]
        leaf = min(leaves, key=lambda node: (self.depths[node], node), default=None)
        if leaf is None or self.depths[leaf] >= self.depths[head]:
            return False
        above, left = self.parents[leaf], self.parents[head]
        if above is None or left is None or Move(head, above) in self.avoid or self._below(above, head):
            return False
        if not self.slots:
            return Move(leaf, left) not in self.avoid and self._move(head, above) and self._move(leaf, left)
        slot = head if self._free(head) > 0 else self.slots[-1]
        return slot != above and self._move(leaf, slot) and self._move(head, above)


class _Leaves:
    """Leaves of the hosts of a plan: `of` has those that may be moved, by host."""

    def __init__(self, plan: _Plan) -> None:
        self.plan = plan
        self.of: dict[str, list[str]] = {host: [] for host in plan.depths if plan.fanout[host]}
        self.count = dict.fromkeys(self.of, 0)
        for node, parent in plan.parents.items():
            if parent in self.of and not plan.fanout[node]:
                self.count[parent] += 1
                if node not in plan.moved:
                    self.of[parent].append(node)
        self.free = {host: plan._free(host) for host in self.of}
        self.takers = [host for host in self.of if host not in plan.busy and plan.depths[host] < plan.limit]

    def give(self, host: str, least: int) -> bool:
        """Move a leaf of `host` to the one with the fewest, if these are at least `least` fewer."""
        able = [each for each in self.takers if self.free[each] > 0 and self.count[each] <= self.count[host] - least]
        for taker in sorted(able, key=lambda each: (self.count[each], self.plan.depths[each], each)):
            for leaf in self.of[host]:
                if (move := Move(leaf, taker)) not in self.plan.avoid:
                    self.of[host].remove(leaf)
                    self.plan.moves.append(move)
                    for each, change in ((host, -1), (taker, 1)):
                        self.count[each] += change
                        self.free[each] -= change
                    return True
        return False
