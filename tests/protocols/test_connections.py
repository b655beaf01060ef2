"""Connections: admission, reconnection, and no resources left behind."""

from __future__ import annotations

import os
import socket
import textwrap
import threading
import time
from contextlib import ExitStack, closing, suppress
from itertools import pairwise
from select import select
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio

from nngkit.errors import TimedOut
from nngkit.protocols import Bus, Pair0, PeerEvent, Pipe, Pull, Push
from nngkit.protocols._wire import race as _race
from nngkit.testing import Wire, eventually
from tests.protocols.raw_peer import (
    BUS,
    LENGTH,
    PAIR0,
    PUSH,
    RawPeer,
    connect,
    hello,
    http_head,
    read,
    upgrade_request,
)
from tests.protocols.wires import WAIT, run_python, said

TCP = "tcp://127.0.0.1:0"


class RefusedPeers:
    """For ``admit``: refuses the peers that were listed here."""

    def __init__(self) -> None:
        self._addresses: set[str] = set()

    def add(self, connection: socket.socket) -> None:
        self._addresses.add("tcp://{}:{}".format(*connection.getsockname()))

    def admit(self, pipe: Pipe) -> bool:
        return pipe.address not in self._addresses


# ---- admission -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reading", [True, False], ids=["a caller receives", "no caller receives"])
def test_messages_of_a_refused_peer_are_neither_received_nor_counted(reading: bool) -> None:
    unknown_peers = RefusedPeers()
    with Pull(listen=TCP, admit=unknown_peers.admit) as pull:
        receiving = threading.Thread(target=lambda: list(pull))
        if reading:
            receiving.start()
        port = urlsplit(pull.address).port
        for count in range(1, 31):
            with socket.socket() as stranger:
                stranger.bind(("127.0.0.1", 0))
                unknown_peers.add(stranger)
                stranger.connect(("127.0.0.1", port))
                stranger.sendall(hello(PUSH) + 3 * (LENGTH.pack(7) + b"refused"))
                eventually(lambda count=count: pull.stats.refused == count)  # type: ignore[misc]
        with Push(dial=pull.address) as push:
            push.send(b"welcome")
            if not reading:
                assert pull.recv(timeout=WAIT) == b"welcome"
                with pytest.raises(TimedOut):
                    pull.recv(timeout=0.1)
            eventually(lambda: pull.stats.received == 1)
        eventually(lambda: pull.stats.left == 1)
        assert (pull.stats.joined, pull.stats.read, pull.stats.cut) == (1, 1, 0)
        pull.close()
        if reading:
            receiving.join(WAIT)


def test_a_refused_peer_gets_our_hello_and_nothing_else() -> None:
    unknown_peers = RefusedPeers()
    with (
        Bus(listen=TCP, admit=unknown_peers.admit) as bus,
        closing(connect(bus.address)) as connection,
        Bus(dial=bus.address) as honest,
    ):
        unknown_peers.add(connection)
        connection.sendall(hello(BUS))
        eventually(lambda: bus.stats.refused == 1)
        bus.wait_for_peers(1, WAIT)
        bus.send(b"secret")
        assert honest.recv(timeout=WAIT) == b"secret"
        assert read(connection, 8) == hello(BUS)
        with pytest.raises(EOFError) as end:
            read(connection, 1)
        assert end.value.args == (b"",)


def test_admit_keeps_an_unknown_peer_out_of_a_pair() -> None:
    unknown_peers = RefusedPeers()
    with Pair0(listen=TCP, admit=unknown_peers.admit) as pair, closing(connect(pair.address)) as connection:
        unknown_peers.add(connection)
        connection.sendall(hello(PAIR0))
        eventually(lambda: pair.stats.refused == 1)
        with Pair0(dial=pair.address) as honest:
            honest.send(b"it is me")
            assert pair.recv(timeout=WAIT) == b"it is me"


def test_an_admit_that_raises_refuses() -> None:
    def admit(pipe: Pipe) -> bool:
        raise LookupError(pipe.address)

    with Pull(listen=TCP, admit=admit) as pull, closing(connect(pull.address)) as connection:
        connection.sendall(hello(PUSH))
        assert read(connection, 8)
        with pytest.raises(EOFError):
            read(connection, 1)
        assert (pull.stats.refused, pull.stats.joined) == (1, 0)


@pytest.mark.parametrize("wire", ["tcp", "ipc", "ws", "wss", "tls+tcp", "inproc"], indirect=True)
def test_the_dialer_may_refuse_too_and_tries_again(wire: Wire) -> None:
    asked: list[Pipe] = []

    def admit(pipe: Pipe) -> bool:
        asked.append(pipe)
        return len(asked) > 2

    with Pull(listen=wire.address(), **wire.options) as pull:
        with Push(dial=pull.address, admit=admit, reconnect=0.02, **wire.options) as push:
            push.send(b"at the third try")
            assert pull.recv(timeout=WAIT) == b"at the third try"
            assert (push.stats.refused, push.stats.joined) == (2, 1)
        assert all(pipe.dialed for pipe in asked)


def test_admit_sees_the_path_and_the_origin_of_a_websocket() -> None:
    asked: list[tuple[str | None, str | None]] = []

    def admit(pipe: Pipe) -> bool:
        asked.append((pipe.path, pipe.origin))
        return pipe.origin is None

    with Pull(listen="ws://127.0.0.1:0/brick", admit=admit) as pull:
        with closing(connect(pull.address)) as browser:
            browser.sendall(upgrade_request("127.0.0.1", "/brick", "pull.sp.nanomsg.org"))
            assert http_head(browser).startswith(b"HTTP/1.1 403 ")
            while browser.recv(4096):
                pass
        with Push(dial=pull.address) as push:
            push.send(b"from a program")
            assert pull.recv(timeout=WAIT) == b"from a program"
            assert (pull.pipes[0].path, push.pipes[0].path) == ("/brick", None)
        assert asked == [("/brick", "http://elsewhere.example"), ("/brick", None)]
        assert pull.stats.refused == 1


def test_a_peer_that_is_cut_as_soon_as_it_joined_returns() -> None:
    with Pull(listen=TCP) as pull, Push(dial=pull.address, reconnect=0.01) as push:

        def cut(event: PeerEvent) -> None:
            if event.kind == "joined":
                pull.disconnect(event.pipe)

        end = pull.on_peer(cut)
        eventually(lambda: pull.stats.left > 20)
        end()

        def arrives() -> bool:  # not if it was written to a connection that was cut last
            push.send(b"in the end", timeout=WAIT)
            with suppress(TimedOut):
                return pull.recv(timeout=0.2) == b"in the end"
            return False

        eventually(arrives)


# ---- reasons ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tasks", [False, True])
def test_who_has_waited_for_peers_finds_callbacks_done(tasks: bool) -> None:
    """Another thread counts the peer first, and then calls back: discovery left out services in between."""
    begun, told = threading.Event(), threading.Event()

    def slow(_: PeerEvent) -> None:
        begun.set()
        time.sleep(0.2)
        told.set()

    with Pull(listen=TCP) as pull:
        pull.on_peer(slow)
        with Push(dial=pull.address):
            assert begun.wait(WAIT)
            assert len(pull.pipes) == 1
            if tasks:
                trio.run(pull.await_for_peers, 1, WAIT)
            else:
                pull.wait_for_peers(1, WAIT)
            assert told.is_set()


def reasons(ours: Any) -> list[str]:
    """Return a list that collects the reason of each peer that leaves."""
    found: list[str] = []
    ours.on_peer(lambda event: found.append(event.reason) if event.kind == "left" else None)
    return found


@pytest.mark.parametrize("wire", ["tcp", "ipc", "ws", "wss", "tls+tcp", "inproc"], indirect=True)
def test_an_event_has_the_reason_why_a_peer_left(wire: Wire) -> None:
    with Pull(listen=wire.address(), recv_max_size=1000, **wire.options) as pull:
        why = reasons(pull)
        with Push(dial=pull.address, reconnect=0.02, linger=0.0, **wire.options) as push:
            pull.wait_for_peers(1, WAIT)
            push.wait_for_peers(1, WAIT)  # it may count the connection later, or never, if that is cut before
            assert pull.disconnect(pull.pipes[0])
            pull.wait_for_peers(1, WAIT)
            push.send(b"x" * 1001)
            eventually(lambda: len(why) == 2)
            pull.wait_for_peers(1, WAIT)
            eventually(lambda: push.stats.joined == 3)  # its close would be a reset before it has read our hello
        eventually(lambda: len(why) == 3)
        assert why == ["disconnected", "message of 1001 bytes is over the limit of 1000", "the peer closed"]
        with Push(dial=pull.address, **wire.options) as push:
            pull.wait_for_peers(1, WAIT)
            pull.close()
        assert why[3:] == ["closed"]


def test_an_event_names_the_systems_error() -> None:
    with Pull(listen=TCP) as pull:
        why = reasons(pull)
        with RawPeer(pull.address, PUSH) as peer:
            pull.wait_for_peers(1, WAIT)
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close is a reset
        eventually(lambda: why)
        assert why[0] in ("connection reset", "the peer closed")
        assert (pull.stats.cut, pull.stats.left) == (0, 1)


def test_joined_events_have_no_reason() -> None:
    with Pull(listen=TCP) as pull:
        events: list[PeerEvent] = []
        pull.on_peer(events.append)
        with Push(dial=pull.address):
            pull.wait_for_peers(1, WAIT)
        eventually(lambda: len(events) == 2)
        assert [(event.kind, bool(event.reason)) for event in events] == [("joined", False), ("left", True)]


# ---- reconnecting ----------------------------------------------------------------------------------------------------


def test_a_refused_dialer_returns_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, Pair0() as pair:
        server.settimeout(WAIT)
        pair.dial(f"tcp://127.0.0.1:{server.getsockname()[1]}")
        times = []
        for _ in range(12):
            server.accept()[0].close()
            times.append(time.monotonic())
        pauses = [after - before for before, after in pairwise(times)]
        assert median(pauses) < 0.3  # at most 0.1 s, plus the delay of a busy machine


def test_a_try_of_a_dialer_does_not_wait_for_the_kernels_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener that drops requests is reached as soon as it takes them; the kernel repeats its own after 1 s, 3 s."""
    monkeypatch.setattr(_race, "LIMIT", 0.2)
    monkeypatch.setattr(_race, "LONG_LIMIT", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as stack:
        server.settimeout(WAIT)
        for _ in range(2):  # its queue is full
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            with suppress(BlockingIOError):
                filler.connect(server.getsockname())
        host, port = server.getsockname()
        with Push(dial=f"tcp://{host}:{port}") as push:
            time.sleep(0.1)  # its first request is dropped
            begun = time.monotonic()
            accepted: list[socket.socket] = []
            while not (said := select(accepted, [], [], 0)[0]):  # the dialer's hello comes when its thread has its turn
                ready = select([server, *accepted], [], [], WAIT)[0]
                assert ready
                if server in ready:
                    accepted.append(stack.enter_context(server.accept()[0]))
            assert said[0].recv(8)
            assert time.monotonic() - begun < 0.8
            assert not push.cuts


# a dialer that gets its address when no descriptor is left, and the outcome with 0, 1 and enough of them
OUT_OF_DESCRIPTORS = """
    import logging, os, resource, sys
    from nngkit.errors import TimedOut
    from nngkit.protocols import Pull, Push

    logging.getLogger("nngkit.protocols").addHandler(logging.NullHandler())  # a listener warns that it cannot accept
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    def take_all():
        taken = []
        while True:
            try:
                taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                return taken

    with Pull(listen=sys.argv[1]) as pull, Push(reconnect=0.02) as push:
        taken = take_all()
        push.dial(pull.address)
        for free in (0, 1):
            try:
                push.wait_for_peers(1, 0.1)
            except TimedOut:
                print("no peer with", free)
            os.close(taken.pop())
        for file in taken:
            os.close(file)
        push.send(b"connected")
        print(pull.recv(timeout=20).decode())
"""


@pytest.mark.parametrize("wire", ["inproc", "tcp"], indirect=True)
def test_a_dialer_without_descriptors_retries_until_some_are_free(wire: Wire) -> None:
    lines = said(textwrap.dedent(OUT_OF_DESCRIPTORS), wire.address()).splitlines()
    assert lines == ["no peer with 0", "no peer with 1", "connected"]


# a task that waits for a message when no descriptor is left to wake its loop
WITHOUT_DESCRIPTORS = """
    import asyncio, os, resource, sys, threading, trio
    from nngkit.protocols import Pair0

    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    async def main():
        with Pair0(listen="tcp://127.0.0.1:0") as one, Pair0(dial=one.address) as other:
            one.wait_for_peers(1, 20)
            other.wait_for_peers(1, 20)
            taken = []
            while True:
                try:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
                except OSError:
                    break
            threading.Timer(0.2, other.send, (b"came",)).start()
            print((await one.arecv(timeout=20)).decode())
            for file in taken:
                os.close(file)

    asyncio.run(main()) if sys.argv[1] == "asyncio" else trio.run(main)
"""


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_a_task_receives_when_no_descriptor_is_left(library: str) -> None:
    done = run_python(textwrap.dedent(WITHOUT_DESCRIPTORS), library)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["came"]), done.stderr
    # The kernel looks for a free descriptor before it looks for a connection, so the listener may find none: it says
    # so once, however often it tries again.
    assert len(done.stderr.splitlines()) <= 1, done.stderr
    assert not done.stderr or "out of descriptors" in done.stderr


# ---- descriptors -----------------------------------------------------------------------------------------------------

# descriptors left after many cycles of a listener that closes once a peer has connected
CYCLES = """
    import os, sys, time
    from nngkit.protocols import Pair1, TLS

    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    def quiet():
        # some are closed later, on other threads
        last, since = descriptors(), time.monotonic()
        while time.monotonic() - since < 2:
            time.sleep(0.01)
            if (now := descriptors()) < last:
                last, since = now, time.monotonic()
        return last

    def cycle(url):
        with Pair1(listen=url) as listener:
            with Pair1(dial=listener.address) as dialer:
                dialer.wait_for_peers(1, 20)

    url, count = sys.argv[1], int(sys.argv[2])
    for _ in range(20):  # opened once
        cycle(url)
    before = quiet()
    for _ in range(count):
        cycle(url)
    print(quiet() - before)
"""


def left(url: str, cycles: int, seconds: float) -> int:
    return int(said(textwrap.dedent(CYCLES), url, str(cycles), timeout=seconds))


@pytest.mark.slow
def test_a_listener_closed_right_after_a_connection_leaks_no_descriptors() -> None:
    assert left(TCP, 50, WAIT) == 0


@pytest.mark.slow
@pytest.mark.timeout(250)
@pytest.mark.parametrize("wire", ["tcp", "ipc", "ws", "inproc"], indirect=True)
def test_1500_listeners_closed_right_after_a_connection_leak_no_descriptors(wire: Wire) -> None:
    assert left(wire.address(), 1500, 110) == 0


@pytest.mark.parametrize("wire", ["tcp", "ws", "tls+tcp", "wss"], indirect=True)
def test_refused_peers_leak_no_descriptors(wire: Wire) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    with Pull(listen=wire.address(), **wire.options) as pull:

        def connect_and_close(words: bytes, times: int) -> None:
            for _ in range(times):
                with closing(connect(pull.address.replace("wss:", "ws:").replace("tls+tcp:", "tcp:"))) as connection:
                    connection.sendall(words)

        def unknown_peers(times: int) -> None:
            for words in (b"", b"\0SP", hello(PUSH), hello(PAIR0), b"GET / HTTP/1.1\r\n\r\n"):
                connect_and_close(words, times)

        with Push(dial=pull.address, **wire.options) as push:  # the first peer brings descriptors that stay
            push.send(b"x")
            assert pull.recv(timeout=WAIT) == b"x"
        unknown_peers(2)
        eventually(lambda: pull.stats.joined == pull.stats.left)
        before = descriptors()
        unknown_peers(20)
        eventually(lambda: pull.stats.joined == pull.stats.left and descriptors() <= before)


@pytest.mark.parametrize("wire", ["tcp", "ws", "tls+tcp", "wss", "ipc", "abstract", "inproc"], indirect=True)
def test_an_address_is_free_as_soon_as_its_socket_is_closed(wire: Wire) -> None:
    with Pull(listen=wire.address(), **wire.options) as pull:
        url = pull.address
    for _ in range(10):
        with Pull(listen=url, **wire.options) as pull, Push(dial=url, **wire.options) as push:
            push.send(b"x")
            assert pull.recv(timeout=WAIT) == b"x"
