"""One partition of a journal: its lock, its log, sealing into Parquet segments, and retention.

::

    partition = Partition.open("journal", 0)        # takes the lock, reads the manifest, recovers the logs
    partition.log.append(...)
    partition.close()

A thread seals each log that is full or old: Parquet under a scratch name, fsync, rename, fsync of the folder. It then
replaces the manifest in the same way, and only then deletes the log. If killed in between, the records are in the log,
in the segment, or in both, and the next recorder adopts the segment (adoption.py). If the disk is full, the logs stay
and sealing is retried. When it has nothing to seal, it merges small segments (merging.py).

Only retention deletes records. An unlisted segment is adopted or renamed.

The thread shares its interpreter with the recorder, so it works in small pieces and sleeps in between; pyarrow writes
Parquet without holding the GIL.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from nngkit.errors import ConfigError, Damaged
from nngkit.file_modes import checked_path, make_folder
from nngkit.instruments import Total
from nngkit.journal.files import (
    ABSENT,
    BLOCK,
    HEAD,
    INDEX,
    MOST_PARTITIONS,
    SCRATCH,
    LocalStorage,
    Storage,
    folder_of,
    logs_in,
    segment_name,
    sync_file,
    sync_folder,
)
from nngkit.journal.logfile import ADVICE, read_head
from nngkit.journal.manifest import Lost, Manifest, check_journal, load_manifest, save_manifest
from nngkit.journal.record import Head
from nngkit.journal.storage import open_storage
from nngkit.journal.writing.adoption import ORPHAN, Adoption, gap_error, plan_adoption
from nngkit.journal.writing.log import Log
from nngkit.journal.writing.merging import delete_retired, merged_into, plan_merge, settled
from nngkit.journal.writing.ownership import lock_partition, owner_of
from nngkit.journal.writing.recovery import OldLog, Recovered, recover
from nngkit.journal.writing.segmentfile import write_segment

log_ = logging.getLogger("nngkit.journal")

RETRY: Final = 5.0  # seconds between retries of sealing, and between retention checks
OLDEST: Final = 900.0  # seconds until a small log of a local journal is sealed
SKIPPED: Final = 1 << 32  # offsets skipped after a lost head: more than can have been assigned since


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention: keep segments with a record newer than `age` seconds, up to `size` bytes; None: no limit."""

    age: float | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class SealStats:
    """Counters of sealing."""

    sealed: Total = 0
    """Records sealed in segments."""
    segments: Total = 0
    """Segments sealed."""
    merged: Total = 0
    """Segments merged into larger ones."""
    retired: Total = 0
    """Segments retired."""
    failures: Total = 0
    """Failures of sealing, each of them retried."""


class Partition:
    """Partition owned by one recorder: lock, log and sealing thread. Created by `open`."""

    def __init__(
        self,
        storage: Storage,
        folder: Path,
        manifest: Manifest,
        lock: int,
        found: Recovered,
        retention: Retention,
        target: int,
    ) -> None:
        self.storage = storage
        self.folder = folder
        self.manifest = manifest
        self.recovered = found
        self.stats = SealStats()
        self.failure: Exception | None = None
        self.log: Log  # set by `open`
        self._lock = lock
        self._retention = retention
        self._target = target
        self._settled: set[str] = set()  # blocks without segments to merge, and damaged segments
        self._logs = deque(found.logs)
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
        segment_least: int = 1 << 20,
        segment_oldest: float | None = None,
        buffer_bytes: int = 64 << 20,
        deliver: Callable[[list[Callable[[], None]]], object] | None = None,
    ) -> Partition:
        """Lock the partition for this recorder; create the journal if there is none. The caller must `close` it.

        `spool`: the folder for logs if the journal is on shared storage. `salvage`: continue behind damage.
        `segment_bytes`: a log over it is sealed, and segments are merged up to it. A log is also sealed after
        `segment_seconds` if it has `segment_least` bytes, and anyway after `segment_oldest` (default: 15 minutes; on
        shared storage, whose readers do not see logs, `segment_seconds`). `buffer_bytes`: bytes that may wait for the
        disk. Raises ConfigError, Damaged.
        """
        if not 0 <= partition < MOST_PARTITIONS:
            raise ConfigError("partition", f"{partition} is not from 0 to {MOST_PARTITIONS - 1}", partition)
        storage = open_storage(journal)
        if (storage.folder is None) != (spool is not None):
            why = (
                "is for a journal on shared storage (a URI)"
                if spool
                else f"{storage.shown('')} is shared storage: its logs need a local folder"
            )
            raise ConfigError("spool", why, spool)
        check_journal(storage, make=True)
        folder = (storage.folder or checked_path("spool", spool or "")).absolute() / folder_of(partition)
        try:
            make_folder(folder)
            sync_folder(folder.parent)
            lock = lock_partition(folder)
        except OSError as error:
            raise ConfigError("journal", f"{folder}: {error.strerror or error}", str(folder)) from error
        try:
            owner = owner_of(folder, partition, shared=storage.folder is None)
            before = load_manifest(storage, partition)
            if before is not None and storage.folder is None and before.owner != owner:
                raise ConfigError(
                    "partition",
                    f"{storage.shown(folder_of(partition))}: partition {partition} belongs to {before.owner}, and this "
                    f"spool is {owner}; use another partition (--partition), or that recorder's spool",
                    partition,
                )
            there = plan_adoption(storage, folder, before, Manifest(partition, owner, tag=ABSENT))
            if before is None and not there.end and not logs_in(folder):
                # The head comes before the manifest: a manifest without a head means that the head is lost. An
                # unreadable head remains if an older nngkit was killed, or its disk full, while it created one.
                _write_head(folder, 0)
            manifest, found = _recovered(storage, folder, there, salvage=salvage)
            there.apply(storage)
            if manifest != before or found.end > manifest.end or not manifest.segments:
                manifest = save_manifest(storage, manifest)  # also to fail now, not in an hour, if storage is read-only
            _write_head(folder, found.end)  # if salvage continues without one
            _tidy(storage, folder, manifest, found)
            self = cls(storage, folder, manifest, lock, found, retention or Retention(), segment_bytes)
            if segment_oldest is None:
                segment_oldest = OLDEST if storage.folder is not None else segment_seconds
            self.log = Log(
                folder,
                partition,
                found.end,
                most_bytes=segment_bytes,
                most_seconds=segment_seconds,
                least_bytes=segment_least,
                oldest_seconds=segment_oldest,
                buffer_bytes=buffer_bytes,
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
        """Write pending records, seal the logs, release the lock. Unsealed logs are sealed at the next open."""
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
        failed: Exception | None = None
        while True:
            with self._changed:
                if not self._logs or failed:
                    if self._stopping:
                        return
                    self._changed.wait(RETRY)
            failed = None
            for work in (self._seal_next, self._retire, self._merge):  # retention frees a disk that is full for sealing
                try:
                    work()
                except Exception as error:  # a full disk, unreachable storage, a damaged log
                    failed = error
                    self.stats = replace(self.stats, failures=self.stats.failures + 1)
                    log_.error("%s: sealing failed, will retry: %s", self.folder, error)
            self.failure = failed

    def _seal_next(self) -> None:
        if self._logs:
            self._seal(self._logs[0])
            with self._changed:
                self._logs.popleft()

    def _seal(self, old: OldLog) -> None:
        manifest = self.manifest
        partition = manifest.partition
        if old.end > manifest.end:
            name = segment_name(old.first, old.end)
            scratch = self.folder / (name + SCRATCH)
            folder = folder_of(partition)
            try:
                sync_file(old.path)  # may hold records written before a crash and never synced
                written = write_segment(old, partition, scratch, gently=not self._stopping)
                if self.storage.exists(f"{folder}/{name}"):  # put there since this recorder started
                    aside = self.storage.set_aside(f"{folder}/{name}", ORPHAN)
                    log_.warning(
                        "%s: not in the manifest, renamed to %s", self.storage.shown(f"{folder}/{name}"), aside
                    )
                self.storage.publish(scratch, f"{folder}/{name}")
            except BaseException:
                scratch.unlink(missing_ok=True)
                raise
            self.manifest = save_manifest(self.storage, manifest.sealed(written))
            stats = self.stats
            self.stats = replace(stats, sealed=stats.sealed + written.rows, segments=stats.segments + 1)
        if old.damaged:
            old.path.rename(old.path.with_name(f"{old.path.name}.damaged"))
        else:
            old.path.unlink(missing_ok=True)
        old.path.with_suffix(INDEX).unlink(missing_ok=True)
        sync_folder(self.folder)

    def _retire(self) -> None:
        """Unlist expired segments, and delete those unlisted long enough ago."""
        now = time.time()
        before = self.manifest
        manifest = before.retained(now, age=self._retention.age, size=self._retention.size)
        gone = len(before.segments) - len(manifest.segments) if manifest is not before else 0
        manifest = delete_retired(self.storage, manifest, now)
        if manifest is not before:
            self.manifest = save_manifest(self.storage, manifest)
            self.stats = replace(self.stats, retired=self.stats.retired + gone)

    def _merge(self) -> None:
        """Merge small segments, until a log is to be sealed."""
        while not self._logs and not self._stopping:
            run = plan_merge(self.manifest.segments, self._target, self._settled)
            if run is None:
                self._settled |= settled(self.manifest.segments, self._target, self._settled)
                return
            try:
                self.manifest = merged_into(self.storage, self.folder, self.manifest, run)
            except Damaged as error:
                log_.warning("not merged: %s", error)
                self._settled |= {each.file for each in run if each.first == error.offset}
                continue
            self.stats = replace(self.stats, merged=self.stats.merged + len(run))


def _recovered(storage: Storage, folder: Path, there: Adoption, *, salvage: bool) -> tuple[Manifest, Recovered]:
    """Return the updated manifest and the content of the logs. Raises Damaged, before anything is changed."""
    if there.gaps and not salvage:
        raise gap_error(storage, there)
    manifest = there.manifest
    if there.gaps:
        manifest = replace(manifest, lost=in_order(manifest.lost + there.gaps))
    found = recover(folder, manifest.partition, manifest.end, known=manifest.lost, given=there.end, salvage=salvage)
    lost = found.lost
    if read_head(folder) is None:
        # If the newest log is cut or missing too, only the head says which offsets were assigned.
        if not salvage:
            why = "missing or unreadable, so the assigned offsets are unknown"
            raise Damaged(str(folder / HEAD), why, offset=found.end, advice=ADVICE)
        skipped = Lost(found.end, found.end + SKIPPED, "skipped, as the head is lost")
        lost, found = (*lost, skipped), replace(found, end=skipped.end)
    manifest = replace(manifest, lost=in_order(manifest.lost + lost))
    if not found.logs:
        manifest = replace(manifest, end=found.end)
    return manifest, replace(found, lost=there.gaps + found.lost)


def _write_head(folder: Path, end: int) -> None:
    """Create a head if there is no readable one. Atomic, also if the recorder is killed."""
    if read_head(folder) is None:
        LocalStorage(folder).replace(HEAD, Head(0, end, end, 0).encode())


def in_order(lost: tuple[Lost, ...]) -> tuple[Lost, ...]:
    """Return the ranges sorted by offset."""
    return tuple(sorted(lost, key=lambda each: each.first))


def _tidy(storage: Storage, folder: Path, manifest: Manifest, found: Recovered) -> None:
    """Delete logs that are empty or whose records are in segments, and scratch files; rename unusable logs."""
    here = set(storage.names(folder_of(manifest.partition)))
    for path in found.done:
        first = int(path.name[:20])
        gone = any(each.file not in here and each.end > first for each in manifest.segments)
        if gone or not any(each.first <= first < each.end for each in manifest.segments):
            _set_aside(path, "it may hold records that are in no segment")
        else:
            path.unlink()
            path.with_suffix(INDEX).unlink(missing_ok=True)
    for path in found.blank:  # the recorder was killed before the first record
        path.unlink()
        path.with_suffix(INDEX).unlink(missing_ok=True)
    for path in found.useless:
        _set_aside(path, "it has no readable record")
    for entry in os.scandir(folder):
        if entry.name.endswith(SCRATCH):  # incomplete: complete ones have been renamed
            os.unlink(entry.path)
    known = {each.file for each in manifest.segments.blocks} | {each.file for each in manifest.retired}
    for name in here:
        if name.endswith(BLOCK) and name not in known:  # written by a recorder that was killed before it listed it
            storage.remove(f"{folder_of(manifest.partition)}/{name}")


def _set_aside(path: Path, why: str) -> None:
    aside = path.with_name(f"{path.name}.{int(time.time() * 1e6)}.damaged")
    path.rename(aside)
    log_.warning("%s: renamed to %s: %s", path, aside.name, why)
