"""The two ends of `nngkit bench`: a source that dials and sends as fast as it can, a sink that listens and counts.

Messages without a reply (pair, pipeline, pubsub, bus) carry number and time in their first 16 bytes, big-endian::

    message = number: u64  time.monotonic_ns(): u64  zeros
    end     = 2^64-1: u64  messages sent: u64  boot: u64

The end message gives the sink the number sent, to compute the drops; it is repeated until the sink leaves. `boot`
identifies the running kernel: if it is the same at both ends, so is the clock, and one-way latency can be measured.

Requests and surveys are timed by the source, as round trips.
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import trio

from nngkit.background import WakeUp
from nngkit.errors import TimedOut
from nngkit.histogram import Histogram
from nngkit.protocols import Rep, Req, Respondent, Socket, Surveyor

ENDS: Final = {  # the dialing end, and the listening one
    "pair": ("Pair1", "Pair1"),
    "reqrep": ("Req", "Rep"),
    "pipeline": ("Push", "Pull"),
    "pubsub": ("Pub", "Sub"),
    "bus": ("Bus", "Bus"),
    "survey": ("Surveyor", "Respondent"),
}
HEAD: Final = struct.Struct(">QQ")
END: Final = (1 << 64) - 1
LAST: Final = struct.Struct(">QQQ")
TURN: Final = 64  # messages sent in one call
SAMPLE: Final = 16  # one of so many is timed: timing all would affect the measurement
PATIENCE: Final = 5.0  # seconds for a reply, and for the sink to receive the end message
AGAIN: Final = 0.05  # seconds between repeated end messages
LEFT: Final = 0.5  # seconds to wait after the last source left without an end message


@dataclass(frozen=True)
class Load:
    """A load: `seconds` of messages of `size` bytes; requests and surveys `window` at once."""

    seconds: float
    size: int
    window: int


@dataclass
class Result:
    """A result, None for unknown counts. `seconds` is the time from the first message to the last."""

    seconds: float = 0.0
    sent: int | None = None
    received: int | None = None
    spread: Histogram = field(default_factory=Histogram)

    @property
    def dropped(self) -> int | None:
        """Return the number of messages not received, or requests without a reply."""
        return None if self.sent is None or self.received is None else max(0, self.sent - self.received)


def boot() -> int:
    """Return an id of the running kernel, 0 if unavailable."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return 0
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")


async def until(socket: Any, true: Callable[[], Any]) -> None:
    """Wait until `true()`, checked when a peer joins or leaves: counters also show peers that did both."""
    changed = WakeUp()
    end = socket.on_peer(lambda _: changed.wake_soon())  # on any thread
    try:
        while not true():
            await changed.wait()
    finally:
        end()


async def joined(socket: Any, timeout: float) -> None:
    """Wait until a peer has connected, even if it has left since. Raises TimedOut."""
    with trio.move_on_after(timeout):
        await until(socket, lambda: socket.stats.joined)
        return
    raise TimedOut(f"no peer connected in {timeout:g} s", timeout)


async def source(socket: Any, load: Load, result: Result) -> None:
    """Send messages or requests for `load.seconds`; `result` is kept current, also for a cancellation."""
    if isinstance(socket, (Req, Surveyor)):
        await _ask(socket, load, result)
    else:
        await _send(socket, load, result)


async def _send(socket: Any, load: Load, result: Result) -> None:
    started = time.monotonic()
    deadline, rest = started + load.seconds, bytes(load.size - HEAD.size)
    result.sent = 0
    try:
        while time.monotonic() < deadline:
            now, first = time.monotonic_ns(), result.sent
            await socket.asend_many([HEAD.pack(number, now) + rest for number in range(first, first + TURN)])
            result.sent += TURN
    finally:
        result.seconds = time.monotonic() - started
    last = LAST.pack(END, result.sent, boot())
    with trio.move_on_after(PATIENCE):
        while socket.pipes:
            await socket.asend(last)
            await socket.aflush()
            await trio.sleep(AGAIN)


async def _ask(socket: Req | Surveyor, load: Load, result: Result) -> None:
    started = time.monotonic()
    deadline, body = started + load.seconds, bytes(load.size)
    result.sent = result.received = 0

    async def ask() -> None:
        while (asked := time.monotonic()) < deadline:
            try:
                if isinstance(socket, Req):
                    result.sent = (result.sent or 0) + 1
                    await socket.arequest(body, PATIENCE)
                    replies = 1
                else:
                    found = await socket.asurvey(body, PATIENCE, early=True)
                    result.sent = (result.sent or 0) + found.expected
                    replies = found.answered
            except TimedOut:
                continue
            if replies:
                result.spread.add(time.monotonic() - asked)
            result.received = (result.received or 0) + replies

    try:
        async with trio.open_nursery() as nursery:
            for _ in range(load.window):
                nursery.start_soon(ask)
    finally:
        result.seconds = time.monotonic() - started


async def sink(socket: Any, result: Result) -> None:
    """Count messages or reply to requests until the source ends or leaves; `result` is kept current."""
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            await until(socket, lambda: socket.stats.left and not socket.pipes)
            await trio.sleep(LEFT)  # messages already read are still counted
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        if isinstance(socket, (Rep, Respondent)):
            await _answer(socket, result)
        else:
            await _count(socket, result)
        nursery.cancel_scope.cancel()


async def _answer(socket: Rep | Respondent, result: Result) -> None:
    started = 0.0
    result.received = 0
    async for request in socket:
        await request.areply(request.body)
        now = time.monotonic()
        started = started or now
        result.received += 1
        result.seconds = now - started


async def _count(socket: Socket, result: Result) -> None:
    started, received = 0.0, 0
    receiver: Any = socket
    unpack = HEAD.unpack_from
    while result.sent is None:
        items = await receiver.arecv_many(1024)
        now, now_ns = time.monotonic(), time.monotonic_ns()
        started = started or now
        for item in items:
            number, stamp = unpack(item)
            if number == END:
                _, result.sent, where = LAST.unpack_from(item)
                if where != boot():
                    result.spread = Histogram()
                break
            received += 1
            if not number % SAMPLE:
                result.spread.add((now_ns - stamp) / 1e9)
        result.received, result.seconds = received, now - started
