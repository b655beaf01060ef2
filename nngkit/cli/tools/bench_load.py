"""The two ends of `nngkit bench`: a source that dials and says as much as it can, a sink that listens and counts.

What is not answered (pair, pipeline, pubsub, bus) carries its number and time in its first 16 bytes, big-endian::

    message = number: u64  time.monotonic_ns(): u64  zeros
    end     = 2^64-1: u64  messages sent: u64  boot: u64

The end tells the sink what was sent, so that it can say what was dropped, and is said until the sink goes. `boot` is of
the running kernel: where it is the same at both ends, so is the clock, and the way of a message can be timed.

Requests and surveys come back, and are timed by who asked.
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import trio

from nngkit.cli.histogram import Histogram
from nngkit.errors import TimedOut
from nngkit.protocols import PeerEvent, Rep, Req, Respondent, Socket, Surveyor

__all__ = ["ENDS", "Load", "Result", "boot", "joined", "sink", "source", "until"]

ENDS: Final = {  # the dialling end, and the listening one
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
TURN: Final = 64  # messages handed over at once
SAMPLE: Final = 16  # one in so many is timed: all of them would be what is measured
PATIENCE: Final = 5.0  # seconds for an answer, and for the sink to hear the end
AGAIN: Final = 0.05  # seconds until the end is said again
LEFT: Final = 0.5  # seconds of quiet after the last source has left without an end


@dataclass(frozen=True)
class Load:
    """What is to be done: `seconds` of messages of `size` bytes, or `window` questions at once."""

    seconds: float
    size: int
    window: int


@dataclass
class Result:
    """What was: None for what this end cannot know. `seconds` is from the first to the last."""

    seconds: float = 0.0
    sent: int | None = None
    received: int | None = None
    spread: Histogram = field(default_factory=Histogram)

    @property
    def dropped(self) -> int | None:
        """Sent and not received, or not answered."""
        return None if self.sent is None or self.received is None else max(0, self.sent - self.received)


def boot() -> int:
    """Of the running kernel; 0 if it does not say."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return 0
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")


async def until(socket: Any, true: Callable[[], Any]) -> None:
    """Wait until that is so, looking whenever a peer comes or goes: counters also know of one that did both since."""
    token, changed = trio.lowlevel.current_trio_token(), trio.Event()

    def look(_: PeerEvent) -> None:  # on any thread
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(lambda: changed.set())  # noqa: PLW0108 - `changed` is another one by then

    end = socket.on_peer(look)
    try:
        while not true():
            await changed.wait()
            changed = trio.Event()
    finally:
        end()


async def joined(socket: Any, timeout: float) -> None:
    """Wait until somebody has connected, though it may have left again. Raises TimedOut."""
    with trio.move_on_after(timeout):
        await until(socket, lambda: socket.stats.joined)
        return
    raise TimedOut(f"nobody connected in {timeout:g} s", timeout)


async def source(socket: Any, load: Load, result: Result) -> None:
    """Say, or ask, for `load.seconds`; fills `result` as it goes, so that it is right when cancelled."""
    if isinstance(socket, (Req, Surveyor)):
        await _ask(socket, load, result)
    else:
        await _say(socket, load, result)


async def _say(socket: Any, load: Load, result: Result) -> None:
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
    """Count, or answer, until the source says that it is done, or has left; fills `result` as it goes."""
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            await until(socket, lambda: socket.stats.left and not socket.pipes)
            await trio.sleep(LEFT)  # what is read ahead is counted still
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
    async for question in socket:
        await question.areply(question.body)
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
