"""What the silence in one round means: who was asked, who kept silent, and whether that is held against them. Pure.

registry.py's docstring has the rules; this is their arithmetic, for itself, so that a table test can hold it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nngkit.discovery.liveness import Round, Rules, is_mass_loss
from nngkit.discovery.provider import RoundFigures, State
from nngkit.discovery.provider_table import Row

__all__ = ["OpenRound", "Verdict", "reask_targets", "weigh"]


@dataclass(slots=True, eq=False)
class OpenRound:
    """A round whose replies are still taken.

    `waiting`: pipes asked, standing, and not heard. `heard`: pipes that have answered. `targets`: whom a re-ask is for;
    None: everybody. `figures`: set at its end; what comes then is late.
    """

    round: Round
    waiting: set[int]
    targets: frozenset[Row] | None = None
    heard: set[int] = field(default_factory=set)
    figures: RoundFigures | None = None

    @property
    def ended(self) -> bool:
        """Whether its deadline has passed."""
        return self.figures is not None


@dataclass(frozen=True, slots=True)
class Verdict:
    """`due`: how many could be held to account. `missed`: those of them who were silent. `held`: all the silent, where
    most were; then nobody's silence counts.
    """

    due: int
    missed: tuple[Row, ...]
    held: tuple[Row, ...] = ()


def reask_targets(rows: Iterable[Row], rules: Rules) -> frozenset[Row]:
    """Whom a second question is for: the first doubts, and those who were silent together with most."""
    return frozenset(row for row in rows if row.stale or 0 < row.misses < rules.suspect_after)


def weigh(this: OpenRound, rows: Iterable[Row], rules: Rules) -> Verdict:
    """Judge the rows at the end of `this`, changing none."""
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
    # Who is passed over already has been given up on by itself, and says nothing about our own network.
    trusted = sum(row.misses < rules.suspect_after for row in asked)
    lost = sum(row.misses < rules.suspect_after for row in silent)
    mass = is_mass_loss(lost, trusted, rules)
    return Verdict(len(due), tuple(missed), tuple(silent) if mass else ())
