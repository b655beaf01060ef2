"""SP on a byte stream: interruptions at any point, memory, time, and mutated streams."""

import copy
import random
import signal
import statistics
import struct
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest

from nngkit.errors import BadMessage, TooLarge
from nngkit.protocols import sp
from nngkit.protocols.sp import (
    IN_PLACE,
    LARGE,
    MIB,
    PIECES,
    PULL,
    PUSH,
    RUN,
    Machine,
    hello,
)
from tests.protocols.alarms import Interrupted, interrupt, stop_alarms
from tests.protocols.mutating import give, held, mutate
from tests.protocols.sp_machines import FRAMINGS, all_of, cut, frame, opened

TRACED = sys.gettrace() is not None  # coverage makes everything slow


# ---- interrupts ------------------------------------------------------------------------------------------------------


def every_interrupt(machine: Machine, call: Callable[..., object], *arguments: Any) -> Iterator[Machine]:
    """Make ``call`` with copies of ``machine``, each interrupted one place later, until one is not interrupted."""
    for which in range(100_000):
        other = copy.deepcopy(machine)
        with interrupt(which, sp.__file__) as done:
            call(other, *arguments)
        yield other
        if not done:
            return


@FRAMINGS
@pytest.mark.parametrize("in_place", [False, True])
def test_an_interrupted_call_happens_or_not_and_can_be_repeated(ipc: bool, in_place: bool) -> None:
    large = random.Random(1).randbytes(LARGE)
    messages = [b"a", b"bc", *[b"16 bytes, a run."] * (RUN + 2), *[large] * 4, b"", large, b"end"]
    wire = hello(PUSH) + b"".join(frame(body, ipc) for body in messages)
    parts = [wire[:5], wire[5:30], wire[30:1000], wire[1000:9000], wire[9000:20_000], wire[20_000:40_000]]
    parts += [wire[40_000:70_000], wire[70_000:]]
    machine = Machine(PULL, ipc=ipc, in_place=in_place)
    got: list[bytes] = []
    out: list[bytes] = []  # of the interrupted copy
    places = 0

    def finish(other: Machine, rest: list[bytes]) -> None:
        nonlocal places
        places += 1
        assert other.count == len(got) + len(out)
        out.extend(all_of(other))
        for part in rest:
            give(other, part)
            out.extend(all_of(other))
        assert got + out == messages
        out.clear()

    for number, part in enumerate(parts):
        for call in (Machine.feed, give):
            for other in every_interrupt(machine, call, part):
                if other.fed == number:
                    give(other, part)
                assert other.fed == number + 1
                finish(other, parts[number + 1 :])
        give(machine, part)
        while machine.more:
            for other in every_interrupt(machine, Machine.take, out, RUN + 1):
                finish(other, parts[number + 1 :])
            machine.take(got, RUN + 1)
    assert got == messages
    assert places > 100


def test_an_interrupted_fault_is_found_by_the_next_call() -> None:
    machine = Machine(PULL, ipc=True)
    machine.feed(hello(PUSH) + frame(b"a", ipc=True) + bytes(9))
    out: list[bytes] = []

    def take(other: Machine) -> None:
        with pytest.raises(BadMessage):
            other.take(out)

    for other in every_interrupt(machine, take):
        assert other.count == len(out)
        take(other)
        assert (out, other.count) == ([b"a"], 1)
        out.clear()


def test_joining_small_pieces_can_be_interrupted() -> None:
    body = random.Random(1).randbytes(5 * PIECES)
    parts = cut(frame(body), [2])
    machine = opened()
    joins = 0
    for number, part in enumerate(parts):
        if len(machine._parts) - machine._joined == PIECES:
            joins += 1
            for other in every_interrupt(machine, Machine.feed, part):
                rest = parts[number + other.fed - machine.fed :]
                other.feed(b"".join(rest))
                assert all_of(other) == [body]
        machine.feed(part)
    assert joins == 2


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers that send signals")
def test_signals_at_random_times_lose_and_duplicate_nothing() -> None:
    chance = random.Random(1)
    interrupts = 0
    interrupted = {function.__code__ for function in (Machine.feed, Machine.take, Machine._check_hello)}

    def handler(_: int, where: FrameType | None) -> None:
        nonlocal interrupts
        if where is not None and where.f_code in interrupted:  # not in the test's own lines
            interrupts += 1
            raise Interrupted

    def feed(machine: Machine, part: bytes) -> None:
        before = machine.fed
        while machine.fed == before:
            with suppress(Interrupted):
                machine.feed(part)

    def take(machine: Machine, out: list[bytes]) -> None:
        while True:
            with suppress(Interrupted):
                machine.take(out)
                return

    signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
        until = time.monotonic() + 0.4
        while time.monotonic() < until:
            lengths = [chance.choice([0, 1, 16, 16, 16, LARGE, 40_000]) for _ in range(30)] + [16] * 100
            messages = [bytes([number % 256]) * size for number, size in enumerate(lengths)]
            machine = Machine(PULL, in_place=True)
            out: list[bytes] = []
            wire = hello(PUSH) + b"".join(map(frame, messages))
            for part in cut(wire, [chance.choice([7, 100, 1000, 60_000]) for _ in range(9)]):
                feed(machine, part)
                take(machine, out)
                assert machine.count == len(out)
            assert out == messages
    finally:
        stop_alarms()
    assert interrupts > 10 or TRACED


# ---- memory and time -------------------------------------------------------------------------------------------------


@contextmanager
def traced_memory() -> Iterator[Callable[[], tuple[int, int]]]:
    """Yield a function that returns the bytes allocated since, now and at the peak."""
    tracemalloc.start()
    try:
        yield tracemalloc.get_traced_memory
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("size", "cost"), [(IN_PLACE, IN_PLACE), (IN_PLACE + 1, 0), (1 << 40, 0), ((1 << 63) - 1, 0)])
def test_a_claimed_length_costs_little_memory(size: int, cost: int) -> None:
    machine = opened(limit=1 << 63, in_place=True)
    with traced_memory() as memory:
        machine.feed(struct.pack(">Q", size) + b"x")
        machine.take([])
        assert memory()[1] <= cost + 100_000


@pytest.mark.slow
@pytest.mark.parametrize("in_place", [False, True])
def test_a_message_in_tiny_chunks_costs_no_more_memory_than_itself(in_place: bool) -> None:
    body = random.Random(1).randbytes(MIB // 8)
    wire = frame(body)
    machine = opened(in_place=in_place)
    with traced_memory() as memory:
        for at in range(0, len(wire) - 2, 2):
            machine.feed(wire[at : at + 2])
            machine.take([])
        now, peak = memory()
    assert now <= 1.1 * len(wire) + 100 * PIECES  # of 2 bytes each: 7 MiB if they were kept separately
    assert peak <= 1.1 * len(wire) + 200 * PIECES
    machine.feed(wire[-2:])
    assert all_of(machine) == [body]


def test_taken_messages_are_not_kept() -> None:
    machine = opened()
    machine.feed(frame(bytes(40_000)) * 20 + frame(b"x" * 100)[:50])
    machine.take([])
    assert held(machine) == 50
    machine = opened()
    machine.feed(frame(bytes(40_000)) * 20)
    machine.take([], 11)
    assert held(machine) == 9 * 40_008


def quickest(action: Callable[[int], None], size: int) -> float:
    """Return the CPU seconds of the fastest of three calls."""
    found = []
    for _ in range(3):
        began = time.process_time()
        action(size)
        found.append(time.process_time() - began)
    return min(found)


def single_bytes(size: int) -> None:
    machine = opened()
    for byte in frame(bytes(size)):
        machine.feed(bytes([byte]))
        machine.take([])
    assert machine.count == 1


def single_bytes_in_place(size: int) -> None:
    machine = opened(in_place=True)
    for byte in frame(bytes(size)):
        give(machine, bytes([byte]))
        machine.take([])
    assert machine.count == 1


def single_messages(size: int) -> None:
    machine = opened()
    machine.feed(frame(bytes(100)) * (size // 10))
    while machine.more:
        machine.take([], 1)
    assert machine.count == size // 10


@pytest.mark.slow
@pytest.mark.parametrize("action", [single_bytes, single_bytes_in_place, single_messages])
def test_the_time_is_linear_in_the_bytes(action: Callable[[int], None]) -> None:
    assert quickest(action, 8 * LARGE) < 24 * quickest(action, LARGE)  # 8; 64 if it were quadratic


# ---- mutated streams, and speed --------------------------------------------------------------------------------------


def test_mutated_streams_raise_only_our_errors_and_lose_nothing_before() -> None:
    tally = mutate(20_000, seed=random.randrange(1 << 32))
    assert set(tally.faults) == {BadMessage, TooLarge, None}


@pytest.mark.slow
def test_many_mutated_streams_raise_only_our_errors() -> None:
    assert set(mutate(300_000, seed=random.randrange(1 << 32)).faults) == {BadMessage, TooLarge, None}


def inlined(data: bytes, limit: int) -> list[bytes]:
    """Return the messages of ``data``, parsed with the same checks and nothing else."""
    unpack = struct.Struct(">Q").unpack_from
    messages: list[bytes] = []
    add = messages.append
    at, end = 0, len(data)
    final = end - 8
    while at <= final:
        (size,) = unpack(data, at)
        if size > limit:
            raise TooLarge(size, limit)
        start = at + 8
        behind = start + size
        if behind > end:
            break
        add(data[start:behind])
        at = behind
    return messages


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [False, True], ids=["equal", "mixed"])
def test_a_machine_is_about_as_fast_as_an_inlined_parser(mixed: bool) -> None:
    chance = random.Random(1)
    messages = [chance.randbytes(chance.randint(1, 60) if mixed else 16) for _ in range(1725 if mixed else 2730)]
    chunk = b"".join(map(frame, messages))
    assert abs(len(chunk) - 65536) < 1024
    machine = opened()

    def ours() -> list[bytes]:
        out: list[bytes] = []
        machine.feed(chunk)
        machine.take(out)
        return out

    def theirs() -> list[bytes]:
        return inlined(chunk, MIB)

    assert ours() == theirs() == messages
    seconds: dict[Callable[[], list[bytes]], list[float]] = {ours: [], theirs: []}
    for _ in range(301):  # alternating, so that other load affects both
        for parse, found in seconds.items():
            began = time.perf_counter()
            parse()
            found.append(time.perf_counter() - began)
    each = [statistics.median(found) / len(messages) * 1e9 for found in seconds.values()]
    sys.stdout.write(f"{each[0]:.0f} ns a message, {each[1]:.0f} ns inlined: {each[0] / each[1]:.2f} times\n")
    assert each[0] <= 1.4 * each[1] or TRACED
