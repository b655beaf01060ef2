"""Topics of a journal that recorders write, as streams of JSON: a message for each record.

::

    {"offset":42,"timestamp":1764288000123456,"key":"weather.","body":"4"}

`offset` is that of the journal, `timestamp` in microseconds since 1970. A body or key that is not UTF-8 is base64, and
`"encoding"` or `"keyEncoding"` says so. A topic is there once it has a record. A position is an offset of the journal's
partition, so that those of a topic have gaps.
"""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Self, TypeVar

import msgspec
import trio

from nngkit.errors import ConfigError, Damaged, OffsetGone
from nngkit.journal.reader import Journal, open_journal
from nngkit.journal.record import Record
from nngkit.journal.schema import records_of
from nngkit.journal.segments import Segment
from nngkit.web.exchange import Headers
from nngkit.web.gateway.problems import Problem
from nngkit.web.gateway.streams.asked import JSON
from nngkit.web.gateway.streams.reading import Part

log = logging.getLogger("nngkit.web")

LOOK: Final = 0.1  # seconds between two looks for new records, while a client waits for them
THREADS: Final = 4  # that read files at a time
LOOKED_AT: Final = 1 << 20  # records of other topics that one read passes over
STEP: Final = 1 << 14  # records that are looked at before it is asked whether this is enough
MOST_TOPICS: Final = 100_000  # names that are remembered of a partition
T = TypeVar("T")


class _Partition:
    """One partition: the topics it has, as far as they are known, and the readers that wait for its end to move."""

    def __init__(self, journal: Journal, number: int) -> None:
        self._journal = journal
        self.number = number
        self._topics: set[str] = set()
        self._seen = 0  # below it, all topics are known
        self.waiting = 0
        self.moved = trio.Event()
        self.end = 0

    def has(self, topic: str) -> bool:
        """Return True if it has a record of the topic. Reads files."""
        if topic not in self._topics:
            manifest = self._journal.manifest(self.number)
            bounds = self._journal.bounds(self.number, manifest)
            for segment in manifest.segments.covering(self._seen, bounds.end):
                if isinstance(segment, Segment):
                    self._topics |= segment.topics.keys()
            at = max(self._seen, bounds.sealed)
            for batch in self._journal.read_batches(
                self.number, at, max(at, bounds.end), columns=["topic"], missing="skip"
            ):
                self._topics |= set(batch.column("topic").unique().to_pylist())
            self._seen = bounds.end
            if len(self._topics) > MOST_TOPICS:
                raise Problem(503, "busy", f"the journal has more than {MOST_TOPICS} topics", ran=False)
        return topic in self._topics


class Topics:
    """The topics of the journal at `location`. Use it with `async with`, under trio; `follow` runs meanwhile.

    Entering raises ConfigError if there is no journal, Damaged.
    """

    def __init__(self, location: str | os.PathLike[str], spool: str | os.PathLike[str] | None = None) -> None:
        self._location = location
        self._spool = spool
        self._limiter = trio.CapacityLimiter(THREADS)
        self._partitions: dict[int, _Partition] = {}

    async def __aenter__(self) -> Self:
        self._wanted = trio.Event()
        self._journal = await trio.to_thread.run_sync(lambda: open_journal(self._location, spool=self._spool))
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def find(self, topic: str, number: int | None) -> Topic:
        """Return a topic of a partition, of the lowest by default. Raises Problem."""
        if number not in self._partitions:
            there = await self.run(self._journal.partitions)
            number = there[0] if number is None and there else number
            if number is None or number not in there:
                raise Problem(404, "not-found", "no such partition", ran=False)
        partition = self._partitions.setdefault(number, _Partition(self._journal, number))
        if not await self.run(partition.has, topic):
            raise Problem(404, "not-found", f"partition {number} has no record of {topic}", ran=False)
        return Topic(self, partition, topic)

    async def run(self, read: Callable[..., T], *arguments: Any) -> T:
        """Return what `read` does, in a thread. Raises Problem."""
        try:
            return await trio.to_thread.run_sync(read, *arguments, limiter=self._limiter)
        except OffsetGone as error:
            raise Problem(410, "gone", "retention has deleted these records", ran=False) from error
        except ConfigError as error:
            raise Problem(404, "not-found", "no such partition", ran=False) from error
        except FileNotFoundError as error:  # merged or retired meanwhile
            raise Problem(503, "busy", "the journal's files have moved", ran=False) from error
        except Damaged as error:
            log.error("a topic cannot be read: %s", error)
            raise Problem(500, "failed", "the journal is damaged there; the gateway's log says where") from error

    @asynccontextmanager
    async def waiting(self, partition: _Partition) -> AsyncGenerator[None]:
        """Have the end of a partition looked at."""
        partition.waiting += 1
        self._wanted.set()
        try:
            yield
        finally:
            partition.waiting -= 1

    async def follow(self) -> None:
        """Wake the readers that wait for new records; for ever."""
        while True:
            wanted = [each for each in self._partitions.values() if each.waiting]
            if not wanted:
                self._wanted = trio.Event()
                await self._wanted.wait()
                continue
            for each in wanted:
                try:
                    end = self._journal.end(each.number)  # it reads one small file
                except (OSError, ConfigError, Damaged):  # a read will say so
                    end = each.end + 1
                if end != each.end:
                    each.end = end
                    each.moved.set()
                    each.moved = trio.Event()
            await trio.sleep(LOOK)

    @property
    def journal(self) -> Journal:
        """Its journal."""
        return self._journal


class Topic:
    """A topic of one partition, to be read."""

    type = JSON
    is_json = True
    closed = False

    def __init__(self, topics: Topics, partition: _Partition, name: str) -> None:
        self._topics = topics
        self._partition = partition
        self._name = name
        self.id = f"p{partition.number}"

    async def bounds(self) -> tuple[int, int]:
        """Return the first offset of the partition, and that after its last."""
        bounds = await self._topics.run(self._topics.journal.bounds, self._partition.number)
        return bounds.start, bounds.end

    async def read(self, start: int, tail: int, most: int) -> Part:
        """Return messages from the offset `start` on."""
        return await self._topics.run(self._read, start, tail, most)

    def _read(self, start: int, tail: int, most: int) -> Part:
        found: list[bytes] = []
        size, at, last = 0, start, min(tail, start + LOOKED_AT)
        while at < last and not found:
            stop = min(at + STEP, last)
            for batch in self._topics.journal.read_batches(
                self._partition.number, at, stop, topics=[self._name], batch_rows=1024
            ):
                for record in records_of(batch):
                    found.append(message(record))
                    size += len(found[-1])
                    if size >= most:
                        return Part(b",".join(found), record.offset + 1)
            at = stop
        return Part(b",".join(found), at)

    async def more(self, tail: int) -> None:
        """Return once the partition's end may be another one."""
        async with self._topics.waiting(self._partition):
            moved = self._partition.moved
            if await self._topics.run(self._topics.journal.end, self._partition.number) == tail:
                await moved.wait()

    def left(self) -> None:
        """Return None: it does not expire."""

    def about(self) -> Headers:
        """Return no headers."""
        return ()


def message(record: Record) -> bytes:
    """Return a record as a message."""
    fields: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
    if record.key is not None:
        fields |= _text("key", "keyEncoding", record.key)
    return msgspec.json.encode(fields | _text("body", "encoding", record.value))


def _text(name: str, encoding: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name: base64.b64encode(data).decode(), encoding: "base64"}
