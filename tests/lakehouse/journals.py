"""Journals for the tests of tables: segments as sealed, and as a journal that merges them or has more columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyarrow import parquet

from nngkit.journal import Journal, Retention, Segment
from nngkit.journal.files import segment_name
from tests.spark.journals import append, opened


def seal(folder: Path, count: int, first: int = 0, partition: int = 0, retention: Retention | None = None) -> None:
    """Write one segment of `count` records: times and values are numbers, every third has headers."""
    records = [{"topic": f"t{n % 2}", "headers": {"n": b"%d" % n} if n % 3 == 0 else None} for n in range(count)]
    with opened(folder, partition, retention=retention) as part:
        append(part, records, first)


def path_of(folder: Path, segment: Segment, partition: int = 0) -> Path:
    return folder / f"partition-{partition:05}" / segment.file


class Changed(Journal):
    """Journal with other segments than its manifest lists: as one that has merged them lists them."""

    def __init__(self, folder: Path, segments: Sequence[Segment]) -> None:
        super().__init__(str(folder), None)
        self._segments = list(segments)

    def segments(self, partition: int) -> list[Segment]:
        return self._segments


def written(folder: Path, table: Any, first: int, end: int) -> Segment:
    """Write `table` as the segment with these offsets."""
    path = folder / "partition-00000" / segment_name(first, end)
    parquet.write_table(table, path, compression="zstd", write_statistics=["partition", "offset", "timestamp", "topic"])
    return Segment(path.name, first, end, table.num_rows, path.stat().st_size, 0, 0, 0, {})


def merged(folder: Path, segments: Sequence[Segment]) -> Segment:
    """Write the records of `segments` as one segment."""
    table = parquet.ParquetDataset([path_of(folder, each) for each in segments]).read()
    return replace(written(folder, table, segments[0].first, segments[-1].end), rows=table.num_rows)
