"""The load of `operations.py`: ``_child.py _operations_load:run TASK`` runs until it is killed.

Calls, records, published messages, jobs, edits and HTTP requests at modest rates by clients that stay, and each second
clients that come, do one thing and go. What was done and what has failed is in the file ``load.json``, by kind. While
the file ``flood`` exists, large messages are published.
"""

from __future__ import annotations

import json
import logging
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
from _fault_syscalls import die_with_parent

from nngkit import Client, NngkitError, Resolver
from nngkit.cluster import Member
from nngkit.documents import DocumentPeer
from nngkit.protocols import Pub, Push, Sub

WAIT: Final = 30.0  # seconds
LARGE: Final = 256 << 10  # bytes of a message of the flood: a few fill the kernel's buffers
EDITS: Final = 300  # insertions into a text, before it is deleted: deleted text takes no memory, overwritten keys do
log = logging.getLogger("operations")


class Load:
    """The clients, and what they have done."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task, self.folder = task, Path(task["folder"])
        self.done: Counter[str] = Counter()

    async def paced(self, kind: str, rate: float, work: Callable[[int], Awaitable[object]]) -> None:
        """Do it `rate` times a second, one at a time; count it, or its failure."""
        self.done[kind] = self.done[f"{kind} failed"] = 0
        number = 0
        while True:
            number += 1
            begun = trio.current_time()
            try:
                await work(number)
            except (NngkitError, OSError, trio.TooSlowError) as error:
                self.done[f"{kind} failed"] += 1
                log.warning("%s %d: %r", kind, number, error)
            else:
                self.done[kind] += 1
            await trio.sleep_until(max(begun + 1 / rate, trio.current_time()))

    async def told(self) -> None:
        """Write the counts each second."""
        while True:
            await trio.sleep(1.0)
            scratch = self.folder / "load.json.new"
            scratch.write_text(json.dumps(self.done))
            scratch.rename(self.folder / "load.json")

    def http(self, path: str, body: bytes | None = None) -> None:
        """Ask the gateway; for a thread."""
        kind = {"Content-Type": "application/octet-stream", "Idempotent": "?1"}
        request = urllib.request.Request(self.task["gateway"] + path, body, kind)
        with urllib.request.urlopen(request, timeout=WAIT) as reply:
            reply.read()

    async def visit(self, number: int) -> None:
        """Come, do one thing, and go."""
        match number % 4:
            case 0:
                async with Client("shout", daemons=self.task["daemons"], timeout=5.0) as client:
                    await client.request(b"once", idempotent=True)
            case 1:
                async with Resolver(self.task["daemons"]) as resolver:
                    resolver.resolve("shout")
            case 2:
                async with Sub(dial=self.task["back"], topics=b"news") as sub:
                    with trio.fail_after(WAIT):
                        await sub.arecv()
            case _:
                async with DocumentPeer(dial=self.task["documents"]) as peer:
                    await peer.open("minutes").joined(WAIT)

    async def run(self) -> None:
        """Run all of it."""
        task, rate = self.task, self.task["rate"]
        clients = {name: Client(name, daemons=task["daemons"], timeout=5.0) for name in ("shout", "stamps", "split")}
        coded = {
            name: Client(name, daemons=task["daemons"], timeout=10.0, codec="json")
            for name in ("orders", "prices", "prints")
        }
        async with trio.open_nursery() as nursery:
            start = nursery.start_soon
            start(self.told)

            async def calls(client: Client, kind: str, body: Any, rate: float) -> None:
                async with client:

                    async def call(number: int) -> None:
                        await client.request(body, idempotent=True)

                    await self.paced(kind, rate, call)

            start(calls, clients["shout"], "calls", b"hello", rate)
            for name in ("stamps", "split"):
                start(calls, clients[name], f"calls of {name}", b"hello", 1)
            for name, client in coded.items():
                start(calls, client, f"calls of {name}", {"number": 1}, 2)

            async def records(url: str, kind: str) -> None:
                async with Push(dial=url) as push:

                    async def record(number: int) -> None:
                        with trio.move_on_after(WAIT):
                            await push.asend(b"event %d" % number)

                    await self.paced(kind, rate, record)

            for url, kind in zip(task["records"], ("records", "records of a small disk"), strict=True):
                start(records, url, kind)

            async def messages() -> None:
                async with Pub(dial=task["front"]) as pub, Sub(dial=task["back"], topics=b"news") as sub:
                    start(self.paced, "messages received", 1000, lambda number: sub.arecv())

                    async def publish(number: int) -> None:
                        await pub.asend(b"news %d" % number)
                        if (self.folder / "flood").exists():
                            await pub.asend(b"flood" + bytes(LARGE))

                    await self.paced("messages", rate, publish)

            start(messages)

            async def jobs() -> None:
                async with Member("farm", dial=task["cluster"]) as node:

                    async def job(number: int) -> None:
                        with trio.fail_after(WAIT):
                            await node.joined(WAIT)
                            await (await node.submit("echo", b"job")).result()

                    await self.paced("jobs", 5, job)

            start(jobs)

            async def edits() -> None:
                async with DocumentPeer(dial=task["documents"]) as peer:
                    doc = peer.open("minutes")
                    text = doc.text("spoken")

                    async def edit(number: int) -> None:
                        if number % EDITS:
                            text.insert(len(text), "word ")
                        else:
                            del text[0 : len(text)]
                        await doc.synced(1, WAIT)

                    await self.paced("edits", 2, edit)

            start(edits)

            async def ask(number: int) -> None:
                work = partial(self.http, "/call/shout", b"hello") if number % 2 else partial(self.http, "/services")
                await trio.to_thread.run_sync(work)

            start(self.paced, "HTTP requests", 5, ask)
            start(self.paced, "visits", 1, self.visit)


def run(task: dict[str, Any]) -> None:
    """Run the load until it is killed."""
    die_with_parent()
    logging.basicConfig(level=logging.WARNING, format="%(relativeCreated)d %(name)s %(message)s")
    trio.run(Load(task).run)
