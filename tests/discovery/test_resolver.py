"""Resolver: the merged view of several daemons, its changes, and the last known view without daemons."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from nngkit import ConfigError, Service, ServiceNotFound
from nngkit.discovery import Daemon, DaemonSettings, Resolver, State
from nngkit.protocols import Rep, Req, Request
from nngkit.testing import Wire, aeventually
from tests.discovery.peers import WAIT, Watcher, program

ANY = "tcp://127.0.0.1:0"
HERE = "tcp://10.0.0.1:9000"
SETTINGS = DaemonSettings(listen=(ANY,), deadline=1.0, interval=1000)


@pytest.fixture
def places() -> Iterator[Callable[[], DaemonSettings]]:
    """Settings for daemons that restart: their ports stay reserved meanwhile."""
    with ExitStack() as held:

        def place() -> DaemonSettings:
            surveys, queries = (held.enter_context(Wire("tcp", Path()).reserved()) for _ in range(2))
            return DaemonSettings(listen=(surveys,), query=(queries,), deadline=1.0, interval=1000)

        yield place


def knows(resolver: Resolver, name: str = "answer") -> bool:
    return name in resolver.snapshot()


async def test_resolver_has_the_daemons_view_from_the_start() -> None:
    async with Daemon(SETTINGS) as daemon, Service("answer", HERE, discovery=daemon.addresses) as service:
        await aeventually(daemon.discovery.snapshot)
        async with Resolver(daemon.query_addresses) as resolver:
            assert resolver.resolve("answer") == service.provider
            assert resolver.fresh
            with pytest.raises(ServiceNotFound):
                resolver.resolve("other")


async def test_resolver_follows_changes() -> None:
    async with (
        Daemon(SETTINGS) as daemon,
        Resolver(daemon.query_addresses, watch=60) as resolver,
        trio.open_nursery() as nursery,
    ):
        watcher = Watcher(resolver)
        nursery.start_soon(watcher.run)
        async with Service("answer", HERE, discovery=daemon.addresses) as service:
            assert await resolver.find("answer", timeout=WAIT) == service.provider
            service.update(weight=5)
            await aeventually(lambda: resolver.resolve("answer").weight == 5)
        await aeventually(lambda: not knows(resolver))
        await watcher.wait(State.DOWN)
        assert watcher.seen[0].new is State.UP
        nursery.cancel_scope.cancel()


async def test_killed_provider_is_dropped_without_polling() -> None:
    async with Daemon(SETTINGS) as daemon, Resolver(daemon.query_addresses, watch=60) as resolver:
        with program("provider", "answer", HERE, daemon.addresses[0]) as process:
            await resolver.find("answer", timeout=WAIT)
            process.kill()
            await aeventually(lambda: not knows(resolver))


async def test_find_raises_after_its_timeout() -> None:
    async with Daemon(SETTINGS) as daemon, Resolver(daemon.query_addresses) as resolver:
        before = time.monotonic()
        with pytest.raises(ServiceNotFound, match="service not found: absent"):
            await resolver.find("absent", timeout=0.1)
        assert time.monotonic() - before < WAIT / 2


async def test_views_of_several_daemons_are_merged() -> None:
    async with (
        Daemon(SETTINGS) as a,
        Daemon(SETTINGS) as b,
        Service("only-a", HERE, discovery=a.addresses),
        Service("only-b", HERE, discovery=b.addresses),
        Service("both", HERE, discovery=[*a.addresses, *b.addresses]),
        Resolver([*a.query_addresses, *b.query_addresses]) as resolver,
    ):
        for name in ("only-a", "only-b", "both"):
            await resolver.find(name, timeout=WAIT)
        assert len(resolver.snapshot()["both"]) == 1


class Ending:
    """Ends a hosted daemon."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.reached = trio.Event()

    async def __call__(self) -> None:
        """End it, and wait until it has let go of its addresses."""
        self.scope.cancel()
        await self.reached.wait()


async def host(settings: DaemonSettings, task_status: trio.TaskStatus[tuple[Daemon, Ending]]) -> None:
    """Run a daemon until its end is called."""
    end = Ending()
    with end.scope:
        async with Daemon(settings) as daemon:
            task_status.started((daemon, end))
            await trio.sleep_forever()
    end.reached.set()


async def test_daemons_may_die_and_restart(places: Callable[[], DaemonSettings]) -> None:
    async with trio.open_nursery() as nursery:
        here, there = places(), places()
        a, end_a = await nursery.start(host, here)
        b, end_b = await nursery.start(host, there)
        addresses = [*a.query_addresses, *b.query_addresses]
        async with (
            Service("answer", HERE, discovery=[*a.addresses, *b.addresses]) as service,
            Resolver(addresses) as resolver,
        ):
            watcher = Watcher(resolver)
            nursery.start_soon(watcher.run)
            await resolver.find("answer", timeout=WAIT)
            await aeventually(lambda: all(view.rows for view in resolver._views._views.values()))
            await end_b()
            await aeventually(lambda: not resolver.answers(addresses[1]))
            assert resolver.fresh
            assert await resolver.find("answer", timeout=WAIT) == service.provider
            await end_a()
            await aeventually(lambda: not resolver.fresh)
            assert resolver.resolve("answer") == service.provider  # the daemons are gone, the service is up
            await nursery.start(host, here)
            await aeventually(lambda: resolver.fresh)
            assert resolver.resolve("answer") == service.provider  # its empty view does not remove the service
            service.update(weight=7)
            await aeventually(lambda: resolver.resolve("answer").weight == 7)
        assert [event.new for event in watcher.seen if event.new is not event.old] == [State.UP]
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_service_that_died_with_its_daemon_expires(places: Callable[[], DaemonSettings]) -> None:
    async with trio.open_nursery() as nursery:
        here = places()
        daemon, end = await nursery.start(host, here)
        async with Resolver(daemon.query_addresses) as resolver:
            async with Service("answer", HERE, discovery=daemon.addresses):
                await resolver.find("answer", timeout=WAIT)
                await end()
                await aeventually(lambda: not resolver.fresh)
            await nursery.start(host, here)
            await aeventually(lambda: resolver.fresh)
            assert knows(resolver)
            await aeventually(lambda: not knows(resolver))
        nursery.cancel_scope.cancel()


async def test_daemon_that_stopped_answering_is_ignored() -> None:
    async with (
        Daemon(SETTINGS) as real,
        Req(dial=real.query_addresses) as req,
        Rep(listen=ANY) as rep,
        trio.open_nursery() as nursery,
    ):
        frozen = False

        async def relay() -> None:
            async for request in rep:
                if not frozen:
                    nursery.start_soon(answer, request)

        async def answer(request: Request) -> None:
            await request.areply(await req.arequest(request.body, timeout=WAIT))

        nursery.start_soon(relay)
        async with (
            Service("answer", HERE, discovery=real.addresses),
            Resolver(rep.address, timeout=0.3, watch=0.1) as resolver,
        ):
            await resolver.find("answer", timeout=WAIT)
            frozen = True
            await aeventually(lambda: not resolver.fresh)
            assert knows(resolver)
            frozen = False
            await aeventually(lambda: resolver.fresh)
        nursery.cancel_scope.cancel()


async def test_daemon_with_invalid_replies_is_ignored() -> None:
    async with Daemon(SETTINGS) as real, Rep(listen=ANY) as rep, trio.open_nursery() as nursery:

        async def talk() -> None:
            async for request in rep:
                await request.areply(b"42")

        nursery.start_soon(talk)
        async with (
            Service("answer", HERE, discovery=real.addresses),
            Resolver([rep.address, *real.query_addresses]) as resolver,
        ):
            await resolver.find("answer", timeout=WAIT)
            assert not resolver.answers(rep.address)
        nursery.cancel_scope.cancel()


async def test_own_zone_is_preferred() -> None:
    async with (
        Daemon(SETTINGS) as daemon,
        Service("answer", "tcp://10.0.0.1:1", discovery=daemon.addresses, zone="a"),
        Service("answer", "tcp://10.0.0.2:1", discovery=daemon.addresses, zone="b"),
        Resolver(daemon.query_addresses, prefer="b") as resolver,
    ):
        await aeventually(lambda: len(resolver.snapshot().get("answer", ())) == 2)
        assert {resolver.resolve("answer").zone for _ in range(20)} == {"b"}
        assert {resolver.resolve("answer", prefer="a").zone for _ in range(20)} == {"a"}
        assert {resolver.resolve("answer", prefer=()).zone for _ in range(50)} == {"a", "b"}


async def test_resolver_opens_without_a_daemon_and_waits_for_the_first(places: Callable[[], DaemonSettings]) -> None:
    here = places()
    before = time.monotonic()
    async with Resolver(here.query, timeout=0.1) as resolver, trio.open_nursery() as nursery:
        assert time.monotonic() - before < WAIT / 2
        assert not resolver.fresh
        daemon, _ = await nursery.start(host, here)
        async with Service("answer", HERE, discovery=daemon.addresses):
            await resolver.find("answer", timeout=WAIT)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("daemons", "options", "says_what"),
    [
        ((), {}, "no daemon to ask"),
        ("127.0.0.1:5556", {}, "not an address"),
        (["tcp://127.0.0.1:1", "pgm://x"], {}, "no transport 'pgm'"),
        ("tcp://127.0.0.1:1", {"watch": 0}, "watch: 0 is not"),
        ("tcp://127.0.0.1:1", {"watch": 61.0}, "watch: 61.0 is not"),
    ],
)
async def test_invalid_arguments_raise_config_error(daemons: str, options: dict[str, float], says_what: str) -> None:
    with pytest.raises(ConfigError, match=says_what):
        async with Resolver(daemons, **options):  # type: ignore[arg-type]
            pass


async def test_a_cancelled_wait_for_the_first_view_leaves_nothing() -> None:
    with trio.move_on_after(0.2) as waiting:
        async with Resolver("tcp://127.0.0.1:9", timeout=60.0):
            raise AssertionError("no daemon is there")
    assert waiting.cancelled_caught
    # else trio ends with an internal error, as tasks are left
