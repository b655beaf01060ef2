"""Messages of neighbours, as a node's place takes them in. Pure. See place.py.

A Path comes from the parent, or from a node that has accepted this one; Members, Fresh and Alive come from children;
Move, Probe and Expel from the parent; answers from nodes that were asked. All else is ignored, and most of it counted
in `PlaceStats.unexpected`: some of it is only late.
"""

from __future__ import annotations

from nngkit.cluster.tree.core import PlaceCore
from nngkit.cluster.tree.links import Link
from nngkit.cluster.tree.messages import (
    Accept,
    Alive,
    Ancestry,
    Attach,
    Expel,
    Fresh,
    Hello,
    Join,
    Leave,
    Leaving,
    Member,
    Members,
    Message,
    Move,
    Path,
    Probe,
    Refer,
    Refuse,
    Settled,
    Wait,
)
from nngkit.cluster.tree.search import Candidate
from nngkit.cluster.tree.values import (
    Greeted,
    OtherVoters,
    Refused,
)

__all__ = ["Receiving"]

FRESH_AGAIN = 0.3  # seconds until an equal request for a number is passed on again: the first one may be lost


class Receiving(PlaceCore):
    """Messages of neighbours, and ids that two nodes use."""

    def receive(self, link: int, message: Message, now: float) -> None:
        """Take in a message."""
        near = self._near
        near.now = now
        found = near.links.get(link)
        if found is None or self._stopped:
            return
        found.heard = now
        if isinstance(message, Hello):
            self._greeted(found, message, now)
        elif found.hello is None:
            self.stats.unexpected += 1
            near.drop(found)
            self._ended(found, now, "it did not introduce itself")
        elif isinstance(message, Path):
            self._placed(found, message, now)
        elif isinstance(message, Members):
            self._members(found, message, now)
        elif isinstance(message, Join):
            self._children.asked(found, message, now)
        elif isinstance(message, Attach):
            self._children.attached(found, message, now)
            self._lost = None if self._lost == found.id else self._lost
        elif isinstance(message, Settled):
            for old in near.having("left"):
                near.send(old, Leave("attached elsewhere"))
        elif isinstance(message, Leave):
            self._told_to_leave(found, message, now)
        elif isinstance(message, Fresh):
            self._fresh_wanted(found, message, now)
        elif isinstance(message, Move | Probe | Expel):
            self._from_above(found, message, now)
        elif isinstance(message, Alive):
            self._alive(found, message)
        elif isinstance(message, Leaving):
            if found is self._parent:
                self._parent_leaves = True
                candidates = [Candidate(each, hops=1) for each in message.addresses]
                self._search.start([*self._standbys.candidates(), *candidates], now)
        elif isinstance(message, Accept | Refer | Refuse | Wait):
            self._answered(found, message, now)

    def _greeted(self, link: Link, hello: Hello, now: float) -> None:
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
            roles = {"voter": "voter", "look": "look", "standby": "standby"}
            link.turn(roles.get(hello.purpose, "guest"), now)  # type: ignore[arg-type]
        self._near.effects.events.append(
            Greeted(link.number, hello.id, hello.epoch, link.purpose or "look", hello.address, hello.term)
        )

    def _answered(self, link: Link, answer: Accept | Refer | Refuse | Wait, now: float) -> None:
        """Take in the answer to a request of this node."""
        attempt = self._search.of(link)
        if attempt is None:
            return  # it came after the end of the attempt
        if isinstance(answer, Accept):
            if self.may_host and self._voters != answer.voters.keys():
                self._near.effects.events.append(OtherVoters(link.id, tuple(sorted(answer.voters))))
            self._children.voters |= answer.voters
            self._offered(link, answer.place, now)
        elif isinstance(answer, Wait):
            self._search.waits(attempt, answer.soon, now)
        elif isinstance(answer, Refer):
            self._standing.hear(answer.term)
            self._search.referred(attempt, answer.addresses, now)
        else:
            self._search.end(attempt, now, answered=True)
            self._near.effects.events.append(Refused(answer.why, answer.final))
            if answer.final:
                self._stop(answer.why)

    def _offered(self, link: Link, place: Ancestry, now: float) -> None:
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
                self._near.send(link, Fresh(label.term, label.number))

    def _placed(self, link: Link, place: Ancestry, now: float) -> None:
        if link is self._parent:
            self._offer = place
            self._follow_parent(now)
        elif self._search.of(link) is not None:
            self._offered(link, place, now)

    def _members(self, link: Link, news: Members, now: float) -> None:
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

    def _told_to_leave(self, link: Link, message: Leave, now: float) -> None:
        if link is self._parent:
            self._near.drop(link)
            self._parent_lost(now, f"the parent has left: {message.why}")
        elif link.role in ("child", "pending", "waiter"):
            self._children.left(link, now)
        elif link.role not in ("voter", "look"):
            self._near.drop(link)
            self._ended(link, now, message.why)

    def _fresh_wanted(self, link: Link, request: Fresh, now: float) -> None:
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

    def _from_above(self, link: Link, message: Move | Probe | Expel, now: float) -> None:
        """Do what the root, or a node above, has ordered, or pass it on."""
        if link is not self._parent:
            self.stats.unexpected += 1
        elif message.id != self.id or message.epoch != self.epoch:
            self._pass_down(message)
        elif isinstance(message, Move):
            if message.parent != self.parent_id:
                self._search.order(message.address, now)
        elif isinstance(message, Probe):
            self._near.send(link, Alive(self.id, self.epoch, self.address or "a node that does not listen"))
        else:
            self._expelled(message.why)

    def _own_id_below(self, link: Link, member: Member, now: float) -> None:
        self.stats.doubles += 1
        if member.epoch > self.epoch:
            self._near.send(link, Expel(member.id, member.epoch, self._in_use(self.id, self.address)))
        elif member.epoch < self.epoch:
            self._near.send(link, Probe(member.id, member.epoch))

    def _alive(self, link: Link, message: Alive) -> None:
        """Expel the later nodes of the id of a node that has answered; above them, if they are not below this one."""
        why = self._in_use(message.id, message.address)
        if message.id == self.id and message.epoch < self.epoch:
            self._expelled(why)
            return
        later = self._doubles.later(message.id, message.epoch)
        for number, member in later:
            below = self._near.links.get(number)
            if below is not None:
                self._near.send(below, Expel(member.id, member.epoch, why))
        if not later and self._parent is not None and link.role == "child":
            self._near.send(self._parent, message)

    @staticmethod
    def _in_use(name: str, address: str | None) -> str:
        return f"the id {name[:40]} is in use by {address or 'another node'}"

    def _expelled(self, why: str) -> None:
        self._near.effects.events.append(Refused(why, final=True))
        self._stop(why)
