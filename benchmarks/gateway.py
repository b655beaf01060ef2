"""The gateway beside FastAPI with our own client, and 1,000 streams of server-sent events from one core.

::

    python benchmarks/gateway.py [--seconds 5] [--rounds 3] [--connections 32] [--streams 1000] [--events 100]
        [--stalled 32] [--json]

Calls: what is measured runs on the first core: `nngkit gateway`, and a FastAPI application under uvicorn (asyncio, h11)
that calls the same service by nngkit.aio.Client. On the second core are the service, its daemon, and the HTTP clients:
connections that are kept, one request at a time on each. The contenders take turns; CPU is of the contender alone.

Streams: a publisher sends `--events` messages a second; `--streams` clients follow them through one gateway on the
first core, publisher and clients are on the second. Beside them `--stalled` clients follow as many messages of BULK
bytes and never read: the gateway has to cut them off. Printed: which part of all events has come, the gateway's CPU,
how old an event is when its client reads it, how many of the stalled were cut off, and the gateway's memory before the
clients, at the end, and at most.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
CORES = sorted(os.sched_getaffinity(0))
MEASURED, OTHERS = CORES[0], CORES[-1]
TICKS = os.sysconf("SC_CLK_TCK")
BOUND = 60.0  # seconds for a process to start, or an answer to come
BODY = b'{"n":21}'
BULK = 8192  # bytes: at 100 a second the queue of a client that does not read is full within a second
CONTENDERS = ("nngkit gateway", "FastAPI, uvicorn")

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


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_of(pid: int) -> float:
    """Return the resident memory of a process, in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def most_rss_of(pid: int) -> float:
    """Return the most resident memory that a process has had, in MiB."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) / 2**10


# ---- calls -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def contender(name: str, daemon: str) -> Iterator[tuple[int, int]]:
    """Run a contender; yield its port and process id."""
    if name == CONTENDERS[0]:
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
    while (now := time.perf_counter()) < end:
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


def calls(seconds: float, rounds: int, connections: int) -> dict[str, dict[str, float]]:
    """Measure the contenders in turn; return the medians, and the ratios by round."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    with running(on_core(OTHERS, sys.executable, "-c", SERVICE)) as daemon:
        for _ in range(rounds):
            for name in CONTENDERS:
                with contender(name, daemon) as (port, pid):
                    await_answer(port)
                    load(port, connections, seconds / 5)
                    before, began = cpu_of(pid), time.perf_counter()
                    replies, taken = load(port, connections, seconds)
                    spent, lasted = cpu_of(pid) - before, time.perf_counter() - began
                    found[name].append(
                        {
                            "per_second": replies / lasted,
                            "cpu_us": spent / replies * 1e6,
                            "p50_ms": statistics.median(taken) * 1e3,
                            "p99_ms": statistics.quantiles(taken, n=100)[98] * 1e3,
                            "rss_mib": rss_of(pid),
                        }
                    )
    shown = {
        name: {figure: statistics.median(each[figure] for each in rows) for figure in rows[0]}
        for name, rows in found.items()
    }
    ours, theirs = (found[name] for name in CONTENDERS)
    shown["ratio"] = {
        figure: statistics.median(our[figure] / their[figure] for our, their in zip(ours, theirs, strict=True))
        for figure in ("per_second", "cpu_us")
    }
    return shown


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


def streams(seconds: float, count: int, rate: float, stalled: int) -> dict[str, float]:
    """Follow a publisher on many streams; return what has come and what it cost."""
    with running(on_core(OTHERS, sys.executable, "-c", PUBLISHER, str(rate), str(BULK))) as publisher:
        command = [sys.executable, "-m", "nngkit", "gateway", "--http", "127.0.0.1:0", "--subscribe", publisher]
        process = on_core(MEASURED, *command)
        with running(process) as url:
            port = int(url.rpartition(":")[2].strip("/"))
            selector = selectors.EpollSelector()
            rss_before = rss_of(process.pid)
            idle = [follower(port, "bulk") for _ in range(stalled)]
            for _ in range(count):
                selector.register(follower(port, "load."), selectors.EVENT_READ)
            ages: list[float] = []
            seen = gaps = reads = 0
            for period in (seconds / 2, seconds):  # the first one warms up
                before, began = cpu_of(process.pid), time.perf_counter()
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
                spent = cpu_of(process.pid) - before
            return {
                "streams": count,
                "events_per_second": seen / lasted,
                "part": seen / lasted / (count * rate),
                "gaps": gaps,
                "cpu": spent / lasted,
                "age_p50_ms": statistics.median(ages) * 1e3,
                "age_p99_ms": statistics.quantiles(ages, n=100)[98] * 1e3,
                "stalled": stalled,
                "stalled_cut": sum(map(is_cut, idle)),
                "rss_before_mib": rss_before,
                "rss_mib": rss_of(process.pid),
                "rss_most_mib": most_rss_of(process.pid),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--events", type=float, default=100.0)
    parser.add_argument("--stalled", type=int, default=32)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, given.streams + given.stalled + 256)), hard))
    os.sched_setaffinity(0, {OTHERS})
    figures: dict[str, Any] = calls(given.seconds, given.rounds, given.connections)
    figures["streams"] = streams(given.seconds, given.streams, given.events, given.stalled)
    if given.json:
        print(json.dumps(figures))
        return
    for name, row in figures.items():
        print(f"{name:18}", "  ".join(f"{figure} {value:,.3g}" for figure, value in row.items()))


if __name__ == "__main__":
    main()
