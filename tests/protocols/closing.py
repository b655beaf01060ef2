"""A process that closes sockets under load, from threads and tasks; run by test_close_stress.

    python closing.py COUNT SEED

Six workers (two threads, two trio tasks, two asyncio tasks) send, receive, request and reply on the current pair of
sockets. The main thread creates pairs, on all transports, and one of three places closes them at a random moment.
Prints the number of closes and the workers' outcomes. faulthandler ends a hang with all stacks; an abort ends the
process by itself.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import queue
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import trio
import trustme

from nngkit.errors import Closed, NngkitError
from nngkit.protocols import TLS, Bus, Pair0, Pair1, Pub, Pull, Push, Rep, Req, Respondent, Sub, Surveyor

COUNT, SEED = int(sys.argv[1]), int(sys.argv[2])
chance = random.Random(SEED)
current: list[Any] = []
seen: Counter[str] = Counter()
over = threading.Event()
NAP = 0.0003  # seconds between tries on a closed socket, so that the workers leave the CPU to the closing
HOLD = 0.05  # seconds any one call of a worker may last, so that workers move on to the next pair

PAIRS: list[tuple[Any, dict[str, Any], Any, dict[str, Any]]] = [  # listener, dialer
    (Push, {}, Pull, {}),
    (Push, {"batch": True}, Pull, {"batch": True}),
    (Bus, {"batch": True}, Bus, {"batch": True}),
    (Pair0, {}, Pair0, {}),
    (Pair1, {}, Pair1, {}),
    (Bus, {}, Bus, {}),
    (Pub, {}, Sub, {"topics": ""}),
    (Rep, {}, Req, {}),
    (Surveyor, {}, Respondent, {}),
]
SCHEMES = ("tcp", "inproc", "ipc", "ws", "tls+tcp", "wss")


def tls() -> TLS:
    """Settings for both ends: each presents a certificate for localhost and requires one."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    return TLS(
        ca=authority.cert_pem.bytes(),
        cert=certificate.cert_chain_pems[0].bytes(),
        key=certificate.private_key_pem.bytes(),
        server_name="localhost",
    )


def pair(identity: TLS, folder: str) -> tuple[Any, Any]:
    """Return two sockets that are about to connect."""
    scheme = chance.choice(SCHEMES)
    url = {
        "tcp": "tcp://127.0.0.1:0",
        "tls+tcp": "tls+tcp://127.0.0.1:0",
        "ws": "ws://127.0.0.1:0/brick",
        "wss": "wss://127.0.0.1:0/brick",
    }.get(scheme, f"{scheme}://{folder}/{chance.random()}")
    both: dict[str, Any] = {"linger": 0.0, "tls": identity if scheme in ("tls+tcp", "wss") else None}
    kind, ours, other, theirs = chance.choice(PAIRS)
    one = kind(listen=url, **both, **ours)
    return one, other(dial=one.address, **both, **theirs)


def sends(socket: Any) -> bool:
    return isinstance(socket, (Push, Pub)) or (isinstance(socket, (Pair0, Pair1, Bus)) and random.random() < 0.5)


def blocking(socket: Any) -> None:
    if isinstance(socket, Req):
        socket.request(b"q", timeout=HOLD)
    elif isinstance(socket, Surveyor):
        socket.survey(b"q", timeout=0.002)
    elif isinstance(socket, (Rep, Respondent)):
        socket.recv(timeout=HOLD).reply(b"a")
    elif sends(socket):
        socket.send_many([b"x" * 100] * 20, timeout=HOLD)
    else:
        socket.recv_many(timeout=HOLD)


async def awaiting(socket: Any) -> None:
    if isinstance(socket, Req):
        await socket.arequest(b"q", timeout=HOLD)
    elif isinstance(socket, Surveyor):
        await socket.asurvey(b"q", timeout=0.002)
    elif isinstance(socket, (Rep, Respondent)):
        await (await socket.arecv(timeout=HOLD)).areply(b"a")
    elif sends(socket):
        await socket.asend_many([b"x" * 100] * 20, timeout=HOLD)
    else:
        await socket.arecv_many(timeout=HOLD)


def note(failure: NngkitError) -> None:
    seen[type(failure).__name__] += 1


def thread_worker(side: int) -> None:
    while not over.is_set():
        try:
            blocking(current[0][side])
            seen["done"] += 1
        except NngkitError as failure:
            note(failure)
            time.sleep(NAP)


async def task_worker(side: int, rest: Callable[[float], Any]) -> None:
    while not over.is_set():
        try:
            await awaiting(current[0][side])
            seen["done"] += 1
        except NngkitError as failure:
            note(failure)
            await rest(NAP)


async def closer(box: queue.SimpleQueue[Any], done: queue.SimpleQueue[None], rest: Callable[[float], Any]) -> None:
    while not over.is_set():
        try:
            socket = box.get_nowait()
        except queue.Empty:
            await rest(0.001)
            continue
        await socket.aclose()
        done.put(None)


def main() -> None:
    faulthandler.dump_traceback_later(540 + COUNT / 20, exit=True)
    boxes: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue(), queue.SimpleQueue()]
    done: queue.SimpleQueue[None] = queue.SimpleQueue()

    folder = tempfile.mkdtemp(prefix="closing")
    new = partial(pair, tls(), folder)
    current.append(new())

    async def in_trio() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(task_worker, 0, trio.sleep)
            nursery.start_soon(task_worker, 1, trio.sleep)
            nursery.start_soon(closer, boxes[0], done, trio.sleep)

    async def in_asyncio() -> None:
        await asyncio.gather(
            task_worker(0, asyncio.sleep), task_worker(1, asyncio.sleep), closer(boxes[1], done, asyncio.sleep)
        )

    threads = [threading.Thread(target=thread_worker, args=(side,)) for side in (0, 1)]
    threads += [threading.Thread(target=trio.run, args=(in_trio,))]
    threads += [threading.Thread(target=lambda: asyncio.run(in_asyncio()))]
    for thread in threads:
        thread.start()
    closes = 0
    while closes < COUNT:
        old = current[0]
        time.sleep(chance.random() * 0.003)  # the random moment
        if chance.random() < 0.5:
            current[0] = new()
        for socket in old if chance.random() < 0.5 else old[::-1]:
            where = chance.randrange(3)
            if where == 2:
                socket.close()
            else:
                boxes[where].put(socket)
                try:
                    done.get(timeout=30)
                except queue.Empty:
                    faulthandler.dump_traceback()
                    sys.stderr.write(f"a close hangs: {socket!r}\n")
                    sys.stderr.flush()
                    os._exit(1)
            closes += 1
        if current[0] is old:
            current[0] = new()
    over.set()
    for socket in current[0]:
        socket.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a worker hangs"
    assert seen["Closed"], "no close was ever met by a worker"
    shutil.rmtree(folder)
    sys.stdout.write(f"{closes} {dict(seen)}\n")


if __name__ == "__main__":
    try:
        main()
    except Closed as surprise:  # no caller should see it here
        raise SystemExit(f"closed under the main thread: {surprise}") from surprise
