"""The host's queue of jobs in one term: accepts, grants, finishes, and gives lost jobs to other workers. Pure.

::

    host = WorkHost("a", term=7, table=table, now=now, wall=clock, rng=rng)   # anew at each Elected; see log_clock
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
   not reported when a term ended. A job whose worker was lost is granted without a start: the worker asks once it has
   nothing else to do, and the start is recorded then. So jobs that were beside one that kills its workers, or waited
   there, lose the first try at most.
5. An unfinished job is in a queue, in `_delayed`, `_lost` or `_running`, or an operation about it is proposed.
6. The visibility of a grant ends without a sign of its worker's node; so each job of one that is gone is granted again,
   or ends.

This file has what comes in and goes out, `work_grants` the grants, `work_jobs` the states of jobs and their times.

Times: `now` is monotonic. Those in the table are of the log's clock, which is `now` plus the difference at the start of
the term; those of JobEnd are of the host's wall clock, which is `ahead` seconds before that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Final

from nngkit.cluster.jobs.credit import take_demand
from nngkit.cluster.jobs.grants import HostGrants
from nngkit.cluster.jobs.messages import (
    MOST_GROUPS,
    MOST_ROWS,
    OUTCOMES,
    Cancel,
    Demand,
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
from nngkit.cluster.jobs.operations import cancel_op, end_op, pause_op, tries_op
from nngkit.cluster.jobs.proposing import entries_of, result_ops
from nngkit.cluster.jobs.states import CANCELLED, DEAD, FAILED, NO_TERM
from nngkit.cluster.jobs.table import Job
from nngkit.cluster.jobs.values import (
    FINISHING,
    GRANTED,
    LOST,
    RECORDING,
    UNKNOWN,
    JobEnd,
    WorkEffects,
)

__all__ = ["LOCAL", "WorkHost"]

LOCAL: Final = -1
"""Link between the host's queue and the crew of the same node; links to other nodes count from 0."""


class WorkHost(HostGrants):
    """The queue of one term. `wall`: the log's clock at `now`, in seconds; `ahead`: the wall clock's lead over it."""

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
            self._cancel(sender, message, now)
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
            for row in message.rows:
                if (job := self._present(row.serial, row.term, row.fence)) is not None:
                    self._renew(job, now)
                    self._intake.progress(job, row.fraction)

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
            for job, before in changes.cancelled:
                self._void(job)
                self._leave(job)
                if before and before != job.worker:  # its result has come since the cancellation was proposed
                    self._rows(before)[0].append(job.serial)
            for jobs in changes.accepted:
                stats.accepted += len(jobs)
                self._accept(jobs, now)
            if changes.finished:
                self._finished(changes.finished, changes.payloads)
            for job in changes.paused:
                self._rows(self._failed.pop(job.serial))[0].append(job.serial)
            for job in changes.recorded:
                if (grant := self._counting.pop(job.serial, None)) is not None:
                    self._counted(job, grant)
                    continue
                self._recording -= 1
                if job.status == RECORDING:
                    self._queue_first(job)
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
        ends, term, reporting, ahead = self._effects.ended, self.term, self.limits.ends, self._ahead
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
                        job.queued + ahead,
                        started and started + ahead,
                        finished + ahead,
                        payload,
                        job.result,
                    )
                )
        self.stats.finished += results

    def _count_end(self, outcome: int) -> None:
        if outcome == FAILED:
            self.stats.failed += 1
        elif outcome == DEAD:
            self.stats.dead += 1
        else:
            self.stats.cancelled += 1

    # ---- results

    def _take_results(self, message: Results, now: float) -> None:
        worker, term = message.worker, message.term
        jobs, ready, finishing = self.table.jobs, self._results, self._finishing
        most, wall = self.limits.payload_bytes, now + self._wall
        rows = zip(message.serials, message.fences, message.results, message.took, strict=True)
        for serial, fence, result, took in rows:
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
                self._end(job, FAILED, "TooLarge", f"result of {len(result)} bytes, over {most}")
                continue
            job.status = FINISHING
            job.term, job.fence, job.attempts = term, fence, max(1, job.attempts)
            ready.append((job, result))
            finishing[serial] = wall - took / 1000, wall
        for failed in message.failures:
            serial, fence = failed.serial, failed.fence
            job = jobs.get(serial)
            if job is None or job.status == FINISHING or not self._counts(job, term, fence):
                self._refuse(worker, serial, job, term, fence)
                continue
            job.worker = worker
            job.attempts = max(1, job.attempts)  # 0: of an earlier term, its start was not recorded
            finishing[serial] = wall - failed.took / 1000, wall
            self._leave(job)
            job.term, job.fence = term, fence
            if failed.retry and job.attempts < job.spec.tries:
                job.term, job.worker, job.suspect = NO_TERM, "", False
                finishing.pop(serial)
                self.stats.retried += 1
                pause = min(self.limits.longest_backoff, self.limits.backoff * 2.0 ** (job.attempts - 1))
                self._delay(job, now + pause * self._rng.random())
                self._pauses.append((job, ceil((job.due + self._wall) * 1000)))
                self._failed[serial] = worker
            else:
                self._end(job, DEAD if failed.retry else FAILED, failed.error, failed.text)

    def _cancel(self, sender: str, message: Cancel, now: float) -> None:
        """Have jobs cancelled. What becomes of one with a key is known at the commit only: others may wait for it."""
        source = self.table.sources.get((sender, message.epoch))
        if source is None:
            return
        shared = []
        for number in message.numbers:
            job = source.jobs.get(number)
            if job is not None and job.outcome < 0 and job.status != FINISHING:
                if job.key is not None:
                    shared.append((sender, message.epoch, number, job.attempts, job.worker))
                    continue
                self._void(job)
                self._end(job, CANCELLED, "cancelled", f"by {sender}")
        if shared:
            wall = self._time(now)
            self._operations += [cancel_op(wall, shared[at : at + 500]) for at in range(0, len(shared), 500)]  # 100 KB

    # ---- proposals

    def _propose(self, now: float) -> None:
        """Write what is to be committed into entries."""
        wall = self._time(now)
        operations = self._operations
        if self._to_record:
            jobs, self._to_record = self._to_record, []
            self._recording += len(jobs)
            operations.append(tries_op([job.serial for job in jobs], [job.attempts + 1 for job in jobs]))
        if self._to_count:
            jobs, self._to_count = self._to_count, []
            operations.append(tries_op([job.serial for job in jobs], [job.attempts + 1 for job in jobs]))
        if self._pauses:
            paused, self._pauses = self._pauses, []
            jobs, dues = [job for job, _ in paused], [due for _, due in paused]
            operations.append(pause_op([job.serial for job in jobs], [job.attempts for job in jobs], dues))
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
