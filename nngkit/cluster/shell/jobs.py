"""Jobs as a program sees them: `Job` for its submitter, `JobRun` for the function that does it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Final, Protocol

import trio

from nngkit.cluster.frames import as_bytes
from nngkit.cluster.jobs.messages import MOST_BATCH_BYTES
from nngkit.cluster.jobs.values import CrewJob
from nngkit.errors import Closed, JobFailed, TimedOut
from nngkit.headers import unpack_headers

PARTS: Final = 1024  # parts that wait for the submitter; then the oldest are dropped and counted


class JobNode(Protocol):
    """Interface of the node, for the jobs it has submitted, and those it does."""

    def cancel_job(self, number: int) -> None:
        """Ask the host to cancel a job."""

    def in_loop(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the thread of the loop, soon if this is another one."""

    def report_progress(self, job: CrewJob, fraction: float) -> None:
        """Tell the submitter."""

    def send_part(self, job: CrewJob, part: bytes) -> None:
        """Send a part of the result to the submitter."""


class Job:
    """A submitted job, which the host has accepted: it will end, with a result or with JobFailed.

    Attributes:
        id: Its number in the cluster, as its worker and the journal have it; 0 if it was not accepted.
        kind: Its kind.
        progress: The last progress that its worker has reported, from 0 to 1; 0.0 before.
        lost_parts: Parts that were dropped as they were not read.
    """

    def __init__(self, node: JobNode, number: int, kind: str) -> None:
        self.id = 0
        self.kind = kind
        self.progress = 0.0
        self.lost_parts = 0
        self._node = node
        self.number = number
        self.refused = False  # never accepted
        self._result: bytes | None = None
        self._failure: Exception | None = None
        self._parts: deque[bytes] = deque()
        self._changed: trio.Event | None = None  # made by the first that waits: most jobs of a map have none

    @property
    def done(self) -> bool:
        """True once it has ended, whatever its outcome."""
        return self._result is not None or self._failure is not None

    async def result(self, timeout: float | None = None) -> bytes:
        """Wait for the result, and return it. It may be called again, and from several tasks.

        Cancelling the call, or its timeout, does not cancel the job.

        Raises:
            JobFailed: It has ended without a result.
            TimedOut: `timeout` seconds have passed.
            Closed: The node has left the cluster.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self.done:
            with trio.move_on_after(math.inf if timeout is None else timeout):
                while not self.done:
                    await self._change()
        if self._failure is not None:
            raise self._failure.again() if isinstance(self._failure, JobFailed) else self._failure
        if self._result is not None:
            return self._result
        raise TimedOut(f"job {self.id} ({self.kind}) has not ended in {timeout} s", timeout)

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """Yield the parts of the result as they come, until the job ends. Raises JobFailed, Closed.

        A job that is tried again sends its parts again. The result itself is not a part.
        """
        while True:
            while self._parts:
                yield self._parts.popleft()
            if self.done:
                if self._failure is not None:
                    await self.result()
                return
            await self._change()

    async def _change(self) -> None:
        """Wait for the next part, or for the end."""
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()

    def cancel(self) -> None:
        """Ask the host to cancel the job: it ends with JobFailed, unless it has ended before.

        Other submissions under its key that wait for it still get its result; the last one that cancels ends it.
        """
        self._node.cancel_job(self.number)

    # ---- for the node

    def _end(self, result: bytes | None, failure: Exception | None) -> None:
        if not self.done:
            self._result, self._failure = (result, None) if failure is None else (None, failure)
            self._notify()

    def _part(self, part: bytes) -> None:
        self._parts.append(part)
        if len(self._parts) > PARTS:
            self._parts.popleft()
            self.lost_parts += 1
        self._notify()

    def _notify(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def _close(self) -> None:
        self._end(None, Closed(f"the node has left the cluster before the job {self.id} ({self.kind}) ended"))

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.kind!r}>"


class JobRun:
    """One try of a job, for the function that does it.

    Attributes:
        id: Number of the job in the cluster, as its submitter and the journal have it.
        kind: Its kind.
        payload: Bytes of the submitter.
        try_number: 1 for the first try.
        fence: Term and number: higher for each later grant of the job. Pass it to a store that refuses a lower one than
            it has seen, and no late try overwrites the work of a later one.
        submitter: Id of the node that it comes from; None without a trust.
        headers: Headers of the submitter.
    """

    def __init__(self, node: JobNode, job: CrewJob) -> None:
        self.id = job.serial
        self.kind = job.kind
        self.payload = job.payload
        self.try_number = job.attempt
        self.fence = job.term, job.fence
        self.submitter = job.submitter
        self.headers = {} if job.headers is None else unpack_headers(job.headers)
        self._node = node
        self._job = job

    def progress(self, fraction: float) -> None:
        """Report progress, from 0 to 1. A plain function calls it in its thread."""
        if not 0.0 <= fraction <= 1.0:
            raise ValueError(f"progress is from 0 to 1, not {fraction!r}")
        self._node.in_loop(self._node.report_progress, self._job, fraction)

    def part(self, part: bytes) -> None:
        """Send a part of the result to the submitter. Works in a thread too.

        Without ``stream=True`` at the submitter it is dropped. Raises JobFailed over 128 KiB.
        """
        data = as_bytes("a part", part)
        if len(data) > MOST_BATCH_BYTES:  # here: in the loop, no caller would catch it for a thread
            raise JobFailed(f"a part has {len(data)} bytes, over the limit of {MOST_BATCH_BYTES}")
        self._node.in_loop(self._node.send_part, self._job, data)

    def __repr__(self) -> str:
        return f"<JobRun {self.id} {self.kind!r}, try {self.try_number}>"
