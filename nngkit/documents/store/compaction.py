"""Compaction: merges a snapshot and its log into a new snapshot.

Loads both into a fresh document of the engine and encodes it again; merging the updates instead would be superlinear
(docs/documents.md, "The store"). Knows neither trio nor threads, nor what is appended meanwhile.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol

from nngkit.documents.records import Compacted, Merge, Record
from nngkit.documents.store import row_format
from nngkit.documents.store.jobs import Compact
from nngkit.documents.store.reader import StoreReader
from nngkit.documents.store.row_format import (
    CHUNK,
    CONTENTS,
    PAST,
    RECORDS,
    Unsound,
    decode_record,
    entry_of,
    key,
    seal,
)
from nngkit.documents.versions import Versions
from nngkit.errors import StoreDamaged

_PAST_KEPT: Final = 100  # chunks of history per document: 102,400 records, under 1 MiB


class Scratch(Protocol):
    """Interface of an engine's document, for compaction."""

    def apply(self, update: bytes, origin: object = None) -> None: ...
    def changes_since(self, state: bytes | None = None) -> bytes: ...
    def digest(self) -> bytes: ...


class Compactor(Protocol):
    """Interface of an engine, for compaction."""

    def new(self, client_id: int | None = None) -> Scratch: ...


def add(versions: Versions, record: Record | Merge) -> None:
    """Advance `versions` by a record."""
    brings = record.versions if isinstance(record, Merge) else {record.stream: record.seq}
    for stream, seq in brings.items():
        if seq > versions.get(stream, 0):
            versions[stream] = seq


def compaction(
    reader: StoreReader, path: str, number: int, name: str, engine: Compactor, recent: int
) -> tuple[Compact | None, Compacted]:
    """Prepare the compaction of a document as committed.

    Returns the job, None if there is nothing to do, and its result. The job's first row is the snapshot, unsealed: its
    key is assigned when the job is enqueued.
    """
    found = reader.document(number, name)
    head = found.head
    first = max(head.first, head.last + 1 - recent)
    before = head.log + head.size
    if head.through == head.last and first == head.first:
        return None, Compacted(0, before, before)
    covered = head.through - head.first + 1
    rows = found.rows[covered:]
    try:
        records = [decode_record(content) for content in rows]
        versions = dict(found.versions)
        for record in records:
            add(versions, record)
        update = _encoded_anew(engine, [found.snapshot] if found.snapshot else [], records)
    except (Unsound, ValueError) as error:
        raise StoreDamaged(path, str(error), f"records of {name!r}") from error
    content = row_format.encode_content(update, versions)
    past, history = _history(reader, number, name, head.past, head.first, found.rows[: first - head.first])
    cuts = [(RECORDS, key(number, head.first), key(number, first) - 1)]
    if head.snapshot:
        cuts.append((CONTENTS, key(number, head.snapshot), key(number, head.snapshot)))
    if past > head.past:
        cuts.append((PAST, key(number, 0), key(number, (past - 1) // CHUNK) - 1))
    job = Compact(
        number,
        name,
        ((CONTENTS, 0, content), *history),
        tuple(cuts),
        through=head.last,
        first=first,
        past=past,
        log=head.log,
        length=len(content),
    )
    return job, Compacted(len(records), before, len(content))


def seal_snapshot(job: Compact, contents: int) -> Compact:
    """Return the job with its snapshot sealed as number `contents`."""
    at = key(job.document, contents)
    row = (CONTENTS, at, seal(CONTENTS, at, job.puts[0][2]))
    return replace(job, puts=(row, *job.puts[1:]), contents=contents)


def _encoded_anew(engine: Compactor, snapshot: list[bytes], records: list[Record | Merge]) -> bytes:
    """Raises ValueError if the engine rejects an update, or decodes its own encoding to other content."""
    scratch = engine.new()
    for update in (*snapshot, *(record.update for record in records)):
        scratch.apply(update)
    update = scratch.changes_since(None)
    again = engine.new()
    again.apply(update)
    if again.digest() != scratch.digest():
        raise ValueError("the encoded snapshot has other content")
    return update


def _history(
    reader: StoreReader, number: int, name: str, past: int, first: int, rows: tuple[bytes, ...]
) -> tuple[int, list[tuple[row_format.Table, int, bytes]]]:
    """Return the first record of the history, and its new chunks after adding `rows` from record `first` on."""
    if not rows:
        return past, []
    entries = [entry_of(content) for content in rows]
    chunk = (first - 1) // CHUNK
    begun = (first - 1) % CHUNK
    if begun:  # the last chunk is partly filled
        entries = reader.past(number, name, chunk) + entries
    chunks = [entries[start : start + CHUNK] for start in range(0, len(entries), CHUNK)]
    oldest = chunk + len(chunks) - _PAST_KEPT
    kept = list(enumerate(chunks, chunk))[max(0, oldest - chunk) :]
    puts = [
        (PAST, key(number, at), seal(PAST, key(number, at), row_format.encode_history(these))) for at, these in kept
    ]
    return max(past, oldest * CHUNK + 1), puts
