"""Numbered messages, and how the contenders send and receive them: a wrong or a missing one ends the run.

A contender brings ``send`` and ``recv``, blocking or awaited, and these do the rest::

    send_all(sock.send, task)       # as fast as it is taken, or at the pace of the task, or once, to be idle then
    receive_all(sock.recv, task)    # counts, compares and measures

The messages of a stream are `sequence`, over and over, and the receiver compares each with the one that is due, which
costs 8 ns a message in lists and 20 ns one by one. What a task says of it, all optional: ``rate``, messages a second;
``idle``, true for a connection that has nothing to do after its first message.
"""

from __future__ import annotations

import itertools
import os
import struct
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from operator import lt
from typing import Any, NoReturn

from _child import Meter, Stopwatch, cpu_of, fail, others, report, resident

# Primes, so that no loss of a round number of messages ends at the same place. Few large ones: they are kept in memory.
TURN, LARGE_TURN = 4099, 17
LARGE = 1 << 16  # bytes from which on a message's length and head are compared only: reading all of it takes its time
NUMBER = struct.Struct(">Q")  # what each message begins with, big-endian, so that later is larger
PACED = struct.Struct(">Qq")  # at a pace: the number, and when it was sent, nanoseconds of time.monotonic_ns()
STEP = 64  # messages between two looks at the clock
MANY = 8192  # messages that a call takes at most
REST = 0.25  # seconds before idling counts

Sleep = Callable[[float], Awaitable[None]]


def numbered(size: int) -> Callable[[int], bytes]:
    """Makes the n-th message of ``size`` bytes."""
    pack, rest = NUMBER.pack, b"x" * (size - NUMBER.size)
    return lambda number: pack(number) + rest


def sequence(size: int) -> list[bytes]:
    """The messages that a sender sends in turn."""
    return list(map(numbered(size), range(TURN if size < LARGE else LARGE_TURN)))


def wrong(came: Any, due: bytes) -> NoReturn:
    """End the run: a message came that was not due."""
    head, want = bytes(came[:16]), due[:16]
    fail(f"wrong message: {len(came)} bytes that begin with {head!r}; due are {len(due)}, {want!r}")


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
        """How many came; ends the process if they are not those that were due."""
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
    """The last of ``messages``; ends the process unless each is later than the one before it, the first than ``last``.

    For what may be dropped: 16 ns a message.
    """
    if messages[0] <= last or not all(map(lt, messages, itertools.islice(messages, 1, None))):
        fail(f"messages out of order or doubled after {last[:16]!r}")
    return messages[-1]


# ---- sending ---------------------------------------------------------------------------------------------------------


def send_all(send: Callable[[bytes], object], task: dict[str, Any]) -> None:
    """One message a call, until the process is killed."""
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


async def asend_all(send: Callable[[bytes], Awaitable[object]], task: dict[str, Any], sleep: Sleep) -> None:
    """The same, awaited."""
    if rate := task.get("rate"):
        start = time.monotonic_ns()
        for number in itertools.count():
            await sleep(max(0.0, (start - time.monotonic_ns()) / 1e9 + number / rate))
            await send(PACED.pack(number, time.monotonic_ns()))
    messages = sequence(task["size"])
    if task.get("idle"):
        await send(messages[0])
        await sleep(1e6)
    while True:
        for message in messages:
            await send(message)


def send_lists(send_many: Callable[[list[bytes]], object], task: dict[str, Any]) -> None:
    """``many`` messages a call."""
    many = task.get("many", 256)
    due = Due(task["size"], many)
    while True:
        send_many(due.next(many))


# ---- receiving -------------------------------------------------------------------------------------------------------


class _Pace:
    """Checks and times messages that come at a pace."""

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
    """In a thread of its own: the CPU of all processes while nothing is sent."""

    def watch() -> None:
        time.sleep(REST)
        processes = [os.getpid(), *others(task)]
        begun, used = time.perf_counter(), cpu_of(processes)
        time.sleep(task["seconds"])
        used = cpu_of(processes) - used
        report(idle_us=used / (time.perf_counter() - begun) * 1e6)

    threading.Thread(target=watch, daemon=True).start()


def receive_all(recv: Callable[[], Any], task: dict[str, Any]) -> None:
    """One message a call."""
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
    """The same, awaited; ``pause`` is awaited now and then, where ``recv`` itself may never let go of the loop."""
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
    """The same for what calls back with each message; it ends the process when it has measured."""
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
    """Time a blocking round trip again and again; each request is another, and its reply has to be the same."""
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
    """The same, awaited."""
    watch, clock = Stopwatch(task), time.perf_counter
    for question in itertools.cycle(sequence(task["size"])):
        start = clock()
        answer = await ask(question)
        took = clock() - start
        if answer != question:
            wrong(answer, question)
        if not watch.add(took):
            return


async def ask_in_flight(
    ask: Callable[[bytes], Awaitable[Any]], task: dict[str, Any], spawn: Callable[[Any], object], sleep: Sleep
) -> None:
    """``flight`` requests at a time, a task for each, started by ``spawn``."""
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
        await sleep(0.01)
    while meter.add(done - seen):
        seen = done
        await sleep(0.01)


# ---- publishing ------------------------------------------------------------------------------------------------------


class Audience:
    """Messages of one publisher as received by several subscribers of one process, sampled at intervals.

    From the numbers of the last messages follows what was published meanwhile. What came out of order or twice ends the
    process; what did not come, and may not have, is in ``part``.
    """

    PAUSE = 0.01  # seconds between two samples

    def __init__(self, task: dict[str, Any]) -> None:
        # how many each has received and the last of them: one tuple, so that no look sees one without the other
        self.heard: list[tuple[int, bytes]] = [(0, b"")] * task["subscribers"]
        self._first: Sequence[tuple[int, bytes]] = ()
        self._seen = 0
        self._task = task
        self._meter: Meter | None = None  # until all of them are there

    def add(self, subscriber: int, messages: Sequence[bytes]) -> None:
        """These have come to it, at least one."""
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


# ---- a crowd: many connections of one process (``_crowd.py``) --------------------------------------------------------

CROWD_TURN = 17  # numbers that each of a crowd's connections sends in turn (``_crowd.py``)
MEMBER = struct.Struct(">QQ")  # what a crowd's message begins with: its number, and its sender's


class Roll:
    """Counts the messages of a crowd: 45 ns a message. None may be missing among those of one sender, nor doubled.

    What a sender said first it has said as often as what it said last, or once more.
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
                fail(f"wrong messages of sender {sender}: how often each number came: {each}")


def member_message(number: int, member: int, size: int) -> bytes:
    return MEMBER.pack(number, member).ljust(size, b"x")


def send_crowd(sends: Sequence[Callable[[bytes], object]], task: dict[str, Any]) -> None:
    """One message a call, of each member in turn."""
    members = range(len(sends))
    turns = [[member_message(number, each, task["size"]) for each in members] for number in range(CROWD_TURN)]
    while True:
        for messages in turns:
            for send, message in zip(sends, messages, strict=True):
                send(message)


def receive_crowd(recv: Callable[[], bytes], task: dict[str, Any]) -> None:
    """One message a call."""
    meter, roll = Meter(task), Roll(task["size"])
    meter.check = roll.check
    while meter.add(roll.add([recv() for _ in range(STEP)])):
        pass


def hold(recv: Callable[[], bytes], task: dict[str, Any]) -> None:
    """The memory of ``peers`` connections each of which has sent one message, and then nothing."""
    before = resident()
    senders = {MEMBER.unpack_from(recv())[1] for _ in range(task["peers"])}
    if len(senders) != task["peers"]:
        fail(f"{task['peers']} messages of {len(senders)} senders")
    time.sleep(REST)
    report(idle_kib=(resident() - before) / task["peers"] * 1024)
