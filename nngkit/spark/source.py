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

import datetime as dt
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from nngkit.spark.options import EARLIEST, LATEST, ReadOptions, WriteOptions, check_names
from nngkit.spark.plan import (
    Available,
    OffsetRange,
    checked,
    from_json,
    limited,
    over_lost,
    resolve,
    split,
    to_json,
    without_lost,
)
from nngkit.spark.schema import arrow_schema, ddl, names_of, skipped_rows, to_spark
from nngkit.spark.worker import freeze

if TYPE_CHECKING:
    import pyarrow as pa

    from nngkit.journal import Journal, Manifest, Skipped
    from nngkit.spark.own_recorder import OwnRecorder
    from nngkit.spark.sink import BatchSink, StreamSink

__all__ = ["BatchReader", "NngDataSource", "Slice", "StreamReader"]

NEVER_NULL = frozenset({"value", "topic", "partition", "offset", "timestamp", "timestampType", "protocol"})


class NngDataSource(DataSource):
    """Data source `nng`; registered by `nngkit.spark.register`."""

    @classmethod
    def name(cls) -> str:
        return "nng"

    def schema(self) -> str:
        # Spark does not say yet whether this is for a stream; option names can be checked all the same.
        check_names(self.options)
        given = {name.lower(): value.lower() for name, value in self.options.items()}
        return ddl(given.get("includeheaders") == "true", given.get("includeskipped") == "true")

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(ReadOptions.of(self.options, streaming=False), _columns(schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(ReadOptions.of(self.options, streaming=True), _columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        from nngkit.spark.sink import BatchSink

        return BatchSink.of(WriteOptions.of(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        from nngkit.spark.sink import StreamSink

        return StreamSink.of(WriteOptions.of(self.options), schema, overwrite)


def _columns(schema: StructType) -> tuple[str, ...]:
    return names_of((field.name, field.dataType.simpleString()) for field in schema.fields)


def _available(journal: Journal, manifest: Manifest) -> Available:
    bounds = journal.bounds(manifest.partition, manifest)
    return Available(bounds.start, bounds.end, tuple((each.first, each.end) for each in manifest.lost))


class Slice(InputPartition):
    """Range of one task, None for an empty one, where Spark needs a task anyway; and what the manifest has of it.

    The driver reads the manifests; a worker reads the segments that its slice names.
    """

    def __init__(self, range_: OffsetRange | None, manifest: Manifest | None = None) -> None:
        super().__init__(range_)
        self.manifest = manifest


class _Reading:
    """Common to both readers: open the journal, determine its offsets, read a slice."""

    options: ReadOptions
    columns: tuple[str, ...]

    def _journal(self) -> Journal:
        from nngkit.journal import open_journal

        return open_journal(self.options.path, spool=self.options.spool)

    def _kept(self, journal: Journal) -> dict[int, Available]:
        return {partition: _available(journal, manifest) for partition, manifest in self._manifests(journal).items()}

    def _manifests(self, journal: Journal) -> dict[int, Manifest]:
        return {partition: journal.manifest(partition) for partition in journal.partitions()}

    def _slices(self, ranges: Iterable[OffsetRange], manifests: Mapping[int, Manifest]) -> list[InputPartition]:
        pieces = split(ranges, self.options.max_records, self.options.min_partitions)
        slices = [Slice(each, manifests[each.partition].within(each.start, each.end)) for each in pieces]
        return list(slices or [Slice(None)])

    def _check(self, wanted: OffsetRange, kept: Available) -> OffsetRange:
        found, gone = checked(wanted, kept, self.options.path, self.options.fail_on_data_loss)
        if gone:
            print(f"nngkit: {gone}", file=sys.stderr, flush=True)  # noqa: T201 - goes to the task's log
        return found

    def _starts(self, journal: Journal, kept: dict[int, Available]) -> dict[int, int]:
        if self.options.starting_time is not None:
            return {partition: journal.offset_at(partition, self.options.starting_time) for partition in kept}
        return resolve(self.options.starting, kept, "startingOffsets", EARLIEST)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the Arrow batches of one slice. Runs in a worker."""
        if (wanted := partition.value) is None:
            return iter(())
        assert isinstance(partition, Slice)
        return self._batches(wanted, partition.manifest)

    def _batches(self, wanted: OffsetRange, planned: Manifest | None) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self.columns)
        needed = [name for name in self.columns if name not in ("timestampType", "skipped")] or ["offset"]
        journal = self._journal()
        freeze()
        damages: list[Skipped] = []

        def skipped(damage: Skipped) -> None:
            print(f"nngkit: {damage}", file=sys.stderr, flush=True)  # noqa: T201 - goes to the task's log
            if "skipped" in self.columns:
                damages.append(damage)

        batches = journal.read_batches(
            wanted.partition,
            wanted.start,
            wanted.end,
            topics=self.options.topics,
            start_time=self.options.starting_time if isinstance(self, BatchReader) else None,
            end_time=self.options.ending_time,
            columns=needed,
            missing="raise" if self.options.fail_on_data_loss else "skip",
            skipped=skipped,
            planned=planned,
        )
        for batch in batches:
            yield to_spark(batch, schema)
            if damages:
                yield skipped_rows(damages, schema)
                damages.clear()
        if damages:
            yield skipped_rows(damages, schema)


class BatchReader(_Reading, DataSourceReader):
    """`spark.read.format("nng")`: from what was there when the query was planned."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns
        self.pushed: dict[str, Any] = {}
        self.only: frozenset[int] | None = None  # partitions
        self.lowest = 0
        self.highest = (1 << 63) - 1  # offsets before this

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take filters on topic, partition, offset and timestamp. Return the others, which Spark evaluates."""
        return [each for each in filters if not self._push(each)]

    def _push(self, each: Filter) -> bool:
        column = each.attribute[0] if len(getattr(each, "attribute", ())) == 1 else None  # type: ignore[attr-defined]
        if column is None:
            return False
        if isinstance(each, IsNotNull):
            return column in NEVER_NULL
        match column:
            case "topic":
                return self._push_topic(each)
            case "partition" | "offset":
                return self._push_number(column, each)
            case "timestamp":
                return self._push_time(each)
        return False

    def _push_topic(self, each: Filter) -> bool:
        if isinstance(each, (EqualTo, EqualNullSafe)):
            wanted = {each.value}
        elif isinstance(each, In):
            wanted = set(each.value)
        else:
            return False
        if not all(isinstance(topic, str) for topic in wanted):
            return False
        have = self.options.topics
        self.options = replace(
            self.options, topics=tuple(sorted(wanted if have is None else wanted.intersection(have)))
        )
        return True

    def _push_number(self, column: str, each: Filter) -> bool:
        value = getattr(each, "value", None)
        if column == "partition":
            if isinstance(each, (EqualTo, EqualNullSafe)) and type(value) is int:
                wanted = frozenset({value})
            elif isinstance(each, In) and all(type(one) is int for one in each.value):
                wanted = frozenset(each.value)
            else:
                return False
            self.only = wanted if self.only is None else self.only & wanted
            return True
        if type(value) is not int:
            return False
        low, high = self.lowest, self.highest
        if isinstance(each, (EqualTo, EqualNullSafe)):
            low, high = max(low, value), min(high, value + 1)
        elif isinstance(each, GreaterThan):
            low = max(low, value + 1)
        elif isinstance(each, GreaterThanOrEqual):
            low = max(low, value)
        elif isinstance(each, LessThan):
            high = min(high, value)
        elif isinstance(each, LessThanOrEqual):
            high = min(high, value + 1)
        else:
            return False
        self.lowest, self.highest = low, high
        return True

    def _push_time(self, each: Filter) -> bool:
        value = getattr(each, "value", None)
        if not isinstance(value, dt.datetime):
            return False
        if value.tzinfo is None:
            return False  # local time of the session: left to Spark
        at = (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
        low, high = self.options.starting_time, self.options.ending_time
        if isinstance(each, (EqualTo, EqualNullSafe)):
            after, before = at, at + 1
        elif isinstance(each, (GreaterThan, GreaterThanOrEqual)):
            after, before = at + isinstance(each, GreaterThan), None
        elif isinstance(each, (LessThan, LessThanOrEqual)):
            after, before = None, at + isinstance(each, LessThanOrEqual)
        else:
            return False
        self.options = replace(
            self.options,
            starting_time=max((one for one in (low, after) if one is not None), default=None),
            ending_time=min((one for one in (high, before) if one is not None), default=None),
        )
        return True

    def partitions(self) -> list[InputPartition]:
        journal = self._journal()
        manifests = self._manifests(journal)
        kept = {partition: _available(journal, manifest) for partition, manifest in manifests.items()}
        starts = resolve(self.options.starting, kept, "startingOffsets", EARLIEST)
        ends = resolve(self.options.ending, kept, "endingOffsets", LATEST)
        ranges = []
        for partition, bounds in kept.items():
            if self.only is not None and partition not in self.only:
                continue
            # Offsets given as options must exist; a filter merely selects among them.
            asked = self._check(
                OffsetRange(partition, starts[partition], max(starts[partition], ends[partition])), bounds
            )
            first, last = max(asked.start, self.lowest), min(asked.end, self.highest)
            if self.options.starting_time is not None:
                first = max(first, journal.offset_at(partition, self.options.starting_time))
            ranges += without_lost(OffsetRange(partition, first, last), bounds)
        return self._slices(ranges, manifests)


class StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("nng")`: offsets are {partition: next offset to read}."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns
        self._target: dict[int, int] | None = None
        self._recorder: OwnRecorder | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_recorder": None}

    def _recorded(self) -> Journal:
        """Return the journal; start the stream's own recorder, if it has one."""
        if self.options.listening is not None:
            if self._recorder is None:
                from nngkit.spark.own_recorder import OwnRecorder

                self._recorder = OwnRecorder(self.options.path, self.options.listening, self.options.spool)
            self._recorder.ensure()
        return self._journal()

    def initialOffset(self) -> dict[str, int]:
        journal = self._recorded()
        return to_json(self._starts(journal, self._kept(journal)))

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends(self._recorded())

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        journal = self._recorded()
        begun, there = from_json(start), self._ends(journal)
        ends = there
        if self._target is not None:
            ends = {partition: min(end, there.get(partition, end)) for partition, end in self._target.items()}
        for partition, offset in begun.items():
            if there.get(partition, 0) < offset:
                self._check(OffsetRange(partition, offset, offset), Available(0, there.get(partition, 0)))
            ends[partition] = max(offset, ends.get(partition, offset))  # offsets never go back
        if isinstance(limit, ReadMaxRows):
            kept = self._kept(journal)
            new = {each: kept[each].start for each in ends if each not in begun}
            ends = limited(begun | new, ends, limit.max_rows)
            ends = {each: over_lost(end, kept[each]) if each in kept else end for each, end in ends.items()}
        return to_json(ends)

    def reportLatestOffset(self) -> dict[str, int]:
        return to_json(self._ends(self._recorded()))

    def _ends(self, journal: Journal) -> dict[int, int]:
        """Return each partition's end. Called many times a second; reads one small file a partition."""
        return {partition: journal.end(partition) for partition in journal.partitions()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        begun, until = from_json(start), from_json(end)
        # A restarted driver first repeats its last batch, and asks for new offsets only after it.
        journal = self._recorded()
        manifests = self._manifests(journal)
        kept = {partition: _available(journal, manifest) for partition, manifest in manifests.items()}
        ranges = []
        for partition, last in until.items():
            bounds = kept.get(partition, Available(0, 0))
            first = begun.get(
                partition, bounds.start
            )  # a partition that appeared during the query is read from its start
            if first < last:
                ranges += without_lost(self._check(OffsetRange(partition, first, last), bounds), bounds)
        return self._slices(ranges, manifests)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: retention is configured at the recorder, and other readers need the records too."""

    def stop(self) -> None:
        if self._recorder is not None:
            self._recorder.release()
