"""State that all parts of a voter share: clock, epochs, messages, term, role. Pure. The theory is in `election.py`."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Final

from nngkit.cluster.election.hosting import Hosting
from nngkit.cluster.election.messages import MOST_VOTERS, Message, SurveyReply
from nngkit.cluster.election.recovery import Recovery
from nngkit.cluster.election.replica import Replica
from nngkit.cluster.election.values import Chance, Deposed, ElectionLimits, ElectionStats, HostChanged, Restored, Role
from nngkit.errors import ConfigError
from nngkit.mesh.wire import MOST_ORIGIN

__all__ = ["VoterCore"]

MOST_GAP: Final = 1.5  # heartbeats between two calls, beyond which the clock is taken to have jumped
MOST_HELD: Final = 4096  # messages held back until what they state is on disk; room for minutes of heartbeats


class VoterCore:
    """Base of a voter: what several of its parts change."""

    def __init__(
        self,
        id: str,
        voters: Collection[str],
        *,
        epoch: int,
        now: float,
        rng: Chance,
        preference: int = 0,
        restored: Restored | None = None,
        durable: bool = False,
        limits: ElectionLimits | None = None,
    ) -> None:
        self.id, self.voters = id, tuple(sorted(set(voters)))
        if id not in self.voters:
            raise ConfigError("voters", f"{id!r} is not among them", self.voters)
        if len(self.voters) > MOST_VOTERS:
            raise ConfigError("voters", f"{len(self.voters)} are more than {MOST_VOTERS}", self.voters)
        for each in self.voters:
            if not each or len(each.encode()) > MOST_ORIGIN or not each.isprintable():
                raise ConfigError("voters", f"{each!r} is not printable text of 1 to {MOST_ORIGIN} bytes", each)
        if restored is not None and not durable:
            raise ConfigError("restored", "it needs `durable`")
        self.limits = limits or ElectionLimits()
        self.quorum = len(self.voters) // 2 + 1
        self.preference, self.willing, self.load = preference, True, 0.0
        self.role: Role = "follower" if durable else "blank"
        self.host: str | None = None
        self.term = restored.term if restored else 0
        self.wake_at = now
        self._vote = restored.vote if restored else None
        self._others = tuple(each for each in self.voters if each != id)
        self._rng = rng
        self._up: dict[str, None] = {}  # in order of their links, so that a run can be repeated
        self._now, self._seen = now, 0.0
        self._replica = Replica(restored, durable=durable, limits=self.limits)
        self._held: deque[tuple[int, str, Message]] = deque()
        self._count = dict.fromkeys(ElectionStats.__dataclass_fields__, 0)
        self._epochs = {voter: known for voter, known in (restored.epochs if restored else ()) if voter in self.voters}
        self.epoch = self._epochs[id] = max(epoch, self._epochs.get(id, -1) + 1)
        self._began: dict[str, int] = {}
        self._promise_until = self.limits.lease
        self._promise_to: str | None = None
        self._promise_term = 0
        self._recovery: Recovery | None = None
        self._hosting: Hosting | None = None
        self._lease_until = self._lease_seen = 0.0
        self._first = 0  # index of the empty entry of this host's term
        self._leaving = float("inf")
        self._votes: dict[str, int] = {}
        self._stand_token = self._over = 0
        self._survey = 0
        self._replies: dict[str, SurveyReply] | None = None
        self._due = 0.0  # of the role: heartbeats, the end of a candidacy or survey, the next survey or round

    # ---- time

    def _advance(self, now: float) -> None:
        gap, most = now - self._now, MOST_GAP * self.limits.heartbeat
        self._now = now
        if gap < 0.0:
            self._count["jumps"] += 1
            self._lease_until = 0.0
            if self._others:
                self._depose("clock")
        elif gap > most:
            self._count["jumps"] += 1
            self._seen += most
        else:
            self._seen += gap

    def _schedule(self) -> None:
        due = self._due
        if self.role != "host" and self.host is not None:
            due = min(due, self._promise_until)
        self.wake_at = self._now + min(max(due - self._seen, 0.0), self.limits.heartbeat)

    def _jitter(self) -> float:
        return self.limits.heartbeat * self._rng.random()

    # ---- messages and epochs

    def _send(self, to: str, message: Message) -> None:
        if to not in self._up:
            return
        if self._replica.meta > self._replica.written:
            if len(self._held) < MOST_HELD:
                self._held.append((self._replica.meta, to, message))
            else:
                self._count["refused"] += 1
        else:
            self._replica.effects.sends.append((to, message))

    def _send_all(self, to: str, messages: list[Message]) -> None:
        for message in messages:
            self._send(to, message)

    def _save_meta(self) -> None:
        self._replica.save_meta(self.term, self._vote, self._epochs)

    def _known_epochs(self) -> tuple[tuple[str, int], ...]:
        return tuple(self._epochs.items())

    def _learn(self, epochs: Collection[tuple[str, int]]) -> None:
        """Note epochs of voters; what their earlier runs have voted and acknowledged counts no longer."""
        changed = False
        for voter, epoch in epochs:
            if voter == self.id:
                self._raise_epoch(epoch)
            elif voter in self._others and epoch > self._epochs.get(voter, -1):
                self._epochs[voter] = epoch
                self._votes.pop(voter, None)
                if self._hosting is not None:
                    self._hosting.restart(voter)
                    self._update_lease()
                changed = True
        if changed:
            self._save_meta()

    def _raise_epoch(self, known: int) -> None:
        """Take an epoch after one that others know of an earlier run of this voter, whose clock was ahead."""
        if known <= self.epoch:
            return
        self.epoch = self._epochs[self.id] = known + 1
        if self._recovery is not None:
            self._recovery = Recovery(self._others, self.quorum)
            self._due = self._seen
        if self._hosting is not None:
            self._hosting.epoch = self.epoch
        if self.id in self._votes:
            self._votes[self.id] = self.epoch
        self._save_meta()

    # ---- terms and roles

    def _new_term(self, term: int) -> None:
        if term <= self.term:
            return
        self._depose("term")
        if self.role == "candidate":
            self.role = "follower"
            self._due = self._seen + self._jitter()
        self.term, self._vote = term, None
        if self.host is not None:
            self._set_host(None)
        self._save_meta()

    def _set_host(self, host: str | None) -> None:
        self.host = host
        self._replica.matched = 0
        self._replica.effects.events.append(HostChanged(self.term, host))

    def _depose(self, why: str) -> None:
        if self._hosting is None:
            return
        self._count["snapshots_sent"] += self._hosting.snapshots_sent
        self._count["deposed"] += 1
        self._hosting = None
        self.role = "follower"
        self._leaving = float("inf")
        self._lease_until = 0.0
        self._due = self._seen + self._jitter()
        self._replica.effects.events.append(Deposed(self.term, why))
        self._set_host(None)

    def _follow(self, host: str, term: int) -> bool:
        """Follow the host of a term, which is not before the own one; return False if that cannot be."""
        if term > self.term:
            self._new_term(term)
        elif self.role == "host":
            self._count["refused"] += 1
            return False
        if self._vote is None:
            self._vote = host
            self._save_meta()
        if self.role == "candidate":
            self.role = "follower"
        if self.host != host or self._promise_term != term:
            self._set_host(host)
        self._promise_to, self._promise_term = host, term
        self._promise_until = self._seen + self.limits.lease
        if self.role != "blank":
            self._replies = None
            self._due = self._promise_until + self._jitter()
        return True

    def _promised(self) -> float:
        """Return the seconds for which this voter votes for no other than its host."""
        if self._hosting is not None:
            return max(0.0, self._lease_until - self._now)
        return max(0.0, self._promise_until - self._seen)

    def _update_lease(self) -> None:
        if self._hosting is not None and self._others:
            self._lease_until = self._hosting.lease_until()
            if self._now < self._lease_until:
                self._lease_seen = self._seen
