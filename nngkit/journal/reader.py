"""Read a journal while it is written, sealed and retired. Needs no recorder; changes and deletes nothing.

::

    for record in read("journal", topics="weather", start_time=...): ...
    journal = open_journal("journal")
    for batch in journal.read_batches(0, start, end): ...          # pyarrow, SCHEMA

A partition consists of the segments in its manifest, followed by logs, readable up to the head. Records may move from
a log to a segment during a read; when a file is missing, the reader loads the manifest again. An unlisted segment stays
for a minute; a slower reader gets OffsetGone.

`Journal` holds no file open and can be pickled. Times are microseconds since 1970.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from nngkit.errors import ConfigError, Damaged, OffsetGone
from nngkit.file_modes import checked_path
from nngkit.journal.files import BLOCK, MANIFEST, PENDING, SEGMENT, folder_of, logs_in
from nngkit.journal.logfile import open_log, read_head
from nngkit.journal.manifest import ADVICE as MANIFEST_ADVICE
from nngkit.journal.manifest import Manifest, attached, check_journal, load_manifest
from nngkit.journal.record import RawRecord, Record
from nngkit.journal.segments import Segment
from nngkit.journal.selection import ADVICE, Selection, Skipped, log_skipped
from nngkit.journal.storage import open_storage

if TYPE_CHECKING:
    import pyarrow as pa

    from nngkit.journal.files import Storage

BATCH: Final = 65_536  # rows a batch: one row group
TIMES: Final = 1 << 63  # of which a column has none: all times are in the years 1 to 9999
LOOKS: Final = 20  # attempts to find a file that has gone; sealing takes seconds, so two normally suffice


@dataclass(frozen=True, slots=True)
class Bounds:
    """Readable offsets, `start` to `end` - 1; those below `sealed` are in segments."""

    start: int
    end: int
    sealed: int


def open_journal(location: str | os.PathLike[str], *, spool: str | os.PathLike[str] | None = None) -> Journal:
    """Open the journal at a path or URI. `spool`: the folder of a recorder's logs, if storage is shared.

    Raises ConfigError if there is none, or one of another version; Damaged.
    """
    journal = Journal(os.fspath(location), None if spool is None else os.fspath(spool))
    check_journal(journal.storage)
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
    """Yield the records on disk, partition by partition, in offset order.

    `start`, `end`: offset range, `end` exclusive. `start_time`, `end_time`: the same in time. `distinct`: yield only
    the first record of each message id and topic. Without `start`, expired records are no error. `skipped`: called for
    each damaged range that `missing="skip"` skips; default: log a warning. Raises ConfigError, OffsetGone, Damaged.
    """
    from nngkit.journal.ingest import ID
    from nngkit.journal.schema import records_of

    opened = journal if isinstance(journal, Journal) else open_journal(journal)
    names = [topics] if isinstance(topics, str) else topics
    known: set[tuple[str, bytes]] = set()
    for each in opened.partitions() if partition is None else [partition]:
        for batch in opened.read_batches(
            each, start, end, topics=names, start_time=start_time, end_time=end_time, missing=missing, skipped=skipped
        ):
            for record in records_of(batch):
                if distinct and record.headers and record.headers[0][0] == ID:
                    if (message := (record.topic, record.headers[0][1])) in known:
                        continue
                    known.add(message)
                yield record


class Journal:
    """Reader of a journal; created by `open_journal`."""

    def __init__(self, location: str, spool: str | None) -> None:
        self.location = location
        self.spool = spool
        self._storage: Storage | None = None

    def __reduce__(self) -> tuple[type[Journal], tuple[str, str | None]]:
        return Journal, (self.location, self.spool)

    def __repr__(self) -> str:
        return f"<Journal {self.location}>"

    @property
    def storage(self) -> Storage:
        """Storage of the segments."""
        if self._storage is None:
            self._storage = open_storage(self.location)
        return self._storage

    def logs(self, partition: int) -> Path | None:
        """Return the folder of a partition's logs; None if they are on another machine."""
        if self.spool is not None:
            return checked_path("spool", self.spool) / folder_of(partition)
        return None if self.storage.folder is None else self.storage.folder / folder_of(partition)

    def partitions(self) -> list[int]:
        """Return the partition numbers, ascending."""
        numbers = (name.removeprefix("partition-") for name in self.storage.names(""))
        return sorted(int(each) for each in numbers if len(each) == 5 and each.isascii() and each.isdigit())

    def manifest(self, partition: int) -> Manifest:
        """Load a partition's manifest. Raises ConfigError if there is no such partition."""
        manifest = load_manifest(self.storage, partition)
        if manifest is None:
            shown = self.storage.shown(folder_of(partition))
            if any(name.endswith((SEGMENT, PENDING)) for name in self.storage.names(folder_of(partition))):
                raise Damaged(f"{shown}/{MANIFEST}", "the file is missing", advice=MANIFEST_ADVICE)
            there = ", ".join(map(str, self.partitions())) or "none"
            raise ConfigError("partition", f"{shown}: no partition {partition}; there are: {there}", partition)
        return manifest

    def segments(self, partition: int) -> list[Segment]:
        """Return the sealed segments."""
        return list(self.manifest(partition).segments)

    def bounds(self, partition: int, manifest: Manifest | None = None) -> Bounds:
        """Return the readable offsets. `manifest`: the partition's, if it is loaded already."""
        manifest = manifest or self.manifest(partition)
        folder = self.logs(partition)
        head = None if folder is None else read_head(folder)
        end = manifest.end if head is None else max(manifest.end, head.end)
        return Bounds(manifest.start, end, manifest.end)

    def end(self, partition: int) -> int:
        """Return one past the last readable record. Reads one small file, so polling it is cheap."""
        folder = self.logs(partition)
        head = None if folder is None else read_head(folder)
        return self.bounds(partition).end if head is None else head.end

    def offset_at(self, partition: int, time: int, *, damaged: Literal["raise", "before", "behind"] = "raise") -> int:
        """Return the first offset with a timestamp of `time` or later; the end if there is none yet.

        `damaged`: what to do about missing or damaged records before it that may have such a time: raise Damaged;
        return the first of these, so that a read from there reports them; or ignore them, so that a read up to there
        does.
        """
        bounds = self.bounds(partition)
        found = self._offset_from(partition, bounds.start, bounds.sealed, time, damaged)
        if found is None:
            try:
                found = self._offset_in_logs(partition, bounds, time)
            except (FileNotFoundError, Damaged):  # sealed meanwhile, or partly lost
                found = self._offset_from(partition, bounds.sealed, bounds.end, time, damaged)
        return bounds.end if found is None else found

    def _offset_from(self, partition: int, start: int, end: int, time: int, damaged: str) -> int | None:
        gaps: list[Skipped] = []
        batches = self.read_batches(
            partition,
            start,
            end,
            start_time=time,
            columns=["offset"],
            missing="raise" if damaged == "raise" else "skip",
            batch_rows=4096,  # as a log is decoded; segments are searched by row group statistics
            skipped=gaps.append,
        )
        found = next((int(batch.column("offset")[0].as_py()) for batch in batches), None)
        if damaged != "before" or not gaps:
            return found
        # Of a segment, the statistics say that it has such a time. Of a log, the next record does.
        sealed = self.manifest(partition).end
        gone = [each.first for each in gaps if each.first < sealed or each.end == (end if found is None else found)]
        return gone[0] if gone else found

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
        planned: Manifest | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records `start` to `end` - 1 in batches of `SCHEMA`, or of `columns`; none is empty.

        `start` defaults to the earliest retained offset, `end` to the current end. `missing`: records that are
        expired, damaged or beyond the end raise OffsetGone, Damaged or ConfigError, or are skipped. Damage in a
        segment skips one row group; `skipped` is called for each. `planned`: a manifest from which this read was
        planned, or its part `within` the offsets; the journal's is then read only if files have moved.
        """
        bounds = self.bounds(partition) if planned is None else Bounds(planned.start, end or planned.end, planned.end)
        at = bounds.start if start is None else start
        stop = bounds.end if end is None else end
        if stop > bounds.end:
            if missing == "raise":
                shown = self.storage.shown(folder_of(partition))
                why = f"{shown}: offset {stop - 1} does not exist yet, the next one is {bounds.end}"
                raise ConfigError("end", why, stop)
            stop = bounds.end
        low, high = (None if each is None else max(-TIMES, min(each, TIMES - 1)) for each in (start_time, end_time))
        selection = Selection(partition, topics, low, high, columns, missing == "skip", batch_rows, skipped)
        looks = 0
        planned = None if planned is None else attached(self.storage, planned)
        while at < stop:
            manifest = planned or self.manifest(partition)
            if at < manifest.start:
                if start is not None and missing == "raise":
                    raise OffsetGone(self.storage.shown(f"{folder_of(partition)}/{MANIFEST}"), at, manifest.start)
                at = manifest.start
                continue
            before = at
            try:
                for behind, batch in self._some(manifest, before, stop, selection):
                    if batch is not None:
                        yield batch
                    at = behind
            except FileNotFoundError as error:
                looks = looks + 1 if at == before else 0
                name = str(error.filename)
                unchanged = name.endswith((SEGMENT, PENDING, BLOCK)) and self.manifest(partition) == manifest
                planned = None
                if name.endswith(BLOCK) and (unchanged or looks >= LOOKS):
                    raise Damaged(name, "the file is missing", offset=at, advice=MANIFEST_ADVICE) from error
                if looks >= LOOKS or unchanged:
                    if missing == "raise":
                        name = str(error.filename or error)
                        raise Damaged(name, "the file is missing", offset=at, advice=ADVICE) from error
                    at = self._behind(manifest, at, stop, selection)

    def read_log(self, partition: int, start: int, end: int) -> Iterator[list[RawRecord]]:
        """Yield the records from `start` on, below `end`, of the unsealed log that has `start`, without Arrow.

        Decoding takes half the time of `read_batches`, which also reads what this does not: yields nothing if no log
        has `start`. Raises Damaged.
        """
        folder = self.logs(partition)
        logs = [] if folder is None else logs_in(folder)
        number = max((number for number, (first, _) in enumerate(logs) if first <= start), default=None)
        if folder is None or number is None:
            return
        head = read_head(folder)
        bound = logs[number + 1][0] if number + 1 < len(logs) else end if head is None else head.end
        stop = min(end, bound)
        if start >= stop:
            return
        position = head.position if head is not None and head.first == logs[number][0] else None
        try:
            with open_log(logs[number][1]) as log:
                yield from log.chunks(start, stop, stop=position)
        except FileNotFoundError:  # sealed meanwhile
            return

    def _behind(self, manifest: Manifest, at: int, stop: int, selection: Selection) -> int:
        """Report the missing file that should hold `at`; return the offset at which to continue."""
        why = "the file is missing"
        for segment in manifest.segments.covering(at, at + 1):
            if isinstance(segment, Segment):
                shown = self.storage.shown(f"{folder_of(manifest.partition)}/{segment.file}")
                selection.skip_rows(shown, (segment.first, segment.end, segment.rows), at, stop, why)
                return segment.end
        folder = self.logs(manifest.partition)
        end = min((first for first, _ in (logs_in(folder) if folder else ()) if at < first < stop), default=stop)
        shown = str(folder or self.storage.shown(folder_of(manifest.partition)))
        selection.skip_rows(shown, (at, end, end - at), at, stop, "no log has them")
        return end

    def _some(
        self, manifest: Manifest, at: int, stop: int, selection: Selection
    ) -> Iterator[tuple[int, pa.RecordBatch | None]]:
        """Yield (end offset, batch). Raises FileNotFoundError if a file has moved."""
        for segment in manifest.segments.covering(at, stop, selection.start_time, selection.end_time):
            at = self._over_lost(manifest, at, min(segment.first, stop), selection)
            if at < stop:
                if isinstance(segment, Segment) and not selection.excludes(segment):
                    for batch in selection.of_segment(self.storage, manifest.partition, segment, at, stop):
                        yield batch.column("offset")[-1].as_py() + 1, selection.cut(batch)
                at = min(segment.end, stop)
                yield at, None
        at = self._over_lost(manifest, at, min(manifest.end, stop), selection)
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
            at = yield from selection.of_logs(folder, at, edge)

    def _over_lost(self, manifest: Manifest, at: int, to: int, selection: Selection) -> int:
        """Step over a gap between segments; raise Damaged if it is not a known loss."""
        if at >= to:
            return at
        for lost in manifest.lost:
            if lost.first <= at < lost.end:
                at = min(lost.end, to)
        if at < to and not selection.skip:
            shown = self.storage.shown(f"{folder_of(manifest.partition)}/{MANIFEST}")
            raise Damaged(shown, f"no segment has the offsets up to {to - 1}", offset=at, advice=ADVICE)
        if at < to:
            shown = self.storage.shown(f"{folder_of(manifest.partition)}/{MANIFEST}")
            selection.skip_rows(shown, (at, to, to - at), at, to, "no segment has them")
        return to
