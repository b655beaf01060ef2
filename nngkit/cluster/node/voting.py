"""A voter's part of a node: the election, the replicated log, and the table of jobs that the log makes. Pure.

The election decides which voter is host. Committed entries go to the table of jobs: through the host's queue while this
node is host, else directly. Effects keep the order: a snapshot, the entries after it, then the events, so that the
queue of a new term begins with a complete table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from nngkit.chance import RandomSource
from nngkit.cluster.election import messages as election_messages
from nngkit.cluster.election import values
from nngkit.cluster.election.voter import Voter
from nngkit.cluster.jobs.part import WorkPart
from nngkit.cluster.jobs.table import JobTable
from nngkit.cluster.log_clock import LogClock
from nngkit.cluster.node.values import NodeConfig
from nngkit.errors import BadMessage, Full

# Bytes of entries after which a snapshot replaces them: as many as four of the last one, so that a snapshot of a large
# table is rare and a small table has no long log, but at least and at most these
LEAST_LOG: Final = 1024 * 1024
LOG_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Store:
    """Store these on disk, in this order, then call `persisted` with the last token."""

    steps: tuple[values.Persist, ...]


@dataclass(frozen=True, slots=True)
class VotingEvent:
    """News of the election, for the journal and the log."""

    event: values.ElectionEvent


@dataclass(slots=True)
class VotingEffects:
    """Work for the node: rows for voters, changes of the host for the tree, events for the shell, lines for the log."""

    sends: list[tuple[str, list[Any]]] = field(default_factory=list)
    changes: list[values.Elected | values.Deposed | values.HostChanged] = field(default_factory=list)
    events: list[Store | VotingEvent] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class VotingPart:
    """The election and the table of jobs of one voter. `work` gets the queue while this node is host."""

    def __init__(
        self,
        config: NodeConfig,
        work: WorkPart,
        *,
        epoch: int,
        now: float,
        rng: RandomSource,
        restored: values.Restored | None,
    ) -> None:
        self.id = config.id
        self.voters = dict(config.voters)
        self.table = JobTable()
        self._clock = LogClock()
        self._work = work
        self.voter = Voter(
            self.id,
            config.voters,
            epoch=epoch,
            now=now,
            rng=rng,
            preference=config.preference,
            restored=restored,
            durable=config.durable,
            limits=values.ElectionLimits(lease=config.lease, heartbeat=config.lease / 5),
        )
        self._unproposed: list[bytes] = []

    def holds_lease(self, now: float) -> bool:
        """Return True if this node is host, and no other can be."""
        return self.voter.holds_lease(now)

    def waits_for(self) -> str:
        """Return what this voter waits for, for a person."""
        voter = self.voter
        missing = ", ".join(sorted(set(self.voters) - {self.id} - set(voter.connected)))
        if voter.role == "blank":
            others = f"; not connected: {missing}" if missing else ""
            return (
                "it knows nothing yet: voters without a store begin when all of them are there, and one that comes "
                f"back asks a majority{others}"
            )
        return f"it is {voter.role} in term {voter.term}{f'; not connected: {missing}' if missing else ''}"

    # ---- events

    def peer_up(self, id: str, now: float) -> None:
        """Note the link to a voter."""
        self.voter.peer_up(id, now)
        if self._work.host is not None:
            self._work.host.tell_time(now)

    def receive(self, sender: str, row: list[Any], now: float) -> None:
        """Take in a row of a voter. Raises BadMessage."""
        message = election_messages.KINDS.parse(row, sender)
        if message is not None:
            self.voter.receive(sender, message, now)

    def persisted(self, token: int, now: float) -> None:
        """Note what is on disk."""
        self.voter.persisted(token, now)

    def propose(self, entries: Sequence[bytes], now: float) -> bool:
        """Propose entries of the host's queue; return True if some are left, as the log is full until a snapshot."""
        self._unproposed += entries
        voter = self.voter
        if voter.role != "host":
            self._unproposed.clear()  # the next host's queue begins from the table
            return False
        if self._unproposed:
            waiting, self._unproposed = self._unproposed, []
            try:
                voter.propose(waiting, now)
            except Full:
                self._unproposed = waiting
        return bool(self._unproposed)

    def tick(self, now: float) -> None:
        """Do what is due."""
        self.voter.load = float(self._work.crew.busy)
        if now >= self.voter.wake_at:
            self.voter.tick(now)
        if self._unproposed:
            self.propose((), now)

    # ---- effects

    def take(self, now: float) -> VotingEffects:
        """Apply what is committed; return what is to be done since the last call."""
        effects = self.voter.take()
        out = VotingEffects()
        out.sends = [(voter, election_messages.KINDS.pack(message)) for voter, message in effects.sends]
        if effects.persist:
            out.events.append(Store(tuple(effects.persist)))
        try:
            self._apply(effects.restore, effects.committed, now)
        except BadMessage as error:  # an entry of a later version, or memory that is not as written
            out.warnings.append(f"the log of jobs cannot be applied: {error}")
            raise
        for event in effects.events:
            if isinstance(event, values.Elected):
                self._work.elected(event.term, self.table, self._clock, now)
            elif isinstance(event, values.Deposed):
                self._work.deposed()
                self._unproposed.clear()
            if isinstance(event, values.Recovered):
                out.warnings += self._recovered(event)
            else:
                out.changes.append(event)
            out.events.append(VotingEvent(event))
        return out

    def _apply(self, restore: tuple[int, bytes] | None, committed: list[tuple[int, bytes]], now: float) -> None:
        if restore is not None:
            if restore[1]:
                self.table.restore(restore[1])
            else:  # after a loss beyond a minority, a log begins anew
                self.table = JobTable()
        if not committed:
            return
        entries = [entry for _, entry in committed]
        if self._work.host is not None:
            self._work.host.committed(entries, now)
        else:
            before = self.table.clock
            for entry in entries:
                self.table.apply(entry)
            if self.table.clock != before and self.voter.host not in (None, self.id):
                self._clock.heard(self.voter.term, self.table.clock, now)
        if self.table.compact_bytes > min(LOG_BYTES, max(LEAST_LOG, 4 * self.voter.snapshot_bytes)):
            self.voter.compact(committed[-1][0], self.table.snapshot())

    def _recovered(self, event: values.Recovered) -> list[str]:
        if event.how != "beyond":
            return []
        return ["more than a minority of the voters has lost its memory: jobs that were accepted may be lost"]
