"""A program that type checkers accept, and that runs: every kind of socket, of payload and of caller."""

import array
import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Protocol

import trio

import nngkit.aio
import nngkit.blocking
from nngkit import Client, Provider, Server, Service, ServiceDiscovery
from nngkit.calls import ClientCall, Proceed, Reply
from nngkit.cluster import Host, JobRun, Member
from nngkit.devices import Device
from nngkit.protocols import (
    Batch,
    Bus,
    Message,
    Pair0,
    Pair1,
    Payload,
    Pipe,
    Pub,
    Pull,
    Push,
    Rep,
    Req,
    Request,
    Respondent,
    Sub,
    Surveyor,
)

ANY = "tcp://127.0.0.1:0"


def payloads() -> Iterator[Payload]:
    yield b"abcd"
    yield bytearray(b"abcd")
    yield memoryview(b"xabcdx")[1:-1]
    yield memoryview(b"a-b-c-d-")[::2]
    yield array.array("B", b"abcd")


def known(pipe: Pipe) -> bool:
    return bool(pipe.address)


def pipeline() -> None:
    with (
        Push(listen=ANY, when_full="drop_oldest", admit=known, batch=Batch(items=4)) as push,
        Pull(dial=[push.address], recv_buffer=16, batch=True, name="right") as pull,
    ):
        for each in payloads():
            push.send(each, timeout=5.0)
        push.send_many(list(payloads()))
        push.flush()
        got: list[bytes] = [pull.recv(5.0) for _ in range(10)]
        assert got == [b"abcd"] * 10


def pairs() -> None:
    with Pair0(listen=ANY, when_full="raise") as one, Pair0(dial=one.address) as other:
        other.send(bytearray(b"0"), None)
        message: Message = one.recv_msg(timeout=5)
        assert message == b"0"
    with Pair1(listen=ANY) as one1, Pair1(dial=one1.address, send_timeout=None) as other1:
        other1.send(array.array("H", [1]))
        assert len(one1.recv(5)) == 2


def broadcasting() -> None:
    with (
        Pub(listen=ANY, sequence=True, when_full="drop") as pub,
        Sub(dial=pub.address, topics=("a", b"b"), sequence=True) as sub,
    ):
        pub.wait_for_peers(1, 5)
        pub.send(memoryview(b"1"), topic=bytearray(b"a"))
        assert sub.recv(5) == b"a1"
    with Bus(listen=ANY) as hub, Bus(dial=hub.address, max_pipes=4) as spoke:
        spoke.wait_for_peers(1, 5)
        spoke.send(b"all")
        assert hub.relay(hub.recv_msgs(timeout=5)) == 1


async def asking() -> None:
    async with Rep(listen=ANY) as rep, Req(dial=rep.address, resend=None) as req:

        async def answer() -> None:
            request: Request = await rep.arecv()
            await request.areply(bytearray(request.body.upper()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            reply: bytes = await req.arequest(memoryview(b"hello"), timeout=5)
            assert reply == b"HELLO"
    async with Surveyor(listen=ANY) as surveyor, Respondent(dial=surveyor.address) as respondent:
        await surveyor.await_for_peers(1, 5)

        async def respond() -> None:
            async for query in respondent:
                await query.areply(array.array("B", b"here"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(respond)
            result = await surveyor.asurvey(bytearray(b"?"), 5.0, early=True)
            assert [each.body for each in result.replies] == [b"here"]
            nursery.cancel_scope.cancel()


async def discovering() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=0.5) as discovery,
        Service("answer", "tcp://127.0.0.1:9000", discovery=[discovery.address]),
    ):
        await discovery.wait_for_peers(timeout=5)
        await discovery.discover()
        found: Provider = discovery.resolve("answer")
        assert found.weight > 0


class Doubles(Protocol):
    async def double(self, body: int) -> int: ...
    def count(self, body: int) -> AsyncIterator[int]: ...


async def double(body: int) -> int:
    return body * 2


async def noted(call: ClientCall, proceed: Proceed) -> Reply:
    call.headers["user"] = "ada"
    return await proceed(call)


async def calling() -> None:
    server = Server("doubles", discovery=(), codec="cbor")
    server.method(double)
    async with (
        server,
        Client("doubles", addresses=server.address, codec="cbor", middleware=[noted]) as client,
    ):
        doubles: Doubles = client.typed(Doubles)
        four: int = await doubles.double(2)
        assert four == 4


async def passing_on() -> None:
    async with Pull(listen=ANY) as front, Push(listen=ANY) as back:
        device = Device(front, back, timeout=1.0)
        device.stop()
        await device.run()
        assert device.lost == 0


def without_a_loop() -> None:
    with (
        nngkit.blocking.ServiceDiscovery(listen=ANY, deadline=0.5) as discovery,
        nngkit.blocking.Service("answer", "tcp://127.0.0.1:9000", discovery=discovery.address) as service,
    ):
        discovery.wait_for_peers(timeout=5)
        service.update(weight=7)
        discovery.discover()
        assert discovery.resolve("answer").weight == 7


async def under_asyncio() -> None:
    async with (
        nngkit.aio.ServiceDiscovery(listen=ANY, deadline=0.5) as discovery,
        nngkit.aio.Service("answer", "tcp://127.0.0.1:9000", discovery=discovery.address) as service,
    ):
        await discovery.wait_for_peers(timeout=5)
        service.update(weight=7)
        await discovery.discover()
        async for event in discovery.events():
            assert event.name == "answer"
            break
        found: Provider = discovery.resolve("answer")
        assert found.weight == 7
    async with nngkit.aio.Host("farm", listen=ANY) as host, nngkit.aio.Member("farm", dial=host.address) as member:
        await member.joined(timeout=5)


async def a_cluster() -> None:
    async with Host("farm", listen=ANY) as host, Member("farm", dial=host.address) as worker:

        @worker.work("square", timeout=5.0)
        async def square(job: JobRun) -> bytes:
            return str(int(job.payload) ** 2).encode()

        assert [int(result) async for result in host.map("square", [b"2"])] == [4]


def a_cluster_without_a_loop() -> None:
    with nngkit.blocking.Host("farm", listen=ANY) as host, nngkit.blocking.Member("farm", dial=host.address) as member:
        member.joined(timeout=5)


def main() -> None:
    pipeline()
    pairs()
    broadcasting()
    trio.run(asking)
    trio.run(discovering)
    trio.run(calling)
    trio.run(passing_on)
    without_a_loop()
    trio.run(a_cluster)
    a_cluster_without_a_loop()
    asyncio.run(under_asyncio())
    print("right")


if __name__ == "__main__":
    main()
