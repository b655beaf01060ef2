"""Jobs of a cluster: one host, worker processes, and a submitter; each function is one measurement.

::

    empty     empty jobs with their results: the submitter is this process, as with `_celery_jobs` and `_dask_jobs`
    sleeps    jobs of 20 ms over 16 workers: time over the ideal
    uneven    workers that take once, twice and four times as long: shares over speeds

Jobs that go wrong are in `_cluster_job_faults.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import trio
from _cluster_fleet import Fleet, until
from _cluster_node import submitter

from _child import Meter, fail, report

HOST = "host"
ANY = "tcp://127.0.0.1:0"
WAIT = 60.0  # seconds for any one event
LOOK = 64  # results between two looks at the clock


@asynccontextmanager
async def cluster(task: dict[str, Any], workers: dict[str, dict[str, Any]]) -> AsyncIterator[Fleet]:
    """Run a host and workers, which have joined."""
    async with Fleet(task) as fleet:
        host = await fleet.start(HOST, "host", listen=ANY)
        await host.ask("joined", timeout=WAIT)
        for name, options in workers.items():
            await fleet.start(name, dial=host.address, **options)
        await fleet.each("joined", timeout=WAIT)

        async def all_there() -> bool:
            return len((await host.ask("tree"))["members"]) == len(workers) + 1

        await until(all_there, WAIT, f"{len(workers)} workers have joined")
        yield fleet


def empty(task: dict[str, Any]) -> None:
    """Submit empty jobs to `workers` processes, and count their results; each has to be right."""
    report(url="")
    trio.run(_empty, task)


async def _empty(task: dict[str, Any]) -> None:
    workers = {f"w{number}": {"work": {"empty": task["concurrency"]}} for number in range(task["workers"])}
    async with cluster(task, workers) as fleet, submitter("s", fleet[HOST].address) as node:
        meter, expected = Meter(task), 0
        payloads = (b"%d" % number for number in count())
        async for result in node.map("empty", payloads, in_flight=task["in_flight"]):
            if int(result) != expected:
                fail(f"{result!r} instead of {expected}")
            expected += 1
            if expected % LOOK == 0 and not meter.add(LOOK):
                return


async def _mapped(task: dict[str, Any], workers: dict[str, dict[str, Any]], payload: str) -> dict[str, Any]:
    """Do `jobs` jobs after some as a run-in; return the times and the counts by worker."""
    async with cluster(task, workers) as fleet:
        node = await fleet.start("s", dial=fleet[HOST].address)
        await node.ask("joined", timeout=WAIT)
        in_flight = task.get("in_flight", 1000)
        await node.ask("map", kind="sleep", payloads=[payload] * (task["jobs"] // 8), in_flight=in_flight)
        return await node.ask("map", kind="sleep", payloads=[payload] * task["jobs"], in_flight=in_flight)


def sleeps(task: dict[str, Any]) -> None:
    """Do `jobs` jobs of 20 ms in `workers` processes of `slots` each; report the time over the ideal."""
    report(url="")
    workers = {f"w{number}": {"work": {"sleep": task["slots"]}} for number in range(task["workers"])}
    told = trio.run(_mapped, task, workers, "0.02")
    took = told["ended"] - told["began"]
    report(times=task["jobs"], seconds=took, over=took / (task["jobs"] * 0.02 / (task["slots"] * task["workers"])))


def uneven(task: dict[str, Any]) -> None:
    """Do `jobs` jobs of 50, 100 and 200 ms in three processes; report how far their shares are off their speeds."""
    report(url="")
    factors = {"w1": 1.0, "w2": 2.0, "w4": 4.0}
    workers = {name: {"work": {"sleep": task["slots"]}, "factor": factor} for name, factor in factors.items()}
    told = trio.run(_mapped, task, workers, "0.05")
    speeds = sum(1 / factor for factor in factors.values())
    shares = {name: told["by"].get(name, 0) / task["jobs"] for name in factors}
    off = [abs(shares[name] * factor * speeds - 1) for name, factor in factors.items()]
    report(times=task["jobs"], seconds=told["ended"] - told["began"], off=max(off))
