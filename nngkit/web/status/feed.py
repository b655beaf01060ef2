"""Tables of a daemon as server-sent events, for its status page: `GET /v1/events`.

::

    event: begin
    data: {"name":"nngkit discoverd","tables":{"services":"Providers and their states."},"time":1764288000.123}

    data: {"services":{"set":{"pay tcp://10.0.0.7:9000 3f9c 1":{"name":"pay","state":"up"}}}}

    data: {"services":{"gone":["pay tcp://10.0.0.7:9000 3f9c 1"]}}

A stream begins with all rows, and goes on with what changes in GATHER seconds, encoded once for all streams. The
tables are kept while a page is open, and cost nothing else. A client that reads too slowly has QUEUE bytes that wait;
above that it is cut off and counted, and its browser connects again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import trio

from nngkit.background import WakeUp
from nngkit.instruments import BytesTotal, Gauge, Total
from nngkit.web.exchange import CHUNKED, LAST_CHUNK, Channel, Request, Response, Streamed, chunk
from nngkit.web.site import COMMON_HEADERS, refusal
from nngkit.web.status.table import Table

GATHER: Final = 0.1  # seconds: ten updates a second are more than people follow, and each is soon seen
LINGER: Final = 5.0  # seconds for which tables are kept after the last page: a page that is loaded again finds them
HEARTBEAT: Final = 15.0  # seconds between two signs of life; proxies cut at 30 to 60 s of silence
CLIENTS: Final = 16  # streams at a time
QUEUE: Final = 8 << 20  # bytes that wait for one client: all rows of a full table fit
RETRY: Final = b"retry: 1000\n\n"  # milliseconds until a browser connects again
EVENTS: Final = "text/event-stream"
PATH: Final = "/v1/events"
FULL: Final = f"{CLIENTS} pages are open; try again"


@dataclass(frozen=True, slots=True)
class FeedStats:
    """Counters of the streams of a status page."""

    open: Gauge
    """Open streams."""
    slow: Total
    """Streams that were cut off as their client was too slow."""
    refused: Total
    """Streams that were refused as too many were open."""
    written: BytesTotal
    """Bytes given to streams."""


@dataclass(frozen=True, slots=True)
class Section:
    """Tables with a name and a summary each, and the task that keeps them while a page is open."""

    tables: Mapping[str, str]
    run: Callable[..., Awaitable[None]]


class Feed:
    """The tables of a daemon. `name`: its command. Create it inside trio; `run` is its task."""

    def __init__(self, name: str, sections: Sequence[Section]) -> None:
        self._sections = tuple(sections)
        summaries = {table: summary for section in sections for table, summary in section.tables.items()}
        self._tables = {table: Table() for table in summaries}
        self._begin = {"name": name, "tables": summaries}
        self._members: dict[_Member, None] = {}
        self._joined = WakeUp()
        self._slow = self._refused = self._written = 0

    @property
    def stats(self) -> FeedStats:
        """Current counters."""
        return FeedStats(len(self._members), self._slow, self._refused, self._written)

    async def run(self) -> None:
        """Keep the tables while a page is open, for ever."""
        while True:
            while not self._members:
                await self._joined.wait()
            async with trio.open_nursery() as nursery:
                for section in self._sections:
                    nursery.start_soon(section.run, *(self._tables[name] for name in section.tables))
                await self._tell()
                nursery.cancel_scope.cancel()
            for table in self._tables.values():
                table.replace({})

    async def _tell(self) -> None:
        """Tell all clients of changes, until there was none for LINGER seconds."""
        told = left = trio.current_time()
        while True:
            await trio.sleep(GATHER)
            now = trio.current_time()
            if self._members:
                left = now
            elif now - left > LINGER:
                return
            for name, table in self._tables.items():
                for part in table.take():
                    self._push(_data({name: part}))
                    told = now
            if now - told >= HEARTBEAT:
                told = now
                self._push(b": so far\n\n")

    def _push(self, event: bytes) -> None:
        data = chunk(event)
        for member in self._members:
            if not member.push(data):
                self._slow += 1

    def respond(self, request: Request, valid: Callable[[], bool] = lambda: True) -> Response | Streamed:
        """Return the response to a request for the events. The stream ends once `valid` returns False."""
        headers = (("Content-Type", EVENTS), ("Cache-Control", "no-store"), ("X-Accel-Buffering", "no"))
        if request.old:
            return refusal(505, "HTTP/1.1 is spoken here")
        if request.method == "HEAD":
            return Response(200, (*headers, *COMMON_HEADERS), b"", 0)
        if len(self._members) >= CLIENTS:
            self._refused += 1
            return refusal(503, FULL, (("Retry-After", "5"),))

        async def run(channel: Channel) -> None:
            member = _Member(valid)
            begin = [RETRY, b"event: begin\n" + _data({**self._begin, "time": time.time()})]
            begin += [_data({name: part}) for name, table in self._tables.items() for part in table.all()]
            self._members[member] = None
            self._joined.wake()
            try:
                with member.scope:
                    while begin:
                        await self._write(channel, chunk(begin.pop(0)))
                    while True:
                        await self._write(channel, await member.next())
            finally:
                del self._members[member]

        return Streamed(200, (*headers, CHUNKED, *COMMON_HEADERS), run, last=LAST_CHUNK)

    async def _write(self, channel: Channel, data: bytes) -> None:
        await channel.write(data)
        channel.count(len(data))
        self._written += len(data)


class _Member:
    """A client's queue."""

    def __init__(self, valid: Callable[[], bool]) -> None:
        self.scope = trio.CancelScope()
        self._valid = valid
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._wake = WakeUp()

    def push(self, data: bytes) -> bool:
        """Queue data; cut the client off if it may have no more. Return False if it was too slow."""
        if self.scope.cancel_called:
            return True
        fits = self._queued + len(data) <= QUEUE
        if not fits or not self._valid():
            self.scope.cancel()
            self._queue.clear()
            return fits
        self._queue.append(data)
        self._queued += len(data)
        self._wake.wake()
        return True

    async def next(self) -> bytes:
        """Wait for data and return it."""
        while not self._queue:
            await self._wake.wait()
        data = self._queue.popleft()
        self._queued -= len(data)
        return data


def _data(value: Any) -> bytes:
    return b"data: " + msgspec.json.encode(value, enc_hook=str) + b"\n\n"
