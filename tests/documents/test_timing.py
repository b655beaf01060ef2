"""The times of heartbeats, and timeouts of replies."""

from __future__ import annotations

from itertools import pairwise

import pytest

from nngkit.documents.sync.members import SILENT
from nngkit.documents.sync.timing import LEAST, MOST, SELDOM, UNKNOWN, Pace, RoundTrips


def heartbeats(pace: Pace, until: float) -> list[float]:
    """Return the times of heartbeats, if each is sent in time."""
    times = []
    while pace.due <= until:
        times.append(pace.due)
        pace.sent(pace.due, 1.0)
    return times


def test_first_heartbeat_is_immediate_and_intervals_grow() -> None:
    pace = Pace(0.02, 0.2)
    times = heartbeats(pace, 2.0)
    gaps = [b - a for a, b in pairwise(times)]
    assert times[0] == 0.0
    assert gaps == sorted(gaps)
    assert gaps[0] == pytest.approx(0.034)
    assert gaps[-1] == pytest.approx(0.2)


def test_four_heartbeats_follow_a_change_within_a_quarter_second() -> None:
    pace = Pace(0.02, 0.2)
    heartbeats(pace, 9.0)
    pace.sent(9.9, 1.0)
    pace.changed(10.0)
    assert heartbeats(pace, 10.25) == pytest.approx([10.02, 10.054, 10.1118, 10.21006])


def test_continuous_edits_postpone_heartbeats_to_the_resting_rate() -> None:
    pace = Pace(0.02, 0.2)
    sent = []
    for step in range(1000):
        now = step / 1000
        pace.changed(now)
        if pace.due <= now:
            sent.append(now)
            pace.sent(now, 1.0)
    assert sent == pytest.approx([0.2, 0.401, 0.602, 0.803], abs=0.002)


def test_edit_postpones_a_heartbeat_within_a_bound() -> None:
    pace = Pace(0.02, 0.2)
    pace.sent(1.0, 1.0)
    pace.changed(1.03)
    assert pace.due == pytest.approx(1.05)
    for step in range(100):
        pace.changed(1.03 + step / 100)
    assert pace.due == pytest.approx(1.23)


def test_new_peer_triggers_a_heartbeat() -> None:
    pace = Pace(0.02, 0.2)
    pace.sent(1.0, 1.0)
    pace.hurry(1.001)
    assert pace.due == 1.001


def test_jitter_spreads_heartbeats() -> None:
    one, other = Pace(0.02, 0.2), Pace(0.02, 0.2)
    one.sent(1.0, 0.7)
    other.sent(1.0, 1.0)
    assert one.due < other.due


def test_heartbeat_rate_is_bounded_over_all_peers() -> None:
    pace = Pace(0.02, 0.2)
    pace.company(present=1, editing=1)
    assert (pace.first, pace.last) == (0.02, 0.2)
    pace.company(present=15, editing=0)  # one of sixteen edits: the others keep the resting rate
    assert pace.first == 0.02
    for others in (15, 31, 63):
        pace.company(present=others, editing=others)
        assert pace.first / (others + 1) == pytest.approx(0.006)
    pace.company(present=1000, editing=1000)
    assert pace.first == pace.last == SELDOM < SILENT / 4  # no present peer is taken for absent
    pace.company(present=1, editing=0)
    assert (pace.first, pace.last) == (0.02, 0.2)


def test_longer_configured_intervals_are_kept() -> None:
    pace = Pace(1.0, 5.0)
    pace.company(present=1000, editing=1000)
    assert (pace.first, pace.last) == (1.0, 5.0)


def test_unknown_peer_gets_a_default_round_trip() -> None:
    trips = RoundTrips()
    assert trips.usual("ada") == UNKNOWN
    assert trips.patience("ada") == UNKNOWN + 4 * UNKNOWN / 2


def test_patience_follows_measurements_as_in_rfc_6298() -> None:
    trips = RoundTrips()
    trips.measured("ada", 0.1)
    assert trips.usual("ada") == 0.1
    assert trips.patience("ada") == pytest.approx(0.3)
    trips.measured("ada", 0.2)
    assert trips.usual("ada") == pytest.approx(0.1125)
    assert trips.patience("ada") == pytest.approx(0.1125 + 4 * (0.05 + (0.1 - 0.05) / 4))
    for _ in range(200):
        trips.measured("ada", 0.2)
    assert trips.usual("ada") == pytest.approx(0.2, rel=1e-3)
    assert trips.patience("ada") == pytest.approx(0.2, rel=0.05)


def test_patience_is_bounded_and_forgotten_with_the_peer() -> None:
    trips = RoundTrips()
    for _ in range(100):
        trips.measured("near", 0.0001)
        trips.measured("far", 60.0)
    assert trips.patience("near") == LEAST
    assert trips.patience("far") == MOST
    trips.forget("far")
    trips.forget("absent")
    assert trips.usual("far") == UNKNOWN
