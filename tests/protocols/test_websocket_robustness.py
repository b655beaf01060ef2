"""SP over WebSocket: interruptions, arbitrary bytes, and the library `websockets` at the other end."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Opcode
from websockets.http11 import Request as HttpRequest
from websockets.http11 import Response as HttpResponse
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from nngkit.errors import BadMessage, TooLarge
from nngkit.protocols.sp import HEADROOM
from nngkit.protocols.websocket import ClientMachine, Machine, ServerMachine
from tests.protocols.websocket_machines import (
    CLOSE,
    KEY,
    MIB,
    PING,
    PONG,
    PUSH,
    TEXT,
    WHOLE,
    answer_of,
    client_of,
    frame,
    joined,
    pieces,
    request_of,
    sent_by,
    server_of,
    take,
    to_client,
    to_server,
)

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
