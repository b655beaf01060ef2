"""One voter of an election, led by hand through exact sequences of messages, crashes and clock values.

Random histories come upon such a sequence seldom: of the defects that were put into the voter to try the tests, more
than half passed a hundred of them. Here nothing happens on its own, neither a write nor the passing of time.
"""

from __future__ import annotations

from random import Random

from nngkit.cluster.election.messages import (
    Append,
    AppendReply,
    Message,
    Recover,
    SnapshotPart,
    Stand,
    VoteReply,
    VoteRequest,
)
from nngkit.cluster.election.values import (
    ElectionEvent,
    ElectionLimits,
    Persist,
    SaveEntries,
    SaveMeta,
)
from nngkit.cluster.election.voter import Voter
from tests.cluster.election_network import Disk

EPOCH = 5_000_000
LEASE, HEARTBEAT = ElectionLimits().lease, ElectionLimits().heartbeat


class Site:
    """A voter with links to all others, its disk and its clock. `slow`: the disk writes only when it is told to."""

    def __init__(
        self, voters: str = "abc", *, id: str = "a", term: int = 5, log: tuple[int, ...] = (), durable: bool = True
    ) -> None:
        """Start a voter, whose disk has a log with entries of these terms: b"1", b"2" and so on."""
        self.id, self.voters, self.durable = id, voters, durable
        self.slow = False
        self.now, self.epoch = 100.0, EPOCH
        self.disk = Disk()
        self.disk.apply(SaveMeta(0, term, None, tuple((voter, EPOCH) for voter in voters if voter != id)))
        for index, entry_term in enumerate(log, 1):
            self.disk.apply(SaveEntries(0, index, entry_term, (b"%d" % index,)))
        self.start()

    def start(self) -> None:
        """Start with what is on disk."""
        self.writing: list[Persist] = []
        self.delivered: list[tuple[int, bytes]] = []
        self.restores: list[tuple[int, bytes]] = []
        self.round = 0  # the last one in which it has asked, as a blank voter
        self.events: list[ElectionEvent] = []
        self.voter = Voter(
            self.id,
            self.voters,
            epoch=self.epoch,
            now=self.now,
            rng=Random(1),
            restored=self.disk.restored() if self.durable else None,
            durable=self.durable,
        )
        for other in self.voters:
            self.voter.peer_up(other, self.now)
        self.write()

    def restart(self) -> None:
        """Crash, and start again: what is not on disk is lost."""
        self.epoch += 1
        self.start()

    def take(self) -> list[tuple[str, Message]]:
        effects = self.voter.take()
        self.writing += effects.persist
        self.delivered += effects.committed
        self.events += effects.events
        if effects.restore is not None:
            self.restores.append(effects.restore)
        for _, message in effects.sends:
            if isinstance(message, Recover):
                self.round = message.number
        return effects.sends

    def write(self, steps: int | None = None) -> list[tuple[str, Message]]:
        """Write all that waits, or the first steps of it; return what is sent."""
        sends = self.take()
        while self.writing:
            done, self.writing = self.writing[:steps], self.writing[len(self.writing[:steps]) :]
            for step in done:
                self.disk.apply(step)
            self.voter.persisted(done[-1].token, self.now)
            sends += self.take()
            if steps is not None:
                break
        return sends

    def hear(self, sender: str, message: Message) -> list[Message]:
        """Take in a message; return what goes to its sender."""
        self.voter.receive(sender, message, self.now)
        sends = self.take() if self.slow else self.write()
        return [message for to, message in sends if to == sender]

    def wait(self, seconds: float) -> None:
        """Let time pass in heartbeats, as a longer gap of the clock would not count as a whole."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + HEARTBEAT)
            self.voter.tick(self.now)
            self.write()

    def stored(self) -> list[tuple[int, bytes]]:
        """Return the entries on disk with their terms."""
        restored = self.disk.restored()
        return list(restored.entries) if restored else []

    def votes_for(self, candidate: str, term: int, last: tuple[int, int] = (99, 99), over: int = 0) -> bool:
        """Return True if a vote is granted and sent."""
        replies = self.hear(candidate, VoteRequest(EPOCH, term, *last, over))
        return any(isinstance(reply, VoteReply) and reply.granted and reply.term == term for reply in replies)

    @property
    def role(self) -> str:
        return self.voter.role

    @property
    def leads(self) -> bool:
        return self.voter.holds_lease(self.now)


def free(voters: str = "abc", *, term: int = 5, log: tuple[int, ...] = ()) -> Site:
    """Return a follower without a host and without a promise."""
    site = Site(voters, term=term, log=log)
    site.wait(LEASE + HEARTBEAT)
    return site


def candidate(voters: str = "abc", *, term: int = 6, log: tuple[int, ...] = ()) -> Site:
    """Return a voter that stands, and has its own vote so far."""
    site = free(voters, term=term - 1, log=log)
    site.hear("b", Stand(EPOCH, term - 1, 0))
    assert (site.role, site.voter.term) == ("candidate", term)
    return site


def host(voters: str = "abc", *, term: int = 6, log: tuple[int, ...] = ()) -> Site:
    """Return a host that has appended its empty entry, and has no answer yet."""
    site = candidate(voters, term=term, log=log)
    for voter in voters[1 : len(voters) // 2 + 1]:
        site.hear(voter, VoteReply(EPOCH, term, True, ()))
    assert site.role == "host"
    return site


def stamp(now: float) -> int:
    return int(now * 1e6)


def ack(match: int, *, term: int = 6, ok: bool = True, sent: float = 0.0, blank: bool = False) -> AppendReply:
    return AppendReply(EPOCH, term, ok, match, stamp(sent), blank)


def append(term: int, previous: tuple[int, int], entry_term: int, *entries: bytes, commit: int = 0) -> Append:
    """Return entries after `previous`, which is an index and its term."""
    return Append(EPOCH, term, *previous, entry_term, entries, commit, stamp(100.0))


def heartbeat(term: int, previous: tuple[int, int] = (0, 0), commit: int = 0) -> Append:
    return append(term, previous, 0, commit=commit)


def matches(replies: list[Message]) -> list[tuple[bool, int]]:
    return [(reply.ok, reply.match) for reply in replies if isinstance(reply, AppendReply)]


def part(
    index: int, data: bytes, *, term: int = 6, index_term: int = 1, total: int = 6, offset: int = 0
) -> SnapshotPart:
    return SnapshotPart(EPOCH, term, index, index_term, total, offset, data, stamp(100.0))
