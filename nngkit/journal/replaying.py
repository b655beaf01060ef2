"""Replay: send recorded messages again, in order, at the recorded pace, a multiple of it, or unpaced.

::

    async with Pub(listen="tcp://127.0.0.1:7000") as pub:
        await pub.await_for_peers(1)
        await replay("journal", pub, topics="weather", speed=10.0)

A record is due `(its timestamp - the first one's) / speed` seconds after the first. It is never sent earlier;
`Replayed` counts how much later the socket accepted it. Several partitions are merged by time; records of one
partition keep their order.

Unpaced (`speed=None`), backpressure limits PUSH and PAIR. PUB and BUS have none, so this module waits until their
queues are nearly empty; a slow subscriber may still drop messages, and counts them.
"""

from __future__ import annotations

import heapq
import itertools
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import trio

from nngkit.background import Background
from nngkit.errors import ConfigError
from nngkit.journal.reader import Journal, open_journal
from nngkit.journal.selection import Skipped, log_skipped
from nngkit.protocols import Bus, Pair0, Pair1, Pub, Push, Req

PIECE: Final = 512  # records read at once: 1 ms during which nothing is sent
AHEAD: Final = 16  # pieces read ahead: 8,192 records, for a disk that stalls
TURN: Final = 256  # maximum of records sent at once
STUCK: Final = 1.0  # seconds without a write after which a peer counts as no longer reading
SENDERS: Final = (Pub, Push, Bus, Pair0, Pair1, Req)

_Piece: TypeAlias = tuple[list[int], list[bytes]]  # times and values: a tuple a record would burden the collector


@dataclass(slots=True)
class Replayed:
    """Progress: `records` sent, their `size` in bytes; `late`: number of records by lateness in units of 0.1 ms.

    `skipped`: damaged records left out by `missing="skip"`.
    """

    records: int = 0
    size: int = 0
    late: Counter[int] = field(default_factory=Counter)
    skipped: int = 0

    def lateness(self, share: float) -> float:
        """Return the lateness in seconds that `share` (0 to 1) of the records did not exceed; 0 if unpaced."""
        left = share * self.late.total()
        for tenths, count in sorted(self.late.items()):
            left -= count
            if left <= 0:
                return tenths / 10_000
        return 0.0


async def replay(
    journal: str | os.PathLike[str] | Journal,
    socket: Pub | Push | Bus | Pair0 | Pair1 | Req,
    *,
    speed: float | None = 1.0,
    topics: str | Collection[str] | None = None,
    partition: int | None = None,
    start: int | None = None,
    end: int | None = None,
    start_time: int | None = None,
    end_time: int | None = None,
    missing: Literal["raise", "skip"] = "raise",
    progress: Replayed | None = None,
    skipped: Callable[[Skipped], object] = log_skipped,
) -> Replayed:
    """Send the records that `read` yields, by PUB, PUSH, BUS, PAIR, or REQ (a request each, one at a time).

    `speed`: 1.0 is the recorded pace, None as fast as the socket accepts. `progress` is updated while it runs.
    If cancelled, each record has been sent completely or not at all; `progress` may lack the last 256. Raises the
    errors of `read` and of the socket, ConfigError.
    """
    if type(socket) not in SENDERS:
        known = ", ".join(kind.__name__ for kind in SENDERS)
        raise ConfigError("socket", f"{type(socket).__name__} cannot send a replay; use one of {known}", socket)
    if speed is not None and not 0 < speed < 1e6:
        raise ConfigError("speed", f"{speed!r} is not above 0", speed)
    held = journal if isinstance(journal, Journal) else await trio.to_thread.run_sync(open_journal, journal)
    done = progress if progress is not None else Replayed()

    def count(damage: Skipped) -> None:
        done.skipped += damage.rows
        skipped(damage)

    def pieces() -> Iterator[_Piece]:
        each = held.partitions() if partition is None else [partition]
        names = [topics] if isinstance(topics, str) else topics
        sources = [
            _rows(
                held.read_batches(
                    number,
                    start,
                    end,
                    topics=names,
                    start_time=start_time,
                    end_time=end_time,
                    columns=("timestamp", "value"),
                    missing=missing,
                    skipped=count,
                )
            )
            for number in each
        ]
        return sources[0] if len(sources) == 1 else _merged(sources)

    async with Background() as tasks:
        sending, reading = trio.open_memory_channel[_Piece](AHEAD)
        tasks.start(_read_ahead, pieces, sending)
        if speed is None:
            await _at_once(socket, reading, done)
        else:
            await _in_time(socket, reading, speed, done)
    return done


async def _read_ahead(pieces: Callable[[], Iterator[_Piece]], sending: trio.MemorySendChannel[_Piece]) -> None:
    with sending:  # without a checkpoint, after which its error would not be that of the replay
        source = await trio.to_thread.run_sync(pieces)
        while (piece := await trio.to_thread.run_sync(next, source, None)) is not None:
            await sending.send(piece)


def _rows(batches: Iterator[Any]) -> Iterator[_Piece]:
    import pyarrow as pa

    for batch in batches:
        for at in range(0, batch.num_rows, PIECE):
            part = batch.slice(at, PIECE)
            times = part.column("timestamp").cast(pa.int64()).to_pylist()
            yield times, part.column("value").to_pylist()


def _merged(sources: list[Iterator[_Piece]]) -> Iterator[_Piece]:
    """Merge by time; each source keeps its order even if its clock went back."""
    rows = heapq.merge(*(_each(source) for source in sources), key=lambda row: row[0])
    while some := list(itertools.islice(rows, PIECE)):
        yield [timestamp for timestamp, _ in some], [value for _, value in some]


def _each(source: Iterator[_Piece]) -> Iterator[tuple[int, bytes]]:
    for times, values in source:
        yield from zip(times, values, strict=True)


async def _in_time(socket: Any, reading: AsyncIterator[_Piece], speed: float, done: Replayed) -> None:
    """Send all due records at once, so that rates above one record a wake-up keep up."""
    many = 1 if isinstance(socket, Req) else TURN
    begun: float | None = None
    first = 0
    async for times, values in reading:
        at = 0
        while at < len(times):
            if begun is None:
                begun, first = trio.current_time(), times[0]
            await trio.sleep_until(begun + (times[at] - first) / 1e6 / speed)
            until = first + (trio.current_time() - begun) * 1e6 * speed
            end = at + 1
            while end < min(at + many, len(times)) and times[end] <= until:
                end += 1
            if many == 1:
                await socket.arequest(values[at])
            else:
                await socket.asend_many(values[at:end])
            now = trio.current_time() - begun
            done.late.update(int(max(now - (due - first) / 1e6 / speed, 0.0) * 10_000) for due in times[at:end])
            done.records += end - at
            done.size += sum(map(len, values[at:end]))
            at = end


async def _at_once(socket: Any, reading: AsyncIterator[_Piece], done: Replayed) -> None:
    drops = isinstance(socket, (Pub, Bus))
    async for _, values in reading:
        for at in range(0, len(values), TURN):
            some = values[at : at + TURN]
            if isinstance(socket, Req):
                for value in some:
                    await socket.arequest(value)
            else:
                if drops:
                    await _has_room(socket)
                await socket.asend_many(some)
            done.records += len(some)
            done.size += sum(map(len, some))


async def _has_room(socket: Any) -> None:
    """Wait until fewer than `TURN` messages are unwritten, or no peer has read anything for `STUCK` seconds."""
    since, before = trio.current_time(), -1
    while (unwritten := socket.stats.unwritten) > TURN:
        if unwritten != before:
            since, before = trio.current_time(), unwritten
        elif trio.current_time() - since > STUCK:
            return
        await trio.sleep(0.0005)
