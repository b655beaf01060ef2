"""Grants of the host's queue: which jobs go where, and what is reported of them. Pure. See work.py."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from nngkit.cluster.jobs.messages import (
    MOST_BATCH_BYTES,
    MOST_GROUPS,
    MOST_ROWS,
    Block,
    Grant,
    Ref,
)
from nngkit.cluster.jobs.states import DEAD, NO_TERM, HostJobs
from nngkit.cluster.jobs.table import (
    Job,
)
from nngkit.cluster.jobs.values import (
    FINISHING,
    GRANTED,
    LOST,
    QUEUED,
    RECORDING,
)

__all__ = ["HostGrants"]

RUN: Final = 16  # jobs of one kind in a row while another kind of the group has jobs
RETURN_PAUSE: Final = 0.1  # seconds until a job is granted again that came back at once several times
AT_ONCE: Final = 0.02  # seconds after the grant: a node that returns a job as it waits too long takes more
PLACING: Final = 1.0  # seconds that a worker may take to say that it has a job that runs alone: then it is an old one


class HostGrants(HostJobs):
    """Grants of one term, and the reports about them."""

    def _grant(self, now: float) -> None:
        for link, groups in self._links.items():
            blocks: list[Block] = []
            size = 0
            for number, credit in groups.items():
                room = credit.jobs - self._recording
                if room > 0 and (block := self._take_alone(number, credit.kinds, link, now)) is not None:
                    room -= 1
                    credit.jobs -= 1
                    blocks.append(block)
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

    def _take_alone(self, group: int, kinds: Collection[str], link: int, now: float) -> Block | None:
        """Grant a job whose worker was lost: it runs alone at the next, so one is placed after the other.

        Crews give each to the least busy node, as far as they know by then: of several at once, one node would get all
        that it could run beside each other, and send back all but one.
        """
        if self._placing is not None and now < self._placing[2] + PLACING:
            return None
        ready, _ = self._suspects.best(kinds)
        if ready is None:
            return None
        _, block = self._take_block(group, ready, 1, link, now)
        if block is not None:
            self._placing = block.serials[0], block.fences[0], now
            self.wake_at = min(self.wake_at, now + PLACING)
        return block

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
                    self._end(job, DEAD, "lost", f"{tries} tries were lost with their workers")
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
        return used, Block(group, spec.kind, visibility, spec.stream, serials, fences, attempts, payloads, spec.timeout)

    def _holding(self, link: int, refs: Iterable[Ref], now: float) -> None:
        for ref in refs:
            serial, term, fence = ref.serial, ref.term, ref.fence
            job = self.table.jobs.get(serial)
            if job is None or job.outcome >= 0 or not self._counts(job, term, fence):
                self._down.setdefault(link, []).append(ref)
            elif job.status == FINISHING:
                self._stopping[serial] = link, ref
            elif job.status == GRANTED:
                job.link = link
                self._placed(serial, fence)
                self._renew(job, now)
            else:
                self._leave(job)
                self.stats.reported += 1
                job.status, job.term, job.fence, job.link = GRANTED, term, fence, link
                job.attempts = max(job.attempts, ref.attempt)
                job.counted = job.counted or ref.attempt > 0
                job.due = now + job.spec.visibility
                self._running.setdefault(job.spec.visibility, {})[serial] = job
                self.wake_at = min(self.wake_at, job.due)

    def _starting(self, link: int, refs: Sequence[Ref], now: float) -> None:
        """Have the starts of jobs counted that ask before they start."""
        self._holding(link, refs, now)
        for ref in refs:
            serial, term, fence = ref.serial, ref.term, ref.fence
            job = self._present(serial, term, fence)
            if job is None or job.status != GRANTED:
                continue
            if job.counted:
                self._allow(job)
            elif job.attempts >= job.spec.tries:  # an earlier host has counted this start, and died
                self._void(job)
                self._end(job, DEAD, "lost", f"{job.spec.tries} tries were lost with their workers")
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

    def _placed(self, serial: int, fence: int) -> None:
        """Grant the next job that is to run alone: the last one has a worker, or is back."""
        if self._placing is not None and self._placing[:2] == (serial, fence):
            self._placing = None

    def _lose(self, refs: Iterable[Ref], now: float) -> None:
        at = now + self.limits.grace
        for ref in refs:
            job = self.table.jobs.get(ref.serial)
            if job is None or job.status != GRANTED or job.term != ref.term or job.fence != ref.fence:
                continue
            self._leave(job)
            self.stats.lost += 1
            job.status = LOST
            self._lost[job.serial] = at, job
            self.wake_at = min(self.wake_at, at)

    def _return(self, refs: Iterable[Ref], now: float) -> None:
        for ref in reversed(list(refs)):  # each goes to the head of its queue
            self._placed(ref.serial, ref.fence)
            job, attempt = self.table.jobs.get(ref.serial), ref.attempt
            if job is None or job.outcome >= 0 or job.status == FINISHING or not self._counts(job, ref.term, ref.fence):
                continue
            at_once = job.status == GRANTED and now < job.due - job.spec.visibility + AT_ONCE
            self._leave(job)
            self.stats.returned += 1
            job.term = NO_TERM
            job.attempts = min(job.attempts, attempt - 1) if attempt else job.attempts
            if at_once and not job.suspect and job.grants > job.attempts + 2:
                self._delay(job, now + RETURN_PAUSE)
            else:
                self._queue_first(job)
