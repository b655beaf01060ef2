"""A device between two ends: nngkit's, NNG's own `nng_device`, pyzmq's proxy, or none. A wrong message ends the run.

The measured end starts the device as a process of its own and connects to it; the ends of nngkit and of NNG's device
are the same, those of pyzmq are pyzmq's. ``device_us`` is the CPU of the device's process a message.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pynng
import trio

from _child import Meter, Stopwatch, as_many_files_as_allowed, cpu_of, fail, quantile, report
from _numbered import MANY, NUMBER, Due, check_rising, numbered, sequence
from nngkit import protocols
from nngkit.devices import KINDS, Device
from nngkit.protocols import Rep, Req, Respondent, Surveyor

ANY = "tcp://127.0.0.1:0"
LOSSY = ("forwarder", "bus")
BURST = 64
RAW = {  # raw sockets of NNG by kind: front and back
    "streamer": ("pull0", "push0"),
    "forwarder": ("sub0", "pub0"),
    "queue": ("rep0", "req0"),
    "survey": ("respondent0", "surveyor0"),
    "bus": ("bus0", "bus0"),
    "pair0": ("pair0", "pair0"),
    "pair1": ("pair1", "pair1"),
}


# ---- the device ------------------------------------------------------------------------------------------------------


def _end_with_parent() -> None:
    def watch() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


async def device_nngkit(task: dict[str, Any]) -> None:
    """Run nngkit's device, listening on both sides."""
    _end_with_parent()
    as_many_files_as_allowed()
    kind = KINDS[task["kind"]]
    given: dict[str, dict[str, Any]] = {"Sub": {"topics": b""}, "Req": {"resend": None}}
    front, back = (getattr(protocols, name)(listen=ANY, **given.get(name, {})) for name in (kind.front, kind.back))
    with front, back:
        report(front=front.address, back=back.address)
        await Device(front, back).run()


def device_nng(task: dict[str, Any]) -> None:
    """Run `nng_device` on raw sockets with buffers of 1024 messages, as NNG's own program does."""
    _end_with_parent()
    lib, ffi = pynng.lib, pynng.ffi
    sockets, where = [], []
    for name in RAW[task["kind"]]:
        sock = ffi.new("nng_socket *")
        found = getattr(lib, f"nng_{name}_open_raw")(sock)
        for option in (b"send-buffer", b"recv-buffer"):
            lib.nng_socket_set_int(sock[0], option, 1024)
        listener = ffi.new("nng_listener *")
        found = found or lib.nng_listen(sock[0], ANY.encode(), listener, 0)
        port = ffi.new("int *")
        if found or lib.nng_listener_get_int(listener[0], b"tcp-bound-port", port):
            fail(f"nng_{name}_open_raw: error {found}")
        sockets.append(sock[0])
        where.append(f"tcp://127.0.0.1:{port[0]}")
    report(front=where[0], back=where[1])
    fail(f"nng_device ended: {lib.nng_device(*sockets)}")


def device_zmq(task: dict[str, Any]) -> None:
    """Run pyzmq's proxy."""
    import zmq

    _end_with_parent()
    kinds = {"streamer": (zmq.PULL, zmq.PUSH), "forwarder": (zmq.XSUB, zmq.XPUB), "queue": (zmq.ROUTER, zmq.DEALER)}
    context = zmq.Context()
    front, back = (context.socket(kind) for kind in kinds[task["kind"]])
    for sock in (front, back):
        sock.bind("tcp://127.0.0.1:*")
    report(front=front.getsockopt_string(zmq.LAST_ENDPOINT), back=back.getsockopt_string(zmq.LAST_ENDPOINT))
    zmq.proxy(front, back)


class Between:
    """The device of a task as a process, or none: then one end listens. ``front``, ``back``: where the ends connect."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.pid = 0
        if not task["via"]:
            return
        words = [sys.executable, str(Path(__file__).parent / "_child.py"), f"_devices:device_{task['via']}"]
        # it ends when this process closes its standard input, by ending
        process = subprocess.Popen([*words, json.dumps(task)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        self.process, self.pid = process, process.pid
        self.front, self.back = said["front"], said["back"]
        with open(task["processes"], "a") as listed:
            listed.write(f"{process.pid}\n")

    def mine(self, task: dict[str, Any], side: str) -> dict[str, str]:
        """Return the address options of the measured end at ``side``, and report the address of the other end."""
        if not self.pid:
            return {"listen": task["url"]}
        other = "back" if side == "front" else "front"
        report(url=getattr(self, other))
        return {"dial": getattr(self, side)}


class DeviceMeter(Meter):
    """A Meter that reports the device's CPU too."""

    def __init__(self, task: dict[str, Any], between: Between) -> None:
        super().__init__(task)
        self._between = between
        self._device_cpu = 0.0
        self._wanted = self.check
        self.check = self._device

    def add(self, units: int) -> bool:
        was = self.counting
        more = super().add(units)
        if self.counting and not was and self._between.pid:
            self._device_cpu = cpu_of([self._between.pid])
        return more

    def _device(self) -> None:
        if self._between.pid:
            used = cpu_of([self._between.pid]) - self._device_cpu
            self.more["device_us"] = used / max(self.count, 1) * 1e6


# ---- one way ---------------------------------------------------------------------------------------------------------


def _sockets(kind: str) -> tuple[Any, Any]:
    """Return the classes of the sending and of the receiving end."""
    names = {"streamer": ("Push", "Pull"), "forwarder": ("Pub", "Sub")}.get(kind, (KINDS[kind].front, KINDS[kind].back))
    return getattr(protocols, names[0]), getattr(protocols, names[1])


def send(task: dict[str, Any]) -> None:
    """Send in bursts, at `rate` messages a second or as fast as accepted."""
    kind, _ = _sockets(task["kind"])
    with kind(dial=task["url"]) as sock:
        sock.wait_for_peers(1, 60.0)
        if task["kind"] not in LOSSY:
            turn = sequence(task["size"])
            bursts = itertools.cycle([(turn * BURST)[at : at + BURST] for at in range(0, len(turn) * BURST, BURST)])
        else:
            message = numbered(task["size"])
            bursts = ([message(at + each) for each in range(BURST)] for at in itertools.count(1, BURST))
        rate, began = task.get("rate"), time.monotonic()
        for number, burst in enumerate(bursts):
            if rate:
                time.sleep(max(0.0, began + number * BURST / rate - time.monotonic()))
            sock.send_many(burst)


async def receive(task: dict[str, Any]) -> None:
    """Receive with trio, through the device of the task."""
    _, kind = _sockets(task["kind"])
    given = {"topics": b""} if task["kind"] == "forwarder" else {}
    between = Between(task)
    where = between.mine(task, "back")
    async with kind(**where, recv_buffer=8192 if task["kind"] in LOSSY else None, **given) as sock:
        if not between.pid:
            report(url=sock.address)
        meter, due = DeviceMeter(task, between), Due(task["size"])
        last, first, count = b"", 0, 0
        while True:
            messages = await sock.arecv_many(MANY)
            if task["kind"] in LOSSY:
                last = check_rising(last, messages)
                first = first or NUMBER.unpack_from(messages[0])[0]
                count += len(messages)
                meter.more["part"] = count / (NUMBER.unpack_from(last)[0] - first + 1)
                units = len(messages)
            else:
                units = due.check(messages)
            if not meter.add(units):
                return


def send_zmq(task: dict[str, Any]) -> None:
    """Send one message a call, as pyzmq has no other."""
    import zmq

    sock = zmq.Context().socket(zmq.PUSH if task["kind"] == "streamer" else zmq.PUB)
    sock.connect(task["url"])
    while True:
        for message in sequence(task["size"]):
            sock.send(message)


def receive_zmq(task: dict[str, Any]) -> None:
    import zmq

    between = Between(task)
    sock = zmq.Context().socket(zmq.PULL)
    if between.pid:
        sock.connect(between.mine(task, "back")["dial"])
    else:
        sock.bind(task["url"])
        report(url=sock.getsockopt_string(zmq.LAST_ENDPOINT))
    meter, due = DeviceMeter(task, between), Due(task["size"])
    while meter.add(due.check([sock.recv() for _ in range(BURST)])):
        pass


# ---- requests --------------------------------------------------------------------------------------------------------


async def reply(task: dict[str, Any]) -> None:
    """Reply with trio to all requests that have arrived."""
    async with Rep(dial=task["url"]) as rep:
        while True:
            for request in await rep.arecv_many(MANY):
                await request.areply(request.body)


async def ask(task: dict[str, Any]) -> None:
    """Keep `flight` requests in progress."""
    between = Between(task)
    async with Req(**between.mine(task, "front")) as req, trio.open_nursery() as nursery:
        if not between.pid:
            report(url=req.address)
        meter = DeviceMeter(task, between)

        async def work(number: int) -> None:
            body = b"%08d" % number
            while True:
                if await req.arequest(body, 60.0) != body:
                    fail("a wrong reply")
                if not meter.add(1):
                    nursery.cancel_scope.cancel()
                    return

        for number in range(task["flight"]):
            nursery.start_soon(work, number)


def ask_one_by_one(task: dict[str, Any]) -> None:
    """Measure round trips, blocking."""
    between = Between(task)
    with Req(**between.mine(task, "front")) as req:
        if not between.pid:
            report(url=req.address)
        body = bytes(task["size"])
        req.request(body, timeout=60.0)
        watch = Stopwatch(task)
        while True:
            began = time.perf_counter()
            req.request(body, timeout=60.0)
            if not watch.add(time.perf_counter() - began):
                return


def reply_blocking(task: dict[str, Any]) -> None:
    with Rep(dial=task["url"]) as rep:
        for request in rep:
            request.reply(request.body)


def reply_zmq(task: dict[str, Any]) -> None:
    import zmq

    sock = zmq.Context().socket(zmq.REP)
    sock.connect(task["url"])
    while True:
        sock.send(sock.recv())


def ask_one_by_one_zmq(task: dict[str, Any]) -> None:
    import zmq

    between = Between(task)
    sock = zmq.Context().socket(zmq.REQ)
    if between.pid:
        sock.connect(between.mine(task, "front")["dial"])
    else:
        sock.bind(task["url"])
        report(url=sock.getsockopt_string(zmq.LAST_ENDPOINT))
    watch, body = Stopwatch(task), bytes(task["size"])
    while True:
        began = time.perf_counter()
        sock.send(body)
        sock.recv()
        if not watch.add(time.perf_counter() - began):
            return


# ---- surveys ---------------------------------------------------------------------------------------------------------


async def respond(task: dict[str, Any]) -> None:
    """Respond at once, with `expected` respondents in one process, one thread."""
    as_many_files_as_allowed()

    async def answer(respondent: Respondent) -> None:
        async for query in respondent:
            await query.areply(query.body)

    async with trio.open_nursery() as nursery:
        for _ in range(task["expected"]):
            nursery.start_soon(answer, Respondent(dial=task["url"]))


def survey(task: dict[str, Any]) -> None:
    """Survey `expected` respondents with a deadline of `deadline` seconds; report their part and the last's time."""
    as_many_files_as_allowed()
    between = Between(task)
    expected, parts, took = task["expected"], [], []
    with Surveyor(**between.mine(task, "front")) as surveyor:
        if not between.pid:
            report(url=surveyor.address)
        deadline, best, since = time.monotonic() + 60.0, 0, 0
        # until all have joined: a device that always loses some shows its part then
        while best < expected and since < 5:
            found = len(surveyor.survey(b"?", timeout=1.0).replies)
            since = 0 if found > best else since + (found > 0)
            best = max(best, found)
            if time.monotonic() > deadline:
                fail("the respondents have not joined")
        used = cpu_of([between.pid]) if between.pid else 0.0
        for _ in range(task["surveys"]):
            result = surveyor.survey(b"?", timeout=task["deadline"])
            parts.append(len(result.replies) / expected)
            took.append(max((reply.elapsed for reply in result.replies), default=task["deadline"]))
        more = {}
        if between.pid:
            more["device_us"] = (cpu_of([between.pid]) - used) / task["surveys"] / expected * 1e6
        report(p50_ms=quantile(took, 0.5) * 1000, max_ms=max(took) * 1000, part=min(parts), times=len(took), **more)
