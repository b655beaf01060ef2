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
it chooses the best voter that a majority would elect (election_choice.py), and stands or nominates it. So no term is
spent without a majority that is free, and a host that comes back stays follower.

*Lease.* A voter that answers a heartbeat votes for no other for `lease`. The host holds the lease while a majority has
answered heartbeats sent within the last 0.8 `lease`; without it for a whole one it steps down. A handover ends the
lease first, and frees the voters from their promises to that term. A voter that starts waits for a lease, as it may
have promised before.

*Memory.* A durable voter has a disk and is plain Raft. Any other forgets all when it ends, and starts blank: it asks
the others, as in Viewstamped Replication Revisited (election_recovery.py). That protocol alone is not safe: a vote that
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

from collections.abc import Collection, Sequence

from nngkit.cluster.election.messages import (
    Append,
    AppendReply,
    Message,
    Recover,
    RecoverReply,
    SnapshotPart,
    SnapshotReply,
    Stale,
    Stand,
    Survey,
    SurveyReply,
    VoteReply,
    VoteRequest,
)
from nngkit.cluster.election.recovery import Recovery
from nngkit.cluster.election.values import Chance, ElectionEffects, ElectionLimits, ElectionStats, Recovered, Restored
from nngkit.cluster.election.voting import VoterElections
from nngkit.errors import Full, NngkitError, TooLarge
from nngkit.messages import MOST_NUMBER

__all__ = ["NotHost", "Voter"]


class NotHost(NngkitError):
    """This voter is not the host; `host` is, as far as it knows."""

    def __init__(self, host: str | None) -> None:
        super().__init__(f"this voter is not the host{f': {host} is' if host else ''}")
        self.host = host


class Voter(VoterElections):
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
        rng: Chance,
        preference: int = 0,
        restored: Restored | None = None,
        durable: bool = False,
        limits: ElectionLimits | None = None,
    ) -> None:
        super().__init__(
            id,
            voters,
            epoch=epoch,
            now=now,
            rng=rng,
            preference=preference,
            restored=restored,
            durable=durable,
            limits=limits,
        )
        if durable:
            if restored is None or restored == Restored():
                self.term = self.epoch // 1000
                self._promise_until = 0.0
            else:
                self._replica.effects.events.append(Recovered("restored"))
            self._save_meta()
            self._due = self._promise_until + self._jitter()
        else:
            self._recovery = Recovery(self._others, self.quorum)
        if not self._others:
            if durable:
                self._stand(self.term + 1, 0)
            else:
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
    def new_bytes(self) -> int:
        """Bytes in the log after the last snapshot: a measure for when to call `compact`."""
        return self._replica.log.new_bytes

    @property
    def stats(self) -> ElectionStats:
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
        return ElectionStats(**counted)

    def holds_lease(self, now: float) -> bool:
        """Return True if this voter is host and no other voter can be."""
        return self.role == "host" and (not self._others or self._now <= now < self._lease_until)

    def take(self) -> ElectionEffects:
        """Return what is to be done since the last call."""
        effects, self._replica.effects = self._replica.effects, ElectionEffects()
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
            self._request_vote(id)
        self._schedule()

    def peer_down(self, id: str, now: float) -> None:
        """Note the loss of a link."""
        self._advance(now)
        self._up.pop(id, None)
        if self._replies is not None and len(self._replies) > len(self._up):
            self._decide()
        self._schedule()

    def receive(self, sender: str, message: Message, now: float) -> None:
        """Take in a message of another voter."""
        self._advance(now)
        if sender not in self._others:
            self._count["refused"] += 1
            return
        known = self._epochs.get(sender, -1)
        if message.epoch != known:
            if message.epoch < known:
                self._count["stale"] += 1
                self._send(sender, Stale(self.epoch, known))
                return
            self._learn(((sender, message.epoch),))
        match message:
            case Append():
                self._on_append(sender, message)
            case AppendReply():
                self._on_append_reply(sender, message)
            case SnapshotPart():
                self._on_part(sender, message)
            case SnapshotReply():
                self._on_part_reply(sender, message)
            case Survey():
                self._send(sender, self._state(message.number))
            case SurveyReply():
                self._on_survey_reply(sender, message)
            case Stand():
                self._on_stand(message)
            case VoteRequest():
                self._on_vote_request(sender, message)
            case VoteReply():
                self._on_vote(sender, message)
            case Recover():
                self._on_recover(sender, message)
            case RecoverReply():
                self._on_recover_reply(sender, message)
            case Stale():
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
        if replica.log.bytes + size > self.limits.log_bytes or self._leaving < float("inf"):
            self._count["full"] += 1
            why = "this host hands over" if self._leaving < float("inf") else "the log is full until it is compacted"
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
            self._send(self.host, AppendReply(self.epoch, self.term, True, replica.acknowledged, 0, False))
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
