"""Daemon and DaemonClient: queries, replies and refusals."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import cbor2
import pytest
import trio

from nngkit import BadMessage, ConfigError, Service, ServiceNotFound, TimedOut, Unreachable
from nngkit.discovery import Daemon, DaemonClient, DaemonSettings, Event, Reason, RoundFigures, State
from nngkit.discovery._watch_desk import OF_ONE
from nngkit.discovery.queries import PAGE, RefusedReply, ResolveQuery, RoundsReply, parse_daemon_reply
from nngkit.protocols import Rep, Req
from nngkit.testing import aeventually
from tests.discovery.peers import WAIT, RawPeer, found, record, says

ANY = "tcp://127.0.0.1:0"
SETTINGS = DaemonSettings(listen=(ANY,), deadline=1.0, interval=0.05)


@asynccontextmanager
async def daemon_and_client(settings: DaemonSettings = SETTINGS) -> AsyncIterator[tuple[Daemon, DaemonClient]]:
    async with Daemon(settings) as daemon, DaemonClient(daemon.query_addresses[0], timeout=WAIT) as client:
        yield daemon, client


async def test_callers_get_the_current_providers() -> None:
    async with daemon_and_client() as (daemon, client):
        assert await client.snapshot() == ()
        with pytest.raises(ServiceNotFound, match="service not found: answer"):
            await client.resolve("answer")
        async with Service("answer", "tcp://10.0.0.1:9000", discovery=daemon.addresses[0], zone="z") as service:
            await aeventually(found(daemon.discovery))
            assert await client.resolve("answer") == service.provider
            (row,) = await client.snapshot()
            assert (row.provider, row.state) == (service.provider, State.UP)
            assert row.last_reply is not None
            assert abs(time.monotonic() - row.last_reply) < WAIT
            assert await client.snapshot("other") == ()
        assert await client.snapshot() == ()
        (gone,) = await client.snapshot("answer", everything=True)
        assert (gone.state, gone.reason) == (State.DOWN, Reason.BYE)
        assert not client.closed
    assert client.closed


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "version 1" in record.message]


async def test_version_1_service_gets_priority_8_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    old = {"v": 1, "type": "reply", "sender": "old", "providers": [record().as_map() | {"priority": 100}]}
    async with (
        daemon_and_client() as (daemon, client),
        await RawPeer.connect(daemon.addresses[0]) as peer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(peer.answer_all, cbor2.dumps(old))
        await aeventually(lambda: daemon.discovery.stats.counters["older version"] >= 3)
        assert await client.resolve("answer") == record(priority=8)
        nursery.cancel_scope.cancel()
    (said,) = warned(caplog)
    assert said.startswith("service at tcp://127.0.0.1:")
    assert said.endswith(" speaks version 1: its priority is read as 8")


async def test_version_1_caller_gets_no_priority_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        daemon_and_client() as (daemon, _),
        Service("answer", "tcp://10.0.0.1:9000", discovery=daemon.addresses[0], priority=1),
        Req(dial=daemon.query_addresses[0]) as req,
    ):
        await aeventually(found(daemon.discovery))
        for ask in ({"type": "ask-resolve", "name": "answer"}, {"type": "ask-snapshot"}):
            said = await req.arequest(cbor2.dumps({"v": 1, **ask}), timeout=WAIT)
            assert cbor2.loads(said)["v"] == 1
            assert b"priority" not in said
        assert (
            cbor2.loads(await req.arequest(ResolveQuery("answer").encode(), timeout=WAIT))["provider"]["priority"] == 1
        )
    (said_once,) = warned(caplog)
    assert said_once.startswith("caller at tcp://127.0.0.1:")


async def test_version_1_daemons_priorities_are_ignored_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    answer = cbor2.dumps(
        {"v": 1, "type": "resolved", "daemon": "old", "provider": record().as_map() | {"priority": -5}}
    )

    async def old_daemon(rep: Rep) -> None:
        async for request in rep:
            assert cbor2.loads(request.body)["v"] == 1  # a version 1 daemon refuses newer messages
            await request.areply(answer)

    async with (
        Rep(listen=ANY) as rep,
        DaemonClient(rep.address, timeout=WAIT) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(old_daemon, rep)
        for _ in range(3):
            assert await client.resolve("answer") == record(priority=8)
        nursery.cancel_scope.cancel()
    assert warned(caplog) == [f"discovery daemon at {rep.address} speaks version 1: priorities are read as 8"]


async def test_long_lists_are_sent_in_pages() -> None:
    async with daemon_and_client() as (daemon, client), trio.open_nursery() as nursery:
        records = [record("crowd", number) for number in range(PAGE * 2 + 10)]
        for start in range(0, len(records), 60):
            peer = await RawPeer.connect(daemon.addresses[0])
            nursery.start_soon(peer.answer_all, says(*records[start : start + 60], sender=f"s{start}"))
            nursery.start_soon(close_at_the_end, peer)
        await aeventually(lambda: len(daemon.discovery.snapshot().get("crowd", ())) == len(records))
        rows = await client.snapshot("crowd")
        assert [row.provider for row in rows] == sorted(records, key=lambda each: each.key)
        nursery.cancel_scope.cancel()


async def close_at_the_end(peer: RawPeer) -> None:
    try:
        await trio.sleep_forever()
    finally:
        await peer.__aexit__()


async def test_rounds_and_counters_can_be_queried() -> None:
    async with daemon_and_client() as (daemon, client), await RawPeer.connect(daemon.addresses[0]) as peer:
        header, _ = await peer.cbor_query()
        await peer.send(header, b"\xa1nonsense")
        await aeventually(lambda: daemon.discovery.stats.counters["bad cbor"])
        rounds = await client.rounds(4)
        assert rounds.daemon == daemon.discovery.id
        assert rounds.counters["bad cbor"] == 1
        assert rounds.counters["pipes joined"] == 1
        assert rounds.silent == 1


async def test_watch_is_answered_when_the_state_changes_and_not_before() -> None:
    async with daemon_and_client() as (daemon, client), trio.open_nursery() as nursery:
        state = await client.watch("", 0, wait=WAIT)  # an unknown state is answered at once
        assert state.daemon == daemon.discovery.id
        assert await client.watch(state.daemon, state.version, wait=0.05) == state
        told = []

        async def watch() -> None:
            told.append(await client.watch(state.daemon, state.version, wait=WAIT))

        nursery.start_soon(watch)
        await aeventually(lambda: daemon.stats.requests == 3)
        assert told == []
        async with Service("answer", "tcp://10.0.0.1:9000", discovery=daemon.addresses[0]):
            await aeventually(lambda: told)
        assert told[0].version > state.version
        assert (await client.watch("another daemon", told[0].version, wait=WAIT)).daemon == state.daemon


async def test_watches_over_a_callers_cap_are_answered_at_once() -> None:
    async with daemon_and_client() as (daemon, client), trio.open_nursery() as nursery:
        state = await client.watch("", 0, wait=0.0)
        for _ in range(OF_ONE):
            nursery.start_soon(lambda: client.watch(state.daemon, state.version, wait=WAIT))
        await aeventually(lambda: daemon.stats.requests == 1 + OF_ONE)
        with trio.fail_after(WAIT / 2):
            assert await client.watch(state.daemon, state.version, wait=WAIT) == state
        async with DaemonClient(daemon.query_addresses[0]) as other:
            before = time.monotonic()
            await other.watch(state.daemon, state.version, wait=0.2)
            assert time.monotonic() - before >= 0.2  # another caller is not affected
        nursery.cancel_scope.cancel()


async def test_watches_of_disconnected_callers_are_dropped() -> None:
    async with Daemon(SETTINGS) as daemon:
        async with DaemonClient(daemon.query_addresses[0], timeout=WAIT) as client, trio.open_nursery() as nursery:
            state = await client.watch("", 0, wait=0.0)
            nursery.start_soon(lambda: client.watch(state.daemon, state.version, wait=WAIT))
            await aeventually(lambda: daemon.watching == 1)
            nursery.cancel_scope.cancel()
        await aeventually(lambda: daemon.watching == 0)


async def test_invalid_requests_are_refused_and_counted() -> None:
    async with Daemon(SETTINGS) as daemon, Req(dial=daemon.query_addresses[0]) as req:
        for body in (b"", b"\xff" * 1000, b"service query", b"\xa1\x61v\x01", b"\x9f"):
            said = parse_daemon_reply(await req.arequest(body, timeout=WAIT), 0.0)
            assert isinstance(said, RefusedReply)
            assert said.kind == "bad message"
        assert daemon.stats.bad_requests == 5


async def test_oversized_request_closes_only_its_connection() -> None:
    async with daemon_and_client() as (daemon, client), Req(dial=daemon.query_addresses[0], resend=None) as req:
        with pytest.raises(TimedOut):
            await req.arequest(bytes(10_000_000), timeout=0.2)
        assert isinstance(await client.rounds(), RoundsReply)


async def test_callbacks_get_events_and_rounds() -> None:
    events: list[Event] = []
    figures: list[RoundFigures] = []

    def failing(event: Event) -> None:
        events.append(event)
        raise ZeroDivisionError  # raised by the callback: the daemon continues

    async with Daemon(SETTINGS, on_round=figures.append) as daemon, trio.open_nursery() as nursery:
        nursery.start_soon(daemon.run, failing)
        async with Service("answer", "tcp://10.0.0.1:9000", discovery=daemon.addresses[0]):
            await aeventually(found(daemon.discovery))
            await aeventually(lambda: any(each.asked for each in figures))
        await aeventually(lambda: events and events[-1].new is State.DOWN)
        assert [event.new for event in events] == [State.UP, State.DRAINING, State.DOWN]
        nursery.cancel_scope.cancel()


async def test_default_query_port_is_the_survey_port_plus_one() -> None:
    async with Daemon(SETTINGS) as first:
        port = int(first.addresses[0].rpartition(":")[2])
    # Another process could take the port meanwhile; then the test fails to listen.
    with suppress(Unreachable):
        async with Daemon(DaemonSettings(listen=(f"tcp://127.0.0.1:{port}",))) as daemon:
            assert daemon.query_addresses == (f"tcp://127.0.0.1:{port + 1}",)


async def test_long_addresses_work(tmp_path: Path) -> None:
    settings = DaemonSettings(listen=(f"ipc://{tmp_path}/surveys",))
    async with Daemon(settings) as daemon:
        assert daemon.query_addresses == (f"ipc://{tmp_path}/surveys.query",)
        async with DaemonClient(daemon.query_addresses[0], timeout=WAIT) as client:
            assert await client.snapshot() == ()


async def test_daemon_may_listen_on_several_addresses() -> None:
    settings = DaemonSettings(listen=(ANY, "inproc://surveys"), query=(ANY, "inproc://queries"), interval=0.05)
    async with Daemon(settings) as daemon:
        assert len(daemon.addresses) == len(daemon.query_addresses) == 2
        async with (
            Service("answer", "tcp://10.0.0.1:9000", discovery="inproc://surveys"),
            DaemonClient("inproc://queries", timeout=WAIT) as client,
        ):
            await aeventually(found(daemon.discovery))
            assert (await client.resolve("answer")).address == "tcp://10.0.0.1:9000"


@pytest.mark.parametrize("where", ["listen", "query"])
async def test_port_in_use_raises_unreachable_and_leaves_nothing_open(where: str) -> None:
    async with Daemon(SETTINGS) as taken:
        addresses = {"listen": taken.addresses, "query": taken.query_addresses}[where]
        with pytest.raises(Unreachable, match=addresses[0]):
            async with Daemon(DaemonSettings(**{"listen": (ANY,), "query": (ANY,), where: addresses})):  # type: ignore[arg-type]
                pass


async def test_unreachable_and_timed_out_are_distinguished() -> None:
    async with Daemon(SETTINGS) as daemon:
        address = daemon.query_addresses[0]
    async with DaemonClient(address, timeout=0.1) as client:
        with pytest.raises(Unreachable, match="no discovery daemon answered within"):
            await client.resolve("answer")
    async with Rep(listen=ANY) as mute, DaemonClient(mute.address, timeout=0.3) as client:
        await mute.await_for_peers(timeout=WAIT)
        with pytest.raises(TimedOut, match=f"{mute.address}: no answer in 0.3 s"):
            await client.resolve("answer")
    with pytest.raises(ConfigError, match="not an address"):
        async with DaemonClient("here"):
            pass


async def test_invalid_reply_of_a_daemon_raises_bad_message() -> None:
    async with Rep(listen=ANY) as rep, trio.open_nursery() as nursery:

        async def talk() -> None:
            async for request in rep:
                await request.areply(b"42")

        nursery.start_soon(talk)
        async with DaemonClient(rep.address, timeout=WAIT) as client:
            for ask in (client.resolve("answer"), client.snapshot(), client.rounds(), client.watch("", 0, wait=0.0)):
                with pytest.raises(BadMessage, match=rep.address):
                    await ask
        nursery.cancel_scope.cancel()
