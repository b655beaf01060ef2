"""SP over WebSocket without a socket: two machines back to back, against a naive frame writer, and against
`websockets`.

"""

from __future__ import annotations

import os
import random
import sys
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Opcode
from websockets.http11 import Request as HttpRequest
from websockets.http11 import Response as HttpResponse
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from nngkit.errors import BadMessage, ConfigError, TooLarge
from nngkit.protocols.sp import HEADROOM
from nngkit.protocols.websocket import ClientMachine, Machine, Request, ServerMachine

PUSH = "push.sp.nanomsg.org"
MIB = 1 << 20
KEY = b"\x01\x80\x7f\xff"
WHOLE, TEXT, CLOSE, PING, PONG = 0x82, 0x81, 0x88, 0x89, 0x8A

bodies_of_any_size = st.lists(st.binary(max_size=300) | st.sampled_from([bytes(2047), bytes(70_000)]), max_size=40)
bodies_of_one_size = st.tuples(st.integers(0, 130), st.integers(1, 300), st.binary(min_size=1, max_size=9)).map(
    lambda shape: [(shape[2] * 130)[i % 7 :][: shape[0]] for i in range(shape[1])]
)
any_bodies = bodies_of_any_size | bodies_of_one_size
cuts = st.lists(st.integers(1, 5000), min_size=1, max_size=20)


def server_of(path: str = "/", host: str | None = None, limit: int = MIB, large: int = 32768) -> ServerMachine:
    return ServerMachine(PUSH, path, host, limit, large=large)


def client_of(path: str = "/", host: str = "127.0.0.1:9000", limit: int = MIB, large: int = 32768) -> ClientMachine:
    return ClientMachine(PUSH, path, host, limit, os.urandom, large=large)


def sent_by(machine: Machine) -> bytes:
    taken, machine.to_send = machine.to_send, []
    return b"".join(taken)


def take(machine: Machine, data: bytes = b"") -> list[bytes]:
    out: list[bytes] = []
    machine.feed(data)
    machine.take(out)
    return out


def join(client: ClientMachine, server: ServerMachine) -> None:
    assert take(server, sent_by(client)) == []
    assert server.awaits_accept
    server.accept()
    assert take(client, sent_by(server)) == []
    assert client.open
    assert server.open


def joined(limit: int = MIB, large: int = 32768) -> tuple[ClientMachine, ServerMachine]:
    client, server = client_of(limit=limit, large=large), server_of(limit=limit, large=large)
    join(client, server)
    return client, server


def to_server(limit: int = MIB) -> ServerMachine:
    return joined(limit)[1]


def to_client(limit: int = MIB) -> ClientMachine:
    return joined(limit)[0]


def frame(first: int, body: bytes, key: bytes | None = None) -> bytes:
    """Return a frame as in RFC 6455, 5.2, byte by byte."""
    size, bit = len(body), 0x80 if key else 0
    if size < 126:
        head = bytes((first, bit | size))
    elif size < 65536:
        head = bytes((first, bit | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, bit | 127)) + size.to_bytes(8, "big")
    return head + key + bytes(a ^ b for a, b in zip(body, cycle(key))) if key else head + body


def pieces(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    out: list[bytes] = []
    at = 0
    for size in cycle(sizes):
        if at >= len(data):
            return out
        out.append(data[at : at + size])
        at += size
    raise AssertionError


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
def test_a_large_message_in_small_chunks_is_linear_and_so_is_everything_byte_by_byte(
    receiver: Receiver, key: bytes | None
) -> None:
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


def test_only_frames_of_a_client_are_masked() -> None:
    server, client = to_server(), to_client()
    with pytest.raises(BadMessage, match="unmasked frame from a client"):
        take(server, frame(WHOLE, b"hi"))
    with pytest.raises(BadMessage, match="masked frame from a server"):
        take(client, frame(WHOLE, b"hi", KEY))
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


# ---- the handshake, server -------------------------------------------------------------------------------------------

FIELDS = {
    "Host": "127.0.0.1:9000",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": b64encode(bytes(16)).decode(),
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": PUSH,
}


def request_of(line: str = "GET /brick HTTP/1.1", **changes: str | None) -> bytes:
    fields: dict[str, str | None] = {**FIELDS, **{name.replace("_", "-"): value for name, value in changes.items()}}
    lines = [line, *(f"{name}: {value}" for name, value in fields.items() if value is not None), "", ""]
    return "\r\n".join(lines).encode()


def test_a_request_is_shown_before_it_is_answered() -> None:
    server = server_of("/brick", "127.0.0.1")
    assert server.begun
    take(server, request_of("GET /brick?token=7 HTTP/1.1", Origin="http://elsewhere.example"))
    assert (server.awaits_accept, server.open, server.ended, server.to_send) == (True, False, False, [])
    assert server.request == Request("/brick?token=7", "http://elsewhere.example", "127.0.0.1:9000")
    server.accept()
    server.accept()
    assert sent_by(server) == (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=\r\nSec-WebSocket-Protocol: push.sp.nanomsg.org\r\n\r\n"
    )
    assert (server.awaits_accept, server.open, server.ended, server.begun) == (False, True, False, False)


def test_a_refused_request_is_answered_with_403() -> None:
    server = server_of("/brick")
    server.refuse()
    take(server, request_of() + b"rest")
    server.refuse()
    assert sent_by(server).startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert (server.awaits_accept, server.open, server.ended, server.begun, server.more) == (
        False,
        False,
        True,
        False,
        False,
    )
    server.accept()
    assert take(server, b"more") == []
    assert not server.to_send


@pytest.mark.parametrize(
    ("told", "asked", "path"),
    [
        ("127.0.0.1", "127.0.0.1", "/brick"),
        ("127.0.0.1", "127.0.0.1:80", "/brick"),
        ("127.0.0.1", "127.0.0.1", "/brick?query"),
        ("nngkit.example", "NNGkit.Example:1", "/brick"),
        ("::1", "[::1]:9000", "/brick"),
        ("[::1]", "[::1]", "/brick"),
        *((everywhere, "nngkit.example", "/brick") for everywhere in ("0.0.0.0", "*", "::", "[::]", "", None)),
    ],
)
def test_a_listener_accepts_its_host_with_any_port(told: str | None, asked: str, path: str) -> None:
    server = server_of("/brick", told)
    take(server, request_of(f"GET {path} HTTP/1.1", Host=asked))
    assert server.awaits_accept


@pytest.mark.parametrize(
    "changes",
    [
        {"Sec_WebSocket_Protocol": f"pull.sp.nanomsg.org, {PUSH}"},
        {"Sec_WebSocket_Protocol": f"chat,{PUSH} ,\r\nSec-WebSocket-Protocol: other"},
        {"Connection": "keep-alive, Upgrade"},
        {"Upgrade": "WebSocket"},
        {"Sec_WebSocket_Extensions": "permessage-deflate; client_max_window_bits"},
        {"Origin": "null"},
    ],
)
def test_requests_of_browsers_are_accepted(changes: dict[str, str]) -> None:
    server = server_of("/brick")
    take(server, request_of(**changes))
    assert server.awaits_accept
    server.accept()
    assert f"Sec-WebSocket-Protocol: {PUSH}\r\n".encode() in server.to_send[0]
    assert b"Extensions" not in server.to_send[0]


REFUSED: dict[str, tuple[bytes, int, str]] = {
    "another path": (request_of("GET / HTTP/1.1"), 404, "path /"),
    "a longer path": (request_of("GET /brick/ HTTP/1.1"), 404, "path /brick/"),
    "another host": (request_of(Host="localhost:9000"), 404, "host localhost:9000"),
    "no host": (request_of(Host=None), 400, "[Hh]ost"),
    "two hosts": (request_of(Host="a\r\nHost: b"), 400, "Host"),
    "another method": (request_of("POST /brick HTTP/1.1", Content_Length="0"), 405, "method POST"),
    "an old HTTP": (request_of("GET /brick HTTP/1.0"), 505, "HTTP/1.0"),
    "no upgrade": (request_of(Upgrade=None), 426, "not an upgrade"),
    "another upgrade": (request_of(Upgrade="h2c"), 426, "not an upgrade"),
    "no connection": (request_of(Connection="keep-alive"), 426, "not an upgrade"),
    "an old version": (request_of(Sec_WebSocket_Version="8"), 426, "version 8"),
    "no version": (request_of(Sec_WebSocket_Version=None), 400, "version None"),
    "no key": (request_of(Sec_WebSocket_Key=None), 400, "key is not 16 bytes"),
    "a short key": (request_of(Sec_WebSocket_Key="AAAA"), 400, "key is not 16 bytes"),
    "a key that is none": (request_of(Sec_WebSocket_Key="\xff" * 24), 400, "key is not 16 bytes"),
    "the dialer's protocol": (request_of(Sec_WebSocket_Protocol="pull.sp.nanomsg.org"), 400, "pull.* instead of"),
    "no protocol": (request_of(Sec_WebSocket_Protocol=None), 400, "no subprotocol instead of push"),
    "a body": (request_of(Content_Length="5"), 400, "body"),
    "a line that is none": (b"GET\r\n\r\n", 400, "illegal request line"),
    "an empty line": (b"\r\n\r\n", 400, "not HTTP"),
    "a hello of SP": (b"\0SP\0\0\x50\0\0", 400, "not HTTP"),
    "a hello of TLS": (b"\x16\x03\x01", 400, "not HTTP"),
    "a head without an end": (request_of()[:-2] + b"X: " + bytes([65]) * 16384, 431, "16384 bytes"),
    "a large head": (request_of(X="x" * 16384), 431, "16384 bytes"),
}


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize("what", REFUSED)
def test_an_invalid_request_gets_an_http_error(what: str, size: int) -> None:
    wire, status, why = REFUSED[what]
    server = server_of("/brick", "127.0.0.1")
    chunks = pieces(wire, [size])
    with pytest.raises(BadMessage, match=why) as caught:
        [take(server, chunk) for chunk in chunks]
    assert caught.value.what == "WebSocket handshake"
    head = sent_by(server)
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert head.endswith(b"\r\nContent-Length: 0\r\n\r\n")
    assert (server.ended, server.open, server.awaits_accept, server.begun, server.end()) == (
        True,
        False,
        False,
        False,
        b"",
    )
    assert take(server, b"more") == []


# ---- the handshake, client -------------------------------------------------------------------------------------------


def test_a_client_sends_the_request_of_nng() -> None:
    client = ClientMachine(PUSH, "/brick?x=1", "127.0.0.1:9000", MIB, bytes)
    assert client.begun
    assert sent_by(client) == (
        b"GET /brick?x=1 HTTP/1.1\r\nHost: 127.0.0.1:9000\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: push.sp.nanomsg.org\r\n\r\n"
    )
    assert sent_by(client_of(path="")).startswith(b"GET / HTTP/1.1\r\n")


@pytest.mark.parametrize(("path", "host"), [("/a b", "host"), ("/a\r\nX: y", "host"), ("/", "a\r\nX: y"), ("/é", "h")])
def test_an_address_invalid_in_http_is_a_config_error(path: str, host: str) -> None:
    with pytest.raises(ConfigError, match="WebSocket address"):
        client_of(path, host)


ANSWER = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Accept": "ICX+Yqv66kxgM0FcWaLWlFLwTAI=",
    "Sec-WebSocket-Protocol": PUSH,
}


def answer_of(line: str = "HTTP/1.1 101 Switching Protocols", **changes: str | None) -> bytes:
    fields: dict[str, str | None] = {**ANSWER, **{name.replace("_", "-"): value for name, value in changes.items()}}
    lines = [line, *(f"{name}: {value}" for name, value in fields.items() if value is not None), "", ""]
    return "\r\n".join(lines).encode()


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_client_is_open_when_its_request_was_accepted(size: int) -> None:
    client = ClientMachine(PUSH, "/", "host", MIB, bytes)
    messages = [body for chunk in pieces(answer_of() + frame(WHOLE, b"early"), [size]) for body in take(client, chunk)]
    assert client.open
    assert messages == [b"early"]


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize(
    ("wire", "why"),
    [
        (answer_of("HTTP/1.1 404 Not Found", Content_Length="0"), "the listener answered 404 Not Found"),
        (answer_of("HTTP/1.1 200 OK"), "the listener answered 200 OK"),
        (answer_of("HTTP/1.1 100 Continue"), "the listener answered 100"),
        (answer_of(Upgrade=None), "not an upgrade"),
        (answer_of(Connection="close"), "not an upgrade"),
        (answer_of(Sec_WebSocket_Accept=None), "another key"),
        (answer_of(Sec_WebSocket_Accept="AAAA"), "another key"),
        (answer_of(Sec_WebSocket_Protocol=None), "no subprotocol instead of push"),
        (answer_of(Sec_WebSocket_Protocol="pull.sp.nanomsg.org"), "pull.sp.nanomsg.org instead of push"),
        (answer_of(Sec_WebSocket_Extensions="permessage-deflate"), "extension"),
        (b"HTTP/1.1 nonsense\r\n\r\n", "illegal status line"),
        (b"HTTP/1.", "never complete"),
        (b"\0SP\0\0\x50\0\0", "not HTTP"),
        (b"SSH-2.0-", "not HTTP"),
        (answer_of(X="x" * 16384), "16384 bytes"),
    ],
)
def test_a_client_refuses_an_invalid_response(wire: bytes, why: str, size: int) -> None:
    client = ClientMachine(PUSH, "/", "host", MIB, bytes)
    sent_by(client)
    if why == "never complete":
        assert take(client, wire) == []
        assert client.begun
        return
    with pytest.raises(BadMessage, match=why) as caught:
        [take(client, chunk) for chunk in pieces(wire, [size])]
    assert caught.value.what == "WebSocket handshake"
    assert (client.ended, client.open, client.to_send, client.end()) == (True, False, [], b"")
    assert take(client, b"more") == []


# ---- signals ---------------------------------------------------------------------------------------------------------


class Interrupted(BaseException):
    """Raised by a signal handler."""


def interrupted(call: Callable[[], object], at: int) -> bool:
    """Make the call, and raise inside it between two calls, at number ``at``; return True if it got so far."""
    left = at

    def watch(frame: object, event: str, what: object) -> None:
        nonlocal left
        if what is sys.setprofile:
            return
        left -= 1
        if left == -1:
            raise Interrupted

    sys.setprofile(watch)
    try:
        call()
    except Interrupted:
        return True
    finally:
        sys.setprofile(None)
    return False


def test_feed_and_take_interrupted_anywhere_lose_and_duplicate_nothing() -> None:
    bodies = [b"x" * 16] * 40 + [b"", b"other", bytes(3000), b"parted", bytes(40_000)]
    wire = b"".join(frame(WHOLE, body, KEY) for body in bodies[:-2])
    wire += frame(2, b"par", KEY) + frame(PING, b"p", KEY) + frame(0x80, b"ted", KEY) + frame(WHOLE, bodies[-1], KEY)
    chunks = pieces(wire, [900, 30, 20_000])
    previous = sys.getprofile()
    try:
        for at in range(3000):
            server = to_server()
            out: list[bytes] = []
            hit = False
            for chunk in chunks:
                fed = server.fed
                hit |= interrupted(partial(server.feed, chunk), at)
                if server.fed == fed:
                    server.feed(chunk)
                hit |= interrupted(partial(server.take, out), at)
                assert server.count == len(out)
                server.take(out)
            assert out == bodies
            assert sent_by(server) == frame(PONG, b"p")
            if not hit:
                break
        else:
            pytest.fail("always interrupted")
    finally:
        sys.setprofile(previous)


def test_a_handshake_interrupted_anywhere_can_be_repeated() -> None:
    previous = sys.getprofile()
    try:
        for at in range(20_000):
            client, server = client_of(), server_of()
            server.feed(sent_by(client))
            hit = interrupted(partial(server.take, []), at)
            server.take([])
            hit |= interrupted(server.accept, at)
            server.accept()
            assert len(server.to_send) == 1
            client.feed(sent_by(server))
            hit |= interrupted(partial(client.take, []), at)
            client.take([])
            assert client.open
            if not hit:
                break
        else:
            pytest.fail("always interrupted")
    finally:
        sys.setprofile(previous)


# ---- arbitrary bytes -------------------------------------------------------------------------------------------------


def mutated(wire: bytes, chance: random.Random) -> bytes:
    data = bytearray(wire)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data[at : at + 1] = chance.randbytes(1)
            case 1:
                del data[at : at + chance.randint(1, 9)]
            case 2:
                data[at:at] = chance.randbytes(chance.randint(1, 9))
            case _:
                data[at:at] = data[chance.randrange(len(data) + 1) :][:20]
    return bytes(data)


def survive(machine: Machine, wire: bytes, chance: random.Random) -> None:
    out: list[bytes] = []
    try:
        for chunk in pieces(wire, [chance.randint(1, 300) for _ in range(5)]):
            machine.feed(chunk)
            machine.take(out, chance.choice([1, 1 << 62]))
            if machine.awaits_accept:
                assert isinstance(machine, ServerMachine)
                machine.accept()
            while machine.more:
                machine.take(out, chance.choice([1, 1 << 62]))
    except (BadMessage, TooLarge):
        assert machine.to_send or not machine.open
    assert all(type(body) is bytes for body in out)
    assert machine.count == len(out)
    assert machine._have <= 2000 + 300 + HEADROOM + 16384 * (not machine.open)
    machine.end()


@pytest.mark.parametrize("seed", range(4))
def test_a_mutated_stream_raises_only_our_errors(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(800):
        key = chance.choice([KEY, None])
        wire = request_of("GET / HTTP/1.1") if key else answer_of()
        begins = chance.choice([0, len(wire)])
        for _ in range(chance.randint(0, 12)):
            body = chance.randbytes(chance.choice([0, 5, 5, 5, 125, 126, 400]))
            first = chance.choice([WHOLE] * 6 + [2, 0, 0x80, PING, PONG, CLOSE, TEXT])
            wire += frame(first, body[:125] if first in (PING, PONG) else body, key) * chance.choice([1, 1, 7])
        machine: Machine = server_of(limit=2000) if key else ClientMachine(PUSH, "/", "host", 2000, bytes)
        survive(machine, wire[:begins] + mutated(wire[begins:], chance), chance)


@given(st.binary(max_size=300), st.booleans(), st.booleans())
def test_any_bytes_are_messages_or_refused(data: bytes, shaken: bool, server: bool) -> None:
    machine: Machine = (to_server() if server else to_client()) if shaken else server_of() if server else client_of()
    survive(machine, data, random.Random(0))


# ---- another implementation ------------------------------------------------------------------------------------------

SAID = [b"", b"one", b"\x82" * 16, bytes(range(256)) * 300, b"last"]


def their_messages(theirs: ServerProtocol | ClientProtocol) -> list[bytes]:
    messages: list[bytes] = []
    for event in theirs.events_received():
        assert not isinstance(event, (HttpRequest, HttpResponse))
        if event.opcode is Opcode.BINARY:
            messages.append(bytes(event.data))
        elif event.opcode is Opcode.CONT:
            messages[-1] += bytes(event.data)
    return messages


def converse(ours: Machine, theirs: ServerProtocol | ClientProtocol) -> None:
    theirs.receive_data(b"".join(ours.frames(SAID)))
    assert their_messages(theirs) == SAID
    for body in SAID:
        theirs.send_binary(body)
    theirs.send_ping(b"are you there")
    theirs.send_binary(b"in ", fin=False)
    theirs.send_continuation(b"parts", fin=True)
    assert take(ours, b"".join(theirs.data_to_send())) == [*SAID, b"in parts"]
    theirs.receive_data(sent_by(ours))
    (pong,) = theirs.events_received()
    assert not isinstance(pong, (HttpRequest, HttpResponse))
    assert (pong.opcode, bytes(pong.data)) == (Opcode.PONG, b"are you there")
    theirs.receive_data(b"".join(ours.frames([bytes(MIB + 5)])))
    assert their_messages(theirs) == [bytes(MIB + 5)]


def end_with(ours: Machine, theirs: ServerProtocol | ClientProtocol, we_close: bool) -> None:
    if we_close:
        theirs.receive_data(ours.end())
        take(ours, b"".join(theirs.data_to_send()))
    else:
        theirs.send_close(1001, "going")
        take(ours, b"".join(theirs.data_to_send()))
        theirs.receive_data(sent_by(ours))
    assert ours.ended
    assert not ours.to_send
    assert theirs.close_rcvd is not None
    assert theirs.close_rcvd.code == (1000 if we_close else 1001)
    assert theirs.parser_exc is None


@pytest.mark.parametrize("we_close", [True, False])
def test_our_client_works_with_websockets(we_close: bool) -> None:
    ours, theirs = client_of("/brick"), ServerProtocol(subprotocols=[Subprotocol(PUSH)], max_size=4 * MIB)
    theirs.receive_data(sent_by(ours))
    (request,) = theirs.events_received()
    assert isinstance(request, HttpRequest)
    theirs.send_response(theirs.accept(request))
    assert theirs.subprotocol == PUSH
    take(ours, b"".join(theirs.data_to_send()))
    assert ours.open
    converse(ours, theirs)
    end_with(ours, theirs, we_close)


@pytest.mark.parametrize("we_close", [True, False])
def test_our_server_works_with_websockets(we_close: bool) -> None:
    uri = parse_uri("ws://127.0.0.1:9000/brick")
    theirs = ClientProtocol(uri, subprotocols=[Subprotocol(PUSH)], max_size=4 * MIB)
    ours = server_of("/brick", "127.0.0.1")
    theirs.send_request(theirs.connect())
    take(ours, b"".join(theirs.data_to_send()))
    ours.accept()
    theirs.receive_data(sent_by(ours))
    assert theirs.handshake_exc is None
    (response,) = theirs.events_received()
    assert isinstance(response, HttpResponse)
    assert theirs.subprotocol == PUSH
    converse(ours, theirs)
    end_with(ours, theirs, we_close)


def test_websockets_receives_the_status_of_a_refusal() -> None:
    theirs = ClientProtocol(parse_uri("ws://127.0.0.1:9000/"), subprotocols=[Subprotocol(PUSH)])
    ours = server_of()
    theirs.send_request(theirs.connect())
    take(ours, b"".join(theirs.data_to_send()))
    ours.refuse()
    theirs.receive_data(sent_by(ours))
    assert "403" in str(theirs.handshake_exc)


@pytest.mark.parametrize("feeds", [1, 2, 3, 7])
def test_messages_fed_in_several_chunks_before_a_take_are_whole(feeds: int) -> None:
    """A caller that is behind feeds several times before it takes: large messages end before the last chunk."""
    bodies = [bytes([number]) * size for number, size in enumerate((100_000, 70_000, 5, 200_000, 66_000, 0, 90_000))]
    for one_way in (False, True):
        client, server = joined()
        sender, receiver = (client, server) if one_way else (server, client)
        wire = b"".join(sender.frames(bodies))
        out: list[bytes] = []
        pieces = [wire[at : at + 50_000] for at in range(0, len(wire), 50_000)]
        for start in range(0, len(pieces), feeds):
            for piece in pieces[start : start + feeds]:
                receiver.feed(piece)
            receiver.take(out)
        assert out == bodies


def test_a_request_without_a_target_is_for_the_default_path() -> None:
    """NNG sends such a request for an address without a path."""
    server = server_of()
    client = client_of()
    (request,) = client.to_send
    assert request.startswith(b"GET / HTTP/1.1\r\n")
    server.feed(request.replace(b"GET / HTTP", b"GET  HTTP", 1))
    server.take([], 0)
    assert server.awaits_accept
