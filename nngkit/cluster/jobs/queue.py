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
5. An unfinished job is in a queue, delayed, lost or running (see `JobStates`), or an operation about it is proposed.
6. The visibility of a grant ends without a sign of its worker's node; so each job of one that is gone is granted again,
   or ends.

`JobStates` has the states of jobs and their times, `HostGrants` the grants, `Intake` the submitters; here is what comes
in and goes out, results, and ends.

Times: `now` is monotonic. Those in the table are of the log's clock, which is `now` plus the difference at the start of
the term; those of JobEnd are of the host's wall clock, which is `ahead` seconds before that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import ceil, floor
from typing import Final

from nngkit.chance import RandomSource
from nngkit.cluster.jobs import messages, values
from nngkit.cluster.jobs.grants import HostGrants
from nngkit.cluster.jobs.intake import Intake
from nngkit.cluster.jobs.operations import Op, cancel_op, end_op, entries_of, forgetting_ops, pause_op, result_ops
from nngkit.cluster.jobs.states import DEAD, FAILED, NO_TERM, SWEEP, JobStates
from nngkit.cluster.jobs.table import Job, JobTable

LOCAL: Final = -1
"""Link between the host's queue and the crew of the same node; links to other nodes count from 0."""


class WorkHost:
    """The queue of one term.

    `wall`: the log's clock at `now`, in seconds; `ahead`: the wall clock's lead over it; `names`: ids of submitters are
    proven, and grants say them.
    """

    def __init__(
        self,
        id: str,
        *,
        term: int,
        table: JobTable,
        now: float,
        wall: float,
        rng: RandomSource,
        limits: values.WorkLimits | None = None,
        ahead: float = 0.0,
        names: bool = False,
    ) -> None:
        self.id, self.term, self.table = id, term, table
        self.limits = limits or values.WorkLimits()
        self.stats = values.WorkStats()
        self.granting = False
        self._rng = rng
        self._wall = wall - now
        self._ahead = ahead
        self._operations: list[Op] = []
        self._intake = Intake(term, table, self.limits, self.stats, self._operations)
        self._jobs = JobStates(table, term=term, now=now, wall=wall, limits=self.limits, stats=self.stats)
        self._grants = HostGrants(self._jobs, names=names)
        self._pauses: list[tuple[Job, int]] = []  # failed starts to be recorded, and when the next may follow
        self._failed: dict[int, str] = {}  # their workers, by serial, until that is committed
        self._results: list[tuple[Job, bytes]] = []  # to be proposed
        self._finishing: dict[int, tuple[float, float]] = {}  # start and end, wall clock, by serial
        self._taken: defaultdict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        self._effects = values.WorkEffects()
        self._sweep_at = now + SWEEP
        self.tell_time(now)

    @property
    def wake_at(self) -> float:
        """When to call `tick`, in seconds of `now`."""
        return min(self._jobs.wake_at, self._sweep_at)

    def tell_time(self, now: float) -> None:
        """Write the time of the log's clock: a voter that becomes host goes on from the last one that it heard."""
        self._operations.append(end_op(self._time(now), []))

    def _time(self, now: float) -> float:
        """Return the time of the log's clock, in whole milliseconds, rounded down: nothing is to start early."""
        return floor((now + self._wall) * 1000) / 1000

    def tick(self, now: float) -> None:
        """Do what is due. Sets `wake_at`."""
        self._jobs.tick(now)
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP
            overdue, operations = forgetting_ops(self.table, self.limits, now, now + self._wall)
            self.stats.overdue += overdue
            self._operations += operations
            self._jobs.sweep()

    # ---- what the node does

    def take(self, now: float) -> values.WorkEffects:
        """Grant what may be granted; return what is to be done since the last call."""
        if self.granting:
            self._grants.grant(now)
        self._propose(now)
        effects, self._effects = self._effects, values.WorkEffects()
        effects.down = self._grants.take()
        effects.unicasts = self._intake.take()
        for worker, (taken, refused) in self._taken.items():
            for at in range(0, max(len(taken), len(refused)), messages.MOST_ROWS):
                rows = taken[at : at + messages.MOST_ROWS], refused[at : at + messages.MOST_ROWS]
                effects.unicasts.append((worker, messages.Taken(*rows)))
        self._taken.clear()
        return effects

    def unicast(self, sender: str, message: messages.Message, now: float) -> None:
        """Handle a submitter's message. `sender` is the id that the network vouches for."""
        if isinstance(message, messages.Submit):
            self._intake.submit(sender, message, now, now + self._wall)
        elif isinstance(message, messages.Received):
            self._intake.received(sender, message, now)
        elif isinstance(message, messages.Cancel):
            self._cancel(sender, message, now)
        elif isinstance(message, messages.Waiting):
            self._intake.waiting(sender, message, now)

    def receive(self, link: int, message: messages.Message, now: float) -> None:
        """Handle a message from below, of the kinds from child to parent."""
        if isinstance(message, messages.Results):
            self._take_results(message, now)
        elif isinstance(message, messages.Demand):
            self._grants.demand(link, message)
        elif isinstance(message, messages.Holding):
            self._grants.holding(link, message.refs, now)
        elif isinstance(message, messages.Lost):
            self._grants.lose(message.refs, now)
        elif isinstance(message, messages.Returned):
            self._grants.give_back(message.refs, now)
        elif isinstance(message, messages.Starting):
            self._grants.starting(link, message.refs, now)
        elif isinstance(message, messages.Parts):
            for part in message.rows:
                if (job := self._jobs.present(part.serial, part.term, part.fence)) is not None:
                    self._jobs.renew(job, now)
                    if job.spec.stream:
                        self._intake.part(job, part.place, part.data)
        elif isinstance(message, messages.Progress):
            for row in message.rows:
                if (job := self._jobs.present(row.serial, row.term, row.fence)) is not None:
                    self._jobs.renew(job, now)
                    self._intake.progress(job, row.fraction)

    def link_down(self, link: int, now: float) -> None:
        """Forget the credit of a link; what was granted over it is lost, unless it is reported."""
        self._grants.link_down(link, now)

    def depths(self) -> dict[str, list[int]]:
        """Return the numbers of jobs that wait, and that are granted, by kind. It looks at every job."""
        found: dict[str, list[int]] = {}
        for job in self.table.jobs.values():
            if job.outcome < 0:
                found.setdefault(job.spec.kind, [0, 0])[
                    job.status in (values.GRANTED, values.LOST, values.UNKNOWN, values.FINISHING)
                ] += 1
        return found

    # ---- commits

    def committed(self, entries: Iterable[bytes], now: float) -> None:
        """Apply committed entries, and act on them."""
        stats = self.stats
        for data in entries:
            changes = self.table.apply(data)
            self._intake.committed(changes)
            for job, before in changes.cancelled:
                self._jobs.void(job)
                self._jobs.leave(job)
                if before and before != job.worker:  # its result has come since the cancellation was proposed
                    self._taken[before][0].append(job.serial)
            for jobs in changes.accepted:
                stats.accepted += len(jobs)
                self._jobs.accept(jobs, now)
            if changes.finished:
                self._finished(changes.finished, changes.payloads)
            for job in changes.paused:
                self._taken[self._failed.pop(job.serial)][0].append(job.serial)
            for job in changes.recorded:
                self._grants.recorded(job)
            stats.forgotten += changes.forgotten

    def _finished(self, jobs: Sequence[Job], payloads: Sequence[bytes]) -> None:
        ends, term, ahead = self._effects.ended, self.term, self._ahead
        taken, finishing, stopping = self._taken, self._finishing, self._jobs.stopping
        results = 0
        for job, payload in zip(jobs, payloads, strict=True):
            outcome, serial, worker = job.outcome, job.serial, job.worker
            started, finished = finishing.pop(serial, (0.0, job.finished))
            job.status = values.FINISHING
            if outcome == 0:
                results += 1
                error = ("", "")
            else:
                error = job.error
                self._count_end(outcome)
            if stopping and serial in stopping:
                link, ref = stopping.pop(serial)
                self._jobs.stops[link].append(ref)
            if worker:
                taken[worker][0].append(serial)
            spec, source = job.spec, job.source
            ends.append(
                values.JobEnd(
                    serial,
                    spec.kind,
                    job.key,
                    source.origin,
                    worker,
                    messages.OUTCOMES[outcome],
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

    def _take_results(self, message: messages.Results, now: float) -> None:
        worker, term = message.worker, message.term
        states, jobs, ready, finishing = self._jobs, self.table.jobs, self._results, self._finishing
        most, wall = self.limits.payload_bytes, now + self._wall
        rows = zip(message.serials, message.fences, message.results, message.took, strict=True)
        for serial, fence, result, took in rows:
            job = jobs.get(serial)
            if job is None or job.status == values.FINISHING or not self._jobs.counts(job, term, fence):
                self._refuse(worker, serial, job, term, fence)
                continue
            if job.status == values.GRANTED:
                states.running[job.spec.visibility].pop(serial, None)
            elif states.lost:
                states.lost.pop(serial, None)
            job.worker = worker
            if len(result) > most:
                self._jobs.end(job, FAILED, "TooLarge", f"result of {len(result)} bytes, over {most}")
                continue
            job.status = values.FINISHING
            job.term, job.fence, job.attempts = term, fence, max(1, job.attempts)
            ready.append((job, result))
            finishing[serial] = wall - took / 1000, wall
        for failed in message.failures:
            serial, fence = failed.serial, failed.fence
            job = jobs.get(serial)
            if job is None or job.status == values.FINISHING or not self._jobs.counts(job, term, fence):
                self._refuse(worker, serial, job, term, fence)
                continue
            job.worker = worker
            job.attempts = max(1, job.attempts)  # 0: of an earlier term, its start was not recorded
            finishing[serial] = wall - failed.took / 1000, wall
            self._jobs.leave(job)
            job.term, job.fence = term, fence
            if failed.retry and job.attempts < job.spec.tries:
                job.term, job.worker, job.suspect = NO_TERM, "", False
                finishing.pop(serial)
                self.stats.retried += 1
                pause = min(self.limits.longest_backoff, self.limits.backoff * 2.0 ** (job.attempts - 1))
                self._jobs.delay(job, now + pause * self._rng.random())
                self._pauses.append((job, ceil((job.due + self._wall) * 1000)))
                self._failed[serial] = worker
            else:
                self._jobs.end(job, DEAD if failed.retry else FAILED, failed.error, failed.text)

    def _refuse(self, worker: str, serial: int, job: Job | None, term: int, fence: int) -> None:
        """Tell the worker that it need not keep a result, unless it, or a failure of the job, is being committed."""
        if (
            job is not None
            and job.outcome < 0
            and job.status == values.FINISHING
            and self._jobs.counts(job, term, fence)
        ):
            return
        if serial in self._failed:
            return
        done = job is not None and job.outcome == 0 and self._jobs.counts(job, term, fence)
        self._taken[worker][not done].append(serial)
        self.stats.refused_results += not done

    def _cancel(self, sender: str, message: messages.Cancel, now: float) -> None:
        """Have jobs cancelled. What becomes of one with a key is known at the commit only: others may wait for it."""
        source = self.table.sources.get((sender, message.epoch))
        if source is None:
            return
        shared = []
        for number in message.numbers:
            job = source.jobs.get(number)
            if job is not None and job.outcome < 0 and job.status != values.FINISHING:
                if job.key is not None:
                    shared.append((sender, message.epoch, number, job.attempts, job.worker))
                else:
                    self._jobs.void(job)
                    self._jobs.end(job, values.CANCELLED, "cancelled", f"by {sender}")
        if shared:
            wall = self._time(now)
            self._operations += [cancel_op(wall, rows) for rows in messages.batches(shared, 500)]  # 100 KB

    # ---- proposals

    def _propose(self, now: float) -> None:
        """Write what is to be committed into entries."""
        wall = self._time(now)
        operations = self._operations
        operations += self._grants.operations()
        if self._pauses:
            paused, self._pauses = self._pauses, []
            jobs, dues = [job for job, _ in paused], [due for _, due in paused]
            operations.append(pause_op([job.serial for job in jobs], [job.attempts for job in jobs], dues))
        if ends := self._jobs.ends:
            rows = [(job.serial, outcome, kind, text, job.attempts, job.worker) for job, outcome, kind, text in ends]
            ends.clear()
            operations += [end_op(wall, some) for some in messages.batches(rows, 40)]  # 40 texts of 4 KiB
        if self._results:
            done, self._results = self._results, []
            operations += result_ops(wall, done)
        if not operations:
            return
        self._effects.entries += entries_of(operations)
        operations.clear()
