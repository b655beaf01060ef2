"""Children of a node: answers to joiners, and what children are told. Pure.

::

    Join -> accept    if the tree is low here (see shape.py): "pending" until it attaches
            refer     to the host, if the joiner is new; else to the child with the smallest subtree
            wait      without a path, or with an older one than the joiner has seen; answered when that changes
            refuse    if the joiner is above, this node has no address, or the cluster is full

Invariants:

1. A joiner whose id is on the path of this node is refused, and so is one if the path is older than its own.
2. Without a path no joiner is accepted.
3. The accepted and attached are at most SLACK times the fan-out.
4. Each child is told each change of the path, once, in order.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec.structs import astuple

from nngkit.cluster.tree import messages
from nngkit.cluster.tree.links import Link, Neighbours
from nngkit.cluster.tree.members import MemberTable
from nngkit.cluster.tree.path import Standing
from nngkit.cluster.tree.search import MOST_HOPS
from nngkit.cluster.tree.shape import SLACK, Branch, Decision, Joiner, choose, sibling
from nngkit.cluster.tree.values import ChildDown, ChildUp

PROMISE: Final = 1.0  # seconds in which a referred joiner shows among the members, or has gone elsewhere


class Children:
    """Joiners and children of one node. `fanout`: 0 if it cannot have any."""

    def __init__(self, near: Neighbours, standing: Standing, table: MemberTable, fanout: int) -> None:
        self.near = near
        self.standing = standing
        self.table = table
        self.fanout = fanout
        self.voters: dict[str, str] = {}
        self.parent_address: str | None = None
        self.hint: str | None = None  # address of a host that is newer than the path
        self.leaving: tuple[str, ...] | None = None  # addresses for joiners, once this node leaves
        self._promised: dict[int, deque[tuple[float, bool]]] = {}  # referrals: when void, and if it may have children

    @property
    def links(self) -> list[Link]:
        return self.near.having("child")

    @property
    def childless(self) -> bool:
        """True if no node is attached here, or may be any moment."""
        return not any(link.role in ("child", "pending") for link in self.near.links.values())

    def of(self, name: str) -> Link | None:
        """Return the link of the child of this id."""
        return next((link for link in self.links if link.id == name), None)

    # ---- joiners

    def asked(self, link: Link, join: messages.Join, now: float) -> None:
        """Answer a joiner."""
        if link.role not in ("new", "guest", "standby", "waiter", "pending"):
            self.near.stats.unexpected += 1
            return
        link.join = join
        self._turn_back(link, now)
        self._answer(link, join, now)

    def _answer(self, link: Link, join: messages.Join, now: float) -> None:
        near, standing = self.near, self.standing
        if self.leaving is not None:
            return self._refer(link, list(self.leaving), "this node leaves")
        if link.id in standing.path:
            return self._refuse(link, "the joiner is above this node")
        if not standing.path or standing.term < join.term:
            if self.hint is not None:
                return self._refer(link, [self.hint], "the host is there")
            return self._let_wait(link, now)
        host = standing.host
        if join.hops == 0 and join.label is None and not join.direct and not standing.leading and host is not None:
            return self._refer(link, [host], "new nodes ask the host")
        if not self.fanout and standing.leading:
            return self._refuse(link, "this node, the host, may not have children")
        if not self.fanout:
            return self._refer(link, [host] if host and not join.direct else [], "this node has no children")
        if standing.leading and len(self.table) + join.size >= near.limits.members:
            return self._refuse(link, f"the cluster is full: {near.limits.members} members")
        used = len(near.having("child", "pending"))
        branches = self._branches(join.lost, now)
        if join.ordered and used < SLACK * self.fanout:
            decision = Decision("accept")
        else:
            decision = choose(branches, used, self.fanout, Joiner(join.fanout, join.size))
        if decision.kind in ("accept", "displace"):
            link.turn("pending", now)
            link.displaces = near.links[decision.child].id if isinstance(decision.child, int) else None
            link.told = self._place_for(link)
            near.send(link, messages.Accept(link.told, self.voters))
            near.stats.accepted += 1
            return None
        if decision.kind == "refer" and isinstance(decision.child, int) and join.hops < MOST_HOPS:
            promise = self._promised.setdefault(decision.child, deque(maxlen=1024))
            promise.append((now + PROMISE, join.fanout > 0))
            address = near.links[decision.child].address
            return self._refer(link, [address] if address else [], "this node has all the children it may have")
        if near.having("pending"):  # they bring places
            return self._let_wait(link, now)
        return self._refuse(link, "the cluster has no free place")

    def _let_wait(self, link: Link, now: float) -> None:
        if link.role == "waiter":  # it knows
            return None
        if len(self.near.having("waiter")) >= self.near.limits.waiters:
            return self._refuse(link, "too many joiners wait here")
        link.turn("waiter", now)
        self.near.send(link, messages.Wait(bool(self.standing.path)))
        return None

    def _branches(self, lost: str | None, now: float) -> dict[int, Branch]:
        branches = {}
        for link in self.near.having("child", "pending"):
            if link.id == lost:
                continue
            hosts, leaves, free = self.table.branch(link.number)
            if link.role == "pending" and link.join is not None:  # it attaches before the joiner has reached it
                fanout, size = link.join.fanout, link.join.size
                hosts, leaves, free = (size, 0, fanout) if fanout else (0, size, 0)
            promised = self._promised.get(link.number, ())
            while promised and promised[0][0] <= now:
                promised.popleft()
            more = sum(host for _, host in promised)
            count = len(promised)
            free += more * (self.fanout - 1) - (count - more)  # a promised host brings places with it
            branches[link.number] = Branch(hosts + more if hosts else 0, leaves + count - more, max(0, free))
        return branches

    def kept(self, link: Link) -> None:
        """Note that a node has become a member below a child: a promise is kept."""
        promised = self._promised.get(link.number)
        if promised:
            promised.popleft()

    def _refer(self, link: Link, addresses: list[str], why: str) -> None:
        self.near.stats.referred += 1
        self.near.send(link, messages.Refer(tuple(addresses), self.standing.known, why))
        self._turn_back(link, self.near.now)

    def _refuse(self, link: Link, why: str) -> None:
        self.near.stats.refused += 1
        self.near.send(link, messages.Refuse(why, final=False))
        self._turn_back(link, self.near.now)

    def _turn_back(self, link: Link, now: float) -> None:
        """Return a link of a joiner to its role before. The joiner ends it, or the time of a guest does."""
        link.turn("standby" if link.purpose == "standby" else "guest", now)
        link.displaces = None

    def serve_waiters(self, now: float) -> None:
        """Answer the joiners that wait."""
        for link in self.near.having("waiter"):
            if link.join is not None:
                self._answer(link, link.join, now)
                if link.role == "waiter" and self.standing.path and self.standing.term >= link.join.term:
                    break  # there is no place: nor is there for the next one

    # ---- children

    def attached(self, link: Link, attach: messages.Attach, now: float) -> None:
        """Count an accepted joiner among the children, or renew what a child says about itself."""
        near, hello = self.near, link.hello
        if link.role not in ("pending", "child") or hello is None:
            near.stats.unexpected += 1
            near.send(link, messages.Leave("not accepted"))
            near.drop(link)
            return
        new = link.role == "pending"
        if new:
            earlier = self.of(link.id)
            if earlier is not None and earlier.hello is not None and earlier.hello.epoch == hello.epoch:
                self.gone(earlier, now)  # the same run over another link: the end of this one has not been seen yet
                near.drop(earlier)
            link.turn("child", now)
            near.effects.events.append(ChildUp(link.number, link.id))
        member = messages.Member(
            hello.id, hello.epoch, attach.move, self.standing.id, hello.address, attach.fanout, attach.facts
        )
        self.table.add(link.number, member)
        if not new:
            return
        near.send(link, messages.Settled())
        displaced, link.displaces = link.displaces, None
        leaf = self.of(displaced) if displaced is not None else None
        if leaf is not None and leaf.hello is not None and hello.address is not None:
            near.send(leaf, messages.Move(leaf.id, leaf.hello.epoch, hello.id, hello.address))
        self.announce()
        if self.leaving is not None:
            near.send(link, messages.Leaving(self.leaving))
        self.serve_waiters(now)

    def left(self, link: Link, now: float) -> None:
        """Let a child or joiner go, at its wish."""
        if link.role == "child":
            self.gone(link, now)
            self.near.drop(link)
        else:
            self._turn_back(link, now)
            if link.role == "guest":
                self.near.drop(link)
        self.serve_waiters(now)

    def gone(self, link: Link, now: float) -> None:
        """Forget a child, whose link has ended."""
        if link.role != "child":
            return
        link.role = "guest"
        self.table.drop(link.number)
        self._promised.pop(link.number, None)
        self.near.effects.events.append(ChildDown(link.number, link.id))
        self.announce()

    def announce(self) -> None:
        """Tell the children, and the accepted, the path if it has changed for them."""
        links = self.near.having("child", "pending")
        addressed = [link.number for link in links if link.address is not None]
        for link in links:
            place = self._place_for(link, addressed)
            if place != link.told:
                link.told = place
                self.near.send(link, messages.Path(*astuple(place)))

    def _place_for(self, link: Link, addressed: list[int] | None = None) -> messages.Ancestry:
        if addressed is None:
            addressed = [each.number for each in self.near.having("child", "pending") if each.address is not None]
        other = sibling(addressed, link.number)
        address = self.near.links[other].address if other is not None and other != link.number else None
        return self.standing.announced(self.parent_address, address)
