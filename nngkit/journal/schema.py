"""Columns of a journal: those of Spark's Kafka source under the same names, plus headers, protocol and peer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from nngkit.journal.record import RawRecord, Record, decode_headers, decode_origin

SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("headers", pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
        pa.field("protocol", pa.string(), nullable=False),
        pa.field("peer", pa.string()),
    ]
)
NAMES: Final = tuple(SCHEMA.names)


def batch_of(rows: Sequence[RawRecord], partition: int) -> Any:
    """Convert a log's records to one RecordBatch."""
    if not rows:
        return pa.RecordBatch.from_pylist([], SCHEMA)
    offsets, times, origins, keys, headers, values = zip(*rows, strict=True)
    known = {origin: decode_origin(origin) for origin in set(origins)}
    topics, protocols, peers = zip(*map(known.__getitem__, origins), strict=True)
    if any(headers):
        decoded = [[{"key": name, "value": value} for name, value in decode_headers(each)] or None for each in headers]
        headers_column = pa.array(decoded, SCHEMA.field("headers").type)
    else:
        headers_column = pa.nulls(len(rows), SCHEMA.field("headers").type)
    columns = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(topics, pa.string()),
        pa.repeat(pa.scalar(partition, pa.int32()), len(rows)),
        pa.array(offsets, pa.int64()),
        pa.array(times, pa.int64()).cast(SCHEMA.field("timestamp").type),
        headers_column,
        pa.array(protocols, pa.string()),
        pa.array(peers, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def records_of(batch: Any) -> Iterator[Record]:
    """Yield the records of a batch that has all columns."""
    columns = [batch.column(name) for name in NAMES]
    columns[NAMES.index("timestamp")] = columns[NAMES.index("timestamp")].cast(pa.int64())
    for key, value, topic, partition, offset, timestamp, headers, protocol, peer in zip(
        *(column.to_pylist() for column in columns), strict=True
    ):
        pairs = tuple((each["key"], each["value"]) for each in headers or ())
        yield Record(key, value, topic, partition, offset, timestamp, pairs, protocol, peer)
