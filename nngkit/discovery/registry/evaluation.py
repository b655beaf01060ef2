"""Evaluation of a round: which rows were asked, which missed it, and whether the misses count. Pure.

The rules are in registry.py's docstring; this is their arithmetic, separate so that a table test can cover it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nngkit.discovery.provider import RoundFigures, State
from nngkit.discovery.registry.liveness import LivenessRules, Round, is_mass_loss
from nngkit.discovery.registry.table import ProviderRow


@dataclass(slots=True, eq=False)
class OpenRound:
    """A round whose replies are still accepted.

    `waiting`: connected pipes that were asked and have not answered. `heard`: pipes that have answered. `targets`: the
    rows that a re-ask is for; None: all. `figures`: set when the round ends; later replies are late.
    """

    round: Round
    waiting: set[int]
    targets: frozenset[ProviderRow] | None = None
    heard: set[int] = field(default_factory=set)
    figures: RoundFigures | None = None

    @property
    def ended(self) -> bool:
        """True once the deadline has passed."""
        return self.figures is not None


@dataclass(frozen=True, slots=True)
class RoundVerdict:
    """`due`: number of rows that had to answer. `missed`: those of them that were silent. `held`: all silent rows of a
    round with mass loss; none of their misses count then.
    """

    due: int
    missed: tuple[ProviderRow, ...]
    held: tuple[ProviderRow, ...] = ()


def reask_targets(rows: Iterable[ProviderRow], rules: LivenessRules) -> frozenset[ProviderRow]:
    """Return the rows that a re-ask is for: those with a first miss, and those held back by a mass loss."""
    return frozenset(row for row in rows if row.stale or 0 < row.misses < rules.suspect_after)


def evaluate_round(this: OpenRound, rows: Iterable[ProviderRow], rules: LivenessRules) -> RoundVerdict:
    """Evaluate the rows at the end of `this` without changing them."""
    number = this.round.number
    asked = [
        row
        for row in rows
        if row.state is not State.DOWN and row.counted < number and not row.pipes.isdisjoint(this.round.asked)
    ]
    silent = [row for row in asked if row.heard < number]
    due, missed = asked, silent
    if this.targets is not None:
        due = [row for row in asked if row in this.targets]
        missed = [row for row in silent if row in this.targets]
    # A row that is already suspect failed on its own, and says nothing about our network.
    trusted = sum(row.misses < rules.suspect_after for row in asked)
    lost = sum(row.misses < rules.suspect_after for row in silent)
    mass = is_mass_loss(lost, trusted, rules)
    return RoundVerdict(len(due), tuple(missed), tuple(silent) if mass else ())
