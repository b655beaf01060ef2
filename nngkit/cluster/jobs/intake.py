"""The host's side towards submitters: what is accepted, and the messages that tell them. Pure.

`WorkHost` owns one `Intake`, which reads the table and appends operations to the host's; it changes no job.

| message | answer |
|---|---|
| Submit | Accepted after the commit, at once for known numbers; Finished for ended ones; Refused if too large |
| Received | none: the results are forgotten after the commit |
| Waiting | Finished, or Missing; none for unfinished jobs |

Beyond the limit of submitters, those without jobs are forgotten, the longest idle first.

Backpressure: a submitter may have as many unfinished jobs as the window in each Accepted says. A Submit beyond twice
the window, or while the table is full, is not accepted (`held_back`): the submitter keeps it and sends it again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import repeat
from typing import Final

from nngkit.cluster.jobs import messages
from nngkit.cluster.jobs.operations import Op, received_op, sources_op, submit_op
from nngkit.cluster.jobs.table import Changes, Job, JobTable, Source
from nngkit.cluster.jobs.values import CANCELLED, ENTRY_BYTES, WorkLimits, WorkStats

DISPLACE: Final = 0.5  # seconds between two searches for submitters to forget that found none


@dataclass(slots=True)
class _Outgoing:
    """Messages for one submitter, as they are collected."""

    accepted: list[int] = field(default_factory=list)
    tell: bool = False  # the window, although nothing is accepted
    numbers: list[int] = field(default_factory=list)
    results: list[bytes] = field(default_factory=list)
    others: list[messages.Ended] = field(default_factory=list)
    parts: list[messages.JobPart] = field(default_factory=list)
    progress: list[messages.JobProgressed] = field(default_factory=list)


class Intake:
    """Submitters of one term. `operations` is the host's list of what it will propose."""

    def __init__(self, term: int, table: JobTable, limits: WorkLimits, stats: WorkStats, operations: list[Op]) -> None:
        self._term = term
        self._table = table
        self._limits = limits
        self._stats = stats
        self._operations = operations
        self._outgoing: defaultdict[Source, _Outgoing] = defaultdict(_Outgoing)
        self._answers: list[tuple[str, messages.Message]] = []
        self._new: dict[tuple[str, int], Source] = {}  # submitters whose first jobs are not committed yet
        self._displaced: list[Source] = []  # whose forgetting is proposed, for want of room
        self._displace_at = 0.0  # not before, as each time looks at all
        self._proposed: deque[tuple[int, int]] = deque()  # jobs and bytes of each submit operation, in order
        self._pending_jobs = self._pending_bytes = 0

    # ---- messages

    def submit(self, sender: str, message: messages.Submit, now: float, wall: float) -> None:
        """Propose the new ones of the jobs."""
        source = self._source(sender, message.epoch, now)
        if source is None:
            self._stats.held_back += sum(len(group.numbers) for group in message.groups)
            return
        source.used = now
        floor = message.floor
        for group in message.groups:
            numbers = group.numbers
            if numbers[0] <= source.top or numbers[0] < source.floor:
                group = self._new_ones(source, group)
                numbers = group.numbers
                if not numbers:
                    continue
            if len(max(group.payloads, key=len)) > self._limits.payload_bytes:
                group = self._small_ones(source, group)
                numbers = group.numbers
                if not numbers:
                    continue
            size = group.spec.sized(group.payloads)
            if self._full(source, len(numbers), size):
                self._stats.held_back += len(numbers)
                self._outgoing[source].tell = True
                continue
            source.top = max(source.top, numbers[-1])
            source.pending.update(numbers)
            self._propose(source, floor, wall, group)

    def _source(self, sender: str, epoch: int, now: float) -> Source | None:
        name = sender, epoch
        source = self._table.sources.get(name)
        if source is None:
            source = self._new.get(name)
            if source is None and (self._room() or self._displace(now)):
                source = self._new[name] = Source(sender, epoch)
        return source

    def _room(self) -> bool:
        known = len(self._table.sources) - len(self._displaced) + len(self._new)
        return known < self._limits.sources

    def _displace(self, now: float) -> bool:
        """Have the longest idle submitters without jobs forgotten. Return True if there is room then.

        Some at a time, so that thousands of short runs a second do not look at all others each.
        """
        if now < self._displace_at:
            return False
        before, leaving = now - self._limits.settle_sources, set(self._displaced)
        idle = [
            source
            for source in self._table.sources.values()
            if source.used <= before and not source.jobs and not source.pending and source not in leaving
        ]
        if not idle:
            self._displace_at = now + DISPLACE
            return False
        longest = nsmallest(max(1, self._limits.sources // 100), idle, key=lambda source: source.used)
        self._displaced += longest
        self._operations.append(sources_op(longest))  # before the jobs of the one that takes the room
        return self._room()

    def _new_ones(self, source: Source, group: messages.SubmitGroup) -> messages.SubmitGroup:
        """Return the jobs that are neither known nor proposed; tell the submitter about the others."""
        rows = []
        for row in _rows(group):
            number = row[0]
            if number in source.pending:
                self._stats.repeated += 1
                continue
            job = source.jobs.get(number)
            if job is not None or number < source.floor or number in source.gone:
                self._stats.repeated += 1
                self._outgoing[source].accepted.append(number)
                if job is not None and job.outcome >= 0:
                    self._end(source, number, job)
                continue
            rows.append(row)
        return _group(group, rows)

    def _small_ones(self, source: Source, group: messages.SubmitGroup) -> messages.SubmitGroup:
        """Return the jobs whose payload is within the limit; refuse the others."""
        most = self._limits.payload_bytes
        rows = list(_rows(group))
        large = [
            messages.NotAccepted(row[0], f"payload of {len(row[1])} bytes, over {most}")
            for row in rows
            if len(row[1]) > most
        ]
        self._stats.refused += len(large)
        self._answers.append((source.origin, messages.Refused(source.epoch, large)))
        return _group(group, [row for row in rows if len(row[1]) <= most])

    def _full(self, source: Source, count: int, size: int) -> bool:
        limits, table = self._limits, self._table
        return (
            table.unfinished + self._pending_jobs + count > limits.jobs
            or table.bytes + self._pending_bytes + size > limits.bytes
            or len(source.jobs) + len(source.pending) + count > 2 * limits.window
        )

    def _propose(self, source: Source, floor: int, wall: float, group: messages.SubmitGroup) -> None:
        spec, numbers, payloads, keys = group.spec, group.numbers, group.payloads, group.keys
        for start, end, size in messages.pieces(list(map(len, payloads)), ENTRY_BYTES):
            part = keys and keys[start:end]
            self._operations.append(submit_op(source, floor, wall, spec, numbers[start:end], payloads[start:end], part))
            if spec.headers is not None:
                size += (end - start) * len(spec.headers)
            self._proposed.append((end - start, size))
            self._pending_jobs += end - start
            self._pending_bytes += size

    def received(self, sender: str, message: messages.Received, now: float) -> None:
        """Propose to forget results."""
        source = self._table.sources.get((sender, message.epoch))
        if source is not None:
            source.used = now
            numbers = [number for number in message.numbers if number in source.jobs]
            if numbers or message.floor > source.floor:
                self._operations.append(received_op(source, message.floor, numbers))

    def waiting(self, sender: str, message: messages.Waiting, now: float) -> None:
        """Answer with the ends that exist."""
        source = self._table.sources.get((sender, message.epoch))
        new = self._new.get((sender, message.epoch))
        missing = []
        for number in message.numbers:
            job = None if source is None else source.jobs.get(number)
            if job is not None and source is not None:
                if job.outcome >= 0:
                    self._end(source, number, job)
            elif not any(each is not None and number in each.pending for each in (source, new)):
                missing.append(number)
        if source is not None:
            source.used = now
            self._outgoing[source].tell = True
            if message.floor > source.floor:
                self._operations.append(received_op(source, message.floor, []))
        if missing:
            self._answers.append((sender, messages.Missing(message.epoch, self._term, missing)))

    # ---- after a commit

    def committed(self, changes: Changes) -> None:
        """Note what submitters are to be told about an applied entry."""
        if self._displaced:
            known = self._table.sources
            self._displaced = [each for each in self._displaced if known.get((each.origin, each.epoch)) is each]
        for source, numbers in changes.settled:
            if self._proposed:
                jobs, size = self._proposed.popleft()
                self._pending_jobs -= jobs
                self._pending_bytes -= size
            if self._new:
                new = self._new.pop((source.origin, source.epoch), None)
                if new is not None and new is not source:
                    source.top, source.used = max(source.top, new.top), new.used
                    source.pending |= new.pending
            source.pending.difference_update(numbers)
            self._outgoing[source].accepted.extend(numbers)
        for source, number, job in changes.known:
            self._stats.known += 1
            if job.outcome >= 0:
                self._end(source, number, job)
        for source, number, job in changes.detached:
            end = messages.Ended(number, CANCELLED, "cancelled", f"by {source.origin}", job.tries, "")
            self._outgoing[source].others.append(end)
        for job in changes.finished:
            self._end(job.source, job.number, job)
            if job.also is not None:
                for source, number in job.also:
                    self._end(source, number, job)

    def _end(self, source: Source, number: int, job: Job) -> None:
        to = self._outgoing[source]
        if job.outcome:
            to.others.append(messages.Ended(number, job.outcome, *job.error, job.tries, job.worker))
        else:
            to.numbers.append(number)
            to.results.append(job.result)

    def part(self, job: Job, place: int, data: bytes) -> None:
        """Pass a part of a result on."""
        for source, number in ((job.source, job.number), *(job.also or ())):
            self._outgoing[source].parts.append(messages.JobPart(number, job.attempts, place, data))

    def progress(self, job: Job, fraction: float) -> None:
        """Pass the progress of a job on."""
        for source, number in ((job.source, job.number), *(job.also or ())):
            self._outgoing[source].progress.append(messages.JobProgressed(number, job.attempts, fraction))

    def window(self) -> tuple[int, int]:
        """Return the window of a submitter: unfinished jobs, and their bytes."""
        limits, table = self._limits, self._table
        share = max(1, len(table.sources))
        jobs = (limits.jobs - table.unfinished - self._pending_jobs) // share
        size = (limits.bytes - table.bytes - self._pending_bytes) // share
        return min(limits.window, max(1, jobs)), min(limits.window_bytes, max(1, size))

    def take(self) -> list[tuple[str, messages.Message]]:
        """Return the messages since the last call."""
        taken, self._answers = self._answers, []
        if not self._outgoing:
            return taken
        outgoing, self._outgoing = self._outgoing, defaultdict(_Outgoing)
        window = self.window()
        for source, to in outgoing.items():
            origin, epoch = source.origin, source.epoch
            if to.accepted or to.tell:
                for start in range(0, max(1, len(to.accepted)), messages.MOST_ROWS):
                    numbers, jobs = to.accepted[start : start + messages.MOST_ROWS], source.jobs
                    serials = [jobs[number].serial if number in jobs else 0 for number in numbers]
                    taken.append((origin, messages.Accepted(epoch, self._term, numbers, serials, *window)))
            for start, end, _ in messages.pieces([len(part.data) for part in to.parts], messages.MOST_BATCH_BYTES):
                taken.append((origin, messages.JobParts(epoch, to.parts[start:end])))
            taken += [(origin, messages.JobProgress(epoch, list(rows))) for rows in messages.batches(to.progress)]
            for start, end, _ in messages.pieces(list(map(len, to.results)), messages.MOST_BATCH_BYTES):
                taken.append((origin, messages.Finished(epoch, to.numbers[start:end], to.results[start:end], [])))
            for start, end, _ in messages.pieces(
                [len(each.text.encode()) for each in to.others], messages.MOST_BATCH_BYTES
            ):
                taken.append((origin, messages.Finished(epoch, [], [], to.others[start:end])))
        return taken


def _rows(group: messages.SubmitGroup) -> Iterable[tuple[int, bytes, bytes | None]]:
    return zip(group.numbers, group.payloads, group.keys or repeat(None), strict=False)


def _group(group: messages.SubmitGroup, rows: Sequence[tuple[int, bytes, bytes | None]]) -> messages.SubmitGroup:
    keys = [row[2] for row in rows] if group.keys is not None else None
    return messages.SubmitGroup(group.spec, [row[0] for row in rows], [row[1] for row in rows], keys)
