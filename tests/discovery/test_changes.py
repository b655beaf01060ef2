"""Numbered changes: what a watcher gets that asks "since N", from the registry to the resolver."""

from __future__ import annotations

import random

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from nngkit import Service, ServiceNotFound
from nngkit.discovery import Daemon, DaemonSettings, Reason, Resolver, RoundFigures, ServiceDiscovery, State, Status
from nngkit.discovery.client import DaemonClient
from nngkit.discovery.provider import Key
from nngkit.discovery.queries import PAGE
from nngkit.discovery.registry.liveness import RegistryLimits
from nngkit.discovery.registry.merged_view import MergedView
from nngkit.discovery.registry.registry import Registry
from nngkit.discovery.registry.table import CHANGES
from nngkit.testing import aeventually
from tests.discovery.peers import WAIT, record, says

SETTINGS = DaemonSettings(listen=("tcp://127.0.0.1:0",), deadline=1.0, interval=1000)
HERE = "tcp://10.0.0.1:9000"


def filled(services: int) -> Registry:
    """Return a registry with a pipe for each of `services` services."""
    registry = Registry()
    for number in range(services):
        registry.pipe_joined(number, 0.0)
    this = registry.start_round(0.0)
    for number in range(services):
        registry.reply(number, this, says(record(f"s{number % 1000}", number + 1), sender=f"id{number + 1}"), 0.1)
    registry.end_round(this, 0.2)
    return registry


def test_changes_are_the_rows_that_changed_and_no_others() -> None:
    registry = filled(100)
    before = registry.version
    registry.pipe_left(7, 1.0)
    found = registry.changes(before, PAGE)
    assert found is not None
    version, rows, gone = found
    assert version == registry.version == before + 1
    assert [(row.provider.name, row.state, row.reason) for row in rows] == [("s7", State.DOWN, Reason.PIPE_LOST)]
    assert gone == ()
    assert registry.changes(version, PAGE) == (version, (), ())


def test_a_row_that_changed_twice_is_sent_once_as_it_is_now() -> None:
    registry = filled(1)
    this = registry.start_round(1.0)
    registry.reply(0, this, says(record("s0", 1, weight=5), sender="id1"), 1.0)
    registry.reply(0, this, says(record("s0", 1, weight=6), sender="id1"), 1.0)
    found = registry.changes(1, PAGE)
    assert found is not None
    assert [row.provider.weight for row in found[1]] == [6]


def test_a_row_that_was_forgotten_is_named_by_its_key() -> None:
    registry = Registry(limits=RegistryLimits(max_down=0))
    registry.pipe_joined(1, 0.0)
    registry.reply(1, registry.start_round(0.0), says(record()), 0.1)
    since = registry.version
    registry.pipe_left(1, 1.0)
    assert registry.changes(since, PAGE) == (since + 1, (), (record().key,))


@pytest.mark.parametrize("since", [-1, 10**9])
def test_changes_since_a_number_that_never_was_are_unknown(since: int) -> None:
    assert filled(1).changes(since, PAGE) is None


def test_changes_that_are_too_old_are_unknown() -> None:
    registry = filled(CHANGES + 10)
    assert registry.changes(9, PAGE) is None
    assert registry.changes(10, PAGE) is not None


def test_many_changes_are_fetched_in_parts() -> None:
    registry = filled(PAGE + 50)
    seen, since = [], 0
    for _ in range(2):
        found = registry.changes(since, PAGE)
        assert found is not None
        since = found[0]
        seen += [row.provider.name for row in found[1]]
    assert since == registry.version
    assert sorted(seen) == sorted(f"s{number}" for number in range(PAGE + 50))


ROWS = st.builds(
    Status,
    provider=st.builds(record, st.sampled_from("ab"), st.integers(1, 3), weight=st.integers(1, 2)),
    state=st.sampled_from([State.UP, State.SUSPECT, State.DRAINING, State.DOWN]),
    reason=st.just(Reason.ANSWERED),
    since=st.just(1.0),
)
STEPS = st.lists(st.tuples(st.sampled_from("AB"), st.sampled_from(["rows", "silent", "restart"]), st.lists(ROWS)))


@given(STEPS)
def test_a_view_kept_by_changes_equals_one_made_of_snapshots(
    steps: list[tuple[str, str, list[Status]]],
) -> None:
    changed, whole = MergedView("AB"), MergedView("AB")
    now, lives = 0.0, {"A": 0, "B": 0}
    state: dict[str, dict[Key, Status]] = {"A": {}, "B": {}}
    table: dict[Key, State] = {}
    for address, what, rows in steps:
        now += 1.0
        if what == "silent":
            changed.silent(address, now)
            whole.silent(address, now)
        else:
            first = what == "restart" or not lives[address]
            if first:
                lives[address] += 1
                state[address] = {}
            state[address] |= {row.provider.key: row for row in rows}
            everything = state[address].values()
            whole.saw(address, f"{address}{lives[address]}", everything, now)
            if first:
                changed.saw(address, f"{address}{lives[address]}", everything, now)
            else:
                changed.changed(address, rows, (), now)
        assert changed.merged == whole.merged
        assert changed.snapshot() == whole.snapshot()
        for event in changed.take_events():
            assert table.get(event.provider.key, State.JOINING) is event.old
            table[event.provider.key] = event.new
            if event.new is State.DOWN:
                del table[event.provider.key]
        assert table == {key: row.state for key, row in changed.merged.items()}


async def test_a_watcher_gets_the_change_and_not_the_snapshot() -> None:
    async with Daemon(SETTINGS) as daemon, DaemonClient(daemon.query_addresses[0]) as client:
        async with Service("answer", HERE, discovery=daemon.addresses), Service("b", HERE, discovery=daemon.addresses):
            await aeventually(lambda: len(daemon.discovery.snapshot()) == 2)
            state = await client.watch("", 0, wait=0.0)
            with trio.fail_after(WAIT):
                async with Service("new", HERE, discovery=daemon.addresses):
                    reply = await client.watch(state.daemon, state.version, wait=WAIT, changes=True)
        assert reply.changes is not None
        assert [row.provider.name for row in reply.changes.rows] == ["new"]
        other = await client.watch("another", reply.version, wait=0.0, changes=True)
        assert other.changes is None
        assert (await client.watch(state.daemon, state.version, wait=0.0)).changes is None  # as older callers ask


async def test_resolver_fetches_the_snapshot_once() -> None:
    async with Daemon(SETTINGS) as daemon, Resolver(daemon.query_addresses, watch=60) as resolver:
        for number in range(3):
            async with Service(f"s{number}", HERE, discovery=daemon.addresses):
                await resolver.find(f"s{number}", timeout=WAIT)
            await aeventually(lambda: not resolver.snapshot())
        assert daemon.stats.snapshots == 1


async def test_newcomers_are_asked_alone() -> None:
    figures: list[RoundFigures] = []
    async with (
        ServiceDiscovery(listen="tcp://127.0.0.1:0", interval=1000, on_round=figures.append) as discovery,
        Service("a", HERE, discovery=discovery.addresses),
    ):
        await aeventually(lambda: "a" in discovery.snapshot())
        before = len(figures)
        async with Service("b", HERE, discovery=discovery.addresses):
            await aeventually(lambda: "b" in discovery.snapshot())
            await aeventually(lambda: len(figures) > before)
        assert {one.asked for one in figures[before:]} == {1}


async def test_resolution_says_why() -> None:
    async with (
        Daemon(SETTINGS) as daemon,
        Resolver(daemon.query_addresses, prefer=["ny"]) as resolver,
        Service("answer", HERE, discovery=daemon.addresses, zone="ny") as service,
        Service("answer", "tcp://10.0.0.2:9000", discovery=daemon.addresses, zone="london"),
    ):
        await aeventually(lambda: len(resolver.snapshot().get("answer", ())) == 2)
        found = resolver.resolution("answer")
        assert found.provider == service.provider
        assert found.reason == "up, zone ny (choice 1), priority 8, 1 of 1"
        assert found.daemons == daemon.query_addresses
        assert found.fresh
        assert 0 <= found.age < WAIT
        mine = daemon.discovery.resolution("answer", prefer="london")
        assert mine.reason == "up, zone london (choice 1), priority 8, 1 of 1"
        assert mine.daemons == (daemon.discovery.id,)
        with pytest.raises(ServiceNotFound):
            resolver.resolution("absent")


def test_the_last_known_view_is_not_fresh_and_ages() -> None:
    views = MergedView(["a"])
    views.saw("a", "A", [Status(record(), State.UP, Reason.ANSWERED, since=1.0)], 1.0)
    views.confirmed("a", 2.0)
    views.silent("a", 3.0)
    found = views.resolution("answer", random.Random(1), now=10.0)
    assert (found.age, found.fresh, found.daemons) == (8.0, False, ("a",))
