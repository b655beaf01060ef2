"""pyzmq, as its documentation shows it: blocking and under asyncio. High-water marks at their default, 1,000."""

from __future__ import annotations

import asyncio
import itertools
import threading
from contextlib import suppress
from typing import Any

import zmq
import zmq.asyncio
from _filled import fill, sum_all
from _prefixes import Received, change, prefixes, send_at_pace, send_each

from _child import as_many_files_as_allowed, report
from _numbered import (
    STEP,
    Audience,
    aask_all,
    areceive_all,
    asend_all,
    ask_all,
    ask_in_flight,
    hold,
    numbered,
    receive_all,
    receive_crowd,
    send_all,
    send_crowd,
)


def _open(kind: int, task: dict[str, Any], context: Any = None, hwm: int | None = None) -> Any:
    """Open a socket at its end of the task's address; a listener reports its address."""
    as_many_files_as_allowed()
    sock = (context or zmq.Context()).socket(kind)
    if hwm is not None:
        sock.set_hwm(hwm)
    said: dict[str, str] = {}
    if task["transport"] == "curve":
        public, secret = zmq.curve_keypair()
        sock.curve_publickey, sock.curve_secretkey = public, secret
        if task["listens"]:
            sock.curve_server = True
            said["server_key"] = public.decode()
        else:
            sock.curve_serverkey = task["server_key"].encode()
    if task["listens"]:
        sock.bind(task["url"])
        report(url=sock.getsockopt_string(zmq.LAST_ENDPOINT), **said)
    else:
        sock.connect(task["url"])
    return sock


def push(task: dict[str, Any], context: Any = None) -> None:
    send_all(_open(zmq.PUSH, task, context).send, task)


def push_filled(task: dict[str, Any]) -> None:
    """Fill arrays and send them, of which each is copied."""
    sock, array = _open(zmq.PUSH, task), bytearray(task["size"])
    for number in itertools.count():
        fill(array, number)
        sock.send(array)


def push_arrays(task: dict[str, Any]) -> None:
    """Fill an array for each message, which libzmq keeps until it is sent."""
    sock = _open(zmq.PUSH, task)
    for number in itertools.count():
        fill(array := bytearray(task["size"]), number)
        sock.send(array, copy=False)


def pull_filled(task: dict[str, Any]) -> None:
    sum_all(_open(zmq.PULL, task).recv, task)


def pull_frames(task: dict[str, Any]) -> None:
    recv = _open(zmq.PULL, task).recv
    sum_all(lambda: recv(copy=False).buffer, task)


async def push_asyncio(task: dict[str, Any]) -> None:
    send = _open(zmq.PUSH, task, zmq.asyncio.Context()).send
    if task.get("rate") or task.get("idle"):
        await asend_all(send, task)

    async def send_and_let_others_run(message: bytes) -> None:
        # a send that does not wait never yields to the loop, which watches libzmq's descriptor
        nonlocal count
        await send(message)
        count += 1
        if count % STEP == 0:
            await asyncio.sleep(0)

    count = 0
    await asend_all(send_and_let_others_run, task)


def _beside(task: dict[str, Any], context: Any) -> None:
    """Start the sender in a thread of this process, for inproc."""
    if task["transport"] == "inproc":
        threading.Thread(target=push, args=(task | {"listens": False}, context), daemon=True).start()


def pull(task: dict[str, Any]) -> None:
    context = zmq.Context()
    sock = _open(zmq.PULL, task, context)
    _beside(task, context)
    receive_all(sock.recv, task)


async def pull_asyncio(task: dict[str, Any]) -> None:
    context = zmq.asyncio.Context()
    sock = _open(zmq.PULL, task, context)
    _beside(task, zmq.Context(context))

    async def let_others_run() -> None:
        await asyncio.sleep(0)

    await areceive_all(sock.recv, task, let_others_run)


def _with_room_for(task: dict[str, Any]) -> Any:
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, max(1024, 2 * task["peers"]))
    return context


def pull_crowd(task: dict[str, Any]) -> None:
    receive_crowd(_open(zmq.PULL, task, _with_room_for(task)).recv, task)


def push_crowd(task: dict[str, Any]) -> None:
    """Send from ``peers`` sockets of this one process."""
    context = _with_room_for(task)
    send_crowd([_open(zmq.PUSH, task, context).send for _ in range(task["peers"])], task)


def hold_crowd(task: dict[str, Any]) -> None:
    hold(_open(zmq.PULL, task, _with_room_for(task)).recv, task)


def publish(task: dict[str, Any]) -> None:
    message = numbered(task["size"])
    sock = _open(zmq.PUB, task)
    for number in itertools.count(1):
        sock.send(message(number))


def subscribe(task: dict[str, Any]) -> None:
    """Subscribe with one thread that polls all subscribers."""
    context, poller, places = zmq.Context(), zmq.Poller(), {}
    for place in range(task["subscribers"]):
        sock = _open(zmq.SUB, task, context)
        sock.subscribe(b"")
        poller.register(sock, zmq.POLLIN)
        places[sock] = place
    audience = Audience(task)
    while audience.look():
        for sock, _ in poller.poll():
            messages = []
            with suppress(zmq.Again):
                for _ in range(STEP):
                    messages.append(sock.recv(zmq.NOBLOCK))  # noqa: PERF401 - messages before Again are kept
            if messages:
                audience.add(places[sock], messages)


def publish_topics(task: dict[str, Any]) -> None:
    """Publish once all subscriptions have arrived: this publisher filters."""
    sock = _open(zmq.XPUB, task, hwm=0)
    for _ in range(task["prefixes"]):
        sock.recv()
    send_at_pace(send_each(sock.send), task)


def subscribe_topics(task: dict[str, Any]) -> None:
    """Receive from a publisher of many topics. Unlimited queues, as a subscription that finds one full is dropped."""
    sock = _open(zmq.SUB, task, hwm=0)
    for each in prefixes(task):
        sock.subscribe(each)
    received = Received(task)
    while received.add([sock.recv() for _ in range(STEP)]):
        pass


def change_topics(task: dict[str, Any]) -> None:
    """Change the topics of a subscriber with a publisher, as subscriptions are sent to it."""
    context = zmq.Context()
    publisher = context.socket(zmq.PUB)
    publisher.bind("inproc://bench")
    sock = context.socket(zmq.SUB)
    sock.connect("inproc://bench")
    change(sock.subscribe, sock.unsubscribe, task)


def reply(task: dict[str, Any]) -> None:
    sock = _open(zmq.REP, task)
    while True:
        sock.send(sock.recv())


def ask(task: dict[str, Any]) -> None:
    sock = _open(zmq.REQ, task)

    def once(body: bytes) -> Any:
        sock.send(body)
        return sock.recv()

    ask_all(once, task)


async def ask_asyncio(task: dict[str, Any]) -> None:
    sock = _open(zmq.REQ, task, zmq.asyncio.Context())

    async def once(body: bytes) -> Any:
        await sock.send(body)
        return await sock.recv()

    await aask_all(once, task)


async def reply_asyncio(task: dict[str, Any]) -> None:
    sock = _open(zmq.REP, task, zmq.asyncio.Context())
    while True:
        await sock.send(await sock.recv())


async def reply_many_asyncio(task: dict[str, Any]) -> None:
    sock = _open(zmq.ROUTER, task, zmq.asyncio.Context())
    count = 0
    while True:
        await sock.send_multipart(await sock.recv_multipart())
        count += 1
        if count % STEP == 0:
            await asyncio.sleep(0)


async def ask_many_asyncio(task: dict[str, Any]) -> None:
    """Keep ``flight`` requests pending on one DEALER, matched by a leading id, as in ZeroMQ's guide."""
    sock = _open(zmq.DEALER, task, zmq.asyncio.Context())
    waiting: dict[bytes, asyncio.Future[bytes]] = {}
    loop = asyncio.get_running_loop()
    ids = itertools.count()

    async def take() -> None:
        for count in itertools.count(1):
            number, answer = await sock.recv_multipart()
            waiting.pop(number).set_result(answer)
            if count % STEP == 0:
                await asyncio.sleep(0)

    async def once(body: bytes) -> bytes:
        number = next(ids).to_bytes(4, "big")
        future = waiting[number] = loop.create_future()
        await sock.send_multipart([number, body])
        return await future

    taking = asyncio.create_task(take())
    await ask_in_flight(once, task)
    taking.cancel()
