"""Append-only log of one partition: any thread appends, one writer thread writes and syncs.

::

    log = Log(folder, partition=0, first=0)
    log.append([(key, value, origin, headers, timestamp)], done=callback)    # does not wait; Full over `buffer_bytes`
    log.close()

Group sync: the writer takes all pending records, writes them with one call, syncs once, moves the head, and then runs
the callbacks. Records without a callback are gathered for up to `GATHER` seconds; records with one are written at once.

Disk failures:

* A failed write (a full disk) is undone: the log is truncated to its synced length. A failed sync is final: the
  kernel may have dropped the pages and would report success the next time. So that log is abandoned, nothing in it
  beyond the head counts, and the next log begins at the first unacknowledged offset. Nor does what is written to a log
  or a head that was removed or replaced, as with its folder.
* The write is then retried, first at once, later after a pause. At the second failure, records with a callback are
  refused (NotStored). The others are kept, and new ones are accepted up to `buffer_bytes`, then raise Full.

A record gets its offset when it is written, not when it is appended, so these failures leave no gaps.
Does not know: sockets, Parquet, an event loop.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from nngkit.errors import Closed, Full, NotStored, TooLarge
from nngkit.file_modes import mode
from nngkit.instruments import BytesTotal, Total
from nngkit.journal.files import HEAD, INDEX, check_in_place, log_name, sync_folder
from nngkit.journal.logfile import ENTRY
from nngkit.journal.record import FIXED, LARGEST, Head, LogHeader, frame

log_ = logging.getLogger("nngkit.journal")

Entry: TypeAlias = tuple[bytes | None, bytes, bytes, bytes, int]
"""key, value, origin, headers, timestamp: a record without an offset."""
Done: TypeAlias = Callable[[int, int, NotStored | None], None]
"""Called with the offsets `first` to `end` - 1 once they are on disk, or with the error."""

GATHER: Final = 0.005  # seconds between syncs without a waiter: 200 syncs a second do not load a disk
GROUP: Final = 8 << 20  # bytes written and synced at once; larger groups delay their waiters
INDEXED: Final = 1 << 18  # bytes between index entries: 1 ms of decoding
OVERHEAD: Final = 256  # bytes of memory a record beside its value
PAUSES: Final = (0.0, 0.1, 0.2, 0.5, 1.0)  # seconds before each retry; the last one repeats


@dataclass(frozen=True, slots=True)
class LogStats:
    """Counters of a log's records and syncs."""

    appended: Total = 0
    """Records appended."""
    synced: Total = 0
    """Records synced to disk."""
    refused: Total = 0
    """Records whose waiter got NotStored."""
    unstored: Total = 0
    """Records without a waiter, lost at close because the disk did not take them."""
    syncs: Total = 0
    """Syncs of the log's file."""
    sync_failures: Total = 0
    """Syncs that failed."""
    write_failures: Total = 0
    """Writes that failed."""
    size: BytesTotal = 0
    """Synced bytes."""


@dataclass(slots=True)
class _Group:
    """The records of one `append`."""

    entries: Sequence[Entry]
    done: Done | None
    size: int
    first: int = 0


class Log:
    """One partition's log. `folder` exists and is used by this log alone; the next record gets offset `first`.

    A log over `most_bytes`, over `most_seconds` with `least_bytes`, or over `oldest_seconds` is closed and passed to
    `on_closed` with its first and end offset; a new one is begun.
    `buffer_bytes`: bytes that may wait for the disk. `deliver`: called on the writer's thread after each sync with
    the callbacks to run; without it they run on that thread.
    """

    def __init__(
        self,
        folder: Path,
        partition: int,
        first: int,
        *,
        most_bytes: int = 64 << 20,
        most_seconds: float = 60.0,
        least_bytes: int = 0,
        oldest_seconds: float = 60.0,
        buffer_bytes: int = 64 << 20,
        on_closed: Callable[[Path, int, int], object] | None = None,
        deliver: Callable[[list[Callable[[], None]]], object] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.stats = LogStats()
        self.failure: OSError | None = None
        self._folder = folder
        self._partition = partition
        self._end = first
        self._most_bytes = most_bytes
        self._most_seconds = most_seconds
        self._least_bytes = least_bytes
        self._oldest_seconds = max(oldest_seconds, most_seconds)
        self._buffer_bytes = buffer_bytes
        self._on_closed = on_closed
        self._deliver = deliver
        self._clock = clock
        self._waiting: deque[_Group] = deque()
        self._taken: list[_Group] = []  # by the writer, and neither stored nor refused yet
        self._size = 0
        self._urgent = 0
        self._appended = 0
        self._idle = True
        self._stopping = False
        self._changed = threading.Condition(threading.Lock())
        self._file: _File | None = None
        self._synced_at = 0.0
        self._head = os.open(folder / HEAD, os.O_RDWR | os.O_CREAT, mode())
        try:
            self._move_head(Head(0, first, first, 0))
            os.fsync(self._head)
            sync_folder(folder)
        except BaseException:
            os.close(self._head)
            raise
        self._thread = threading.Thread(target=self._run, name=f"journal log {partition}", daemon=True)
        self._thread.start()

    @property
    def end(self) -> int:
        """One past the last record on disk."""
        return self._end

    @property
    def waiting(self) -> int:
        """Bytes not yet on disk."""
        return self._size

    def append(self, entries: Sequence[Entry], done: Done | None = None, *, force: bool = False) -> None:
        """Queue `entries` to be written contiguously and in order. Raises Full, Closed, TooLarge; then none is queued.

        `force`: exceed `buffer_bytes`, for records that the caller cannot hold back.
        """
        size = sum(map(_bytes_of, entries)) + OVERHEAD * len(entries)
        if size > LARGEST and (most := max(map(_bytes_of, entries))) > LARGEST:
            raise TooLarge(most, LARGEST)
        with self._changed:
            if self._stopping:
                raise Closed(f"{self._folder}: the log is closed")
            if self._size and self._size + size > self._buffer_bytes and not force:
                raise Full(f"{self._folder}: {self._size} bytes are waiting for the disk")
            self._waiting.append(_Group(entries, done, size))
            self._size += size
            self._appended += len(entries)
            if done is not None:
                self._urgent += 1
            if self._idle or done is not None:
                self._changed.notify()

    def rotate(self) -> None:
        """Close the current log file after its next sync, so that it can be sealed."""
        with self._changed:
            if self._file is not None:
                self._file.begun = float("-inf")
            self._changed.notify()

    def close(self) -> None:
        """Write all pending records, or refuse and count them if the disk fails. Joins the writer thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()
        os.close(self._head)

    # The writer's thread

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # a bug in nngkit: release all waiters
            self.failure = OSError(0, f"the writer failed: {error!r}")
            with self._changed:
                self._stopping = True
            self._give_up(self._refuse(self._taken, self.failure))
            raise

    def _work(self) -> None:
        while True:
            groups = self._take()
            if groups:
                self._store(groups)
            if self._file is not None and (self._file.position >= self._most_bytes or self._left(self._file) <= 0):
                self._finish()
            if not groups and self._stopping:
                break
        self._finish()

    def _take(self) -> list[_Group]:
        """Return the groups to write next; an empty list when a log, or all, is to be closed."""
        with self._changed:
            while not self._waiting and not self._stopping:
                left = None
                if self._file is not None and (left := self._left(self._file)) <= 0:
                    return []
                self._idle = True
                self._changed.wait(left)
            self._idle = False
            # no waiter: more records will arrive within a moment
            while not self._urgent and not self._stopping and self._size < GROUP // 2:
                left = self._synced_at + GATHER - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            groups, size = [], 0
            while self._waiting and size < GROUP:
                groups.append(self._waiting.popleft())
                size += groups[-1].size
                if groups[-1].done is not None:
                    self._urgent -= 1
            self._taken = groups
            return groups

    def _left(self, file: _File) -> float:
        """Return the seconds until this log is closed for its age."""
        is_small = file.position < self._least_bytes
        return file.begun + (self._oldest_seconds if is_small else self._most_seconds) - time.monotonic()

    def _store(self, groups: list[_Group]) -> None:
        for attempt in range(1 << 62):
            try:
                self._write(groups)
                break
            except OSError as error:
                self._failed(error)
                if attempt or self._stopping:
                    groups = self._taken = self._refuse(groups, error)
                if not groups:
                    return
                with self._changed:
                    is_over = self._stopping and attempt > 0
                    if not is_over:
                        self._changed.wait(PAUSES[min(attempt, len(PAUSES) - 1)])
                if is_over:
                    self._give_up(self._refuse(groups, error))
                    return
        self.failure = None
        with self._changed:
            self._taken = []
            self._size -= sum(group.size for group in groups)
            records = sum(len(group.entries) for group in groups)
            stats = self.stats
            self.stats = replace(stats, appended=self._appended, synced=stats.synced + records, syncs=stats.syncs + 1)
        self._notify([_callback(group, None) for group in groups if group.done is not None])

    def _write(self, groups: list[_Group]) -> None:
        """Write and sync the groups. Raises OSError; then none of them counts."""
        if self._file is None:
            self._file = _File(self._folder, self._partition, self._end, self._clock())
        file, parts, offset = self._file, [], self._end
        at, salt, indexed = file.position, file.salt, file.indexed
        entries = []
        for group in groups:
            group.first = offset
            if at - indexed >= INDEXED:
                entries.append(ENTRY.pack(offset, at))
                indexed = at
            for key, value, origin, headers, timestamp in group.entries:
                data = frame(offset, timestamp, origin, key, headers, value, salt=salt)
                parts.append(data)
                at += len(data)
                offset += 1
        try:
            file.write(b"".join(parts))
        except OSError:
            if not file.cut_back():
                self._leave()
            raise
        try:
            file.sync()
            check_in_place(
                file.number, file.path
            )  # of a folder that was removed, the system still takes what is written
            self._move_head(Head(salt, file.first, offset, at))
            check_in_place(self._head, self._folder / HEAD)
        except OSError:
            self._leave()
            raise
        self._end = offset
        self._synced_at = time.monotonic()
        size = self.stats.size + at - file.position
        file.position = at
        if entries and file.write_index(b"".join(entries)):
            file.indexed = indexed
        self.stats = replace(self.stats, size=size)

    def _move_head(self, head: Head) -> None:
        if os.pwrite(self._head, head.encode(), 0) != Head.size:
            raise OSError(f"{self._folder / HEAD}: short write")

    def _leave(self) -> None:
        """Abandon this log file: its content beyond the head does not count."""
        assert self._file is not None
        file, self._file = self._file, None
        file.close()
        if file.first == self._end:  # it holds no record, and the next file has the same name
            file.set_aside()
        elif self._on_closed is not None:
            self._on_closed(file.path, file.first, self._end)

    def _failed(self, error: OSError) -> None:
        known, self.failure = self.failure, error
        with self._changed:
            if isinstance(error, _SyncFailed):
                self.stats = replace(self.stats, sync_failures=self.stats.sync_failures + 1)
            else:
                self.stats = replace(self.stats, write_failures=self.stats.write_failures + 1)
        if known is None or known.errno != error.errno:  # once for each outage
            log_.error("%s: cannot store records from offset %d on: %s", self._folder, self._end, error)

    def _refuse(self, groups: list[_Group], error: OSError) -> list[_Group]:
        """Refuse the groups with a callback; return the others."""
        asked = [group for group in groups if group.done is not None]
        why = NotStored(f"{error.strerror or error}; the next free offset in {self._folder} is {self._end}")
        with self._changed:
            # waiters that arrived meanwhile are refused as well
            asked += [group for group in self._waiting if group.done is not None]
            self._waiting = deque(group for group in self._waiting if group.done is None)
            self._urgent = 0
            self._size -= sum(group.size for group in asked)
            refused = self.stats.refused + sum(len(group.entries) for group in asked)
            self.stats = replace(self.stats, appended=self._appended, refused=refused)
        self._notify([_callback(group, why) for group in asked])
        return [group for group in groups if group.done is None]

    def _give_up(self, groups: list[_Group]) -> None:
        """Drop the groups, and all that wait; none of them has a callback."""
        groups = [*groups, *self._waiting]
        self._waiting.clear()
        self._size = 0
        unstored = self.stats.unstored + sum(len(group.entries) for group in groups)
        self.stats = replace(self.stats, appended=self._appended, unstored=unstored)
        self._notify([])

    def _notify(self, calls: list[Callable[[], None]]) -> None:
        if self._deliver is not None:
            self._deliver(calls)
            return
        for call in calls:
            call()

    def _finish(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()
            if file.first == self._end:
                file.remove()
            elif self._on_closed is not None:
                self._on_closed(file.path, file.first, self._end)


def _bytes_of(entry: Entry) -> int:
    key, value, origin, headers, _ = entry
    return FIXED + len(key or b"") + len(value) + len(origin) + len(headers)


def _callback(group: _Group, why: NotStored | None) -> Callable[[], None]:
    done = group.done
    assert done is not None
    return lambda: done(group.first, group.first + len(group.entries), why)


class _SyncFailed(OSError):
    """fsync failed."""


class _File:
    """The current log file. Its header and its name are on disk once it is created. Raises OSError."""

    def __init__(self, folder: Path, partition: int, first: int, now: float) -> None:
        self.path = folder / log_name(first)
        self.first = first
        self.salt = int.from_bytes(os.urandom(4), "big")
        self.begun = time.monotonic()
        self.position = LogHeader.size
        self.indexed = LogHeader.size
        self._index: int | None = None
        header = LogHeader(partition, self.salt, first, int(now * 1e6)).encode()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            self._file = os.open(self.path, flags, mode())
        except FileExistsError:
            self.set_aside()
            self._file = os.open(self.path, flags, mode())
        try:
            self.write(header)
            self.sync()
            sync_folder(folder)
        except OSError:
            os.close(self._file)
            self.path.unlink()  # just created and empty
            raise

    @property
    def number(self) -> int:
        """The descriptor."""
        return self._file

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]

    def sync(self) -> None:
        try:
            os.fdatasync(self._file)
        except OSError as error:
            raise _SyncFailed(error.errno, f"cannot sync {self.path.name}: {error.strerror}") from error

    def cut_back(self) -> bool:
        """Truncate to the synced length; return False if that fails."""
        try:
            os.ftruncate(self._file, self.position)
            os.lseek(self._file, self.position, os.SEEK_SET)
        except OSError:
            return False
        return True

    def write_index(self, entries: bytes) -> bool:
        """Append index entries; return False if that fails. The index is a hint, so failure is harmless."""
        try:
            if self._index is None:
                self._index = os.open(self.path.with_suffix(INDEX), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode())
            os.write(self._index, entries)
        except OSError:
            return False
        return True

    def set_aside(self) -> None:
        """Rename the file so that readers ignore it; never overwrite a file."""
        number = 0
        while (aside := self.path.with_name(f"{self.path.name}.failed-{number}")).exists():
            number += 1
        self.path.rename(aside)

    def remove(self) -> None:
        """Delete the empty file."""
        with contextlib.suppress(OSError):
            self.path.unlink()

    def close(self) -> None:
        os.close(self._file)
        if self._index is not None:
            os.close(self._index)
