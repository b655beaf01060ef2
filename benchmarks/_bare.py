"""Python's own sockets, without framing or protocol: what a round trip costs at least, on this machine."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

import trio

from _child import report
from _numbered import ask_all, ask_in_flight

MOST = 1 << 16


def reply(task: dict[str, Any]) -> None:
    tcp = task["transport"] == "tcp"
    at: Any = ("127.0.0.1", 0) if tcp else task["url"].partition("://")[2]
    with socket.create_server(at, family=socket.AF_INET if tcp else socket.AF_UNIX) as server:
        report(url=f"tcp://127.0.0.1:{server.getsockname()[1]}" if tcp else task["url"])
        sock, _ = server.accept()
        if tcp:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        while request := sock.recv(MOST):
            sock.sendall(request)


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


async def _ask_many(task: dict[str, Any]) -> None:
    loop, sock, tasks = asyncio.get_running_loop(), _connect(task), set()
    pending = Pending(sock, task["size"], asyncio.Future.set_result)
    loop.add_reader(sock, pending.read)

    async def once(body: bytes) -> bytes:
        if not pending.new:
            loop.call_soon(pending.write)
        pending.new.append(body)
        pending.waiting.append(future := loop.create_future())
        return await future

    await ask_in_flight(once, task, lambda each: tasks.add(loop.create_task(each())), asyncio.sleep)


def ask_many_asyncio(task: dict[str, Any]) -> None:
    asyncio.run(_ask_many(task))


async def _ask_many_trio(task: dict[str, Any]) -> None:
    lowlevel, sock = trio.lowlevel, _connect(task)
    token = lowlevel.current_trio_token()
    replies: dict[Any, bytes] = {}

    def wake(waiter: Any, reply: bytes) -> None:
        replies[waiter] = reply
        lowlevel.reschedule(waiter)

    pending = Pending(sock, task["size"], wake)

    async def once(body: bytes) -> bytes:
        if not pending.new:
            token.run_sync_soon(pending.write)
        pending.new.append(body)
        pending.waiting.append(waiter := lowlevel.current_task())
        await lowlevel.wait_task_rescheduled(lambda _: lowlevel.Abort.FAILED)
        return replies.pop(waiter)

    async def read() -> None:
        while True:
            await lowlevel.wait_readable(sock)
            pending.read()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await ask_in_flight(once, task, nursery.start_soon, trio.sleep)
        nursery.cancel_scope.cancel()


def ask_many_trio(task: dict[str, Any]) -> None:
    trio.run(_ask_many_trio, task)
