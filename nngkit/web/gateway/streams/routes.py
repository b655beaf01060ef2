"""Routes of a gateway below /streams and /topics, by the Durable Streams Protocol.

==========================================  ===================================================================
PUT, POST, DELETE /streams/NAME             create a stream, append to it or close it, delete it: right `publish`
GET, HEAD /streams/NAME                     read it: right `subscribe`
GET, HEAD /topics/TOPIC[/PARTITION]         read a topic of a journal: right `subscribe`
==========================================  ===================================================================

A name has up to DEPTH segments. A fork needs the right to read its source.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import islice
from typing import Final, Self

from msgspec import Raw
from msgspec.json import decode

from nngkit.web.exchange import Headers, Request, Response, Streamed
from nngkit.web.gateway.admission import Admission
from nngkit.web.gateway.problems import Problem
from nngkit.web.gateway.streams.asked import bad
from nngkit.web.gateway.streams.ledger import Stream
from nngkit.web.gateway.streams.reading import Part, Readable, Reader, StreamsStats
from nngkit.web.gateway.streams.store import Store
from nngkit.web.gateway.streams.topics import Topics
from nngkit.web.gateway.streams.writing import Writer
from nngkit.web.gateway.waits import Waits
from nngkit.web.routing import decoded

DEPTH: Final = 8
ROOT: Final = "/streams/"
RESERVED: Final = "__ds"
"""First segment of the protocol's own names, of subscriptions, which are not spoken here."""
MOST_RECORDS: Final = 1000  # of one response
Handler = Callable[[Request, str | None], Awaitable[Response | Streamed]]


class Streams:
    """Topics of the journal `journal`, and streams in the journal `store`; at least one. Use it with `async with`.

    `poll`: seconds of a long poll. Entering raises ConfigError, Damaged.
    """

    def __init__(
        self,
        admission: Admission,
        journal: str | os.PathLike[str] | None,
        store: str | os.PathLike[str] | None,
        poll: float,
        waits: Waits,
    ) -> None:
        self._admission = admission
        self._topics = None if journal is None else Topics(journal)
        self._store = None if store is None else Store(store)
        self._writer = None if self._store is None else Writer(self._store)
        self._reader = Reader(poll, waits, shared=admission.trust is None)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for each in (self._topics, self._store):
                if each is not None:
                    await stack.enter_async_context(each)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def stats(self) -> StreamsStats:
        """Current counters."""
        return StreamsStats(0 if self._store is None else len(self._store), self._reader.live)

    def tasks(self) -> Iterator[Callable[[], Awaitable[None]]]:
        """Yield what runs while it is open."""
        if self._topics is not None:
            yield self._topics.follow
        if self._store is not None:
            yield self._store.tidy

    def routes(self) -> Iterator[tuple[str, str, Handler]]:
        """Yield methods, paths and handlers."""
        if self._topics is not None:
            for path in ("/topics/{topic}", "/topics/{topic}/{partition}"):
                yield "GET", path, self._topic
                yield "HEAD", path, self._topic
        if self._store is not None:
            for depth in range(1, DEPTH + 1):
                path = ROOT + "/".join(["{name}", *(f"{{{number}}}" for number in range(1, depth))])
                yield "GET", path, self._read
                yield "HEAD", path, self._read
                yield "PUT", path, self._create
                yield "POST", path, self._append
                yield "DELETE", path, self._delete

    def _may(self, request: Request, caller: str | None, name: str) -> Callable[[], bool]:
        """Return whether the client may go on reading. Raises Problem if it may not begin."""
        self._admission.require(caller, "subscribe", name)
        valid, rights = self._admission.validity(request), self._admission.rights
        return lambda: valid() and rights.grants(caller, "subscribe", name)

    async def _topic(self, request: Request, caller: str | None) -> Response | Streamed:
        assert self._topics is not None
        topic, partition = request.params["topic"], request.params.get("partition")
        may = self._may(request, caller, topic)
        if partition is not None and not (partition.isascii() and partition.isdigit() and len(partition) < 6):
            raise Problem(404, "not-found", "no such partition", ran=False)
        return await self._answer(
            request, await self._topics.find(topic, None if partition is None else int(partition)), may
        )

    async def _read(self, request: Request, caller: str | None) -> Response | Streamed:
        assert self._store is not None
        name = _name(request)
        may = self._may(request, caller, name)
        stream = self._store.get(name)
        if request.method != "HEAD":
            self._store.touch(stream)
        return await self._answer(request, OwnStream(self._store, stream), may)

    async def _answer(self, request: Request, readable: Readable, may: Callable[[], bool]) -> Response | Streamed:
        if request.method == "HEAD":
            return await self._reader.head(readable)
        return await self._reader.get(request, readable, may)

    async def _create(self, request: Request, caller: str | None) -> Response:
        assert self._writer is not None
        name = _name(request)
        self._admission.require(caller, "publish", name)

        def name_of(path: str) -> str:
            source = _named(path.removeprefix(ROOT).removeprefix("/").split("/"))
            self._admission.require(caller, "subscribe", source)
            return source

        url = f"{request.scheme}://{request.headers.get('host', request.client)}{request.path}"
        return await self._writer.create(request, name, caller, url=url, name_of=name_of)

    async def _append(self, request: Request, caller: str | None) -> Response:
        assert self._writer is not None
        name = _name(request)
        self._admission.require(caller, "publish", name)
        return await self._writer.append(request, name, caller)

    async def _delete(self, request: Request, caller: str | None) -> Response:
        assert self._writer is not None
        name = _name(request)
        self._admission.require(caller, "publish", name)
        return await self._writer.delete(name, caller)


def _name(request: Request) -> str:
    return _named(request.path.removeprefix(ROOT).split("/"))


def _named(segments: list[str]) -> str:
    """Return the name of a stream at a path. Raises Problem."""
    names = [decoded(each) for each in segments]
    if names[0] == RESERVED:  # before all else: what follows may have any form
        raise Problem(501, "not-implemented", "subscriptions are not spoken here", ran=False)
    if not 1 <= len(names) <= DEPTH or not all(names) or any("/" in each for each in names):
        raise bad(f"the name of a stream has 1 to {DEPTH} segments that can be printed, without %2F")
    return "/".join(names)


class OwnStream:
    """A stream of the store, to be read."""

    def __init__(self, store: Store, stream: Stream) -> None:
        self._store = store
        self._stream = stream
        self.id = str(stream.id)
        self.type = stream.type
        self.is_json = stream.is_json

    @property
    def closed(self) -> bool:
        """True if nothing follows the tail."""
        return self._stream.closed

    async def bounds(self) -> tuple[int, int]:
        """Return 0, and the tail. Raises Problem once it is deleted."""
        if self._store.get(self._stream.name) is not self._stream:
            raise Problem(404, "not-found", f"{self._stream.name} is another stream now", ran=False)
        return 0, self._stream.tail

    async def read(self, start: int, tail: int, most: int) -> Part:
        """Return bytes or messages from the position `start` on, of whole records but for the first and the last."""
        pieces, held = [], 0
        for piece in islice(self._stream.pieces(start, tail), MOST_RECORDS):
            pieces.append(piece)
            held += piece.weight
            if held >= most:
                break
        values = await self._store.values(pieces)
        parts, end = [], start
        for piece, value in zip(pieces, values, strict=True):
            if not self.is_json:
                part = value[piece.start : piece.stop]
            elif piece.stop - piece.start == piece.size:
                part = value[1:-1]  # the elements of a whole array
            else:
                messages = decode(value, type=list[Raw])[piece.start : piece.stop]
                part = b",".join(bytes(each) for each in messages)
            parts.append(part)
            end += piece.stop - piece.start
        return Part((b"," if self.is_json else b"").join(parts), end)

    async def more(self, tail: int) -> None:
        """Return once it has changed."""
        if self._stream.tail == tail and not self._stream.closed:
            await self._store.changed(self._stream).wait()

    def left(self) -> float | None:
        """Return the seconds until it expires; None if it does not."""
        return self._store.left(self._stream)

    def about(self) -> Headers:
        """Return its time to live."""
        ttl, at = self._stream.ttl, self._stream.shown_expires
        headers: Headers = () if ttl is None else (("Stream-TTL", str(ttl)),)
        return headers if at is None else (*headers, ("Stream-Expires-At", at))
