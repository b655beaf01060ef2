"""Calls at a server as a whole: its methods, what carries them out, what is counted, and the end of them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from nngkit.background import Background
from nngkit.calls.messages import Codec, InfoRequest, PingRequest, StatsRequest
from nngkit.calls.middleware import Middleware
from nngkit.calls.serving.failures import Failures
from nngkit.calls.serving.methods import Methods
from nngkit.calls.serving.progress import Progress
from nngkit.calls.serving.replies import Replies
from nngkit.calls.serving.streams import Streams
from nngkit.calls.serving.with_codec import WithCodec
from nngkit.calls.serving.without_codec import WithoutCodec
from nngkit.calls.serving.workers import Workers
from nngkit.histogram import Distribution
from nngkit.protocols import Rep
from nngkit.tracing import Spans
from nngkit.trust import Trust


class Running:
    """Calls of one server. `info`: what it tells its callers of itself."""

    def __init__(
        self,
        name: str,
        background: Background,
        *,
        codec: Codec | None,
        concurrency: int,
        queue: int,
        limit: int,
        info: Callable[[], dict[str, Any]],
        trust: Trust | None,
        spans: Spans | None,
        middleware: tuple[Middleware, ...],
    ) -> None:
        around = middleware if spans is None or codec is None else (spans.server, *middleware)  # no codec, no headers
        self.methods = methods = Methods(name, codec, concurrency, trust, around if middleware else ())
        self._progress = progress = Progress(name, concurrency)
        self._failures = failures = Failures(name, codec, limit)
        self._replies = replies = Replies(name, progress, background)
        # with a codec one more receives while all run: to queue or refuse calls, and to obey cancellations
        self._workers = workers = Workers(progress, background, concurrency + (codec is not None))
        self._with_codec: WithCodec | None = None
        if codec is None:
            self._work = WithoutCodec(name, methods, progress, failures, replies, workers).work
            return
        questions: dict[type, Callable[[], dict[str, Any]]] = {
            InfoRequest: info,
            StatsRequest: self.counters,
            PingRequest: lambda: {"name": name},
        }
        streams = Streams(name, codec, limit, around, progress, failures, replies, background)
        self._with_codec = WithCodec(
            name, codec, limit, queue, questions, methods, progress, failures, replies, streams, workers, spans
        )
        self._work = self._with_codec.work

    def start(self, rep: Rep) -> None:
        """Start to receive."""
        self._workers.rep = self._replies.rep = rep
        self._workers.start(self._work)

    def load(self) -> float:
        """Return the share of `concurrency` that is in use, with two decimals; over 1 with calls in the queue."""
        return round((self._progress.in_progress + self._queued) / self._progress.concurrency, 2)

    def counters(self) -> dict[str, Any]:
        """Return the fields of ServerStats that are messages to callers too."""
        progress, permits = self._progress, self.methods.permits
        return {
            "requests": progress.requests,
            "replies": progress.replies,
            "errors": self._failures.counts(),
            "in_progress": progress.in_progress,
            "queued": self._queued,
            "bad": 0 if self._with_codec is None else self._with_codec.bad,
            "abandoned": max(0, self.methods.threads - progress.in_progress),
            **progress.times.typical(),
            "refused": {} if permits is None else dict(permits.rights.refusals),
        }

    def times(self) -> Distribution:
        """Return the times of the calls so far."""
        return self._progress.times.distribution()

    @property
    def _queued(self) -> int:
        return 0 if self._with_codec is None else len(self._with_codec.queue)

    def caller_left(self, pipe: int) -> None:
        """Stop the streams of a caller whose connection has ended: parts sent to it would be lost."""
        if self._with_codec is not None:
            self._with_codec.streams.caller_left(pipe)

    async def until_idle(self) -> None:
        """Wait until no call is running, queued, or still being fetched."""
        await self._progress.until(self._is_idle)

    def _is_idle(self) -> bool:
        fetched = self._with_codec is not None and self._with_codec.streams.by_id
        return not (self._progress.in_progress or self._queued or fetched)

    async def end(self) -> None:
        """Cancel the calls in progress; their callers get an error."""
        if self._with_codec is not None:
            await self._with_codec.end()
        with trio.move_on_after(0.2):  # for their errors to be sent
            await self._progress.until(lambda: not self._progress.in_progress)
