"""TCP connections to peers that cannot be reached: the kernel's timers. Outages are in test_outages.py."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from nngkit.errors import TimedOut
from nngkit.protocols import Pair0, Pull, Push
from nngkit.protocols._core import peer_watch as _peer_watch
from nngkit.protocols._nng import descriptors as _descriptors
from nngkit.testing import eventually
from nngkit.testing.wires import Wire
from tests.protocols.wires import WAIT

pytestmark = pytest.mark.skipif(not _descriptors.available, reason="descriptors are looked up on Linux only")

KEEPALIVE = socket.SO_KEEPALIVE, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT


def keepalive(one: socket.SocketType) -> list[int]:
    return [
        one.getsockopt(socket.SOL_SOCKET, KEEPALIVE[0]),
        *(one.getsockopt(socket.IPPROTO_TCP, option) for option in KEEPALIVE[1:]),
    ]


def longest_retransmission(one: socket.SocketType) -> int | None:
    """Return the milliseconds between two retransmissions at most; None from kernels before 6.15."""
    assert _peer_watch.TCP_RTO_MAX_MS is not None
    try:
        return one.getsockopt(socket.IPPROTO_TCP, _peer_watch.TCP_RTO_MAX_MS)
    except OSError:
        return None


def descriptor(sock: Any) -> int:
    """Return the descriptor of the socket's only connection."""
    sock.wait_for_peers(1, WAIT)
    (connection,) = sock._state.joined()
    number = eventually(lambda: connection.descriptor)  # under TLS it is searched for later
    assert isinstance(number, int)
    return number


@pytest.mark.parametrize("wire", ["tcp", "ws", "tls+tcp", "wss"], indirect=True)
@pytest.mark.parametrize(
    ("timeout", "times", "retransmission"),
    [(10.0, [1, 3, 1, 9], 1_000), (3.0, [1, 1, 1, 3], 1_000), (600.0, [1, 180, 60, 9], 119_000)],
)
def test_the_kernel_asks_both_peers_often_enough(
    wire: Wire, timeout: float, times: list[int], retransmission: int
) -> None:
    options = {"peer_timeout": timeout, **wire.options}
    with Pair0(listen=wire.address(), **options) as one, Pair0(dial=one.address, **options) as other:
        numbers = descriptor(one), descriptor(other)
        assert numbers[0] != numbers[1]
        for number in numbers:  # under TLS the watch sets them just after it has noted the descriptor
            eventually(lambda number=number: _descriptors.ask(number, keepalive) == times)  # type: ignore[misc]
            eventually(
                lambda number=number: _descriptors.ask(number, longest_retransmission) in (retransmission, None)  # type: ignore[misc]
            )


def test_without_a_peer_timeout_the_system_decides() -> None:
    with socket.socket() as plain, Pair0(listen="tcp://127.0.0.1:0", peer_timeout=None) as one:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        with Pair0(dial=one.address) as other:
            other.wait_for_peers(1, WAIT)
            assert _descriptors.ask(descriptor(one), keepalive) == keepalive(plain)
            assert _descriptors.ask(descriptor(one), longest_retransmission) == longest_retransmission(plain)
            assert _descriptors.ask(descriptor(other), keepalive) != keepalive(plain)


def test_an_ended_connection_is_cut_with_its_reason_and_dialed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with Pair0(listen="tcp://127.0.0.1:0") as one, Pair0(dial=one.address, peer_timeout=3.0) as other:
        other.wait_for_peers(1, WAIT)
        events: list[tuple[str, str]] = []
        other.on_peer(lambda event: events.append((event.kind, event.reason)))
        monkeypatch.setattr(_peer_watch, "is_gone", lambda *_: True)
        eventually(lambda: events)
        monkeypatch.undo()
        eventually(lambda: len(events) >= 2 and other.pipes)
        assert events[0] == ("left", "no answer for 3 s")
        assert events[1][0] == "joined"
        assert other.cuts[0].reason == "no answer for 3 s"
        assert other.cuts[0].address == one.address
        assert other.stats.cut == len(other.cuts)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["tcp", "ws"])
def test_what_the_kernel_holds_when_a_sender_closes_reaches_a_peer_that_reads_later(scheme: str) -> None:
    """With pauses of a second the kernel gave up a closed connection after 1.4 s in which the peer did not read."""
    with Pull(listen=f"{scheme}://127.0.0.1:0", recv_buffer=1, recv_window=1) as pull:
        with Push(dial=pull.address, linger=0.0) as push:
            push.wait_for_peers(1, WAIT)
            for number in range(8_000):  # more than the kernel takes
                if not sends(push, b"%d " % number + bytes(1000)):
                    break
            push.close()
        time.sleep(6.0)  # the time in which the peer does not read
        received = [int(pull.recv(timeout=WAIT).partition(b" ")[0]) for _ in range(push.stats.written)]
        assert received == list(range(len(received)))
        assert len(received) > 1000


def sends(push: Push, message: bytes) -> bool:
    try:
        push.send(message, timeout=0.5)
    except TimedOut:
        return False
    return True
