"""Check every byte of a journal; report intact, damaged and missing files. Changes nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from nngkit.errors import ConfigError, Damaged
from nngkit.journal.files import MANIFEST, folder_of, logs_in, opened
from nngkit.journal.logfile import read_head, scan
from nngkit.journal.manifest import ADVICE, Manifest
from nngkit.journal.reader import Journal
from nngkit.journal.segments import Segment, Segments
from nngkit.journal.writing.segmentfile import crc_of

NO_WORD: Final = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result for one file: good, damaged, missing, or torn (a killed recorder's log end, which was never acknowledged).

    `first` to `end` - 1 are its readable offsets; `offset` and `position`: where the fault begins.
    """

    partition: int
    file: str
    kind: Literal["manifest", "segment", "log"]
    state: Literal["good", "torn", "damaged", "missing"]
    first: int
    end: int
    size: int = 0
    why: str = NO_WORD
    offset: int | None = None
    position: int | None = None

    @property
    def bad(self) -> bool:
        """Return True if stored records are lost."""
        return self.state in ("damaged", "missing")


def verify(journal: Journal, partition: int | None = None) -> Iterator[Finding]:
    """Yield a finding for every file of the journal, or of one partition, in offset order."""
    for number in journal.partitions() if partition is None else [partition]:
        shown = journal.storage.shown(f"{folder_of(number)}/{MANIFEST}")
        try:
            manifest = journal.manifest(number)
        except (Damaged, ConfigError) as error:
            yield Finding(number, shown, "manifest", "damaged", 0, 0, why=str(error))
            continue
        yield Finding(number, shown, "manifest", "good", manifest.start, manifest.end)
        yield from _blocks(journal, manifest)
        yield from _segments(journal, manifest)
        yield from _logs(journal, manifest)


def _blocks(journal: Journal, manifest: Manifest) -> Iterator[Finding]:
    for block in manifest.segments.blocks:
        shown = journal.storage.shown(f"{folder_of(manifest.partition)}/{block.file}")
        try:
            manifest.segments.entries(block)
        except FileNotFoundError:
            why = f"the file is missing; {ADVICE}"
            yield Finding(manifest.partition, shown, "manifest", "missing", block.first, block.end, why=why)
        except Damaged as error:
            why = f"{error.why}; {ADVICE}"
            yield Finding(manifest.partition, shown, "manifest", "damaged", block.first, block.end, why=why)


def _readable(segments: Segments) -> Iterator[Segment]:
    for block in segments.blocks:
        with contextlib.suppress(Damaged, FileNotFoundError):
            yield from (each for each in segments.entries(block) if each.end > segments.start)
    yield from segments.recent


def _segments(journal: Journal, manifest: Manifest) -> Iterator[Finding]:
    storage, at = journal.storage, manifest.start
    for segment in _readable(manifest.segments):
        name = f"{folder_of(manifest.partition)}/{segment.file}"
        shown, first, end = storage.shown(name), segment.first, segment.end
        if at < first and not any(lost.first <= at and first <= lost.end for lost in manifest.lost):
            why = f"no segment has the offsets {at} to {first - 1}"
            yield Finding(manifest.partition, shown, "segment", "missing", at, first, why=why, offset=at)
        at = end
        try:
            with opened(storage, name) as file:
                crc = crc_of(file)
        except FileNotFoundError:
            why = "the file is missing"
            yield Finding(manifest.partition, shown, "segment", "missing", first, end, why=why, offset=first)
            continue
        except OSError as error:
            why = error.strerror or str(error)
            yield Finding(manifest.partition, shown, "segment", "damaged", first, end, why=why, offset=first)
            continue
        if crc == segment.crc32c:
            yield Finding(manifest.partition, shown, "segment", "good", first, end, segment.bytes)
        else:
            why = f"checksum {crc:08x}, but {segment.crc32c:08x} in the manifest"
            yield Finding(manifest.partition, shown, "segment", "damaged", first, end, segment.bytes, why, first)


def _logs(journal: Journal, manifest: Manifest) -> Iterator[Finding]:
    folder = journal.logs(manifest.partition)
    if folder is None:
        return
    head = read_head(folder)
    synced = manifest.end if head is None else max(head.end, manifest.end)
    found, at = logs_in(folder), manifest.end
    state: Literal["good", "torn", "damaged"]
    for number, (first, path) in enumerate(found):
        border = found[number + 1][0] if number + 1 < len(found) else synced
        at = _over(manifest, at)
        if at < first:
            why = f"no log has the offsets {at} to {first - 1}"
            yield Finding(manifest.partition, str(path), "log", "missing", at, first, why=why, offset=at)
        try:
            seen = scan(path, partition=manifest.partition)
        except FileNotFoundError:  # sealed meanwhile
            continue
        except Damaged as error:
            size = path.stat().st_size
            state = "damaged" if border > first else "torn"
            yield Finding(manifest.partition, str(path), "log", state, first, border, size, error.why, first, 0)
            at = max(at, border)
            continue
        at = max(at, seen.end, border)
        if seen.end < border or (seen.behind is not None and seen.behind[1] < border):
            why = seen.fault or f"it ends here, but had offsets up to {border - 1}"
            where = (seen.end, seen.position)
            yield Finding(manifest.partition, str(path), "log", "damaged", first, seen.end, seen.size, why, *where)
        else:
            state = "torn" if seen.torn else "good"
            why = f"incomplete record of {seen.torn} bytes at its end" if seen.torn else NO_WORD
            yield Finding(manifest.partition, str(path), "log", state, first, seen.end, seen.size, why)
    at = _over(manifest, at)
    if at < synced:
        why = f"no log has the offsets {at} to {synced - 1}"
        yield Finding(manifest.partition, str(folder), "log", "missing", at, synced, why=why, offset=at)


def _over(manifest: Manifest, at: int) -> int:
    """Return the first offset from `at` on that is not known to be lost."""
    for lost in sorted(manifest.lost, key=lambda each: each.first):
        if lost.first <= at < lost.end:
            at = lost.end
    return at
