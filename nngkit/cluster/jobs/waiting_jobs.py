"""Queues of jobs by kind and priority. Pure.

::

    queue = WorkQueue()
    queue.add(jobs)                     # of one spec
    ready = queue.best({"render"})      # the deque of the best job: highest priority, then lowest serial; or None
    job = ready.popleft()               # `job.status` is QUEUED: best() has dropped the others from the head

A job that is granted, cancelled or finished in another way stays in its deque until it comes to the head: removal in
the middle would cost a search. A job may so be in a deque twice; its status says whether it is still queued.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from nngkit.cluster.jobs.messages import PRIORITIES
from nngkit.cluster.jobs.table import Job
from nngkit.cluster.jobs.values import QUEUED

__all__ = ["WorkQueue"]


class WorkQueue:
    """All queued jobs."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[int, deque[Job]]] = {}  # by kind and priority; empty ones are removed

    def add(self, jobs: Sequence[Job]) -> None:
        """Append jobs of one spec."""
        spec = jobs[0].spec
        self._of(spec.kind, spec.priority).extend(jobs)

    def add_first(self, job: Job) -> None:
        """Put a job at the head: it was queued before."""
        self._of(job.spec.kind, job.spec.priority).appendleft(job)

    def _of(self, kind: str, priority: int) -> deque[Job]:
        by_priority = self._kinds.get(kind)
        if by_priority is None:
            by_priority = self._kinds[kind] = {}
        ready = by_priority.get(priority)
        if ready is None:
            ready = by_priority[priority] = deque()
        return ready

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
                if ready[0].status == QUEUED:
                    return ready
                ready.popleft()
            del by_priority[priority]
        self._kinds.pop(kind, None)
        return None
