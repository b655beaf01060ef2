"""SP over WebSocket without a socket: messages, fragments, faults and close, of two machines back to back."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nngkit.errors import BadMessage, TooLarge
from nngkit.protocols.sp import HEADROOM
from nngkit.protocols.websocket import ClientMachine, Machine
from tests.protocols.websocket_machines import (
    CLOSE,
    KEY,
    MIB,
    PING,
    PONG,
    PUSH,
    TEXT,
    WHOLE,
    client_of,
    frame,
    joined,
    pieces,
    sent_by,
    server_of,
    take,
    to_client,
    to_server,
)

bodies_of_any_size = st.lists(st.binary(max_size=300) | st.sampled_from([bytes(2047), bytes(70_000)]), max_size=40)
bodies_of_one_size = st.tuples(st.integers(0, 130), st.integers(1, 300), st.binary(min_size=1, max_size=9)).map(
    lambda shape: [(shape[2] * 130)[i % 7 :][: shape[0]] for i in range(shape[1])]
)
any_bodies = bodies_of_any_size | bodies_of_one_size
cuts = st.lists(st.integers(1, 5000), min_size=1, max_size=20)
BOTH = [pytest.param(to_server, KEY, id="server"), pytest.param(to_client, None, id="client")]
both = pytest.mark.parametrize(("receiver", "key"), BOTH)
Receiver = Callable[..., Machine]


# ---- messages --------------------------------------------------------------------------------------------------------


@given(any_bodies, cuts, st.booleans(), st.sampled_from([1, 3, 20, 1 << 62]), st.sampled_from([10, 200, 32768]))
@example([b""] * 300, [4096], True, 1 << 62, 10)
@example([b"x" * 16] * 3000, [65536], True, 1 << 62, 32768)
@example([b"x" * 16] * 3000, [65536], False, 700, 32768)
@example([b"y" * 125] * 100 + [b"z" * 126] * 100, [5000], True, 1 << 62, 32768)
@example([bytes(range(256)) * 3000] * 2, [7, 5000, 90000], True, 1 << 62, 32768)
@example([bytes(range(256)) * 3000] * 2, [7, 5000, 90000], False, 1, 32768)
def test_messages_arrive_as_they_were_sent_in_both_directions(
    bodies: list[bytes], sizes: list[int], masked: bool, most: int, large: int
) -> None:
    client, server = joined(large=large)
    sender, receiver = (client, server) if masked else (server, client)
    buffers = sender.frames(bodies)
    wire = b"".join(buffers)
    assert all(buffers)
    assert len(wire) == sum(map(sender.wire_size, map(len, bodies)))
    out: deque[bytes] = deque()
    before = receiver.fed
    chunks = pieces(wire, sizes)
    for chunk in chunks:
        receiver.feed(chunk)
        receiver.take(out, most)
        while receiver.more:
            receiver.take(out, most)
    assert list(out) == bodies
    assert (receiver.fed - before, receiver.count) == (len(chunks), len(bodies))
    assert not receiver.begun
    assert not receiver.to_send


@given(bodies_of_any_size | st.just([bytes(range(256)) * 300]), st.booleans())
def test_frames_are_those_of_the_rfc(bodies: list[bytes], masked: bool) -> None:
    if masked:
        client = ClientMachine(PUSH, "/", "host", MIB, lambda size: (KEY * size)[:size])
        assert b"".join(client.frames(bodies)) == b"".join(frame(WHOLE, body, KEY) for body in bodies)
    else:
        assert b"".join(server_of().frames(bodies)) == b"".join(frame(WHOLE, body) for body in bodies)


@pytest.mark.parametrize("bodies", [[b"x" * 16] * 2500, [b"x" * i for i in range(300)], [b"x" * 500] * 9])
def test_each_frame_of_a_client_has_its_own_mask_drawn_in_one_call(bodies: list[bytes]) -> None:
    drawn: list[bytes] = []

    def mask(size: int) -> bytes:
        drawn.append(random.randbytes(size))
        return drawn[-1]

    client = ClientMachine(PUSH, "/", "host", MIB, mask)
    drawn.clear()
    wire = b"".join(client.frames(bodies))
    (keys,) = drawn
    each = [keys[i * 4 : i * 4 + 4] for i in range(len(bodies))]
    assert wire == b"".join(frame(WHOLE, body, key) for body, key in zip(bodies, each, strict=True))


def test_small_bodies_are_joined_and_large_ones_of_a_server_are_not_copied() -> None:
    large = bytes(32768)
    buffers = server_of().frames([b"a", b"bb", large, b"c"])
    assert buffers == [b"\x82\x01a\x82\x02bb\x82\x7e\x80\x00", large, b"\x82\x01c"]
    assert buffers[1] is large
    assert len(client_of().frames([b"a", b"bb", large, b"c"])) == 3
    assert server_of().frames([]) == client_of().frames([]) == []


@pytest.mark.parametrize("size", [MIB, MIB + 1, 2 * MIB, 2 * MIB + 5])
def test_a_message_that_nng_would_refuse_as_one_frame_is_fragmented(size: int) -> None:
    client, server = joined(limit=4 * MIB)
    body = random.Random(size).randbytes(size)
    for sender, receiver in ((client, server), (server, client)):
        wire = b"".join(sender.frames([b"before", body, b"after"]))
        assert wire.startswith(sender.frames([b"before"])[0][:2])
        assert len(wire) == sender.wire_size(6) + sender.wire_size(size) + sender.wire_size(5)
        assert take(receiver, wire) == [b"before", body, b"after"]
    assert server.frames([body])[0][0] == (WHOLE if size == MIB else 2)


@both
def test_receiving_in_small_chunks_or_byte_by_byte_takes_linear_time(receiver: Receiver, key: bytes | None) -> None:
    machine = receiver()
    bodies = [bytes(range(256)) * 300, b"", b"x", bytes(200), bytes(70_000)]
    wire = b"".join(frame(WHOLE, body, key) for body in bodies)
    out: list[bytes] = []
    for at in range(len(wire)):
        machine.feed(wire[at : at + 1])
        machine.take(out)
        assert len(machine._parts) < 4
    assert out == bodies


def test_take_returns_remaining_messages_before_those_fed_later() -> None:
    client, server = joined()
    out: list[bytes] = []
    for number in range(10):
        server.feed(b"".join(client.frames([b"%d" % number, b"and", b"more"])))
        server.take(out, 1)
        assert server.more
        assert not server.begun
    server.take(out)
    assert out == [word for number in range(10) for word in (b"%d" % number, b"and", b"more")]
    assert not server.more


def test_take_may_be_repeated_when_nothing_is_left() -> None:
    server = to_server()
    server.feed(frame(WHOLE, b"one", KEY))
    out: list[bytes] = []
    server.take(out, 1)
    server.take(out)
    assert out + take(server, frame(WHOLE, b"two", KEY)) == [b"one", b"two"]


def test_take_with_most_0_only_does_the_handshake() -> None:
    client, server = client_of(), server_of()
    out: list[bytes] = []
    server.feed(sent_by(client))
    server.take(out, 0)
    server.accept()
    client.feed(sent_by(server) + server.frames([b"early"])[0])
    client.take(out, 0)
    assert (client.open, client.more, out) == (True, True, [])
    client.take(out)
    assert out == [b"early"]


def test_frames_after_the_request_are_kept_until_it_is_accepted() -> None:
    client, server = client_of(), server_of()
    assert take(server, sent_by(client) + client.frames([b"impatient"])[0]) == []
    assert take(server, client.frames([b"very"])[0]) == []
    assert (server.awaits_accept, server.open, server.more) == (True, False, False)
    server.accept()
    assert server.more
    assert take(server) == [b"impatient", b"very"]


# ---- fragments and control frames ------------------------------------------------------------------------------------


fragments = st.lists(st.binary(max_size=200), min_size=2, max_size=5)
steps = st.lists(
    st.tuples(st.just("whole"), st.binary(max_size=150))
    | st.tuples(st.just("ping"), st.binary(max_size=125))
    | st.tuples(st.just("pong"), st.binary(max_size=125))
    | st.tuples(st.just("parts"), fragments),
    max_size=30,
)


@both
@given(steps=steps, sizes=cuts, most=st.sampled_from([1, 1 << 62]))
def test_fragments_are_joined_and_pings_answered_anywhere(
    receiver: Receiver, key: bytes | None, steps: list[tuple[str, Any]], sizes: list[int], most: int
) -> None:
    wire, messages, pongs = b"", [], []
    for number, (kind, what) in enumerate(steps):
        if kind == "whole":
            wire += frame(WHOLE, what, key)
            messages.append(what)
        elif kind == "parts":
            for at, part in enumerate(what):
                final = 0x80 if at == len(what) - 1 else 0
                wire += frame(final | (0 if at else 2), part, key)
                if number % 2 and not final:
                    wire += frame(PING, b"inside", key)
                    pongs.append(b"inside")
            messages.append(b"".join(what))
        else:
            wire += frame(PING if kind == "ping" else PONG, what, key)
            pongs += [what] if kind == "ping" else []
    machine = receiver()
    machine._mask = lambda size: (KEY * size)[:size]
    out: list[bytes] = []
    for chunk in pieces(wire, sizes):
        machine.feed(chunk)
        machine.take(out, most)
        while machine.more:
            machine.take(out, most)
    assert out == messages
    assert sent_by(machine) == b"".join(frame(PONG, pong, None if key else KEY) for pong in pongs)
    assert not machine.begun


@both
def test_an_incomplete_message_is_distinguished_from_silence(receiver: Receiver, key: bytes | None) -> None:
    machine = receiver()
    assert not machine.begun
    first, last = frame(2, b"one", key), frame(0x80, b"two", key)
    for data, begun in ((first[:1], True), (first[1:], True), (last[:-1], True), (last[-1:], False)):
        take(machine, data)
        assert machine.begun is begun
    assert machine.count == 1


@both
def test_empty_fragments_cost_no_memory(receiver: Receiver, key: bytes | None) -> None:
    machine = receiver(1000)
    take(machine, frame(2, b"", key) + frame(0, b"", key) * 20_000)
    assert not machine._partial
    assert not machine._have
    assert take(machine, frame(0x80, b"end", key)) == [b"end"]


# ---- faults ----------------------------------------------------------------------------------------------------------


def close_of(machine: Machine) -> bytes:
    """Return code and reason of the machine's close frame, unmasked."""
    said = sent_by(machine)
    assert said[0] == CLOSE
    if isinstance(machine, ClientMachine):
        assert len(said) == 6 + said[1] - 128
        return bytes(a ^ b for a, b in zip(said[6:], cycle(said[2:6])))
    assert len(said) == 2 + said[1]
    return said[2:]


WRONG = {
    "text": (frame(TEXT, b"hi", KEY), 1003, "text message"),
    "text in fragments": (frame(1, b"hi", KEY), 1003, "text message"),
    "a reserved bit": (frame(0xC2, b"hi", KEY), 1002, "reserved bits"),
    "an unknown opcode": (frame(0x83, b"hi", KEY), 1002, "unknown opcode 3"),
    "an unknown control frame": (frame(0x8B, b"hi", KEY), 1002, "unknown opcode 11"),
    "a ping in fragments": (frame(9, b"hi", KEY), 1002, "fragmented control frame"),
    "a long ping": (frame(PING, bytes(126), KEY), 1002, "control frame over 125 bytes"),
    "a fragment of no message": (frame(0x80, b"hi", KEY), 1002, "continuation without a message"),
    "a message inside another": (
        frame(2, b"", KEY) + frame(WHOLE, b"hi", KEY),
        1002,
        "new message inside a fragmented one",
    ),
    "a first fragment inside": (frame(2, b"", KEY) + frame(2, b"hi", KEY), 1002, "new message inside a fragmented one"),
    "a short length in 2 bytes": (b"\x82\xfe\x00\x7d" + bytes(4 + 125), 1002, "length 125 encoded in 2 bytes"),
    "a short length in 8 bytes": (
        b"\x82\xff" + (65535).to_bytes(8, "big") + bytes(4),
        1002,
        "65535 encoded in 8 bytes",
    ),
    "a close frame of one byte": (frame(CLOSE, b"\x03", KEY), 1002, "close frame"),
    "a close code that is not sent": (frame(CLOSE, b"\x03\xee", KEY), 1002, "close frame"),
    "a reason that is not UTF-8": (frame(CLOSE, b"\x03\xe8\xff", KEY), 1007, "close frame"),
}


@pytest.mark.parametrize("byte_by_byte", [False, True])
@pytest.mark.parametrize("what", WRONG)
def test_an_invalid_frame_is_refused_with_its_close_code_after_earlier_messages(what: str, byte_by_byte: bool) -> None:
    wire, code, why = WRONG[what]
    server = to_server()
    out: list[bytes] = []
    data = frame(WHOLE, b"before", KEY) + wire
    chunks = [data[at : at + 1] for at in range(len(data))] if byte_by_byte else [data]

    def all_of_it() -> None:
        for chunk in chunks:
            server.feed(chunk)
            server.take(out)

    with pytest.raises(BadMessage, match=why) as caught:
        all_of_it()
    assert caught.value.what == "WebSocket frame"
    assert out == [b"before"]
    assert close_of(server) == code.to_bytes(2, "big")
    assert server.end() == b""
    with pytest.raises(BadMessage, match=why):
        take(server, frame(WHOLE, b"after", KEY))
    assert (out, server.to_send) == ([b"before"], [])


@pytest.mark.parametrize("body", [b"hi", b""])
def test_only_frames_of_a_client_are_masked(body: bytes) -> None:
    server, client = to_server(), to_client()
    with pytest.raises(BadMessage, match="unmasked frame from a client"):
        take(server, frame(WHOLE, body))
    with pytest.raises(BadMessage, match="masked frame from a server"):
        take(client, frame(WHOLE, body, KEY))
    assert close_of(server) == close_of(client) == b"\x03\xea"


@both
@pytest.mark.parametrize("limit", [0, 100, 1000, 100_000])
def test_a_message_over_the_limit_is_refused_at_its_header(receiver: Receiver, key: bytes | None, limit: int) -> None:
    most = limit + HEADROOM
    assert take(receiver(limit), frame(WHOLE, bytes(most), key) * 3) == [bytes(most)] * 3
    whole = frame(WHOLE, bytes(most + 1), key)
    parted = frame(2, bytes(most - 9), key) + frame(0, bytes(9), key) + frame(0x80, b"x", key)
    for wire, cut in ((whole, most + 1 + (4 if key else 0)), (parted, 1 + (4 if key else 0))):
        machine = receiver(limit)
        with pytest.raises(TooLarge) as caught:
            take(machine, wire[:-cut])
        assert (caught.value.size, caught.value.limit) == (most + 1, limit)
        assert close_of(machine) == b"\x03\xf1"


@both
def test_a_length_of_all_ones_is_too_large(receiver: Receiver, key: bytes | None) -> None:
    machine = receiver()
    with pytest.raises(TooLarge):
        take(machine, bytes((WHOLE, 0xFF if key else 0x7F)) + b"\xff" * 8)


# ---- closing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_client", [True, False])
def test_a_close_frame_is_answered_once_and_ends_both_sides(by_client: bool) -> None:
    client, server = joined()
    first, second = (client, server) if by_client else (server, client)
    wire = first.end()
    assert take(second, b"".join(first.frames([b"last"])) + wire + b"whatever comes behind") == [b"last"]
    assert second.ended
    assert second.end() == b""
    assert not second.begun
    assert take(first, b"".join(second.frames([b"crossed"])) + sent_by(second)) == [b"crossed"]
    assert first.ended
    assert (first.to_send, first.end()) == ([], b"")
    assert take(first, b"more") == take(second, b"more") == []


@pytest.mark.parametrize("body", [b"", b"\x03\xe8", b"\x03\xe9going away", b"\x0f\xa0private"])
def test_the_answer_to_a_close_frame_has_its_code(body: bytes) -> None:
    server = to_server()
    take(server, frame(CLOSE, body, KEY))
    assert server.ended
    assert close_of(server)[:2] == body[:2]


def test_before_the_handshake_nothing_is_sent_at_the_end() -> None:
    assert client_of().end() == server_of().end() == b""
