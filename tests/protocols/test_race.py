"""Attempts at the addresses of a name: which starts when, as RFC 8305 says. Pure; by tables and by Hypothesis."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.protocols._wire.race import DELAY, LIMIT, LONG_LIMIT, Race, interleaved, limit_of


@pytest.mark.parametrize(
    ("addresses", "order"),
    [
        ("", ""),
        ("a", "a"),
        ("abAB", "aAbB"),
        ("ABab", "AaBb"),
        ("abcA", "aAbc"),
        ("AaBb", "AaBb"),
        ("aab", "ab"),  # each once
    ],
)
def test_families_take_turns_from_the_first_address_on(addresses: str, order: str) -> None:
    assert "".join(interleaved(addresses, str.isupper)) == order


@given(st.lists(st.tuples(st.sampled_from([4, 6]), st.integers(0, 20))))
def test_interleaving_loses_nothing_and_keeps_the_order_within_a_family(addresses: list[tuple[int, int]]) -> None:
    order = interleaved(addresses, lambda each: each[0])
    unique = list(dict.fromkeys(addresses))
    for family in (4, 6):
        assert [each for each in order if each[0] == family] == [each for each in unique if each[0] == family]
    changes = 2 * min(sum(each[0] == family for each in unique) for family in (4, 6))
    assert all(first[0] != second[0] for first, second in itertools.pairwise(order[:changes]))


@dataclass
class Simulation:
    """A race at a clock of its own. ``fates``: for each address, seconds until its answer, and whether it connects."""

    fates: list[tuple[float, bool]]
    started: dict[int, float] = field(default_factory=dict)
    stopped: dict[int, float] = field(default_factory=dict)
    winner: int | None = None
    end: float = 0.0
    ended: set[int] = field(default_factory=set)

    def run(self, limit: float = LIMIT) -> Simulation:
        race, now = Race(len(self.fates), 0.0, limit), 0.0
        while not race.over:
            step = race.step(now)
            assert not set(step.start) & set(self.started)
            self.started |= dict.fromkeys(step.start, now)
            self.stopped |= dict.fromkeys(step.stop, now)
            if race.over:
                break
            going = set(self.started) - set(self.stopped) - self.ended
            answers = {self.started[index] + self.fates[index][0]: index for index in going}
            first = min(answers, default=float("inf"))
            now = min(race.due, first)
            if first <= race.due:
                index = answers[first]
                self.ended.add(index)
                if self.fates[index][1]:
                    self.winner = index
                    self.stopped |= dict.fromkeys(race.connected(index), now)
                else:
                    race.failed(index, now)
        self.end = now
        return self


NEVER = (1e9, False)


@pytest.mark.parametrize(
    ("fates", "started", "winner", "end"),
    [
        ([(0.1, True)], {0: 0.0}, 0, 0.1),
        ([(0.1, True), (0.0, True)], {0: 0.0}, 0, 0.1),  # the first answers within the delay: the second is not tried
        ([(0.01, False), (0.1, True)], {0: 0.0, 1: 0.01}, 1, 0.11),  # refused: the second need not wait
        ([NEVER, (0.1, True)], {0: 0.0, 1: DELAY}, 1, DELAY + 0.1),
        ([(0.3, True), (0.1, True)], {0: 0.0, 1: DELAY}, 0, 0.3),  # the slower one started earlier
        ([NEVER, NEVER], {0: 0.0, 1: DELAY}, None, DELAY + LIMIT),
        ([NEVER, (0.01, False)], {0: 0.0, 1: DELAY}, None, LIMIT),
        ([], {}, None, 0.0),
    ],
)
def test_the_next_address_is_tried_after_a_delay_or_a_failure(
    fates: list[tuple[float, bool]], started: dict[int, float], winner: int | None, end: float
) -> None:
    simulation = Simulation(fates).run()
    assert simulation.started == pytest.approx(started)
    assert simulation.winner == winner
    assert simulation.end == pytest.approx(end)


@given(st.lists(st.tuples(st.floats(0.0, 20.0), st.booleans()), max_size=12))
def test_every_race_ends_and_leaves_no_attempt_in_progress(fates: list[tuple[float, bool]]) -> None:
    simulation = Simulation(fates).run()
    in_progress = set(simulation.started) - set(simulation.stopped) - simulation.ended
    assert not in_progress
    if simulation.winner is None:
        assert set(simulation.started) == set(range(len(fates)))  # all were tried
        assert not any(connects and seconds < LIMIT for seconds, connects in fates)
    starts = list(simulation.started.values())
    assert starts == sorted(starts)
    assert simulation.end <= len(fates) * DELAY + LIMIT


def test_every_fourth_try_waits_longer_for_peers_that_are_far_away() -> None:
    assert [limit_of(number) for number in range(1, 9)] == [LIMIT, LIMIT, LIMIT, LONG_LIMIT] * 2
