"""Decision whether a peer can be reached, on histories of TCP_INFO that are written down here."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.protocols._wire.tcp_info import TCPInfo, is_gone, longest_pause, look, next_look, parse

TIMEOUT = 10.0
OPEN = 65_536  # bytes of a window

idle: dict[str, Any] = {"in_flight": 0, "unsent": 0, "window": OPEN}
sending: dict[str, Any] = {"in_flight": 3, "unsent": 0, "window": OPEN}
held_back: dict[str, Any] = {"in_flight": 0, "unsent": 5_000, "window": 0}
squeezed: dict[str, Any] = {"in_flight": 3, "unsent": 5_000, "window": 0}  # the peer took back its window


@dataclass
class Line:
    """One connection and its kernel: what was heard, asked, and came in at which second."""

    state: dict[str, Any]
    heard: list[float] = field(default_factory=list)  # acknowledgements or data
    asked: list[float] = field(default_factory=list)
    probed: list[float] = field(default_factory=list)  # keepalive probes of the peer: they acknowledge nothing

    def info(self, now: float) -> TCPInfo:
        def so_far(times: list[float]) -> list[float]:
            return [at for at in times if at <= now]

        came = so_far(self.heard) + so_far(self.probed)
        return TCPInfo(
            quiet=now - max(so_far(self.heard), default=0.0),
            segments_out=len(so_far(self.asked)),
            segments_in=len(came),
            **self.state,
        )

    def ends(self, until: float = 600.0, asleep: tuple[float, float] = (0.0, 0.0)) -> float | None:
        """Return the second at which the connection is ended; there are no looks while the process is ``asleep``."""
        now, answers = 0.0, None
        while now < until:
            info = self.info(now)
            answers = look(answers, info, now, TIMEOUT)
            if is_gone(answers, info, TIMEOUT):
                return now
            now += next_look(answers, info, TIMEOUT)
            if asleep[0] <= now < asleep[1]:
                now = asleep[1]
        return None


def every(seconds: float, start: float = 0.0, end: float = 600.0) -> list[float]:
    return [start + seconds * n for n in range(int((end - start) / seconds))]


def doubling(first: float, longest: float, end: float = 600.0) -> list[float]:
    """Return the times of questions whose pauses double."""
    times, at, pause = [], first, first
    while at < end:
        times.append(at)
        pause = min(pause * 2, longest)
        at += pause
    return times


@pytest.mark.parametrize("state", [idle, sending, held_back, squeezed])
def test_a_peer_that_answers_stays(state: dict[str, Any]) -> None:
    asked = every(4.0)
    assert Line(state, heard=asked, asked=asked).ends() is None


@pytest.mark.parametrize("state", [idle, sending, held_back, squeezed])
@pytest.mark.parametrize("cut", [0.0, 0.1, 33.3, 34.9])
def test_a_peer_that_vanishes_ends_ten_seconds_after_its_last_answer(state: dict[str, Any], cut: float) -> None:
    asked = every(0.9)  # the kernel limits the pauses between its questions
    heard = [at for at in asked if at <= cut]
    last = max(heard, default=0.0)
    end = Line(state, heard=heard, asked=asked).ends()
    assert end is not None
    assert TIMEOUT <= end - last <= TIMEOUT + 0.5


@pytest.mark.parametrize("state", [held_back, squeezed])
def test_a_peer_that_does_not_read_stays_although_it_is_asked_every_two_minutes(state: dict[str, Any]) -> None:
    asked = doubling(0.2, 120.0)
    assert Line(state, heard=asked, asked=asked).ends() is None


@pytest.mark.parametrize("state", [held_back, squeezed])
def test_one_lost_question_does_not_end_a_peer_that_does_not_read(state: dict[str, Any]) -> None:
    asked = doubling(0.2, 120.0)
    heard = [at for n, at in enumerate(asked) if n % 2]
    assert Line(state, heard=heard, asked=asked).ends() is None


@pytest.mark.parametrize("state", [held_back, squeezed])
def test_a_peer_that_does_not_read_and_vanishes_ends_after_two_questions(state: dict[str, Any]) -> None:
    asked = doubling(0.2, 120.0)
    heard = [at for at in asked if at < 20.0]
    end = Line(state, heard=heard, asked=asked).ends()
    second = [at for at in asked if at >= 20.0][1]
    assert end is not None
    assert second <= end <= second + longest_pause(TIMEOUT)


def test_probes_of_the_peer_show_that_it_lives_while_data_is_in_flight() -> None:
    """Before Linux 6.6 a receiver without memory drops data and acknowledges nothing."""
    assert Line(sending, asked=doubling(0.2, 120.0), probed=every(4.0)).ends() is None


def test_probes_of_a_peer_that_gets_nothing_from_us_do_not_keep_an_idle_connection() -> None:
    end = Line(idle, asked=every(2.0, start=4.0), probed=every(2.0, start=4.0)).ends()
    assert end is not None
    assert end <= TIMEOUT + 0.5


@pytest.mark.parametrize("state", [idle, sending, held_back, squeezed])
@given(asleep=st.floats(30.0, 40.0))
def test_time_asleep_is_no_silence_of_the_peer(state: dict[str, Any], asleep: float) -> None:
    """After a suspension the answers come in only when this machine has asked again."""
    awake = every(3.0, end=asleep) + every(3.0, start=500.5, end=530.0)
    assert Line(state, heard=awake, asked=awake).ends(until=530.0, asleep=(asleep, 500.0)) is None


@given(
    st.sampled_from([idle, sending, held_back, squeezed]),
    st.lists(st.floats(0.05, 9.0), min_size=1, max_size=60),
    st.lists(st.floats(0.0, 60.0), max_size=30),
)
def test_a_peer_never_ends_within_the_timeout_of_an_answer(
    state: dict[str, Any], pauses: list[float], probed: list[float]
) -> None:
    heard = [sum(pauses[: n + 1]) for n in range(len(pauses))]
    end = Line(state, heard=heard, asked=heard, probed=sorted(probed)).ends(until=heard[-1] + TIMEOUT)
    assert end is None or end >= heard[-1] + TIMEOUT - 1e-6


def test_the_counter_of_questions_wraps_around() -> None:
    info = partial(TCPInfo, quiet=60.0, segments_in=1, **held_back)
    answers = look(None, info(segments_out=(1 << 32) - 1), 0.0, TIMEOUT)
    for now in range(2, 20, 2):
        answers = look(answers, info(segments_out=1), float(now), TIMEOUT)
    assert is_gone(answers, info(segments_out=1), TIMEOUT)


def test_a_kernel_that_says_too_little_is_not_understood() -> None:
    assert parse(bytes(147)) is None
    short = parse(bytes(148))
    assert short is not None
    assert short.window is None


def test_fields_are_read_where_the_kernel_writes_them() -> None:
    raw = bytearray(232)
    for offset, value in ((24, 1), (52, 2_500), (56, 3_500), (136, 4), (140, 5), (144, 6), (228, 7)):
        struct.pack_into("I", raw, offset, value)
    assert parse(bytes(raw)) == TCPInfo(2.5, 1, 6, 7, 4, 5)
    raw[0] = 8
    assert parse(bytes(raw)) == TCPInfo(2.5, 1, 6, 7, 4, 5, finished=True)
    raw[0] = 7
    assert parse(bytes(raw)) is None, "the connection has ended: NNG reports it"
