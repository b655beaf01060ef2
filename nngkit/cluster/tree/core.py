"""State of a node's place, and how it changes: parent, path, messages about itself. Pure. See place.py.

`place_receiving` and `place` build on it: the messages of neighbours, and the public face.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nngkit.cluster.tree.children import Children
from nngkit.cluster.tree.links import Link, Neighbours
from nngkit.cluster.tree.members import MemberTable
from nngkit.cluster.tree.messages import (
    MOST_FACTS,
    Ancestry,
    Attach,
    Expel,
    Hello,
    Join,
    Leave,
    Move,
    Probe,
    Purpose,
)
from nngkit.cluster.tree.path import Standing
from nngkit.cluster.tree.root import Balance, Doubles, shape_of
from nngkit.cluster.tree.search import Candidate, Random, Search
from nngkit.cluster.tree.shape import Shape
from nngkit.cluster.tree.standbys import Standbys
from nngkit.cluster.tree.values import (
    Attached,
    ChildDown,
    Detached,
    ParentDown,
    ParentUp,
    PlaceLimits,
    PlaceStats,
    TermChanged,
)
from nngkit.envelope import encode
from nngkit.errors import ConfigError
from nngkit.mesh.wire import MOST_NUMBER, MOST_ORIGIN

__all__ = ["PlaceCore"]

NEVER = float("inf")


class PlaceCore:
    """Parent and path of a node."""

    def __init__(
        self,
        id: str,
        epoch: int,
        *,
        address: str | None,
        seeds: Sequence[str],
        voters: Mapping[str, str],
        fanout: int,
        may_host: bool,
        now: float,
        rng: Random,
        limits: PlaceLimits | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        if not id or len(id.encode()) > MOST_ORIGIN or not id.isprintable():
            raise ConfigError("id", f"{id!r} is not printable text of 1 to {MOST_ORIGIN} bytes", id)
        if not 0 <= epoch <= MOST_NUMBER:
            raise ConfigError("epoch", f"{epoch!r} is not an integer from 0 to 2^53 - 1", epoch)
        if fanout < 1:
            raise ConfigError("fanout", f"{fanout!r} is not a number of children from 1", fanout)
        self.id, self.epoch, self.address = id, epoch, address
        self.may_host = may_host
        self.limits = limits or PlaceLimits()
        self.stats = PlaceStats()
        self.fanout = fanout if address is not None else 0
        self._seeds = tuple(seeds)
        self._facts = self._checked(facts or {})
        self._rng = rng
        self._near = Neighbours(self.limits, self.stats)
        self._standing = Standing(id)
        self._table = MemberTable(self.limits.members)
        self._children = Children(self._near, self._standing, self._table, self.fanout)
        self._children.voters = dict(voters)
        self._voters = frozenset(voters)
        self._search = Search(
            self._near,
            rng,
            address,
            join=self._join,
            sources=self._sources,
        )
        self._standbys = Standbys(self._near, self._search, rng, address)
        self._balance = Balance(self.limits, self.stats)
        self._doubles = Doubles(self._table, self.stats)
        self._parent: Link | None = None
        self._offer: Ancestry | None = None  # the parent's last path
        self._hint: tuple[int, str] | None = None  # term and address of a host that is newer than the path
        self._lost: str | None = None
        self._lost_address: str | None = None
        self._moves = 0
        self._attached: tuple[int, str, int | None] | None = None
        self._started = self._stopped = False
        self._check_at = now
        self._news_at = now
        self._number_at = now
        self._number_wanted = False
        self._fresh: tuple[int, int, float] = (0, 0, 0.0)  # the last request for a number that was passed on, and when
        self._parent_leaves = False
        self._held_back = False
        self._patience_at = NEVER
        self._leave_at = NEVER
        self._near.now = now

    def _checked(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        if len(encode(dict(facts))) > MOST_FACTS:
            raise ConfigError("facts", f"they have more than {MOST_FACTS} bytes")
        return dict(facts)

    @property
    def parent(self) -> int | None:
        """Link to the parent."""
        return self._parent.number if self._parent else None

    @property
    def parent_id(self) -> str | None:
        """Id of the parent."""
        return self._parent.id if self._parent else None

    def shape(self) -> Shape:
        """Return the shape of the tree below this node."""
        return shape_of(self.id, self.fanout, self._facts, self._table)

    def _ended(self, link: Link, now: float, why: str) -> None:
        """Forget a link, which is not in the table any more."""
        attempt = self._search.of(link)
        if attempt is not None:
            self._search.end(attempt, now, link_ended=True)
        if link.role == "child":
            self._children.gone(link, now)
            self._children.serve_waiters(now)
        elif link.role == "pending":
            self._children.serve_waiters(now)
        elif link.role == "left":
            self._near.effects.events.append(ParentDown(link.number, link.id))
        elif link is self._parent:
            self._parent_lost(now, why)
        elif link.role == "standby" and link.dialed is not None:
            self._standbys.again(now)

    def _stop(self, why: str) -> None:
        """End all links."""
        self._search.stop()
        for link in self._near:
            if link.role in ("parent", "child", "pending", "left"):
                self._near.send(link, Leave(why))
            if link.role in ("parent", "left"):
                self._near.effects.events.append(ParentDown(link.number, link.id))
            elif link.role == "child":
                self._near.effects.events.append(ChildDown(link.number, link.id))
            if link.role not in ("voter", "look"):
                self._near.drop(link)
        self._parent = None
        self._standing.lose()
        self._report_path(why)
        self._stopped = True

    def _pass_down(self, message: Move | Probe | Expel) -> None:
        for number, member in self._table.claims(message.id):
            below = self._near.links.get(number)
            if member.epoch == message.epoch and below is not None:
                self._near.send(below, message)

    def _attach(self, link: Link, place: Ancestry, now: float) -> None:
        """Make a node the parent, which the label allows."""
        old, self._parent = self._parent, link
        attempt = self._search.of(link)
        if attempt is not None:
            self._search.attempts.remove(attempt)
        link.turn("parent", now)
        self._moves += 1
        self.stats.attached += 1
        self._near.send(link, Attach(self._moves, self.fanout, self._facts))
        self._table.forget_told()
        self._news_at = now
        self._standing.attach(place)
        self._offer = place
        self._lost = self._lost_address = None
        self._parent_leaves = False
        self._search.stop()
        self._search.avoid = link.address
        if old is not None:
            old.turn("left", now)
        self._near.effects.events.append(ParentUp(link.number, link.id))
        self._path_changed(now)

    def _follow_parent(self, now: float) -> None:
        """Take the parent's path, or lose the own one with it."""
        place = self._offer
        if place is None:
            return
        if self.id in place.path:
            self.stats.loops += 1
            link = self._parent
            if link is not None:
                self._near.send(link, Leave("its path contains this node"))
                self._near.drop(link)
            self._parent_lost(now, "the parent's path contained this node")
        elif place.path and self._standing.follow(place, frozen=self._search.offered):
            self._held_back = self._search.offered
            self._path_changed(now)
        elif self._standing.path:
            self._path_lost("the parent has no path", now)

    def _parent_lost(self, now: float, why: str) -> None:
        link, self._parent = self._parent, None
        self._offer = None
        if link is None:
            return
        self.stats.lost += 1
        self._lost, self._lost_address = link.id, link.address
        self._search.avoid = None
        self._near.effects.events.append(ParentDown(link.number, link.id))
        self._path_lost(why, now)
        standbys = self._standbys.candidates()
        back = [Candidate(self._lost_address, hops=1)] if self._lost_address else []
        self._search.start([*standbys[:1], *back, *standbys[1:]], now)

    def _path_lost(self, why: str, now: float) -> None:
        self._standing.lose()
        self._balance.stop()
        self._number_wanted = False
        self._report_path(why)
        self._children.parent_address = None
        self._children.announce()
        self._watch_patience(now)

    def _path_changed(self, now: float) -> None:
        """Report and announce the path."""
        self._report_path("")
        offer, parent = self._offer, self._parent
        self._children.parent_address = parent.address if parent else None
        self._search.avoid = parent.address if parent else None
        self._update_hint()
        self._children.announce()
        self._children.serve_waiters(now)
        if parent is not None and offer is not None:
            wanted = [each for each in (offer.grandparent, offer.sibling) if each != parent.address]
            self._standbys.want(wanted, now)
        self._watch_patience(now)

    def _report_path(self, why: str) -> None:
        events, before = self._near.effects.events, self._attached
        path = self._standing.path
        if not path:
            self._attached = None
            if before is not None:
                events.append(Detached(why))
            return
        present = self._standing.term, path[0], self.parent
        if present != before:
            self._attached = present
            if before is None or before[0] != present[0]:
                events.append(TermChanged(present[0], present[1]))
            events.append(Attached(*present))

    def _update_hint(self) -> None:
        standing = self._standing
        if self._hint is not None and standing.path and standing.term >= self._hint[0]:
            self._hint = None
        self._children.hint = self._hint[1] if self._hint else None

    def _watch_patience(self, now: float) -> None:
        """Look for another parent after a while, if the path is missing or of a past term."""
        standing = self._standing
        if standing.leading or self._parent is None or (standing.path and not standing.stale):
            self._patience_at = NEVER
            if self._search.wanted and standing.path and not standing.stale and not self._parent_leaves:
                self._search.stop()
        elif self._patience_at == NEVER and not self._search.wanted:
            self._patience_at = now + self.limits.patience * (1 + self._rng.random())

    def _hello(self, purpose: Purpose) -> Hello:
        return Hello(self.id, self.epoch, purpose, self.address, self._standing.known)

    def _join(self, hops: int, direct: bool, ordered: bool) -> Join:
        label = None if self._children.childless else self._standing.label
        size = len(self._table) + 1
        return Join(label, self._standing.term, hops, direct, self.fanout, size, self._lost, ordered)

    def _sources(self) -> list[str]:
        hint = [self._hint[1]] if self._hint else []
        known = [*hint, *self._children.voters.values(), *self._seeds]
        return [each for each in known if each != self.address] + ([self._lost_address] if self._lost_address else [])
