"""Streams of published messages to many HTTP clients: server-sent events, and WebSocket.

One subscriber follows the publishers for all clients. Clients that want the same topics are a group: what comes for
them in GATHER seconds is encoded once, and written to each in one system call, while the kernel takes it. A client
that does not read has a queue of its own, of the same bytes; over QUEUE bytes it is cut off, and counted. It may come
back with the id of the last event that it got.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

import trio
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Event, Ping
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from nngkit.background import WakeUp
from nngkit.fanout import Gap, Published, Restarted, Subscriber
from nngkit.instruments import BytesTotal, Gauge, Total
from nngkit.protocols import Topics
from nngkit.web.exchange import Channel, chunk
from nngkit.web.gateway.feed import Entry, Feed, FeedLimits, of_gap, of_message, of_restart

QUEUE: Final = 256 * 1024  # bytes that wait for a client which does not read, before it is cut off
QUEUES: Final = 256 << 20  # bytes of all queues together; the client that would exceed them is cut off
GATHER: Final = 0.05
"""Seconds for which what comes is written together: 20 writes a second to each client at any rate, and no sooner seen
by a person."""
HEARTBEAT: Final = 15.0  # seconds between two signs of life; proxies cut at 30 to 60 s of silence
REVIEW: Final = 1.0  # seconds between two looks at the rights of all clients
GROUPS: Final = 256  # different streams that `topics` looks through for each topic
BATCH: Final = 64  # clients written to without a turn of the loop, half a millisecond
FIRST: Final = 64 * 1024  # bytes of one write of what a client begins with
RETRY: Final = b"retry: 1000\n\n"  # milliseconds until a browser connects again

Kind = Literal["sse", "ws"]


@dataclass(frozen=True, slots=True)
class HubStats:
    """Counters of the streams of topics."""

    open: Gauge
    """Open streams."""
    slow: Total
    """Streams that were cut off as their client was too slow."""
    denied: Total
    """Streams that were ended as their name lost the right."""
    received: Total
    """Messages received from publishers."""
    missed: Total
    """Messages of publishers that were missed."""
    kept: Gauge
    """Messages kept for streams that resume."""
    written: BytesTotal
    """Bytes written to streams."""


class Hub:
    """Streams of what a subscriber receives, which stays the caller's."""

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber
        self._feed = Feed(FeedLimits())
        self._groups: dict[tuple[Kind, tuple[str, ...]], _Group] = {}
        self._counts = _Counts()
        self._changed = WakeUp()
        self._flushed = trio.current_time() - GATHER
        self._received = self._missed = 0

    @property
    def stats(self) -> HubStats:
        """Current counters."""
        counts = self._counts
        return HubStats(
            open=sum(len(group.members) for group in self._groups.values()),
            slow=counts.slow,
            denied=counts.denied,
            received=self._received,
            missed=self._missed,
            kept=len(self._feed),
            written=counts.written,
        )

    def topics(self, most: int) -> list[tuple[bytes, int, int | None]]:
        """Return the last topics: name, messages as far as remembered, streams. At most `most`, the newest.

        The streams are None where too many different ones are open to tell.
        """
        groups = list(self._groups.values()) if len(self._groups) <= GROUPS else None
        found: list[tuple[bytes, int, int | None]] = []
        for entry in self._feed.newest(most):
            topic = entry.topic or b""
            streams = None if groups is None else sum(len(each.members) for each in groups if each.wants(topic))
            found.append((topic, entry.number, streams))
        return found

    # Tasks of the gateway

    async def receive(self) -> None:
        """Take in what comes, for ever."""
        while True:
            for event in await self._subscriber.receive_many():
                match event:
                    case Published():
                        self._received += 1
                        self._take(of_message(event))
                    case Gap():
                        self._missed += event.count
                        self._take(of_gap(event))
                    case Restarted():
                        self._take(of_restart(event))
            self._changed.wake()

    def _take(self, entry: Entry) -> None:
        self._feed.add(entry)
        for group in self._groups.values():
            if entry.topic is None or group.wants(entry.topic):
                group.buffer.append(entry)

    async def write(self) -> None:
        """Write to all clients what has come, every GATHER seconds at most, for ever."""
        while True:
            await self._changed.wait()
            await trio.sleep_until(self._flushed + GATHER)
            self._flushed = trio.current_time()
            for group in list(self._groups.values()):
                await group.flush()

    async def watch(self, refresh: Callable[[], object]) -> None:
        """Tell clients that all is well, and cut off those that may no longer have their topics; for ever."""
        told = trio.current_time()
        while True:
            await trio.sleep(REVIEW)
            refresh()
            due = trio.current_time() - told >= HEARTBEAT
            if due:
                told = trio.current_time()
            for group in list(self._groups.values()):
                for member in list(group.members):
                    if not member.may():
                        self._counts.denied += 1
                        member.cut()
                    elif due:
                        member.push(group.heartbeat)
                await trio.lowlevel.checkpoint()

    # Clients

    async def events(
        self, topics: Sequence[str], channel: Channel, may: Callable[[], bool], *, after: str | None, last: bool
    ) -> None:
        """Write server-sent events to a client until it leaves, is too slow, or `may` no longer have it.

        `after`: the id of the last event that it got; else it begins with the last message of each topic if `last`.
        """
        member, begin = self._join("sse", topics, channel, may, after, last)
        await self._run(member, begin)

    def _join(
        self,
        kind: Kind,
        topics: Sequence[str],
        channel: Channel,
        may: Callable[[], bool],
        after: str | None,
        last: bool,
    ) -> tuple[_Member, list[Entry]]:
        """Add a client; return it, and what it begins with. Nothing may happen between the two."""
        key = kind, tuple(sorted(set(topics)))
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(kind, key[1])
        begin = self._feed.after(after) if after is not None else self._feed.last() if last else []
        coming = set(group.buffer)
        begin = [entry for entry in begin if entry not in coming and (entry.topic is None or group.wants(entry.topic))]
        member = _Member(group, channel, may, self._counts)
        group.members[member] = None
        return member, begin

    async def _run(self, member: _Member, begin: Sequence[Entry]) -> None:
        group = member.group
        try:
            await member.run(begin)
        finally:
            del group.members[member]
            member.forget()
            if not group.members:
                self._groups = {key: each for key, each in self._groups.items() if each is not group}

    async def websocket(
        self, topics: Sequence[str], channel: Channel, may: Callable[[], bool], *, after: str | None, last: bool
    ) -> None:
        """Like `events`, over a WebSocket whose handshake is done. What the client sends has no effect."""
        wire = Connection(ConnectionType.SERVER)
        member, begin = self._join("ws", topics, channel, may, after, last)

        async def listen() -> None:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                while data := await channel.read():
                    try:
                        wire.receive_data(data)
                        for event in wire.events():
                            if (reply := _reply(wire, event)) is not None:
                                member.push(reply)
                            if isinstance(event, CloseConnection):
                                return
                    except (RemoteProtocolError, LocalProtocolError):
                        member.push(wire.send(CloseConnection(code=1002)))
                        return

        async with trio.open_nursery() as nursery:

            async def until_end(work: Callable[[], Awaitable[object]]) -> None:
                await work()
                nursery.cancel_scope.cancel()

            async def tell() -> None:
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._run(member, begin)

            nursery.start_soon(until_end, listen)
            nursery.start_soon(until_end, tell)


def _reply(wire: Connection, event: Event) -> bytes | None:
    """Return what a client's frame is answered with."""
    if isinstance(event, (Ping, CloseConnection)):
        return bytes(wire.send(event.response()))
    return None


class _Counts:
    """Counters of all clients."""

    def __init__(self) -> None:
        self.queued = 0  # bytes of all queues
        self.slow = self.denied = self.written = 0


class _Group:
    """Clients that want the same topics, in the same form."""

    def __init__(self, kind: Kind, topics: tuple[str, ...]) -> None:
        wanted = Topics()
        for topic in topics:
            wanted.add(topic.encode())
        self.wants = wanted.match
        self.kind = kind
        self.members: dict[_Member, None] = {}
        self.buffer: list[Entry] = []
        self.heartbeat = chunk(b":\n\n") if kind == "sse" else b"\x89\x00"  # a comment, and a ping

    def encoded(self, entries: Iterable[Entry]) -> bytes:
        """Return what is written for some entries."""
        if self.kind == "ws":
            return b"".join(entry.frame for entry in entries)
        return chunk(b"".join(entry.sse for entry in entries))

    async def flush(self) -> None:
        """Write to all what the buffer holds."""
        if not self.buffer:
            return
        entries, self.buffer = self.buffer, []
        data = self.encoded(entries)
        for count, member in enumerate(list(self.members), 1):
            member.push(data)
            if count % BATCH == 0:
                await trio.lowlevel.checkpoint()


class _Member:
    """A client of a stream."""

    def __init__(self, group: _Group, channel: Channel, may: Callable[[], bool], counts: _Counts) -> None:
        self.group = group
        self.may = may
        self._channel = channel
        self._counts = counts
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._busy = True  # its task writes, or will: nothing may overtake it
        self._scope = trio.CancelScope()
        self._wake = WakeUp()

    def push(self, data: bytes) -> None:
        """Write, or keep for the client's task what cannot be written at once."""
        if self._scope.cancel_called:
            return
        if not self._busy:
            try:
                sent = self._channel.write_now(data)
            except trio.BrokenResourceError:
                self.cut()
                return
            self._count(sent)
            if sent == len(data):
                return
            data = data[sent:]
        self._busy = True
        self._queue.append(data)
        self._queued += len(data)
        self._counts.queued += len(data)
        if self._queued > QUEUE or self._counts.queued > QUEUES:
            self._counts.slow += 1
            self.cut()
            return
        self._wake.wake()

    def cut(self) -> None:
        """End the stream."""
        self._scope.cancel()
        self._queue.clear()

    def forget(self) -> None:
        """Give back the room of what was not written."""
        self._counts.queued -= self._queued
        self._queued = 0

    def _count(self, sent: int) -> None:
        self._counts.written += sent
        self._channel.count(sent)

    async def run(self, begin: Sequence[Entry]) -> None:
        """Write what it begins with, then what `push` leaves to do, until it is cut off."""
        with self._scope:
            if self.group.kind == "sse":
                await self._channel.write(chunk(RETRY))
            some: list[Entry] = []
            size = 0
            for entry in begin:
                some.append(entry)
                size += entry.size
                if size >= FIRST:
                    await self._write(self.group.encoded(some))
                    some, size = [], 0
            if some:
                await self._write(self.group.encoded(some))
            while True:
                while self._queue:
                    data = self._queue.popleft()
                    await self._write(data)
                    self._queued -= len(data)
                    self._counts.queued -= len(data)
                self._busy = False
                await self._wake.wait()

    async def _write(self, data: bytes) -> None:
        await self._channel.write(data)
        self._count(len(data))
