"""Replicated log of one voter: entries with their terms, and a snapshot of what came before. Pure.

::

    index        1 ... base | base + 1 ... last
    content      gone       | terms[i], entries[i]        snapshot at `snapshot_index`, base <= snapshot_index <= last

Entries are opaque bytes; index 0 is the empty log, of term 0. Some entries before the snapshot are kept (`keep` bytes),
so that a voter that is a little behind needs no snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Snapshot(NamedTuple):
    """State of the state machine after the entry `index`, which is of `term`."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which no caller needs
    term: int
    state: bytes


class ElectionLog:
    """Log with a snapshot.

    `last`: index of the last entry. `bytes`: of the entries that it holds; `new_bytes`: of those after the snapshot.
    """

    __slots__ = ("_entries", "_terms", "base", "base_term", "bytes", "last", "new_bytes", "snapshot")

    def __init__(self, snapshot: Snapshot | None = None, entries: Sequence[tuple[int, bytes]] = ()) -> None:
        """Begin after `snapshot` with `entries`, as pairs of term and bytes."""
        self.snapshot = snapshot
        self.base, self.base_term = (snapshot.index, snapshot.term) if snapshot else (0, 0)
        self._terms = [term for term, _ in entries]
        self._entries = [entry for _, entry in entries]
        self.last = self.base + len(self._terms)
        self.bytes = self.new_bytes = sum(map(len, self._entries))

    @property
    def last_term(self) -> int:
        """Term of the last entry."""
        return self._terms[-1] if self._terms else self.base_term

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry; None if it is not there."""
        at = index - self.base
        if at <= 0:
            return self.base_term if at == 0 else None
        return self._terms[at - 1] if at <= len(self._terms) else None

    def entry(self, index: int) -> bytes:
        """Return an entry, which must be there."""
        return self._entries[index - self.base - 1]

    def append(self, term: int, entries: Sequence[bytes]) -> None:
        """Append entries of one term."""
        self._terms += [term] * len(entries)
        self._entries += entries
        self.last += len(entries)
        size = sum(map(len, entries))
        self.bytes += size
        self.new_bytes += size

    def truncate(self, first: int) -> None:
        """Remove the entries from `first` on; those up to the snapshot stay."""
        at = max(first - self.base - 1, 0)
        size = sum(map(len, self._entries[at:]))
        self.bytes -= size
        self.new_bytes -= size
        del self._terms[at:], self._entries[at:]
        self.last = self.base + len(self._terms)

    def batch(self, first: int, limit: int) -> tuple[int, tuple[bytes, ...]]:
        """Return entries from `first` on, all of one term: at least one, and further ones up to `limit` bytes."""
        at = first - self.base - 1
        term, end, size = self._terms[at], at + 1, len(self._entries[at])
        while end < len(self._terms) and self._terms[end] == term:
            size += len(self._entries[end])
            if size > limit:
                break
            end += 1
        return term, tuple(self._entries[at:end])

    def first_of_term(self, index: int) -> int:
        """Return the first index held of the term that the entry `index` has."""
        at = index - self.base - 1
        term = self._terms[at]
        while at > 0 and self._terms[at - 1] == term:
            at -= 1
        return at + self.base + 1

    def compact(self, index: int, state: bytes, keep: int) -> Snapshot:
        """Take a snapshot at `index`, an entry that is there; drop entries up to it, but for the last `keep` bytes."""
        term = self.term_at(index)
        assert term is not None, "the snapshot is not of this log"
        self.snapshot = Snapshot(index, term, state)
        at = index - self.base
        self.new_bytes = sum(map(len, self._entries[at:]))
        drop, old = 0, self.bytes - self.new_bytes
        while drop < at and old > keep:
            old -= len(self._entries[drop])
            drop += 1
        if drop:
            self.base_term = self._terms[drop - 1]
            self.base += drop
            self.bytes = old + self.new_bytes
            del self._terms[:drop], self._entries[:drop]
        return self.snapshot

    def install(self, snapshot: Snapshot) -> bool:
        """Replace what comes before a host's snapshot; return True if the entries after it are kept, as they match."""
        if self.term_at(snapshot.index) == snapshot.term:
            self.compact(snapshot.index, snapshot.state, 0)
            if self.base < snapshot.index:  # `compact` keeps empty entries, which have no bytes
                drop = snapshot.index - self.base
                self.base, self.base_term = snapshot.index, snapshot.term
                del self._terms[:drop], self._entries[:drop]
            return True
        self.snapshot = snapshot
        self.base, self.base_term = snapshot.index, snapshot.term
        self._terms, self._entries = [], []
        self.last = self.base
        self.bytes = self.new_bytes = 0
        return False
