"""Functions of the processes of `faults.py`, by room: `_fault_table` has which of them run, `_fault_ends` has `End`.
`outages.py` runs some of them, too.

A channel tells messages of one kind, or one reader, from another; `_fault_table` and `_fault_audit` know them.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import trio
from _fault_ends import DONE, FAILED, KEPT, RAN, SETTLED, End, log
from _outage_bricks import PACE
from _outage_records import READ, REPORTED, UP

from nngkit import Client, Server, Service
from nngkit.cluster import Host, Member
from nngkit.discovery import Daemon, DaemonSettings, Resolver
from nngkit.documents import DocumentPeer
from nngkit.errors import Broken, NotStored, ServiceNotFound
from nngkit.fanout import (
    Consumer,
    ConsumerServer,
    Gap,
    Mesh,
    MeshGap,
    Outbox,
    OutboxReceiver,
    Published,
    Publisher,
    Subscriber,
)
from nngkit.journal import Recorder, encode_request, parse_reply
from nngkit.protocols import Rep, Req

SEGMENT: Final = 20_000  # bytes of a log: some are sealed while a fault lasts
WAIT: Final = 30.0  # seconds
CALLERS: Final = 4  # calls, jobs and requests in flight


# ---- discovery: ports 0 and 1 for surveys, 2 and 3 for queries -------------------------------------------------------


async def daemon(end: End) -> None:
    at = ("daemon", "other").index(end.role)
    settings = DaemonSettings(listen=(end.ports[at],), query=(end.ports[2 + at],), deadline=0.5, interval=0.25)
    async with Daemon(settings) as surveying:
        end.note(UP)
        await surveying.run()


async def changing_service(end: End) -> None:
    """Change with every message."""
    async with Service("clock", end.ports[4], discovery=end.ports[:2], sigterm=False) as clock:
        end.note(UP)

        async def tell(body: bytes) -> None:
            clock.update(version=body.hex())

        await end.paced(tell)
        await trio.sleep_forever()


async def resolver(end: End) -> None:
    """Read each daemon's view of the service by a resolver of its own; ask for it all the time by one of both."""
    async with Resolver(end.ports[2]) as one, Resolver(end.ports[3]) as other, Resolver(end.ports[2:4]) as both:
        number, last = 0, ["", ""]
        while True:
            await trio.sleep(PACE / 2)
            try:
                both.resolve("clock")
            except ServiceNotFound:
                if number:
                    end.note(FAILED, number)
                continue
            if not number:
                end.note(UP)
            number += 1
            end.note(KEPT, number, channel=2)
            for channel, resolving in enumerate((one, other)):
                try:
                    version = resolving.resolve("clock").version
                except ServiceNotFound:
                    continue
                if version != last[channel] and resolving.fresh:
                    last[channel] = version
                    end.seen(READ, bytes.fromhex(version), channel)


# ---- calls -----------------------------------------------------------------------------------------------------------


async def server(end: End) -> None:
    """Note each call that is run, on channel 2 or 3."""
    at = ("one", "two").index(end.role)

    async def echo(body: bytes) -> bytes:
        end.seen(RAN, body, 2 + at)
        return body

    async with Server("echo", echo, discovery=end.ports[0], listen=end.ports[4 + at], sigterm=False):
        end.note(UP)
        await trio.sleep_forever()


async def client(end: End) -> None:
    """Call idempotently on channel 0, otherwise on channel 1."""
    async with Client("echo", daemons=end.ports[2], timeout=10.0, attempt_timeout=1.0) as calling:
        await calling.wait_for_providers(2, timeout=WAIT)
        end.note(UP)

        async def call(body: bytes) -> None:
            end.seen(READ, await calling.request(body + end.pad, idempotent=True))

        async def call_once(body: bytes) -> None:
            end.seen(READ, await calling.request(body + end.pad, timeout=2.0), 1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: end.paced(call))
            nursery.start_soon(lambda: end.paced(call_once, 1))
        await trio.sleep_forever()


# ---- numbered fan-out ------------------------------------------------------------------------------------------------


async def publisher(end: End) -> None:
    async with Publisher(end.ports[0], control=end.ports[1]) as publishing:
        end.note(UP)

        async def publish(body: bytes) -> None:
            publishing.publish(b"t", body + end.pad)

        await end.paced(publish)
        await trio.sleep_forever()


async def subscriber(end: End) -> None:
    async with Subscriber(end.ports[0]) as subscribing:
        end.note(UP)
        async for event in subscribing:
            if isinstance(event, Published):
                end.seen(READ, event.body)
            elif isinstance(event, Gap):
                end.note(REPORTED, event.count)


# ---- consumers -------------------------------------------------------------------------------------------------------


async def consumer_server(end: End) -> None:
    async with (
        Recorder(end.data, segment_bytes=SEGMENT) as recording,
        ConsumerServer(end.data, listen=end.ports[0]),
    ):
        end.note(UP)

        async def store(body: bytes) -> None:
            await recording.store([body + end.pad], topic="orders", protocol="bench")

        await end.paced(store, keeps=True)
        await trio.sleep_forever()


async def consumer(end: End) -> None:
    await consume(end, end.ports[0])


async def consume(end: End, server: str) -> None:
    async with Consumer("billing", server, ack_wait=1.0, timeout=None) as consuming:
        end.note(UP)
        async for batch in consuming.batches():
            for value in batch.values:
                end.seen(READ, value)
            try:
                await batch.ack()
            except NotStored as error:  # they are delivered again
                log.warning("%r", error)
                continue
            for value in batch.values:
                end.seen(SETTLED, value)


# ---- outbox ----------------------------------------------------------------------------------------------------------


async def outbox(end: End) -> None:
    with Req(dial=end.ports[0]) as req:
        async with Outbox(end.data, req) as box:
            end.note(UP)

            async def put(body: bytes) -> None:
                await box.put(body + end.pad)

            await end.paced(put, keeps=True)
            await trio.sleep_forever()


async def outbox_receiver(end: End) -> None:
    """Keep the positions in the file of what has been received, so that a kill cannot tell them apart."""
    known = end.data / "outbox"
    read = sum(path.read_bytes().count(b"\n") for path in end.data.glob("*.received"))
    receiver = OutboxReceiver({known.read_bytes(): read} if known.exists() else None)
    with (end.data / f"{end.run}.received").open("ab", buffering=0) as received, Rep(listen=end.ports[0]) as rep:
        end.note(UP)
        async for request in rep:
            values = receiver.accept(request.body)
            if not known.exists():
                known.write_bytes(next(iter(receiver.positions)))
            received.write(b"".join(value[:16].hex().encode() + b"\n" for value in values))
            for value in values:
                end.seen(READ, value)
            await request.areply(b"")


# ---- mesh: a line of three, `middle` listens -------------------------------------------------------------------------


NODES: Final = ("left", "right", "middle")


async def mesh(end: End) -> None:
    """Note what is read from another node on channel 3 * reader + origin."""
    where: dict[str, Any] = {"listen" if end.role == "middle" else "dial": end.ports[0]}
    first = 3 * NODES.index(end.role)
    async with Mesh(id=end.role, **where) as node, trio.open_nursery() as nursery:
        end.note(UP)

        async def send(body: bytes) -> None:
            await node.send(body + end.pad)

        nursery.start_soon(lambda: end.paced(send, 9))
        async for event in node.events():
            channel = first + NODES.index(event.origin)
            if isinstance(event, MeshGap):
                end.note(REPORTED, event.count, channel=channel)
            else:
                end.seen(READ, event.body, channel)


# ---- documents -------------------------------------------------------------------------------------------------------


async def document(end: End) -> None:
    """Edit a document, and read the other's edits, on channel 0 at "two" and 1 at "one".

    A store whose disk has failed is final: the program ends, to open it again. At the end all is on both disks.
    """
    at = ("two", "one").index(end.role)
    listen, repair = end.ports[2 * at], end.ports[2 * at + 1]
    dial = () if end.role == "one" else (end.ports[2],)
    async with DocumentPeer(listen=listen, repair=repair, dial=dial, store=end.data / "docs.sqlite") as peer:
        doc = peer.open("numbers")
        numbers, seen = doc.map("numbers"), set[str]()
        end.note(UP)

        async def edit(body: bytes) -> None:
            numbers[body.hex()] = end.pad or True
            try:
                await doc.durable()
            except Broken as error:
                raise SystemExit(str(error)) from error

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: end.paced(edit, 2 + at, keeps=True, pause=3 * PACE, last=doc.synced))
            async for _ in doc.changes():
                for key in set(numbers) - seen:
                    seen.add(key)
                    end.seen(READ, bytes.fromhex(key), at)


async def document_store(end: End) -> None:
    """Note the edits that a store has, on channel 4 or 5."""
    at = ("two", "one").index(end.role)
    async with DocumentPeer(store=end.data / "docs.sqlite") as peer:
        for key in peer.open("numbers").map("numbers"):
            end.seen(READ, bytes.fromhex(key), 4 + at)
        end.note(DONE)
        await trio.sleep_forever()


# ---- cluster ---------------------------------------------------------------------------------------------------------


VOTERS: Final = ("a", "b", "c")


async def voter(end: End) -> None:
    at = VOTERS.index(end.role)
    voters = dict(zip(VOTERS, end.ports, strict=False))
    options: dict[str, Any] = {"voters": voters, "store": end.data, "preference": 9 - at}
    async with Host("farm", id=end.role, listen=end.ports[at], **options) as node:

        @node.work("echo", concurrency=CALLERS)
        async def echo(job: Any) -> bytes:
            end.seen(RAN, job.payload, 2)
            return bytes(job.payload[:16])

        await node.joined(WAIT)
        end.note(UP)
        await trio.sleep_forever()


async def submitter(end: End) -> None:
    async with Member("farm", dial=end.ports[:3], id="submitter") as node, trio.open_nursery() as nursery:
        await node.joined(WAIT)
        end.note(UP)

        async def job(body: bytes) -> None:
            job = await node.submit("echo", body + end.pad, key=body, visibility=2.0)
            end.seen(KEPT, body)
            end.seen(READ, await job.result())

        for caller in range(CALLERS):
            nursery.start_soon(lambda caller=caller: end.paced(job, 10 + caller, pause=CALLERS * PACE))
        await trio.sleep_forever()


# ---- journal ---------------------------------------------------------------------------------------------------------


def recorder(end: End) -> None:
    """`nngkit record`."""
    from nngkit.cli.main import main

    end.note(UP)
    words = ["record", str(end.data), "--segment-size", str(SEGMENT)]
    sys.exit(main([*words, "--stream", f"orders=rep listen={end.ports[0]}"]))


async def load(end: End) -> None:
    """Send requests, and repeat those that are refused."""
    async with Req(dial=end.ports[0]) as req, trio.open_nursery() as nursery:
        end.note(UP)

        async def ask(body: bytes) -> None:
            while True:
                try:
                    parse_reply(await req.arequest(encode_request(body, [body + end.pad])))
                    return
                except NotStored as error:
                    log.info("%r", error)
                    await trio.sleep(PACE)

        for caller in range(CALLERS):
            nursery.start_soon(lambda caller=caller: end.paced(ask, caller, keeps=True, pause=PACE))
        await trio.sleep_forever()
