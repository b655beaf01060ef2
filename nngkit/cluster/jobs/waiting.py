"""Granted jobs that wait at a node for a slot, and which of them go back as they wait too long. Pure.

::

    waiting = Waiting()
    waiting.add(job, now)                    # behind the others
    job = waiting.next(places)               # the first one whose kind has a place; None: none
    waiting.watch(now, full)                 # after each change; full: no slot is free, and it asks for jobs ahead
    if now >= waiting.look_at:
        back = waiting.surplus(now)          # for another worker that has room

A node asks for a little more than it has slots for, by the mean time of its last jobs. A job that takes longer than
that keeps those behind it from workers that are idle. So each `PATIENCE` seconds those that have waited for so long go
back, but for as many of each kind as have started in that time: a node whose jobs flow keeps what it is about to start.
One in which none has started for so long asks for none ahead until one has ended, also if nothing waits yet.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator
from typing import Final

from nngkit.cluster.jobs.messages import Ref
from nngkit.cluster.jobs.slots import Places
from nngkit.cluster.jobs.values import CrewJob
from nngkit.cluster.log_clock import NEVER

PATIENCE: Final = 0.05  # seconds: over twice the work that waits beside running jobs (CrewLimits.ahead)


class Waiting:
    """Jobs in the order of their grants. `stalled`: for `PATIENCE`, no slot was free and no job started."""

    def __init__(self) -> None:
        self.look_at = NEVER
        self.stalled = False
        self._jobs: deque[CrewJob] = deque()
        self._started: Counter[str] = Counter()  # by kind, since the present look was set
        self._late = False  # the last look came late: the loop stood still, and the node could start none

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: object) -> bool:
        return job in self._jobs

    def __iter__(self) -> Iterator[CrewJob]:
        return iter(self._jobs)

    def add(self, job: CrewJob, now: float) -> None:
        """Append a job."""
        job.granted = now
        self._jobs.append(job)

    def next(self, running: Collection[int], places: Places) -> CrewJob | None:
        """Remove and return the next job to start, or None.

        A job of which an earlier grant still runs holds the others up, as the Stop of that is on its way.
        """
        held: list[CrewJob] = []
        found = None
        while self._jobs:
            job = self._jobs.popleft()
            if job.serial in running:
                held.append(job)
                break
            if not places.most or not places.full(job.kind):
                found = job
                self._started[job.kind] += 1
                break
            held.append(job)  # for a place of its kind
        self._jobs.extendleft(reversed(held))
        return found

    def find(self, ref: Ref) -> CrewJob | None:
        """Return the job under a grant, or None."""
        return next((job for job in self._jobs if job.under(ref)), None)

    def remove(self, job: CrewJob) -> None:
        """Remove a job."""
        self._jobs.remove(job)

    def clear(self) -> list[CrewJob]:
        """Remove all jobs; return them."""
        jobs = list(self._jobs)
        self._jobs.clear()
        return jobs

    def watch(self, now: float, full: bool) -> None:
        """Set the time of the next look, if there is a reason and none is set."""
        if not self._jobs and not full:
            self.look_at = NEVER
        elif self.look_at == NEVER:
            self.look_at = now + PATIENCE
            self._started.clear()

    def surplus(self, now: float) -> list[CrewJob]:
        """Remove and return the jobs that go back. Sets the next look."""
        late = now > self.look_at + PATIENCE and not self._late
        self._late = late
        back: list[CrewJob] = []
        if not late:
            flow = self._started
            self.stalled = not flow
            jobs, self._jobs = self._jobs, deque()
            for job in jobs:
                flow[job.kind] -= 1
                (self._jobs if flow[job.kind] >= 0 or now < job.granted + PATIENCE else back).append(job)
        self.look_at = NEVER
        self.watch(now, full=False)
        return back
