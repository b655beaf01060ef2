"""Election of the host among the voters, and the log that they replicate. Pure: no clock, no socket, no loop.

::

    voter = Voter("a", ["a", "b", "c"], epoch=epoch, now=now, rng=rng)
    voter.peer_up("b", now)                      # a direct link to another voter
    voter.receive("b", message, now)
    voter.propose([entry], now)                  # as host; NotHost otherwise
    if now >= voter.wake_at:
        voter.tick(now)
    effects = voter.take()                       # what to store, send, apply and tell

The protocol is Raft, with these additions.

*Survey.* A voter whose promise to the host has run out asks all others, in place of Raft's pre-vote. From the replies
it chooses the best voter that a majority would elect (choice.py), and stands or nominates it. So no term is
spent without a majority that is free, and a host that comes back stays follower.

*Lease.* A voter that answers a heartbeat votes for no other for `lease`. The host holds the lease while a majority has
answered heartbeats sent within the last 0.8 `lease`; without it for a whole one it steps down. A handover ends the
lease first, and frees the voters from their promises to that term. A voter that starts waits for a lease, as it may
have promised before.

*Memory.* A durable voter has a disk and is plain Raft. Any other forgets all when it ends, and starts blank: it asks
the others, as in Viewstamped Replication Revisited (recovery.py). That protocol alone is not safe: a vote that
was on its way before the crash may count after it, although its sender has forgotten it. So every message carries the
sender's epoch, and every vote and recovery answer the known epochs of all: votes of older epochs are discarded (crash
vectors: Michael et al., Recovering Shared Objects Without Stable Storage, DISC 2017). A majority has learned the new
epoch before a voter counts again, and every election meets that majority.

*Clocks.* `now` may jump. A gap over 1.5 heartbeats counts as 1.5 heartbeats in promises and timers, so that a stalled
voter neither breaks a promise nor calls an election; the host's lease uses the whole gap. A step back deposes a host.

Invariants, while fewer than a majority lose their memory at a time (else `Recovered("beyond")` says so):

1. A term has at most one host. Also beyond: the terms of voters that begin or lost all are at least the milliseconds of
   their epoch.
2. Committed entries never change or vanish: the hosts of all later terms have them, and every voter delivers them in
   one order.
3. Logs that agree on the term of an entry agree on all entries before it.
4. At most one voter holds the lease at any time, with clocks that drift by 10 % and jump forward.
5. A blank voter acknowledges nothing, promises nothing, and votes only for the best log if a majority was blank at one
   moment, as there is no safe choice left.
6. Nothing that depends on a stored term, vote or epoch is sent before it is on disk.
7. Once a majority is connected and fewer were lost, a host is elected within a few leases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

from nngkit.chance import RandomSource
from nngkit.cluster.election import messages, values
from nngkit.cluster.election.choice import best_voter, time_until_free
from nngkit.cluster.election.progress import Hosting
from nngkit.cluster.election.recovery import Recovery
from nngkit.cluster.election.replica import Replica
from nngkit.cluster.frames import check_id
from nngkit.cluster.log_clock import NEVER
from nngkit.errors import ConfigError, Full, NngkitError, TooLarge
from nngkit.messages import MOST_NUMBER

MOST_GAP: Final = 1.5  # heartbeats between two calls, beyond which the clock is taken to have jumped
MOST_HELD: Final = 4096  # messages held back until what they state is on disk; room for minutes of heartbeats
MOST_LOAD: Final = 1e9


class NotHost(NngkitError):
    """This voter is not the host; `host` is, as far as it knows."""

    def __init__(self, host: str | None) -> None:
        super().__init__(f"this voter is not the host{f': {host} is' if host else ''}")
        self.host = host


class Voter:
    """State machine of one voter.

    `epoch`: greater than at its earlier starts, microseconds since 1970. `durable`: the shell stores what `persist`
    says; `restored` is what it had stored, None for a new voter.

    Attributes: `id`, `voters`, `term`, `role`, `host`, `epoch`, `wake_at`; `load`, `preference` (greater is better) and
    `willing` (False: elected only if no other can be), which may be assigned.
    """

    def __init__(
        self,
        id: str,
        voters: Collection[str],
        *,
        epoch: int,
        now: float,
        rng: RandomSource,
        preference: int = 0,
        restored: values.Restored | None = None,
        durable: bool = False,
        limits: values.ElectionLimits | None = None,
    ) -> None:
        self.id, self.voters = id, tuple(sorted(set(voters)))
        if id not in self.voters:
            raise ConfigError("voters", f"{id!r} is not among them", self.voters)
        if len(self.voters) > messages.MOST_VOTERS:
            raise ConfigError("voters", f"{len(self.voters)} are more than {messages.MOST_VOTERS}", self.voters)
        for each in self.voters:
            check_id(each, "voters")
        if restored is not None and not durable:
            raise ConfigError("restored", "it needs `durable`")
        self.limits = limits or values.ElectionLimits()
        self.quorum = len(self.voters) // 2 + 1
        self.preference, self.willing, self.load = preference, True, 0.0
        self.role: values.Role = "follower" if durable else "blank"
        self.host: str | None = None
        self.term = restored.term if restored else 0
        self.wake_at = now
        self._vote = restored.vote if restored else None
        self._others = tuple(each for each in self.voters if each != id)
        self._rng = rng
        self._up: dict[str, None] = {}  # in order of their links, so that a run can be repeated
        self._now, self._seen = now, 0.0
        self._replica = Replica(restored, durable=durable, limits=self.limits)
        self._held: deque[tuple[int, str, messages.Message]] = deque()
        self._count = dict.fromkeys(values.ElectionStats.__dataclass_fields__, 0)
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
        self._leaving = NEVER
        self._votes: dict[str, int] = {}
        self._stand_token = self._over = 0
        self._survey = 0
        self._replies: dict[str, messages.SurveyReply] | None = None
        self._due = 0.0  # of the role: heartbeats, the end of a candidacy or survey, the next survey or round
        if durable:
            if restored is None or restored == values.Restored():
                self.term = self.epoch // 1000
                self._promise_until = 0.0
            else:
                self._replica.effects.events.append(values.Recovered("restored"))
            self._save_meta()
            self._due = self._promise_until + self._jitter()
        else:
            self._recovery = Recovery(self._others, self.quorum)
        if not self._others:
            if not durable:
                self._begin()
            self._stand(self.term + 1, 0)
        self._schedule()

    # ---- what the shell reads

    @property
    def commit(self) -> int:
        """Index of the last committed entry."""
        return self._replica.commit

    @property
    def last(self) -> int:
        """Index of the last entry in the log."""
        return self._replica.log.last

    @property
    def connected(self) -> frozenset[str]:
        """The voters with a link to this one."""
        return frozenset(self._up)

    @property
    def snapshot_bytes(self) -> int:
        """Bytes of the last snapshot, 0 without one."""
        snapshot = self._replica.log.snapshot
        return 0 if snapshot is None else len(snapshot.state)

    @property
    def new_bytes(self) -> int:
        """Bytes in the log after the last snapshot: a measure for when to call `compact`."""
        return self._replica.log.new_bytes

    @property
    def stats(self) -> values.ElectionStats:
        """The counters."""
        replica, hosting = self._replica, self._hosting
        counted = {
            **self._count,
            "committed": replica.delivered_entries,
            "rejected": replica.rejected,
            "snapshots_received": replica.snapshots,
            "snapshots_sent": self._count["snapshots_sent"] + (hosting.snapshots_sent if hosting else 0),
            "beyond": self._count["beyond"] + replica.resets,
            "log_bytes": replica.log.bytes,
            "log_entries": replica.log.last - replica.log.base,
        }
        return values.ElectionStats(**counted)

    def holds_lease(self, now: float) -> bool:
        """Return True if this voter is host and no other voter can be."""
        return self.role == "host" and (not self._others or self._now <= now < self._lease_until)

    def take(self) -> values.ElectionEffects:
        """Return what is to be done since the last call."""
        effects, self._replica.effects = self._replica.effects, values.ElectionEffects()
        return effects

    # ---- what the shell tells

    def peer_up(self, id: str, now: float) -> None:
        """Note a link to another voter."""
        self._advance(now)
        if id not in self._others:
            return
        self._up[id] = None
        if self._hosting is not None:
            self._hosting.connected(id, now)
            self._send_all(id, self._hosting.heartbeat(id, now))
        elif self.role == "blank":
            self._ask()
        elif self.role == "candidate" and id not in self._votes:
            self._send(id, self._vote_request())
        self._schedule()

    def peer_down(self, id: str, now: float) -> None:
        """Note the loss of a link."""
        self._advance(now)
        self._up.pop(id, None)
        if self._replies is not None and len(self._replies) > len(self._up):
            self._decide()
        self._schedule()

    def receive(self, sender: str, message: messages.Message, now: float) -> None:
        """Take in a message of another voter."""
        self._advance(now)
        if sender not in self._others:
            self._count["refused"] += 1
            return
        known = self._epochs.get(sender, -1)
        if message.epoch != known:
            if message.epoch < known:
                self._count["stale"] += 1
                self._send(sender, messages.Stale(self.epoch, known))
                return
            self._learn(((sender, message.epoch),))
        match message:
            case messages.Append():
                self._on_append(sender, message)
            case messages.AppendReply():
                self._on_append_reply(sender, message)
            case messages.SnapshotPart():
                self._on_part(sender, message)
            case messages.SnapshotReply():
                self._on_part_reply(sender, message)
            case messages.Survey():
                self._send(sender, self._state(message.number))
            case messages.SurveyReply():
                self._on_survey_reply(sender, message)
            case messages.Stand():
                self._on_stand(message)
            case messages.VoteRequest():
                self._on_vote_request(sender, message)
            case messages.VoteReply():
                self._on_vote(sender, message)
            case messages.Recover():
                self._on_recover(sender, message)
            case messages.RecoverReply():
                self._on_recover_reply(sender, message)
            case messages.Stale():
                self._raise_epoch(message.known)
        self._schedule()

    def propose(self, entries: Sequence[bytes], now: float) -> int:
        """Append entries to the log; return the index of the first.

        Raises:
            NotHost: This voter is not the host.
            Full: The log is full until `compact` is called, or this host hands over.
            TooLarge: An entry is over `entry_bytes`.
            ValueError: An entry is empty: those are of new hosts.
        """
        hosting, replica = self._hosting, self._replica
        if hosting is None:
            raise NotHost(self.host)
        self._advance(now)
        if self._hosting is None:  # the clock went back
            raise NotHost(None)
        size = 0
        for entry in entries:
            if not entry:
                raise ValueError("an entry is empty")
            if len(entry) > self.limits.entry_bytes:
                raise TooLarge(len(entry), self.limits.entry_bytes)
            size += len(entry)
        if replica.log.bytes + size > self.limits.log_bytes or self._leaving < NEVER:
            self._count["full"] += 1
            why = "this host hands over" if self._leaving < NEVER else "the log is full until it is compacted"
            raise Full(why)
        first = replica.log.last + 1
        if entries:
            replica.append(self.term, entries)
            self._count["proposed"] += len(entries)
            for voter in self._up:
                self._send_all(voter, hosting.fill(voter, now))
            self._commit_as_host()
            self._schedule()
        return first

    def persisted(self, token: int, now: float) -> None:
        """Note that all up to `token` is on disk."""
        self._advance(now)
        replica, before = self._replica, self._replica.acknowledged
        replica.persisted(token)
        while self._held and self._held[0][0] <= replica.written:
            _, to, message = self._held.popleft()
            if to in self._up:
                replica.effects.sends.append((to, message))
        if self.role == "candidate":
            self._count_votes()
        elif self._hosting is not None:
            self._commit_as_host()
        elif self.host is not None and replica.acknowledged > before:
            self._send(self.host, messages.AppendReply(self.epoch, self.term, True, replica.acknowledged, 0, False))
        self._schedule()

    def compact(self, index: int, state: bytes) -> None:
        """Replace the log up to the delivered entry `index` by a snapshot of the state machine. Raises ValueError."""
        self._replica.compact(index, state)

    def outranked(self, term: int, now: float) -> bool:
        """Give up the own term as host, because a node has heard of a later one; return False if it is not later.

        Voters without a store take their first term from the clock. If it was set back while all of them were away,
        nodes that stayed up know a later term, and would never join one before it.
        """
        self._advance(now)
        if self._hosting is None or not self.term < term < MOST_NUMBER:
            return False
        self._new_term(term)
        if not self._others:
            self._stand(term + 1, 0)
        self._schedule()
        return True

    def step_down(self, now: float) -> None:
        """Hand over to the best voter, if this one is host, once that voter has the whole log, within a lease.

        `willing` becomes False, so that this voter is elected again only if no other can be.
        """
        self._advance(now)
        self.willing = False
        if self._hosting is not None and self._others:
            self._leaving = self._seen + self.limits.lease
            self._hand_over()
        self._schedule()

    def tick(self, now: float) -> None:
        """Do what is due. Sets `wake_at`."""
        self._advance(now)
        if self.role == "host":
            self._tick_host()
        elif self._seen >= self._due:
            if self.role == "blank":
                self._ask()
            elif self.role == "candidate":
                self.role = "follower"
                self._due = self._seen + 2 * self._jitter()
            elif self._replies is not None:
                self._decide()
            elif self._seen >= self._promise_until:
                self._begin_survey()
        if self.role != "host" and self.host is not None and self._seen >= self._promise_until:
            self._set_host(None)
        self._schedule()

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

    def _send(self, to: str, message: messages.Message) -> None:
        if to not in self._up:
            return
        if self._replica.meta > self._replica.written:
            if len(self._held) < MOST_HELD:
                self._held.append((self._replica.meta, to, message))
            else:
                self._count["refused"] += 1
        else:
            self._replica.effects.sends.append((to, message))

    def _send_up(self, message: messages.Message) -> None:
        for voter in self._up:
            self._send(voter, message)

    def _send_all(self, to: str, several: list[messages.Message]) -> None:
        for message in several:
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
        self._replica.effects.events.append(values.HostChanged(self.term, host))

    def _depose(self, why: str) -> None:
        if self._hosting is None:
            return
        self._count["snapshots_sent"] += self._hosting.snapshots_sent
        self._count["deposed"] += 1
        self._hosting = None
        self.role = "follower"
        self._leaving = NEVER
        self._lease_until = 0.0
        self._due = self._seen + self._jitter()
        self._replica.effects.events.append(values.Deposed(self.term, why))
        self._set_host(None)

    def _follow(self, host: str, term: int) -> bool:
        """Follow the host of a term; if that is over, or this voter hosts it, tell the sender and return False."""
        if term < self.term or (term == self.term and self.role == "host"):
            self._count["refused"] += term == self.term
            self._count["stale"] += 1
            self._send(host, messages.AppendReply(self.epoch, self.term, False, 0, 0, self.role == "blank"))
            return False
        self._new_term(term)
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

    # ---- recovery: what it asks as a blank voter, and what it answers

    def _ask(self) -> None:
        """Ask all others what they know, as a blank voter."""
        assert self._recovery is not None
        self._due = self._seen + self.limits.heartbeat
        number = self._recovery.begin_round()
        self._send_up(messages.Recover(self.epoch, number))

    def _on_recover(self, sender: str, message: messages.Recover) -> None:
        log = self._replica.log
        reply = messages.RecoverReply(
            self.epoch,
            message.epoch,
            message.number,
            self._recovery is not None,
            self.term,
            self.role == "host",
            log.last_term,
            log.last,
            self._known_epochs(),
            tuple(self._began.items()),
        )
        self._send(sender, reply)

    def _on_recover_reply(self, sender: str, message: messages.RecoverReply) -> None:
        self._learn(message.epochs)
        recovery = self._recovery
        if recovery is None or message.nonce != self.epoch:
            return
        fresh = not recovery.complete
        recovery.answered(sender, message)
        if (self.id, self.epoch) in message.began:
            self._began |= {voter: epoch for voter, epoch in message.began if voter in self.voters}
            self._begin()
        elif recovery.all_lost:
            self._began = dict(self._epochs)
            self._begin()
        else:
            self._evaluate()
            if self._recovery is not None and fresh and recovery.complete and recovery.number <= 2 * len(self.voters):
                self._ask()  # the first rounds follow each other at once

    def _begin(self) -> None:
        """Begin a new cluster: at one moment no voter knew anything."""
        self._recovery = None
        self.role = "follower"
        if self.host is None:
            # the others begin within a message's delay of this: a survey before that would miss the preferred voter
            self._promise_until = self._seen
            self._due = self._seen + (self.limits.heartbeat if self._others else 0.0)
        born = max(self._epochs.values()) // 1000
        if born > self.term:
            self.term, self._vote = born, None
        self._replica.effects.events.append(values.Recovered("began"))

    def _evaluate(self) -> None:
        """Be blank no longer, if this voter has what the host of the last term had."""
        recovery = self._recovery
        if recovery is None:
            return
        target = recovery.target()
        if target is None:
            return
        host, term, index = target
        if self.host != host or self.term != term or self._replica.matched < index:
            return
        lost = len(recovery.survivors()) < self.quorum
        self._recovery = None
        self.role = "follower"
        self._vote = host
        self._promise_until = self._seen + self.limits.lease
        self._due = self._promise_until + self._jitter()
        self._count["beyond"] += lost
        self._replica.effects.events.append(values.Recovered("beyond" if lost else "recovered"))

    # ---- survey

    def _state(self, number: int) -> messages.SurveyReply:
        recovery, log = self._recovery, self._replica.log
        beyond = recovery is not None and recovery.beyond
        remaining = self._promised()
        return messages.SurveyReply(
            self.epoch,
            max(self.term, self.epoch // 1000) if beyond else self.term,
            number,
            int(remaining * 1000) + 1 if remaining > 0.0 else 0,
            recovery is not None,
            beyond,
            self.willing,
            self.preference,
            int(min(max(self.load, 0.0), MOST_LOAD) * 1000),
            log.last_term,
            log.last,
        )

    def _begin_survey(self) -> None:
        self._count["surveys"] += 1
        self._survey += 1
        self._replies = {self.id: self._state(self._survey)}
        self._due = self._seen + self.limits.heartbeat
        self._send_up(messages.Survey(self.epoch, self.term, self._survey))
        if not self._up:
            self._decide()

    def _on_survey_reply(self, sender: str, message: messages.SurveyReply) -> None:
        if self._replies is None or message.number != self._survey or self.role != "follower":
            return
        self._replies[sender] = message
        if len(self._replies) > len(self._up):
            self._decide()

    def _decide(self) -> None:
        """Evaluate the survey: stand, nominate, or try again later."""
        replies, self._replies = self._replies or {}, None
        best = best_voter(replies, self.quorum)
        if best is None:
            free = time_until_free(replies, self.quorum)
            pause = self.limits.lease / 2 if free is None else min(free, self.limits.lease) * 1.1
            self._due = self._seen + pause + self._jitter()
            return
        term = max(reply.term for reply in replies.values())
        if best == self.id:
            self._stand(max(term, self.term) + 1, 0)
        else:
            self._send(best, messages.Stand(self.epoch, term, 0))
            self._due = self._seen + 2 * self.limits.heartbeat + 2 * self._jitter()

    def _on_stand(self, message: messages.Stand) -> None:
        if self.role != "follower":
            return
        if self._promised() and not (message.over and message.over == self._promise_term == self.term):
            return
        self._stand(max(message.term, self.term) + 1, message.over)

    # ---- votes

    def _stand(self, term: int, over: int) -> None:
        self._count["stands"] += 1
        self._replies = None
        self.role = "candidate"
        self.term, self._vote, self._over = term, self.id, over
        if self.host is not None:
            self._set_host(None)
        self._save_meta()
        self._stand_token = self._replica.meta
        self._votes = {self.id: self.epoch}
        self._due = self._seen + 0.4 * self.limits.lease + 2 * self._jitter()
        self._send_up(self._vote_request())
        self._count_votes()

    def _vote_request(self) -> messages.VoteRequest:
        log = self._replica.log
        return messages.VoteRequest(self.epoch, self.term, log.last_term, log.last, self._over)

    def _on_vote_request(self, sender: str, message: messages.VoteRequest) -> None:
        log, recovery = self._replica.log, self._recovery
        freed = message.over and message.over == self._promise_term
        held = self._promised() and not freed and (self._hosting is not None or sender != self._promise_to)
        mine = (log.last_term, log.last)
        if recovery is not None:
            survivors = recovery.survivors()
            if recovery.beyond and sender in survivors:
                mine = recovery.best()
            else:
                held = True
        if held or message.term < self.term:
            self._send(sender, messages.VoteReply(self.epoch, self.term, False, ()))
            return
        self._new_term(message.term)
        granted = (message.last_term, message.last_index) >= mine and self._vote in (None, sender)
        if granted:
            self._count["votes"] += 1
            if self._vote is None:
                self._vote = sender
                self._save_meta()
            if recovery is None:
                self._replies = None
                self._due = self._seen + self.limits.lease + self._jitter()
        self._send(sender, messages.VoteReply(self.epoch, self.term, granted, self._known_epochs()))

    def _on_vote(self, sender: str, message: messages.VoteReply) -> None:
        self._learn(message.epochs)
        if message.term > self.term:
            self._new_term(message.term)
        elif self.role == "candidate" and message.granted and message.term == self.term:
            if message.epoch == self._epochs[sender]:
                self._votes[sender] = message.epoch
            self._count_votes()

    def _count_votes(self) -> None:
        if self.role != "candidate" or len(self._votes) < self.quorum or self._replica.written < self._stand_token:
            return
        self._count["elected"] += 1
        self.role = "host"
        self._leaving = NEVER
        self._promise_until, self._promise_to, self._promise_term = 0.0, None, self.term
        self._lease_seen, self._lease_until = self._seen, 0.0
        replica = self._replica
        self._hosting = Hosting(self.epoch, self.term, replica.log, self._others, self.quorum, self.limits)
        self._hosting.commit = replica.commit
        self._set_host(self.id)
        replica.append(self.term, (b"",))
        self._first = replica.log.last
        self._send_heartbeats(self._hosting)
        self._commit_as_host()

    # ---- replication as host

    def _tick_host(self) -> None:
        hosting = self._hosting
        assert hosting is not None
        if self._others and self._now >= self._lease_until and self._seen - self._lease_seen > self.limits.lease:
            self._depose("lease")
            return
        if self._seen >= self._due:
            self._send_heartbeats(hosting)
        if self._leaving < NEVER:
            self._hand_over()

    def _send_heartbeats(self, hosting: Hosting) -> None:
        self._due = self._seen + self.limits.heartbeat
        for voter in self._up:
            self._send_all(voter, hosting.heartbeat(voter, self._now))

    def _on_append_reply(self, sender: str, message: messages.AppendReply) -> None:
        hosting = self._hosting
        if message.term > self.term:
            self._new_term(message.term)
        elif hosting is not None and message.term == self.term:
            self._send_all(sender, hosting.replied(sender, message, self._now))
            self._update_lease()
            self._commit_as_host()
            if self._leaving < NEVER:
                self._hand_over()

    def _on_part_reply(self, sender: str, message: messages.SnapshotReply) -> None:
        hosting = self._hosting
        if message.term > self.term:
            self._new_term(message.term)
        elif hosting is not None and message.term == self.term:
            self._send_all(sender, hosting.part_arrived(sender, message, self._now))
            self._update_lease()

    def _commit_as_host(self) -> None:
        hosting, replica = self._hosting, self._replica
        if hosting is None:
            return
        index = hosting.majority_has(replica.stored)
        if index > replica.commit and replica.log.term_at(index) == self.term:
            before = replica.commit
            replica.matched = index
            replica.advance(index)
            hosting.commit = index
            if before < self._first <= index:
                replica.effects.events.append(values.Elected(self.term))

    def _hand_over(self) -> None:
        hosting, last = self._hosting, self._replica.log.last
        assert hosting is not None
        target = max(self._up, key=lambda voter: (hosting.match(voter), voter), default=None)
        if (target is None or hosting.match(target) < last) and self._seen < self._leaving:
            return
        term = self.term
        self._depose("handover")
        self._due = self._seen + self.limits.lease + self._jitter()
        if target is not None:
            self._send(target, messages.Stand(self.epoch, term, term))

    # ---- replication as follower

    def _on_append(self, sender: str, message: messages.Append) -> None:
        replica = self._replica
        if not self._follow(sender, message.term):
            return
        if replica.log.bytes + sum(map(len, message.entries)) > 2 * self.limits.log_bytes:
            self._count["refused"] += 1
            return
        ok, index = replica.take_in(message)
        self._reply_to_host(ok, index, message.stamp)

    def _reply_to_host(self, ok: bool, index: int, stamp: int) -> None:
        if self._recovery is not None:
            self._evaluate()  # this may have been the last entry that was missing
            stamp = 0
        if self.host is not None:
            self._send(self.host, messages.AppendReply(self.epoch, self.term, ok, index, stamp, self.role == "blank"))

    def _on_part(self, sender: str, message: messages.SnapshotPart) -> None:
        replica = self._replica
        if not self._follow(sender, message.term):
            return
        if message.total > self.limits.snapshot_bytes:
            self._count["refused"] += 1
            return
        offset = replica.take_part(message)
        if offset is None:
            self._reply_to_host(True, replica.acknowledged, message.stamp)
            return
        blank = self._recovery is not None
        stamp = 0 if blank else message.stamp
        self._send(sender, messages.SnapshotReply(self.epoch, self.term, message.index, offset, stamp, blank))
