"""A realm whose key is replaced while a room serves peers that come and go, and a name that is revoked.

The room's server, its peers and the issuer are processes of their own. Each step of the rotation is killed in the place
of each of its renames, and made again. An exchange is a connection and what the room does first; one that fails, or
takes longer than PATIENCE, counts as failed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from _restarted import Restarted, said

from _child import report
from nngkit.calls import Client, Server
from nngkit.discovery import Daemon, DaemonSettings, Resolver, Service
from nngkit.errors import NngkitError, ServiceNotFound
from nngkit.fanout import Consumer, ConsumerServer, Published, Publisher, Subscriber
from nngkit.journal import Recorder
from nngkit.trust import Folder, Trust, passes

ANY = "tls+tcp://127.0.0.1:0"
PATIENCE = 20.0  # seconds
AT_ONCE = 4  # exchanges of the honest peers
DWELL = 0.5  # seconds after a step, or a killed one
SETTLED = 30.0  # seconds in which all passes have what a step has made
NAMES = ("hub", "peer", "eve")
KILLED = """
import os, signal, sys
from nngkit.trust import Folder
left, replace = int(sys.argv[1]), os.replace
def killing(*paths):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    replace(*paths)
os.replace = killing
getattr(Folder.open(sys.argv[2]), sys.argv[3])()
"""


# ---- the rooms -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def daemon(trust: Trust, folder: Path) -> AsyncIterator[str]:
    settings = DaemonSettings(listen=(ANY,), query=(ANY,), interval=0.2, deadline=0.5)
    async with Daemon(settings, trust=trust) as running:
        yield f"{running.addresses[0]} {running.query_addresses[0]}"


async def registers(urls: str, trust: Trust) -> None:
    surveys, queries = urls.split()
    name = f"{trust.name}-service"
    async with (
        Service(name, "tcp://127.0.0.1:9", discovery=surveys, trust=trust, sigterm=False),
        Resolver(queries, trust=trust) as resolver,
    ):
        while True:
            try:
                resolver.resolve(name)
            except ServiceNotFound:
                await trio.sleep(0.02)
            else:
                return


@asynccontextmanager
async def server(trust: Trust, folder: Path) -> AsyncIterator[str]:
    async def echo(body: object) -> object:
        return body

    async with Server("echo", echo, listen=ANY, trust=trust) as running:
        yield running.address


async def calls(url: str, trust: Trust) -> None:
    async with Client("echo", addresses=url, trust=trust) as client:
        await client.wait_for_providers(timeout=PATIENCE)
        assert await client.request(b"x", timeout=PATIENCE) == b"x"


@asynccontextmanager
async def publisher(trust: Trust, folder: Path) -> AsyncIterator[str]:
    async with Publisher(ANY, trust=trust) as running, trio.open_nursery() as nursery:

        async def publish() -> None:
            while True:
                running.publish("news", b"x")
                await trio.sleep(0.005)

        nursery.start_soon(publish)
        yield running.address


async def subscribes(url: str, trust: Trust) -> None:
    async with Subscriber(url, topics="news", trust=trust) as subscriber:
        while not isinstance(await subscriber.receive(PATIENCE), Published):
            pass


@asynccontextmanager
async def consumer_server(trust: Trust, folder: Path) -> AsyncIterator[str]:
    async with Recorder(folder / "journal") as recorder:
        await recorder.store([b"order"] * 100, topic="orders", protocol="put")
        async with ConsumerServer(folder / "journal", listen=ANY, trust=trust) as running:
            yield running.address


async def consumes(url: str, trust: Trust) -> None:
    async with Consumer(
        f"billing-{trust.name}", url, records=1, ack_wait=0.5, trust=trust, timeout=PATIENCE
    ) as consumer:
        await consumer.receive(PATIENCE)  # not acknowledged: delivered again


Serving = Callable[[Trust, Path], AbstractAsyncContextManager[str]]
ROOMS: dict[str, tuple[Serving, Callable[[str, Trust], Any]]] = {
    "discovery": (daemon, registers),
    "calls": (server, calls),
    "fan-out": (publisher, subscribes),
    "consumers": (consumer_server, consumes),
}


# ---- the processes ---------------------------------------------------------------------------------------------------


def serve(task: dict[str, Any]) -> None:
    """Serve the room until killed."""

    async def main() -> None:
        async with ROOMS[task["room"]][0](Trust(task["pass"]), Path(task["folder"])) as url:
            report(url=url)
            await trio.sleep_forever()

    trio.run(main)


def come_and_go(task: dict[str, Any]) -> None:
    """Exchange until SIGTERM; then report the exchanges that were well, those that failed, the time of the last one."""
    done, failed, last = 0, 0, 0.0
    why: dict[str, int] = {}
    trust, exchange = Trust(task["pass"]), ROOMS[task["room"]][1]

    async def repeat(first: trio.Event) -> None:
        nonlocal done, failed, last
        while True:
            try:
                with trio.fail_after(PATIENCE):
                    await exchange(task["url"], trust)
            except* (NngkitError, trio.TooSlowError) as wrong:
                failed += 1
                text = repr(wrong.exceptions[0])[:200]
                why[text] = why.get(text, 0) + 1
                await trio.sleep(0.05)
            else:
                done, last = done + 1, time.monotonic()
                first.set()

    async def main() -> None:
        with trio.open_signal_receiver(signal.SIGTERM) as ended:
            async with trio.open_nursery() as nursery:
                first = trio.Event()
                for _ in range(task["at_once"]):
                    nursery.start_soon(repeat, first)
                with trio.fail_after(PATIENCE):
                    await first.wait()
                report(ready=True)
                async for _ in ended:
                    report(done=done, failed=failed, last=last, why=why)

    trio.run(main)


def _half_done(folder: Path, step: str) -> int:
    """Make a step of the rotation, killed in the place of each rename before; return the number of kills."""
    number = 0
    while True:
        words = [sys.executable, "-c", KILLED, str(number), str(folder), step]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode == 0:
            return number
        if done.returncode != -signal.SIGKILL:
            if number and "rotate" in done.stderr:  # it was killed after what makes it done
                return number
            raise SystemExit(done.stderr)
        number += 1
        time.sleep(DWELL)


def _settle(folder: Path, paths: list[Path]) -> None:
    """Wait until all passes trust what the realm does, and are signed by it."""
    trusted, end = Folder.open(folder).realm.authorities, time.monotonic() + SETTLED
    while any(passes.read(path).authorities != trusted for path in paths):
        if time.monotonic() > end:
            raise SystemExit("the passes have not what the step has made")
        time.sleep(0.05)


def rotate(task: dict[str, Any]) -> None:
    """Measure one room."""
    folder = Path(task["processes"]).parent / "realm"
    made = Folder.new(folder, "farm")
    words = [sys.executable, "-m", "nngkit", "trust", "serve", "--realm", str(folder), "--listen", ANY]
    with ExitStack() as stack:
        issuer = stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        stack.callback(issuer.kill)
        assert issuer.stdout is not None
        url = issuer.stdout.readline().strip().removeprefix("issuer at ")
        paths = {name: folder.parent / name / "own.pass" for name in NAMES}
        for name, path in paths.items():
            path.parent.mkdir()
            passes.write(path, made.realm.issue(name, issuer=url))
        room = {"room": task["room"], "folder": str(folder.parent)}

        def start(function: str, **more: Any) -> tuple[Restarted, dict[str, Any]]:
            process = Restarted(task | room, function, **more)
            stack.callback(process.kill)
            return process, process.start()

        _, told = start("_rotating:serve", **{"pass": str(paths["hub"])})
        peers, _ = start(
            "_rotating:come_and_go", **{"pass": str(paths["peer"]), "url": told["url"], "at_once": AT_ONCE}
        )
        began = time.monotonic()
        eve, _ = start("_rotating:come_and_go", **{"pass": str(paths["eve"]), "url": told["url"], "at_once": 1})
        kills = 0
        for step in ("begin", "use", "finish"):
            kills += _half_done(folder, step)
            _settle(folder, list(paths.values()))
            time.sleep(DWELL)
        revoked = time.monotonic()
        Folder.open(folder).revoke("eve")
        time.sleep(4.0)  # of which it must be refused for the last two
        figures = []
        for process in (peers, eve):
            process.process.terminate()
            figures.append(said(process.process))
        honest, refused = figures
        if honest["failed"]:
            sys.stderr.write(f"{task['room']}: {honest['why']}\n")
        seconds = time.monotonic() - began
    report(  # once all processes have ended: this one may be killed now
        per_second=honest["done"] / seconds,
        calls=honest["done"],
        failed=honest["failed"],
        times=kills,
        cut_ms=max(0.0, refused["last"] - revoked) * 1e3,
    )
