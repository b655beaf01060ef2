"""A tree of real processes: how long messages take, and what kills cost while messages, jobs and edits are under way.

A fleet has five voters and members; each node may have `fanout` children, so that 50 nodes with a fan-out of 4 are
three levels below the host, and with one of 64 one level. `spread` measures messages, `kills` a kind of kill.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from _cluster_audit import Audit, content_faults, heard_faults
from _cluster_fleet import WAIT, Died, Failed, Fleet, Node, until
from _restarted import ports

from _child import as_many_files_as_allowed, fail, quantile, report

VOTERS = 5  # so that the root and its successor may be killed at once
LEVEL = 1  # levels that the tree may be deeper than the ideal one, for `balanced`
SETTLE = 30.0  # seconds until a tree has to be balanced, jobs to be done and documents to be equal
SERVING = 30.0  # seconds until a cluster that does not serve is given up
RUN_UP = (1.0, 3.0)  # seconds of traffic before a kill
RUN_OUT = 1.0  # and once the tree is balanced again


def ideal(count: int, fanout: int) -> int:
    """Return the depth of the lowest tree of `count` nodes."""
    depth, room, level = 0, 1, 1
    while room < count:
        level *= fanout
        room += level
        depth += 1
    return depth


@asynccontextmanager
async def tree(task: dict[str, Any], *, documents: bool = False) -> AsyncIterator[Fleet]:
    """Run `nodes` nodes that are one balanced tree, each with a slot for jobs."""
    as_many_files_as_allowed()
    async with Fleet(task) as fleet:
        began = time.perf_counter()
        count, fanout = task["nodes"], task["fanout"]
        addresses = ports(VOTERS)
        voters = {f"v{number}": address for number, address in enumerate(addresses)}
        for number, (name, address) in enumerate(voters.items()):
            await fleet.start(
                name,
                "host",
                listen=address,
                voters=voters,
                preference=VOTERS - number,
                fanout=fanout,
                work={"sleep": 1},
            )
        await fleet.each("joined", timeout=WAIT)
        for number in range(count - VOTERS):
            listen = {"listen": "tcp://127.0.0.1:0", "fanout": fanout}
            node = await fleet.start(f"n{number:02}", dial=addresses, work={"sleep": 1}, **listen)
            if "levels" in task:  # so that the host finds the lowest place for each
                await node.ask("joined", timeout=WAIT)
        await fleet.each("joined", timeout=WAIT)
        if documents:
            await fleet.each("documents")
        await balanced(fleet, task, WAIT)
        memory = sum(node.memory() for node in fleet.alive)
        cpu = sum(node.cpu() for node in fleet.alive)
        took = time.perf_counter() - began
        say(f"{count} nodes, fan-out {fanout}: up in {took:.1f} s, {cpu:.1f} s of CPU, {memory:.0f} MiB")
        yield fleet


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


async def shape(node: Node) -> dict[str, tuple[str, int]]:
    """Return the parent and the depth of each member, as the host knows them."""
    told = await node.ask("tree", timeout=2.0)
    return {name: (parent, depth) for name, (parent, depth) in told["members"].items()}


async def balanced(fleet: Fleet, task: dict[str, Any], seconds: float) -> dict[str, tuple[str, int]] | None:
    """Wait until all live nodes are in a tree at most a level deeper than it must be; None if they are not."""
    names = {node.name for node in fleet.alive}
    deepest = ideal(len(names), task["fanout"]) + LEVEL
    end, members = trio.current_time() + seconds, dict[str, tuple[str, int]]()
    while trio.current_time() < end:
        try:
            members = await shape(fleet.alive[0])
        except (Failed, Died):
            members = {}
        if members.keys() == names and max(depth for _, depth in members.values()) <= deepest:
            return members
        await trio.sleep(0.05)
    depth = max((depth for _, depth in members.values()), default=-1)
    missing, more = sorted(names - members.keys()), sorted(members.keys() - names)
    say(f"not balanced: depth {depth} of at most {deepest}, missing {missing}, not gone {more}")
    return None


# ---- messages --------------------------------------------------------------------------------------------------------


def spread(task: dict[str, Any]) -> None:
    """Send `messages` from each leaf, all once to all others; report the time by the depth of the receiver."""
    report(url="")
    for row in trio.run(_spread, task):
        report(**row)


async def _spread(task: dict[str, Any]) -> list[dict[str, float]]:
    async with tree(task) as fleet:
        levels = task["levels"]

        async def right() -> Any:
            members = await shape(fleet["v0"])
            return members if max(depth for _, depth in members.values()) == levels else None

        members = await until(right, WAIT, f"a tree of {levels} levels")
        parents = {parent for parent, _ in members.values()}
        leaves = [fleet[name] for name in members if name not in parents]
        await fleet.each("send", leaves, count=3, rate=5.0)  # run-in
        await fleet.each("time", on=True)
        before = {node.name: node.cpu() for node in fleet.alive}
        pause = len(leaves) / task["rate"]  # seconds between two messages of a leaf

        async def send(node: Node, after: float) -> None:
            await trio.sleep(after)
            lasts = task["messages"] * pause
            await node.ask("send", count=task["messages"], rate=1 / pause, limit=lasts + WAIT)

        async with trio.open_nursery() as nursery:
            for number, node in enumerate(leaves):
                nursery.start_soon(send, node, number / task["rate"])
        sent = {node.name: (3 + task["messages"]) for node in leaves}
        faults = await until(lambda: _all_heard(fleet, sent), WAIT, "all messages received")
        cpu = sum(node.cpu() - before[node.name] for node in fleet.alive)
        late = {name: reply["late"] for name, reply in (await fleet.each("time", on=False)).items()}
    count = len(leaves) * task["messages"] * (len(members) - 1)
    rows = []
    for level in range(levels + 1):
        times = [
            seconds
            for name, by in late.items()
            if members[name][1] == level
            for each in by.values()
            for seconds in each
        ]
        row = {"p50_ms": quantile(times, 0.5) * 1000, "p99_ms": quantile(times, 0.99) * 1000}
        rows.append({"times": len(times), **row, "failed": faults["count"], "cpu_us": cpu / count * 1e6})
    return rows


async def _all_heard(fleet: Fleet, sent: dict[str, int]) -> dict[str, int] | None:
    """Return the number of faults once each node has the last message of all others."""
    replies = await fleet.each("heard")
    for name, reply in replies.items():
        last = {origin: number for origin, _, _, number in reply["heard"]}
        if any(last.get(origin, 0) < number for origin, number in sent.items() if origin != name):
            return None
    faults = sum(reply["fault_count"] for reply in replies.values())
    for name, reply in replies.items():
        for fault in reply["faults"][:3]:
            say(f"{name}: {fault}")
    return {"count": faults}


# ---- kills -----------------------------------------------------------------------------------------------------------


def kills(task: dict[str, Any]) -> None:
    """Kill nodes of one tree `seeds` times, and start them again; report how long it did not serve, and what is wrong.

    ``what``: "root", "inner", "leaf" or "root and successor".
    """
    report(url="")
    report(**trio.run(_kills, task))


async def _kills(task: dict[str, Any]) -> dict[str, float]:
    rounds: list[dict[str, float]] = []
    seeds = list(range(1, task["seeds"] + 1))
    while seeds:
        async with tree(task, documents=True) as fleet:
            audit = Audit(fleet)
            while seeds:
                told = await _kill_once(fleet, task, audit, seeds.pop(0))
                rounds.append(told)
                if told["failed"]:
                    break  # the next seed begins with a new tree
    serving = [each["serving"] for each in rounds]
    return {
        "times": len(rounds),
        "p50_ms": statistics.median(serving) * 1000,
        "p99_ms": quantile(serving, 0.99) * 1000,
        "max_ms": max(serving) * 1000,
        "balanced_ms": statistics.median(each["balanced"] for each in rounds) * 1000,
        **{
            key: sum(each[key] for each in rounds)
            for key in ("jobs", "lost", "doubled", "unsent", "unbalanced", "unequal", "failed")
        },
    }


def _victims(members: dict[str, tuple[str, int]], what: str, host: str, rng: random.Random) -> list[str]:
    parents = {parent for parent, _ in members.values()} - {""}
    if what == "root":
        return [host]
    if what == "root and successor":
        # of the other voters, which know the same, the one with the highest preference: v0 has it, then v1 ...
        return [host, min(name for name in members if name.startswith("v") and name != host)]
    if what == "inner":
        return [rng.choice(sorted(parents - {host}))]
    return [rng.choice(sorted(members.keys() - parents))]


async def _kill_once(fleet: Fleet, task: dict[str, Any], audit: Audit, seed: int) -> dict[str, float]:
    """Kill once, check all that is promised, and start the killed nodes again."""
    rng = random.Random(f"{task['what']} {seed}")
    told = dict.fromkeys(("lost", "doubled", "unsent", "unbalanced", "unequal", "failed"), 0.0)
    members = await balanced(fleet, task, SETTLE)
    if members is None:
        fail(f"seed {seed}: no balanced tree to begin with")
    host = next(name for name, (parent, _) in members.items() if not parent)
    submitters = rng.sample([node for node in fleet.alive if node.name != host], min(8, len(members) // 3))
    audit.begin()
    rates = {"messages": task["message_rate"], "edits": task["edit_rate"]}
    busy = {node.name for node in submitters}
    await fleet.each("traffic", [node for node in fleet.alive if node.name not in busy], jobs=0, **rates)
    await fleet.each("traffic", submitters, jobs=task["job_rate"], **rates)
    await trio.sleep(rng.uniform(*RUN_UP))
    victims = _victims(members, task["what"], host, rng)
    killed = time.monotonic()
    for name in victims:
        fleet[name].kill()
    parents = {parent for parent, _ in members.values()}
    leaves = [node for node in fleet.alive if node.name not in parents]
    serving = await _serving(fleet, rng.choice(leaves), rng.choice(fleet.alive), f"{task['what']} {seed}")
    told["serving"] = serving - killed if serving else SERVING
    problems = [] if serving else [f"not serving in {SERVING:g} s"]
    if await balanced(fleet, task, SETTLE) is None:
        told["unbalanced"] = 1
    told["balanced"] = time.monotonic() - killed
    await trio.sleep(RUN_OUT)
    sent = await quiet(fleet, problems, SETTLE)
    problems += await audit.jobs(fleet, rng.choice(fleet.alive), told, SETTLE)
    wrong = await heard_faults(fleet, sent, SETTLE)
    told["unsent"] = len(wrong)
    unequal = await content_faults(fleet, sent, SETTLE)
    told["unequal"] = len(unequal)
    problems += wrong[:5] + unequal[:5]
    told["failed"] = float(bool(problems) or told["unbalanced"])
    took = f"serving after {told['serving'] * 1000:.0f} ms, balanced after {told['balanced']:.2f} s"
    say(f"{task['what']} {seed}: {', '.join(victims)} killed, {took}, {told['jobs']:.0f} jobs")
    for each in problems:
        say(f"    {each}")
    if not told["failed"]:
        for name in victims:
            node = await fleet.restart(name)
            await node.ask("joined", timeout=WAIT)
            await node.ask("documents")
    return told


async def _serving(fleet: Fleet, leaf: Node, submitter: Node, name: str) -> float | None:
    """Return when a message of `leaf` has reached all others and a job of `submitter` is done; None if they do not."""
    ends: list[float] = []

    async def message() -> None:
        await leaf.ask("probe", name=name)
        others = [node for node in fleet.alive if node is not leaf]
        replies = await fleet.each("await_probe", others, name=name, timeout=SERVING)
        ends.append(max(reply["received"] for reply in replies.values()))

    async def job() -> None:
        ends.append((await submitter.ask("submit", kind="sleep", payload="0", timeout=SERVING))["ended"])

    async def tried(function: Callable[[], Awaitable[None]]) -> None:
        try:
            await function()
        except* (Failed, Died, trio.TooSlowError) as error:
            say(f"{name}, {function.__name__}: {error.exceptions[0]!r}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tried, message)
        nursery.start_soon(tried, job)
    if len(ends) == 2:
        return max(ends)
    places = await fleet.each("place")
    for node, place in sorted(places.items()):
        say(f"    {node}: {place['role']}, term {place['term']}, host {place['host']}, parent {place['parent']}")
    for node, place in places.items():
        if place["role"] == "host":
            say(f"    {node}: {await fleet[node].ask('status')}")
    return None


async def quiet(fleet: Fleet, problems: list[str], seconds: float) -> dict[str, dict[str, Any]]:
    """End the traffic, in `seconds`; return what each live node has sent."""
    sent: dict[str, dict[str, Any]] = {}

    async def end(node: Node) -> None:
        try:
            sent[node.name] = await node.ask("quiet", timeout=seconds)
        except Died:
            problems.append(f"{node.name}: its process has ended")
        except Failed as error:
            problems.append(f"{node.name}: traffic does not end: {error}")
            sent[node.name] = await node.ask("sent")

    async with trio.open_nursery() as nursery:
        for node in fleet.alive:
            nursery.start_soon(end, node)
    return sent
