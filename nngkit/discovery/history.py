"""History of a daemon: the changes of its providers, in a SQLite file, of which the newest are kept.

::

    history = History("history.sqlite")
    history.add([Change(time.time(), "pay", "tcp://10.0.0.7:9000", "3f9c", "up", "down", "pipe lost")])
    history.read(time.time() - 3600.0, "pay")

All methods wait for the disk: a daemon calls them in threads. The first rows after a daemon's start tell what it finds.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable
from typing import Final, NamedTuple

from nngkit.errors import ConfigError
from nngkit.file_modes import checked_path

MOST: Final = 100_000  # rows: 20 MiB
SLACK: Final = 1_000  # rows beyond them, so that not each addition removes some
FORMAT: Final = 1
PAGE: Final = 256  # rows of one reply

_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS changes (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL,"
    " name TEXT NOT NULL, address TEXT NOT NULL, id TEXT NOT NULL, was TEXT NOT NULL, state TEXT NOT NULL,"
    " reason TEXT NOT NULL)"
)


class Change(NamedTuple):
    """One change of one provider. ``at``: unix time in seconds."""

    at: float
    name: str
    address: str
    id: str
    was: str
    state: str
    reason: str


class History:
    """A file of changes, created with the mode 0600. Raises ConfigError if it cannot be used. Any thread may call."""

    def __init__(self, path: str | os.PathLike[str], most: int = MOST) -> None:
        self._lock = threading.Lock()
        self._most = most
        try:
            with open(checked_path("history", path), "ab", opener=_private):
                pass
            self._base = sqlite3.connect(os.fspath(path), timeout=1.0, check_same_thread=False)
            try:
                self._prepare(path)
            except BaseException:
                self._base.close()
                raise
        except (OSError, sqlite3.Error) as wrong:
            raise ConfigError("history", f"{path}: {getattr(wrong, 'strerror', None) or wrong}", path) from wrong

    def _prepare(self, path: str | os.PathLike[str]) -> None:
        (found,) = self._base.execute("PRAGMA user_version").fetchone()
        if found not in (0, FORMAT):
            raise ConfigError("history", f"{path}: it is of format {found}, this version has {FORMAT}", path)
        self._base.execute("PRAGMA journal_mode = WAL")
        self._base.execute("PRAGMA synchronous = NORMAL")  # a power loss may take the last seconds
        self._base.execute(_TABLE)
        self._base.execute("CREATE INDEX IF NOT EXISTS by_time ON changes (at)")
        self._base.execute(f"PRAGMA user_version = {FORMAT}")

    def add(self, changes: Iterable[Change]) -> None:
        """Store changes, and forget the oldest beyond the cap. Raises ConfigError: the disk is full, or fails."""
        try:
            with self._lock, self._base:  # a transaction
                self._base.executemany("INSERT INTO changes VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", changes)
                first, last = self._base.execute("SELECT min(number), max(number) FROM changes").fetchone()
                if last is not None and last - first >= self._most + SLACK:
                    self._base.execute("DELETE FROM changes WHERE number <= ?", (last - self._most,))
        except sqlite3.Error as wrong:
            raise ConfigError("history", str(wrong)) from wrong

    def read(self, since: float, name: str | None = None, after: int = 0) -> tuple[list[Change], int | None]:
        """Return changes from unix time ``since`` on, those of one service or of all, the oldest first.

        At most PAGE: then the number after which the next ones are read, else None.
        """
        query = (
            "SELECT number, at, name, address, id, was, state, reason FROM changes"
            " WHERE at >= :since AND number > :after AND (:name IS NULL OR name = :name) ORDER BY number LIMIT :most"
        )
        given = {"since": since, "after": after, "name": name, "most": PAGE + 1}
        try:
            with self._lock:
                rows = self._base.execute(query, given).fetchall()
        except sqlite3.Error as wrong:
            raise ConfigError("history", str(wrong)) from wrong
        more = len(rows) > PAGE
        return [Change(*row[1:]) for row in rows[:PAGE]], rows[PAGE - 1][0] if more else None

    def newest(self, most: int) -> list[Change]:
        """Return the newest changes, at most ``most``, the oldest of them first. Raises ConfigError."""
        query = "SELECT at, name, address, id, was, state, reason FROM changes ORDER BY number DESC LIMIT ?"
        try:
            with self._lock:
                rows = self._base.execute(query, (most,)).fetchall()
        except sqlite3.Error as wrong:
            raise ConfigError("history", str(wrong)) from wrong
        return [Change(*row) for row in reversed(rows)]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._base.close()


def _private(path: str, flags: int) -> int:
    import os

    return os.open(path, flags | os.O_CREAT, 0o600)
