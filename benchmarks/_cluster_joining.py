"""Members that join a cluster of four hosts by discovery, all at once: how soon, and how evenly."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import trio
from _cluster_fleet import WAIT, Died, Failed, Fleet, Node
from _restarted import Restarted, ports

from _child import as_many_files_as_allowed, quantile, report

HOSTS = 4
SOON = 30.0  # seconds after which a cluster that is not even is given up


def join(task: dict[str, Any]) -> None:
    """Have `members` processes join `HOSTS` nodes that they find through a daemon; report when, and how evenly."""
    as_many_files_as_allowed()
    report(url="")
    survey, query = ports(2)
    daemon = Restarted(task, "_reconnecting:daemon", survey=survey, query=query)
    daemon.start()
    try:
        told = trio.run(_join, task, survey, query)
    finally:
        daemon.kill()
    report(**told)  # after the daemon is gone: this process is then killed


async def _join(task: dict[str, Any], survey: str, query: str) -> dict[str, float]:
    count = task["members"]
    async with Fleet(task) as fleet:
        # each host has room for what it should get, for the other hosts, and for a quarter more
        options = {"listen": "tcp://127.0.0.1:0", "discovery": survey, "fanout": count * 5 // (4 * HOSTS) + HOSTS}
        first = await fleet.start("h0", "host", **options)
        await first.ask("joined", timeout=WAIT)
        for number in range(1, HOSTS):
            await fleet.start(f"h{number}", dial=first.address, **options)
        await fleet.each("joined", timeout=WAIT)
        hosts = {node.name for node in fleet.alive}
        await trio.sleep(2.0)  # until the daemon has had a round with them
        members = [await fleet.fork(f"m{number:03}") for number in range(count)]
        began = time.monotonic()
        joined: list[float] = []

        async def open_one(node: Node) -> None:
            await node.ask("open", role="member", options={"daemons": query})
            try:
                joined.append((await node.ask("joined", timeout=SOON))["at"] - began)
            except Failed as error:
                sys.stderr.write(f"{node.name}: {error}\n")

        even = shares = None
        async with trio.open_nursery() as nursery:
            for node in members:
                nursery.start_soon(open_one, node)
            while time.monotonic() < began + SOON:
                shares = await _shares(first, hosts)
                if sum(shares.values()) == count and max(shares.values()) - min(shares.values()) <= 1:
                    even = time.monotonic() - began
                    break
                await trio.sleep(0.05)
            if even is None:
                sys.stderr.write(f"not even after {SOON:g} s: {json.dumps(shares)}\n")
        spread = max(shares.values()) - min(shares.values()) if shares else count
    return {
        "times": len(joined),
        "failed": count - len(joined),
        "p50_ms": quantile(joined, 0.5) * 1000,
        "max_ms": quantile(joined, 1.0) * 1000,
        "seconds": even if even is not None else SOON,
        "spread": spread,
    }


async def _shares(node: Node, hosts: set[str]) -> dict[str, int]:
    """Return how many members each host has."""
    shares = dict.fromkeys(hosts, 0)
    try:
        members = (await node.ask("tree", timeout=2.0))["members"]
    except (Failed, Died):
        return shares
    for name, (parent, _) in members.items():
        if name not in hosts and parent in hosts:
            shares[parent] += 1
    return shares
