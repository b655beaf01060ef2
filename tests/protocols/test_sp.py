"""SP on a byte stream as a pure machine: two back to back, every cut, every limit, and interruptions at any point."""

import copy
import dis
import random
import signal
import statistics
import struct
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import CodeType, FrameType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nngkit.errors import BadMessage, TooLarge
from nngkit.protocols import sp
from nngkit.protocols.sp import (
    APART,
    BLOCK,
    HEADROOM,
    HELLO,
    IN_PLACE,
    LARGE,
    MIB,
    NAMES,
    PAIR0,
    PEERS,
    PIECES,
    PULL,
    PUSH,
    REP,
    REQ,
    RUN,
    SHORT,
    Machine,
    hello,
    split_hops,
    split_question,
    split_reply,
)
from tests.protocols.mutating import give, held, mutate

TRACED = sys.gettrace() is not None  # coverage makes everything slow
unhurried = settings(deadline=None)  # the machine may be busy with something else
FRAMINGS = pytest.mark.parametrize("ipc", [False, True], ids=["tcp", "ipc"])


def frame(body: bytes, ipc: bool = False) -> bytes:
    """Return a frame, built by hand."""
    return b"\1" * ipc + struct.pack(">Q", len(body)) + body


def opened(*, limit: int = MIB, ipc: bool = False, in_place: bool = False) -> Machine:
    """Return a PULL that has received its PUSH's hello."""
    machine = Machine(PULL, limit=limit, ipc=ipc, in_place=in_place)
    machine.feed(hello(PUSH))
    machine.take([])
    assert machine.open
    return machine


def all_of(machine: Machine, most: int = 1 << 62) -> list[bytes]:
    """Return the complete messages, taken ``most`` at a time."""
    out: list[bytes] = []
    while machine.more:
        before = len(out)
        machine.take(out, most)
        assert len(out) - before <= most
        assert len(out) > before or not machine.more, "a caller that loops while there is more would loop for ever"
    return out


def cut(wire: bytes, cuts: list[int]) -> list[bytes]:
    """Return ``wire`` in pieces of the sizes ``cuts``, repeated."""
    parts = []
    at = turn = 0
    while at < len(wire):
        parts.append(wire[at : at + cuts[turn % len(cuts)]])
        at += cuts[turn % len(cuts)]
        turn += 1
    return parts


# ---- the hello -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ours", PEERS, ids=NAMES.get)
def test_only_the_matching_protocol_is_accepted(ours: int) -> None:
    for theirs in PEERS:
        us, them = Machine(ours), Machine(theirs)
        assert them.to_send == [b"\0SP\0" + bytes([0, theirs]) + b"\0\0"]
        us.feed(them.to_send[0])
        if PEERS[ours] == theirs:
            us.take([])
            assert us.open
        else:
            with pytest.raises(BadMessage, match=f"hello: {NAMES[theirs]} instead of {NAMES[PEERS[ours]]}"):
                us.take([])
            assert not us.open


def test_a_hello_may_be_cut_anywhere_and_be_followed_by_messages() -> None:
    wire = hello(PUSH) + frame(b"a") + frame(b"")
    for at in range(len(wire) + 1):
        machine = Machine(PULL)
        machine.feed(wire[:at])
        got = all_of(machine)
        assert machine.open == (at >= HELLO)
        machine.feed(wire[at:])
        assert got + all_of(machine) == [b"a", b""]


@pytest.mark.parametrize("at", range(HELLO))
@pytest.mark.parametrize("bit", [0x01, 0x80])
def test_a_wrong_hello_is_refused_once_it_is_complete(at: int, bit: int) -> None:
    wrong = bytearray(hello(PUSH))
    wrong[at] ^= bit
    for first in range(HELLO):
        machine = Machine(PULL)
        out: list[bytes] = []
        machine.feed(bytes(wrong[:first]))
        machine.take(out)
        machine.feed(bytes(wrong[first:]) + frame(b"too early"))
        for _ in range(2):  # it stays wrong
            with pytest.raises(BadMessage, match="bad hello"):
                machine.take(out)
        assert (out, machine.open, machine.count) == ([], False, 0)


def test_an_unknown_protocol_is_refused_by_its_number() -> None:
    machine = Machine(REQ)
    machine.feed(hello(4711))
    with pytest.raises(BadMessage, match="protocol 4711 instead of rep"):
        machine.take([])


# ---- any messages, any cuts ------------------------------------------------------------------------------------------

bodies = st.one_of(
    st.lists(st.binary(max_size=60), max_size=50),
    # runs of equal length, which are taken RUN at a time
    st.lists(st.tuples(st.binary(max_size=20), st.integers(1, RUN + BLOCK)), max_size=4).map(
        lambda runs: [body for body, times in runs for _ in range(times)]
    ),
    st.lists(st.sampled_from([0, 1, SHORT, LARGE - 1, LARGE, APART - 1, APART, 70_000]).map(bytes), max_size=5),
)
sizes = st.lists(st.one_of(st.integers(1, 40), st.integers(1, 100_000)), min_size=1, max_size=5)


@unhurried
@given(bodies, bodies, sizes, st.sampled_from([1, 2, RUN - 1, RUN, BLOCK + 1, 1 << 62]), st.booleans(), st.booleans())
@example([b"x" * LARGE] * 3, [], [1], 1, False, True)
@example([b"x" * LARGE] * 3, [], [100_000], 1, True, True)
def test_two_machines_exchange_messages(
    there: list[bytes], back: list[bytes], cuts: list[int], most: int, ipc: bool, in_place: bool
) -> None:
    request = Machine(REQ, ipc=ipc, in_place=in_place)
    reply = Machine(REP, ipc=ipc, in_place=in_place)
    for sender, messages, receiver in ((request, there, reply), (reply, back, request)):
        buffers = sender.to_send + (sender.frames(messages) if messages else [])
        sender.to_send = []
        got = []
        for number, part in enumerate(parts := cut(b"".join(buffers), cuts), 1):
            if number % 3:
                give(receiver, part)
            else:
                receiver.feed(part)  # valid at any time, also where there is a place
            got += all_of(receiver, most)
        assert got == messages
        assert not receiver.begun
        assert (receiver.fed, receiver.count) == (len(parts), len(messages))


@FRAMINGS
@pytest.mark.parametrize("odd", [0, 1, RUN - 1, RUN, RUN + 1, RUN + BLOCK - 1, RUN + BLOCK, 2 * BLOCK])
@pytest.mark.parametrize("most", [1, RUN - 1, RUN, RUN + 1, BLOCK, BLOCK + 1, RUN + BLOCK, 1 << 62])
def test_a_run_of_equal_lengths_may_be_broken_anywhere(odd: int, most: int, ipc: bool) -> None:
    messages = [bytes([number]) * 16 for number in range(2 * (RUN + BLOCK))]
    messages.insert(odd, b"odd")
    machine = opened(ipc=ipc)
    machine.feed(b"".join(frame(body, ipc) for body in messages))
    assert all_of(machine, most) == messages


def test_messages_can_be_appended_to_a_deque() -> None:
    machine = opened(in_place=True)
    wire = b"".join(map(frame, [b"a", b"b" * LARGE, *[b"c"] * 2 * RUN]))
    out = deque([b"first"])
    for part in (wire[:100], wire[100:]):
        machine.feed(part)
        machine.take(out)
    assert list(out) == [b"first", b"a", b"b" * LARGE, *[b"c"] * 2 * RUN]


def test_taking_0_messages_loses_none() -> None:
    for wire in (frame(b"a") * 3, frame(b"a" * LARGE)):
        machine = opened(in_place=True)
        out: list[bytes] = []
        for part in (wire[:50], wire[50:]):
            machine.feed(part)
            machine.take(out, 0)
            machine.take(out, -1)
        assert (out, machine.count, machine.more) == ([], 0, True)
        assert b"".join(map(frame, all_of(machine))) == wire


def test_the_state_of_a_machine_at_each_step() -> None:
    machine = Machine(PULL)
    steps: list[tuple[bytes, int, tuple[bool, bool, int, int]]] = [
        # fed, most, then: begun, more, fed, count
        (hello(PUSH)[:7], 9, (True, False, 1, 0)),  # a hello is expected
        (hello(PUSH)[7:], 9, (False, False, 2, 0)),
        (frame(b"a") + frame(b"b"), 1, (True, True, 3, 1)),
        (b"", 1, (False, False, 4, 2)),
        (frame(b"c")[:1], 9, (True, False, 5, 2)),
        (frame(b"c")[1:8], 9, (True, False, 6, 2)),
        (frame(b"c")[8:], 9, (False, False, 7, 3)),
    ]
    for data, most, then in steps:
        machine.feed(data)
        machine.take([], most)
        assert (machine.begun, machine.more, machine.fed, machine.count) == then, data
    assert (machine.awaits_accept, machine.ended, machine.end()) == (False, False, b"")


def test_a_large_body_is_received_into_the_returned_object() -> None:
    machine = opened(in_place=True)
    body = random.Random(1).randbytes(LARGE)
    wire = frame(body) + frame(b"next")
    assert machine.place() is None
    machine.feed(wire[:10])
    assert machine.place() is None  # known after take
    machine.take([])
    place = machine.place()
    assert place is not None
    assert (len(place[0]), place[1], machine.begun, machine.more) == (LARGE, 2, True, False)
    machine.feed(wire[10:1000])
    give(machine, wire[1000:])
    assert (machine.place(), machine.more, machine.fed) == (None, True, 4)
    out: list[bytes] = []
    machine.take(out)
    assert out == [body, b"next"]
    assert out[0] is place[0]


def test_a_body_received_in_place_counts_towards_most() -> None:
    machine = opened(in_place=True)
    machine.feed(frame(bytes(LARGE))[:100])
    machine.take([])
    machine.feed(frame(bytes(LARGE))[100:] + frame(b"a") * 3)
    out: list[bytes] = []
    for most, then in ((1, 1), (2, 3), (2, 4)):
        machine.take(out, most)
        assert len(out) == then


@pytest.mark.parametrize("size", [LARGE - 1, IN_PLACE + 1])
def test_small_and_very_large_bodies_have_no_place(size: int) -> None:
    machine = opened(limit=IN_PLACE + 1, in_place=True)
    machine.feed(struct.pack(">Q", size))
    machine.take([])
    assert machine.place() is None
    machine.feed(bytes(size))
    assert list(map(len, all_of(machine))) == [size]


# ---- limits and faults -----------------------------------------------------------------------------------------------


@FRAMINGS
@pytest.mark.parametrize("limit", [0, 100, LARGE, MIB])
@pytest.mark.parametrize("in_place", [False, True])
def test_the_limit_and_the_headroom_are_exact(limit: int, ipc: bool, in_place: bool) -> None:
    for over in (0, HEADROOM):
        machine = opened(limit=limit, ipc=ipc, in_place=in_place)
        machine.feed(frame(bytes(limit + over), ipc))
        assert list(map(len, all_of(machine))) == [limit + over]
    for size in (limit + HEADROOM + 1, 1 << 63, (1 << 64) - 1):
        machine = opened(limit=limit, ipc=ipc, in_place=in_place)
        out: list[bytes] = []
        machine.feed(frame(b"before", ipc) + b"\1" * ipc + struct.pack(">Q", size))  # the body is not needed
        for _ in range(2):
            with pytest.raises(TooLarge) as caught:
                machine.take(out)
            assert (caught.value.size, caught.value.limit) == (size, limit)
        assert (out, machine.count) == ([b"before"], 1)


def test_a_complete_message_over_the_limit_is_refused_too() -> None:
    machine = opened(limit=100)
    out: list[bytes] = []
    machine.feed(frame(b"a") * (2 * RUN) + frame(bytes(200)) + frame(b"b"))
    with pytest.raises(TooLarge):
        machine.take(out)
    assert out == [b"a"] * (2 * RUN)
    machine = opened(limit=100)
    machine.feed(frame(bytes(200)) * RUN)  # as a run
    with pytest.raises(TooLarge):
        machine.take(out)


@pytest.mark.parametrize("marker", [0, 2, 255])
@pytest.mark.parametrize("before", [0, 1, RUN, RUN + 7])
@pytest.mark.parametrize("times", [1, RUN])
def test_an_ipc_frame_that_does_not_begin_with_1_is_refused(marker: int, before: int, times: int) -> None:
    run = frame(b"equal", ipc=True)
    machine = opened(ipc=True)
    out: list[bytes] = []
    machine.feed(run * before + (bytes([marker]) + run[1:]) * times + run * RUN)
    with pytest.raises(BadMessage, match=f"bad frame: begins with {marker} instead of 1"):
        machine.take(out)
    assert out == [b"equal"] * before


def test_a_fault_is_raised_after_the_messages_before_it() -> None:
    machine = opened(limit=100)
    machine.feed(frame(b"a") * 3 + struct.pack(">Q", 1000))
    out: list[bytes] = []
    machine.take(out, 2)
    machine.take(out, 1)
    assert out == [b"a"] * 3
    with pytest.raises(TooLarge):
        machine.take(out, 1)


# ---- interrupts ------------------------------------------------------------------------------------------------------


class Interrupted(BaseException):
    """Raised by a signal handler."""


# Where CPython checks for signals: at the start of a function, after calls, and at the end of a loop's body.
CHECKED = {number for name, number in dis.opmap.items() if "CALL" in name or name.startswith(("JUMP_BACK", "RESUME"))}


@contextmanager
def interrupt(which: int) -> Iterator[list[bool]]:
    """Raise Interrupted in sp.py at the ``which``-th place where a signal handler may run; return True if it was
    reached.

    """
    left = which
    codes: dict[CodeType, bytes] = {}
    before: dict[FrameType, int] = {}
    done: list[bool] = []

    def pass_by() -> None:
        nonlocal left
        if not left:
            done.append(True)
            raise Interrupted
        left -= 1

    def trace(traced: FrameType, event: str, _: object) -> Any:
        code = traced.f_code
        if code.co_filename != sp.__file__:
            return None
        traced.f_trace_opcodes = True
        if event == "call":
            pass_by()
        elif event == "opcode":
            last = before.get(traced)
            before[traced] = codes.setdefault(code, code.co_code)[traced.f_lasti]
            if last in CHECKED:
                pass_by()
        return trace

    earlier = sys.gettrace()
    sys.settrace(trace)
    try:
        yield done
    except Interrupted:
        pass
    finally:
        sys.settrace(earlier)


def every_interrupt(machine: Machine, call: Callable[..., object], *arguments: Any) -> Iterator[Machine]:
    """Make ``call`` with copies of ``machine``, each interrupted one place later, until one is not interrupted."""
    for which in range(100_000):
        other = copy.deepcopy(machine)
        with interrupt(which) as done:
            call(other, *arguments)
        yield other
        if not done:
            return


@FRAMINGS
@pytest.mark.parametrize("in_place", [False, True])
def test_an_interrupted_call_happens_or_not_and_can_be_repeated(ipc: bool, in_place: bool) -> None:
    large = random.Random(1).randbytes(LARGE)
    messages = [b"a", b"bc", *[b"16 bytes, a run."] * (RUN + 2), large, b"", large, b"end"]
    wire = hello(PUSH) + b"".join(frame(body, ipc) for body in messages)
    parts = [wire[:5], wire[5:30], wire[30:1000], wire[1000:9000], wire[9000:20_000], wire[20_000:]]
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

    earlier = signal.signal(signal.SIGALRM, handler)
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
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
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


@pytest.mark.parametrize("action", [single_bytes, single_bytes_in_place, single_messages])
def test_the_time_is_linear_in_the_bytes(action: Callable[[int], None]) -> None:
    assert quickest(action, 8 * LARGE) < 24 * quickest(action, LARGE)  # 8; 64 if it were quadratic


# ---- sending ---------------------------------------------------------------------------------------------------------


@FRAMINGS
@unhurried
@given(bodies.filter(bool))
def test_frames_use_few_buffers_and_large_bodies_are_not_copied(ipc: bool, messages: list[bytes]) -> None:
    machine = Machine(PAIR0, ipc=ipc)
    buffers = machine.frames(messages)
    assert b"".join(buffers) == b"".join(frame(body, ipc) for body in messages)
    large = [body for body in messages if len(body) >= APART]
    assert [id(one) for one in buffers if any(one is body for body in large)] == [id(body) for body in large]
    assert len(buffers) <= 2 * len(large) + 1
    assert sum(map(len, buffers)) == sum(machine.wire_size(len(body)) for body in messages)


# ---- headers ---------------------------------------------------------------------------------------------------------

HOP, ID = b"\0\0\0\7", b"\x80\0\0\5"
BAD: Any = BadMessage


def outcome(call: Callable[[bytes], object], message: bytes) -> object:
    try:
        return call(message)
    except BadMessage:
        return BAD


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (ID, (ID, b"")),
        (ID + b"body", (ID, b"body")),
        (ID + ID, (ID, ID)),  # the first id ends the header
        (HOP + ID + b"body", (HOP + ID, b"body")),
        (HOP * 7 + ID + b"body", (HOP * 7 + ID, b"body")),  # 8 words
        (HOP * 7 + ID, (HOP * 7 + ID, b"")),
        (HOP * 8 + ID + b"body", None),  # 9 words: too many devices
        (HOP * 8, None),
        (HOP * 1000, None),
        (b"", BAD),
        (ID[:3], BAD),
        (HOP, BAD),
        (HOP + ID[:3], BAD),
        (HOP * 7, BAD),
        (HOP * 7 + ID[:3], BAD),
    ],
)
def test_the_header_of_a_question_ends_with_its_id(message: bytes, expected: object) -> None:
    assert outcome(split_question, message) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (ID + b"body", (0x80000005, b"body")),
        (b"\xff" * 4, (0xFFFFFFFF, b"")),
        (HOP + ID, BAD),  # a reply arrives without the words of the devices
        (ID[:3], BAD),
        (b"", BAD),
    ],
)
def test_a_reply_begins_with_the_id_of_its_question(message: bytes, expected: object) -> None:
    assert outcome(split_reply, message) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"\0\0\0\1body", [b"body"]),
        (b"\0\0\0\1", [b""]),
        (b"\0\0\0\x08body", [b"body"]),
        (b"\0\0\0\x09body", []),
        (b"\0\0\0\xffbody", []),
        (b"\0\0\1\1body", BAD),
        (b"\1\0\0\1body", BAD),
        (b"\0\0\0", BAD),
        (b"", BAD),
    ],
)
def test_a_message_of_pair1_begins_with_its_hops(message: bytes, expected: object) -> None:
    assert outcome(lambda one: split_hops([b"\0\0\0\1first", one])[1:], message) == expected


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
