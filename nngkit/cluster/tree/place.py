"""Place of a node in the tree of its cluster. Pure: no clock, no socket, no loop, no chance of its own.

::

    place = Place("b", epoch, address="tcp://b:7000", seeds=["tcp://a:7000"], voters={"a": "tcp://a:7000"}, fanout=8,
                  may_host=True, now=now, rng=rng)
    place.join(now)                                 # look for a parent (the first host of all leads instead)
    place.link_up(7, now, dialed="tcp://a:7000")    # after `dial`; None: accepted
    place.link_up(8, now, dialed="tcp://c:7000", purpose="voter")    # the shell's own dials: "voter" or "look"
    place.dial_failed("tcp://c:7000", now)          # a dial has led to no connection
    place.receive(7, message, now)                  # place_messages.parse(row, peer), when it is not None
    place.heard(7, now)                             # anything else came: the peer is alive
    place.link_down(7, now)                         # not after a drop of ours
    place.lead(term, now); place.follow(term, host, address, now)        # news of the election, at voters
    place.leave(now)                                # drain: children go first, then Left
    place.set_facts({...}, now)
    if now >= place.wake_at: place.tick(now)
    effects = place.take()                          # sends, drop, dial, events: see place_events.py

    place.term, place.host, place.path              # path: ids from the root to this node, () without one
    place.parent                                    # link, or None
    place.children                                  # {link: id}
    place.route("c")                                # link of the child below which a node is, or None
    place.members() -> list[Member]                 # below this node; at the root all but itself
    place.shape() -> tree.Shape                     # at the root the whole tree
    place.links() -> {link: (role, id, address)}    # for a status page
    place.stats

The tree heals by itself: each node looks for a parent when it has lost its own, with its whole subtree. `place_paths`
explains why that makes no loops, `place_search` how a parent is found, `place_children` how joiners are answered,
`place_members` how routes are kept, and `tree` what shape comes out of it. This file is the public face of `place_core`
(state) and `place_receiving` (messages).

Events and links: broadcast messages may go over the links of `ParentUp` and `ChildUp`, until `ParentDown`, `ChildDown`.
During a move the node has two parent links for a round trip, so nothing is missed.

Invariants (with those of the other files):

1. A node with a path has a parent link, or leads; a node that leads has no parent link.
2. The path begins at a root of `term`, and at most one node leads a term (as the election promises).
3. A new parent is attached before the old one is left, unless that has gone.
4. Without a path the children stay; after `patience` they look for another parent, and stay until they have one.
5. Nothing is sent on a link before its Hello, nor after it is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nngkit.cluster.tree.links import Link
from nngkit.cluster.tree.messages import (
    Attach,
    Leave,
    Leaving,
    Member,
    Move,
    Probe,
    Purpose,
)
from nngkit.cluster.tree.receiving import Receiving
from nngkit.cluster.tree.search import Candidate
from nngkit.cluster.tree.values import (
    Left,
    MemberAdded,
    MemberRemoved,
    PlaceEffects,
    Silent,
)

__all__ = ["Place"]

NEVER = float("inf")
FRESH_PAUSE = 0.02  # seconds between two numbers of a root: each is a message to every node of the tree
DRAIN = 5.0  # seconds that children have to find another parent, before this node leaves anyway


class Place(Receiving):
    """Place of one node. `epoch` must differ between the runs of an id: microseconds since 1970.

    `address`: where it accepts links; None: it has no children. `seeds`: addresses of some nodes. `voters`: addresses
    by id. `may_host`: it is one of the voters. `fanout`: most children. Raises ConfigError.
    """

    @property
    def term(self) -> int:
        """Term of the path, or of the last one; 0 before the first."""
        return self._standing.term

    @property
    def host(self) -> str | None:
        """Id of the root; None without a path."""
        path = self._standing.path
        return path[0] if path else None

    @property
    def host_address(self) -> str | None:
        """Address of the root; None without a path."""
        return self._standing.host if self._standing.path else None

    @property
    def path(self) -> tuple[str, ...]:
        """Ids from the root to this node; () without a path."""
        return self._standing.path

    @property
    def leading(self) -> bool:
        """True if this node is the root."""
        return self._standing.leading

    @property
    def children(self) -> dict[int, str]:
        """Ids of the children by link."""
        return {link.number: link.id for link in self._children.links}

    @property
    def voters(self) -> dict[str, str]:
        """Addresses of the voters by id, as far as known."""
        return dict(self._children.voters)

    def route(self, id: str) -> int | None:
        """Return the link of the child below which a node is, or None."""
        return self._table.route(id)

    def member(self, id: str) -> Member | None:
        """Return the member of this id below this node, or None."""
        return self._table.get(id)

    def has_earlier(self, id: str, epoch: int) -> bool:
        """Return True if an earlier run of this id is this node, or below it: the later one may have to leave."""
        if id == self.id:
            return self.epoch < epoch
        return any(member.epoch < epoch for _, member in self._table.claims(id))

    def members(self) -> list[Member]:
        """Return the members below this node."""
        return list(self._table)

    def links(self) -> dict[int, tuple[str, str, str | None]]:
        """Return role, id and address of each link."""
        return {link.number: (link.role, link.id, link.address) for link in self._near}

    @property
    def wake_at(self) -> float:
        """When to call `tick`, in seconds of `now`."""
        if self._stopped:
            return NEVER
        return min(
            self._check_at,
            self._search.wake_at,
            self._standbys.wake_at,
            self._balance.wake_at,
            self._doubles.wake_at,
            self._patience_at,
            self._leave_at,
            self._news_at if self._table.waiting and self._parent else NEVER,
            self._number_at if self._number_wanted else NEVER,
        )

    def take(self) -> PlaceEffects:
        """Return what is to be done since the last call."""
        if not self._stopped:
            self._after()
        effects, self._near.effects = self._near.effects, PlaceEffects()
        return effects

    def join(self, now: float) -> None:
        """Begin to look for a parent."""
        self._near.now = now
        self._started = True
        if not self._standing.path and self._parent is None and not self._stopped:
            self._search.start([], now)

    def link_up(self, link: int, now: float, *, dialed: str | None, purpose: Purpose | None = None) -> None:
        """Take in a new link. `dialed`: the address; None: accepted. `purpose`: of dials of the shell."""
        near = self._near
        near.now = now
        if self._stopped or len(near.links) >= self.limits.links:
            near.stats.overflows += not self._stopped
            near.effects.drop.append(link)
            return
        new = near.links[link] = Link(link, dialed, purpose, "new", now)
        if dialed is None:
            near.send(new, self._hello("look"))
            return
        if purpose in ("voter", "look"):
            new.turn(purpose, now)
            near.send(new, self._hello(purpose))
            return
        near.dialing.discard(dialed)
        attempt = self._search.dialed(dialed)
        if attempt is not None:
            new.purpose = "join"
            new.turn("asked", now)
            near.send(new, self._hello("join"))
            self._search.connected(attempt, new, now)
        elif dialed in self._standbys.wanted and self._parent is not None:
            new.purpose = "standby"
            new.turn("standby", now)
            near.send(new, self._hello("standby"))
        else:
            near.drop(new)

    def set_seeds(self, addresses: Sequence[str], now: float) -> None:
        """Replace the addresses of nodes to ask for a place."""
        self._near.now = now
        self._seeds = tuple(address for address in addresses if address != self.address)
        if self._started and self._parent is None and not self._standing.path and not self._stopped:
            self._search.start([Candidate(address) for address in self._seeds], now)

    def dial_failed(self, address: str, now: float) -> None:
        """Note that a dial has led to no connection."""
        self._near.now = now
        self._near.dialing.discard(address)
        attempt = self._search.dialed(address)
        if attempt is not None:
            self._search.end(attempt, now, link_ended=True)

    def heard(self, link: int, now: float) -> None:
        """Note that the other end of a link is alive."""
        found = self._near.links.get(link)
        if found is not None:
            found.heard = now

    def link_down(self, link: int, now: float) -> None:
        """Forget a link that has ended."""
        self._near.now = now
        found = self._near.links.pop(link, None)
        if found is not None:
            self._ended(found, now, "the link has ended")

    def lead(self, term: int, now: float) -> None:
        """Become the root: this node is the host of the term."""
        self._near.now = now
        if self._stopped or not self._standing.lead(term, self.address):
            self.stats.unexpected += 1
            return
        self._started = True
        self._search.stop()
        for old in self._near.having("left"):
            self._near.send(old, Leave("this node is the host"))
        if self._parent is not None:
            self._near.send(self._parent, Leave("this node is the host"))
            self._parent.turn("left", now)
            self._parent = None
        self._offer = None
        self._hint = None
        self._standbys.want([], now)
        self._balance.changed(now)
        self._path_changed(now)

    def follow(self, term: int, host: str | None, address: str | None, now: float) -> None:
        """Take in the election's news: the host of the term, or that there is none now."""
        self._near.now = now
        standing = self._standing
        if self._stopped or host == self.id:
            return
        if host is not None:
            standing.hear(term)
            if address is not None and term > (standing.term if standing.path else 0):
                self._hint = term, address
        if standing.leading and (host is None or term > standing.term):
            self._path_lost("this node is not the host any more", now)
        if self._parent is None and self._started and not standing.leading:
            self._search.start([Candidate(address)] if address and host else [], now)
        self._update_hint()
        if self._hint is not None:
            self._children.serve_waiters(now)
        self._watch_patience(now)

    def set_facts(self, facts: Mapping[str, Any], now: float) -> None:
        """Change the facts that the other nodes know. Raises ConfigError."""
        self._near.now = now
        self._facts = self._checked(facts)
        if self._parent is not None:
            self._near.send(self._parent, Attach(self._moves, self.fanout, self._facts))
        elif self._standing.leading:
            self._balance.changed(now)

    def leave(self, now: float) -> None:
        """Leave the tree: children look for other parents first. `Left` reports the end."""
        self._near.now = now
        if self._stopped or self._leave_at != NEVER:
            return
        addresses = [self._parent.address if self._parent else None, *self._standbys.wanted, self.host_address]
        others = tuple(dict.fromkeys(each for each in addresses if each is not None and each != self.address))
        self._children.leaving = others
        self._leave_at = now + DRAIN
        for link in self._near.having("child", "pending"):
            self._near.send(link, Leaving(others))
        self._children.serve_waiters(now)
        if self._standing.leading or not self._children.links:
            self._leave_at = now

    def tick(self, now: float) -> None:
        """Do what is due. Sets `wake_at`."""
        near = self._near
        near.now = now
        if self._stopped:
            return
        if now >= self._check_at:
            self._check_at = now + self.limits.heartbeat
            for link in near.heartbeats(now):
                near.drop(link)
                if link.id and now - link.heard >= self.limits.silence:
                    near.effects.events.append(Silent(link.id, link.address or "", now - link.heard))
                self._ended(link, now, "the link was silent")
        if now >= self._patience_at:
            self._patience_at = NEVER
            self._search.start(self._standbys.candidates(), now)
        self._search.step(now)
        self._standbys.step(now)
        if now >= self._leave_at:
            self._leave_at = NEVER
            near.effects.events.append(Left())
            self._stop("the node leaves")

    def _after(self) -> None:
        """Report changes of the members, and do the duties of the root."""
        near, now = self._near, self._near.now
        if self._held_back and not self._search.offered:
            self._held_back = False
            self._follow_parent(now)
        for before, member in self._table.changes():
            if member is not None:
                near.effects.events.append(MemberAdded(member, before))
            elif before is not None:
                near.effects.events.append(MemberRemoved(before))
            if self._standing.leading:
                self._balance.changed(now)
        if self._table.double:
            self._doubles.note(now)
        for number, member in self._doubles.probes(now):
            near.send(near.links[number], Probe(member.id, member.epoch))
        if self._parent is not None and self._table.waiting and now >= self._news_at:
            self._news_at = now + self.limits.news
            for news in self._table.news():
                near.send(self._parent, news)
        if self._standing.leading:
            if self._number_wanted and now >= self._number_at:
                self._number_wanted, self._number_at = False, now + FRESH_PAUSE
                self._standing.renumber()
                self.stats.numbers += 1
                self._children.announce()
            if now >= self._balance.wake_at:
                for move in self._balance.plan(self.shape(), now):
                    self._order(move.node, move.parent)
        if self._children.leaving is not None and not self._near.having("child", "pending"):
            self._leave_at = min(self._leave_at, now)

    def _order(self, node: str, parent: str) -> None:
        member = self._table.get(node)
        above = self._table.get(parent)
        address = self.address if parent == self.id else above.address if above else None
        if member is not None and address is not None:
            self._pass_down(Move(node, member.epoch, parent, address))
