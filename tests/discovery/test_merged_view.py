"""MergedView: the merged view when daemons disagree, vanish or restart."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace

import pytest

from nngkit.discovery.lanes import Preference
from nngkit.discovery.provider import Event, Provider, Reason, State, Status
from nngkit.discovery.registry.merged_view import MOST_GRACE, PREFERENCES, RESTART_GRACE, MergedView
from nngkit.errors import ServiceNotFound
from tests.discovery.peers import record

UP, SUSPECT, DRAINING, DOWN, JOINING = State.UP, State.SUSPECT, State.DRAINING, State.DOWN, State.JOINING
ONE, TWO = record(number=1), record(number=2)


def row(provider: Provider = ONE, state: State = UP, reason: Reason = Reason.ANSWERED) -> Status:
    return Status(provider, state, reason, since=1.0)


def resolvable(views: MergedView) -> set[Provider]:
    try:
        return {views.resolve("answer", random.Random(n)) for n in range(20)}
    except ServiceNotFound:
        return set()


@pytest.fixture
def views() -> MergedView:
    return MergedView(["a", "b"])


def test_up_for_one_daemon_is_up(views: MergedView) -> None:
    views.saw("a", "A", [row(ONE)], 1.0)
    views.saw("b", "B", [row(ONE, DOWN, Reason.PIPE_LOST), row(TWO)], 1.0)
    assert resolvable(views) == {ONE, TWO}
    assert views.snapshot() == {"answer": frozenset({ONE, TWO})}


def test_up_for_one_daemon_outweighs_suspect_for_another(views: MergedView) -> None:
    views.saw("a", "A", [row(state=SUSPECT)], 1.0)
    assert resolvable(views) == {ONE}  # none is up
    views.saw("b", "B", [row(state=UP)], 1.0)
    assert next(iter(views.merged.values())).state is UP


def test_suspects_are_skipped_while_a_provider_is_up(views: MergedView) -> None:
    views.saw("a", "A", [row(ONE, SUSPECT), row(TWO)], 1.0)
    assert resolvable(views) == {TWO}
    assert views.snapshot() == {"answer": frozenset({TWO})}


def test_draining_for_one_daemon_is_draining(views: MergedView) -> None:
    views.saw("a", "A", [row()], 1.0)
    views.saw("b", "B", [row(state=DRAINING, reason=Reason.BYE)], 1.0)
    assert resolvable(views) == set()
    assert views.snapshot() == {}


def test_silent_daemon_is_ignored_while_another_answers(views: MergedView) -> None:
    views.saw("a", "A", [row(ONE)], 1.0)
    views.saw("b", "B", [row(TWO)], 1.0)
    views.silent("a", 2.0)
    assert resolvable(views) == {TWO}
    assert views.fresh


def test_last_known_view_stays_with_all_daemons_silent(views: MergedView) -> None:
    views.saw("a", "A", [row(ONE)], 1.0)
    views.silent("a", 2.0)
    assert resolvable(views) == {ONE}
    assert not views.fresh


def test_rows_from_before_a_restart_stay_until_they_expire(views: MergedView) -> None:
    views.saw("a", "A", [row(ONE), row(TWO)], 1.0)
    views.take_events()
    views.silent("a", 2.0)
    views.saw("a", "A2", [row(TWO)], 3.0)
    assert resolvable(views) == {ONE, TWO}
    assert views.take_events() == ()
    assert views.expire(4.0) == pytest.approx(RESTART_GRACE - 1.0)
    assert views.expire(3.0 + RESTART_GRACE) is None
    assert resolvable(views) == {TWO}
    assert [(e.provider, e.new) for e in views.take_events()] == [(ONE, DOWN)]


def test_rows_from_before_a_restart_stay_longer_while_others_come_back(views: MergedView) -> None:
    """Services under TLS come back one after another: those that came after 3 s were seen down."""
    three, step = record(number=3), RESTART_GRACE - 0.1
    views.saw("a", "A", [row(ONE), row(TWO), row(three)], 0.0)
    views.saw("a", "A2", [], 0.0)
    views.take_events()
    views.changed("a", [row(TWO)], (), step)
    views.changed("a", [row(three)], (), 2 * step)
    views.changed("a", [row(three)], (), 2 * step + 1.0)  # it was back already
    assert views.expire(2 * step + 1.0) == pytest.approx(RESTART_GRACE - 1.0)
    assert resolvable(views) == {ONE, TWO, three}
    assert views.expire(2 * step + RESTART_GRACE) is None
    assert [(e.provider, e.new) for e in views.take_events()] == [(ONE, DOWN)]


def test_services_that_come_back_keep_others_for_a_limited_time(views: MergedView) -> None:
    late = [record(number=number) for number in range(3, 43)]
    views.saw("a", "A", [row(ONE), *map(row, late)], 0.0)
    views.saw("a", "A2", [], 0.0)
    for number, one in enumerate(late):
        views.changed("a", [row(one)], (), float(number))
        assert (ONE.key in views.merged) == (number < MOST_GRACE)


def test_rows_from_before_a_restart_are_not_used_beside_a_steady_daemon(views: MergedView) -> None:
    views.saw("a", "A", [row(ONE), row(TWO)], 1.0)
    views.saw("b", "B", [row(TWO)], 1.0)
    views.saw("a", "A2", [], 2.0)
    assert resolvable(views) == {TWO}


def test_each_move_is_one_event_with_its_reason(views: MergedView) -> None:
    steps = [
        ("a", [row()], (JOINING, UP, Reason.ANSWERED)),
        ("b", [row()], None),
        ("a", [row(state=SUSPECT, reason=Reason.MISSED)], None),
        ("b", [row(state=SUSPECT, reason=Reason.MISSED)], (UP, SUSPECT, Reason.MISSED)),
        ("b", [row(replace(ONE, weight=3))], (SUSPECT, UP, Reason.ANSWERED)),
        ("b", [row(replace(ONE, weight=4))], (UP, UP, Reason.CHANGED)),
        ("b", [row(state=DOWN, reason=Reason.WITHDRAWN)], (UP, SUSPECT, Reason.MISSED)),
        ("a", [row(state=DOWN, reason=Reason.PIPE_LOST)], (SUSPECT, DOWN, Reason.PIPE_LOST)),
    ]
    for daemon, rows, expected in steps:
        views.saw(daemon, daemon, rows, 1.0)
        told = [(event.old, event.new, event.reason) for event in views.take_events()]
        assert told == ([expected] if expected else [])


def test_providers_that_came_and_went_leave_nothing(views: MergedView) -> None:
    """A process that looks on for months sees new ids with every restart of a service."""

    def come_and_go(numbers: range) -> int:
        for number in numbers:
            one = record(number=number)
            views.changed("a", [row(one)], (), 1.0)
            views.changed("b", [row(one)], (), 1.0)
            views.changed("a", [row(one, DOWN, Reason.PIPE_LOST)], (), 1.0)
            views.changed("b", [row(one, DOWN, Reason.WITHDRAWN)], (), 1.0)
            assert [event.reason for event in views.take_events()][-1] is Reason.PIPE_LOST
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = come_and_go(range(100))
        assert come_and_go(range(100, 1100)) - before < 20_000
    finally:
        tracemalloc.stop()


def test_replaying_the_events_gives_the_view() -> None:
    rng = random.Random(1)
    views = MergedView(["a", "b", "c"])
    table: dict[object, tuple[State, Provider]] = {}
    for step in range(2000):
        now = step / 2
        daemon = rng.choice("abc")
        if rng.random() < 0.2:
            views.silent(daemon, now)
        else:
            known = rng.sample([record(number=n) for n in range(6)], rng.randrange(7))
            rows = [
                row(replace(each, weight=rng.randrange(3)), rng.choice([UP, SUSPECT, DRAINING, DOWN])) for each in known
            ]
            views.saw(daemon, f"{daemon}{rng.randrange(3)}", rows, now)
        views.expire(now)
        for event in views.take_events():
            apply(table, event)
        assert table == {key: (status.state, status.provider) for key, status in views.merged.items()}


def apply(table: dict[object, tuple[State, Provider]], event: Event) -> None:
    key = event.provider.key
    assert event.old is (table[key][0] if key in table else JOINING)
    if event.new is DOWN:
        del table[key]
    else:
        table[key] = (event.new, event.provider)


def test_lanes_are_kept_for_a_limited_number_of_preferences(views: MergedView) -> None:
    views.saw("a", "A", [row(ONE)], 1.0)
    for number in range(3 * PREFERENCES):
        assert views.resolve("answer", random.Random(1), Preference((f"zone{number}",))) == ONE
        assert len(views._lanes) <= PREFERENCES
