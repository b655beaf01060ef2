"""Readers of one journal for Spark: offsets of a batch and of a stream, the tasks, and what a worker reads."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from nngkit.journal.files import shown
from nngkit.journal.segments import Block
from nngkit.journal.selection import excluded
from nngkit.spark.reading.options import ReadOptions
from nngkit.spark.reading.plan import (
    Available,
    Missing,
    OffsetRange,
    Pace,
    at_times,
    begin_within,
    checked,
    from_json,
    limited,
    lost_in,
    over_lost,
    resolve,
    split,
    to_json,
    without_lost,
)
from nngkit.spark.reading.positions import EARLIEST, LATEST
from nngkit.spark.reading.pushdown import Pushdown
from nngkit.spark.reading.schema import arrow_schema, skipped_rows, to_spark
from nngkit.spark.reading.worker import freeze

if TYPE_CHECKING:
    import pyarrow as pa

    from nngkit.journal import Journal, Manifest, Skipped
    from nngkit.spark.reading.own_recorder import OwnRecorder

log = logging.getLogger("nngkit.spark")


def available(journal: Journal, manifest: Manifest) -> Available:
    """Return the offsets that a journal has of a partition with this manifest."""
    bounds = journal.bounds(manifest.partition, manifest)
    return Available(bounds.start, bounds.end, tuple((each.first, each.end) for each in manifest.lost))


class Slice(InputPartition):
    """Range of one task, None for an empty one, where Spark needs a task anyway; and what the manifest has of it.

    The driver reads the manifests; a worker reads the segments that its slice names.
    """

    def __init__(self, range_: OffsetRange | None, manifest: Manifest | None = None) -> None:
        super().__init__(range_)
        self.manifest = manifest


class Gone(InputPartition):
    """Offsets that are not there any more; its task returns their row of includeSkipped."""

    def __init__(self, missing: Missing) -> None:
        super().__init__(missing)


class _Reading:
    """Common to both readers: open the journal, determine its offsets, read a slice."""

    options: ReadOptions
    columns: tuple[str, ...]
    _told: dict[int, str]  # the last warning for each partition: a stream looks many times a second

    def _journal(self) -> Journal:
        from nngkit.journal import open_journal

        return open_journal(self.options.path, spool=self.options.spool)

    def _numbers(self, journal: Journal) -> list[int]:
        """Return the partitions to read."""
        there = journal.partitions()
        self.options.check(there)
        return [partition for partition in there if self.options.takes(partition)]

    def manifests(self, journal: Journal) -> dict[int, Manifest]:
        """Return the manifests of the partitions to read."""
        return {partition: journal.manifest(partition) for partition in self._numbers(journal)}

    def _kept(self, journal: Journal, manifests: Mapping[int, Manifest] | None = None) -> dict[int, Available]:
        found = self.manifests(journal) if manifests is None else manifests
        return {partition: available(journal, manifest) for partition, manifest in found.items()}

    def _check(self, wanted: OffsetRange, kept: Available) -> tuple[OffsetRange, list[Missing]]:
        """Return the available part of `wanted` and the missing ones, which are logged. Raises NotFound."""
        found, gone = checked(wanted, kept, shown(self.options.path), self.options.fail_on_data_loss)
        self._warn(gone)
        return found, gone

    def _warn(self, missing: Iterable[Missing]) -> None:
        for each in missing:
            if self._told.get(each.partition) != str(each):
                self._told[each.partition] = str(each)
                log.warning("%s", each)

    def _parts(self, wanted: OffsetRange, kept: Available) -> list[OffsetRange]:
        """Return `wanted` without the ranges that the journal lists as lost, which are logged."""
        self._warn(lost_in(wanted, kept))
        return without_lost(wanted, kept)

    def _offset_at(self, journal: Journal, ending: bool = False) -> Callable[[int, int], int]:
        """Return the journal's `offset_at`: raises Damaged, or without failOnDataLoss has the read count the damage."""
        skip: Literal["before", "behind"] = "behind" if ending else "before"
        return partial(journal.offset_at, damaged="raise" if self.options.fail_on_data_loss else skip)

    def _starts(self, asked: ReadOptions, journal: Journal, kept: dict[int, Available]) -> dict[int, int]:
        """Return where each partition begins by the options `asked`."""
        if asked.starting_time is not None:
            times = dict.fromkeys(kept, asked.starting_time)
            return at_times(times, kept, "startingTimestamp", self._offset_at(journal), asked.strict)
        starts = resolve(asked.starting, kept, "startingOffsets", EARLIEST)
        if asked.starting_times is None:
            if self.options.fail_on_data_loss:
                begin_within(starts, kept, shown(self.options.path))
            return starts
        what = "startingOffsetsByTimestamp"
        earliest = {partition: each.start for partition, each in kept.items()}
        return earliest | at_times(asked.starting_times, kept, what, self._offset_at(journal), asked.strict)

    def _tasks(
        self, ranges: list[OffsetRange], gone: list[Missing], manifests: Mapping[int, Manifest]
    ) -> list[InputPartition]:
        pieces = split(ranges, self.options.max_records, self.options.min_partitions)
        tasks: list[InputPartition] = [
            Slice(each, manifests[each.partition].within(each.start, each.end)) for each in pieces
        ]
        if "skipped" in self.columns:
            tasks += [Gone(each) for each in gone if each.first < each.end]
        return tasks or [Slice(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the Arrow batches of one slice. Runs in a worker."""
        if isinstance(partition, Gone):
            return iter((self._row_of(partition.value),))
        if (wanted := partition.value) is None:
            return iter(())
        assert isinstance(partition, Slice)
        return self._batches(wanted, partition.manifest)

    def _row_of(self, missing: Missing) -> pa.RecordBatch:
        from nngkit.journal import Skipped

        rows = missing.end - missing.first
        skipped = Skipped(missing.partition, shown(self.options.path), missing.first, missing.end, rows, missing.why)
        return skipped_rows([skipped], arrow_schema(self.columns))

    def _batches(self, wanted: OffsetRange, planned: Manifest | None) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self.columns)
        needed = [name for name in self.columns if name not in ("timestampType", "skipped")]
        needed += [name for name in self.options.columns if name not in needed]
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
            topics=self.options.topics_of(wanted.partition),
            start_time=self.options.starting_time if isinstance(self, BatchReader) else None,
            end_time=self.options.ending_time,
            columns=needed or ["offset"],
            missing="raise" if self.options.fail_on_data_loss else "skip",
            skipped=skipped,
            planned=planned,
        )
        for batch in batches:
            yield to_spark(self.options.filtered(batch), schema)
            if damages:
                yield skipped_rows(damages, schema)
                damages.clear()
        if damages:
            yield skipped_rows(damages, schema)


class BatchReader(Pushdown, _Reading, DataSourceReader):
    """`spark.read.format("nng")`: from what was there when the query was planned."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns
        self._asked = options  # before filters are pushed
        self._told = {}

    def ranges(
        self, journal: Journal, manifests: Mapping[int, Manifest]
    ) -> tuple[list[tuple[OffsetRange, Available]], list[Missing]]:
        """Return the requested and the available offsets of each partition, and those that are gone.

        Offsets given as options must exist; a filter merely selects among them. Raises ConfigError, NotFound.
        """
        kept = self._kept(journal, manifests)
        if self._asked.starting_time is None or self._asked.strict:
            starts = self._starts(self._asked, journal, kept)
        else:
            starts = {partition: each.start for partition, each in kept.items()}
        ends = resolve(self.options.ending, kept, "endingOffsets", LATEST)
        if self.options.ending_times is not None:
            find = self._offset_at(journal, ending=True)
            ends |= at_times(self.options.ending_times, kept, "endingOffsetsByTimestamp", find)
        ranges, missing = [], []
        for partition, bounds in kept.items():
            if self.only is not None and partition not in self.only:
                continue
            asked, gone = self._check(
                OffsetRange(partition, starts[partition], max(starts[partition], ends[partition])), bounds
            )
            missing += gone
            first, last = max(asked.start, self.lowest), min(asked.end, self.highest)
            ranges.append((OffsetRange(partition, first, max(first, last)), bounds))
        return ranges, missing

    def partitions(self) -> list[InputPartition]:
        journal = self._journal()
        manifests = self.manifests(journal)
        found, missing = self.ranges(journal, manifests)
        ranges = [part for asked, bounds in found for part in self._parts(asked, bounds)]
        if self.options.starting_time is not None or self.options.ending_time is not None:
            ranges = [part for each in ranges for part in self._in_time(journal, manifests[each.partition], each)]
        return self._tasks(ranges, missing, manifests)

    def _in_time(self, journal: Journal, manifest: Manifest, asked: OffsetRange) -> Iterator[OffsetRange]:
        """Yield the parts of a range that may have records of the requested time, so that no task starts for others."""
        since, until = self.options.starting_time, self.options.ending_time
        at = asked.start if since is None else max(asked.start, self._offset_at(journal)(asked.partition, since))
        for each in manifest.segments.covering(at, asked.end, since, until):
            if isinstance(each, Block) or excluded(each, None, since, until):
                if at < min(each.first, asked.end):
                    yield asked._replace(start=at, end=min(each.first, asked.end))
                at = each.end
        if at < asked.end:
            yield asked._replace(start=at)


class StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("nng")`: offsets are {partition: next offset to read}."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns
        self._told = {}
        self._target: dict[int, int] | None = None
        self._recorder: OwnRecorder | None = None
        self._pace = Pace(options.min_offsets, options.max_delay)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_recorder": None}

    def _recorded(self) -> Journal:
        """Return the journal; start the stream's own recorder, if it has one."""
        if self.options.listening is not None:
            if self._recorder is None:
                from nngkit.spark.reading.own_recorder import OwnRecorder

                self._recorder = OwnRecorder(self.options.path, self.options.listening, self.options.spool)
            self._recorder.ensure()
        return self._journal()

    def initialOffset(self) -> dict[str, int]:
        journal = self._recorded()
        return to_json(self._starts(self.options, journal, self._kept(journal)))

    def getDefaultReadLimit(self) -> ReadLimit:
        return default_limit(self.options)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends(self._recorded())

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        begun = from_json(start)
        first, ends = self.reach(begun)
        now = time.monotonic()
        if not isinstance(limit, ReadAllAvailable) and self._target is None and self._pace.waits(first, ends, now):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = self.over_lost(limited(first, ends, limit.max_rows))
        return to_json(ends)

    def reach(self, begun: dict[int, int]) -> tuple[dict[int, int], dict[int, int]]:
        """Return where to continue after `begun`, new partitions included, and the ends up to which there is data.

        With Trigger.AvailableNow, the ends are those at the query's start. Raises NotFound.
        """
        journal = self._recorded()
        there = self._ends(journal)
        ends = there
        if self._target is not None:
            ends = {partition: min(end, there.get(partition, end)) for partition, end in self._target.items()}
        for partition, offset in begun.items():
            end = there.get(partition, 0)
            if end < offset and self.options.takes(partition):
                self._check(OffsetRange(partition, end, offset), Available(0, end))
            ends[partition] = max(offset, ends.get(partition, offset))  # offsets never go back
        new = {partition: journal.bounds(partition).start for partition in ends if partition not in begun}
        return begun | new, ends

    def over_lost(self, ends: dict[int, int]) -> dict[int, int]:
        """Return the ends moved behind lost ranges, so that no micro-batch is spent on them."""
        kept = self._kept(self._recorded())
        return {each: over_lost(end, kept[each]) if each in kept else end for each, end in ends.items()}

    def reportLatestOffset(self) -> dict[str, int]:
        return to_json(self._ends(self._recorded()))

    def _ends(self, journal: Journal) -> dict[int, int]:
        """Return each partition's end. Called many times a second; reads one small file a partition."""
        return {partition: journal.end(partition) for partition in self._numbers(journal)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        begun, until = from_json(start), from_json(end)
        # A restarted driver first repeats its last batch, and asks for new offsets only after it.
        journal = self._recorded()
        manifests = self.manifests(journal)
        kept = self._kept(journal, manifests)
        ranges, missing = [], []
        for partition, last in until.items():
            bounds = kept.get(partition, Available(0, 0))
            first = begun.get(
                partition, bounds.start
            )  # a partition that appeared during the query is read from its start
            if first < last:
                found, gone = self._check(OffsetRange(partition, first, last), bounds)
                missing += gone
                ranges += self._parts(found, bounds)
        return self._tasks(ranges, missing, manifests)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: retention is configured at the recorder, and other readers need the records too."""

    def stop(self) -> None:
        if self._recorder is not None:
            self._recorder.release()


def default_limit(options: ReadOptions) -> ReadLimit:
    """Return the limit of the options. Spark has none with both bounds; the reader itself keeps the lower one."""
    if options.max_offsets is not None:
        return ReadMaxRows(options.max_offsets)
    return ReadAllAvailable() if options.min_offsets is None else ReadMinRows(options.min_offsets)
