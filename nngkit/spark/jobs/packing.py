"""Rows packed for a shuffle by key: Spark moves few large values instead of many rows. Pure.

A shuffle of rows takes them apart, and puts them together again, in Java; of a record with headers that costs as much
as to apply its update to a document. So a task distributes the rows of some batches over the parts, by the hash of
their keys, and emits one row a part, with an Arrow stream as its value.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from nngkit.spark.reading.schema import arrow_schema

if TYPE_CHECKING:
    from nngkit.spark.reading.batches import BatchFunction

COLUMNS: Final = ("key", "value", "headers", "partition", "offset", "timestamp")
SCHEMA: Final = arrow_schema(COLUMNS)
PACKED: Final = "part int, rows binary"
ROWS: Final = 131_072  # distributed at once: fewer make more and smaller values
BYTES: Final = 64 << 20  # of rows distributed at once, and of a value
COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")


def packing(parts: int) -> BatchFunction:
    """Return a function that packs rows for so many parts. Rows whose key is null or not UTF-8 are left out."""
    return partial(_pack, parts)


def names(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the keys in each batch, as text, each once; those that are not UTF-8 are left out."""
    for batch in batches:
        keys = (_text(key) for key in batch.column("key").unique().to_pylist())
        yield pa.RecordBatch.from_arrays([pa.array([key for key in keys if key is not None], pa.string())], ["doc"])


def unpacked(batches: Iterator[pa.RecordBatch]) -> pa.Table:
    """Return the rows in what `packing` has made, without their order."""
    values = [value for batch in batches for value in batch.column("rows")]
    tables = [pa.ipc.open_stream(value.as_buffer()).read_all() for value in values]
    return pa.concat_tables([SCHEMA.empty_table(), *tables])


def _text(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


def _pack(parts: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch.select(COLUMNS))
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= ROWS or size >= BYTES:
            yield _distributed(parts, waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _distributed(parts, waiting)


def _distributed(parts: int, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches)
    if table.schema != SCHEMA:
        table = table.cast(SCHEMA)
    keys = table.column("key").combine_chunks().dictionary_encode()
    hashes = [-1 if _text(key) is None else zlib.crc32(key) % parts for key in keys.dictionary.to_pylist()]
    part_of = np.array([*hashes, -1])[keys.indices.fill_null(len(hashes)).to_numpy()]
    order = np.argsort(part_of, kind="stable")
    edges = np.searchsorted(part_of[order], np.arange(parts + 1))
    table = table.take(pa.array(order))
    numbers, values = [], []
    for part in range(parts):
        for piece in _pieces(table.slice(edges[part], edges[part + 1] - edges[part])):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, SCHEMA, options=COMPRESSED) as writer:
                writer.write_table(piece)
            numbers.append(part)
            values.append(sink.getvalue().to_pybytes())
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int32()), pa.array(values, pa.binary())], ["part", "rows"])


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the table in pieces of at most BYTES, or of one row; none if it is empty."""
    if table.num_rows > 1 and table.nbytes > BYTES:
        middle = table.num_rows // 2
        yield from _pieces(table.slice(0, middle))
        yield from _pieces(table.slice(middle))
    elif table.num_rows:
        yield table
