"""Simulate trees of 10 to 10,000 nodes: ``python benchmarks/_cluster_sizes.py`` writes docs/cluster_sizes.svg.

The nodes are `nngkit.cluster.tree.place.Place` on the simulated cluster of the tests, with 1 ms from node to node and a
fan-out of 8. For each size: all nodes join at once; one more node joins; then a leaf, the child of the root with most
nodes below it, and the root are killed, one after the other. Times are virtual, and end when every node has a path to
the host; that of the root begins when the new host knows that it is one. Messages are all but heartbeats.

Signs of life are five times as rare as by default, since 10,000 nodes simulate slowly; the kills are noticed at once,
as a connection ends when its process does, so they do not matter here.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import NamedTuple

from _plots import panels, save

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cluster"))

from place_network import PlaceNetwork

from nngkit.cluster.tree.shape import depths_of, ideal_depth
from nngkit.cluster.tree.values import PlaceLimits

PICTURE = Path(__file__).parents[1] / "docs" / "cluster_sizes.svg"
SIZES = (10, 30, 100, 300, 1000, 3000, 10_000)
FANOUT, DELAY = 8, 0.001
LIMITS = PlaceLimits(
    heartbeat=1.0, silence=7.5, standby_heartbeat=5.0, standby_silence=25.0, patience=10.0, members=20_000
)
STEP = 0.001  # seconds between two looks at all nodes
BALANCED = 30.0  # seconds within which the tree must be low again


class Result(NamedTuple):
    size: int
    depth: int
    ideal: int
    join: float
    join_messages: int
    one: int
    heal: dict[str, float]
    heal_messages: dict[str, int]
    balanced: dict[str, float]


def messages(network: PlaceNetwork) -> int:
    return sum(count for kind, count in network.sent.items() if kind != "Heartbeat")


def wait(network: PlaceNetwork) -> float:
    """Run until all nodes have a path to the host; return the time."""
    began = network.net.now
    network.run(1.5 * DELAY)
    while not network.attached():
        network.run(STEP)
        assert network.net.now < began + BALANCED
    return network.net.now - began


def simulate(size: int) -> Result:
    network = PlaceNetwork(size, 3, fanout=FANOUT, delay=(DELAY, DELAY), limits=LIMITS)
    for name in network.voters:
        network.add(name)
    network.run(0.1)
    for number in range(size - 3):
        network.add(f"n{number:05}")
    join = wait(network)
    network.settle(BALANCED, step=0.1)
    join_messages = messages(network)
    network.run(5.0)  # standby links are dialed
    depth = max(depths_of(network.parents()).values())
    before = messages(network)
    network.add("one more")
    network.run(1.0)
    one = messages(network) - before
    heal, counts, balanced = {}, {}, {}
    for what in ("leaf", "inner node", "root"):
        nodes, host = network.nodes, network.host or ""
        others = [name for name in nodes if name not in network.voters]
        victim = {
            "leaf": next(name for name in others if not nodes[name].children),
            "inner node": max(others, key=lambda name: len(nodes[name].members)),
            "root": host,
        }[what]
        before, began = messages(network), network.net.now
        network.kill(victim)
        while network.host == victim:
            network.run(STEP)
        heal[what] = wait(network)
        counts[what] = messages(network) - before
        network.settle(BALANCED, step=0.1)
        balanced[what] = network.net.now - began
        network.add(victim)
        network.run(2.0)
        network.settle(BALANCED, step=0.1)
    return Result(size, depth, ideal_depth([FANOUT] * size), join, join_messages, one, heal, counts, balanced)


def main() -> None:
    sizes = [int(each) for each in sys.argv[1:]] or SIZES
    results = []
    for size in sizes:
        began = time.perf_counter()
        result = simulate(size)
        results.append(result)
        heal = ", ".join(
            f"{what} {result.heal[what] * 1000:.0f} ms ({result.heal_messages[what]} messages, low again after"
            f" {result.balanced[what]:.1f} s)"
            for what in result.heal
        )
        print(
            f"{size:6} nodes: depth {result.depth} (ideal {result.ideal}); all join in {result.join * 1000:.0f} ms,"
            f" {result.join_messages / size:.1f} messages each; one more: {result.one} messages;"
            f" killed: {heal}; simulated in {time.perf_counter() - began:.0f} s",
            flush=True,
        )
    if len(results) > 1:
        plot(results)


def plot(results: list[Result]) -> None:
    figure, (left, middle, right) = panels(3)
    sizes = [each.size for each in results]
    left.plot(sizes, [each.depth for each in results], "o-", label="depth")
    left.plot(sizes, [each.ideal for each in results], "--", label="lowest possible")
    left.set(title=f"levels below the root, fan-out {FANOUT}", ylim=(0, None))
    middle.plot(sizes, [each.size - 1 for each in results], "o-", label="one broadcast")
    middle.plot(sizes, [each.one for each in results], "o-", label="one node joins")
    for what in results[0].heal:
        middle.plot(sizes, [each.heal_messages[what] for each in results], "o--", label=f"{what} killed")
        right.plot(sizes, [each.heal[what] * 1000 for each in results], "o-", label=f"{what} killed")
    middle.set(title="messages", yscale="log")
    right.set(title=f"ms until all nodes have a path, {DELAY * 1000:.0f} ms a link", ylim=(0, None))
    for axes in (left, middle, right):
        axes.set(xscale="log", xlabel="nodes")
        axes.grid(alpha=0.3)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    save(figure, PICTURE)


if __name__ == "__main__":
    main()
