"""The files of a store: created, locked, checked before anything is written, opened.

::

    docs.sqlite         the database
    docs.sqlite-wal     SQLite's write-ahead log, not in the database yet; empty or absent after a clean end
    docs.sqlite-shm     SQLite's shared memory, worthless without a process
    docs.sqlite-lock    the lock, and the *mark*: the last append that was acknowledged

The mark detects a truncated log. SQLite silently ends its log at the first frame with a wrong checksum, as a crash may
have torn it; so a flipped bit there, or a log that was truncated or not copied, would silently lose acknowledged edits.
The mark is written after each sync, before the acknowledgement, and never synced itself. So it never claims too much;
after the death of a process it is exact; after a power cut it is at most some seconds old.

Knows neither documents nor trio nor threads.
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
    NAMES,
    SCHEMA,
    TABLES,
    Facts,
    Head,
    Table,
    Unsound,
    decode_facts,
    decode_head,
    decode_owner,
    encode_facts,
    seal,
    unseal,
)
from nngkit.errors import Broken, ConfigError, NngkitError, StoreDamaged
from nngkit.file_modes import make_file, mode

APPLICATION: Final = 0x6E6E6764  # "nngd", in the header of the file
CACHE: Final = 512  # KiB of pages, in place of 2,000: what was written is not read again until a compaction
LOG: Final = 4 << 20  # bytes of SQLite's log file that are kept for reuse: SQLite's own 1,000 pages
_BUSY: Final = 5.0  # seconds to wait for a lock of another program (the sqlite3 shell)
_MARK: Final = struct.Struct(">8sQ8s")  # file, ticket, check

_SCHEMA = {table: f"CREATE TABLE {table} (key INTEGER PRIMARY KEY, body BLOB NOT NULL)" for table in TABLES}

# Constant parts of our header, with their offsets: https://www.sqlite.org/fileformat2.html
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


def translated(error: Exception, path: str) -> NngkitError:
    """Translate an error of SQLite or the system."""
    if isinstance(error, NngkitError):
        return error
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged(path, str(error), "SQLite")
    name = getattr(error, "sqlite_errorname", "")
    return Broken(f"{path}: {getattr(error, 'strerror', None) or error}{f' ({name})' if name else ''}")


class Lock:
    """Exclusive lock of a store; the operating system releases it at the end of the process.

    Raises ConfigError if another process has it, this process has it already, or it cannot be created.
    """

    def __init__(self, path: str) -> None:
        self.path = f"{path}-lock"
        self._pid = os.getpid()
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode())
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
        """Record that everything up to `ticket` is acknowledged."""
        os.pwrite(self._fd, _MARK.pack(file, ticket, _check(file, ticket)), 0)

    def marked(self, file: bytes) -> int:
        """Return the ticket acknowledged for `file` when the lock was taken; 0 if unknown."""
        return self._marked[1] if self._marked[0] == file else 0

    def close(self) -> None:
        """Release the lock. In a forked child, the parent keeps its own."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            if self._pid == os.getpid():  # a child that was just forked may still have the descriptor, and so the lock
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


def _check(file: bytes, ticket: int) -> bytes:
    return blake2b(file + ticket.to_bytes(8, "big"), digest_size=8).digest()


def _unmark(said: bytes) -> tuple[bytes, int]:
    if len(said) == _MARK.size:
        file, ticket, check = _MARK.unpack(said)
        if check == _check(file, ticket):
            return file, ticket
    return b"", 0  # absent, or torn by a power cut: it is never synced


# ---- creating and opening---------------------------------------------------------------------------------------------


def create(path: str, facts: Facts, rows: Iterable[tuple[Table, int, bytes]] = ()) -> None:
    """Create a store with `rows` of content; it is complete and synced before it gets its name. Raises Broken."""
    making = f"{path}-new"
    try:
        for leftover in (making, f"{making}-wal", f"{making}-shm"):
            Path(leftover).unlink(missing_ok=True)
        make_file(making)
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
        raise translated(error, path) from error


def connect(path: str, *, only_read: bool = False) -> sqlite3.Connection:
    """Open a connection with the pragmas of the store; docs/documents.md gives the reasons.

    With ``only_read``, the last connection to close does not checkpoint the log, and so changes nothing.
    """
    address = f"file:{quote(os.fsencode(path))}?mode={'ro' if only_read else 'rw'}"
    connection = sqlite3.connect(address, uri=True, timeout=_BUSY, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA cache_size = -{CACHE}")
        connection.execute(f"PRAGMA journal_size_limit = {LOG}")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def read_row(connection: sqlite3.Connection, path: str, table: Table, key: int, where: str) -> bytes:
    """Return the content of a row. Raises StoreDamaged if it is missing or altered."""
    row = connection.execute(f"SELECT body FROM {table} WHERE key = ?", (key,)).fetchone()
    try:
        if row is None:
            raise Unsound("is missing")
        return unseal(table, key, row[0])
    except Unsound as error:
        raise StoreDamaged(path, str(error), where) from error


# ---- checking --------------------------------------------------------------------------------------------------------


def check(path: str, lock: Lock) -> tuple[Facts, dict[int, Head], dict[str, StoreDamaged]]:
    """Check the metadata, without writing; return it, and the damage of single heads. Raises StoreDamaged, Broken.

    A damaged head is empty but for its name. The records and snapshots of a document are checked when they are loaded.
    """
    _check_header(path)
    try:
        with closing(connect(path, only_read=True)) as connection:
            return _check_database(connection, path, lock)
    except (sqlite3.Error, OSError) as error:
        raise translated(error, path) from error


def _check_header(path: str) -> None:
    """Check the header without SQLite: a flipped bit in it can select another format, or disable the log.

    This process must have no connection open: closing the file would release SQLite's locks on it.
    """
    try:
        with open(path, "rb") as file:
            header = file.read(100)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            raise ConfigError("store", f"{path}: {error.strerror}", path) from error
        raise StoreDamaged(path, "it does not exist, but its log does", f"{path}-wal") from error
    if len(header) < 100:
        raise StoreDamaged(path, f"it has {len(header)} bytes", "header")
    for start, expected, otherwise in _HEADER:
        if header[start : start + len(expected)] != expected:
            raise StoreDamaged(path, otherwise, "header")
    version = int.from_bytes(header[_VERSION], "big")
    if version != SCHEMA:
        raise StoreDamaged(path, f"its version is {version}; this nngkit supports {SCHEMA}", "header")


def _check_database(
    connection: sqlite3.Connection, path: str, lock: Lock
) -> tuple[Facts, dict[int, Head], dict[str, StoreDamaged]]:
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
    damaged: dict[str, StoreDamaged] = {}
    for key, body in connection.execute("SELECT key, body FROM heads ORDER BY key"):
        try:
            heads[key] = decode_head(unseal(HEADS, key, body))
        except Unsound as error:
            name = read_row(connection, path, NAMES, key, f"head and name of document {key}").decode(errors="replace")
            damaged[name] = StoreDamaged(path, str(error), f"head of {name!r}")
            heads[key] = Head(name)
    if list(heads) != list(range(1, facts.documents + 1)):
        raise StoreDamaged(path, f"has {len(heads)} documents instead of {facts.documents}", "heads")
    newest = max((head.ticket for head in heads.values()), default=facts.ticket)
    if newest > facts.ticket or (newest < facts.ticket and not damaged):
        raise StoreDamaged(path, f"end at append {facts.ticket}, but the documents at {newest}", "facts")
    return facts, heads, damaged


def _behind(path: str, ticket: int, marked: int, lock: str) -> NoReturn:
    why = (
        f"it ends at append {ticket}, but {marked} was acknowledged: its log ({path}-wal) is damaged, truncated or"
        f" missing; if this is an older copy, delete {lock}"
    )
    raise StoreDamaged(path, why, "log")


def owners(connection: sqlite3.Connection, path: str) -> dict[bytes, tuple[int, str]]:
    """Return the key and the name of the owner of each origin, oldest first. Raises StoreDamaged."""
    found: dict[bytes, tuple[int, str]] = {}
    for key, body in connection.execute("SELECT key, body FROM facts WHERE key > 1 ORDER BY key"):
        try:
            origin, name = decode_owner(unseal(FACTS, key, body))
        except Unsound as error:
            raise StoreDamaged(path, str(error), "owners of origins") from error
        found[origin] = key, name
    return found


def sizes(path: str) -> int:
    """Return the bytes on disk, including the log."""
    total = 0
    for name in (path, f"{path}-wal"):
        with suppress(OSError):
            total += os.stat(name).st_size
    return total
