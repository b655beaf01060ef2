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

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from nngkit.errors import ConfigError, Damaged, OffsetGone
from nngkit.journal.files import MANIFEST, SEGMENT, folder_of, logs_in, place_of
from nngkit.journal.logfile import open_log, read_head
from nngkit.journal.manifest import Manifest, Segment, check_journal, load_manifest
from nngkit.journal.record import Record
from nngkit.journal.selection import ADVICE, Skipped, Wanted, log_skipped

if TYPE_CHECKING:
    import pyarrow as pa

    from nngkit.journal.files import Place

__all__ = ["Bounds", "Journal", "open_journal", "read"]

BATCH: Final = 65_536  # rows of a batch: a row group of ours
LOOKS: Final = 20  # times that a reader looks again for a file that has gone; a seal takes seconds, so twice is much


@dataclass(frozen=True, slots=True)
class Bounds:
    """Offsets from `start` to `end` - 1 can be read; those below `sealed` are in segments."""

    start: int
    end: int
    sealed: int


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
        wanted = Wanted(partition, topics, start_time, end_time, columns, missing == "skip", batch_rows, skipped)
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

    def _behind(self, manifest: Manifest, at: int, stop: int, wanted: Wanted) -> int:
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
        self, manifest: Manifest, at: int, stop: int, wanted: Wanted
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

    def _over_lost(self, manifest: Manifest, at: int, to: int, wanted: Wanted) -> int:
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
