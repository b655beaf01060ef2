"""Bare pynng, as its documentation shows it: blocking, under trio and under asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pynng
import trio

from _child import Audience, Meter, as_many_files_as_allowed, numbered, peak, say, stop_watch, stop_watch_async

LARGEST = 1 << 22  # bytes; unlimited is pynng's default, and no one's choice
BUFFER = 1024  # messages of send buffer that make a sender saturate; without one all of NNG hands over one by one


def push(task: dict[str, Any], buffer: int = BUFFER) -> None:
    """The saturating sender of every one-way measurement on NNG: blocking, with a send buffer."""
    body = b"x" * task["size"]
    with pynng.Push0(send_buffer_size=buffer, dial=task["url"]) as sock:
        while True:
            sock.send(body)


def push_without_buffer(task: dict[str, Any]) -> None:
    push(task, 0)


def _wait_for_peers(sock: Any, count: int) -> None:
    while len(sock.pipes) < count:
        time.sleep(0.01)


def _pull(task: dict[str, Any]) -> Any:
    as_many_files_as_allowed()
    sock = pynng.Pull0(recv_max_size=LARGEST, listen=task["url"])
    say(url=sock.listeners[0].url)
    _wait_for_peers(sock, task.get("peers", 0))
    if task["transport"] == "inproc":
        threading.Thread(target=push, args=(task,), daemon=True).start()
    return sock


def pull(task: dict[str, Any]) -> None:
    sock, meter = _pull(task), Meter(task["seconds"])
    step = 16 if task["size"] < 1 << 16 else 1
    while meter.add(step):
        for _ in range(step):
            sock.recv()


async def _apull(task: dict[str, Any]) -> None:
    sock, meter = _pull(task), Meter(task["seconds"])
    step = 16 if task["size"] < 1 << 16 else 1
    while meter.add(step):
        for _ in range(step):
            await sock.arecv()


def pull_trio(task: dict[str, Any]) -> None:
    trio.run(_apull, task)


def pull_asyncio(task: dict[str, Any]) -> None:
    asyncio.run(_apull(task))


# ---- requests --------------------------------------------------------------------------------------------------------


def reply(task: dict[str, Any]) -> None:
    """The one server of all round trips on NNG, so that only the client differs: blocking, the fastest pynng has."""
    with pynng.Rep0(recv_max_size=LARGEST, listen=task["url"]) as sock:
        say(url=sock.listeners[0].url)
        while True:
            sock.send(sock.recv())


async def _areply(task: dict[str, Any]) -> None:
    with pynng.Rep0(recv_max_size=LARGEST, listen=task["url"]) as sock:
        say(url=sock.listeners[0].url)
        while True:
            await sock.asend(await sock.arecv())


def reply_trio(task: dict[str, Any]) -> None:
    trio.run(_areply, task)


def reply_measured(task: dict[str, Any]) -> None:
    """Answers ``peers`` that ask, and is itself what is measured."""
    as_many_files_as_allowed()
    with pynng.Rep0(recv_max_size=LARGEST, listen=task["url"]) as sock:
        say(url=sock.listeners[0].url)
        _wait_for_peers(sock, task["peers"])
        meter = Meter(task["seconds"])
        while meter.add(1):
            sock.send(sock.recv())


def ask(task: dict[str, Any]) -> None:
    body = b"x" * task["size"]
    with pynng.Req0(recv_max_size=LARGEST, dial=task["url"]) as sock:

        def once() -> None:
            sock.send(body)
            sock.recv()

        stop_watch(once, task["seconds"])


async def _aask(task: dict[str, Any]) -> None:
    body = b"x" * task["size"]
    with pynng.Req0(recv_max_size=LARGEST, dial=task["url"]) as sock:

        async def once() -> None:
            await sock.asend(body)
            await sock.arecv()

        await stop_watch_async(once, task["seconds"])


def ask_trio(task: dict[str, Any]) -> None:
    trio.run(_aask, task)


def ask_asyncio(task: dict[str, Any]) -> None:
    asyncio.run(_aask(task))


def _in_contexts(work: Callable[[Any], Awaitable[None]], sock: Any, count: int, meanwhile: Any = None) -> None:
    async def one() -> None:
        with sock.new_context() as context:
            while True:
                await work(context)

    async def all_of_them() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(one)
            if meanwhile is not None:
                await meanwhile()
                nursery.cancel_scope.cancel()

    trio.run(all_of_them)


def reply_many(task: dict[str, Any]) -> None:
    """A server with as many contexts as there are requests in flight."""

    async def work(context: Any) -> None:
        await context.asend(await context.arecv())

    with pynng.Rep0(recv_max_size=LARGEST, listen=task["url"]) as sock:
        say(url=sock.listeners[0].url)
        _in_contexts(work, sock, task["flight"])


def ask_many(task: dict[str, Any]) -> None:
    """``flight`` requests at a time, a context each."""
    body, meter = b"x" * task["size"], Meter(task["seconds"])
    done = 0

    async def work(context: Any) -> None:
        nonlocal done
        await context.asend(body)
        await context.arecv()
        done += 1

    async def watch() -> None:
        nonlocal done
        seen = 0
        while meter.add(done - seen):
            seen = done
            await trio.sleep(0.01)

    with pynng.Req0(recv_max_size=LARGEST, dial=task["url"]) as sock:
        _in_contexts(work, sock, task["flight"], watch)


# ---- publishing ------------------------------------------------------------------------------------------------------


def publish(task: dict[str, Any]) -> None:
    message, number = numbered(task["size"]), 0
    with pynng.Pub0(send_buffer_size=BUFFER, listen=task["url"]) as sock:
        say(url=sock.listeners[0].url)
        _wait_for_peers(sock, task["subscribers"])
        while True:
            sock.send(message(number))
            number += 1


def subscribe(task: dict[str, Any]) -> None:
    """A thread for each subscriber."""
    audience = Audience(task["seconds"], task["subscribers"])

    def read(place: int) -> None:
        with pynng.Sub0(recv_buffer_size=BUFFER, topics=b"", dial=task["url"]) as sock:
            count = 0
            while True:
                message = sock.recv()
                count += 1
                audience.heard[place] = count, message

    for place in range(task["subscribers"]):
        threading.Thread(target=read, args=(place,), daemon=True).start()
    while audience.look():
        time.sleep(audience.PAUSE)


# ---- surveys ---------------------------------------------------------------------------------------------------------


def respond(task: dict[str, Any]) -> None:
    """``respondents`` connections of one raw respondent: it answers each survey on each of them at once."""
    as_many_files_as_allowed()
    lib, ffi = pynng.lib, pynng.ffi
    sock = pynng.Respondent0(opener=lib.nng_respondent0_open_raw, recv_buffer_size=8192, send_buffer_size=8192)
    for _ in range(task["respondents"]):
        sock.dial(task["url"], block=False)
    slot = ffi.new("nng_msg **")
    while not lib.nng_recvmsg(sock.socket, slot, 0):
        if lib.nng_sendmsg(sock.socket, slot[0], 0):  # the header is the way back, the body is the question
            lib.nng_msg_free(slot[0])


def survey(task: dict[str, Any]) -> None:
    """A cooked surveyor that asks all there are and reads until it has heard all, or its time is over."""
    as_many_files_as_allowed()
    with pynng.Surveyor0(survey_time=500, listen=task["url"]) as sock:
        say(url=sock.listeners[0].url)
        _wait_for_peers(sock, task["expected"])
        took, heard, used = [], 0, time.process_time()
        for _ in range(5):
            start = last = time.perf_counter()
            sock.send(b"?")
            with suppress(pynng.Timeout):
                for _ in range(task["expected"]):
                    sock.recv()
                    heard += 1
                    last = time.perf_counter()
            took.append(last - start)
        took.sort()
        say(
            p50_us=took[2] * 1e6,
            cpu_us=(time.process_time() - used) / 5 * 1e6,
            part=heard / 5 / task["expected"],
            rss_mib=peak(),
        )
