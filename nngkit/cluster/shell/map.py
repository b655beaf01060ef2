"""The jobs of one map: submitted ahead, while their results are awaited in order.

::

    ahead = Ahead(payloads, 1000, begin=begin, tell=act_soon, start=background.start)
    try:
        while (result := await ahead.next_result()) is not None: ...
    finally:
        ahead.end()

A plain iterable is iterated over when there is room: it is in the loop, and must not block. An asynchronous one may
have its next payload at any time, perhaps only after a result: a task pulls it and submits, whatever is awaited.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from typing import Final

import trio

from nngkit.cluster.shell.jobs import Job
from nngkit.errors import Closed

BATCH: Final = 64  # jobs that are submitted without a checkpoint


class Payloads(AsyncIterator[bytes]):
    """Asynchronous iterator that was made for one map, whose end closes it."""

    @abstractmethod
    def close(self) -> None:
        """Free what it has; no `__anext__` follows."""


class Ahead:
    """Jobs that are submitted and whose results were not taken: `most` of them.

    begin   submits a job as soon as there is room for it
    tell    has the node send what was submitted
    start   starts a task that ends with the node
    """

    def __init__(
        self,
        payloads: Iterable[bytes] | AsyncIterable[bytes],
        most: int,
        *,
        begin: Callable[[bytes], Awaitable[Job]],
        tell: Callable[[], None],
        start: Callable[..., None],
    ) -> None:
        self._most = most
        self._begin, self._tell = begin, tell
        self._jobs: deque[Job] = deque()
        self._pull: trio.CancelScope | None = None  # of the task, if there is one
        self._wait: trio.CancelScope | None = None  # for the oldest result
        self._pulling = self._exhausted = False
        self._failure: BaseException | None = None
        self._changed, self._room = trio.Event(), trio.Event()
        if isinstance(payloads, AsyncIterable):
            self._pull, self._pulling = trio.CancelScope(), True
            start(self._submit_each, aiter(payloads), self._pull)
        else:
            self._payloads = iter(payloads)

    async def next_result(self) -> bytes | None:
        """Return the next result; None at the end. Raises JobFailed, Closed, and what the payloads raise."""
        jobs = self._jobs
        if self._pull is None:
            await self._submit_some()
        else:
            while not jobs and self._pulling:
                await self._changed.wait()
            self._check()
            if not jobs and not self._exhausted:
                raise Closed("the node has left the cluster before the payloads of the map ended")
        if not jobs:
            return None
        if jobs[0].done or self._pull is None:
            result = await jobs[0].result()
        else:
            with trio.CancelScope() as self._wait:  # cancelled if the payloads fail
                result = await jobs[0].result()
            self._wait = None
            self._check()
        jobs.popleft()
        self._room.set()
        return result

    def end(self) -> None:
        """Pull no more payloads, and cancel the jobs that have not ended."""
        if self._pull is not None:
            self._pull.cancel()
        for job in self._jobs:
            job.cancel()
        self._jobs.clear()

    async def _submit_some(self) -> None:
        """Submit jobs for a plain iterable, a few at a time: the first results are taken while others are submitted."""
        jobs = self._jobs
        while len(jobs) < self._most and not (jobs and jobs[0].done):
            before = len(jobs)
            for _, payload in zip(range(min(BATCH, self._most - before)), self._payloads, strict=False):
                jobs.append(await self._begin(payload))  # one by one: `end` is to know those before one that fails
            if len(jobs) == before:
                break
            self._tell()

    async def _submit_each(self, payloads: AsyncIterator[bytes], scope: trio.CancelScope) -> None:
        """Submit a job for each payload as it comes, while there is room; a task."""
        jobs, count = self._jobs, 0
        try:
            with scope:
                try:
                    while True:
                        while len(jobs) >= self._most:
                            self._room = trio.Event()
                            await self._room.wait()
                        job = await self._begin(await anext(payloads))
                        if scope.cancel_called:  # since its wait was over
                            job.cancel()
                            break
                        jobs.append(job)
                        self._tell()
                        if len(jobs) == 1:
                            self._notify()
                        count += 1
                        if count % BATCH == 0:
                            await trio.lowlevel.checkpoint()  # payloads that are there leave other tasks their turn
                except StopAsyncIteration:
                    self._exhausted = True
                finally:
                    if isinstance(payloads, Payloads):
                        payloads.close()
                    elif isinstance(payloads, AsyncGenerator):
                        await payloads.aclose()  # in the task that has run it
        except BaseException as error:  # passed on to the program, whatever it is
            if _cancelled(error):
                raise
            self._failure = error
            if self._wait is not None:
                self._wait.cancel()
        finally:
            self._pulling = False
            self._notify()

    def _check(self) -> None:
        """Raise what the payloads have raised."""
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # else error and frame would form a reference cycle

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _cancelled(error: BaseException) -> bool:
    """Return True if an exception is, or has among others, the cancellation of the task."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(trio.Cancelled) is not None
    return isinstance(error, trio.Cancelled)
