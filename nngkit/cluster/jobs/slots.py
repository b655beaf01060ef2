"""Places for jobs at a node's own workers: slots in all, fewer for some kinds, and the credit to ask for. Pure.

    >>> places = Places({"render": 1, "scale": 4}, 4)
    >>> places.groups
    {'render': frozenset({'render'}), 'scale': frozenset({'scale'})}
    >>> [places.slots_of(kind) for kind in places.groups]
    [1, 4]

A kind of which fewer than `slots` jobs may run is narrow: it has a group of its own in the credit, so that no job of it
is granted for a slot that only another kind may use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final

from nngkit.cluster.jobs.values import CrewJob

MOST_NARROW: Final = 16  # kinds with a group of their own: a link has 256 groups for a whole subtree

Kinds = Collection[str] | Mapping[str, int]
"""Kinds; or kinds with the jobs of each at a time."""


class Places:
    """Places for jobs of `kinds`, `slots` in all.

    Attributes:
        most: Jobs at a time of the kinds of which fewer than `slots` may run.
        narrow: The same, of the kinds with a group of their own: none if there are too many.
        groups: The group of each kind.
        taken: Running and stopping jobs, by kind.
    """

    def __init__(self, kinds: Kinds, slots: int) -> None:
        self.taken: dict[str, int] = {}
        self.set(kinds, slots)

    def set(self, kinds: Kinds, slots: int) -> None:
        """Change the kinds and the slots."""
        self.kinds, self.slots = frozenset(kinds), slots
        each = kinds if isinstance(kinds, Mapping) else {}
        self.most = {kind: most for kind, most in each.items() if most < slots}
        self.narrow = self.most if len(self.most) <= MOST_NARROW else {}
        self.groups = {kind: frozenset([kind]) for kind in sorted(self.narrow)}
        wide = self.kinds.difference(self.narrow)
        self.groups.update(dict.fromkeys(sorted(wide), wide))

    def slots_of(self, kind: str) -> int:
        """Return the slots of a kind's group."""
        return self.narrow.get(kind, self.slots)

    def full(self, kind: str) -> bool:
        """Return True if no further job of a kind may run, whatever slots are free."""
        return self.taken.get(kind, 0) >= self.most.get(kind, self.slots)

    def take(self, kind: str) -> None:
        """Note that a job has a place."""
        self.taken[kind] = self.taken.get(kind, 0) + 1

    def free(self, kind: str) -> None:
        """Note that a job has left its place."""
        self.taken[kind] -= 1

    def room(self, kind: str, busy: int, waiting: Collection[CrewJob], ahead: Callable[[int], int]) -> tuple[int, int]:
        """Return how many jobs of a kind can be taken, and how many of them would start at once.

        `busy` have a slot, beside those that wait. `ahead` returns how many should wait beside running ones.
        """
        idle = self.slots - busy - len(waiting) + self._held(waiting)
        room = idle + ahead(self.slots)
        if (most := self.narrow.get(kind)) is not None:
            free = most - self.taken.get(kind, 0) - sum(job.kind == kind for job in waiting)
            room, idle = min(room, free + ahead(most)), min(idle, free)
        return max(0, room), max(0, idle)

    def _held(self, waiting: Collection[CrewJob]) -> int:
        """Return how many jobs wait for a place of their kind: another kind may have the next slot."""
        if not self.most or not waiting:
            return 0
        counts = Counter(job.kind for job in waiting if job.kind in self.most)
        over = ((count, count + self.taken.get(kind, 0) - self.most[kind]) for kind, count in counts.items())
        return sum(min(count, max(0, more)) for count, more in over)
