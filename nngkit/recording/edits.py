"""A document's edits as records of a journal, and the state of documents rebuilt from them. Pure.

::

    edit     key: the document   value: its update   headers: id, origin, epoch, seq, deps, from
    merge    key: the document   value: an update    headers: id, versions, deps

An edit is number `seq` of the stream (`origin`, `epoch`) in that document, and requires `deps`. A merge is an update
that a peer sent as a whole, because no peer had the single edits any more: it brings a document at `deps` to
`versions`. docs/wire.md specifies both.

Records are stored in an order in which they can be applied. If some are missing (retention, damage), those that depend
on them are ignored: the document is rebuilt as far as the journal allows, and a peer supplies the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from nngkit import envelope
from nngkit.documents import records
from nngkit.documents.engine.interface import Engine
from nngkit.documents.names import check_name
from nngkit.documents.records import Loaded, Merge, compaction_due
from nngkit.documents.versions import (
    Edit,
    EditStream,
    Versions,
    from_wire,
    is_old,
    merge,
    prune,
    seq_from,
    stream_from,
    to_wire,
)
from nngkit.errors import BadMessage, ConfigError, TooLarge
from nngkit.journal.record import Record

EIGHT: Final = 8  # bytes of an integer in a header, big-endian
ID: Final = 16  # bytes of a merge's id

Headers = list[tuple[str, bytes]]


class BadRecord(BadMessage):
    """A record that is neither an edit nor a merge."""


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """Decoded record: edit `seq` of `stream`; or, if that is None, a merge that brings the document to `versions`."""

    doc: str
    stream: EditStream | None
    seq: int
    deps: Versions
    versions: Versions
    update: bytes


def edit_headers(doc: str, stream: EditStream, seq: int, edit: Edit, author: str) -> Headers:
    """Return the headers of an edit. Its id is the same for every recorder."""
    epoch, number = stream.epoch.to_bytes(EIGHT, "big"), seq.to_bytes(EIGHT, "big")
    return [
        ("id", stream.origin + epoch + number + doc.encode()),
        ("origin", stream.origin),
        ("epoch", epoch),
        ("seq", number),
        ("deps", envelope.encode(to_wire(edit.deps))),
        ("from", author.encode()),
    ]


def merge_headers(
    doc: str, update: bytes, deps: Mapping[EditStream, int], versions: Mapping[EditStream, int]
) -> Headers:
    """Return the headers of a merge, which brings a document at `deps` to `versions`."""
    before, after = envelope.encode(to_wire(deps)), envelope.encode(to_wire(versions))
    made = hashlib.sha256(b"".join(len(part).to_bytes(EIGHT, "big") + part for part in (doc.encode(), before, after)))
    made.update(update)
    return [("id", made.digest()[:ID]), ("versions", after), ("deps", before)]


def parse(record: Record) -> DocumentRecord:
    """Decode a record. Raises BadRecord."""
    headers = dict(record.headers or ())
    where = f"offset {record.offset}"
    try:
        doc = check_name((record.key or b"").decode())
        deps = _versions(headers.get("deps"), "deps")
        if "versions" in headers:
            return DocumentRecord(doc, None, 0, deps, _versions(headers["versions"], "versions"), record.value)
        epoch, number = (int.from_bytes(headers[name], "big") for name in ("epoch", "seq"))
        stream = stream_from([headers["origin"], epoch], what="record")
        return DocumentRecord(doc, stream, seq_from(number, what="record"), deps, {}, record.value)
    except (KeyError, UnicodeDecodeError, ConfigError, BadMessage, TooLarge) as error:
        raise BadRecord("record", f"not of a document: {error}", where) from error


def _versions(data: bytes | None, what: str) -> Versions:
    return from_wire(envelope.decode(data, what=what), what=what) if data else {}


def is_here(versions: Mapping[EditStream, int], needed: Mapping[EditStream, int]) -> bool:
    """Return True if a document at `versions` has all of `needed`; streams too old to be listed count as present."""
    return all(versions.get(stream, 0) >= seq or is_old(stream, versions) for stream, seq in needed.items())


def advanced(versions: Versions, stream: EditStream, seq: int) -> None:
    """Advance `versions` to number `seq` of `stream`."""
    new = stream not in versions
    versions[stream] = seq
    if new:
        prune(versions)


@dataclass(slots=True)
class History:
    """One document as rebuilt from records: `snapshot` followed by `edits`, at `versions`.

    `left` counts records with missing dependencies. Updates are kept as bytes and merged when there are many, as a
    journal may hold far more updates than its documents are large.
    """

    snapshot: bytes | None = None
    edits: list[records.Record | Merge] = field(default_factory=list)
    versions: Versions = field(default_factory=dict)
    left: int = 0
    _size: int = 0

    def take(self, kept: DocumentRecord, engine: Engine) -> None:
        """Take the next record."""
        if kept.stream is not None:
            at = self.versions.get(kept.stream, 0)
            if kept.seq <= at:
                return  # duplicate
            if kept.seq != at + 1 or not is_here(self.versions, kept.deps):
                self.left += 1
                return
            advanced(self.versions, kept.stream, kept.seq)
            self.edits.append(records.Record(kept.stream, kept.seq, kept.update, kept.deps))
        elif is_here(self.versions, kept.deps):
            self.versions = merge(self.versions, kept.versions)
            prune(self.versions)
            self.edits.append(Merge(kept.update, kept.versions))
        else:
            self.left += 1
            return
        self._size += len(kept.update)
        if compaction_due(log=self._size, snapshot=len(self.snapshot or b"")):
            self.fold(engine)

    def fold(self, engine: Engine) -> None:
        """Merge everything into one update. If the engine rejects it, it was altered: then nothing is known."""
        doc = engine.new()
        try:
            for update in (self.snapshot, *(one.update for one in self.edits)):
                if update:  # an edit that could not be applied is recorded as empty
                    doc.apply(update)
            self.snapshot = doc.changes_since(None)
        except ValueError:
            self.snapshot, self.versions = None, {}
            self.left += len(self.edits)
        self.edits, self._size = [], 0

    def loaded(self, engine: Engine) -> Loaded:
        """Return the document for a peer to open; recent edits are kept to serve other peers."""
        recent = tuple(self.edits)
        self.fold(engine)
        if self.snapshot is None:
            return Loaded(None, (), {})
        return Loaded(self.snapshot, (), self.versions, recent, size=len(self.snapshot))


def restored(rows: Iterable[Record], engine: Engine) -> tuple[dict[str, History], int]:
    """Rebuild documents by name from records; also return the number of invalid records."""
    found: dict[str, History] = {}
    bad = 0
    for row in rows:
        try:
            kept = parse(row)
        except BadRecord:
            bad += 1
            continue
        found.setdefault(kept.doc, History()).take(kept, engine)
    return found, bad
