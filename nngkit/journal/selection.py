"""A reader's selection of rows from one segment or log, and the accounting of skipped damage.

A segment is read by row groups. Each is returned or skipped as a whole, so the skipped rows do not depend on how a
read is split. Does not know: which file has which offset.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nngkit.errors import Damaged
from nngkit.journal.files import folder_of, logs_in, opened
from nngkit.journal.logfile import open_log, read_head
from nngkit.journal.segments import Segment

if TYPE_CHECKING:
    import pyarrow as pa

    from nngkit.journal.files import Storage

log_ = logging.getLogger("nngkit.journal")

ADVICE: Final = "restore the file from a backup, or continue without it (missing='skip', --skip-missing)"


@dataclass(frozen=True, slots=True)
class Skipped:
    """Damage skipped by a reader: `rows` records with offsets from `first` to `end` - 1, in `file`.

    Counts the requested offsets, before filters by topic and time, as the records cannot be read. The parts of a
    split read add up to the same number.
    """

    partition: int
    file: str
    first: int
    end: int
    rows: int
    why: str

    def __str__(self) -> str:
        return f"{self.file}: skipped {self.rows} records, offsets {self.first} to {self.end - 1}: {self.why}"


def log_skipped(skipped: Skipped) -> None:
    """Log the damage as a warning."""
    log_.warning("%s", skipped)


def excluded(segment: Segment, topics: Collection[str] | None, start_time: int | None, end_time: int | None) -> bool:
    """Return True if the manifest entry rules out that the segment has a record of these topics and times."""
    outside = _outside(segment.min_time, segment.max_time, start_time, end_time)
    return outside or (topics is not None and not set(topics) & segment.topics.keys())


def _outside(low: int, high: int, start_time: int | None, end_time: int | None) -> bool:
    return (start_time is not None and high < start_time) or (end_time is not None and low >= end_time)


@dataclass(frozen=True, slots=True)
class Selection:
    """Filters, columns and damage policy of one read."""

    partition: int
    topics: Collection[str] | None
    start_time: int | None
    end_time: int | None
    columns: Sequence[str] | None
    skip: bool
    batch_rows: int
    skipped: Callable[[Skipped], object]

    def skip_rows(self, file: str, held: tuple[int, int, int], first: int, stop: int, why: str) -> None:
        """Report that of a file or row group, `held` (first, end, rows), `first` to `stop` - 1 are left out.

        If it already lacked records, it is unknown which; all its rows are then counted with its first offset.
        """
        begin, end, rows = held
        low, high = max(begin, first), min(end, stop)
        if low >= high:
            return
        if rows == end - begin:
            rows = high - low
        elif low > begin:
            rows = 0
        if rows:
            self.skipped(Skipped(self.partition, file, low, high, rows, why))

    def excludes(self, segment: Segment) -> bool:
        """Return True if the manifest entry rules out every row."""
        return excluded(segment, self.topics, self.start_time, self.end_time)

    def cut(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if self.columns is None else batch.select(list(self.columns))

    def filtered(self, batch: pa.RecordBatch, first: int, stop: int) -> pa.RecordBatch:
        import pyarrow as pa
        from pyarrow import compute

        offsets, masks = batch.column("offset"), []
        if offsets[0].as_py() < first:
            masks.append(compute.greater_equal(offsets, first))
        if offsets[-1].as_py() >= stop:
            masks.append(compute.less(offsets, stop))
        if self.topics is not None:
            masks.append(compute.is_in(batch.column("topic"), value_set=pa.array(list(self.topics), pa.string())))
        moment = batch.schema.field("timestamp").type if "timestamp" in batch.schema.names else None
        if self.start_time is not None:
            masks.append(compute.greater_equal(batch.column("timestamp"), pa.scalar(self.start_time, moment)))
        if self.end_time is not None:
            masks.append(compute.less(batch.column("timestamp"), pa.scalar(self.end_time, moment)))
        for mask in masks[1:]:
            masks[0] = compute.and_(masks[0], mask)
        return batch.filter(masks[0]) if masks else batch

    def of_segment(
        self, storage: Storage, partition: int, segment: Segment, first: int, stop: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches with the requested columns and those needed for filters and offsets. Raises Damaged."""
        import pyarrow as pa
        from pyarrow import parquet

        from nngkit.journal.schema import NAMES

        name = f"{folder_of(partition)}/{segment.file}"
        shown = storage.shown(name)
        needed = {"offset", *(() if self.topics is None else ("topic",)), *self._time_column()}
        columns = list(NAMES) if self.columns is None else [each for each in NAMES if each in {*self.columns, *needed}]
        try:
            with opened(storage, name) as file:
                source = parquet.ParquetFile(file, page_checksum_verification=True)
                version = (source.schema_arrow.metadata or {}).get(b"nngkit.journal")
                if version != b"1" or source.metadata.num_rows != segment.rows:
                    why = (
                        f"version {version!r} and {source.metadata.num_rows} rows; "
                        f"the manifest expects 1 and {segment.rows}"
                    )
                    raise Damaged(shown, why, offset=segment.first, advice=ADVICE)
                for number in range(source.num_row_groups):
                    held = self._held(source.metadata.row_group(number), segment, first, stop)
                    if held is None:
                        continue
                    try:  # the whole group, so that no row is returned before damage is found
                        table = source.read_row_group(number, columns)
                        if table.num_rows != held[2]:
                            raise OSError(f"{table.num_rows} rows instead of {held[2]}")
                    except (pa.ArrowException, OSError) as error:
                        why = str(error).splitlines()[0]
                        if not self.skip:
                            raise Damaged(shown, why, offset=max(first, held[0]), advice=ADVICE) from error
                        self.skip_rows(shown, held, first, stop, why)
                        continue
                    for batch in table.to_batches(self.batch_rows):
                        if (found := self.filtered(batch, first, stop)).num_rows:
                            yield found
        except FileNotFoundError as error:
            raise FileNotFoundError(error.errno, error.strerror, shown) from error
        except (pa.ArrowException, OSError) as error:
            why = str(error).splitlines()[0]
            if not self.skip:
                raise Damaged(shown, why, offset=first, advice=ADVICE) from error
            self.skip_rows(shown, (segment.first, segment.end, segment.rows), first, stop, why)
        except Damaged as error:
            if not self.skip:
                raise
            self.skip_rows(shown, (segment.first, segment.end, segment.rows), first, stop, error.why)

    def _time_column(self) -> tuple[str, ...]:
        return () if self.start_time is None and self.end_time is None else ("timestamp",)

    def _held(self, group: Any, segment: Segment, first: int, stop: int) -> tuple[int, int, int] | None:
        """Return first offset, end and rows of a row group; None if it is not selected."""
        begin, end = segment.first, segment.end
        for number in range(group.num_columns):
            column = group.column(number)
            if column.path_in_schema not in ("offset", "timestamp") or (found := column.statistics) is None:
                continue
            if not found.has_min_max:
                continue
            if column.path_in_schema == "offset":
                begin, end = found.min, found.max + 1
            # The physical values, in microseconds: `min` and `max` are datetimes, for which pyarrow imports pandas.
            elif self._outside(found.min_raw, found.max_raw):
                return None
        return (begin, end, group.num_rows) if begin < stop and first < end else None

    def _outside(self, low: int, high: int) -> bool:
        return _outside(low, high, self.start_time, self.end_time)

    def of_logs(self, folder: Path, at: int, stop: int) -> Generator[tuple[int, pa.RecordBatch | None], None, int]:
        """Yield batches from the log that has `at`; return its end."""
        logs = logs_in(folder)
        number = next((number for number, (first, _) in reversed(list(enumerate(logs))) if first <= at), None)
        if number is None:
            raise FileNotFoundError(2, "no log has it", str(folder / f"{at:020}.log"))
        head = read_head(folder)
        end = min(stop, logs[number + 1][0]) if number + 1 < len(logs) else stop
        position = head.position if head is not None and head.first == logs[number][0] and head.end >= end else None
        with open_log(logs[number][1]) as log:
            rows: list[Any] = []
            expected = at
            for piece in log.chunks(at, end, stop=position, most=min(4096, self.batch_rows), skip=self.skip):
                if piece[0][0] > expected:
                    missing = (expected, piece[0][0], piece[0][0] - expected)
                    self.skip_rows(str(log.path), missing, at, end, "damaged")
                expected = piece[-1][0] + 1
                rows += piece
                if len(rows) >= self.batch_rows:
                    yield from self._built(rows, at, end)
                    rows = []
            if rows:
                yield from self._built(rows, at, end)
            if expected < end:
                self.skip_rows(str(log.path), (expected, end, end - expected), at, end, "damaged")
        yield end, None
        return end

    def _built(self, rows: list[Any], first: int, stop: int) -> Iterator[tuple[int, pa.RecordBatch | None]]:
        from nngkit.journal.schema import batch_of

        behind = rows[-1][0] + 1
        batch = self.filtered(batch_of(rows, self.partition), first, stop)
        yield behind, self.cut(batch) if batch.num_rows else None
