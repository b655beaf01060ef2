"""Bare pynng, as its documentation shows it: blocking, under trio and under asyncio."""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pynng
import trio
from _prefixes import Received, change, prefixes, send_at_pace, send_each

from _child import Meter, as_many_files_as_allowed, peak, report
from _numbered import (
    STEP,
    Audience,
    aask_all,
    areceive_all,
    ask_all,
    ask_in_flight,
    hold,
    numbered,
    receive_all,
    receive_crowd,
    send_all,
    send_crowd,
)

LARGEST = 1 << 22  # bytes; pynng's default is unlimited, which no one should use
BUFFER = 1024  # messages of send buffer, so that a sender saturates; without one, NNG hands over messages one by one


@cache
def _tls(listens: bool, ca: str, cert: str, key: str, mutual: bool) -> Any:
    """Return settings for one end. ``mutual``: the dialer proves a name too."""
    both = Path(key).with_name("both.pem")  # pynng requires key and certificate in one file
    if listens:
        both.write_bytes(Path(key).read_bytes() + Path(cert).read_bytes())
    proves = {"cert_key_file": str(both)} if listens or mutual else {}
    verifies = {"ca_files": [ca], "auth_mode": pynng.TLSConfig.AUTH_MODE_REQUIRED} if mutual or not listens else {}
    if listens:
        return pynng.TLSConfig(pynng.TLSConfig.MODE_SERVER, **proves, **verifies)
    # pynng passes strings without the terminating zero of C
    return pynng.TLSConfig(pynng.TLSConfig.MODE_CLIENT, server_name="localhost\0", **proves, **verifies)


def _open(kind: Any, task: dict[str, Any], **options: Any) -> Any:
    """Open a socket at its end of the task's address; a listener reports its address."""
    as_many_files_as_allowed()
    if "ca" in task:
        options["tls_config"] = _tls(*map(task.get, ("listens", "ca", "cert", "key", "mutual")))
    sock = kind(**{"listen" if task["listens"] else "dial": task["url"]}, **options)
    if task["listens"]:
        (listener,) = sock.listeners
        port = str(listener.local_address).rpartition(":")[2]  # for ws, `url` does not have it
        report(url=listener.url.replace(":0/", f":{port}/"))
    return sock


def push(task: dict[str, Any], buffer: int = BUFFER) -> None:
    """Saturate the receiver: blocking, with a send buffer."""
    with _open(pynng.Push0, task, send_buffer_size=buffer) as sock:
        send_all(sock.send, task)


def push_without_buffer(task: dict[str, Any]) -> None:
    push(task, 0)


def _wait_for_peers(sock: Any, count: int) -> None:
    while len(sock.pipes) < count:
        time.sleep(0.01)


def _pull(task: dict[str, Any]) -> Any:
    sock = _open(pynng.Pull0, task, recv_max_size=LARGEST)
    _wait_for_peers(sock, task.get("peers", 0))
    if task["transport"] == "inproc":
        threading.Thread(target=push, args=(task | {"listens": False},), daemon=True).start()
    return sock


def pull(task: dict[str, Any]) -> None:
    receive_all(_pull(task).recv, task)


async def apull(task: dict[str, Any]) -> None:
    await areceive_all(_pull(task).arecv, task)


def pull_crowd(task: dict[str, Any]) -> None:
    receive_crowd(_pull(task).recv, task)


def push_crowd(task: dict[str, Any]) -> None:
    """Send from ``peers`` sockets of this one process."""
    socks = [_open(pynng.Push0, task, send_buffer_size=BUFFER) for _ in range(task["peers"])]
    send_crowd([sock.send for sock in socks], task)


def hold_crowd(task: dict[str, Any]) -> None:
    hold(_open(pynng.Pull0, task).recv, task)


# ---- requests --------------------------------------------------------------------------------------------------------


def reply(task: dict[str, Any]) -> None:
    """Reply blocking, pynng's fastest server."""
    with _open(pynng.Rep0, task, recv_max_size=LARGEST) as sock:
        while True:
            sock.send(sock.recv())


async def areply(task: dict[str, Any]) -> None:
    with _open(pynng.Rep0, task, recv_max_size=LARGEST) as sock:
        while True:
            await sock.asend(await sock.arecv())


def reply_measured(task: dict[str, Any]) -> None:
    """Reply to ``peers`` clients; this end is measured."""
    with _open(pynng.Rep0, task, recv_max_size=LARGEST) as sock:
        _wait_for_peers(sock, task["peers"])
        meter = Meter(task)
        while meter.add(1):
            sock.send(sock.recv())


def ask(task: dict[str, Any]) -> None:
    with _open(pynng.Req0, task, recv_max_size=LARGEST) as sock:

        def once(body: bytes) -> Any:
            sock.send(body)
            return sock.recv()

        ask_all(once, task)


def connect(task: dict[str, Any]) -> None:
    """Connect, make one request, and close, again and again."""
    meter, question = Meter(task), b"x" * task["size"]
    while True:
        with _open(pynng.Req0, task, send_timeout=60_000, recv_timeout=60_000) as sock:
            sock.send(question)
            sock.recv()
        if not meter.add(1):
            return


async def aask(task: dict[str, Any]) -> None:
    with _open(pynng.Req0, task, recv_max_size=LARGEST) as sock:

        async def once(body: bytes) -> Any:
            await sock.asend(body)
            return await sock.arecv()

        await aask_all(once, task)


async def reply_many(task: dict[str, Any]) -> None:
    """Reply with as many contexts as there are pending requests."""

    async def work(sock: Any) -> None:
        with sock.new_context() as context:
            while True:
                await context.asend(await context.arecv())

    with _open(pynng.Rep0, task, recv_max_size=LARGEST) as sock:
        async with trio.open_nursery() as nursery:
            for _ in range(task["flight"]):
                nursery.start_soon(work, sock)


async def ask_many(task: dict[str, Any]) -> None:
    """Keep ``flight`` requests pending, each on a context."""
    with _open(pynng.Req0, task, recv_max_size=LARGEST) as sock:
        free = [sock.new_context() for _ in range(task["flight"])]

        async def once(body: bytes) -> Any:
            context = free.pop()
            await context.asend(body)
            answer = await context.arecv()
            free.append(context)
            return answer

        await ask_in_flight(once, task)


# ---- publishing ------------------------------------------------------------------------------------------------------


def publish(task: dict[str, Any]) -> None:
    message = numbered(task["size"])
    with _open(pynng.Pub0, task, send_buffer_size=BUFFER) as sock:
        _wait_for_peers(sock, task["subscribers"])
        for number in itertools.count(1):
            sock.send(message(number))


def subscribe(task: dict[str, Any]) -> None:
    """Subscribe with a thread for each subscriber."""
    audience = Audience(task)

    def read(place: int) -> None:
        with _open(pynng.Sub0, task, recv_buffer_size=BUFFER, topics=b"") as sock:
            while True:
                audience.add(place, [sock.recv()])

    for place in range(task["subscribers"]):
        threading.Thread(target=read, args=(place,), daemon=True).start()
    while audience.look():
        time.sleep(audience.PAUSE)


def publish_topics(task: dict[str, Any]) -> None:
    with _open(pynng.Pub0, task, send_buffer_size=BUFFER) as sock:
        _wait_for_peers(sock, 1)
        send_at_pace(send_each(sock.send), task)


def subscribe_topics(task: dict[str, Any]) -> None:
    """Receive from a publisher of many topics."""
    with _open(pynng.Sub0, task, recv_buffer_size=8192, topics=prefixes(task)) as sock:
        received = Received(task)
        while received.add([sock.recv() for _ in range(STEP)]):
            pass


def change_topics(task: dict[str, Any]) -> None:
    with pynng.Sub0() as sock:
        change(sock.subscribe, sock.unsubscribe, task)


# ---- surveys ---------------------------------------------------------------------------------------------------------


def respond(task: dict[str, Any]) -> None:
    """Respond at once to each survey, on ``respondents`` connections of one raw respondent."""
    as_many_files_as_allowed()
    lib, ffi = pynng.lib, pynng.ffi
    sock = pynng.Respondent0(opener=lib.nng_respondent0_open_raw, recv_buffer_size=8192, send_buffer_size=8192)
    for _ in range(task["respondents"]):
        sock.dial(task["url"], block=False)
    slot = ffi.new("nng_msg **")
    while not lib.nng_recvmsg(sock.socket, slot, 0):
        if lib.nng_sendmsg(sock.socket, slot[0], 0):  # the header routes it back, the body is the survey's
            lib.nng_msg_free(slot[0])


def survey(task: dict[str, Any]) -> None:
    """Survey all respondents with a cooked surveyor, and receive until all have responded or the time is over."""
    as_many_files_as_allowed()
    with pynng.Surveyor0(survey_time=500, listen=task["url"]) as sock:
        report(url=sock.listeners[0].url)
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
        report(
            p50_us=took[2] * 1e6,
            cpu_us=(time.process_time() - used) / 5 * 1e6,
            part=heard / 5 / task["expected"],
            rss_mib=peak(),
        )
