"""A voter's part in replication: entries and heartbeats, as host and as follower. Pure.

election_hosting.py has the host's view of the others, election_replica.py the voter's own log.
"""

from __future__ import annotations

from nngkit.cluster.election.memory import VoterMemory
from nngkit.cluster.election.messages import Append, AppendReply, SnapshotPart, SnapshotReply, Stand
from nngkit.cluster.election.values import Elected

__all__ = ["VoterReplication"]


class VoterReplication(VoterMemory):
    """Replication of a voter."""

    # ---- as host

    def _tick_host(self) -> None:
        hosting = self._hosting
        assert hosting is not None
        if self._others and self._now >= self._lease_until and self._seen - self._lease_seen > self.limits.lease:
            self._depose("lease")
            return
        if self._seen >= self._due:
            self._due = self._seen + self.limits.heartbeat
            for voter in self._up:
                self._send_all(voter, hosting.heartbeat(voter, self._now))
        if self._leaving < float("inf"):
            self._hand_over()

    def _on_append_reply(self, sender: str, message: AppendReply) -> None:
        hosting = self._hosting
        if message.term > self.term:
            self._new_term(message.term)
        elif hosting is not None and message.term == self.term:
            self._send_all(sender, hosting.replied(sender, message, self._now))
            self._update_lease()
            self._commit_as_host()
            if self._leaving < float("inf"):
                self._hand_over()

    def _on_part_reply(self, sender: str, message: SnapshotReply) -> None:
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
                replica.effects.events.append(Elected(self.term))

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
            self._send(target, Stand(self.epoch, term, term))

    # ---- as follower

    def _on_append(self, sender: str, message: Append) -> None:
        replica = self._replica
        if message.term < self.term or not self._follow(sender, message.term):
            self._count["stale"] += 1
            self._send(sender, AppendReply(self.epoch, self.term, False, 0, 0, self.role == "blank"))
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
            self._send(self.host, AppendReply(self.epoch, self.term, ok, index, stamp, self.role == "blank"))

    def _on_part(self, sender: str, message: SnapshotPart) -> None:
        replica = self._replica
        if message.term < self.term or not self._follow(sender, message.term):
            self._count["stale"] += 1
            self._send(sender, AppendReply(self.epoch, self.term, False, 0, 0, self.role == "blank"))
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
        self._send(sender, SnapshotReply(self.epoch, self.term, message.index, offset, stamp, blank))
