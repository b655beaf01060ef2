"""Cooked sockets of pynng: ours send them requests and reply to theirs. docs/nng.md has their defects."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pynng
import pytest

from nngkit.protocols import Rep, Req, Respondent, Surveyor
from nngkit.testing import Background
from tests.protocols.wires import WAIT

TCP = "tcp://127.0.0.1:0"
TIMEOUTS = {"recv_timeout": int(WAIT * 1000), "send_timeout": int(WAIT * 1000)}


@contextmanager
def together(ours: Callable[..., Any], cooked: Callable[..., Any], we_listen: bool) -> Iterator[tuple[Any, Any]]:
    """Yield a socket of ours and a cooked one, connected; pynng lists a peer before NNG sends to it."""
    started = threading.Event()
    with ExitStack() as stack:
        if we_listen:
            mine = stack.enter_context(ours(listen=TCP))
            theirs = stack.enter_context(cooked(**TIMEOUTS))
            theirs.add_post_pipe_connect_cb(lambda pipe: started.set())
            theirs.dial(mine.address, block=True)
        else:
            theirs = stack.enter_context(cooked(listen=TCP, **TIMEOUTS))
            theirs.add_post_pipe_connect_cb(lambda pipe: started.set())
            mine = stack.enter_context(ours(dial=address(theirs)))
        mine.wait_for_peers(1, WAIT)
        assert started.wait(WAIT)
        yield mine, theirs


def address(cooked: Any) -> str:
    return f"tcp://{cooked.listeners[0].local_address}"


either_listens = pytest.mark.parametrize("we_listen", [True, False], ids=["we listen", "it listens"])


@either_listens
def test_a_cooked_rep_answers_our_requests_in_sequence(we_listen: bool) -> None:
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
