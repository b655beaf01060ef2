"""Jobs in a node: its submissions, its workers and those below it, and at the host the queue. Pure.

    submitter   --unicast-->  the host's queue  --grants-->  crew of the host  -->  crews of the children  -->  workers

The queue exists while this node is host. Its own crew is on the link `LOCAL` of the queue; a message between a crew and
the one above it goes over the link of the tree. Rows are those of `messages.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from nngkit.chance import RandomSource
from nngkit.cluster.jobs import messages
from nngkit.cluster.jobs.crew import Crew
from nngkit.cluster.jobs.queue import LOCAL, WorkHost
from nngkit.cluster.jobs.sharing import Decide
from nngkit.cluster.jobs.submitter import JobAccepted, JobEnded, Submitter
from nngkit.cluster.jobs.table import JobTable
from nngkit.cluster.jobs.values import CrewJob, JobEnd
from nngkit.cluster.log_clock import NEVER, LogClock
from nngkit.cluster.rights import NodeRights

_TO_HOST = (messages.Submit, messages.Received, messages.Cancel, messages.Waiting)
_TO_SUBMITTER = (
    messages.Accepted,
    messages.Finished,
    messages.Missing,
    messages.Refused,
    messages.JobParts,
    messages.JobProgress,
)


@dataclass(frozen=True, slots=True)
class JobStart:
    """Start a job."""

    job: CrewJob


@dataclass(frozen=True, slots=True)
class JobStop:
    """Cancel a job that runs."""

    job: CrewJob


@dataclass(frozen=True, slots=True)
class JobsEnded:
    """Jobs of the cluster have ended; at its host."""

    ends: list[JobEnd]


@dataclass(frozen=True, slots=True)
class RoomForJobs:
    """A submission that was refused for want of room may succeed now."""


WorkEvent: TypeAlias = (
    JobStart | JobStop | JobsEnded | RoomForJobs | JobAccepted | JobEnded | messages.JobPart | messages.JobProgressed
)


@dataclass(slots=True)
class WorkNodeEffects:
    """Work for the node: rows for links, rows for nodes ("" is the host), entries for the log, events."""

    neighbours: list[tuple[int, list[Any]]] = field(default_factory=list)
    nodes: list[tuple[str, list[Any]]] = field(default_factory=list)
    entries: list[bytes] = field(default_factory=list)
    events: list[WorkEvent] = field(default_factory=list)


class WorkPart:
    """Jobs of one run of a node. `wall` returns seconds since 1970 for a monotonic time.

    With `rights` submissions need theirs, and what a host says has to come from a node that may host. `may_do`: see
    Crew. `screen`: returns the message of a child as far as it may say it, or None.
    """

    def __init__(
        self,
        id: str,
        epoch: int,
        *,
        kinds: frozenset[str],
        slots: int,
        decide: Decide,
        rng: RandomSource,
        wall: Callable[[float], float],
        rights: NodeRights | None = None,
        may_do: Callable[[int | None, str], bool] | None = None,
        screen: Callable[[int, messages.Message], messages.Message | None] | None = None,
    ) -> None:
        self.id = id
        self._rights, self._screen = rights, screen
        self.submitter = Submitter(id, epoch)
        self.crew = Crew(id, kinds=kinds, slots=slots, decide=decide, may_do=may_do)
        self.host: WorkHost | None = None
        self._rng = rng
        self._wall = wall
        self._parent: int | None = None
        self._effects = WorkNodeEffects()

    @property
    def wake_at(self) -> float:
        """When to call `tick`, in seconds of `now`."""
        return min(self.submitter.wake_at, self.crew.wake_at, NEVER if self.host is None else self.host.wake_at)

    # ---- the election

    def elected(self, term: int, table: JobTable, clock: LogClock, now: float) -> None:
        """Begin the queue of a term, from what the log has."""
        wall = self._wall(now)
        time = clock.lead(table.clock, now, wall)
        self.host = WorkHost(
            self.id,
            term=term,
            table=table,
            now=now,
            wall=time,
            ahead=wall - time,
            rng=self._rng,
            names=self._rights is not None,
        )

    def deposed(self) -> None:
        """End the queue: another node has it, or none."""
        self.host = None

    # ---- the tree

    def parent_up(self, link: int) -> None:
        """Note the link to the parent."""
        self._parent = link

    def parent_down(self, link: int) -> None:
        """Note that a link does not lead to the parent any more. `detached` follows if there is no other way."""
        if self._parent == link:
            self._parent = None

    def attached(self, term: int, now: float) -> None:
        """Repeat what has no answer: there is a way to the host of `term`."""
        link = LOCAL if self.host is not None else self._parent
        if link is not None:
            self.crew.attached(link, term, now)
        self.submitter.attached(term, now)

    def detached(self, now: float) -> None:
        """Hold back what is for the host."""
        self.submitter.detached()
        self.crew.detached(now)

    # ---- messages

    def from_neighbour(self, link: int, row: list[Any], peer: str, *, from_parent: bool, now: float) -> None:
        """Take in a row of the parent or of a child. Raises BadMessage."""
        message = messages.parse(row, peer)
        if message is None:
            return
        if from_parent:
            self.crew.from_parent(message, now)
        elif self._screen is None or (message := self._screen(link, message)) is not None:
            self.crew.from_child(link, message, now)

    def from_node(self, sender: str, row: list[Any], now: float) -> None:
        """Take in a row of a node, or at a node of the host. Raises BadMessage."""
        self._message(sender, messages.parse(row, sender), now)

    def _message(self, sender: str, message: messages.Message | None, now: float) -> None:
        if isinstance(message, _TO_HOST):
            if self.host is not None:
                self._to_host(self.host, sender, message, now)
        elif self._rights is not None and sender != self.id and not self._rights.may_host(sender):
            pass  # it is counted there
        elif isinstance(message, _TO_SUBMITTER):
            self.submitter.receive(message, now)
        elif isinstance(message, messages.Taken):
            self.crew.from_host(message)

    def _to_host(self, host: WorkHost, sender: str, message: messages.Message, now: float) -> None:
        """Have the queue take in a submitter's message; refuse the jobs that it may not submit."""
        if self._rights is not None and isinstance(message, messages.Submit):
            message = self._permitted(self._rights, sender, message, now)
        host.unicast(sender, message, now)

    def _permitted(self, rights: NodeRights, sender: str, message: messages.Submit, now: float) -> messages.Submit:
        groups, rows = [], []
        for group in message.groups:
            if rights.may_submit(sender, group.spec.kind):
                groups.append(group)
            else:
                why = rights.refused_job(sender, group.spec.kind)
                rows += [messages.NotAccepted(number, why) for number in group.numbers]
        for some in messages.batches(rows):
            refused = messages.Refused(message.epoch, some)
            if sender == self.id:
                self.submitter.receive(refused, now)
            else:
                self._effects.nodes.append((sender, messages.pack(refused)))
        return messages.Submit(message.epoch, message.floor, groups)

    # ---- time and effects

    def tick(self, now: float) -> None:
        """Do what is due."""
        if now >= self.submitter.wake_at:
            self.submitter.tick(now)
        if now >= self.crew.wake_at:
            self.crew.tick(now)
        if self.host is not None and now >= self.host.wake_at:
            self.host.tick(now)

    def take(self, now: float) -> WorkNodeEffects:
        """Return what is to be done since the last call."""
        while self._carry(now):
            pass
        effects, self._effects = self._effects, WorkNodeEffects()
        return effects

    def _carry(self, now: float) -> bool:
        """Carry messages between the queue and the crew of this node. Return True if there were any."""
        out, host = self._effects, self.host
        moved = False
        submitted = self.submitter.take(now)
        for message in submitted.sends:
            if host is not None:
                self._to_host(host, self.id, message, now)
                moved = True
            else:
                out.nodes.append(("", messages.pack(message)))
        out.events += submitted.events
        if submitted.room:
            out.events.append(RoomForJobs())
        crew = self.crew.take()
        out.events += map(JobStart, crew.start)
        out.events += map(JobStop, crew.stop)
        for link, message in crew.down:
            out.neighbours.append((link, messages.pack(message)))
        for message in crew.up:
            if host is not None:
                host.receive(LOCAL, message, now)
                moved = True
            elif self._parent is not None:
                out.neighbours.append((self._parent, messages.pack(message)))
        if host is None:
            return moved
        queue = host.take(now)
        out.entries += queue.entries
        for link, message in queue.down:
            assert link == LOCAL  # the queue knows no other link
            self.crew.from_parent(message, now)
            moved = True
        for to, message in queue.unicasts:
            if to == self.id:
                self._message(to, message, now)
                moved = True
            else:
                out.nodes.append((to, messages.pack(message)))
        if queue.ended:
            out.events.append(JobsEnded(queue.ended))
        return moved

    # ---- what can be read

    def counts(self) -> Iterator[tuple[str, int, int, int, int, int, int]]:
        """Yield kind, waiting and running jobs; first of all kinds, with those that have ended."""
        if self.host is None:
            return
        depths = self.host.depths()
        waiting, running = (sum(row[at] for row in depths.values()) for at in (0, 1))
        done, failed, dead, cancelled = self.host.table.totals
        yield "", waiting, running, done, failed, dead, cancelled
        for kind, (queued, granted) in sorted(depths.items()):
            yield kind, queued, granted, 0, 0, 0, 0

    def counters(self) -> dict[str, int]:
        """Return the counters of the queue, by name."""
        return {} if self.host is None else {f"jobs_{name}": value for name, value in asdict(self.host.stats).items()}
