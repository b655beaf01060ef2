"""Duties of the root: numbers for paths, moves that keep the tree low, and ids used twice. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nngkit.cluster.log_clock import NEVER
from nngkit.cluster.tree.members import MemberTable
from nngkit.cluster.tree.messages import Member
from nngkit.cluster.tree.shape import Move, Shape, plan_moves
from nngkit.cluster.tree.values import PlaceLimits, PlaceStats

BUSY: Final = "busy"  # fact of a node that has too much to do: its leaves go to others, one after the other

MOST_FAILED: Final = 64  # moves that are avoided; then all are tried again
LONGEST_PAUSE: Final = 60.0  # seconds between two equal plans: the moves fail, as the nodes do not reach each other
PROBE_AGAIN: Final = 1.0  # seconds until the earlier of two nodes with one id is asked again
LIGHTEN: Final = 5.0  # seconds between two leaves that a busy node gives away: its load follows with some delay
MOST_DOUBLES: Final = 64  # ids that are pursued at once


def shape_of(root: str, fanout: int, facts: Mapping[str, Any], members: MemberTable) -> Shape:
    """Return the shape of the tree as the root knows it."""
    parents: dict[str, str | None] = {root: None}
    fanouts = {root: fanout}
    busy = {root} if facts.get(BUSY) is True else set()
    for member in members:
        parents[member.id] = member.parent
        fanouts[member.id] = member.fanout
        if member.facts.get(BUSY) is True:
            busy.add(member.id)
    return Shape(parents, fanouts, frozenset(busy))


class Balance:
    """When the root plans, and what."""

    def __init__(self, limits: PlaceLimits, stats: PlaceStats) -> None:
        self.limits = limits
        self.stats = stats
        self.wake_at = NEVER
        self._last: list[Move] = []
        self._failed: set[Move] = set()
        self._lightened: dict[str, float] = {}  # busy nodes, and when each was last to give away a leaf
        self._pause = limits.plan

    def changed(self, now: float) -> None:
        """Plan once the tree has been quiet."""
        self.wake_at = now + self.limits.quiet

    def stop(self) -> None:
        """Plan nothing: the node is no root."""
        self.wake_at = NEVER
        self._last = []
        self._failed.clear()
        self._lightened.clear()

    def plan(self, shape: Shape, now: float) -> list[Move]:
        """Return the moves that are due. One that failed is avoided for a while; plans that fail become rare."""
        if now < self.wake_at:
            return []
        self.wake_at = NEVER
        if shape.busy:
            self.wake_at = now + LIGHTEN
        self._lightened = {host: at for host, at in self._lightened.items() if at + LIGHTEN > now}
        due = shape.busy - self._lightened.keys()
        moves = plan_moves(shape, self.limits.moves, avoid=self._failed, lighten=due)
        self._lightened |= dict.fromkeys(due, now)
        again = set(moves).intersection(self._last)
        if moves or self._failed:
            self._pause = min(LONGEST_PAUSE, self._pause * 2) if again or not moves else self.limits.plan
            self.wake_at = min(self.wake_at, now + self._pause)
            self.stats.moves += len(moves)
        self._failed = self._failed | again if moves and len(self._failed) < MOST_FAILED else set()
        self._last = moves
        return moves


class Doubles:
    """Ids that are claimed at two epochs: a node that was restarted, or two nodes.

    The earlier one is asked (Probe). If it answers, the later one has to leave; if it does not, its link ends soon.
    """

    def __init__(self, table: MemberTable, stats: PlaceStats) -> None:
        self.table = table
        self.stats = stats
        self.wake_at = NEVER
        self._open: dict[str, float] = {}

    def note(self, now: float) -> None:
        """Take in the ids that the table has found."""
        for name in self.table.double:
            if name not in self._open and len(self._open) < MOST_DOUBLES:
                self._open[name] = now
                self.wake_at = now
                self.stats.doubles += 1
        self.table.double.clear()

    def probes(self, now: float) -> list[tuple[int, Member]]:
        """Return the earlier nodes to be asked, with the links to them."""
        if now < self.wake_at:
            return []
        found = []
        for name, at in list(self._open.items()):
            claims = self.table.claims(name)
            epochs = {member.epoch for _, member in claims}
            if len(epochs) < 2:
                del self._open[name]
            elif now >= at:
                self._open[name] = now + PROBE_AGAIN
                found += [(link, member) for link, member in claims if member.epoch == min(epochs)]
        self.wake_at = min(self._open.values(), default=NEVER)
        return found

    def later(self, name: str, epoch: int) -> list[tuple[int, Member]]:
        """Return the claims of an id that are later than this epoch."""
        return [(link, member) for link, member in self.table.claims(name) if member.epoch > epoch]
