"""Write a log's records as one Parquet segment, and read its offset range. Does not know: manifests, threads.

The file's metadata holds its offset range, as its name does: `nngkit.first` and `nngkit.end`. Damage to the log may
have taken the first or last record, so the records alone do not tell.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nngkit.errors import Damaged
from nngkit.file_modes import make_file
from nngkit.journal.files import segment_name
from nngkit.journal.logfile import open_log
from nngkit.journal.record import crc32c, decode_origin
from nngkit.journal.segments import Segment
from nngkit.journal.writing.recovery import OldLog

if TYPE_CHECKING:
    from pyarrow import parquet

METADATA: Final = b"nngkit.journal"  # format version, 1
FIRST: Final = b"nngkit.first"
END: Final = b"nngkit.end"
MERGED: Final = b"nngkit.merged"  # how many segments were merged into it
ROW_GROUP: Final = 65_536  # rows: the unit of reading; 6 MB at 100 B a record
ROW_GROUP_BYTES: Final = 64 << 20  # fewer rows if they are large
PIECE: Final = 512  # records decoded before yielding to other threads: 1 ms
PAUSE: Final = 0.0003  # seconds of that yield


def segment_writer(target: Path, first: int, end: int, merged: int = 0) -> parquet.ParquetWriter:
    """Return a writer of a segment with the offsets `first` to `end` - 1. `merged`: how many segments it replaces."""
    from pyarrow import parquet

    from nngkit.journal.schema import SCHEMA

    make_file(target)
    metadata = {METADATA: b"1", FIRST: b"%d" % first, END: b"%d" % end}
    return parquet.ParquetWriter(
        target,
        SCHEMA.with_metadata(metadata | ({MERGED: b"%d" % merged} if merged else {})),
        compression="zstd",
        compression_level=1,  # text shrinks to half its size, at 1 GB a minute on one core
        use_dictionary=["topic", "partition", "protocol", "peer", "key"],
        write_statistics=["topic", "partition", "offset", "timestamp"],
        write_page_checksum=True,
    )


def write_segment(old: OldLog, partition: int, target: Path, *, gently: bool = True) -> Segment:
    """Write a log's records to `target` as Parquet, unsynced. Raises Damaged, OSError.

    `gently`: yield to other threads in between.
    """
    import pyarrow as pa

    from nngkit.journal.schema import SCHEMA, batch_of

    topics: Counter[str] = Counter()
    rows, low, high = 0, 1 << 62, -(1 << 62)
    with open_log(old.path) as log, segment_writer(target, old.first, old.end) as writer:
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
        raise Damaged(str(old.path), "it has no readable record", offset=old.first)
    crc = crc_of(target)
    size = target.stat().st_size
    return Segment(segment_name(old.first, old.end), old.first, old.end, rows, size, crc, low, high, dict(topics))


def crc_of(file: Any) -> int:
    """Return the CRC32C of a file, given as a path or an open file."""
    if isinstance(file, (str, os.PathLike)):
        with open(file, "rb") as opened:
            return crc_of(opened)
    crc = 0
    while data := file.read(1 << 20):
        crc = crc32c(crc, data)
    return crc


def range_of(metadata: Mapping[bytes, bytes], file: str, least: int, behind: int, rows: int) -> tuple[int, int]:
    """Return (first, end) of a segment with `rows` records from `least` to `behind` - 1.

    For a file without a range in its metadata, the name decides if records are missing and the name covers them.
    """
    try:
        first, end = int(metadata[FIRST]), int(metadata[END])
    except (KeyError, ValueError):
        first, end = least, behind
        name = file.partition(".")[0].split("-")
        if rows < behind - least and len(name) == 2 and all(len(each) == 20 and each.isdigit() for each in name):
            first, end = int(name[0]), int(name[1])
    return (first, end) if first <= least and behind <= end else (least, behind)
