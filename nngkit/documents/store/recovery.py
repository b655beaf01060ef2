"""What is good of a damaged store, copied into a new one; the damaged file stays as it is.

::

    report = recover("docs.sqlite", "recovered.sqlite")
    if not report.whole:
        print(report)       # which documents, how much of each is lost or left out, and why

What is kept. All snapshots, saved versions and records that have a right seal are found (``_pages.py``). A document
begins with its snapshot; where that is lost, with the fullest of what other snapshots and saved versions are found, or
with nothing. Up to the first loss its records are kept as they are. Behind it a record is kept only if all before it in
its stream is there, and all its ``deps``; a diff only if all is there that the document had before it. Whatever cannot
be put together that way is left out and counted: an engine that is given an update without what it builds on may take
it wrongly. The peers that have it will send it: what the new store says it has ends before the loss.

Acknowledged edits that were written to the log and are found nowhere are told by the mark (``_file.py``): a number of
appends of which nobody knows the documents.

May not know: engines, trio.
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
from nngkit.documents.store.database_file import Lock, create, in_words
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

__all__ = ["Recovered", "Report", "recover"]


@dataclass(frozen=True, slots=True)
class Recovered:
    """One document. ``kept`` records are in the new file; of the old one, ``lost`` are found nowhere, ``left_out`` are
    found and miss something that they build on. ``saved`` versions are kept, ``saved_lost`` are not. ``why``: what
    else is to be told, "" for nothing."""

    name: str
    kept: int
    lost: int = 0
    left_out: int = 0
    saved: int = 0
    saved_lost: int = 0
    why: str = ""

    @property
    def whole(self) -> bool:
        """Nothing of it is missing."""
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
    """What was recovered. ``unaccounted``: appends that were acknowledged, and nothing in the file tells of what;
    None where that cannot be known. ``same_origin``: the new store writes as the old one did, or as somebody else."""

    path: str
    to: str
    documents: tuple[Recovered, ...]
    unaccounted: int | None
    same_origin: bool

    @property
    def whole(self) -> bool:
        """Nothing that was acknowledged is missing."""
        return self.unaccounted == 0 and self.same_origin and all(document.whole for document in self.documents)

    def __str__(self) -> str:
        lines = [f"{self.path} -> {self.to}", *map(str, self.documents)]
        if self.unaccounted is None:
            lines.append("whether more was acknowledged cannot be told")
        elif self.unaccounted:
            lines.append(f"{self.unaccounted} more appends were acknowledged, and are found nowhere")
        if not self.same_origin:
            lines.append("whose store it was is lost: the new one has an origin of its own")
        return "\n".join(lines)


def recover(path: str | os.PathLike[str], to: str | os.PathLike[str]) -> Report:
    """Copy what is good of the store at `path` into a new one at `to`. Blocks; has all of it in memory meanwhile.

    Raises ConfigError where the one is open or missing or the other exists, StoreDamaged where no row is found at all,
    Broken.
    """
    path, to = os.path.realpath(path), os.path.realpath(to)
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
            raise StoreDamaged(path, "nothing in it is of a store", "file")
        return _write(path, to, found, lock)
    except (OSError, sqlite3.Error) as error:
        raise in_words(error, path) from error
    finally:
        lock.close()


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return b""


# ---- what is found ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Document:
    head: Head | None = None
    name: str = ""
    records: dict[int, bytes] = field(default_factory=dict)
    contents: dict[int, tuple[bytes, Versions]] = field(default_factory=dict)
    saved: dict[int, tuple[Saved, int]] = field(default_factory=dict)
    past: dict[int, list[Entry]] = field(default_factory=dict)


class _Found:
    """The rows, by document. Of what is written once, any is right; of what is written anew, the newest."""

    def __init__(self) -> None:
        self.facts: Facts | None = None
        self.documents: dict[int, _Document] = {}

    def take(self, table: Table, at: int, content: bytes) -> None:
        try:
            if table is FACTS:
                facts = row_format.decode_facts(content)
                if self.facts is None or (facts.ticket, facts.epoch) > (self.facts.ticket, self.facts.epoch):
                    self.facts = facts
            elif table in (HEADS, NAMES):
                self._take_head(self.documents.setdefault(at, _Document()), table, content)
            else:
                number, within = unkey(at)
                self._take_part(self.documents.setdefault(number, _Document()), table, within, content)
        except Unsound:  # with a right seal: of another version of nngkit
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


# ---- what can be put together ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Chain:
    """A document from one beginning on: what has been kept, and what it has by that."""

    base: bytes | None
    start: Versions
    have: Versions
    kept: list[bytes]
    lost: int = 0
    left_out: int = 0

    @property
    def worth(self) -> int:
        """How many edits are in it."""
        return sum(self.have.values())


def _chain(document: _Document, base: tuple[bytes, Versions] | None, first: int, last: int, broken: bool) -> _Chain:
    """The records `first` to `last` on top of `base`; `broken`: something before them is missing."""
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
    """Whether all that it builds on is there, and it is not there itself."""
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
    """What keeps most of it, and what is to be told of it."""
    head = document.head
    known = head or Head("", first=min(document.records, default=1))
    last = max(known.last, max(document.records, default=0))
    why = "" if head else "its head is lost, and with it how many records there were"
    choices: list[tuple[_Chain, str]] = []
    if head is None or not head.snapshot or head.snapshot in document.contents:
        base = document.contents.get(known.snapshot)
        chain = _chain(document, base, known.through + 1, last, broken=known.first > known.through + 1)
        if head is not None and not chain.lost:
            return chain, why
        choices.append((chain, why))
    else:
        why = "its snapshot is lost"
    # Something is missing: what is found of other snapshots and saved versions may have it.
    another = why or "it does not begin with its own snapshot, which has less"
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
    written = max((each.head.ticket for each in found.documents.values() if each.head), default=0)
    facts.ticket = max(written, old.ticket, lock.marked(old.file)) if old else written
    documents: list[Recovered] = []
    rows: list[page_scan.SealedRow] = []
    names: set[str] = set()
    for at, document in sorted(found.documents.items()):
        name = document.name or (document.head.name if document.head else "") or f"recovered-{at}"
        while name in names:  # cannot be, but for a file that was made by hand
            name = f"recovered-{at}-{chance.randrange(1 << 32)}"
        names.add(check_name(name))
        facts.documents += 1
        told, these = _document(facts.documents, name, document, facts.ticket)
        documents.append(told)
        rows += these
        for content in document.records.values():
            record = decode_record(content)
            if isinstance(record, Record) and record.stream.origin == facts.origin:
                facts.epoch = max(facts.epoch, record.stream.epoch)
    create(to, facts, rows)
    missing = facts.ticket - written
    if old is not None:
        documents += _nameless(old.documents - len(found.documents))
    known = old is not None and all(document.head for document in found.documents.values())
    return Report(path, to, tuple(documents), missing if known else None, old is not None)


def _nameless(count: int) -> Iterator[Recovered]:
    for _ in range(count):
        yield Recovered("?", 0, why="nothing of it is found, not even its name")


def _document(number: int, name: str, document: _Document, ticket: int) -> tuple[Recovered, list[page_scan.SealedRow]]:
    """What is told of a document, and its rows in the new file, where it has `number`."""
    chain, why = _best(document)
    known = document.head or Head("")
    past = [entry for _, entries in sorted(document.past.items()) for entry in entries]
    first = len(past) + 1
    head = Head(name, first, first - 1 + len(chain.kept), first - 1, ticket=ticket)
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
    rows.append((HEADS, number, row_format.encode_head(head)))
    saved_lost = max(known.saved, max(document.saved, default=0)) - head.saved
    told = Recovered(name, len(chain.kept), chain.lost, chain.left_out, head.saved, saved_lost, why)
    return told, rows
