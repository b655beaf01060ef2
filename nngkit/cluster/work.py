"""The host's queue of jobs in one term: accepts, grants, finishes, and gives lost jobs to other workers. Pure.

::

    host = WorkHost("a", term=7, table=table, now=now, wall=time.time(), rng=rng)   # anew at each Elected
    host.granting = election.holds_lease(now)     # before each take(); False: nothing is granted
    host.unicast(sender_id, message, now)         # Submit, Received, Cancel, Waiting
    host.receive(link, message, now)              # Demand, Results, Holding, Lost, Returned, Starting, ...
    host.link_down(link, now)
    host.committed(entries, now)                  # applies them to the table, too
    if now >= host.wake_at:
        host.tick(now)
    effects = host.take(now)                      # WorkEffects: entries, down, unicasts, ended
    host.depths()                                 # {kind: [queued, granted]}; host.stats: counters

The messages of children pass through the node's own `Crew`, whose parent link is `LOCAL`: what the crew sends up comes
in by `receive(LOCAL, ...)`, and what `effects.down` has for LOCAL goes to `crew.from_parent`.

Invariants:

1. A submitter is told of an acceptance or an end, and a worker that its result is taken, only after the commit.
2. Only the result under the present fence counts, the last grant's term and number. A job of an earlier term that no
   grant of this term followed has the fence of the first worker that reports it.
3. Only one end of a job is proposed in a term, and the table has only one of all terms.
4. A job is granted only while `granting`, against credit, and if its start is recorded: in the table, or as the first
   start of a job that was accepted in this term. So it starts at most `tries` times; once more if it was started and
   not reported when a term ended. A job whose worker was lost or hung is granted without a start: the worker asks once
   it has a slot for it, and the start is recorded then. So jobs that only waited there lose the first try at most.
5. An unfinished job is in a queue, in `_delayed`, `_lost` or `_running`, or an operation about it is proposed.
6. The visibility of a grant ends; so each unfinished job is granted again, or ends.

Times: `now` is monotonic; wall clock times, only reported, are `now` plus the difference at the start of the term.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from nngkit.cluster.work_credit import Credit, take_demand
from nngkit.cluster.work_intake import Intake
from nngkit.cluster.work_limits import (
    DELAYED,
    FINISHING,
    GRANTED,
    LOST,
    QUEUED,
    RECORDING,
    UNKNOWN,
    JobEnd,
    Rng,
    WorkEffects,
    WorkLimits,
    WorkStats,
)
from nngkit.cluster.work_messages import (
    MOST_BATCH_BYTES,
    MOST_GROUPS,
    MOST_ROWS,
    OUTCOMES,
    Block,
    Cancel,
    Demand,
    Grant,
    Holding,
    Lost,
    Message,
    Parts,
    Progress,
    Received,
    Ref,
    Results,
    Returned,
    Start,
    Starting,
    Stop,
    Submit,
    Taken,
    Waiting,
)
from nngkit.cluster.work_proposing import entries_of, forgetting_ops, result_ops
from nngkit.cluster.work_queue import WorkQueue
from nngkit.cluster.work_state import (
    Job,
    JobTable,
    Op,
    end_op,
    tries_op,
)

__all__ = ["LOCAL", "WorkHost"]

LOCAL: Final = -1
"""Link between the host's queue and the crew of the same node; links to other nodes count from 0."""
NO_TERM: Final = -1  # of a job whose grant was void before the next one: no result counts
RUN: Final = 16  # jobs of one kind in a row while another kind of the group has jobs
SWEEP: Final = 1.0  # seconds between two searches for what may be forgotten
RETURN_PAUSE: Final = 0.1  # seconds until a job is granted again that was returned several times

_FAILED, _DEAD, _CANCELLED = 1, 2, 3  # indices of OUTCOMES


class WorkHost:
    """The queue of one term. `wall`: wall clock seconds at `now`."""

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
    ) -> None:
        self.id, self.term, self.table = id, term, table
        self.limits = limits or WorkLimits()
        self.stats = WorkStats()
        self.granting = False
        self.wake_at = now
        self._rng = rng
        self._wall = wall - now
        self._operations: list[Op] = []
        self._intake = Intake(term, table, self.limits, self.stats, self._operations)
        self._queue = WorkQueue()
        self._links: dict[int, dict[int, Credit]] = {}
        self._running: dict[float, dict[int, Job]] = {}  # by visibility, in the order of `due`
        self._lost: dict[int, tuple[float, Job]] = {}  # until the grace is over, in that order
        self._delayed: list[tuple[float, int, Job]] = []
        self._deadlines: list[tuple[float, int, Job]] = []
        self._to_record: list[Job] = []
        self._recording = 0  # jobs whose start is proposed
        self._to_count: list[Job] = []  # the same for jobs that a worker is about to start
        self._counting: dict[int, tuple[int, int]] = {}  # their grants, by serial
        self._starts: dict[int, list[Ref]] = {}
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
            job.status = UNKNOWN
            job.attempts = job.tries
            self._lost[serial] = now + self.limits.grace, job
            self._set_deadline(job, now)

    # ---- what the node does

    def take(self, now: float) -> WorkEffects:
        """Grant what may be granted; return what is to be done since the last call."""
        if self.granting:
            self._grant(now)
        self._propose(now)
        effects, self._effects = self._effects, WorkEffects()
        effects.down += self._grants
        self._grants = []
        for link, refs in self._down.items():
            effects.down += [(link, Stop(refs[at : at + MOST_ROWS])) for at in range(0, len(refs), MOST_ROWS)]
        self._down.clear()
        for link, refs in self._starts.items():
            effects.down += [(link, Start(refs[at : at + MOST_ROWS])) for at in range(0, len(refs), MOST_ROWS)]
        self._starts.clear()
        effects.unicasts = self._intake.take()
        for worker, (taken, refused) in self._taken.items():
            for at in range(0, max(len(taken), len(refused)), MOST_ROWS):
                rows = taken[at : at + MOST_ROWS], refused[at : at + MOST_ROWS]
                effects.unicasts.append((worker, Taken(*rows)))
        self._taken.clear()
        return effects

    def unicast(self, sender: str, message: Message, now: float) -> None:
        """Handle a submitter's message. `sender` is the id that the network vouches for."""
        if isinstance(message, Submit):
            self._intake.submit(sender, message, now, now + self._wall)
        elif isinstance(message, Received):
            self._intake.received(sender, message, now)
        elif isinstance(message, Cancel):
            self._cancel(sender, message)
        elif isinstance(message, Waiting):
            self._intake.waiting(sender, message, now)

    def receive(self, link: int, message: Message, now: float) -> None:
        """Handle a message from below, of the kinds from child to parent."""
        if isinstance(message, Results):
            self._take_results(message, now)
        elif isinstance(message, Demand):
            take_demand(self._links.setdefault(link, {}), message, MOST_GROUPS)
        elif isinstance(message, Holding):
            self._holding(link, message.refs, now)
        elif isinstance(message, Lost):
            self._lose(message.refs, now)
        elif isinstance(message, Returned):
            self._return(message.refs, now)
        elif isinstance(message, Starting):
            self._starting(link, message.refs, now)
        elif isinstance(message, Parts):
            for part in message.rows:
                if (job := self._present(part.serial, part.term, part.fence)) is not None:
                    self._renew(job, now)
                    if job.spec.stream:
                        self._intake.part(job, part.place, part.data)
        elif isinstance(message, Progress):
            for serial, term, fence, fraction in message.rows:
                if (job := self._present(serial, term, fence)) is not None:
                    self._renew(job, now)
                    self._intake.progress(job, fraction)

    def link_down(self, link: int, now: float) -> None:
        """Forget the credit of a link; what was granted over it is lost, unless it is reported."""
        self._links.pop(link, None)
        self._down.pop(link, None)
        gone = [job for jobs in self._running.values() for job in jobs.values() if job.link == link]
        self._lose([Ref(job.serial, job.term, job.fence, job.attempts) for job in gone], now)

    def depths(self) -> dict[str, list[int]]:
        """Return the numbers of jobs that wait, and that are granted, by kind. It looks at every job."""
        found: dict[str, list[int]] = {}
        for job in self.table.jobs.values():
            if job.outcome < 0:
                found.setdefault(job.spec.kind, [0, 0])[job.status in (GRANTED, LOST, UNKNOWN, FINISHING)] += 1
        return found

    # ---- commits

    def committed(self, entries: Iterable[bytes], now: float) -> None:
        """Apply committed entries, and act on them."""
        stats = self.stats
        for data in entries:
            changes = self.table.apply(data)
            self._intake.committed(changes)
            for jobs in changes.accepted:
                stats.accepted += len(jobs)
                self._accept(jobs, now)
            if changes.finished:
                self._finished(changes.finished, changes.payloads)
            for job in changes.recorded:
                if (grant := self._counting.pop(job.serial, None)) is not None:
                    self._counted(job, grant)
                    continue
                self._recording -= 1
                if job.status == RECORDING:
                    job.status = QUEUED
                    self._queue.add_first(job)
            stats.forgotten += changes.forgotten

    def _accept(self, jobs: list[Job], now: float) -> None:
        spec = jobs[0].spec
        if spec.deadline is not None:
            for job in jobs:
                self._set_deadline(job, now)
        if spec.delay:
            for job in jobs:
                self._delay(job, now + spec.delay)
        else:
            self._queue.add(jobs)

    def _finished(self, jobs: Sequence[Job], payloads: Sequence[bytes]) -> None:
        ends, term, reporting = self._effects.ended, self.term, self.limits.ends
        taken, finishing, stopping = self._taken, self._finishing, self._stopping
        results = 0
        for job, payload in zip(jobs, payloads, strict=True):
            outcome, serial, worker = job.outcome, job.serial, job.worker
            started, finished = finishing.pop(serial, (0.0, job.finished))
            job.status = FINISHING
            if outcome == 0:
                results += 1
                error = ("", "")
            else:
                error = job.error
                self._count_end(outcome)
            if stopping and serial in stopping:
                link, ref = stopping.pop(serial)
                self._down.setdefault(link, []).append(ref)
            if worker:
                rows = taken.get(worker)
                if rows is None:
                    rows = taken[worker] = ([], [])
                rows[0].append(serial)
            if reporting:
                spec, source = job.spec, job.source
                ends.append(
                    JobEnd(
                        serial,
                        spec.kind,
                        job.key,
                        source.origin,
                        worker,
                        OUTCOMES[outcome],
                        error,
                        job.tries,
                        term,
                        job.queued,
                        started,
                        finished,
                        payload,
                        job.result,
                    )
                )
        self.stats.finished += results

    def _count_end(self, outcome: int) -> None:
        if outcome == _FAILED:
            self.stats.failed += 1
        elif outcome == _DEAD:
            self.stats.dead += 1
        else:
            self.stats.cancelled += 1

    # ---- grants

    def _grant(self, now: float) -> None:
        for link, groups in self._links.items():
            blocks: list[Block] = []
            size = 0
            for number, credit in groups.items():
                room = credit.jobs - self._recording
                while room > 0:
                    ready, several = self._queue.best(credit.kinds)
                    if ready is None:
                        break
                    most = min(room, RUN if several else MOST_ROWS)
                    used, block = self._take_block(number, ready, most, link, now)
                    room -= used
                    if block is not None:
                        credit.jobs -= len(block.serials)
                        blocks.append(block)
                        size += sum(map(len, block.payloads))
                        if size > MOST_BATCH_BYTES or len(blocks) >= MOST_GROUPS:
                            self._grants.append((link, Grant(self.term, blocks)))
                            blocks, size = [], 0
            if blocks:
                self._grants.append((link, Grant(self.term, blocks)))

    def _take_block(self, group: int, ready: deque[Job], most: int, link: int, now: float) -> tuple[int, Block | None]:
        """Grant jobs of one spec from the head of a queue; return how much credit they use, recorded ones included."""
        spec = ready[0].spec
        visibility, tries = spec.visibility, spec.tries
        due, term, inherited = now + visibility, self.term, self._inherited
        running = self._running.get(visibility)
        if running is None:
            running = self._running[visibility] = {}
        serials: list[int] = []
        fences: list[int] = []
        attempts: list[int] = []
        payloads: list[bytes] = []
        used = size = 0
        while ready and used < most:
            job = ready[0]
            if job.spec is not spec or size > MOST_BATCH_BYTES:
                break
            ready.popleft()
            if job.status != QUEUED:
                continue
            attempt = job.attempts + 1
            if job.suspect and attempt <= tries:
                attempt = 0
            elif attempt > job.tries and (attempt > 1 or job.serial <= inherited):
                if attempt > tries:
                    self._end(job, _DEAD, "lost", f"{tries} tries were lost with their workers")
                    continue
                job.status = RECORDING
                self._to_record.append(job)
                used += 1
                continue
            used += 1
            job.status = GRANTED
            job.counted = attempt > 0
            job.attempts = attempt or job.attempts
            job.grants += 1
            job.term = term
            job.fence = job.grants
            job.due = due
            job.link = link
            serial = job.serial
            running[serial] = job
            serials.append(serial)
            fences.append(job.grants)
            attempts.append(attempt)
            payloads.append(job.payload)
            size += len(job.payload)
        if not serials:
            return used, None
        if due < self.wake_at:
            self.wake_at = due
        self.stats.granted += len(serials)
        return used, Block(group, spec.kind, visibility, spec.stream, serials, fences, attempts, payloads)

    # ---- results

    def _take_results(self, message: Results, now: float) -> None:
        worker, term, serials, fences, results, durations, failures = message
        jobs, ready, finishing = self.table.jobs, self._results, self._finishing
        most, wall = self.limits.payload_bytes, now + self._wall
        for serial, fence, result, took in zip(serials, fences, results, durations, strict=True):
            job = jobs.get(serial)
            if job is None or job.status == FINISHING or not self._counts(job, term, fence):
                self._refuse(worker, serial, job, term, fence)
                continue
            if job.status == GRANTED:
                self._running[job.spec.visibility].pop(serial, None)
            elif self._lost:
                self._lost.pop(serial, None)
            job.worker = worker
            if len(result) > most:
                self._end(job, _FAILED, "TooLarge", f"result of {len(result)} bytes, over {most}")
                continue
            job.status = FINISHING
            job.term, job.fence, job.attempts = term, fence, max(1, job.attempts)
            ready.append((job, result))
            finishing[serial] = wall - took / 1000, wall
        for serial, fence, retry, kind, text, took in failures:
            job = jobs.get(serial)
            if job is None or job.status == FINISHING or not self._counts(job, term, fence):
                self._refuse(worker, serial, job, term, fence)
                continue
            job.worker = worker
            job.attempts = max(1, job.attempts)  # 0: of an earlier term, its start was not recorded
            finishing[serial] = wall - took / 1000, wall
            self._leave(job)
            job.term, job.fence = term, fence
            if retry and job.attempts < job.spec.tries:
                job.term, job.worker, job.suspect = NO_TERM, "", False
                finishing.pop(serial)
                self.stats.retried += 1
                pause = min(self.limits.longest_backoff, self.limits.backoff * 2.0 ** (job.attempts - 1))
                self._delay(job, now + pause * self._rng.random())
                self._rows(worker)[0].append(serial)
            else:
                self._end(job, _DEAD if retry else _FAILED, kind, text)

    def _counts(self, job: Job, term: int, fence: int) -> bool:
        """Return True if a result under this grant counts."""
        if job.term:
            return job.term == term and job.fence == fence
        return job.serial <= self._inherited and term < self.term

    def _refuse(self, worker: str, serial: int, job: Job | None, term: int, fence: int) -> None:
        """Tell the worker that it need not keep a result, unless the same result is being committed."""
        if job is not None and job.outcome < 0 and job.status == FINISHING and self._counts(job, term, fence):
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

    # ---- losses

    def _holding(self, link: int, refs: Iterable[Ref], now: float) -> None:
        for ref in refs:
            serial, term, fence, attempt = ref
            job = self.table.jobs.get(serial)
            if job is None or job.outcome >= 0 or not self._counts(job, term, fence):
                self._down.setdefault(link, []).append(ref)
            elif job.status == FINISHING:
                self._stopping[serial] = link, ref
            elif job.status == GRANTED:
                job.link = link
            else:
                self._leave(job)
                self.stats.reported += 1
                job.status, job.term, job.fence, job.link = GRANTED, term, fence, link
                job.attempts = max(job.attempts, attempt)
                job.counted = job.counted or attempt > 0
                job.due = now + job.spec.visibility
                self._running.setdefault(job.spec.visibility, {})[serial] = job
                self.wake_at = min(self.wake_at, job.due)

    def _starting(self, link: int, refs: Sequence[Ref], now: float) -> None:
        """Have the starts of jobs counted that ask before they start."""
        self._holding(link, refs, now)
        for serial, term, fence, _ in refs:
            job = self._present(serial, term, fence)
            if job is None or job.status != GRANTED:
                continue
            self._renew(job, now)
            if job.counted:
                self._allow(job)
            elif job.attempts >= job.spec.tries:  # an earlier host has counted this start, and died
                self._void(job)
                self._end(job, _DEAD, "lost", f"{job.spec.tries} tries were lost with their workers")
            elif serial not in self._counting:
                self._counting[serial] = term, fence
                self._to_count.append(job)

    def _counted(self, job: Job, grant: tuple[int, int]) -> None:
        """Let a job start whose start has been recorded, if its grant still counts."""
        if job.status == GRANTED and (job.term, job.fence) == grant:
            job.attempts = job.tries
            self._allow(job)

    def _allow(self, job: Job) -> None:
        job.counted = True
        self._starts.setdefault(job.link, []).append(Ref(job.serial, job.term, job.fence, job.attempts))

    def _lose(self, refs: Iterable[Ref], now: float) -> None:
        at = now + self.limits.grace
        for serial, term, fence, _ in refs:
            job = self.table.jobs.get(serial)
            if job is None or job.status != GRANTED or job.term != term or job.fence != fence:
                continue
            self._leave(job)
            self.stats.lost += 1
            job.status = LOST
            self._lost[serial] = at, job
            self.wake_at = min(self.wake_at, at)

    def _return(self, refs: Iterable[Ref], now: float) -> None:
        for serial, term, fence, attempt in refs:
            job = self.table.jobs.get(serial)
            if job is None or job.outcome >= 0 or job.status == FINISHING or not self._counts(job, term, fence):
                continue
            self._leave(job)
            self.stats.returned += 1
            job.term = NO_TERM
            job.attempts = min(job.attempts, attempt - 1) if attempt else job.attempts
            if job.grants > job.attempts + 2:
                self._delay(job, now + RETURN_PAUSE)
            else:
                job.status = QUEUED
                self._queue.add_first(job)

    def _requeue(self, job: Job, kind: str, text: str) -> None:
        """Queue a job whose worker is lost or too slow, or end it if that was its last try."""
        if job.attempts >= job.spec.tries:
            self._end(job, _DEAD, kind, text)
            return
        job.status = QUEUED
        self._queue.add_first(job)

    def _renew(self, job: Job, now: float) -> None:
        """Begin the visibility anew: the worker has reported."""
        if job.status == GRANTED:
            running = self._running[job.spec.visibility]
            running.pop(job.serial, None)
            running[job.serial] = job
            job.due = now + job.spec.visibility

    def _cancel(self, sender: str, message: Cancel) -> None:
        source = self.table.sources.get((sender, message.epoch))
        if source is None:
            return
        for number in message.numbers:
            job = source.jobs.get(number)
            if job is not None and job.outcome < 0 and job.status != FINISHING:
                self._void(job)
                self._end(job, _CANCELLED, "cancelled", f"by {sender}")

    def _void(self, job: Job) -> None:
        """Have the worker of a job told to stop it, once its end is committed."""
        if job.status == GRANTED:
            self._stopping[job.serial] = job.link, Ref(job.serial, job.term, job.fence, job.attempts)

    # ---- time

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
                self._end(job, _FAILED, "deadline", f"not finished within {job.spec.deadline} s")
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
            job.suspect = True
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
                self._requeue(job, "timeout", f"no result within {visibility} s")
        return wake

    def _delay(self, job: Job, at: float) -> None:
        job.status, job.due = DELAYED, at
        heappush(self._delayed, (at, job.serial, job))
        self.wake_at = min(self.wake_at, at)

    def _set_deadline(self, job: Job, now: float) -> None:
        if job.spec.deadline is not None:
            at = max(now, job.queued - self._wall + job.spec.deadline)
            heappush(self._deadlines, (at, job.serial, job))
            self.wake_at = min(self.wake_at, at)

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

    # ---- proposals

    def _propose(self, now: float) -> None:
        """Write what is to be committed into entries."""
        wall = round(now + self._wall, 3)
        operations = self._operations
        if self._to_record:
            jobs, self._to_record = self._to_record, []
            self._recording += len(jobs)
            operations.append(tries_op([job.serial for job in jobs], [job.attempts + 1 for job in jobs]))
        if self._to_count:
            jobs, self._to_count = self._to_count, []
            operations.append(tries_op([job.serial for job in jobs], [job.attempts + 1 for job in jobs]))
        if self._ends:
            rows = [
                (job.serial, outcome, kind, text, job.attempts, job.worker) for job, outcome, kind, text in self._ends
            ]
            self._ends = []
            operations += [end_op(wall, rows[at : at + 40]) for at in range(0, len(rows), 40)]  # 40 texts of 4 KiB
        if self._results:
            done, self._results = self._results, []
            operations += result_ops(wall, done)
        if not operations:
            return
        self._effects.entries += entries_of(operations)
        operations.clear()
