"""Python's own sockets: what a round trip costs at least, on this machine.

Many requests of an event loop in three steps: bytes that are echoed in order, without framing (`Pending`); REQ of SP
by hand, before nngkit's Rep, with frames and ids (`Framed`); and the least that keeps what a Req promises (`Promised`).

Messages one way are length and body: a blocking sender, whose send buffer on a Unix socket is as large as nngkit's, and
a receiver that leaves the waiting for all of a body to the system.
"""

from __future__ import annotations

import asyncio
import itertools
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import trio
from _hostile import attack

from _child import report
from _numbered import ask_all, ask_in_flight, receive_all, send_all

MOST = 1 << 16
HELLO = b"\0SP\0\0\x30\0\0"  # of REQ, as long as the peer's
TIMEOUT = 60.0  # seconds of a request
ROOM = 1 << 20  # bytes of a Unix socket's send buffer
_length = struct.Struct(">Q").unpack_from


def _accept(task: dict[str, Any]) -> socket.socket:
    tcp = task["transport"] == "tcp"
    at: Any = ("127.0.0.1", 0) if tcp else task["url"].partition("://")[2]
    with socket.create_server(at, family=socket.AF_INET if tcp else socket.AF_UNIX) as server:
        report(url=f"tcp://127.0.0.1:{server.getsockname()[1]}" if tcp else task["url"])
        sock, _ = server.accept()
    if tcp:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    return sock


def reply(task: dict[str, Any]) -> None:
    sock = _accept(task)
    while request := sock.recv(MOST):
        sock.sendall(request)


def pull(task: dict[str, Any]) -> None:
    sock = _accept(task) if task["listens"] else _connect(task)

    def receive() -> bytes:
        (size,) = _length(sock.recv(8, socket.MSG_WAITALL))
        return sock.recv(size, socket.MSG_WAITALL)

    receive_all(receive, task)


def push(task: dict[str, Any]) -> None:
    sock = _accept(task) if task["listens"] else _connect(task)
    if task["transport"] == "ipc":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)

    def send(body: bytes) -> None:
        sock.sendall(len(body).to_bytes(8, "big"), socket.MSG_MORE)
        sock.sendall(body)

    with suppress(BrokenPipeError, ConnectionResetError):  # the other end has what it needs
        send_all(send, task)


def reply_attacked(task: dict[str, Any]) -> None:
    """Echo what the first peer sends, during an attack: others are accepted, read once, and closed if they leave."""
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as server, select.epoll() as epoll:
        url = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        report(url=url)
        first, _ = server.accept()
        first.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        peers = {first.fileno(): first}
        for each in (server, first):
            epoll.register(each.fileno(), select.EPOLLIN)
        with attack(task["hostile"], url):
            while first.fileno() in peers:
                for number, _ in epoll.poll():
                    if number == server.fileno():
                        peer, _ = server.accept()
                        peers[peer.fileno()] = peer
                        epoll.register(peer.fileno(), select.EPOLLIN)
                        continue
                    try:
                        request = peers[number].recv(MOST)
                    except OSError:
                        request = b""
                    if not request:
                        peers.pop(number).close()
                    elif number == first.fileno():
                        first.sendall(request)


def _connect(task: dict[str, Any]) -> socket.socket:
    at = task["url"].partition("://")[2]
    if task["transport"] == "tcp":
        sock = socket.create_connection(("127.0.0.1", int(at.rpartition(":")[2])))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    else:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(at)
    return sock


def ask(task: dict[str, Any]) -> None:
    sock = _connect(task)

    def once(body: bytes) -> bytes:
        sock.sendall(body)
        return sock.recv(MOST)

    ask_all(once, task)


class Pending:
    """Requests of tasks: those of one turn of the loop are one write, and replies come in their order.

    ``wake(waiter, reply)`` continues a task. There is no framing, id, deadline or repetition.
    """

    def __init__(self, sock: socket.socket, size: int, wake: Callable[[Any, bytes], object]) -> None:
        self._sock = sock
        self._size = size
        self._wake = wake
        self.new: list[bytes] = []
        self.waiting: deque[Any] = deque()
        self._rest = b""

    def write(self) -> None:
        new, self.new = self.new, []
        self._sock.sendall(b"".join(new))

    def read(self) -> None:
        held, size = self._rest + self._sock.recv(MOST), self._size
        whole = len(held) - len(held) % size
        for start in range(0, whole, size):
            self._wake(self.waiting.popleft(), held[start : start + size])
        self._rest = held[whole:]


class Framed:
    """REQ by hand: SP's frames, and an id for each request. ``wake(waiter, reply)`` continues a task."""

    def __init__(self, sock: socket.socket, wake: Callable[[Any, bytes], object]) -> None:
        sock.sendall(HELLO)
        sock.recv(len(HELLO), socket.MSG_WAITALL)
        self._sock = sock
        self._wake = wake
        self.new: list[bytes] = []
        self._ids = itertools.count(1 << 31)
        self._waiting: dict[bytes, Any] = {}
        self._rest = b""

    def add(self, body: bytes, waiter: Any) -> None:
        header = next(self._ids).to_bytes(4, "big")
        self.new.append(header + body)
        self._waiting[header] = waiter

    def write(self) -> None:
        new, self.new = self.new, []
        self._sock.sendall(b"".join([part for each in new for part in (len(each).to_bytes(8, "big"), each)]))

    def read(self) -> None:
        held, at = self._rest + self._sock.recv(MOST), 0
        while at + 8 <= len(held) and (end := at + 8 + _length(held, at)[0]) <= len(held):
            self.take(held[at + 8 : end])
            at = end
        self._rest = held[at:]

    def take(self, message: bytes) -> None:
        self._wake(self._waiting.pop(message[:4]), message[4:])


class Asked:
    """A request in progress: kept whole, to be sent to another peer. ``taken``: it was written."""

    __slots__ = ("header", "message", "reply", "taken", "until", "waiter")

    header: bytes
    message: bytes

    def __init__(self, waiter: Any, until: float) -> None:
        self.waiter = waiter
        self.until = until
        self.reply: bytes | None = None
        self.taken = False


class Promised(Framed):
    """The same with the least that keeps a Req's promises, for one peer that never leaves.

    A request has a deadline (`overdue` looks at all of them), and can be cancelled: it is then not sent, or its reply
    dropped. It is kept to be sent again, and it is known if it was written. Replies are kept before their tasks are
    woken, so that nothing is lost to a cancellation or a signal handler; other threads may close the socket.
    """

    def __init__(self, sock: socket.socket, wake: Callable[[Any, bytes], object]) -> None:
        super().__init__(sock, wake)
        self._lock = threading.Lock()
        self._answered: list[Asked] = []
        self.late = self.received = 0

    def ask(self, asked: Asked, body: bytes) -> None:
        asked.header = header = next(self._ids).to_bytes(4, "big")
        asked.message = message = header + body
        self._waiting[header] = asked
        self.new.append(message)

    def leave(self, asked: Asked) -> None:
        self._waiting.pop(asked.header, None)
        if not asked.taken:
            self.new.remove(asked.message)

    def write(self) -> None:
        with self._lock:
            for message in self.new:
                self._waiting[message[:4]].taken = True
            super().write()

    def read(self) -> None:
        with self._lock:
            super().read()
        answered, self._answered = self._answered, []
        for asked in answered:
            self._wake(asked, b"")

    def take(self, message: bytes) -> None:
        asked = self._waiting.get(message[:4])
        self.received += 1
        if asked is None or asked.reply is not None:
            self.late += 1
        else:
            asked.reply = message[4:]
            self._answered.append(asked)

    def overdue(self) -> None:
        now = time.monotonic()
        for asked in self._waiting.values():
            if asked.until <= now:
                self._wake(asked, b"")


async def ask_many_asyncio(task: dict[str, Any]) -> None:
    loop, sock = asyncio.get_running_loop(), _connect(task)
    pending = Pending(sock, task["size"], asyncio.Future.set_result)
    loop.add_reader(sock, pending.read)

    async def once(body: bytes) -> bytes:
        if not pending.new:
            loop.call_soon(pending.write)
        pending.new.append(body)
        pending.waiting.append(future := loop.create_future())
        return await future

    await ask_in_flight(once, task)


async def ask_framed_asyncio(task: dict[str, Any]) -> None:
    loop, sock = asyncio.get_running_loop(), _connect(task)
    framed = Framed(sock, asyncio.Future.set_result)
    loop.add_reader(sock, framed.read)

    async def once(body: bytes) -> bytes:
        if not framed.new:
            loop.call_soon(framed.write)
        framed.add(body, future := loop.create_future())
        return await future

    await ask_in_flight(once, task)


async def ask_promised_asyncio(task: dict[str, Any]) -> None:
    loop, sock = asyncio.get_running_loop(), _connect(task)

    def wake(asked: Any, _: bytes) -> None:
        if not asked.waiter.done():
            asked.waiter.set_result(None)

    promised = Promised(sock, wake)
    loop.add_reader(sock, promised.read)
    loop.call_later(TIMEOUT, promised.overdue)

    async def once(body: bytes) -> bytes:
        asked = Asked(future := loop.create_future(), time.monotonic() + TIMEOUT)
        try:
            if not promised.new:
                loop.call_soon(promised.write)
            promised.ask(asked, body)
            await future
            if asked.reply is None:
                raise TimeoutError
            return asked.reply
        finally:
            promised.leave(asked)

    await ask_in_flight(once, task)


async def _ask_by_trio(
    task: dict[str, Any], make: Callable[[Any, Any, Callable[[Any, bytes], object]], tuple[Any, Any]]
) -> None:
    """Ask with what `make(socket, replies, wake)` returns: a coroutine function, and a function that reads."""
    lowlevel, sock = trio.lowlevel, _connect(task)
    replies: dict[Any, bytes] = {}

    def wake(waiter: Any, reply: bytes) -> None:
        replies[waiter] = reply
        lowlevel.reschedule(waiter)

    once, take = make(sock, replies, wake)

    async def read() -> None:
        while True:
            await lowlevel.wait_readable(sock)
            take()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await ask_in_flight(once, task)
        nursery.cancel_scope.cancel()


def _pending_by_trio(size: int) -> Callable[..., tuple[Any, Any]]:
    def make(sock: Any, replies: dict[Any, bytes], wake: Any) -> tuple[Any, Any]:
        lowlevel, token = trio.lowlevel, trio.lowlevel.current_trio_token()
        pending = Pending(sock, size, wake)

        async def once(body: bytes) -> bytes:
            if not pending.new:
                token.run_sync_soon(pending.write)
            pending.new.append(body)
            pending.waiting.append(waiter := lowlevel.current_task())
            await lowlevel.wait_task_rescheduled(lambda _: lowlevel.Abort.FAILED)
            return replies.pop(waiter)

        return once, pending.read

    return make


def _framed_by_trio(sock: Any, replies: dict[Any, bytes], wake: Any) -> tuple[Any, Any]:
    lowlevel, token = trio.lowlevel, trio.lowlevel.current_trio_token()
    framed = Framed(sock, wake)

    async def once(body: bytes) -> bytes:
        if not framed.new:
            token.run_sync_soon(framed.write)
        framed.add(body, waiter := lowlevel.current_task())
        await lowlevel.wait_task_rescheduled(lambda _: lowlevel.Abort.FAILED)
        return replies.pop(waiter)

    return once, framed.read


def _promised_by_trio(sock: Any, replies: dict[Any, bytes], _: Any) -> tuple[Any, Any]:
    lowlevel, token = trio.lowlevel, trio.lowlevel.current_trio_token()

    def wake(asked: Asked, _: bytes) -> None:
        task, asked.waiter = asked.waiter, None
        if task is not None:
            lowlevel.reschedule(task)

    promised = Promised(sock, wake)
    alarm = threading.Timer(TIMEOUT, token.run_sync_soon, (promised.overdue,))
    alarm.daemon = True
    alarm.start()

    async def once(body: bytes) -> bytes:
        await lowlevel.checkpoint_if_cancelled()
        asked = Asked(None, time.monotonic() + TIMEOUT)
        try:
            if not promised.new:
                token.run_sync_soon(promised.write)
            promised.ask(asked, body)

            def abort(_: Any) -> Any:
                asked.waiter = None
                return lowlevel.Abort.SUCCEEDED

            asked.waiter = lowlevel.current_task()
            await lowlevel.wait_task_rescheduled(abort)
            if asked.reply is None:
                raise TimeoutError
            return asked.reply
        finally:
            promised.leave(asked)

    return once, promised.read


async def ask_many_trio(task: dict[str, Any]) -> None:
    await _ask_by_trio(task, _pending_by_trio(task["size"]))


async def ask_framed_trio(task: dict[str, Any]) -> None:
    await _ask_by_trio(task, _framed_by_trio)


async def ask_promised_trio(task: dict[str, Any]) -> None:
    await _ask_by_trio(task, _promised_by_trio)
