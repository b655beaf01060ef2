"""Receive queues: reading ahead, and what a program that does not receive keeps."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from nngkit.errors import TimedOut
from nngkit.protocols import Bus, Pair0, Pair1, Pub, Pull, Push, Rep, Respondent, Sub
from nngkit.testing import eventually
from tests.protocols.queueing import TCP, number, numbered
from tests.protocols.raw_peer import (
    BUS,
    LENGTH,
    PAIR0,
    PAIR1,
    PUB,
    PULL,
    PUSH,
    REQ,
    SUB,
    SURVEYOR,
    RawPeer,
)
from tests.protocols.wires import WAIT

CHUNK = 256 * 1024  # bytes that may exceed a window: one reception


# ---- a program that does not receive ---------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [8, 100, 300, None], ids=["8", "100", "300", "default"])
def test_sub_keeps_the_newest_and_bus_the_oldest_without_a_receiver(room: int | None) -> None:
    total = 3000
    with (
        Sub(listen=TCP, topics="", recv_buffer=room) as sub,
        Bus(listen=TCP, recv_buffer=room) as bus,
        RawPeer(sub.address, PUB) as publisher,
        RawPeer(bus.address, BUS) as peer,
    ):
        sub.wait_for_peers(1, WAIT)
        bus.wait_for_peers(1, WAIT)
        for one in range(total):
            publisher.send(numbered(one))
            peer.send(numbered(one))
        eventually(lambda: sub.stats.read == bus.stats.read == total)
        kept = room or 1024
        for ours in (sub, bus):
            assert (ours.stats.received, ours.stats.dropped) == (kept, total - kept)
            assert [counted.dropped for counted in ours.pipe_stats.values()] == [total - kept]
        assert [number(sub.recv(timeout=WAIT)) for _ in range(kept)] == list(range(total - kept, total))
        assert [number(bus.recv(timeout=WAIT)) for _ in range(kept)] == list(range(kept))
        with pytest.raises(TimedOut):
            sub.recv(timeout=0)
        with pytest.raises(TimedOut):
            bus.recv(timeout=0)


def read_ahead(ours: Any, least: int) -> int:
    """Return how many messages it has read, once they are at least ``least`` and have had time to become more."""
    eventually(lambda: ours.stats.read >= least)
    time.sleep(0.1)  # there is no event for the end of reading
    return int(ours.stats.read)


AHEAD = pytest.mark.parametrize(
    ("kind", "peer", "header"),
    [
        (Pull, PUSH, b""),
        (Pair0, PAIR0, b""),
        (Pair1, PAIR1, b"\0\0\0\1"),
        (Rep, REQ, b"\x80\0\0\1"),
        (Respondent, SURVEYOR, b"\x80\0\0\1"),
    ],
    ids=["pull", "pair0", "pair1", "rep", "respondent"],
)


@pytest.mark.slow
@AHEAD
@pytest.mark.parametrize("room", [1, 8, 100])
def test_a_flow_controlled_receiver_reads_ahead_to_its_cap_and_holds_the_peer_back(
    kind: Callable[..., Any], peer: int, header: bytes, room: int
) -> None:
    total = 500
    with kind(listen=TCP, recv_buffer=room, linger=0.0) as ours, RawPeer(ours.address, peer) as theirs:
        ours.wait_for_peers(1, WAIT)
        theirs.socket.sendall(b"".join(LENGTH.pack(len(header) + 6) + header + numbered(one) for one in range(total)))
        assert read_ahead(ours, room) == room  # without receive calls
        got = [ours.recv(timeout=WAIT)]
        assert read_ahead(ours, room) <= room + 1
        got += [ours.recv(timeout=WAIT) for _ in range(total - 1)]
        assert [number(getattr(one, "body", one)) for one in got] == list(range(total))
        assert ours.stats.dropped == 0


@pytest.mark.parametrize("room", [8, 100])
def test_reading_ahead_is_shared_among_all_peers(room: int) -> None:
    total = 500
    with Pull(listen=TCP, recv_buffer=room) as pull, ExitStack() as stack:
        peers = [stack.enter_context(RawPeer(pull.address, PUSH)) for _ in range(4)]
        pull.wait_for_peers(4, WAIT)
        for who, peer in enumerate(peers):
            head = LENGTH.pack(8)
            peer.socket.sendall(b"".join(head + b"%d " % who + numbered(one) for one in range(total)))
        assert read_ahead(pull, room) == room
        got = [pull.recv(timeout=WAIT) for _ in range(4 * total)]
    for who in range(4):
        mine = [int(message[2:]) for message in got if message.startswith(b"%d " % who)]
        assert mine == list(range(total))
    half = Counter(message[:1] for message in got[: 2 * total])
    assert min(half[b"%d" % who] for who in range(4)) >= total // 4  # each in turn


@pytest.mark.slow
@AHEAD
def test_recv_window_bounds_the_bytes_that_are_read_ahead(kind: Callable[..., Any], peer: int, header: bytes) -> None:
    window, size = 1 << 20, 1 << 18
    with kind(listen=TCP, recv_window=window, linger=0.0) as ours, RawPeer(ours.address, peer) as theirs:
        ours.wait_for_peers(1, WAIT)
        theirs.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            theirs.socket.sendall((LENGTH.pack(size) + header + b"x" * (size - len(header))) * 200)
        assert window // size <= read_ahead(ours, window // size) <= (window + CHUNK) // size
        for _ in range(10):  # and they do arrive
            ours.recv(timeout=WAIT)


@pytest.mark.parametrize(("kind", "peer"), [(Push, PULL), (Pub, SUB)], ids=["push", "pub"])
def test_a_socket_that_only_sends_reads_and_discards(kind: Callable[..., Any], peer: int) -> None:
    with kind(listen=TCP) as ours, RawPeer(ours.address, peer) as theirs:
        ours.wait_for_peers(1, WAIT)
        theirs.socket.sendall((LENGTH.pack(0) + LENGTH.pack(3) + b"abc") * 1000)
        eventually(lambda: ours.stats.read == 2000)
        ours.send(b"and goes on")
        assert theirs.recv() == b"and goes on"
        assert (ours.stats.received, ours.stats.dropped, ours.stats.bad) == (0, 0, 0)
