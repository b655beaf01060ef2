"""Numbered messages, and how contenders send and receive them: a wrong or missing one ends the run.

A contender provides ``send`` and ``recv``, blocking or awaited, and these functions do the rest::

    send_all(sock.send, task)       # as fast as accepted, at the task's rate, or one message and then idle
    receive_all(sock.recv, task)    # counts, checks and measures

Messages repeat `sequence`, and the receiver compares each with the expected one, which costs 8 ns a message in lists
and 20 ns one by one. Optional keys of a task: ``rate``, messages a second; ``idle``, true for a connection without
traffic after its first message.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import struct
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from operator import lt
from pathlib import Path
from typing import Any, NoReturn

import sniffio

from _child import Meter, Stopwatch, cpu_of, fail, others, report, resident

# Primes, so that the loss of a round number of messages is noticed. Few large messages, as they are kept in memory.
TURN, LARGE_TURN = 4099, 17
LARGE = 1 << 16  # bytes from which on only length and head are compared: comparing all of it takes long
NUMBER = struct.Struct(">Q")  # first field of each message, big-endian, so that later messages compare as larger
PACED = struct.Struct(">Qq")  # with a rate: the number, and the send time, nanoseconds of time.monotonic_ns()
STEP = 64  # messages between checks of the clock
MANY = 8192  # maximum of messages a call
REST = 0.25  # seconds before idle CPU is measured


def _under_trio() -> bool:
    return sniffio.current_async_library() == "trio"


async def asleep(seconds: float) -> None:
    """Sleep in the running loop."""
    if _under_trio():
        import trio  # here, as the contenders without it are smaller

        await trio.sleep(seconds)
    else:
        await asyncio.sleep(seconds)


def numbered(size: int) -> Callable[[int], bytes]:
    """Return a function that makes the n-th message of ``size`` bytes."""
    pack, rest = NUMBER.pack, b"x" * (size - NUMBER.size)
    return lambda number: pack(number) + rest


def sequence(size: int) -> list[bytes]:
    """Return the messages that a sender repeats."""
    return list(map(numbered(size), range(TURN if size < LARGE else LARGE_TURN)))


def wrong(came: Any, due: bytes) -> NoReturn:
    """End the run because of an unexpected message."""
    head, want = bytes(came[:16]), due[:16]
    fail(f"wrong message: {len(came)} bytes beginning with {head!r}; expected {len(due)} with {want!r}")


class Due:
    """Expected messages: `sequence`, in lists of up to ``most``."""

    def __init__(self, size: int, most: int = MANY) -> None:
        turn = sequence(size)
        self._turn, self._size, self._at = len(turn), size, 0
        self._due = turn * (most // len(turn) + 2)

    def next(self, count: int) -> list[bytes]:
        at = self._at
        self._at = (at + count) % self._turn
        return self._due[at : at + count]

    def check(self, messages: Sequence[Any]) -> int:
        """Return the number of messages; end the process if they are not the expected ones."""
        due = self.next(len(messages))
        if self._size >= LARGE:
            for came, want in zip(messages, due, strict=True):
                if len(came) != len(want) or came[: NUMBER.size] != want[: NUMBER.size]:
                    wrong(came, want)
        elif messages != due:
            for came, want in zip(messages, due, strict=True):
                if came != want:
                    wrong(came, want)
        return len(due)


def check_rising(last: bytes, messages: Sequence[bytes]) -> bytes:
    """Return the last of ``messages``; end the process unless they are in rising order, all later than ``last``.

    For messages that may be dropped: 16 ns a message.
    """
    if messages[0] <= last or not all(map(lt, messages, itertools.islice(messages, 1, None))):
        fail(f"messages out of order or duplicated after {last[:16]!r}")
    return messages[-1]


# ---- sending ---------------------------------------------------------------------------------------------------------


def send_all(send: Callable[[bytes], object], task: dict[str, Any]) -> None:
    """Send one message a call, until the process is killed."""
    if rate := task.get("rate"):
        start = time.monotonic_ns()
        for number in itertools.count():
            time.sleep(max(0.0, (start - time.monotonic_ns()) / 1e9 + number / rate))
            send(PACED.pack(number, time.monotonic_ns()))
    messages = sequence(task["size"])
    if task.get("idle"):
        send(messages[0])
        time.sleep(1e6)
    while True:
        for message in messages:
            send(message)


async def asend_all(send: Callable[[bytes], Awaitable[object]], task: dict[str, Any]) -> None:
    """Do the same, awaited."""
    if rate := task.get("rate"):
        start = time.monotonic_ns()
        for number in itertools.count():
            await asleep(max(0.0, (start - time.monotonic_ns()) / 1e9 + number / rate))
            await send(PACED.pack(number, time.monotonic_ns()))
    messages = sequence(task["size"])
    if task.get("idle"):
        await send(messages[0])
        await asleep(1e6)
    while True:
        for message in messages:
            await send(message)


def send_lists(send_many: Callable[[list[bytes]], object], task: dict[str, Any]) -> None:
    """Send ``many`` messages a call."""
    many = task.get("many", 256)
    due = Due(task["size"], many)
    while True:
        send_many(due.next(many))


# ---- receiving -------------------------------------------------------------------------------------------------------


class _Pace:
    """Checks and times messages sent at a rate."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._meter = Meter(task)
        self._meter.check = self._tell
        self._number = 0
        self._late: list[int] = []

    def add(self, message: bytes) -> bool:
        number, sent = PACED.unpack(message)
        if number != self._number:
            wrong(message, PACED.pack(self._number, 0))
        self._number += 1
        if self._meter.counting:
            self._late.append(time.monotonic_ns() - sent)
        return self._meter.add(1)

    def _tell(self) -> None:
        late = sorted(self._late)
        self._meter.more |= {"p50_us": late[len(late) // 2] / 1000, "p99_us": late[len(late) * 99 // 100] / 1000}


def _watch_idling(task: dict[str, Any]) -> None:
    """Measure the CPU of all processes, in a thread, while nothing is sent."""

    def watch() -> None:
        time.sleep(REST)
        processes = [os.getpid(), *others(task)]
        begun, used = time.perf_counter(), cpu_of(processes)
        time.sleep(task["seconds"])
        used = cpu_of(processes) - used
        report(idle_us=used / (time.perf_counter() - begun) * 1e6)

    threading.Thread(target=watch, daemon=True).start()


def receive_all(recv: Callable[[], Any], task: dict[str, Any]) -> None:
    """Receive one message a call."""
    if task.get("rate"):
        pace = _Pace(task)
        while pace.add(recv()):
            pass
        return
    due = Due(task["size"], STEP)
    if task.get("idle"):
        due.check([recv()])
        _watch_idling(task)
        recv()
    meter = Meter(task)
    if task["size"] >= LARGE:
        while meter.add(due.check([recv()])):
            pass
        return
    while True:
        for want in due.next(STEP):
            if (came := recv()) != want:
                wrong(came, want)
        if not meter.add(STEP):
            return


async def areceive_all(
    recv: Callable[[], Awaitable[Any]], task: dict[str, Any], pause: Callable[[], Awaitable[object]] | None = None
) -> None:
    """Do the same, awaited; ``pause`` is awaited regularly, if ``recv`` itself might never yield to the loop."""
    if task.get("rate"):
        pace = _Pace(task)
        while pace.add(await recv()):
            pass
        return
    due = Due(task["size"], STEP)
    if task.get("idle"):
        due.check([await recv()])
        _watch_idling(task)
        await recv()
    meter = Meter(task)
    if task["size"] >= LARGE:
        while meter.add(due.check([await recv()])):
            if pause is not None:
                await pause()
        return
    while True:
        for want in due.next(STEP):
            if (came := await recv()) != want:
                wrong(came, want)
        if not meter.add(STEP):
            return
        if pause is not None:
            await pause()


def taker(task: dict[str, Any]) -> Callable[[Any], object]:
    """Return a callback that does the same with each message; it ends the process when it has measured."""
    if task.get("rate"):
        add: Callable[[Any], bool] = _Pace(task).add
    elif task.get("idle"):
        due = Due(task["size"], STEP)

        def add(message: Any) -> bool:
            due.check([message])
            _watch_idling(task)
            return True
    else:
        due, meter, step = Due(task["size"], STEP), Meter(task), STEP if task["size"] < LARGE else 1
        came: list[Any] = []

        def add(message: Any) -> bool:
            came.append(message)
            if len(came) < step:
                return True
            go_on = meter.add(due.check(came))
            came.clear()
            return go_on

    def take(message: Any) -> None:
        if not add(message):
            os._exit(0)

    return take


# ---- requests --------------------------------------------------------------------------------------------------------


def ask_all(ask: Callable[[bytes], Any], task: dict[str, Any]) -> None:
    """Measure blocking round trips; requests differ, and each reply must equal its request."""
    watch, clock = Stopwatch(task), time.perf_counter
    for question in itertools.cycle(sequence(task["size"])):
        start = clock()
        answer = ask(question)
        took = clock() - start
        if answer != question:
            wrong(answer, question)
        if not watch.add(took):
            return


async def aask_all(ask: Callable[[bytes], Awaitable[Any]], task: dict[str, Any]) -> None:
    """Do the same, awaited."""
    watch, clock = Stopwatch(task), time.perf_counter
    for question in itertools.cycle(sequence(task["size"])):
        start = clock()
        answer = await ask(question)
        took = clock() - start
        if answer != question:
            wrong(answer, question)
        if not watch.add(took):
            return


async def ask_in_flight(ask: Callable[[bytes], Awaitable[Any]], task: dict[str, Any]) -> None:
    """Keep ``flight`` requests pending, each in a task of the running loop. They end before the socket is closed."""
    if _under_trio():
        import trio

        async with trio.open_nursery() as nursery:
            await _ask_in_flight(ask, task, nursery.start_soon)
            nursery.cancel_scope.cancel()
        return
    tasks: list[asyncio.Task[None]] = []
    await _ask_in_flight(ask, task, lambda each: tasks.append(asyncio.create_task(each())))
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _ask_in_flight(
    ask: Callable[[bytes], Awaitable[Any]], task: dict[str, Any], spawn: Callable[[Any], object]
) -> None:
    meter, questions = Meter(task), itertools.cycle(sequence(task["size"]))
    done = seen = 0

    async def keep_asking() -> None:
        nonlocal done
        while True:
            question = next(questions)
            if (answer := await ask(question)) != question:
                wrong(answer, question)
            done += 1

    for _ in range(task["flight"]):
        spawn(keep_asking)
    while not done:
        await asleep(0.01)
    while meter.add(done - seen):
        seen = done
        await asleep(0.01)


# ---- publishing ------------------------------------------------------------------------------------------------------


class Audience:
    """Messages of one publisher as received by several subscribers of one process, sampled at intervals.

    The numbers of the last messages show how many were published meanwhile. Messages out of order or duplicated end the
    process; ``part`` is the share that arrived, as messages may be dropped.
    """

    PAUSE = 0.01  # seconds between two samples

    def __init__(self, task: dict[str, Any]) -> None:
        # count and last message of each subscriber: one tuple, so that a sample sees both or neither
        self.heard: list[tuple[int, bytes]] = [(0, b"")] * task["subscribers"]
        self._first: Sequence[tuple[int, bytes]] = ()
        self._seen = 0
        self._task = task
        self._meter: Meter | None = None  # until all of them have received

    def add(self, subscriber: int, messages: Sequence[bytes]) -> None:
        """Add messages of a subscriber, at least one."""
        count, last = self.heard[subscriber]
        self.heard[subscriber] = count + len(messages), check_rising(last, messages)

    def look(self) -> bool:
        """Take a sample; return True if the measurement goes on."""
        heard = self.heard.copy()
        if self._meter is None:
            if not all(count for count, _ in heard):
                return True
            self._meter = Meter(self._task)
        if not self._meter.counting:
            self._first = heard
        sent = sum(_number(last) - _number(first) for (_, first), (_, last) in zip(self._first, heard, strict=True))
        came = sum(now - before for (before, _), (now, _) in zip(self._first, heard, strict=True))
        self._meter.more["part"] = came / max(sent, 1)
        count = sum(each for each, _ in heard)
        new, self._seen = count - self._seen, count
        return self._meter.add(new)


def _number(message: bytes) -> int:
    number: int = NUMBER.unpack_from(message)[0]
    return number


# ---- many connections of one process (``_crowd.py``) -----------------------------------------------------------------

CROWD_TURN = 17  # numbers that each of these connections repeats
MEMBER = struct.Struct(">QQ")  # first fields of their messages: number and sender


class Roll:
    """Counts messages of many senders, 45 ns a message. None of a sender may be missing or duplicated.

    A sender has sent its first number as often as its last, or once more.
    """

    def __init__(self, size: int) -> None:
        self._came: Counter[bytes] = Counter()
        self._size = size

    def add(self, messages: Sequence[bytes]) -> int:
        self._came.update(messages)
        return len(messages)

    def check(self) -> None:
        counts: dict[int, list[int]] = {}
        for message, count in self._came.items():
            number, sender = MEMBER.unpack_from(message)
            if len(message) != self._size or number >= CROWD_TURN:
                wrong(message, MEMBER.pack(0, sender))
            counts.setdefault(sender, [0] * CROWD_TURN)[number] = count
        for sender, each in counts.items():
            if each[0] - each[-1] not in (0, 1) or each != sorted(each, reverse=True):
                fail(f"wrong messages of sender {sender}: counts by number: {each}")


def member_message(number: int, member: int, size: int) -> bytes:
    return MEMBER.pack(number, member).ljust(size, b"x")


def send_crowd(sends: Sequence[Callable[[bytes], object]], task: dict[str, Any]) -> None:
    """Send one message a call, of each member in turn; after the first of each, wait until all of these are there."""
    members = range(len(sends))
    turns = [[member_message(number, each, task["size"]) for each in members] for number in range(CROWD_TURN)]
    for turn in itertools.count():
        for send, message in zip(sends, turns[turn % CROWD_TURN], strict=True):
            send(message)
        while not turn and not _all_here(task).exists():
            time.sleep(0.001)


def _all_here(task: dict[str, Any]) -> Path:
    return Path(task["processes"]).with_name("all here")


def receive_from_all(receive: Callable[[int], Sequence[bytes]], task: dict[str, Any]) -> None:
    """Measure from the first messages of all members on; ``receive(most)`` returns some messages, up to ``most``.

    Members that send meanwhile would leave a backlog, as a thousand connect in one second or in ten, and reading that
    would be measured: many messages in one system call, in place of what arrives as it is read.
    """
    roll, left = Roll(task["size"]), task["peers"]
    while left:
        left -= roll.add(receive(left))
    _all_here(task).touch()
    meter = Meter(task)
    meter.check = roll.check
    while meter.add(roll.add(receive(MANY))):
        pass


def receive_crowd(recv: Callable[[], bytes], task: dict[str, Any]) -> None:
    """Receive one message a call."""
    receive_from_all(lambda most: [recv() for _ in range(min(most, STEP))], task)


def hold(recv: Callable[[], bytes], task: dict[str, Any]) -> None:
    """Measure the memory of ``peers`` connections that have sent one message and are idle."""
    before = resident()
    senders = {MEMBER.unpack_from(recv())[1] for _ in range(task["peers"])}
    if len(senders) != task["peers"]:
        fail(f"{task['peers']} messages from {len(senders)} senders")
    time.sleep(REST)
    report(idle_kib=(resident() - before) / task["peers"] * 1024)
