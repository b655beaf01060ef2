"""Bytes on the wire as in docs/wire.md: handshakes, frames, headers, and unchanged bodies."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from nngkit.errors import TimedOut
from nngkit.protocols import Bus, Pair0, Pair1, Pub, Pull, Push, Rep, Req, Respondent, Sub, Surveyor
from nngkit.testing import CALLERS, Background, Caller, Wire, eventually
from tests.protocols import raw_peer
from tests.protocols.raw_peer import (
    BUS,
    PAIR0,
    PAIR1,
    PUB,
    PULL,
    PUSH,
    REP,
    REQ,
    RESPONDENT,
    SUB,
    SURVEYOR,
    WORD,
    RawPeer,
    connect,
    hello,
    http_head,
    read,
)
from tests.protocols.wires import WAIT

ALL = [
    (Pair0, PAIR0, PAIR0),
    (Pair1, PAIR1, PAIR1),
    (Pub, PUB, SUB),
    (Sub, SUB, PUB),
    (Req, REQ, REP),
    (Rep, REP, REQ),
    (Push, PUSH, PULL),
    (Pull, PULL, PUSH),
    (Surveyor, SURVEYOR, RESPONDENT),
    (Respondent, RESPONDENT, SURVEYOR),
    (Bus, BUS, BUS),
]

BODIES = [b"", b"\0", b"x" * 300, bytes(range(256)) * 300]


@contextmanager
def facing(kind: Callable[..., Any], peer: int, address: str = "tcp://127.0.0.1:0") -> Iterator[tuple[Any, RawPeer]]:
    """Yield a listening socket of ours, and a raw peer connected to it."""
    with kind(listen=address, linger=0.0) as ours, RawPeer(ours.address, peer) as theirs:
        ours.wait_for_peers(1, WAIT)
        yield ours, theirs


# ---- the handshake ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "number", "peer"), ALL)
def test_a_connection_begins_with_a_hello_of_eight_bytes(kind: Callable[..., Any], number: int, peer: int) -> None:
    with facing(kind, peer) as (_, theirs):
        assert theirs.heard == b"\x00SP\x00" + number.to_bytes(2, "big") + b"\x00\x00"


@pytest.mark.parametrize(
    "said",
    [hello(PAIR0), b"\0SP\0\0\x51\0\x01", b"\0SP\1\0\x51\0\0", b"GET / HT"],
    ids=["another protocol", "not zero at the end", "another version", "another language"],
)
def test_a_wrong_hello_ends_the_connection(said: bytes) -> None:
    with Push(listen="tcp://127.0.0.1:0") as push, closing(connect(push.address)) as connection:
        connection.sendall(said)
        assert read(connection, 8) == hello(PUSH)
        with pytest.raises(EOFError):
            read(connection, 1)
        assert (push.stats.pipes, push.stats.joined) == (0, 0)
        eventually(lambda: (push.stats.cut, push.stats.bad) == (1, 1))
        assert [cut.address for cut in push.cuts] == ["tcp://{}:{}".format(*connection.getsockname())]


# ---- frames ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("transport", "prefix"), [("tcp", b""), ("ipc", b"\x01"), ("abstract", b"\x01")])
def test_a_frame_is_a_length_and_the_message_and_on_ipc_begins_with_1(
    transport: str, prefix: bytes, sockets: Path
) -> None:
    with facing(Pair0, PAIR0, Wire(transport, sockets).address()) as (ours, theirs):
        for body in BODIES:
            frame = prefix + struct.pack(">Q", len(body)) + body
            ours.send(body)
            assert read(theirs.socket, len(frame)) == frame
            theirs.socket.sendall(frame)
            assert ours.recv(timeout=WAIT) == body


def test_an_ipc_frame_of_another_kind_ends_the_connection(sockets: Path) -> None:
    with facing(Pull, PUSH, Wire("ipc", sockets).address()) as (pull, theirs):
        theirs.prefix = b"\x02"
        theirs.send(b"x")
        assert theirs.closed()
        eventually(lambda: pull.stats.left == 1)
        assert (pull.stats.received, pull.stats.cut, pull.stats.bad) == (0, 1, 1)


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_a_length_over_the_limit_ends_only_its_connection(transport: str, sockets: Path) -> None:
    with (
        Pull(listen=Wire(transport, sockets).address(), recv_max_size=1000) as pull,
        RawPeer(pull.address, PUSH) as good,
    ):
        pull.wait_for_peers(1, WAIT)
        for count, length in enumerate((2**64 - 40, 1001), start=1):
            with RawPeer(pull.address, PUSH) as bad:
                bad.socket.sendall(bad.prefix + struct.pack(">Q", length))
                assert bad.closed()
            eventually(lambda count=count: pull.stats.too_large == count)  # type: ignore[misc]
            assert pull.cuts[-1].reason == f"message of {length} bytes is over the limit of 1000"
        good.send(b"x" * 1000)
        assert pull.recv(timeout=WAIT) == b"x" * 1000
        assert (pull.stats.cut, pull.stats.bad, pull.stats.left) == (2, 0, 2)


@pytest.mark.parametrize("caller", CALLERS, indirect=True, ids=lambda caller: caller.name)
def test_messages_before_a_fault_are_received_at_once(caller: Caller) -> None:
    with facing(lambda **options: Pull(recv_max_size=1000, **options), PUSH) as (pull, theirs):
        waiting = caller.start(pull.recv)
        eventually(lambda: pull._inbox.waiters)
        frame = struct.pack(">Q", 4) + b"good"
        theirs.socket.sendall(frame * 2 + struct.pack(">Q", 1001))
        assert waiting.result() == b"good"
        assert theirs.closed()
        assert pull.recv(timeout=WAIT) == b"good"


# ---- headers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "peer"), [(Pair0, PAIR0), (Push, PULL), (Bus, BUS), (Pub, SUB)], ids=["pair0", "push", "bus", "pub"]
)
def test_without_a_header_the_message_is_the_programs_bytes(kind: Callable[..., Any], peer: int) -> None:
    with facing(kind, peer) as (ours, theirs):
        for body in BODIES:
            ours.send(body)
            assert theirs.recv() == body


def test_pair1_sends_a_hop_count_of_1_and_accepts_up_to_8() -> None:
    with facing(Pair1, PAIR1) as (ours, theirs):
        ours.send(b"body")
        assert theirs.recv() == b"\0\0\0\x01body"
        for hops in (1, 8, 9, 255, 2):
            theirs.send(WORD.pack(hops) + b"%d" % hops)
        assert [ours.recv(timeout=WAIT) for _ in range(3)] == [b"1", b"8", b"2"]
        theirs.send(WORD.pack(256))
        assert theirs.closed()
        eventually(lambda: (ours.stats.cut, ours.stats.bad) == (1, 1))


def test_a_request_has_an_id_with_the_top_bit_set_and_so_has_its_reply() -> None:
    with facing(Req, REP) as (req, theirs):
        ids = []
        for body in BODIES:
            asking = Background(req.request, body, timeout=WAIT)
            message = theirs.recv()
            assert message[4:] == body
            ids.append(WORD.unpack(message[:4])[0])
            theirs.send(WORD.pack(ids[-1] ^ 1) + b"to no request")
            theirs.send(message[:4] + body[::-1])
            assert asking.result() == body[::-1]
        assert all(number & 0x80000000 for number in ids)
        assert [(number - ids[0]) & 0x7FFFFFFF for number in ids] == [0, 1, 2, 3]
        assert req.stats.late == len(BODIES)


def test_a_survey_has_an_id_with_the_top_bit_set_and_takes_every_reply_with_it() -> None:
    with facing(Surveyor, RESPONDENT) as (surveyor, theirs):
        asking = Background(surveyor.survey, b"who?", timeout=1.0)
        message = theirs.recv()
        assert (message[0] >> 7, message[4:]) == (1, b"who?")
        for reply in (b"", b"again"):
            theirs.send(message[:4] + reply)
        theirs.send(WORD.pack(WORD.unpack(message[:4])[0] ^ 1) + b"to no request")
        result = asking.result()
        assert [reply.body for reply in result.replies] == [b"", b"again"]
        assert (result.expected, result.answered) == (1, 1)
        theirs.send(message[:4] + b"late")
        eventually(lambda: surveyor.stats.late == 2)


def test_ids_start_at_random_so_that_a_restarted_process_takes_no_old_replies() -> None:
    firsts = set()
    for _ in range(4):
        with facing(Req, REP) as (req, theirs):
            asking = Background(req.request, b"", timeout=WAIT)
            firsts.add(message := theirs.recv())
            theirs.send(message)
            asking.result()
    assert len(firsts) == 4  # a chance of 1 in 350 million to fail


@pytest.mark.parametrize(("kind", "peer"), [(Rep, REQ), (Respondent, SURVEYOR)], ids=["rep", "respondent"])
def test_a_reply_carries_the_whole_header_of_its_question(kind: Callable[..., Any], peer: int) -> None:
    with facing(kind, peer) as (ours, theirs):
        for hops in range(8):
            trail = b"".join(map(WORD.pack, range(1, hops + 1))) + b"\x80\0\0\x07"
            theirs.send(trail + b"question")
            question = ours.recv(timeout=WAIT)
            assert question.body == b"question"
            question.reply(b"answer")
            assert theirs.recv() == trail + b"answer"


@pytest.mark.parametrize(("kind", "peer"), [(Rep, REQ), (Respondent, SURVEYOR)], ids=["rep", "respondent"])
def test_a_question_with_over_8_header_words_is_dropped_and_one_without_an_end_cuts_the_connection(
    kind: Callable[..., Any], peer: int
) -> None:
    with facing(kind, peer) as (ours, theirs):
        theirs.send(b"\0\0\0\1" * 8 + b"\x80\0\0\x07too far")
        theirs.send(b"\x80\0\0\x07near")
        assert ours.recv(timeout=WAIT).body == b"near"
        theirs.send(b"\0\0\0\1abc")
        assert theirs.closed()
        eventually(lambda: (ours.stats.cut, ours.stats.bad) == (1, 1))
        with pytest.raises(TimedOut):
            ours.recv(timeout=0)


@pytest.mark.parametrize(("kind", "peer"), [(Req, REP), (Surveyor, RESPONDENT)], ids=["req", "surveyor"])
def test_a_reply_too_short_for_an_id_cuts_the_connection(kind: Callable[..., Any], peer: int) -> None:
    with facing(kind, peer) as (ours, theirs):
        theirs.send(b"abc")
        assert theirs.closed()
        eventually(lambda: ours.stats.left == 1)
        assert (ours.stats.cut, ours.stats.bad) == (1, 1)


# ---- the trailer of numbered messages --------------------------------------------------------------------------------


def test_a_numbered_message_is_topic_body_origin_number_and_topic_length() -> None:
    with Pub(listen="tcp://127.0.0.1:0", sequence=True) as pub, RawPeer(pub.address, SUB) as theirs:
        pub.wait_for_peers(1, WAIT)
        pub.send(b"3 degrees", topic="weather.")
        pub.send_many([b"", b"no topic"])
        pub.send(b"4 degrees", topic=b"weather.")
        first = theirs.recv()
        assert first[:17] == b"weather.3 degrees"
        origin, number, length = struct.unpack(">8sQI", first[17:])
        assert (number, length) == (0, len(b"weather."))
        assert theirs.recv() == origin + struct.pack(">QI", 0, 0)
        assert theirs.recv() == b"no topic" + origin + struct.pack(">QI", 1, 0)
        assert theirs.recv() == b"weather.4 degrees" + origin + struct.pack(">QI", 1, 8)
    with Pub(listen="tcp://127.0.0.1:0", sequence=True) as pub, RawPeer(pub.address, SUB) as theirs:
        pub.wait_for_peers(1, WAIT)
        pub.send(b"")
        assert theirs.recv()[:8] != origin


def test_a_subscriber_removes_the_trailer_and_counts_gaps_repeats_and_missing_trailers() -> None:
    def numbered(message: bytes, number: int, topic: int = 0, origin: bytes = b"origin 1") -> bytes:
        return message + struct.pack(">8sQI", origin, number, topic)

    with facing(lambda **options: Sub(topics="", sequence=True, **options), PUB) as (sub, theirs):
        theirs.send(numbered(b"begins at 5", 5))
        theirs.send(numbered(b"two lost", 8))
        theirs.send(numbered(b"repeated", 8))
        theirs.send(numbered(b"topic", 3, topic=5))
        theirs.send(numbered(b"restarted", 0, origin=b"origin 2"))
        theirs.send(b"too short")
        theirs.send(numbered(b"a topic longer than the message", 9, topic=32))
        theirs.send(numbered(b"next", 9))
        texts = [b"begins at 5", b"two lost", b"repeated", b"topic", b"restarted", b"next"]
        assert [sub.recv(timeout=WAIT) for _ in texts] == texts
        assert (sub.stats.lost, sub.stats.duplicate, sub.stats.bad) == (2, 1, 2)


# ---- WebSocket -------------------------------------------------------------------------------------------------------

EVERYWHERE = "0.0.0.0"


@pytest.mark.parametrize(("kind", "number", "peer"), ALL)
def test_each_protocol_has_its_name_on_ws(kind: Callable[..., Any], number: int, peer: int) -> None:
    name = {PAIR0: "pair"}.get(number, kind.__name__.lower())
    with kind(listen="ws://127.0.0.1:0", linger=0.0) as ours, closing(connect(ours.address)) as connection:
        connection.sendall(raw_peer.upgrade_request("127.0.0.1", "/", f"{name}.sp.nanomsg.org"))
        assert http_head(connection).startswith(b"HTTP/1.1 101 ")
        ours.wait_for_peers(1, WAIT)


def upgraded(host_listened_on: str, host_asked_for: str, path: str, subprotocol: str | None) -> tuple[bytes, bytes]:
    """Return the first line of a listening Push's answer to an upgrade, and the frame of a message it sends."""
    with Push(listen=f"ws://{host_listened_on}:0/brick", linger=0.0) as push:
        address = push.address.replace(EVERYWHERE, "127.0.0.1")
        with closing(connect(address)) as connection:
            connection.sendall(raw_peer.upgrade_request(host_asked_for, path, subprotocol))
            head = http_head(connection)
            status, _, fields = head.partition(b"\r\n")
            if b" 101 " not in status:
                return status, b""
            assert b"Sec-WebSocket-Protocol: push.sp.nanomsg.org\r\n" in fields
            push.send(b"work")
            return status, read(connection, 6)


@pytest.mark.parametrize(
    ("listened", "host", "path", "subprotocol", "status"),
    [
        ("127.0.0.1", "127.0.0.1", "/brick", "push.sp.nanomsg.org", b"101"),
        ("127.0.0.1", "127.0.0.1:80", "/brick", "push.sp.nanomsg.org", b"101"),
        ("127.0.0.1", "localhost", "/brick", "push.sp.nanomsg.org", b"404"),
        (EVERYWHERE, "nngkit.example", "/brick", "push.sp.nanomsg.org", b"101"),
        ("127.0.0.1", "127.0.0.1", "/", "push.sp.nanomsg.org", b"404"),
        ("127.0.0.1", "127.0.0.1", "/brick", "pull.sp.nanomsg.org", b"400"),
        ("127.0.0.1", "127.0.0.1", "/brick", None, b"400"),
    ],
    ids=["as asked", "any port", "another host", "any host", "another path", "the dialer's protocol", "no protocol"],
)
def test_a_ws_listener_requires_its_host_path_and_protocol_and_sends_binary_frames(
    listened: str, host: str, path: str, subprotocol: str | None, status: bytes
) -> None:
    first_line, frame = upgraded(listened, host, path, subprotocol)
    assert first_line.split()[1] == status
    assert frame == (b"\x82\x04work" if status == b"101" else b"")


def test_a_ws_dialer_requests_the_listeners_protocol_and_sends_masked_frames() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, Req(linger=0.0) as req:
        server.settimeout(WAIT)
        req.dial(f"ws://127.0.0.1:{server.getsockname()[1]}/brick")
        with closing(server.accept()[0]) as connection:
            connection.settimeout(WAIT)
            request = http_head(connection)
            assert request.startswith(b"GET /brick HTTP/1.1\r\n")
            assert b"Sec-WebSocket-Protocol: rep.sp.nanomsg.org\r\n" in request
            connection.sendall(raw_peer.upgrade_answer(request))
            asking = Background(req.request, b"question", timeout=WAIT)
            assert read(connection, 2) == b"\x82\x8c"  # binary, whole; masked, 12 bytes
            mask = read(connection, 4) * 3
            message = bytes(one ^ other for one, other in zip(read(connection, 12), mask, strict=True))
            assert (message[0] >> 7, message[4:]) == (1, b"question")
            connection.sendall(b"\x82\x0a" + message[:4] + b"answer")
            assert asking.result() == b"answer"
