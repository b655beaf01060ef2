"""ServiceDiscovery over real sockets: rounds, resolve, events; peers that join, leave, are late or stay silent."""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest
import trio
import trio.testing

from nngkit import Closed, ConfigError, Provider, Service, ServiceDiscovery, ServiceNotFound, Unreachable
from nngkit.discovery import Daemon, DaemonSettings, Reason, Resolver, RoundFigures, State
from nngkit.discovery._event_feed import UNREAD
from nngkit.discovery.messages import FLAG_REASK, FLAG_TEXT, TextReply
from nngkit.testing import aeventually
from tests.discovery.peers import SURVEYOR, WAIT, RawPeer, Watcher, found, program, record, says, states

ANY = "tcp://127.0.0.1:0"


@asynccontextmanager
async def answering(discovery: ServiceDiscovery, body: bytes) -> AsyncIterator[RawPeer]:
    """Connect a peer that answers every CBOR query with `body`."""
    async with await RawPeer.connect(discovery.address) as peer, trio.open_nursery() as nursery:
        nursery.start_soon(peer.answer_all, body)
        yield peer
        nursery.cancel_scope.cancel()


# ---- asking ----------------------------------------------------------------------------------------------------------


async def test_discover_returns_all_providers_at_the_deadline() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=0.2) as discovery,
        Service("answer", "tcp://127.0.0.1:9000", discovery=discovery.address) as service,
    ):
        await discovery.wait_for_peers(timeout=WAIT)
        before = time.monotonic()
        assert await discovery.discover() == {"answer": frozenset({service.provider})}
        assert 0.2 <= time.monotonic() - before < 2
        assert discovery.resolve("answer") == service.provider


async def test_early_returns_once_all_have_answered() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=WAIT) as discovery,
        answering(discovery, says(record(number=1))),
        answering(discovery, says(record(number=2))),
    ):
        await discovery.wait_for_peers(2, timeout=WAIT)
        before = time.monotonic()
        assert len((await discovery.discover(early=True))["answer"]) == 2
        assert time.monotonic() - before < WAIT / 2


async def test_discover_without_a_deadline_waits_until_all_have_answered() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=0.0) as discovery,
        await RawPeer.connect(discovery.address) as late,
        trio.open_nursery() as nursery,
    ):
        await discovery.wait_for_peers(timeout=WAIT)
        results: list[dict[str, frozenset[Provider]]] = []

        async def discover() -> None:
            results.append(await discovery.discover(early=True, deadline=None))

        nursery.start_soon(discover)
        header, _ = await late.cbor_query()
        await trio.sleep(0.2)  # the object's own deadline of 0 s has long passed
        assert not results
        await late.send(header, says(record()))
        await aeventually(lambda: results)
        assert results[0] == {"answer": frozenset({record()})}


async def test_early_waits_for_the_deadline_if_a_peer_relays() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=0.15) as discovery,
        answering(discovery, says(record(), relay=True)),
    ):
        await discovery.wait_for_peers(timeout=WAIT)
        before = time.monotonic()
        await discovery.discover(early=True)
        assert time.monotonic() - before >= 0.15


async def test_early_returns_when_the_silent_peer_disconnects() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=WAIT) as discovery,
        trio.open_nursery() as nursery,
        answering(discovery, says(record())),
    ):
        silent = await RawPeer.connect(discovery.address)
        await discovery.wait_for_peers(2, timeout=WAIT)
        before = time.monotonic()

        async def leave() -> None:
            await silent.cbor_query()
            await silent.__aexit__()

        nursery.start_soon(leave)
        assert found(discovery)() is False
        await discovery.discover(early=True)
        assert time.monotonic() - before < WAIT / 2
        assert found(discovery)()


async def test_early_without_connections_returns_at_once() -> None:
    async with ServiceDiscovery(listen=ANY, deadline=WAIT) as discovery:
        with trio.fail_after(1):
            assert await discovery.discover(early=True) == {}


async def test_replies_count_as_they_arrive() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=WAIT) as discovery,
        trio.open_nursery() as nursery,
        answering(discovery, says(record())),
    ):
        await discovery.wait_for_peers(timeout=WAIT)
        nursery.start_soon(discovery.discover)
        await aeventually(found(discovery), WAIT / 2)
        nursery.cancel_scope.cancel()


async def test_peer_connecting_during_a_round_is_asked_too() -> None:
    async with ServiceDiscovery(listen=ANY, deadline=0.5) as discovery, trio.open_nursery() as nursery:
        result: list[object] = []

        async def discover() -> None:
            result.append(await discovery.discover())

        nursery.start_soon(discover)
        await aeventually(lambda: discovery.stats.socket.sent >= 1)
        async with answering(discovery, says(record())):
            await aeventually(lambda: result)
    assert result == [{"answer": frozenset({record()})}]


async def test_both_queries_are_sent_cbor_first() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=0.1) as discovery,
        await RawPeer.connect(discovery.address) as peer,
    ):
        await discovery.wait_for_peers(timeout=WAIT)
        for number in range(1, 20):
            await discovery.discover(deadline=0.0)
            _, query = await peer.query()
            assert query is not None
            assert query.daemon == discovery.id
            assert FLAG_TEXT in query.flags
            assert (await peer.query())[1] is None, f"round {number}"


async def test_text_query_can_be_disabled() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=0.1, text=False) as discovery,
        await RawPeer.connect(discovery.address) as peer,
    ):
        await discovery.wait_for_peers(timeout=WAIT)
        await discovery.discover(deadline=0.0)
        await discovery.discover(deadline=0.0)
        asked = [(await peer.query())[1], (await peer.query())[1]]
        assert all(query is not None and not query.flags for query in asked)


async def test_cbor_reply_replaces_the_text_reply_of_a_service() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=0.2) as discovery,
        trio.open_nursery() as nursery,
        await RawPeer.connect(discovery.address) as peer,
    ):
        await discovery.wait_for_peers(timeout=WAIT)
        nursery.start_soon(discovery.discover)
        (first, _), (second, _) = await peer.query(), await peer.query()
        await peer.send(second, TextReply("answer", record().address).encode())
        await aeventually(found(discovery))
        assert discovery.resolve("answer").id == ""
        await peer.send(first, says(record()))
        await aeventually(lambda: discovery.resolve("answer").id)
        assert discovery.snapshot() == {"answer": frozenset({record()})}


# ---- resolving -------------------------------------------------------------------------------------------------------


async def test_resolve_chooses_at_random_among_providers_that_are_up() -> None:
    async with ServiceDiscovery(listen=ANY, deadline=WAIT) as discovery:
        records = [record(number=number) for number in range(3)]
        async with answering(discovery, says(*records)):
            await discovery.wait_for_peers(timeout=WAIT)
            await discovery.discover(early=True)
            assert {discovery.resolve("answer") for _ in range(100)} == set(records)


async def test_unknown_name_raises_not_found_and_adds_no_key() -> None:
    async with ServiceDiscovery(listen=ANY, deadline=0.05) as discovery:
        with pytest.raises(ServiceNotFound, match="service not found: absent"):
            discovery.resolve("absent")
        assert await discovery.discover() == {}


async def test_exception_of_the_body_is_not_wrapped() -> None:
    with pytest.raises(ServiceNotFound):
        async with ServiceDiscovery(listen=ANY) as discovery:
            discovery.resolve("absent")


async def test_killed_provider_leaves_resolve_while_the_loop_is_busy() -> None:
    async with ServiceDiscovery(listen=ANY, deadline=WAIT, interval=1000) as discovery:
        with program("provider", "answer", record().address, discovery.address) as process:
            await aeventually(found(discovery))
            process.kill()
            end = time.monotonic() + WAIT
            while found(discovery)() and time.monotonic() < end:
                time.sleep(0.001)  # noqa: ASYNC251 - the loop is blocked: only NNG's threads can report the loss
            assert not found(discovery)()
            assert [row.reason for row in discovery.view()] == [Reason.PIPE_LOST]


# ---- rounds in the background ----------------------------------------------------------------------------------------


async def test_interval_runs_rounds_in_the_background() -> None:
    figures: list[RoundFigures] = []
    async with (
        ServiceDiscovery(listen=ANY, deadline=1, interval=0.02, on_round=figures.append) as discovery,
        answering(discovery, says(record())),
    ):
        await aeventually(lambda: len(figures) > 5)
        assert found(discovery)()
        assert figures[-1].answered == 1


async def test_new_service_is_found_at_once_and_not_an_interval_later() -> None:
    async with ServiceDiscovery(listen=ANY, deadline=WAIT, interval=1000) as discovery:
        await aeventually(lambda: discovery.rounds)
        async with answering(discovery, says(record())):
            await aeventually(found(discovery))


async def test_silent_service_does_not_delay_the_discovery_of_others() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=1000, interval=0) as discovery,
        await RawPeer.connect(discovery.address) as silent,
    ):
        await silent.cbor_query()
        async with answering(discovery, says(record())):
            await aeventually(found(discovery))


async def test_many_new_connections_share_one_round() -> None:
    async with ServiceDiscovery(listen=ANY, deadline=WAIT, interval=1000) as discovery, trio.open_nursery() as nursery:
        await aeventually(lambda: discovery.rounds)

        async def one(number: int) -> None:
            async with answering(discovery, says(record(number=number), sender=f"s{number}")):
                await trio.sleep_forever()

        for number in range(50):
            nursery.start_soon(one, number)
        await aeventually(lambda: len(discovery.snapshot().get("answer", ())) == 50)
        assert len(discovery.rounds) < 25
        nursery.cancel_scope.cancel()


async def test_one_missed_survey_is_reasked_and_two_make_suspect() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=0.1) as discovery,
        trio.open_nursery() as nursery,
        answering(discovery, says(record(number=2), sender="other")),
        await RawPeer.connect(discovery.address) as peer,
    ):
        await discovery.wait_for_peers(2, timeout=WAIT)
        nursery.start_soon(discovery.discover)
        header, _ = await peer.cbor_query()
        await peer.send(header, says(record()))
        await aeventually(lambda: len(discovery.snapshot().get("answer", ())) == 2)
        await aeventually(lambda: discovery.rounds)
        await discovery.discover()
        assert (await peer.cbor_query())[1].flags == {FLAG_TEXT}
        assert states(discovery)[record().address] is State.UP  # one miss changes no state
        assert (await peer.cbor_query())[1].flags == {FLAG_TEXT, FLAG_REASK}
        await aeventually(lambda: states(discovery)[record().address] is State.SUSPECT)
        assert {discovery.resolve("answer") for _ in range(50)} == {record(number=2)}


async def test_last_provider_is_resolved_although_suspect() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=0.05) as discovery,
        trio.open_nursery() as nursery,
        await RawPeer.connect(discovery.address) as peer,
    ):
        await discovery.wait_for_peers(timeout=WAIT)
        nursery.start_soon(discovery.discover)
        header, _ = await peer.cbor_query()
        await peer.send(header, says(record()))
        await aeventually(found(discovery))
        await discovery.discover()
        await aeventually(lambda: states(discovery)[record().address] is State.SUSPECT)
        assert discovery.resolve("answer") == record()


async def test_late_reply_counts_as_a_sign_of_life() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=0.05) as discovery,
        await RawPeer.connect(discovery.address) as peer,
    ):
        await discovery.wait_for_peers(timeout=WAIT)
        assert await discovery.discover() == {}
        header, _ = await peer.cbor_query()
        await peer.send(header, says(record()))
        await aeventually(found(discovery))
        assert [row.reason for row in discovery.view()] == [Reason.LATE]
        assert discovery.stats.counters["late"] == 1


async def test_connection_that_goes_down_by_silence_is_closed() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=0.03, interval=0) as discovery,
        await RawPeer.connect(discovery.address) as peer,
    ):
        header, _ = await peer.cbor_query()
        await peer.send(header, says(record()))
        await aeventually(found(discovery))
        assert await peer.ended()
        assert states(discovery) == {record().address: State.DOWN}
        assert [row.reason for row in discovery.view()] == [Reason.MISSED]


@pytest.mark.slow
async def test_replies_during_a_busy_loop_are_not_misses() -> None:
    # long enough for the other process to run on a busy machine
    async with ServiceDiscovery(listen=ANY, deadline=0.5) as discovery:
        with program("fleet", "answer", "5", discovery.address.rpartition(":")[2]):  # too few for a mass loss
            await discovery.wait_for_peers(5, timeout=WAIT)

            async def stall(after: float) -> None:
                await trio.sleep(after)
                time.sleep(0.7)  # noqa: ASYNC251 - past the deadline

            for after in (0.0, 0.001, 0.05, 0.45):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(stall, after)
                    await discovery.discover()
                assert (discovery.rounds[-1].due, discovery.rounds[-1].missed) == (5, 0), after


# ---- events ----------------------------------------------------------------------------------------------------------


async def test_events_start_with_the_current_state_and_continue_with_changes() -> None:
    async with ServiceDiscovery(listen=ANY, deadline=WAIT, interval=0.05) as discovery, trio.open_nursery() as nursery:
        watcher = Watcher(discovery)
        async with answering(discovery, says(record(weight=7))):
            await aeventually(found(discovery))
            nursery.start_soon(watcher.run)
            first = await watcher.wait(State.UP)
            assert (first.old, first.new, first.provider.weight) == (State.JOINING, State.UP, 7)
        last = await watcher.wait(State.DOWN)
        assert (last.old, last.reason) == (State.UP, Reason.PIPE_LOST)
        nursery.cancel_scope.cancel()


async def test_event_iterations_end_on_close() -> None:
    async with ServiceDiscovery(listen=ANY) as discovery, trio.open_nursery() as nursery:
        watcher = Watcher(discovery)
        nursery.start_soon(watcher.run)
        await trio.testing.wait_all_tasks_blocked()
        await discovery.aclose()
    assert watcher.seen == []


# ---- opening and closing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says_what"),
    [
        ({"listen": "answer"}, "answer: not an address"),
        ({"listen": "pgm://127.0.0.1:1"}, "no transport 'pgm'"),
        ({"listen": ANY, "deadline": -1.0}, "deadline: -1.0 is not a number of seconds"),
        ({"listen": ANY, "deadline": float("nan")}, "deadline: nan is not"),
        ({"listen": ANY, "interval": float("inf")}, "interval: inf is not"),
        ({"listen": ANY, "id": "a b"}, "id: id has characters other than"),
    ],
)
async def test_invalid_arguments_raise_config_error(options: dict[str, object], says_what: str) -> None:
    with pytest.raises(ConfigError, match=says_what):
        async with ServiceDiscovery(**options):  # type: ignore[arg-type]
            pass


async def test_port_in_use_raises_unreachable() -> None:
    async with ServiceDiscovery(listen=ANY) as discovery:
        with pytest.raises(Unreachable, match=discovery.address):
            async with ServiceDiscovery(listen=discovery.address):
                pass


async def test_close_during_discover_raises_closed() -> None:
    async with ServiceDiscovery(listen=ANY, deadline=WAIT) as discovery, await RawPeer.connect(discovery.address):
        await discovery.wait_for_peers(timeout=WAIT)
        async with trio.open_nursery() as nursery:

            async def discover() -> None:
                with pytest.raises(Closed):
                    await discovery.discover()

            nursery.start_soon(discover)
            await aeventually(lambda: discovery.stats.socket.sent)
            await discovery.aclose()
        with pytest.raises(Closed):
            await discovery.discover()


async def test_cancelled_discover_leaves_the_object_usable() -> None:
    async with ServiceDiscovery(listen=ANY, deadline=WAIT) as discovery, answering(discovery, says(record())):
        await discovery.wait_for_peers(timeout=WAIT)
        with trio.move_on_after(0.05):
            await discovery.discover()
        assert await discovery.discover(early=True) == {"answer": frozenset({record()})}


async def test_a_follower_that_leaves_while_it_hears_the_present_state_is_forgotten() -> None:
    def queues() -> int:
        return sum(isinstance(each, deque) and each.maxlen == UNREAD + 1 for each in gc.get_objects())

    async with (
        Daemon(DaemonSettings(listen=(ANY,), query=(ANY,), interval=0.05)) as daemon,
        Service("answer", "tcp://127.0.0.1:9000", discovery=daemon.addresses),
        Resolver(daemon.query_addresses) as resolver,
    ):
        await resolver.find("answer", timeout=WAIT)
        before = queues()
        for events in (daemon.discovery.events(), resolver.events()):
            async with aclosing(events):
                assert (await anext(events)).name == "answer"
        assert queues() == before


async def test_survey_socket_may_dial() -> None:
    # for example a device's far end; another surveyor there is refused without harm
    async with (
        ServiceDiscovery(listen=ANY, deadline=WAIT) as other,
        ServiceDiscovery(dial=other.address, deadline=0.05) as discovery,
    ):
        assert await discovery.discover() == {}


async def test_peer_of_another_protocol_is_refused() -> None:
    async with ServiceDiscovery(listen=ANY, deadline=0.05) as discovery:
        peer = await RawPeer.connect(discovery.address, SURVEYOR)
        assert await peer.ended()
        assert await discovery.discover() == {}
        await peer.__aexit__()
