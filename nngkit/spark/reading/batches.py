"""Work on a journal's Arrow batches in Spark's workers, past Java.

::

    def longest(batches):                               # of one task; of pyarrow.RecordBatch
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"bytes": [pc.max(pc.binary_length(batch["value"])).as_py()]})

    map_batches(spark, "journal", longest, "bytes bigint", columns=["value"]).agg({"bytes": "max"})

``spark.read.format("nng").load("journal").mapInArrow(...)`` has the same batches, but Java takes each row apart, and
puts it together again: several times the work of reading it. Here a task reads its slice where the function runs.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from nngkit.errors import ConfigError
from nngkit.spark.reading.one import BatchReader
from nngkit.spark.reading.options import ReadOptions
from nngkit.spark.reading.schema import COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

BatchFunction: TypeAlias = "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]"


def map_batches(
    spark: SparkSession, journal: str, function: BatchFunction, schema: str, *, columns: Sequence[str], **options: str
) -> DataFrame:
    """Return the rows of `schema` that `function` makes of the journal's records of now; it runs when they are needed.

    Args:
        function: Called in each task with its batches, in the order of offsets; none is empty.
        columns: Those of `format("nng")` in the batches.
        options: Those of `format("nng")` for batch reads of one journal. `minPartitions` is the session's parallelism
            unless given.

    Raises ConfigError, NotFound. Damage fails the query, or is skipped with ``failOnDataLoss=false``.
    """
    for each in columns:
        if each not in COLUMNS:
            raise ConfigError("columns", f"there is no column {each!r}; there are {', '.join(COLUMNS)}", each)
    parallel = str(spark.sparkContext.defaultParallelism)
    reader = BatchReader(
        ReadOptions.of({"minPartitions": parallel, **options, "path": journal}, streaming=False), tuple(columns)
    )
    slices = [pickle.dumps(each) for each in reader.partitions()]

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        def batches() -> Iterator[pa.RecordBatch]:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    yield from reader.read(pickle.loads(slices[number]))

        yield from function(batches())

    return spark.range(0, len(slices), 1, len(slices)).mapInArrow(run, schema)
