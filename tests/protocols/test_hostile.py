"""Peers that complete the handshake and then break the protocol: listeners continue to serve honest peers.

The hostile peer is a plain socket. It is cut, counted (``cut``, ``bad``, ``too_large``) and listed in ``cuts``.
test_wire.py has the framing of each fault, test_limits.py the limits of time and number.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from nngkit.errors import TimedOut
from nngkit.protocols import Bus, Pair0, Pair1, Pub, Pull, Push, Rep, Req, Respondent, Sub, Surveyor
from nngkit.testing import BLOCKING, Background, Pattern, Wire, eventually
from tests.protocols.raw_peer import (
    BUS,
    LENGTH,
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
    read,
)
from tests.protocols.wires import WAIT

TCP = "tcp://127.0.0.1:0"
LIMIT = 1000
HEADROOM = 64  # bytes of protocol headers accepted on top of the limit


@dataclass(frozen=True)
class Listener:
    """A kind of listener, its honest counterpart, and the protocol number and header of a hostile peer."""

    kind: Any
    honest: Any
    number: int
    stranger: int
    header: bytes | None = b""  # header of a message that it would read; None: it reads none
    options: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def open(self) -> Iterator[Any]:
        with self.kind(listen=TCP, recv_max_size=LIMIT, linger=0.0, **self.options) as ours:
            yield ours

    @contextmanager
    def honest_peer(self, ours: Any, others: int = 0) -> Iterator[Any]:
        """An honest peer, connected, besides ``others``."""
        options = {"topics": ""} if self.honest is Sub else {}
        with self.honest(dial=ours.address, linger=0.0, reconnect=0.02, **options) as peer:
            peer.wait_for_peers(1, WAIT)
            ours.wait_for_peers(others + 1, WAIT)
            yield peer


ID = b"\x80\0\0\x07"
LISTENERS = [
    Listener(Pair0, Pair0, PAIR0, PAIR0),
    Listener(Pair1, Pair1, PAIR1, PAIR1, b"\0\0\0\x01"),
    Listener(Pub, Sub, PUB, SUB, None),
    Listener(Sub, Pub, SUB, PUB, b"", {"topics": ""}),
    Listener(Req, Rep, REQ, REP, ID),
    Listener(Rep, Req, REP, REQ, ID),
    Listener(Push, Pull, PUSH, PULL, None),
    Listener(Pull, Push, PULL, PUSH),
    Listener(Surveyor, Respondent, SURVEYOR, RESPONDENT, ID),
    Listener(Respondent, Surveyor, RESPONDENT, SURVEYOR, ID),
    Listener(Bus, Bus, BUS, BUS),
]
KEEP = (Req, Rep, Surveyor, Respondent)  # their headers may be long, so the body is checked
every = pytest.mark.parametrize("listener", LISTENERS, ids=lambda listener: listener.kind.__name__)


def works(ours: Any, peer: Any) -> None:
    """Send a message from one to the other, and a reply if it needs one. No hostile peer may share the work."""
    for requester, answerer in ((ours, peer), (peer, ours)):
        if isinstance(requester, (Req, Surveyor)):
            answering = Background(lambda one=answerer: one.recv(timeout=WAIT).reply(b"answer"))
            if isinstance(requester, Req):
                assert requester.request(b"question", timeout=WAIT) == b"answer"
            else:
                with requester.start(b"question", timeout=WAIT) as survey:
                    assert next(iter(survey)).body == b"answer"
            answering.result()
            return
    speaker, hearer = (ours, peer) if isinstance(ours, (Push, Pub, Pair0, Pair1, Bus)) else (peer, ours)
    speaker.send(b"honest", timeout=WAIT)
    assert hearer.recv(timeout=WAIT) == b"honest"


def joined_in_all(ours: Any, count: int) -> None:
    """Wait until ``count`` peers have joined in all: a peer that was cut earlier neither joined nor left."""
    eventually(lambda: ours.stats.joined == count)


def assert_cut(ours: Any, stranger: RawPeer | socket.socket, *, reason: str, **counters: int) -> None:
    """Assert that the peer was cut for ``reason``, and that the counters say so."""
    connection = stranger.socket if isinstance(stranger, RawPeer) else stranger
    counters.setdefault("cut", 1)
    eventually(lambda: ours.stats.cut == counters["cut"])
    assert {name: getattr(ours.stats, name) for name in counters} == counters
    last = ours.cuts[-1]
    assert last.address == "tcp://{}:{}".format(*connection.getsockname())
    assert reason in last.reason
    assert 0 <= time.monotonic() - last.time < WAIT


def left_in_all(ours: Any, count: int) -> None:
    """Wait until ``count`` peers have left in all: a peer's socket closes before that is counted."""
    eventually(lambda: ours.stats.left == count)


# ---- handshakes ------------------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize(
    "said",
    [b"\xff" * 8, b"GET / HTTP/1.1\r\n\r\n", b"\0SP\0", b"", hello(0), hello(0xFFFF), "its own", "a neighbour's"],
    ids=["noise", "http", "half a hello", "nothing", "protocol 0", "protocol 65535", "its own", "a neighbour's"],
)
def test_an_invalid_handshake(listener: Listener, said: bytes | str) -> None:
    """A connection without a complete handshake is no pipe; an invalid one is counted, an incomplete one waits."""
    if isinstance(said, str):  # an existing protocol, but not this listener's counterpart
        said = hello(listener.number if said == "its own" and listener.number != listener.stranger else 0x40)
    with listener.open() as ours, closing(connect(ours.address)) as connection:
        connection.sendall(said)
        assert read(connection, 8) == hello(listener.number)
        if len(said) >= 8:
            with pytest.raises(EOFError):
                read(connection, 1)
            assert_cut(ours, connection, reason="bad hello", bad=1, too_large=0)
        with listener.honest_peer(ours) as peer:
            works(ours, peer)
        assert (ours.stats.joined, ours.stats.refused) == (1, 0)


@pytest.mark.slow
@every
def test_three_hundred_silent_connections(listener: Listener) -> None:
    """Each may take ten seconds; their descriptors are freed when they close."""
    before = len(os.listdir("/proc/self/fd"))
    with listener.open() as ours:
        with ExitStack() as strangers:
            for _ in range(300):
                strangers.enter_context(closing(connect(ours.address)))
            with listener.honest_peer(ours) as peer:
                works(ours, peer)
            assert ours.stats.joined == 1
        left_in_all(ours, 1)
        with listener.honest_peer(ours) as peer:
            works(ours, peer)
        eventually(lambda: len(os.listdir("/proc/self/fd")) <= before + 8)  # the listener's, and NNG's


# ---- lengths ---------------------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize(
    "length",
    [2**64 - 40, 2**64 - 1, 2**63, 2**32, LIMIT + HEADROOM + 1],
    ids=["wraps around", "largest", "negative", "4 GiB", "one too many"],
)
def test_a_length_over_the_limit(listener: Listener, length: int) -> None:
    with listener.open() as ours:
        for count in (1, 2, 3):
            with RawPeer(ours.address, listener.stranger) as stranger:
                ours.wait_for_peers(1, WAIT)
                stranger.socket.sendall(LENGTH.pack(length) + b"x" * 16)
                assert stranger.closed()
                assert_cut(
                    ours, stranger, reason=f"{length} bytes is over the limit", cut=count, too_large=count, bad=0
                )
            eventually(lambda: not ours.pipes)
        left_in_all(ours, 3)
        with listener.honest_peer(ours) as peer:
            works(ours, peer)
            for _ in range(3):  # at once, in the same write as the hello
                with suppress(OSError, EOFError), RawPeer(ours.address, listener.stranger) as stranger:
                    stranger.socket.sendall(LENGTH.pack(length) + b"x" * 16)
                    assert stranger.closed()
                if listener.kind is not Push:  # which may have given its message to the connection being closed
                    works(ours, peer)
        eventually(lambda: not ours.pipes and ours.stats.joined == ours.stats.left)
        eventually(lambda: ours.stats.too_large == ours.stats.cut)


@pytest.mark.parametrize(
    "listener", [one for one in LISTENERS if one.kind not in KEEP], ids=lambda listener: listener.kind.__name__
)
def test_one_byte_over_the_limit(listener: Listener) -> None:
    header = listener.header or b""
    with listener.open() as ours:
        with RawPeer(ours.address, listener.stranger) as stranger:
            ours.wait_for_peers(1, WAIT)
            stranger.send(header + b"x" * LIMIT)
            if listener.header is not None:
                assert ours.recv(timeout=WAIT) == b"x" * LIMIT
            stranger.send(header + b"x" * (LIMIT + 1))
            assert stranger.closed()
            assert_cut(ours, stranger, reason="over the limit of 1000", too_large=1, bad=0)
        with listener.honest_peer(ours) as peer:
            works(ours, peer)


@pytest.mark.parametrize(
    "listener", [one for one in LISTENERS if one.kind in KEEP], ids=lambda listener: listener.kind.__name__
)
def test_a_body_over_the_limit_with_room_for_a_longer_header(listener: Listener) -> None:
    """It is dropped and counted, and the connection stays: a longer header would make the same size valid."""
    assert listener.header is not None
    with listener.open() as ours:
        with RawPeer(ours.address, listener.stranger) as stranger:
            ours.wait_for_peers(1, WAIT)
            for size in (LIMIT + 1, LIMIT + HEADROOM - len(listener.header)):
                stranger.send(listener.header + b"x" * size)
            eventually(lambda: ours.stats.too_large == 2)
            assert (ours.stats.pipes, ours.stats.received, ours.stats.cut) == (1, 0, 0)
        left_in_all(ours, 1)
        with listener.honest_peer(ours) as peer:
            works(ours, peer)


def unanswered(asking: Callable[[], Any]) -> bool:
    """Return True if the question gets no reply."""
    try:
        return not asking().replies
    except TimedOut:
        return True


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["inproc", "ipc", "ws", "wss", "tls+tcp"], indirect=True)
@pytest.mark.parametrize("pattern", ["pair0", "pair1", "reqrep", "pipeline", "bus", "pubsub", "survey"], indirect=True)
def test_a_message_over_the_limit_on_other_transports(pattern: Pattern, wire: Wire) -> None:
    size = 200_000
    with (
        pattern.open_second(listen=wire.address(), recv_max_size=size, **wire.options) as ours,
        pattern.first(dial=ours.address, reconnect=0.02, linger=0.0, **wire.options) as theirs,
    ):
        theirs.wait_for_peers(1, WAIT)
        ours.wait_for_peers(1, WAIT)
        if pattern.answered:
            assert unanswered(partial(pattern.sender(theirs), b"x" * (size + 100), timeout=0.2))
        else:
            theirs.send(b"x" * (size + 100))
        eventually(lambda: ours.stats.cut >= 1)
        assert ours.stats.too_large == ours.stats.cut
        assert f"over the limit of {size}" in ours.cuts[-1].reason
        eventually(lambda: ours.stats.left >= 1)
        ours.wait_for_peers(1, WAIT)
        theirs.wait_for_peers(1, WAIT)
        assert pattern.carry(BLOCKING, theirs, ours, [b"y" * size]) == [b"y" * size]


@every
def test_an_incomplete_message_and_then_silence(listener: Listener) -> None:
    """The peer may be slow, and has a minute (test_limits.py). Its pipe is listed, and can be disconnected."""
    with listener.open() as ours, RawPeer(ours.address, listener.stranger) as stranger:
        stranger.socket.sendall(LENGTH.pack(500) + (listener.header or b"") + b"x" * 10)
        ours.wait_for_peers(1, WAIT)
        silent = ours.pipes[0]
        # a Push and a Req share their work among all peers, and a pair has one: there the silent one must leave first
        if listener.kind not in (Push, Req, Pair0, Pair1):
            with listener.honest_peer(ours, others=1) as peer:
                works(ours, peer)
                assert ours.stats.pipes == 2
            left_in_all(ours, 1)
        assert ours.pipes == (silent,)
        gone = ours.stats.left
        assert ours.disconnect(silent)
        while stranger.socket.recv(4096):  # sent earlier
            pass
        left_in_all(ours, gone + 1)
        with listener.honest_peer(ours) as peer:
            works(ours, peer)


def test_a_request_of_a_silent_worker_is_resent_when_it_is_cut() -> None:
    with Req(listen=TCP) as req, RawPeer(req.address, REP) as silent:
        req.wait_for_peers(1, WAIT)
        asking = Background(req.request, b"question", timeout=WAIT)
        assert silent.recv()[4:] == b"question"
        with Rep(dial=req.address) as rep:
            req.wait_for_peers(2, WAIT)
            assert req.disconnect(req.pipes[0])
            rep.recv(timeout=WAIT).reply(b"answer")
            assert asking.result() == b"answer"
            assert req.stats.resent == 1


# ---- messages --------------------------------------------------------------------------------------------------------


@every
def test_empty_messages(listener: Listener) -> None:
    """They are messages, are discarded by sockets that only send, or are headers without an end."""
    count = 50
    with listener.open() as ours:
        with RawPeer(ours.address, listener.stranger) as stranger:
            ours.wait_for_peers(1, WAIT)
            if listener.header:
                stranger.send(b"")
                assert stranger.closed()
                assert_cut(ours, stranger, reason="bad ", bad=1, too_large=0)
            else:
                for _ in range(count):
                    stranger.send(b"")
                if listener.header is not None:
                    assert [ours.recv(timeout=WAIT) for _ in range(count)] == [b""] * count
                    assert ours.stats.received == count
                eventually(lambda: ours.stats.read == count)
                assert ours.stats.cut == 0
        left_in_all(ours, 1)
        with listener.honest_peer(ours) as peer:
            works(ours, peer)


@pytest.mark.parametrize("listener", [one for one in LISTENERS if one.header], ids=lambda one: one.kind.__name__)
def test_headers_alone_are_empty_messages(listener: Listener) -> None:
    assert listener.header is not None
    with listener.open() as ours:
        with RawPeer(ours.address, listener.stranger) as stranger:
            ours.wait_for_peers(1, WAIT)
            stranger.send(listener.header)
            if listener.kind in (Req, Surveyor):
                eventually(lambda: ours.stats.late == 1)
            else:
                got = ours.recv(timeout=WAIT)
                assert (got if listener.kind is Pair1 else got.body) == b""
            assert ours.stats.received == 1
        left_in_all(ours, 1)
        with listener.honest_peer(ours) as peer:
            works(ours, peer)


@pytest.mark.parametrize(
    "listener", [one for one in LISTENERS if one.kind in (Rep, Respondent)], ids=lambda one: one.kind.__name__
)
def test_a_question_whose_header_has_no_end(listener: Listener) -> None:
    """A header that ends too soon cuts the connection, one with too many hops is dropped."""
    with listener.open() as ours, listener.honest_peer(ours) as peer:
        for number, words in enumerate((1, 2, 7), start=2):
            with RawPeer(ours.address, listener.stranger) as stranger:
                joined_in_all(ours, number)
                stranger.send(b"\0\0\0\1" * words)
                assert stranger.closed()
                assert_cut(ours, stranger, reason="bad header", cut=number - 1, bad=number - 1)
            works(ours, peer)
        left_in_all(ours, 3)
        with RawPeer(ours.address, listener.stranger) as stranger:
            ours.wait_for_peers(2, WAIT)
            for words in (9, 15, LIMIT // 4):
                stranger.send(b"\0\0\0\1" * words)
            works(ours, peer)
            stranger.send(ID + b"question")
            question = ours.recv(timeout=WAIT)
            assert question.body == b"question"
            question.reply(b"answer")
            assert stranger.recv() == ID + b"answer"


@pytest.mark.parametrize(
    "listener", [one for one in LISTENERS if one.kind in (Req, Surveyor)], ids=lambda one: one.kind.__name__
)
def test_replies_with_unknown_ids(listener: Listener) -> None:
    """With and without a request in progress: ``late`` counts them."""
    with listener.open() as ours:
        with RawPeer(ours.address, listener.stranger) as stranger:
            ours.wait_for_peers(1, WAIT)
            flood = [
                struct.pack(">I", 0x80000000 | (number * 2654435761) % 2**32) + b"to no request"
                for number in range(1000)
            ]
            for reply in flood:
                stranger.send(reply)
            eventually(lambda: ours.stats.late == len(flood))
            if listener.kind is Req:
                asking = Background(ours.request, b"question", timeout=WAIT)
            else:
                asking = Background(ours.survey, b"question", timeout=WAIT, early=True)
            number = WORD.unpack(stranger.recv()[:4])[0]
            for other in (number ^ 1, 0x80000000, 0xFFFFFFFF):
                stranger.send(WORD.pack(other) + b"to no request")
            stranger.send(WORD.pack(number) + b"answer")
            result = asking.result()
            assert (result if listener.kind is Req else result.replies[0].body) == b"answer"
            assert ours.stats.late == len(flood) + 3
            stranger.send(b"\0\0\0\1no reply: its id lacks the top bit")
            assert stranger.closed()
            assert_cut(ours, stranger, reason="bad reply", bad=1)
        left_in_all(ours, 1)
        with listener.honest_peer(ours) as peer:
            works(ours, peer)


def test_a_flood_of_questions_delays_an_honest_peer_by_at_most_sixteen() -> None:
    """2,000 questions are queued, a reply takes a millisecond; without turns 1,024 would precede the honest one."""
    with Rep(listen=TCP, linger=0.0) as rep, RawPeer(rep.address, REQ) as flood, Req(dial=rep.address) as honest:
        rep.wait_for_peers(2, WAIT)
        honest.wait_for_peers(1, WAIT)
        flood.socket.sendall(b"".join(LENGTH.pack(8) + WORD.pack(1 << 31 | one) + b"more" for one in range(2000)))
        answered: list[bytes] = []

        def answer() -> None:
            for request in rep:
                time.sleep(0.001)
                answered.append(request.body)
                request.reply(request.body)
                if request.body == b"honest":
                    return

        answering = Background(answer)
        eventually(lambda: answered)
        before = len(answered)
        assert honest.request(b"honest", timeout=WAIT) == b"honest"
        answering.result()
        # those answered while the request was in transit, and two turns
        assert len(answered) - before < 100


def test_a_flood_of_messages_lets_a_quiet_peer_through() -> None:
    """20,000 messages of one peer are there when another sends one."""
    with Pull(listen=TCP) as pull, RawPeer(pull.address, PUSH) as flood, Push(dial=pull.address) as quiet:
        pull.wait_for_peers(2, WAIT)
        sending = Background(flood.socket.sendall, (LENGTH.pack(4) + b"more") * 20_000)
        assert pull.recv(timeout=WAIT) == b"more"
        quiet.send(b"quiet")
        quiet.drain(WAIT)
        taken = [pull.recv(timeout=WAIT) for _ in range(1400)]
        assert b"quiet" in taken
        while len(taken) < 20_000:
            taken.append(pull.recv(timeout=WAIT))
        sending.result()
