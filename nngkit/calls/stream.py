"""Stream: the parts of one reply, fetched as the caller reads them.

The caller asks for the next parts when it has read the last ones, so a slow reader slows down the handler, and nothing
queues up between them but one reply of at most 64 parts.

A client's middleware is a coroutine around all of the stream, and runs in the reader's task: it is resumed, in its own
context, whenever the reader needs parts, and suspended inside of `proceed` while the reader has some.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from functools import partial
from types import TracebackType, coroutine
from typing import Any, Final, Self

from nngkit.calls.messages import DEADLINE, CancelRequest, ErrorReply, MoreRequest, PartsReply, parse_reply
from nngkit.calls.middleware import ClientCall, Middleware, Reply, chain
from nngkit.calls.requesting.call import Call
from nngkit.calls.requesting.caller import Caller
from nngkit.errors import BadMessage, Closed, ConfigError, Lost, TimedOut

_TO_READER: Final = object()  # what a middleware's coroutine yields to the reader of the parts, and not to a loop


class Stream:
    """Async iterator over the parts of a reply. `async with` it, or iterate to the end: else call `aclose`.

    Iterating raises RemoteError if the handler fails, after the parts before it; Lost if the provider leaves: parts
    that were read are not taken back, so a stream never moves to another provider; TimedOut, Closed, BadMessage.

    `headers`: of the reply; those that the handler has set before its first part are there with it, others at the end.
    """

    def __init__(self, caller: Caller, call: Call) -> None:
        self._caller = caller
        self._call = call
        self._parts: deque[Any] = deque()
        self._open = False
        self._ended = False
        self._begin: Callable[[], Coroutine[Any, Any, Reply]] | None = None  # of the middleware
        self._around: Coroutine[Any, Any, Reply] | None = None
        self._context: Context | None = None
        self.headers: dict[str, str | bytes] = {}

    def put_around(
        self, functions: tuple[Middleware, ...], call: ClientCall, made: Callable[[ClientCall], Call]
    ) -> None:
        """Run the middleware of a client around it. `made` makes the call as the middleware has left it."""
        proceeded = False

        async def proceed(changed: ClientCall) -> Reply:
            nonlocal proceeded
            if proceeded:
                raise ConfigError("middleware", "a stream cannot be begun again: `proceed` was called twice")
            proceeded = True
            self._call = made(changed)
            await self._get_parts()
            while not self._ended:
                await _to_reader()
                if not self._ended:  # left early
                    await self._get_parts()
            self._call.back = self.headers
            return self._call.reply(None)

        self._begin = partial(chain(functions, proceed), call)
        self._context = copy_context()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        while not self._parts:
            if self._ended:
                raise StopAsyncIteration
            await self._fetch()
        return self._parts.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Tell the provider to stop, unless the stream has ended. Does not wait for its reply. Idempotent."""
        member, caller = self._call.current, self._caller
        self._ended = True
        self._parts.clear()
        if self._open and member is not None and caller.codec is not None:
            if member.link is not None:
                caller.send_later(member.link, CancelRequest(self._call.id).encode(caller.codec))
            self._end()
        self._begin = None
        if self._around is not None:
            await self._resume()

    async def _fetch(self) -> None:
        if self._begin is not None:
            self._around, self._begin = self._begin(), None
        if self._around is None:
            await self._get_parts()
            return
        try:
            await self._resume()
        except BaseException:
            self._ended = True
            raise

    async def _resume(self) -> None:
        """Run the middleware until there are parts, or to its end."""
        assert self._around is not None
        assert self._context is not None
        around, self._around = self._around, None
        if await _within(self._context, around):
            self._around = around
        else:
            self._ended = True

    async def _get_parts(self) -> None:
        try:
            reply = await (self._more() if self._open else self._first())
        except BaseException:
            self._ended = True
            self._end()
            raise
        self._parts.extend(reply.parts)
        if reply.headers is not None:
            self.headers |= reply.headers
        if reply.end:
            self._ended = True
            self._end()

    async def _first(self) -> PartsReply:
        reply: PartsReply = await self._caller.request(self._call)
        assert self._call.current is not None
        self._caller.hold(self._call.current)
        self._open = True
        return reply

    async def _more(self) -> PartsReply:
        call, caller = self._call, self._caller
        assert call.current is not None
        assert caller.codec is not None
        address = call.current.provider.address
        left = None if call.seconds is None else max(0.0, call.deadline - time.monotonic())
        done = False
        try:
            data = await call.current.link.arequest(MoreRequest(call.id).encode(caller.codec), left)
            done = True
        except (Lost, Closed) as lost:
            done = True
            if caller.closed:
                raise caller.ended() from lost
            raise Lost(f"{caller.name}: {address} left before its reply ended", sent=True) from lost
        except TimedOut as late:
            raise self._late(address) from late
        finally:
            if not done and call.current.link is not None:  # cancelled, or late
                caller.send_later(call.current.link, CancelRequest(call.id).encode(caller.codec))
        reply = parse_reply(data, caller.codec, limit=caller.limit, peer=address)
        if isinstance(reply, ErrorReply):
            if reply.kind == DEADLINE:
                raise self._late(address)
            raise reply.exception(address)
        if not isinstance(reply, PartsReply):
            raise BadMessage("call reply", f"unexpected {type(reply).__name__}", address)
        return reply

    def _late(self, address: str) -> TimedOut:
        seconds = self._call.seconds
        return TimedOut(f"{self._caller.name}: the reply of {address} did not end in {seconds} s", seconds)

    def _end(self) -> None:
        if self._open and self._call.current is not None:
            self._open = False
            self._caller.release(self._call.current)


@coroutine
def _to_reader() -> Generator[Any, Any, None]:
    yield _TO_READER


@coroutine
def _within(context: Context, running: Coroutine[Any, Any, Any]) -> Generator[Any, Any, bool]:
    """Run a coroutine, each step in `context`, until it yields to the reader; return False if it has ended."""
    resume: Callable[[Any], Any] = running.send
    value: Any = None
    try:
        while True:
            trap = context.run(resume, value)
            if trap is _TO_READER:
                return True
            try:
                value = yield trap
                resume = running.send
            except BaseException as error:  # the loop's, for the coroutine
                value, resume = error, running.throw
    except StopIteration:
        return False
    finally:
        del value  # an error refers to this frame
