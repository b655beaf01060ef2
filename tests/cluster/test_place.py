"""Places in the tree: joining, healing, moves, partitions, ids used twice; and random histories of all of these."""

from __future__ import annotations

import contextlib
import os
from random import Random

import pytest
from msgspec.structs import replace

from nngkit.cluster.tree.messages import (
    KINDS,
    MOST_ROWS,
    Accept,
    Ancestry,
    Attach,
    Expel,
    Hello,
    Join,
    Label,
    Member,
    Members,
    Message,
    Move,
    Refer,
    Refuse,
    Wait,
)
from nngkit.cluster.tree.path import Standing
from nngkit.cluster.tree.place import Place
from nngkit.cluster.tree.values import Attached, PlaceLimits, PlaceRefused
from nngkit.envelope import decode, encode
from nngkit.errors import BadMessage, ConfigError
from tests.cluster import place_network
from tests.cluster.place_network import Node, PlaceNetwork

HISTORIES = int(os.environ.get("NNGKIT_PLACE_HISTORIES", "30"))
BROKEN = {
    10180: "a move to a deeper place ended before a new number had come up and down slow links",
    30361: "the root moved a leaf to a node that referred it further down, again and again",
    50628: "the tree stayed too deep, as failed moves were planned anew at growing intervals",
    21002785: "a node has the id of another, whose path is no loop",
    21005911: "the same, at the node that had the id first",
    21003271: "an attempt was due by its end, but not by its age: now - since was rounded down",
    21011391: "all places were taken, so a tree that was too deep stayed so",
}


def cluster(size: int, *, fanout: int = 4, seed: int = 1, voters: int = 3) -> PlaceNetwork:
    """Return a cluster that has settled, and has its standby links."""
    network = PlaceNetwork(seed, voters, fanout=fanout)
    for name in [*network.voters, *(f"n{number:02}" for number in range(size - voters))]:
        network.add(name)
    network.settle(20.0)
    network.run(3.0)
    return network


def inner(network: PlaceNetwork) -> Node:
    """Return the node with most members below it that is neither root nor voter."""
    others = [node for name, node in network.nodes.items() if name not in network.voters]
    return max(others, key=lambda node: len(node.members))


def heal(network: PlaceNetwork, *victims: str) -> float:
    """Kill nodes; return the seconds until all others have a path, from the new host's election if there is one."""
    host, began = network.host, network.net.now
    for name in victims:
        network.kill(name)
    if host in victims:
        network.until(lambda: network.host != host, 5.0)
        began = network.net.now
    network.run(0.0015)  # the ends of the links arrive
    network.until(network.attached, 10.0)
    return network.net.now - began


def test_fifty_nodes_join_at_once_into_a_tree_of_least_depth() -> None:
    network = PlaceNetwork(3, 3, fanout=4)
    for name in [*network.voters, *(f"n{number:02}" for number in range(47))]:
        network.add(name)
    assert network.until(network.attached, 1.0) < 0.5
    network.settle(5.0)
    assert max(len(node.place.path) for node in network.nodes.values()) <= 1 + 4


def test_a_hundred_clients_are_spread_evenly_over_four_hosts() -> None:
    network = PlaceNetwork(4, 3, fanout=32)
    for name in [*network.voters, "h4"]:
        network.add(name)
    network.settle(5.0)
    for number in range(100):
        network.add(f"c{number:03}", fanout=0)
        network.run(0.05)
    network.settle(5.0)
    clients = [
        sum(child.startswith("c") for child in network.nodes[name].place.children.values())
        for name in [*network.voters, "h4"]
    ]
    assert clients == [25] * 4


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_root_is_replaced_within_a_few_round_trips(seed: int) -> None:
    network = cluster(50, seed=seed)
    assert heal(network, network.host or "") < 0.1
    network.settle(5.0)


@pytest.mark.parametrize("seed", range(4))
def test_orphans_of_an_inner_node_attach_to_their_grandparent(seed: int) -> None:
    network = cluster(50, seed=seed)
    assert heal(network, inner(network).name) < 0.05
    network.settle(5.0)


def test_two_levels_die_at_once() -> None:
    network = cluster(80, fanout=3)
    node = next(
        node
        for name, node in network.nodes.items()
        if len(node.place.path) == 3 and node.children and not {name, *node.place.path[1:]} & set(network.voters)
    )
    assert heal(network, node.place.path[1], node.name) < 0.3
    network.settle(10.0)


def test_the_root_and_an_inner_node_die_at_once() -> None:
    network = cluster(50)
    assert heal(network, network.host or "", inner(network).name) < 0.3
    network.settle(10.0)


def test_a_silent_machine_is_noticed_by_its_neighbours() -> None:
    network = cluster(20)
    name = inner(network).name
    network.kill(name, silently=True)
    network.settle(5.0)
    told = [event for node in network.nodes.values() for event in node.silent]
    assert {event.id for event in told} == {name}
    assert min(event.seconds for event in told) >= PlaceLimits().silence


def test_the_side_of_a_minority_keeps_its_shape_and_returns() -> None:
    network = cluster(30, fanout=3)
    head = inner(network)
    if head.place.path[1] != head.name:
        head = network.nodes[head.place.path[1]]
    side = {head.name, *head.members} - set(network.voters)
    network.split(side)
    network.run(3.0)
    assert head.place.path == ()
    parents = {name: above.name for name in side if (above := network.above(network.nodes[name])) is not None}
    assert set(parents) >= side - {head.name} - {name for name in side if network.nodes[name].place.parent is None}
    assert all(network.nodes[name].place.path == () for name in side)
    network.heal()
    network.settle(10.0)


def test_a_separated_host_becomes_a_member_when_it_is_back() -> None:
    network = cluster(20)
    old = network.host or ""
    network.split({old})
    network.until(lambda: network.host != old, 5.0)
    network.run(2.0)
    assert not network.nodes[old].place.path
    network.heal()
    network.settle(10.0)
    assert network.nodes[old].place.term == 2


def test_a_restarted_node_is_the_same_member_with_a_new_epoch() -> None:
    network = cluster(20)
    name = inner(network).name
    network.kill(name, silently=True)
    network.add(name)
    network.settle(10.0)
    assert not network.nodes[name].refusals


def test_the_later_of_two_nodes_with_one_id_is_refused_with_the_address_of_the_other() -> None:
    network = cluster(30)
    first = inner(network).name
    later = network.add("impostor", id=first)
    network.run(3.0)
    final = [each for each in later.refusals if each.final]
    assert final, later.refusals
    assert network.address(first) in final[0].why
    network.kill("impostor")
    network.settle(5.0)


def test_a_node_that_leaves_hands_its_children_on_first() -> None:
    network = cluster(30)
    node = inner(network)
    children = [network.nodes[name] for name in node.children.values()]
    assert children
    losses = [child.place.stats.lost for child in children]
    network.leave(node.name)
    network.until(lambda: node.gone, 5.0)
    network.kill(node.name)
    assert [child.place.stats.lost for child in children] == losses
    assert all(child.place.path for child in children)
    network.settle(5.0)


def test_facts_reach_the_root() -> None:
    network = cluster(10, fanout=2)
    node = network.nodes["n06"]
    node.place.set_facts({"slots": 7}, network.net.now)
    node.step()
    network.run(0.1)
    member = network.nodes[network.host or ""].place.member("n06")
    assert member is not None
    assert member.facts == {"slots": 7}


def test_a_full_cluster_refuses() -> None:
    network = PlaceNetwork(1, 1, fanout=4, limits=PlaceLimits(members=5))
    for name in ("v0", *(f"n{number}" for number in range(5))):
        network.add(name)
    network.run(2.0)
    root = network.nodes["v0"].place
    assert len(root.members()) == 5
    late = network.add("late")
    network.run(2.0)
    assert not late.place.path
    assert "full" in late.refusals[0].why
    assert not late.refusals[0].final


def test_the_label_forbids_a_parent_that_may_be_below() -> None:
    standing = Standing("a")
    standing.attach(Ancestry(3, 5, ("r", "b"), None, None, None))
    assert standing.label == Label(3, 5, 2)

    def allows(term: int, number: int, *path: str, childless: bool = False) -> bool:
        return standing.allows(Ancestry(term, number, path, None, None, None), childless=childless)

    assert allows(3, 5, "r", "c")  # its depth is 1
    assert not allows(3, 5, "r", "c", "d")  # as deep as this node: it may be below it
    assert allows(3, 5, "r", "c", "d", childless=True)
    assert allows(3, 6, "r", "c", "d", "e")
    assert not allows(3, 4, "r")
    assert not allows(3, 6, "r", "a", "d")
    assert not allows(2, 9, "r", childless=True)
    assert allows(4, 0, "s", "x", "y", "z")
    assert not allows(4, 0)


def test_a_lost_path_keeps_its_label() -> None:
    standing = Standing("a")
    standing.attach(Ancestry(3, 5, ("r", "b"), None, None, None))
    standing.lose()
    assert standing.path == ()
    assert standing.label == Label(3, 5, 2)
    assert not standing.lead(3, None)
    assert standing.lead(4, None)


MEMBER = Member("n", 1, 2, "p", "tcp://n:1", 4, {"slots": 2, "kinds": ["a"]})
MESSAGES: list[Message] = [
    Hello("a", 5, "join", None, 3),
    Join(Label(1, 2, 3), 1, 2, True, 8, 100, "p", True),
    Join(None, 0, 0, False, 0, 1, None, False),
    Accept(Ancestry(1, 2, ("r", "a"), "tcp://r:1", None, "tcp://s:1"), {"r": "tcp://r:1"}),
    Refer(("tcp://a:1",), 3, "why"),
    Refuse("why", True),
    Wait(False),
    Attach(3, 8, {"slots": 2}),
    Members((MEMBER,), ("x", "y")),
    Move("n", 1, "p", "tcp://p:1"),
    Expel("n", 1, "why"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_survive_the_wire_and_nothing_else_does(message: Message) -> None:
    row = decode(encode(KINDS.pack(message)), what="test")
    assert KINDS.parse(row, None) == message
    assert KINDS.parse([*row, "of a later version"], None) == message
    for cut in range(1, len(row)):
        with pytest.raises(BadMessage):
            KINDS.parse(row[:cut], "tcp://x:1")
    rng = Random(7)
    for _ in range(300):
        wrong = list(row)
        value: object = rng.choice([None, -1, 2**60, "x" * 300, "\n", [], {}, True, b"", 1.5, [[]], ["\0"], {"": 1}])
        wrong[rng.randrange(len(wrong))] = value
        with contextlib.suppress(BadMessage):
            KINDS.parse(wrong, None)


@pytest.mark.parametrize(
    "message",
    [
        Hello("a", 5, "join", "tcp://a b:1", 3),
        Accept(Ancestry(1, 2, ("r", "a"), "tcp://r:1", None, "tcp://s :1"), {}),
        Accept(Ancestry(1, 2, ("r", "a"), None, None, None), {"r": "tcp:// r:1"}),
        Refer(("tcp://a:1", "tcp://b :1"), 3, "why"),
        Members((replace(MEMBER, address="tcp://n 1:1"),), ()),
        Move("n", 1, "p", "tcp://p :1"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_an_address_with_a_space_is_refused(message: Message) -> None:
    with pytest.raises(BadMessage, match="it is no address"):
        KINDS.parse(decode(encode(KINDS.pack(message)), what="test"), None)


def test_kinds_of_a_later_version_are_ignored() -> None:
    assert KINDS.parse([99, "what"], None) is None
    wrong: tuple[object, ...] = (None, [], ["x"], [True], {})
    for row in wrong:
        with pytest.raises(BadMessage):
            KINDS.parse(row, None)


def test_a_full_message_of_members_fits_into_a_control_message() -> None:
    member = Member("n" * 64, 2**53 - 1, 2**53 - 1, "p" * 64, "a" * 256, 4096, {"kinds": "k" * 490})
    assert KINDS.parse(decode(encode(KINDS.pack(Members((member,) * MOST_ROWS, ()))), what="test"), None) is not None


def test_unusable_options_are_named() -> None:
    for change in ({"id": ""}, {"id": "x" * 65}, {"epoch": -1}, {"fanout": 0}, {"facts": {"x": "y" * 600}}):
        options = {"id": "a", "epoch": 1, "fanout": 2} | change
        with pytest.raises(ConfigError):
            Place(**options, address=None, seeds=(), voters={}, may_host=False, now=0.0, rng=Random(1))  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        PlaceLimits(heartbeat=0.0)


def test_a_single_host_attaches_to_itself() -> None:
    place = Place("a", 1, address="x", seeds=(), voters={"a": "x"}, fanout=2, may_host=True, now=0.0, rng=Random(1))
    place.lead(1, 0.0)
    assert Attached(1, "a", None) in place.take().events
    assert place.path == ("a",)
    assert place.shape().parents == {"a": None}
    place.lead(1, 0.0)
    assert place.stats.unexpected == 1


def test_messages_before_a_greeting_end_the_link() -> None:
    place = Place("a", 1, address="x", seeds=(), voters={}, fanout=2, may_host=True, now=0.0, rng=Random(1))
    place.link_up(3, 0.0, dialed=None)
    place.receive(3, Wait(False), 0.0)
    assert place.take().drop == [3]
    assert not any(isinstance(event, PlaceRefused) for event in place.take().events)


@pytest.mark.parametrize("seed", BROKEN, ids=str)
def test_a_history_that_once_failed(seed: int) -> None:
    place_network.history(seed)


@pytest.mark.parametrize("part", range(3))
def test_random_histories_end_with_one_tree_and_exact_routes(part: int) -> None:
    for seed in range(part, HISTORIES, 3):
        place_network.history(seed)


@pytest.mark.slow
def test_many_random_histories() -> None:
    for seed in range(1000, 1000 + 10 * HISTORIES):
        place_network.history(seed)
