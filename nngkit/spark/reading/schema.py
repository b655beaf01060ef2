"""Columns of `format("nng")`: those of Spark's Kafka source, and `protocol` and `peer`.

==================  ===========================  ======================================================================
column              type                         content
==================  ===========================  ======================================================================
``key``             binary                       the matched subscription, or the key of the sender
``value``           binary                       the message
``topic``           string                       the stream's configured name
``partition``       int                          number of the recorder
``offset``          bigint                       position in the partition, counting all topics together
``timestamp``       timestamp                    when the recorder received it, in microseconds, UTC; 1 to 9999 AD
``timestampType``   int                          1, Kafka's LogAppendTime
``headers``         array of (key, value)        only with ``includeHeaders``
``protocol``        string                       "sub", "pull", "rep", "survey" ...
``peer``            string                       the sender's address, or null
``skipped``         bigint                       only with ``includeSkipped``: null for a record; see below
``journal``         string                       only with several journals: the name of the record's
==================  ===========================  ======================================================================

``includeSkipped`` adds a row for each damage that ``failOnDataLoss=false`` skips: ``skipped`` is the number of records,
``partition`` and ``offset`` are where they begin, ``peer`` is the file, and the rest is empty. PySpark has no metrics
for Python data sources, and a row reaches the driver exactly once even if tasks are retried.

Spark does not tell a Python data source which columns a query needs, so it reads all of them. To read fewer, give a
schema: ``spark.read.format("nng").schema("topic string, timestamp timestamp").load(...)`` reads two.

Knows Arrow and Spark's type names, and no PySpark, as every worker loads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from nngkit.errors import ConfigError
from nngkit.journal.record import EARLIEST, LATEST

if TYPE_CHECKING:
    from nngkit.journal import Skipped

LOG_APPEND_TIME: Final = 1


class Column(NamedTuple):
    """Type in Spark's DDL, and the exact type that Spark expects in an Arrow batch."""

    ddl: str
    arrow: pa.DataType


# Spark names a list's item "element", and Arrow compares such names too.
HEADERS: Final = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))

COLUMNS: Final = {
    "key": Column("binary", pa.binary()),
    "value": Column("binary", pa.binary()),
    "topic": Column("string", pa.string()),
    "partition": Column("int", pa.int32()),
    "offset": Column("bigint", pa.int64()),
    "timestamp": Column("timestamp", pa.timestamp("us", tz="UTC")),
    "timestampType": Column("int", pa.int32()),
    "headers": Column("array<struct<key:string,value:binary>>", HEADERS),
    "protocol": Column("string", pa.string()),
    "peer": Column("string", pa.string()),
    "skipped": Column("bigint", pa.int64()),
    "journal": Column("string", pa.string()),
}


def ddl(include_headers: bool, include_skipped: bool = False, include_journal: bool = False) -> str:
    """Return the columns as Spark's DDL."""
    optional = (("headers", include_headers), ("skipped", include_skipped), ("journal", include_journal))
    hidden = {name for name, shown in optional if not shown}
    return ", ".join(f"{name} {column.ddl}" for name, column in COLUMNS.items() if name not in hidden)


def names_of(fields: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the names of requested columns, (name, type). Raises ConfigError for an unknown name or another type."""
    names = []
    for name, kind in fields:
        if name not in COLUMNS:
            raise ConfigError("schema", f"no column {name!r}; there are {', '.join(COLUMNS)}", name)
        if kind != COLUMNS[name].ddl:
            raise ConfigError("schema", f"column {name} is a {COLUMNS[name].ddl}, not a {kind}", kind)
        names.append(name)
    return tuple(names)


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema that Spark expects of a batch with these columns."""
    return pa.schema([(name, COLUMNS[name].arrow) for name in names])


def to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert the journal's columns to Spark's types; those of the same type are not copied."""
    arrays = []
    for field in schema:
        if field.name == "timestampType":
            arrays.append(pa.repeat(pa.scalar(LOG_APPEND_TIME, pa.int32()), batch.num_rows))
            continue
        if field.name == "skipped":
            arrays.append(pa.nulls(batch.num_rows, pa.int64()))
            continue
        array = batch.column(field.name)
        if field.name == "timestamp":
            array = _in_calendar(array)
        arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _in_calendar(times: pa.Array) -> pa.Array:
    """Return the times; those outside the years 1 to 9999, which Python does not have, as the nearest in them."""
    least, most = pc.min_max(micros := times.cast(pa.int64())).values()
    if not times or (least.as_py() >= EARLIEST and most.as_py() <= LATEST):
        return times
    return pc.min_element_wise(pc.max_element_wise(micros, EARLIEST), LATEST).cast(times.type)


def skipped_rows(damages: Sequence[Skipped], schema: pa.Schema) -> pa.RecordBatch:
    """Return a row for each damage."""
    rows: list[dict[str, Any]] = [
        {
            "value": b"",
            "topic": "",
            "partition": each.partition,
            "offset": each.first,
            "timestamp": 0,
            "timestampType": LOG_APPEND_TIME,
            "protocol": "",
            "peer": each.file,
            "skipped": each.rows,
        }
        for each in damages
    ]
    return pa.RecordBatch.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema=schema)
