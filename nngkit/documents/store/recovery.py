"""Recovery: copies what is intact in a damaged store into a new one; the damaged file is not changed.

::

    report = recover("docs.sqlite", "recovered.sqlite")
    if not report.whole:
        print(report)       # per document: what was lost or left out, and why

All snapshots, saved versions and records with a valid seal are found (``page_scan.py``). A document begins with its
snapshot; if that is lost, with the most complete of the other snapshots and saved versions found, or empty. Up to the
first loss its records are kept. After it, a record is kept only if all earlier ones of its stream and all its ``deps``
are there; a merge only if everything is there that the document had before it. All else is left out and counted: an
engine may apply an update without its dependencies wrongly. Other peers will send it again, as the version vector of
the new store ends before the loss.

Acknowledged edits of which no trace is found are detected by the tickets: each append, saved version and compaction
has taken one, and raised ``last`` or ``contents`` of one head. The last ticket is that of the mark
(``database_file.py``) or the newest one found. What the heads found do not account for is reported as a number,
without a document: of a page torn inside the log, a head may be missing, and an older one of the same document be
there.

Knows neither engines nor trio.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nngkit.documents.names import check_name
from nngkit.documents.records import Entry, Merge, Record, Saved
from nngkit.documents.store import page_scan, row_format
from nngkit.documents.store.compaction import add
from nngkit.documents.store.database_file import Lock, create, translated
from nngkit.documents.store.row_format import (
    CHUNK,
    CONTENTS,
    FACTS,
    HEADS,
    NAMES,
    PAST,
    RECORDS,
    SAVED,
    Facts,
    Head,
    Table,
    Unsound,
    decode_record,
    key,
    seal,
    unkey,
)
from nngkit.documents.versions import ORIGIN, Versions, covers
from nngkit.errors import ConfigError, StoreDamaged
from nngkit.file_modes import checked_path


@dataclass(frozen=True, slots=True)
class Recovered:
    """One document. ``kept`` records are in the new file.

    Of the old ones, ``lost`` are not found, ``left_out`` are found but miss a dependency. ``saved`` versions are kept,
    ``saved_lost`` are not. ``why``: other remarks, "" for none.
    """

    name: str
    kept: int
    lost: int = 0
    left_out: int = 0
    saved: int = 0
    saved_lost: int = 0
    why: str = ""

    @property
    def whole(self) -> bool:
        """True if nothing of it is missing."""
        return not (self.lost or self.left_out or self.saved_lost or self.why)

    def __str__(self) -> str:
        counts = {
            "records kept": self.kept,
            "lost": self.lost,
            "left out": self.left_out,
            "saved versions lost": self.saved_lost,
        }
        said = ", ".join(f"{count} {what}" for what, count in counts.items() if count or what == "records kept")
        return f"{self.name}: {said}{f'; {self.why}' if self.why else ''}"


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a recovery.

    ``unaccounted``: acknowledged appends of which no trace is found; None if that cannot be known. ``same_origin``: the
    new store has the origin of the old one, else a new one.
    """

    path: str
    to: str
    documents: tuple[Recovered, ...]
    unaccounted: int | None
    same_origin: bool

    @property
    def whole(self) -> bool:
        """True if nothing acknowledged is missing."""
        return self.unaccounted == 0 and self.same_origin and all(document.whole for document in self.documents)

    def __str__(self) -> str:
        lines = [f"{self.path} -> {self.to}", *map(str, self.documents)]
        if self.unaccounted is None:
            lines.append("whether more was acknowledged is unknown")
        elif self.unaccounted:
            lines.append(f"{self.unaccounted} more appends were acknowledged, of which no trace is found")
        if not self.same_origin:
            lines.append("the origin of the store is lost: the new one has another")
        return "\n".join(lines)


def recover(path: str | os.PathLike[str], to: str | os.PathLike[str]) -> Report:
    """Copy what is intact in the store at `path` into a new one at `to`. Blocks; holds everything in memory.

    Raises ConfigError if the one is open or missing or the other exists, StoreDamaged if no row is found, Broken.
    """
    path, to = (os.path.realpath(checked_path("store", each)) for each in (path, to))
    for name in (to, f"{to}-wal"):
        if os.path.lexists(name):
            raise ConfigError("store", f"{name} exists already", to)
    if not any(Path(name).exists() for name in (path, f"{path}-wal")):
        raise ConfigError("store", f"{path} does not exist", path)
    lock = Lock(path)
    try:
        found = _Found()
        for row in page_scan.rows(_bytes(path), _bytes(f"{path}-wal")):
            found.take(*row)
        if not (found.facts or found.documents):
            raise StoreDamaged(path, "it contains no row of a store", "file")
        return _write(path, to, found, lock)
    except (OSError, sqlite3.Error) as error:
        raise translated(error, path) from error
    finally:
        lock.close()


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return b""


# ---- found rows ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Document:
    head: Head | None = None
    name: str = ""
    records: dict[int, bytes] = field(default_factory=dict)
    contents: dict[int, tuple[bytes, Versions]] = field(default_factory=dict)
    saved: dict[int, tuple[Saved, int]] = field(default_factory=dict)
    past: dict[int, list[Entry]] = field(default_factory=dict)


class _Found:
    """The rows found, by document. Rows written once: any copy is valid; rewritten rows: the newest counts."""

    def __init__(self) -> None:
        self.facts: Facts | None = None
        self.owners: dict[int, bytes] = {}
        self.documents: dict[int, _Document] = {}

    def take(self, table: Table, at: int, content: bytes) -> None:
        try:
            if table is FACTS and at > 1:
                row_format.decode_owner(content)
                self.owners[at] = content
            elif table is FACTS:
                facts = row_format.decode_facts(content)
                if self.facts is None or (facts.ticket, facts.epoch) > (self.facts.ticket, self.facts.epoch):
                    self.facts = facts
            elif table in (HEADS, NAMES):
                self._take_head(self.documents.setdefault(at, _Document()), table, content)
            else:
                number, within = unkey(at)
                self._take_part(self.documents.setdefault(number, _Document()), table, within, content)
        except Unsound:  # with a valid seal: from another version of nngkit
            pass

    def _take_head(self, document: _Document, table: Table, content: bytes) -> None:
        if table is NAMES:
            document.name = content.decode()
            return
        head = row_format.decode_head(content)
        if document.head is None or head.ticket > document.head.ticket:
            document.head = head

    def _take_part(self, document: _Document, table: Table, at: int, content: bytes) -> None:
        if table is RECORDS:
            document.records.setdefault(at, content)
        elif table is CONTENTS and at not in document.contents:
            document.contents[at] = row_format.decode_content(content)
        elif table is SAVED and at not in document.saved:
            document.saved[at] = row_format.decode_saved(content)
        elif table is PAST:
            entries = row_format.decode_history(content)
            if len(entries) > len(document.past.get(at, ())):
                document.past[at] = entries


# ---- reconstruction --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Chain:
    """A document built from one starting point: the records kept, and the resulting versions."""

    base: bytes | None
    start: Versions
    have: Versions
    kept: list[bytes]
    lost: int = 0
    left_out: int = 0

    @property
    def worth(self) -> int:
        """Number of edits it contains."""
        return sum(self.have.values())


def _chain(document: _Document, base: tuple[bytes, Versions] | None, first: int, last: int, broken: bool) -> _Chain:
    """Apply records `first` to `last` on top of `base`; `broken`: something before them is missing."""
    update, start = base or (None, {})
    chain = _Chain(update, start, dict(start), [])
    waiting: list[Record | Merge] = []
    for at in range(first, last + 1):
        if (content := document.records.get(at)) is None:
            chain.lost += 1
            broken = True
            continue
        record = decode_record(content)
        if not broken or _fits(record, content, chain.have):
            chain.kept.append(content)
            add(chain.have, record)
        else:
            waiting.append(record)
    chain.left_out = sum(not _has(chain.have, record) for record in waiting)
    return chain


def _fits(record: Record | Merge, content: bytes, have: Versions) -> bool:
    """Return True if all dependencies are there, and the record itself is not."""
    if _has(have, record):
        return False
    if isinstance(record, Merge):
        base = row_format.base_of(content)
        return base is not None and covers(have, base)
    return have.get(record.stream, 0) == record.seq - 1 and covers(have, record.deps)


def _has(have: Versions, record: Record | Merge) -> bool:
    if isinstance(record, Merge):
        return covers(have, record.versions)
    return have.get(record.stream, 0) >= record.seq


def _best(document: _Document) -> tuple[_Chain, str]:
    """Return the chain that keeps most, and remarks on it."""
    head = document.head
    known = head or Head("", first=min(document.records, default=1))
    last = max(known.last, max(document.records, default=0))
    why = "" if head else "its head is lost, and so the number of its records"
    choices: list[tuple[_Chain, str]] = []
    if head is None or not head.snapshot or head.snapshot in document.contents:
        base = document.contents.get(known.snapshot)
        chain = _chain(document, base, known.through + 1, last, broken=known.first > known.through + 1)
        if head is not None and not chain.lost:
            return chain, why
        choices.append((chain, why))
    else:
        why = "its snapshot is lost"
    # Something is missing: other snapshots and saved versions may contain it.
    another = why or "it begins with another snapshot, which contains more than its own"
    choices.append((_chain(document, None, 1, last, broken=False), another))
    choices += [
        (_chain(document, base, known.first, last, broken=True), another) for base in document.contents.values()
    ]
    return max(choices, key=lambda choice: choice[0].worth)


# ---- the new file ----------------------------------------------------------------------------------------------------


def _write(path: str, to: str, found: _Found, lock: Lock) -> Report:
    chance = random.SystemRandom()
    old = found.facts
    facts = Facts(old.origin if old else chance.randbytes(ORIGIN), old.epoch if old else 0, chance.randbytes(8))
    # Each transaction writes its ticket into the facts and into a head; a torn one perhaps into only one of them.
    taken = max((each.head.ticket for each in found.documents.values() if each.head), default=0)
    if old is not None:
        taken = max(taken, old.ticket, lock.marked(old.file))
    missing = max(0, taken - sum(map(_appends, found.documents.values())))
    documents: list[Recovered] = []
    rows: list[page_scan.SealedRow] = []
    heads: list[Head] = []
    names: set[str] = set()
    for at, document in sorted(found.documents.items()):
        name = document.name or (document.head.name if document.head else "") or f"recovered-{at}"
        while name in names:  # impossible, except in a file made by hand
            name = f"recovered-{at}-{chance.randrange(1 << 32)}"
        names.add(check_name(name))
        facts.documents += 1
        report, head, these = _document(facts.documents, name, document)
        documents.append(report)
        heads.append(head)
        rows += these
        for content in document.records.values():
            record = decode_record(content)
            if isinstance(record, Record) and record.stream.origin == facts.origin:
                facts.epoch = max(facts.epoch, record.stream.epoch)
    facts.ticket = sum(head.last + head.contents for head in heads)  # so that the new file can be accounted for as well
    for at, head in enumerate(heads, 1):
        head.ticket = facts.ticket
        rows.append((HEADS, at, row_format.encode_head(head)))
    rows += [(FACTS, at, content) for at, content in enumerate(found.owners.values(), 2)]
    create(to, facts, rows)
    if old is not None:
        documents += _nameless(old.documents - len(found.documents))
    known = old is not None and all(document.head for document in found.documents.values())
    return Report(path, to, tuple(documents), missing if known else None, old is not None)


def _nameless(count: int) -> Iterator[Recovered]:
    for _ in range(count):
        yield Recovered("?", 0, why="no trace of it is found, not even its name")


def _appends(document: _Document) -> int:
    """Return how many tickets a document has taken, as far as it is known from what is found of it."""
    head = document.head or Head("")
    last = max(head.last, max(document.records, default=0))
    return last + max(head.contents, max(document.contents, default=0))


def _document(number: int, name: str, document: _Document) -> tuple[Recovered, Head, list[page_scan.SealedRow]]:
    """Return the report on a document, and its head and its other rows under `number` in the new file."""
    chain, why = _best(document)
    known = document.head or Head("")
    past = [entry for _, entries in sorted(document.past.items()) for entry in entries]
    first = len(past) + 1
    head = Head(name, first, first - 1 + len(chain.kept), first - 1)
    rows: list[page_scan.SealedRow] = [(NAMES, number, name.encode())]

    def put(table: Table, at: int, content: bytes) -> None:
        rows.append((table, key(number, at), content))

    for at, content in enumerate(chain.kept, first):
        put(RECORDS, at, content)
        head.log += len(seal(RECORDS, at, content))
    for start in range(0, len(past), CHUNK):
        put(PAST, start // CHUNK, row_format.encode_history(past[start : start + CHUNK]))
    if chain.base is not None:
        content = row_format.encode_content(chain.base, chain.start)
        head.snapshot = head.contents = 1
        head.size = len(content)
        put(CONTENTS, 1, content)
    for _, (saved, at) in sorted(document.saved.items()):
        if at in document.contents:
            head.saved += 1
            head.contents += 1
            put(SAVED, head.saved, row_format.encode_saved(saved, head.contents))
            put(CONTENTS, head.contents, row_format.encode_content(*document.contents[at]))
    saved_lost = max(known.saved, max(document.saved, default=0)) - head.saved
    report = Recovered(name, len(chain.kept), chain.lost, chain.left_out, head.saved, saved_lost, why)
    return report, head, rows
