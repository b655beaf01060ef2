"""PUT, POST and DELETE of a stream that this gateway owns."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from msgspec.structs import replace

from nngkit.web.exchange import Headers, Request, Response
from nngkit.web.gateway.problems import Problem
from nngkit.web.gateway.streams import asked
from nngkit.web.gateway.streams.asked import Fork, Producer, bad, essence
from nngkit.web.gateway.streams.ledger import CLOSED, Change, Stream
from nngkit.web.gateway.streams.offsets import MOST, token
from nngkit.web.gateway.streams.reading import NO_STORE, SECURE
from nngkit.web.gateway.streams.store import Store


class Writer:
    """Answers requests that change streams of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @asynccontextmanager
    async def _locked(self, *names: str) -> AsyncGenerator[None]:
        """Hold the locks of these streams; in their order, so that two requests never wait for each other."""
        async with AsyncExitStack() as held:
            for name in sorted(set(names)):
                await held.enter_async_context(self._store.lock(name))
            yield

    async def create(
        self, request: Request, name: str, who: str | None, *, url: str, name_of: Callable[[str], str]
    ) -> Response:
        """Answer PUT. `url`: its own; `name_of`: the name at a path that may be read, raises Problem."""
        headers = request.headers
        kind, (ttl, expires) = asked.content_type(headers), asked.lifetime(headers)
        fork = asked.fork(headers)
        closed = asked.closes(headers)
        source = None if fork is None else name_of(fork.path)
        if source == name:
            raise Problem(409, "conflict", "a stream does not branch from itself", ran=False)
        async with self._locked(name, *(() if source is None else (source,))):
            there = self._store.find(name)
            if there is not None and there.deleted:
                raise Problem(409, "conflict", f"{name} is deleted, and others branch from it", ran=False)
            change = Change("create", closed=closed, type=kind or asked.BYTES, ttl=ttl, expires=expires)
            if source is not None and fork is not None:
                change = self._forked(source, fork, kind, change, there)
            if there is not None:
                if not _same(there, change):
                    raise Problem(409, "conflict", f"{name} is there, and is another one", ran=False)
                return _done(200, there, ("Content-Type", there.type))
            value, size = _value(request.body, essence(change.type) == asked.JSON, empty=True)
            change = replace(change, size=size, weight=len(value))
            stream = await self._store.change(name, change, value, who)
            return _done(201, stream, ("Content-Type", stream.type), ("Location", url))

    def _forked(self, source: str, fork: Fork, kind: str | None, change: Change, there: Stream | None) -> Change:
        """Return the creation of a stream that branches from another. Raises Problem."""
        origin = self._store.find(source)
        if origin is None:
            raise Problem(404, "not-found", f"no such stream: {source}", ran=False)
        if kind is not None and essence(kind) != essence(origin.type):
            raise Problem(409, "conflict", f"{source} is {origin.type}", ran=False)
        if there is None and origin.deleted:
            raise Problem(409, "conflict", f"{source} is deleted", ran=False)
        at = origin.tail if fork.at is None else fork.at
        if there is not None and fork.at is None and there.source is origin:
            at = there.base - there.sub
        if at > origin.tail:
            raise bad(f"{token(at)} is behind the end of {source}, {token(origin.tail)}")
        if at + fork.sub > origin.boundary(at):
            raise bad(f"{fork.sub} are more than follow {token(at)} in one append")
        ttl, expires = change.ttl, change.expires
        if ttl is None and expires is None:
            ttl, expires = origin.ttl, origin.shown_expires
        return replace(change, type=kind or origin.type, ttl=ttl, expires=expires, source=source, base=at, sub=fork.sub)

    async def append(self, request: Request, name: str, who: str | None) -> Response:
        """Answer POST."""
        headers, closing = request.headers, asked.closes(request.headers)
        async with self._locked(name):
            stream = self._store.get(name)
            producer, seq = asked.producer(headers), asked.sequence(headers)
            if not request.body and not closing:
                raise bad("there is nothing to append")
            kind = asked.content_type(headers) if request.body else None
            if request.body and kind is None:
                raise bad("a body needs its Content-Type")
            if stream.closed:
                return self._append_closed(stream, producer, empty=not request.body)
            if kind is not None and essence(kind) != essence(stream.type):
                raise Problem(409, "conflict", f"{name} is {stream.type}", ran=False)
            if not stream.judge(producer):
                assert producer is not None
                return _done(204, stream, *_numbers(stream, producer))
            stream.check_sequence(seq)
            value, size = _value(request.body, stream.is_json, empty=not request.body)
            change = Change("append", size=size, weight=len(value), closed=closing, seq=seq)
            if producer is not None:
                change = replace(change, producer=producer.id, epoch=producer.epoch, number=producer.number)
            stream = await self._store.change(name, change, value, who)
            if producer is None or not request.body:
                return _done(204, stream, *(() if producer is None else _numbers(stream, producer)))
            return _done(200, stream, *_numbers(stream, producer))

    def _append_closed(self, stream: Stream, producer: Producer | None, *, empty: bool) -> Response:
        if producer is not None and producer == stream.closer:
            return _done(204, stream, *_numbers(stream, producer))
        if producer is None and empty:
            return _done(204, stream)
        raise stream.closed_problem()

    async def delete(self, name: str, who: str | None) -> Response:
        """Answer DELETE."""
        async with self._locked(name):
            self._store.get(name)
            await self._store.change(name, Change("delete"), b"", who)
        return Response(204, (NO_STORE, *SECURE), b"", 0)


def _value(body: bytes, is_json: bool, *, empty: bool) -> tuple[bytes, int]:
    """Return what is stored of a body, and its size. Raises Problem for one that is not JSON, or an empty array."""
    if not is_json or not body:
        return body, len(body)
    messages = asked.messages(body)
    if not messages and not empty:
        raise bad("an empty array appends nothing")
    return (b"[%b]" % b",".join(messages) if messages else b""), len(messages)


def _same(stream: Stream, change: Change) -> bool:
    """Return True if a stream is what a request would create."""
    source = "" if stream.source is None else stream.source.name
    return (
        essence(stream.type) == essence(change.type)
        and (stream.ttl, stream.shown_expires, stream.closed) == (change.ttl, change.expires, change.closed)
        and (source, stream.base - stream.sub, stream.sub) == (change.source, change.base, change.sub)
    )


def _numbers(stream: Stream, producer: Producer) -> Headers:
    epoch, last = stream.producers.get(producer.id, (producer.epoch, producer.number))
    return ("Producer-Epoch", str(epoch)), ("Producer-Seq", str(last))


def _done(status: int, stream: Stream, *more: tuple[str, str]) -> Response:
    closed = (CLOSED,) if stream.closed else ()
    assert stream.tail <= MOST
    return Response(status, (("Stream-Next-Offset", token(stream.tail)), NO_STORE, *closed, *more, *SECURE), b"", 0)
