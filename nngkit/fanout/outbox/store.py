"""An outbox on disk: a log of the journal's format, and the position up to which it was acknowledged.

::

    DIRECTORY/lock  position  head  00000000000000000000.log ...
    position = slot slot          slot = magic:8  id:16  acknowledged:i64  serial:i64  crc:u32

The position is written to the two slots in turn, so that a torn write leaves the one before. A log is deleted once all
its records are acknowledged. All methods but `append` read or write files.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from nngkit.errors import ConfigError, Damaged
from nngkit.fanout._locking import hold
from nngkit.file_modes import mode
from nngkit.journal.files import INDEX, logs_in, sync_folder
from nngkit.journal.logfile import open_log, read_head
from nngkit.journal.record import crc32c, encode_origin
from nngkit.journal.writing.log import Done, Log
from nngkit.journal.writing.recovery import recover

POSITION: Final = "position"
OVERHEAD: Final = 64  # bytes on disk beside a value: the record's fixed part and its origin
ADVICE: Final = "restore the folder from a backup, or start with an empty one"
_MAGIC: Final = b"NNGOUTB1"
_SLOT: Final = struct.Struct(">8s16sqq")
_CRC: Final = struct.Struct(">I")
_SIZE: Final = _SLOT.size + _CRC.size
_ORIGIN: Final = encode_origin("outbox", "outbox", None)


class OutboxStore:
    """Open folder. `end`: one past the last record on disk. Raises ConfigError, Damaged.

    `size`: bytes of the records that were not acknowledged when it was opened.
    """

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int,
        buffer_bytes: int,
        deliver: Callable[[list[Callable[[], None]]], object],
    ) -> None:
        self.folder = folder
        self._serial = 0
        self._lock = hold(folder / "lock", "outbox", "an outbox is for one process; use another directory")
        self._position = -1
        try:
            self._open_position()
            found = recover(folder, 0, self.acknowledged)
            for path in (*found.done, *found.blank, *found.useless):
                _delete(path)
            self._closed = [(each.path, each.end) for each in found.logs]
            self.size = sum(self._size_of(each.path, each.first, each.end) for each in found.logs)
            self.log = Log(
                folder,
                0,
                found.end,
                most_bytes=segment_bytes,
                buffer_bytes=buffer_bytes,
                on_closed=lambda path, _, end: self._closed.append((path, end)),
                deliver=deliver,
            )
        except OSError as error:
            self._let_go()
            raise ConfigError("outbox", f"{folder}: {error.strerror or error}", str(folder)) from error
        except BaseException:
            self._let_go()
            raise

    @property
    def end(self) -> int:
        """One past the last record on disk."""
        return self.log.end

    def append(self, values: Sequence[bytes], now: int, done: Done) -> None:
        """Queue `values`; `done` is called when they are on disk. Raises Full, Closed, TooLarge."""
        self.log.append([(None, value, _ORIGIN, b"", now) for value in values], done, force=True)

    def read(self, first: int, end: int, records: int, size: int) -> list[bytes]:
        """Return the values from `first` on, up to `end`, of about `size` bytes; at least one. Raises Damaged."""
        logs = logs_in(self.folder)
        number = max((number for number, (start, _) in enumerate(logs) if start <= first), default=None)
        if number is None:
            raise Damaged(str(self.folder), "no log has it", offset=first, advice=ADVICE)
        stop = min(end, logs[number + 1][0]) if number + 1 < len(logs) else end
        head = read_head(self.folder)
        position = head.position if head is not None and head.first == logs[number][0] and head.end >= stop else None
        values: list[bytes] = []
        with open_log(logs[number][1]) as log:
            for rows in log.chunks(first, min(stop, first + records), stop=position, most=256):
                for row in rows:
                    size -= len(row[5])
                    if values and size < 0:
                        return values
                    values.append(row[5])
        return values

    def _size_of(self, path: Path, first: int, end: int) -> int:
        start = max(first, self.acknowledged)
        with open_log(path) as log:
            return sum(len(row[5]) + OVERHEAD for rows in log.chunks(start, end) for row in rows) if start < end else 0

    # The position

    def _open_position(self) -> None:
        path = self.folder / POSITION
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            if logs_in(self.folder) or read_head(self.folder) is not None:
                raise Damaged(str(path), "the file is missing", advice=ADVICE) from None
            self.id, self.acknowledged = os.urandom(16), 0
            self._position = os.open(path, os.O_RDWR | os.O_CREAT, mode())
            self.acknowledge(0)
            self.acknowledge(0)
            sync_folder(self.folder)
            return
        slots = [found for at in (0, _SIZE) if (found := _slot(data[at : at + _SIZE])) is not None]
        if not slots:
            if read_head(self.folder) is None and not logs_in(self.folder):  # killed while it was created
                path.unlink()
                self._open_position()
                return
            raise Damaged(str(path), "checksum mismatch", advice=ADVICE)
        self._serial, self.acknowledged, self.id = max(slots)
        self._position = os.open(path, os.O_RDWR)

    def acknowledge(self, end: int) -> None:
        """Note on disk that all records below `end` are acknowledged; delete logs without others. Raises OSError."""
        serial = self._serial + 1
        data = _SLOT.pack(_MAGIC, self.id, end, serial)
        os.pwrite(self._position, data + _CRC.pack(crc32c(0, data)), serial % 2 * _SIZE)
        os.fdatasync(self._position)
        self._serial, self.acknowledged = (
            serial,
            end,
        )  # after a failure the same slot is written again, not the good one
        while getattr(self, "_closed", None) and self._closed[0][1] <= end:
            _delete(self._closed.pop(0)[0])

    def close(self) -> None:
        """Write pending records; release the lock."""
        try:
            self.log.close()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._position >= 0:
            os.close(self._position)
        os.close(self._lock)


def _slot(data: bytes) -> tuple[int, int, bytes] | None:
    if len(data) != _SIZE or _CRC.unpack_from(data, _SLOT.size)[0] != crc32c(0, data[: _SLOT.size]):
        return None
    magic, name, acknowledged, serial = _SLOT.unpack_from(data)
    return (serial, acknowledged, name) if magic == _MAGIC else None


def _delete(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_suffix(INDEX).unlink(missing_ok=True)
