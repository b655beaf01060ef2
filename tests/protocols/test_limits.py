"""Limits of time and number for unknown peers, on every transport, while honest peers are served."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import pytest

from nngkit.protocols import Bus, Pair1, Pub, Pull, Push, Rep, Sub
from nngkit.testing import Wire, eventually
from tests.protocols.raw_peer import (
    BUS,
    LENGTH,
    PAIR0,
    PAIR1,
    PUB,
    PUSH,
    REQ,
    SUB,
    RawPeer,
    connect,
    hello,
    http_head,
    read,
    upgrade_request,
)
from tests.protocols.wires import WAIT

TCP = "tcp://127.0.0.1:0"
SHORT = 0.2  # seconds: a short limit
LONG = 5.0  # seconds after which anything limited to SHORT has ended, on any machine

networks = pytest.mark.parametrize("wire", ["tcp", "tcp6", "ipc", "abstract", "ws", "wss", "tls+tcp"], indirect=True)


def plain(address: str) -> socket.socket:
    """Return a connection to ``address`` on which nothing was sent, no TLS either."""
    return connect(address.replace("wss:", "ws:").replace("tls+tcp:", "tcp:").replace("tcp6:", "tcp:"))


def closed_after(connection: socket.socket) -> float:
    """Return the seconds until the other side closes it."""
    start = time.monotonic()
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return time.monotonic() - start


def works(pull: Pull, wire: Wire) -> None:
    """Check that an honest peer is served."""
    with Push(dial=pull.address, **wire.options) as push:
        push.send(b"honest")
        assert pull.recv(timeout=WAIT) == b"honest"


# ---- handshake_timeout -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@networks
@pytest.mark.parametrize("begun", [False, True], ids=["nothing", "one byte"])
def test_a_peer_without_a_hello_in_time_is_cut(wire: Wire, begun: bool) -> None:
    first = {"ws": b"G", "wss": b"\x16", "tls+tcp": b"\x16"}.get(wire.transport, b"\0")
    with (
        Pull(listen=wire.address(), handshake_timeout=SHORT, **wire.options) as pull,
        closing(plain(pull.address)) as stranger,
    ):
        stranger.sendall(first if begun else b"")
        works(pull, wire)  # no other peer has to wait for it
        assert closed_after(stranger) < LONG
        eventually(lambda: pull.stats.cut == 1)
        assert pull.cuts[0].reason == f"no handshake in {SHORT} s"
        works(pull, wire)
        assert (pull.stats.joined, pull.stats.bad, pull.stats.cut) == (2, 0, 1)


def test_a_slowly_written_http_request_is_cut() -> None:
    request = upgrade_request("127.0.0.1", "/", "pull.sp.nanomsg.org")
    with Pull(listen="ws://127.0.0.1:0", handshake_timeout=SHORT) as pull, closing(connect(pull.address)) as slow:

        def drip() -> None:
            for byte in request:
                try:
                    slow.sendall(bytes([byte]))
                except OSError:
                    return
                time.sleep(0.05)  # far longer than the limit for all of them

        dripping = threading.Thread(target=drip)
        start = time.monotonic()
        dripping.start()
        eventually(lambda: pull.stats.cut == 1)
        assert time.monotonic() - start < LONG
        dripping.join(WAIT)


@pytest.mark.parametrize("wire", ["tcp", "ws", "tls+tcp"], indirect=True)
def test_a_dialer_waits_no_longer_for_a_silent_listener(wire: Wire) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WAIT)
        address = wire.address(server.getsockname()[1])
        with (
            Push(dial=address, handshake_timeout=SHORT, reconnect=0.02, **wire.options) as push,
            closing(server.accept()[0]),
            closing(server.accept()[0]),  # it has given up and returned
        ):
            assert push.stats.joined == 0


def test_without_the_limit_a_silent_peer_may_stay() -> None:
    with (
        Pull(listen=TCP, handshake_timeout=None, idle_timeout=SHORT) as pull,
        closing(connect(pull.address)) as slow,
        RawPeer(pull.address, PUSH) as idle,
    ):
        idle.socket.sendall(LENGTH.pack(5) + b"x")
        assert closed_after(idle.socket) < LONG  # by which time the other one would be cut too
        slow.sendall(hello(PUSH) + LENGTH.pack(4) + b"late")
        assert pull.recv(timeout=WAIT) == b"late"


# ---- idle_timeout ----------------------------------------------------------------------------------------------------

KINDS = [(Pull, PUSH), (Push, 81), (Sub, PUB), (Pub, SUB), (Bus, BUS), (Pair1, PAIR1), (Rep, REQ)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "peer"), KINDS, ids=[kind.__name__ for kind, _ in KINDS])
@pytest.mark.parametrize("half", [LENGTH.pack(500)[:3], LENGTH.pack(500) + b"x", LENGTH.pack(100_000) + b"x" * 20_000])
def test_a_peer_with_an_incomplete_message_is_cut_after_the_limit(
    kind: Callable[..., Any], peer: int, half: bytes
) -> None:
    with kind(listen=TCP, idle_timeout=SHORT, linger=0.0) as ours, RawPeer(ours.address, peer) as silent:
        ours.wait_for_peers(1, WAIT)
        silent.socket.sendall(half)
        took = closed_after(silent.socket)
        assert SHORT * 0.8 <= took < LONG
        eventually(lambda: (ours.stats.cut, ours.stats.left) == (1, 1))
        assert ours.cuts[0].reason == f"incomplete message, nothing received for {SHORT} s"
        assert ours.cuts[0].address == "tcp://{}:{}".format(*silent.socket.getsockname())
        assert ours.stats.bad == 0


def test_a_peer_with_an_incomplete_websocket_frame_is_cut_after_the_limit() -> None:
    with Pull(listen="ws://127.0.0.1:0", idle_timeout=SHORT) as pull, closing(connect(pull.address)) as silent:
        silent.sendall(upgrade_request("127.0.0.1", "/", "pull.sp.nanomsg.org"))
        http_head(silent)
        pull.wait_for_peers(1, WAIT)
        silent.sendall(b"\x82\x84mask" + b"xx")
        assert closed_after(silent) < LONG
        eventually(lambda: (pull.stats.cut, pull.stats.left) == (1, 1))


def test_a_peer_silent_between_messages_or_slow_within_one_is_not_cut() -> None:
    with (
        Pull(listen=TCP, idle_timeout=SHORT) as pull,
        RawPeer(pull.address, PUSH) as between,
        RawPeer(pull.address, PUSH) as slow,
        RawPeer(pull.address, PUSH) as silent,
    ):
        pull.wait_for_peers(3, WAIT)
        between.send(b"one")
        assert pull.recv(timeout=WAIT) == b"one"
        silent.socket.sendall(LENGTH.pack(5))
        frame = LENGTH.pack(22) + b"a byte now and then ..."
        for byte in frame[:-1]:  # three times the limit in all
            slow.socket.sendall(bytes([byte]))
            time.sleep(SHORT / 10)
        assert closed_after(silent.socket) < LONG
        assert pull.recv(timeout=WAIT) == b"a byte now and then ..."[:22]
        between.send(b"two")
        assert pull.recv(timeout=WAIT) == b"two"
        eventually(lambda: pull.stats.left == 1)
        assert pull.stats.cut == 1


def test_a_peer_that_is_held_back_is_not_cut() -> None:
    with (
        Pull(listen=TCP, idle_timeout=SHORT, recv_buffer=1) as pull,
        RawPeer(pull.address, PUSH) as patient,
    ):
        pull.wait_for_peers(1, WAIT)
        frame = LENGTH.pack(7) + b"waiting"
        patient.socket.sendall(frame * 3 + frame[:10])
        eventually(lambda: pull.stats.read == 1)
        time.sleep(SHORT * 4)  # nothing must happen
        assert pull.stats.cut == 0
        assert [pull.recv(timeout=WAIT) for _ in range(3)] == [b"waiting"] * 3
        patient.socket.sendall(frame[10:])
        assert pull.recv(timeout=WAIT) == b"waiting"


# ---- max_pipes, max_pipes_per_host -----------------------------------------------------------------------------------


def was_refused(connection: socket.socket) -> bool:
    """Return True if it was closed after a hello at most."""
    said = b""
    try:
        while more := connection.recv(4096):
            said += more
    except ConnectionResetError:
        pass
    return said in (b"", hello(80), hello(81))


@networks
def test_connections_over_max_pipes_are_refused(wire: Wire) -> None:
    with Pull(listen=wire.address(), max_pipes=2, **wire.options) as pull:
        with Push(dial=pull.address, **wire.options) as one, Push(dial=pull.address, **wire.options) as two:
            pull.wait_for_peers(2, WAIT)
            with closing(plain(pull.address)) as third:
                assert was_refused(third)
            eventually(lambda: pull.stats.cut == 1)
            assert pull.cuts[0].reason == "more than 2 connections"
            for push in (one, two):
                push.send(b"still here")
                assert pull.recv(timeout=WAIT) == b"still here"
            one.close()
            eventually(lambda: pull.stats.left == 1)
            works(pull, wire)
        assert (pull.stats.joined, pull.stats.bad) == (3, 0)


def test_max_pipes_counts_connections_without_a_hello_but_not_those_we_dial() -> None:
    with (
        Push(listen=TCP, linger=0.0) as there,
        Pull(listen=TCP, max_pipes=2) as pull,
        ExitStack() as stack,
    ):
        silent = [stack.enter_context(closing(connect(pull.address))) for _ in range(2)]
        for one in silent:
            assert read(one, 8) == hello(80 + 1)
        with closing(connect(pull.address)) as third:
            assert was_refused(third)
        pull.dial(there.address)
        there.send(b"dialed")
        assert pull.recv(timeout=WAIT) == b"dialed"


def from_host(host: str, address: str) -> socket.socket:
    """Return a connection to ``address`` from another of this machine's own addresses."""
    port = int(address.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=WAIT, source_address=(host, 0))


def test_connections_over_max_pipes_per_host_are_refused() -> None:
    with Pull(listen=TCP, max_pipes_per_host=2) as pull, ExitStack() as stack:
        peers = []
        for host in ("127.0.0.1", "127.0.0.1", "127.0.0.2"):
            peer = stack.enter_context(closing(from_host(host, pull.address)))
            peer.sendall(hello(PUSH))
            peers.append(peer)
        pull.wait_for_peers(3, WAIT)
        with closing(from_host("127.0.0.1", pull.address)) as third:
            third.sendall(hello(PUSH))
            assert was_refused(third)
            eventually(lambda: pull.stats.cut == 1)
            assert pull.cuts[0].reason == "more than 2 connections from 127.0.0.1"
            assert pull.cuts[0].address == "tcp://{}:{}".format(*third.getsockname())
        peers[0].close()
        eventually(lambda: pull.stats.left == 1)
        with closing(from_host("127.0.0.1", pull.address)) as next_one:
            next_one.sendall(hello(PUSH) + LENGTH.pack(4) + b"next")
            assert pull.recv(timeout=WAIT) == b"next"
        assert (pull.stats.joined, pull.stats.refused) == (4, 0)


def test_simultaneous_connections_over_max_pipes_per_host_are_refused() -> None:
    with Pull(listen=TCP, max_pipes_per_host=3) as pull, ExitStack() as stack:
        peers = [stack.enter_context(closing(connect(pull.address))) for _ in range(40)]
        for peer in peers:
            peer.sendall(hello(PUSH))
        eventually(lambda: pull.stats.joined + pull.stats.cut == 40)
        assert (pull.stats.joined, pull.stats.pipes) == (3, 3)


def test_all_connections_of_a_unix_socket_are_one_host(sockets: Any) -> None:
    with Pull(listen=Wire("ipc", sockets).address(), max_pipes_per_host=1) as pull, RawPeer(pull.address, PUSH):
        pull.wait_for_peers(1, WAIT)
        with closing(connect(pull.address)) as second:
            second.sendall(hello(PUSH))
            assert was_refused(second)


# ---- cuts ------------------------------------------------------------------------------------------------------------


def test_the_last_64_cuts_are_kept_and_all_are_counted() -> None:
    with Pull(listen=TCP) as pull:
        assert not pull.cuts
        for count in range(1, 71):
            with closing(connect(pull.address)) as stranger:
                stranger.sendall(hello(PAIR0) if count > 6 else b"GET / HTTP/1.1\r\n")
                eventually(lambda count=count: pull.stats.cut == count)  # type: ignore[misc]
        assert len(pull.cuts) == 64
        cuts = pull.cuts
        assert {one.reason for one in cuts} == {"bad hello: pair instead of push"}
        assert (pull.stats.bad, pull.stats.joined) == (70, 0)
        times = [one.time for one in cuts]
        assert times == sorted(times)
        assert times[-1] <= time.monotonic()
