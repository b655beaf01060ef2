"""Merge small segments of a partition into larger ones, so that a quiet recorder does not leave 1,440 files a day.

Neighbours of about the same size are merged, `FAN` and more of them at once, until they are an eighth of the target: a
record is rewritten a few times at most. A recorder that is killed leaves the merged segment unlisted, and the next one
deletes it. Readers look offsets up again when a file has gone, so they notice nothing; other programs that were given
the names of files, as Spark's Parquet reader is, have an hour.

Programs without the manifest read `partition-*/*.parquet`, which has each sealed record once at any moment::

    merged        X-Y.parquet.pending is published and listed; its parts are not listed any more, and stay
    an hour later X-Y.parquet is linked to it, and its parts are deleted; X-Y.parquet is listed
    another hour  X-Y.parquet.pending is deleted

Several files cannot change places in one step. While they do, `swapping.parquet` is there, a link to the manifest: no
Parquet, so a read then fails, and is to be repeated, instead of counting a record twice or not at all. The parts stay
for `LISTED` seconds of that: DuckDB looks at each file after it has listed them, and leaves out those that have gone.

`plan_merge` decides, pure; `merge_segments` writes the file. `compact` does both for a journal without a recorder; a
recorder does it by itself, when nothing waits to be sealed. All need the partition's lock.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nngkit.errors import ConfigError, Damaged
from nngkit.journal.files import (
    MANIFEST,
    PENDING,
    SCRATCH,
    SEGMENT,
    SWAPPING,
    Storage,
    folder_of,
    opened,
    range_in,
    segment_name,
)
from nngkit.journal.manifest import RETIRE, Manifest, check_journal, load_manifest, save_block, save_manifest
from nngkit.journal.segments import Segment, Segments
from nngkit.journal.storage import open_storage
from nngkit.journal.writing.ownership import lock_partition, owner_of
from nngkit.journal.writing.segmentfile import METADATA, ROW_GROUP, ROW_GROUP_BYTES, crc_of, segment_writer

if TYPE_CHECKING:
    import pyarrow as pa

FAN: Final = 8  # segments that are merged at least; the next merge of the result is one of about eight times the size
MOST: Final = 1024  # segments that are merged at most: one block of the manifest
ADVICE: Final = "restore it from a backup; until then it is left out when segments are merged"
STAY: Final = 3600.0  # seconds until a merged segment takes the place of its parts
LISTED: Final = 0.25  # seconds in which a program has looked at all files that it has listed
PAUSE: Final = 0.002  # seconds for other threads after each row group


def plan_merge(segments: Segments, target: int, leave: Collection[str] = ()) -> list[Segment] | None:
    """Return neighbours to be merged, at most `target` bytes together; None if there are none. Reads blocks.

    `leave`: files of segments or blocks that are not considered. The recent ones, or those of a block, are merged
    before the next block is read, and of these the smallest first.
    """
    small = (each for each in segments.blocks if each.count >= FAN and each.bytes < each.count * target / FAN)
    blocks = (segments.entries(each) for each in small if each.file not in leave)
    for part in chain([segments.recent], blocks):
        for tier in range(math.ceil(math.log(max(target, FAN), FAN)), 0, -1):
            for run in _runs(part, segments.start, target / FAN**tier, leave):
                if (found := _fitting(run, target)) is not None:
                    return found
    return None


def settled(segments: Segments, target: int, leave: Collection[str]) -> set[str]:
    """Return the blocks in which `plan_merge` finds nothing: they need not be read again."""
    return {
        block.file
        for block in segments.blocks
        if block.file in leave or plan_merge(Segments(segments.entries(block), start=segments.start), target) is None
    }


def _runs(part: Sequence[Segment], start: int, limit: float, leave: Collection[str]) -> Iterator[list[Segment]]:
    """Yield runs of neighbours without a gap that are smaller than `limit`."""
    run: list[Segment] = []
    for each in part:
        if each.end <= start or each.bytes >= limit or each.file in leave or (run and run[-1].end != each.first):
            yield run
            run = []
        if each.end > start and each.bytes < limit and each.file not in leave:
            run.append(each)
    yield run


def _fitting(run: Sequence[Segment], target: int) -> list[Segment] | None:
    """Return as many of a run's segments as are one merged segment, if these are enough."""
    total, count = 0, 0
    for each in run[:MOST]:
        total += each.bytes
        if total > target:
            break
        count += 1
    return list(run[:count]) if count >= FAN else None


def merge_segments(
    storage: Storage, partition: int, run: Sequence[Segment], target: Path, *, gently: bool = True
) -> Segment:
    """Write the records of neighbouring segments to the local file `target`, unsynced; return its entry.

    Holds one row group in memory. `gently`: yield to other threads in between. Raises Damaged if a segment is not what
    the manifest says, OSError.
    """
    import pyarrow as pa

    first, end = run[0].first, run[-1].end
    rows = 0
    with segment_writer(target, first, end, merged=len(run)) as writer:
        waiting: list[pa.Table] = []
        count = size = 0
        for table in (table for each in run for table in _tables(storage, partition, each)):
            waiting.append(table)
            rows, count, size = rows + table.num_rows, count + table.num_rows, size + table.nbytes
            if count >= ROW_GROUP or size >= ROW_GROUP_BYTES:
                writer.write_table(pa.concat_tables(waiting), row_group_size=ROW_GROUP)
                waiting, count, size = [], 0, 0
                if gently:
                    time.sleep(PAUSE)
        if waiting:
            writer.write_table(pa.concat_tables(waiting), row_group_size=ROW_GROUP)
    topics: Counter[str] = Counter()
    for each in run:
        topics.update(each.topics)
    return Segment(
        segment_name(first, end) + PENDING,
        first,
        end,
        rows,
        target.stat().st_size,
        crc_of(target),
        min(each.min_time for each in run),
        max(each.max_time for each in run),
        dict(topics),
    )


def _tables(storage: Storage, partition: int, segment: Segment) -> Iterator[pa.Table]:
    """Yield the row groups of a segment. Raises Damaged if they are not what the manifest says."""
    import pyarrow as pa
    from pyarrow import parquet

    from nngkit.journal.schema import SCHEMA

    name = f"{folder_of(partition)}/{segment.file}"
    rows = 0
    try:
        with opened(storage, name) as file:
            source = parquet.ParquetFile(file, page_checksum_verification=True)
            version = (source.schema_arrow.metadata or {}).get(METADATA)
            for number in range(source.num_row_groups if version == b"1" else 0):
                table = source.read_row_group(number).cast(SCHEMA)
                rows += table.num_rows
                yield table
    except (pa.ArrowException, OSError) as error:
        raise Damaged(storage.shown(name), str(error).splitlines()[0], offset=segment.first, advice=ADVICE) from error
    if rows != segment.rows:
        why = f"version {version!r} and {rows} rows; the manifest expects b'1' and {segment.rows}"
        raise Damaged(storage.shown(name), why, offset=segment.first, advice=ADVICE)


def merged_into(
    storage: Storage, scratch: Path, manifest: Manifest, run: Sequence[Segment], *, gently: bool = True
) -> Manifest:
    """Merge neighbouring segments; return the new manifest, saved. `scratch`: a local folder. Raises Damaged, OSError.

    The parts are retired: `delete_retired` has the merged segment take their place after `STAY` seconds.
    """
    partition = manifest.partition
    path = scratch / (segment_name(run[0].first, run[-1].end) + SCRATCH)
    try:
        merged = merge_segments(storage, partition, run, path, gently=gently)
        storage.publish(path, f"{folder_of(partition)}/{merged.file}")
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    now = time.time()
    segments = manifest.segments.merged(run, merged, lambda entries: save_block(storage, partition, entries))
    manifest = manifest.listing(segments, now).retiring([each.file for each in run], now, STAY)
    return save_manifest(storage, manifest)


def delete_retired(storage: Storage, manifest: Manifest, now: float) -> Manifest:
    """Delete the files whose time has come; return the manifest without them, unsaved. Raises Damaged, OSError.

    Parts of a pending segment wait for the last of them, and are replaced by it; they stay if its file is missing.
    Needs no space on a local disk, so that a full one gets some.
    """
    due = {each.file for each in manifest.retired if each.at + RETIRE <= now}
    if not due:
        return manifest
    folder, gone = folder_of(manifest.partition), set(due)
    swaps: list[tuple[Segment, set[str]]] = []
    for segment in _pending(manifest, due):
        parts = {each.file for each in manifest.retired if _is_within(each.file, segment)}
        gone -= parts
        if parts <= due and storage.exists(f"{folder}/{segment.file}"):
            swaps.append((segment, parts))
        else:
            due -= parts
    for file in gone:
        storage.remove(f"{folder}/{file}")
    if swaps:
        manifest = _swapped(storage, manifest, swaps, now)
    return replace(manifest, retired=tuple(each for each in manifest.retired if each.file not in due))


def _pending(manifest: Manifest, due: Collection[str]) -> list[Segment]:
    """Return the pending segments of which parts are due. Reads blocks."""
    ranges = [found for file in due if file.endswith(SEGMENT) and (found := range_in(file)) is not None]
    if not ranges:
        return []
    there = manifest.segments.covering(min(ranges)[0], max(end for _, end in ranges))
    pending = [each for each in there if isinstance(each, Segment) and each.file.endswith(PENDING)]
    return [each for each in pending if any(each.first <= first and end <= each.end for first, end in ranges)]


def _is_within(file: str, segment: Segment) -> bool:
    found = range_in(file) if file.endswith(SEGMENT) else None
    return found is not None and segment.first <= found[0] and found[1] <= segment.end


def _swapped(storage: Storage, manifest: Manifest, swaps: list[tuple[Segment, set[str]]], now: float) -> Manifest:
    """Put pending segments in the place of their parts; return the manifest that lists them so, unsaved."""
    folder = folder_of(manifest.partition)
    storage.link(f"{folder}/{MANIFEST}", f"{folder}/{SWAPPING}")
    shown = [replace(segment, file=segment.file.removesuffix(PENDING)) for segment, _ in swaps]
    for (segment, _), one in zip(swaps, shown, strict=True):
        storage.link(f"{folder}/{segment.file}", f"{folder}/{one.file}")
    time.sleep(LISTED)
    for file in chain.from_iterable(parts for _, parts in swaps):
        storage.remove(f"{folder}/{file}")
    storage.remove(f"{folder}/{SWAPPING}")
    write = partial(save_block, storage, manifest.partition)
    for (segment, _), one in zip(swaps, shown, strict=True):
        manifest = manifest.listing(manifest.segments.merged([segment], one, write), now)
    return manifest.retiring([segment.file for segment, _ in swaps], now, STAY)


@dataclass(frozen=True, slots=True)
class Compacted:
    """Result of `compact`: segments `before` and after it, `rewritten` bytes, and what could not be merged.

    `damaged`: (file, why).
    """

    before: int
    after: int
    rewritten: int
    damaged: tuple[tuple[str, str], ...] = ()


def compact(
    journal: str | os.PathLike[str],
    partition: int = 0,
    *,
    spool: str | os.PathLike[str] | None = None,
    target: int = 64 << 20,
) -> Compacted:
    """Merge all small segments of a partition that has no recorder. Readers may run.

    A segment is merged with its neighbours until it is at least an eighth of `target` bytes. What a kill leaves is a
    valid journal. Raises ConfigError if a recorder runs, Damaged, OSError.
    """
    storage = open_storage(journal)
    check_journal(storage)
    if storage.folder is None and spool is None:
        raise ConfigError("spool", f"{storage.shown('')} is shared storage: its owner's local folder is needed", spool)
    folder = (storage.folder or Path(os.fspath(spool or ""))).absolute() / folder_of(partition)
    if not folder.is_dir():
        raise ConfigError("partition", f"{folder}: there is no partition {partition}", partition)
    lock = lock_partition(folder)
    try:
        manifest = load_manifest(storage, partition)
        if manifest is None:
            return Compacted(0, 0, 0)
        owner = owner_of(folder, partition, shared=storage.folder is None)
        if manifest.owner != owner:
            why = f"{storage.shown(folder_of(partition))}: belongs to {manifest.owner}, and this spool is {owner}"
            raise ConfigError("partition", why, partition)
        before, rewritten = len(manifest.segments), 0
        damaged: dict[str, str] = {}
        while (run := plan_merge(manifest.segments, target, damaged)) is not None:
            try:
                manifest = merged_into(storage, folder, manifest, run, gently=False)
            except Damaged as error:
                damaged[_named(error, run)] = error.why
                continue
            rewritten += sum(each.bytes for each in run)
        kept = delete_retired(storage, manifest, time.time())
        if kept != manifest:
            manifest = save_manifest(storage, kept)
        return Compacted(before, len(manifest.segments), rewritten, tuple(damaged.items()))
    finally:
        os.close(lock)


def _named(error: Damaged, run: Sequence[Segment]) -> str:
    """Return the file of the segment that an error names."""
    return next(each.file for each in run if error.offset == each.first)
