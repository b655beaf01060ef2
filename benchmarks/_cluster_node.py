"""One node of a cluster in a process of its own, for `_cluster_fleet.py`: only this module uses nngkit.cluster.

`nursery` imports all that a node needs and then forks a process for each line of standard input, which costs 20 ms of
CPU instead of 500. A node connects to the fleet's socket and carries out its commands, lines of JSON: each ``do_...``
below is one, its arguments are the command's, what it returns is the reply. Times are `time.monotonic()`, one clock for
all processes of the machine, network namespaces included.

A message's body is ``epoch number time``: each node checks that those of an origin's epoch come without a gap, once and
in order. A job's result says which node did it, under which fence, and when.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import random
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from _tied import tie

import nngkit.cluster
import nngkit.documents
from _child import as_many_files_as_allowed, report
from nngkit.cluster import Host, Member
from nngkit.errors import NngkitError

CLUSTER = "bench"
MOST_FAULTS = 20  # lines of one node's report
MOVED = 0.02  # seconds between two looks at the role


def nursery(task: dict[str, Any]) -> None:
    """Fork a node for each line of standard input, ``name path``; report its process id."""
    as_many_files_as_allowed()
    for package in (nngkit.cluster, nngkit.documents):  # all that is imported with its first use too
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            importlib.import_module(found.name)
    gc.collect()
    gc.freeze()  # the objects so far stay in pages that the nodes share
    report(ready=os.getpid())
    for line in sys.stdin:
        name, path = line.split()
        if pid := os.fork():
            report(pid=pid)
            continue
        tie()
        faulthandler.enable()
        os.close(0)
        link = socket.socket(socket.AF_UNIX)
        link.connect(path)
        link.sendall(json.dumps({"name": name, "pid": os.getpid()}).encode() + b"\n")
        trio.run(NodeProcess(name, link).run)
        os._exit(0)


@asynccontextmanager
async def submitter(name: str, address: str) -> AsyncIterator[Member]:
    """Run a node in this process that submits jobs."""
    async with Member(CLUSTER, id=name, dial=address) as node:
        await node.joined(60.0)
        yield node


class Tally:
    """Object shared by the cluster: a count of the changes, and a digest of their order."""

    def __init__(self) -> None:
        self.count = 0
        self.digest = 0

    def update(self, fragment: bytes) -> None:
        self.count += 1
        for byte in fragment:
            self.digest = (self.digest * 257 + byte + 1) % ((1 << 61) - 1)

    def full_state(self) -> bytes:
        return json.dumps([self.count, self.digest]).encode()

    def load(self, full: bytes) -> None:
        self.count, self.digest = json.loads(full)


class Heard:
    """Messages of all origins: each epoch's without gap, once, in order; what is wrong is kept as text."""

    def __init__(self) -> None:
        self.last: dict[tuple[str, int], int] = {}
        self.first: dict[tuple[str, int], int] = {}
        self.faults: list[str] = []
        self.fault_count = 0
        self.late: dict[str, list[float]] = {}  # seconds from `send`, by origin, while wanted
        self.timing = False

    def add(self, origin: str, body: bytes) -> None:
        now = time.monotonic()
        epoch, number, sent = body.split()[:3]
        key, count = (origin, int(epoch)), int(number)
        expected = self.last.get(key, count - 1) + 1
        if count != expected:
            self.fault(f"{origin}: message {count} instead of {expected}")
        self.first.setdefault(key, count)
        self.last[key] = max(count, self.last.get(key, 0))
        if self.timing:
            self.late.setdefault(origin, []).append(now - float(sent))

    def fault(self, what: str) -> None:
        self.fault_count += 1
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(what)


class NodeProcess:
    """The node, its link to the fleet, and what it does in the background."""

    def __init__(self, name: str, link: socket.socket) -> None:
        self.name = name
        self.epoch = time.time_ns() // 1000
        self._link = trio.SocketStream(trio.socket.from_stdlib_socket(link))
        self._out, self._lines = trio.open_memory_channel[dict[str, Any]](100_000)
        self.heard = Heard()
        self.probes: dict[str, float] = {}
        self._probed = trio.Event()
        self.sent = 0
        self.runs = 0
        self.hosting: list[list[float]] = []  # [first, last, term] of each time with the lease
        self.tally = Tally()
        self.edits = self.changes = 0
        self._quiet = trio.Event()
        self._going = 0
        self._close = trio.Event()
        self._stopped = trio.Event()

    async def run(self) -> None:
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._write)
            buffer = b""
            while data := await self._link.receive_some(1 << 16):
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    self._nursery.start_soon(self._carry_out, json.loads(line))
            os._exit(0)  # the fleet is gone

    def tell(self, event: str, **more: Any) -> None:
        """Send an event to the fleet."""
        self._out.send_nowait({"event": event, "at": time.monotonic(), **more})

    async def _write(self) -> None:
        async for line in self._lines:
            await self._link.send_all(json.dumps(line).encode() + b"\n")

    async def _carry_out(self, command: dict[str, Any]) -> None:
        number, name = command.pop("id"), command.pop("do")
        try:
            reply = await getattr(self, f"do_{name}")(**command) or {}
        except (NngkitError, trio.TooSlowError) as error:
            reply = {"error": f"{type(error).__name__}: {error}", "outcome": getattr(error, "outcome", "")}
            reply["tries"] = getattr(error, "tries", 0)
        self._out.send_nowait({"reply": number, "at": time.monotonic(), **reply})

    # ---- the node

    async def do_open(
        self, role: str, options: dict[str, Any], work: dict[str, int] | None = None, factor: float = 1.0
    ) -> dict[str, Any]:
        """Start the node. `work`: concurrency of each kind of jobs; `factor`: how much longer jobs take here."""
        self.node = node = (Host if role == "host" else Member)(CLUSTER, id=self.name, **options)
        self.factor = factor

        @node.on("numbered")
        async def numbered(message: Any) -> None:
            self.heard.add(message.origin, message.body)

        @node.on("probe")
        async def probe(message: Any) -> None:
            at = time.monotonic()
            if self.probes.setdefault(message.body.decode(), at) != at:
                self.heard.fault(f"{message.origin}: probe {message.body.decode()} twice")
            self._probed.set()
            self._probed = trio.Event()

        node.on_gap(lambda gap: self.heard.fault(f"gap: {gap}"))
        for kind, concurrency in (work or {}).items():
            node.work(kind, concurrency=concurrency)(getattr(self, f"_work_{kind}"))
        opened = trio.Event()
        self._nursery.start_soon(self._live, opened)
        await opened.wait()
        return {"address": node.address}

    async def _live(self, opened: trio.Event) -> None:
        async with self.node:
            opened.set()
            await self._close.wait()
        self._stopped.set()

    async def do_watch_role(self) -> dict[str, Any]:
        """Note from when to when this node has the lease, as far as it knows, from now on."""
        self._nursery.start_soon(self._watch_role)
        return {}

    async def _watch_role(self) -> None:
        host = False
        while not self._close.is_set():
            now, term = time.monotonic(), float(self.node.term)
            if self.node.holds_lease:
                if host and self.hosting[-1][2] == term:
                    self.hosting[-1][1] = now
                else:
                    self.hosting.append([now, now, term])
                host = True
            else:
                host = False
            await trio.sleep(MOVED)

    async def do_close(self) -> dict[str, Any]:
        """Leave the cluster."""
        self._quiet.set()
        self._close.set()
        await self._stopped.wait()
        return {}

    async def do_joined(self, timeout: float) -> dict[str, Any]:
        await self.node.joined(timeout)
        return await self.do_place()

    async def do_place(self) -> dict[str, Any]:
        """Return how the node sees itself."""
        node = self.node
        told = {"role": node.role, "term": node.term, "host": node.host, "hosting": self.hosting}
        return told | {"path": list(node.path), "parent": node.parent, "children": list(node.children)}

    async def do_tree(self, timeout: float = 5.0) -> dict[str, Any]:
        """Return the parent and the depth of each member, as the host knows them."""
        tree = await self.node.tree(timeout)
        return {"term": tree.term, "members": {each.id: [each.parent, each.depth] for each in tree.members}}

    async def do_status(self, timeout: float = 5.0) -> dict[str, Any]:
        status = (await self.node.status(timeout)).as_dict()
        return {key: status[key] for key in ("term", "host", "members", "depth", "grants", "jobs", "counters")}

    # ---- messages

    async def do_send(self, count: int = 1, rate: float = 0.0) -> dict[str, Any]:
        """Send numbered messages, `rate` a second or at once."""
        for number in range(count):
            due = trio.current_time() + 1 / rate if rate else 0.0
            await self._send_numbered()
            if rate and number + 1 < count:
                await trio.sleep_until(due)
        return await self.do_sent()

    async def _send_numbered(self) -> None:
        self.sent += 1
        await self.node.send("numbered", b"%d %d %.9f" % (self.epoch, self.sent, time.monotonic()))

    async def do_sent(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "sent": self.sent, "edits": self.edits, "changes": self.changes}

    async def do_probe(self, name: str) -> dict[str, Any]:
        """Send a probe; return when."""
        began = time.monotonic()
        await self.node.send("probe", name.encode())
        return {"began": began}

    async def do_await_probe(self, name: str, timeout: float) -> dict[str, Any]:
        """Return when a probe was received."""
        with trio.fail_after(timeout):
            while name not in self.probes:
                await self._probed.wait()
        return {"received": self.probes[name]}

    async def do_time(self, on: bool) -> dict[str, Any]:
        """Begin to keep times of messages, or return those kept."""
        late, self.heard.late, self.heard.timing = self.heard.late, {}, on
        return {"late": late}

    async def do_heard(self) -> dict[str, Any]:
        """Return the first and the last message of each origin's epoch, and what was wrong with them."""
        rows = [[*key, self.heard.first[key], last] for key, last in self.heard.last.items()]
        return {"heard": rows, "faults": self.heard.faults, "fault_count": self.heard.fault_count}

    # ---- jobs that this node does

    def _result(self, job: Any) -> bytes:
        self.runs += 1
        return json.dumps([self.name, list(job.fence), job.try_number, time.monotonic()]).encode()

    async def _work_empty(self, job: Any) -> bytes:
        return job.payload  # type: ignore[no-any-return]

    async def _work_sleep(self, job: Any) -> bytes:
        """Sleep for the seconds in the payload, times the factor of this node."""
        await trio.sleep(float(job.payload) * self.factor)
        return self._result(job)

    async def _work_told(self, job: Any) -> bytes:
        """Tell the fleet of each start, then sleep for the seconds in the payload."""
        name, seconds = job.payload.split()
        self.tell("started", job=name.decode(), node=self.name, fence=list(job.fence), tries=job.try_number)
        await trio.sleep(float(seconds))
        return self._result(job)

    async def _work_kill(self, job: Any) -> bytes:
        self.tell("killed", node=self.name, tries=job.try_number)
        await trio.sleep(0.01)  # until that is written
        os._exit(1)

    async def _work_hang(self, job: Any) -> bytes:
        """Hang for ever at the first try."""
        if job.try_number == 1:
            self.tell("hangs", node=self.name)
            await trio.sleep_forever()
        return self._result(job)

    # ---- jobs that it submits

    async def do_submit(
        self,
        kind: str,
        payload: str,
        key: str | None = None,
        timeout: float = 60.0,
        run_timeout: float | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Submit a job, which may run for `run_timeout`, and wait for its end."""
        began = time.monotonic()
        with trio.fail_after(timeout):
            job = await self.node.submit(kind, payload.encode(), key=key, timeout=run_timeout, **options)
        accepted = time.monotonic()
        result = await job.result(timeout)
        return {"began": began, "accepted": accepted, "ended": time.monotonic(), "result": result.decode()}

    async def do_map(self, kind: str, payloads: list[str], in_flight: int = 1000, tries: int = 3) -> dict[str, Any]:
        """Submit jobs and wait for all of them; return which node did how many, and when they began and ended."""
        began, by = time.monotonic(), dict[str, int]()
        encoded = [payload.encode() for payload in payloads]
        async for result in self.node.map(kind, encoded, in_flight=in_flight, tries=tries):
            name = json.loads(result)[0]
            by[name] = by.get(name, 0) + 1
        return {"began": began, "ended": time.monotonic(), "by": by}

    async def do_results(self, kind: str, keys: list[str], timeout: float) -> dict[str, Any]:
        """Submit a job again under each of these keys; return the results, which are those of the first time."""
        results: dict[str, str] = {}
        limit, end = trio.CapacityLimiter(500), trio.current_time() + timeout

        async def ask(key: str) -> None:
            async with limit:
                results[key] = "not accepted"
                with trio.move_on_at(end):
                    try:
                        job = await self.node.submit(kind, b"0", key=key)
                        results[key] = "no end"
                        results[key] = (await job.result()).decode()
                    except NngkitError as error:
                        results[key] = f"{type(error).__name__}: {error}"

        async with trio.open_nursery() as nursery:
            for key in keys:
                nursery.start_soon(ask, key)
        return {"results": results}

    # ---- everything at once, in the background

    async def do_traffic(self, messages: float, jobs: float, edits: float, seconds: float = 0.005) -> dict[str, Any]:
        """Send messages, submit jobs and edit documents, so many a second, until `quiet`. Jobs take `seconds`."""
        self._quiet = trio.Event()
        tasks = ((messages, self._send_numbered), (jobs, lambda: self._job(seconds)), (edits, self._edit))
        for rate, function in tasks:
            if rate:
                self._nursery.start_soon(self._repeat, rate, function)
        return {}

    async def _repeat(self, rate: float, function: Callable[[], Any]) -> None:
        quiet, due = self._quiet, trio.current_time() + random.random() / rate  # nodes are not in step
        with trio.move_on_at(due):
            await quiet.wait()
        while not quiet.is_set():
            self._going += 1
            try:
                await function()
            finally:
                self._going -= 1
            due = max(due + 1 / rate, trio.current_time() - 1.0)  # what is late by over a second is left out
            with trio.move_on_at(due):
                await quiet.wait()

    async def _job(self, seconds: float) -> None:
        self.jobs = getattr(self, "jobs", 0) + 1
        key = f"{self.name}-{self.epoch}-{self.jobs}"
        job = await self.node.submit("sleep", b"%.6f" % seconds, key=key)
        self.tell("accepted", key=key)
        self._nursery.start_soon(self._await_result, key, job)

    async def _await_result(self, key: str, job: Any) -> None:
        self._going += 1
        try:
            result = (await job.result()).decode()
        except NngkitError as error:
            result = f"{type(error).__name__}: {error}"
        self._going -= 1
        self.tell("result", key=key, result=result)

    async def do_quiet(self, timeout: float) -> dict[str, Any]:
        """End the traffic with a last message; return once all that was begun has ended."""
        self._quiet.set()
        await trio.sleep(random.random())
        await self._send_numbered()  # so that nodes that have joined since the one before get one, too
        with trio.fail_after(timeout):
            while self._going:  # noqa: ASYNC110  # at the end of a run only
                await trio.sleep(0.01)
        return await self.do_sent()

    # ---- documents

    async def do_documents(self) -> dict[str, Any]:
        """Open the document and the shared object that all nodes have."""
        self.document = self.node.document("minutes")
        self.shared = self.node.share("tally", self.tally)
        return {}

    async def _edit(self) -> None:
        self.edits += 1
        self.document.map("edits")[f"{self.name}-{self.epoch}-{self.edits}"] = self.edits
        if self.edits % 2:
            self.changes += 1
            await self.shared.change(f"{self.name} {self.changes}".encode())

    async def do_content(self) -> dict[str, Any]:
        """Return the document's digest, how many edits of each origin it has, and the shared object's state."""
        by: dict[str, int] = {}
        for token in self.document.map("edits"):
            origin = token.rsplit("-", 1)[0]
            by[origin] = by.get(origin, 0) + 1
        told = {"digest": self.document.digest().hex(), "edits": by}
        return told | {"shared": [self.tally.count, self.tally.digest]}
