"""Questions of a node to the host, and its answers: joined, status, tree, drain. Pure.

::

    [0, number, what, argument]         node -> host, and host -> node for "drain"
    [1, number, answer]                 the answer; [2, number, why] a refusal

A question without an answer is sent again: at a new way to the host, and each `AGAIN` seconds, until it is forgotten.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from nngkit.cluster.frames import Channel
from nngkit.cluster.status import ClusterMember, ClusterStatus, ClusterTree, JobCounts, VoterState
from nngkit.errors import BadMessage

if TYPE_CHECKING:
    from nngkit.cluster.node.core import NodeCore

__all__ = ["Answered", "DrainOrdered", "QueryPart"]

AGAIN: Final = 1.0  # seconds until a question is sent again
MOST: Final = 1024  # questions without an answer: a program that asks more waits for them
_ASK, _ANSWER, _REFUSE = range(3)


@dataclass(frozen=True, slots=True)
class Answered:
    """Answer to a question; `why`: it is refused."""

    number: int
    content: Any
    sender: str
    why: str | None = None


@dataclass(frozen=True, slots=True)
class DrainOrdered:
    """Order to this node to leave the cluster."""


class QueryPart:
    """Asks the host; as host, answers."""

    def __init__(self, node: NodeCore) -> None:
        self.wake_at = float("inf")
        self._node = node
        self._next = 0
        self._waiting: dict[int, tuple[str, list[Any]]] = {}

    def ask(self, what: str, argument: str, now: float, *, to: str = "") -> int:
        """Ask the host, or one node; return the number of the question."""
        if len(self._waiting) >= MOST:
            self._waiting.pop(next(iter(self._waiting)))
        self._next += 1
        row = [_ASK, self._next, what, argument]
        self._waiting[self._next] = to, row
        self.wake_at = min(self.wake_at, now + AGAIN)
        self._node.post(Channel.QUERY, to, row, now)
        return self._next

    def forget(self, number: int) -> None:
        """Wait for an answer no longer."""
        self._waiting.pop(number, None)

    def attached(self, now: float) -> None:
        """Repeat the questions over a new way."""
        for to, row in list(self._waiting.values()):
            self._node.post(Channel.QUERY, to, row, now)

    def tick(self, now: float) -> None:
        """Repeat the questions. Sets `wake_at`."""
        if now >= self.wake_at:
            self.attached(now)
            self.wake_at = now + AGAIN if self._waiting else float("inf")

    def receive(self, sender: str, row: list[Any], now: float) -> None:
        """Take in a question or an answer. Raises BadMessage."""
        match row:
            case [0, int(number), str(what), str(argument), *_]:
                answer = self._answer(what, argument, sender, now)
                if answer is not None:
                    self._node.post(Channel.QUERY, sender, [answer[0], number, answer[1]], now)
            case [1, int(number), content, *_]:
                if self._waiting.pop(number, None) is not None:
                    self._node.report(Answered(number, content, sender))
            case [2, int(number), str(why), *_]:
                if self._waiting.pop(number, None) is not None:
                    self._node.report(Answered(number, None, sender, why))
            case _:
                raise BadMessage("question", "neither a question nor an answer", sender)

    def _answer(self, what: str, argument: str, sender: str, now: float) -> tuple[int, Any] | None:
        node = self._node
        if what == "drain":
            if argument == node.id:
                node.report(DrainOrdered())
                return _ANSWER, {}
            if not node.is_host:
                return None  # the host has changed: the question comes again
            if node.place.member(argument) is None:
                return _REFUSE, f"no node {argument!r} in the cluster"
            self.ask("drain", argument, now, to=argument)
            return _ANSWER, {}
        if not node.is_host:
            return None
        if what == "echo":
            return _ANSWER, {}
        if what == "joined":  # no answer before its parents have told of it; it asks again
            member = node.place.member(sender)
            known = member is not None and str(member.epoch) == argument
            return (_ANSWER, argument) if known and not node.place.has_earlier(sender, int(argument)) else None
        if what == "status":
            return _ANSWER, self.status(now).fields()
        if what == "tree":
            return _ANSWER, self.tree().fields()
        return _REFUSE, f"{what!r} is not a question that this version knows"

    # ---- at the host

    def status(self, now: float) -> ClusterStatus:
        """Return the state of the cluster, as this node sees it; at the host, all of it."""
        node = self._node
        members = self.tree().members
        connected = {node.id} | {name for name in node.config.voters if node.greetings.voter_link(name) is not None}
        place = {name: value for name, value in asdict(node.place.stats).items() if value}
        return ClusterStatus(
            cluster=node.config.cluster,
            term=node.place.term,
            host=node.place.host or "",
            members=len(members),
            depth=max((member.depth for member in members), default=0),
            grants=node.voting is not None and node.voting.holds_lease(now),
            voters=tuple(VoterState(name, at, name in connected) for name, at in sorted(node.config.voters.items())),
            jobs=tuple(JobCounts(*row) for row in node.work.counts()),
            counters={**place, **asdict(node.stats), **node.work.counters()},
        )

    def tree(self) -> ClusterTree:
        """Return the members below this node, and itself; parents before their children."""
        node = self._node
        voters = node.config.voters
        root = ClusterMember(
            node.id, "", node.config.address, 0, node.work.crew.slots, tuple(sorted(node.work.kinds)), node.id in voters
        )
        children: dict[str, list[Any]] = {}
        for member in node.place.members():
            children.setdefault(member.parent, []).append(member)
        found = [root]
        for parent in found:
            for member in sorted(children.get(parent.id, ()), key=lambda one: one.id):
                slots, kinds = member.facts.get("slots"), member.facts.get("kinds")
                found.append(
                    ClusterMember(
                        member.id,
                        parent.id,
                        member.address,
                        parent.depth + 1,
                        slots if type(slots) is int else 0,
                        tuple(map(str, kinds)) if type(kinds) is list else (),
                        member.id in voters,
                    )
                )
        return ClusterTree(node.config.cluster, node.place.term, tuple(found))
