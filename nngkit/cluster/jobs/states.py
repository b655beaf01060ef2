"""States of the host's jobs in one term: the queues, and what time does to jobs. Pure.

::

    jobs = JobStates(table, term=7, now=now, wall=clock, limits=limits, stats=stats)
    jobs.accept(new, now)                   # jobs of one spec
    ready, _ = jobs.queue.best({"render"})  # the deque of the best job: highest priority, then lowest serial; or None
    job = ready.popleft()                   # `job.status` is QUEUED: best() has dropped the others from the head
    jobs.delay(job, at); jobs.renew(job, now); jobs.requeue(job, "lost", "why"); jobs.end(job, outcome, "kind", "text")
    if now >= jobs.wake_at:
        jobs.tick(now)
    jobs.ends                               # to be proposed
    jobs.stops                              # grants that are void, by link

A job that is granted, cancelled or finished in another way stays in its deque until it comes to the head: removal in
the middle would cost a search. A job may so be in a deque twice; its status says whether it is still queued.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from nngkit.cluster.jobs import values
from nngkit.cluster.jobs.messages import PRIORITIES, Ref
from nngkit.cluster.jobs.table import Job, JobTable

__all__ = ["DEAD", "FAILED", "NO_TERM", "SWEEP", "JobStates", "WorkQueue"]

NO_TERM: Final = -1  # of a job whose grant was void before the next one: no result counts
SWEEP: Final = 1.0  # seconds between two searches for what may be forgotten
FAILED, DEAD = 1, 2  # indices of OUTCOMES, as CANCELLED


class JobStates:
    """The moves of a job between `lost`, `running`, the delayed ones, the queues and its end. Times are monotonic."""

    def __init__(
        self, table: JobTable, *, term: int, now: float, wall: float, limits: values.WorkLimits, stats: values.WorkStats
    ) -> None:
        self.table, self.term, self.limits, self.stats = table, term, limits, stats
        self.wake_at = now
        self.lead = wall - now  # of the log's clock over the monotonic one
        self.queue = WorkQueue()
        self.suspects = WorkQueue()  # jobs that are to run alone
        self.running: defaultdict[float, dict[int, Job]] = defaultdict(dict)  # by visibility, in the order of `due`
        self.lost: dict[int, tuple[float, Job]] = {}  # until the grace is over, in that order
        self.ends: list[tuple[Job, int, str, str]] = []  # to be proposed
        self.stopping: dict[int, tuple[int, Ref]] = {}  # grants to stop after the commit of another end
        self.stops: defaultdict[int, list[Ref]] = defaultdict(list)
        self.inherited = max(table.jobs, default=-1)  # a serial above it is of this term
        self._delayed: list[tuple[float, int, Job]] = []
        self._deadlines: list[tuple[float, int, Job]] = []
        self._inherit(now)

    def _inherit(self, now: float) -> None:
        """Begin the term with the table's jobs: workers may have any of the unfinished ones."""
        for source in self.table.sources.values():
            source.top, source.used = source.last, now
            source.pending.clear()
        for serial, job in self.table.jobs.items():
            job.term = job.fence = job.grants = 0
            job.suspect = job.counted = False
            if job.outcome >= 0:
                job.status = values.FINISHING
                continue
            job.attempts = job.tries
            if (due := job.not_before - self.lead) > now:
                if job.tries:  # its last start has failed: no worker has it
                    job.term = NO_TERM
                self.delay(job, due)
            else:
                job.status = values.UNKNOWN
                self.lost[serial] = now + self.limits.grace, job
            self._set_deadline(job, now)

    def accept(self, jobs: list[Job], now: float) -> None:
        """Queue new jobs of one spec."""
        spec = jobs[0].spec
        if spec.deadline is not None:
            for job in jobs:
                self._set_deadline(job, now)
        if spec.delay:
            for job in jobs:
                self.delay(job, now + spec.delay)
        else:
            self.queue.add(jobs)

    def tick(self, now: float) -> None:
        """Do what is due: lost jobs, visibilities, delays, deadlines. Sets `wake_at`."""
        wake = min(self._tick_lost(now), self._tick_running(now))
        delayed, deadlines = self._delayed, self._deadlines
        while delayed and delayed[0][0] <= now:
            _, _, job = heappop(delayed)
            if job.status == values.DELAYED and job.due <= now:
                job.status = values.QUEUED
                self.queue.add([job])
        while deadlines and deadlines[0][0] <= now:
            _, _, job = heappop(deadlines)
            if job.outcome < 0 and job.status != values.FINISHING:
                self.void(job)
                self.end(job, FAILED, "deadline", f"not finished within {job.spec.deadline} s")
        for heap in (delayed, deadlines):
            if heap:
                wake = min(wake, heap[0][0])
        self.wake_at = wake

    def _tick_lost(self, now: float) -> float:
        lost = self.lost
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
            job.suspect = job.status == values.LOST or bool(job.tries and not job.not_before)
            self.requeue(job, "lost", "the worker was lost")
        return wake

    def _tick_running(self, now: float) -> float:
        wake = now + SWEEP
        for visibility, running in self.running.items():
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
                self.stops[job.link].append(ref)
                job.suspect = True
                self.requeue(job, "lost", f"no sign of its worker for {visibility:g} s")
        return wake

    def sweep(self) -> None:
        """Drop what is left of jobs that have ended."""
        for heap, status in ((self._delayed, values.DELAYED), (self._deadlines, None)):
            live = [row for row in heap if row[2].outcome < 0 and status in (None, row[2].status)]
            if len(live) < len(heap) // 2:
                heap[:] = live
                heapify(heap)
        for visibility in [each for each, jobs in self.running.items() if not jobs]:
            del self.running[visibility]

    def counts(self, job: Job, term: int, fence: int) -> bool:
        """Return True if a result under this grant counts."""
        if job.term:
            return job.term == term and job.fence == fence
        return job.serial <= self.inherited and term < self.term

    def present(self, serial: int, term: int, fence: int) -> Job | None:
        """Return the job of a grant that counts, unless it has ended or waits."""
        job = self.table.jobs.get(serial)
        held = job is not None and job.status in (values.GRANTED, values.LOST, values.UNKNOWN)
        return job if job is not None and held and self.counts(job, term, fence) else None

    def leave(self, job: Job) -> None:
        """Take a job out of the table that belongs to its status; queues drop it by themselves."""
        if job.status == values.GRANTED:
            self.running[job.spec.visibility].pop(job.serial, None)
        elif job.status in (values.LOST, values.UNKNOWN):
            self.lost.pop(job.serial, None)

    def end(self, job: Job, outcome: int, kind: str, text: str) -> None:
        """Have an end proposed."""
        self.leave(job)
        job.status = values.FINISHING
        self.ends.append((job, outcome, kind, text))

    def requeue(self, job: Job, kind: str, text: str) -> None:
        """Queue a job whose worker is lost or too slow, or end it if that was its last try."""
        if job.attempts >= job.spec.tries:
            self.end(job, DEAD, kind, text)
            return
        self.queue_first(job)

    def queue_first(self, job: Job) -> None:
        """Put a job before the others."""
        job.status = values.QUEUED
        (self.suspects if job.suspect else self.queue).add_first(job)

    def renew(self, job: Job, now: float) -> None:
        """Begin the visibility anew: the worker has reported."""
        if job.status == values.GRANTED:
            running = self.running[job.spec.visibility]
            running.pop(job.serial, None)
            running[job.serial] = job
            job.due = now + job.spec.visibility

    def void(self, job: Job) -> None:
        """Have the worker of a job told to stop it, once its end is committed."""
        if job.status == values.GRANTED:
            self.stopping[job.serial] = job.link, Ref(job.serial, job.term, job.fence, job.attempts)

    def delay(self, job: Job, at: float) -> None:
        """Have a job wait until a time."""
        job.status, job.due = values.DELAYED, at
        heappush(self._delayed, (at, job.serial, job))
        self.wake_at = min(self.wake_at, at)

    def _set_deadline(self, job: Job, now: float) -> None:
        if job.spec.deadline is not None:
            at = max(now, job.queued - self.lead + job.spec.deadline)
            heappush(self._deadlines, (at, job.serial, job))
            self.wake_at = min(self.wake_at, at)


class WorkQueue:
    """All queued jobs."""

    def __init__(self) -> None:
        # by kind and priority; empty ones are removed
        self._kinds: defaultdict[str, defaultdict[int, deque[Job]]] = defaultdict(lambda: defaultdict(deque))

    def add(self, jobs: Sequence[Job]) -> None:
        """Append jobs of one spec."""
        spec = jobs[0].spec
        self._kinds[spec.kind][spec.priority].extend(jobs)

    def add_first(self, job: Job) -> None:
        """Put a job at the head: it was queued before."""
        self._kinds[job.spec.kind][job.spec.priority].appendleft(job)

    def best(self, kinds: Collection[str]) -> tuple[deque[Job] | None, bool]:
        """Return the deque whose head is to be granted next, and whether other kinds compete with it."""
        found: deque[Job] | None = None
        rank = (PRIORITIES, 0)
        several = False
        for kind in kinds if len(kinds) <= len(self._kinds) else [each for each in self._kinds if each in kinds]:
            ready = self._first_of(kind)
            if ready is not None:
                head = ready[0]
                this = -head.spec.priority, head.serial
                several = found is not None
                if found is None or this < rank:
                    found, rank = ready, this
        return found, several

    def _first_of(self, kind: str) -> deque[Job] | None:
        by_priority = self._kinds.get(kind)
        while by_priority:
            priority = max(by_priority)
            ready = by_priority[priority]
            while ready:
                if ready[0].status == values.QUEUED:
                    return ready
                ready.popleft()
            del by_priority[priority]
        self._kinds.pop(kind, None)
        return None
