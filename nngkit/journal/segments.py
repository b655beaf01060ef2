"""From logs to segments: Parquet files that are there whole or not at all, and their retention.

::

    partition = Partition.open("journal", 0)        # takes the lock, reads the manifest, recovers the logs
    partition.log.append(...)
    partition.close()

A thread seals each log that is full or old: Parquet under a scratch name, fsync, rename, fsync of the folder; then the
manifest, which is replaced in the same way; and only then is the log removed. Killed anywhere in between, the records
are in the log, in the segment, or in both, and the manifest says which of them to read. A disk that is full keeps its
logs, and sealing is tried again.

The thread shares its interpreter with whoever records. So it works in small pieces and sleeps in between; the writing
of Parquet itself is done outside the interpreter's lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from nngkit.errors import ConfigError, Damaged
from nngkit.journal.files import (
    INDEX,
    LOCK,
    MOST_PARTITIONS,
    SCRATCH,
    SEGMENT,
    Place,
    folder_of,
    place_of,
    segment_name,
    sync_file,
    sync_folder,
)
from nngkit.journal.log import Log
from nngkit.journal.logfile import open_log
from nngkit.journal.manifest import RETIRE, Manifest, Segment, check_journal, load_manifest, save_manifest
from nngkit.journal.record import crc32c, decode_origin
from nngkit.journal.recovery import OldLog, Recovered, recover

__all__ = ["Partition", "Retention", "SealStats"]

log_ = logging.getLogger("nngkit.journal")

ROW_GROUP: Final = 65_536  # rows: what a reader has to take for one; 6 MB at 100 B a record
ROW_GROUP_BYTES: Final = 64 << 20  # and of large records fewer
PIECE: Final = 512  # records decoded before others get their turn: a millisecond
PAUSE: Final = 0.0003  # seconds of that turn
RETRY: Final = 5.0  # seconds until sealing is tried again, and between looks at what is too old


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept: segments with a record younger than `age` seconds, and `size` bytes of them; None is everything."""

    age: float | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class SealStats:
    """`sealed` records in `segments`; `retired` segments; `failures` of sealing, each of which is tried again."""

    sealed: int = 0
    segments: int = 0
    retired: int = 0
    failures: int = 0


class Partition:
    """One recorder's part of a journal: its lock, its log, and the thread that seals. `open` makes it."""

    def __init__(
        self, place: Place, folder: Path, manifest: Manifest, lock: int, found: Recovered, retention: Retention
    ) -> None:
        self.place = place
        self.folder = folder
        self.manifest = manifest
        self.recovered = found
        self.stats = SealStats()
        self.failure: Exception | None = None
        self.log: Log  # set by `open`
        self._lock = lock
        self._retention = retention
        self._logs = deque(found.logs)
        self._lost = list(found.lost)
        self._changed = threading.Condition(threading.Lock())
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"journal seal {manifest.partition}", daemon=True)

    @classmethod
    def open(
        cls,
        journal: str | os.PathLike[str],
        partition: int = 0,
        *,
        spool: str | os.PathLike[str] | None = None,
        salvage: bool = False,
        retention: Retention | None = None,
        segment_bytes: int = 64 << 20,
        segment_seconds: float = 60.0,
        room: int = 64 << 20,
        deliver: Callable[[list[Callable[[], None]]], object] | None = None,
    ) -> Partition:
        """Be the one recorder of that partition, and make the journal where there is none.

        `spool`: the folder for logs, where the journal is shared storage. `salvage`: go on behind damage.
        `segment_bytes`, `segment_seconds`: a log over either is sealed. `room`: bytes that may wait for the disk.
        Raises ConfigError, Damaged. `close` it.
        """
        if not 0 <= partition < MOST_PARTITIONS:
            raise ConfigError("partition", f"{partition} is not from 0 to {MOST_PARTITIONS - 1}", partition)
        place = place_of(journal)
        if (place.folder is None) != (spool is not None):
            why = (
                "is for a journal on shared storage (a URI)"
                if spool
                else f"{journal} is shared: its logs need a folder"
            )
            raise ConfigError("spool", why, spool)
        check_journal(place, make=True)
        folder = (place.folder or Path(os.fspath(spool or ""))).absolute() / folder_of(partition)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            sync_folder(folder.parent)
            lock = _lock(folder)
        except OSError as error:
            raise ConfigError("journal", f"{folder}: {error.strerror or error}", str(folder)) from error
        try:
            owner = _owner(folder, partition, shared=place.folder is None)
            manifest = load_manifest(place, partition) or Manifest(partition, owner)
            if place.folder is None and manifest.owner != owner:
                raise ConfigError(
                    "partition",
                    f"{place.shown(folder_of(partition))}: partition {partition} is {manifest.owner}'s, and this "
                    f"spool is {owner}; record into another one (--partition), or use that recorder's spool",
                    partition,
                )
            found = recover(folder, partition, manifest.end, salvage=salvage)
            if found.end > manifest.end or not manifest.segments:
                save_manifest(place, manifest)  # also to see now, and not in an hour, that the journal can be written
            _tidy(folder, manifest, found)
            self = cls(place, folder, manifest, lock, found, retention or Retention())
            self.log = Log(
                folder,
                partition,
                found.end,
                most_bytes=segment_bytes,
                most_seconds=segment_seconds,
                room=room,
                on_closed=self._closed,
                deliver=deliver,
            )
        except OSError as error:
            os.close(lock)
            raise ConfigError("journal", f"{folder}: {error.strerror or error}", str(folder)) from error
        except BaseException:
            os.close(lock)
            raise
        self._thread.start()
        return self

    def close(self) -> None:
        """Write what waits, seal what can be sealed, let the lock go. The rest is sealed when it is opened again."""
        try:
            self.log.close()
            with self._changed:
                self._stopping = True
                self._changed.notify()
            self._thread.join()
        finally:
            os.close(self._lock)

    # The sealing thread

    def _closed(self, path: Path, first: int, end: int) -> None:
        with self._changed:
            self._logs.append(OldLog(path, first, end))
            self._changed.notify()

    def _run(self) -> None:
        retry = 0.0
        while True:
            with self._changed:
                if not self._logs or retry:
                    if self._stopping:
                        return
                    self._changed.wait(RETRY)
                next_log = self._logs[0] if self._logs else None
            retry = 0.0
            try:
                if next_log is not None:
                    self._seal(next_log)
                    with self._changed:
                        self._logs.popleft()
                self._retire()
                self.failure = None
            except Exception as error:  # a full disk, a share that is gone, a log that was damaged meanwhile
                self.failure = error
                self.stats = replace(self.stats, failures=self.stats.failures + 1)
                log_.error("%s: not sealed, will be tried again: %s", self.folder, error)
                retry = RETRY

    def _seal(self, old: OldLog) -> None:
        manifest = self.manifest
        partition = manifest.partition
        if old.end > manifest.end:
            name = segment_name(old.first, old.end)
            scratch = self.folder / (name + SCRATCH)
            lost = tuple(each for each in self._lost if each.first < old.end)
            try:
                sync_file(old.path)  # what was written before a crash and never synced is about to count
                written = write_segment(old, partition, scratch, gently=not self._stopping)
                self.place.publish(scratch, f"{folder_of(partition)}/{name}")
            except BaseException:
                scratch.unlink(missing_ok=True)
                raise
            known = {(each.first, each.end) for each in manifest.lost}
            manifest = manifest.sealed(written, tuple(each for each in lost if (each.first, each.end) not in known))
            save_manifest(self.place, manifest)
            self.manifest = manifest
            self._lost = [each for each in self._lost if each.first >= old.end]
            stats = self.stats
            self.stats = replace(stats, sealed=stats.sealed + written.rows, segments=stats.segments + 1)
        if old.damaged:
            old.path.rename(old.path.with_name(f"{old.path.name}.damaged"))
        else:
            old.path.unlink(missing_ok=True)
        old.path.with_suffix(INDEX).unlink(missing_ok=True)
        sync_folder(self.folder)

    def _retire(self) -> None:
        """Have the manifest list no more what is too old, and remove what it has not listed for a while."""
        now = time.time()
        manifest = self.manifest.retained(now, age=self._retention.age, size=self._retention.size)
        due = [each for each in manifest.retired if each.at + RETIRE <= now]
        for each in due:
            self.place.remove(f"{folder_of(manifest.partition)}/{each.file}")
        manifest = replace(manifest, retired=tuple(each for each in manifest.retired if each not in due))
        if manifest != self.manifest:
            save_manifest(self.place, manifest)
            gone = len(self.manifest.segments) - len(manifest.segments)
            self.manifest = manifest
            self.stats = replace(self.stats, retired=self.stats.retired + gone)


def write_segment(old: OldLog, partition: int, target: Path, *, gently: bool = True) -> Segment:
    """Write a log's records to `target` as Parquet, not synced yet. Raises Damaged, OSError."""
    import pyarrow as pa
    from pyarrow import parquet

    from nngkit.journal.schema import SCHEMA, batch_of

    topics: Counter[str] = Counter()
    rows, low, high = 0, 1 << 62, -(1 << 62)
    schema = SCHEMA.with_metadata({"nngkit.journal": "1"})
    with (
        open_log(old.path) as log,
        parquet.ParquetWriter(
            target,
            schema,
            compression="zstd",
            compression_level=1,  # of text half the size of 3's speed: 1 GB a minute on one core
            use_dictionary=["topic", "partition", "protocol", "peer", "key"],
            write_statistics=["topic", "partition", "offset", "timestamp"],
            write_page_checksum=True,
        ) as writer,
    ):
        batches: list[Any] = []
        count = size = 0
        for piece in log.chunks(old.first, old.end, most=PIECE, skip=old.damaged):
            batch = batch_of(piece, partition)
            for origin, times in Counter(row[2] for row in piece).items():
                topics[decode_origin(origin)[0]] += times
            low, high = min(low, *(row[1] for row in piece)), max(high, *(row[1] for row in piece))
            batches.append(batch)
            count, size = count + len(piece), size + batch.nbytes
            if count >= ROW_GROUP or size >= ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(batches, SCHEMA), row_group_size=ROW_GROUP)
                rows += count
                batches, count, size = [], 0, 0
            if gently:
                time.sleep(PAUSE)
        if batches:
            writer.write_table(pa.Table.from_batches(batches, SCHEMA), row_group_size=ROW_GROUP)
            rows += count
    if not rows:
        raise Damaged(str(old.path), "no record in it can be read", offset=old.first)
    crc = crc_of(target)
    size = target.stat().st_size
    return Segment(segment_name(old.first, old.end), old.first, old.end, rows, size, crc, low, high, dict(topics))


def crc_of(file: Any) -> int:
    """The CRC32C of a file, given by its path or open."""
    if isinstance(file, (str, os.PathLike)):
        with open(file, "rb") as opened:
            return crc_of(opened)
    crc = 0
    while data := file.read(1 << 20):
        crc = crc32c(crc, data)
    return crc


def _lock(folder: Path) -> int:
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        by = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
        os.close(descriptor)
        if not isinstance(error, BlockingIOError):
            raise
        raise ConfigError(
            "partition",
            f"{folder / LOCK}: another recorder has this partition ({by or 'unknown'}); "
            "record into another one (--partition), or end that one",
            str(folder),
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return descriptor


def _owner(folder: Path, partition: int, *, shared: bool) -> str:
    """Whose partition it is: on shared storage, where no lock reaches, this spool's own name."""
    if not shared:
        return "local"
    path = folder / "owner"
    with contextlib.suppress(FileNotFoundError):
        return path.read_text().strip()
    name = f"{socket.gethostname()}-{partition}-{os.urandom(4).hex()}"
    path.write_text(name + "\n")
    sync_file(path)
    sync_folder(folder)
    return name


def _tidy(folder: Path, manifest: Manifest, found: Recovered) -> None:
    """Remove what a killed recorder left half done."""
    for path in found.done:  # in segments that are listed
        path.unlink()
        path.with_suffix(INDEX).unlink(missing_ok=True)
    for path in found.useless:
        path.rename(path.with_name(f"{path.name}.{int(time.time() * 1e6)}.damaged"))
    listed = {segment.file for segment in manifest.segments} | {each.file for each in manifest.retired}
    for entry in os.scandir(folder):
        orphan = entry.name.endswith(SEGMENT) and entry.name not in listed and entry.name[:20] >= f"{manifest.end:020}"
        if entry.name.endswith(SCRATCH) or orphan:
            os.unlink(entry.path)
