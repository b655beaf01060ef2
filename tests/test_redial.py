"""Connections that look alive and bring nothing: each room with heartbeats or replies connects again, and says so."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio

from nngkit import Service, ServiceDiscovery
from nngkit.discovery import Daemon, DaemonSettings, Resolver, State
from nngkit.documents import DocumentPeer
from nngkit.errors import TimedOut
from nngkit.fanout import (
    Consumer,
    ConsumerServer,
    Following,
    Mesh,
    Outbox,
    OutboxReceiver,
    Published,
    Publisher,
    Subscriber,
)
from nngkit.journal import Recorder
from nngkit.protocols import Bus, Pub, Rep, Req, Sub, Surveyor
from nngkit.redial import SilentServer
from nngkit.testing import aeventually
from tests.proxies import Proxy

ANY = "tcp://127.0.0.1:0"
WAIT = 20.0  # seconds, on a busy machine
SETTINGS = DaemonSettings(listen=(ANY,), query=(ANY,), interval=0.05, deadline=0.2)

Passes = Callable[[], Awaitable[None]]
Room = Callable[[Path], AbstractAsyncContextManager[tuple[Proxy, Passes]]]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tenths of seconds in place of seconds."""
    for module in ("silence", "redial", "mesh.state"):
        monkeypatch.setattr(f"nngkit.{module}.PERIOD", 0.1)
    for module in ("silence", "redial"):
        monkeypatch.setattr(f"nngkit.{module}.LEAST", 0.4)
    monkeypatch.setattr("nngkit.documents.sync.exchange.SELDOM", 0.1)
    monkeypatch.setattr("nngkit.fanout.durable.consumer.WAIT", 0.2)
    monkeypatch.setattr("nngkit.fanout.durable.consumer.REPLY", 0.4)


async def until(send: Callable[[], object], arrived: Callable[[], Awaitable[object]]) -> None:
    """Send again and again until one arrives."""
    while True:
        send()
        with trio.move_on_after(0.1):
            await arrived()
            return


@asynccontextmanager
async def service(folder: Path) -> AsyncIterator[tuple[Proxy, Passes]]:
    async with (
        Daemon(SETTINGS) as daemon,
        Proxy(daemon.addresses[0]) as proxy,
        Service("answer", "tcp://127.0.0.1:9", discovery=proxy.address, sigterm=False),
    ):

        def last() -> float:
            rows = [row for row in daemon.discovery.view() if row.state is State.UP]
            return max((row.last_reply or 0.0 for row in rows), default=0.0)

        async def passes() -> None:
            before = last()
            await aeventually(lambda: last() > before, timeout=WAIT)

        yield proxy, passes


@asynccontextmanager
async def resolver(folder: Path) -> AsyncIterator[tuple[Proxy, Passes]]:
    async with (
        Daemon(SETTINGS) as daemon,
        Proxy(daemon.query_addresses[0]) as proxy,
        Service("clock", "tcp://127.0.0.1:9", discovery=daemon.addresses, sigterm=False) as clock,
        Resolver(proxy.address, timeout=0.2, watch=0.2) as resolving,
    ):
        number = 0

        async def passes() -> None:
            nonlocal number
            number += 1
            clock.update(version=str(number))
            found = await resolving.find("clock", WAIT)
            while found.version != str(number):
                await trio.sleep(0.01)
                found = resolving.resolve("clock")

        yield proxy, passes


@asynccontextmanager
async def subscriber(folder: Path) -> AsyncIterator[tuple[Proxy, Passes]]:
    async with (
        Publisher(ANY, heartbeat=0.05) as publisher,
        Proxy(publisher.address) as proxy,
        Subscriber(proxy.address) as subscribing,
    ):

        async def arrived() -> None:
            while not isinstance(await subscribing.receive(), Published):
                pass

        yield proxy, lambda: until(lambda: publisher.publish("t", b""), arrived)


@asynccontextmanager
async def following(folder: Path) -> AsyncIterator[tuple[Proxy, Passes]]:
    async with (
        Publisher(ANY, heartbeat=0.05) as publisher,
        Proxy(publisher.address) as proxy,
        Recorder(folder) as recorder,
        trio.open_nursery() as nursery,
    ):
        with Sub(dial=publisher.address, topics=b"") as recorded, Sub(dial=proxy.address, topics=b"") as live:
            nursery.start_soon(recorder.record, recorded, "ticks")
            async with Following(live, folder, topic="ticks", patience=0.1) as messages:

                async def passes() -> None:
                    before = messages.stats.live
                    while messages.stats.live == before:
                        await until(lambda: publisher.publish("t", b""), messages.receive_many)

                yield proxy, passes
                recorded.close(0.0)  # ends its recording at once


@asynccontextmanager
async def consumer(folder: Path) -> AsyncIterator[tuple[Proxy, Passes]]:
    async with (
        Recorder(folder) as recorder,
        ConsumerServer(folder, listen=ANY) as server,
        Proxy(server.address) as proxy,
        Consumer("billing", proxy.address) as consuming,
    ):

        async def passes() -> None:
            await recorder.store([b"order"], topic="orders", protocol="test")
            await (await consuming.receive()).ack()

        yield proxy, passes


@asynccontextmanager
async def outbox(folder: Path) -> AsyncIterator[tuple[Proxy, Passes]]:
    async def receive(rep: Rep) -> None:
        receiver = OutboxReceiver()
        async for request in rep:
            receiver.accept(request.body)
            await request.areply(b"")

    with Rep(listen=ANY) as rep:
        async with trio.open_nursery() as nursery, Proxy(rep.address) as proxy:
            nursery.start_soon(receive, rep)
            with Req(dial=proxy.address) as req:
                async with Outbox(folder, req, reply_timeout=0.2) as box:

                    async def passes() -> None:
                        await box.put(b"order")
                        await box.flush()

                    yield proxy, passes
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def mesh(folder: Path) -> AsyncIterator[tuple[Proxy, Passes]]:
    async with (
        Mesh(listen=ANY, id="a", digest=0.05) as listening,
        Proxy(listening.address) as proxy,
        Mesh(dial=proxy.address, id="b", digest=0.05) as dialing,
    ):
        await dialing.wait_for_neighbours(timeout=WAIT)

        async def passes() -> None:
            await listening.send(b"there")
            await dialing.recv(WAIT)
            await dialing.send(b"and back")
            await listening.recv(WAIT)

        yield proxy, passes


@asynccontextmanager
async def documents(folder: Path) -> AsyncIterator[tuple[Proxy, Passes]]:
    async with (
        DocumentPeer(listen=ANY, heartbeat=(0.02, 0.1)) as listening,
        Proxy(listening.address) as proxy,
        DocumentPeer(dial=proxy.address, heartbeat=(0.02, 0.1)) as dialing,
    ):
        here, there = (peer.open("note").text("body") for peer in (listening, dialing))
        await dialing.open("note").joined(WAIT)

        async def passes() -> None:
            here.append("x")
            await aeventually(lambda: str(there) == str(here), timeout=WAIT)

        yield proxy, passes


ROOMS: dict[str, Room] = {
    each.__name__: each for each in (service, resolver, subscriber, following, consumer, outbox, mesh, documents)
}
BOTH_ENDS = {"mesh", "documents"}  # have heartbeats both ways


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
async def test_a_silent_connection_is_replaced_and_each_end_says_so_once(
    room: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nngkit")
    with trio.fail_after(WAIT):
        async with ROOMS[room](tmp_path) as (proxy, passes):
            await passes()
            before = proxy.connections
            proxy.mute()
            while proxy.connections == before:  # what was under way when it fell silent may still arrive
                await passes()
            await passes()

            def said(text: str) -> list[str]:
                return [found for each in caplog.messages if (found := each) and re.search(text, each)]

            address = r"127\.0\.0\.1:\d+.*"
            await aeventually(lambda: len(said(r"heard again after [\d.]+ s")) >= 1, timeout=WAIT)
            told = said(address + r": nothing heard for [\d.]+ s; connecting again")
            assert 1 <= len(told) <= (2 if room in BOTH_ENDS else 1), caplog.messages


@pytest.mark.slow
async def test_a_plain_publisher_and_daemons_that_survey_when_told_may_be_quiet() -> None:
    with Pub(listen=ANY) as pub, Bus(listen=ANY) as bus, Surveyor(listen=ANY) as surveyor:
        async with (
            ServiceDiscovery(listen=ANY) as discovery,
            Service("answer", "tcp://127.0.0.1:9", discovery=[discovery.address, surveyor.address], sigterm=False),
            Subscriber(pub.address),
            Mesh(dial=bus.address),
        ):
            await discovery.wait_for_peers(1, WAIT)
            for socket in (pub, bus, surveyor):
                await socket.await_for_peers(1, WAIT)
            for _ in range(3):  # like a round of the article's daemon, and of a program that looks for services
                assert (await surveyor.asurvey(b"service query", WAIT, early=True)).answered == 1
                assert await discovery.discover(early=True)
            await trio.sleep(1.5)  # nearly four of the shortest limits
            joined = [discovery.stats.socket.joined, *(socket.stats.joined for socket in (pub, bus, surveyor))]
            assert joined == [1, 1, 1, 1]


async def test_a_server_that_answers_some_requests_is_not_silent() -> None:
    async def answer_quick_ones(rep: Rep) -> None:
        async for request in rep:
            if request.body == b"quick":
                await request.areply(b"")

    with Rep(listen=ANY) as rep, Req(dial=rep.address) as req:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_quick_ones, rep)
            server = SilentServer(req, "server")
            done = trio.Event()

            async def slow() -> None:
                with pytest.raises(TimedOut):
                    await server.request(b"slow", 1.0)
                done.set()

            nursery.start_soon(slow)
            while not done.is_set():
                await server.request(b"quick", WAIT)
                await trio.sleep(0.05)
            assert rep.stats.joined == 1
            nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_a_server_that_answers_nothing_is_connected_again_ever_more_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Rep(listen=ANY) as rep, Req(dial=rep.address) as req:
        server = SilentServer(req, "server")
        begun = trio.current_time()
        while rep.stats.joined < 3:
            with pytest.raises(TimedOut):
                await server.request(b"", 0.05)
        assert trio.current_time() - begun >= 0.4 + 0.8
        assert len([line for line in caplog.messages if "connecting again" in line]) == 1
