"""Clients of the gateway, and of FastAPI with nngkit.aio.Client, for `gateway.py`."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _child import as_many_files_as_allowed, cpu_of, peak, quantile, report, resident

CORES = sorted(os.sched_getaffinity(0))
MEASURED, OTHERS = CORES[0], CORES[-1]
BOUND = 60.0  # seconds for a process to start, or an answer to come
BODY = b'{"n":21}'
BULK = 8192  # bytes: at 100 a second the queue of a client that does not read is full within a second

SERVICE = """
import trio
from nngkit import Server
from nngkit.discovery import Daemon, DaemonSettings
async def main():
    async with Daemon(DaemonSettings(listen=("tcp://127.0.0.1:0",), interval=0.5)) as daemon:
        server = Server("calc", discovery=daemon.addresses, codec="cbor", concurrency=256)
        @server.method("double")
        async def double(body): return body["n"] * 2
        async with server:
            print(daemon.query_addresses[0], flush=True)
            await trio.sleep_forever()
trio.run(main)
"""
APPLICATION = """
import socket, sys
from contextlib import asynccontextmanager
from typing import Any
import uvicorn
from fastapi import Body, FastAPI
from nngkit.aio import Client
clients = {}
@asynccontextmanager
async def lifespan(app):
    async with Client("calc", daemons=sys.argv[1], codec="cbor", timeout=5.0) as clients["calc"]:
        yield
app = FastAPI(lifespan=lifespan)
@app.post("/call/{name}/{method}")
async def call(name: str, method: str, body: Any = Body(None)) -> Any:
    return await clients[name].request(body, method=method)
config = uvicorn.Config(app, loop="asyncio", http="h11", log_level="warning", access_log=False)
uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(sys.argv[2]))])
"""
PUBLISHER = """
import sys, time, trio
from nngkit.fanout import Publisher
async def main():
    rate, bulk = float(sys.argv[1]), b"x" * int(sys.argv[2])
    async with Publisher("tcp://127.0.0.1:0") as publisher:
        print(publisher.address, flush=True)
        began, sent = trio.current_time(), 0
        while True:
            sent += 1
            await trio.sleep_until(began + sent / rate)
            publisher.publish("load.x", b"%d" % time.time_ns())
            publisher.publish("bulk", bulk)
trio.run(main)
"""


def on_core(core: int, *command: str, **options: Any) -> subprocess.Popen[str]:
    """Start a process on one core."""
    return subprocess.Popen(["taskset", "-c", str(core), *command], stdout=subprocess.PIPE, text=True, **options)


@contextlib.contextmanager
def running(process: subprocess.Popen[str]) -> Iterator[str]:
    """Yield the process's first line; end it afterwards."""
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(BOUND)
        process.stdout.close()


# ---- calls -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def contender(gateway: bool, daemon: str) -> Iterator[tuple[int, int]]:
    """Run a contender; yield its port and process id."""
    if gateway:
        command = [sys.executable, "-m", "nngkit", "gateway", "--http", "127.0.0.1:0", "--daemon", daemon]
        process = on_core(MEASURED, *command)
        with running(process) as url:
            yield int(url.rpartition(":")[2].strip("/")), process.pid
        return
    listener = socket.create_server(("127.0.0.1", 0))
    fd = listener.fileno()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "application.py"
        program.write_text(APPLICATION)
        process = on_core(MEASURED, sys.executable, str(program), daemon, str(fd), pass_fds=(fd,))
        try:
            yield listener.getsockname()[1], process.pid
        finally:
            process.terminate()
            process.wait(BOUND)
            listener.close()


def request_of(port: int) -> bytes:
    """Return the request that each connection repeats."""
    head = f"POST /call/calc/double HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Accept: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY


def await_answer(port: int) -> None:
    """Wait until the contender answers as it should."""
    end = time.monotonic() + BOUND
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(request_of(port))
            answer = client.recv(65536)
            if answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"42"):
                return
        time.sleep(0.1)
    raise SystemExit(f"port {port}: no answer")


def load(port: int, connections: int, seconds: float) -> tuple[int, list[float]]:
    """Ask on all connections for some seconds; return the number of replies, and their times."""
    request = request_of(port)
    selector = selectors.EpollSelector()
    began: dict[socket.socket, float] = {}
    for _ in range(connections):
        client = socket.create_connection(("127.0.0.1", port))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(client, selectors.EVENT_READ)
        began[client] = time.perf_counter()
        client.sendall(request)
    end, taken = time.perf_counter() + seconds, []
    while (now := time.perf_counter()) < end or (not taken and now < end + BOUND):  # one at least, on a busy machine
        for key, _ in selector.select(0.1):
            client = key.fileobj  # type: ignore[assignment]
            answer = client.recv(65536)
            while not answer.endswith(b"\r\n\r\n42"):  # uvicorn writes head and body apart
                answer += client.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200"), answer
            now = time.perf_counter()
            taken.append(now - began[client])
            began[client] = now
            client.sendall(request)
    for client in began:
        client.close()
    return len(taken), taken


def ask(task: dict[str, Any]) -> None:
    """Measure calls on `connections`, one at a time on each; `gateway`: of it, else of FastAPI."""
    os.sched_setaffinity(0, {OTHERS})
    with (
        running(on_core(OTHERS, sys.executable, "-c", SERVICE)) as daemon,
        contender(task["gateway"], daemon) as (port, pid),
    ):
        await_answer(port)
        load(port, task["connections"], task["seconds"] / 5)
        before, began = cpu_of([pid]), time.perf_counter()
        replies, taken = load(port, task["connections"], task["seconds"])
        spent, lasted = cpu_of([pid]) - before, time.perf_counter() - began
        memory = resident(pid)
    report(
        per_second=replies / lasted,
        other_us=spent / replies * 1e6,
        p50_ms=quantile(taken, 0.5) * 1e3,
        p99_ms=quantile(taken, 0.99) * 1e3,
        now_mib=memory,
        times=replies,
    )


# ---- streams ---------------------------------------------------------------------------------------------------------


def is_cut(client: socket.socket) -> bool:
    """Return True if the stream of a client that has read nothing ends after what the kernel has kept for it."""
    client.settimeout(1.0)
    end = time.monotonic() + 1.0  # one that was not cut off would go on
    with contextlib.suppress(TimeoutError):
        while time.monotonic() < end:
            try:
                if not client.recv(1 << 20):
                    return True
            except ConnectionError:
                return True
    return False


def follower(port: int, topic: str) -> socket.socket:
    """Return a connection that asks for the events of a topic."""
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(f"GET /sub?topic={topic} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    return client


def follow(task: dict[str, Any]) -> None:
    """Follow a publisher on many streams beside clients that never read."""
    os.sched_setaffinity(0, {OTHERS})
    as_many_files_as_allowed()
    arguments = str(task["rate"]), str(BULK)
    with running(on_core(OTHERS, sys.executable, "-c", PUBLISHER, *arguments)) as publisher:
        command = [sys.executable, "-m", "nngkit", "gateway", "--http", "127.0.0.1:0", "--subscribe", publisher]
        process = on_core(MEASURED, *command)
        with running(process) as url:
            port = int(url.rpartition(":")[2].strip("/"))
            selector = selectors.EpollSelector()
            rss_before = resident(process.pid)
            idle = [follower(port, "bulk") for _ in range(task["stalled"])]
            for _ in range(task["streams"]):
                selector.register(follower(port, "load."), selectors.EVENT_READ)
            ages: list[float] = []
            seen = gaps = reads = 0
            for period in (task["seconds"] / 2, task["seconds"]):  # the first one warms up
                before, began = cpu_of([process.pid]), time.perf_counter()
                seen = gaps = reads = 0
                ages = []
                while time.perf_counter() - began < period:
                    for key, _ in selector.select(0.1):
                        data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                        reads += 1
                        seen += data.count(b"\ndata: ")
                        gaps += data.count(b"event: gap")
                        if reads % 64 == 0 and (place := data.rfind(b'"body":"')) >= 0:
                            sent = data[place + 8 :].partition(b'"')[0]
                            if len(sent) == 19:
                                ages.append(time.time() - int(sent) / 1e9)
                lasted = time.perf_counter() - began
                spent = cpu_of([process.pid]) - before
            cut, now, most = sum(map(is_cut, idle)), resident(process.pid), peak(process.pid)
    report(
        per_second=seen / lasted,
        part=seen / lasted / (task["streams"] * task["rate"]),
        lost=gaps,
        other_us=spent / seen * 1e6,
        p50_ms=quantile(ages, 0.5) * 1e3,
        p99_ms=quantile(ages, 0.99) * 1e3,
        cut=cut,
        now_mib=now,
        grown_mib=most - rss_before,
        times=seen,
    )
