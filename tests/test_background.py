"""What is used with `async with` says what to do to whoever uses it otherwise."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import trio

from nngkit import blocking
from nngkit.background import UnderTrio
from nngkit.discovery import Daemon, DaemonClient, Resolver, Service, ServiceDiscovery
from nngkit.documents import Document, DocumentPeer
from nngkit.documents.store import Store
from nngkit.errors import Closed, ConfigError
from nngkit.journal.recorder import Recorder
from nngkit.recording.documents import DocumentRecorder

NOWHERE = "tcp://127.0.0.1:1"
MADE: dict[str, Callable[[], Any]] = {
    "ServiceDiscovery": ServiceDiscovery,
    "Service": lambda: Service("answer", "tcp://127.0.0.1:9000", discovery=NOWHERE),
    "Resolver": lambda: Resolver(NOWHERE),
    "Daemon": Daemon,
    "DaemonClient": lambda: DaemonClient(NOWHERE),
    "DocumentPeer": DocumentPeer,
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
    "what a resolver knows": ("Resolver", lambda it: it.resolve("answer")),
    "query_addresses": ("Daemon", lambda it: it.query_addresses),
    "snapshot": ("DaemonClient", lambda it: drive(it.snapshot())),
    "open": ("DocumentPeer", lambda it: it.open("minutes")),
    "me": ("DocumentPeer", lambda it: it.me),
    "peers": ("DocumentPeer", lambda it: it.peers),
    "wait_for_peers": ("DocumentPeer", lambda it: drive(it.wait_for_peers())),
    "stats": ("Recorder", lambda it: it.stats),
    "put": ("Recorder", lambda it: it.put(b"x", topic="t", protocol="pull")),
    "its peers": ("DocumentRecorder", lambda it: it.peers),
}


def drive(coroutine: Any) -> None:
    """Run it to where it first waits, without any loop."""
    try:
        coroutine.send(None)
    except StopIteration:
        pass
    else:
        pytest.fail("it waits, for nobody")


def entered(thing: Any) -> Coroutine[Any, Any, Any]:
    made: Coroutine[Any, Any, Any] = thing.__aenter__()
    return made


@pytest.mark.parametrize("name", MADE)
def test_outside_trio_it_names_what_to_use(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for enter in (lambda: asyncio.run(entered(MADE[name]())), lambda: drive(entered(MADE[name]()))):
        with pytest.raises(ConfigError, match=rf"^{name}: .*trio\.run") as told:
            enter()
        assert ("nngkit.blocking" in str(told.value)) == hasattr(blocking, name)


@pytest.mark.parametrize("use", USED)
def test_before_async_with_it_says_so(use: str) -> None:
    name, call = USED[use]
    with pytest.raises(Closed, match=r"not open: use it (in an|with) `async with`"):
        call(MADE[name]())


def test_a_misspelt_attribute_is_an_attribute_error() -> None:
    peer = DocumentPeer()
    with pytest.raises(AttributeError, match="'DocumentPeer' object has no attribute 'opens'"):
        peer.opens  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(peer, "__fspath__")


async def test_so_is_a_private_one_in_the_block() -> None:
    async with DocumentPeer() as peer:
        with pytest.raises(AttributeError, match="_missing"):
            peer._missing  # type: ignore[attr-defined]  # noqa: B018


def test_all_that_nngkit_blocking_has_twins_of_says_it() -> None:
    for name in blocking.__all__:
        assert issubclass(getattr(blocking, name)._of, UnderTrio)
        assert name in MADE


def test_reading_along_and_waiting_for_a_disk_say_it_too(tmp_path: Path) -> None:
    async def read() -> None:
        async for _ in Document("d").changes():
            pass

    with Store.open(tmp_path / "docs.sqlite") as store:
        for wait in (read, lambda: store.synced(0), store.room):
            assert inspect.isfunction(wait) or inspect.ismethod(wait)
            with pytest.raises(ConfigError, match=r"trio\.run"):
                asyncio.run(wait())
        trio.run(store.synced, 0)
