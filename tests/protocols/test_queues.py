"""What is queued where, what is dropped, and which counter says so: the table of docs/protocols.md.

The peer is a plain socket that reads, or writes, only when told to. Large messages fill the network's own buffers, so
how many of them get away is not ours to say; which ones do, and that they are counted, is.
"""

import threading
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from nngkit.errors import Full, TimedOut
from nngkit.protocols import Bus, Message, Pair0, Pub, Pull, Push, Rep, Req, Respondent, Sub, Surveyor
from nngkit.protocols._pipes import Pipes
from tests.protocols.raw_peer import (
    BUS,
    LENGTH,
    PAIR0,
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
)
from tests.protocols.wires import BLOCKING, WAIT, Background, Pattern, Wire, eventually

TCP = "tcp://127.0.0.1:0"
LARGE = b"x" * 65536
POSTED = 4  # receives that stay posted from the start: what they took is not NNG's to drop
MANY = 400  # times LARGE is more than the network's buffers take (about 10 of them here)


def numbered(number: int, body: bytes = b"") -> bytes:
    return b"%06d" % number + body


def number(message: bytes) -> int:
    return int(message[:6])


# ---- sending to a peer that does not read ----------------------------------------------------------------------------


def test_pub_keeps_the_newest_for_a_subscriber_that_does_not_read() -> None:
    with Pub(listen=TCP, send_buffer=8, linger=0.0) as pub, RawPeer(pub.address, SUB) as slow:
        pub.wait_for_peers(1, WAIT)
        for one in range(MANY):
            pub.send(numbered(one, LARGE))
        arrived = [number(message) for message in slow.recv_all(numbered(MANY - 1))]
        assert arrived[-8:] == list(range(MANY - 8, MANY))
        assert (pub.stats.sent, pub.stats.dropped) == (MANY, 0)  # NNG drops, and does not say so
        eventually(lambda: pub.stats.written == len(arrived))


def test_bus_keeps_the_oldest_for_a_peer_that_does_not_read() -> None:
    with Bus(listen=TCP, send_buffer=8, linger=0.0) as bus, RawPeer(bus.address, BUS) as slow:
        bus.wait_for_peers(1, WAIT)
        for one in range(MANY):
            bus.send(numbered(one, LARGE))
        arrived = [number(slow.recv()) for _ in range(9)]  # one on its way, and a queue of 8
        assert arrived == list(range(9))
        assert (bus.stats.sent, bus.stats.dropped) == (MANY, 0)  # NNG drops, and does not say so
        while arrived[-1] != MANY:  # sent again for each that was read, until there was room for it
            bus.send(numbered(MANY))
            arrived.append(number(slow.recv()))
        assert arrived == sorted(arrived)
        assert len(arrived) < MANY


FLOW = pytest.mark.parametrize(("kind", "peer"), [(Push, PULL), (Pair0, PAIR0)], ids=["push", "pair"])


@FLOW
def test_a_flow_controlled_sender_blocks_when_nobody_reads(kind: Callable[..., Any], peer: int) -> None:
    with kind(listen=TCP, send_buffer=8, send_timeout=0.05, linger=0.0) as ours, RawPeer(ours.address, peer) as slow:
        ours.wait_for_peers(1, WAIT)
        with pytest.raises(TimedOut) as late:
            ours.send_many([numbered(one, LARGE) for one in range(MANY)])
        assert 8 < late.value.sent == ours.stats.sent < MANY
        arrived = [number(slow.recv()) for _ in range(late.value.sent)]
        assert arrived == list(range(late.value.sent))  # what timed out went not at all


@FLOW
def test_it_can_drop_and_count_instead(kind: Callable[..., Any], peer: int) -> None:
    with kind(listen=TCP, send_buffer=8, when_full="drop", linger=0.0) as ours, RawPeer(ours.address, peer) as slow:
        ours.wait_for_peers(1, WAIT)
        for one in range(MANY):
            ours.send(numbered(one, LARGE))
        stats = ours.stats
        assert 8 < stats.sent < MANY
        assert stats.sent + stats.dropped == MANY
        assert [number(slow.recv()) for _ in range(9)] == list(range(9))  # the oldest are kept


@FLOW
def test_or_raise(kind: Callable[..., Any], peer: int) -> None:
    with kind(listen=TCP, send_buffer=8, when_full="raise", linger=0.0) as ours:
        ours.send_many([b"x"] * 8)
        with pytest.raises(Full):
            ours.send(b"one too many")
        assert ours.stats.sent == 8
        with RawPeer(ours.address, peer) as reader:
            assert [reader.recv() for _ in range(8)] == [b"x"] * 8


@pytest.mark.parametrize(
    ("kind", "peer", "first"),
    [(Push, PULL, b"early"), (Pair0, PAIR0, b"early"), (Pub, SUB, b"late"), (Bus, BUS, b"late")],
    ids=["push", "pair", "pub", "bus"],
)
def test_push_and_pair_keep_what_is_sent_before_anybody_is_there_and_pub_and_bus_do_not(
    kind: Callable[..., Any], peer: int, first: bytes
) -> None:
    with kind(listen=TCP, linger=0.0) as ours:
        ours.send(b"early")
        with RawPeer(ours.address, peer) as theirs:
            ours.wait_for_peers(1, WAIT)
            ours.send(b"late")
            assert theirs.recv() == first


@FLOW
def test_what_is_still_queued_when_the_peer_dies_goes_to_the_next(kind: Callable[..., Any], peer: int) -> None:
    with kind(listen=TCP, linger=0.0) as ours:
        with RawPeer(ours.address, peer):
            ours.wait_for_peers(1, WAIT)
        eventually(lambda: not ours.pipes)
        ours.send_many([b"1", b"2"])
        with RawPeer(ours.address, peer) as second:
            assert [second.recv(), second.recv()] == [b"1", b"2"]


def test_a_second_peer_of_a_pair_gets_in_when_the_first_has_left() -> None:
    with Pair0(listen=TCP) as pair, Pair0(dial=pair.address) as first:
        first.wait_for_peers(1, WAIT)
        pair.wait_for_peers(1, WAIT)
        with Pair0(dial=pair.address, reconnect=0.01, linger=0.0) as second:
            eventually(lambda: second.stats.left > 1)  # let in, and cut off, again and again
            assert (pair.stats.joined, pair.stats.refused) == (1, 0)
            first.close()
            eventually(lambda: pair.stats.left == 1)
            pair.send(b"to the second")
            assert second.recv(timeout=WAIT) == b"to the second"


# ---- a program that does not receive ---------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [8, 100, 300, None], ids=["8", "100", "300", "default"])
def test_sub_keeps_the_newest_and_bus_the_oldest_when_the_program_does_not_receive(room: int | None) -> None:
    total = 3000
    with (
        Sub(listen=TCP, topics="", recv_buffer=room) as sub,
        Bus(listen=TCP, recv_buffer=room) as bus,
        RawPeer(sub.address, PUB) as publisher,
        RawPeer(bus.address, BUS) as peer,
    ):
        sub.wait_for_peers(1, WAIT)
        bus.wait_for_peers(1, WAIT)
        for one in range(total):
            publisher.send(numbered(one))
            peer.send(numbered(one))
        eventually(lambda: sub.stats.read == bus.stats.read == total)
        kept = room or 1024
        newest = range(total - kept + POSTED, total)
        assert [number(sub.recv(timeout=WAIT)) for _ in range(kept)] == [*range(POSTED), *newest]
        assert [number(bus.recv(timeout=WAIT)) for _ in range(kept)] == list(range(kept))
        with pytest.raises(TimedOut):
            sub.recv(timeout=0)
        with pytest.raises(TimedOut):
            bus.recv(timeout=0)


def read_ahead(ours: Any, least: int) -> int:
    """How many messages NNG has read, once it is ``least`` and has had time to become more."""
    eventually(lambda: ours.stats.read >= least)
    time.sleep(0.1)  # nobody tells that NNG has stopped reading
    return int(ours.stats.read)


AHEAD = [
    (Pull, PUSH, b"", 8, 1, 1 + 8 + 1),
    (Pair0, PAIR0, b"", 8, 1 + (8 - POSTED), 1 + 8 + POSTED + 1 + 1),
    (Rep, REQ, b"\x80\0\0\1", 8, 1 + (8 - POSTED), None),
    (Respondent, SURVEYOR, b"\x80\0\0\1", 8, 1 + (8 - POSTED), None),
]


@pytest.mark.parametrize(("kind", "peer", "header", "room", "before", "after"), AHEAD)
def test_a_flow_controlled_receiver_reads_ahead_so_far_and_holds_the_peer_back_without_a_loss(
    kind: Callable[..., Any], peer: int, header: bytes, room: int, before: int, after: int | None
) -> None:
    total = 500
    with kind(listen=TCP, recv_buffer=room, linger=0.0) as ours, RawPeer(ours.address, peer) as theirs:
        ours.wait_for_peers(1, WAIT)
        for one in range(total):
            theirs.send(header + numbered(one))
        assert read_ahead(ours, before) == before
        got = [ours.recv(timeout=WAIT)]
        if after is not None:
            assert read_ahead(ours, before + 1) <= after
        got += [ours.recv(timeout=WAIT) for _ in range(total - 1)]
        assert [number(getattr(one, "body", one)) for one in got] == list(range(total))


def test_recv_window_bounds_the_bytes_that_pull_reads_ahead() -> None:
    window, size = 1 << 20, 1 << 18
    with Pull(listen=TCP, recv_window=window) as pull, RawPeer(pull.address, PUSH) as theirs:
        pull.wait_for_peers(1, WAIT)
        for _ in range(3):  # it has to see how large they are first
            theirs.send(b"x" * size)
            pull.recv(timeout=WAIT)
        theirs.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            theirs.socket.sendall((LENGTH.pack(size) + b"x" * size) * 200)
        assert read_ahead(pull, 4) - 3 <= window // size + 1


# ---- questions and answers -------------------------------------------------------------------------------------------


def test_surveyor_takes_every_reply_however_many_come_at_once() -> None:
    total = 5000
    with Surveyor(listen=TCP, recv_buffer=8) as surveyor, RawPeer(surveyor.address, RESPONDENT) as theirs:
        surveyor.wait_for_peers(1, WAIT)
        replies = surveyor.survey_iter(b"who?", timeout=WAIT)
        asking = Background(lambda: [number(reply.body) for reply in islice(replies, total)])
        header = theirs.recv()[:4]
        for one in range(total):
            theirs.send(header + numbered(one))
        assert asking.result() == list(range(total))


def test_surveys_to_a_peer_that_does_not_read_are_dropped_beyond_sixteen() -> None:
    with Surveyor(listen=TCP, linger=0.0) as surveyor, RawPeer(surveyor.address, RESPONDENT) as slow:
        surveyor.wait_for_peers(1, WAIT)
        for one in range(MANY):
            surveyor.survey(numbered(one, LARGE), timeout=0)
        arrived = [number(slow.recv()[4:]) for _ in range(17)]
        assert arrived == list(range(17))
        while arrived[-1] != MANY:  # asked again for each that was read, until there was room for it
            surveyor.survey(numbered(MANY), timeout=0)
            arrived.append(number(slow.recv()[4:]))
        assert arrived == sorted(arrived)
        assert len(arrived) < MANY
        assert surveyor.stats.dropped == 0  # NNG drops, and does not say so


def test_a_request_that_timed_out_may_still_be_sent_and_its_reply_is_counted_as_late() -> None:
    with Req(listen=TCP, linger=0.0) as req, RawPeer(req.address, REP) as slow:
        req.wait_for_peers(1, WAIT)
        with pytest.raises(TimedOut):
            req.request(b"question", timeout=0.02)
        message = slow.recv()
        assert message[4:] == b"question"
        slow.send(message)
        eventually(lambda: req.stats.late == 1)


def test_a_request_that_timed_out_with_nobody_there_is_never_sent() -> None:
    with Req(listen=TCP, linger=0.0) as req:
        with pytest.raises(TimedOut):
            req.request(b"nobody heard this", timeout=0.02)
        with RawPeer(req.address, REP) as theirs:
            asking = Background(req.request, b"this", timeout=WAIT)
            message = theirs.recv()
            assert message[4:] == b"this"
            theirs.send(message)
            asking.result()


@pytest.mark.parametrize(("kind", "peer", "queued"), [(Rep, REQ, 64), (Respondent, SURVEYOR, 2)], ids=["rep", "resp"])
def test_answers_to_a_peer_that_does_not_read_are_dropped_and_counted_until_it_reads_again(
    kind: Callable[..., Any], peer: int, queued: int
) -> None:
    with kind(listen=TCP, linger=0.0) as ours, RawPeer(ours.address, peer) as slow:
        ours.wait_for_peers(1, WAIT)
        for one in range(MANY):
            slow.send(WORD.pack(0x80000000 + one) + b"question")
            ours.recv(timeout=WAIT).reply(LARGE)
        stats = ours.stats
        assert queued < stats.sent < MANY
        assert stats.sent + stats.dropped == MANY
        assert [WORD.unpack(slow.recv()[:4])[0] & 0xFFFF for _ in range(stats.sent)] == list(range(stats.sent))
        slow.send(WORD.pack(0x80000000) + b"question")
        ours.recv(timeout=WAIT).reply(b"answer")
        assert slow.recv() == b"\x80\0\0\0answer"


@pytest.mark.parametrize(("kind", "peer"), [(Rep, REQ), (Respondent, SURVEYOR)], ids=["rep", "respondent"])
def test_a_question_that_comes_before_nng_has_told_us_of_its_peer_is_answered_too(
    kind: Callable[..., Any], peer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    came, told = Pipes._came, threading.Event()

    def late(pipes: Pipes, raw: Any) -> None:
        told.wait(WAIT)
        came(pipes, raw)

    monkeypatch.setattr(Pipes, "_came", late)
    with kind(listen=TCP) as ours, RawPeer(ours.address, peer) as theirs:
        try:
            theirs.send(b"\x80\0\0\x07question")
            question = ours.recv(timeout=WAIT)
            assert ours.pipes == ()
            question.reply(b"answer")
            assert theirs.recv() == b"\x80\0\0\x07answer"
        finally:
            told.set()
        ours.wait_for_peers(1, WAIT)
        assert question.pipe == ours.pipes[0]


# ---- close -----------------------------------------------------------------------------------------------------------


def test_close_sends_the_answers_that_were_accepted() -> None:
    with Rep(listen=TCP) as rep, RawPeer(rep.address, REQ) as theirs:
        for one in range(40):
            theirs.send(WORD.pack(0x80000000 + one) + b"question")
            rep.recv(timeout=WAIT).reply(LARGE)
        closing = Background(rep.close, linger=WAIT)
        for one in range(40):
            assert theirs.recv() == WORD.pack(0x80000000 + one) + LARGE
        closing.result()
        assert theirs.closed()


@pytest.mark.parametrize("wire", ["tcp", "ws", "inproc"], indirect=True)
@pytest.mark.parametrize("pattern", ["reqrep", "survey"], indirect=True)
def test_close_does_not_wait_for_those_who_asked_and_left(pattern: Pattern, wire: Wire) -> None:
    with pattern.connected(wire) as (asker, answerer):
        pattern.carry(BLOCKING, asker, answerer, [b"question"])
        asker.close()
        eventually(lambda: not answerer.pipes)
        start = time.monotonic()
        answerer.close(linger=WAIT)
        assert time.monotonic() - start < WAIT / 2


def test_what_is_accepted_and_not_written_is_counted() -> None:
    with Push(listen="tcp://127.0.0.1:0") as push:
        push.send_many([b"one", b"two"])
        assert push.stats.unwritten == 2
        with Pull(dial=push.address) as pull:
            assert [pull.recv(timeout=WAIT), pull.recv(timeout=WAIT)] == [b"one", b"two"]
            assert push.drain(WAIT)
            assert push.stats.unwritten == 0


def test_many_messages_come_with_the_connections_they_came_by() -> None:
    with Pull(listen=TCP) as pull, Push(dial=pull.address) as one, Push(dial=pull.address) as other:
        pull.wait_for_peers(2, WAIT)
        one.send_many([b"one"] * 50)
        other.send_many([b"other"] * 50)
        got: list[Message] = []
        while len(got) < 100:
            got += pull.recv_msgs(64, WAIT)
        assert {type(message).__name__ for message in got} == {"Message"}
        came = {(bytes(message), message.pipe) for message in got}
        assert len(came) == 2
        assert {pipe for _, pipe in came} == set(pull.pipes)


def test_a_subscriber_says_what_it_is_subscribed_to_the_longest_first() -> None:
    with Sub(topics=["b", "aaa"]) as sub:
        sub.subscribe(b"cc")
        sub.unsubscribe("b")
        assert sub.topics == (b"aaa", b"cc")
