"""Requests that are messages: a call is refused, queued or run, a cancellation obeyed, a question answered."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import trio
from msgspec.structs import replace

from nngkit.calls.handlers import Calling
from nngkit.calls.messages import (
    BAD_REQUEST,
    BUSY,
    DEADLINE,
    DRAINING,
    CallRequest,
    CancelRequest,
    Codec,
    DoneReply,
    ErrorReply,
    MoreRequest,
    PartsReply,
    ResultReply,
    parse_request,
)
from nngkit.calls.serving.failures import Failures
from nngkit.calls.serving.methods import Methods
from nngkit.calls.serving.progress import Progress, Worker
from nngkit.calls.serving.replies import Replies
from nngkit.calls.serving.streams import Streams
from nngkit.calls.serving.workers import BURST, Workers, go_on
from nngkit.calls.texts import text_of
from nngkit.calls.typed import Contract
from nngkit.errors import BadMessage, TooLarge
from nngkit.headers import check_headers
from nngkit.protocols import Request
from nngkit.tracing import Spans

log = logging.getLogger("nngkit.calls")


@dataclass(eq=False)
class WithCodec:
    """Carries out the requests to a server with a codec.

    `bad`: requests that were no messages. `queue`: calls that wait, by their ids, with their deadlines. `questions`:
    about the server itself, and what answers them. `spans`: of calls without middleware.
    """

    name: str
    codec: Codec
    limit: int
    most_queued: int
    questions: dict[type, Callable[[], dict[str, Any]]]
    methods: Methods
    progress: Progress
    failures: Failures
    replies: Replies
    streams: Streams
    workers: Workers
    spans: Spans | None
    bad: int = 0
    queue: OrderedDict[str, tuple[Request, CallRequest, float]] = field(default_factory=OrderedDict)

    async def work(self) -> None:
        """Receive requests for ever, and carry them out."""
        with self.workers.working() as worker:
            while True:
                with trio.CancelScope() as worker.scope:
                    await self._serve(worker)
                assert worker.request is not None
                if worker.scope.cancelled_caught:
                    worker.reply = self.failures.counted(self.failures.stopped(worker.handler, worker.scope))
                await self.replies.send(worker.request, worker.reply or b"")
                self.workers.disarm(worker)
                self.progress.finish(worker)

    async def _serve(self, worker: Worker) -> None:
        """Carry out requests; return when the scope of `worker` was cancelled, before it has replied."""
        workers, queue, progress = self.workers, self.queue, self.progress
        taken = workers.taken
        while worker.request is None:
            if queue and progress.in_progress < progress.concurrency:
                _, (request, call, deadline) = queue.popitem(last=False)
                answering: Coroutine[Any, Any, object] | None = self._run(worker, request, call, deadline)
            else:
                if workers.receiver is not worker:
                    await workers.turn(worker)
                if not taken:
                    taken.extend(await workers.rep.arecv_many(BURST))
                answering = self._accept(worker, taken.popleft())
            if answering is None:
                continue
            try:
                trap = answering.send(None)
            except StopIteration:
                continue
            workers.pass_on(worker)
            await go_on(answering, trap)

    def _accept(self, worker: Worker, request: Request) -> Coroutine[Any, Any, object] | None:
        """Return what is to be done for a request; None for a call that was queued."""
        pipe = request.pipe
        try:
            asked = parse_request(request.body, self.codec, limit=self.limit, peer=pipe.address if pipe else None)
        except (BadMessage, TooLarge) as error:
            self.bad += 1
            if self.bad == 1:
                log.warning("%s: a request is refused, as are all further ones of this kind: %s", self.name, error)
            return self._refuse(request, ErrorReply(BAD_REQUEST, str(error), ran=False))
        match asked:
            case CallRequest():
                return self._accept_call(worker, request, asked)
            case MoreRequest(number):
                return self.streams.more(request, number)
            case CancelRequest(number):
                self._cancel(number)
                reply = DoneReply().encode(self.codec)
            case _:
                try:
                    reply = ResultReply(self.questions[type(asked)]()).encode(self.codec, self.limit)
                except Exception as unusable:
                    reply = self._unusable(unusable)
        return self.replies.send(request, reply)

    def _accept_call(self, worker: Worker, request: Request, call: CallRequest) -> Coroutine[Any, Any, object] | None:
        progress, queue = self.progress, self.queue
        progress.requests += 1
        if (refusal := self.methods.refusal(call, request)) is not None:
            return self._refuse(request, refusal)
        if call.id in self.workers.scopes or call.id in self.streams.by_id or call.id in queue:
            return self._refuse(request, ErrorReply(BAD_REQUEST, f"the call {call.id} is in progress", ran=False))
        deadline = float("inf") if call.timeout is None else time.monotonic() + call.timeout
        if progress.in_progress < progress.concurrency:
            return self._run(worker, request, call, deadline)
        if len(queue) < self.most_queued:
            queue[call.id] = request, call, deadline
            return None
        busy = f"{progress.in_progress} calls run and {len(queue)} wait"
        return self._refuse(request, ErrorReply(BUSY, busy, ran=False))

    def _refuse(self, request: Request, error: ErrorReply) -> Coroutine[Any, Any, bool]:
        return self.replies.send(request, self.failures.counted(error))

    def _cancel(self, number: str) -> None:
        scope = self.workers.scopes.get(number)
        if scope is not None:
            scope.cancel()
        self.streams.cancel(number)
        if self.queue.pop(number, None) is not None:
            self.progress.changed()

    async def end(self) -> None:
        """Cancel the calls in progress, and refuse those in the queue: the server has left."""
        self.failures.ending = True
        for scope in list(self.workers.scopes.values()):
            scope.cancel()
        self.streams.end()
        while self.queue:
            _, (request, _, _) = self.queue.popitem(last=False)
            await self._refuse(request, ErrorReply(DRAINING, f"{self.name} has left", ran=False))

    async def _run(self, worker: Worker, request: Request, call: CallRequest, deadline: float) -> None:
        """Run one call, and reply, unless the worker's scope was cancelled meanwhile."""
        worker.request = request
        worker.began = now = time.monotonic()
        self.progress.in_progress += 1
        method = self.methods.by_name[call.method]
        handler, contract, body = method.handler, method.contract, call.body
        refusal: ErrorReply | None = None
        if now >= deadline:
            refusal = ErrorReply(DEADLINE, "it passed in the queue", ran=False)
        elif contract is not None and contract.body is not None:
            try:
                body = contract.read_body(body)
            except ValueError as wrong:
                refusal = ErrorReply(BAD_REQUEST, f"{call.method or 'the body'}: {wrong}", ran=False)
        if refusal is not None:
            await self._refuse(request, refusal)
            self.progress.finish(worker)
            return
        calling: Calling | None = None
        if handler.two or handler.streams or method.around is not None:
            given = call.headers or {}
            calling = Calling(
                call.method, call.id, deadline, request.pipe, given, {}, self.name, body, stream=call.stream
            )
        if handler.streams:
            assert calling is not None
            await self.streams.run(request, call, method, body, calling, deadline)
            self.progress.finish(worker)
            return
        worker.call, worker.handler, worker.deadline = call, handler, deadline
        back = None if calling is None else calling.reply_headers
        try:
            if method.around is not None:
                replied = await method.around(calling)
                value, back = replied.body, replied.headers
            elif self.spans is None:
                value = await handler.call(body, calling)
            else:
                with self.spans.serving(self.name, call.method, call.headers or {}, request.pipe):
                    value = await handler.call(body, calling)
        except BaseException as failed:
            error = self.failures.reply(failed)
            reply = self.failures.counted(replace(error, headers=back) if back else error)
        else:
            reply = self._result(call, contract, value, back)
        worker.handler = None
        if worker.waits and self.workers.disarm(worker):
            worker.reply = reply
            return
        if not self.replies.send_at_once(request, reply):
            await self.replies.send(request, reply)
        self.progress.finish(worker)

    def _result(
        self, call: CallRequest, contract: Contract | None, value: Any, headers: dict[str, str | bytes] | None
    ) -> bytes:
        """Return the bytes of a result, or of the error that it cannot be sent."""
        try:
            back = check_headers(headers) if headers else None
            if contract is not None and contract.reply is not None:
                value = contract.write(value)
            result = PartsReply((value,), True, back) if call.stream else ResultReply(value, back)
            data = result.encode(self.codec, self.limit)
        except Exception as unusable:
            return self._unusable(unusable)
        self.progress.replies += 1
        return data

    def _unusable(self, error: Exception) -> bytes:
        """Return the bytes of the error that a reply cannot be sent.

        It may be of any class: a cycle, or a map that another thread changes, ends the encoder in its own way.
        """
        if isinstance(error, TooLarge):
            return self.failures.counted(ErrorReply("too large", f"the reply: {error}"))
        return self.failures.counted(self.failures.reply(TypeError(f"the reply cannot be encoded: {text_of(error)}")))
