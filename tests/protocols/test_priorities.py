"""Priorities of dialed peers, as nanomsg's NN_SNDPRIO: PUSH, REQ and SURVEYOR."""

from __future__ import annotations

import contextlib
from contextlib import ExitStack

import pytest

from nngkit.errors import ConfigError, TimedOut
from nngkit.protocols import Bus, Pair0, Pub, Pull, Push, Rep, Req, Respondent, Surveyor
from nngkit.testing import Background, Wire, eventually
from tests.protocols.queueing import LARGE, MANY
from tests.protocols.wires import WAIT

TCP = "tcp://127.0.0.1:0"


def test_messages_go_to_the_first_lane_while_it_is_connected() -> None:
    with ExitStack() as there:
        ny, also, london = (there.enter_context(Pull(listen=TCP)) for _ in range(3))
        with Push(dial={ny.address: 1, also.address: 1, london.address: 2}) as push:
            push.wait_for_peers(3, timeout=WAIT)
            push.send_many([b"%d" % number for number in range(200)])
            eventually(lambda: ny.stats.received + also.stats.received == 200)
            assert min(ny.stats.received, also.stats.received) > 0
            assert london.stats.received == 0


def test_the_next_lane_takes_over_at_once_and_hands_back_at_once() -> None:
    with Wire("tcp", None).reserved() as place, Pull(listen=TCP) as london:
        ny = Pull(listen=place)
        with Push(dial={place: 1, london.address: 2}) as push:
            push.wait_for_peers(2, timeout=WAIT)
            push.send(b"1")
            assert ny.recv(timeout=WAIT) == b"1"
            ny.close()
            eventually(lambda: len(push.pipes) == 1)
            push.send(b"2")
            assert london.recv(timeout=WAIT) == b"2"
            with Pull(listen=place) as back:
                push.wait_for_peers(2, timeout=WAIT)
                push.send(b"3")
                assert back.recv(timeout=WAIT) == b"3"


@pytest.mark.slow
def test_the_next_lane_gets_messages_only_once_the_first_takes_no_more() -> None:
    with (
        Pull(listen=TCP, recv_buffer=1) as ny,
        Pull(listen=TCP) as london,
        Push(dial={ny.address: 1, london.address: 2}, send_buffer=16) as push,
    ):
        push.wait_for_peers(2, timeout=WAIT)
        sending = Background(push.send_many, [LARGE] * MANY, timeout=1.0)  # ny reads nothing
        for _ in range(MANY // 2):
            assert london.recv(timeout=WAIT) == LARGE
        ny.close()
        london.close()
        with contextlib.suppress(TimedOut):  # unless all found room before the pullers left
            sending.result()


def test_queued_messages_move_when_their_lane_is_lost() -> None:
    with (
        Pull(listen=TCP, recv_buffer=1) as ny,
        Pull(listen=TCP) as london,
        Push(dial={ny.address: 1, london.address: 2}, send_buffer=1000, send_window=1 << 30) as push,
    ):
        push.wait_for_peers(2, timeout=WAIT)
        push.send_many([LARGE] * MANY)
        assert london.stats.received == 0
        ny.close()
        for _ in range(MANY // 2):
            assert london.recv(timeout=WAIT) == LARGE


def test_requests_follow_the_priorities_too() -> None:
    with Rep(listen=TCP) as ny, Rep(listen=TCP) as london, Req(dial={ny.address: 1, london.address: 2}) as req:
        req.wait_for_peers(2, timeout=WAIT)
        asking = [Background(req.request, b"x", timeout=WAIT) for _ in range(20)]
        for _ in range(20):
            ny.recv(timeout=WAIT).reply(b"ny")
        assert {each.result() for each in asking} == {b"ny"}
        late = Background(req.request, b"y", timeout=WAIT)
        eventually(lambda: ny.stats.received == 21)
        ny.close()
        london.recv(timeout=WAIT).reply(b"london")
        assert late.result() == b"london"


def test_a_survey_asks_the_first_lane_that_is_connected() -> None:
    with ExitStack() as there:
        ny, also, london = (there.enter_context(Respondent(listen=TCP)) for _ in range(3))
        surveyor = there.enter_context(Surveyor(dial={ny.address: 1, also.address: 1, london.address: 9}))
        surveyor.wait_for_peers(3, timeout=WAIT)
        asking = Background(surveyor.survey, b"q", timeout=WAIT, early=True)
        for each in (ny, also):
            each.recv(timeout=WAIT).reply(b"a")
        result = asking.result()
        assert (result.expected, result.answered, len(result.replies)) == (2, 2, 2)
        assert london.stats.received == 0
        ny.close()
        also.close()
        eventually(lambda: len(surveyor.pipes) == 1)
        asking = Background(surveyor.survey, b"q", timeout=WAIT, early=True)
        london.recv(timeout=WAIT).reply(b"b")
        assert [reply.body for reply in asking.result().replies] == [b"b"]


def test_a_priority_is_from_1_to_16_and_not_for_every_socket() -> None:
    for wrong in (0, 17, "1"):
        with pytest.raises(ConfigError, match="priority"):
            Push(dial={"tcp://127.0.0.1:1": wrong})
    for kind in (Pub, Bus, Pair0):
        with pytest.raises(ConfigError, match="priority"):
            kind(dial={"tcp://127.0.0.1:1": 1})
    with Push() as push, pytest.raises(ConfigError, match="priority"):
        push.dial("tcp://127.0.0.1:1", priority=0)
