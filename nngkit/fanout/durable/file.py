"""A consumer's state on disk: one file for each name, appended to, synced before an acknowledgement is confirmed.

::

    file    = magic:8  record*
    record  = length:u32  crc:u32  body                    body: CBOR
    body    = ["options", map] / ["cursor", partition, cursor]
            / ["deliver", partition, behind, time, count, runs]
            / ["settle", partition, runs] / ["ahead", partition, runs] / ["skipped", partition, count]

`runs` are pairs of i64 in a byte string, `time` is in microseconds since 1970. A file over `COMPACT` bytes is replaced
by its content, atomically. Bytes after the last intact record were never confirmed and are cut off, unless an intact
record follows them: that is damage, and nothing is changed.

Options that come later replace the first ones.

A failed write or sync leaves the file in doubt, so the next `sync` replaces it. The lock is held while the file is
open, so that a name has one server.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from nngkit import envelope
from nngkit.errors import BadMessage, ConfigError, Damaged, TooLarge
from nngkit.fanout._locking import hold
from nngkit.file_modes import mode
from nngkit.journal.files import SCRATCH, check_in_place, sync_folder
from nngkit.journal.record import crc32c

STATE: Final = ".consumer"
LOCK: Final = ".lock"
COMPACT: Final = 1 << 20
LARGEST: Final = 64 << 20  # bytes of a record: a million runs are 16 MB
_MAGIC: Final = b"NNGCONS1"
_START: Final = struct.Struct(">II")
_ADVICE: Final = "restore it from a backup, or delete the consumer and start it again at an offset"


class StateFile:
    """Open state file, with its lock. `entries`: its records when it was opened; empty for a new consumer.

    `snapshot` returns the records that stand for the present state. Raises ConfigError if another process has the
    lock, Damaged.
    """

    def __init__(self, folder: Path, name: str, snapshot: Callable[[], Iterable[list[Any]]]) -> None:
        self.path = folder / (name + STATE)
        self.entries: list[list[Any]] = []
        self._snapshot = snapshot
        self._doubtful = False
        self._file = -1
        self._lock = hold(folder / (name + LOCK), "consumer", "connect to its server (--server)")
        try:
            self._size = self._base = self._load()
        except OSError as error:
            self._release()
            raise ConfigError("consumer", f"{self.path}: {error.strerror or error}", name) from error
        except BaseException:
            self._release()
            raise

    def _load(self) -> int:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            self._doubtful = True  # the first sync creates it
            return 0
        self.entries, end = _read(data, self.path)
        self._file = os.open(self.path, os.O_WRONLY)
        os.ftruncate(self._file, end)
        os.lseek(self._file, end, os.SEEK_SET)
        return end

    def append(self, entry: list[Any]) -> None:
        """Write a record. It is on disk after the next `sync`, which also reports a failure of the write."""
        if self._doubtful:
            return
        data = _framed(entry)
        try:
            if os.write(self._file, data) != len(data):
                self._doubtful = True
        except OSError:
            self._doubtful = True
        self._size += len(data)

    @property
    def is_over(self) -> bool:
        """True if the file is to be replaced: in doubt, or much larger than its content."""
        return self._doubtful or self._size > COMPACT + 4 * self._base

    def sync(self) -> None:
        """Wait until all records are on disk; for a thread. Raises OSError; then the file is in doubt."""
        try:
            os.fdatasync(self._file)
            check_in_place(self._file, self.path)
        except OSError:
            self._doubtful = True
            raise

    def replace(self) -> None:
        """Replace the file by a snapshot, on disk when this returns. Raises OSError."""
        data = _MAGIC + b"".join(map(_framed, self._snapshot()))
        scratch = self.path.with_name(self.path.name + SCRATCH)
        new = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode())
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(new, view) :]
            os.fsync(new)
            scratch.replace(self.path)
            sync_folder(self.path.parent)
        except OSError:
            os.close(new)
            self._doubtful = True
            raise
        if self._file >= 0:
            os.close(self._file)
        self._file, self._size, self._base, self._doubtful = new, len(data), len(data), False

    def remove(self) -> None:
        """Delete the file. Raises OSError."""
        self.path.unlink(missing_ok=True)
        sync_folder(self.path.parent)

    def close(self) -> None:
        """Close the file and release the lock; a name without state leaves no file. Nothing is appended any more."""
        file, self._file, self._doubtful = self._file, -1, True  # the descriptor may soon be another file's
        if file >= 0:
            os.close(file)
        self._release()

    def _release(self) -> None:
        with contextlib.suppress(OSError):
            if not self.path.exists():
                self.path.with_suffix(LOCK).unlink()
        os.close(self._lock)


def _framed(entry: list[Any]) -> bytes:
    body = envelope.encode(entry)
    return _START.pack(len(body), crc32c(0, body)) + body


def _read(data: bytes, path: Path) -> tuple[list[list[Any]], int]:
    """Return the intact records, and the position behind them. Raises Damaged."""
    if data[: len(_MAGIC)] != _MAGIC:
        raise Damaged(str(path), "not a consumer's state", position=0, advice=_ADVICE)
    entries, at = [], len(_MAGIC)
    while (found := _record(data, at)) is not None:
        entry, at = found
        entries.append(entry)
    if at < len(data):
        behind = next((place for place in range(at + 1, len(data) - 8) if _record(data, place) is not None), None)
        if behind is not None:
            raise Damaged(str(path), "checksum mismatch", position=at, advice=_ADVICE)
    return entries, at


def _record(data: bytes, at: int) -> tuple[list[Any], int] | None:
    if at + _START.size > len(data):
        return None
    length, crc = _START.unpack_from(data, at)
    start = at + _START.size
    if not 0 < length <= min(LARGEST, len(data) - start):
        return None
    body = data[start : start + length]
    if crc32c(0, body) != crc:
        return None
    try:
        entry = envelope.decode(body, what="consumer state", limit=LARGEST)
    except (BadMessage, TooLarge):
        return None
    return (entry, start + length) if type(entry) is list and entry else None
