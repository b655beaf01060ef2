"""What a store of documents takes and gives back. Pure: dataclasses, and when a log has grown too long.

>>> compaction_due(log=3 << 20, snapshot=1 << 20)
True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nngkit.documents.versions import EditStream, Versions

__all__ = ["Compacted", "Entry", "Loaded", "Merge", "Record", "Saved", "compaction_due"]

_LOG: Final = 1 << 20  # bytes: about 10,000 keystrokes, which load in a tenth of a second


@dataclass(frozen=True, slots=True)
class Record:
    """One edit: number ``seq`` of ``stream``. ``deps``: the other streams' edits it needs, as its author gave them."""

    stream: EditStream
    seq: int
    update: bytes
    deps: Versions


@dataclass(frozen=True, slots=True)
class Merge:
    """A diff that was applied as a whole: with it, the document has all of ``versions``."""

    update: bytes
    versions: Versions


@dataclass(frozen=True, slots=True)
class Loaded:
    """A document as it is in the store.

    Apply ``snapshot`` (None: there is none), then ``records`` in their order; the document then has ``versions``.
    ``recent`` are edits that are in the snapshot already and were kept to answer other peers with, oldest first.
    ``log`` and ``size``: bytes of the records and of the snapshot, for `compaction_due`.
    """

    snapshot: bytes | None
    records: tuple[Record | Merge, ...]
    versions: Versions
    recent: tuple[Record | Merge, ...] = ()
    log: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did: so many ``records`` are in the snapshot now, and bytes ``before`` and ``after``."""

    records: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Saved:
    """A version that was saved by name: when (seconds since 1970), its size, and what was in it."""

    name: str
    time: float
    size: int
    versions: Versions


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a document's history: ``size`` bytes were appended at ``time``, seconds since 1970.

    ``stream`` is None and ``seq`` 0 for a diff, which may hold edits of many streams.
    """

    stream: EditStream | None
    seq: int
    time: float
    size: int


def compaction_due(*, log: int, snapshot: int) -> bool:
    """Whether ``log`` bytes of records are too many beside a snapshot of ``snapshot`` bytes.

    Over 1 MiB and over twice the snapshot. Then each byte is rewritten a bounded number of times in its life, as a
    document has to grow by a multiple of itself from one compaction to the next; and loading costs at most three times
    what the snapshot alone would.
    """
    return log > max(_LOG, 2 * snapshot)
