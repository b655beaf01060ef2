"""A node, with all its parts, among others over a virtual clock."""

from __future__ import annotations

from random import Random

import pytest

from nngkit.cluster.admission import make_secret, prove
from nngkit.cluster.frames import (
    Challenge,
    Channel,
    Greeting,
    Proof,
    Refusal,
    greeting_frame,
    local_frame,
    parse_greeting,
    parse_local,
)
from nngkit.cluster.node.node import Node
from nngkit.cluster.node.values import DialRefused, NodeConfig
from nngkit.mesh.wire import DATA
from tests.cluster.node_network import NodeNetwork, Run, history


@pytest.fixture
def host(request: pytest.FixtureRequest) -> Run:
    """Return the host of a small cluster: of one voter, or with another seed as the parameter of three."""
    network = NodeNetwork(getattr(request, "param", 1))
    for name in network.configs:
        network.start(name)
    network.run(5.0)
    (found,) = [run for run in network.nodes.values() if run.node.is_host]
    return found


@pytest.mark.parametrize("seed", range(100, 104))
def test_a_random_history_ends_well(seed: int) -> None:
    history(seed)


def test_a_neighbour_is_cut_off_after_a_hundred_frames_that_cannot_be_read(host: Run) -> None:
    link, now = host.node.tree_links[0], host.network.clock.now
    for number in range(1, 100):
        host.node.received(link, [b"\xff"], now)
        assert host.node.stats.bad == number
    host.act()
    assert link in host.node.tree_links
    host.node.received(link, [b"\xff"], now)
    effects = host.node.take(now)
    assert link in effects.drops
    assert "is cut off after 100 frames that cannot be read" in effects.warnings[-1]
    assert link not in host.node.tree_links
    host.node.link_down(link, now)
    assert not host.node._bad


def test_a_first_frame_that_cannot_be_read_ends_its_link(host: Run) -> None:
    now = host.network.clock.now
    host.node.link_up(999, "mem://x", None, now)
    host.node.received(999, [b"\xff"], now)
    effects = host.node.take(now)
    assert (host.node.stats.bad, effects.drops, len(effects.warnings)) == (1, [999], 1)


def test_nodes_with_a_way_to_them_are_in_reach(host: Run) -> None:
    others = set(host.network.configs) - {host.name}
    assert all(host.node.reach(name) for name in (host.name, *others))
    assert not host.node.reach("stranger")
    member = host.network.nodes[min(others)].node
    assert member.reach("stranger")  # by its parent, which may know it


def test_messages_that_a_node_never_acknowledges_are_counted_in_the_status(host: Run) -> None:
    now = host.network.clock.now
    host.node.letter("stranger", "greeting", b"hello", now)
    later = now + host.node.letters.limits.patience
    host.node.tick(later, later)
    assert host.node.questions.status(later).counters["given_up"] == 1


@pytest.mark.parametrize(("last", "count"), [(60, 5), (61, 4)])
def test_other_nodes_know_kinds_of_300_bytes(host: Run, last: int, count: int) -> None:
    kinds = {f"{letter}{'k' * (size - 1)}": 1 for letter, size in zip("abcde", (60, 60, 60, 60, last), strict=True)}
    name = min(set(host.network.configs) - {host.name})
    host.network.nodes[name].node.set_work(kinds, 1, host.network.clock.now)
    host.network.nodes[name].act()
    host.network.run(0.5)
    (found,) = [each for each in host.node.questions.tree().members if each.id == name]
    assert found.kinds == tuple(sorted(kinds)[:count])


def test_frames_of_unknown_channels_are_counted(host: Run) -> None:
    link, now = host.node.tree_links[0], host.network.clock.now
    host.node.received(link, [local_frame(Channel.ELECTION, [1]), local_frame(Channel.HEARTBEAT, [])], now)
    assert host.node.stats.unknown == 1  # of an election only over a link between voters
    host.node.post(Channel.PLACE, host.name, [1], now)
    assert host.node.stats.unknown == 2
    assert not host.node.stats.bad


def voter_link(host: Run) -> tuple[str, int]:
    """Return a voter and its link."""
    config = host.node.config
    links = {name: host.node.greetings.voter_link(name) for name in config.voters if name != host.name}
    return next((name, link) for name, link in links.items() if link is not None)


@pytest.mark.parametrize("host", [2], indirect=True)
def test_messages_to_all_on_a_link_outside_the_tree_are_counted(host: Run) -> None:
    _, link = voter_link(host)
    host.node.received(link, [b"\xa0", b"\xbf", bytes([DATA]), b"\xa0"], host.network.clock.now)
    assert (host.node.stats.early, host.node.stats.bad) == (4, 0)
    host.node.received(link, [b"\x9f", b"\xc0", b""], host.network.clock.now)
    assert (host.node.stats.early, host.node.stats.bad) == (4, 3)


def greet(node: Node, link: int, hello: Greeting, now: float) -> None:
    """Greet a node as one that has the token: the bytes that docs/wire.md describes."""
    node.received(link, [greeting_frame(hello)], now)
    (frame,) = [frame for to, frames, _ in node.take(now).sends if to == link for frame in frames]
    of_node = parse_greeting(parse_local(frame, limit=1000), None)
    assert isinstance(of_node, Challenge)
    secret = make_secret(hello.cluster, node.config.token, None, lambda: 0.0)
    assert secret is not None
    key = secret.key(of_node.shown)
    assert key is not None
    said = [hello.cluster, hello.id, hello.epoch, bytes(16), b"", hello.voter]
    said += [of_node.id, of_node.epoch, of_node.nonce, of_node.shown]
    node.received(link, [greeting_frame(Proof(bytes(16), b"", prove(key, "dialer", *said)))], now)


@pytest.mark.parametrize("host", [2], indirect=True)
def test_a_later_link_of_a_voter_replaces_the_earlier_which_is_dropped(host: Run) -> None:
    name, link = voter_link(host)
    now, node = host.network.clock.now, host.node
    node.link_up(999, "mem://x", None, now)
    greet(node, 999, Greeting(node.config.cluster, name, node.epoch, True), now)
    assert node.take(now).drops == [link]
    assert node.greetings.voter_link(name) == 999
    node.link_down(link, now)
    assert node.voting is not None
    assert name in node.voting.voter.connected, "it has the later link"
    node.link_down(999, now)
    assert name not in node.voting.voter.connected


def test_a_node_that_is_refused_dials_again() -> None:
    node = Node(
        NodeConfig(cluster="c", id="x", seeds=("mem://a",)),
        epoch=1,
        now=10.0,
        wall=10.0,
        rng=Random(1),
        entropy=Random(1).randbytes,
    )
    node.tick(10.0, 10.0)
    assert node.take(10.0).dials == ["mem://a"]
    node.link_up(1, "mem://a", "mem://a", 10.0)
    node.received(1, [greeting_frame(Refusal("full"))], 10.0)
    effects = node.take(10.0)
    assert (effects.drops, effects.events) == ([1], [DialRefused("mem://a", "full")])
    dials: list[str] = []
    for now in (10.5, 11.0, 11.5):
        node.tick(now, now)
        dials += node.take(now).dials
    assert dials == ["mem://a"]
