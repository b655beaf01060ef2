"""The recorder: what comes in by sockets, or by `put`, goes into one partition of a journal.

::

    async with Recorder("journal") as recorder, trio.open_nursery() as nursery:
        nursery.start_soon(recorder.record, Sub(dial=..., topics="weather.", sequence=True), "weather")
        nursery.start_soon(recorder.record, Rep(listen=...), "orders")          # acknowledged: ingest.py
        recorder.put(b"...", topic="rounds", protocol="survey")                 # whoever else has something

==========  =================================================================================================
way in      promise
==========  =================================================================================================
SUB, BUS    at most once. What comes while there is no room is dropped and counted; gaps in numbered messages
            are counted by the socket (`stats.lost`)
PULL, PAIR  nothing is dropped: without room it is not received. What was received and not yet synced is lost
            when the recorder is killed
REP         answered after the sync: at least once, and with ids exactly once after deduplication
`put`       as SUB, or with `held` as PULL; `store` as REP
==========  =================================================================================================

Everything waits in trio; the log's thread does the disk. May not know: what a message means, discovery, documents.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import trio

from nngkit.background import UnderTrio
from nngkit.errors import BadMessage, Broken, Closed, ConfigError, Full, NotStored, TimedOut, TooLarge
from nngkit.journal.ingest import Ingest, Stored, encode_refusal, encode_stored, parse_request
from nngkit.journal.log import Entry, LogStats
from nngkit.journal.partition import Partition, Retention, SealStats
from nngkit.journal.reader import open_journal, read
from nngkit.journal.record import Record, encode_headers, encode_origin
from nngkit.protocols import Bus, Pair0, Pair1, Pull, Rep, Request, Socket, Sub

__all__ = ["Recorder", "RecorderStats", "Stream"]

TURN: Final = 256  # messages taken at once: enough that waking up is not what costs
ORIGINS: Final = 4096  # senders remembered in a stream; a peer that reconnects is a new one
WAYS: Final = {Sub: "sub", Pull: "pull", Bus: "bus", Pair0: "pair", Pair1: "pair", Rep: "rep"}
QUIET: Final = 0.05  # seconds without a message after which, when recording ends, all that was under way has come
LAST: Final = 1.0  # seconds that this may take, with somebody who goes on sending
DROPS: Final = ("sub", "bus")  # ways in on which nobody can be held back

Headers = Mapping[str, bytes] | Iterable[tuple[str, bytes]] | None


@dataclass(slots=True)
class Stream:
    """What came in by one socket. `received` records, `dropped` for want of room, `refused`: told that they were not
    stored, `bad`: requests that were none, `lost`: gaps seen in numbered messages, `unseen`: dropped by the socket."""

    topic: str
    protocol: str
    received: int = 0
    size: int = 0
    dropped: int = 0
    refused: int = 0
    bad: int = 0
    socket: Socket | None = field(default=None, repr=False)

    @property
    def lost(self) -> int:
        """Numbered messages that did not arrive."""
        return 0 if self.socket is None else self.socket.stats.lost

    @property
    def unseen(self) -> int:
        """Messages that the socket did not hand over: too large, not what they should be, or faster than this was."""
        if self.socket is None:
            return 0
        stats = self.socket.stats
        behind = stats.dropped if isinstance(self.socket, (Sub, Bus)) else 0  # of others, what is dropped is answers
        return stats.too_large + stats.bad + behind


@dataclass(frozen=True, slots=True)
class RecorderStats:
    """`end`: one past the last record on the disk. `waiting`: bytes that are not there yet. `failure`: why, if the disk
    does not take them, or the sealing fails. `torn`: bytes that a killed recorder left half written; `salvaged`: what
    damage had taken before, in records."""

    partition: int
    start: int
    sealed: int
    end: int
    waiting: int
    log: LogStats
    seal: SealStats
    streams: tuple[Stream, ...]
    failure: str | None
    torn: int
    salvaged: int


class Recorder(UnderTrio):
    """One partition's recorder; use it with `async with`, under trio. The arguments are those of `Partition.open`.

    Entering raises ConfigError for a journal that cannot be used or that another recorder has, Damaged. Leaving writes
    what has come and seals it.
    """

    _blocking = False

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
        room: int = 64 << 20,
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
            room=room,
            deliver=self._deliver,
        )
        self._journal = journal
        self._spool = spool
        self._room = room
        self._clock = clock
        self._partition: Partition | None = None
        self._streams: list[Stream] = []
        self._puts: dict[tuple[str, str], Stream] = {}
        self._origins: dict[tuple[str, str, str | None], bytes] = {}
        self._drained = trio.Event()

    async def __aenter__(self) -> Self:
        self._entering()
        self._token = trio.lowlevel.current_trio_token()
        self._partition = await trio.to_thread.run_sync(self._open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with trio.CancelScope(shield=True):  # what was received is to be on the disk
            await trio.to_thread.run_sync(self._held.close)

    @property
    def _held(self) -> Partition:
        if self._partition is None:
            raise Closed("the recorder is not open: use it with `async with`")
        return self._partition

    @property
    def stats(self) -> RecorderStats:
        """What it has done so far."""
        held = self._held
        failure = held.log.failure or held.failure
        return RecorderStats(
            held.manifest.partition,
            held.manifest.start,
            held.manifest.end,
            held.log.end,
            held.log.waiting,
            held.log.stats,
            held.stats,
            tuple(self._streams),
            None if failure is None else str(failure),
            held.recovered.torn,
            sum(lost.end - lost.first for lost in held.recovered.lost),
        )

    # Whatever has something to record

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
        held: bool = False,
    ) -> bool:
        """Record `value`, soon. Never waits; False if there was no room, and then it is counted as dropped.

        `held`: the caller has it already and nowhere to put it. It is taken without room too: wait for `room` before
        there is more. `flush` says when it is on the disk.
        """
        stream = self._put_stream(topic, protocol)
        entry = self._entry(value, topic, protocol, key, headers, peer, timestamp)
        stream.received += 1
        stream.size += len(value)
        try:
            self._held.log.append((entry,), held=held)
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
        """Record `values`, and return when they are on the disk. Raises NotStored. Cancelled, they may be."""
        stream = self._put_stream(topic, protocol)
        entries = [self._entry(value, topic, protocol, key, headers, peer, None) for value in values]
        stream.received += len(values)
        stream.size += sum(map(len, values))
        await self.room()
        try:
            first, end = await self._synced(entries)
        except NotStored:
            stream.refused += len(values)
            raise
        return Stored(self._held.manifest.partition, first, end)

    async def flush(self) -> None:
        """Return when all that was put before is on the disk. Raises NotStored: what has not been dropped is tried
        again, so a later flush may succeed. Cancelled, it changes nothing."""
        if self._held.log.waiting:
            await self._synced(())
        else:
            await trio.lowlevel.checkpoint()

    async def room(self) -> None:
        """Return when half of the room is free: at once, unless the disk is behind, or takes nothing."""
        while self._held.log.waiting > self._room // 2:
            await self._drained.wait()

    def recorded(self, topic: str) -> Iterator[Record]:
        """What this partition has of `topic` on the disk, the oldest first; without what is damaged or retired.

        Reads files: for a thread.
        """
        journal = open_journal(self._journal, spool=self._spool)
        return read(journal, topics=topic, partition=self._held.manifest.partition, missing="skip")

    # Sockets

    async def record(self, socket: Sub | Pull | Bus | Pair0 | Pair1 | Rep, topic: str, *, plain: bool = False) -> None:
        """Record what `socket` receives under `topic`, until it is closed or this is cancelled. It stays its owner's.

        SUB, PULL, BUS, PAIR, and REP, whose requests are those of `ingest.py`, or with `plain` one value each.
        Cancelled, it goes on until nothing has come for 0.05 s, for a second at most, so that what was sent before is
        recorded too; requests under way are not answered. Raises ConfigError.
        """
        way = WAYS.get(type(socket))
        if way is None:
            known = ", ".join(kind.__name__ for kind in WAYS)
            raise ConfigError(
                "socket", f"{type(socket).__name__} receives nothing to record; there are {known}", socket
            )
        encode_origin(topic, way, None)
        stream = Stream(topic, way, socket=socket)
        self._streams.append(stream)
        if isinstance(socket, Rep):
            await _Answering(self, socket, stream, plain).run()
        else:
            await self._take_in(socket, stream)

    async def _take_in(self, socket: Any, stream: Stream) -> None:
        lossy = stream.protocol in DROPS
        try:
            while True:
                if not lossy:
                    await self.room()
                try:
                    self._keep(socket, stream, await socket.arecv_msgs(TURN))
                except BadMessage:  # a batch that is none: the socket has counted it
                    continue
        except Closed:
            return
        except trio.Cancelled:
            with trio.move_on_after(LAST, shield=True):
                await self._take_rest(socket, stream)
            raise

    async def _take_rest(self, socket: Any, stream: Stream) -> None:
        """What has arrived and not been read yet, which nobody else will ever have."""
        while True:
            try:
                self._keep(socket, stream, await socket.arecv_msgs(TURN, timeout=QUIET))
            except BadMessage:
                continue
            except (Closed, TimedOut):
                return

    def _keep(self, socket: Any, stream: Stream, messages: list[Any]) -> None:
        lossy = stream.protocol in DROPS
        now = self._clock() // 1000
        topics = socket.topics if isinstance(socket, Sub) else ()
        entries: list[Entry] = []
        for message in messages:
            pipe = message.pipe
            origin = self._origin(stream.topic, stream.protocol, None if pipe is None else pipe.address)
            key = None
            for subscription in topics:
                if message.startswith(subscription):
                    key = subscription
                    break
            entries.append((key, message, origin, b"", now))
        stream.received += len(entries)
        stream.size += sum(map(len, messages))
        try:
            self._held.log.append(entries, held=not lossy)
        except Full:
            stream.dropped += len(entries)

    # Within

    def _put_stream(self, topic: str, protocol: str) -> Stream:
        stream = self._puts.get((topic, protocol))
        if stream is None:
            encode_origin(topic, protocol, None)
            stream = self._puts[(topic, protocol)] = Stream(topic, protocol)
            self._streams.append(stream)
        return stream

    def _origin(self, topic: str, protocol: str, peer: str | None) -> bytes:
        origin = self._origins.get((topic, protocol, peer))
        if origin is None:
            if len(self._origins) >= ORIGINS:
                self._origins.clear()
            origin = self._origins[(topic, protocol, peer)] = encode_origin(topic, protocol, peer)
        return origin

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
        now = self._clock() // 1000 if timestamp is None else timestamp
        return key, value, self._origin(topic, protocol, peer), encode_headers(headers), now

    async def _synced(self, entries: Sequence[Entry]) -> tuple[int, int]:
        """Append, and wait for the sync: it is that of all before, too."""
        known = trio.Event()
        told: list[tuple[int, int, NotStored | None]] = []

        def done(first: int, end: int, why: NotStored | None) -> None:
            told.append((first, end, why))
            known.set()

        self._held.log.append(entries, done, held=True)
        await known.wait()
        first, end, why = told[0]
        if why is not None:
            raise why
        return first, end

    def _deliver(self, calls: list[Callable[[], None]]) -> None:  # on the log's thread
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._delivered, calls)

    def _delivered(self, calls: list[Callable[[], None]]) -> None:
        self._drained.set()
        self._drained = trio.Event()
        for call in calls:
            call()


class _Answering:
    """REP: requests in, records appended, answered when they are on the disk.

    Answers to one connection go out in their order by a task of its own, so that who does not read holds up nobody.
    """

    def __init__(self, recorder: Recorder, socket: Rep, stream: Stream, plain: bool) -> None:
        self._recorder = recorder
        self._socket = socket
        self._stream = stream
        self._plain = plain
        self._partition = recorder._held.manifest.partition
        self._due: dict[int, deque[tuple[Request, bytes]]] = {}

    async def run(self) -> None:
        recorder, stream = self._recorder, self._stream
        log = recorder._held.log
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            while True:
                await recorder.room()
                try:
                    requests = await self._socket.arecv_many(TURN)
                except Closed:
                    break
                entries: list[Entry] = []
                waiting: list[tuple[Request, int]] = []
                now = recorder._clock() // 1000
                for request in requests:
                    before = len(entries)
                    try:
                        self._add(request, entries, now)
                    except (BadMessage, TooLarge, ConfigError) as error:
                        del entries[before:]
                        stream.bad += 1
                        self._answer(request, encode_refusal(str(error)))
                        continue
                    waiting.append((request, len(entries) - before))
                if entries:
                    stream.received += len(entries)
                    log.append(entries, partial(self._synced, waiting), held=True)

    def _add(self, request: Request, entries: list[Entry], now: int) -> None:
        pipe = request.pipe
        peer = None if pipe is None else pipe.address
        stream = self._stream
        asked = Ingest(b"", [request.body]) if self._plain else parse_request(request.body, peer=peer)
        topic = stream.topic if asked.topic is None else f"{stream.topic}/{asked.topic}"
        origin = self._recorder._origin(topic, stream.protocol, peer)
        stream.size += len(request.body)
        for number, value in enumerate(asked.values):
            entries.append((asked.key, value, origin, encode_headers(asked.headers_of(number)), now))

    def _synced(self, waiting: list[tuple[Request, int]], first: int, end: int, why: NotStored | None) -> None:
        if why is not None:
            self._stream.refused += end - first
            refusal = encode_refusal(str(why))
            for request, _ in waiting:
                self._answer(request, refusal)
            return
        for request, count in waiting:
            self._answer(request, encode_stored(Stored(self._partition, first, first + count)))
            first += count

    def _answer(self, request: Request, answer: bytes) -> None:
        pipe = 0 if request.pipe is None else request.pipe.id
        if (due := self._due.get(pipe)) is not None:
            due.append((request, answer))
        elif not self._nursery.cancel_scope.cancel_called:
            self._due[pipe] = deque([(request, answer)])
            self._nursery.start_soon(self._send, pipe)

    async def _send(self, pipe: int) -> None:
        due = self._due[pipe]
        while due:
            request, answer = due.popleft()
            try:
                await request.areply(answer)
            except (Closed, Broken, TimeoutError):  # who asked has gone, and will ask again
                due.clear()
        del self._due[pipe]
