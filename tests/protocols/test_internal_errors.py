"""An error of our own code ends one connection, counted, with its reason, and logged once; the socket goes on.

Each entry is a function that runs in a callback of NNG, in a thread of nngkit's or in a caller's; it raises once.
"""

from __future__ import annotations

import functools
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from nngkit.protocols import PeerEvent, Pub, Pull, Push, Rep
from nngkit.protocols._core import direct
from nngkit.protocols._core.connection import Connection
from nngkit.protocols._core.guard import Guard
from nngkit.protocols._core.inbox import Inbox
from nngkit.protocols._core.shared_queue import SharedQueue
from nngkit.protocols._nng import attempt as attempts
from nngkit.protocols._nng import listener as listeners
from nngkit.protocols._socket.answering import Question
from nngkit.protocols._waiting import alarm as alarms
from nngkit.protocols._waiting.alarm import Alarm
from nngkit.protocols._waiting.waiters import ThreadWaiter
from nngkit.protocols.sp import Machine
from nngkit.protocols.websocket import Machine as WebSocketMachine
from nngkit.testing import ASYNCIO, BLOCKING, TRIO, Background, Caller, Wire, eventually
from tests.protocols.raw_peer import LENGTH, PULL, PUSH, REQ, SUB, RawPeer, connect, hello, read
from tests.protocols.wires import WAIT

TCP = "tcp://127.0.0.1:0"
LARGE = b"x" * 900_000  # more than one reception: the rest is received in place
INTERNAL = "internal error: LookupError: injected"


class Failure:
    """A method of a class that raises once when it is armed; ``only``: of this object, if given."""

    def __init__(self, patch: pytest.MonkeyPatch, kind: Any, name: str) -> None:
        self.armed = False
        self.only: object = None
        original = getattr(kind, name)

        @functools.wraps(original)
        def method(*arguments: Any, **options: Any) -> Any:
            if self.armed and self.only in (None, arguments[0]):
                self.armed = False
                raise LookupError("injected")
            return original(*arguments, **options)

        patch.setattr(kind, name, method)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], Failure]:
    return functools.partial(Failure, monkeypatch)


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> Iterator[list[logging.LogRecord]]:
    """The records with an injected error's traceback: after a test exactly one."""
    found: list[logging.LogRecord] = []
    yield found
    found += [one for one in caplog.get_records("call") if one.exc_info and "injected" in str(one.exc_info[1])]
    assert len(found) == 1, [one.getMessage() for one in found]


def names(entries: list[tuple[Any, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("kind", "name"), entries, ids=[f"{kind.__name__}.{name}" for kind, name in entries])


def check_cut(sock: Any, events: list[PeerEvent]) -> None:
    """Check that one connection was cut for an internal error, and that its end was reported once."""
    eventually(lambda: sock.stats.cut == 1)
    assert [one.reason for one in sock.cuts] == [INTERNAL]
    assert [one.reason for one in events if one.kind == "left"] == [INTERNAL]
    assert sock.stats.bad == sock.stats.too_large == 0


# ---- reading ---------------------------------------------------------------------------------------------------------

READS = [(Machine, "feed"), (Machine, "take"), (Machine, "place"), (Machine, "fill"), (Connection, "_feed")]
READS += [(Inbox, "take_from"), (Connection, "advance"), (Connection, "finish_read")]


@pytest.fixture(params=[True, False], ids=["direct", "NNG"])
def directly(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """True if descriptors are read and written by Python, False if by NNG, as they are on other systems than Linux."""
    monkeypatch.setattr(direct, "enabled", request.param)
    return bool(request.param)


@pytest.mark.usefixtures("errors")
def test_an_error_in_reading_one_small_message(failing: Any) -> None:
    failure, events = failing(Inbox, "take_small"), list[PeerEvent]()
    with Pull(listen=TCP) as pull:
        pull.on_peer(events.append)
        with RawPeer(pull.address, PUSH) as bad:
            for body in (b"first", b"second"):  # the first reception finds that nothing incomplete is there
                bad.send(body)
                assert pull.recv(timeout=WAIT) == body
            failure.armed = True
            bad.send(b"lost")
            assert bad.closed()
        check_cut(pull, events)


@pytest.mark.usefixtures("errors", "directly")
@pytest.mark.parametrize("waits", [None, "main thread", BLOCKING, TRIO, ASYNCIO], ids=str)
@names(READS)
def test_an_error_in_reading(failing: Any, waits: str | Caller | None, kind: Any, name: str) -> None:
    failure, events = failing(kind, name), list[PeerEvent]()
    with Pull(listen=TCP) as pull:
        pull.on_peer(events.append)
        with RawPeer(pull.address, PUSH) as bad:
            bad.send(b"first")
            assert pull.recv(timeout=WAIT) == b"first"

            def provoke() -> None:
                failure.armed = True
                with suppress(OSError):  # it is reset before all is sent
                    bad.send(LARGE)
                assert bad.closed()
                with RawPeer(pull.address, PUSH) as good:
                    good.send(b"still")
                    assert good.closed()  # once our end is closed

            if isinstance(waits, Caller):
                reading = waits.start(pull.recv, timeout=WAIT)
                peers = Background(provoke)
                assert reading.result() == b"still"
            elif waits is None:
                peers = Background(provoke)
                eventually(lambda: pull.stats.read == 2)
                assert pull.recv(timeout=WAIT) == b"still"
            else:
                peers = Background(provoke)
                assert pull.recv(timeout=WAIT) == b"still"
            check_cut(pull, events)
            pull.close()
            peers.result()


@pytest.mark.usefixtures("errors")
@pytest.mark.parametrize("wire", ["tls+tcp", "ws", "ipc", "inproc"], indirect=True)
def test_an_error_in_reading_on_other_transports(failing: Any, wire: Wire) -> None:
    """Under TLS and in handshakes NNG's callbacks read. The dialer connects again."""
    # take_small: a Unix socket whose descriptor is found among those of the process
    failures, events = [failing(Inbox, name) for name in ("take_from", "take_small")], list[PeerEvent]()
    with Pull(listen=wire.address(), **wire.options) as pull, Push(dial=pull.address, **wire.options) as push:
        push.send(b"first")
        assert pull.recv(timeout=WAIT) == b"first"
        pull.on_peer(events.append)
        for failure in failures:
            failure.only, failure.armed = pull._inbox, True
        push.send(b"lost")
        eventually(lambda: push.stats.left == 1)
        for failure in failures:
            failure.armed = False
        push.wait_for_peers(1, WAIT)
        push.send(b"still")
        assert pull.recv(timeout=WAIT) == b"still"
        check_cut(pull, events)


@pytest.mark.usefixtures("errors")
def test_an_error_in_the_examination_of_a_message(failing: Any) -> None:
    failure, events = failing(Question, "__init__"), list[PeerEvent]()
    with Rep(listen=TCP) as rep:
        rep.on_peer(events.append)
        failure.armed = True
        with RawPeer(rep.address, REQ) as bad:
            bad.send(b"\x80\0\0\1lost")
            assert bad.closed()
        with RawPeer(rep.address, REQ) as good:
            good.send(b"\x80\0\0\1still")
            rep.recv(timeout=WAIT).reply(b"yes")
            assert good.recv() == b"\x80\0\0\1yes"
        check_cut(rep, events[:2])


# ---- writing ---------------------------------------------------------------------------------------------------------

WRITES = [
    (Machine, "frames"),
    (Connection, "_first_unwritten"),
    (SharedQueue, "next_write"),
    (Connection, "_write_now"),
]


@pytest.mark.usefixtures("errors", "directly")
@names(WRITES)
def test_an_error_in_writing(failing: Any, kind: Any, name: str) -> None:
    failure, events = failing(kind, name), list[PeerEvent]()
    with Push(listen=TCP, linger=0.0) as push:
        push.on_peer(events.append)
        with RawPeer(push.address, PULL) as bad:
            push.wait_for_peers(1, WAIT)
            failure.armed = True
            push.send(b"first")  # which raises nothing
            eventually(lambda: push.stats.cut == 1)
            bad.closed()
        with RawPeer(push.address, PULL) as good:
            push.send(b"still")
            assert good.recv_all(b"still")[-1] == b"still"
        eventually(lambda: push.stats.left == 2)
        check_cut(push, events[:2])
        assert push.stats.unwritten == 0


@pytest.mark.usefixtures("errors")
@pytest.mark.parametrize("name", ["continue", "_first_unwritten"])
def test_an_error_in_writing_on(failing: Any, directly: bool, name: str) -> None:
    if name == "continue":
        name = "_write_now" if directly else "_send_done"
    failure, events = failing(Connection, name), list[PeerEvent]()
    with Push(listen=TCP, linger=0.0) as push:
        push.on_peer(events.append)
        with RawPeer(push.address, PULL) as slow:
            push.wait_for_peers(1, WAIT)
            push.send(b"x" * (64 << 20))  # more than the network takes at once
            failure.armed = True
            while not push.stats.cut:
                try:
                    assert slow.socket.recv(1 << 20)
                except (AssertionError, ConnectionResetError):
                    break
            check_cut(push, events)
        with RawPeer(push.address, PULL) as good:
            push.send(b"still")
            assert good.recv_all(b"still") == [b"still"]
        assert push.stats.broken == 1


@pytest.mark.usefixtures("errors", "directly")
@names([(Machine, "frames"), (Connection, "_first_unwritten")])
def test_an_error_in_the_distribution_ends_one_of_several_connections(failing: Any, kind: Any, name: str) -> None:
    failure, events = failing(kind, name), list[PeerEvent]()
    with Pub(listen=TCP, linger=0.0) as pub, RawPeer(pub.address, SUB) as one, RawPeer(pub.address, SUB) as other:
        pub.wait_for_peers(2, WAIT)
        pub.on_peer(events.append)
        failure.armed = True
        pub.send(b"first")
        check_cut(pub, events)
        pub.send(b"second")
        (rest,) = pub.pipes
        there = one if rest.address.endswith(f":{one.socket.getsockname()[1]}") else other
        assert [there.recv(), there.recv()] == [b"first", b"second"]


# ---- connecting and the end ------------------------------------------------------------------------------------------

STARTS = [(Machine, "__init__"), (Machine, "take"), (Connection, "describe"), (Connection, "__init__")]
STARTS += [(Connection, "start_reading"), (Connection, "_set_send_buffers"), (Connection, "post")]


@pytest.mark.usefixtures("errors")
@names(STARTS)
def test_an_error_in_accepting(failing: Any, kind: Any, name: str) -> None:
    failure = failing(kind, name)
    with Pull(listen=TCP) as pull:
        failure.armed = True
        with connect(pull.address) as bad:
            bad.sendall(hello(PUSH))
            assert bad.recv(100) in (b"", hello(PULL))
        eventually(lambda: [one.reason for one in pull.cuts] == [INTERNAL])
        with RawPeer(pull.address, PUSH) as good:
            good.send(b"still")
            assert pull.recv(timeout=WAIT) == b"still"
        assert pull.stats.cut == 1


@pytest.mark.usefixtures("errors")
@names([one for one in STARTS if one[1] != "start_reading"])  # by then it has joined
def test_an_error_in_connecting_ends_that_try(failing: Any, kind: Any, name: str) -> None:
    failure = failing(kind, name)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WAIT)
        failure.armed = True
        with Push(dial=f"tcp://127.0.0.1:{server.getsockname()[1]}", linger=0.0) as push:
            push.send(b"still", timeout=WAIT)
            body = b""
            while not body:
                theirs = server.accept()[0]
                with theirs, suppress(EOFError):
                    theirs.settimeout(WAIT)
                    theirs.sendall(hello(PULL))
                    body = read(theirs, 8 + LENGTH.size + 5)[-5:]
            assert body == b"still"
            assert [one.reason for one in push.cuts] == [INTERNAL]
            assert push.stats.cut == 1


@pytest.mark.usefixtures("errors")
def test_an_error_in_the_close_of_a_connection(failing: Any) -> None:
    failure, events = failing(WebSocketMachine, "end"), list[PeerEvent]()
    with Pull(listen="ws://127.0.0.1:0") as pull, Push(dial=pull.address) as push:
        push.wait_for_peers(1, WAIT)
        pull.wait_for_peers(1, WAIT)
        push.on_peer(events.append)
        failure.armed = True
        assert push.disconnect(push.pipes[0])
        push.wait_for_peers(1, WAIT)
        push.send(b"still")
        assert pull.recv(timeout=WAIT) == b"still"


@pytest.mark.usefixtures("errors")
@names([(Connection, "progress_made"), (Guard, "_sweep_incomplete")])
def test_an_error_in_the_sweep_does_not_end_the_sweeps(failing: Any, kind: Any, name: str) -> None:
    failure, events = failing(kind, name), list[PeerEvent]()
    with Pull(listen=TCP, idle_timeout=0.05) as pull:
        pull.on_peer(events.append)
        with RawPeer(pull.address, PUSH) as bad:
            pull.wait_for_peers(1, WAIT)
            failure.armed = True
            bad.socket.sendall(b"\0")
            assert bad.closed()
        check_cut(pull, events)
        with RawPeer(pull.address, PUSH) as late:
            late.socket.sendall(b"\0")
            assert late.closed()
        assert "incomplete message" in pull.cuts[-1].reason


@pytest.mark.usefixtures("errors")
@pytest.mark.parametrize("module", [attempts, listeners], ids=["dialer", "listener"])
def test_an_error_in_the_search_for_a_descriptor_costs_speed_only(failing: Any, module: Any) -> None:
    failing(module, "find_descriptor").armed = True
    with Pull(listen=TCP) as pull, Push(dial=pull.address) as push:
        push.send(b"still")
        assert pull.recv(timeout=WAIT) == b"still"


# ---- threads and wake-ups --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("errors")
def test_an_alarm_that_fails_is_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarms, "RETRY", 0.001)
    calls = Calls()
    alarm = Alarm(calls.due)
    alarm.set(0.0)
    assert calls.done.wait(WAIT)
    alarm.close()


class Calls:
    """Raises twice, in a row."""

    def __init__(self) -> None:
        self.calls = 0
        self.done = threading.Event()

    def due(self) -> float | None:
        self.calls += 1
        if self.calls < 3:
            raise LookupError("injected")
        self.done.set()
        return None


@pytest.mark.usefixtures("errors")
def test_a_waiter_that_cannot_be_woken_does_not_keep_others_waiting(failing: Any) -> None:
    failure = failing(ThreadWaiter, "wake")
    with Pull(listen=TCP) as pull, RawPeer(pull.address, PUSH) as peer:
        pull.wait_for_peers(1, WAIT)
        receiving = [Background(pull.recv, timeout=WAIT) for _ in range(4)]
        eventually(lambda: len(pull._inbox.waiters) == 4)

        def enough(number: int) -> bool:
            return sum(not one.is_alive() for one in receiving) == number

        failure.armed = True
        for number in range(1, 5):
            peer.send(b"%d" % number)
            eventually(functools.partial(enough, number))
        assert sorted(one.result() for one in receiving) == [b"1", b"2", b"3", b"4"]
        assert pull.stats.cut == 0
