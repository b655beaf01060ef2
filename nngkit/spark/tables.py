"""Streams into Delta tables, each micro-batch exactly once.

::

    rows.writeStream.foreachBatch(to_delta("/data/orders")).option("checkpointLocation", "c").start()

Spark repeats a micro-batch if the driver ends between its write and its checkpoint, so the table has to know which it
has. Each micro-batch is one transaction:

1. If the table has this micro-batch of this query, or a later one, nothing is done.
2. The executors write its rows as Parquet files into the table's folder. Nothing lists these files yet.
3. The driver commits them all, with the number of the micro-batch, in one transaction of the table.

A driver that is killed before the commit leaves files that are in no table; the table's own vacuum removes them. Of two
drivers with the same query, the transactions conflict, and one of them fails.

The query is known by the id that Spark keeps in the checkpoint, so a new checkpoint is a new query: it writes all of
its rows again. Rows must be the same when a micro-batch is repeated, as they are from a journal.
"""

from __future__ import annotations

import functools
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nngkit.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

log = logging.getLogger("nngkit.spark")

QUERY: Final = "sql.streaming.queryId"  # Spark sets it in the thread that runs a micro-batch
WRITTEN: Final = "path string, bytes bigint, rows bigint"

Sink = Callable[["DataFrame", int], None]


class Written(NamedTuple):
    """Parquet file, relative to the folder that was given."""

    path: str
    bytes: int
    rows: int


def to_delta(target: str, query: str | None = None) -> Sink:
    """Return a function for `foreachBatch` that appends to the Delta table at `target`; it is created if missing.

    `target`: a folder that driver and executors share. A URI is handed on to pyarrow and deltalake, untested. `query`:
    the name under which the table counts micro-batches, instead of the id in the checkpoint; with a new checkpoint it
    needs a new name, as micro-batches are counted from 0 again and would pass for old ones.

    Needs the package deltalake. The function raises ConfigError if the table has other columns, or is partitioned.
    """
    return functools.partial(_append_to_delta, target, query)


def _append_to_delta(target: str, query: str | None, rows: DataFrame, number: int) -> None:
    from deltalake import DeltaTable

    name = query or _query_of(rows)
    table = DeltaTable(target) if DeltaTable.is_deltatable(target) else None
    schema = _schema_of(rows)
    if table is not None:
        _check_delta(target, table, schema)
        last = table.transaction_version(name)
        if last is not None and last >= number:
            log.info("%s has the micro-batch %d of the query %s already", target, number, name)
            return
    files = write_files(rows, target, number)
    if files:
        _commit_to_delta(target, table, schema, files, name, number)


def _commit_to_delta(target: str, table: Any, schema: Any, files: list[Written], name: str, number: int) -> None:
    import json
    import time

    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import AddAction, create_table_with_add_actions

    now = int(time.time() * 1000)
    added = [AddAction(each.path, each.bytes, {}, now, True, json.dumps({"numRecords": each.rows})) for each in files]
    properties = CommitProperties(app_transactions=[Transaction(name, number)])
    if table is None:
        create_table_with_add_actions(target, schema, added, commit_properties=properties)
    else:
        table.create_write_transaction(added, "append", schema, commit_properties=properties)


def _check_delta(target: str, table: Any, schema: Any) -> None:
    """Raise ConfigError unless rows of `schema` can be appended."""
    if table.metadata().partition_columns:
        raise ConfigError("to_delta", f"{target} is partitioned by {', '.join(table.metadata().partition_columns)}")
    there, given = ({each.name: str(each.type) for each in one.fields} for one in (table.schema(), schema))
    if there != given:
        names = sorted({*there, *given})
        name = next(each for each in names if there.get(each) != given.get(each))
        why = f"column {name} is {given.get(name, 'not there')} in the stream, and {there.get(name, 'not there')} in "
        raise ConfigError("to_delta", f"{why}{target}; select the columns of the table, or choose another table", name)


def _query_of(rows: DataFrame) -> str:
    from pyspark.errors import PySparkAttributeError

    try:
        found = rows.sparkSession.sparkContext.getLocalProperty(QUERY)
    except PySparkAttributeError as error:  # the server runs the function without its query's id
        raise ConfigError(
            "query", "is required on Spark Connect: to_delta(target, query='a name of its own')"
        ) from error
    if not found:
        raise ConfigError("query", "is required here: the rows belong to no stream with an id")
    return str(found)


def _schema_of(rows: DataFrame) -> Any:
    """Return the rows' columns as a Delta schema."""
    from deltalake import Schema
    from pyspark.sql.pandas.types import to_arrow_schema

    found = to_arrow_schema(rows.schema, timezone="UTC")
    return Schema.from_arrow(_nullable(found))


def _nullable(schema: pa.Schema) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([field.with_nullable(True) for field in schema])


# ---- in the executors ------------------------------------------------------------------------------------------------


def write_files(rows: DataFrame, target: str, number: int) -> list[Written]:
    """Have the executors write the rows into `target`; return the files of the tasks that succeeded."""
    write = functools.partial(write_parquet, target, f"nngkit-{number:010}")
    return [Written(*row) for row in rows.mapInArrow(write, WRITTEN).collect()]


def write_parquet(target: str, prefix: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write a task's rows as one file of a new name; yield its name, size and rows. Writes none without rows."""
    import pyarrow as pa
    from pyarrow import fs
    from pyarrow.parquet import ParquetWriter

    filesystem, root = fs.FileSystem.from_uri(target) if "://" in target else (fs.LocalFileSystem(), target)
    name = f"{prefix}-{uuid.uuid4()}.parquet"
    path, rows, writer = f"{root.rstrip('/')}/{name}", 0, None
    try:
        for batch in batches:
            if batch.num_rows:
                if writer is None:
                    filesystem.create_dir(root, recursive=True)
                    writer = ParquetWriter(path, batch.schema, filesystem=filesystem, compression="zstd")
                writer.write_batch(batch)
                rows += batch.num_rows
    finally:
        if writer is not None:
            writer.close()
    if rows:
        _sync(target, path)
        size = filesystem.get_file_info(path).size
        yield pa.RecordBatch.from_pydict({"path": [name], "bytes": [size], "rows": [rows]})


def _sync(target: str, path: str) -> None:
    """Put a local file on disk before the table lists it."""
    if "://" not in target:
        from pathlib import Path

        from nngkit.journal.files import sync_file, sync_folder

        sync_file(Path(path))
        sync_folder(Path(path).parent)
