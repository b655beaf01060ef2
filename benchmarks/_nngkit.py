"""nngkit's own ways, through its public door."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pynng
import trio

from _child import (
    RUN_IN,
    Audience,
    Meter,
    as_many_files_as_allowed,
    numbered,
    peak,
    resident,
    say,
    stop_watch,
    stop_watch_async,
)
from nngkit.protocols import Batch, Pub, Pull, Push, Rep, Req, Sub, Surveyor

LARGEST = 1 << 22


def _batch(task: dict[str, Any]) -> Batch | bool | None:
    """``batch`` of a task: true, or what a Batch is made of."""
    batch = task.get("batch")
    return Batch(**batch) if isinstance(batch, dict) else batch


def push(task: dict[str, Any]) -> None:
    """One message a call, blocking."""
    body = b"x" * task["size"]
    with Push(dial=task["url"], batch=_batch(task)) as sock:
        while True:
            sock.send(body)


def push_many(task: dict[str, Any]) -> None:
    bodies = [b"x" * task["size"]] * task.get("many", 256)
    with Push(dial=task["url"], batch=_batch(task)) as sock:
        while True:
            sock.send_many(bodies)


async def _apush(task: dict[str, Any]) -> None:
    body = b"x" * task["size"]
    async with Push(dial=task["url"], batch=_batch(task)) as sock:
        while True:
            await sock.asend(body)


def push_trio(task: dict[str, Any]) -> None:
    trio.run(_apush, task)


def push_asyncio(task: dict[str, Any]) -> None:
    asyncio.run(_apush(task))


def _pull(task: dict[str, Any], **options: Any) -> Pull:
    as_many_files_as_allowed()
    pull = Pull(listen=task["url"], recv_max_size=LARGEST, batch=_batch(task), **options)
    say(url=pull.address)
    pull.wait_for_peers(task.get("peers", 0), 60.0)
    if task["transport"] == "inproc":
        threading.Thread(target=push, args=(task,), daemon=True).start()
    return pull


def _step(task: dict[str, Any]) -> int:
    if task["size"] >= 1 << 16:
        return 1
    return 1024 if task.get("batch") else 64


def pull_lent(task: dict[str, Any]) -> None:
    pull(task, copy=False)


def pull_far_ahead(task: dict[str, Any]) -> None:
    pull(task, recv_window=1 << 22)


def pull(task: dict[str, Any], **options: Any) -> None:
    sock, meter, step = _pull(task, **options), Meter(task["seconds"]), _step(task)
    while meter.add(step):
        for _ in range(step):
            sock.recv()


def pull_many(task: dict[str, Any]) -> None:
    sock, meter = _pull(task), Meter(task["seconds"])
    while meter.add(len(sock.recv_many(8192))):
        pass


def pull_in_steps(task: dict[str, Any]) -> None:
    """Figures for each of ``steps`` equal parts of ``messages``."""
    sock, clock = _pull(task), time.perf_counter
    warm = clock() + RUN_IN
    while clock() < warm:
        sock.recv_many(8192)
    for _ in range(task["steps"]):
        count, begin, used = 0, clock(), time.process_time()
        while count < task["messages"] // task["steps"]:
            count += len(sock.recv_many(8192))
        cpu = time.process_time() - used
        say(per_second=count / (clock() - begin), cpu_us=cpu / count * 1e6, now_mib=resident())


def pull_many_with_more_threads(task: dict[str, Any]) -> None:
    """With as many threads for NNG's callbacks as it starts by itself."""
    lib = pynng.lib
    lib.nng_init_set_parameter(lib.NNG_INIT_NUM_TASK_THREADS, min(16, 2 * len(os.sched_getaffinity(0))))
    pull_many(task)


async def _apull(task: dict[str, Any]) -> None:
    sock, meter, step = _pull(task), Meter(task["seconds"]), _step(task)
    while meter.add(step):
        for _ in range(step):
            await sock.arecv()


async def _apull_for(task: dict[str, Any]) -> None:
    sock, meter, step = _pull(task), Meter(task["seconds"]), _step(task)
    count = 0
    async for _ in sock:
        count += 1
        if count == step:
            if not meter.add(count):
                return
            count = 0


async def _apull_many(task: dict[str, Any]) -> None:
    sock, meter = _pull(task), Meter(task["seconds"])
    while meter.add(len(await sock.arecv_many(8192))):
        pass


def pull_trio(task: dict[str, Any]) -> None:
    trio.run(_apull, task)


def pull_asyncio(task: dict[str, Any]) -> None:
    asyncio.run(_apull(task))


def pull_for_trio(task: dict[str, Any]) -> None:
    trio.run(_apull_for, task)


def pull_for_asyncio(task: dict[str, Any]) -> None:
    asyncio.run(_apull_for(task))


def pull_many_trio(task: dict[str, Any]) -> None:
    trio.run(_apull_many, task)


def pull_many_asyncio(task: dict[str, Any]) -> None:
    asyncio.run(_apull_many(task))


# ---- requests --------------------------------------------------------------------------------------------------------


def reply(task: dict[str, Any]) -> None:
    with Rep(listen=task["url"], recv_max_size=LARGEST) as rep:
        say(url=rep.address)
        for request in rep:
            request.reply(request.body)


async def _areply(task: dict[str, Any]) -> None:
    async with Rep(listen=task["url"], recv_max_size=LARGEST) as rep:
        say(url=rep.address)
        async for request in rep:
            await request.areply(request.body)


def reply_trio(task: dict[str, Any]) -> None:
    trio.run(_areply, task)


def reply_measured(task: dict[str, Any]) -> None:
    """Answers ``peers`` that ask, and is itself what is measured."""
    as_many_files_as_allowed()
    with Rep(listen=task["url"], recv_max_size=LARGEST) as rep:
        say(url=rep.address)
        rep.wait_for_peers(task["peers"], 60.0)
        meter = Meter(task["seconds"])
        for request in rep:
            request.reply(request.body)
            if not meter.add(1):
                return


def ask(task: dict[str, Any]) -> None:
    body = b"x" * task["size"]
    with Req(dial=task["url"], recv_max_size=LARGEST) as req:
        stop_watch(lambda: req.request(body), task["seconds"])


async def _aask(task: dict[str, Any]) -> None:
    body = b"x" * task["size"]
    async with Req(dial=task["url"], recv_max_size=LARGEST) as req:
        await stop_watch_async(lambda: req.arequest(body), task["seconds"])


def ask_trio(task: dict[str, Any]) -> None:
    trio.run(_aask, task)


def ask_asyncio(task: dict[str, Any]) -> None:
    asyncio.run(_aask(task))


async def _ask_many(
    task: dict[str, Any], spawn: Callable[[Any], None], sleep: Callable[[float], Awaitable[None]]
) -> None:
    body, meter = b"x" * task["size"], Meter(task["seconds"])
    done = seen = 0
    async with Req(dial=task["url"], recv_max_size=LARGEST) as req:

        async def keep_asking() -> None:
            nonlocal done
            while True:
                await req.arequest(body)
                done += 1

        for _ in range(task["flight"]):
            spawn(keep_asking)
        while meter.add(done - seen):
            seen = done
            await sleep(0.01)


def ask_many_trio(task: dict[str, Any]) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await _ask_many(task, nursery.start_soon, trio.sleep)

    trio.run(main)


def ask_many_asyncio(task: dict[str, Any]) -> None:
    async def main() -> None:
        tasks: list[asyncio.Task[None]] = []
        await _ask_many(task, lambda function: tasks.append(asyncio.create_task(function())), asyncio.sleep)

    asyncio.run(main())


# ---- publishing ------------------------------------------------------------------------------------------------------


def publish(task: dict[str, Any]) -> None:
    message, number = numbered(task["size"]), 0
    with Pub(listen=task["url"], batch=_batch(task)) as pub:
        say(url=pub.address)
        pub.wait_for_peers(task["subscribers"], 60.0)
        while True:
            pub.send(message(number))
            number += 1


async def _apublish(task: dict[str, Any]) -> None:
    message, number = numbered(task["size"]), 0
    async with Pub(listen=task["url"]) as pub:
        say(url=pub.address)
        await pub.await_for_peers(task["subscribers"], 60.0)
        while True:
            await pub.asend(message(number))
            number += 1


def publish_trio(task: dict[str, Any]) -> None:
    trio.run(_apublish, task)


def _subs(task: dict[str, Any]) -> list[Sub]:
    return [Sub(dial=task["url"], topics=b"", batch=_batch(task)) for _ in range(task["subscribers"])]


def subscribe(task: dict[str, Any]) -> None:
    """A thread for each subscriber."""
    subs = _subs(task)
    audience = Audience(task["seconds"], len(subs))

    def read(place: int, sub: Sub) -> None:
        count = 0
        while True:
            messages = sub.recv_many(1024)
            count += len(messages)
            audience.heard[place] = count, messages[-1]

    for place, sub in enumerate(subs):
        threading.Thread(target=read, args=(place, sub), daemon=True).start()
    while audience.look():
        time.sleep(audience.PAUSE)


async def _asubscribe(task: dict[str, Any]) -> None:
    subs = _subs(task)
    audience = Audience(task["seconds"], len(subs))

    async def read(place: int, sub: Sub) -> None:
        count = 0
        while True:
            messages = await sub.arecv_many(1024)
            count += len(messages)
            audience.heard[place] = count, messages[-1]

    async with trio.open_nursery() as nursery:
        for place, sub in enumerate(subs):
            nursery.start_soon(read, place, sub)
        while True:
            await trio.sleep(audience.PAUSE)
            if not audience.look():
                nursery.cancel_scope.cancel()
                return


def subscribe_trio(task: dict[str, Any]) -> None:
    trio.run(_asubscribe, task)


# ---- surveys ---------------------------------------------------------------------------------------------------------


def survey(task: dict[str, Any]) -> None:
    """Surveys of all there are: the median time until the last reply, and the CPU of a survey."""
    as_many_files_as_allowed()
    with Surveyor(listen=task["url"]) as surveyor:
        say(url=surveyor.address)
        surveyor.wait_for_peers(task["expected"], 60.0)
        surveyor.survey(b"?", timeout=20.0, early=True)
        took, cpu, answered = [], [], 0
        for _ in range(task.get("surveys", 5)):
            used = time.process_time()
            result = surveyor.survey(b"?", timeout=20.0, early=True)
            cpu.append(time.process_time() - used)
            took.append(result.elapsed)
            answered += result.answered
        took.sort(), cpu.sort()
        say(
            p50_us=took[len(took) // 2] * 1e6,
            cpu_us=cpu[len(cpu) // 2] * 1e6,
            part=answered / len(took) / task["expected"],
            rss_mib=peak(),
        )
