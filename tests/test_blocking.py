"""nngkit.blocking: the async objects without an event loop, in any thread, and the end of waits and of the process."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from nngkit import Closed, ConfigError, NngkitError, ServiceNotFound, TimedOut, Unreachable, blocking
from nngkit.blocking import (
    Consumer,
    ConsumerServer,
    Daemon,
    DaemonClient,
    DocumentPeer,
    DocumentRecorder,
    Following,
    Outbox,
    Publisher,
    Recorder,
    Resolver,
    Service,
    ServiceDiscovery,
)
from nngkit.discovery import DaemonSettings, Event, Reason, State
from nngkit.documents import Document, Map, Text, awareness, document, shared, threads, undo
from nngkit.protocols import Rep, Req, Sub
from nngkit.testing import eventually

ANY = "tcp://127.0.0.1:0"
HERE = "tcp://10.0.0.1:9000"
ROOT = Path(__file__).parents[1]
WAIT = 15.0


def run(code: str, timeout: float = 60, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@contextmanager
def interrupted(after: float) -> Iterator[None]:
    """Interrupt this thread like a Ctrl-C."""
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.join()


# ---- the objects -----------------------------------------------------------------------------------------------------


def test_discover_and_resolve_without_an_event_loop() -> None:
    with ServiceDiscovery(listen=ANY, deadline=WAIT) as discovery:
        with Service("answer", HERE, discovery=discovery.address, weight=3) as service:
            discovery.wait_for_peers(timeout=WAIT)
            assert discovery.discover(early=True) == {"answer": frozenset({service.provider})}
            assert discovery.resolve("answer") == service.provider
            assert discovery.snapshot()["answer"]
            assert discovery.addresses == (discovery.address,)
            assert discovery.stats.socket.pipes == 1
            assert service.stats.answers >= 1
        with pytest.raises(ServiceNotFound):
            discovery.resolve("answer")
        assert [(row.state, row.reason) for row in discovery.view()] == [(State.DOWN, Reason.BYE)]
        assert discovery.rounds


def test_updates_arrive_and_events_are_iterated() -> None:
    with ServiceDiscovery(listen=ANY, deadline=WAIT, interval=1000) as discovery:
        events = discovery.events()
        with Service("answer", HERE, discovery=discovery.address) as service:
            assert next(events).new is State.UP
            service.update(weight=7)
            assert next(events).provider.weight == 7
            service.drain()
            assert next(events).new is State.DRAINING
        assert next(events).new is State.DOWN
    assert list(events) == []  # the iteration ends on close


def test_event_iteration_may_be_abandoned() -> None:
    with (
        ServiceDiscovery(listen=ANY, deadline=WAIT, interval=1000) as discovery,
        Service("answer", HERE, discovery=discovery.address),
    ):
        for event in discovery.events():
            assert event.name == "answer"
            break
        with ThreadPoolExecutor(4) as threads:
            firsts = [threads.submit(next, discovery.events()) for _ in range(4)]
        assert {first.result().new for first in firsts} == {State.UP}


def test_daemon_client_and_resolver() -> None:
    settings = DaemonSettings(listen=(ANY,), deadline=1.0, interval=0.05)
    with Daemon(settings) as daemon, Service("answer", HERE, discovery=daemon.addresses) as service:
        with Resolver(daemon.query_addresses) as resolver:
            assert resolver.find("answer", timeout=WAIT) == service.provider
            assert resolver.resolve("answer") == service.provider
            assert resolver.fresh
            with pytest.raises(ServiceNotFound):
                resolver.find("absent", timeout=0.05)
        with DaemonClient(daemon.query_addresses[0]) as client:
            assert client.resolve("answer") == service.provider
            assert [row.provider for row in client.snapshot()] == [service.provider]
            assert client.rounds(1).rounds
            state = client.watch("", 0, wait=0.0)
            assert client.watch(state.daemon, state.version, wait=0.05).daemon == state.daemon


def test_errors_are_those_of_the_async_classes() -> None:
    with pytest.raises(ConfigError, match="here: not an address"), ServiceDiscovery(listen="here"):
        pass
    with pytest.raises(ConfigError, match="others cannot call this"):
        Service("answer", "tcp://*:1", discovery=ANY)
    with ServiceDiscovery(listen=ANY) as discovery:
        with pytest.raises(Unreachable, match=discovery.address), ServiceDiscovery(listen=discovery.address):
            pass
        with pytest.raises(TimedOut):
            discovery.wait_for_peers(5, timeout=0.05)
        with pytest.raises(TypeError):
            discovery.discover(earlier=True)  # type: ignore[call-arg]


def test_object_is_closed_before_and_after_its_with_block() -> None:
    discovery = ServiceDiscovery(listen=ANY)
    for use in (discovery.discover, lambda: discovery.resolve("a"), lambda: discovery.address, discovery.snapshot):
        with pytest.raises(Closed, match="this ServiceDiscovery is not open"):
            use()
    with discovery:
        discovery.discover(deadline=0.0)
    with pytest.raises(Closed):
        discovery.discover()
    discovery.close()


def test_close_ends_the_wait_of_another_thread() -> None:
    with ServiceDiscovery(listen=ANY, deadline=WAIT) as discovery, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(discovery.discover)
        while not discovery.stats.socket.sent:
            time.sleep(0.001)
        discovery.close()
        with pytest.raises(Closed):
            waiting.result(WAIT)


def test_many_threads_share_one_object() -> None:
    with (
        ServiceDiscovery(listen=ANY, deadline=WAIT, interval=0.05) as discovery,
        Service("answer", HERE, discovery=discovery.address) as service,
    ):
        next(discovery.events())
        with ThreadPoolExecutor(8) as threads:
            found = [threads.submit(discovery.discover, early=True) for _ in range(40)]
            resolved = [threads.submit(discovery.resolve, "answer") for _ in range(400)]
        assert all(each.result() == {"answer": frozenset({service.provider})} for each in found)
        assert all(each.result() == service.provider for each in resolved)


# ---- the end of waits and of the process -----------------------------------------------------------------------------


def test_ctrl_c_ends_a_wait_and_leaves_the_object_usable() -> None:
    with ServiceDiscovery(listen=ANY, deadline=WAIT) as discovery:
        before = time.monotonic()
        with interrupted(after=0.1), pytest.raises(KeyboardInterrupt):
            discovery.discover()
        with interrupted(after=0.1), pytest.raises(KeyboardInterrupt):
            next(discovery.events())
        with interrupted(after=0.1), pytest.raises(KeyboardInterrupt):
            discovery.wait_for_peers()
        assert time.monotonic() - before < WAIT / 2
        assert discovery.discover(deadline=0.01) == {}


def test_exception_of_the_body_is_not_wrapped_and_closes_the_object() -> None:
    discovery = ServiceDiscovery(listen=ANY)
    with suppress(ZeroDivisionError), discovery:  # not an exception group
        address = discovery.address
        raise ZeroDivisionError
    with ServiceDiscovery(listen=address):
        pass  # the port is free again


def test_open_objects_are_closed_in_order_at_the_end_of_the_process() -> None:
    with ServiceDiscovery(listen=ANY, deadline=WAIT, interval=1000) as discovery:
        started = time.monotonic()
        done = run(
            """
            import sys
            from nngkit.blocking import Service, ServiceDiscovery
            service = Service("answer", "tcp://10.0.0.1:9000", discovery=sys.argv[1]).__enter__()
            service.wait_for_peers(timeout=15)
            with ServiceDiscovery(listen="tcp://127.0.0.1:0", interval=0.1) as discovery:
                other = Service("other", "tcp://10.0.0.1:9000", discovery=discovery.address).__enter__()
                events = discovery.events()
                next(events)
            while not service.stats.answers:
                pass
            print("over")
            """.replace("sys.argv[1]", repr(discovery.address))
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")
        assert time.monotonic() - started < WAIT
        assert {row.reason for row in discovery.view()} == {Reason.BYE}


def test_sigterm_sends_a_goodbye() -> None:
    with ServiceDiscovery(listen=ANY, deadline=WAIT, interval=1000) as discovery:
        code = f"""if True:
            import threading
            from nngkit.blocking import Service
            with Service("answer", "tcp://10.0.0.1:9000", discovery={discovery.address!r}):
                threading.Event().wait()
        """
        events = discovery.events()
        with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as process:
            try:
                assert next(events).new is State.UP
                process.terminate()
                assert process.wait(WAIT) == -signal.SIGTERM
            finally:
                process.kill()
        assert (next(events).reason, next(events).reason) == (Reason.BYE, Reason.BYE)


OPEN = """
discovery = await asyncio.to_thread(lambda: ServiceDiscovery(listen="tcp://127.0.0.1:0", deadline=0.5).__enter__())
daemon = await asyncio.to_thread(lambda: Daemon(DaemonSettings(listen=("tcp://127.0.0.1:0",))).__enter__())
resolver = await asyncio.to_thread(lambda: Resolver(daemon.query_addresses).__enter__())
client = await asyncio.to_thread(lambda: DaemonClient(daemon.query_addresses[0], timeout=1000).__enter__())
peer = await asyncio.to_thread(lambda: DocumentPeer().__enter__())
other = ServiceDiscovery(listen="tcp://127.0.0.1:0")
await asyncio.to_thread(other.__enter__)
def work():  # looks up all attributes in its own thread
    for event in other.events():
        pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "waits",
    [
        "asyncio.to_thread(next, discovery.events())",
        "asyncio.to_thread(list, discovery.events())",
        "asyncio.to_thread(next, resolver.events())",
        "asyncio.to_thread(next, peer.open('minutes').changes())",
        "asyncio.to_thread(discovery.wait_for_peers)",
        "asyncio.to_thread(discovery.discover, deadline=1000)",
        "asyncio.to_thread(resolver.find, 'absent')",
        "asyncio.to_thread(daemon.run)",
        "asyncio.to_thread(client.watch, *state, wait=60)",
        "asyncio.to_thread(peer.open('minutes').joined)",
        "asyncio.to_thread(peer.wait_for_peers)",
        "asyncio.to_thread(work)",
        "asyncio.get_running_loop().run_in_executor(None, next, discovery.events())",
        "asyncio.get_running_loop().run_in_executor(None, discovery.wait_for_peers)",
        "asyncio.get_running_loop().run_in_executor(None, peer.open('minutes').joined)",
    ],
)
def test_abandoned_asyncio_wait_ends_with_its_loop(waits: str) -> None:
    state = "state = await asyncio.to_thread(client.watch, '', 0, wait=0.0)\nstate = state.daemon, state.version"
    body = textwrap.indent(f"{OPEN}{state if 'client' in waits else ''}", " " * 12)
    done = run(
        f"""
        import asyncio
        from nngkit.blocking import Daemon, DaemonClient, DocumentPeer, Resolver, ServiceDiscovery
        from nngkit.discovery import DaemonSettings
        async def main():
{body}
            try:
                async with asyncio.timeout(0.2):
                    await {waits}
            except TimeoutError:
                print("given up")
        asyncio.run(main())
        print("over")
        """,
        timeout=WAIT,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "given up\nover\n", "")


def test_thread_not_started_by_a_loop_keeps_waiting_when_one_ends() -> None:
    with (
        ServiceDiscovery(listen=ANY, deadline=WAIT, interval=1000) as discovery,
        Service("answer", HERE, discovery=discovery.address) as service,
        ThreadPoolExecutor(1) as threads,
    ):
        events = discovery.events()
        assert next(events).new is State.UP

        async def main() -> Future[Event]:
            waiting = threads.submit(next, events)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await asyncio.to_thread(discovery.wait_for_peers, 9)
            return waiting

        waiting = asyncio.run(main())
        assert not waiting.done()
        service.update(weight=7)
        assert waiting.result(WAIT).provider.weight == 7
        asyncio.run(asyncio.sleep(0))
        assert discovery.discover(early=True)


def test_wait_on_behalf_of_an_ended_loop_raises_closed() -> None:
    with ServiceDiscovery(listen=ANY, deadline=WAIT, interval=1000) as discovery:

        async def main() -> Any:
            return discovery.events(), discovery.wait_for_peers

        events, wait = asyncio.run(main())
        for use in (lambda: next(events), wait):
            with pytest.raises(Closed, match="asyncio loop"):
                use()
        with pytest.raises(TimedOut):
            discovery.wait_for_peers(timeout=0.01)


def test_closing_an_iterator_ends_its_waiting_threads() -> None:
    with ServiceDiscovery(listen=ANY, deadline=WAIT, interval=1000) as discovery, ThreadPoolExecutor(3) as threads:
        events = discovery.events()
        ends = [threads.submit(list, events) for _ in range(3)]
        with Service("answer", HERE, discovery=discovery.address):
            discovery.wait_for_peers(timeout=WAIT)
            assert discovery.discover(early=True)
            events.close()
            assert sum(len(end.result(WAIT)) for end in ends) <= 1  # its one change, unless it ended before
        assert list(events) == []


def test_objects_raise_forked_in_a_forked_child() -> None:
    done = run(
        """
        import os, sys
        from nngkit import Forked
        from nngkit.blocking import ServiceDiscovery
        with ServiceDiscovery(listen="tcp://127.0.0.1:0") as discovery:
            sys.stdout.flush()
            if (pid := os.fork()) == 0:
                for use in (discovery.discover, discovery.snapshot, lambda: discovery.address):
                    try:
                        use()
                    except Forked as error:
                        os.write(1, f"{error}\\n".encode())
                discovery.close()
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
            discovery.discover(deadline=0.01)
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "this ServiceDiscovery belongs to the process that made it\n" * 3


def test_import_starts_no_thread() -> None:
    done = run("import threading, nngkit.blocking; print(threading.active_count())")
    assert (done.stdout, done.stderr) == ("1\n", "")


# ---- documents -------------------------------------------------------------------------------------------------------


def test_documents_can_be_edited_without_a_loop(tmp_path: Path) -> None:
    with DocumentPeer(listen=ANY, store=tmp_path / "docs.sqlite") as ada, DocumentPeer(dial=ada.address) as grace:
        ours, theirs = ada.open("minutes"), grace.open("minutes")
        ours.text("body").insert(0, "hello")
        ours.durable()
        theirs.joined(WAIT)
        assert str(theirs.text("body")) == "hello"
        changes = theirs.changes()
        with ThreadPoolExecutor(1) as threads:
            first = threads.submit(next, changes)
            ours.map("meta").update({"title": "Minutes"})
            change = first.result(WAIT)
        changes.close()
        assert change.peer is not None
        assert ada.stats.edits == 2
        [peer] = grace.peers
        assert peer.documents == {"minutes"}
        assert ada.versions("minutes") == {ada.me: 2}
        assert grace.name_of(ada.me) is None


def test_open_returns_the_same_document_until_its_peer_closes() -> None:
    with DocumentPeer() as peer:
        doc = peer.open("minutes")
        assert peer.open("minutes") is doc
        assert peer.documents == {"minutes": doc}
        doc.text("body").append("hello")
        peer.close_document("minutes")
        assert peer.documents == {}
        again = peer.open("minutes")
        assert again is not doc
        assert str(again.text("body")) == ""
    for use in (lambda: doc.text("body"), lambda: peer.open("minutes"), again.plain):
        with pytest.raises(Closed):
            use()


def test_texts_maps_and_arrays_behave_as_in_a_loop() -> None:
    with DocumentPeer() as peer:
        doc = peer.open("minutes")
        body, meta, rows = doc.text("body"), doc.map("meta"), doc.array("rows")
        body.insert(0, "hello")
        body += " 😀"
        body[0:1] = "J"
        del body[1]
        assert (str(body), len(body), "llo" in body, body[-1], bool(body)) == ("Jllo 😀", 6, True, "😀", True)
        assert body.index_of(body.cursor(4)) == 4
        assert doc.text("body") == body
        meta["title"] = "Minutes"
        meta.update(a=1, b=2)
        assert (dict(meta), sorted(meta), meta.pop("a"), meta.get("a", 7)) == (
            {"title": "Minutes", "a": 1, "b": 2},
            ["a", "b", "title"],
            1,
            7,
        )
        rows.append(Map({"name": "Ada", "notes": Text("é")}))
        rows.extend([1, 2, 3])
        rows.move(3, 1)
        row = rows[0]
        row["notes"] += "!"
        row["notes"].insert(0, "!")
        assert [part.plain() if isinstance(part, threads.Map) else part for part in rows] == [
            {"name": "Ada", "notes": "!é!"},
            3,
            1,
            2,
        ]
        assert (rows[1:], rows.index(2), rows.pop(), len(rows)) == ([3, 1, 2], 3, 2, 3)
        del meta["b"]
        assert doc.plain() == {"body": "Jllo 😀", "meta": {"title": "Minutes"}, "rows": [row.plain(), 3, 1]}
        assert "Jllo" in repr(body)
        with pytest.raises(IndexError):
            body.insert(99, "x")
        with pytest.raises(KeyError):
            meta["none"]
        with pytest.raises(TypeError, match="opened as text"):
            doc.map("body")


def test_transaction_is_one_update_and_exclusive() -> None:
    with DocumentPeer(listen=ANY) as ada, DocumentPeer(dial=ada.address) as grace, ThreadPoolExecutor(8) as threads:
        doc, theirs = ada.open("minutes"), grace.open("minutes")
        theirs.text("body").append("theirs")
        doc.joined(WAIT)
        edits = ada.stats.edits

        def twice() -> None:
            with doc.transaction(origin="twice"):
                before = len(doc.text("body"))
                doc.text("body").append("a")
                with doc.transaction():
                    theirs_meanwhile = str(doc.text("body"))
                    doc.text("body").append("b")
                assert len(doc.text("body")) == before + 2
                assert theirs_meanwhile.endswith("a")

        list(threads.map(lambda _: twice(), range(20)))
        assert ada.stats.edits - edits == 20
        assert str(doc.text("body")) == "theirs" + "ab" * 20
        theirs.joined(WAIT)
        assert theirs.digest() == doc.digest()


def test_waiting_in_a_transaction_raises_and_an_exception_keeps_the_edits() -> None:
    with DocumentPeer(listen=ANY) as peer, DocumentPeer() as other:
        doc = peer.open("minutes")

        def edit() -> None:
            with doc.transaction():
                doc.text("body").append("kept")
                for wait in (
                    lambda: doc.joined(1.0),
                    lambda: peer.wait_for_peers(1, 1.0),
                    lambda: other.wait_for_peers(1, 1.0),
                    lambda: next(doc.changes()),
                    lambda: DocumentPeer().__enter__(),
                ):
                    with pytest.raises(NngkitError, match="in a transaction"):
                        wait()
                other.dial(peer.address)  # does not wait
                assert str(other.open("minutes").text("body")) == ""
                doc.digest()
                _ = 1 // 0

        with pytest.raises(ZeroDivisionError):
            edit()
        assert str(doc.text("body")) == "kept"
        other.open("minutes").joined(WAIT)
        assert str(other.open("minutes").text("body")) == "kept"


@pytest.mark.timeout(30)
def test_waiting_in_a_function_that_the_loop_calls_raises_and_all_else_works() -> None:
    found: list[object] = []

    def accept(name: str) -> bool:
        other.open(name).text("body").append("opened")  # does not wait
        with other.documents[name].transaction():
            found.append(str(other.documents[name].text("body")))
        for wait in (
            lambda: other.documents[name].joined(1.0),
            lambda: other.wait_for_peers(1, 1.0),
            lambda: next(other.documents[name].changes()),
            lambda: DocumentPeer().__enter__(),
        ):
            try:
                wait()
            except NngkitError as error:
                found.append(str(error))
        other.close()
        return True

    with (
        DocumentPeer() as other,
        DocumentPeer(listen=ANY, accept=accept) as peer,
        DocumentPeer(dial=peer.address) as visitor,
    ):
        visitor.open("minutes").text("body").append("written")
        eventually(lambda: "minutes" in peer.documents)
        assert found[0] == "opened"
        assert len(found) == 5
        assert all("in its loop: start a thread" in str(each) for each in found[1:])
        with pytest.raises(Closed):
            other.wait_for_peers(1, WAIT)


def test_ctrl_c_ends_a_transaction() -> None:
    done = run(
        """
        import os, signal
        from nngkit.blocking import DocumentPeer
        with DocumentPeer() as peer:
            doc = peer.open("minutes")
            try:
                with doc.transaction():
                    doc.text("body").append("a")
                    os.kill(os.getpid(), signal.SIGINT)
                    while True:
                        doc.digest()
            except KeyboardInterrupt:
                pass
            doc.text("body").append("b")
            print(doc.text("body"), peer.stats.edits)
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ab 2\n", "")


def test_undo_awareness_and_versions_without_a_loop(tmp_path: Path) -> None:
    with DocumentPeer(listen=ANY, store=tmp_path / "docs.sqlite") as ada, DocumentPeer(dial=ada.address) as grace:
        doc, theirs = ada.open("minutes"), grace.open("minutes")
        body = doc.text("body")
        body.append("one")
        saved = doc.save_version("first")
        undo = doc.undo(body)
        changes = doc.changes()
        body.append(", two")
        assert undo.can_undo
        assert undo.undo()
        assert (str(body), undo.can_undo, undo.can_redo) == ("one", False, True)
        next(changes)
        assert next(changes).origin is undo
        assert undo.redo()
        assert doc.saved_versions() == (saved,)
        old = doc.at("first")
        assert str(old.text("body")) == "one"
        with pytest.raises(ConfigError, match="read-only"):
            old.text("body").append("x")
        theirs.joined(WAIT)
        theirs.text("body")
        seen = theirs.awareness.changes()
        doc.awareness.local = {"user": "Ada", "cursor": doc.awareness.cursor("body", 3)}
        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(next, seen).result(WAIT).added == {doc.client_id}
        assert theirs.awareness.find(theirs.awareness.states[doc.client_id]["cursor"]) == ("body", 3, 3)


def test_exception_of_an_edit_is_raised_in_the_calling_thread() -> None:
    with DocumentPeer() as peer:
        doc = peer.open("minutes")
        with pytest.raises(ConfigError, match="store"):
            doc.durable()
        with pytest.raises(TimedOut):
            doc.joined(0.01)


def test_threads_edit_concurrently() -> None:
    with DocumentPeer() as peer, ThreadPoolExecutor(8) as threads:
        doc = peer.open("minutes")
        for _ in range(100):
            threads.submit(doc.text("body").insert, 0, "x")
        threads.shutdown()
        assert len(doc.text("body")) == 100


DOCUMENT = {
    blocking.Document: (document.Document, {"check_writable", "close", "engine", "host", "merge", "opened"}),
    threads.Text: (shared.Text, {"document", "initial", "node", "prelim"}),
    threads.Map: (shared.Map, {"document", "initial", "node", "prelim"}),
    threads.Array: (shared.Array, {"document", "initial", "node", "prelim"}),
    threads.Awareness: (
        awareness.Awareness,
        {"bye", "clock_of", "encoded", "end", "expire", "known", "receive", "renew"},
    ),
    threads.Undo: (undo.Undo, set()),
}


@pytest.mark.parametrize("ours", DOCUMENT, ids=lambda ours: ours.__name__)
def test_blocking_document_has_the_whole_interface_of_the_async_one(ours: type) -> None:
    theirs, of_the_peer = DOCUMENT[ours]
    whole = ours is blocking.Document
    made = {"name", "read_only", "client_id", "awareness"} if whole else set()
    mine = {name for name in {*dir(ours), *made} if not name.startswith("_")}
    others = {name for name in {*dir(theirs), *(vars(Document("d")) if whole else ())} if not name.startswith("_")}
    assert others - mine == of_the_peer
    for name in mine - made:
        here, there = getattr(ours, name), getattr(theirs, name)
        if callable(there) and name not in ("changes", "undo", "text", "map", "array", "at"):
            assert list(inspect.signature(here).parameters) == list(inspect.signature(there).parameters)


# ---- journals and fan-out --------------------------------------------------------------------------------------------


def test_what_an_outbox_stores_is_recorded_and_consumed(tmp_path: Path) -> None:
    values = [b"0", b"1", b"2"]
    with (
        Rep(listen=ANY) as rep,
        Req(dial=rep.address) as req,
        ThreadPoolExecutor(1) as pool,
        Recorder(tmp_path / "j") as recorder,
        Outbox(tmp_path / "o", req, form="record") as outbox,
    ):
        recording = pool.submit(recorder.record, rep, "orders")
        assert outbox.put_many(values) == 0
        outbox.flush()
        assert outbox.stats.acknowledged == 3
        rep.close()
        recording.result(WAIT)
    with ConsumerServer(tmp_path / "j", listen=ANY) as server, Consumer("c", server.address) as consumer:
        batch = next(iter(consumer.batches()))
        assert batch.values == values
        consumer.ack(batch)
        assert [each.settled for each in server.consumers("c")] == [3]


def test_a_journal_is_followed_until_the_live_messages(tmp_path: Path) -> None:
    with (
        Publisher(ANY, heartbeat=0.05) as publisher,
        Recorder(tmp_path / "j") as recorder,
        ThreadPoolExecutor(1) as pool,
        Sub(dial=publisher.address, topics="") as recorded,
    ):
        recording = pool.submit(recorder.record, recorded, "t")
        publisher.wait_for_peers(1, WAIT)
        publisher.publish_many([(b"", b"%d" % number) for number in range(10)])
        eventually(lambda: recorder.stats.end >= 10)
        with (
            Sub(dial=publisher.address, topics="") as sub,
            Following(sub, tmp_path / "j", topic="t") as following,
        ):
            messages = iter(following)
            found = [next(messages) for _ in range(10)]
            publisher.wait_for_peers(2, WAIT)
            publisher.publish(b"", b"10")
            found.append(next(messages))
            assert found == [b"%d" % number for number in range(11)]
            sub.close()
            assert list(messages) == []
        recorded.close()
        recording.result(WAIT)


def test_a_recorder_of_documents_records(tmp_path: Path) -> None:
    with DocumentPeer(listen=ANY) as ada, Recorder(tmp_path / "j") as recorder:
        with DocumentRecorder(recorder, dial=ada.address) as kept:
            ada.open("minutes").text("body").insert(0, "hello")
            eventually(lambda: kept.digests.get("minutes") == ada.open("minutes").digest())
            kept.synced()
            assert kept.versions("minutes") == {ada.me: 1}
        assert len(list(recorder.recorded("documents"))) == 1


def test_ctrl_c_ends_the_wait_for_room_in_an_outbox(tmp_path: Path) -> None:
    with Req(dial="tcp://127.0.0.1:1") as req, Outbox(tmp_path / "o", req, cap_bytes=70) as outbox:
        assert outbox.put(b"x") == 0
        with interrupted(0.2), pytest.raises(KeyboardInterrupt):
            outbox.put(b"y")
        assert outbox.stats.stored == 1


# ---- calls -----------------------------------------------------------------------------------------------------------


def test_threads_call_a_server_by_name() -> None:
    def answer(body: bytes) -> bytes:
        return threading.current_thread().name.encode() + body

    with (
        ServiceDiscovery(listen=ANY, interval=1000) as discovery,
        blocking.Server("answer", answer, discovery=discovery.address) as server,
        blocking.Client("answer", discovery=discovery, timeout=WAIT) as client,
    ):
        reply = client.request(b"!")
        assert reply.endswith(b"!")
        assert not reply.startswith(threading.current_thread().name.encode())
        assert client.request(b"?", hedge=5.0).endswith(b"?")
        assert server.stats.replies == 2
        assert client.stats.requests == 2
        with pytest.raises(TimedOut):
            blocking_calls(client)
        server.drain()
        eventually(lambda: "answer" not in discovery.snapshot())


def blocking_calls(client: blocking.Client) -> None:
    client.wait_for_providers(2, timeout=0.05)


def test_a_generator_streams_to_a_thread() -> None:
    server = blocking.Server("answer", codec="cbor")

    @server.method
    def count(body: int) -> Iterator[int]:
        yield from range(body)

    with server, blocking.Client("answer", addresses=server.address, codec="cbor", timeout=WAIT) as client:
        assert list(client.stream(5, method="count")) == [0, 1, 2, 3, 4]
