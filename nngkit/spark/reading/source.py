"""`format("nng")` for Spark's data source API: a journal as a table and as a stream.

::

    spark.read.format("nng").load("journal").where("topic = 'orders' and offset >= 1000")
    spark.readStream.format("nng").option("startingOffsets", "earliest").load("journal")
    spark.readStream.format("nng").option("listen", "tcp://0.0.0.0:7000").option("protocol", "rep").load("journal")

The processes in which these objects live limit them:

- The driver's Python creates a reader in a process of its own, asks it for offsets, and may end it without `stop()`.
- Spark pickles the reader, with its attributes, into every task; `read` runs in workers forked from a Python daemon.

So a reader holds only options. A stream's own recorder (own_recorder.py) is started when the first offset is requested,
and is not pickled with the reader. `initialOffset` is not called for a query that resumes from its checkpoint, so
nothing depends on it. This module opens no socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from nngkit.errors import ConfigError
from nngkit.spark.reading.many import ManyBatchReader, ManyStreamReader, journals_of
from nngkit.spark.reading.one import BatchReader, StreamReader
from nngkit.spark.reading.options import ReadOptions, WriteOptions, check_names
from nngkit.spark.reading.schema import ddl, names_of

if TYPE_CHECKING:
    from nngkit.spark.reading.sink import BatchSink, StreamSink


class NngDataSource(DataSource):
    """Data source `nng`; registered by `nngkit.spark.register`."""

    @classmethod
    def name(cls) -> str:
        return "nng"

    def schema(self) -> str:
        # Spark does not say yet whether this is for a stream; option names can be checked all the same.
        check_names(self.options)
        given = {name.lower(): value.lower() for name, value in self.options.items()}
        several = self._journals() is not None
        return ddl(given.get("includeheaders") == "true", given.get("includeskipped") == "true", several)

    def _journals(self) -> dict[str, dict[str, str]] | None:
        return journals_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        journals, columns = self._journals(), _columns(schema)
        if journals is not None:
            return ManyBatchReader(journals, columns)
        return BatchReader(ReadOptions.of(self.options, streaming=False), _of_one(columns))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        journals, columns = self._journals(), _columns(schema)
        if journals is not None:
            return ManyStreamReader(journals, columns)
        return StreamReader(ReadOptions.of(self.options, streaming=True), _of_one(columns))

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        from nngkit.spark.reading.sink import BatchSink

        return BatchSink.of(WriteOptions.of(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        from nngkit.spark.reading.sink import StreamSink

        return StreamSink.of(WriteOptions.of(self.options), schema, overwrite)


def _columns(schema: StructType) -> tuple[str, ...]:
    return names_of((field.name, field.dataType.simpleString()) for field in schema.fields)


def _of_one(columns: tuple[str, ...]) -> tuple[str, ...]:
    if "journal" in columns:
        raise ConfigError("schema", "the column journal is there with several journals only: load([...])", "journal")
    return columns
