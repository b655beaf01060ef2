"""Many peers at minimal cost: plain TCP sockets of one process, with just enough of SP or ZMTP.

An SP connection begins with eight bytes each way, ``00 "SP" 00``, the protocol's number and two zero bytes; then every
message is its length in eight bytes, big-endian, and its body. A request's body begins with an id of four bytes, the
top bit set, which its reply repeats. A ZMTP 3.0 connection begins with a greeting of 64 bytes each way and a READY
command; a small message is a zero byte, its length in one byte, and its body.

The messages of a peer are numbered from 0 to 16 repeatedly and name their sender (``_numbered.Roll``).
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from _child import as_many_files_as_allowed
from _numbered import CROWD_TURN, member_message, wrong

PUSH, REQ = 80, 48  # SP's protocol numbers
# Messages passed to the kernel at once: a thousand peers saturate better with 510 than with 64 (103,000 and 66,000 a
# second, medians of seven); an effect on the receiver's cost a message could not be distinguished from noise.
BURST = 510 // CROWD_TURN * CROWD_TURN
ROOM = 16384  # bytes of a connection's send buffer: a thousand of them must fit into the kernel's memory
ID = struct.pack(">I", 1 << 31)

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
READY = b"\x05READY" + b"\x0bSocket-Type" + struct.pack(">I", 4) + b"PUSH" + b"\x08Identity" + bytes(4)


def _sp_frame(body: bytes) -> bytes:
    return struct.pack(">Q", len(body)) + body


def _zmtp_frame(body: bytes) -> bytes:
    assert len(body) < 256, "longer messages have another frame"
    return bytes((0, len(body))) + body


def _say_hello_in_sp(peer: socket.socket, protocol: int = PUSH) -> None:
    peer.sendall(b"\0SP\0" + struct.pack(">HH", protocol, 0))
    peer.recv(8, socket.MSG_WAITALL)


def _say_hello_in_zmtp(peer: socket.socket) -> None:
    peer.sendall(GREETING)
    peer.recv(len(GREETING), socket.MSG_WAITALL)
    peer.sendall(bytes((4, len(READY))) + READY)
    head = peer.recv(2, socket.MSG_WAITALL)
    peer.recv(head[1], socket.MSG_WAITALL)


def _connected(task: dict[str, Any], hello: Callable[[socket.socket], None]) -> dict[int, socket.socket]:
    """Return ``peers`` connections after their handshake, by descriptor."""
    as_many_files_as_allowed()
    address = urlsplit(task["url"])
    crowd = {}
    for _ in range(task["peers"]):
        peer = socket.create_connection((address.hostname, address.port))
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        hello(peer)
        peer.setblocking(False)
        crowd[peer.fileno()] = peer
    return crowd


def _push(task: dict[str, Any], crowd: dict[int, socket.socket], frame: Callable[[bytes], bytes]) -> None:
    """Send from all peers as fast as the receiver reads."""
    bursts = {}
    for fd in crowd:
        turn = b"".join(frame(member_message(number, fd, task["size"])) for number in range(CROWD_TURN))
        bursts[fd] = memoryview(turn * (BURST // CROWD_TURN))
    written = dict.fromkeys(crowd, 0)  # bytes of the burst
    poll = select.epoll()
    for fd in crowd:
        poll.register(fd, select.EPOLLOUT)
    with suppress(ConnectionError):  # the receiver has finished measuring
        while True:
            for fd, _ in poll.poll(maxevents=len(crowd)):
                burst = bursts[fd]
                written[fd] = (written[fd] + crowd[fd].send(burst[written[fd] :])) % len(burst)


def push(task: dict[str, Any]) -> None:
    _push(task, _connected(task, _say_hello_in_sp), _sp_frame)


def push_zmtp(task: dict[str, Any]) -> None:
    _push(task, _connected(task, _say_hello_in_zmtp), _zmtp_frame)


def _rest(task: dict[str, Any], crowd: dict[int, socket.socket], frame: Callable[[bytes], bytes]) -> None:
    """Send one message from each peer, then stay idle."""
    for fd, peer in crowd.items():
        peer.send(frame(member_message(0, fd, task["size"])))
    time.sleep(1e6)


def rest(task: dict[str, Any]) -> None:
    _rest(task, _connected(task, _say_hello_in_sp), _sp_frame)


def rest_zmtp(task: dict[str, Any]) -> None:
    _rest(task, _connected(task, _say_hello_in_zmtp), _zmtp_frame)


def ask(task: dict[str, Any]) -> None:
    """Send a request from each peer as soon as its last reply has arrived; check that it repeats the request."""
    crowd = _connected(task, lambda peer: _say_hello_in_sp(peer, REQ))
    requests = {fd: _sp_frame(ID + member_message(0, fd, task["size"])) for fd in crowd}
    read = dict.fromkeys(crowd, b"")  # part of the reply, which is as long as the request
    poll = select.epoll()
    for fd, peer in crowd.items():
        poll.register(fd, select.EPOLLIN)
        peer.send(requests[fd])
    with suppress(ConnectionError):
        while True:
            for fd, _ in poll.poll(maxevents=len(crowd)):
                request = requests[fd]
                if not (came := crowd[fd].recv(len(request))):
                    return
                if len(whole := read[fd] + came) < len(request):
                    read[fd] = whole
                    continue
                if whole != request:
                    wrong(whole, request)
                read[fd] = b""
                crowd[fd].send(request)
