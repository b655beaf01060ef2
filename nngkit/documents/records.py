"""Records that a store writes and loads, and when a log is due for compaction. Pure.

>>> compaction_due(log=3 << 20, snapshot=1 << 20)
True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nngkit.documents.versions import EditStream, Versions

_LOG: Final = 1 << 20  # bytes: about 10,000 keystrokes, which load in 0.1 s


@dataclass(frozen=True, slots=True)
class Record:
    """One edit: number ``seq`` of ``stream``. ``deps``: its dependencies in other streams, as its author sent them."""

    stream: EditStream
    seq: int
    update: bytes
    deps: Versions


@dataclass(frozen=True, slots=True)
class Merge:
    """An update that was applied as a whole; after it, the document has all of ``versions``."""

    update: bytes
    versions: Versions


@dataclass(frozen=True, slots=True)
class Loaded:
    """The stored state of a document.

    Apply ``snapshot`` (None: there is none), then ``records`` in order; the document then has ``versions``. ``recent``:
    edits already in the snapshot, kept to answer other peers, oldest first. ``log`` and ``size``: bytes of the records
    and of the snapshot, for `compaction_due`.
    """

    snapshot: bytes | None
    records: tuple[Record | Merge, ...]
    versions: Versions
    recent: tuple[Record | Merge, ...] = ()
    log: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Compacted:
    """Result of a compaction: ``records`` added to the snapshot, and the bytes ``before`` and ``after``."""

    records: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Saved:
    """A named version: when it was saved (seconds since 1970), its size in bytes, and its version vector."""

    name: str
    time: float
    size: int
    versions: Versions


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a document's history: ``size`` bytes were appended at ``time``, seconds since 1970.

    ``stream`` is None and ``seq`` 0 for a merge, which may hold edits of many streams.
    """

    stream: EditStream | None
    seq: int
    time: float
    size: int


def compaction_due(*, log: int, snapshot: int) -> bool:
    """Return True if ``log`` bytes of records are too many beside a snapshot of ``snapshot`` bytes.

    The limit is 1 MiB, or twice the snapshot if that is more. A document thus grows by a multiple of itself between two
    compactions, which bounds how often each byte is rewritten; and loading costs at most three times the snapshot
    alone.
    """
    return log > max(_LOG, 2 * snapshot)
