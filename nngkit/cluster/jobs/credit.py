"""Credit for jobs on one link: what a subtree asks for, as the parent knows it (`Credit`) and as it says it (`Asked`).

Credit is given in changes, by groups: a group is the set of kinds of one or more nodes. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nngkit.cluster.jobs.messages import MOST_GROUPS, Demand, Wanted

__all__ = ["Asked", "Credit", "take_demand"]

USED: Final = (
    4  # a small rise waits until a quarter of the credit is used: it saves messages, and no slot is idle for it
)


class Credit:
    """Jobs that a subtree asks for, of any of `kinds`. Below 0: it withdrew credit for which jobs were on their way."""

    __slots__ = ("jobs", "kinds", "slots")

    def __init__(self, kinds: frozenset[str]) -> None:
        self.kinds = kinds
        self.jobs = 0
        self.slots = 0


def take_demand(groups: dict[int, Credit], demand: Demand, most: int) -> int:
    """Change the credit of one link by a message; return the number of rows that were invalid.

    `most`: groups of one link at most.
    """
    bad = 0
    for row in demand.rows:
        kinds, group = row.kinds, groups.get(row.group)
        if group is None:
            if kinds is None or len(groups) >= most:
                bad += 1
                continue
            group = groups[row.group] = Credit(frozenset(kinds))
        elif kinds is not None and group.kinds != frozenset(kinds):
            bad += 1
            continue
        group.jobs += row.change
        group.slots = row.slots
    return bad


class Asked:
    """Credit that the parent was asked for on the present link."""

    def __init__(self) -> None:
        self._given: dict[frozenset[str], int] = {}
        self._numbers: dict[frozenset[str], int] = {}
        self._told: dict[frozenset[str], int] = {}  # slots

    def kinds(self, group: int) -> frozenset[str] | None:
        """Return the kinds of a group, or None."""
        return next((each for each, number in self._numbers.items() if number == group), None)

    def used(self, kinds: frozenset[str], jobs: int) -> None:
        """Note jobs that were granted for a group."""
        self._given[kinds] = self._given.get(kinds, 0) - jobs

    def changes(self, wanted: Mapping[frozenset[str], tuple[int, int]]) -> list[Wanted]:
        """Return what to tell the parent, so that it has the credit and the slots of each group that are `wanted`."""
        rows: list[Wanted] = []
        for kinds, (target, slots) in {**dict.fromkeys(self._given, (0, 0)), **wanted}.items():
            given = self._given.get(kinds, 0)
            change = target - given
            small = change == 0 or (change > 0 and given * USED > target * (USED - 1))
            if small and self._told.get(kinds, 0) == slots:
                continue
            number = self._numbers.get(kinds)
            declared = None
            if number is None:
                if len(self._numbers) >= MOST_GROUPS:
                    continue
                number = self._numbers[kinds] = len(self._numbers)
                declared = sorted(kinds)
            self._given[kinds] = target
            self._told[kinds] = slots
            rows.append(Wanted(number, declared, change, slots))
        return rows
