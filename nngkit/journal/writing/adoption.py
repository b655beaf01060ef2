"""Handle segments missing from the manifest: adopt them if they fit, else rename them to `.orphan`. Delete no record.

Such files remain when a recorder is killed between two steps of sealing, or when the manifest is lost or replaced by
an older copy. The offsets of a segment are read from the file, not from its name.

=======================================================  ==========================================================
unlisted segment                                         result
=======================================================  ==========================================================
has offsets that no listed segment has                   listed under its own name
has all offsets of listed ones, some of whose files are  listed in place of these segments
gone
is a merge of listed segments (merging.py)               deleted: the recorder was killed before it listed it
overlaps a listed segment, or begins before `start`      `.orphan`
differs from a log that holds the same offsets           `.orphan`
cannot be read, or belongs to another partition          `.orphan`
=======================================================  ==========================================================

`plan_adoption` reads and decides; `Adoption.apply` renames. The caller holds the partition's lock.
"""

from __future__ import annotations

import bisect
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

from nngkit.errors import ConfigError, Damaged
from nngkit.journal.files import (
    MANIFEST,
    PENDING,
    SCRATCH,
    SEGMENT,
    SWAPPING,
    Storage,
    folder_of,
    logs_in,
    opened,
    range_in,
    segment_name,
    sync_file,
)
from nngkit.journal.logfile import open_log
from nngkit.journal.manifest import ADVICE as MANIFEST_ADVICE
from nngkit.journal.manifest import Lost, Manifest
from nngkit.journal.segments import Segment, Segments
from nngkit.journal.writing.segmentfile import MERGED, METADATA, crc_of, range_of

log_ = logging.getLogger("nngkit.journal")

ORPHAN: Final = ".orphan"
ADVICE: Final = (
    "restore the segment or the manifest from a backup, or continue and count the records as lost "
    "(`nngkit record --salvage`, `nngkit journal rebuild-manifest`)"
)


@dataclass(frozen=True, slots=True)
class Adoption:
    """Manifest with the adopted segments, and the renames that it needs.

    `adopted`: (file, listed name). `orphans`: (file, reason). `gaps`: offsets in no segment that the given manifest did
    not list as lost; not yet in `manifest`. `end`: all offsets below it have been assigned. `copies`: merged
    files whose records listed segments have.
    """

    manifest: Manifest
    adopted: tuple[tuple[str, str], ...] = ()
    orphans: tuple[tuple[str, str], ...] = ()
    gaps: tuple[Lost, ...] = ()
    end: int = 0
    copies: tuple[str, ...] = ()

    def apply(self, storage: Storage) -> None:
        """Rename the files and log each rename; delete the copies. Raises OSError."""
        folder = folder_of(self.manifest.partition)
        for file in self.copies:
            storage.remove(f"{folder}/{file}")
        for file, why in self.orphans:
            aside = storage.set_aside(f"{folder}/{file}", ORPHAN)
            log_.warning("%s: not in the manifest, renamed to %s: %s", storage.shown(f"{folder}/{file}"), aside, why)
        for file, name in self.adopted:
            if file != name:
                if name in storage.names(folder):
                    storage.set_aside(f"{folder}/{name}", ORPHAN)
                if storage.folder is not None:
                    sync_file(storage.folder / folder / file)
                storage.rename(f"{folder}/{file}", f"{folder}/{name}")
            log_.warning("%s: not in the manifest, adopted as %s", storage.shown(f"{folder}/{file}"), name)


class _Fitting:
    """Segments accepted so far, and rejected files."""

    def __init__(self, manifest: Manifest, here: Collection[str]) -> None:
        self.segments = list(manifest.segments)
        self.adopted: list[tuple[str, Segment]] = []
        self.orphans: list[tuple[str, str]] = []
        self.replaced: list[str] = []
        self.end = manifest.end
        self._manifest = manifest
        self._lost: tuple[Lost, ...] = manifest.lost
        self._gone = {each.file for each in self.segments} - set(here)  # listed segments without a file

    def offer(self, file: str, segment: Segment) -> None:
        self.end = max(self.end, segment.end)
        if segment.first < self._manifest.start:
            self.orphans.append((file, f"the journal begins with offset {self._manifest.start}"))
            return
        place, over = self._overlapped(segment.first, segment.end)
        if over:
            inside = segment.first <= over[0].first and over[-1].end <= segment.end
            if not inside or not any(each.file in self._gone for each in over):
                self.orphans.append((file, f"{over[0].file} has its offsets"))
                return
            self.replaced += [each.file for each in over if each.file not in self._gone]
            self._gone -= {each.file for each in over}
        self.segments[place : place + len(over)] = [segment]
        self._lost = tuple(without(self._lost, segment.first, segment.end))
        self.adopted.append((file, segment))

    def has_all(self, segment: Segment) -> bool:
        """Return True if the listed segments have all records of this one, and their files are there."""
        _, over = self._overlapped(segment.first, segment.end)
        return self.covers(segment.first, segment.end) and sum(each.rows for each in over) == segment.rows

    def covers(self, first: int, end: int) -> bool:
        """Return True if listed segments with a file have all offsets from `first` to `end` - 1, and no others."""
        _, over = self._overlapped(first, end)
        whole = all(before.end == after.first for before, after in pairwise(over))
        same = bool(over) and (over[0].first, over[-1].end) == (first, end)
        return same and whole and not any(each.file in self._gone for each in over)

    def _overlapped(self, first: int, end: int) -> tuple[int, list[Segment]]:
        """Return the place of these offsets in the list, and the segments there that have some of them."""
        place = bisect.bisect_right(self.segments, first, key=lambda each: each.end)
        behind = bisect.bisect_left(self.segments, end, key=lambda each: each.first)
        return place, self.segments[place:behind]

    def result(self) -> Manifest:
        """Return the manifest with the accepted segments."""
        if not self.adopted:
            return self._manifest
        listed = Segments(self.segments, start=self._manifest.start)
        end = max(self._manifest.end, *(each.end for _, each in self.adopted))
        now = time.time()
        return replace(self._manifest.listing(listed, now).retiring(self.replaced, now), lost=self._lost, end=end)


def plan_adoption(
    storage: Storage, logs: Path, manifest: Manifest | None, fresh: Manifest, *, orphans: bool = False
) -> Adoption:
    """Inspect every file of the partition that could be a segment. Changes nothing.

    `logs`: the folder of its logs. `manifest`: None if there is none; `fresh` is the manifest to begin with then.
    `orphans`: also inspect `.orphan` files. Raises ConfigError for a segment of another format version; OSError.
    """
    partition = fresh.partition
    folder = folder_of(partition)
    names = storage.names(folder)
    given = manifest or fresh
    try:
        segments = list(given.segments)
    except FileNotFoundError as error:
        raise Damaged(str(error.filename), "the file is missing", advice=MANIFEST_ADVICE) from error
    # A pending segment may have got its other name already, before the manifest said so.
    known = {name for each in segments for name in (each.file, each.file.removesuffix(PENDING))}
    known |= {each.file for each in given.retired}
    firsts = {first for first, _ in logs_in(logs)}
    strays = [name for name in names if name not in known and _may_be(name, orphans)]
    fitting = _Fitting(given, names)
    found: list[tuple[str, Segment]] = []
    refused: list[tuple[str, str]] = []
    # Left by a kill: with its parts, the next `delete_retired` replaces them again, and ends with it.
    copies = [name for name in names if name == SWAPPING and not given.retired]
    for name in strays:
        try:
            found.append((name, describe_segment(storage, partition, name)))
        except Damaged as error:
            named = range_in(name) if name.endswith(SCRATCH) else None
            if named is not None and fitting.covers(*named):  # a merge was interrupted
                copies.append(name)
            elif named is None or named[0] not in firsts:  # else sealing was
                refused.append((name, error.why))
    found.sort(key=lambda each: (each[1].first, each[0].removesuffix(PENDING) != each[1].file, -each[1].end))
    retired = {each.file for each in given.retired}
    for name, segment in found:
        if segment.file in retired:
            refused.append((name, "retention has retired it"))
        elif why := _differs(storage, partition, name, segment, logs):
            refused.append((name, why))
            fitting.end = max(fitting.end, segment.end)
        elif fitting.has_all(segment) and _is_merge(storage, f"{folder}/{name}"):
            copies.append(name)
        else:
            fitting.offer(name, segment)
    result = fitting.result()
    if manifest is None:
        start = min((*(each.first for each in fitting.segments), *firsts), default=0)
        listed = Segments(fitting.segments, start=start)
        result = replace(result, start=start, end=max(result.end, start), segments=listed)
    gaps = tuple(_gaps(result, given.end if manifest is not None else result.start))
    refused += fitting.orphans
    refused = [(name, why) for name, why in refused if _may_be(name, orphans=False)]
    adopted = tuple((name, segment.file) for name, segment in fitting.adopted)
    return Adoption(result, adopted, tuple(refused), gaps, max(fitting.end, result.end), tuple(copies))


def describe_segment(storage: Storage, partition: int, file: str) -> Segment:
    """Return the manifest entry of a segment, computed from the file. Raises Damaged; ConfigError: another version."""
    import pyarrow as pa
    from pyarrow import compute, parquet

    name = f"{folder_of(partition)}/{file}"
    shown = storage.shown(name)
    topics: Counter[str] = Counter()
    rows, low, high, next_offset, least = 0, 1 << 62, -(1 << 62), 0, None
    try:
        with opened(storage, name) as opened_file:
            source = parquet.ParquetFile(opened_file, page_checksum_verification=True)
            metadata = source.schema_arrow.metadata or {}
            version = metadata.get(METADATA)
            if version is None:
                raise Damaged(shown, "no segment of a journal")
            if version != b"1":
                why = f"{shown}: version {version.decode(errors='replace')} of the format; use the nngkit that wrote it"
                raise ConfigError("journal", why, version)
            for number in range(source.num_row_groups):
                group = source.read_row_group(number, ["topic", "partition", "offset", "timestamp"])
                offsets = group.column("offset").combine_chunks()
                if not len(offsets):
                    continue
                # By Arrow alone: the extra `journal` has no NumPy, which pyarrow does not require.
                falls = compute.any(compute.less_equal(offsets[1:], offsets[:-1])).as_py()
                if falls or offsets[0].as_py() < next_offset:
                    raise Damaged(shown, "its offsets are not in order")
                least = offsets[0].as_py() if least is None else least
                next_offset = offsets[-1].as_py() + 1
                if compute.any(compute.not_equal(group.column("partition"), partition)).as_py():
                    raise Damaged(shown, "it belongs to another partition")
                for each in compute.value_counts(group.column("topic").combine_chunks()).to_pylist():
                    topics[each["values"]] += each["counts"]
                times = compute.min_max(group.column("timestamp").cast(pa.int64())).as_py()
                low, high = min(low, times["min"]), max(high, times["max"])
                rows += group.num_rows
        with opened(storage, name) as opened_file:
            crc = crc_of(opened_file)
        size = storage.size(name)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise Damaged(shown, str(error).splitlines()[0]) from error
    if least is None:
        raise Damaged(shown, "it has no records")
    first, end = range_of(metadata, file, least, next_offset, rows)
    return Segment(segment_name(first, end), first, end, rows, size, crc, low, high, dict(topics))


def _may_be(name: str, orphans: bool) -> bool:
    """Return True if the file could be a segment. A scratch file may be complete while its log is damaged."""
    if name == SWAPPING:
        return False
    is_one = name.removesuffix(SCRATCH).removesuffix(PENDING).endswith(SEGMENT)
    return is_one or (orphans and name.endswith(ORPHAN) and SEGMENT in name)


def _is_merge(storage: Storage, name: str) -> bool:
    from pyarrow import parquet

    with opened(storage, name) as file:
        return MERGED in (parquet.read_schema(file).metadata or {})


def _differs(storage: Storage, partition: int, file: str, segment: Segment, logs: Path) -> str | None:
    """Return the reason why a segment does not match the local logs: a record in both differs. None if it matches."""
    found = logs_in(logs)
    for number, (first, path) in enumerate(found):
        border = found[number + 1][0] if number + 1 < len(found) else segment.end
        begin, stop = max(first, segment.first), min(border, segment.end)
        if begin >= stop:
            continue
        known = _values(storage, f"{folder_of(partition)}/{file}", begin, stop)
        try:
            with open_log(path) as log:
                for piece in log.chunks(begin, stop, skip=True):
                    for offset, timestamp, _, key, _, value in piece:
                        if offset in known and known[offset] != hash((timestamp, key, value)):
                            return f"offset {offset} is another record in {path.name}"
        except Damaged:  # without a valid header nothing can be compared
            continue
    return None


def _values(storage: Storage, name: str, first: int, stop: int) -> dict[int, int]:
    import pyarrow as pa
    from pyarrow import parquet

    known: dict[int, int] = {}
    with opened(storage, name) as file:
        try:
            source = parquet.ParquetFile(file, page_checksum_verification=True)
            for batch in source.iter_batches(4096, columns=["key", "value", "offset", "timestamp"]):
                times = batch.column("timestamp").cast(pa.int64()).to_pylist()
                for offset, moment, key, value in zip(
                    batch.column("offset").to_pylist(),
                    times,
                    batch.column("key").to_pylist(),
                    batch.column("value").to_pylist(),
                    strict=True,
                ):
                    if first <= offset < stop:
                        known[offset] = hash((moment, key, value))
        except (pa.ArrowException, OSError):  # compare only the readable part
            pass
    return known


def without(ranges: Iterable[Lost], first: int, end: int) -> Iterable[Lost]:
    """Yield the ranges without the offsets `first` to `end` - 1."""
    for each in ranges:
        if each.first < min(each.end, first):
            yield replace(each, end=min(each.end, first))
        if max(each.first, end) < each.end:
            yield replace(each, first=max(each.first, end))


def _gaps(manifest: Manifest, known: int) -> Iterable[Lost]:
    """Yield the ranges from `known` to the end that are neither in a segment nor listed as lost."""
    at = known
    covered: Sequence[Segment | Lost] = sorted((*manifest.segments, *manifest.lost), key=lambda each: each.first)
    for each in covered:
        if at < each.first:
            yield Lost(at, each.first, "no segment has them")
        at = max(at, each.end)
    if at < manifest.end:
        yield Lost(at, manifest.end, "no segment has them")


def gap_error(storage: Storage, found: Adoption) -> Damaged:
    """Return the error for the first gap."""
    gap = found.gaps[0]
    shown = storage.shown(f"{folder_of(found.manifest.partition)}/{MANIFEST}")
    return Damaged(shown, f"no segment has the offsets up to {gap.end - 1}", offset=gap.first, advice=ADVICE)
