"""Write jobs of a store: a record, a saved version, a compaction; each with its change to the head. Pure.

Knows neither SQLite nor threads.
"""

from __future__ import annotations

from dataclasses import dataclass

from nngkit.documents.store.row_format import Head, Table

_JOB = 200  # bytes of overhead per queued job, so that many empty ones fill the queue too


@dataclass(slots=True)
class Job:
    """Rows to write in one transaction, and ranges of keys to delete."""

    document: int
    name: str
    puts: tuple[tuple[Table, int, bytes], ...]
    cuts: tuple[tuple[Table, int, int], ...] = ()
    ticket: int = 0
    size: int = 0

    def __post_init__(self) -> None:
        self.size = cost(sum(len(body) for _, _, body in self.puts))

    def change(self, head: Head) -> None:
        """Update `head` to the state after this job."""
        head.name = self.name
        head.ticket = self.ticket


def cost(size: int) -> int:
    """Return the bytes that `size` bytes of rows count for in the queue."""
    return size + _JOB


@dataclass(slots=True)
class Append(Job):
    """Append record ``number``; its row is the last of the puts."""

    number: int = 0

    @property
    def body(self) -> bytes:
        return self.puts[-1][2]

    def change(self, head: Head) -> None:
        Job.change(self, head)
        head.last = self.number
        head.log += len(self.body)


@dataclass(slots=True)
class Save(Job):
    """Save version ``saved`` with ``contents``; their rows are the last two of the puts, in this order."""

    saved: int = 0
    contents: int = 0

    def change(self, head: Head) -> None:
        Job.change(self, head)
        head.saved = self.saved
        head.contents = max(head.contents, self.contents)


@dataclass(slots=True)
class Compact(Job):
    """Replace the snapshot by one that includes records up to ``through``.

    Keeps records from ``first`` on, and history from ``past`` on. ``log``: bytes of records newly in the snapshot;
    ``length``: bytes of the snapshot.
    """

    contents: int = 0
    through: int = 0
    first: int = 0
    past: int = 0
    log: int = 0
    length: int = 0

    def change(self, head: Head) -> None:
        Job.change(self, head)
        head.snapshot, head.contents = self.contents, max(head.contents, self.contents)
        head.through, head.first, head.past = self.through, self.first, self.past
        head.log -= self.log
        head.size = self.length
