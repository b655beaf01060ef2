"""A store's file on the disk: made whole, locked, looked through before anything is written, opened.

::

    docs.sqlite         the database
    docs.sqlite-wal     SQLite's log of what is not in the database yet; empty or gone after a clean end
    docs.sqlite-shm     SQLite's, worth nothing without a process
    docs.sqlite-lock    the lock, and the *mark*: the last append that was acknowledged

Why a mark: SQLite ends its log at the first frame whose checksum is wrong, as a crash may have torn it, and says
nothing. A flipped bit there, or a log that was cut or not copied along, would silently take acknowledged edits with it.
The mark is written after each sync and before the acknowledgement, and never synced itself: so it never says too much,
after the death of a process it says exactly what was acknowledged, and after a power cut at least what was some seconds
before.

May not know: documents, trio, threads.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import struct
from collections.abc import Iterable
from contextlib import closing, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import quote

from nngkit.documents.store.page_scan import PAGE
from nngkit.documents.store.row_format import (
    FACTS,
    HEADS,
    SCHEMA,
    TABLES,
    Facts,
    Head,
    Table,
    Unsound,
    decode_facts,
    decode_head,
    encode_facts,
    seal,
    unseal,
)
from nngkit.errors import Broken, ConfigError, NngkitError, StoreDamaged

__all__ = ["APPLICATION", "LOG", "Lock", "check", "connect", "create", "in_words", "read_row"]

APPLICATION: Final = 0x6E6E6764  # "nngd", in the header of the file
LOG: Final = 4 << 20  # bytes of SQLite's log that are kept for the next one: SQLite's own 1,000 pages
_BUSY: Final = 5.0  # seconds to wait for another program (the sqlite3 shell) that holds a lock
_MARK: Final = struct.Struct(">8sQ8s")  # file, ticket, check

_SCHEMA = {table: f"CREATE TABLE {table} (key INTEGER PRIMARY KEY, body BLOB NOT NULL)" for table in TABLES}

# What our own header always says, and its offset: https://www.sqlite.org/fileformat2.html
_HEADER: Final = (
    (0, b"SQLite format 3\0", "it is not an SQLite database"),
    (16, PAGE.to_bytes(2, "big"), "its page size is not the one of a store"),
    (18, b"\2\2", "its journal mode is not WAL"),
    (20, b"\0\x40\x20\x20", "its header is not the one of a store"),
    (44, b"\0\0\0\4", "its format is not the one of a store"),
    (56, b"\0\0\0\1", "its encoding is not UTF-8"),
    (68, APPLICATION.to_bytes(4, "big"), "it is not a store of documents"),
)
_VERSION: Final = slice(60, 64)


def in_words(error: Exception, path: str) -> NngkitError:
    """An error of SQLite or of the system as one of ours."""
    if isinstance(error, NngkitError):
        return error
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged(path, str(error), "SQLite")
    name = getattr(error, "sqlite_errorname", "")
    return Broken(f"{path}: {getattr(error, 'strerror', None) or error}{f' ({name})' if name else ''}")


class Lock:
    """That this process alone has the store. It ends with the process, whatever it dies of.

    Raises ConfigError where another has it, or this process has it open already; Broken where it cannot be made.
    """

    def __init__(self, path: str) -> None:
        self.path = f"{path}-lock"
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise ConfigError("store", f"{self.path}: {error.strerror}", path) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            said = os.pread(self._fd, _MARK.size, 0)
        except BlockingIOError as error:
            os.close(self._fd)
            raise ConfigError("store", f"{path} is open already, here or in another process", path) from error
        except OSError as error:
            os.close(self._fd)
            raise ConfigError("store", f"{self.path} cannot be locked: {error.strerror}", path) from error
        self._marked = _unmark(said)

    def mark(self, file: bytes, ticket: int) -> None:
        """Write down that all up to `ticket` is acknowledged."""
        os.pwrite(self._fd, _MARK.pack(file, ticket, _check(file, ticket)), 0)

    def marked(self, file: bytes) -> int:
        """Up to what `file` was acknowledged when the lock was taken; 0 if that is not known."""
        return self._marked[1] if self._marked[0] == file else 0

    def close(self) -> None:
        """Let go of it. In a forked child: of the child's part of it, the parent keeps its own."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _check(file: bytes, ticket: int) -> bytes:
    return blake2b(file + ticket.to_bytes(8, "big"), digest_size=8).digest()


def _unmark(said: bytes) -> tuple[bytes, int]:
    if len(said) == _MARK.size:
        file, ticket, check = _MARK.unpack(said)
        if check == _check(file, ticket):
            return file, ticket
    return b"", 0  # none, or torn by a power cut: it was never synced


# ---- making and opening ----------------------------------------------------------------------------------------------


def create(path: str, facts: Facts, rows: Iterable[tuple[Table, int, bytes]] = ()) -> None:
    """Make a store with `rows` of content, whole and synced before it has its name. Raises Broken."""
    making = f"{path}-new"
    try:
        for leftover in (making, f"{making}-wal", f"{making}-shm"):
            Path(leftover).unlink(missing_ok=True)
        with closing(sqlite3.connect(making, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE}")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {SCHEMA}")
            for statement in _SCHEMA.values():
                connection.execute(statement)
            for table, key, content in (*rows, (FACTS, 1, encode_facts(facts))):
                connection.execute(f"INSERT INTO {table} VALUES (?, ?)", (key, seal(table, key, content)))
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        os.rename(making, path)
        directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except (sqlite3.Error, OSError) as error:
        raise in_words(error, path) from error


def connect(path: str, *, only_read: bool = False) -> sqlite3.Connection:
    """A connection as the store uses it; docs/documents.md says why the pragmas are what they are.

    With ``only_read`` the last one to close does not write the log into the database, and so leaves all as it is.
    """
    address = f"file:{quote(path)}?mode={'ro' if only_read else 'rw'}"
    connection = sqlite3.connect(address, uri=True, timeout=_BUSY, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA journal_size_limit = {LOG}")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def read_row(connection: sqlite3.Connection, path: str, table: Table, key: int, where: str) -> bytes:
    """The content of one row. Raises StoreDamaged where it is missing or not as it was written."""
    row = connection.execute(f"SELECT body FROM {table} WHERE key = ?", (key,)).fetchone()
    try:
        if row is None:
            raise Unsound("is missing")
        return unseal(table, key, row[0])
    except Unsound as error:
        raise StoreDamaged(path, str(error), where) from error


# ---- looking it through ----------------------------------------------------------------------------------------------


def check(path: str, lock: Lock) -> tuple[Facts, dict[int, Head]]:
    """Read all that says what must be there, and write nothing. Raises StoreDamaged, Broken.

    Not in here: the records and snapshots of each document, which are checked when they are loaded.
    """
    _check_header(path)
    try:
        with closing(connect(path, only_read=True)) as connection:
            return _check_database(connection, path, lock)
    except (sqlite3.Error, OSError) as error:
        raise in_words(error, path) from error


def _check_header(path: str) -> None:
    """By hand and before SQLite: a flipped bit in here can make it read another format, or leave its log aside.

    No connection of this process may be open: closing the file here would end the locks that SQLite has on it.
    """
    try:
        with open(path, "rb") as file:
            header = file.read(100)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            raise ConfigError("store", f"{path}: {error.strerror}", path) from error
        raise StoreDamaged(path, "it is gone, but its log is there", f"{path}-wal") from error
    if len(header) < 100:
        raise StoreDamaged(path, f"it has {len(header)} bytes", "header")
    for start, expected, otherwise in _HEADER:
        if header[start : start + len(expected)] != expected:
            raise StoreDamaged(path, otherwise, "header")
    version = int.from_bytes(header[_VERSION], "big")
    if version != SCHEMA:
        raise StoreDamaged(path, f"its version is {version}, and {SCHEMA} is the one known here", "header")


def _check_database(connection: sqlite3.Connection, path: str, lock: Lock) -> tuple[Facts, dict[int, Head]]:
    connection.execute("BEGIN")
    found = dict(connection.execute("SELECT name, sql FROM sqlite_schema"))
    if found != _SCHEMA:
        raise StoreDamaged(path, "its tables are not those of a store", "schema")
    if (said := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        raise StoreDamaged(path, said.replace("\n", " "), "pages")
    try:
        facts = decode_facts(read_row(connection, path, FACTS, 1, "facts"))
    except Unsound as error:
        raise StoreDamaged(path, str(error), "facts") from error
    if (marked := lock.marked(facts.file)) > facts.ticket:
        _behind(path, facts.ticket, marked, lock.path)
    heads: dict[int, Head] = {}
    for key, body in connection.execute("SELECT key, body FROM heads ORDER BY key"):
        try:
            heads[key] = decode_head(unseal(HEADS, key, body))
        except Unsound as error:
            raise StoreDamaged(path, str(error), f"head of document {key}") from error
    if list(heads) != list(range(1, facts.documents + 1)):
        raise StoreDamaged(path, f"has {len(heads)} documents where {facts.documents} were written", "heads")
    newest = max((head.ticket for head in heads.values()), default=facts.ticket)
    if newest != facts.ticket:
        raise StoreDamaged(path, f"end at append {facts.ticket}, and the documents at {newest}", "facts")
    return facts, heads


def _behind(path: str, ticket: int, marked: int, lock: str) -> NoReturn:
    why = (
        f"it ends at append {ticket}, and all up to {marked} was acknowledged: its log ({path}-wal) is damaged, was cut"
        f" or was left behind; or this is an older copy, and then {lock} is to be deleted"
    )
    raise StoreDamaged(path, why, "log")


def sizes(path: str) -> int:
    """Bytes on the disk, the log included."""
    total = 0
    for name in (path, f"{path}-wal"):
        with suppress(OSError):
            total += os.stat(name).st_size
    return total
