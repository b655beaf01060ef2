"""Read one log: memory-mapped, each record checked, from any offset. Used by readers, sealing and recovery.

::

    with open_log(path) as log:
        for rows in log.chunks(first, end): ...
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nngkit.errors import Damaged
from nngkit.journal.files import HEAD, INDEX
from nngkit.journal.record import Head, LogHeader, RawRecord, resume, seek, walk

ENTRY: Final = struct.Struct(">qq")
CHUNK: Final = 4096  # records a chunk: 5 ms of decoding
ADVICE: Final = "`nngkit journal verify` shows what is lost, and `nngkit record --salvage` continues without it"


@dataclass(frozen=True, slots=True)
class OpenLog:
    """Mapped log: `size` bytes, as at the time of opening."""

    path: Path
    header: LogHeader
    data: Any
    size: int

    def chunks(
        self, first: int, end: int, *, stop: int | None = None, most: int = CHUNK, skip: bool = False
    ) -> Iterator[list[RawRecord]]:
        """Yield the records `first` to `end` - 1, which must all exist before the byte `stop`.

        Raises Damaged at the first that does not; with `skip`, continues behind the damage.
        """
        stop = self.size if stop is None else min(stop, self.size)
        offset, at = self._near(first)
        while offset < end:
            found = walk(self.data, at, offset=offset, salt=self.header.salt, stop=stop, most=min(most, end - offset))
            at, offset = found.position, offset + len(found.rows)
            rows = found.rows if offset - len(found.rows) >= first else [row for row in found.rows if row[0] >= first]
            if rows:
                yield rows
            if offset < end and (found.fault is not None or at >= stop):
                behind = resume(self.data, at, offset=offset, salt=self.header.salt)
                if not skip and (behind is None or behind[1] > first):  # otherwise the damage precedes `first`
                    why = found.fault or "the log ends here"
                    raise Damaged(str(self.path), why, position=at, offset=offset, advice=ADVICE)
                if behind is None or behind[0] >= stop:
                    return
                at, offset = behind

    def first_at(self, first: int, end: int, time: int) -> int | None:
        """Return the first of the records `first` to `end` - 1 with a timestamp of `time` or later; else None.

        Only that record is decoded: 400,000 records take 0.1 s, and 1 s by `chunks`. Raises Damaged if a record before
        it is not intact.
        """
        offset, at = self._near(first)
        at, offset, found = seek(self.data, at, offset=offset, first=first, end=end, stop=self.size, time=time)
        if offset >= end:
            return None
        if found and walk(self.data, at, offset=offset, salt=self.header.salt, stop=self.size, most=1).rows:
            return offset
        raise Damaged(str(self.path), "no intact record", position=at, offset=offset, advice=ADVICE)

    def _near(self, first: int) -> tuple[int, int]:
        """Return an offset at or before `first`, and its position. The index is a hint, so its entry is checked."""
        try:
            entries = self.path.with_suffix(INDEX).read_bytes()
        except OSError:
            entries = b""
        known = list(ENTRY.iter_unpack(entries[: len(entries) // ENTRY.size * ENTRY.size]))
        after = bisect_right(known, (first, 1 << 62))
        if after:
            offset, at = known[after - 1]
            if self.header.size <= at < self.size:
                seen = walk(self.data, at, offset=offset, salt=self.header.salt, most=1)
                if seen.rows:
                    return offset, at
        return self.header.first, self.header.size


@contextlib.contextmanager
def open_log(path: Path) -> Iterator[OpenLog]:
    """Map a log. Raises FileNotFoundError; Damaged for an invalid header."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            header = LogHeader.decode(file.read(LogHeader.size))
        except ValueError as error:
            raise Damaged(str(path), str(error), position=0, advice=ADVICE) from error
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
            yield OpenLog(path, header, data, size)


@dataclass(frozen=True, slots=True)
class Scan:
    """Content of a log: intact records `first` to `end` - 1, up to the byte `position` of `size`.

    `fault`: why no record follows at `position` (None: end of the log). `behind`: (position, offset) of the next intact
    record after the fault. If there is one, the fault is damage; otherwise the end may merely be torn.
    """

    path: Path
    first: int
    end: int
    position: int
    size: int
    fault: str | None = None
    behind: tuple[int, int] | None = None

    @property
    def torn(self) -> int:
        """Bytes after the last intact record."""
        return self.size - self.position


def scan(path: Path, *, partition: int | None = None) -> Scan:
    """Check a log up to its first fault. Raises Damaged for its header."""
    with open_log(path) as log:
        if partition is not None and log.header.partition != partition:
            why = f"it belongs to partition {log.header.partition}"
            raise Damaged(str(path), why, position=0, advice="move it back to its own folder")
        at, offset, fault = log.header.size, log.header.first, None
        while at < log.size and fault is None:
            found = walk(log.data, at, offset=offset, salt=log.header.salt, most=CHUNK)
            at, offset, fault = found.position, offset + len(found.rows), found.fault
        behind = None if fault is None else resume(log.data, at, offset=offset, salt=log.header.salt)
        return Scan(path, log.header.first, offset, at, log.size, fault, behind)


def read_head(folder: Path) -> Head | None:
    """Return how far the logs of `folder` may be read; None if unknown.

    The head is rewritten in place. The checksum detects a torn read, which is then repeated.
    """
    for _ in range(10):
        try:
            return Head.decode((folder / HEAD).read_bytes())
        except FileNotFoundError:
            return None
        except ValueError:
            continue
    return None
