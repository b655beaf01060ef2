"""Batch reads of a journal in which Spark's own Parquet reader takes the sealed segments.

::

    scan(spark, "journal", includeHeaders="true").where("topic = 'orders'")

The rows are those of ``spark.read.format("nng").options(...).load("journal")``. A Python data source passes every row
through a socket from a Python worker to Spark, and does not know which columns a query needs; Spark's Parquet reader
has neither limit. Only the records that are not sealed yet go through `format("nng")`.

Segments outside the requested offsets, times and topics are left out by the manifest; of the others, Parquet's
statistics rule out row groups, also by filters that are added to the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from nngkit.errors import Damaged
from nngkit.journal import open_journal
from nngkit.journal.files import folder_of
from nngkit.journal.record import EARLIEST, LATEST
from nngkit.journal.schema import NAMES
from nngkit.journal.segments import Block, Segment
from nngkit.journal.selection import ADVICE, excluded
from nngkit.spark.reading.many import journals_of
from nngkit.spark.reading.one import BatchReader
from nngkit.spark.reading.options import ReadOptions
from nngkit.spark.reading.plan import OffsetRange
from nngkit.spark.reading.schema import COLUMNS, LOG_APPEND_TIME, ddl

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from nngkit.journal import Journal
    from nngkit.journal.manifest import Manifest

SHARED: Final = ("file://", "hdfs://")  # URIs that name the same file for Spark and for pyarrow; s3:// does not
CHECKSUMS: Final = "parquet.page.verify-checksum.enabled"  # of Parquet's reader in Java; off by default
PATTERN: Final = re.compile(r"[\\{}\[\]*?]")  # in a path, a pattern to Spark; it decodes no percent signs


def scan(spark: SparkSession, journal: str, **options: str) -> DataFrame:
    """Return the rows that the journal has now; they are read when the result is.

    `options`: those of `format("nng")` for batch reads. It is `format("nng")` itself with ``failOnDataLoss=false``,
    which accounts for damage by row group; with ``subscribePattern``, ``keyPrefix`` and ``assign``; of several
    journals; and for storage that Spark names differently (``s3://``).

    Raises ConfigError; NotFound for offsets that are not there; Damaged if a segment is missing or of another size than
    the manifest says. Other damage, and a segment deleted by retention before it is read, fail the query.
    """
    in_python: Any = spark.read.format("nng").options(**options)
    is_one = journals_of({**options, "path": journal}) is None
    given = ReadOptions.of({**options, "path": journal}, streaming=False) if is_one else None
    if given is None or not given.fail_on_data_loss or _chosen_in_python(given) or not _known_to_spark(journal):
        found: DataFrame = in_python.load(journal)
        return found
    opened = open_journal(given.path, spool=given.spool)
    files: list[str] = []
    wanted, unsealed = [], []
    reader = BatchReader(given, ())
    manifests = reader.manifests(opened)
    for asked, _ in reader.ranges(opened, manifests)[0]:
        manifest = manifests[asked.partition]
        files += _files(opened, manifest, asked, given)
        if asked.start > manifest.start or asked.end < manifest.end:
            wanted.append(asked)
        if asked.end > manifest.end:
            unsealed.append(asked._replace(start=max(asked.start, manifest.end)))
    listed: list[Block | Segment] = []
    for manifest in manifests.values():
        listed += [*manifest.segments.blocks, *manifest.segments.recent]
    strange = any(each.min_time < EARLIEST or each.max_time > LATEST for each in listed)
    parts = [_sealed(spark, files, wanted, given, strange)] if files else []
    if unsealed or not files:
        parts.append(_unsealed(spark, journal, unsealed, given))
    found = parts[0] if len(parts) == 1 else parts[0].union(parts[1])
    for condition in _filters(given):
        found = found.where(condition)
    return found


def _chosen_in_python(options: ReadOptions) -> bool:
    return bool(options.columns) or options.assigned is not None


def _known_to_spark(journal: str) -> bool:
    return "://" not in journal or journal.startswith(SHARED)


def _files(journal: Journal, manifest: Manifest, wanted: OffsetRange, options: ReadOptions) -> Iterator[str]:
    """Yield the paths of the segments that may have requested rows."""
    since, until = options.starting_time, options.ending_time
    for segment in manifest.segments.covering(wanted.start, wanted.end, since, until):
        if isinstance(segment, Block) or excluded(segment, options.topics, since, until):
            continue
        name = f"{folder_of(wanted.partition)}/{segment.file}"
        shown = journal.storage.shown(name)
        try:
            size = journal.storage.size(name)
        except FileNotFoundError as error:
            raise Damaged(shown, "the file is missing", offset=segment.first, advice=ADVICE) from error
        if size != segment.bytes:
            why = f"{size} bytes; the manifest expects {segment.bytes}"
            raise Damaged(shown, why, offset=segment.first, advice=ADVICE)
        yield shown


def parquet_files(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    """Return the rows of segments, given by paths or URIs, by Spark's Parquet reader; page checksums are verified."""
    schema = ", ".join(f"`{name}` {COLUMNS[name].ddl}" for name in NAMES)
    if not files:
        return spark.createDataFrame([], schema)
    paths = [PATTERN.sub(r"\\\g<0>", each) for each in files]
    found: DataFrame = spark.read.schema(schema).option(CHECKSUMS, "true").parquet(*paths)
    return found


def _sealed(
    spark: SparkSession, files: Sequence[str], wanted: Sequence[OffsetRange], options: ReadOptions, strange: bool
) -> DataFrame:
    """Return the segments' rows, within the ranges in `wanted`; partitions without one are read whole.

    `strange`: there are times outside the years 1 to 9999, which become the nearest, as by `format("nng")`.
    """
    rows = parquet_files(spark, files)
    for partition, first, end in wanted:
        rows = rows.where(f"`partition` != {partition} or `offset` >= {first} and `offset` < {end}")
    fixed = {"timestampType": str(LOG_APPEND_TIME), "skipped": "cast(null as bigint)"}
    if strange:  # not always: Parquet's statistics would rule out no row group by time
        fixed["timestamp"] = f"greatest(least(timestamp, timestamp_micros({LATEST}L)), timestamp_micros({EARLIEST}L))"
    columns = [each.partition(" ")[0] for each in ddl(options.include_headers, options.include_skipped).split(", ")]
    # As text: each expression that is built in Python takes some calls of Java, of a planning that takes 50 ms in all.
    return rows.selectExpr(*(f"{fixed.get(name, f'`{name}`')} as `{name}`" for name in columns))


def _unsealed(spark: SparkSession, journal: str, ranges: Sequence[OffsetRange], options: ReadOptions) -> DataFrame:
    """Return the rows of `ranges`, and none of other partitions, by `format("nng")`."""
    from pyspark.sql import functions as F

    given = {
        "startingOffsets": json.dumps({str(each.partition): each.start for each in ranges}),
        "endingOffsets": json.dumps({str(each.partition): each.end for each in ranges}),
        "includeHeaders": str(options.include_headers).lower(),
        "includeSkipped": str(options.include_skipped).lower(),
        "minPartitions": str(options.min_partitions),
        "maxRecordsPerPartition": str(options.max_records),
    }
    if options.spool is not None:
        given["spool"] = options.spool
    rows = spark.read.format("nng").options(**given).load(journal)
    return rows.where(F.col("partition").isin([each.partition for each in ranges]))


def _filters(options: ReadOptions) -> Iterator[Column]:
    from pyspark.sql import functions as F

    if options.topics is not None:
        yield F.col("topic").isin(list(options.topics))
    bounds = [(">=", options.starting_time), ("<", options.ending_time)]
    if times := [f"timestamp {sign} timestamp_micros({time}L)" for sign, time in bounds if time is not None]:
        yield F.expr(" and ".join(times))
