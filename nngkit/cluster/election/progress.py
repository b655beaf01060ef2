"""A host's view of the other voters: what each has, what is on its way to it, and the lease. Pure.

::

    next - 1  last entry sent        match  last entry acknowledged         inflight  sent, not acknowledged

A voter is probed with one message at a time until it has accepted one; then messages follow each other without waiting,
up to `window_bytes`. A heartbeat refers to the last entry sent, so it shows what was lost. A voter that needs entries
that are gone gets the snapshot in parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from nngkit.cluster.election.log import ElectionLog, Snapshot
from nngkit.cluster.election.messages import Append, AppendReply, Message, SnapshotPart, SnapshotReply
from nngkit.cluster.election.values import GUARD, ElectionLimits
from nngkit.cluster.log_clock import NEVER


class Progress:
    """Progress of one voter. `counts`: it is not blank. `answered`: when the last heartbeat it promised on was sent."""

    def __init__(self, next: int) -> None:
        self.next = next
        self.match = 0
        self.counts = False
        self.answered = float("-inf")
        self.reset(next, float("-inf"))

    def reset(self, next: int, now: float) -> None:
        """Probe from `next` on; forget what is on its way."""
        self.next = next
        self.probing = True
        self.reset_at = now
        self.inflight: deque[tuple[int, int]] = deque()
        self.inflight_bytes = 0
        self.snapshot: Snapshot | None = None
        self.begun = False
        self.sent = self.acked = 0  # bytes of the snapshot
        self.reported = -1  # `acked` at the last heartbeat


class Hosting:
    """Replication during one term. `epoch`, `term`: for the messages."""

    def __init__(
        self, epoch: int, term: int, log: ElectionLog, others: Collection[str], quorum: int, limits: ElectionLimits
    ) -> None:
        self.epoch, self.term = epoch, term
        self.commit = 0
        self.snapshots_sent = 0
        self._log, self._quorum, self._limits = log, quorum, limits
        self._voters = {voter: Progress(log.last + 1) for voter in others}

    def match(self, voter: str) -> int:
        """Return the last index that a voter acknowledged; 0 for a blank one."""
        there = self._voters[voter]
        return there.match if there.counts else 0

    def restart(self, voter: str) -> None:
        """Forget what a voter has: it runs anew."""
        self._voters[voter] = Progress(self._log.last + 1)

    def connected(self, voter: str, now: float) -> None:
        """Probe a voter, as what was on its way is lost."""
        there = self._voters[voter]
        there.reset(max(there.match, self._log.base) + 1 if there.match else self._log.last + 1, now)

    def majority_has(self, stored: int) -> int:
        """Return the last index that a majority has stored, of which the host has `stored`."""
        if self._quorum == 1:
            return stored
        indexes = sorted([stored, *(each.match if each.counts else 0 for each in self._voters.values())], reverse=True)
        return indexes[self._quorum - 1]

    def fill(self, voter: str, now: float) -> list[Message]:
        """Return messages to a voter, as many as its window takes."""
        there, log, limits = self._voters[voter], self._log, self._limits
        if there.snapshot is None and there.next <= log.base:
            there.snapshot = log.snapshot
        found: list[Message] = []
        if there.snapshot is not None:
            self._fill_snapshot(there, there.snapshot, found, now)
            return found
        while there.next <= log.last and there.inflight_bytes < limits.window_bytes:
            if there.probing and there.inflight:
                break
            term, entries = log.batch(there.next, limits.append_bytes)
            found.append(self._append(there.next - 1, term, entries, now))
            there.next += len(entries)
            size = sum(map(len, entries))
            there.inflight.append((there.next - 1, size))
            there.inflight_bytes += size
        return found

    def _append(self, previous: int, term: int, entries: tuple[bytes, ...], now: float) -> Append:
        before = self._log.term_at(previous)
        assert before is not None
        return Append(self.epoch, self.term, previous, before, term, entries, self.commit, _stamp(now))

    def _fill_snapshot(self, there: Progress, snapshot: Snapshot, found: list[Message], now: float) -> None:
        state, size = snapshot.state, self._limits.append_bytes
        while (there.sent < len(state) or not there.begun) and there.sent - there.acked < self._limits.window_bytes:
            data = state[there.sent : there.sent + size]
            row = (snapshot.index, snapshot.term, len(state), there.sent, data, _stamp(now))
            found.append(SnapshotPart(self.epoch, self.term, *row))
            there.sent += len(data)
            there.begun = True

    def heartbeat(self, voter: str, now: float) -> list[Message]:
        """Return a heartbeat for a voter, and what is to be repeated."""
        there = self._voters[voter]
        if there.snapshot is not None and there.begun:
            if there.reported == there.acked:  # nothing has arrived since the last heartbeat
                there.sent = there.acked if there.acked < len(there.snapshot.state) else 0
                there.acked = there.sent
                there.begun = False
            there.reported = there.acked
        found = self.fill(voter, now)
        if not found:
            previous = 0 if there.snapshot is not None else there.next - 1
            before = self._log.term_at(previous) or 0
            found.append(Append(self.epoch, self.term, previous, before, 0, (), self.commit, _stamp(now)))
        return found

    def replied(self, voter: str, reply: AppendReply, now: float) -> list[Message]:
        """Take in a reply of this term; return the next messages."""
        there = self._voters[voter]
        self._answered(there, reply.stamp, reply.blank, now)
        if reply.ok:
            if reply.match > self._log.last:
                return []
            there.match = max(there.match, reply.match)
            while there.inflight and there.inflight[0][0] <= there.match:
                there.inflight_bytes -= there.inflight.popleft()[1]
            if there.snapshot is not None:
                if there.match < there.snapshot.index:
                    return []
                self.snapshots_sent += 1
                there.reset(there.match + 1, now)
            there.probing = False
            there.next = max(there.next, there.match + 1)
            return self.fill(voter, now)
        if there.snapshot is not None:
            return []
        start = max(there.match, min(reply.match, self._log.last)) + 1
        if there.probing and now - there.reset_at < self._limits.heartbeat / 2:
            first = there.next - (1 if there.inflight else 0)
            if start >= first:  # a reply to what was sent before the reset
                return []
        there.reset(start, now)
        return self.fill(voter, now) or self.heartbeat(voter, now)

    def part_arrived(self, voter: str, reply: SnapshotReply, now: float) -> list[Message]:
        """Take in a reply to a part of the snapshot; return the next parts."""
        there = self._voters[voter]
        self._answered(there, reply.stamp, reply.blank, now)
        if there.snapshot is None or reply.index != there.snapshot.index or reply.offset > len(there.snapshot.state):
            return []
        there.acked = reply.offset
        there.sent = max(there.sent, there.acked)
        return self.fill(voter, now)

    def _answered(self, there: Progress, stamp: int, blank: bool, now: float) -> None:
        there.counts = not blank
        if stamp and not blank and stamp <= _stamp(now):
            there.answered = max(there.answered, stamp / 1e6)

    def lease_until(self) -> float:
        """Return when the lease ends, by the latest time at which a majority, the host included, had its heartbeats."""
        if self._quorum == 1:
            return NEVER
        times = sorted((there.answered for there in self._voters.values()), reverse=True)
        return times[self._quorum - 2] + GUARD * self._limits.lease


def _stamp(now: float) -> int:
    return max(1, int(now * 1e6))
