"""Ends of the rooms' pairs for `outages.py`. The end that `listens` is a room's server: publisher, daemon, host."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import trio
from _outage_bricks import PACE, End, paced

from nngkit import Client, Server, Service
from nngkit.cluster import Host, Member
from nngkit.devices import forward
from nngkit.discovery import Daemon, DaemonSettings, Resolver, State
from nngkit.documents import DocumentPeer
from nngkit.errors import Broken, ServiceNotFound, TimedOut
from nngkit.fanout import (
    Consumer,
    ConsumerServer,
    Following,
    Gap,
    Mesh,
    MeshGap,
    Missing,
    Outbox,
    OutboxReceiver,
    Published,
    Publisher,
    Subscriber,
)
from nngkit.journal import Recorder
from nngkit.protocols import Pull, Push, Rep, Req, Sub


async def publisher(end: End, *, listens: bool) -> None:
    async with Publisher(end.url(listens=True), control=end.url(listens=True, port=1)) as publishing:
        end.up()

        async def publish(body: bytes) -> None:
            publishing.publish(b"t", body)

        await paced(end, publish)


async def subscriber(end: End, *, listens: bool) -> None:
    async with Subscriber(end.url(listens=False)) as subscribing:
        end.up()
        async for event in subscribing:
            if isinstance(event, Published):
                end.read(event.data[1:])
            elif isinstance(event, Gap):
                end.reported(event.count)


async def following(end: End, *, listens: bool) -> None:
    """Record a Publisher on this host, and follow the journal and the live messages."""
    folder = end.folder / f"following-{end.run}"
    async with Recorder(folder) as recorder, trio.open_nursery() as nursery:
        nursery.start_soon(recorder.record, Sub(dial=end.url(listens=False), topics=b""), "ticks")
        with Sub(dial=end.url(listens=False), topics=b"") as live:
            async with Following(live, folder, topic="ticks") as messages:
                end.up()
                async for message in messages:
                    if isinstance(message, Missing):
                        end.reported(message.last - message.first + 1)
                    else:
                        end.read(message[1:])


async def recorder(end: End, *, listens: bool) -> None:
    """Record what a Push sends, and read the journal."""
    folder = end.folder / f"recorder-{end.run}"
    async with Recorder(folder) as recording, trio.open_nursery() as nursery:
        nursery.start_soon(recording.record, Pull(dial=end.url(listens=False)), "jobs")
        place = end.url(listens=True, port=1)
        async with ConsumerServer(folder, listen=place):
            await consume(end, place)


async def consume(end: End, url: str) -> None:
    async with Consumer("billing", url, ack_wait=1.0, timeout=None) as consuming:
        end.up()
        async for batch in consuming.batches():
            for value in batch.values:
                end.read(value)
            await batch.ack()


async def consumer_server(end: End, *, listens: bool) -> None:
    """Serve a journal that grows, on disk across restarts."""
    folder = end.folder / "served"
    async with Recorder(folder) as recording, ConsumerServer(folder, listen=end.url(listens=True)):
        end.up()

        async def store(body: bytes) -> None:
            await recording.store([body], topic="orders", protocol="bench")

        await paced(end, store)


async def consumer(end: End, *, listens: bool) -> None:
    await consume(end, end.url(listens=False))


async def outbox(end: End, *, listens: bool) -> None:
    with Req(dial=end.url(listens=False)) as req:
        async with Outbox(end.folder / "outbox", req) as box:
            end.up()
            await paced(end, box.put)


async def outbox_receiver(end: End, *, listens: bool) -> None:
    with Rep(listen=end.url(listens=True)) as rep:
        end.up()
        receiver = OutboxReceiver()
        async for request in rep:
            for value in receiver.accept(request.body):
                end.read(value)
            await request.areply(b"")


async def mesh(end: End, *, listens: bool) -> None:
    where = {"listen" if listens else "dial": end.url(listens=listens)}
    async with Mesh(id="a" if listens else "b", **where) as node, trio.open_nursery() as nursery:
        end.up()
        nursery.start_soon(paced, end, node.send)
        async for event in node.events():
            if isinstance(event, MeshGap):
                end.reported(event.count)
            else:
                end.read(event.body)


async def daemon(end: End, *, listens: bool) -> None:
    """Read the service's replies: a message is a round that it has answered."""
    settings = DaemonSettings(listen=(end.url(listens=True),), query=(end.url(listens=True, port=1),))
    async with Daemon(settings) as surveying:
        end.up()
        number, last = 0, 0.0
        while True:
            await trio.sleep(PACE)
            rows = [row for row in surveying.discovery.view() if row.state is State.UP and row.last_reply is not None]
            newest = max((row.last_reply or 0.0 for row in rows), default=0.0)
            if newest > last:
                last, number = newest, number + 1
                end.read(end.body(number))


async def service(end: End, *, listens: bool) -> None:
    async with Service("answer", f"tcp://{end.here}:1", discovery=end.url(listens=False), sigterm=False):
        end.up()
        await trio.sleep_forever()


async def changing_service(end: End, *, listens: bool) -> None:
    """A daemon, and a service beside it that changes with every message."""
    settings = DaemonSettings(listen=(end.url(listens=True),), query=(end.url(listens=True, port=1),))
    async with Daemon(settings), Service("clock", f"tcp://{end.here}:1", discovery=end.url(listens=True)) as clock:
        end.up()

        async def tell(body: bytes) -> None:
            clock.update(version=body.hex())

        await paced(end, tell)


async def resolver(end: End, *, listens: bool) -> None:
    async with Resolver(end.url(listens=False, port=1)) as resolving:
        end.up()
        last = ""
        while True:
            await trio.sleep(PACE / 2)
            try:
                version = resolving.resolve("clock").version
            except ServiceNotFound:
                continue
            if version != last and resolving.fresh:
                last = version
                end.read(bytes.fromhex(version))


async def server(end: End, *, listens: bool) -> None:
    async def echo(body: bytes) -> bytes:
        return body

    settings = DaemonSettings(listen=(end.url(listens=True),), query=(end.url(listens=True, port=1),))
    async with Daemon(settings):
        place = end.url(listens=True, port=2)
        async with Server("echo", echo, discovery=end.url(listens=True), listen=place, sigterm=False):
            end.up()
            await trio.sleep_forever()


async def client(end: End, *, listens: bool) -> None:
    async with Client("echo", daemons=end.url(listens=False, port=1), timeout=1.0) as calling:
        end.up()

        async def ask(body: bytes) -> None:
            try:
                end.read(await calling.request(body, idempotent=True))
            except (TimedOut, ServiceNotFound, Broken):
                end.reported(1)

        await paced(end, ask)


async def writer(end: End, *, listens: bool) -> None:
    """Edit a document; the other end has to see every edit."""
    async with DocumentPeer(listen=end.url(listens=True), repair=end.url(listens=True, port=1)) as peer:
        numbers = peer.open("numbers").map("numbers")
        end.up()

        async def edit(body: bytes) -> None:
            numbers[body.hex()] = True
            await trio.sleep(3 * PACE)

        await paced(end, edit)


async def reader(end: End, *, listens: bool) -> None:
    async with DocumentPeer(dial=end.url(listens=False)) as peer:
        document = peer.open("numbers")
        numbers, seen = document.map("numbers"), set[str]()
        end.up()
        async for _ in document.changes():
            for key in set(numbers) - seen:
                seen.add(key)
                end.read(bytes.fromhex(key))


async def host(end: End, *, listens: bool) -> None:
    async with Host("farm", listen=end.url(listens=True)):
        end.up()
        await trio.sleep_forever()


async def member(end: End, *, listens: bool) -> None:
    """Do jobs, and submit them to the host: each passes the network twice."""
    async with Member("farm", dial=end.url(listens=False)) as node:

        @node.work("echo")
        async def echo(job: Any) -> bytes:
            return bytes(job.payload)

        end.up()

        async def job(body: bytes) -> None:
            with trio.move_on_after(1.0) as patience:
                end.read(await (await node.submit("echo", body)).result())
            end.reported(patience.cancelled_caught)

        await paced(end, job)


async def device(end: End, *, listens: bool) -> None:
    """Forward what a Push sends to a Pull on this host."""
    inside = end.url(listens=True, port=1)
    async with AsyncExitStack() as stack:
        front, back = stack.enter_context(Pull(dial=end.url(listens=False))), stack.enter_context(Push(listen=inside))
        await stack.enter_async_context(forward(front, back))
        local = stack.enter_context(Pull(dial=inside))
        end.up()
        async for message in local:
            end.read(message)
