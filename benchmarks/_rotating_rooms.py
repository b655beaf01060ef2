"""The rooms of `rotation.py`: what serves in each, and what its peers do, once a connection or all the time on one."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from nngkit.calls import Client, Server
from nngkit.cluster import Host, Member
from nngkit.discovery import Daemon, DaemonSettings, Resolver, Service
from nngkit.documents import DocumentPeer
from nngkit.errors import ServiceNotFound
from nngkit.fanout import Consumer, ConsumerServer, Published, Publisher, Subscriber
from nngkit.journal import Recorder
from nngkit.mesh import Mesh
from nngkit.trust import Trust

PATIENCE: Final = 30.0  # seconds: longer than a process takes to start on a busy machine
VISIBILITY: Final = 2.0  # seconds until the job of a node that was killed is given to another
PAUSE: Final = 0.01  # seconds between two looks
PUBLISHED: Final = 10_000  # messages a second, ...
BURST: Final = 50  # ... so many at a time


@dataclass(frozen=True)
class Place:
    """Surroundings of a process: its trust, its role ("" for a peer), the two addresses of each role, a folder."""

    trust: Trust
    role: str
    urls: Mapping[str, tuple[str, str]]
    folder: Path

    @property
    def own(self) -> tuple[str, str]:
        return self.urls[self.role]

    @property
    def firsts(self) -> list[str]:
        return [first for first, _ in self.urls.values()]


Exchange = Callable[[], Awaitable[str]]
"""An exchange with the room. It raises if that fails or takes longer than PATIENCE; a receipt is what must be kept."""

Serving = AsyncIterator[None]
Entered = AsyncIterator[Exchange]


@dataclass(frozen=True)
class Room:
    """``roles``: what serves, a process each; ``hit``: those that are killed in turn.

    ``clients``: processes that stay connected, each with ``in_flight`` exchanges at a time. ``joins``: connections a
    second that are made for one exchange, or as many as there is time for. ``missing``: counts receipts that are lost.
    """

    roles: tuple[str, ...]
    serve: Callable[[Place], AbstractAsyncContextManager[None]]
    enter: Callable[[Place], AbstractAsyncContextManager[Exchange]]
    hit: tuple[str, ...] = ()
    clients: int = 1
    in_flight: int = 1
    joins: float = 20.0
    missing: Callable[[Place, Collection[str]], Awaitable[int]] | None = None


def unique() -> str:
    return os.urandom(8).hex()


# ---- discovery: two daemons; a peer changes its service, and looks for the change ------------------------------------


@asynccontextmanager
async def daemon(at: Place) -> Serving:
    settings = DaemonSettings(listen=at.own[:1], query=at.own[1:], interval=0.2, deadline=0.5)
    async with Daemon(settings, trust=at.trust):
        yield


@asynccontextmanager
async def registers(at: Place) -> Entered:
    name, numbers, queries = f"clock-{unique()}", itertools.count(), [query for _, query in at.urls.values()]
    async with (
        Service(name, "tcp://127.0.0.1:9", discovery=at.firsts, trust=at.trust, sigterm=False) as service,
        Resolver(queries, trust=at.trust) as resolver,
    ):

        async def exchange() -> str:
            version = str(next(numbers))
            service.update(version=version)
            with trio.fail_after(PATIENCE):
                while True:
                    with suppress(ServiceNotFound):
                        if resolver.resolve(name).version == version:
                            return ""
                    await trio.sleep(PAUSE)

        yield exchange


# ---- calls: two servers, idempotent calls ----------------------------------------------------------------------------


@asynccontextmanager
async def server(at: Place) -> Serving:
    async def echo(body: object) -> object:
        return body

    async with Server("echo", echo, listen=at.own[0], trust=at.trust, sigterm=False):
        yield


@asynccontextmanager
async def calls(at: Place) -> Entered:
    numbers = itertools.count()
    async with Client("echo", addresses=at.firsts, trust=at.trust, idempotent=True, timeout=PATIENCE) as client:
        await client.wait_for_providers(timeout=PATIENCE)

        async def exchange() -> str:
            body = b"%d" % next(numbers)
            assert await client.request(body) == body
            return ""

        yield exchange


# ---- fan-out: a publisher, and subscribers ---------------------------------------------------------------------------


@asynccontextmanager
async def publisher(at: Place) -> Serving:
    async with Publisher(at.own[0], trust=at.trust) as running, trio.open_nursery() as nursery:

        async def publish() -> None:
            while True:
                for _ in range(BURST):
                    running.publish("news", b"x")
                await trio.sleep(BURST / PUBLISHED)

        nursery.start_soon(publish)
        yield


@asynccontextmanager
async def subscribes(at: Place) -> Entered:
    async with Subscriber(at.firsts, topics="news", trust=at.trust) as subscriber:

        async def exchange() -> str:
            while not isinstance(await subscriber.receive(PATIENCE), Published):
                pass
            return ""

        yield exchange


# ---- consumers: records that are not acknowledged are delivered again ------------------------------------------------


@asynccontextmanager
async def consumer_server(at: Place) -> Serving:
    async with Recorder(at.folder / "journal") as recorder:
        await recorder.store([b"order"] * 100, topic="orders", protocol="put")
        async with ConsumerServer(at.folder / "journal", listen=at.own[0], trust=at.trust):
            yield


@asynccontextmanager
async def consumes(at: Place) -> Entered:
    name = f"billing-{at.trust.name.replace('.', '-')}"
    async with Consumer(name, at.firsts, records=1, ack_wait=0.5, trust=at.trust, timeout=PATIENCE) as consumer:

        async def exchange() -> str:
            await consumer.receive(PATIENCE)
            return ""

        yield exchange


# ---- mesh: peers at the left end of a line; the right end answers through the middle ---------------------------------


@asynccontextmanager
async def node(at: Place) -> Serving:
    (left, _), (middle, _), _ = at.urls.values()
    where: dict[str, Any] = {
        "left": {"listen": left, "dial": middle},
        "middle": {"listen": middle},
        "right": {"dial": middle},
    }[at.role]
    async with Mesh(trust=at.trust, history=True, **where) as mesh, trio.open_nursery() as nursery:

        async def answer() -> None:
            async for message in mesh:
                if at.role == "right" and message.body.startswith(b"?"):
                    await mesh.send(b"!" + message.body[1:])

        nursery.start_soon(answer)
        yield


@asynccontextmanager
async def asks_a_mesh(at: Place) -> Entered:
    waiting: dict[bytes, trio.Event] = {}
    name = f"{at.trust.name}:{unique()}"
    async with Mesh(dial=at.firsts[0], id=name, trust=at.trust) as mesh, trio.open_nursery() as nursery:

        async def listen() -> None:
            async for message in mesh:
                if message.body[:1] == b"!" and (answered := waiting.pop(message.body[1:], None)) is not None:
                    answered.set()

        async def exchange() -> str:
            question = unique().encode()
            answered = waiting[question] = trio.Event()
            await mesh.send(b"?" + question)
            with trio.fail_after(PATIENCE):
                await answered.wait()
            return ""

        nursery.start_soon(listen)
        yield exchange
        nursery.cancel_scope.cancel()


# ---- documents: two peers with stores; an edit is done when it is on the disk of one ---------------------------------


@asynccontextmanager
async def document(at: Place) -> Serving:
    bus, repair = at.own
    others = () if at.role == "one" else at.firsts[:1]
    store = at.folder / f"{at.role}.sqlite"
    async with DocumentPeer(listen=bus, repair=repair, dial=others, store=store, trust=at.trust) as peer:
        peer.open("numbers")
        yield


@asynccontextmanager
async def edits(at: Place) -> Entered:
    async with DocumentPeer(dial=at.firsts, trust=at.trust) as peer:
        doc = peer.open("numbers")
        numbers = doc.map("numbers")

        async def exchange() -> str:
            key = unique()
            numbers[key] = True
            await doc.synced(1, PATIENCE)
            return key

        yield exchange


async def edits_missing(at: Place, receipts: Collection[str]) -> int:
    """Return how many edits one of the peers does not have."""
    lost = set[str]()
    for bus in at.firsts:
        async with DocumentPeer(dial=bus, trust=at.trust) as peer:
            doc = peer.open("numbers")
            numbers = doc.map("numbers")
            missing = set(receipts)
            with trio.move_on_after(PATIENCE):
                await doc.joined()
                changes = doc.changes()
                while missing := missing - set(numbers):
                    await anext(changes)
            lost |= missing
    return len(lost)


# ---- cluster: three voters, which do the jobs of members -------------------------------------------------------------


@asynccontextmanager
async def voter(at: Place) -> Serving:
    voters = {role: first for role, (first, _) in at.urls.items()}
    given: dict[str, Any] = {"voters": voters, "store": at.folder / f"{at.role}.log", "trust": at.trust}
    async with Host("farm", listen=at.own[0], preference=-list(voters).index(at.role), **given) as host:

        @host.work("echo", concurrency=64)
        async def echo(job: Any) -> bytes:
            return bytes(job.payload)

        yield


@asynccontextmanager
async def submits(at: Place) -> Entered:
    async with Member("farm", dial=at.firsts, trust=at.trust) as member:
        await member.joined(PATIENCE)

        async def exchange() -> str:
            key = unique().encode()
            with trio.fail_after(PATIENCE):
                job = await member.submit("echo", key, key=key, visibility=VISIBILITY)
                assert await job.result() == key
            return ""

        yield exchange


PAIR, LINE, VOTERS = ("hub.a", "hub.b"), ("left", "middle", "right"), ("voter.a", "voter.b", "voter.c")
ROOMS: Final[dict[str, Room]] = {
    "discovery": Room(PAIR, daemon, registers, PAIR),
    "calls": Room(PAIR, server, calls, PAIR, clients=2, in_flight=64, joins=40.0),
    "fan-out": Room(("hub",), publisher, subscribes, ("hub",)),
    "consumers": Room(("hub",), consumer_server, consumes, ("hub",)),
    "mesh": Room(LINE, node, asks_a_mesh, ("left", "middle"), in_flight=64, joins=10.0),
    "documents": Room(("one", "two"), document, edits, ("one", "two"), in_flight=8, joins=5.0, missing=edits_missing),
    "cluster": Room(VOTERS, voter, submits, VOTERS, in_flight=16, joins=5.0),
}
