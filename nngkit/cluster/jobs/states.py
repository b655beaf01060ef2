"""Jobs of the host's queue in one term: their states, and what time does to them. Pure. See work.py."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import floor
from typing import Final

from nngkit.cluster.jobs.credit import Credit
from nngkit.cluster.jobs.intake import Intake
from nngkit.cluster.jobs.messages import (
    Message,
    Ref,
)
from nngkit.cluster.jobs.operations import Op, end_op
from nngkit.cluster.jobs.proposing import forgetting_ops
from nngkit.cluster.jobs.table import Job, JobTable
from nngkit.cluster.jobs.values import (
    CANCELLED,
    DELAYED,
    FINISHING,
    GRANTED,
    LOST,
    QUEUED,
    UNKNOWN,
    Rng,
    WorkEffects,
    WorkLimits,
    WorkStats,
)
from nngkit.cluster.jobs.waiting_jobs import WorkQueue

__all__ = ["CANCELLED", "DEAD", "FAILED", "NO_TERM", "HostJobs"]

NO_TERM: Final = -1  # of a job whose grant was void before the next one: no result counts
SWEEP: Final = 1.0  # seconds between two searches for what may be forgotten
FAILED, DEAD = 1, 2  # indices of OUTCOMES, as CANCELLED


class HostJobs:
    """State of the queue, and the moves of a job between `_lost`, `_running`, `_delayed`, the queue and its end."""

    def __init__(
        self,
        id: str,
        *,
        term: int,
        table: JobTable,
        now: float,
        wall: float,
        rng: Rng,
        limits: WorkLimits | None = None,
        ahead: float = 0.0,
    ) -> None:
        self.id, self.term, self.table = id, term, table
        self.limits = limits or WorkLimits()
        self.stats = WorkStats()
        self.granting = False
        self.wake_at = now
        self._rng = rng
        self._wall = wall - now
        self._ahead = ahead
        self._operations: list[Op] = []
        self._intake = Intake(term, table, self.limits, self.stats, self._operations)
        self._queue = WorkQueue()
        self._suspects = WorkQueue()  # jobs that are to run alone
        self._links: dict[int, dict[int, Credit]] = {}
        self._running: dict[float, dict[int, Job]] = {}  # by visibility, in the order of `due`
        self._lost: dict[int, tuple[float, Job]] = {}  # until the grace is over, in that order
        self._delayed: list[tuple[float, int, Job]] = []
        self._deadlines: list[tuple[float, int, Job]] = []
        self._to_record: list[Job] = []
        self._recording = 0  # jobs whose start is proposed
        self._to_count: list[Job] = []  # the same for jobs that a worker is about to start
        self._counting: dict[int, tuple[int, int]] = {}  # their grants, by serial
        self._placing: tuple[int, int, float] | None = None  # serial, fence and time of the last grant to be run alone
        self._starts: dict[int, list[Ref]] = {}
        self._pauses: list[tuple[Job, int]] = []  # failed starts to be recorded, and when the next may follow
        self._failed: dict[int, str] = {}  # their workers, by serial, until that is committed
        self._ends: list[tuple[Job, int, str, str]] = []  # to be proposed
        self._results: list[tuple[Job, bytes]] = []  # to be proposed
        self._finishing: dict[int, tuple[float, float]] = {}  # start and end, wall clock, by serial
        self._stopping: dict[int, tuple[int, Ref]] = {}  # grants to stop after the commit of another end
        self._down: dict[int, list[Ref]] = {}
        self._grants: list[tuple[int, Message]] = []
        self._taken: dict[str, tuple[list[int], list[int]]] = {}
        self._effects = WorkEffects()
        self._sweep_at = now + SWEEP
        self._inherit(now)
        self.tell_time(now)

    def _inherit(self, now: float) -> None:
        """Begin the term with the table's jobs: workers may have any of the unfinished ones."""
        for source in self.table.sources.values():
            source.top, source.used = source.last, now
            source.pending.clear()
        self._inherited = max(self.table.jobs, default=-1)  # a serial above it is of this term
        for serial, job in self.table.jobs.items():
            job.term = job.fence = job.grants = 0
            job.suspect = job.counted = False
            if job.outcome >= 0:
                job.status = FINISHING
                continue
            job.attempts = job.tries
            if (due := job.not_before - self._wall) > now:
                if job.tries:  # its last start has failed: no worker has it
                    job.term = NO_TERM
                self._delay(job, due)
            else:
                job.status = UNKNOWN
                self._lost[serial] = now + self.limits.grace, job
            self._set_deadline(job, now)

    def tell_time(self, now: float) -> None:
        """Write the time of the log's clock: a voter that becomes host goes on from the last one that it heard."""
        self._operations.append(end_op(self._time(now), []))

    def _time(self, now: float) -> float:
        """Return the time of the log's clock, in whole milliseconds, rounded down: nothing is to start early."""
        return floor((now + self._wall) * 1000) / 1000

    def tick(self, now: float) -> None:
        """Do what is due: lost jobs, visibilities, delays, deadlines, forgetting. Sets `wake_at`."""
        wake = self._sweep_at
        wake = min(wake, self._tick_lost(now), self._tick_running(now))
        delayed, deadlines = self._delayed, self._deadlines
        while delayed and delayed[0][0] <= now:
            _, _, job = heappop(delayed)
            if job.status == DELAYED and job.due <= now:
                job.status = QUEUED
                self._queue.add([job])
        while deadlines and deadlines[0][0] <= now:
            _, _, job = heappop(deadlines)
            if job.outcome < 0 and job.status != FINISHING:
                self._void(job)
                self._end(job, FAILED, "deadline", f"not finished within {job.spec.deadline} s")
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP
            self._sweep(now)
        for heap in (delayed, deadlines):
            if heap:
                wake = min(wake, heap[0][0])
        self.wake_at = min(wake, self._sweep_at)

    def _tick_lost(self, now: float) -> float:
        lost = self._lost
        due = []
        wake = now + SWEEP
        for serial, (at, _) in lost.items():
            if at > now:
                wake = at
                break
            due.append(serial)
        for serial in due:
            _, job = lost.pop(serial)
            # Most jobs of an earlier term that no worker reports were only queued: without a recorded start they may
            # run beside others, as may those whose last start has failed.
            job.suspect = job.status == LOST or bool(job.tries and not job.not_before)
            self._requeue(job, "lost", "the worker was lost")
        return wake

    def _tick_running(self, now: float) -> float:
        wake = now + SWEEP
        for visibility, running in self._running.items():
            due = []
            for job in running.values():
                if job.due > now:
                    wake = min(wake, job.due)
                    break
                due.append(job)
            for job in due:
                del running[job.serial]
                self.stats.expired += 1
                ref = Ref(job.serial, job.term, job.fence, job.attempts)
                self._down.setdefault(job.link, []).append(ref)
                job.suspect = True
                self._requeue(job, "lost", f"no sign of its worker for {visibility:g} s")
        return wake

    def _sweep(self, now: float) -> None:
        """Forget finished jobs that were kept long enough, and submitters without jobs."""
        overdue, operations = forgetting_ops(self.table, self.limits, now, now + self._wall)
        self.stats.overdue += overdue
        self._operations += operations
        for heap, status in ((self._delayed, DELAYED), (self._deadlines, None)):
            live = [row for row in heap if row[2].outcome < 0 and status in (None, row[2].status)]
            if len(live) < len(heap) // 2:
                heap[:] = live
                heapify(heap)
        for visibility in [each for each, jobs in self._running.items() if not jobs]:
            del self._running[visibility]

    def _counts(self, job: Job, term: int, fence: int) -> bool:
        """Return True if a result under this grant counts."""
        if job.term:
            return job.term == term and job.fence == fence
        return job.serial <= self._inherited and term < self.term

    def _refuse(self, worker: str, serial: int, job: Job | None, term: int, fence: int) -> None:
        """Tell the worker that it need not keep a result, unless it, or a failure of the job, is being committed."""
        if job is not None and job.outcome < 0 and job.status == FINISHING and self._counts(job, term, fence):
            return
        if serial in self._failed:
            return
        done = job is not None and job.outcome == 0 and self._counts(job, term, fence)
        self._rows(worker)[not done].append(serial)
        self.stats.refused_results += not done

    def _rows(self, worker: str) -> tuple[list[int], list[int]]:
        rows = self._taken.get(worker)
        if rows is None:
            rows = self._taken[worker] = ([], [])
        return rows

    def _present(self, serial: int, term: int, fence: int) -> Job | None:
        job = self.table.jobs.get(serial)
        held = job is not None and job.status in (GRANTED, LOST, UNKNOWN)
        return job if job is not None and held and self._counts(job, term, fence) else None

    def _leave(self, job: Job) -> None:
        """Take a job out of the table that belongs to its status; queues drop it by themselves."""
        if job.status == GRANTED:
            self._running[job.spec.visibility].pop(job.serial, None)
        elif job.status in (LOST, UNKNOWN):
            self._lost.pop(job.serial, None)

    def _end(self, job: Job, outcome: int, kind: str, text: str) -> None:
        """Have an end proposed."""
        self._leave(job)
        job.status = FINISHING
        self._ends.append((job, outcome, kind, text))

    def _requeue(self, job: Job, kind: str, text: str) -> None:
        """Queue a job whose worker is lost or too slow, or end it if that was its last try."""
        if job.attempts >= job.spec.tries:
            self._end(job, DEAD, kind, text)
            return
        self._queue_first(job)

    def _queue_first(self, job: Job) -> None:
        """Put a job before the others."""
        job.status = QUEUED
        (self._suspects if job.suspect else self._queue).add_first(job)

    def _renew(self, job: Job, now: float) -> None:
        """Begin the visibility anew: the worker has reported."""
        if job.status == GRANTED:
            running = self._running[job.spec.visibility]
            running.pop(job.serial, None)
            running[job.serial] = job
            job.due = now + job.spec.visibility

    def _void(self, job: Job) -> None:
        """Have the worker of a job told to stop it, once its end is committed."""
        if job.status == GRANTED:
            self._stopping[job.serial] = job.link, Ref(job.serial, job.term, job.fence, job.attempts)

    def _delay(self, job: Job, at: float) -> None:
        job.status, job.due = DELAYED, at
        heappush(self._delayed, (at, job.serial, job))
        self.wake_at = min(self.wake_at, at)

    def _set_deadline(self, job: Job, now: float) -> None:
        if job.spec.deadline is not None:
            at = max(now, job.queued - self._wall + job.spec.deadline)
            heappush(self._deadlines, (at, job.serial, job))
            self.wake_at = min(self.wake_at, at)
