"""nngkit's Client and Server, as contenders and under faults: providers and daemons are processes that are killed.

A fault run is one process that starts the others, calls all the time, and reports once at its end::

    kills        one of two daemons, or two of three providers, killed in turn under idempotent calls
    failovers    the only provider of the preferred zone killed, started again; calls across while it is up
    uneven       three providers that take 1, 2 and 4 times as long, under the policy of the task
    killed_of    one provider of `services` killed; the time until `resolve` no longer returns it
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import trio

from _child import as_many_files_as_allowed, cpu_of, fail, report
from _contenders import HERE
from _numbered import aask_all, ask_in_flight
from nngkit import Client, NngkitError, Resolver, Server, Service
from nngkit.discovery import Daemon, DaemonSettings
from nngkit.protocols import Req
from nngkit.testing import aeventually

NAME = "answer"
WAIT = 60.0  # seconds for any one event
ANY = "tcp://127.0.0.1:0"


async def _echo(body: Any) -> Any:
    return body


# ---- servers and callers ---------------------------------------------------------------------------------------------


def serve(task: dict[str, Any]) -> None:
    """Serve with a Server, echoing."""

    async def main() -> None:
        async with Server(NAME, _echo, listen=task["url"], codec=task.get("codec")) as server:
            report(url=server.address)
            await trio.sleep_forever()

    trio.run(main)


@asynccontextmanager
async def _client(task: dict[str, Any]) -> AsyncIterator[Callable[[bytes], Awaitable[Any]]]:
    codec = task.get("codec")
    async with Client(NAME, addresses=task["url"], codec=codec) as client:
        await client.wait_for_providers(timeout=WAIT)

        async def ask(body: bytes) -> Any:
            return await client.request(body, timeout=10.0)

        yield ask


@asynccontextmanager
async def _req(task: dict[str, Any]) -> AsyncIterator[Callable[[bytes], Awaitable[Any]]]:
    async with Req(dial=task["url"]) as req:
        await req.await_for_peers(1, WAIT)

        async def ask(body: bytes) -> Any:
            return await req.arequest(body, timeout=10.0)

        yield ask


def req_trio(task: dict[str, Any]) -> None:
    """Ask with a bare Req, with a timeout as every call of a Client has."""

    async def main() -> None:
        async with _req(task) as ask:
            await aask_all(ask, task)

    trio.run(main)


def req_many_trio(task: dict[str, Any]) -> None:
    async def main() -> None:
        async with _req(task) as ask, trio.open_nursery() as nursery:
            await ask_in_flight(ask, task, nursery.start_soon, trio.sleep)

    trio.run(main)


def ask_trio(task: dict[str, Any]) -> None:
    async def main() -> None:
        async with _client(task) as ask:
            await aask_all(ask, task)

    trio.run(main)


def ask_many_trio(task: dict[str, Any]) -> None:
    async def main() -> None:
        async with _client(task) as ask, trio.open_nursery() as nursery:
            await ask_in_flight(ask, task, nursery.start_soon, trio.sleep)

    trio.run(main)


@asynccontextmanager
async def _aio_client(task: dict[str, Any]) -> AsyncIterator[Callable[[bytes], Awaitable[Any]]]:
    from nngkit import aio

    async with aio.Client(NAME, addresses=task["url"], codec=task.get("codec")) as client:
        await client.wait_for_providers(timeout=WAIT)

        async def ask(body: bytes) -> Any:
            return await client.request(body, timeout=10.0)

        yield ask


def ask_asyncio(task: dict[str, Any]) -> None:
    async def main() -> None:
        async with _aio_client(task) as ask:
            await aask_all(ask, task)

    asyncio.run(main())


def ask_many_asyncio(task: dict[str, Any]) -> None:
    async def main() -> None:
        async with _aio_client(task) as ask:
            loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()
            await ask_in_flight(ask, task, lambda each: tasks.add(loop.create_task(each())), asyncio.sleep)

    asyncio.run(main())


# ---- processes that are killed ---------------------------------------------------------------------------------------


@contextmanager
def _process(task: dict[str, Any], function: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a function of this module in a process; `namespace`: in that host."""
    words = [sys.executable, str(HERE / "_child.py"), f"_calls:{function}", json.dumps({**task, **more})]
    if namespace := more.get("namespace"):
        words = ["ip", "netns", "exec", namespace, *words]  # replaces itself: the pid is the program's
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    with open(task["processes"], "a") as listed:
        listed.write(f"{process.pid}\n")
    try:
        yield process
    finally:
        process.kill()
        process.wait(WAIT)
        assert process.stdout is not None
        process.stdout.close()


def _said(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        fail(f"{process.args}: ended early")
    told: dict[str, Any] = json.loads(line)
    return told


class _Restarted:
    """A process that is killed and started again."""

    def __init__(self, task: dict[str, Any], function: str, **more: Any) -> None:
        self._make = lambda: _process(task, function, **more)
        self._context: Any = None
        self.process: subprocess.Popen[str]

    def start(self) -> dict[str, Any]:
        """Start it, and return the line it prints when it is ready."""
        self._context = self._make()
        self.process = self._context.__enter__()
        return _said(self.process)

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        if self._context is not None:
            self.process.send_signal(signal.SIGKILL)
            self._context.__exit__(None, None, None)
            self._context = None


def daemon(task: dict[str, Any]) -> None:
    """Run a discovery daemon at the two ports of the task."""

    async def main() -> None:
        as_many_files_as_allowed()
        settings = DaemonSettings(listen=(task["survey"],), query=(task["query"],), deadline=1.0, interval=0.5)
        async with Daemon(settings) as running:
            report(survey=running.addresses[0], query=running.query_addresses[0])
            await running.run()

    trio.run(main)


def provide(task: dict[str, Any]) -> None:
    """Run a provider that takes `takes` seconds for a call, `at_once` calls at a time."""

    async def handler(body: Any) -> Any:
        if task.get("takes"):
            await trio.sleep(task["takes"])
        return [task.get("mark", ""), body] if task.get("codec") else task.get("mark", "").encode() + body

    async def main() -> None:
        async with Server(
            NAME,
            handler,
            discovery=task["daemons"],
            zone=task.get("zone", ""),
            concurrency=task.get("at_once", 64),
        ) as server:
            report(address=server.address)
            await trio.sleep_forever()

    trio.run(main)


def announce(task: dict[str, Any]) -> None:
    """Announce `count` services that nothing serves, named after `first` and the following numbers."""

    async def main() -> None:
        as_many_files_as_allowed()
        async with AsyncExitStack() as stack:
            for number in range(task["first"], task["first"] + task["count"]):
                name = task.get("name") or f"s{number}"
                address = f"tcp://10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:9000"
                await stack.enter_async_context(Service(name, address, discovery=task["daemons"], sigterm=False))
            report(ready=task["count"])
            await trio.sleep_forever()

    trio.run(main)


def _ports(count: int) -> list[str]:
    import socket

    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind(("127.0.0.1", 0))
    found = [f"tcp://127.0.0.1:{each.getsockname()[1]}" for each in held]
    for each in held:
        each.close()
    return found


# ---- kills under calls -----------------------------------------------------------------------------------------------


def kills(task: dict[str, Any]) -> None:
    """Kill `kills` times under idempotent calls; report how many failed, and how many took over a second."""
    trio.run(_kills, task)


async def _kills(task: dict[str, Any]) -> None:
    report(url="")
    ports = _ports(4)
    daemons = [_Restarted(task, "daemon", survey=ports[2 * n], query=ports[2 * n + 1]) for n in range(2)]
    surveys, queries = ports[0::2], ports[1::2]
    providers = [_Restarted(task, "provide", daemons=surveys, mark=str(n)) for n in range(3)]
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
        measuring = _in_host(caller, "fail_over", {**task, **places})
        _said(measuring)
        report(**_said(measuring))


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
        running = _Restarted(task, "daemon", survey=survey, query=query)
        far = {"namespace": task["london"], "zone": "london", "mark": "l"}
        near = {"namespace": task["ny"], "zone": "ny", "mark": "n"}
        london = _Restarted(task, "provide", daemons=[survey], **far)
        ny = _Restarted(task, "provide", daemons=[survey], **near)
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


# ---- uneven providers ------------------------------------------------------------------------------------------------


def uneven(task: dict[str, Any]) -> None:
    """Call three providers that take 1, 2 and 4 ms, 4 calls at a time each, by the policy of the task."""
    trio.run(_uneven, task)


async def _uneven(task: dict[str, Any]) -> None:
    report(url="")
    times: list[float] = []

    def handler(seconds: float) -> Callable[[Any], Awaitable[Any]]:
        async def handle(body: Any) -> Any:
            await trio.sleep(seconds)
            return body

        return handle

    async with AsyncExitStack() as stack:
        addresses = []
        for seconds in (0.004, 0.008, 0.016):
            server = await stack.enter_async_context(Server(NAME, handler(seconds), concurrency=4))
            addresses.append(server.address)
        client = await stack.enter_async_context(Client(NAME, addresses=addresses, policy=task["policy"]))
        await client.wait_for_providers(3, timeout=WAIT)
        end = trio.current_time() + task["seconds"]

        async def call() -> None:
            began = time.perf_counter()
            await client.request(b"x", timeout=WAIT)
            times.append(time.perf_counter() - began)

        async with trio.open_nursery() as nursery:
            due = trio.current_time()
            while due < end:  # open loop: a slow reply does not slow down the next call
                nursery.start_soon(call)
                due += 1 / task["rate"]
                await trio.sleep_until(due)
    times.sort()
    report(
        times=len(times),
        p50_ms=statistics.median(times) * 1000,
        p99_ms=times[int(len(times) * 0.99)] * 1000,
    )


# ---- one of many services --------------------------------------------------------------------------------------------


def killed_of(task: dict[str, Any]) -> None:
    """Kill one provider among `services` others, `rounds` times; report the time of the last stale `resolve`."""
    trio.run(_killed_of, task)


async def _killed_of(task: dict[str, Any]) -> None:
    as_many_files_as_allowed()
    report(url="")
    survey, query = _ports(2)
    stale: list[float] = []
    found: list[float] = []
    async with AsyncExitStack() as stack:
        running = _Restarted(task, "daemon", survey=survey, query=query)
        stack.callback(running.kill)
        await trio.to_thread.run_sync(running.start)
        share = task["services"] // 4
        for index in range(4):
            fleet = _Restarted(task, "announce", daemons=[survey], first=index * share, count=share)
            stack.callback(fleet.kill)
            await trio.to_thread.run_sync(fleet.start)
        resolvers = [await stack.enter_async_context(Resolver(query)) for _ in range(task["resolvers"])]
        victim = _Restarted(task, "announce", daemons=[survey], first=(1 << 20), count=1, name=NAME)
        stack.callback(victim.kill)
        for each in resolvers:
            await aeventually(lambda each=each: len(each.snapshot()) >= share * 4, WAIT)  # type: ignore[misc]
        for _ in range(task["rounds"]):
            await trio.to_thread.run_sync(victim.start)
            began = time.perf_counter()
            for each in resolvers:
                await each.find(NAME, timeout=WAIT)
            found.append(time.perf_counter() - began)
            await trio.sleep(0.2)
            killed = time.perf_counter()
            victim.process.send_signal(signal.SIGKILL)
            left = set(resolvers)
            while left:
                for each in list(left):
                    try:
                        each.resolve(NAME)
                    except NngkitError:
                        left.discard(each)
                await trio.sleep(0.0005)
            stale.append(time.perf_counter() - killed)
            await trio.to_thread.run_sync(victim.kill)
        cpu = cpu_of([running.process.pid])
    stale.sort()
    report(
        times=len(stale),
        p50_ms=statistics.median(stale) * 1000,
        p99_ms=stale[min(len(stale) - 1, int(len(stale) * 0.99))] * 1000,
        found_ms=statistics.median(found) * 1000,
        cpu_s=cpu,
    )


# ---- lost messages and partitions ------------------------------------------------------------------------------------


def lost_rounds(task: dict[str, Any]) -> None:
    """Simulate `rounds` rounds of `services` services without sockets; each reply is lost with probability `lost`.

    Counts the services that the registry declared down, although none ever was.
    """
    from nngkit.discovery import Provider, State
    from nngkit.discovery.messages import SurveyReply
    from nngkit.discovery.registry import Registry

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
    words = [sys.executable, str(HERE / "_child.py"), f"_calls:{function}", json.dumps(task)]
    process: subprocess.Popen[str] = host.popen(words, stdout=subprocess.PIPE, text=True, **options)
    return process


def lossy(task: dict[str, Any]) -> None:
    """Lose `lost` of the packets between a daemon and 20 services on another host, for `lasts` seconds; needs root."""
    report(url="")
    with _hosts() as hosts:
        here, there = hosts.add("daemon"), hosts.add("services")
        hosts.link("daemon", "services")
        survey = f"tcp://{here.address}:5555"
        watching = _in_host(here, "count_downs", {**task, "survey": survey, "services": 20})
        _said(watching)
        fleet = _in_host(there, "announce", {**task, "daemons": [survey], "first": 0, "count": 20})
        _said(fleet)
        _said(watching)  # all are up
        hosts.lose("daemon", "services", task["lost"])
        told = _said(watching)
        report(times=20, seconds=task["lasts"], **told)


def count_downs(task: dict[str, Any]) -> None:
    """Survey the services of another host; count those declared down, although none ever was, in `lasts` seconds."""
    from nngkit.discovery import ServiceDiscovery, State

    async def main() -> None:
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

    trio.run(main)


def partitions(task: dict[str, Any]) -> None:
    """Cut the link between a daemon and its services `rounds` times, heal it, and time until the view is right."""
    report(url="")
    times: list[float] = []
    with _hosts() as hosts:
        here, there = hosts.add("daemon"), hosts.add("services")
        hosts.link("daemon", "services")
        survey = f"tcp://{here.address}:5555"
        watching = _in_host(here, "time_healing", {**task, "survey": survey, "services": 20}, stdin=subprocess.PIPE)
        _said(watching)
        _said(_in_host(there, "announce", {**task, "daemons": [survey], "first": 0, "count": 20}))
        assert watching.stdin is not None
        rng = random.Random(1)
        for _ in range(task["rounds"]):
            _said(watching)  # all are up
            hosts.cut("daemon", "services")
            time.sleep(rng.uniform(0.5, task["longest"]))
            hosts.heal("daemon", "services")
            watching.stdin.write("healed\n")
            watching.stdin.flush()
            times.append(float(_said(watching)["took"]))
    times.sort()
    report(
        times=len(times),
        late=sum(took > 1.0 + task["interval"] for took in times),
        p50_ms=statistics.median(times) * 1000,
        max_ms=times[-1] * 1000,
    )


def time_healing(task: dict[str, Any]) -> None:
    """Survey; at each line of standard input time until all services are up again."""
    from nngkit.discovery import ServiceDiscovery

    async def main() -> None:
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

    trio.run(main)
