"""nngkit's Client under faults: providers and daemons are processes that are killed, hosts that are cut off.

A fault run is one process that starts the others, calls all the time, and reports once at its end::

    kills        one of two daemons, or two of three providers, killed in turn under idempotent calls
    failovers    the only provider of the preferred zone killed, started again; calls across while it is up
    lost_rounds, lossy, partitions   replies, packets or links lost: services declared down, views that are late
"""

from __future__ import annotations

import itertools
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import trio
from _restarted import WAIT, Restarted, ports, said

from _child import fail, report
from _contenders import HERE
from nngkit import Client, NngkitError, Server
from nngkit.testing import aeventually

NAME = "answer"
ANY = "tcp://127.0.0.1:0"


async def provide(task: dict[str, Any]) -> None:
    """Run a provider that takes `takes` seconds for a call, `at_once` calls at a time."""

    async def handler(body: Any) -> Any:
        if task.get("takes"):
            await trio.sleep(task["takes"])
        return [task.get("mark", ""), body] if task.get("codec") else task.get("mark", "").encode() + body

    async with Server(
        NAME,
        handler,
        discovery=task["daemons"],
        zone=task.get("zone", ""),
        concurrency=task.get("at_once", 64),
    ) as server:
        report(address=server.address)
        await trio.sleep_forever()


# ---- kills under calls -----------------------------------------------------------------------------------------------


async def kills(task: dict[str, Any]) -> None:
    """Kill `kills` times under idempotent calls; report how many failed, and how many took over a second."""
    report(url="")
    there = ports(4)
    daemons = [Restarted(task, "_reconnecting:daemon", survey=there[2 * n], query=there[2 * n + 1]) for n in range(2)]
    surveys, queries = there[0::2], there[1::2]
    providers = [Restarted(task, "_call_faults:provide", daemons=surveys, mark=str(n)) for n in range(3)]
    made = failed = over = 0
    times: list[float] = []
    stop = trio.Event()
    async with AsyncExitStack() as stack:
        for each in (*daemons, *providers):
            stack.callback(each.kill)
            await trio.to_thread.run_sync(each.start)
        client = await stack.enter_async_context(
            Client(NAME, daemons=queries, idempotent=True, timeout=10.0, attempt_timeout=2.0)
        )
        await client.wait_for_providers(3, timeout=WAIT)

        async def calls() -> None:
            nonlocal made, failed, over
            while not stop.is_set():
                began = time.perf_counter()
                try:
                    await client.request(b"x")
                except NngkitError as error:
                    failed += 1
                    sys.stderr.write(f"failed: {error!r}\n")
                took = time.perf_counter() - began
                made += 1
                over += took > 1.0
                times.append(took)
                await trio.sleep(0.002)

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(calls)
            done, cycle = 0, itertools.cycle(["daemon 0", (0, 1), "daemon 1", (1, 2), (2, 0)])
            while done < task["kills"]:
                what = next(cycle)
                victims = [daemons[int(what[-1])]] if isinstance(what, str) else [providers[n] for n in what]
                for victim in victims:
                    await trio.to_thread.run_sync(victim.kill)
                    done += 1
                await trio.sleep(0.05)
                for victim in victims:
                    await trio.to_thread.run_sync(victim.start)
                await client.wait_for_providers(3, timeout=WAIT)
            stop.set()
    times.sort()
    report(
        times=done,
        calls=made,
        failed=failed,
        over_1_s=over,
        p50_ms=statistics.median(times) * 1000,
        p99_ms=times[int(len(times) * 0.99)] * 1000,
        max_ms=times[-1] * 1000,
    )


# ---- failover --------------------------------------------------------------------------------------------------------


def failovers(task: dict[str, Any]) -> None:
    """Kill and restart the only provider in New York `rounds` times; another is in London. Needs root, for hosts."""
    report(url="")
    with _hosts() as hosts:
        caller, ny, london = (hosts.add(name) for name in ("caller", "ny", "london"))
        for host in (ny, london):
            hosts.link("caller", host.name)
        places = {"here": caller.address, "ny": ny.namespace, "london": london.namespace}
        measuring = _in_host(caller, "_call_faults:fail_over", {**task, **places})
        said(measuring)
        told = said(measuring)
    report(**told)  # after the hosts are gone: this process is then killed


def fail_over(task: dict[str, Any]) -> None:
    """Measure failovers; this process is the caller, with the daemon on its host."""
    trio.run(_failovers, task)


async def _failovers(task: dict[str, Any]) -> None:
    report(url="")
    survey, query = (f"tcp://{task['here']}:{port}" for port in (5555, 5556))
    failback = 0.5
    first_across: list[float] = []
    late_back: list[float] = []
    across_while_up = failed = 0
    async with AsyncExitStack() as stack:
        running = Restarted(task, "_reconnecting:daemon", survey=survey, query=query)
        far = {"namespace": task["london"], "zone": "london", "mark": "l"}
        near = {"namespace": task["ny"], "zone": "ny", "mark": "n"}
        london = Restarted(task, "_call_faults:provide", daemons=[survey], **far)
        ny = Restarted(task, "_call_faults:provide", daemons=[survey], **near)
        for each in (running, london, ny):
            stack.callback(each.kill)
            await trio.to_thread.run_sync(each.start)
        client = await stack.enter_async_context(
            Client(NAME, daemons=query, prefer=["ny", "london"], idempotent=True, timeout=10.0, failback=failback)
        )
        await client.wait_for_providers(2, timeout=WAIT)
        answered: list[tuple[float, bytes]] = []

        async def calls() -> None:
            nonlocal failed
            while True:
                try:
                    reply = await client.request(b"")
                except NngkitError as error:
                    failed += 1
                    sys.stderr.write(f"failed: {error!r}\n")
                else:
                    answered.append((time.perf_counter(), reply))
                await trio.sleep(0.001)

        async def until(wanted: bytes, since: float) -> float:
            while True:
                for at, reply in reversed(answered):
                    if at < since:
                        break
                    if reply == wanted:
                        return next(at for at, reply in answered if at >= since and reply == wanted)
                await trio.sleep(0.001)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(calls)
            for _ in range(task["rounds"]):
                answered.clear()
                began = time.perf_counter()
                with trio.fail_after(WAIT):
                    await until(b"n", began)
                settled = time.perf_counter()
                await trio.sleep(0.2)
                killed = time.perf_counter()
                across_while_up += sum(1 for at, reply in answered if settled <= at < killed and reply != b"n")
                await trio.to_thread.run_sync(ny.kill)
                with trio.fail_after(WAIT):
                    first_across.append(await until(b"l", killed) - killed)
                await trio.to_thread.run_sync(ny.start)
                await client.wait_for_providers(2, timeout=WAIT)
                back = time.perf_counter()
                with trio.fail_after(WAIT):
                    late_back.append(await until(b"n", back) - back - failback)
            nursery.cancel_scope.cancel()
    first_across.sort()
    report(
        times=len(first_across),
        failed=failed,
        across=across_while_up,
        p50_ms=statistics.median(first_across) * 1000,
        p99_ms=first_across[int(len(first_across) * 0.99)] * 1000,
        late_back_ms=max(late_back) * 1000,
    )


# ---- lost messages and partitions ------------------------------------------------------------------------------------


def lost_rounds(task: dict[str, Any]) -> None:
    """Simulate `rounds` rounds of `services` services without sockets; each reply is lost with probability `lost`.

    Counts the services that the registry declared down, although none ever was.
    """
    from nngkit.discovery import Provider, State
    from nngkit.discovery.messages import SurveyReply
    from nngkit.discovery.registry.registry import Registry

    report(url="")
    rng, registry, now = random.Random(7), Registry(), 0.0
    bodies = [
        SurveyReply(f"s{n}", (Provider(f"n{n}", f"tcp://10.0.0.1:{n + 1}", f"s{n}", 1),)).encode()
        for n in range(task["services"])
    ]
    for pipe in range(len(bodies)):
        registry.pipe_joined(pipe, now)
    down = suspect = 0
    began = time.perf_counter()
    for _ in range(task["rounds"]):
        again = False
        while True:
            this = registry.start_round(now, reask=again)
            for pipe, body in enumerate(bodies):
                if rng.random() >= task["lost"]:
                    registry.reply(pipe, this, body, now + 0.01)
            end = registry.end_round(this, now + 0.5)
            down += sum(event.new is State.DOWN for event in end.events)
            suspect += sum(event.new is State.SUSPECT for event in end.events)
            now += 0.5
            if again or not end.ask_again:
                break
            again = True
        now += 2.0
    took = time.perf_counter() - began
    rounds = task["rounds"]
    report(times=rounds, false_downs=down, suspects=suspect, p50_ms=took / rounds * 1000, seconds=took)


@contextmanager
def _hosts() -> Iterator[Any]:
    sys.path.append(str(HERE.parent))
    from tests.hosts import Hosts, unavailable

    if (why := unavailable()) is not None:
        fail(f"no hosts: {why}")
    made = Hosts()
    try:
        yield made
    finally:
        made.close()


def _in_host(host: Any, function: str, task: dict[str, Any], **options: Any) -> subprocess.Popen[str]:
    words = [sys.executable, str(HERE / "_child.py"), function, json.dumps(task)]
    process: subprocess.Popen[str] = host.popen(words, stdout=subprocess.PIPE, text=True, **options)
    return process


def lossy(task: dict[str, Any]) -> None:
    """Lose `lost` of the packets between a daemon and 20 services on another host, for `lasts` seconds; needs root."""
    report(url="")
    with _hosts() as hosts:
        here, there = hosts.add("daemon"), hosts.add("services")
        hosts.link("daemon", "services")
        survey = f"tcp://{here.address}:5555"
        watching = _in_host(here, "_call_faults:count_downs", {**task, "survey": survey, "services": 20})
        said(watching)
        fleet = _in_host(there, "_presence:announce", {**task, "daemons": [survey], "first": 0, "count": 20})
        said(fleet)
        said(watching)  # all are up
        hosts.lose("daemon", "services", task["lost"])
        told = said(watching)
    report(times=20, seconds=task["lasts"], **told)  # after the hosts are gone: this process is then killed


async def count_downs(task: dict[str, Any]) -> None:
    """Survey the services of another host; count those declared down, although none ever was, in `lasts` seconds."""
    from nngkit.discovery import ServiceDiscovery, State

    async with ServiceDiscovery(listen=task["survey"], deadline=1.0, interval=1.0) as discovery:
        report(listening=True)
        await aeventually(lambda: len(discovery.snapshot()) == task["services"], WAIT)
        report(up=task["services"])
        downs = suspects = 0
        with trio.move_on_after(task["lasts"]):
            async for event in discovery.events():
                downs += event.new is State.DOWN
                suspects += event.new is State.SUSPECT
        report(false_downs=downs, suspects=suspects, rounds=len(discovery.rounds))


def partitions(task: dict[str, Any]) -> None:
    """Cut the link between a daemon and its services `rounds` times, heal it, and time until the view is right."""
    report(url="")
    times: list[float] = []
    with _hosts() as hosts:
        here, there = hosts.add("daemon"), hosts.add("services")
        hosts.link("daemon", "services")
        survey = f"tcp://{here.address}:5555"
        watching = _in_host(
            here, "_call_faults:time_healing", {**task, "survey": survey, "services": 20}, stdin=subprocess.PIPE
        )
        said(watching)
        said(_in_host(there, "_presence:announce", {**task, "daemons": [survey], "first": 0, "count": 20}))
        assert watching.stdin is not None
        rng = random.Random(1)
        for _ in range(task["rounds"]):
            said(watching)  # all are up
            hosts.cut("daemon", "services")
            time.sleep(rng.uniform(0.5, task["longest"]))
            hosts.heal("daemon", "services")
            watching.stdin.write("healed\n")
            watching.stdin.flush()
            times.append(float(said(watching)["took"]))
    times.sort()
    report(
        times=len(times),
        late=sum(took > 1.0 + task["interval"] for took in times),
        p50_ms=statistics.median(times) * 1000,
        max_ms=times[-1] * 1000,
    )


async def time_healing(task: dict[str, Any]) -> None:
    """Survey; at each line of standard input time until all services are up again."""
    from nngkit.discovery import ServiceDiscovery

    async with ServiceDiscovery(listen=task["survey"], deadline=0.5, interval=task["interval"]) as discovery:
        report(listening=True)

        def right() -> bool:
            rows = discovery.view()
            return sum(row.state == "up" and not row.stale for row in rows) == task["services"]

        while True:
            await aeventually(right, WAIT)
            report(up=task["services"])
            await trio.to_thread.run_sync(sys.stdin.readline)
            began = time.perf_counter()
            rounds = discovery.rounds[-1].number
            await aeventually(lambda rounds=rounds: right() and discovery.rounds[-1].number > rounds, WAIT)  # type: ignore[misc]
            report(took=time.perf_counter() - began)
