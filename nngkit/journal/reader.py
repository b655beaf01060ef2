"""Reading a journal, while it is written, sealed and retired. Needs no recorder, changes nothing, deletes nothing.

::

    for record in read("journal", topics="weather", start_time=...): ...
    journal = open_journal("journal")
    for batch in journal.read_batches(0, start, end): ...          # pyarrow, SCHEMA

A partition is segments, which its manifest lists, and behind them logs, readable up to their head. What a reader has
planned to read may move from a log to a segment before it gets there: a file that is gone makes it look again. A
segment that is listed no more stays for a minute; whoever is slower than that gets OffsetGone.

`Journal` holds no file open and can be sent to another process. Times are microseconds since 1970.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from nngkit.errors import ConfigError, Damaged, OffsetGone
from nngkit.journal.files import MANIFEST, SEGMENT, folder_of, logs_in, opened, place_of
from nngkit.journal.logfile import open_log, read_head
from nngkit.journal.manifest import Manifest, Segment, check_journal, load_manifest
from nngkit.journal.record import Record

if TYPE_CHECKING:
    import pyarrow as pa

    from nngkit.journal.files import Place

__all__ = ["Bounds", "Journal", "Skipped", "log_skipped", "open_journal", "read"]

log_ = logging.getLogger("nngkit.journal")

BATCH: Final = 65_536  # rows of a batch: a row group of ours
LOOKS: Final = 20  # times that a reader looks again for a file that has gone; a seal takes seconds, so twice is much
ADVICE: Final = "restore the file from a copy, or read on without it (missing='skip', --skip-missing)"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Offsets from `start` to `end` - 1 can be read; those below `sealed` are in segments."""

    start: int
    end: int
    sealed: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """Damage that a reader has skipped: `rows` records with offsets from `first` to `end` - 1, in `file`.

    Counts only what was asked for, before filters by topic and time: those records cannot be looked at. The parts of
    one read add up to the same number however it is split.
    """

    partition: int
    file: str
    first: int
    end: int
    rows: int
    why: str

    def __str__(self) -> str:
        return f"{self.file}: skipped {self.rows} records, offsets {self.first} to {self.end - 1}: {self.why}"


def log_skipped(skipped: Skipped) -> None:
    """Log it as a warning."""
    log_.warning("%s", skipped)


def open_journal(location: str | os.PathLike[str], *, spool: str | os.PathLike[str] | None = None) -> Journal:
    """The journal at a path or URI. `spool`: where a recorder of a shared one, on this machine, has its logs.

    Raises ConfigError where there is none, or one of another version; Damaged.
    """
    journal = Journal(os.fspath(location), None if spool is None else os.fspath(spool))
    check_journal(journal.place)
    return journal


def read(
    journal: str | os.PathLike[str] | Journal,
    *,
    topics: str | Collection[str] | None = None,
    partition: int | None = None,
    start: int | None = None,
    end: int | None = None,
    start_time: int | None = None,
    end_time: int | None = None,
    missing: Literal["raise", "skip"] = "raise",
    distinct: bool = False,
    skipped: Callable[[Skipped], object] = log_skipped,
) -> Iterator[Record]:
    """The records that are there now, partition by partition, in the order of their offsets.

    `start`, `end`: offsets, from and below. `start_time`, `end_time`: the same in time. `distinct`: of records with one
    message id and topic, the first. Without `start`, what retention has taken is no error. `skipped`: called for each
    damage that `missing="skip"` leaves out; logged as a warning unless given.
    Raises ConfigError, OffsetGone, Damaged.
    """
    from nngkit.journal.ingest import ID
    from nngkit.journal.schema import records_of

    opened = journal if isinstance(journal, Journal) else open_journal(journal)
    names = [topics] if isinstance(topics, str) else topics
    known: set[tuple[str, bytes]] = set()
    for each in opened.partitions() if partition is None else [partition]:
        for batch in opened.read_batches(
            each,
            start,
            end,
            topics=names,
            start_time=start_time,
            end_time=end_time,
            missing=missing,
            skipped=skipped,
        ):
            for record in records_of(batch):
                if distinct and record.headers and record.headers[0][0] == ID:
                    if (message := (record.topic, record.headers[0][1])) in known:
                        continue
                    known.add(message)
                yield record


class Journal:
    """A journal to be read; `open_journal` makes it."""

    def __init__(self, location: str, spool: str | None) -> None:
        self.location = location
        self.spool = spool
        self._place: Place | None = None

    def __reduce__(self) -> tuple[type[Journal], tuple[str, str | None]]:
        return Journal, (self.location, self.spool)

    def __repr__(self) -> str:
        return f"<Journal {self.location}>"

    @property
    def place(self) -> Place:
        """Where its segments are."""
        if self._place is None:
            self._place = place_of(self.location)
        return self._place

    def logs(self, partition: int) -> Path | None:
        """The folder of a partition's logs; None where this machine has none."""
        if self.spool is not None:
            return Path(self.spool) / folder_of(partition)
        return None if self.place.folder is None else self.place.folder / folder_of(partition)

    def partitions(self) -> list[int]:
        """The partitions that there are, by their numbers."""
        names = (name.partition("partition-") for name in self.place.names(""))
        return sorted(int(number) for before, _, number in names if not before and number.isdigit())

    def manifest(self, partition: int) -> Manifest:
        """A partition's manifest as it is now. Raises ConfigError where there is no such partition."""
        manifest = load_manifest(self.place, partition)
        if manifest is None:
            shown = self.place.shown(folder_of(partition))
            if any(name.endswith(SEGMENT) for name in self.place.names(folder_of(partition))):
                advice = "restore it from a copy, or make one from the segments: nngkit journal rebuild-manifest"
                raise Damaged(f"{shown}/{MANIFEST}", "the file is missing", advice=advice)
            there = ", ".join(map(str, self.partitions())) or "none"
            raise ConfigError("partition", f"{shown}: there is no partition {partition}; there are: {there}", partition)
        return manifest

    def segments(self, partition: int) -> list[Segment]:
        """What is sealed."""
        return list(self.manifest(partition).segments)

    def bounds(self, partition: int) -> Bounds:
        """What can be read now."""
        manifest = self.manifest(partition)
        folder = self.logs(partition)
        head = None if folder is None else read_head(folder)
        end = manifest.end if head is None else max(manifest.end, head.end)
        return Bounds(manifest.start, end, manifest.end)

    def end(self, partition: int) -> int:
        """One past the last record that can be read: one small file looked at, so it may be asked often."""
        folder = self.logs(partition)
        head = None if folder is None else read_head(folder)
        return self.bounds(partition).end if head is None else head.end

    def offset_at(self, partition: int, time: int) -> int:
        """The first offset with a timestamp of `time` or later; the end if there is none yet."""
        bounds = self.bounds(partition)
        found = self._offset_from(partition, bounds.start, bounds.sealed, time)
        if found is None:
            try:
                found = self._offset_in_logs(partition, bounds, time)
            except (FileNotFoundError, Damaged):  # sealed meanwhile, or part of it is known to be lost
                found = self._offset_from(partition, bounds.sealed, bounds.end, time)
        return bounds.end if found is None else found

    def _offset_from(self, partition: int, start: int, end: int, time: int) -> int | None:
        for batch in self.read_batches(
            partition,
            start,
            end,
            start_time=time,
            columns=["offset"],
            missing="skip",
            batch_rows=4096,  # of a log, as it is decoded; in segments the statistics of row groups say where to look
            skipped=lambda _: None,
        ):
            return int(batch.column("offset")[0].as_py())
        return None

    def _offset_in_logs(self, partition: int, bounds: Bounds, time: int) -> int | None:
        folder = self.logs(partition)
        found = [] if folder is None else logs_in(folder)
        if bounds.sealed < bounds.end and (not found or found[0][0] > bounds.sealed):
            raise FileNotFoundError(2, "no log has it", f"{folder}/{bounds.sealed:020}.log")
        for number, (first, path) in enumerate(found):
            end = min(bounds.end, found[number + 1][0]) if number + 1 < len(found) else bounds.end
            if bounds.sealed < end:
                with open_log(path) as log:
                    offset = log.first_at(max(first, bounds.sealed), end, time)
                if offset is not None:
                    return offset
        return None

    def read_batches(
        self,
        partition: int,
        start: int | None = None,
        end: int | None = None,
        *,
        topics: Collection[str] | None = None,
        start_time: int | None = None,
        end_time: int | None = None,
        columns: Sequence[str] | None = None,
        missing: Literal["raise", "skip"] = "raise",
        batch_rows: int = BATCH,
        skipped: Callable[[Skipped], object] = log_skipped,
    ) -> Iterator[pa.RecordBatch]:
        """The records `start` to `end` - 1 in batches of `SCHEMA`, or of `columns`; none is empty.

        Left out, `start` is the earliest kept and `end` what is on the disk now. `missing`: what is gone, or damaged,
        or beyond the end, raises OffsetGone, Damaged, ConfigError, or is skipped. Of a segment, one row group is
        skipped; `skipped` is called for each.
        """
        bounds = self.bounds(partition)
        at = bounds.start if start is None else start
        stop = bounds.end if end is None else end
        if stop > bounds.end:
            if missing == "raise":
                shown = self.place.shown(folder_of(partition))
                why = f"{shown}: offset {stop - 1} is not there yet, the next one is {bounds.end}"
                raise ConfigError("end", why, stop)
            stop = bounds.end
        wanted = _Wanted(partition, topics, start_time, end_time, columns, missing == "skip", batch_rows, skipped)
        looks = 0
        while at < stop:
            manifest = self.manifest(partition)
            if at < manifest.start:
                if start is not None and missing == "raise":
                    raise OffsetGone(self.place.shown(f"{folder_of(partition)}/{MANIFEST}"), at, manifest.start)
                at = manifest.start
                continue
            before = at
            try:
                for behind, batch in self._some(manifest, before, stop, wanted):
                    if batch is not None:
                        yield batch
                    at = behind
            except FileNotFoundError as error:
                looks = looks + 1 if at == before else 0
                unchanged = str(error.filename).endswith(SEGMENT) and self.manifest(partition) == manifest
                if looks >= LOOKS or unchanged:
                    if missing == "raise":
                        name = str(error.filename or error)
                        raise Damaged(name, "the file is missing", offset=at, advice=ADVICE) from error
                    at = self._behind(manifest, at, stop, wanted)

    def _behind(self, manifest: Manifest, at: int, stop: int, wanted: _Wanted) -> int:
        """Where to go on if the file with `at` is not there."""
        why = "the file is missing"
        for segment in manifest.segments:
            if segment.first <= at < segment.end:
                shown = self.place.shown(f"{folder_of(manifest.partition)}/{segment.file}")
                wanted.skip_rows(shown, (segment.first, segment.end, segment.rows), at, stop, why)
                return segment.end
        folder = self.logs(manifest.partition)
        end = min((first for first, _ in (logs_in(folder) if folder else ()) if at < first < stop), default=stop)
        shown = str(folder or self.place.shown(folder_of(manifest.partition)))
        wanted.skip_rows(shown, (at, end, end - at), at, stop, "no log has them")
        return end

    def _some(
        self, manifest: Manifest, at: int, stop: int, wanted: _Wanted
    ) -> Iterator[tuple[int, pa.RecordBatch | None]]:
        """Batches, and where each of them ends. Raises FileNotFoundError for what has moved on."""
        for segment in manifest.segments:
            if at >= stop:
                return
            if segment.end <= at:
                continue
            at = self._over_lost(manifest, at, min(segment.first, stop), wanted)
            if at < stop:
                if not wanted.excludes(segment):
                    for batch in wanted.of_segment(self.place, manifest.partition, segment, at, stop):
                        yield batch.column("offset")[-1].as_py() + 1, wanted.cut(batch)
                at = min(segment.end, stop)
                yield at, None
        at = self._over_lost(manifest, at, min(manifest.end, stop), wanted)
        folder = self.logs(manifest.partition)
        if at < stop and folder is None:
            raise FileNotFoundError(2, "sealed and gone", f"{self.location}{SEGMENT}")
        while at < stop and folder is not None:
            lost = next((each for each in manifest.lost if each.first <= at < each.end), None)
            if lost is not None:
                at = min(lost.end, stop)
                yield at, None
                continue
            edge = min((each.first for each in manifest.lost if at < each.first < stop), default=stop)
            at = yield from wanted.of_logs(folder, at, edge)

    def _over_lost(self, manifest: Manifest, at: int, to: int, wanted: _Wanted) -> int:
        """Over a gap between segments, which has to be one that is known."""
        if at >= to:
            return at
        for lost in manifest.lost:
            if lost.first <= at < lost.end:
                at = min(lost.end, to)
        if at < to and not wanted.skip:
            shown = self.place.shown(f"{folder_of(manifest.partition)}/{MANIFEST}")
            raise Damaged(shown, f"no segment has the offsets up to {to - 1}", offset=at, advice=ADVICE)
        if at < to:
            shown = self.place.shown(f"{folder_of(manifest.partition)}/{MANIFEST}")
            wanted.skip_rows(shown, (at, to, to - at), at, to, "no segment has them")
        return to


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a reader asked for."""

    partition: int
    topics: Collection[str] | None
    start_time: int | None
    end_time: int | None
    columns: Sequence[str] | None
    skip: bool
    batch_rows: int
    skipped: Callable[[Skipped], object]

    def skip_rows(self, file: str, held: tuple[int, int, int], first: int, stop: int, why: str) -> None:
        """Tell that of a file or row group, `held` (first, end, rows), `first` to `stop` - 1 are left out.

        Where records are missing in it already, nobody knows which: all its rows are counted with its first offset.
        """
        begin, end, rows = held
        low, high = max(begin, first), min(end, stop)
        if low >= high:
            return
        if rows == end - begin:
            rows = high - low
        elif low > begin:
            rows = 0
        if rows:
            self.skipped(Skipped(self.partition, file, low, high, rows, why))

    def excludes(self, segment: Segment) -> bool:
        """Whether nothing in it can be wanted, by what the manifest says."""
        outside = self._outside(segment.min_time, segment.max_time)
        return outside or (self.topics is not None and not set(self.topics) & segment.topics.keys())

    def cut(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if self.columns is None else batch.select(list(self.columns))

    def filtered(self, batch: pa.RecordBatch, first: int, stop: int) -> pa.RecordBatch:
        import pyarrow as pa
        from pyarrow import compute

        offsets, masks = batch.column("offset"), []
        if offsets[0].as_py() < first:
            masks.append(compute.greater_equal(offsets, first))
        if offsets[-1].as_py() >= stop:
            masks.append(compute.less(offsets, stop))
        if self.topics is not None:
            masks.append(compute.is_in(batch.column("topic"), value_set=pa.array(list(self.topics), pa.string())))
        moment = batch.schema.field("timestamp").type if "timestamp" in batch.schema.names else None
        if self.start_time is not None:
            masks.append(compute.greater_equal(batch.column("timestamp"), pa.scalar(self.start_time, moment)))
        if self.end_time is not None:
            masks.append(compute.less(batch.column("timestamp"), pa.scalar(self.end_time, moment)))
        for mask in masks[1:]:
            masks[0] = compute.and_(masks[0], mask)
        return batch.filter(masks[0]) if masks else batch

    def of_segment(
        self, place: Place, partition: int, segment: Segment, first: int, stop: int
    ) -> Iterator[pa.RecordBatch]:
        """Batches with the columns asked for and those that filters and offsets need. Raises Damaged."""
        import pyarrow as pa
        from pyarrow import parquet

        from nngkit.journal.schema import NAMES

        name = f"{folder_of(partition)}/{segment.file}"
        shown = place.shown(name)
        needed = {"offset", *(() if self.topics is None else ("topic",)), *self._time_column()}
        columns = list(NAMES) if self.columns is None else [each for each in NAMES if each in {*self.columns, *needed}]
        try:
            with opened(place, name) as file:
                source = parquet.ParquetFile(file, page_checksum_verification=True)
                version = (source.schema_arrow.metadata or {}).get(b"nngkit.journal")
                if version != b"1" or source.metadata.num_rows != segment.rows:
                    why = (
                        f"version {version!r}, {source.metadata.num_rows} rows; the manifest says 1 and {segment.rows}"
                    )
                    raise Damaged(shown, why, offset=segment.first, advice=ADVICE)
                for number in range(source.num_row_groups):
                    held = self._held(source.metadata.row_group(number), segment, first, stop)
                    if held is None:
                        continue
                    try:  # the whole group, so that nothing of it was handed out when damage is found
                        table = source.read_row_group(number, columns)
                        if table.num_rows != held[2]:
                            raise OSError(f"{table.num_rows} rows, and {held[2]} were written")
                    except (pa.ArrowException, OSError) as error:
                        why = str(error).splitlines()[0]
                        if not self.skip:
                            raise Damaged(shown, why, offset=max(first, held[0]), advice=ADVICE) from error
                        self.skip_rows(shown, held, first, stop, why)
                        continue
                    for batch in table.to_batches(self.batch_rows):
                        if (found := self.filtered(batch, first, stop)).num_rows:
                            yield found
        except FileNotFoundError as error:
            raise FileNotFoundError(error.errno, error.strerror, shown) from error
        except (pa.ArrowException, OSError) as error:
            why = str(error).splitlines()[0]
            if not self.skip:
                raise Damaged(shown, why, offset=first, advice=ADVICE) from error
            self.skip_rows(shown, (segment.first, segment.end, segment.rows), first, stop, why)
        except Damaged as error:
            if not self.skip:
                raise
            self.skip_rows(shown, (segment.first, segment.end, segment.rows), first, stop, error.why)

    def _time_column(self) -> tuple[str, ...]:
        return () if self.start_time is None and self.end_time is None else ("timestamp",)

    def _held(self, group: Any, segment: Segment, first: int, stop: int) -> tuple[int, int, int] | None:
        """The first offset of a row group, the one behind its last, and its rows; None if nothing in it is wanted."""
        begin, end = segment.first, segment.end
        for number in range(group.num_columns):
            column = group.column(number)
            if column.path_in_schema not in ("offset", "timestamp") or (found := column.statistics) is None:
                continue
            if not found.has_min_max:
                continue
            if column.path_in_schema == "offset":
                begin, end = found.min, found.max + 1
            elif self._outside(_micros(found.min), _micros(found.max)):
                return None
        return (begin, end, group.num_rows) if begin < stop and first < end else None

    def _outside(self, low: int, high: int) -> bool:
        return (self.start_time is not None and high < self.start_time) or (
            self.end_time is not None and low >= self.end_time
        )

    def of_logs(self, folder: Path, at: int, stop: int) -> Generator[tuple[int, pa.RecordBatch | None], None, int]:
        """Batches from the log that `at` is in. Returns where it ended."""
        logs = logs_in(folder)
        number = next((number for number, (first, _) in reversed(list(enumerate(logs))) if first <= at), None)
        if number is None:
            raise FileNotFoundError(2, "no log has it", str(folder / f"{at:020}.log"))
        head = read_head(folder)
        end = min(stop, logs[number + 1][0]) if number + 1 < len(logs) else stop
        position = head.position if head is not None and head.first == logs[number][0] and head.end >= end else None
        with open_log(logs[number][1]) as log:
            rows: list[Any] = []
            expected = at
            for piece in log.chunks(at, end, stop=position, most=min(4096, self.batch_rows), skip=self.skip):
                if piece[0][0] > expected:
                    missing = (expected, piece[0][0], piece[0][0] - expected)
                    self.skip_rows(str(log.path), missing, at, end, "damaged")
                expected = piece[-1][0] + 1
                rows += piece
                if len(rows) >= self.batch_rows:
                    yield from self._built(rows, at, end)
                    rows = []
            if rows:
                yield from self._built(rows, at, end)
            if expected < end:
                self.skip_rows(str(log.path), (expected, end, end - expected), at, end, "damaged")
        yield end, None
        return end

    def _built(self, rows: list[Any], first: int, stop: int) -> Iterator[tuple[int, pa.RecordBatch | None]]:
        from nngkit.journal.schema import batch_of

        behind = rows[-1][0] + 1
        batch = self.filtered(batch_of(rows, self.partition), first, stop)
        yield behind, self.cut(batch) if batch.num_rows else None


def _micros(moment: Any) -> int:
    """A timestamp of a row group's statistics in microseconds since 1970."""
    return int((moment - dt.datetime(1970, 1, 1, tzinfo=moment.tzinfo)) // dt.timedelta(microseconds=1))
