"""SP on a byte stream as a pure machine: two back to back, every cut, every limit."""

import random
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nngkit.errors import BadMessage, TooLarge
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
from tests.protocols.mutating import give
from tests.protocols.sp_machines import FRAMINGS, all_of, cut, frame, opened

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


@pytest.mark.parametrize("cut", range(1, 7))
def test_an_alert_of_tls_which_is_shorter_than_a_hello_is_refused_at_once(cut: int) -> None:
    alert = b"\x15\x03\x03\0\2\2\x46"
    machine = Machine(PULL)
    machine.feed(alert[:1])
    machine.take([])
    machine.feed(alert[1 : 1 + cut])
    with pytest.raises(BadMessage, match="bad hello: the peer speaks TLS"):
        machine.take([])


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


@given(bodies, bodies, sizes, st.sampled_from([1, 2, RUN - 1, RUN, BLOCK + 1, 1 << 62]), st.booleans(), st.booleans())
@example([b"x" * LARGE] * 3, [], [1], 1, False, True)
@example([b"x" * LARGE] * 3, [], [100_000], 1, True, True)
@example([b"x" * LARGE] * 9, [b"y" * LARGE] * 5 + [b"z" * 70_000] * 2, [30_000, LARGE, 17], 2, True, True)
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


@FRAMINGS
@pytest.mark.parametrize("cut_at", [0, 3, 8, 9, 1000])
@pytest.mark.parametrize("odd", [None, 2, 3])
def test_messages_of_equal_size_are_received_in_place_together(odd: int | None, cut_at: int, ipc: bool) -> None:
    large = [random.Random(number).randbytes(LARGE) for number in range(4)]
    if odd is not None:
        large[odd] = large[odd][1:]
    machine, size = opened(ipc=ipc, in_place=True), LARGE + 8 + ipc
    wire = b"".join(frame(body, ipc) for body in large)
    machine.feed(wire[:20])
    machine.take([])
    assert machine.chain(1 << 20) == []  # nothing is known of what follows
    give(machine, wire[20 : size + 20])
    out: list[bytes] = []
    machine.take(out)
    assert (machine.chain(size - 1), [*map(len, machine.chain(2 * size))]) == (
        [],
        [size - LARGE, LARGE] * 2 + [size - LARGE],
    )
    give(machine, wire[size + 20 : 3 * size + cut_at])
    assert machine.more
    for most in (-1, 0, 1):
        machine.take(out, most)
    assert out == large[:2]
    machine.take(out)
    give(machine, wire[3 * size + cut_at :])
    assert out + all_of(machine) == large
    assert (machine.begun, machine.more, machine.count) == (False, False, 4)


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


# ---- sending ---------------------------------------------------------------------------------------------------------


@FRAMINGS
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
