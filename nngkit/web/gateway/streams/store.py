"""Streams that HTTP clients write, in one partition of a journal, which this process owns.

The partition is read once at the start, and after that its ledger is in memory: some 24 bytes for each append, and a
kilobyte for each stream. Appends are answered once they are on disk; those of one stream follow one another, and those
of several share a sync. What is deleted can be read no more, but its bytes stay in the journal.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakValueDictionary

import trio

from nngkit.errors import Damaged
from nngkit.journal.reader import open_journal
from nngkit.journal.record import encode_headers, encode_origin
from nngkit.journal.writing.partition import Partition
from nngkit.web.gateway.problems import Problem
from nngkit.web.gateway.streams.ledger import HEADER, Change, Ledger, Piece, Stream, decoded, encoded

if TYPE_CHECKING:
    from collections.abc import Callable

    from nngkit.errors import NotStored

MOST_STREAMS: Final = 100_000
KEPT: Final = 16 << 20  # bytes of the newest records, which live readers want: the journal is not read for them
TIDY: Final = 5.0  # seconds between two looks for streams that have expired
PROTOCOL: Final = "http"
LOADED: Final = ("offset", "topic", "headers")


class _Recent:
    """Values of the newest records, up to KEPT bytes."""

    def __init__(self) -> None:
        self._values: OrderedDict[int, bytes] = OrderedDict()
        self._size = 0

    def add(self, record: int, value: bytes) -> None:
        self._values[record] = value
        self._size += len(value)
        while self._size > KEPT:
            self._size -= len(self._values.popitem(last=False)[1])

    def get(self, record: int) -> bytes | None:
        return self._values.get(record)


class Store:
    """Streams in partition `partition` of the journal at `folder`. Use it with `async with`, under trio.

    Entering raises ConfigError for a partition that another process writes, Damaged.
    """

    def __init__(self, folder: str | os.PathLike[str], partition: int = 0) -> None:
        self._folder = folder
        self._number = partition
        self._ledger = Ledger()
        self._locks: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()
        self._changed: dict[str, trio.Event] = {}
        self._recent = _Recent()
        self._partition: Partition

    async def __aenter__(self) -> Self:
        self._token = trio.lowlevel.current_trio_token()
        opening = partial(Partition.open, self._folder, self._number, deliver=self._deliver)
        self._partition = await trio.to_thread.run_sync(opening)
        try:
            self._journal = open_journal(self._folder)
            await trio.to_thread.run_sync(self._load)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def _close(self) -> None:
        with trio.CancelScope(shield=True):  # what was accepted must reach the disk
            await trio.to_thread.run_sync(self._partition.close)

    def __len__(self) -> int:
        return len(self._ledger.streams)

    def _load(self) -> None:
        now = time.time()
        for batch in self._journal.read_batches(self._number, columns=LOADED):
            for offset, topic, headers in zip(*(batch.column(name).to_pylist() for name in LOADED), strict=True):
                change = next((each["value"] for each in headers or () if each["key"] == HEADER), None)
                if change is not None:
                    try:
                        self._ledger.apply(topic, offset, decoded(change), now)
                    except ValueError as error:
                        raise Damaged(str(self._folder), f"not a change of a stream: {error}", offset=offset) from error

    # Looking

    def find(self, name: str) -> Stream | None:
        """Return the stream of this name, deleted ones that others branch from too; None without one."""
        stream = self._ledger.streams.get(name)
        if stream is not None and not stream.deleted:
            left = stream.left(time.time())
            if left is not None and left <= 0:
                self._expire(stream)
                return self._ledger.streams.get(name)
        return stream

    def get(self, name: str) -> Stream:
        """Return the stream of this name. Raises Problem."""
        stream = self.find(name)
        if stream is None:
            raise Problem(404, "not-found", f"no such stream: {name}", ran=False)
        if stream.deleted:
            raise Problem(410, "gone", f"{name} is deleted; others branch from it", ran=False)
        return stream

    def touch(self, stream: Stream) -> None:
        """Say that a stream is read: its time to live begins anew."""
        stream.touched = time.time()

    def left(self, stream: Stream) -> float | None:
        """Return the seconds until a stream expires; None if it does not."""
        return stream.left(time.time())

    def changed(self, stream: Stream) -> trio.Event:
        """Return an event of the next change of a stream."""
        return self._changed.setdefault(stream.name, trio.Event())

    # Changing

    def lock(self, name: str) -> trio.Lock:
        """Return the lock under which a stream of this name is changed."""
        return self._locks.setdefault(name, trio.Lock())

    async def change(self, name: str, change: Change, value: bytes, who: str | None) -> Stream:
        """Store a change, under the lock of its stream, and return its stream. It runs to its end if cancelled.

        Raises Problem at a cap, NotStored, Full.
        """
        if change.op == "create" and len(self._ledger.streams) >= MOST_STREAMS:
            raise Problem(503, "busy", f"there are {MOST_STREAMS} streams", ran=False)
        outcome: list[tuple[int, NotStored | None]] = []
        stored = trio.Event()

        def done(first: int, _end: int, why: NotStored | None) -> None:
            outcome.append((first, why))
            stored.set()

        self._partition.log.append([self._entry(name, change, value, who)], done)
        with trio.CancelScope(shield=True):  # the log stores or refuses it within a moment
            await stored.wait()
        ((record, why),) = outcome
        if why is not None:
            raise why
        if value:
            self._recent.add(record, value)
        stream = self._ledger.apply(name, record, change, time.time())
        assert stream is not None
        self._tell(stream)
        return stream

    def _entry(self, name: str, change: Change, value: bytes, who: str | None) -> Any:
        origin = encode_origin(name, PROTOCOL, who)
        return None, value, origin, encode_headers([(HEADER, encoded(change))]), time.time_ns() // 1000

    def _expire(self, stream: Stream) -> None:
        """Delete a stream whose time has ended; the record of it follows by itself."""
        change = Change("delete")
        self._partition.log.append([self._entry(stream.name, change, b"", None)], force=True)
        self._ledger.apply(stream.name, 0, change, 0.0)
        self._tell(stream)

    def _tell(self, stream: Stream) -> None:
        event = self._changed.pop(stream.name, None)
        if event is not None:
            event.set()

    async def tidy(self) -> None:
        """Delete streams that have expired; for ever."""
        while True:
            await trio.sleep(TIDY)
            for number, name in enumerate(list(self._ledger.streams)):
                if self.find(name) is not None and number % 1000 == 999:
                    await trio.lowlevel.checkpoint()

    def _deliver(self, calls: list[Callable[[], None]]) -> None:  # on the log's thread
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(_run_all, calls)

    # Reading

    async def values(self, pieces: Sequence[Piece]) -> list[bytes]:
        """Return the values of the records of these pieces. Raises OffsetGone, Damaged."""
        found = {each.record: self._recent.get(each.record) for each in pieces}
        missing = sorted(record for record, value in found.items() if value is None)
        if missing:
            found |= await trio.to_thread.run_sync(self._read, missing)
        values = [found[each.record] for each in pieces]
        assert all(value is not None for value in values)
        return [value for value in values if value is not None]

    def _read(self, records: Sequence[int]) -> dict[int, bytes]:
        wanted = set(records)
        found: dict[int, bytes] = {}
        for first, end in _runs(records):
            at = first
            for rows in self._journal.read_log(self._number, first, end):
                found |= {row[0]: row[5] for row in rows if row[0] in wanted}
                at = rows[-1][0] + 1
            if at < end:
                for batch in self._journal.read_batches(self._number, at, end, columns=["offset", "value"]):
                    pairs = zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True)
                    found |= {offset: value for offset, value in pairs if offset in wanted}
        return found


def _runs(records: Iterable[int]) -> list[tuple[int, int]]:
    """Return ranges that hold ascending numbers: a few others in between cost less than another look."""
    runs: list[tuple[int, int]] = []
    for record in records:
        if runs and record - runs[-1][1] < 256:
            runs[-1] = runs[-1][0], record + 1
        else:
            runs.append((record, record + 1))
    return runs


def _run_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()
