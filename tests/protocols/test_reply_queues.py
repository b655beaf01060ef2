"""Queues of requests, surveys and replies, what close sends, and the counters."""

import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import trio

from nngkit.errors import TimedOut
from nngkit.protocols import Bus, Message, Pub, Pull, Push, Rep, Req, Respondent, Sub, Surveyor
from nngkit.protocols._socket.answering import PATIENCE
from nngkit.testing import BLOCKING, CALLERS, Background, Caller, Pattern, Wire, eventually
from tests.protocols.queueing import LARGE, MANY, TCP, fill_network, number, numbered
from tests.protocols.raw_peer import (
    BUS,
    LENGTH,
    PUB,
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
from tests.switches import many_switches

# ---- questions and answers -------------------------------------------------------------------------------------------


def test_a_surveyor_takes_thousands_of_simultaneous_replies() -> None:
    total = 5000
    with Surveyor(listen=TCP) as surveyor, RawPeer(surveyor.address, RESPONDENT) as theirs:
        surveyor.wait_for_peers(1, WAIT)
        replies = surveyor.survey_iter(b"who?", timeout=WAIT)
        asking = Background(lambda: [number(reply.body) for reply in islice(replies, total)])
        header = theirs.recv()[:4]
        for one in range(total):
            theirs.send(header + numbered(one))
        assert asking.result() == list(range(total))
        assert surveyor.stats.dropped == 0


def wait_until_read(sock: Any, total: int) -> None:
    """Wait until that many messages were read, dropped ones included."""
    eventually(lambda: sock.stats.read == total)


@pytest.mark.parametrize(
    ("options", "size", "kept"),
    [
        ({"recv_buffer": 8}, 6, 8),
        ({"recv_window": 8000}, 1000, 8),
        ({"recv_window": 8999}, 1000, 8),
        ({"recv_window": 1}, 1000, 1),  # one reply always fits
    ],
    ids=["8 replies", "8 kB", "almost 9 kB", "1 byte"],
)
def test_a_survey_keeps_replies_up_to_its_cap_until_they_are_taken(
    options: dict[str, Any], size: int, kept: int
) -> None:
    """The newest replies are dropped and counted; once replies are taken there is room again."""
    total = 20
    with Surveyor(listen=TCP, **options) as surveyor, RawPeer(surveyor.address, RESPONDENT) as theirs:
        surveyor.wait_for_peers(1, WAIT)
        with surveyor.start(b"who?", timeout=WAIT) as survey:
            header = theirs.recv()[:4]
            for again in (1, 2):
                for one in range(total):
                    theirs.send(header + numbered(one).ljust(size))
                wait_until_read(surveyor, again * total)
                dropped = again * (total - kept)
                assert survey.dropped == survey.result().dropped == surveyor.stats.dropped == dropped
                assert [counted.dropped for counted in surveyor.pipe_stats.values()] == [dropped]
                assert surveyor.stats.received == again * kept
                assert [number(reply.body) for reply in survey.fresh()] == list(range(kept))
        assert survey.result().answered == 1


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.name)
def test_a_peer_whose_reply_was_dropped_has_answered(caller: Caller) -> None:
    with (
        Surveyor(listen=TCP, recv_buffer=1) as surveyor,
        RawPeer(surveyor.address, RESPONDENT) as first,
        RawPeer(surveyor.address, RESPONDENT) as second,
    ):
        surveyor.wait_for_peers(2, WAIT)
        asking = caller.start(surveyor.survey, b"who?", timeout=WAIT, early=True)
        for peer in (first, second):
            peer.send(peer.recv()[:4] + b"I")
        result = asking.result()
        assert (len(result.replies), result.expected, result.answered, result.dropped) == (1, 2, 2, 1)
        assert result.elapsed < WAIT / 2


def test_each_survey_has_its_own_room() -> None:
    with Surveyor(listen=TCP, recv_buffer=2) as surveyor, RawPeer(surveyor.address, RESPONDENT) as theirs:
        surveyor.wait_for_peers(1, WAIT)
        with surveyor.start(b"one", timeout=WAIT) as one, surveyor.start(b"two", timeout=WAIT) as two:
            for header in (theirs.recv()[:4], theirs.recv()[:4]):
                for _ in range(3):
                    theirs.send(header + b"I")
            wait_until_read(surveyor, 6)
            assert [(len(survey.fresh()), survey.dropped) for survey in (one, two)] == [(2, 1), (2, 1)]
            assert surveyor.stats.dropped == 2


def test_surveys_to_a_peer_that_does_not_read_are_dropped_beyond_its_queue() -> None:
    with Surveyor(listen=TCP, send_buffer=16, linger=0.0) as surveyor, RawPeer(surveyor.address, RESPONDENT) as slow:
        surveyor.wait_for_peers(1, WAIT)
        first = fill_network(surveyor, lambda body: surveyor.survey(body, timeout=0))
        for one in range(first, MANY):
            surveyor.survey(numbered(one, LARGE), timeout=0)
        dropped = MANY - first - 16
        assert (surveyor.stats.sent, surveyor.stats.dropped) == (MANY, dropped)
        arrived = [number(slow.recv()[4:]) for _ in range(MANY - dropped)]
        assert arrived == list(range(MANY - dropped))
        surveyor.survey(numbered(MANY), timeout=0)  # there is room again
        assert number(slow.recv()[4:]) == MANY
        assert [counted.dropped for counted in surveyor.pipe_stats.values()] == [dropped]


def test_a_request_that_timed_out_may_still_be_sent_and_its_reply_is_counted_as_late() -> None:
    with Req(listen=TCP, linger=0.0) as req, RawPeer(req.address, REP) as slow:
        req.wait_for_peers(1, WAIT)
        with pytest.raises(TimedOut):
            req.request(b"question", timeout=0.02)
        message = slow.recv()
        assert message[4:] == b"question"
        slow.send(message)
        eventually(lambda: req.stats.late == 1)


def test_a_request_that_timed_out_without_a_peer_is_never_sent() -> None:
    with Req(listen=TCP, linger=0.0) as req:
        with pytest.raises(TimedOut):
            req.request(b"unheard", timeout=0.02)
        with RawPeer(req.address, REP) as theirs:
            asking = Background(req.request, b"this", timeout=WAIT)
            message = theirs.recv()
            assert message[4:] == b"this"
            theirs.send(message)
            asking.result()


def test_replies_without_room_are_neither_sent_nor_dropped_and_can_be_sent_later() -> None:
    async def main() -> None:
        with Rep(listen=TCP, linger=0.0, send_buffer=8) as ours, RawPeer(ours.address, REQ) as slow:
            await ours.await_for_peers(1, WAIT)
            for one in range(MANY):
                slow.send(WORD.pack(0x80000000 + one) + b"question")
            questions = [await ours.arecv(timeout=WAIT) for _ in range(MANY)]
            waiting = ours.reply_many([(question, LARGE) for question in questions])
            sent = MANY - len(waiting)
            assert 8 <= sent < MANY
            assert waiting == list(range(sent, MANY))
            assert not questions[-1].reply_if_room(LARGE)
            assert ours.stats.dropped == 0
            with pytest.raises(RuntimeError):
                questions[0].reply_if_room(b"again")
            with pytest.raises(RuntimeError):
                ours.reply_many([(questions[-1], b""), (questions[0], b"again")])

            def read(count: int) -> list[int]:
                return [WORD.unpack(slow.recv()[:4])[0] & 0xFFFF for _ in range(count)]

            assert await trio.to_thread.run_sync(read, sent) == list(range(sent))
            for index in waiting:
                await questions[index].areply(b"answer")
            assert await trio.to_thread.run_sync(read, len(waiting)) == waiting
            assert ours.stats.dropped == 0

    trio.run(main)


ANSWERERS = pytest.mark.parametrize(("kind", "peer"), [(Rep, REQ), (Respondent, SURVEYOR)], ids=["rep", "respondent"])


@ANSWERERS
@pytest.mark.parametrize(
    ("options", "queued"),
    [({}, 63), ({"send_window": 1 << 20}, 15), ({"send_buffer": 8}, 8)],  # a reply is 4 bytes more than 64 KiB
    ids=["4 MiB", "1 MiB", "8 messages"],
)
def test_replies_to_a_peer_that_does_not_read_are_dropped_and_counted(
    kind: Callable[..., Any], peer: int, options: dict[str, Any], queued: int
) -> None:
    with kind(listen=TCP, linger=0.0, **options) as ours, RawPeer(ours.address, peer) as slow:
        ours.wait_for_peers(1, WAIT)
        for one in range(MANY):
            slow.send(WORD.pack(0x80000000 + one) + b"question")
        for question in [ours.recv(timeout=WAIT) for _ in range(MANY)]:
            question.reply(LARGE)
        stats = ours.stats
        assert queued <= stats.sent < MANY
        assert stats.sent + stats.dropped == MANY
        assert stats.unwritten == queued + 1  # and one in transit
        assert [counted.dropped for counted in ours.pipe_stats.values()] == [stats.dropped]
        assert [WORD.unpack(slow.recv()[:4])[0] & 0xFFFF for _ in range(stats.sent)] == list(range(stats.sent))
        slow.send(WORD.pack(0x80000000) + b"question")
        ours.recv(timeout=WAIT).reply(b"answer")
        assert slow.recv() == b"\x80\0\0\0answer"


@ANSWERERS
def test_a_peer_that_reads_no_replies_is_held_back_until_it_does(kind: Callable[..., Any], peer: int) -> None:
    questions = 400  # the replies to them are more than the queue and the system's buffers hold
    with (
        kind(listen=TCP, linger=0.0) as ours,
        RawPeer(ours.address, peer) as other,
        RawPeer(ours.address, peer) as flooding,
    ):
        ours.wait_for_peers(2, WAIT)

        def answer() -> None:
            for _ in range(questions + 1):
                ours.recv(timeout=WAIT).reply(LARGE)

        answering = Background(answer)
        for one in range(questions):
            flooding.send(WORD.pack(0x80000000 + one) + b"question")
        time.sleep(2 * PATIENCE)  # after which replies would be dropped
        assert ours.stats.received < questions
        other.send(WORD.pack(0x80000000) + b"question")
        assert other.recv() == b"\x80\0\0\0" + LARGE
        assert [WORD.unpack(flooding.recv()[:4])[0] & 0xFFFF for _ in range(questions)] == list(range(questions))
        answering.result()
        assert ours.stats.dropped == 0


@ANSWERERS
def test_a_reply_waits_for_a_slow_peer(kind: Callable[..., Any], peer: int) -> None:
    with kind(listen=TCP, send_buffer=8, linger=0.0) as ours, RawPeer(ours.address, peer) as slow:
        ours.wait_for_peers(1, WAIT)
        total = 100

        def read() -> list[bytes]:
            answers = []
            for _ in range(total):
                answers.append(slow.recv())
                time.sleep(0.001)  # slower than we reply, faster than 0.25 s
            return answers

        reading = Background(read)
        for one in range(total):
            slow.send(WORD.pack(0x80000000 + one) + b"question")
            ours.recv(timeout=WAIT).reply(LARGE)
        assert reading.result() == [WORD.pack(0x80000000 + one) + LARGE for one in range(total)]
        assert ours.stats.dropped == 0


@ANSWERERS
def test_even_the_first_question_knows_its_connection(kind: Any, peer: int) -> None:
    with kind(listen=TCP) as ours, connect(ours.address) as connection:
        connection.sendall(hello(peer) + LENGTH.pack(12) + b"\x80\0\0\x07question")
        question = ours.recv(timeout=WAIT)
        assert ours.pipes == (question.pipe,)
        question.reply(b"answer")
        assert read(connection, 26) == hello(kind._protocol) + LENGTH.pack(10) + b"\x80\0\0\x07answer"


# ---- close -----------------------------------------------------------------------------------------------------------


def test_close_sends_accepted_replies() -> None:
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
def test_close_does_not_wait_for_requesters_that_left(pattern: Pattern, wire: Wire) -> None:
    with pattern.connected(wire) as (requester, answerer):
        pattern.carry(BLOCKING, requester, answerer, [b"question"])
        requester.close()
        eventually(lambda: not answerer.pipes)
        start = time.monotonic()
        answerer.close(linger=WAIT)
        assert time.monotonic() - start < WAIT / 2


def test_accepted_unwritten_messages_are_counted() -> None:
    with Push(listen="tcp://127.0.0.1:0") as push:
        push.send_many([b"one", b"two"])
        assert push.stats.unwritten == 2
        with Pull(dial=push.address) as pull:
            assert [pull.recv(timeout=WAIT), pull.recv(timeout=WAIT)] == [b"one", b"two"]
            assert push.drain(WAIT)
            assert push.stats.unwritten == 0


@pytest.mark.parametrize("kind", [Pub, Bus], ids=["pub", "bus"])
def test_close_and_drain_wait_for_a_slow_peer(kind: Callable[..., Any]) -> None:
    peer = SUB if kind is Pub else BUS
    with kind(listen=TCP, linger=WAIT) as ours, RawPeer(ours.address, peer) as slow:
        ours.wait_for_peers(1, WAIT)
        for one in range(100):
            ours.send(numbered(one, LARGE))
        assert ours.drain(0.05) is False
        assert ours.stats.unwritten == ours.pipe_stats[ours.pipes[0]].queued > 0
        closing = Background(ours.close)
        assert [number(slow.recv()) for _ in range(100)] == list(range(100))
        closing.result()
        assert slow.closed()


@pytest.mark.parametrize("wire", ["tcp", "ipc", "ws", "tls+tcp", "inproc"], indirect=True)
@pytest.mark.parametrize("pattern", ["pair1", "pipeline", "bus", "pubsub"], indirect=True)
def test_written_read_and_unwritten_are_counted_on_every_transport(pattern: Pattern, wire: Wire) -> None:
    with pattern.connected(wire) as (first, second):
        for _ in range(2):  # of connections that left, too
            pattern.carry(BLOCKING, first, second, [b"", b"x" * 100_000, b"small"])
            first.drain(WAIT)
            second.disconnect(second.pipes[0])
            second.wait_for_peers(1, WAIT)
            eventually(lambda: first.stats.left == second.stats.left)
            first.wait_for_peers(1, WAIT)
        pattern.carry(BLOCKING, first, second, [b"last"])
        assert first.drain(WAIT)
        stats = first.stats
        assert (stats.sent, stats.written, stats.unwritten, stats.left) == (7, 7, 0, 2)
        assert (second.stats.read, second.stats.received, second.stats.left) == (7, 7, 2)
        assert [counted.written for counted in first.pipe_stats.values()] == [1]
        assert [counted.read for counted in second.pipe_stats.values()] == [1]


def test_the_first_message_received_with_recv_msg_has_its_pipe() -> None:
    with Pull(listen=TCP) as pull, Push(dial=pull.address) as push:
        push.send(b"read ahead")
        eventually(lambda: pull.stats.read == 1)
        assert pull.recv_msg(timeout=WAIT).pipe == pull.pipes[0]


def test_recv_msgs_returns_the_pipe_of_each_message() -> None:
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


def test_topics_lists_the_longest_first() -> None:
    with Sub(topics=["b", "aaa"]) as sub:
        sub.subscribe(b"cc")
        sub.unsubscribe("b")
        assert sub.topics == (b"aaa", b"cc")


def test_unsubscribing_drops_messages_read_ahead() -> None:
    with Sub(listen=TCP, topics=["a", "b"]) as sub, RawPeer(sub.address, PUB) as publisher:
        sub.wait_for_peers(1, WAIT)
        for message in (b"a1", b"b1", b"a2", b"b2", b"c"):
            publisher.send(message)
        eventually(lambda: sub.stats.read == 5)
        sub.unsubscribe("a")
        publisher.send(b"a3")
        publisher.send(b"b3")
        assert [sub.recv(timeout=WAIT) for _ in range(3)] == [b"b1", b"b2", b"b3"]
        with pytest.raises(TimedOut):
            sub.recv(timeout=0)


def test_unsubscribing_during_a_receive_loses_and_duplicates_nothing() -> None:
    total, chosen = 2000, [b"a%d" % one for one in range(2000)]
    with Sub(listen=TCP, topics=["a", "b"], recv_buffer=8192) as sub, RawPeer(sub.address, PUB) as publisher:
        sub.wait_for_peers(1, WAIT)
        for _ in range(3):
            read_before = sub.stats.read
            publisher.socket.sendall(b"".join(LENGTH.pack(len(one)) + one for one in chosen))
            eventually(lambda before=read_before: sub.stats.read == before + total)  # type: ignore[misc]
            with many_switches():
                receiving = Background(lambda: [sub.recv(timeout=WAIT) for _ in range(total)])
                began = time.monotonic()
                while receiving.is_alive():
                    sub.unsubscribe("b")
                    sub.subscribe("b")
            assert receiving.result() == chosen
            assert time.monotonic() - began < WAIT  # a call that misses the messages gets them at its deadline


def test_a_receive_while_another_asks_for_pipes_does_not_wait() -> None:
    for _ in range(3):
        with Pull(listen=TCP, recv_buffer=8192) as pull, Push(dial=pull.address) as push:
            push.send_many([b"x"] * 2000)
            eventually(lambda pull=pull: pull.stats.read == 2000)  # type: ignore[misc]
            with many_switches():
                receiving = Background(lambda pull=pull: [pull.recv(timeout=WAIT) for _ in range(1999)])
                began = time.monotonic()
                pull.recv_msg(timeout=WAIT)
                receiving.result()
            assert time.monotonic() - began < WAIT
