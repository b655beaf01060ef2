"""When a connection counts as silent: arithmetic, without clocks and sockets."""

from __future__ import annotations

import math

import pytest

from nngkit.silence import LEAST, PERIOD, REDIALS, Silence, Silent

PEER = "tcp://10.0.0.1:7000"


def run(silence: Silence[str], pipe: int, begin: float, seconds: float) -> list[tuple[float, Silent[str]]]:
    """Check once a period, as a shell does; return what is reported, and when."""
    steps = int(seconds / PERIOD)
    times = [begin + step * PERIOD for step in range(1, steps + 1)]
    return [(now, each) for now in times for each in silence.check({pipe: PEER}, now)]


@pytest.mark.parametrize(
    ("interval", "limit"),
    [(0.01, LEAST), (0.5, LEAST), (2.0, 6.0), (7.0, 21.0), (60.0, 180.0)],
)
def test_a_connection_is_silent_after_three_intervals_and_at_least_five_seconds(interval: float, limit: float) -> None:
    silence = Silence[str]()
    silence.expect(PEER, interval)
    silence.heard(1, PEER, 100.0)
    assert run(silence, 1, 100.0, limit - PERIOD) == []
    ((now, found),) = run(silence, 1, 100.0 + limit - PERIOD, PERIOD)
    assert now - 100.0 == limit
    assert found == Silent(1, PEER, limit, first=True)


@pytest.mark.parametrize("interval", [None, math.inf])
def test_a_peer_that_promises_nothing_may_be_silent_for_ever(interval: float | None) -> None:
    silence = Silence[str]()
    if interval is not None:
        silence.expect(PEER, 0.5)
        silence.expect(PEER, interval)  # another program listens there now
    silence.heard(1, PEER, 0.0)
    assert run(silence, 1, 0.0, 10_000.0) == []


def test_a_connection_of_which_nothing_has_been_heard_has_the_same_time_from_its_first_check() -> None:
    silence = Silence[str]()
    silence.expect(PEER, 0.5)
    silence.check({}, 0.0)
    ((now, _),) = run(silence, 1, 0.0, 1.0 + LEAST)
    assert now == 1.0 + LEAST


def test_an_outage_is_first_once_redials_grow_rarer_and_stop_and_its_length_is_told_at_the_end() -> None:
    silence = Silence[str]()
    silence.expect(PEER, 0.5)
    silence.heard(1, PEER, 0.0)
    begin, found = 0.0, []
    for pipe in range(1, REDIALS + 1):  # each silent connection is ended, and the next one is as silent
        ((now, one),) = run(silence, pipe, begin, LEAST * 2 ** (pipe - 1) + PERIOD * (pipe > 1))
        found.append(one)
        begin = now
    assert [each.first for each in found] == [True, False, False, False, False]
    assert [each.seconds for each in found] == [5.0, 16.0, 37.0, 78.0, 159.0]
    assert run(silence, REDIALS + 1, begin, 10_000.0) == []  # it accepts connections: one more is no help
    assert silence.heard(REDIALS + 1, PEER, 12_345.0) == 12_345.0
    assert silence.heard(REDIALS + 1, PEER, 12_346.0) is None
    assert run(silence, REDIALS + 1, 12_346.0, 2 * LEAST) != []


def test_a_loop_that_stood_still_gives_its_peers_their_time_again() -> None:
    silence = Silence[str]()
    silence.expect(PEER, 0.5)
    silence.heard(1, PEER, 0.0)
    assert run(silence, 1, 0.0, 2.0) == []
    assert silence.check({1: PEER}, 30.0) == []  # stopped for 28 s: what has arrived is not read yet
    assert run(silence, 1, 30.0, LEAST - PERIOD) == []
    assert run(silence, 1, 30.0 + LEAST - PERIOD, PERIOD) != []


def test_each_connection_of_a_peer_has_its_own_time() -> None:
    silence = Silence[str]()
    silence.expect(PEER, 0.5)
    found = []
    for second in range(10):
        silence.heard(1, PEER, float(second))
        found += silence.check({1: PEER, 2: PEER}, float(second))
    assert [each.pipe for each in found][:1] == [2]
    assert 1 not in {each.pipe for each in found}


def test_intervals_of_a_thousand_peers_are_remembered_and_no_more() -> None:
    silence = Silence[int]()
    for peer in range(3_000):
        silence.expect(peer, 0.5)
    silence.check({peer: peer for peer in range(3_000)}, 0.0)
    found = [each.peer for second in range(1, 6) for each in silence.check({p: p for p in range(3_000)}, float(second))]
    assert found == list(range(3_000 - 1_024, 3_000))
