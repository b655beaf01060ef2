"""Jobs of a cluster that go wrong: a job that kills its workers' processes, workers and jobs that hang."""

from __future__ import annotations

import json
import signal
import statistics
import sys
import time
from typing import Any

import trio
from _cluster_fleet import WAIT, Failed, Fleet, Node
from _cluster_jobs import HOST, cluster

from _child import fail, report

TRIES = 3  # of the job that kills
OTHERS = 200  # jobs of 20 ms beside it; more tries, as each is at a worker that is killed more than once
TAKES = 0.3  # seconds of the job whose worker is stopped


async def _submitter(fleet: Fleet) -> Node:
    node = await fleet.start("s", dial=fleet[HOST].address)
    await node.ask("joined", timeout=WAIT)
    return node


def _wrong(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def kills(task: dict[str, Any]) -> None:
    """Submit a job that kills its worker's process, among others, `rounds` times; killed workers are started again.

    ``failed``: rounds in which it was not dead after its tries, or another job was not done.
    """
    report(url="")
    report(**trio.run(_kills, task))


async def _kills(task: dict[str, Any]) -> dict[str, float]:
    workers = {f"w{number}": {"work": {"sleep": 2, "kill": 1}} for number in range(TRIES)}
    failed = killed = 0
    seconds = []
    async with cluster(task, workers) as fleet, trio.open_nursery() as nursery:
        node = await _submitter(fleet)

        async def revive() -> None:
            nonlocal killed
            async for event in fleet.events:
                if event["event"] == "ended":
                    killed += 1
                    await fleet.restart(event["from"])

        nursery.start_soon(revive)
        for number in range(task["rounds"]):
            before, began = killed, time.perf_counter()
            ends: dict[str, dict[str, Any]] = {}

            async def ask(name: str, do: str, ends: dict[str, dict[str, Any]] = ends, **arguments: Any) -> None:
                try:
                    ends[name] = await node.ask(do, **arguments)
                except Failed as error:
                    ends[name] = error.reply

            async with trio.open_nursery() as jobs:
                jobs.start_soon(lambda ask=ask: ask("kill", "submit", kind="kill", payload="", tries=TRIES))
                others = {"kind": "sleep", "payloads": ["0.02"] * OTHERS, "in_flight": 50, "tries": 100}
                jobs.start_soon(lambda ask=ask, others=others: ask("others", "map", **others))
            seconds.append(time.perf_counter() - began)
            bad = ends["kill"]
            dead = bad.get("outcome") == "dead" and bad["tries"] == TRIES and killed == before + TRIES
            if not dead or "error" in ends["others"]:
                failed += 1
                ends["others"].pop("by", None)
                _wrong(f"round {number}, {killed - before} workers killed: {ends}")
            await fleet.each("joined", timeout=WAIT)
        nursery.cancel_scope.cancel()
    return {"times": task["rounds"], "failed": failed, "seconds": statistics.median(seconds)}


def hung(task: dict[str, Any]) -> None:
    """Stop a worker that does a job, or have a job hang, `rounds` times; report the job's time beyond its timeout.

    ``how``: "stopped" sends SIGSTOP to the worker's process, until the job has ended elsewhere; "hangs": the job sleeps
    for ever at its first try, and has a timeout. ``failed``: jobs that had not exactly two tries.
    """
    report(url="")
    report(**trio.run(_hung, task))


async def _hung(task: dict[str, Any]) -> dict[str, float]:
    visibility = task["visibility"]
    beyond, failed = [], 0
    for number in range(task["rounds"]):
        # a cluster of its own for each: in the last one, a slot is taken by the job that hangs
        workers = {f"w{number}": {"work": {"told": 1, "hang": 1}} for number in range(3)}
        async with cluster(task, workers) as fleet:
            node = await _submitter(fleet)
            if task["how"] == "stopped":
                end = await _stopped(fleet, node, visibility)
                end["began"] += TAKES
            else:
                end = await node.ask("submit", kind="hang", payload="", run_timeout=visibility)
        beyond.append(end["ended"] - end["began"] - visibility)
        tries = json.loads(end["result"])[2]
        if tries != 2:
            failed += 1
            _wrong(f"round {number}: {tries} tries")
    return {
        "times": len(beyond),
        "failed": failed,
        "p50_ms": statistics.median(beyond) * 1000,
        "max_ms": max(beyond) * 1000,
    }


async def _stopped(fleet: Fleet, node: Node, visibility: float) -> dict[str, Any]:
    """Submit a job, stop its worker once it has begun, and let the worker go on; return the job's end."""
    end: dict[str, Any] = {}

    async def submit() -> None:
        end.update(await node.ask("submit", kind="told", payload=f"job {TAKES}", key="stopped", visibility=visibility))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(submit)
        with trio.fail_after(WAIT):
            async for event in fleet.events:
                if event["event"] == "started":
                    break
        stopped = fleet[event["from"]]
        stopped.signal(signal.SIGSTOP)
    stopped.signal(signal.SIGCONT)
    await stopped.ask("joined", timeout=WAIT)
    # the worker's late result must not replace the first one
    again = await node.ask("submit", kind="told", payload="", key="stopped")
    if again["result"] != end["result"]:
        fail(f"a second result under one key: {again['result']} after {end['result']}")
    return end
