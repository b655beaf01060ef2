"""Shared by the tests of the store: edits of real documents, an engine for compaction, a blocked disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pycrdt import Doc, Text, TransactionEvent

from nngkit.documents.store import Loaded, Merge, Record, Store
from nngkit.documents.versions import EditStream, Versions

PROGRAMS = Path(__file__).with_name("programs")
WAIT = 20.0  # seconds per operation, on a busy machine
ADA, BOB = EditStream(b"adaadaad", 7), EditStream(b"bobbobbo", 9)


def edit(seq: int, stream: EditStream = ADA, update: bytes = b"an update", deps: Versions | None = None) -> Record:
    return Record(stream, seq, update, deps or {})


def mine(store: Store) -> EditStream:
    return EditStream(store.origin, store.epoch)


@contextmanager
def standing_still(path: Path) -> Iterator[None]:
    """Block the store's writer on a lock during the block."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        other.execute("BEGIN IMMEDIATE")
        yield
    finally:
        other.close()


class TextDocument:
    """One text, as compaction needs it."""

    def __init__(self) -> None:
        self._doc: Doc[Text] = Doc()
        self._text = self._doc.get("text", type=Text)

    def apply(self, update: bytes, origin: object = None) -> None:
        self._doc.apply_update(update)

    def changes_since(self, state: bytes | None = None) -> bytes:
        return self._doc.get_update(state)

    def digest(self) -> bytes:
        return str(self._text).encode()


class TextEngine:
    def new(self, client_id: int | None = None) -> TextDocument:
        return TextDocument()


class Author:
    """An author: `type` returns the update of each edit."""

    def __init__(self, *before: bytes) -> None:
        self._doc: Doc[Text] = Doc()
        self.text = self._doc.get("text", type=Text)
        for update in before:
            self._doc.apply_update(update)
        self._updates: list[bytes] = []
        self._watching = self._doc.observe(self._saw)

    def _saw(self, event: TransactionEvent) -> None:
        self._updates.append(event.update)

    def type(self, what: str) -> bytes:
        self.text += what
        return self._updates.pop()

    def whole(self) -> bytes:
        return self._doc.get_update()


def content(loaded: Loaded) -> str:
    """Return the text of a loaded document."""
    return str(Author(*updates(loaded)).text)


def updates(loaded: Loaded) -> Iterator[bytes]:
    if loaded.snapshot is not None:
        yield loaded.snapshot
    for record in loaded.records:
        yield record.update


def append_all(store: Store, doc: str, records: Iterable[Record | Merge]) -> int:
    """Append all; return the last ticket."""
    for record in records:
        if isinstance(record, Merge):
            store.append_merge(doc, record.update, record.versions)
        else:
            store.append(doc, record)
    return store.ticket()
