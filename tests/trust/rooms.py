"""One exchange in each room: the first function of a pair listens, the second is served, or waits for ever."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import trio

from nngkit.calls import Client, Server
from nngkit.cluster import Host, Member
from nngkit.discovery import Daemon, DaemonSettings, Resolver, Service
from nngkit.documents import DocumentPeer
from nngkit.errors import ServiceNotFound
from nngkit.fanout import Consumer, ConsumerServer, Published, Publisher, Subscriber
from nngkit.journal import Recorder
from nngkit.mesh import Mesh
from nngkit.testing import aeventually
from nngkit.trust import Trust

ANY: Final = "tls+tcp://127.0.0.1:0"
WAIT: Final = 15.0  # seconds for any one event, on a busy machine


@asynccontextmanager
async def daemon(trust: Trust, folder: Path) -> AsyncIterator[str]:
    settings = DaemonSettings(listen=(ANY,), query=(ANY,), interval=0.2, deadline=0.5)
    async with Daemon(settings, trust=trust) as running:
        yield f"{running.addresses[0]} {running.query_addresses[0]}"


async def registers(urls: str, trust: Trust) -> None:
    surveys, queries = urls.split()
    async with (
        Service("pay", "tcp://127.0.0.1:9", discovery=surveys, trust=trust, sigterm=False),
        Resolver(queries, trust=trust) as resolver,
    ):
        while True:
            with suppress(ServiceNotFound):
                assert resolver.resolve("pay").address == "tcp://127.0.0.1:9"
                return
            await trio.sleep(0.05)


@asynccontextmanager
async def server(trust: Trust, folder: Path) -> AsyncIterator[str]:
    async def echo(body: object) -> object:
        return body

    async with Server("echo", echo, listen=ANY, trust=trust) as running:
        yield running.address


async def calls(url: str, trust: Trust) -> None:
    async with Client("echo", addresses=url, trust=trust) as client:
        await client.wait_for_providers(timeout=WAIT)
        assert await client.request(b"x", timeout=WAIT) == b"x"


@asynccontextmanager
async def publisher(trust: Trust | None, folder: Path) -> AsyncIterator[str]:
    async with Publisher(ANY, trust=trust) as running, trio.open_nursery() as nursery:

        async def publish() -> None:
            while True:
                running.publish("news", b"x")
                await trio.sleep(0.02)

        nursery.start_soon(publish)
        yield running.address
        nursery.cancel_scope.cancel()


async def subscribes(url: str, trust: Trust | None) -> None:
    async with Subscriber(url, topics="news", trust=trust) as subscriber:
        async for event in subscriber:
            if isinstance(event, Published):
                return


@asynccontextmanager
async def consumer_server(trust: Trust, folder: Path) -> AsyncIterator[str]:
    async with Recorder(folder / "journal") as recorder:
        await recorder.store([b"order"], topic="orders", protocol="put")
        async with ConsumerServer(folder / "journal", listen=ANY, trust=trust) as running:
            yield running.address


async def consumes(url: str, trust: Trust) -> None:
    async with Consumer("billing", url, trust=trust, timeout=WAIT) as consumer:
        assert (await consumer.receive()).value == b"order"


@asynccontextmanager
async def mesh(trust: Trust, folder: Path) -> AsyncIterator[str]:
    async with Mesh(listen=ANY, trust=trust) as node, trio.open_nursery() as nursery:

        async def talk() -> None:
            while True:
                await node.send(b"x")
                await trio.sleep(0.05)

        nursery.start_soon(talk)
        yield node.addresses[0]
        nursery.cancel_scope.cancel()


async def hears(url: str, trust: Trust) -> None:
    async with Mesh(dial=url, trust=trust) as node:
        async for _ in node.events():
            return


@asynccontextmanager
async def document(trust: Trust, folder: Path) -> AsyncIterator[str]:
    async with DocumentPeer(listen=ANY, trust=trust) as peer:
        peer.open("minutes").text("body").insert(0, "hello")
        yield peer.addresses[0]


async def edits(url: str, trust: Trust) -> None:
    async with DocumentPeer(dial=url, trust=trust) as peer:
        copy = peer.open("minutes")
        await aeventually(lambda: str(copy.text("body")) == "hello")


@asynccontextmanager
async def host(trust: Trust, folder: Path) -> AsyncIterator[str]:
    async with Host("farm", listen=ANY, trust=trust) as node:
        yield node.address


async def joins(url: str, trust: Trust) -> None:
    async with Member("farm", dial=url, trust=trust) as node:
        await node.joined(timeout=WAIT)


ROOMS = [
    (daemon, registers),
    (server, calls),
    (publisher, subscribes),
    (consumer_server, consumes),
    (mesh, hears),
    (document, edits),
    (host, joins),
]
