"""Shapes of the tree: trees grown by `choose` are as low as can be, and `plan_moves` repairs any other."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from nngkit.cluster.tree.members import MemberTable
from nngkit.cluster.tree.messages import Member
from nngkit.cluster.tree.shape import (
    Branch,
    Decision,
    Joiner,
    Move,
    Shape,
    choose,
    depths_of,
    ideal_depth,
    plan_moves,
    sibling,
)


def grown(fanouts: list[int]) -> Shape:
    """Return the tree of nodes that joined in this order, each at the root; the first one is the root."""
    parents: dict[str, str | None] = {"0": None}
    fanout = {str(number): each for number, each in enumerate(fanouts)}

    def branch(node: str) -> Branch:
        below, todo = [], [node]
        while todo:
            here = todo.pop()
            below.append(here)
            todo += [each for each, parent in parents.items() if parent == here]
        hosts = sum(fanout[each] > 0 for each in below)
        return Branch(hosts, len(below) - hosts, max(0, sum(fanout[each] for each in below) - len(below) + 1))

    for number in range(1, len(fanouts)):
        name, here = str(number), "0"
        while True:
            children = [each for each, parent in parents.items() if parent == here]
            decision = choose(
                {each: branch(each) for each in children}, len(children), fanout[here], Joiner(fanout[name])
            )
            if decision.kind == "full":
                break
            if decision.kind != "refer":
                parents[name] = here
                if decision.kind == "displace":
                    parents[str(decision.child)] = name
                break
            here = str(decision.child)
    return Shape(parents, fanout)


def crowded(shape: Shape) -> list[str]:
    count = Counter(shape.parents.values())
    return [node for node in shape.parents if count[node] > shape.fanout[node]]


def carried_out(shape: Shape, moves: list[Move]) -> Shape:
    parents = dict(shape.parents)
    for move in moves:
        here: str | None = move.parent
        while here is not None:
            assert here != move.node, "a node moved below itself"
            here = parents[here]
        parents[move.node] = move.parent
    return shape._replace(parents=parents)


@given(st.integers(1, 120), st.integers(1, 8))
def test_a_tree_that_only_grows_is_as_low_as_its_size_allows(size: int, fanout: int) -> None:
    if fanout == 1:
        size = min(size, 20)
    shape = grown([fanout] * size)
    assert len(shape.parents) == size
    assert not crowded(shape)
    assert max(depths_of(shape.parents).values()) == ideal_depth([fanout] * size)


def test_leaves_are_spread_evenly_over_the_hosts() -> None:
    shape = grown([40] * 4 + [0] * 100)
    leaves = Counter(parent for node, parent in shape.parents.items() if shape.fanout[node] == 0)
    assert sorted(leaves.values()) == [25, 25, 25, 25]


@given(st.lists(st.sampled_from([0, 3]), max_size=40))
@example([0, 0, 0, 3, 0, 0, 3, 0, 0, 3, 0, 0, 3, 0, 3, 0, 0, 3, 0, 0, 3, 3, 3, 3])  # one host was two levels too deep
def test_a_host_finds_a_place_although_leaves_came_first(kinds: list[int]) -> None:
    shape = grown([3, *kinds])
    hosts = [node for node in shape.parents if shape.fanout[node]]
    assert len(hosts) == 1 + kinds.count(3)
    assert not crowded(shape)
    depths = depths_of(shape.parents)
    assert max(depths[node] for node in hosts) == ideal_depth([3] * len(hosts))
    assert max(depths.values()) <= ideal_depth(shape.fanout.values()) + 1


def test_the_ideal_depth() -> None:
    assert ideal_depth([]) == 0
    assert ideal_depth([2]) == 0
    assert ideal_depth([2] * 3) == 1
    assert ideal_depth([2] * 4) == 2
    assert ideal_depth([0, 2, 0]) == 1
    assert ideal_depth([1] * 5) == 4
    assert ideal_depth([8] * 10_000) == 5


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Draw a tree of any form: chains, stars, crowded nodes, leaves above hosts."""
    fanout = draw(st.integers(2, 5))
    size = draw(st.integers(1, 60))
    rng = Random(draw(st.integers(0, 2**32)))
    leaves = draw(st.sampled_from([0.0, 0.0, 0.3, 0.6]))
    chain = draw(st.floats(0, 1))
    parents: dict[str, str | None] = {"0": None}
    fanouts = {"0": fanout}
    count: Counter[str] = Counter()
    for number in range(1, size):
        hosts = [node for node in parents if fanouts[node] and count[node] < 2 * fanouts[node]]
        parent = hosts[-1] if rng.random() < chain else rng.choice(hosts)
        count[parent] += 1
        parents[str(number)] = parent
        fanouts[str(number)] = 0 if rng.random() < leaves else fanout
        if sum(fanouts.values()) < number:  # as many places as nodes at least: some trees are full
            fanouts[str(number)] = fanout
    return Shape(parents, fanouts)


@settings(max_examples=100)
@given(shapes(), st.integers(16, 32))
def test_plans_end_with_a_low_tree_of_uncrowded_nodes(shape: Shape, limit: int) -> None:
    for _ in range(200):
        moves = plan_moves(shape, limit)
        assert len(moves) <= limit
        if not moves:
            break
        shape = carried_out(shape, moves)
    else:
        raise AssertionError("plans without end")
    assert not crowded(shape)
    depths = depths_of(shape.parents)
    assert len(depths) == len(shape.parents)
    deepest = ideal_depth(shape.fanout[node] for node in shape.parents) + 1
    assert max(depths.values()) <= deepest
    leaves = Counter(parent for node, parent in shape.parents.items() if not shape.fanout[node])
    children = Counter(shape.parents.values())
    able = [host for host, most in shape.fanout.items() if children[host] < most and depths[host] < deepest]
    assert max(leaves.values(), default=0) - min((leaves[host] for host in able), default=99) <= 1


def test_in_a_full_tree_leaves_and_hosts_change_places() -> None:
    """A chain of hosts with a leaf each: no place is free, and every host is deeper than the leaf above it."""
    parents: dict[str, str | None] = {"h0": None}
    for number in range(1, 12):
        parents |= {f"h{number}": f"h{number - 1}", f"l{number}": f"h{number - 1}"}
    parents |= {"l12": "h11", "l13": "h11"}
    shape = Shape(parents, {node: 2 if node.startswith("h") else 0 for node in parents})
    while moves := plan_moves(shape, 16):
        shape = carried_out(shape, moves)
        assert max(Counter(shape.parents.values()).values()) == 2
    assert max(depths_of(shape.parents).values()) == ideal_depth(shape.fanout.values()) + 1


def test_leaves_leave_a_busy_host_one_by_one() -> None:
    shape = grown([9] * 3 + [0] * 12)
    assert Counter(shape.parents[str(leaf)] for leaf in range(3, 15)) == {"0": 4, "1": 4, "2": 4}
    shape = shape._replace(busy=frozenset(["1"]))
    assert plan_moves(shape, 16) == []
    for left in (3, 2):
        shape = carried_out(shape, plan_moves(shape, 16, lighten=["1"]))
        assert Counter(shape.parents.values())["1"] == left
    assert plan_moves(shape, 16) == []
    again = carried_out(shape, plan_moves(shape._replace(busy=frozenset()), 16))
    assert Counter(again.parents[str(leaf)] for leaf in range(3, 15)) == {"0": 4, "1": 4, "2": 4}


def test_a_good_tree_is_left_alone() -> None:
    assert plan_moves(grown([4] * 50), 16) == []


def test_a_dead_node_costs_one_move_for_each_child_and_one_for_the_node_that_takes_its_place() -> None:
    shape = grown([4] * 85)  # complete: 1 + 4 + 16 + 64
    dead = next(node for node, parent in shape.parents.items() if parent == "0")
    parents = {node: "0" if parent == dead else parent for node, parent in shape.parents.items() if node != dead}
    moves = plan_moves(Shape(parents, shape.fanout), 100)
    assert len(moves) <= 6
    after = carried_out(Shape(parents, shape.fanout), moves)
    assert not crowded(after)


def test_moves_to_avoid_are_avoided() -> None:
    parents: dict[str, str | None] = {"0": None} | {str(number): "0" for number in range(1, 6)}
    shape = Shape(parents, dict.fromkeys(parents, 4))
    moves = plan_moves(shape, 16)
    assert len(moves) == 1
    assert moves[0] not in plan_moves(shape, 16, avoid=moves)


def test_each_child_watches_the_next_one() -> None:
    assert [sibling(["a", "b", "c"], child) for child in "abc"] == ["b", "c", "a"]
    assert sibling(["a"], "a") is None
    assert sibling([], "a") is None
    assert sibling(["a"], "z") == "a"


def test_the_head_of_a_subtree_is_accepted_beyond_the_fanout() -> None:
    branches = {"a": Branch(1, 0, 2)}
    assert choose(branches, 2, 2, Joiner(2, size=5)) == Decision("accept")
    assert choose(branches, 4, 2, Joiner(2, size=5)) == Decision("refer", "a")
    assert choose(branches, 2, 2, Joiner(2)) == Decision("refer", "a")


def test_without_a_free_place_a_leaf_is_refused() -> None:
    assert choose({"a": Branch(1, 2, 0)}, 1, 1, Joiner(0)) == Decision("full")


def test_members_that_come_and_go_leave_nothing_at_a_root() -> None:
    """It has no parent, which would take the news of them."""
    table = MemberTable(4)
    for number in range(3):
        table.add(1, Member(f"m{number}", 1, 0, "host", None, 0, {}))
        table.remove(1, f"m{number}")
    assert not table.waiting
