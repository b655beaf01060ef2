"""Measurements of nngkit, through its public API."""

from __future__ import annotations

import itertools
import threading
import time
from functools import cache
from typing import Any, TypeVar

import trio
from _filled import fill, mark, sum_all
from _hostile import attack
from _prefixes import Received, change, prefixes, send_at_pace

from _child import Meter, as_many_files_as_allowed, peak, report
from _numbered import (
    MANY,
    STEP,
    Audience,
    Due,
    aask_all,
    areceive_all,
    asend_all,
    ask_all,
    ask_in_flight,
    hold,
    numbered,
    receive_all,
    receive_crowd,
    receive_from_all,
    send_all,
    send_crowd,
    send_lists,
    sequence,
    wrong,
)
from nngkit.protocols import TLS, Batch, Pub, Pull, Push, Rep, Req, Sub, Surveyor

LARGEST = 1 << 22

Socket = TypeVar("Socket", Pub, Pull, Push, Rep, Req)


@cache
def _trust(path: str) -> Any:
    """Return a trust, which all sockets of a program share."""
    from nngkit.trust import Trust  # here, as an earlier commit may have none

    return Trust(path)


def _open(kind: type[Socket], task: dict[str, Any], **options: Any) -> Socket:
    """Open a socket at its end of the task's address; a listener reports its address."""
    as_many_files_as_allowed()
    if "ca" in task:
        mine = {"cert": task["cert"], "key": task["key"]} if task["listens"] else {"ca": task["ca"]}
        options["tls"] = TLS(**mine, server_name=None if task["listens"] else "localhost")
    if "passes" in task:
        options["trust"] = _trust(task["passes"][not task["listens"]])
    sock = kind(**{"listen" if task["listens"] else "dial": task["url"]}, **options)
    if task["listens"]:
        report(url=sock.address)
    return sock


def _batch(task: dict[str, Any]) -> Batch | bool | None:
    """Return ``batch`` of a task: true, or a Batch with the given options."""
    batch = task.get("batch")
    return Batch(**batch) if isinstance(batch, dict) else batch


def push(task: dict[str, Any]) -> None:
    """Send one message a call, blocking."""
    with _open(Push, task, batch=_batch(task)) as sock:
        send_all(sock.send, task)


def push_many(task: dict[str, Any]) -> None:
    with _open(Push, task, batch=_batch(task)) as sock:
        send_lists(sock.send_many, task)


async def apush(task: dict[str, Any]) -> None:
    async with _open(Push, task, batch=_batch(task)) as sock:
        await asend_all(sock.asend, task)


def _pull(task: dict[str, Any], **options: Any) -> Pull:
    pull = _open(Pull, task, recv_max_size=LARGEST, batch=_batch(task), **options)
    pull.wait_for_peers(task.get("peers", 0), 60.0)
    if task["transport"] == "inproc":
        threading.Thread(target=push, args=(task | {"listens": False},), daemon=True).start()
    return pull


def pull(task: dict[str, Any], **options: Any) -> None:
    receive_all(_pull(task, **options).recv, task)


def pull_lent(task: dict[str, Any]) -> None:
    pull(task, copy=False)


def pull_far_ahead(task: dict[str, Any]) -> None:
    pull(task, recv_window=1 << 22)


def push_filled(task: dict[str, Any]) -> None:
    """Fill arrays and send them, of which each is copied."""
    array = bytearray(task["size"])
    with _open(Push, task) as sock:
        for number in itertools.count():
            fill(array, number)
            sock.send(array)


def push_loans(task: dict[str, Any]) -> None:
    """Fill what is sent where it is."""
    with _open(Push, task, **({"shm_size": task["shm_size"]} if "shm_size" in task else {})) as sock:
        for number in itertools.count():
            with sock.loan(task["size"]) as buffer:
                fill(buffer, number)


def pull_filled(task: dict[str, Any]) -> None:
    sum_all(_pull(task).recv, task)


def pull_views(task: dict[str, Any]) -> None:
    sum_all(_pull(task).recv_view, task)


def publish_frames(task: dict[str, Any]) -> None:
    """Publish frames, as loans or copied: ``loans``."""
    frame = bytearray(task["size"])
    with _open(Pub, task, shm_size=1 << 30) as sock:
        sock.wait_for_peers(task["others"], 60.0)
        for number in itertools.count():
            if task["loans"]:
                with sock.loan(task["size"]) as buffer:
                    mark(buffer, number)
            else:
                mark(frame, number)
                sock.send(frame)
            sock.drain(60.0)  # a publisher does not wait by itself, it drops


def subscribe_frames(task: dict[str, Any]) -> None:
    with _open(Sub, task, topics=b"", recv_max_size=task["size"], recv_buffer=4) as sock:
        sum_all(sock.recv_view if task["loans"] else sock.recv, task)


def pull_many(task: dict[str, Any]) -> None:
    sock, meter, due = _pull(task), Meter(task), Due(task["size"])
    while meter.add(due.check(sock.recv_many(MANY))):
        pass


async def apull(task: dict[str, Any]) -> None:
    await areceive_all(_pull(task).arecv, task)


async def apull_for(task: dict[str, Any]) -> None:
    sock, meter, due = _pull(task), Meter(task), itertools.cycle(sequence(task["size"]))
    count = 0
    async for message in sock:
        if message != (want := next(due)):
            wrong(message, want)
        count += 1
        if count == STEP:
            if not meter.add(count):
                return
            count = 0


async def apull_many(task: dict[str, Any]) -> None:
    sock, meter, due = _pull(task), Meter(task), Due(task["size"])
    while meter.add(due.check(await sock.arecv_many(MANY))):
        pass


# ---- from many peers -------------------------------------------------------------------------------------------------


def pull_crowd(task: dict[str, Any]) -> None:
    receive_crowd(_pull(task).recv, task)


def pull_crowd_many(task: dict[str, Any]) -> None:
    receive_from_all(_pull(task).recv_many, task)


def push_crowd(task: dict[str, Any]) -> None:
    """Send from ``peers`` sockets of this one process."""
    send_crowd([_open(Push, task).send for _ in range(task["peers"])], task)


def hold_crowd(task: dict[str, Any]) -> None:
    hold(_open(Pull, task).recv, task)


# ---- requests --------------------------------------------------------------------------------------------------------


def reply(task: dict[str, Any]) -> None:
    with _open(Rep, task, recv_max_size=LARGEST) as rep:
        for request in rep:
            request.reply(request.body)


async def areply(task: dict[str, Any]) -> None:
    async with _open(Rep, task, recv_max_size=LARGEST) as rep:
        async for request in rep:
            await request.areply(request.body)


def reply_attacked(task: dict[str, Any]) -> None:
    """Reply as ``reply``, during an attack of the kind ``hostile``."""
    as_many_files_as_allowed()
    with _open(Rep, task, recv_max_size=LARGEST) as rep, attack(task["hostile"], rep.address):
        for request in rep:
            request.reply(request.body)


def reply_measured(task: dict[str, Any]) -> None:
    """Reply to ``peers`` clients; this end is measured."""
    with _open(Rep, task, recv_max_size=LARGEST) as rep:
        rep.wait_for_peers(task["peers"], 60.0)
        meter = Meter(task)
        for request in rep:
            request.reply(request.body)
            if not meter.add(1):
                return


def ask(task: dict[str, Any]) -> None:
    with _open(Req, task, recv_max_size=LARGEST) as req:
        ask_all(req.request, task)


def connect(task: dict[str, Any]) -> None:
    """Connect, make one request, and close, again and again."""
    meter, question = Meter(task), b"x" * task["size"]
    while True:
        with _open(Req, task) as req:
            if req.request(question, timeout=60.0) != question:
                wrong(b"", question)
        if not meter.add(1):
            return


async def aask(task: dict[str, Any]) -> None:
    async with _open(Req, task, recv_max_size=LARGEST) as req:
        await aask_all(req.arequest, task)


async def aask_many(task: dict[str, Any]) -> None:
    async with _open(Req, task, recv_max_size=LARGEST) as req:
        await ask_in_flight(req.arequest, task)


# ---- publishing ------------------------------------------------------------------------------------------------------


def publish(task: dict[str, Any]) -> None:
    message = numbered(task["size"])
    with _open(Pub, task, batch=_batch(task)) as pub:
        pub.wait_for_peers(task["subscribers"], 60.0)
        for number in itertools.count(1):
            pub.send(message(number))


async def apublish(task: dict[str, Any]) -> None:
    message = numbered(task["size"])
    async with _open(Pub, task) as pub:
        await pub.await_for_peers(task["subscribers"], 60.0)
        for number in itertools.count(1):
            await pub.asend(message(number))


def _subs(task: dict[str, Any]) -> list[Sub]:
    return [Sub(dial=task["url"], topics=b"", batch=_batch(task)) for _ in range(task["subscribers"])]


def subscribe(task: dict[str, Any]) -> None:
    """Subscribe with a thread for each subscriber."""
    audience = Audience(task)

    def read(place: int, sub: Sub) -> None:
        while True:
            audience.add(place, sub.recv_many(1024))

    for place, sub in enumerate(_subs(task)):
        threading.Thread(target=read, args=(place, sub), daemon=True).start()
    while audience.look():
        time.sleep(audience.PAUSE)


async def asubscribe(task: dict[str, Any]) -> None:
    audience = Audience(task)

    async def read(place: int, sub: Sub) -> None:
        while True:
            audience.add(place, await sub.arecv_many(1024))

    async with trio.open_nursery() as nursery:
        for place, sub in enumerate(_subs(task)):
            nursery.start_soon(read, place, sub)
        while True:
            await trio.sleep(audience.PAUSE)
            if not audience.look():
                nursery.cancel_scope.cancel()
                return


def publish_topics(task: dict[str, Any]) -> None:
    with _open(Pub, task) as sock:
        sock.wait_for_peers(1, 60.0)
        send_at_pace(sock.send_many, task)


def subscribe_topics(task: dict[str, Any]) -> None:
    """Receive from a publisher of many topics."""
    with _open(Sub, task, topics=prefixes(task), recv_buffer=8192) as sock:
        received = Received(task, lambda: sock.stats.read)
        while received.add(sock.recv_many(8192)):
            pass


def change_topics(task: dict[str, Any]) -> None:
    with Sub() as sock:
        change(sock.subscribe, sock.unsubscribe, task)


# ---- surveys ---------------------------------------------------------------------------------------------------------


def survey(task: dict[str, Any]) -> None:
    """Survey all respondents: median time until the last response, and CPU of a survey."""
    as_many_files_as_allowed()
    with Surveyor(listen=task["url"]) as surveyor:
        report(url=surveyor.address)
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
        report(
            p50_us=took[len(took) // 2] * 1e6,
            cpu_us=cpu[len(cpu) // 2] * 1e6,
            part=answered / len(took) / task["expected"],
            rss_mib=peak(),
        )
