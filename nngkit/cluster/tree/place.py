"""Place of a node in the tree of its cluster. Pure: no clock, no socket, no loop, no chance of its own.

::

    place = Place("b", epoch, address="tcp://b:7000", seeds=["tcp://a:7000"], voters={"a": "tcp://a:7000"}, fanout=8,
                  may_host=True, now=now, rng=rng)
    place.join(now)                                 # look for a parent (the first host of all leads instead)
    place.link_up(7, now, dialed="tcp://a:7000")    # after `dial`; None: accepted
    place.dial_failed("tcp://c:7000", now)          # a dial has led to no connection
    place.receive(7, message, now)                  # messages.KINDS.parse(row, peer), when not None
    place.heard(7, now)                             # anything else came: the peer is alive
    place.link_down(7, now)                         # not after a drop of ours
    place.lead(term, now); place.follow(term, host, address, now)        # news of the election, at voters
    place.leave(now)                                # drain: children go first, then Left
    place.set_facts({...}, now)
    if now >= place.wake_at: place.tick(now)
    effects = place.take()                          # sends, drop, dial, events: see values.py

    place.term, place.host, place.path              # path: ids from the root to this node, () without one
    place.parent                                    # link, or None
    place.children                                  # {link: id}
    place.route("c")                                # link of the child below which a node is, or None
    place.members() -> list[Member]                 # below this node; at the root all but itself
    place.shape() -> shape.Shape                    # at the root the whole tree
    place.stats

The tree heals by itself: each node looks for a parent when it has lost its own, with its whole subtree. path.py
explains why that makes no loops, search.py how a parent is found, children.py how joiners are answered,
members.py how routes are kept, and shape.py what shape comes out of it.

A Path comes from the parent, or from a node that has accepted this one; Members, Fresh and Alive come from children;
Move, Probe and Expel from the parent; answers from nodes that were asked. All else is ignored, and most of it counted
in `PlaceStats.unexpected`: some of it is only late.

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

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from nngkit.chance import Chance
from nngkit.cluster.frames import check_id
from nngkit.cluster.log_clock import NEVER
from nngkit.cluster.tree import messages, values
from nngkit.cluster.tree.children import Children
from nngkit.cluster.tree.links import Link, Neighbours
from nngkit.cluster.tree.members import MemberTable
from nngkit.cluster.tree.path import Standing
from nngkit.cluster.tree.root import Balance, Doubles, shape_of
from nngkit.cluster.tree.search import Candidate, Search
from nngkit.cluster.tree.shape import Shape
from nngkit.cluster.tree.standbys import Standbys
from nngkit.envelope import encode
from nngkit.errors import ConfigError
from nngkit.messages import MOST_NUMBER

FRESH_PAUSE: Final = 0.02  # seconds between two numbers of a root: each is a message to every node of the tree
FRESH_AGAIN: Final = 0.3  # seconds until an equal request for a number is passed on again: the first one may be lost
DRAIN: Final = 5.0  # seconds that children have to find another parent, before this node leaves anyway


class Place:
    """Place of one node. `epoch` must differ between the runs of an id: microseconds since 1970.

    `address`: where it accepts links; None: it has no children. `seeds`: addresses of some nodes. `voters`: addresses
    by id. `may_host`: it is one of the voters. `fanout`: most children. `unfit`: returns why the node of a link, with
    this path, may not be the parent; the parent then hears of members before anything that they send. Raises
    ConfigError.
    """

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
        rng: Chance,
        limits: values.PlaceLimits | None = None,
        facts: Mapping[str, Any] | None = None,
        unfit: Callable[[int, Sequence[str]], str | None] | None = None,
    ) -> None:
        if not 0 <= epoch <= MOST_NUMBER:
            raise ConfigError("epoch", f"{epoch!r} is not an integer from 0 to 2^53 - 1", epoch)
        if fanout < 1:
            raise ConfigError("fanout", f"{fanout!r} is not a number of children from 1", fanout)
        self.id, self.epoch, self.address = check_id(id), epoch, address
        self.may_host = may_host
        self.limits = limits or values.PlaceLimits()
        self.stats = values.PlaceStats()
        self.fanout = self._most_children = fanout if address is not None else 0
        self._unfit = unfit
        self._news_pause = self.limits.news if unfit is None else 0.0
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
        self._offer: messages.Ancestry | None = None  # the parent's last path
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

    # ---- what the node reads

    @property
    def parent(self) -> int | None:
        """Link to the parent."""
        return self._parent.number if self._parent else None

    @property
    def parent_id(self) -> str | None:
        """Id of the parent."""
        return self._parent.id if self._parent else None

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

    def member(self, id: str) -> messages.Member | None:
        """Return the member of this id below this node, or None."""
        return self._table.get(id)

    def has_earlier(self, id: str, epoch: int) -> bool:
        """Return True if an earlier run of this id is this node, or below it: the later one may have to leave."""
        if id == self.id:
            return self.epoch < epoch
        return any(member.epoch < epoch for _, member in self._table.claims(id))

    def below(self, link: int, id: str) -> bool:
        """Return True if a child says that a node is below it, or it is the child."""
        return self._table.below(link, id)

    def carries(self, link: int) -> bool:
        """Return True if a child has others below it."""
        branch = self._table.branch(link)
        return branch.hosts + branch.leaves > 1

    def above(self, link: int) -> bool:
        """Return True for the link to the parent, or to the one before."""
        found = self._near.links.get(link)
        return found is not None and found.role in ("parent", "left")

    def members(self) -> list[messages.Member]:
        """Return the members below this node."""
        return list(self._table)

    def shape(self) -> Shape:
        """Return the shape of the tree below this node."""
        return shape_of(self.id, self.fanout, self._facts, self._table)

    # ---- what the node tells

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

    def take(self) -> values.PlaceEffects:
        """Return what is to be done since the last call."""
        if not self._stopped:
            self._after()
        effects, self._near.effects = self._near.effects, values.PlaceEffects()
        return effects

    def join(self, now: float) -> None:
        """Begin to look for a parent."""
        self._near.now = now
        self._started = True
        if not self._standing.path and self._parent is None and not self._stopped:
            self._search.start([], now)

    def link_up(self, link: int, now: float, *, dialed: str | None) -> None:
        """Take in a new link. `dialed`: the address; None: accepted."""
        near = self._near
        near.now = now
        if self._stopped or len(near.links) >= self.limits.links:
            near.stats.overflows += not self._stopped
            near.effects.drop.append(link)
            return
        new = near.links[link] = Link(link, dialed, now)
        if dialed is None:
            near.send(new, self._hello("look"))
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
            self._near.send(old, messages.Leave("this node is the host"))
        if self._parent is not None:
            self._near.send(self._parent, messages.Leave("this node is the host"))
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
            self._near.send(self._parent, messages.Attach(self._moves, self.fanout, self._facts))
        elif self._standing.leading:
            self._balance.changed(now)

    def take_children(self, takes: bool, now: float) -> None:
        """Take children from now on, or no more; those that are here go by themselves."""
        fanout = self._most_children if takes else 0
        if fanout != self.fanout:
            self.fanout = self._children.fanout = fanout
            self.set_facts(self._facts, now)

    def look_again(self, now: float) -> None:
        """Leave the parent if it may not be it any more."""
        self._near.now = now
        if self._parent is not None and self._offer is not None:
            self._fits(self._parent, self._offer, now)

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
            self._near.send(link, messages.Leaving(others))
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
                    near.effects.events.append(values.Silent(link.id, link.address or "", now - link.heard))
                self._ended(link, now, "the link was silent")
        if now >= self._patience_at:
            self._patience_at = NEVER
            self._search.start(self._standbys.candidates(), now)
        self._search.step(now)
        self._standbys.step(now)
        if now >= self._leave_at:
            self._leave_at = NEVER
            near.effects.events.append(values.Left())
            self._stop("the node leaves")

    # ---- messages of neighbours

    def receive(self, link: int, message: messages.Message, now: float) -> None:
        """Take in a message."""
        near = self._near
        near.now = now
        found = near.links.get(link)
        if found is None or self._stopped:
            return
        found.heard = now
        if isinstance(message, messages.Hello):
            self._greeted(found, message, now)
        elif found.hello is None:
            self.stats.unexpected += 1
            near.drop(found)
            self._ended(found, now, "it did not introduce itself")
        elif isinstance(message, messages.Path):
            self._placed(found, message, now)
        elif isinstance(message, messages.Members):
            self._members(found, message, now)
        elif isinstance(message, messages.Join):
            self._children.asked(found, message, now)
        elif isinstance(message, messages.Attach):
            self._children.attached(found, message, now)
            self._lost = None if self._lost == found.id else self._lost
        elif isinstance(message, messages.Settled):
            for old in near.having("left"):
                near.send(old, messages.Leave("attached elsewhere"))
        elif isinstance(message, messages.Leave):
            self._told_to_leave(found, message, now)
        elif isinstance(message, messages.Fresh):
            self._fresh_wanted(found, message, now)
        elif isinstance(message, messages.Move | messages.Probe | messages.Expel):
            self._from_above(found, message, now)
        elif isinstance(message, messages.Alive):
            self._alive(found, message)
        elif isinstance(message, messages.Leaving):
            if found is self._parent:
                self._parent_leaves = True
                candidates = [Candidate(each, hops=1) for each in message.addresses]
                self._search.start([*self._standbys.candidates(), *candidates], now)
        elif isinstance(message, messages.Accept | messages.Refer | messages.Refuse | messages.Wait):
            self._answered(found, message, now)

    def _greeted(self, link: Link, hello: messages.Hello, now: float) -> None:
        if link.hello is not None:
            self.stats.unexpected += 1
            return
        if hello.id == self.id and hello.epoch == self.epoch:  # dialed itself by another of its addresses
            self._near.drop(link)
            self._ended(link, now, "it leads to this node")
            return
        link.hello = hello
        if link.dialed is None:
            link.purpose = hello.purpose
            link.turn("standby" if hello.purpose == "standby" else "guest", now)
        self._near.effects.events.append(values.Greeted(hello.id, hello.term))

    def _answered(
        self, link: Link, answer: messages.Accept | messages.Refer | messages.Refuse | messages.Wait, now: float
    ) -> None:
        """Take in the answer to a request of this node."""
        attempt = self._search.of(link)
        if attempt is None:
            return  # it came after the end of the attempt
        if isinstance(answer, messages.Accept):
            if self.may_host and self._voters != answer.voters.keys():
                self._near.effects.events.append(values.OtherVoters(link.id, tuple(sorted(answer.voters))))
            if self._fits(link, answer.place, now):
                self._children.voters |= answer.voters
                self._offered(link, answer.place, now)
        elif isinstance(answer, messages.Wait):
            self._search.waits(attempt, answer.soon, now)
        elif isinstance(answer, messages.Refer):
            self._standing.hear(answer.term)
            self._search.referred(attempt, answer.addresses, now)
        else:
            self._search.end(attempt, now, answered=True)
            self._near.effects.events.append(values.PlaceRefused(answer.why, answer.final))
            if answer.final:
                self._stop(answer.why)

    def _offered(self, link: Link, place: messages.Ancestry, now: float) -> None:
        """Attach to a node that has accepted this one, or wait for a path that the label allows."""
        attempt = self._search.of(link)
        if attempt is None:
            return
        self._standing.hear(place.term if place.path else 0)
        if self._standing.allows(place, childless=self._children.childless):
            self._attach(link, place, now)
        elif not self._standing.usable(place):
            if attempt.state != "waiting":
                attempt.state, attempt.since = "waiting", now
        else:
            if attempt.state != "offered":
                attempt.state, attempt.since = "offered", now
            label = self._standing.label
            if label is not None:
                self._near.send(link, messages.Fresh(label.term, label.number))

    def _placed(self, link: Link, place: messages.Ancestry, now: float) -> None:
        if not self._fits(link, place, now):
            return
        if link is self._parent:
            self._offer = place
            self._follow_parent(now)
        else:
            self._offered(link, place, now)

    def _fits(self, link: Link, place: messages.Ancestry, now: float) -> bool:
        """Return True if the node of a link may be the parent; else leave it, and look for another one."""
        attempt = self._search.of(link)
        if self._unfit is None or (attempt is None and link is not self._parent):
            return True
        why = self._unfit(link.number, place.path)
        if why is None:
            return True
        self._near.effects.events.append(values.ParentUnfit(link.id, link.address or link.dialed or "", why))
        self._near.send(link, messages.Leave(why[:256]))
        if link is self._parent:
            self._near.drop(link)
            self._parent_lost(now, why)
        elif attempt is not None:
            self._search.end(attempt, now, answered=True)
        return False

    def _members(self, link: Link, news: messages.Members, now: float) -> None:
        if link.role != "child":
            self.stats.unexpected += 1
            return
        for name in news.removed:
            if name != link.id:
                self._table.remove(link.number, name)
        for member in news.added:
            if member.id == self.id:
                self._own_id_below(link, member, now)
            elif member.id != link.id:
                if member.id not in self._table:
                    self._children.kept(link)
                self._table.add(link.number, member)

    def _told_to_leave(self, link: Link, message: messages.Leave, now: float) -> None:
        if link is self._parent:
            self._near.drop(link)
            self._parent_lost(now, f"the parent has left: {message.why}")
        elif link.role in ("child", "pending", "waiter"):
            self._children.left(link, now)
        else:
            self._near.drop(link)
            self._ended(link, now, message.why)

    def _fresh_wanted(self, link: Link, request: messages.Fresh, now: float) -> None:
        """Give a new number, or pass the request on, unless it has been met."""
        label = self._standing.label
        if link.role not in ("child", "pending") or label is None or request.term != label.term:
            return
        if self._standing.leading:
            self._number_wanted = self._number_wanted or request.number >= label.number
        elif self._parent is not None and request.number >= label.number:
            term, number, at = self._fresh
            if (request.term, request.number) > (term, number) or now >= at + FRESH_AGAIN:
                self._fresh = request.term, request.number, now
                self._near.send(self._parent, request)

    def _from_above(self, link: Link, message: messages.Move | messages.Probe | messages.Expel, now: float) -> None:
        """Do what the root, or a node above, has ordered, or pass it on."""
        if link is not self._parent:
            self.stats.unexpected += 1
        elif message.id != self.id or message.epoch != self.epoch:
            self._pass_down(message)
        elif isinstance(message, messages.Move):
            if message.parent != self.parent_id:
                self._search.order(message.address, now)
        elif isinstance(message, messages.Probe):
            self._near.send(link, messages.Alive(self.id, self.epoch, self.address or "a node that does not listen"))
        else:
            self._expelled(message.why)

    def _own_id_below(self, link: Link, member: messages.Member, now: float) -> None:
        self.stats.doubles += 1
        if member.epoch > self.epoch:
            self._near.send(link, messages.Expel(member.id, member.epoch, self._in_use(self.id, self.address)))
        elif member.epoch < self.epoch:
            self._near.send(link, messages.Probe(member.id, member.epoch))

    def _alive(self, link: Link, message: messages.Alive) -> None:
        """Expel the later nodes of the id of a node that has answered; above them, if they are not below this one."""
        why = self._in_use(message.id, message.address)
        if message.id == self.id and message.epoch < self.epoch:
            self._expelled(why)
            return
        later = self._doubles.later(message.id, message.epoch)
        for number, member in later:
            below = self._near.links.get(number)
            if below is not None:
                self._near.send(below, messages.Expel(member.id, member.epoch, why))
        if not later and self._parent is not None and link.role == "child":
            self._near.send(self._parent, message)

    @staticmethod
    def _in_use(name: str, address: str | None) -> str:
        return f"the id {name[:40]} is in use by {address or 'another node'}"

    def _expelled(self, why: str) -> None:
        self._near.effects.events.append(values.PlaceRefused(why, final=True))
        self._stop(why)

    # ---- parent and path

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
            self._near.effects.events.append(values.ParentDown(link.number, link.id))
        elif link is self._parent:
            self._parent_lost(now, why)
        elif link.role == "standby" and link.dialed is not None:
            self._standbys.again(now)

    def _stop(self, why: str) -> None:
        """End all links."""
        self._search.stop()
        for link in self._near:
            if link.role in ("parent", "child", "pending", "left"):
                self._near.send(link, messages.Leave(why))
            if link.role in ("parent", "left"):
                self._near.effects.events.append(values.ParentDown(link.number, link.id))
            elif link.role == "child":
                self._near.effects.events.append(values.ChildDown(link.number, link.id))
            self._near.drop(link)
        self._parent = None
        self._standing.lose()
        self._report_path(why)
        self._stopped = True

    def _pass_down(self, message: messages.Move | messages.Probe | messages.Expel) -> None:
        for number, member in self._table.claims(message.id):
            below = self._near.links.get(number)
            if member.epoch == message.epoch and below is not None:
                self._near.send(below, message)

    def _attach(self, link: Link, place: messages.Ancestry, now: float) -> None:
        """Make a node the parent, which the label allows."""
        old, self._parent = self._parent, link
        attempt = self._search.of(link)
        if attempt is not None:
            self._search.attempts.remove(attempt)
        link.turn("parent", now)
        self._moves += 1
        self.stats.attached += 1
        self._near.send(link, messages.Attach(self._moves, self.fanout, self._facts))
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
        self._near.effects.events.append(values.ParentUp(link.number, link.id))
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
                self._near.send(link, messages.Leave("its path contains this node"))
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
        self._near.effects.events.append(values.ParentDown(link.number, link.id))
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
                events.append(values.Detached(why))
            return
        present = self._standing.term, path[0], self.parent
        if present != before:
            self._attached = present
            if before is None or before[0] != present[0]:
                events.append(values.TermChanged(present[0], present[1]))
            events.append(values.Attached(*present))

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

    def _hello(self, purpose: messages.Purpose) -> messages.Hello:
        return messages.Hello(self.id, self.epoch, purpose, self.address, self._standing.known)

    def _join(self, hops: int, direct: bool, ordered: bool) -> messages.Join:
        label = None if self._children.childless else self._standing.label
        size = len(self._table) + 1
        return messages.Join(label, self._standing.term, hops, direct, self.fanout, size, self._lost, ordered)

    def _sources(self) -> list[str]:
        hint = [self._hint[1]] if self._hint else []
        known = [*hint, *self._children.voters.values(), *self._seeds]
        return [each for each in known if each != self.address] + ([self._lost_address] if self._lost_address else [])

    # ---- after each call

    def _after(self) -> None:
        """Report changes of the members, and do the duties of the root."""
        near, now = self._near, self._near.now
        if self._held_back and not self._search.offered:
            self._held_back = False
            self._follow_parent(now)
        for before, member in self._table.changes():
            if member is not None:
                near.effects.events.append(values.MemberAdded(member, before))
            elif before is not None:
                near.effects.events.append(values.MemberRemoved(before))
            if self._standing.leading:
                self._balance.changed(now)
        if self._table.double:
            self._doubles.note(now)
        for number, member in self._doubles.probes(now):
            near.send(near.links[number], messages.Probe(member.id, member.epoch))
        if self._parent is not None and self._table.waiting and now >= self._news_at:
            self._news_at = now + self._news_pause
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
            self._pass_down(messages.Move(node, member.epoch, parent, address))

    def _checked(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        if len(encode(dict(facts))) > messages.MOST_FACTS:
            raise ConfigError("facts", f"they have more than {messages.MOST_FACTS} bytes")
        return dict(facts)
