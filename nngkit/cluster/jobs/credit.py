"""Credit for jobs on one link: what a subtree asks for, as the parent knows it (`Credit`) and as it says it (`Asked`).

Credit is given in changes, by groups: a group is the set of kinds of one or more nodes. `Passed` has the grants that
have gone over a link for it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nngkit.cluster.jobs.messages import MOST_GROUPS, Demand, Ref, Wanted

_Row = tuple[int, int, int, int]  # link, term, fence, attempt

USED: Final = (
    4  # a small rise waits until a quarter of the credit is used: it saves messages, and no slot is idle for it
)


@dataclass(slots=True, eq=False)
class Credit:
    """Jobs that a subtree asks for, of any of `kinds`, and how many of them would start at once.

    Below 0: it withdrew credit for which jobs were on their way. `idle` is below 0 also for jobs beyond the idle slots.
    """

    kinds: frozenset[str]
    number: int = 0
    jobs: int = 0
    slots: int = 0
    idle: int = 0

    def add(self, jobs: int, slots: int, idle: int) -> None:
        """Add credit."""
        self.jobs += jobs
        self.slots += slots
        self.idle += idle

    def use(self, jobs: int) -> None:
        """Note granted jobs. Idle slots get the first ones."""
        self.jobs -= jobs
        self.idle -= jobs


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
            group = groups[row.group] = Credit(frozenset(kinds), row.group)
        elif kinds is not None and group.kinds != frozenset(kinds):
            bad += 1
            continue
        group.add(row.change, row.slots - group.slots, row.idle)
    return bad


class Asked:
    """Credit that the parent was asked for on the present link, as it is left there."""

    def __init__(self) -> None:
        self._told: dict[frozenset[str], Credit] = {}

    def kinds(self, group: int) -> frozenset[str] | None:
        """Return the kinds of a group, or None."""
        return next((kinds for kinds, each in self._told.items() if each.number == group), None)

    def used(self, kinds: frozenset[str], jobs: int) -> None:
        """Note jobs that were granted for a group."""
        self._told[kinds].use(jobs)

    def changes(self, wanted: Mapping[frozenset[str], Credit]) -> list[Wanted]:
        """Return what to tell the parent, so that it has the credit and the slots of each group that are `wanted`."""
        rows: list[Wanted] = []
        for kinds in {**self._told, **wanted}:
            want = wanted.get(kinds) or Credit(kinds)
            told = self._told.get(kinds) or Credit(kinds, len(self._told))
            change = want.jobs - told.jobs
            small = change == 0 or (change > 0 and told.jobs * USED > want.jobs * (USED - 1))
            if small and told.slots == want.slots and not want.idle > 0 >= told.idle:
                continue
            declared = None
            if kinds not in self._told:
                if told.number >= MOST_GROUPS:
                    continue
                declared = sorted(kinds)
                self._told[kinds] = told
            row = Wanted(told.number, declared, change, want.slots, want.idle - told.idle)
            told.add(row.change, want.slots - told.slots, row.idle)
            rows.append(row)
        return rows


class Passed:
    """Grants that a node has passed to its children. At most `most` of those that children report are listed.

    Several grants of one job may be at children at once: a child that was away for a while reports the grant of an
    earlier term, or the host has granted the job again and the Stop of the grant before is on its way. Each has a row
    of its own: with one row for a job, the later grant hid the earlier one, whose Stop then had no link to go to.
    """

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._rows: dict[int, _Row] = {}  # by serial: the grant that was heard of last
        self._hidden: dict[tuple[int, int, int], _Row] = {}  # other grants of such jobs: nearly always empty

    def __len__(self) -> int:
        return len(self._rows) + len(self._hidden)

    def refs(self) -> list[Ref]:
        """Return all grants."""
        refs = [Ref(serial, *row[1:]) for serial, row in self._rows.items()]
        return refs + [Ref(key[0], *row[1:]) for key, row in self._hidden.items()]

    def link(self, serial: int, term: int, fence: int) -> int | None:
        """Return where a grant is, or None."""
        row = self._rows.get(serial)
        if row is None or row[1] != term or row[2] != fence:
            row = self._hidden.get((serial, term, fence))
        return None if row is None else row[0]

    def hand(
        self, link: int, term: int, serials: Sequence[int], fences: Sequence[int], attempts: Sequence[int]
    ) -> None:
        """List grants that go to a link."""
        rows, hidden = self._rows, self._hidden
        for serial, fence, attempt in zip(serials, fences, attempts, strict=True):
            if hidden or serial in rows:
                self._put(serial, (link, term, fence, attempt))
            else:
                rows[serial] = link, term, fence, attempt

    def report(self, link: int, ref: Ref) -> bool:
        """List a grant that a child has. Return False if there are too many."""
        serial, term, fence, attempt = ref.serial, ref.term, ref.fence, ref.attempt
        if len(self) >= self._most and self.link(serial, term, fence) is None:
            return False
        self._put(serial, (link, term, fence, attempt))
        return True

    def _put(self, serial: int, row: _Row) -> None:
        last = self._rows.get(serial)
        if last is not None and last[1:3] != row[1:3]:
            self._hidden[serial, last[1], last[2]] = last
        self._hidden.pop((serial, row[1], row[2]), None)
        self._rows[serial] = row

    def pop(self, serial: int, term: int, fence: int) -> int | None:
        """Forget a grant; return where it was, or None."""
        row = self._rows.get(serial)
        if row is not None and row[1] == term and row[2] == fence:
            del self._rows[serial]
            return row[0]
        row = self._hidden.pop((serial, term, fence), None)
        return None if row is None else row[0]

    def ended(self, term: int, serials: Iterable[int], fences: Iterable[int]) -> None:
        """Forget grants whose results have passed."""
        rows = self._rows
        for serial, fence in zip(serials, fences, strict=True):
            row = rows.pop(serial, None)
            if row is None or row[1] != term or row[2] != fence:
                if row is not None:
                    rows[serial] = row  # another grant of the job
                self._hidden.pop((serial, term, fence), None)

    def leave(self, link: int, refs: Iterable[Ref]) -> list[Ref]:
        """Forget grants that are not at a link any more; return those that were listed there."""
        left = [ref for ref in refs if self.link(ref.serial, ref.term, ref.fence) == link]
        for ref in left:
            self.pop(ref.serial, ref.term, ref.fence)
        return left

    def down(self, link: int) -> list[Ref]:
        """Forget all grants of a link; return them."""
        refs = [Ref(serial, *row[1:]) for serial, row in self._rows.items() if row[0] == link]
        refs += [Ref(key[0], *row[1:]) for key, row in self._hidden.items() if row[0] == link]
        return self.leave(link, refs)
