"""Grants of the host's queue: which jobs go where, and what is reported of them. Pure. See queue.py.

::

    grants = HostGrants(jobs)                # jobs: JobStates
    grants.demand(link, message)             # credit
    grants.grant(now)
    operations = grants.operations()         # starts to be recorded
    grants.recorded(job)                     # once that is committed
    grants.holding(link, refs, now); grants.starting(link, refs, now); grants.lose(refs, now)
    grants.give_back(refs, now); grants.link_down(link, now)
    messages = grants.take()                 # pairs of link and Grant, Stop or Start
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from nngkit.cluster.jobs import messages
from nngkit.cluster.jobs.credit import Credit, take_demand
from nngkit.cluster.jobs.operations import Op, tries_op
from nngkit.cluster.jobs.states import DEAD, NO_TERM, JobStates
from nngkit.cluster.jobs.table import Job
from nngkit.cluster.jobs.values import FINISHING, GRANTED, LOST, QUEUED, RECORDING

RUN: Final = 16  # jobs of one kind in a row while another kind of the group has jobs
RETURN_PAUSE: Final = 0.1  # seconds until a job is granted again that came back at once several times
AT_ONCE: Final = 0.02  # seconds after the grant: a node that returns a job as it waits too long takes more
PLACING: Final = 1.0  # seconds that a worker may take to say that it has a job that runs alone: then it is an old one


class HostGrants:
    """Grants of one term, and the reports about them. `names`: they say whose jobs they are."""

    def __init__(self, jobs: JobStates, *, names: bool = False) -> None:
        self._jobs = jobs
        self.names = names
        self._links: dict[int, dict[int, Credit]] = {}
        self._to_record: list[Job] = []
        self._recording = 0  # jobs whose start is proposed
        self._to_count: list[Job] = []  # the same for jobs that a worker is about to start
        self._counting: dict[int, tuple[int, int]] = {}  # their grants, by serial
        self._placing: tuple[int, int, float] | None = None  # serial, fence and time of the last grant to be run alone
        self._starts: defaultdict[int, list[messages.Ref]] = defaultdict(list)
        self._grants: list[tuple[int, messages.Message]] = []

    def demand(self, link: int, message: messages.Demand) -> None:
        """Change the credit of a link."""
        take_demand(self._links.setdefault(link, {}), message, messages.MOST_GROUPS)

    def link_down(self, link: int, now: float) -> None:
        """Forget the credit of a link; what was granted over it is lost, unless it is reported."""
        self._links.pop(link, None)
        self._jobs.stops.pop(link, None)
        gone = [job for jobs in self._jobs.running.values() for job in jobs.values() if job.link == link]
        self.lose([messages.Ref(job.serial, job.term, job.fence, job.attempts) for job in gone], now)

    def operations(self) -> list[Op]:
        """Return the operations that record starts."""
        operations = []
        self._recording += len(self._to_record)
        for jobs in (self._to_record, self._to_count):
            if jobs:
                operations.append(tries_op([job.serial for job in jobs], [job.attempts + 1 for job in jobs]))
                jobs.clear()
        return operations

    def recorded(self, job: Job) -> None:
        """Grant a job whose start is recorded, or let it start."""
        if (grant := self._counting.pop(job.serial, None)) is not None:
            self._counted(job, grant)
            return
        self._recording -= 1
        if job.status == RECORDING:
            self._jobs.queue_first(job)

    def take(self) -> list[tuple[int, messages.Message]]:
        """Return the messages since the last call: grants, what is to be stopped, and what may start."""
        taken, self._grants = self._grants, []
        for link, refs in self._jobs.stops.items():
            taken += [(link, messages.Stop(some)) for some in messages.batches(refs)]
        for link, refs in self._starts.items():
            taken += [(link, messages.Start(some)) for some in messages.batches(refs)]
        self._jobs.stops.clear()
        self._starts.clear()
        return taken

    def grant(self, now: float) -> None:
        """Grant what may be granted."""
        for link, groups in self._links.items():
            blocks: list[messages.Block] = []
            size = 0
            idle = [(credit, credit.idle) for credit in groups.values() if credit.idle > 0 and len(groups) > 1]
            for credit, at_most in (*idle, *((credit, credit.jobs) for credit in groups.values())):
                number = credit.number
                room = min(at_most, credit.jobs) - self._recording
                if room > 0 and (block := self._take_alone(number, credit.kinds, link, now)) is not None:
                    room -= 1
                    credit.use(1)
                    blocks.append(block)
                while room > 0:
                    ready, several = self._jobs.queue.best(credit.kinds)
                    if ready is None:
                        break
                    most = min(room, RUN if several else messages.MOST_ROWS)
                    used, block = self._take_block(number, ready, most, link, now)
                    room -= used
                    if block is not None:
                        credit.use(len(block.serials))
                        blocks.append(block)
                        size += sum(map(len, block.payloads)) + len(block.headers or b"")
                        if size > messages.MOST_BATCH_BYTES or len(blocks) >= messages.MOST_GROUPS:
                            self._grants.append((link, messages.Grant(self._jobs.term, blocks)))
                            blocks, size = [], 0
            if blocks:
                self._grants.append((link, messages.Grant(self._jobs.term, blocks)))

    def _take_alone(self, group: int, kinds: Collection[str], link: int, now: float) -> messages.Block | None:
        """Grant a job whose worker was lost: it runs alone at the next, so one is placed after the other.

        Crews give each to the least busy node, as far as they know by then: of several at once, one node would get all
        that it could run beside each other, and send back all but one.
        """
        if self._placing is not None and now < self._placing[2] + PLACING:
            return None
        ready, _ = self._jobs.suspects.best(kinds)
        if ready is None:
            return None
        _, block = self._take_block(group, ready, 1, link, now)
        if block is not None:
            self._placing = block.serials[0], block.fences[0], now
            self._jobs.wake_at = min(self._jobs.wake_at, now + PLACING)
        return block

    def _take_block(
        self, group: int, ready: deque[Job], most: int, link: int, now: float
    ) -> tuple[int, messages.Block | None]:
        """Grant jobs of one spec from the head of a queue; return how much credit they use, recorded ones included."""
        spec = ready[0].spec
        visibility, tries = spec.visibility, spec.tries
        due, term, inherited = now + visibility, self._jobs.term, self._jobs.inherited
        running = self._jobs.running[visibility]
        serials: list[int] = []
        fences: list[int] = []
        attempts: list[int] = []
        payloads: list[bytes] = []
        used = size = 0
        while ready and used < most:
            job = ready[0]
            if job.spec is not spec or size > messages.MOST_BATCH_BYTES:
                break
            ready.popleft()
            if job.status != QUEUED:
                continue
            attempt = job.attempts + 1
            if job.suspect and attempt <= tries:
                attempt = 0
            elif attempt > job.tries and (attempt > 1 or job.serial <= inherited):
                if attempt > tries:
                    self._jobs.end(job, DEAD, "lost", f"{tries} tries were lost with their workers")
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
        if due < self._jobs.wake_at:
            self._jobs.wake_at = due
        self._jobs.stats.granted += len(serials)
        jobs = self._jobs.table.jobs
        submitters = [jobs[serial].source.origin for serial in serials] if self.names else None
        return used, messages.Block(
            group,
            spec.kind,
            visibility,
            spec.stream,
            serials,
            fences,
            attempts,
            payloads,
            spec.timeout,
            submitters,
            spec.headers,
        )

    def holding(self, link: int, refs: Iterable[messages.Ref], now: float) -> None:
        """Take note of the grants that a subtree has; those that are void are stopped."""
        for ref in refs:
            serial, term, fence = ref.serial, ref.term, ref.fence
            job = self._jobs.table.jobs.get(serial)
            if job is None or job.outcome >= 0 or not self._jobs.counts(job, term, fence):
                self._jobs.stops[link].append(ref)
            elif job.status == FINISHING:
                self._jobs.stopping[serial] = link, ref
            elif job.status == GRANTED:
                job.link = link
                self._placed(serial, fence)
                self._jobs.renew(job, now)
            else:
                self._jobs.leave(job)
                self._jobs.stats.reported += 1
                job.status, job.term, job.fence, job.link = GRANTED, term, fence, link
                job.attempts = max(job.attempts, ref.attempt)
                job.counted = job.counted or ref.attempt > 0
                job.due = now + job.spec.visibility
                self._jobs.running[job.spec.visibility][serial] = job
                self._jobs.wake_at = min(self._jobs.wake_at, job.due)

    def starting(self, link: int, refs: Sequence[messages.Ref], now: float) -> None:
        """Have the starts of jobs counted that ask before they start."""
        self.holding(link, refs, now)
        for ref in refs:
            serial, term, fence = ref.serial, ref.term, ref.fence
            job = self._jobs.present(serial, term, fence)
            if job is None or job.status != GRANTED:
                continue
            if job.counted:
                self._allow(job)
            elif job.attempts >= job.spec.tries:  # an earlier host has counted this start, and died
                self._jobs.void(job)
                self._jobs.end(job, DEAD, "lost", f"{job.spec.tries} tries were lost with their workers")
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
        self._starts[job.link].append(messages.Ref(job.serial, job.term, job.fence, job.attempts))

    def _placed(self, serial: int, fence: int) -> None:
        """Grant the next job that is to run alone: the last one has a worker, or is back."""
        if self._placing is not None and self._placing[:2] == (serial, fence):
            self._placing = None

    def lose(self, refs: Iterable[messages.Ref], now: float) -> None:
        """Wait for a while whether a worker reports grants that are not where they were."""
        at = now + self._jobs.limits.grace
        for ref in refs:
            job = self._jobs.table.jobs.get(ref.serial)
            if job is None or job.status != GRANTED or job.term != ref.term or job.fence != ref.fence:
                continue
            self._jobs.leave(job)
            self._jobs.stats.lost += 1
            job.status = LOST
            self._jobs.lost[job.serial] = at, job
            self._jobs.wake_at = min(self._jobs.wake_at, at)

    def give_back(self, refs: Iterable[messages.Ref], now: float) -> None:
        """Queue jobs again that were not started."""
        for ref in reversed(list(refs)):  # each goes to the head of its queue
            self._placed(ref.serial, ref.fence)
            job, attempt = self._jobs.table.jobs.get(ref.serial), ref.attempt
            if (
                job is None
                or job.outcome >= 0
                or job.status == FINISHING
                or not self._jobs.counts(job, ref.term, ref.fence)
            ):
                continue
            at_once = job.status == GRANTED and now < job.due - job.spec.visibility + AT_ONCE
            self._jobs.leave(job)
            self._jobs.stats.returned += 1
            job.term = NO_TERM
            job.attempts = min(job.attempts, attempt - 1) if attempt else job.attempts
            if at_once and not job.suspect and job.grants > job.attempts + 2:
                self._jobs.delay(job, now + RETURN_PAUSE)
            else:
                self._jobs.queue_first(job)
