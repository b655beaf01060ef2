"""Records of one partition for a consumer, as columns: onwards from its cursor, or single ones again. For threads.

A batch that was read and not wholly delivered stays decoded, so that a segment is decoded once however small the
deliveries are. Values are cut out of Arrow's buffers without an object for each record.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from nngkit.fanout.consumer_messages import Columns
from nngkit.journal.reader import Journal
from nngkit.journal.selection import Skipped, log_skipped

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Feed", "columns_of"]

log_ = logging.getLogger("nngkit.fanout")

COLUMNS: Final = ("key", "value", "topic", "offset", "timestamp", "headers")
NEAR: Final = 4096  # offsets between two records that are read at once: a chunk of a log


class Feed:
    """Reader of one partition. `skipped` counts offsets that retention or damage has taken."""

    def __init__(self, journal: Journal, partition: int, topics: Sequence[str] | None) -> None:
        self.skipped = 0
        self._journal = journal
        self._partition = partition
        self._topics = topics
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._batch: pa.RecordBatch | None = None
        self._at = self._stop = -1

    def take(self, cursor: int, end: int, records: int, size: int) -> tuple[Columns | None, int]:
        """Return up to `records` records from `cursor` on, of about `size` bytes, and the cursor behind them.

        The first record is returned whatever its size. None: there are none up to the returned cursor.
        """
        if self._at != cursor or (self._batch is None and self._batches is None):
            self._begin(cursor, end)
        if self._batch is None:
            assert self._batches is not None
            self._batch = next(self._batches, None)
            if self._batch is None:
                self._batches = None
                self._at = -1
                return None, max(cursor, self._stop)
        batch = self._batch
        rows = min(records, batch.num_rows, fitting(batch.column("value"), size))
        piece = batch.slice(0, rows)
        self._batch = batch.slice(rows) if rows < batch.num_rows else None
        self._at = int(piece.column("offset")[-1].as_py()) + 1
        return columns_of(piece, self._partition), self._at

    def _begin(self, cursor: int, end: int) -> None:
        start = self._journal.bounds(self._partition).start
        if start > cursor:
            self.skipped += start - cursor
            log_.warning("partition %d: offsets %d to %d were removed by retention", self._partition, cursor, start - 1)
        self._batch = None
        self._stop = max(end, start)
        self._batches = self._journal.read_batches(
            self._partition,
            max(cursor, start),
            self._stop,
            topics=self._topics,
            columns=COLUMNS,
            missing="skip",
            skipped=self._skip,
        )
        self._at = cursor

    def _skip(self, skipped: Skipped) -> None:
        self.skipped += skipped.rows
        log_skipped(skipped)

    def again(self, offsets: Sequence[int], size: int) -> tuple[list[Columns], list[int], list[int]]:
        """Return the records with these offsets, ascending: (columns, not readable any more, over `size` bytes)."""
        import pyarrow as pa
        from pyarrow import compute

        found: list[Columns] = []
        present: set[int] = set()
        left, spans = size, _spans(offsets)
        for number, span in enumerate(spans):
            if left <= 0:
                return found, _missing(spans[:number], present), [offset for each in spans[number:] for offset in each]
            wanted = pa.array(span, pa.int64())
            for batch in self._journal.read_batches(
                self._partition, span[0], span[-1] + 1, columns=COLUMNS, missing="skip", skipped=log_skipped
            ):
                chosen = batch.filter(compute.is_in(batch.column("offset"), value_set=wanted))
                if chosen.num_rows:
                    columns = columns_of(chosen, self._partition)
                    present.update(columns.offsets)
                    left -= len(columns.data)
                    found.append(columns)
        return found, _missing(spans, present), []


def _spans(offsets: Sequence[int]) -> list[list[int]]:
    spans: list[list[int]] = []
    for offset in offsets:
        if spans and offset - spans[-1][0] < NEAR:
            spans[-1].append(offset)
        else:
            spans.append([offset])
    return spans


def _missing(spans: list[list[int]], present: set[int]) -> list[int]:
    return [offset for span in spans for offset in span if offset not in present]


def fitting(column: Any, size: int) -> int:
    """Return how many of the first values have `size` bytes together; at least 1."""
    ends: array[int] = array("i")
    ends.frombytes(column.buffers()[1])
    first: int = column.offset
    return max(1, bisect_right(ends, ends[first] + size, first + 1, first + len(column) + 1) - first - 1)


def columns_of(batch: pa.RecordBatch, partition: int) -> Columns:
    """Convert a batch with the columns `COLUMNS`."""
    import pyarrow as pa

    topics = batch.column("topic").dictionary_encode()
    keys, headers = batch.column("key"), batch.column("headers")
    key_sizes, key_data = (None, b"") if keys.null_count == len(keys) else _bytes_of(keys)
    sizes, data = _bytes_of(batch.column("value"))
    return Columns(
        partition,
        _numbers("q", batch.column("offset"), pa.int64()),
        _numbers("q", batch.column("timestamp"), pa.int64()),
        None,
        topics.dictionary.to_pylist(),
        None if len(topics.dictionary) == 1 else array("i", topics.indices.to_pylist()),
        sizes,
        data,
        key_sizes,
        key_data,
        None
        if headers.null_count == len(headers)
        else [[[each["key"], each["value"]] for each in pairs or ()] for pairs in headers.to_pylist()],
    )


def _numbers(kind: str, column: Any, arrow: Any) -> Any:
    column = column.cast(arrow)
    width = array(kind).itemsize
    numbers = array(kind)
    data = column.buffers()[1]
    numbers.frombytes(memoryview(data)[column.offset * width : (column.offset + len(column)) * width])
    return numbers


def _bytes_of(column: Any) -> tuple[Any, bytes]:
    """Return the sizes of binary values, -1 for null, and the values joined."""
    from pyarrow import compute

    if column.null_count:
        values = column.to_pylist()
        return array("i", [-1 if value is None else len(value) for value in values]), b"".join(filter(None, values))
    _, ends, data = column.buffers()
    bounds = memoryview(ends).cast("i")
    first, last = bounds[column.offset], bounds[column.offset + len(column)]
    held = b"" if data is None else bytes(memoryview(data)[first:last])
    return _numbers("i", compute.binary_length(column), compute.binary_length(column).type), held
