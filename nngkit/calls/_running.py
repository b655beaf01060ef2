r"""Calls at a provider: received, queued or refused, run by worker tasks, answered, counted.

::

    request --> worker whose turn it is to receive --> handler --> reply
            \-> all others busy: into the queue, or refused; cancellations and streams' next parts are obeyed

One worker receives, and others wait for its turn. It gives the turn away when its handler first waits: so a request
wakes one task, and calls whose handlers do not wait run in one task after each other.

With codec None there is nothing to obey and nothing to refuse with, so requests wait in the socket.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, Final

import trio
from msgspec.structs import replace

from nngkit.background import Background
from nngkit.calls._failures import Failures
from nngkit.calls._permits import Permits
from nngkit.calls._streaming import IDLE, Streaming, Unread
from nngkit.calls.handlers import Calling, Handler
from nngkit.calls.messages import (
    DENIED,
    CallRequest,
    CancelRequest,
    Codec,
    DoneReply,
    ErrorReply,
    InfoRequest,
    MoreRequest,
    PartsReply,
    PingRequest,
    ResultReply,
    StatsRequest,
    parse_request,
)
from nngkit.calls.middleware import Middleware, Reply, chain
from nngkit.calls.typed import Contract, contract_of
from nngkit.errors import BadMessage, Closed, ConfigError, NngkitError, TooLarge
from nngkit.headers import check_headers
from nngkit.histogram import Distribution, Histogram
from nngkit.protocols import Payload, Rep, Request
from nngkit.trust import Trust

log = logging.getLogger("nngkit.calls")

MOST_METHODS: Final = 256
MOST_STREAMS: Final = 1_024
"""Cap on the streams whose parts wait for their callers, after their handlers have ended."""
BURST: Final = 64  # requests received together, between which no other task of the program runs
GATHERED: Final = 0.001  # seconds after which replies wait for no more: a write costs as much as some ten of them
RECENT: Final = 256  # times counted together, see Histogram.add_many
REFUSED: Final = "bad request"
STUCK: Final = 10.0
"""Seconds without one call that ends, while `concurrency` calls run, after which a warning says so."""


class _Worker:
    """A task that runs calls, one after the other, and the call that it runs.

    `request`: None between calls. `began`, `deadline`: of the call, on time.monotonic(). `waits`: its handler waits in
    `scope`, which ends it. `handler`: None if `scope` is not to end it. `reply`: what is to be sent outside of `scope`.

    One scope serves all calls of a worker until it has ended one: a scope of its own would cost a call a tenth of its
    time, and only a handler that waits can be ended.
    """

    __slots__ = ("began", "call", "deadline", "handler", "reply", "request", "scope", "waits")

    scope: trio.CancelScope

    def __init__(self) -> None:
        self.request: Request | None = None
        self.call: CallRequest | None = None
        self.handler: Handler | None = None
        self.reply: Payload | None = None
        self.began = 0.0
        self.deadline = float("inf")
        self.waits = False


class Running:
    """Handlers of a server, and the calls that are in progress."""

    def __init__(
        self,
        name: str,
        *,
        codec: Codec | None,
        concurrency: int,
        queue: int,
        limit: int,
        info: Callable[[], dict[str, Any]],
        stats: Callable[[], dict[str, Any]],
        trust: Trust | None = None,
        middleware: tuple[Middleware, ...] = (),
    ) -> None:
        self.codec = codec
        self._middleware = middleware
        self.permits = None if trust is None else Permits(trust, name, lambda: self._handlers)
        self.concurrency = concurrency
        self.limit = limit
        self.draining = False
        self.unhealthy = ""
        self._name = name
        self._most_queued = queue
        self._plain: dict[type, Callable[[], dict[str, Any]]] = {
            InfoRequest: info,
            StatsRequest: stats,
            PingRequest: lambda: {"name": name},
        }
        self._handlers: dict[str, Handler] = {}
        self._queue: deque[tuple[Request, CallRequest, float]] = deque()  # the last: its deadline
        self._queued: set[str] = set()  # the ids in it
        self._taken: deque[Request] = deque()  # received together, and not looked at yet
        self._scopes: dict[str, trio.CancelScope] = {}
        self._streams: dict[str, Streaming] = {}
        self._in_progress = 0
        self._workers = 0
        self._receiver: _Worker | None = None  # the worker that has the turn to receive
        self._idle: trio.Event | None = None
        self._ending = False
        self._requests = 0
        self._replies = 0
        self._bad = 0
        self._failures = Failures(name)
        self._abandoned_logged = False
        self._watched = False  # `_watch` runs
        self._recent: list[float] = []
        self._times = Histogram()
        self._threads: trio.CapacityLimiter | None = None

    # Set-up

    def add(self, method: str, function: Callable[..., Any]) -> None:
        """Register the handler of a method; "" is for calls that name none. Raises ConfigError."""
        if method and self.codec is None:
            raise ConfigError("method", "methods need a codec: codec='cbor' or 'json'", method)
        if method in self._handlers:
            raise ConfigError("method", f"{method!r} has a handler already", method)
        if len(self._handlers) >= MOST_METHODS:
            raise ConfigError("method", f"over the limit of {MOST_METHODS} methods", method)
        handler = Handler(function, self._limiter)
        if handler.streams and self.codec is None:
            raise ConfigError("handler", "a generator needs a codec: codec='cbor' or 'json'", function)
        handler.contract = contract_of(function, self.codec, handler.streams)
        self._handlers[method] = handler

    def check(self) -> None:
        """Raise ConfigError without a handler."""
        if not self._handlers:
            raise ConfigError("handler", f"{self._name} has none: give one, or register methods")

    def methods(self) -> list[str]:
        """Return the names of the methods."""
        return sorted(filter(None, self._handlers))

    def described(self) -> dict[str, dict[str, Any]]:
        """Return what is known of each method: JSON Schemas of body and reply."""
        return {name: each.contract.described() for name, each in self._handlers.items() if each.contract is not None}

    def _limiter(self) -> trio.CapacityLimiter:
        if self._threads is None:
            self._threads = trio.CapacityLimiter(self.concurrency)
        return self._threads

    def start(self, rep: Rep, background: Background) -> None:
        """Start to receive."""
        self._rep = rep
        self._background = background
        self._waiting = trio.lowlevel.ParkingLot()  # workers that wait for the turn
        self._start_worker()

    # State

    def load(self) -> float:
        """Return the share of `concurrency` that is in use, with two decimals; over 1 with calls in the queue."""
        return round((self._in_progress + len(self._queue)) / self.concurrency, 2)

    def counters(self) -> dict[str, Any]:
        """Return the fields of ServerStats."""
        times = self._counted()
        threads = 0 if self._threads is None else int(self._threads.borrowed_tokens)
        known = times.count > 0
        return {
            "requests": self._requests,
            "replies": self._replies,
            "errors": self._failures.counts(),
            "in_progress": self._in_progress,
            "queued": len(self._queue),
            "bad": self._bad,
            "abandoned": max(0, threads - self._in_progress),
            "mean": times.mean if known else None,
            "p50": times.at(0.5) if known else None,
            "p99": times.at(0.99) if known else None,
            "refused": {} if self.permits is None else dict(self.permits.rights.refusals),
        }

    def times(self) -> Distribution:
        """Return the times of the calls so far."""
        return self._counted().distribution()

    def _counted(self) -> Histogram:
        self._times.add_many(self._recent)
        self._recent.clear()
        return self._times

    async def until_idle(self) -> None:
        """Wait until no call is running, queued, or still being fetched."""
        while self._in_progress or self._queue or self._streams:
            await self._one_ended()

    async def _one_ended(self) -> None:
        if self._idle is None:
            self._idle = trio.Event()
        await self._idle.wait()

    async def end(self) -> None:
        """Cancel the calls in progress; their callers get an error."""
        self._ending = True
        for scope in list(self._scopes.values()):
            scope.cancel()
        for request, _, _ in self._queue:
            await self._refuse(request, ErrorReply("draining", f"{self._name} has left", ran=False))
        self._queue.clear()
        self._queued.clear()
        with trio.move_on_after(0.2):  # for their errors to be sent
            while self._in_progress:
                await self._one_ended()

    # Workers

    def _start_worker(self) -> None:
        self._workers += 1
        self._background.start(self._work)

    def _pass_on(self, worker: _Worker) -> None:
        """Let another worker receive, as the handler of `worker` waits; from now on it can be stopped."""
        if worker.handler is not None and worker.call is not None:
            worker.waits = True
            self._scopes[worker.call.id] = worker.scope
            if worker.deadline != float("inf"):
                worker.scope.deadline = trio.current_time() + worker.deadline - time.monotonic()
        if self._receiver is worker:
            self._receiver = None
            if self._waiting:
                self._waiting.unpark()
            elif self._workers < (self.concurrency if self.codec is None else self.concurrency + 1):
                self._start_worker()
        if self._in_progress >= self.concurrency and not self._watched:
            self._watched = True
            self._background.start(self._watch)

    def _start(self, worker: _Worker, request: Request, began: float) -> None:
        worker.request = request
        worker.began = began
        self._in_progress += 1

    def _finish(self, worker: _Worker) -> float:
        """Note that the call of `worker` has ended; return time.monotonic()."""
        now = time.monotonic()
        worker.request = worker.call = worker.handler = worker.reply = None
        self._in_progress -= 1
        recent = self._recent
        recent.append(now - worker.began)
        if len(recent) >= RECENT:
            self._counted()
        if self._idle is not None:
            self._notice_idle()
        return now

    async def _watch(self) -> None:
        """Warn if all slots are taken and none becomes free. Ends when one is free."""
        warned = False
        while self._in_progress >= self.concurrency:
            finished = self._counted().count
            await trio.sleep(STUCK)
            if finished == self._counted().count and not warned:
                warned = True
                log.warning("%s: all %d calls in progress run for over %g s", self._name, self.concurrency, STUCK)
        self._watched = False

    def _notice_idle(self) -> None:
        if self._idle is not None:
            self._idle.set()
            self._idle = None

    async def _work(self) -> None:
        """Receive requests for ever, and carry them out."""
        worker = _Worker()
        try:
            while True:
                with trio.CancelScope() as worker.scope:
                    await (self._serve_plainly if self.codec is None else self._serve)(worker)
                if worker.request is None:
                    return
                if worker.scope.cancelled_caught:
                    worker.reply = self._failed(self._stopped(worker))
                await self._send(worker.request, worker.reply or b"")
                self._forget_call(worker)
                self._finish(worker)
        except Closed:
            return
        finally:
            if worker.request is not None:
                self._forget_call(worker)
                self._finish(worker)
            if self._receiver is worker:
                self._receiver = None
                self._waiting.unpark_all()

    async def _turn(self, worker: _Worker) -> None:
        """Wait until it is the turn of `worker` to receive."""
        while self._receiver is not worker:
            if self._receiver is None:
                self._receiver = worker
            else:
                await self._waiting.park()

    async def _serve_plainly(self, worker: _Worker) -> None:
        """Receive, run and reply until the socket is closed, with codec None.

        A handler that does not wait runs in this frame, without a coroutine around it. Replies to requests that were
        received together are sent together.
        """
        handler, taken, clock = self._handlers[""], self._taken, time.monotonic
        bare = not handler.two and not self._middleware
        replies: list[tuple[Request, Payload]] = []
        now = gathered = 0.0  # the time of the last look, and that from which on `replies` are gathered
        try:
            while True:
                if self._receiver is not worker:
                    await self._turn(worker)
                    now = gathered = clock()
                if not taken:  # no more than can run at once: further requests wait in the socket
                    taken.extend(await self._rep.arecv_many(max(1, min(BURST, self.concurrency - self._in_progress))))
                    now = gathered = clock()
                request = taken.popleft()
                self._requests += 1
                if self.permits is None or self._permitted(request):
                    worker.request = request
                    worker.began = now
                    self._in_progress += 1
                    try:
                        running = handler.call(request.body, None) if bare else self._call_plainly(handler, request)
                        try:
                            trap = running.send(None)
                        except StopIteration as end:
                            result = end.value
                        else:
                            if replies:
                                self._send_all(replies)
                            self._pass_on(worker)
                            result = await _go_on(running, trap)
                        if type(result) is not bytes and not isinstance(
                            result, (bytes, bytearray, memoryview, type(None))
                        ):
                            raise TypeError(f"the reply is {type(result).__name__}, not bytes")
                        replies += ((request, result or b""),)
                    except BaseException as error:  # no reply can say so: the caller's timeout ends the call
                        self._failures.count(self._failures.reply(error).kind)
                    now = self._finish(worker)
                if replies and (not taken or self._receiver is not worker or now - gathered > GATHERED):
                    self._send_all(replies)
                    gathered = now
        finally:
            if replies:
                self._send_all(replies)

    def _permitted(self, request: Request) -> bool:
        """Return True if a call without a codec may run; else end its connection, as no reply can say so."""
        assert self.permits is not None
        pipe = request.pipe
        if pipe is not None and not self.permits.may(pipe.who, ""):
            self._rep.disconnect(pipe)
            return False
        return pipe is not None

    async def _call_plainly(self, handler: Handler, request: Request) -> Any:
        if self._middleware:
            calling = Calling(peer=request.pipe, service=self._name, body=request.body)
            return (await self._around(handler, calling)).body
        return await handler.call(request.body, Calling(peer=request.pipe))

    async def _serve(self, worker: _Worker) -> None:
        """Receive requests, with a codec: carry out notices, queue or run calls.

        Returns when the scope of `worker` was cancelled, before it has replied.
        """
        taken = self._taken
        while worker.request is None:
            if self._queue and self._in_progress < self.concurrency:
                request, call, deadline = self._queue.popleft()
                self._queued.discard(call.id)
                answering: Coroutine[Any, Any, object] | None = self._run(worker, request, call, deadline)
            else:
                if self._receiver is not worker:
                    await self._turn(worker)
                if not taken:
                    taken.extend(await self._rep.arecv_many(BURST))
                answering = self._accept(worker, taken.popleft())
            if answering is None:
                continue
            try:
                trap = answering.send(None)
            except StopIteration:
                continue
            self._pass_on(worker)
            await _go_on(answering, trap)

    # Requests

    def _accept(self, worker: _Worker, request: Request) -> Coroutine[Any, Any, object] | None:
        """Return what is to be done for a request; None for a call that was queued."""
        assert self.codec is not None
        pipe = request.pipe
        peer = pipe.address if pipe else None
        try:
            asked = parse_request(request.body, self.codec, limit=self.limit, peer=peer)
        except (BadMessage, TooLarge) as error:
            self._bad += 1
            if self._bad == 1:
                log.warning("%s: a request is refused, as are all further ones of this kind: %s", self._name, error)
            return self._refuse(request, ErrorReply(REFUSED, str(error), ran=False))
        match asked:
            case CallRequest():
                return self._accept_call(worker, request, asked)
            case MoreRequest(number):
                return self._more(request, number)
            case CancelRequest(number):
                self._cancel(number)
                reply: DoneReply | ResultReply = DoneReply()
            case _:
                reply = ResultReply(self._plain[type(asked)]())
        return self._send(request, reply.encode(self.codec))

    def _accept_call(self, worker: _Worker, request: Request, call: CallRequest) -> Coroutine[Any, Any, object] | None:
        self._requests += 1
        handler, permits = self._handlers.get(call.method), self.permits
        if permits is not None and not permits.may(who := _who(request), call.method):
            refusal = ErrorReply(DENIED, f"{who}: it may not call {permits.target(call.method)}", ran=False)
        elif self.draining:
            refusal = ErrorReply("draining", f"{self._name} is leaving", ran=False)
        elif self.unhealthy:
            refusal = ErrorReply("unhealthy", self.unhealthy, ran=False)
        elif handler is None:
            known = ", ".join(self.methods()) or "none"
            what = f"no method {call.method!r}" if call.method else "a method must be named"
            refusal = ErrorReply("no method", f"{what}; known: {known}", ran=False)
        elif handler.streams and not call.stream:
            refusal = ErrorReply(REFUSED, "its reply is a stream: call it with stream()", ran=False)
        elif call.id in self._scopes or call.id in self._streams or call.id in self._queued:
            refusal = ErrorReply(REFUSED, f"the call {call.id} is in progress", ran=False)
        else:
            deadline = float("inf") if call.timeout is None else time.monotonic() + call.timeout
            if self._in_progress < self.concurrency:
                return self._run(worker, request, call, deadline)
            if len(self._queue) < self._most_queued:
                self._queue.append((request, call, deadline))
                self._queued.add(call.id)
                return None
            refusal = ErrorReply("busy", f"{self._in_progress} calls run and {len(self._queue)} wait", ran=False)
        return self._refuse(request, refusal)

    def _cancel(self, number: str) -> None:
        scope = self._scopes.get(number)
        if scope is not None:
            scope.cancel()
        if (streaming := self._streams.get(number)) is not None:
            streaming.stop()
        if number in self._queued:
            self._queued.discard(number)
            self._queue = deque(item for item in self._queue if item[1].id != number)
            self._notice_idle()

    def _failed(self, error: ErrorReply) -> bytes:
        """Count an error; return its bytes."""
        assert self.codec is not None
        self._failures.count(error.kind)
        return self._failures.encode(error, self.codec, self.limit)

    def _send_at_once(self, request: Request, data: Payload) -> bool:
        """Send a reply; return False, without a change, if `_send` has to wait, or to say why it cannot."""
        try:
            return request.reply_if_room(data)
        except NngkitError:
            return False

    def _send_all(self, replies: list[tuple[Request, Payload]]) -> None:
        """Send replies, and remove them from the list; those that have to wait for room in a task of their own."""
        if len(replies) == 1 and self._send_at_once(*replies[0]):
            waiting: list[tuple[Request, Payload]] = []
        else:
            try:
                waiting = [replies[index] for index in self._rep.reply_many(replies)]
            except NngkitError:  # `_send` says why
                waiting = replies[:]
        self._replies += len(replies) - len(waiting)
        replies.clear()
        if waiting:
            self._in_progress += len(waiting)
            self._background.start(self._send_waiting, waiting)

    async def _send_waiting(self, waiting: list[tuple[Request, Payload]]) -> None:
        try:
            for request, data in waiting:
                self._replies += await self._send(request, data)
        except Closed as closed:
            log.debug("%s: %s", self._name, closed)
        finally:
            self._in_progress -= len(waiting)
            self._notice_idle()

    async def _refuse(self, request: Request, error: ErrorReply) -> None:
        await self._send(request, self._failed(error))

    async def _send(self, request: Request, data: Payload) -> bool:
        try:
            await request.areply(data)
        except Closed:
            raise
        except NngkitError as error:
            log.debug("%s: not answered: %s", self._name, error)
            return False
        return True

    # Running

    async def _run(self, worker: _Worker, request: Request, call: CallRequest, deadline: float) -> None:
        """Run one call, and reply, unless the worker's scope was cancelled meanwhile."""
        now = time.monotonic()
        self._start(worker, request, now)
        handler = self._handlers[call.method]
        if now >= deadline:
            await self._refuse(request, ErrorReply("deadline", "it passed in the queue", ran=False))
            self._finish(worker)
            return
        body, contract = call.body, handler.contract
        if contract is not None and contract.body is not None:
            try:
                body = contract.read_body(body)
            except ValueError as wrong:
                refusal = ErrorReply(REFUSED, f"{call.method or 'the body'}: {wrong}", ran=False)
                await self._refuse(request, refusal)
                self._finish(worker)
                return
        calling: Calling | None = None
        if handler.two or self._middleware:
            calling = Calling(
                call.method,
                call.id,
                deadline,
                request.pipe,
                call.headers or {},
                service=self._name,
                body=body,
                stream=call.stream,
            )
        if call.stream and handler.streams:
            await self._run_stream(request, call, body, handler, calling, deadline)
            self._finish(worker)
            return
        worker.call, worker.handler, worker.deadline = call, handler, deadline
        error: ErrorReply | None = None
        value: Any = None
        back = None if calling is None else calling.reply_headers
        try:
            if self._middleware:
                assert calling is not None
                replied = await self._around(handler, calling)
                value, back = replied.body, replied.headers
            else:
                value = await handler.call(body, calling)
        except BaseException as failed:
            error = self._failures.reply(failed)
            if back:
                error = replace(error, headers=back)
        worker.handler = None
        reply = self._encoded(call, contract, value, back) if error is None else self._failed(error)
        if worker.waits and self._forget_call(worker):
            worker.reply = reply
            return
        if not self._send_at_once(request, reply):
            await self._send(request, reply)
        self._finish(worker)

    async def _around(self, handler: Handler, calling: Calling) -> Reply:
        """Run a handler within the middleware."""

        async def proceed(changed: Calling) -> Reply:
            value = await handler.call(changed.body, changed if handler.two else None)
            return Reply(value, changed.reply_headers)

        reply = await chain(self._middleware, proceed)(calling)
        if reply.headers and self.codec is None:
            raise ConfigError("headers", "need a codec: codec='cbor' or 'json'", reply.headers)
        return reply

    def _encoded(
        self, call: CallRequest, contract: Contract | None, value: Any, headers: dict[str, str | bytes] | None
    ) -> bytes:
        """Return the bytes of a result, or of the error that it cannot be sent."""
        assert self.codec is not None
        try:
            back = check_headers(headers) if headers else None
            if contract is not None and contract.reply is not None:
                value = contract.write(value)
            result = PartsReply((value,), True, back) if call.stream else ResultReply(value, back)
            data = result.encode(self.codec, self.limit)
        except TooLarge as large:
            return self._failed(ErrorReply("too large", f"the reply: {large}"))
        except (TypeError, ValueError) as unusable:
            return self._failed(self._failures.reply(TypeError(f"the reply cannot be encoded: {unusable}")))
        self._replies += 1
        return data

    def _forget_call(self, worker: _Worker) -> bool:
        """End what `_pass_on` has begun; return True if the scope is used up."""
        if not worker.waits:
            return False
        assert worker.call is not None
        worker.waits = False
        self._scopes.pop(worker.call.id, None)
        used = worker.scope.cancel_called
        worker.scope.deadline = float("inf")
        return used

    def _stopped(self, worker: _Worker) -> ErrorReply:
        if worker.handler is not None:
            self._note_abandoned(worker.handler)
        return self._why_stopped(worker.scope)

    def _why_stopped(self, scope: trio.CancelScope) -> ErrorReply:
        if self._ending:
            return ErrorReply("cancelled", f"{self._name} has left")
        if trio.current_time() >= scope.deadline:
            return ErrorReply("deadline", "the handler was stopped at the deadline")
        return ErrorReply("cancelled", "the caller has given up")

    def _note_abandoned(self, handler: Handler) -> None:
        if handler.plain and not self._abandoned_logged:
            self._abandoned_logged = True
            why = "after its call has ended, and takes a slot until it returns; further ones are only counted"
            log.warning("%s: the thread of a handler runs on %s", self._name, why)

    # Streams

    async def _run_stream(
        self, request: Request, call: CallRequest, body: Any, handler: Handler, calling: Calling | None, deadline: float
    ) -> None:
        streaming = Streaming(request.pipe, {} if calling is None else calling.reply_headers)
        number = call.id
        while len(self._streams) >= MOST_STREAMS:
            self._streams.pop(next(iter(self._streams))).drained.set()
        self._streams[number] = streaming
        self._reply_parts(request, streaming)
        self._background.start(self._forget, number, streaming)
        error: ErrorReply | None = None
        until = trio.current_time() + deadline - time.monotonic()
        scope = self._scopes[number] = trio.CancelScope(deadline=until)
        try:
            with scope:
                if self._middleware:
                    assert calling is not None
                    await self._stream_around(streaming, handler, calling)
                else:
                    await streaming.produce(handler, body, calling)
        except Unread:
            error = ErrorReply("gone", f"no parts were fetched for {IDLE:g} s")
        except BaseException as failed:
            error = self._failures.reply(failed)
        finally:
            self._scopes.pop(number, None)
        if scope.cancelled_caught:
            error = self._why_stopped(scope)
            self._note_abandoned(handler)
        self._replies += error is None
        if error is not None:
            self._failures.count(error.kind)
            if calling is not None and calling.reply_headers:
                error = replace(error, headers=calling.reply_headers)
        streaming.end(error)

    async def _stream_around(self, streaming: Streaming, handler: Handler, calling: Calling) -> None:
        """Run a streaming handler within the middleware."""

        async def proceed(changed: Calling) -> Reply:
            await streaming.produce(handler, changed.body, changed if handler.two else None)
            return Reply(None, calling.reply_headers)

        reply = await chain(self._middleware, proceed)(calling)
        if reply.headers is not calling.reply_headers:
            calling.reply_headers.update(reply.headers)

    async def _more(self, request: Request, number: str) -> None:
        streaming = self._streams.get(number)
        if streaming is None:
            await self._refuse(request, ErrorReply("gone", f"there is no stream {number}"))
        elif streaming.asked:
            await self._refuse(request, ErrorReply(REFUSED, f"parts of {number} were asked for already"))
        else:
            self._reply_parts(request, streaming)

    def _reply_parts(self, request: Request, streaming: Streaming) -> None:
        streaming.asked = True
        self._background.start(self._send_parts, request, streaming)

    async def _send_parts(self, request: Request, streaming: Streaming) -> None:
        assert self.codec is not None
        try:
            data = await streaming.reply(self.codec, self.limit, self._failures.encode)
        except (TypeError, ValueError) as error:
            failed = self._failures.reply(TypeError(f"a part cannot be encoded: {error}"))
            data = self._failures.encode(failed, self.codec, self.limit)
            streaming.end(failed)
            streaming.drained.set()
        streaming.asked = False
        try:
            await self._send(request, data)
        except Closed as closed:
            log.debug("%s: %s", self._name, closed)

    def caller_left(self, pipe: int) -> None:
        """Stop the streams of a caller whose connection has ended: parts sent to it would be lost."""
        for streaming in self._streams.values():
            if streaming.caller is not None and streaming.caller.id == pipe:
                streaming.stop()

    async def _forget(self, number: str, streaming: Streaming) -> None:
        """Forget a stream once its parts were fetched, or IDLE seconds after its handler has ended."""
        while not streaming.drained.is_set():
            with trio.move_on_after(IDLE):
                await streaming.drained.wait()
            if number not in self._scopes and not streaming.asked:
                break
        scope = self._scopes.get(number)
        if scope is not None and streaming.drained.is_set():
            scope.cancel()  # the caller has gone
        if self._streams.get(number) is streaming:
            del self._streams[number]
        self._notice_idle()


def _who(request: Request) -> str | None:
    pipe = request.pipe
    return None if pipe is None else pipe.who


@coroutine
def _go_on(running: Coroutine[Any, Any, Any], trap: Any) -> Generator[Any, Any, Any]:
    """Run a coroutine that waits by `trap` to its end; return its result."""
    value: Any = None
    try:
        while True:
            resume: Callable[[Any], Any] = running.send
            try:
                value = yield trap
            except BaseException as error:  # the loop's, for the coroutine
                value, resume = error, running.throw
            trap = resume(value)
    except StopIteration as end:
        return end.value
    finally:
        running.close()
        del value  # an error refers to this frame
