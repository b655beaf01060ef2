"""Reading a store: one connection, one transaction per query, every row verified.

A query reads one commit, unaffected by concurrent writes, and never waits for the writer. Missing or altered rows raise
StoreDamaged with the document and the row. Knows neither trio nor what is queued for writing.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nngkit.documents.records import Entry, Saved
from nngkit.documents.store import row_format
from nngkit.documents.store.database_file import connect, translated
from nngkit.documents.store.row_format import (
    CHUNK,
    CONTENTS,
    HEADS,
    PAST,
    RECORDS,
    SAVED,
    Head,
    Table,
    Unsound,
    key,
    unseal,
)
from nngkit.documents.versions import Versions
from nngkit.errors import Closed, StoreDamaged


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as committed. ``rows``: the contents of its records, from ``head.first`` on."""

    head: Head
    snapshot: bytes | None
    versions: Versions
    rows: tuple[bytes, ...]


class StoreReader:
    """Reader for any thread; queries are serialized."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._asking = threading.Lock()
        self._connection: sqlite3.Connection | None = connect(path)

    def close(self) -> None:
        with self._asking:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def document(self, number: int, name: str, *, new: bool = False) -> StoredDocument:
        """Return document `number`. `new`: it may not be committed yet."""
        with self._transaction() as connection:
            head = self._head(connection, number, name, new)
            snapshot: bytes | None = None
            versions: Versions = {}
            if head.snapshot:
                where = f"snapshot of {name!r}"
                with self._reading(where):
                    content = self._row(connection, CONTENTS, key(number, head.snapshot))
                    snapshot, versions = row_format.decode_content(content)
            rows = tuple(self._range(connection, RECORDS, number, head.first, head.last, f"record {{}} of {name!r}"))
        return StoredDocument(head, snapshot, versions, rows)

    def saved(self, number: int, name: str, *, new: bool = False) -> list[tuple[Saved, int]]:
        """Return the saved versions of a document, each with the number of its content."""
        with self._transaction() as connection:
            head = self._head(connection, number, name, new)
            where = f"saved version {{}} of {name!r}"
            found = []
            for at, content in enumerate(self._range(connection, SAVED, number, 1, head.saved, where), 1):
                with self._reading(where.format(at)):
                    found.append(row_format.decode_saved(content))
            return found

    def content(self, number: int, at: int, where: str) -> bytes:
        """Return the bytes of a saved version."""
        with self._transaction() as connection, self._reading(where):
            return row_format.decode_content(self._row(connection, CONTENTS, key(number, at)))[0]

    def history(self, number: int, name: str, *, new: bool = False) -> list[Entry]:
        """Return one entry per record, oldest first."""
        with self._transaction() as connection:
            head = self._head(connection, number, name, new)
            entries = self._past(connection, number, name, head)
            where = f"record {{}} of {name!r}"
            rows = self._range(connection, RECORDS, number, head.first, head.last, where)
            for at, content in enumerate(rows, head.first):
                with self._reading(where.format(at)):
                    entries.append(row_format.entry_of(content))
            return entries

    def past(self, number: int, name: str, chunk: int) -> list[Entry]:
        """Return one chunk of the history; empty if there is none."""
        with self._transaction() as connection, self._reading(f"history {chunk} of {name!r}"):
            try:
                return row_format.decode_history(self._row(connection, PAST, key(number, chunk)))
            except _Missing:
                return []

    # Rows

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._asking:
            connection = self._connection
            if connection is None:
                raise Closed(f"{self._path} was closed")
            try:
                connection.execute("BEGIN")
                try:
                    yield connection
                finally:
                    connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise translated(error, self._path) from error

    @contextmanager
    def _reading(self, where: str) -> Iterator[None]:
        try:
            yield
        except Unsound as error:
            raise StoreDamaged(self._path, str(error), where) from error

    def _row(self, connection: sqlite3.Connection, table: Table, key: int) -> bytes:
        row = connection.execute(f"SELECT body FROM {table} WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise _Missing("is missing")
        return unseal(table, key, row[0])

    def _head(self, connection: sqlite3.Connection, number: int, name: str, new: bool) -> Head:
        with self._reading(f"head of {name!r}"):
            try:
                return row_format.decode_head(self._row(connection, HEADS, number))
            except _Missing:
                if new:
                    return Head(name)
                raise

    def _range(
        self, connection: sqlite3.Connection, table: Table, number: int, first: int, last: int, where: str
    ) -> Iterator[bytes]:
        """Yield the contents of rows `first` to `last`, which must all exist, with nothing after them."""
        select = f"SELECT key, body FROM {table} WHERE key BETWEEN ? AND ? ORDER BY key"
        rows = connection.execute(select, (key(number, 0), key(number + 1, 0) - 1))
        at = first
        for found, body in rows:
            expected = key(number, at)
            if found != expected:
                break
            try:  # inlined: _reading() costs as much as the rest of the loop
                content = unseal(table, found, body)
            except Unsound as error:
                raise StoreDamaged(self._path, str(error), where.format(at)) from error
            yield content
            at += 1
        else:
            if at == last + 1:
                return
        where = where.format(at)
        raise StoreDamaged(self._path, "is missing" if at <= last else "is not expected", where)

    def _past(self, connection: sqlite3.Connection, number: int, name: str, head: Head) -> list[Entry]:
        entries: list[Entry] = []
        if head.past == head.first:
            return entries
        chunks = range((head.past - 1) // CHUNK, (head.first - 2) // CHUNK + 1)
        where = f"history {{}} of {name!r}"
        for chunk, content in zip(
            chunks, self._range(connection, PAST, number, chunks[0], chunks[-1], where), strict=True
        ):
            with self._reading(where.format(chunk)):
                entries += row_format.decode_history(content)
        if len(entries) != head.first - head.past:
            raise StoreDamaged(
                self._path, f"has {len(entries)} entries, not {head.first - head.past}", f"history of {name!r}"
            )
        return entries


class _Missing(Unsound):
    """The row does not exist."""
