"""From logs to segments: Parquet files that are there whole or not at all, and their retention.

::

    partition = Partition.open("journal", 0)        # takes the lock, reads the manifest, recovers the logs
    partition.log.append(...)
    partition.close()

A thread seals each log that is full or old: Parquet under a scratch name, fsync, rename, fsync of the folder; then the
manifest, which is replaced in the same way; and only then is the log removed. Killed anywhere in between, the records
are in the log, in the segment, or in both, and the next recorder adopts the segment (adoption.py). A disk that is full
keeps its logs, and sealing is tried again.

Retention is the only one that removes a segment. A segment that the manifest does not list is adopted or renamed.

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
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from nngkit.errors import ConfigError, Damaged
from nngkit.journal.adoption import ORPHAN, Survey, refuse, survey, without
from nngkit.journal.files import (
    HEAD,
    INDEX,
    LOCK,
    MANIFEST,
    MOST_PARTITIONS,
    SCRATCH,
    Place,
    folder_of,
    logs_in,
    place_of,
    segment_name,
    sync_file,
    sync_folder,
)
from nngkit.journal.log import Log
from nngkit.journal.logfile import ADVICE, read_head
from nngkit.journal.manifest import RETIRE, Lost, Manifest, Segment, check_journal, load_manifest, save_manifest
from nngkit.journal.record import Head
from nngkit.journal.recovery import OldLog, Recovered, recover
from nngkit.journal.segmentfile import write_segment

__all__ = ["Partition", "Rebuilt", "Retention", "SealStats", "rebuild_manifest"]

log_ = logging.getLogger("nngkit.journal")

RETRY: Final = 5.0  # seconds until sealing is tried again, and between looks at what is too old
SKIPPED: Final = 1 << 32  # offsets left out after a lost head: more than were ever given since the last known one


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
            before = load_manifest(place, partition)
            if before is not None and place.folder is None and before.owner != owner:
                raise ConfigError(
                    "partition",
                    f"{place.shown(folder_of(partition))}: partition {partition} is {before.owner}'s, and this "
                    f"spool is {owner}; record into another one (--partition), or use that recorder's spool",
                    partition,
                )
            there = survey(place, folder, before, Manifest(partition, owner))
            if before is None and not there.end and not logs_in(folder):
                # Before the manifest: where there is a manifest and no head, the head is lost. One that cannot be read
                # is what an older nngkit left when it was killed, or its disk was full, between making and writing it.
                _write_head(folder, 0)
            manifest, found = _recovered(place, folder, there, salvage=salvage)
            there.apply(place)
            if manifest != before or found.end > manifest.end or not manifest.segments:
                save_manifest(place, manifest)  # also to see now, and not in an hour, that the journal can be written
            _write_head(folder, found.end)  # where --salvage goes on without one
            _tidy(place, folder, manifest, found)
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
            folder = folder_of(partition)
            try:
                sync_file(old.path)  # what was written before a crash and never synced is about to count
                written = write_segment(old, partition, scratch, gently=not self._stopping)
                if name in self.place.names(folder):  # somebody has put it there since this recorder started
                    aside = self.place.set_aside(f"{folder}/{name}", ORPHAN)
                    log_.warning("%s: not in the manifest, renamed to %s", self.place.shown(f"{folder}/{name}"), aside)
                self.place.publish(scratch, f"{folder}/{name}")
            except BaseException:
                scratch.unlink(missing_ok=True)
                raise
            manifest = manifest.sealed(written)
            save_manifest(self.place, manifest)
            self.manifest = manifest
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


def _recovered(place: Place, folder: Path, there: Survey, *, salvage: bool) -> tuple[Manifest, Recovered]:
    """The manifest with all that is known now, and what the logs hold. Raises Damaged, and has changed nothing."""
    if there.gaps and not salvage:
        raise refuse(place, there)
    manifest = there.manifest
    if there.gaps:
        manifest = replace(manifest, lost=_in_order(manifest.lost + there.gaps))
    found = recover(folder, manifest.partition, manifest.end, known=manifest.lost, given=there.end, salvage=salvage)
    lost = found.lost
    if read_head(folder) is None:
        # Only the head says up to where offsets were given, if the newest log is cut or gone as well.
        if not salvage:
            why = "it is missing or unreadable, and only it says which offsets were given"
            raise Damaged(str(folder / HEAD), why, offset=found.end, advice=ADVICE)
        skipped = Lost(found.end, found.end + SKIPPED, "left out, as the head is lost")
        lost, found = (*lost, skipped), replace(found, end=skipped.end)
    manifest = replace(manifest, lost=_in_order(manifest.lost + lost))
    if not found.logs:
        manifest = replace(manifest, end=found.end)
    return manifest, replace(found, lost=there.gaps + found.lost)


def _write_head(folder: Path, end: int) -> None:
    """Make a head where none can be read. It is there whole or not at all, wherever the recorder is killed."""
    if read_head(folder) is not None:
        return
    scratch = folder / (HEAD + SCRATCH)
    with scratch.open("wb") as file:
        file.write(Head(0, end, end, 0).encode())
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(folder / HEAD)
    sync_folder(folder)


def _in_order(lost: tuple[Lost, ...]) -> tuple[Lost, ...]:
    return tuple(sorted(lost, key=lambda each: each.first))


def _tidy(place: Place, folder: Path, manifest: Manifest, found: Recovered) -> None:
    """Remove logs whose records are in segments, and what was half written; put aside everything else."""
    here = set(place.names(folder_of(manifest.partition)))
    for path in found.done:
        first = int(path.name[:20])
        gone = any(each.file not in here and each.end > first for each in manifest.segments)
        if gone or not any(each.first <= first < each.end for each in manifest.segments):
            _set_aside(path, "it may hold records that no segment has")
        else:
            path.unlink()
            path.with_suffix(INDEX).unlink(missing_ok=True)
    for path in found.useless:
        _set_aside(path, "no record in it can be read")
    for entry in os.scandir(folder):
        if entry.name.endswith(SCRATCH):  # half written: adoption.py has renamed what is whole
            os.unlink(entry.path)


def _set_aside(path: Path, why: str) -> None:
    aside = path.with_name(f"{path.name}.{int(time.time() * 1e6)}.damaged")
    path.rename(aside)
    log_.warning("%s: renamed to %s: %s", path, aside.name, why)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What `rebuild_manifest` did.

    `adopted`: segments that were not listed. `orphans`: (file, why). `missing`: listed segments whose file is gone.
    `lost`: ranges without a record that were not known. `replaced`: the old manifest's new name; None: there was none.
    """

    manifest: Manifest
    adopted: tuple[str, ...]
    orphans: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]
    lost: tuple[Lost, ...]
    replaced: str | None


def rebuild_manifest(
    journal: str | os.PathLike[str], partition: int = 0, *, spool: str | os.PathLike[str] | None = None
) -> Rebuilt:
    """Make a partition's manifest from its segments. The old file is kept, renamed to `.replaced`.

    What the old manifest says of retention and of lost records is kept where it can be read. Offsets that no segment
    and no log has are counted as lost. Raises ConfigError if a recorder is at work, Damaged, OSError.
    """
    place = place_of(journal)
    check_journal(place)
    folder = (place.folder or Path(os.fspath(spool or ""))).absolute() / folder_of(partition)
    if place.folder is None and spool is None:
        raise ConfigError("spool", f"{journal} is shared: its logs need a folder", spool)
    if not folder.is_dir():
        raise ConfigError("partition", f"{folder}: there is no partition {partition}", partition)
    lock = _lock(folder)
    try:
        owner = _owner(folder, partition, shared=place.folder is None)
        name = f"{folder_of(partition)}/{MANIFEST}"
        old: Manifest | None = None
        with contextlib.suppress(Damaged, ConfigError):
            old = load_manifest(place, partition)
        if old is not None and place.folder is None and old.owner != owner:
            raise ConfigError(
                "partition", f"{place.shown(name)}: it is {old.owner}'s, and this spool is {owner}", owner
            )
        here = set(place.names(folder_of(partition)))
        known: Manifest | None = None
        missing: tuple[Segment, ...] = ()
        if old is not None:
            missing = tuple(each for each in old.segments if each.file not in here)
            known = replace(old, segments=tuple(each for each in old.segments if each.file in here))
        there = survey(place, folder, known, Manifest(partition, owner), orphans=True)
        manifest = there.manifest
        lost = [*there.gaps]
        for each in missing:
            lost += _uncovered(each.first, each.end, manifest)
        if not manifest.segments and old is None:
            manifest = replace(manifest, end=manifest.start)
        lost = list(_in_order(tuple(lost)))
        manifest = replace(manifest, lost=_in_order((*manifest.lost, *lost)))
        kept = None
        if MANIFEST in here:
            kept = f"{MANIFEST}.{int(time.time() * 1e6)}.replaced"
            place.replace(f"{folder_of(partition)}/{kept}", place.read(name))
        there.apply(place)
        save_manifest(place, manifest)
        files = tuple(each.file for each in missing if each.file not in {one.file for one in manifest.segments})
        return Rebuilt(manifest, tuple(name for _, name in there.adopted), there.orphans, files, tuple(lost), kept)
    finally:
        os.close(lock)


def _uncovered(first: int, end: int, manifest: Manifest) -> list[Lost]:
    """The offsets `first` to `end` - 1 without those that a segment has or that are known as lost."""
    left = [Lost(first, end, "its segment is missing")]
    have: list[Segment | Lost] = [*manifest.segments, *manifest.lost]
    for each in have:
        left = list(without(left, each.first, each.end))
    return left
