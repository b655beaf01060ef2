"""Replies in parts at a server: their handlers, and the requests that fetch the parts.

A handler runs ahead of its caller by at most MAX_PARTS parts, then waits. A caller that fetches nothing for IDLE
seconds has gone: the handler is cancelled.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

import trio
from msgspec.structs import replace

from nngkit.background import Background
from nngkit.calls.handlers import Calling
from nngkit.calls.messages import BAD_REQUEST, MAX_PARTS, CallRequest, Codec, ErrorReply, PartsReply
from nngkit.calls.middleware import Middleware, Reply, chain
from nngkit.calls.serving.failures import Failures
from nngkit.calls.serving.methods import Method
from nngkit.calls.serving.progress import Progress
from nngkit.calls.serving.replies import Replies
from nngkit.calls.texts import text_of
from nngkit.errors import Closed, TooLarge
from nngkit.headers import check_headers
from nngkit.protocols import Pipe, Request

log = logging.getLogger("nngkit.calls")

MOST_STREAMS: Final = 1_024
"""Cap on the streams whose parts wait for their callers, after their handlers have ended."""
IDLE: Final = 30.0
"""Seconds without a request for more parts; a caller that lives asks as soon as it has read the last ones."""


class _Unread(Exception):
    """The caller has fetched no parts for IDLE seconds. Not a TooSlowError, which a handler may raise itself."""


class _Streaming:
    """Parts of one reply, between the handler's task and the caller's requests.

    `drained`: all parts were fetched, or the caller has gone. `caller`: the connection of the call. `headers`: the
    handler's, sent when they have changed. `scope`: that of the handler while it runs.
    """

    def __init__(self, caller: Pipe | None, headers: dict[str, str | bytes]) -> None:
        self.caller = caller
        self._headers = headers
        self._sent: dict[str, str | bytes] = {}
        self.drained = trio.Event()
        self.asked = False  # a request for parts is waiting
        self.scope: trio.CancelScope | None = None
        self._parts: deque[Any] = deque()
        self._changed = trio.Event()
        self._ended = False
        self._error: ErrorReply | None = None

    async def produce(self, method: Method, body: Any, calling: Calling) -> None:
        """Run the handler to its end. Raises its exception."""
        contract = method.contract
        typed = contract is not None and contract.reply is not None
        async with aclosing(method.handler.parts(body, calling)) as parts:
            async for part in parts:
                self._parts.append(contract.write(part) if contract is not None and typed else part)
                self._change()
                while len(self._parts) >= MAX_PARTS:
                    with trio.move_on_after(IDLE) as idle:
                        await self._changed.wait()
                    if idle.cancelled_caught:
                        raise _Unread

    def end(self, error: ErrorReply | None = None) -> None:
        """Note that no more parts follow, or an error after those that are there. The first one counts."""
        if not self._ended:
            self._ended, self._error = True, error
            self._change()

    def stop(self) -> None:
        """End it, and the handler, because the caller has gone."""
        self.end()
        self.drained.set()
        if self.scope is not None:
            self.scope.cancel()

    async def reply(self, codec: Codec, limit: int) -> bytes | ErrorReply:
        """Return the next parts as an encoded reply, once there are any, or the end, or the error."""
        while not self._parts and not self._ended:
            await self._changed.wait()
        if not self._parts:
            self.drained.set()
            if self._error is not None:
                return self._error
            return PartsReply((), True, self._changed_headers()).encode(codec, limit)
        count = min(len(self._parts), MAX_PARTS)
        headers = self._changed_headers()
        while True:
            parts = tuple(self._parts[index] for index in range(count))
            last = self._ended and self._error is None and count == len(self._parts)
            try:
                data = PartsReply(parts, last, headers).encode(codec, limit)
            except TooLarge as error:
                if count > 1:
                    count //= 2
                    continue
                self._parts.clear()
                self.end()
                self._error = ErrorReply("too large", str(error))
                return self._error
            break
        for _ in range(count):
            self._parts.popleft()
        self._change()
        if last:
            self.drained.set()
        return data

    def _changed_headers(self) -> dict[str, str | bytes] | None:
        if self._headers == self._sent:
            return None
        self._sent = check_headers(self._headers)
        return self._sent

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


@dataclass(eq=False)
class Streams:
    """Streams of one server by the ids of their calls."""

    name: str
    codec: Codec
    limit: int
    middleware: tuple[Middleware, ...]
    progress: Progress
    failures: Failures
    replies: Replies
    background: Background
    by_id: dict[str, _Streaming] = field(default_factory=dict)

    async def run(
        self, request: Request, call: CallRequest, method: Method, body: Any, calling: Calling, deadline: float
    ) -> None:
        """Run the handler of a call to its end; its caller fetches the parts meanwhile, and after it."""
        streaming = _Streaming(request.pipe, calling.reply_headers)
        while len(self.by_id) >= MOST_STREAMS:
            self.by_id.pop(next(iter(self.by_id))).drained.set()
        self.by_id[call.id] = streaming
        self._reply(request, streaming)
        self.background.start(self._forget, call.id, streaming)
        error: ErrorReply | None = None
        scope = streaming.scope = trio.CancelScope(deadline=trio.current_time() + deadline - time.monotonic())
        try:
            with scope:
                if self.middleware:
                    await self._produce_around(streaming, method, calling)
                else:
                    await streaming.produce(method, body, calling)
        except _Unread:
            error = ErrorReply("gone", f"no parts were fetched for {IDLE:g} s")
        except BaseException as failed:
            error = self.failures.reply(failed)
        finally:
            streaming.scope = None
        if scope.cancelled_caught:
            error = self.failures.stopped(method.handler, scope)
        if error is None:
            self.progress.replies += 1
        else:
            self.failures.count(error.kind)
            if calling.reply_headers:
                error = replace(error, headers=calling.reply_headers)
        streaming.end(error)

    async def _produce_around(self, streaming: _Streaming, method: Method, calling: Calling) -> None:
        """Run a streaming handler within the middleware."""

        async def proceed(changed: Calling) -> Reply:
            await streaming.produce(method, changed.body, changed)
            return Reply(None, calling.reply_headers)

        reply = await chain(self.middleware, proceed)(calling)
        if reply.headers is not calling.reply_headers:
            calling.reply_headers.update(reply.headers)

    async def more(self, request: Request, number: str) -> None:
        """Reply with the next parts of the stream `number`, in a task of its own."""
        streaming = self.by_id.get(number)
        if streaming is None:
            refusal = ErrorReply("gone", f"there is no stream {number}")
        elif streaming.asked:
            refusal = ErrorReply(BAD_REQUEST, f"parts of {number} were asked for already")
        else:
            self._reply(request, streaming)
            return
        await self.replies.send(request, self.failures.counted(refusal))

    def _reply(self, request: Request, streaming: _Streaming) -> None:
        streaming.asked = True
        self.background.start(self._send_parts, request, streaming)

    async def _send_parts(self, request: Request, streaming: _Streaming) -> None:
        try:
            data = await streaming.reply(self.codec, self.limit)
        except Exception as error:  # of any class: see WithCodec
            data = self.failures.reply(TypeError(f"a part cannot be encoded: {text_of(error)}"))
            streaming.end(data)
            streaming.drained.set()
        if isinstance(data, ErrorReply):
            data = self.failures.encode(data)
        streaming.asked = False
        try:
            await self.replies.send(request, data)
        except Closed as closed:
            log.debug("%s: %s", self.name, closed)

    def cancel(self, number: str) -> None:
        """Stop a stream, if there is one."""
        if (streaming := self.by_id.get(number)) is not None:
            streaming.stop()

    def caller_left(self, pipe: int) -> None:
        """Stop the streams of a caller whose connection has ended: parts sent to it would be lost."""
        for streaming in self.by_id.values():
            if streaming.caller is not None and streaming.caller.id == pipe:
                streaming.stop()

    def end(self) -> None:
        """Stop the handlers; callers that still ask get their error."""
        for streaming in self.by_id.values():
            if streaming.scope is not None:
                streaming.scope.cancel()

    async def _forget(self, number: str, streaming: _Streaming) -> None:
        """Forget a stream once its parts were fetched, or IDLE seconds after its handler has ended."""
        while not streaming.drained.is_set():
            with trio.move_on_after(IDLE):
                await streaming.drained.wait()
            if streaming.scope is None and not streaming.asked:
                break
        if streaming.scope is not None:
            streaming.scope.cancel()  # the caller has gone
        if self.by_id.get(number) is streaming:
            del self.by_id[number]
        self.progress.changed()
