"""A background task that fails, or a block that ends, wakes all waiters: every class that `aio` and `blocking` export.

The failure is planted: the tasks of these classes handle every error that is known.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
import trio.testing

import nngkit
from nngkit import aio, blocking, cluster, discovery, fanout
from nngkit.discovery import DaemonSettings
from nngkit.errors import Closed
from nngkit.fanout import ConsumerServer
from nngkit.hosted import Hosted
from nngkit.portal import Host, the_portal
from nngkit.protocols import Req, Socket, Sub
from tests.fanout.journals import write

ANY, GONE = "tcp://127.0.0.1:0", "tcp://127.0.0.1:1"  # nothing listens at the second
WAIT = 10.0
JOURNALS: list[Path] = []  # one, made by the fixture


class Planted(Exception):
    pass


def following(iterator: Any) -> Any:
    """Return a call that waits for the next item of an iterator."""
    return (lambda: anext(iterator)) if hasattr(iterator, "__anext__") else (lambda: next(iterator))


def result_of(node: Any) -> Any:
    """Return a call that waits for the end of a job that no node takes."""

    async def wait() -> None:
        job = await node.submit("unknown", b"")
        await job.result()

    return (lambda: node.submit("unknown", b"").result()) if isinstance(node, blocking.Host) else wait


S = TypeVar("S", bound=Socket)
SOCKETS: list[Socket] = []


def kept(socket: S) -> S:
    """Have a socket closed after the test."""
    SOCKETS.append(socket)
    return socket


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    yield
    while SOCKETS:
        SOCKETS.pop().close()


def stored_and_sent(outbox: Any) -> Any:
    """Return a call that waits until a value has reached the peer, which is away."""

    async def wait() -> None:
        await outbox.put(b"x")
        await outbox.flush()

    return (lambda: (outbox.put(b"x"), outbox.flush())) if isinstance(outbox, blocking.Outbox) else wait


# class: (how it is made, its calls that wait)
Waits = dict[str, Callable[[Any], Callable[[], Any]]]
CLASSES: dict[str, tuple[Callable[[Any, Path, str], Any], Waits]] = {
    "Client": (
        lambda of, path, server: of("x", addresses=GONE, timeout=None),
        {"request": lambda it: lambda: it.request(b""), "providers": lambda it: it.wait_for_providers},
    ),
    "Consumer": (
        lambda of, path, server: of("x", server),
        {"receive": lambda it: it.receive, "batch": lambda it: it.receive_batch},
    ),
    "Daemon": (
        lambda of, path, server: of(DaemonSettings(listen=(ANY,), query=(ANY,))),
        {"run": lambda it: it.run},
    ),
    "DaemonClient": (
        lambda of, path, server: of(GONE, timeout=None),
        {"snapshot": lambda it: it.snapshot},
    ),
    "DocumentPeer": (
        lambda of, path, server: of(dial=GONE),
        {"peers": lambda it: it.wait_for_peers, "changes": lambda it: following(it.open("d").changes())},
    ),
    "Following": (
        lambda of, path, server: of(kept(Sub(dial=GONE)), JOURNALS[0], topic="t", patience=0.0),
        {"many": lambda it: it.receive_many},
    ),
    "Host": (
        lambda of, path, server: of("c", listen=ANY, id="a"),
        {"job": result_of},
    ),
    "Member": (
        lambda of, path, server: of("c", dial=GONE),
        {"joined": lambda it: it.joined},
    ),
    "Mesh": (
        lambda of, path, server: of(listen=ANY),
        {
            "recv": lambda it: it.recv,
            "events": lambda it: following(it.events()),
            "neighbours": lambda it: it.wait_for_neighbours,
        },
    ),
    "Outbox": (lambda of, path, server: of(path / "outbox", kept(Req(dial=GONE))), {"flush": stored_and_sent}),
    "Publisher": (lambda of, path, server: of(ANY), {"peers": lambda it: it.wait_for_peers}),
    "Resolver": (
        lambda of, path, server: of(GONE, timeout=0.01),
        {"find": lambda it: lambda: it.find("x"), "events": lambda it: following(it.events())},
    ),
    "Server": (
        lambda of, path, server: of("x", bytes, discovery=GONE),
        {"daemons": lambda it: it.wait_for_daemons},
    ),
    "Service": (
        lambda of, path, server: of("x", GONE, discovery=GONE),
        {"peers": lambda it: it.wait_for_peers},
    ),
    "ServiceDiscovery": (
        lambda of, path, server: of(listen=ANY),
        {"peers": lambda it: it.wait_for_peers, "events": lambda it: following(it.events())},
    ),
    "Subscriber": (
        lambda of, path, server: of(GONE),
        {
            "receive": lambda it: it.receive,
            "many": lambda it: it.receive_many,
            "messages": lambda it: following(it.messages()),
            "peers": lambda it: it.wait_for_peers,
        },
    ),
}
CASES = [  # a DaemonClient has no task of its own
    (name, failing) for name in CLASSES for failing in (True, False) if not (failing and name == "DaemonClient")
]
OTHERS = {"ConsumerServer", "DocumentRecorder", "Recorder"}
"""Classes without waits of their own: `record` ends with its socket, a recorder of documents has a DocumentPeer."""

EXPORTED = [(module, name) for module in (aio, blocking) for name in module.__all__]
HOSTED = [(module, name) for module, name in EXPORTED if hasattr(getattr(module, name), "_of")]
PLAIN = {
    name: getattr(module, name)
    for module in (discovery, fanout, cluster, nngkit)
    for name in CLASSES
    if hasattr(module, name)
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of consumers, whose journal has no record."""
    journal = tmp_path_factory.mktemp("journal") / "j"
    trio.run(write, journal, [])
    JOURNALS.append(journal)
    with_journal = ConsumerServer(journal, listen=ANY)
    host = Host(the_portal(), with_journal)
    host.open()
    yield with_journal.address
    host.close()


async def fail() -> None:
    raise Planted


def end(it: Hosted[Any], failing: bool) -> None:
    """Have a task of the object fail, or close the object."""
    calls, inner = it._open_object()
    if failing:
        calls.do(inner._background.start, fail)
    else:
        assert it._host is not None
        calls.later(it._host.go)


def ended(outcomes: list[Any], failing: bool) -> None:
    """Check that each wait raised the failure, or Closed; an iterator may end."""
    for outcome in outcomes:
        if failing:
            assert isinstance(outcome, Planted)
        else:
            assert isinstance(outcome, (Closed, StopIteration, StopAsyncIteration)) or outcome is None


def test_every_class_is_covered() -> None:
    assert {name for _, name in HOSTED} - OTHERS == set(CLASSES) == set(PLAIN)


@pytest.mark.parametrize(("name", "failing"), CASES)
def test_tasks_of_an_asyncio_program_are_woken(name: str, failing: bool, tmp_path: Path, server: str) -> None:
    make, waits = CLASSES[name]

    async def main() -> list[Any]:
        tasks = []
        with suppress(Planted, asyncio.CancelledError):
            async with make(getattr(aio, name), tmp_path, server) as it:
                calls = [wait(it) for wait in waits.values()]
                tasks = [asyncio.ensure_future(_awaited(call)) for call in calls]
                await asyncio.sleep(0)
                end(it, failing)
                await asyncio.wait(tasks, timeout=WAIT)
        async with asyncio.timeout(WAIT):
            return await asyncio.gather(*tasks, return_exceptions=True)

    ended(asyncio.run(main()), failing)


async def _awaited(call: Callable[[], Any]) -> Any:
    try:
        return await call()
    except StopAsyncIteration as error:
        return error


@pytest.mark.parametrize(("name", "failing"), [case for case in CASES if hasattr(blocking, case[0])])
def test_waiting_threads_are_woken(name: str, failing: bool, tmp_path: Path, server: str) -> None:
    make, waits = CLASSES[name]
    outcomes: list[Any] = []

    def run(call: Callable[[], Any]) -> None:
        try:
            outcomes.append(call())
        except BaseException as error:
            outcomes.append(error)

    threads = []
    with suppress(Planted), make(getattr(blocking, name), tmp_path, server) as it:
        threads = [threading.Thread(target=run, args=(wait(it),), daemon=True) for wait in waits.values()]
        for thread in threads:
            thread.start()
        end(it, failing)
        for thread in threads:
            thread.join(WAIT)
    assert len(outcomes) == len(waits)
    ended(outcomes, failing)


@pytest.mark.parametrize(("name", "failing"), CASES)
def test_tasks_under_trio_are_woken(name: str, failing: bool, tmp_path: Path, server: str) -> None:
    """Tasks outside of the block get the failure or Closed; those in it are cancelled by the block."""
    make, waits = CLASSES[name]
    outcomes: list[Any] = []

    async def run(call: Callable[[], Any]) -> None:
        try:
            outcomes.append(await call())
        except Exception as error:
            outcomes.append(error)

    async def main() -> None:
        with trio.fail_after(WAIT):
            async with trio.open_nursery() as nursery:
                with suppress(Planted):
                    async with make(PLAIN[name], tmp_path, server) as it:
                        for wait in waits.values():
                            nursery.start_soon(run, wait(it))
                        await trio.testing.wait_all_tasks_blocked()
                        if failing:
                            it._background.start(fail)
                            await trio.sleep_forever()

    trio.run(main)
    assert len(outcomes) == len(waits)
    expected = (Planted, Closed, StopAsyncIteration) if failing else (Closed, StopAsyncIteration)
    for outcome in outcomes:
        assert outcome is None or isinstance(outcome, expected)
