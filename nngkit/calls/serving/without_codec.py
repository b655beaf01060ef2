"""Requests that are bodies, with codec None: there is nothing to obey, and nothing to refuse with.

So requests beyond `concurrency` wait in the socket, and a call that fails gets no reply: its caller's timeout ends it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from nngkit.calls.handlers import Calling
from nngkit.calls.serving.failures import Failures
from nngkit.calls.serving.methods import Method, Methods
from nngkit.calls.serving.progress import Progress
from nngkit.calls.serving.replies import Replies
from nngkit.calls.serving.workers import BURST, Workers, go_on
from nngkit.errors import ConfigError
from nngkit.protocols import Payload, Request

GATHERED: Final = 0.0001
"""Seconds after which replies wait for no more: a write costs as much as some ten of them. Longer, and a caller of many
idles while all of them are answered, and the server while the caller works on all replies."""


@dataclass(eq=False)
class WithoutCodec:
    """Runs the requests to a server without a codec."""

    name: str
    methods: Methods
    progress: Progress
    failures: Failures
    replies: Replies
    workers: Workers

    async def work(self) -> None:
        """Receive, run and reply for ever.

        A handler that does not wait runs in this frame, without a coroutine around it. Replies to requests that were
        received together are sent together, as far as they are ready within GATHERED.
        """
        workers, progress, clock = self.workers, self.progress, time.monotonic
        method, taken, permits = self.methods.by_name[""], workers.taken, self.methods.permits
        handler = method.handler
        bare = not handler.two and method.around is None
        replies: list[tuple[Request, Payload]] = []
        now = gathered = 0.0  # the time of the last look, and that from which on `replies` are gathered
        with workers.working() as worker:
            try:
                while True:
                    if workers.receiver is not worker:
                        await workers.turn(worker)
                        now = gathered = clock()
                    if not taken:  # no more than can run at once: further requests wait in the socket
                        room = progress.concurrency - progress.in_progress
                        taken.extend(await workers.rep.arecv_many(max(1, min(BURST, room))))
                        now = gathered = clock()
                    request = taken.popleft()
                    progress.requests += 1
                    if permits is None or self._permitted(request):
                        worker.request = request
                        worker.began = now
                        progress.in_progress += 1
                        try:
                            running = handler.call(request.body, None) if bare else self._call(method, request)
                            try:
                                trap = running.send(None)
                            except StopIteration as end:
                                result = end.value
                            else:
                                if replies:
                                    self.replies.send_all(replies)
                                workers.pass_on(worker)
                                result = await go_on(running, trap)
                            if type(result) is not bytes and not isinstance(
                                result, (bytes, bytearray, memoryview, type(None))
                            ):
                                raise TypeError(f"the reply is {type(result).__name__}, not bytes")
                            replies += ((request, result or b""),)
                        except BaseException as error:  # no reply can say so: the caller's timeout ends the call
                            self.failures.count(self.failures.reply(error).kind)
                        now = progress.finish(worker)
                    if replies and (not taken or workers.receiver is not worker or now - gathered > GATHERED):
                        self.replies.send_all(replies)
                        gathered = now
            finally:
                if replies:
                    self.replies.send_all(replies)

    def _permitted(self, request: Request) -> bool:
        """Return True if a call may run; else end its connection, as no reply can say so."""
        permits, pipe = self.methods.permits, request.pipe
        assert permits is not None
        if pipe is not None and not permits.may(pipe.who, ""):
            self.workers.rep.disconnect(pipe)
            return False
        return pipe is not None

    async def _call(self, method: Method, request: Request) -> Any:
        calling = Calling(peer=request.pipe, service=self.name, body=request.body)
        if method.around is None:
            return await method.handler.call(request.body, calling)
        reply = await method.around(calling)
        if reply.headers:
            raise ConfigError("headers", "need a codec: codec='cbor' or 'json'", reply.headers)
        return reply.body
