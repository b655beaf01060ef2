"""Jobs of an endpoint: the functions that do them, and the handles of those that it has submitted.

The decisions are in nngkit.cluster.jobs; this runs functions in tasks and threads, and wakes all waiters.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping
from contextlib import aclosing, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import trio

from nngkit import tracing
from nngkit.background import Background, Calling
from nngkit.calls.handlers import Handler, cause, order_to_end
from nngkit.calls.middleware import Middleware, Reply, chain
from nngkit.calls.texts import text_of
from nngkit.cluster.frames import as_bytes
from nngkit.cluster.jobs.messages import JobPart, JobProgressed, is_seconds
from nngkit.cluster.jobs.part import JobStart, JobStop, RoomForJobs
from nngkit.cluster.jobs.submitter import JobAccepted, JobEnded
from nngkit.cluster.jobs.values import CrewJob
from nngkit.cluster.node.node import Node
from nngkit.cluster.rights import RIGHT
from nngkit.cluster.shell.jobs import Job, JobRun
from nngkit.cluster.shell.map import Ahead
from nngkit.errors import AccessDenied, ConfigError, Full, JobFailed, TooLarge
from nngkit.headers import check_headers, pack_headers

log = logging.getLogger("nngkit.cluster")

MOST_CONCURRENCY: Final = 10_000
HANGS: Final = 1.0  # seconds after which the function of a stopped job is said to hang
SPARE_THREADS: Final = 16  # threads of functions that hang, beside three for each run: few enough to hold their memory
THREADS_LOOK: Final = 0.5  # seconds between two looks whether such threads have returned
YIELD_EVERY: Final = 32  # jobs of one task in a row: about a millisecond of empty ones
OF_THE_HOST: Final = ("", "lost", "timeout", "deadline", "cancelled", "JobFailed")  # errors whose text says it all
DRAIN: Final = 3600.0  # seconds that running jobs may take when a node leaves
HANDOVER: Final = 5.0  # seconds without a result that is taken, until it leaves with the rest: longer than an election

_UNTRACED: Final = nullcontext()
_WORKING: ContextVar[Workers | None] = ContextVar("_WORKING", default=None)  # those whose function a thread runs


class Shell(Protocol):
    """Interface of the endpoint."""

    id: str
    _node: Node
    _background: Background

    def _act_soon(self) -> None: ...
    def _set_work(self) -> None: ...
    def _check_open(self) -> None: ...


@dataclass(eq=False)
class _Function:
    """The function of a kind, its name, and the jobs that wait for one of its tasks: at most `concurrency`."""

    handler: Handler
    concurrency: int
    timeout: float | None
    name: str
    tasks: int = 0
    waiting: deque[CrewJob] = field(default_factory=deque)


class Workers:
    """Functions and jobs of one endpoint. `middleware`: around each try of a job."""

    def __init__(self, shell: Shell, middleware: tuple[Middleware, ...] = ()) -> None:
        self._shell = shell
        self._middleware = middleware
        self._functions: dict[str, _Function] = {}
        self._concurrency = 0
        self._scopes: dict[CrewJob, trio.CancelScope] = {}
        self._threads = trio.CapacityLimiter(1)  # see `_thread_limiter`
        self._threads_of: dict[CrewJob, threading.Thread] = {}  # that run plain functions
        self._in_threads = 0  # runs of plain functions whose outcome is awaited
        self._choked = False  # too many threads were abandoned: no jobs of plain functions are taken
        self._token: trio.lowlevel.TrioToken | None = None
        self._jobs: dict[int, Job] = {}
        self._accepting: dict[int, trio.Event] = {}
        self._room = trio.Event()
        self._acted = trio.Event()  # the next time that effects are carried out, for those that drain
        self._serving: set[trio.lowlevel.Task] = set()
        self._draining = False
        self._closed = False

    @property
    def slots(self) -> int:
        """Runs of all functions at a time."""
        return self._concurrency

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds whose jobs can be done."""
        return frozenset(self.concurrency)

    @property
    def concurrency(self) -> dict[str, int]:
        """Jobs at a time of each kind that can be done: it has a function, and a thread for it if it needs one."""
        functions = self._functions.items()
        return {kind: each.concurrency for kind, each in functions if not (self._choked and each.handler.plain)}

    # ---- functions

    def register(self, kind: str, function: Callable[..., Any], concurrency: int, timeout: float | None = None) -> None:
        """Set the function of a kind. Raises ConfigError."""
        if kind in self._functions:
            raise ConfigError("kind", f"{kind!r} has a function", kind)
        if not isinstance(concurrency, int) or not 1 <= concurrency <= MOST_CONCURRENCY:
            why = f"{concurrency!r} is not a whole number from 1 to {MOST_CONCURRENCY}"
            raise ConfigError("concurrency", why, concurrency)
        if timeout is not None and not (is_seconds(timeout) and timeout > 0):
            raise ConfigError("timeout", f"{timeout!r} is not a time in seconds", timeout)
        handler = Handler(function, self._thread_limiter)
        if handler.plain and not handler.streams and not handler.two:
            handler = Handler(partial(self._in_thread, function), self._thread_limiter)
        name = getattr(function, "__qualname__", None) or repr(function)
        self._functions[kind] = _Function(handler, concurrency, timeout, name)
        self._concurrency += concurrency

    def _in_thread(self, function: Callable[[JobRun], Any], run: JobRun) -> Any:
        """Call a plain function in its thread, which has the name of the job until it returns."""
        thread = threading.current_thread()
        before, thread.name = thread.name, f"job {run.id} ({run.kind})"
        self._threads_of[run._job] = thread
        try:
            return function(run)
        finally:
            del self._threads_of[run._job]
            thread.name = before

    async def _name_if_it_hangs(self, function: _Function, job: CrewJob) -> None:
        """Log the thread of a stopped job that does not return: Python cannot end it."""
        await trio.sleep(HANGS)
        if (thread := self._threads_of.get(job)) is not None:
            log.warning(
                "%s: job %d of %r was stopped, and its function %s has not returned since: the thread %r hangs",
                *(self._shell.id, job.serial, job.kind, function.name, thread.name),
            )

    def opened(self) -> None:
        """Note the loop: functions in threads report to it."""
        self._token = trio.lowlevel.current_trio_token()

    def _thread_limiter(self) -> trio.CapacityLimiter:
        """Return the limiter of threads: it never holds up a job, as `_serve` runs at most `concurrency` of a kind.

        A function that hangs keeps its thread after its job was stopped; the rest is room for those.
        """
        self._threads.total_tokens = 4 * self._concurrency + SPARE_THREADS
        return self._threads

    def _look_at_threads(self) -> None:
        """Take no jobs of plain functions while so many threads are abandoned that the next might wait for one."""
        limiter = self._thread_limiter()
        abandoned = limiter.borrowed_tokens - self._in_threads
        choked = limiter.total_tokens - abandoned < self._concurrency
        if choked == self._choked or self._closed:
            return
        self._choked = choked
        if choked:
            kinds = {job.kind for job in list(self._threads_of) if job not in self._scopes}
            log.warning(
                "%s: %d threads of functions that hang: it takes no jobs of plain functions until some return (%s)",
                *(self._shell.id, abandoned, ", ".join(sorted(kinds))),
            )
            self._shell._background.start(self._watch_threads)
        self._shell._set_work()

    async def _watch_threads(self) -> None:
        while self._choked:
            await trio.sleep(THREADS_LOOK)
            self._look_at_threads()

    def happened(self, event: object) -> None:
        """Take in an event of the node."""
        match event:
            case JobStart(job):
                self._queue(job)
            case JobStop(job):
                if (scope := self._scopes.get(job)) is not None:
                    scope.cancel()
                elif job in (queue := self._functions[job.kind].waiting):
                    queue.remove(job)
                    self._shell._node.work.crew.released(job, trio.current_time())
                # else it has ended since the crew decided to stop it: events come up to `SPACING` later
            case RoomForJobs():
                self._room.set()
                self._room = trio.Event()
            case JobAccepted(numbers, serials):
                for number, serial in zip(numbers, serials, strict=True):
                    if (own := self._jobs.get(number)) is not None:
                        own.id = serial
                    if (waiting := self._accepting.get(number)) is not None:
                        waiting.set()
            case JobEnded():
                self._ended(event)
            case JobPart(number, _, _, data):
                if (own := self._jobs.get(number)) is not None:
                    own._part(data)
            case JobProgressed(number, _, fraction):
                if (own := self._jobs.get(number)) is not None:
                    own.progress = fraction

    def _queue(self, job: CrewJob) -> None:
        """Have a job done by one of the tasks of its function."""
        function = self._functions[job.kind]
        if function.timeout is not None:
            self._shell._node.work.crew.limit(job, function.timeout, trio.current_time())
        function.waiting.append(job)
        if function.tasks < function.concurrency:
            function.tasks += 1
            self._shell._background.start_calling(self._serve, function)

    async def _serve(self, calling: Calling, function: _Function) -> None:
        """Do jobs of a function until none waits.

        A task for each job, or a cancel scope, would cost as much again as an empty job: a scope is made anew only
        after the job in it was stopped, also if its function has caught that and returned.
        """
        crew, waiting = self._shell._node.work.crew, function.waiting
        task = trio.lowlevel.current_task()
        self._serving.add(task)
        _WORKING.set(self)
        done = 0
        while waiting:
            stopped: CrewJob | None = None
            with trio.CancelScope() as scope:
                while waiting and not scope.cancel_called:
                    job = stopped = waiting.popleft()
                    self._scopes[job] = scope
                    await self._run(function, job)
                    stopped = None
                    if calling.put_off:
                        calling.returned()
                    for started in crew.take_starts():
                        self._queue(started)
                    done += 1
                    if done % YIELD_EVERY == 0:
                        await trio.lowlevel.checkpoint()  # functions that never wait leave other tasks their turn
            if stopped is not None:
                self._scopes.pop(stopped, None)
                if function.handler.plain:
                    self._look_at_threads()  # before the slot is free
                    if stopped in self._threads_of:
                        self._shell._background.start(self._name_if_it_hangs, function, stopped)
                crew.released(stopped, trio.current_time())
                self._shell._act_soon()
        function.tasks -= 1
        self._serving.discard(task)

    async def _run(self, function: _Function, job: CrewJob) -> None:
        """Do a job, and hand its outcome to the crew."""
        crew = self._shell._node.work.crew
        failure: tuple[str, str, bool] | None = None
        result = b""
        plain = function.handler.plain
        self._in_threads += plain
        try:
            run = JobRun(self, job)
            with _UNTRACED if tracing.spans is None else tracing.spans.trying(run):
                if self._middleware:
                    result = self._checked(job, await self._around(function.handler, run))
                elif function.handler.streams:
                    await _send_parts(function.handler, run)
                else:
                    result = self._checked(job, await function.handler.call(run, None))
        except BaseException as raised:
            order, error = order_to_end(raised), cause(raised)
            if order is raised:
                raise
            if order is not None or not isinstance(error, JobFailed):
                log.warning("%s: job %d of %r failed", self._shell.id, job.serial, job.kind, exc_info=error)
            if order is not None:  # it was stopped, and has failed in its clean-up as well
                raise order from None
            text = error.message if isinstance(error, JobFailed) else text_of(error)
            failure = text_of(type(error).__name__), text, not isinstance(error, JobFailed)
        finally:
            self._in_threads -= plain
        del self._scopes[job]
        now = trio.current_time()
        if failure is not None:
            kind, text, retry = failure
            crew.failed(job, kind, text, now, retry=retry)
        else:
            crew.done(job, result, now)
        self._shell._act_soon()

    async def _around(self, handler: Handler, run: JobRun) -> Any:
        """Do a try of a job within the middleware; return its result."""

        async def proceed(run: JobRun) -> Reply:
            return Reply(await (_send_parts(handler, run) if handler.streams else handler.call(run, None)))

        reply = await chain(self._middleware, proceed)(run)
        if reply.headers:
            raise ConfigError("headers", "the result of a job has none", reply.headers)
        return reply.body

    def _checked(self, job: CrewJob, result: Any) -> bytes:
        """Return a result as bytes. Raises TypeError, TooLarge."""
        if result is None:
            return b""
        if not isinstance(result, (bytes, bytearray, memoryview)):
            raise JobFailed(f"the function of {job.kind!r} returned {type(result).__name__} instead of bytes")
        most = self._shell._node.work.submitter.limits.payload_bytes
        if len(result) > most:
            raise JobFailed(f"the result has {len(result)} bytes, over the limit of {most}: send it in parts")
        return bytes(result)

    def in_loop(self, function: Callable[..., object], *arguments: object) -> None:
        """See nngkit.cluster.shell.jobs.JobNode."""
        try:
            inside = trio.lowlevel.current_trio_token() is self._token
        except RuntimeError:
            inside = False
        if inside:
            function(*arguments)
        elif self._token is not None:
            self._token.run_sync_soon(function, *arguments)

    def report_progress(self, job: CrewJob, fraction: float) -> None:
        """See nngkit.cluster.shell.jobs.JobNode."""
        self._shell._node.work.crew.progress(job, fraction, trio.current_time())
        self._shell._act_soon()

    def send_part(self, job: CrewJob, part: bytes) -> None:
        """See nngkit.cluster.shell.jobs.JobNode."""
        self._shell._node.work.crew.part(job, part, trio.current_time())
        self._shell._act_soon()

    async def drain(self) -> None:
        """Take no more jobs; return those that wait, let the running ones end, and have their results taken.

        Raises RuntimeError in a work function.
        """
        self.refuse_drain(self._below(trio.lowlevel.current_task()))
        crew = self._shell._node.work.crew
        self._draining = True
        crew.drain(trio.current_time())
        self._shell._act_soon()
        with trio.move_on_after(DRAIN):
            while crew.working and not self._closed:
                await self._acted.wait()
        while (owed := crew.owed) and not self._closed:
            with trio.move_on_after(HANDOVER) as limit:
                while crew.owed >= owed and not self._closed:
                    await self._acted.wait()
            if limit.cancelled_caught:
                log.warning(
                    "%s: it leaves with %d results and reports that no host has taken", self._shell.id, crew.owed
                )
                return

    @property
    def in_this_thread(self) -> bool:
        """True in a worker thread that runs one of the functions."""
        return _WORKING.get() is self

    def refuse_drain(self, inside: bool) -> None:
        """Raise RuntimeError if the caller is `inside` a work function."""
        if inside:
            why = "it would wait for its own end; start it in a task or a thread beside the function"
            raise RuntimeError(f"{self._shell.id}: a work function cannot drain its own node: {why}")

    def _below(self, task: trio.lowlevel.Task | None) -> bool:
        """Return True for a task that runs a work function, and for those of its nurseries."""
        while task is not None:
            if task in self._serving:
                return True
            task = None if task.parent_nursery is None else task.parent_nursery.parent_task
        return False

    def acted(self) -> None:
        """Have those that drain look again, once effects were carried out."""
        if self._draining:
            self._acted.set()
            self._acted = trio.Event()

    # ---- submissions

    async def begin(self, kind: str, payload: bytes, key: bytes | None, options: Mapping[str, Any]) -> Job:
        """Submit a job as soon as there is room for it. Raises ConfigError, TooLarge, Closed."""
        shell = self._shell
        submitter = shell._node.work.submitter
        if len(payload) > submitter.limits.payload_bytes:
            raise TooLarge(len(payload), submitter.limits.payload_bytes)
        given = dict(options)
        if (headers := given.pop("headers", None)) and (checked := check_headers(headers)):
            given["headers"] = pack_headers(checked)
        while True:
            try:
                number = submitter.submit(kind, payload, trio.current_time(), key=key, **given)
            except Full:
                await self._room.wait()
                shell._check_open()
            else:
                job = self._jobs[number] = Job(self, number, kind)
                return job

    async def submit(self, kind: str, payload: bytes, key: bytes | None, options: Mapping[str, Any]) -> Job:
        """Submit a job, and wait until it is accepted. Raises ConfigError, TooLarge, AccessDenied, Closed."""
        if (spans := tracing.spans) is None:
            return await self._submit(kind, payload, key, options)
        with spans.sending("submit", kind, options["headers"]) as sending:
            job = await self._submit(kind, payload, key, {**options, "headers": sending.headers})
            sending.sent(str(job.id))
        return job

    async def _submit(self, kind: str, payload: bytes, key: bytes | None, options: Mapping[str, Any]) -> Job:
        job = await self.begin(kind, payload, key, options)
        accepted = self._accepting[job.number] = trio.Event()
        self._shell._act_soon()
        try:
            await accepted.wait()
        except BaseException:  # a cancellation, or Ctrl-C
            if not self._closed:
                self._shell._node.work.submitter.abandon(job.number)
                self._shell._act_soon()
            raise
        finally:
            del self._accepting[job.number]
        self._shell._check_open()
        if job.refused:
            await job.result()
        return job

    def cancel_job(self, number: int) -> None:
        """See nngkit.cluster.shell.jobs.JobNode."""
        if not self._closed:
            self._shell._node.work.submitter.cancel(number)
            self._shell._act_soon()

    def _ended(self, event: JobEnded) -> None:
        job = self._jobs.pop(event.number, None)
        if job is None:
            return
        failure: Exception | None = None
        if event.outcome == "refused":
            right = event.text.startswith(RIGHT)
            failure = AccessDenied(event.text) if right else ConfigError("job", event.text)
            job.refused = True
        elif event.outcome != "result":
            text = event.text or event.outcome if event.error in OF_THE_HOST else f"{event.error}: {event.text}"
            outcome = "expired" if event.error == "deadline" else event.outcome
            failure = JobFailed(
                text, outcome=outcome, job=job.id, kind=job.kind, tries=event.tries, worker=event.worker
            )
        job._end(event.result, failure)
        if (accepting := self._accepting.get(event.number)) is not None:
            accepting.set()

    async def map(
        self,
        kind: str,
        payloads: Iterable[bytes] | AsyncIterable[bytes],
        in_flight: int,
        progress: Callable[[int], object] | None,
        options: Mapping[str, Any],
    ) -> AsyncGenerator[bytes, None]:
        """Yield the results of a job for each payload, in order; at most `in_flight` are submitted ahead."""
        if not isinstance(in_flight, int) or in_flight < 1:
            raise ConfigError("in_flight", f"{in_flight!r} is not a whole number from 1", in_flight)

        async def begin(payload: bytes) -> Job:
            data = as_bytes("a payload", payload)
            if (spans := tracing.spans) is None:
                return await self.begin(kind, data, None, options)
            with spans.sending("submit", kind, options.get("headers")) as sending:
                return await self.begin(kind, data, None, {**options, "headers": sending.headers})

        shell = self._shell
        ahead = Ahead(payloads, in_flight, begin=begin, tell=shell._act_soon, start=shell._background.start)
        ended = 0
        try:
            while (result := await ahead.next_result()) is not None:
                ended += 1
                if progress is not None:
                    progress(ended)
                yield result
        finally:
            ahead.end()

    def close(self) -> None:
        """End what waits."""
        self._closed = True
        self._acted.set()
        for job in list(self._jobs.values()):
            job._close()
        self._jobs.clear()
        for accepted in self._accepting.values():
            accepted.set()
        self._room.set()


async def _send_parts(handler: Handler, run: JobRun) -> None:
    async with aclosing(handler.parts(run, None)) as parts:
        async for part in parts:
            run.part(part)
