"""Partitions of a cluster: each node on a host of its own, links between them cut; needs root, for network namespaces.

Five voters and four members. A seed cuts the hosts into two sides: two or one voters, and some members, are the
minority; in every other seed the host is among them. While it lasts, jobs are submitted on both sides, and each node
notes when it has the lease. Checked:

- no job of the minority is done, from the end of the old host's lease until the links are healed, and its host, if it
  has one, says that it does not grant;
- the majority does its jobs, has one host, and soon; at no moment do two nodes have the lease;
- after the links are healed there is one host, all are in its tree, and all jobs are done once: those of the minority
  as well, as it has only waited.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from itertools import pairwise
from typing import Any

import trio
from _call_faults import _hosts
from _cluster_audit import heard_faults
from _cluster_fleet import WAIT, Died, Failed, Fleet, Node
from _cluster_tree import quiet, say

from _child import fail, quantile, report

VOTERS, MEMBERS = 5, 4
PORT = 7000
LEASE = 0.5  # seconds, of the voters
LASTS = (3.0, 6.0)  # seconds of a partition
SERVING = 10.0  # seconds until the majority has to do jobs
HEALED = 20.0  # seconds until all is one cluster again


def partitions(task: dict[str, Any]) -> None:
    """Cut and heal `seeds` times; report what is wrong, and how long the majority and all of them took."""
    report(url="")
    with _hosts() as hosts:
        told = trio.run(_partitions, task, hosts)
    report(**told)  # after the hosts are gone: this process is then killed


async def _partitions(task: dict[str, Any], hosts: Any) -> dict[str, float]:
    voters = [f"v{number}" for number in range(VOTERS)]
    members = [f"m{number}" for number in range(MEMBERS)]
    names = [*voters, *members]
    places = {name: hosts.add(name) for name in names}
    for number, name in enumerate(names):
        for other in names[number + 1 :]:
            hosts.link(name, other)
    addresses = {name: f"tcp://{places[name].address}:{PORT}" for name in names}
    configured = {name: addresses[name] for name in voters}
    rounds: list[dict[str, float]] = []
    async with Fleet(task) as fleet:
        for number, name in enumerate(names):
            options: dict[str, Any] = {"listen": addresses[name], "fanout": 3, "work": {"sleep": 2}}
            if name in configured:
                options |= {"role": "host", "voters": configured, "preference": VOTERS - number, "lease": LEASE}
            else:
                options |= {"dial": list(configured.values())}
            await fleet.start(name, namespace=places[name].namespace, **options)
        await fleet.each("joined", timeout=WAIT)
        await fleet.each("watch_role")
        for seed in range(1, task["seeds"] + 1):
            rounds += [await _partition(fleet, hosts, voters, members, seed)]
    serving = [each["serving"] for each in rounds]
    healed = [each["healed"] for each in rounds]
    return {
        "times": len(rounds),
        "p50_ms": statistics.median(serving) * 1000,
        "p99_ms": quantile(serving, 0.99) * 1000,
        "healed_ms": statistics.median(healed) * 1000,
        **{key: sum(each[key] for each in rounds) for key in ("minority", "hosts", "lost", "unsent", "failed")},
    }


async def _agreed(fleet: Fleet, nodes: list[Node], seconds: float) -> str | None:
    """Wait until these nodes follow one host, which is one of them and grants; None if they do not."""
    end, names = trio.current_time() + seconds, {node.name for node in nodes}
    while trio.current_time() < end:
        places = await fleet.each("place", nodes)
        hosts = {place["host"] for place in places.values()}
        terms = {place["term"] for place in places.values()}
        if len(hosts) == 1 and len(terms) == 1 and hosts <= names:
            host = hosts.pop()
            try:
                status = await fleet[host].ask("status", timeout=1.0)
            except Failed:
                status = {"grants": False}
            if status["grants"]:
                return str(host)
        await trio.sleep(0.02)
    return None


async def _partition(fleet: Fleet, hosts: Any, voters: list[str], members: list[str], seed: int) -> dict[str, float]:
    rng = random.Random(seed)
    told = dict.fromkeys(("minority", "hosts", "lost", "unsent", "failed"), 0.0)
    host = await _agreed(fleet, fleet.alive, HEALED)
    if host is None:
        fail(f"seed {seed}: no host to begin with")
    problems: list[str] = []
    cut_off = rng.sample([name for name in voters if name != host], rng.choice((1, 2)))
    if seed % 2:
        cut_off[0] = host
    few = {*cut_off, *rng.sample(members, rng.randint(0, len(members)))}
    many = [name for name in (*voters, *members) if name not in few]
    await fleet.each("traffic", messages=2.0, jobs=5.0, edits=0.0, seconds=0.02)
    await trio.sleep(rng.uniform(0.3, 1.0))
    await trio.to_thread.run_sync(_cut, hosts, few, many)
    cut = time.monotonic()  # of the last link
    ends: list[tuple[str, str, dict[str, Any]]] = []

    async def submit(side: str, name: str, number: int) -> None:
        """Submit a job that was not there before the cut; note its end, also if that is after the partition."""
        key = f"{seed}-{side}-{number}"
        try:
            ends.append((side, key, await fleet[name].ask("submit", kind="sleep", payload="0", key=key, timeout=45.0)))
        except (Failed, Died, trio.TooSlowError) as error:
            problems.append(f"job {key}: {error}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(submit, "many", rng.choice(many), 0)
        await trio.sleep(2 * LEASE)
        for number in range(1, 6):
            nursery.start_soon(submit, "few", rng.choice(sorted(few)), number)
            nursery.start_soon(submit, "many", rng.choice(many), number)
        new = await _agreed(fleet, [fleet[name] for name in many], SERVING)
        if new is None:
            problems.append(f"the majority {many} has no host in {SERVING:g} s")
        await trio.sleep(max(0.0, cut + rng.uniform(*LASTS) - time.monotonic()))
        for name in sorted(few):
            if (await fleet[name].ask("place"))["role"] == "host":
                grants = (await fleet[name].ask("status", timeout=1.0))["grants"]
                problems += [f"{name} of the minority says that it grants"] * grants
                told["minority"] += grants
        healing = time.monotonic()
        await trio.to_thread.run_sync(_heal, hosts, few, many)
        healed = time.monotonic()
        one = await _agreed(fleet, fleet.alive, HEALED)
        told["healed"] = time.monotonic() - healed
        if one is None:
            told["hosts"] += 1
            problems.append(f"not one host in {HEALED:g} s after the links were healed")
    serving = [end["ended"] for side, _, end in ends if side == "many"]
    told["serving"] = max(min(serving, default=healing) - cut, 0.0)
    for side, key, end in ends:
        if side == "few" and (end["accepted"] < healing or json.loads(end["result"])[3] < healing):
            told["minority"] += 1
            problems.append(f"job {key} of the minority: {end}, healed at {healing}")
        if side == "many" and end["ended"] > healing:
            problems.append(f"job {key} of the majority: {end}, healed at {healing}")
    problems += await _finish(fleet, told, cut)
    told["failed"] = float(bool(problems))
    sides = f"{'+'.join(sorted(few))} cut off, host {host}, then {new}, then {one}"
    say(f"partition {seed}: {sides}: serving after {told['serving']:.2f} s, one again after {told['healed']:.2f} s")
    for each in problems[:10]:
        say(f"    {each}")
    return told


async def _finish(fleet: Fleet, told: dict[str, float], cut: float) -> list[str]:
    """End the traffic; return what is wrong with messages and jobs, and hosts at the same time."""
    problems: list[str] = []
    sent = await quiet(fleet, problems, HEALED)
    results: dict[str, str] = {}
    accepted: set[str] = set()
    while True:
        try:
            event = fleet.events.receive_nowait()
        except trio.WouldBlock:
            break
        if event["event"] == "accepted":
            accepted.add(event["key"])
        elif event["event"] == "result":
            results[event["key"]] = event["result"]
            accepted.add(event["key"])
    lost = [key for key in accepted if not results.get(key, "").startswith("[")]
    told["lost"] += len(lost)
    problems += [f"job {key}: {results.get(key, 'no end')}" for key in lost[:5]]
    wrong = await heard_faults(fleet, sent, HEALED)
    told["unsent"] += len(wrong)
    problems += wrong[:5]
    # the role changes a lease later than that ends; two with a lease at once would both have granted jobs
    places = await fleet.each("place")
    hosting = [
        (first, last, term, name)
        for name, place in places.items()
        for first, last, term in place["hosting"]
        if last > cut
    ]
    for (_, last, term, name), (first, _, later, other) in pairwise(sorted(hosting)):
        if name != other and first < last:
            told["hosts"] += 1
            problems.append(f"{name} and {other} both had the lease: terms {term:.0f} and {later:.0f}")
    return problems


def _cut(hosts: Any, few: set[str], many: list[str]) -> None:
    for name in few:
        for other in many:
            hosts.cut(name, other)


def _heal(hosts: Any, few: set[str], many: list[str]) -> None:
    for name in few:
        for other in many:
            hosts.heal(name, other)
