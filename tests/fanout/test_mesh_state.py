"""The decisions of a mesh node, over a simulated network: each message exactly once wherever a path lasts."""

from __future__ import annotations

import pytest

from nngkit.fanout.mesh_events import MeshGap, MeshMessage
from nngkit.fanout.mesh_limits import MeshLimits
from nngkit.fanout.mesh_state import MeshState
from nngkit.fanout.mesh_wire import Line, data_frame, key_of, pack_ask, pack_digest
from tests.fanout.mesh_network import MeshNetwork, Node, body_of

NAMES = [f"n{number:02}" for number in range(20)]


def behind(network: MeshNetwork) -> list[tuple[str, str, int | None, int]]:
    """Return the nodes that miss messages of an origin to which they have a path."""
    found = []
    for name, node in network.nodes.items():
        for other in network.component(name) - {name}:
            origin = network.nodes[other]
            position, sent = node.state.position(other, origin.epoch), origin.state.sent
            if sent and position != sent + 1:
                found.append((name, other, position, sent))
    return found


def settle(network: MeshNetwork, seconds: float) -> None:
    """Run until no node misses anything."""
    end = network.clock.now + seconds
    while (missing := behind(network)) and network.clock.now < end:
        network.run(0.1)
    assert not missing


@pytest.mark.parametrize("seed", range(6))
def test_each_message_comes_exactly_once_while_a_third_of_the_links_is_cut(seed: int) -> None:
    network = MeshNetwork(seed, NAMES)
    edges = network.edges()
    for edge in edges:
        network.connect(*edge)
    network.run(0.1)
    doomed = network.rng.sample(edges, len(edges) * 3 // 10)
    for step in range(60):
        for name in network.rng.sample(NAMES, 5):
            network.nodes[name].send(network.rng.randint(1, 5))
        if step % 3 == 0 and doomed:
            network.cut(*doomed.pop())  # with what is on its way
        network.run(0.01)
    settle(network, 5.0)
    for node in network.nodes.values():
        assert not node.gaps
        for other in network.component(node.name) - {node.name}:
            assert node.first.get((other, 1), 1) == 1


@pytest.mark.parametrize("seed", range(6))
def test_cuts_losses_restarts_and_reordering_lose_nothing_silently(seed: int) -> None:
    network = MeshNetwork(seed, NAMES, loss=0.1, duplication=0.05, reordering=0.2, limits=MeshLimits(patience=3.0))
    rng = network.rng
    edges = network.edges()
    for edge in edges:
        network.connect(*edge)
    network.run(1.0)
    for step in range(120):
        for name in rng.sample(NAMES, 4):
            network.nodes[name].send(rng.randint(1, 4))
        chosen = rng.choice(edges)
        if rng.random() < 0.3:
            network.cut(*chosen)
        else:
            network.connect(*rng.choice(edges))
        if step % 30 == 29:
            name = rng.choice(NAMES)
            # the epoch may go back: the clock of the machine did
            network.restart(name, network.nodes[name].epoch + rng.choice([-1, 1000]))
            for edge in edges:
                if name in edge:
                    network.connect(*edge)
        network.run(0.02)
    for edge in edges:
        network.connect(*edge)
    network.run(1.0)
    network.loss = network.duplication = network.reordering = 0.0
    settle(network, 10.0)
