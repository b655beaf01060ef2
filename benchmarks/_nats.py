"""NATS: a server for each measurement (``_contenders.py``), and nats-py, which uses asyncio, at both ends.

NATS has no backpressure: slow receivers are disconnected or lose messages. If no message may be lost, the receiver
acknowledges blocks of messages, and the sender waits while too many are outstanding.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import nats
import nats.micro
from _presence import PAUSE, times
from _restarted import WAIT, Restarted

from _child import fail, report
from _numbered import Audience, aask_all, asend_all, ask_in_flight, numbered, taker

SUBJECT, TAKEN = "bench", "bench.taken"
BLOCK = 4096  # messages between acknowledgements
BLOCK_BYTES = 1 << 22
BLOCKS = 8  # maximum outstanding; nats-py buffers 524,288 messages and 128 MiB, and drops the rest


def _block(task: dict[str, Any]) -> int:
    return max(1, min(BLOCK, BLOCK_BYTES // int(task["size"])))


async def _failed(error: Exception) -> None:
    fail(f"NATS: {error!r}")


async def _connected(task: dict[str, Any]) -> Any:
    return await nats.connect(task["url"], error_cb=_failed, allow_reconnect=False)


async def push(task: dict[str, Any]) -> None:
    client = await _connected(task)
    room, count, block = asyncio.Semaphore(BLOCKS), 0, _block(task)

    async def taken(_: Any) -> None:
        room.release()

    await client.subscribe(TAKEN, cb=taken)

    async def send(message: bytes) -> None:
        nonlocal count
        if count % block == 0:
            await room.acquire()
            await asyncio.sleep(0)
        count += 1
        await client.publish(SUBJECT, message)

    await asend_all(send, task)


async def pull(task: dict[str, Any]) -> None:
    client, take = await _connected(task), taker(task)
    count, block = 0, _block(task)

    async def came(message: Any) -> None:
        nonlocal count
        count += 1
        if count % block == 0:
            await client.publish(TAKEN, b"")
        take(message.data)

    await client.subscribe(SUBJECT, cb=came)
    await client.flush()
    report(url=task["url"])
    await asyncio.Event().wait()


async def reply(task: dict[str, Any]) -> None:
    client = await _connected(task)

    async def answer(message: Any) -> None:
        await message.respond(message.data)

    await client.subscribe(SUBJECT, cb=answer)
    await client.flush()
    report(url=task["url"])
    await asyncio.Event().wait()


async def ask(task: dict[str, Any]) -> None:
    client = await _connected(task)

    async def once(body: bytes) -> Any:
        return (await client.request(SUBJECT, body, timeout=30)).data

    if "flight" not in task:
        await aask_all(once, task)
        return
    await ask_in_flight(once, task)


async def publish(task: dict[str, Any]) -> None:
    client, message = await _connected(task), numbered(task["size"])
    report(url=task["url"])
    for number in itertools.count(1):
        await client.publish(SUBJECT, message(number))
        if number % 64 == 0:
            await asyncio.sleep(0)  # publish does not yield while its buffer has space, and the loop does the writing


async def subscribe(task: dict[str, Any]) -> None:
    audience = Audience(task)

    async def subscribe_one(place: int) -> None:
        async def came(message: Any) -> None:
            audience.add(place, [message.data])

        client = await _connected(task)
        await client.subscribe(SUBJECT, cb=came)

    for place in range(task["subscribers"]):
        await subscribe_one(place)
    while audience.look():  # noqa: ASYNC110 - a fixed interval
        await asyncio.sleep(audience.PAUSE)


async def micro(task: dict[str, Any]) -> None:
    """Reply with a service of NATS micro."""
    client = await _connected(task)
    service = await nats.micro.add_service(client, name="bench", version="1.0.0")

    async def answer(request: Any) -> None:
        await request.respond(request.data)

    await service.add_endpoint(name="echo", subject=SUBJECT, handler=answer)
    await client.flush()
    report(url=task["url"])
    await asyncio.Event().wait()


async def announce(task: dict[str, Any]) -> None:
    """Run `count` services, named after `first` and the following numbers, on one connection."""
    client = await _connected(task)

    async def answer(request: Any) -> None:
        await request.respond(request.data)

    for number in range(task["first"], task["first"] + task["count"]):
        service = await nats.micro.add_service(client, name=f"s{number}", version="1.0.0")
        await service.add_endpoint(name="echo", subject=f"{SUBJECT}.{number}", handler=answer)
    await client.flush()
    report(ready=task["count"])
    await asyncio.Event().wait()


async def killed_of(task: dict[str, Any]) -> None:
    """Kill one service among `services` others, `rounds` times; report when the server has noticed."""
    report(url=task["url"])
    client = await _connected(task)
    victim = Restarted(task, "_nats:announce_asyncio", first=1 << 20, count=1)
    crowd = Restarted(task, "_nats:announce_asyncio", first=0, count=task["services"])
    subject = f"{SUBJECT}.{1 << 20}"

    async def wait(there: bool) -> float:
        """Ask every half millisecond until the server says that the subject has a responder, or none."""
        began, over = time.perf_counter(), asyncio.Event()

        async def ask() -> None:
            try:
                await client.request(subject, b"", timeout=WAIT)
                answered = True
            except nats.errors.NoRespondersError:
                answered = False
            if answered == there:
                over.set()

        asked = []
        while not over.is_set():
            asked.append(asyncio.create_task(ask()))
            await asyncio.sleep(0.0005)
        took = time.perf_counter() - began
        for each in asked:  # requests that the victim has taken with it
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        return took

    found, gone = [], []
    try:
        await asyncio.to_thread(crowd.start)
        for _ in range(task["rounds"]):
            await asyncio.to_thread(victim.start)
            found.append(await wait(True))
            await asyncio.sleep(PAUSE)
            victim.process.kill()
            gone.append(await wait(False))
            await asyncio.to_thread(victim.kill)
    finally:
        victim.kill()
        crowd.kill()
    report(**times(found, gone))
