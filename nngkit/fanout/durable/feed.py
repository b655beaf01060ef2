"""Records of one partition for a consumer, as columns: onwards from its cursor, or single ones again. For threads.

A batch that was read and not wholly delivered stays decoded, so that a segment is decoded once however small the
deliveries are. Values are cut out of Arrow's buffers without an object for each record.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from nngkit.errors import Damaged
from nngkit.fanout.durable.messages import Columns
from nngkit.journal.reader import Journal
from nngkit.journal.record import RawRecord, decode_headers, decode_origin
from nngkit.journal.selection import Skipped, log_skipped

if TYPE_CHECKING:
    import pyarrow as pa

log_ = logging.getLogger("nngkit.fanout")

COLUMNS: Final = ("key", "value", "topic", "offset", "timestamp", "headers")
ORIGINS: Final = 4096  # cached topics of origins: a peer that reconnects has a new one
PER_RECORD: Final = 32  # bytes of a record in the columns with numbers
PER_HEADER: Final = 8  # bytes of a header beside name and value
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
        self._log: Iterator[list[RawRecord]] = iter(())
        self._rows: list[RawRecord] = []
        self._kinds: dict[bytes, str] = {}

    def select(self, topics: Sequence[str] | None) -> None:
        """Read other topics from now on."""
        self._topics = topics
        self._batch = self._batches = None
        self._log, self._rows, self._at = iter(()), [], -1

    def take(self, cursor: int, end: int, records: int, size: int) -> tuple[Columns | None, int]:
        """Return up to `records` records from `cursor` on, of about `size` bytes, and the cursor behind them.

        The first record is returned whatever its size. None: there are none up to the returned cursor.
        """
        if self._at != cursor or (self._batch is None and self._batches is None and not self._rows):
            self._begin(cursor, end)
        if self._rows:
            return self._take_rows(records, size)
        if self._batch is None:
            assert self._batches is not None
            self._batch = next(self._batches, None)
            if self._batch is None:
                self._batches = None
                self._at = -1
                return None, max(cursor, self._stop)
        batch = self._batch
        rows = min(records, batch.num_rows, fitting(batch, size))
        piece = batch.slice(0, rows)
        self._batch = batch.slice(rows) if rows < batch.num_rows else None
        self._at = int(piece.column("offset")[-1].as_py()) + 1
        return columns_of(piece, self._partition), self._at

    def _begin(self, cursor: int, end: int) -> None:
        self._batch = self._batches = None
        self._rows = self._next_rows(cursor, end)
        if self._rows:
            self._at = cursor
            return
        bounds = self._journal.bounds(self._partition)
        start = bounds.start
        if cursor < bounds.sealed:
            end = min(end, bounds.sealed)
        if start > cursor:
            self.skipped += start - cursor
            log_.warning("partition %d: offsets %d to %d were removed by retention", self._partition, cursor, start - 1)
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

    def _next_rows(self, cursor: int, end: int) -> list[RawRecord]:
        """Return records from `cursor` on of an unsealed log, none if a log has no intact ones there."""
        try:
            if self._at != cursor or (rows := next(self._log, None)) is None:
                self._log = self._journal.read_log(self._partition, cursor, end)
                rows = next(self._log, None)
        except Damaged:  # read_batches skips and counts it
            self._log, rows = iter(()), None
        return rows or []

    def _take_rows(self, records: int, size: int) -> tuple[Columns | None, int]:
        rows, self._rows = self._rows[:records], self._rows[records:]
        ends = list(accumulate(len(row[5]) + len(row[3] or b"") + len(row[4]) + PER_RECORD for row in rows))
        fits = max(1, bisect_right(ends, size))
        if fits < len(rows):
            rows, self._rows = rows[:fits], rows[fits:] + self._rows
        self._at = rows[-1][0] + 1
        chosen = rows if self._topics is None else [row for row in rows if self._topic(row[2]) in self._topics]
        return (columns_of_rows(chosen, self._partition, self._topic) if chosen else None), self._at

    def _topic(self, origin: bytes) -> str:
        topic = self._kinds.get(origin)
        if topic is None:
            if len(self._kinds) >= ORIGINS:
                self._kinds.clear()
            topic = self._kinds[origin] = decode_origin(origin)[0]
        return topic

    def _skip(self, skipped: Skipped) -> None:
        self.skipped += skipped.rows
        log_skipped(skipped)

    def again(self, offsets: Sequence[int], size: int) -> tuple[list[Columns], list[int], list[int]]:
        """Return the records with these offsets, ascending: (columns, not readable any more, over `size` bytes)."""
        found: list[Columns] = []
        present: set[int] = set()
        left, spans = size, _spans(offsets)
        for number, span in enumerate(spans):
            if left <= 0:
                return found, _missing(spans[:number], present), [offset for each in spans[number:] for offset in each]
            for columns in self._span(span):
                present.update(columns.offsets)
                left -= len(columns.data) + len(columns.key_data)
                found.append(columns)
        return found, _missing(spans, present), []

    def _span(self, span: Sequence[int]) -> Iterator[Columns]:
        """Yield the records with these offsets, from a log if it has them all."""
        wanted, end = set(span), span[-1] + 1
        try:
            pieces = list(self._journal.read_log(self._partition, span[0], end))
        except Damaged:
            pieces = []
        if pieces and pieces[-1][-1][0] + 1 == end:
            for rows in pieces:
                if chosen := [row for row in rows if row[0] in wanted]:
                    yield columns_of_rows(chosen, self._partition, self._topic)
            return
        import pyarrow as pa
        from pyarrow import compute

        for batch in self._journal.read_batches(
            self._partition, span[0], end, columns=COLUMNS, missing="skip", skipped=log_skipped
        ):
            kept = batch.filter(compute.is_in(batch.column("offset"), value_set=pa.array(span, pa.int64())))
            if kept.num_rows:
                yield columns_of(kept, self._partition)


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


def fitting(batch: pa.RecordBatch, size: int) -> int:
    """Return how many of the first records have `size` bytes together, with keys and headers; at least 1."""
    keys, headers = batch.column("key"), batch.column("headers")
    columns = [_ends(batch.column("value")), *([_ends(keys)] if keys.null_count < len(keys) else ())]
    pairs: list[Any] = []
    if headers.null_count < len(headers) and len(headers.values):
        starts = _ends(headers)
        pairs = [_ends(headers.values.field(number)) for number in range(2)]

    def before(row: int) -> int:
        found: int = sum(ends[row] for ends in columns) + row * PER_RECORD
        if pairs:
            found += sum(ends[starts[row]] for ends in pairs) + starts[row] * PER_HEADER
        return found

    rows = range(1, batch.num_rows + 1)
    return max(1, bisect_right(rows, before(0) + size, key=before))


def _ends(column: Any) -> Any:
    """Return where the values of a column begin in its data, and the last one ends."""
    return memoryview(column.buffers()[1]).cast("i")[column.offset : column.offset + len(column) + 1]


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


def columns_of_rows(rows: Sequence[RawRecord], partition: int, topic: Callable[[bytes], str]) -> Columns:
    """Convert records of a log."""
    offsets, times, origins, keys, headers, values = zip(*rows, strict=True)
    kinds = {origin: topic(origin) for origin in set(origins)}
    names = sorted(set(kinds.values()))
    place = {origin: names.index(name) for origin, name in kinds.items()}
    some_keys = any(key is not None for key in keys)
    return Columns(
        partition,
        array("q", offsets),
        array("q", times),
        None,
        names,
        None if len(names) == 1 else array("i", [place[origin] for origin in origins]),
        array("i", map(len, values)),
        b"".join(values),
        array("i", [-1 if key is None else len(key) for key in keys]) if some_keys else None,
        b"".join(filter(None, keys)) if some_keys else b"",
        [[list(pair) for pair in decode_headers(each)] for each in headers] if any(headers) else None,
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
