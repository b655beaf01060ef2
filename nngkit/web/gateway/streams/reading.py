"""GET and HEAD of a stream: catch-up reads, long polls and server-sent events, with what caches may keep.

What is read is a `Readable`: a stream that this gateway owns, or a topic of a journal that others write.
"""

from __future__ import annotations

import base64
import logging
import random
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec
import trio

from nngkit.errors import NngkitError
from nngkit.instruments import Gauge
from nngkit.web.exchange import CHUNKED, LAST_CHUNK, Channel, Headers, Request, Response, Streamed, chunk
from nngkit.web.gateway.problems import Problem
from nngkit.web.gateway.streams import offsets
from nngkit.web.gateway.streams.asked import bad, essence
from nngkit.web.gateway.streams.ledger import CLOSED
from nngkit.web.gateway.streams.offsets import token
from nngkit.web.gateway.waits import Waits

log = logging.getLogger("nngkit.web")

EVENTS: Final = "text/event-stream"
MOST_READ: Final = 1 << 20
"""Bytes of one response, exceeded by at most one record."""
MOST_LIVE: Final = 1024
"""Long polls and event streams at a time."""
EVENT_SECONDS: Final = 60.0
"""Seconds of an event stream; the protocol asks for about these, so that caches may collapse them."""
CACHED: Final = 60  # seconds, by the protocol
UP_TO_DATE: Final = ("Stream-Up-To-Date", "true")
NO_STORE: Final = ("Cache-Control", "no-store")
UNCACHED: Final = ("Cache-Control", "no-cache, no-store")
SECURE: Final = (("X-Content-Type-Options", "nosniff"), ("Cross-Origin-Resource-Policy", "same-origin"))
_LINES: Final = re.compile(rb"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class StreamsStats:
    """Counters of the streams of a gateway."""

    streams: Gauge
    """Streams that it owns."""
    live: Gauge
    """Long polls and event streams of readers that wait."""


@dataclass(frozen=True, slots=True)
class Part:
    """Positions from the one that was asked for to `end` - 1: bytes, or the elements of an array of JSON."""

    body: bytes
    end: int


class Readable(Protocol):
    """A stream as a reader sees it. `id`: not that of any other; `tail`: the position after its end."""

    id: str
    type: str

    @property
    def is_json(self) -> bool:
        """True if it consists of messages."""

    @property
    def closed(self) -> bool:
        """True if nothing follows the tail."""

    async def bounds(self) -> tuple[int, int]:
        """Return the first position that can be read, and the tail. Raises Problem once it is gone."""

    async def read(self, start: int, tail: int, most: int) -> Part:
        """Return positions from `start` on, below `tail`: about `most` bytes; none if it has looked at many in vain.

        Raises Problem.
        """

    async def more(self, tail: int) -> None:
        """Return once the tail may be another one, or it is closed or gone."""

    def left(self) -> float | None:
        """Return the seconds until it expires; None if it does not."""

    def about(self) -> Headers:
        """Return the headers that HEAD has besides."""


class Reader:
    """Answers reads. `poll`: seconds of a long poll; `shared`: True if caches may keep what is for anybody."""

    def __init__(self, poll: float, waits: Waits, shared: bool) -> None:
        self._poll = poll
        self._waits = waits
        self._shared = shared
        self.live: Gauge = 0
        """Long polls and event streams that wait."""

    async def head(self, readable: Readable) -> Response:
        """Answer HEAD."""
        _, tail = await readable.bounds()
        closed = (CLOSED,) if readable.closed else ()
        headers = (
            ("Content-Type", readable.type),
            ("Stream-Next-Offset", token(tail)),
            NO_STORE,
            *closed,
            *readable.about(),
            *SECURE,
        )
        return Response(200, headers, b"", 0)

    async def get(self, request: Request, readable: Readable, may: Callable[[], bool]) -> Response | Streamed:
        """Answer GET. `may`: whether the client may go on reading. Raises Problem, OffsetGone, Damaged."""
        query = request.query()
        for name in ("offset", "live", "cursor"):
            if len(query.get(name, ())) > 1:
                raise bad(f"{name} is there twice")
        given, live = query.get("offset", [None])[0], query.get("live", [None])[0]
        cursor = query.get("cursor", [None])[0]
        if live not in (None, "long-poll", "sse"):
            raise bad(f"live={live[:32]!r} is neither long-poll nor sse")
        if live is not None and given is None:
            raise bad("a live read needs an offset")
        first, tail = await readable.bounds()
        start = _start(given, first, tail)
        if live is None:
            return await self._catch_up(request, readable, start, tail, now=given == "now")
        if self.live >= MOST_LIVE:
            raise Problem(503, "busy", f"{MOST_LIVE} live reads are waiting", ran=False)
        if live == "sse":
            return self._events(readable, start, cursor, may)
        self.live += 1
        try:
            return await self._long_poll(readable, start, cursor)
        finally:
            self.live -= 1

    async def _catch_up(self, request: Request, readable: Readable, start: int, tail: int, *, now: bool) -> Response:
        closed = readable.closed
        part = Part(b"", tail) if now else await readable.read(start, tail, MOST_READ)
        if now:
            return _found(readable, part, tail, closed, NO_STORE)
        ended = closed and part.end == tail
        tag = f'"{readable.id}:{start}:{part.end}{":c" if ended else ""}"'
        caching = ("ETag", tag), self._caching(readable) if part.body else NO_STORE
        if _matches(request.headers.get("if-none-match"), tag):
            return Response(304, (*caching, ("Stream-Next-Offset", token(part.end)), *SECURE), b"", 0)
        return _found(readable, part, tail, closed, *caching)

    def _caching(self, readable: Readable) -> tuple[str, str]:
        left = readable.left()
        seconds = CACHED if left is None else max(0, min(CACHED, int(left)))
        scope = "public" if self._shared else "private"
        return "Cache-Control", f"{scope}, max-age={seconds}, stale-while-revalidate={5 * seconds}"

    async def _long_poll(self, readable: Readable, start: int, given: str | None) -> Response:
        with self._waits.at_most(self._poll):
            while True:
                _, tail = await readable.bounds()
                closed = readable.closed
                part = await readable.read(start, tail, MOST_READ)
                if part.body:
                    tag = f'"{readable.id}:{start}:{part.end}"'
                    caching = ("ETag", tag), self._caching(readable), ("Stream-Cursor", _cursor(given))
                    return _found(readable, part, tail, closed, *caching)
                start = part.end
                if start < tail:
                    continue
                if closed:
                    break
                await readable.more(tail)
        # at the limit of time it says what it has seen: a position that may be ahead of the one that was asked for
        closed = readable.closed
        headers = ("Stream-Next-Offset", token(start)), UP_TO_DATE, ("Stream-Cursor", _cursor(given)), NO_STORE
        return Response(204, (*headers, *((CLOSED,) if closed else ()), *SECURE), b"", 0)

    def _events(self, readable: Readable, start: int, given: str | None, may: Callable[[], bool]) -> Streamed:
        encoded = not readable.is_json and not essence(readable.type).startswith("text/")

        async def run(channel: Channel) -> None:
            self.live += 1
            try:
                with trio.move_on_after(EVENT_SECONDS):
                    await self._write(channel, readable, start, given, may, encoded)
                await channel.write(LAST_CHUNK)
            except Problem:  # it was deleted: the next request is told so
                await channel.write(LAST_CHUNK)
            except NngkitError as error:
                log.error("a stream cannot be read: %s", error)
            finally:
                self.live -= 1

        kind = (("Stream-SSE-Data-Encoding", "base64"),) if encoded else ()
        headers = (("Content-Type", EVENTS), *kind, UNCACHED, ("X-Accel-Buffering", "no"), CHUNKED, *SECURE)
        return Streamed(200, headers, run, last=LAST_CHUNK)

    async def _write(
        self,
        channel: Channel,
        readable: Readable,
        start: int,
        given: str | None,
        may: Callable[[], bool],
        encoded: bool,
    ) -> None:
        """Write events until the stream is closed, or the client may read it no more."""
        begun = False
        while may():
            _, tail = await readable.bounds()
            closed = readable.closed
            part = await readable.read(start, tail, MOST_READ)
            start = part.end
            ended = closed and start == tail
            if part.body or ended or not begun:
                control: dict[str, object] = {"streamNextOffset": token(start)}
                if not ended:
                    given = _cursor(given)
                    control["streamCursor"] = given
                if start == tail:
                    control["upToDate"] = True
                if ended:
                    control["streamClosed"] = True
                data = event("data", _shown(readable, part, encoded)) if part.body else b""
                await channel.write(chunk(data + event("control", msgspec.json.encode(control))))
                begun = True
            if ended:
                return
            if start == tail:
                await readable.more(tail)


def event(name: str, data: bytes) -> bytes:
    """Return a server-sent event: whatever ends a line there begins another line of its data.

    A client removes one space after the colon, so that a line that begins with one gets another.
    """
    lines = b"".join(b"data:%b%b\n" % (b" " * line.startswith(b" "), line) for line in _LINES.split(data))
    return b"event: %b\n%b\n" % (name.encode(), lines)


def _shown(readable: Readable, part: Part, encoded: bool) -> bytes:
    if readable.is_json:
        return b"[%b]" % part.body
    return base64.b64encode(part.body) if encoded else part.body


def _start(given: str | None, first: int, tail: int) -> int:
    """Return the position to read from. Raises Problem."""
    if given is None or given == "-1":
        return first
    if given == "now":
        return tail
    start = offsets.position(given)
    if start is None:
        raise bad(f"offset {given[:64]!r} is none of this server")
    if start > tail:
        raise bad(f"offset {given} is behind the end, {token(tail)}")
    if start < first:
        raise Problem(410, "gone", f"retention has deleted what was before {token(first)}", ran=False)
    return start


def _found(readable: Readable, part: Part, tail: int, closed: bool, *more: tuple[str, str]) -> Response:
    headers = [("Content-Type", readable.type), ("Stream-Next-Offset", token(part.end)), *more]
    if part.end == tail:
        headers += [UP_TO_DATE, *([CLOSED] if closed else [])]
    body = b"[%b]" % part.body if readable.is_json else part.body
    return Response(200, (*headers, *SECURE), body, len(body))


def _matches(given: str | None, tag: str) -> bool:
    """Return True if If-None-Match has the tag (RFC 9110, 13.1.2)."""
    if given is None:
        return False
    named: Iterable[str] = (each.strip() for each in given.split(","))
    return any(each == "*" or each.removeprefix("W/") == tag for each in named)


def _cursor(given: str | None) -> str:
    return offsets.cursor(time.time(), given, random.randint(1, offsets.MOST_JITTER))
