"""Cooked sockets of a bare pynng: ours talk to them, and do not have what made us write REQ/REP and SURVEY on raw ones.

The second half first shows each loss on pynng itself; the day one of those assertions fails, NNG or pynng has mended
it, and docs/protocols.md has one reason less.
"""

import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pynng
import pytest
import trio

from nngkit.protocols import Rep, Req, Respondent, Surveyor
from nngkit.protocols._nng import pipe_counters
from tests.protocols.raw_peer import REQ, RESPONDENT, WORD, RawPeer
from tests.protocols.wires import WAIT, Background, eventually

TCP = "tcp://127.0.0.1:0"
TIMEOUTS = {"recv_timeout": int(WAIT * 1000), "send_timeout": int(WAIT * 1000)}


@contextmanager
def together(ours: Callable[..., Any], cooked: Callable[..., Any], we_listen: bool) -> Iterator[tuple[Any, Any]]:
    """A socket of ours and a cooked one, connected."""
    if we_listen:
        with ours(listen=TCP) as mine, cooked(dial=mine.address, **TIMEOUTS) as theirs:
            mine.wait_for_peers(1, WAIT)
            yield mine, theirs
    else:
        with cooked(listen=TCP, **TIMEOUTS) as theirs, ours(dial=address(theirs)) as mine:
            mine.wait_for_peers(1, WAIT)
            eventually(lambda: theirs.pipes)
            yield mine, theirs


def address(cooked: Any) -> str:
    return f"tcp://{cooked.listeners[0].local_address}"


either_listens = pytest.mark.parametrize("we_listen", [True, False], ids=["we listen", "it listens"])


@either_listens
def test_a_cooked_rep_answers_our_requests_one_after_the_other(we_listen: bool) -> None:
    with together(Req, pynng.Rep0, we_listen) as (req, rep):

        def answer() -> None:
            for _ in range(50):
                rep.send(rep.recv().upper())

        answering = Background(answer)
        asking = [Background(req.request, b"q%d" % number, timeout=WAIT) for number in range(50)]
        assert [one.result() for one in asking] == [b"Q%d" % number for number in range(50)]
        answering.result()


@either_listens
def test_we_answer_a_cooked_req(we_listen: bool) -> None:
    with together(Rep, pynng.Req0, we_listen) as (rep, req):
        for number in range(50):
            req.send(b"q%d" % number)
            request = rep.recv(timeout=WAIT)
            request.reply(request.body.upper())
            assert req.recv() == b"Q%d" % number


@either_listens
def test_a_cooked_respondent_answers_our_surveys(we_listen: bool) -> None:
    with together(Surveyor, pynng.Respondent0, we_listen) as (surveyor, respondent):
        for number in range(10):
            asking = Background(surveyor.survey, b"s%d" % number, timeout=WAIT, early=True)
            respondent.send(respondent.recv().upper())
            assert [reply.body for reply in asking.result().replies] == [b"S%d" % number]


@either_listens
def test_we_answer_a_cooked_surveyor(we_listen: bool) -> None:
    with together(Respondent, pynng.Surveyor0, we_listen) as (respondent, surveyor):
        surveyor.survey_time = int(WAIT * 1000)
        for number in range(10):
            surveyor.send(b"s%d" % number)
            query = respondent.recv(timeout=WAIT)
            query.reply(query.body.upper())
            assert surveyor.recv() == b"S%d" % number


# ---- what cooked sockets lose ----------------------------------------------------------------------------------------


def taken_back(receive: Any) -> None:
    """Await ``receive()`` under trio until it waits, and cancel it."""

    async def main() -> None:
        with trio.move_on_after(0.05) as scope:
            await receive()
        assert scope.cancelled_caught

    trio.run(main)


def given_up(cooked: Any) -> None:
    """Have pynng wait for a moment, in vain. Not by cancelling its arecv, which may abort the process."""
    cooked.recv_timeout = 50
    with pytest.raises(pynng.Timeout):
        cooked.recv()


def test_a_cooked_req_forgets_its_request_when_the_wait_for_the_reply_ends_early() -> None:
    with together(Rep, pynng.Req0, we_listen=True) as (rep, req):
        req.send(b"question")
        request = rep.recv(timeout=WAIT)
        given_up(req)
        request.reply(b"answer")
        with pytest.raises(pynng.BadState):
            req.recv()


def test_our_req_can_ask_on_while_another_request_was_cancelled() -> None:
    with Rep(listen=TCP) as rep, Req(dial=rep.address) as req:
        asking = Background(req.request, b"first", timeout=WAIT)
        first = rep.recv(timeout=WAIT)
        taken_back(lambda: req.arequest(b"second"))
        rep.recv(timeout=WAIT).reply(b"too late")
        first.reply(b"1")
        assert asking.result() == b"1"
        eventually(lambda: req.stats.late == 1)


def test_a_cooked_req_has_one_request_at_a_time_and_ours_any_number() -> None:
    with together(Rep, pynng.Req0, we_listen=True) as (rep, cooked):
        cooked.send(b"1")
        first = rep.recv(timeout=WAIT)
        cooked.send(b"2")
        second = rep.recv(timeout=WAIT)
        first.reply(b"to nobody")
        second.reply(b"answer")
        assert cooked.recv() == b"answer"
    with Rep(listen=TCP) as rep, Req(dial=rep.address) as req:
        asking = [Background(req.request, b"%d" % number, timeout=WAIT) for number in range(20)]
        requests = [rep.recv(timeout=WAIT) for _ in range(20)]
        for request in reversed(requests):
            request.reply(request.body)
        assert [one.result() for one in asking] == [b"%d" % number for number in range(20)]


def test_a_cooked_rep_forgets_a_request_when_it_receives_the_next() -> None:
    with pynng.Rep0(listen=TCP, **TIMEOUTS) as cooked, RawPeer(address(cooked), REQ) as asker:
        for number in (0, 1):
            asker.send(WORD.pack(0x80000000 + number) + b"question")
            cooked.recv()
        cooked.send(b"answer")
        assert asker.recv() == b"\x80\0\0\x01answer"
        with pytest.raises(pynng.BadState):
            cooked.send(b"answer to the first")


def test_a_cooked_rep_loses_an_answer_that_finds_no_room_and_ours_waits_for_it() -> None:
    large = b"x" * (4 << 20)  # more than the network's buffers take
    questions = [WORD.pack(0x80000000 + number) + b"question" for number in range(2)]
    with pynng.Rep0(listen=TCP, **TIMEOUTS) as cooked, RawPeer(address(cooked), REQ) as slow:
        for question in questions:
            slow.send(question)
        cooked.recv()
        cooked.send(large, block=False)
        cooked.recv()
        with pytest.raises(pynng.TryAgain):
            cooked.send(large, block=False)
        with pytest.raises(pynng.BadState):  # a second try is refused: the request is gone with its answer
            cooked.send(large)
    with Rep(listen=TCP) as rep, RawPeer(rep.address, REQ) as slow:
        for question in questions:
            slow.send(question)
            rep.recv(timeout=WAIT).reply(large)
        assert [len(slow.recv()), len(slow.recv())] == [4 + len(large)] * 2


def flood(respondent: RawPeer, total: int) -> None:
    """Answer the survey that comes ``total`` times."""
    header = respondent.recv()[:4]
    frames = (header + b"%d" % number for number in range(total))
    respondent.socket.sendall(b"".join(struct.pack(">Q", len(frame)) + frame for frame in frames))


def test_a_cooked_surveyor_keeps_128_unread_replies_and_ours_all() -> None:
    everything = [b"%d" % number for number in range(1000)]
    survey_time = int(WAIT * 1000)
    with (
        pynng.Surveyor0(listen=TCP, survey_time=survey_time, recv_timeout=100) as cooked,
        RawPeer(address(cooked), RESPONDENT) as respondent,
    ):
        eventually(lambda: cooked.pipes)
        cooked.send(b"who?")
        flood(respondent, 1000)
        eventually(lambda: list(pipe_counters({pipe.id for pipe in cooked.pipes}).values()) == [(1, 1000)])
        assert [cooked.recv() for _ in range(128)] == everything[:128]
        with pytest.raises(pynng.Timeout):
            cooked.recv()
    with Surveyor(listen=TCP) as ours, RawPeer(ours.address, RESPONDENT) as respondent:
        ours.wait_for_peers(1, WAIT)
        stream = ours.survey_iter(b"who?", timeout=WAIT)
        flooding = Background(flood, respondent, 1000)
        first = next(stream)  # the iterator asks when it is first asked
        flooding.result()
        eventually(lambda: ours.stats.read == 1000)
        assert [first.body, *(reply.body for reply in islice(stream, 999))] == everything


def test_a_cooked_surveyor_cannot_look_without_waiting() -> None:
    with pynng.Surveyor0(listen=TCP, survey_time=400, **TIMEOUTS) as cooked, RawPeer(address(cooked), RESPONDENT):
        eventually(lambda: cooked.pipes)
        cooked.send(b"who?")
        start = time.monotonic()
        with pytest.raises(pynng.TryAgain):
            cooked.recv(block=False)
        assert time.monotonic() - start >= 0.2


def test_a_cooked_surveyor_ends_its_survey_when_a_wait_for_a_reply_ends_early() -> None:
    with together(Respondent, pynng.Surveyor0, we_listen=True) as (respondent, cooked):
        cooked.survey_time = int(WAIT * 1000)
        cooked.send(b"who?")
        query = respondent.recv(timeout=WAIT)
        given_up(cooked)
        query.reply(b"I")
        with pytest.raises(pynng.BadState):
            cooked.recv()


def test_a_cooked_surveyor_has_one_survey_at_a_time_and_ours_any_number() -> None:
    with together(Respondent, pynng.Surveyor0, we_listen=True) as (respondent, cooked):
        cooked.survey_time = int(WAIT * 1000)
        cooked.send(b"1")
        first = respondent.recv(timeout=WAIT)
        cooked.send(b"2")
        first.reply(b"to nobody")
        respondent.recv(timeout=WAIT).reply(b"second")
        assert cooked.recv() == b"second"
    with Respondent(listen=TCP) as respondent, Surveyor(dial=respondent.address) as surveyor:
        surveyor.wait_for_peers(1, WAIT)
        asking = [Background(surveyor.survey, b"%d" % number, timeout=WAIT, early=True) for number in range(8)]
        queries = [respondent.recv(timeout=WAIT) for _ in range(8)]
        for query in reversed(queries):
            query.reply(query.body)
        assert [one.result().replies[0].body for one in asking] == [b"%d" % number for number in range(8)]


def test_replies_that_come_too_late_are_counted_by_ours() -> None:
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
