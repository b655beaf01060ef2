"""Questions of a node to the host, and its answers: joined, status, tree, drain. Pure.

A question without an answer is sent again: at a new way to the host, and each `AGAIN` seconds, until it is forgotten.
So is an order to leave, as long as the run of the node that it is for is below this one: the next run stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta

from nngkit.cluster.frames import Channel, Kind
from nngkit.cluster.jobs.part import WorkPart
from nngkit.cluster.log_clock import NEVER
from nngkit.cluster.node.values import NodeConfig, NodeStats
from nngkit.cluster.rights import RIGHT, NodeRights, name_of
from nngkit.cluster.status import ClusterMember, ClusterStatus, ClusterTree, JobCounts, VoterState
from nngkit.cluster.tree.place import Place
from nngkit.mesh.wire import MOST_ORIGIN
from nngkit.messages import ANY_TEXT, Natural, Row, Rows

AGAIN: Final = 1.0  # seconds until a question is sent again
MOST: Final = 1024  # questions without an answer: a program that asks more waits for them


class Question(Row, frozen=True, tag=0):
    """Question of a node to the host, and of the host to the node that a drain is for."""

    number: Natural
    what: Kind
    argument: Annotated[str, Meta(max_length=MOST_ORIGIN)]


class Answer(Row, frozen=True, tag=1):
    """Answer to the question of this number."""

    number: Natural
    content: Any


class Denial(Row, frozen=True, tag=2):
    """Refusal of the question of this number."""

    number: Natural
    why: Annotated[str, Meta(max_length=1024, extra=ANY_TEXT)]


Message: TypeAlias = Question | Answer | Denial
KINDS: Final = Rows[Message]("question", Question, Answer, Denial)


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


class Questions:
    """Questions of one node, and those of others to it, which it answers from its parts.

    `voter_link`: returns the link to a voter; `grants`: returns True if this host may grant work now; `post`: sends a
    row to one node; `report`: tells the program. `rights`: answers, and orders to leave, come from nodes that may host.
    """

    def __init__(
        self,
        config: NodeConfig,
        *,
        place: Place,
        work: WorkPart,
        stats: NodeStats,
        voter_link: Callable[[str], int | None],
        grants: Callable[[float], bool],
        post: Callable[[Channel, str, Sequence[object], float], object],
        report: Callable[[Answered | DrainOrdered], None],
        rights: NodeRights | None = None,
    ) -> None:
        self._rights = rights
        self.wake_at = NEVER
        self._config = config
        self._place, self._work, self._stats = place, work, stats
        self._voter_link, self._grants = voter_link, grants
        self._post, self._report = post, report
        self._next = 0
        self._waiting: dict[int, tuple[str, int, Question]] = {}  # with the node and the run that an order is for

    def ask(self, what: str, argument: str, now: float) -> int:
        """Ask the host; return the number of the question."""
        return self._ask(what, argument, "", 0, now)

    def _ask(self, what: str, argument: str, to: str, epoch: int, now: float) -> int:
        if len(self._waiting) >= MOST:
            self._waiting.pop(next(iter(self._waiting)))
        self._next += 1
        question = Question(self._next, what, argument)
        self._waiting[self._next] = to, epoch, question
        self.wake_at = min(self.wake_at, now + AGAIN)
        self._send(to, question, now)
        return question.number

    def _send(self, to: str, message: Message, now: float) -> None:
        self._post(Channel.QUERY, to, KINDS.pack(message), now)

    def forget(self, number: int) -> None:
        """Wait for an answer no longer."""
        self._waiting.pop(number, None)

    def attached(self, now: float) -> None:
        """Repeat the questions over a new way."""
        for number, (to, epoch, question) in list(self._waiting.items()):
            if to and ((member := self._place.member(to)) is None or member.epoch != epoch):
                del self._waiting[number]
            else:
                self._send(to, question, now)

    def tick(self, now: float) -> None:
        """Repeat the questions. Sets `wake_at`."""
        if now >= self.wake_at:
            self.attached(now)
            self.wake_at = now + AGAIN if self._waiting else NEVER

    def receive(self, sender: str, row: list[Any], now: float) -> None:
        """Take in a question or an answer. Raises BadMessage."""
        match KINDS.parse(row, sender):
            case Question() as question:
                if (answer := self._answer(question, sender, now)) is not None:
                    self._send(sender, answer, now)
            case Answer(number, content):
                if self._answers(number, sender):
                    self._report(Answered(number, content, sender))
            case Denial(number, why):
                if self._answers(number, sender):
                    self._report(Answered(number, None, sender, why))
            case None:
                pass

    def _answers(self, number: int, sender: str) -> bool:
        """Return True if a node may answer the question of this number, which is then over."""
        if number not in self._waiting or self._unfit(sender, self._waiting[number][0]):
            return False
        del self._waiting[number]
        return True

    def _unfit(self, sender: str, asked: str = "") -> bool:
        """Return True if a node is neither the one that was asked nor one that may be host."""
        own = sender in (asked, self._config.id)
        return self._rights is not None and not own and not self._rights.may_host(sender)

    def _answer(self, question: Question, sender: str, now: float) -> Answer | Denial | None:
        number, what, argument = question.number, question.what, question.argument
        place = self._place
        if what == "drain":
            if self._unfit(sender):
                return Denial(
                    number, f"{RIGHT}{name_of(sender)} may not vote {self._config.cluster}: it may drain itself"
                )
            if argument == self._config.id:
                self._report(DrainOrdered())
                return Answer(number, {})
            if not place.leading:
                return None  # the host has changed: the question comes again
            if (member := place.member(argument)) is None:
                return Denial(number, f"no node {argument!r} in the cluster")
            self._ask("drain", argument, argument, member.epoch, now)
            return Answer(number, {})
        if not place.leading:
            return None
        if what == "echo":
            return Answer(number, {})
        if what == "joined":  # no answer before its parents have told of it; it asks again
            member = place.member(sender)
            known = member is not None and str(member.epoch) == argument
            return Answer(number, argument) if known and not place.has_earlier(sender, int(argument)) else None
        if what == "status":
            return Answer(number, self.status(now).fields())
        if what == "tree":
            return Answer(number, self.tree().fields())
        return Denial(number, f"{what!r} is not a question that this version knows")

    # ---- at the host

    def status(self, now: float) -> ClusterStatus:
        """Return the state of the cluster, as this node sees it; at the host, all of it."""
        config, place = self._config, self._place
        members = self.tree().members
        connected = {config.id} | {name for name in config.voters if self._voter_link(name) is not None}
        counters = {name: value for name, value in asdict(place.stats).items() if value}
        return ClusterStatus(
            cluster=config.cluster,
            term=place.term,
            host=place.host or "",
            members=len(members),
            depth=max((member.depth for member in members), default=0),
            grants=self._grants(now),
            voters=tuple(VoterState(name, at, name in connected) for name, at in sorted(config.voters.items())),
            jobs=tuple(JobCounts(*row) for row in self._work.counts()),
            counters={**counters, **asdict(self._stats), **self._work.counters()},
            refused={} if config.judge is None else dict(config.judge.refusals),
        )

    def tree(self) -> ClusterTree:
        """Return the members below this node, and itself; parents before their children."""
        config, place = self._config, self._place
        voters = config.voters
        root = ClusterMember(
            config.id,
            "",
            config.address,
            0,
            self._work.crew.slots,
            tuple(sorted(self._work.crew.kinds)),
            config.id in voters,
        )
        children: dict[str, list[Any]] = {}
        for member in place.members():
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
        return ClusterTree(config.cluster, place.term, tuple(found))
