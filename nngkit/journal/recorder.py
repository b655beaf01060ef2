"""Recorder: writes messages from sockets, or from `put`, into one partition of a journal.

::

    async with Recorder("journal") as recorder, trio.open_nursery() as nursery:
        nursery.start_soon(recorder.record, Sub(dial=..., topics="weather.", sequence=True), "weather")
        nursery.start_soon(recorder.record, Rep(listen=...), "orders")          # acknowledged: ingest.py
        recorder.put(b"...", topic="rounds", protocol="survey")                 # any other source

==========  =================================================================================================
input       delivery guarantee
==========  =================================================================================================
SUB, BUS    at most once. Messages are dropped and counted while the buffer is full; the socket counts gaps in
            numbered messages (`stats.lost`)
PULL, PAIR  nothing is dropped: while the buffer is full, nothing is received (backpressure). Messages received
            and not yet synced are lost if the recorder is killed
REP         replied to after the sync: at least once, and with ids exactly once after deduplication
`put`       as SUB, or with `force` as PULL; `store` as REP
==========  =================================================================================================

All waiting is done in trio; the log's thread does the disk I/O. Does not know: the meaning of a message, discovery,
documents.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import index
from types import TracebackType
from typing import Annotated, Any, Final, Self, TypeAlias

import trio

from nngkit.background import UnderTrio, WakeUp
from nngkit.errors import BadMessage, Broken, Closed, ConfigError, Full, NotStored, TimedOut, TooLarge
from nngkit.instruments import Bytes, BytesTotal, Gauge, Instrument, Label, Problem, Total
from nngkit.journal.ingest import IngestRequest, Stored, encode_refusal, encode_stored, parse_request
from nngkit.journal.reader import open_journal, read
from nngkit.journal.record import EARLIEST, LATEST, WHO, Record, encode_headers, encode_origin, held_bytes
from nngkit.journal.writing.log import Entry, LogStats
from nngkit.journal.writing.partition import Partition, Retention, SealStats
from nngkit.protocols import Bus, Pair0, Pair1, Pipe, Pull, Rep, Request, Socket, Sub

TURN: Final = 256  # messages received at once, so that wake-ups do not dominate the cost
ORIGINS: Final = 4096  # cached origins; a peer that reconnects has a new one
PROTOCOLS: Final = {Sub: "sub", Pull: "pull", Bus: "bus", Pair0: "pair", Pair1: "pair", Rep: "rep"}
QUIET: Final = 0.05  # seconds without a message after which a cancelled socket counts as drained
LAST: Final = 1.0  # seconds that draining may take while a peer keeps sending
DROPS: Final = ("sub", "bus")  # protocols without backpressure
MOST_ROWS: Final = 1024  # counters of topics that are put or have ended: a quarter of a megabyte

Headers = Mapping[str, bytes] | Iterable[tuple[str, bytes]] | None

Losses: TypeAlias = tuple[int, int]
"""Messages lost, and unseen."""


@dataclass(slots=True)
class StreamStats:
    """Counters of one input of a recorder: a socket that is recorded, or all that was put to a topic or has ended.

    Topic and protocol "" have the sum of those that were quiet for longest, over 1,024.
    """

    topic: Label
    protocol: Label
    received: Total = 0
    """Records received."""
    size: BytesTotal = 0
    """Bytes of the records received."""
    dropped: Total = 0
    """Records dropped because the buffer was full."""
    refused: Total = 0
    """Records refused with NotStored."""
    bad: Total = 0
    """Requests that are no records."""
    socket: Socket | None = field(default=None, repr=False)
    _ended: Losses = field(default=(0, 0), repr=False)  # of sockets that are recorded no more

    def _add(self, other: StreamStats) -> None:
        """Add the counters of one whose row goes."""
        for name in ("received", "size", "dropped", "refused", "bad"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self._ended = self._ended[0] + other.lost, self._ended[1] + other.unseen

    @property
    def lost(self) -> Total:
        """Numbered messages that did not arrive."""
        return self._ended[0] if self.socket is None else self.socket.stats.lost

    @property
    def unseen(self) -> Total:
        """Messages that the socket dropped: too large, malformed, or arriving faster than they were recorded."""
        if self.socket is None:
            return self._ended[1]
        stats = self.socket.stats
        behind = stats.dropped if isinstance(self.socket, (Sub, Bus)) else 0  # other sockets drop replies only
        return stats.too_large + stats.bad + behind


@dataclass(frozen=True, slots=True)
class RecorderStats:
    """State and counters of a recorder."""

    partition: Annotated[int, Instrument("label")]
    start: Gauge
    """Offset of the first record that is kept."""
    sealed: Gauge
    """One past the last record in segments."""
    end: Gauge
    """One past the last record on disk."""
    waiting: Bytes
    """Bytes not yet on disk."""
    log: LogStats
    seal: SealStats
    streams: tuple[StreamStats, ...]
    failure: Problem
    """The current error of the disk or of sealing."""
    torn: Bytes
    """Bytes that a killed recorder had written in part."""
    salvaged: Total
    """Records lost to earlier damage."""
    summed: Total
    """Rows of `streams` over the cap, which were added to the one without a topic."""


class Recorder(UnderTrio):
    """Recorder of one partition; use it with `async with`, under trio. Takes the arguments of `Partition.open`.

    Entering raises ConfigError if the journal is unusable or locked by another recorder, Damaged. Leaving writes all
    pending records and seals them.
    """

    def __init__(
        self,
        journal: str | os.PathLike[str],
        *,
        partition: int = 0,
        spool: str | os.PathLike[str] | None = None,
        salvage: bool = False,
        retention: Retention | None = None,
        segment_bytes: int = 64 << 20,
        segment_seconds: float = 60.0,
        segment_least: int = 1 << 20,
        segment_oldest: float | None = None,
        buffer_bytes: int = 64 << 20,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._open = partial(
            Partition.open,
            journal,
            partition,
            spool=spool,
            salvage=salvage,
            retention=retention,
            segment_bytes=segment_bytes,
            segment_seconds=segment_seconds,
            segment_least=segment_least,
            segment_oldest=segment_oldest,
            buffer_bytes=buffer_bytes,
            deliver=self._deliver,
        )
        self._journal = journal
        self._spool = spool
        self._buffer_bytes = buffer_bytes
        self._clock = clock
        self._partition: Partition | None = None
        self._streams: list[StreamStats] = []  # of sockets
        self._rows: dict[tuple[str, str], StreamStats] = {}  # by topic and protocol, the quiet ones first
        self._rest = StreamStats("", "")  # rows over the cap
        self._summed = 0
        self._origins: dict[tuple[str, str, str | None], bytes] = {}
        self._whos: dict[str, bytes] = {}  # headers by the names of peers

    async def __aenter__(self) -> Self:
        self._entering()
        self._drained = WakeUp()
        self._token = trio.lowlevel.current_trio_token()
        self._partition = await trio.to_thread.run_sync(self._open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_closed = True
        with trio.CancelScope(shield=True):  # received records must reach the disk
            await trio.to_thread.run_sync(self._opened.close)

    @property
    def _opened(self) -> Partition:
        if self._partition is None:
            raise Closed("the recorder is not open: use it with `async with`")
        return self._partition

    @property
    def stats(self) -> RecorderStats:
        """Current counters."""
        opened = self._opened
        failure = opened.log.failure or opened.failure
        return RecorderStats(
            opened.manifest.partition,
            opened.manifest.start,
            opened.manifest.end,
            opened.log.end,
            opened.log.waiting,
            opened.log.stats,
            opened.stats,
            (*self._streams, *self._rows.values(), *((self._rest,) if self._summed else ())),
            None if failure is None else str(failure),
            opened.recovered.torn,
            sum(lost.end - lost.first for lost in opened.recovered.lost),
            self._summed,
        )

    # Records from the caller

    def put(
        self,
        value: bytes,
        *,
        topic: str,
        protocol: str,
        key: bytes | None = None,
        headers: Headers = None,
        peer: str | None = None,
        timestamp: int | None = None,
        force: bool = False,
    ) -> bool:
        """Queue `value` to be recorded, without waiting. Return False if the buffer is full; then it counts as dropped.

        `timestamp`: microseconds since 1970, default: now. Raises ConfigError for one outside the years 1 to 9999, and
        for a topic or headers that cannot be stored; TypeError if `value` or `key` are not bytes. Nothing is then
        queued.

        `force`: accept it even if the buffer is full, for a caller that cannot delay it; the caller then awaits
        `wait_for_room` before its next record. `flush` waits until it is on disk.
        """
        stream = self._put_stream(topic, protocol)
        entry = self._entry(value, topic, protocol, key, headers, peer, timestamp)
        stream.received += 1
        stream.size += len(value)
        try:
            self._opened.log.append((entry,), force=force)
        except Full:
            stream.dropped += 1
            return False
        return True

    async def store(
        self,
        values: Sequence[bytes],
        *,
        topic: str,
        protocol: str,
        key: bytes | None = None,
        headers: Headers = None,
        peer: str | None = None,
    ) -> Stored:
        """Record `values`; return when they are on disk. Raises NotStored. If cancelled, they may still be recorded."""
        stream = self._put_stream(topic, protocol)
        entries = [self._entry(value, topic, protocol, key, headers, peer, None) for value in values]
        stream.received += len(values)
        stream.size += sum(map(len, values))
        await self.wait_for_room()
        try:
            first, end = await self._synced(entries)
        except NotStored:
            stream.refused += len(values)
            raise
        return Stored(self._opened.manifest.partition, first, end)

    async def flush(self) -> None:
        """Wait until all records put before are on disk. Cancelling it has no effect on the records.

        Raises NotStored; records without a waiter are retried, so a later flush may succeed.
        """
        if self._opened.log.waiting or self._opened.log.stats.unstored:
            await self._synced(())
        else:
            await trio.lowlevel.checkpoint()

    async def wait_for_room(self) -> None:
        """Wait until half of the buffer is free. Returns at once unless the disk is slow or failing."""
        while self._opened.log.waiting > self._buffer_bytes // 2:
            await self._drained.wait()

    def recorded(self, topic: str) -> Iterator[Record]:
        """Yield this partition's records of `topic` on disk, oldest first, without damaged or expired ones.

        Reads files, so call it in a thread.
        """
        journal = open_journal(self._journal, spool=self._spool)
        return read(journal, topics=topic, partition=self._opened.manifest.partition, missing="skip")

    # Sockets

    async def record(self, socket: Sub | Pull | Bus | Pair0 | Pair1 | Rep, topic: str, *, plain: bool = False) -> None:
        """Record what `socket` receives under `topic`, until it is closed or this is cancelled. Does not close it.

        `socket`: SUB, PULL, BUS, PAIR, or REP with requests in the format of `ingest.py` (with `plain`, one value
        each). If cancelled, it continues until nothing has arrived for 0.05 s, for one second at most, so that messages
        sent before are recorded; pending requests get no reply. Raises ConfigError.
        """
        protocol = PROTOCOLS.get(type(socket))
        if protocol is None:
            known = ", ".join(kind.__name__ for kind in PROTOCOLS)
            raise ConfigError(
                "socket", f"{type(socket).__name__} receives nothing to record; use one of {known}", socket
            )
        encode_origin(topic, protocol, None)
        stream = StreamStats(topic, protocol, socket=socket)
        self._streams.append(stream)
        replies = _Replies(self, socket, stream, plain) if isinstance(socket, Rep) else None
        try:
            await (self._take_in(socket, stream) if replies is None else replies.run())
        finally:
            self._streams = [each for each in self._streams if each is not stream]
            row = self._put_stream(topic, protocol)
            row._add(stream)
            if replies is not None:
                replies.stream = row  # what is refused from now on

    async def _take_in(self, socket: Any, stream: StreamStats) -> None:
        lossy = stream.protocol in DROPS
        try:
            while True:
                if not lossy:
                    await self.wait_for_room()
                try:
                    self._keep(socket, stream, await socket.arecv_msgs(TURN))
                except BadMessage:  # an invalid batch, counted by the socket
                    continue
        except Closed:
            return
        except trio.Cancelled:
            with trio.move_on_after(LAST, shield=True):
                await self._take_rest(socket, stream)
            raise

    async def _take_rest(self, socket: Any, stream: StreamStats) -> None:
        """Record messages that have arrived and were not received yet."""
        while True:
            try:
                self._keep(socket, stream, await socket.arecv_msgs(TURN, timeout=QUIET))
            except BadMessage:
                continue
            except (Closed, TimedOut):
                return

    def _keep(self, socket: Any, stream: StreamStats, messages: list[Any]) -> None:
        lossy = stream.protocol in DROPS
        now = self._clock() // 1000
        topic_of = socket.topic_of if isinstance(socket, Sub) else None
        entries: list[Entry] = []
        for message in messages:
            pipe = message.pipe
            origin = self._origin(stream.topic, stream.protocol, None if pipe is None else pipe.address)
            key = None if topic_of is None else topic_of(message)
            entries.append((key, message, origin, self._who(pipe), now))
        stream.received += len(entries)
        stream.size += sum(map(len, messages))
        try:
            self._opened.log.append(entries, force=not lossy)
        except Full:
            stream.dropped += len(entries)

    # Internal

    def _put_stream(self, topic: str, protocol: str) -> StreamStats:
        stream = self._rows.pop((topic, protocol), None)
        if stream is None:
            encode_origin(topic, protocol, None)
            stream = StreamStats(topic, protocol)
            if len(self._rows) >= MOST_ROWS:
                self._rest._add(self._rows.pop(next(iter(self._rows))))
                self._summed += 1
        self._rows[(topic, protocol)] = stream
        return stream

    def _origin(self, topic: str, protocol: str, peer: str | None) -> bytes:
        origin = self._origins.get((topic, protocol, peer))
        if origin is None:
            if len(self._origins) >= ORIGINS:
                self._origins.clear()
            origin = self._origins[(topic, protocol, peer)] = encode_origin(topic, protocol, peer)
        return origin

    def _who(self, pipe: Pipe | None) -> bytes:
        """Return the header with the name of a peer, encoded; b"" for a name that no pass proves."""
        if pipe is None or not pipe.serial:
            return b""
        name = pipe.who or ""
        if (header := self._whos.get(name)) is None:
            if len(self._whos) >= ORIGINS:
                self._whos.clear()
            header = self._whos[name] = encode_headers(((WHO, name.encode()),))
        return header

    def _entry(
        self,
        value: bytes,
        topic: str,
        protocol: str,
        key: bytes | None,
        headers: Headers,
        peer: str | None,
        timestamp: int | None,
    ) -> Entry:
        now = self._clock() // 1000 if timestamp is None else index(timestamp)
        if not EARLIEST <= now <= LATEST:
            why = f"{now} microseconds since 1970 are not in the years 1 to 9999; is it in nanoseconds?"
            raise ConfigError("timestamp", why, now)
        held = None if key is None else held_bytes(key)
        return held, held_bytes(value), self._origin(topic, protocol, peer), encode_headers(headers), now

    async def _synced(self, entries: Sequence[Entry]) -> tuple[int, int]:
        """Append, and wait for the sync, which also covers all records before."""
        known = trio.Event()
        results: list[tuple[int, int, NotStored | None]] = []

        def done(first: int, end: int, why: NotStored | None) -> None:
            results.append((first, end, why))
            known.set()

        self._opened.log.append(entries, done, force=True)
        await known.wait()
        first, end, why = results[0]
        if why is not None:
            raise why
        return first, end

    def _deliver(self, calls: list[Callable[[], None]]) -> None:  # on the log's thread
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._delivered, calls)

    def _delivered(self, calls: list[Callable[[], None]]) -> None:
        self._drained.wake()
        for call in calls:
            call()


class _Replies:
    """Loop over a REP: append the records of each request, reply when they are on disk.

    Each connection has a task that sends its replies in order, so a peer that does not read delays no other.
    """

    def __init__(self, recorder: Recorder, socket: Rep, stream: StreamStats, plain: bool) -> None:
        self._recorder = recorder
        self._socket = socket
        self.stream = stream
        self._plain = plain
        self._partition = recorder._opened.manifest.partition
        self._due: dict[int, deque[tuple[Request, bytes]]] = {}

    async def run(self) -> None:
        recorder, stream = self._recorder, self.stream
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            while True:
                await recorder.wait_for_room()
                try:
                    requests = await self._socket.arecv_many(TURN)
                except Closed:
                    nursery.cancel_scope.cancel()  # no reply can be sent any more, also to what is synced later
                    break
                entries: list[Entry] = []
                waiting: list[tuple[Request, int]] = []
                size = 0
                now = recorder._clock() // 1000
                for request in requests:
                    before = len(entries)
                    try:
                        size += self._add(request, entries, now)
                    except (BadMessage, TooLarge, ConfigError) as error:
                        del entries[before:]
                        stream.bad += 1
                        self._reply(request, encode_refusal(str(error)))
                        continue
                    waiting.append((request, len(entries) - before))
                    if size > recorder._buffer_bytes:  # key and headers of a request are those of each of its records
                        self._append(entries, waiting)
                        entries, waiting, size = [], [], 0
                        await recorder.wait_for_room()
                if entries:
                    self._append(entries, waiting)

    def _append(self, entries: list[Entry], waiting: list[tuple[Request, int]]) -> None:
        self.stream.received += len(entries)
        self._recorder._opened.log.append(entries, partial(self._synced, waiting), force=True)

    def _add(self, request: Request, entries: list[Entry], now: int) -> int:
        """Add the records of a request; return their bytes. Raises BadMessage, ConfigError, TooLarge."""
        pipe = request.pipe
        peer = None if pipe is None else pipe.address
        stream = self.stream
        asked = IngestRequest(b"", [request.body]) if self._plain else parse_request(request.body, peer=peer)
        shared = len(asked.key or b"") + sum(len(name) + len(value) for name, value in asked.headers)
        size = len(request.body) + shared * (len(asked.values) - 1)
        if size > max(len(request.body), self._recorder._buffer_bytes):
            raise TooLarge(size, self._recorder._buffer_bytes)
        topic = stream.topic if asked.topic is None else f"{stream.topic}/{asked.topic}"
        origin = self._recorder._origin(topic, stream.protocol, peer)
        stream.size += len(request.body)
        who = self._recorder._who(pipe)
        for number, value in enumerate(asked.values):
            given = encode_headers(each for each in asked.headers_of(number) if each[0] != WHO)
            entries.append((asked.key, value, origin, given + who, now))
        return size

    def _synced(self, waiting: list[tuple[Request, int]], first: int, end: int, why: NotStored | None) -> None:
        if why is not None:
            self.stream.refused += end - first
            refusal = encode_refusal(str(why))
            for request, _ in waiting:
                self._reply(request, refusal)
            return
        for request, count in waiting:
            self._reply(request, encode_stored(Stored(self._partition, first, first + count)))
            first += count

    def _reply(self, request: Request, reply: bytes) -> None:
        pipe = 0 if request.pipe is None else request.pipe.id
        if (due := self._due.get(pipe)) is not None:
            due.append((request, reply))
        elif not self._nursery.cancel_scope.cancel_called:
            self._due[pipe] = deque([(request, reply)])
            self._nursery.start_soon(self._send, pipe)

    async def _send(self, pipe: int) -> None:
        due = self._due[pipe]
        while due:
            request, reply = due.popleft()
            try:
                await request.areply(reply)
            except (Closed, Broken, TimeoutError):  # the peer has gone, and will retry
                due.clear()
        del self._due[pipe]
