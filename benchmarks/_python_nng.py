"""python-nng (PyPI: nng), NNG in Cython, as its documentation shows it: blocking and under asyncio.

A received `nng.Message` holds NNG's memory; receivers take its bytes, as the others return bytes.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from typing import Any

import nng

from _child import as_many_files_as_allowed, report
from _numbered import Audience, aask_all, areceive_all, ask_all, ask_in_flight, numbered, receive_all, send_all

BUFFER = 1024  # messages of send buffer, as bare pynng has


def _open(kind: Any, task: dict[str, Any], send_buf: int | None = None) -> Any:
    """Open a socket at its end of the task's address; a listener reports its address."""
    as_many_files_as_allowed()
    sock = kind()
    if send_buf is not None:
        sock.send_buf = send_buf
    if task["listens"]:
        listener = sock.add_listener(task["url"])
        listener.start()
        # it has no port, and fails if asked, unless it listens on TCP
        report(url=f"tcp://127.0.0.1:{listener.port}" if task["transport"] == "tcp" else task["url"])
    else:
        sock.add_dialer(task["url"]).start()
    return sock


def push(task: dict[str, Any]) -> None:
    send_all(_open(nng.PushSocket, task, BUFFER).send, task)


def _pull(task: dict[str, Any]) -> Any:
    sock = _open(nng.PullSocket, task)
    if task["transport"] == "inproc":
        threading.Thread(target=push, args=(task | {"listens": False},), daemon=True).start()
    return sock


def pull(task: dict[str, Any]) -> None:
    recv = _pull(task).recv
    receive_all(lambda: recv().to_bytes(), task)


async def pull_asyncio(task: dict[str, Any]) -> None:
    arecv = _pull(task).arecv

    async def once() -> Any:
        return (await arecv()).to_bytes()

    await areceive_all(once, task)


# ---- requests --------------------------------------------------------------------------------------------------------


def reply(task: dict[str, Any]) -> None:
    sock = _open(nng.RepSocket, task)
    while True:
        sock.send(sock.recv())


async def reply_asyncio(task: dict[str, Any]) -> None:
    await _answer(_open(nng.RepSocket, task))


async def _answer(end: Any) -> None:
    while True:
        await end.asend(await end.arecv())


async def reply_many(task: dict[str, Any]) -> None:
    """Reply with as many contexts as there are pending requests."""
    sock = _open(nng.RepSocket, task)
    await asyncio.gather(*(_answer(sock.open_context()) for _ in range(task["flight"])))


def ask(task: dict[str, Any]) -> None:
    sock = _open(nng.ReqSocket, task)

    def once(body: bytes) -> Any:
        sock.send(body)
        return sock.recv().to_bytes()

    ask_all(once, task)


async def _ask(end: Any, body: bytes) -> Any:
    await end.asend(body)
    return (await end.arecv()).to_bytes()


async def ask_asyncio(task: dict[str, Any]) -> None:
    sock = _open(nng.ReqSocket, task)
    await aask_all(lambda body: _ask(sock, body), task)


async def ask_many(task: dict[str, Any]) -> None:
    """Keep ``flight`` requests pending, each on a context."""
    sock = _open(nng.ReqSocket, task)
    free = [sock.open_context() for _ in range(task["flight"])]

    async def once(body: bytes) -> Any:
        context = free.pop()
        answer = await _ask(context, body)
        free.append(context)
        return answer

    await ask_in_flight(once, task)


# ---- publishing ------------------------------------------------------------------------------------------------------


def publish(task: dict[str, Any]) -> None:
    message = numbered(task["size"])
    sock = _open(nng.PubSocket, task, BUFFER)
    while len(sock.pipes) < task["subscribers"]:
        time.sleep(0.01)
    for number in itertools.count(1):
        sock.send(message(number))


def subscribe(task: dict[str, Any]) -> None:
    """Subscribe with a thread for each subscriber."""
    audience = Audience(task)

    def read(place: int) -> None:
        sock = _open(nng.SubSocket, task)
        sock.recv_buf = BUFFER
        sock.subscribe(b"")
        while True:
            audience.add(place, [sock.recv().to_bytes()])

    for place in range(task["subscribers"]):
        threading.Thread(target=read, args=(place,), daemon=True).start()
    while audience.look():
        time.sleep(audience.PAUSE)
