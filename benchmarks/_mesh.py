"""Mesh: simulated networks, states joined back to back, and nodes over tcp.

Each function ends the run if a message is missing or comes twice.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import trio

from _child import Meter, fail, peak, quantile, report, resident
from nngkit.fanout import Mesh, MeshGap
from nngkit.mesh.limits import MeshLimits
from nngkit.mesh.state import MeshState
from nngkit.protocols import Bus
from nngkit.testing import aeventually

sys.path.insert(0, str(Path(__file__).parent.parent))  # the simulated network is the tests'
from tests.fanout.mesh_network import MeshNetwork

NODES = 20
DEGREE = 4
ANY = "tcp://127.0.0.1:0"
BATCH = 256  # messages handed over at once, as a busy socket does
PROBES = 1000  # messages a second


def survive_cuts(task: dict[str, Any]) -> None:
    """Cut 30 % of the links of networks while messages are sent, until the time is over; count what arrives."""
    end, seed, begin, used = time.perf_counter() + task["seconds"], 0, time.perf_counter(), time.process_time()
    delivered = copies = sent = 0
    while seed == 0 or time.perf_counter() < end:
        network = MeshNetwork(seed, [f"n{number:02}" for number in range(NODES)])
        edges = network.edges(DEGREE)
        for edge in edges:
            network.connect(*edge)
        network.run(0.1)
        doomed = network.rng.sample(edges, len(edges) * 3 // 10)
        for step in range(100):
            for node in network.nodes.values():
                node.send(network.rng.randint(0, 4))
            if step % 4 == 0 and doomed:
                network.cut(*doomed.pop())
            network.run(0.01)
        network.run(5.0)
        for name, node in network.nodes.items():
            for other in network.component(name) - {name}:
                origin = network.nodes[other]
                if node.next.get((other, origin.epoch), 1) != origin.state.sent + 1 or node.gaps:
                    fail(f"seed {seed}: {name} misses messages of {other}")
            delivered += node.messages
            copies += node.state.stats.duplicates
            sent += node.state.sent
        seed += 1
    seconds, cpu = time.perf_counter() - begin, time.process_time() - used
    report(
        per_second=delivered / seconds,
        cpu_us=cpu / delivered * 1e6,
        times=seed,
        calls=delivered,
        failed=0,
        copies=copies / delivered,
    )


def endure_cuts(task: dict[str, Any]) -> None:
    """Cut and heal links of one network until ``messages`` are delivered, in ``steps`` parts; report memory after each.

    Three links in ten are cut at any time; each message has to come once to each node.
    """
    network = MeshNetwork(1, [f"n{number:02}" for number in range(NODES)], limits=MeshLimits(buffer_bytes=1 << 20))
    edges = network.edges(DEGREE)
    for edge in edges:
        network.connect(*edge)
    network.run(0.1)
    nodes, cut = list(network.nodes.values()), []
    for part in range(task["steps"]):
        begin, used = time.perf_counter(), time.process_time()
        before, goal = sum(node.messages for node in nodes), task["messages"] * (part + 1) // task["steps"]
        while sum(node.messages for node in nodes) < goal:
            for node in nodes:
                node.send(4)
            cut.append(network.rng.choice([edge for edge in edges if edge in network.links]))
            network.cut(*cut[-1])
            if len(cut) > len(edges) * 3 // 10:
                network.connect(*cut.pop(0))
            network.run(0.05)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - used
        count = sum(node.messages for node in nodes) - before
        lost = sum(node.state.stats.gaps for node in nodes)
        report(per_second=count / seconds, cpu_us=cpu / count * 1e6, now_mib=resident(), failed=lost)


def pass_in_steps(task: dict[str, Any]) -> None:
    """Pass ``messages`` through three states in a row, in ``steps`` equal parts; report memory after each."""
    limits = MeshLimits(buffer_bytes=16 * 1024 * 1024)
    first, middle, last = (MeshState(name, 1, 0.0, limits) for name in "abc")
    for state in (first, middle, last):
        state.link_up(1, 0.0)
        state.take()
    body, now, number = bytes(task["size"]), 0.0, 0
    for _ in range(task["steps"]):
        begin, used, count = time.perf_counter(), time.process_time(), 0
        while count < task["messages"] // task["steps"]:
            now += BATCH / 100_000
            middle.receive(1, first.send([body] * BATCH, now), now)
            last.receive(1, [frame for frame, _ in middle.take().relays], now)
            for event in last.take().events:
                number += 1
                if isinstance(event, MeshGap) or event.sequence != number:
                    fail(f"{event} instead of message {number}")
            for state in (first, middle, last):
                if now >= state.wake_at:
                    state.tick(now)
                    state.take()
            count += BATCH
        cpu = time.process_time() - used
        report(per_second=count / (time.perf_counter() - begin), cpu_us=cpu / count * 1e6, now_mib=resident())


async def read(task: dict[str, Any]) -> None:
    """Receive at the end of a chain."""
    async with Mesh(listen=ANY, id="end") as mesh:
        report(url=mesh.address)
        meter, last, count = Meter(task), 0, 0
        async for event in mesh.events():
            if isinstance(event, MeshGap) or event.sequence != last + 1:
                fail(f"{event} after message {last}")
            last = event.sequence
            count += 1
            if count == BATCH:
                if not meter.add(count):
                    return
                count = 0


async def write(task: dict[str, Any]) -> None:
    """Send as fast as it goes, over ``hops`` - 1 nodes of this process."""
    async with trio.open_nursery() as nursery:
        dial = task["url"]
        for number in range(task["hops"]):
            node = Mesh(listen=ANY, dial=dial, id=f"n{number}")
            dial = await nursery.start(_hold, node)
        await node.wait_for_neighbours(1, 10.0)
        await trio.sleep(0.2)  # until the other nodes have theirs
        body = bytes(task["size"])
        while True:
            await node.send_many([body] * BATCH)


async def _hold(node: Mesh, task_status: trio.TaskStatus[str]) -> None:
    async with node:
        task_status.started(node.address)
        await trio.sleep_forever()


def read_bus(task: dict[str, Any]) -> None:
    """Receive from a BUS, without a mesh."""
    with Bus(listen=ANY) as bus:
        report(url=bus.address)
        meter = Meter(task)
        while meter.add(len(bus.recv_many(BATCH))):
            pass


def write_bus(task: dict[str, Any]) -> None:
    """Send to a BUS as fast as it goes; it drops what its peer does not read in time."""
    with Bus(dial=task["url"]) as bus:
        bus.wait_for_peers(1)
        body = bytes(task["size"])
        while True:
            bus.send_many([body] * BATCH)


async def all_nodes(task: dict[str, Any]) -> None:
    """Run all nodes in this process, over tcp: one sends, paced or as fast as it goes; the others receive."""
    times: list[float] = []
    async with trio.open_nursery() as nursery:
        layout = MeshNetwork(1, [f"n{number:02}" for number in range(NODES)])
        edges = layout.edges(DEGREE)
        nodes: dict[str, Mesh] = {}
        for name in layout.nodes:
            dial = [
                nodes[a if b == name else b].address for a, b in edges if name in (a, b) and {a, b} <= {name, *nodes}
            ]
            nodes[name] = Mesh(listen=ANY, dial=dial, id=name)
            await nursery.start(_open, nodes[name])
        for name, node in nodes.items():
            await node.wait_for_neighbours(sum(name in edge for edge in edges), 10.0)
        sender, *receivers = nodes.values()
        counts = dict.fromkeys(receivers, 0)

        async def receive(node: Mesh) -> None:
            async for event in node.events():
                if isinstance(event, MeshGap) or event.sequence != counts[node] + 1:
                    fail(f"{event} after message {counts[node]}")
                counts[node] += 1
                times.append(time.perf_counter() - float(event.body[:24]))

        for node in receivers:
            nursery.start_soon(receive, node)
        begin, used = time.perf_counter(), time.process_time()
        sent = 0
        while time.perf_counter() < begin + task["seconds"]:
            for _ in range(task["burst"]):
                await sender.send(f"{time.perf_counter():<24.9f}".encode().ljust(task["size"]))
            sent += task["burst"]
            if task["paced"]:
                await trio.sleep(max(0.0, begin + sent / PROBES - time.perf_counter()))
            else:
                await aeventually(lambda goal=sent - 1000: min(counts.values()) >= goal, poll=0.001)
        await aeventually(lambda goal=sent: min(counts.values()) >= goal, poll=0.001)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - used
        done = sent * len(receivers)
        copies = sum(node.stats.duplicates for node in nodes.values()) / done
        report(
            per_second=done / seconds,
            cpu_us=cpu / done * 1e6,
            p50_ms=quantile(times, 0.5) * 1e3,
            p99_ms=quantile(times, 0.99) * 1e3,
            copies=copies,
            rss_mib=peak(),
        )
        nursery.cancel_scope.cancel()


async def _open(node: Mesh, task_status: trio.TaskStatus[None]) -> None:
    async with node:
        task_status.started()
        await trio.sleep_forever()
