"""Base of the async classes: errors for misuse, and wake-ups."""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
import trio.testing

from nngkit import blocking
from nngkit.background import UnderTrio, WakeUp
from nngkit.calls import Client, Server
from nngkit.cluster import Host, Member
from nngkit.discovery import Daemon, DaemonClient, Resolver, Service, ServiceDiscovery
from nngkit.documents import Document, DocumentPeer
from nngkit.documents.store import Store
from nngkit.errors import Closed, ConfigError
from nngkit.fanout import Consumer, ConsumerServer, Following, Mesh, Outbox, Publisher, Subscriber
from nngkit.journal.recorder import Recorder
from nngkit.protocols import Push, Socket, Sub
from nngkit.recording.documents import DocumentRecorder

S = TypeVar("S", bound=Socket)


def closed(socket: S) -> S:
    socket.close()
    return socket


NOWHERE = "tcp://127.0.0.1:1"
MADE: dict[str, Callable[[], Any]] = {
    "ServiceDiscovery": ServiceDiscovery,
    "Service": lambda: Service("answer", "tcp://127.0.0.1:9000", discovery=NOWHERE),
    "Resolver": lambda: Resolver(NOWHERE),
    "Daemon": Daemon,
    "DaemonClient": lambda: DaemonClient(NOWHERE),
    "Client": lambda: Client("answer", addresses=NOWHERE),
    "Server": lambda: Server("answer", lambda body: body),
    "DocumentPeer": DocumentPeer,
    "Host": lambda: Host("render", listen=NOWHERE),
    "Member": lambda: Member("render", dial=NOWHERE),
    "Consumer": lambda: Consumer("billing", NOWHERE),
    "ConsumerServer": lambda: ConsumerServer("journal"),
    "Following": lambda: Following(closed(Sub()), "journal", topic="t"),
    "Mesh": lambda: Mesh(dial=NOWHERE),
    "Outbox": lambda: Outbox("outbox", closed(Push())),
    "Publisher": lambda: Publisher(NOWHERE),
    "Subscriber": lambda: Subscriber(NOWHERE),
    "Recorder": lambda: Recorder("journal"),
    "DocumentRecorder": lambda: DocumentRecorder(Recorder("journal")),
}
USED: dict[str, tuple[str, Callable[[Any], object]]] = {
    "discover": ("ServiceDiscovery", lambda it: drive(it.discover())),
    "resolve": ("ServiceDiscovery", lambda it: it.resolve("answer")),
    "address": ("ServiceDiscovery", lambda it: it.address),
    "events": ("ServiceDiscovery", lambda it: drive(anext(it.events()))),
    "wait_for_peers of a service": ("Service", lambda it: drive(it.wait_for_peers())),
    "drain": ("Service", lambda it: it.drain()),
    "find": ("Resolver", lambda it: drive(it.find("answer"))),
    "resolve of a resolver": ("Resolver", lambda it: it.resolve("answer")),
    "query_addresses": ("Daemon", lambda it: it.query_addresses),
    "snapshot": ("DaemonClient", lambda it: drive(it.snapshot())),
    "open": ("DocumentPeer", lambda it: it.open("minutes")),
    "me": ("DocumentPeer", lambda it: it.me),
    "peers": ("DocumentPeer", lambda it: it.peers),
    "wait_for_peers": ("DocumentPeer", lambda it: drive(it.wait_for_peers())),
    "stats": ("Recorder", lambda it: it.stats),
    "put": ("Recorder", lambda it: it.put(b"x", topic="t", protocol="pull")),
    "peers of a recorder": ("DocumentRecorder", lambda it: it.peers),
}


def drive(coroutine: Any) -> None:
    """Run a coroutine to its first wait, without a loop."""
    try:
        coroutine.send(None)
    except StopIteration:
        pass
    else:
        pytest.fail("it waits")


def entered(thing: Any) -> Coroutine[Any, Any, Any]:
    made: Coroutine[Any, Any, Any] = thing.__aenter__()
    return made


@pytest.mark.parametrize("name", MADE)
def test_use_outside_trio_raises_an_error_with_a_remedy(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for enter in (lambda: asyncio.run(entered(MADE[name]())), lambda: drive(entered(MADE[name]()))):
        with pytest.raises(ConfigError, match=rf"^{name}: .*trio\.run") as told:
            enter()
        assert ("nngkit.blocking" in str(told.value)) == hasattr(blocking, name)


@pytest.mark.parametrize("use", USED)
def test_use_before_async_with_raises_closed(use: str) -> None:
    name, call = USED[use]
    with pytest.raises(Closed, match=r"not open: use it (in an|with) `async with`"):
        call(MADE[name]())


def test_misspelt_attribute_raises_attribute_error() -> None:
    peer = DocumentPeer()
    with pytest.raises(AttributeError, match="'DocumentPeer' object has no attribute 'opens'"):
        peer.opens  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(peer, "__fspath__")


async def test_misspelt_private_attribute_raises_attribute_error_in_the_block() -> None:
    async with DocumentPeer() as peer:
        with pytest.raises(AttributeError, match="_missing"):
            peer._missing  # type: ignore[attr-defined]  # noqa: B018


def test_every_class_of_nngkit_blocking_is_covered() -> None:
    for name in blocking.__all__:
        if not hasattr(getattr(blocking, name), "_of"):
            continue
        assert issubclass(getattr(blocking, name)._of, UnderTrio)
        assert name in MADE


def test_changes_and_store_waits_outside_trio_raise_config_error(tmp_path: Path) -> None:
    async def read() -> None:
        async for _ in Document("d").changes():
            pass

    with Store.open(tmp_path / "docs.sqlite") as store:
        for wait in (read, lambda: store.synced(0), store.room):
            assert inspect.isfunction(wait) or inspect.ismethod(wait)
            with pytest.raises(ConfigError, match=r"trio\.run"):
                asyncio.run(wait())
        trio.run(store.synced, 0)


async def test_a_wake_up_reaches_all_waiters_and_the_next_wait_blocks_again() -> None:
    wake_up, woken = WakeUp(), []

    async def waiter(name: str) -> None:
        await wake_up.wait()
        woken.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiter, "a")
        nursery.start_soon(waiter, "b")
        await trio.testing.wait_all_tasks_blocked()
        wake_up.wake()
    assert sorted(woken) == ["a", "b"]
    with trio.move_on_after(0.01) as scope:
        await wake_up.wait()
    assert scope.cancelled_caught


async def test_a_wake_up_without_a_waiter_is_kept_for_the_next_until_it_is_cleared() -> None:
    wake_up = WakeUp()
    wake_up.wake()
    wake_up.wake()
    with trio.fail_after(1):
        await wake_up.wait()
    wake_up.wake()
    wake_up.clear()
    with trio.move_on_after(0.01) as scope:
        await wake_up.wait()
    assert scope.cancelled_caught


async def test_a_cancelled_wait_loses_no_wake_up() -> None:
    wake_up = WakeUp()
    with trio.CancelScope() as scope:
        scope.cancel()
        wake_up.wake()
        await wake_up.wait()
    with trio.fail_after(1):
        await wake_up.wait()


def test_wake_soon_works_from_any_thread_and_reports_the_end_of_the_loop() -> None:
    async def main() -> WakeUp:
        wake_up = WakeUp()
        assert await trio.to_thread.run_sync(wake_up.wake_soon)
        with trio.fail_after(1):
            await wake_up.wait()
        return wake_up

    assert not trio.run(main).wake_soon()


async def test_a_block_that_is_cancelled_as_it_opens_its_tasks_ends() -> None:
    async with Publisher("tcp://127.0.0.1:0") as publisher:
        with trio.fail_after(10):
            with trio.CancelScope() as scope:
                scope.cancel()
                async with Subscriber(publisher.address):
                    await trio.sleep_forever()
        assert scope.cancelled_caught


def test_a_block_that_is_interrupted_as_it_opens_its_tasks_ends() -> None:
    @trio.lowlevel.enable_ki_protection  # its KeyboardInterrupt is raised by the next checkpoint, wherever that is
    def interrupt() -> None:
        signal.raise_signal(signal.SIGINT)

    async def main() -> None:
        async with Publisher("tcp://127.0.0.1:0") as publisher:
            interrupt()
            async with Subscriber(publisher.address):
                await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
