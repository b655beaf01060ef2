"""The programs that against.py runs, each in a process of either version: names of nngkit that both versions have.

`ends.py ROLE FOLDER [ADDRESS ...]` prints a line of JSON with its addresses, if it listens, and `passed ...` once its
checks hold. It keeps its sockets open until standard input ends.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import trio

import nngkit
from nngkit import protocols as p

HERE = "tcp://127.0.0.1:0"
WAIT = 20.0  # seconds for each operation
MANY = 200
VALUES = [f"message {number}".encode() for number in range(MANY)]
Role = Callable[..., Awaitable[object]]
ROLES: dict[str, Role] = {}


def role(function: Role) -> Role:
    ROLES[function.__name__] = function
    return function


def listening(*addresses: str) -> None:
    print(json.dumps(addresses), flush=True)


async def passed(note: object = "") -> None:
    print(f"passed {note}", flush=True)
    await trio.to_thread.run_sync(sys.stdin.read)


async def until(true: Callable[[], object]) -> None:
    with trio.fail_after(WAIT):
        while not true():  # noqa: ASYNC110 - has no event
            await trio.sleep(0.01)


def check(found: object, expected: object) -> None:
    if found != expected:
        raise SystemExit(f"{found!r:.300} instead of {expected!r:.300}")


# ---- protocols -------------------------------------------------------------------------------------------------------


async def echo(make: Callable[..., Any], folder: str) -> None:
    async with make(listen=HERE) as socket:
        listening(socket.address)
        for value in VALUES:
            check(await socket.arecv(timeout=WAIT), value)
            await socket.asend(value, timeout=WAIT)
        await passed()


async def speak(make: Callable[..., Any], folder: str, address: str) -> None:
    async with make(dial=address) as socket:
        await socket.await_for_peers(timeout=WAIT)
        for value in VALUES:
            await socket.asend(value, timeout=WAIT)
            check(await socket.arecv(timeout=WAIT), value)
        await passed()


for _make in (p.Pair0, p.Pair1, p.Bus):
    ROLES[f"{_make.__name__.lower()}_echo"] = partial(echo, _make)
    ROLES[f"{_make.__name__.lower()}_speak"] = partial(speak, _make)


async def receive(make: Callable[..., Any], folder: str) -> None:
    async with make(listen=HERE) as socket:
        listening(socket.address)
        check([await socket.arecv(timeout=WAIT) for _ in VALUES], VALUES)
        await passed()


async def send(make: Callable[..., Any], folder: str, address: str) -> None:
    async with make(dial=address) as socket:
        for value in VALUES:
            await socket.asend(value, timeout=WAIT)
        await socket.adrain(WAIT)
        await passed()


ROLES["pull"], ROLES["push"] = partial(receive, p.Pull), partial(send, p.Push)
ROLES["batch_pull"] = partial(receive, partial(p.Pull, batch=True))
ROLES["batch_push"] = partial(send, partial(p.Push, batch=True))


@role
async def pub(folder: str, **options: Any) -> None:
    async with p.Pub(listen=HERE, **options) as socket:
        listening(socket.address)
        await socket.await_for_peers(timeout=WAIT)
        with trio.move_on_after(WAIT):
            await trio.sleep(0.2)  # NNG's subscriptions filter at the receiver: nothing tells when it has its topic
        for value in VALUES:
            await socket.asend(value, topic="weather.")
            await socket.asend(value, topic="other.")
        await passed()


@role
async def sub(folder: str, address: str, **options: Any) -> None:
    async with p.Sub(dial=address, topics="weather.", **options) as socket:
        check([await socket.arecv(timeout=WAIT) for _ in VALUES], [b"weather." + value for value in VALUES])
        if options:
            check(socket.stats.lost, 0)
        await passed()


ROLES["numbered_pub"], ROLES["numbered_sub"] = partial(pub, sequence=True), partial(sub, sequence=True)


@role
async def rep(folder: str) -> None:
    async with p.Rep(listen=HERE) as socket:
        listening(socket.address)
        for _ in VALUES:
            request = await socket.arecv(timeout=WAIT)
            await request.areply(request.body.upper())
        await passed()


@role
async def req(folder: str, address: str) -> None:
    async with p.Req(dial=address) as socket:
        for value in VALUES:
            check(await socket.arequest(value, timeout=WAIT), value.upper())
        await passed()


@role
async def surveyor(folder: str) -> None:
    async with p.Surveyor(listen=HERE) as socket:
        listening(socket.address)
        await socket.await_for_peers(timeout=WAIT)
        for number in range(5):
            result = await socket.asurvey(f"question {number}".encode(), timeout=WAIT, early=True)
            check([each.body for each in result.replies], [f"QUESTION {number}".encode()])
        await passed()


@role
async def respondent(folder: str, address: str) -> None:
    async with p.Respondent(dial=address) as socket:
        for _ in range(5):
            query = await socket.arecv(timeout=WAIT)
            await query.areply(query.body.upper())
        await passed()


# ---- discovery -------------------------------------------------------------------------------------------------------


@role
async def service_discovery(folder: str) -> None:
    from nngkit import ServiceDiscovery

    async with ServiceDiscovery(listen=HERE) as discovery:
        listening(discovery.address)
        with trio.fail_after(WAIT):
            while not (found := await discovery.discover(early=True)).get("answer"):
                pass
        (provider,) = found["answer"]
        check((provider.address, provider.priority, provider.zone), ("tcp://127.0.0.1:9000", 3, "oslo"))
        await passed()


@role
async def service(folder: str, address: str, *_: str) -> None:
    from nngkit import Service

    async with Service(
        "answer", "tcp://127.0.0.1:9000", discovery=address, priority=3, zone="oslo", tags={"gpu"}, sigterm=False
    ):
        await passed()


@role
async def daemon(folder: str) -> None:
    from nngkit.discovery import Daemon, DaemonSettings

    settings = DaemonSettings(listen=(HERE,), query=(HERE,), deadline=0.5, interval=0.1)
    async with Daemon(settings) as running, trio.open_nursery() as nursery:
        nursery.start_soon(running.run)
        listening(running.discovery.address, running.query_addresses[0])
        await passed()
        nursery.cancel_scope.cancel()


@role
async def resolver(folder: str, _: str, address: str) -> None:
    from nngkit.discovery import DaemonClient, Resolver

    async with Resolver(address) as resolving:
        provider = await resolving.find("answer", timeout=WAIT)
        check((provider.address, provider.priority, provider.tags), ("tcp://127.0.0.1:9000", 3, frozenset({"gpu"})))
    async with DaemonClient(address, timeout=WAIT) as client:
        check((await client.resolve("answer")).address, "tcp://127.0.0.1:9000")
        check([each.provider.name for each in await client.snapshot()], ["answer"])
        await client.rounds()
    await passed()


# ---- documents -------------------------------------------------------------------------------------------------------


async def edit(mark: str, folder: str, *dial: str, **options: Any) -> None:
    """Edit `minutes` until it has the 100 edits of each of two peers."""
    from nngkit.documents import DocumentPeer

    async with DocumentPeer(listen=HERE, dial=dial, name=mark, **options) as peer:
        doc = peer.open("minutes")
        if not dial:
            listening(peer.address)
        await peer.wait_for_peers(1, WAIT)
        text, facts = doc.text("body"), doc.map("facts")
        for number in range(100):
            text.insert(len(str(text)) // 2, mark)
            facts[f"{mark}{number}"] = number
            await trio.sleep(0.001)
        await until(lambda: str(text).count("a") == str(text).count("b") == 100 and len(facts) == 200)
        if "store" in options:
            await doc.durable()
        await passed(doc.digest().hex())


async def stored(mark: str, folder: str, *dial: str) -> None:
    await edit(mark, folder, *dial, store=Path(folder) / f"{mark}.sqlite")


ROLES["edit_a"], ROLES["edit_b"] = partial(edit, "a"), partial(edit, "b")
ROLES["stored_a"], ROLES["stored_b"] = partial(stored, "a"), partial(stored, "b")


@role
async def peer_of_recorder(folder: str) -> None:
    from nngkit.documents import DocumentPeer

    async with DocumentPeer(listen=HERE) as peer:
        listening(peer.address)
        doc = peer.open("minutes")
        doc.text("body").insert(0, "hello")
        await peer.wait_for_peers(1, WAIT)
        doc.text("body").insert(5, " again")
        await doc.synced(1, timeout=WAIT)  # the recorder has it on disk
        await passed()


@role
async def document_recorder(folder: str, address: str) -> None:
    from nngkit.journal import Recorder, read
    from nngkit.recording import DocumentRecorder

    async with Recorder(folder) as recorder, DocumentRecorder(recorder, dial=address):
        await until(lambda: len(list(read(folder))) >= 2)
        await passed()


# ---- journal ---------------------------------------------------------------------------------------------------------


@role
async def recorder(folder: str) -> None:
    from nngkit.journal import Recorder, read

    async with (
        Recorder(folder) as recording,
        p.Pull(listen=HERE) as pulled,
        p.Rep(listen=HERE) as asked,
        trio.open_nursery() as nursery,
    ):
        listening(pulled.address, asked.address)
        nursery.start_soon(lambda: recording.record(pulled, "pulled"))
        nursery.start_soon(lambda: recording.record(asked, "asked"))
        await until(lambda: len(list(read(folder, topics="pulled"))) == MANY)
        check([record.value for record in read(folder, topics="pulled")], VALUES)
        await until(lambda: len(list(read(folder, topics="asked"))) == MANY)
        await passed()
        nursery.cancel_scope.cancel()


@role
async def feed(folder: str, pushed: str, asked: str) -> None:
    from nngkit.journal import encode_request, parse_reply

    async with p.Push(dial=pushed) as push, p.Req(dial=asked) as req:
        for value in VALUES:
            await push.asend(value, timeout=WAIT)
        await push.adrain(WAIT)
        request = encode_request(b"1", VALUES, key=b"key", headers={"a": b"b"})
        stored = parse_reply(await req.arequest(request, timeout=WAIT))
        check(stored.end - stored.first, MANY)
        await passed()


async def record(folder: str, expected: int) -> None:
    """Check the `expected` records of the journal, append MANY, and end like a killed process: with an open log."""
    from nngkit.journal import Recorder, read

    check([each.value for each in read(folder)] if expected else [], VALUES * (expected // MANY))
    async with Recorder(folder, segment_bytes=2048) as recording:
        for number, value in enumerate(VALUES):
            recording.put(value, topic="orders", protocol="sub", headers={"a": b"b"}, peer="tcp://10.0.0.9:51234")
            if number % 20 == 0:
                await recording.flush()
        await recording.flush()
        check([each.offset for each in read(folder)], list(range(expected + MANY)))
        print("passed", flush=True)
        os._exit(0)


async def write_store(folder: str, expected: int) -> None:
    """Check the `expected` sessions in the store, with saved versions and history, and add one."""
    from nngkit.documents import DocumentPeer
    from nngkit.documents.store import Store

    path = Path(folder) / "store.sqlite"
    async with DocumentPeer(store=path) as peer:
        for name in ("minutes", "lists/shopping"):
            doc = peer.open(name)
            check(str(doc.text("body")), "".join(f"session {number}. " for number in range(expected)))
            saved = doc.saved_versions() if expected else ()  # raises NotFound for a document that is not stored yet
            check([each.name for each in saved], [f"after {number}" for number in range(expected)])
            for number in range(expected):
                check(str(doc.at(f"after {number}").text("body")).count("."), number + 1)
            doc.text("body").insert(len(str(doc.text("body"))), f"session {expected}. ")
            doc.map("facts")["sessions"] = expected
            await doc.save_version(f"after {expected}")
            await doc.durable()
    with Store.open(path) as store:
        check([entry.seq for entry in store.log("minutes")], [1, 2] * (expected + 1))
    print("passed", flush=True)


async def record_documents(folder: str, expected: int) -> None:
    """Restore a document from its journal, check the `expected` edits in it, and record one more."""
    from nngkit.documents import DocumentPeer
    from nngkit.journal import Recorder, read
    from nngkit.recording import DocumentRecorder, parse

    async with (
        Recorder(folder) as recording,
        DocumentRecorder(recording, listen=HERE) as kept,
        DocumentPeer(dial=kept.addresses) as peer,
    ):
        doc = peer.open("minutes")
        await peer.wait_for_peers(1, WAIT)
        if expected:
            await doc.joined(timeout=WAIT)
        check(str(doc.text("body")), "".join(f"session {number}. " for number in range(expected)))
        doc.text("body").insert(len(str(doc.text("body"))), f"session {expected}. ")
        await doc.synced(1, timeout=WAIT)
        check({parse(record).doc for record in read(folder)}, {"minutes"})
        check(len(list(read(folder))), expected + 1)
    print("passed", flush=True)


# ---- clusters --------------------------------------------------------------------------------------------------------


async def fail_first(job: Any) -> bytes:
    """Fail at the first try, in silence, as the standard error is read at the end."""
    logging.getLogger("nngkit.cluster").setLevel(logging.CRITICAL)
    if job.try_number == 1:
        raise ValueError("the first try")
    await trio.sleep(0.01)
    return bytes(job.payload)


@role
async def cluster_host(folder: str) -> None:
    from nngkit.cluster import Host

    async with Host("c", listen=HERE) as host:
        listening(str(host.address))
        await passed()


@role
async def cluster_worker(folder: str, host: str) -> None:
    from nngkit.cluster import Member

    async with Member("c", dial=host) as member:
        member.work("first", concurrency=4)(fail_first)
        await member.joined(WAIT)
        await passed()


@role
async def cluster_submitter(folder: str, host: str) -> None:
    from nngkit.cluster import Member

    async with Member("c", dial=host) as member:
        member.work("first", concurrency=2)(fail_first)
        await member.joined(WAIT)
        check([result async for result in member.map("first", VALUES, delay=0.2)], VALUES)
        await passed()


async def cluster_voter(folder: str, *given: str, name: str) -> None:
    """Run one of three voters. The last one submits jobs, lets the host leave, and submits jobs again."""
    import socket

    from nngkit.cluster import Host

    addresses = list(given)
    if not addresses:
        sockets = [socket.socket() for _ in range(3)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        addresses = [f"tcp://127.0.0.1:{each.getsockname()[1]}" for each in sockets]
        for each in sockets:
            each.close()
        listening(*addresses)
    voters = dict(zip("abc", addresses, strict=True))
    preference = {"a": 2, "b": 1, "c": 0}[name]
    async with Host("c", id=name, listen=voters[name], voters=voters, lease=2.0, preference=preference) as host:
        host.work("first", concurrency=4)(fail_first)
        await host.joined(WAIT)
        if name == "c":
            check([result async for result in host.map("first", VALUES)], VALUES)
            first = host.host
            late = await host.submit("first", b"late", delay=3.0)
            await host.drain(first)
            await until(lambda: host.host not in (None, first))
            check([result async for result in host.map("first", VALUES)], VALUES)
            check(await late.result(WAIT), b"late")
        await passed()


async def cluster_store(folder: str, expected: int) -> None:
    """Continue the store of the only voter: its jobs wait for a worker."""
    from nngkit.cluster import Host

    async with Host("c", listen=HERE, store=Path(folder) / "voter") as host:
        await host.joined(WAIT)
        status = await host.status()
        check(status.jobs[0].waiting + status.jobs[0].running, expected)
        for number in range(MANY):
            await host.submit("none", b"%d" % number, delay=60.0 * (number % 2))
    print("passed", flush=True)


async def cluster_snapshot(folder: str, expected: int) -> None:
    """Restore the table of jobs, and write it again with one more in each state."""
    from random import Random

    from nngkit.cluster.jobs.messages import Demand, Failed, Results, Spec, Submit, SubmitGroup, Wanted
    from nngkit.cluster.jobs.queue import WorkHost
    from nngkit.cluster.jobs.table import JobTable

    table, path = JobTable(), Path(folder) / "snapshot"
    if expected:
        table.restore(path.read_bytes())
    check(table.unfinished, 2 * expected)
    host = WorkHost("h", term=expected + 1, table=table, now=0.0, wall=1e9, rng=Random(1))
    host.granting = True
    numbers = [3 * expected + 1, 3 * expected + 2, 3 * expected + 3]
    kind = f"kind {expected}"
    host.unicast("ada", Submit(1, 1, [SubmitGroup(Spec(kind, tries=9), numbers, [b"p"] * 3, None)]), 0.0)
    host.receive(3, Demand([Wanted(expected, [kind], 2, 2)]), 0.0)
    for _ in range(4):
        host.committed(host.take(0.0).entries, 0.0)
    done, failed = sorted(table.jobs)[-3:-1]
    failure = Failed(failed, 1, True, "ValueError", "why", 1)
    host.receive(3, Results("w", expected + 1, [done], [1], [b"r"], [1], [failure]), 0.0)
    for _ in range(4):
        host.committed(host.take(0.0).entries, 0.0)
    path.write_bytes(table.snapshot())
    again = JobTable()
    again.restore(table.snapshot())
    check(again.snapshot(), table.snapshot())
    print("passed", flush=True)


for _name in "abc":
    ROLES[f"cluster_voter_{_name}"] = partial(cluster_voter, name=_name)
for _done in range(3):
    ROLES[f"cluster_store_{_done}"] = partial(cluster_store, expected=_done * MANY)
    ROLES[f"cluster_snapshot_{_done}"] = partial(cluster_snapshot, expected=_done)
    ROLES[f"documents_{_done}"] = partial(record_documents, expected=_done)
    ROLES[f"record_{_done}"] = partial(record, expected=_done * MANY)
    ROLES[f"store_{_done}"] = partial(write_store, expected=_done)


if __name__ == "__main__":
    check(str(Path(nngkit.__file__).parents[1]), os.environ["PYTHONPATH"])  # the version under test
    trio.run(ROLES[sys.argv[1]], *sys.argv[2:])
