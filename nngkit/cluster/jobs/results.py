"""Results of a crew until the host has taken them, their parts, and the last progress of each job. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from nngkit.cluster.jobs import messages
from nngkit.cluster.jobs.values import CrewJob, CrewLimits, CrewStats

GONE: Final = float("inf")  # time of sending of a result that need not be sent any more

Failure = tuple[bool, str, str]
"""Failure of a job: whether to retry, error kind, error text."""


@dataclass(slots=True, eq=False)
class _Kept:
    """A result that the host has not taken."""

    job: CrewJob
    result: bytes
    failure: Failure | None
    took: int
    sent: float = -1.0  # not yet


class CrewResults:
    """Results and parts of one worker, the node `id`."""

    def __init__(self, id: str, limits: CrewLimits, stats: CrewStats) -> None:
        self.id = id
        self.limits = limits
        self.stats = stats
        self.bytes = 0
        self.part_bytes = 0
        self._kept: dict[int, _Kept] = {}
        self._unsent: list[_Kept] = []
        self._parts: dict[int, list[messages.Part]] = {}  # by serial, until the result is taken
        self._new_parts: list[messages.Part] = []
        self._progress: dict[int, messages.Progressed] = {}

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def full(self) -> bool:
        """True while so much is kept that no job should be begun."""
        return len(self._kept) >= self.limits.retained or self.bytes >= self.limits.retained_bytes

    def job(self, serial: int) -> CrewJob | None:
        """Return the job whose result is kept, or None."""
        kept = self._kept.get(serial)
        return None if kept is None else kept.job

    def add(self, job: CrewJob, result: bytes, failure: Failure | None, took: float) -> None:
        """Keep a result. `took` is in seconds."""
        if job.serial in self._kept:
            self.drop(job.serial)
        kept = self._kept[job.serial] = _Kept(job, result, failure, int(took * 1000))
        job.payload = b""
        self.bytes += len(result)
        self._unsent.append(kept)
        self._progress.pop(job.serial, None)

    def drop(self, serial: int) -> None:
        """Forget a result, but not its parts."""
        kept = self._kept.pop(serial, None)
        if kept is not None:
            self.bytes -= len(kept.result)
            kept.sent = GONE

    def part(self, job: CrewJob, data: bytes) -> None:
        """Keep a part, so that it can be sent again; drop the oldest ones beyond the limit."""
        part = messages.Part(job.serial, job.term, job.fence, job.places, data)
        job.places += 1
        self._parts.setdefault(job.serial, []).append(part)
        self._new_parts.append(part)
        self.part_bytes += len(data)
        while self.part_bytes > self.limits.part_bytes:
            serial, parts = next(iter(self._parts.items()))
            self.part_bytes -= len(parts.pop(0).data)
            self.stats.dropped_parts += 1
            if not parts:
                del self._parts[serial]

    def drop_parts(self, serial: int) -> None:
        """Forget the parts of a job."""
        for part in self._parts.pop(serial, ()):
            self.part_bytes -= len(part.data)

    def progress(self, job: CrewJob, fraction: float) -> None:
        """Keep the last progress of a job until it is sent."""
        self._progress[job.serial] = messages.Progressed(job.serial, job.term, job.fence, min(1.0, max(0.0, fraction)))

    # ---- what is sent

    def send_all_again(self) -> None:
        """Have everything sent: the host may be another one."""
        self._new_parts = [part for parts in self._parts.values() for part in parts]
        self.stats.resent += len(self._kept) - len(self._unsent)
        self._unsent = list(self._kept.values())

    def send_again(self, before: float) -> None:
        """Have those results sent again that were sent before a time, and not taken."""
        due = [kept for kept in self._kept.values() if 0 <= kept.sent <= before]
        self.stats.resent += len(due)
        self._unsent += due

    def take(self, up: list[messages.Message], now: float) -> bool:
        """Append the messages for the parent; return True if results are among them."""
        if self._new_parts:
            parts, self._new_parts = self._new_parts, []
            sizes = [len(part.data) for part in parts]
            up += [
                messages.Parts(parts[start:end]) for start, end, _ in messages.pieces(sizes, messages.MOST_BATCH_BYTES)
            ]
        if self._progress:
            up.append(messages.Progress(list(self._progress.values())))
            self._progress = {}
        unsent, self._unsent = self._unsent, []
        by_term: defaultdict[int, list[_Kept]] = defaultdict(list)
        for kept in unsent:
            if kept.sent != GONE:
                kept.sent = now
                by_term[kept.job.term].append(kept)
        for term, rows in by_term.items():
            sizes = [len(kept.result) + len(kept.failure[2] if kept.failure else "") for kept in rows]
            for start, end, _ in messages.pieces(sizes, messages.MOST_BATCH_BYTES):
                up.append(self._message(term, rows[start:end]))
        return bool(by_term)

    def _message(self, term: int, rows: list[_Kept]) -> messages.Results:
        done = [kept for kept in rows if kept.failure is None]
        return messages.Results(
            self.id,
            term,
            [kept.job.serial for kept in done],
            [kept.job.fence for kept in done],
            [kept.result for kept in done],
            [kept.took for kept in done],
            [
                messages.Failed(kept.job.serial, kept.job.fence, *kept.failure, kept.took)
                for kept in rows
                if kept.failure
            ],
        )
