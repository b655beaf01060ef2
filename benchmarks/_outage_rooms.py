"""Ends of the rooms' pairs for `outages.py`, beside those that it shares with `faults.py`. The end that listens is a
room's server: publisher, daemon, host."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any, Final

import trio
from _fault_rooms import consume
from _outage_bricks import PACE, End
from _outage_records import READ, REPORTED, UP

from nngkit import Client, Server, Service
from nngkit.cluster import Host, Member
from nngkit.devices import forward
from nngkit.discovery import Daemon, DaemonSettings, Resolver, State
from nngkit.documents import DocumentPeer
from nngkit.errors import Broken, ServiceNotFound, TimedOut
from nngkit.fanout import ConsumerServer, Following, Missing
from nngkit.journal import Recorder
from nngkit.protocols import Pull, Push, Sub

LOCAL: Final = "tcp://127.0.0.1:0"


async def following(end: End) -> None:
    """Record a Publisher on this host, and follow the journal and the live messages."""
    folder = end.data / f"following-{end.run}"
    async with Recorder(folder) as recorder, trio.open_nursery() as nursery:
        nursery.start_soon(recorder.record, Sub(dial=end.ports[0], topics=b""), "ticks")
        with Sub(dial=end.ports[0], topics=b"") as live:
            async with Following(live, folder, topic="ticks") as messages:
                end.note(UP)
                async for message in messages:
                    if isinstance(message, Missing):
                        end.note(REPORTED, message.last - message.first + 1)
                    else:
                        end.seen(READ, message[1:])


async def recorder(end: End) -> None:
    """Record what a Push sends, and read the journal."""
    folder = end.data / f"recorder-{end.run}"
    async with Recorder(folder) as recording, trio.open_nursery() as nursery:
        nursery.start_soon(recording.record, Pull(dial=end.ports[0]), "jobs")
        async with ConsumerServer(folder, listen=LOCAL) as server:
            await consume(end, server.address)


async def daemon(end: End) -> None:
    """Read the service's replies: a message is a round that it has answered."""
    settings = DaemonSettings(listen=(end.ports[0],), query=(end.ports[1],))
    async with Daemon(settings) as surveying:
        end.note(UP)
        number, last = 0, 0.0
        while True:
            await trio.sleep(PACE)
            rows = [row for row in surveying.discovery.view() if row.state is State.UP and row.last_reply is not None]
            newest = max((row.last_reply or 0.0 for row in rows), default=0.0)
            if newest > last:
                last, number = newest, number + 1
                end.seen(READ, end.body(number))


async def service(end: End) -> None:
    async with Service("answer", f"tcp://{end.here}:1", discovery=end.ports[0], sigterm=False):
        end.note(UP)
        await trio.sleep_forever()


async def changing_service(end: End) -> None:
    """A daemon, and a service beside it that changes with every message."""
    settings = DaemonSettings(listen=(end.ports[0],), query=(end.ports[1],))
    async with Daemon(settings), Service("clock", f"tcp://{end.here}:1", discovery=end.ports[0]) as clock:
        end.note(UP)

        async def tell(body: bytes) -> None:
            clock.update(version=body.hex())

        await end.paced(tell)


async def resolver(end: End) -> None:
    async with Resolver(end.ports[1]) as resolving:
        end.note(UP)
        last = ""
        while True:
            await trio.sleep(PACE / 2)
            try:
                version = resolving.resolve("clock").version
            except ServiceNotFound:
                continue
            if version != last and resolving.fresh:
                last = version
                end.seen(READ, bytes.fromhex(version))


async def server(end: End) -> None:
    async def echo(body: bytes) -> bytes:
        return body

    settings = DaemonSettings(listen=(end.ports[0],), query=(end.ports[1],))
    async with Daemon(settings):
        place = end.ports[2]
        async with Server("echo", echo, discovery=end.ports[0], listen=place, sigterm=False):
            end.note(UP)
            await trio.sleep_forever()


async def client(end: End) -> None:
    async with Client("echo", daemons=end.ports[1], timeout=1.0) as calling:
        end.note(UP)

        async def ask(body: bytes) -> None:
            try:
                end.seen(READ, await calling.request(body, idempotent=True))
            except (TimedOut, ServiceNotFound, Broken):
                end.note(REPORTED, 1)

        await end.paced(ask)


async def writer(end: End) -> None:
    """Edit a document; the other end has to see every edit."""
    async with DocumentPeer(listen=end.ports[0], repair=end.ports[1]) as peer:
        numbers = peer.open("numbers").map("numbers")
        end.note(UP)

        async def edit(body: bytes) -> None:
            numbers[body.hex()] = True
            await trio.sleep(3 * PACE)

        await end.paced(edit)


async def reader(end: End) -> None:
    async with DocumentPeer(dial=end.ports[0]) as peer:
        document = peer.open("numbers")
        numbers, seen = document.map("numbers"), set[str]()
        end.note(UP)
        async for _ in document.changes():
            for key in set(numbers) - seen:
                seen.add(key)
                end.seen(READ, bytes.fromhex(key))


async def host(end: End) -> None:
    async with Host("farm", listen=end.ports[0]):
        end.note(UP)
        await trio.sleep_forever()


async def member(end: End) -> None:
    """Do jobs, and submit them to the host: each passes the network twice."""
    async with Member("farm", dial=end.ports[0]) as node:

        @node.work("echo")
        async def echo(job: Any) -> bytes:
            return bytes(job.payload)

        end.note(UP)

        async def job(body: bytes) -> None:
            with trio.move_on_after(1.0) as patience:
                end.seen(READ, await (await node.submit("echo", body)).result())
            if patience.cancelled_caught:
                end.note(REPORTED, 1)

        await end.paced(job)


async def device(end: End) -> None:
    """Forward what a Push sends to a Pull on this host."""
    async with AsyncExitStack() as stack:
        front, back = stack.enter_context(Pull(dial=end.ports[0])), stack.enter_context(Push(listen=LOCAL))
        await stack.enter_async_context(forward(front, back))
        local = stack.enter_context(Pull(dial=back.address))
        end.note(UP)
        async for message in local:
            end.seen(READ, message)
