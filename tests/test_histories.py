"""Simulated histories send what they sent when they were recorded: a seed is the same history in each run and version.

The checks inside the simulators say what must hold; the record notices that anything else has changed, as a bound, a
timing or a counter does. A digest that differs is no error by itself: look at what has changed, and if it is meant,
write the record anew: `python -m tests.test_histories`. (Endpoints are not among them: trio runs the tasks of a turn in
random order; `nodes` are all that is in an endpoint, without its tasks.)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import pytest

from nngkit.testing.network import Conditions, Network
from tests.cluster import documents_network, election_network, node_network, place_network, work_network
from tests.discovery.test_registry_invariants import Daemon
from tests.documents import schedules
from tests.fanout.mesh_network import Link as MeshLink
from tests.fanout.mesh_network import MeshNetwork

RECORD: Final = Path(__file__).parent / "histories.json"


def documents(seed: int) -> Iterable[object]:
    """Play documents and shared objects of a cluster, and return what its nodes count."""
    cluster = documents_network.history(seed)
    return [node.documents.wake_at for _, node in sorted(cluster.nodes.items())]


def election(seed: int) -> Iterable[object]:
    """Play elections and commits, and return what the voters count."""
    network = election_network.ElectionNetwork(seed)
    network.play()
    return [(member.running.stats, member.running.wake_at) for _, member in sorted(network.members.items())]


def place(seed: int) -> Iterable[object]:
    """Play a tree of nodes, and return what they count."""
    network = place_network.history(seed)
    return [(node.place.stats, node.place.wake_at) for _, node in sorted(network.nodes.items())]


def work(seed: int) -> Iterable[object]:
    """Play jobs on nodes, and return what they and the host count."""
    cluster = work_network.history(seed)
    nodes = [(node.done, node.crew.stats, node.host and node.host.stats) for _, node in sorted(cluster.nodes.items())]
    return [*nodes, *(table.totals for table in cluster.tables)]


def nodes(seed: int) -> Iterable[object]:
    """Play whole nodes, and return what they count."""
    network = node_network.history(seed)
    runs = [run.node for _, run in sorted(network.nodes.items())]
    return [(node.stats, node.place.stats, node.mesh.stats, sorted(node.work.counters().items())) for node in runs]


def mesh(seed: int) -> Iterable[object]:
    """Play a mesh whose links are cut, lossy and out of order, and return what its nodes count."""
    names = [f"n{number}" for number in range(6)]
    network = MeshNetwork(seed, names, loss=0.1, duplication=0.05, reordering=0.2)
    ring = [*pairwise(names), (names[-1], names[0])]
    for step in range(40):
        for name in network.rng.sample(names, 2):
            network.nodes[name].send(network.rng.randint(1, 4))
        (network.cut if network.rng.random() < 0.3 else network.connect)(*network.rng.choice(ring))
        if step == 20:
            network.restart(names[0], 2000)
        network.run(network.rng.choice((0.01, 0.1, 1.0)))
    return [(node.state.stats, node.warnings, sorted(node.gaps.items())) for node in network.nodes.values()]


def replicas(seed: int) -> Iterable[object]:
    """Play documents of peers that crash and are cut off."""
    outcome = schedules.play(seed)
    assert not outcome.problems
    return [outcome]


def registry(seed: int) -> Iterable[object]:
    """Play surveys of services that crash or are cut off, and return what the daemon saw."""
    network = Network(seed, Conditions(loss=0.2, duplication=0.05, delay=(0.01, 0.4)))
    daemon = Daemon(network, 12)
    for _ in range(12):
        some = network.rng.sample(sorted(daemon.voices), 4)
        partition = network.split(some[:2])
        network.crash(some[2])
        daemon.survey()
        partition.heal()
        daemon.start(some[2])
        daemon.survey()
    return [daemon.events, sorted(daemon.registry.counters.items()), daemon.registry.view(network.now)]


class Simulator(NamedTuple):
    """Histories by their seeds, and the methods through which all messages go."""

    play: Callable[[int], Iterable[object]]
    seeds: range
    sends: tuple[tuple[Any, str], ...]


SIMULATORS: Final = (
    Simulator(documents, range(8), ((documents_network.Cluster, "unicast"), (documents_network.Cluster, "broadcast"))),
    Simulator(election, range(12), ((election_network.ElectionNetwork, "send"),)),
    Simulator(place, range(12), ((place_network.Link, "send"),)),
    Simulator(
        work,
        range(8),
        ((work_network.Link, "carry"), (work_network.Cluster, "to_host"), (work_network.Cluster, "from_host")),
    ),
    Simulator(nodes, range(6), ((node_network.NodeNetwork, "send"), (node_network.NodeNetwork, "note"))),
    Simulator(mesh, range(4), ((MeshLink, "carry"),)),
    Simulator(replicas, range(8), ((Network, "send"), (Network, "broadcast"))),
    Simulator(registry, range(4), ((Network, "send"), (Network, "broadcast"))),
)
ALL: Final = {f"{each.play.__name__} {seed}": (each, seed) for each in SIMULATORS for seed in each.seeds}


def played(name: str) -> str:
    """Return the number of messages of a history, and the digest of them and of what was counted."""
    simulator, seed = ALL[name]
    digest, count = sha256(), 0

    def noting(send: Callable[..., Any]) -> Callable[..., Any]:
        def noted(self: object, *arguments: object) -> Any:
            nonlocal count
            count += 1
            digest.update(repr([getattr(each, "name", getattr(each, "id", each)) for each in arguments]).encode())
            return send(self, *arguments)

        return noted

    patches = [patch.object(owner, method, noting(getattr(owner, method))) for owner, method in simulator.sends]
    for each in patches:
        each.start()
    try:
        digest.update(repr(simulator.play(seed)).encode())
    finally:
        for each in patches:
            each.stop()
    return f"{count} {digest.hexdigest()[:16]}"


@pytest.mark.parametrize(
    "name", [name if seed < 3 else pytest.param(name, marks=pytest.mark.slow) for name, (_, seed) in ALL.items()]
)
def test_a_history_is_the_one_that_was_recorded(name: str) -> None:
    assert json.loads(RECORD.read_text())[name] == played(name)


if __name__ == "__main__":
    RECORD.write_text(json.dumps({name: played(name) for name in ALL}, indent=0) + "\n")
