"""Requests and replies: any number at once, in any order, resent exactly when necessary."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import trio

from nngkit.errors import ConfigError, Lost, TimedOut
from nngkit.protocols import Rep, Req, Respondent, Surveyor
from nngkit.protocols._waiting.waiters import task_waiter
from nngkit.testing import Background, Wire, eventually
from tests.protocols.raw_peer import PULL, REP, REQ, RESPONDENT, WORD, RawPeer
from tests.protocols.wires import WAIT, said

TCP = "tcp://127.0.0.1:0"
SOON = 0.3  # seconds in which an unwanted message would arrive


# ---- requests --------------------------------------------------------------------------------------------------------


def taken_back(ask: Callable[[], Any], rep: Rep) -> Any:
    """Await ``ask()`` under trio until ``rep`` has its request, cancel it, and return the request."""

    async def main() -> Any:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            request = await rep.arecv(timeout=WAIT)
            nursery.cancel_scope.cancel()
        return request

    return trio.run(main)


def test_cancelling_a_request_does_not_affect_others() -> None:
    with Rep(listen=TCP) as rep, Req(dial=rep.address) as req:
        asking = Background(req.request, b"first", timeout=WAIT)
        first = rep.recv(timeout=WAIT)
        second = taken_back(lambda: req.arequest(b"second"), rep)
        second.reply(b"too late")
        first.reply(b"1")
        assert asking.result() == b"1"
        eventually(lambda: req.stats.late == 1)


def test_twenty_open_requests_are_answered_in_reverse_order() -> None:
    with Rep(listen=TCP) as rep, Req(dial=rep.address) as req:
        asking = [Background(req.request, b"%d" % number, timeout=WAIT) for number in range(20)]
        requests = [rep.recv(timeout=WAIT) for _ in range(20)]
        for request in reversed(requests):
            request.reply(request.body)
        assert [one.result() for one in asking] == [b"%d" % number for number in range(20)]


def test_requests_of_tasks_that_were_woken_together_are_written_with_the_last_of_them() -> None:
    """Not at the end of the loop's turn: the peer works on them meanwhile."""
    with Rep(listen=TCP) as rep, Req(dial=rep.address) as req:

        async def main() -> None:
            answered = [task_waiter() for _ in range(3)]
            req._asking._answered += answered
            req._asking._wake(answered[0].loop)
            for each in range(1, 4):  # no turn of the loop ends between them
                assert req._outbox.add_at_turn_end(struct.pack(">I", 1 << 31 | each) + b"?")
                assert len(req._outbox.queue) == each % 3

        req.wait_for_peers(1, WAIT)
        trio.run(main)
        assert [rep.recv(WAIT).body for _ in range(3)] == [b"?"] * 3


def test_a_second_reply_to_a_request_is_an_error() -> None:
    with Rep(listen=TCP) as rep, Req(dial=rep.address) as req:
        asking = Background(req.request, b"?", timeout=WAIT)
        request = rep.recv(timeout=WAIT)
        request.reply(b"!")
        with pytest.raises(RuntimeError, match="already"):
            request.reply(b"!!")
        assert asking.result() == b"!"


def test_a_reply_without_room_waits() -> None:
    large = b"x" * (4 << 20)  # more than the network's buffers take, and more than the queue of a peer
    questions = [WORD.pack(0x80000000 + number) + b"question" for number in range(3)]
    with Rep(listen=TCP) as rep, RawPeer(rep.address, REQ) as slow:

        def answer() -> None:
            for _ in questions:
                rep.recv(timeout=WAIT).reply(large)

        for question in questions:
            slow.send(question)
        answering = Background(answer)
        assert [len(slow.recv()) for _ in questions] == [4 + len(large)] * 3
        answering.result()
        assert rep.stats.dropped == 0


def test_a_reply_to_a_peer_that_left_is_dropped_and_counted() -> None:
    with Rep(listen=TCP) as rep:
        with RawPeer(rep.address, REQ) as requester:
            requester.send(WORD.pack(0x80000000) + b"question")
            request = rep.recv(timeout=WAIT)
        eventually(lambda: not rep.pipes)
        request.reply(b"answer")
        assert (rep.stats.sent, rep.stats.dropped) == (0, 1)
        assert request.pipe is not None


@pytest.mark.parametrize("wire", ["tcp", "inproc"], indirect=True)
def test_the_first_requests_of_four_new_clients_are_answered(wire: Wire) -> None:
    """A reply sent before `on_peer` callbacks ran must reach the peer."""
    for _ in range(20):
        with Rep(listen=wire.address()) as rep:

            def answer(rep: Rep = rep) -> None:
                for _ in range(4):
                    request = rep.recv(timeout=WAIT)
                    request.reply(request.body.upper())

            def ask(body: bytes, url: str = rep.address) -> bytes:
                with Req(dial=url) as req:
                    return req.request(body, timeout=WAIT)

            answering = Background(answer)
            asking = [Background(ask, b"q%d" % number) for number in range(4)]
            assert [one.result() for one in asking] == [b"Q%d" % number for number in range(4)]
            answering.result()
            assert (rep.stats.sent, rep.stats.dropped) == (4, 0)


@pytest.mark.slow
def test_thousands_of_requests_at_once_go_through_queues_of_sixteen() -> None:
    program = """
        import trio
        from nngkit.errors import Closed
        from nngkit.protocols import Rep, Req

        async def answer(rep):
            async for request in rep:
                await request.areply(request.body)

        async def ask(req, number, answered):
            assert await req.arequest(b"%d" % number, timeout=40) == b"%d" % number
            answered.append(number)

        async def main():
            answered = []
            async with Rep(listen="tcp://127.0.0.1:0", send_buffer=16) as rep, \\
                       Req(dial=rep.address, send_buffer=16) as req, trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(answer, rep)
                for at_once in (64, 200, 500, 1000, 1000, 1000, 1000, 236):
                    async with trio.open_nursery() as asking:
                        for number in range(at_once):
                            asking.start_soon(ask, req, number, answered)
                nursery.cancel_scope.cancel()
            print(len(answered), rep.stats.dropped)

        trio.run(main)
    """
    assert said(program, timeout=55) == "5000 0"


# ---- resending -------------------------------------------------------------------------------------------------------


def requests_to(peer: RawPeer, count: int) -> list[bytes]:
    """Return the next ``count`` requests that ``peer`` receives, with their ids."""
    return [peer.recv() for _ in range(count)]


def receives_nothing(peer: RawPeer) -> bool:
    """Return True if ``peer`` receives nothing for a while."""
    peer.socket.settimeout(SOON)
    try:
        return not peer.socket.recv(1)
    except TimeoutError:
        return True
    finally:
        peer.socket.settimeout(WAIT)


def test_only_the_requests_of_a_lost_peer_are_resent() -> None:
    total = 40
    with Req(listen=TCP, linger=0.0) as req, RawPeer(req.address, REP) as stays:
        with RawPeer(req.address, REP) as goes:
            req.wait_for_peers(2, WAIT)
            asking = [Background(req.request, b"%d" % number, timeout=WAIT) for number in range(total)]
            eventually(lambda: req.stats.written == total)
            each = {pipe.address: stats.written for pipe, stats in req.pipe_stats.items()}
            mine, its = (
                requests_to(peer, each["tcp://{}:{}".format(*peer.socket.getsockname())]) for peer in (stays, goes)
            )
            assert len(mine) + len(its) == total
            assert mine
            assert its
        again = requests_to(stays, len(its))
        assert sorted(again) == sorted(its)  # with the same ids: a reply to the first would be accepted
        assert receives_nothing(stays)
        assert req.stats.resent == len(its)
        for message in mine + again:
            stays.send(message)
        assert [one.result() for one in asking] == [b"%d" % number for number in range(total)]
        assert req.stats.late == 0


@pytest.mark.parametrize("resend", [60.0, None], ids=["in a minute", "never"])
def test_a_request_of_a_lost_peer_is_resent_once(resend: float | None) -> None:
    with Req(listen=TCP, resend=resend, linger=0.0) as req:
        with RawPeer(req.address, REP) as first:
            asking = Background(req.request, b"question", timeout=WAIT)
            message = first.recv()
        for count in (1, 2):
            with RawPeer(req.address, REP) as other:
                assert other.recv() == message
                assert receives_nothing(other)
                assert req.stats.resent == count
        with RawPeer(req.address, REP) as last:
            last.send(last.recv())
            assert asking.result() == b"question"


def test_requests_queued_for_a_lost_peer_go_to_the_next_peer_and_are_not_counted_as_resent() -> None:
    large = b"x" * (1 << 20)
    with Req(listen=TCP, linger=0.0, resend=None) as req:
        with RawPeer(req.address, REP):  # it reads nothing
            asking = [Background(req.request, large + b"%d" % number, timeout=WAIT) for number in range(20)]
            eventually(lambda: req.stats.unwritten > 5 and req.stats.sent == 20)
            before = req.stats
        with RawPeer(req.address, REP) as other:
            messages = requests_to(other, 20)
            assert len(set(messages)) == 20
            assert receives_nothing(other)
            for message in messages:
                other.send(message[:4] + message[-2:])
        assert sorted(one.result() for one in asking) == sorted((large + b"%d" % n)[-2:] for n in range(20))
        assert req.stats.resent <= before.written + 1  # those written, and one being written


def test_the_request_of_a_lost_peer_raises_if_wanted() -> None:
    with Req(listen=TCP, lost="raise") as req, RawPeer(req.address, REP) as first, RawPeer(req.address, REP) as second:
        req.wait_for_peers(2, timeout=WAIT)
        asking = [Background(req.request, b"%d" % number, timeout=WAIT) for number in range(2)]
        (_,) = requests_to(first, 1)
        (kept,) = requests_to(second, 1)
        first.socket.close()
        second.send(kept[:4] + b"answer")
        results = []
        for each in asking:
            try:
                results.append(each.result())
            except Lost as lost:
                results.append(lost.sent)
        assert sorted(results, key=str) == [True, b"answer"]
        second.socket.close()
        eventually(lambda: not req.pipes)
        with pytest.raises(Lost, match="no peer is connected") as told:
            req.request(b"too late", timeout=WAIT)
        assert told.value.sent is False
        assert req.stats.resent == 0


def test_a_request_that_a_lost_peer_never_read_has_surely_not_run() -> None:
    with Req(listen=TCP, lost="raise", send_window=1 << 30) as req, RawPeer(req.address, REP) as peer:
        req.wait_for_peers(1, timeout=WAIT)
        large = bytes(1 << 20)
        asking = [Background(req.request, large, timeout=WAIT) for _ in range(32)]  # more than the kernel's buffers
        eventually(lambda: req.stats.unwritten > 8)
        peer.socket.close()
        sent = []
        for each in asking:
            with pytest.raises(Lost) as told:
                each.result()
            sent.append(told.value.sent)
        assert sent.count(False) > 8
        assert sent.count(True) >= 1


def test_lost_is_resend_or_raise() -> None:
    with pytest.raises(ConfigError, match="neither 'resend' nor 'raise'"):
        Req(lost="forget")  # type: ignore[arg-type]


def test_an_unanswered_request_is_resent_after_a_while() -> None:
    with Req(listen=TCP, resend=0.1) as req, RawPeer(req.address, REP) as forgetful:
        start = time.monotonic()
        asking = Background(req.request, b"question", timeout=WAIT)
        first, second, third = requests_to(forgetful, 3)
        assert first == second == third
        assert time.monotonic() - start >= 0.2
        forgetful.send(first)
        assert asking.result() == b"question"
        assert req.stats.resent >= 2
        forgetful.send(first)
        eventually(lambda: req.stats.late == 1)


def test_a_peer_that_was_disconnected_loses_no_request() -> None:
    with Req(listen=TCP) as req, Rep(dial=req.address, reconnect=0.02) as rep:
        asking = Background(req.request, b"question", timeout=WAIT)
        rep.recv(timeout=WAIT)
        req.disconnect(req.pipes[0])
        rep.recv(timeout=WAIT).reply(b"answer")
        assert asking.result() == b"answer"
        assert req.stats.resent == 1


def test_a_peer_of_the_wrong_protocol_gets_no_request() -> None:
    with Req(listen=TCP, linger=0.0) as req:
        with pytest.raises(EOFError), RawPeer(req.address, PULL) as stranger:
            stranger.recv()
        with pytest.raises(TimedOut, match="no peer is connected"):
            req.request(b"question", timeout=0.05)


# ---- surveys ---------------------------------------------------------------------------------------------------------


def flood(respondent: RawPeer, total: int) -> None:
    """Reply to the next survey ``total`` times."""
    header = respondent.recv()[:4]
    frames = (header + b"%d" % number for number in range(total))
    respondent.socket.sendall(b"".join(struct.pack(">Q", len(frame)) + frame for frame in frames))


def test_a_surveyor_keeps_every_reply_until_it_is_read() -> None:
    everything = [b"%d" % number for number in range(1000)]
    with Surveyor(listen=TCP) as surveyor, RawPeer(surveyor.address, RESPONDENT) as respondent:
        surveyor.wait_for_peers(1, WAIT)
        stream = surveyor.survey_iter(b"who?", timeout=WAIT)
        flooding = Background(flood, respondent, 1000)
        first = next(stream)  # the survey is sent by the first iteration
        flooding.result()
        eventually(lambda: surveyor.stats.read == 1000)
        assert [first.body, *(reply.body for reply in islice(stream, 999))] == everything


def test_eight_surveys_run_at_once() -> None:
    with Respondent(listen=TCP) as respondent, Surveyor(dial=respondent.address) as surveyor:
        surveyor.wait_for_peers(1, WAIT)
        asking = [Background(surveyor.survey, b"%d" % number, timeout=WAIT, early=True) for number in range(8)]
        queries = [respondent.recv(timeout=WAIT) for _ in range(8)]
        for query in reversed(queries):
            query.reply(query.body)
        assert [one.result().replies[0].body for one in asking] == [b"%d" % number for number in range(8)]


def test_fresh_never_waits_and_does_not_end_the_survey() -> None:
    with Respondent(listen=TCP) as respondent, Surveyor(dial=respondent.address) as surveyor:
        surveyor.wait_for_peers(1, WAIT)
        with surveyor.start(b"who?", timeout=WAIT) as survey:
            start = time.monotonic()
            assert survey.fresh() == []
            assert time.monotonic() - start < WAIT / 2
            query = respondent.recv(timeout=WAIT)
            query.reply(b"I")
            assert next(iter(survey)).body == b"I"
            query.reply(b"and again")
            eventually(lambda: surveyor.stats.received == 2)
            assert [reply.body for reply in survey.fresh()] == [b"and again"]


def test_late_replies_are_counted() -> None:
    gate = threading.Event()
    with Respondent(listen=TCP) as respondent, Surveyor(dial=respondent.address) as surveyor:
        surveyor.wait_for_peers(1, WAIT)

        def respond() -> None:
            query = respondent.recv(timeout=WAIT)
            gate.wait(WAIT)
            query.reply(b"late")

        responding = Background(respond)
        assert surveyor.survey(b"who?", timeout=0.02).replies == ()
        gate.set()
        responding.result()
        eventually(lambda: surveyor.stats.late == 1)


def test_a_survey_does_not_wait_for_peers_that_left() -> None:
    with Surveyor(listen=TCP) as surveyor, RawPeer(surveyor.address, RESPONDENT) as stays:
        with RawPeer(surveyor.address, RESPONDENT) as goes:
            surveyor.wait_for_peers(2, WAIT)
            asking = Background(surveyor.survey, b"who?", timeout=WAIT, early=True)
            stays.send(stays.recv()[:4] + b"I")
            goes.recv()
        result = asking.result()
        assert ([reply.body for reply in result.replies], result.expected, result.answered) == ([b"I"], 2, 1)
        assert result.elapsed < WAIT / 2


@pytest.mark.slow
def test_a_survey_takes_one_second_by_default_and_has_no_end_with_none(tcp: Wire) -> None:
    with Surveyor(listen=tcp.address()) as brief:
        assert 1 <= brief.survey(b"who?").elapsed < WAIT
    with Surveyor(listen=tcp.address(), recv_timeout=None) as endless, Respondent(dial=endless.address) as respondent:
        endless.wait_for_peers(1, WAIT)
        result = Background(lambda: endless.survey(b"who?", early=True))
        query = respondent.recv(WAIT)
        time.sleep(1.1)  # longer than the default
        query.reply(b"late")
        assert [reply.body for reply in result.result().replies] == [b"late"]


def test_a_task_iterates_over_the_replies_of_a_survey() -> None:
    async def replies(surveyor: Surveyor) -> list[bytes]:
        return [reply.body async for reply in surveyor.asurvey_iter(b"who?", WAIT, early=True)]

    with Surveyor(listen=TCP) as surveyor, Respondent(dial=surveyor.address) as respondent:
        surveyor.wait_for_peers(1, WAIT)
        responding = Background(lambda: respondent.recv(WAIT).reply(b"I"))
        assert trio.run(replies, surveyor) == [b"I"]
        responding.result()
