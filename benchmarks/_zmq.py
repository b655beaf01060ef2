"""pyzmq, as its documentation shows it: blocking and under asyncio. High-water marks at their default, 1,000."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import zmq
import zmq.asyncio

from _child import Audience, Meter, numbered, say, stop_watch, stop_watch_async

NOTE = 64  # messages between two yields of an asyncio loop, or from one of several sockets, that always has more


def _bound(sock: Any, url: str) -> Any:
    sock.bind(url)
    say(url=sock.getsockopt_string(zmq.LAST_ENDPOINT))
    return sock


def push(task: dict[str, Any], context: Any = None) -> None:
    body = b"x" * task["size"]
    sock = (context or zmq.Context()).socket(zmq.PUSH)
    sock.connect(task["url"])
    while True:
        sock.send(body)


def pull(task: dict[str, Any]) -> None:
    context = zmq.Context()
    sock, meter = _bound(context.socket(zmq.PULL), task["url"]), Meter(task["seconds"])
    if task["transport"] == "inproc":
        threading.Thread(target=push, args=(task, context), daemon=True).start()
    step = 256 if task["size"] < 1 << 16 else 1
    while meter.add(step):
        for _ in range(step):
            sock.recv()


async def _apull(task: dict[str, Any]) -> None:
    context = zmq.asyncio.Context()
    sock, meter = _bound(context.socket(zmq.PULL), task["url"]), Meter(task["seconds"])
    if task["transport"] == "inproc":
        threading.Thread(target=push, args=(task, zmq.Context(context)), daemon=True).start()
    step = NOTE if task["size"] < 1 << 16 else 1
    while meter.add(step):
        for _ in range(step):
            await sock.recv()
        await asyncio.sleep(0)


def pull_asyncio(task: dict[str, Any]) -> None:
    asyncio.run(_apull(task))


def publish(task: dict[str, Any]) -> None:
    message, number = numbered(task["size"]), 0
    sock = _bound(zmq.Context().socket(zmq.PUB), task["url"])
    while True:
        sock.send(message(number))
        number += 1


def subscribe(task: dict[str, Any]) -> None:
    """One thread, which reads what there is from each subscriber that has something."""
    context, poller, places = zmq.Context(), zmq.Poller(), {}
    for place in range(task["subscribers"]):
        sock = context.socket(zmq.SUB)
        sock.subscribe(b"")
        sock.connect(task["url"])
        poller.register(sock, zmq.POLLIN)
        places[sock] = place
    audience = Audience(task["seconds"], len(places))
    counts = [0] * len(places)
    while audience.look():
        for sock, _ in poller.poll():
            place, last = places[sock], b""
            with suppress(zmq.Again):
                for _ in range(NOTE):
                    last = sock.recv(zmq.NOBLOCK)
                    counts[place] += 1
            if last:
                audience.heard[place] = counts[place], last


def reply(task: dict[str, Any]) -> None:
    sock = _bound(zmq.Context().socket(zmq.REP), task["url"])
    while True:
        sock.send(sock.recv())


def ask(task: dict[str, Any]) -> None:
    body = b"x" * task["size"]
    sock = zmq.Context().socket(zmq.REQ)
    sock.connect(task["url"])

    def once() -> None:
        sock.send(body)
        sock.recv()

    stop_watch(once, task["seconds"])


async def _aask(task: dict[str, Any]) -> None:
    body = b"x" * task["size"]
    sock = zmq.asyncio.Context().socket(zmq.REQ)
    sock.connect(task["url"])

    async def once() -> None:
        await sock.send(body)
        await sock.recv()

    await stop_watch_async(once, task["seconds"])


def ask_asyncio(task: dict[str, Any]) -> None:
    asyncio.run(_aask(task))


async def _route(task: dict[str, Any]) -> None:
    sock = _bound(zmq.asyncio.Context().socket(zmq.ROUTER), task["url"])
    count = 0
    while True:
        await sock.send_multipart(await sock.recv_multipart())
        count += 1
        if count % NOTE == 0:
            await asyncio.sleep(0)


def reply_many(task: dict[str, Any]) -> None:
    asyncio.run(_route(task))


async def _deal(task: dict[str, Any]) -> None:
    """``flight`` requests at a time over one DEALER, matched by an id in front, as ZeroMQ's guide has it."""
    body, meter = b"x" * task["size"], Meter(task["seconds"])
    sock = zmq.asyncio.Context().socket(zmq.DEALER)
    sock.connect(task["url"])
    waiting: dict[bytes, asyncio.Future[bytes]] = {}
    loop = asyncio.get_running_loop()
    done = last = 0

    async def take() -> None:
        count = 0
        while True:
            number, answer = await sock.recv_multipart()
            waiting.pop(number).set_result(answer)
            count += 1
            if count % NOTE == 0:
                await asyncio.sleep(0)

    async def keep_asking() -> None:
        nonlocal done, last
        while True:
            last += 1
            number = last.to_bytes(4, "big")
            future = waiting[number] = loop.create_future()
            await sock.send_multipart([number, body])
            await future
            done += 1

    tasks = [asyncio.create_task(take()), *(asyncio.create_task(keep_asking()) for _ in range(task["flight"]))]
    seen = 0
    while meter.add(done - seen):
        seen = done
        await asyncio.sleep(0.01)
    for each in tasks:
        each.cancel()


def ask_many(task: dict[str, Any]) -> None:
    asyncio.run(_deal(task))
