"""A node, with all its parts, among others over a virtual clock."""

from __future__ import annotations

import pytest

from tests.cluster.node_network import NodeNetwork, Run, history


@pytest.fixture
def host() -> Run:
    """Return the host of a small cluster."""
    network = NodeNetwork(1)
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
    assert link in host.node.take(now).drops
    assert link not in host.node.tree_links


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
