"""A voter's copy of the log: what a host sends is taken in, stored, committed and delivered. Pure.

::

    delivered <= commit <= matched      matched: equal to the log of the present host, as far as is known
    stored <= last                      stored: on disk; without a disk always `last`

Only entries that are matched and stored are acknowledged. A conflict below `commit` is possible only after more voters
have lost their memory than a majority can replace: then the state machine begins anew from the host's log, with
`restore` = (0, b""), and `reset` counts it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from nngkit.cluster.election.log import ElectionLog, Snapshot
from nngkit.cluster.election.messages import Append, SnapshotPart
from nngkit.cluster.election.values import (
    ElectionEffects,
    ElectionLimits,
    Restored,
    SaveEntries,
    SaveMeta,
    SaveSnapshot,
)

LEAST_KEPT: Final = 256 * 1024  # bytes of entries before a snapshot that are kept, however small it is


class Replica:
    """Log of one voter. `effects` is replaced by the voter after each `take`."""

    def __init__(self, restored: Restored | None, *, durable: bool, limits: ElectionLimits) -> None:
        self.durable = durable
        self.effects = ElectionEffects()
        state = restored or Restored()
        self.log = ElectionLog(state.snapshot, state.entries)
        self.commit = self.delivered = state.snapshot.index if state.snapshot else 0
        if state.snapshot is not None:
            self.effects.restore = (state.snapshot.index, state.snapshot.state)
        self.matched = 0
        self.written = 0  # last token that is on disk
        self.meta = 0  # token of the last SaveMeta
        self.resets = self.rejected = self.delivered_entries = self.snapshots = 0
        self._limits = limits
        self._token = 0
        self._on_disk = self.log.last
        self._pending: deque[list[int]] = deque()  # token, and the last index that is stored with it
        self._incoming: tuple[int, int, int, bytearray] | None = None  # term, index, total, bytes of a snapshot

    @property
    def stored(self) -> int:
        """Last index on disk."""
        return self._on_disk if self.durable else self.log.last

    @property
    def acknowledged(self) -> int:
        """Last index that equals the host's and is stored."""
        return min(self.matched, self.stored)

    # ---- disk

    def save_meta(self, term: int, vote: str | None, epochs: dict[str, int]) -> None:
        """Store the term, the vote and the epochs."""
        if self.durable:
            self._token += 1
            self.meta = self._token
            self.effects.persist.append(SaveMeta(self._token, term, vote, tuple(sorted(epochs.items()))))

    def persisted(self, token: int) -> None:
        """Note that all up to `token` is on disk."""
        self.written = max(self.written, min(token, self._token))
        while self._pending and self._pending[0][0] <= self.written:
            self._on_disk = max(self._on_disk, self._pending.popleft()[1])

    def _save(self, step: Callable[..., SaveEntries | SaveSnapshot], *content: object, upto: int) -> None:
        if self.durable:
            self._token += 1
            self._pending.append([self._token, upto])
            self.effects.persist.append(step(self._token, *content))

    def _cut(self, last: int) -> None:
        """Note that what is stored after `last` counts no longer."""
        self._on_disk = min(self._on_disk, last)
        for pair in self._pending:
            pair[1] = min(pair[1], last)

    # ---- log

    def append(self, term: int, entries: Sequence[bytes]) -> None:
        """Append entries at the end."""
        first = self.log.last + 1
        self.log.append(term, entries)
        self._save(SaveEntries, first, term, tuple(entries), upto=self.log.last)

    def take_in(self, message: Append) -> tuple[bool, int]:
        """Take in a host's entries; return True and `acknowledged`, or False and the index to try next."""
        log, previous, entries = self.log, message.prev_index, message.entries
        if previous < log.base:  # what is before the base is committed, so the host has the same
            entries = entries[log.base - previous :]
            previous = min(log.base, previous + len(message.entries))
        else:
            term = log.term_at(previous)
            if term != message.prev_term:
                self.rejected += 1
                if previous <= self.commit:
                    self._begin_anew()
                    return False, 0
                return False, max(self.commit, log.last if term is None else log.first_of_term(previous) - 1)
        end = previous + len(entries)
        at = previous + 1
        while at <= end and (term := log.term_at(at)) is not None:
            if term != message.entry_term:
                if at <= self.commit:
                    self._begin_anew()
                    return False, 0
                log.truncate(at)
                self._cut(at - 1)
                break
            at += 1
        if at <= end:
            self.append(message.entry_term, entries[at - previous - 1 :])
        self.matched = max(self.matched, end)
        self.advance(min(message.commit, self.matched))
        return True, self.acknowledged

    def _begin_anew(self) -> None:
        self.resets += 1
        self.log = ElectionLog()
        self.commit = self.delivered = self.matched = 0
        self._cut(0)
        self._incoming = None
        self.effects.committed.clear()
        self.effects.restore = (0, b"")
        self._save(SaveSnapshot, Snapshot(0, 0, b""), False, upto=0)

    def take_part(self, message: SnapshotPart) -> int | None:
        """Take in a part of a snapshot; return the bytes so far, or None if the whole of it is here."""
        if message.index <= self.commit:  # committed, so the host has the same
            self.matched = max(self.matched, message.index)
            return None
        held = self._incoming
        if held is None or held[:3] != (message.term, message.index, message.total):
            if message.offset:
                return 0
            held = self._incoming = (message.term, message.index, message.total, bytearray())
        data = held[3]
        if message.offset == len(data) and len(data) + len(message.data) <= message.total:
            data += message.data
        if len(data) < message.total:
            return len(data)
        self._incoming = None
        self._install(Snapshot(message.index, message.index_term, bytes(data)))
        return None

    def _install(self, snapshot: Snapshot) -> None:
        self.snapshots += 1
        before = self.commit
        keep = self.log.install(snapshot)
        if not keep:
            self._cut(before)
        self._save(SaveSnapshot, snapshot, keep, upto=snapshot.index)
        self.commit = max(self.commit, snapshot.index)
        self.delivered = snapshot.index
        self.matched = max(self.matched, snapshot.index)
        self.effects.committed.clear()
        self.effects.restore = (snapshot.index, snapshot.state)

    def advance(self, commit: int) -> None:
        """Deliver what is committed."""
        if commit <= self.commit:
            return
        self.commit = commit
        log, committed = self.log, self.effects.committed
        for index in range(self.delivered + 1, commit + 1):
            entry = log.entry(index)
            if entry:  # an empty one begins a host's term
                committed.append((index, entry))
                self.delivered_entries += 1
        self.delivered = commit

    def compact(self, index: int, state: bytes) -> None:
        """Replace the log up to `index` by a snapshot. Ignored if there is a later one. Raises ValueError."""
        if index > self.delivered:
            raise ValueError(f"entry {index} is not committed")
        old = self.log.snapshot
        if index <= (old.index if old else 0):
            return
        # a voter that is behind by more than the snapshot's own size gets that sooner
        snapshot = self.log.compact(index, state, min(self._limits.keep_bytes, max(len(state), LEAST_KEPT)))
        self._save(SaveSnapshot, snapshot, True, upto=min(self._on_disk_or_pending(), self.log.last))

    def _on_disk_or_pending(self) -> int:
        return max(self._on_disk, self._pending[-1][1] if self._pending else 0)
