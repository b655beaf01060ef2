"""The replicated table of jobs: the same on all voters. Pure and deterministic: entries of the log in, changes out.

::

    table = JobTable()
    changes = table.apply(entry)          # each committed entry, in the order of the log, on every voter
    table.compact_bytes                   # bytes of entries since the last snapshot or restore
    snapshot = table.snapshot()           # bytes; equal tables have equal snapshots
    table.restore(snapshot)

    # the host writes entries with operations.py:
    entry([submit_op(...), finish_op(...), end_op(...), ...])

| operation | content | effect |
|---|---|---|
| 1 submit | origin, epoch, floor, wall, base, spec, numbers, payloads, keys | new jobs, each with the next serial |
| 2 finish | wall, serials, results, tries | jobs with a result |
| 3 end | wall, rows of serial, outcome, error kind, text, tries, worker | jobs that ended otherwise; none: the time |
| 4 tries | serials, tries | starts recorded before they are granted |
| 4 tries | serials, tries, dues in ms | failed starts: the next one is not before its due time |
| 5 received | origin, epoch, floor, numbers | results that the submitter has |
| 6 forget | serials | finished jobs that were kept long enough |
| 7 sources | pairs of origin and epoch | submitters without jobs |
| 8 cancel | wall, rows of origin, epoch, number, tries, worker | jobs with a key that a submitter wants no more |

`wall` and due times are seconds of the log's clock (log_clock.py). The first serial of a table is `base`, that clock in
microseconds: a cluster whose voters have lost their memory reuses no serial that a worker may still hold.

Invariants:

1. `apply` depends on the table and the entry only. Items that a later version has appended to an operation, or to a row
   of one, are ignored: what they say must not matter to the table.
2. A (origin, epoch, number) is accepted at most once, also after its result was forgotten: numbers below the floor, in
   `Source.gone` and in `Source.jobs` are known.
3. A job ends at most once: a second end of a serial changes nothing.
4. Of one kind and key there is one job; later submissions get its end, unless it was cancelled by operation 8. That
   ends a job only if no other number waits for it; else it only takes the number off the job.
5. `bytes` is the sum of the payloads of unfinished jobs, of results and errors that are kept, and of the headers of all
   of them.

The first version of a snapshot had no place for totals and pauses. Each is a row of a submitter without jobs and with
an empty origin, which no node has: an older voter keeps it, and forgets it like any idle submitter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final

from nngkit.cluster.jobs.messages import OUTCOMES, Spec
from nngkit.envelope import decode, encode
from nngkit.errors import BadMessage

MOST_ENTRY: Final = 16 * 1024 * 1024  # bytes of an entry: far over the host's batches, so that limits may grow
MOST_SNAPSHOT: Final = 4 * 1024 * 1024 * 1024  # bytes of a snapshot, over the cap of a host's table
MOST_SPECS: Final = 4096  # distinct specs that are shared between jobs; beyond, the table of them begins anew
VERSION: Final = 1
_WHAT: Final = "work log"
SPEC: Final = len(Spec.__struct_fields__)
_UNFINISHED: Final = -1
_CANCELLED: Final = 3  # index of OUTCOMES


Op = list[Any]


@dataclass(slots=True, eq=False)
class Source:
    """One run of a submitter: ``jobs`` by number, with those of other submitters under the same key.

    ``floor``: the submitter waits for no number below it. ``gone``: forgotten numbers from the floor on. ``top``: the
    highest number seen by the host, and `last` by the table: higher ones are new.
    """

    origin: str
    epoch: int
    floor: int = 1
    last: int = 0
    jobs: dict[int, Job] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    # of the host only
    top: int = 0
    pending: set[int] = field(default_factory=set)  # numbers proposed and not yet committed
    used: float = 0.0  # monotonic time of its last message


@dataclass(slots=True, eq=False)
class Job:
    """One accepted job. The second half of its attributes belongs to the host of the present term only.

    ``outcome`` is an index of OUTCOMES, -1 while unfinished; ``queued``, ``finished`` are seconds of the log's clock,
    as is ``not_before``, the end of its delay or of the pause after a failure, and 0.0 from a recorded start on;
    ``tries`` counts recorded starts; ``also``: further pairs of source and number under the same key.
    """

    serial: int
    source: Source
    number: int
    spec: Spec
    payload: bytes
    key: bytes | None
    queued: float
    not_before: float
    tries: int = field(default=0, init=False)
    outcome: int = field(default=_UNFINISHED, init=False)
    also: list[tuple[Source, int]] | None = field(default=None, init=False)
    result: bytes = field(init=False)  # this and the next two are set when the job ends
    error: tuple[str, str] = field(init=False)
    finished: float = field(init=False)
    # of the host only
    status: int = field(default=0, init=False)  # queued; the values are those of values.py
    attempts: int = field(default=0, init=False)  # starts known to this host
    grants: int = field(default=0, init=False)  # grants by this host: its fences
    term: int = field(default=0, init=False)  # of the last grant; 0: none
    fence: int = field(default=0, init=False)
    worker: str = field(default="", init=False)
    suspect: bool = field(default=False, init=False)  # a worker that had it was lost: it now asks before it starts
    counted: bool = field(default=False, init=False)  # the start under the last grant is among `attempts`
    due: float = field(init=False)  # this and the next are set at a grant
    link: int = field(init=False)


@dataclass(slots=True)
class Changes:
    """Changes by one entry."""

    accepted: list[list[Job]] = field(default_factory=list)  # new jobs
    # source, number and job of submissions whose key had a job
    known: list[tuple[Source, int, Job]] = field(default_factory=list)
    # those of the finished jobs that operation 8 has ended, and their workers before
    cancelled: list[tuple[Job, str]] = field(default_factory=list)
    # source, number and job of submissions that were cancelled, while others wait for the job
    detached: list[tuple[Source, int, Job]] = field(default_factory=list)
    finished: list[Job] = field(default_factory=list)  # jobs that ended, in the order of the entry
    payloads: list[bytes] = field(default_factory=list)  # their payloads, which the table keeps no longer
    recorded: list[Job] = field(default_factory=list)  # jobs whose tries were recorded, or that ended before
    paused: list[Job] = field(default_factory=list)  # the same, whose failed start was recorded
    # submitters and those of their numbers that are in the table now, or were before
    settled: list[tuple[Source, Sequence[int]]] = field(default_factory=list)
    forgotten: int = 0  # number of forgotten jobs


class JobTable:
    """All jobs that were accepted and not forgotten.

    `totals`: jobs that have ended, by index of OUTCOMES. `clock`: latest time of the entries.
    """

    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}
        self.sources: dict[tuple[str, int], Source] = {}
        self.keys: dict[tuple[str, bytes], Job] = {}
        self.kept: dict[int, Job] = {}  # finished, without a key or cancelled, not received: in the order of their ends
        self.kept_keys: dict[int, Job] = {}  # finished, with a key
        self.unfinished = 0
        self.bytes = 0
        self.compact_bytes = 0
        self.totals = [0] * len(OUTCOMES)
        self.clock = 0.0
        self._next = 0  # serial; 0: no job yet
        self._specs: dict[Spec, Spec] = {}

    def apply(self, data: bytes) -> Changes:
        """Apply one committed entry. Raises BadMessage for one of a newer version, before anything has changed."""
        operations = decode(data, what=_WHAT, limit=MOST_ENTRY)
        if type(operations) is not list or not operations or operations[0] != VERSION:
            raise BadMessage(_WHAT, "an entry is not of a known version")
        for operation in operations[1:]:
            if type(operation) is not list or not operation or not 1 <= operation[0] <= 8:
                raise BadMessage(_WHAT, "an operation is unknown")
        self.compact_bytes += len(data)
        changes = Changes()
        first = self._submit, self._finish, self._end, self._tries
        acts = *first, self._received, self._forget, self._forget_sources, self._cancel
        for operation in operations[1:]:
            acts[operation[0] - 1](operation, changes)
        return changes

    def _submit(self, operation: Op, changes: Changes) -> None:
        _, origin, epoch, floor, wall, base, spec_row, numbers, payloads, keys = operation[:10]
        source = self.sources.get((origin, epoch))
        if source is None:
            source = self.sources[origin, epoch] = Source(origin, epoch)
        self._raise_floor(source, floor, changes)
        self.clock = max(self.clock, wall)
        spec = self._shared(Spec(*spec_row[:SPEC]))
        if not self._next:
            self._next = base
        changes.settled.append((source, numbers))
        if keys is not None or numbers[0] <= source.last or numbers[0] < source.floor:
            self._submit_each(source, spec, wall, numbers, payloads, keys, changes)
            return
        serials = range(self._next, self._next + len(numbers))
        self._next += len(numbers)
        times = repeat(wall), repeat(_first_start(spec, wall))
        new = list(map(Job, serials, repeat(source), numbers, repeat(spec), payloads, repeat(None), *times))
        self.jobs.update(zip(serials, new, strict=True))
        source.jobs.update(zip(numbers, new, strict=True))
        source.last = numbers[-1]
        self.unfinished += len(new)
        self.bytes += spec.sized(payloads)
        changes.accepted.append(new)

    def _submit_each(
        self,
        source: Source,
        spec: Spec,
        wall: float,
        numbers: list[int],
        payloads: list[bytes],
        keys: list[bytes | None] | None,
        changes: Changes,
    ) -> None:
        """Accept those of the jobs that are new, one by one: some may be known, or have a key."""
        new = []
        for number, payload, key in zip(numbers, payloads, keys or repeat(None), strict=False):
            if number < source.floor or number in source.jobs or number in source.gone:
                continue
            source.last = max(source.last, number)
            known = None if key is None else self.keys.get((spec.kind, key))
            if known is not None:
                source.jobs[number] = known
                if known.also is None:
                    known.also = []
                known.also.append((source, number))
                changes.known.append((source, number, known))
                continue
            job = Job(self._next, source, number, spec, payload, key, wall, _first_start(spec, wall))
            self._next += 1
            self.jobs[job.serial] = source.jobs[number] = job
            if key is not None:
                self.keys[spec.kind, key] = job
            self.bytes += spec.sized((payload,))
            new.append(job)
        self.unfinished += len(new)
        if new:
            changes.accepted.append(new)

    def _finish(self, operation: Op, changes: Changes) -> None:
        _, wall, serials, results, tries = operation[:5]
        self.clock = max(self.clock, wall)
        jobs, kept, ended = self.jobs, self.kept, changes.finished
        payloads, size = changes.payloads, 0
        for serial, result, tried in zip(
            serials, results, repeat(tries) if type(tries) is int else tries, strict=False
        ):
            job = jobs.get(serial)
            if job is None or job.outcome >= 0:
                continue
            job.outcome = 0
            job.result = result
            job.finished = wall
            job.tries = tried
            size += len(result) - len(job.payload)
            payloads.append(job.payload)
            job.payload = b""
            if job.key is None:
                kept[serial] = job
            else:
                self.kept_keys[serial] = job
            ended.append(job)
            self.unfinished -= 1
            self.totals[0] += 1
        self.bytes += size

    def _end(self, operation: Op, changes: Changes) -> None:
        _, wall, rows = operation[:3]
        self.clock = max(self.clock, wall)
        for serial, outcome, kind, text, tries, worker, *_ in rows:
            job = self.jobs.get(serial)
            if job is None or job.outcome >= 0:
                continue
            (self.kept if job.key is None else self.kept_keys)[serial] = job
            job.tries, job.worker = tries, worker
            self._ended(job, wall, outcome, (kind, text), changes)

    def _ended(self, job: Job, wall: float, outcome: int, error: tuple[str, str], changes: Changes) -> None:
        job.outcome, job.error, job.result, job.finished = outcome, error, b"", wall
        self.bytes += sum(map(len, error)) - len(job.payload)
        changes.payloads.append(job.payload)
        job.payload = b""
        changes.finished.append(job)
        self.unfinished -= 1
        self.totals[outcome] += 1

    def _tries(self, operation: Op, changes: Changes) -> None:
        dues = operation[3] if len(operation) > 3 else None
        for serial, tries, due in zip(operation[1], operation[2], dues or repeat(0), strict=False):
            job = self.jobs.get(serial)
            if job is not None:
                if job.outcome < 0:
                    job.tries, job.not_before = tries, due / 1000
                (changes.recorded if dues is None else changes.paused).append(job)

    def _cancel(self, operation: Op, changes: Changes) -> None:
        """End jobs with a key, or take one of the numbers that wait for a job off it.

        Which of both is decided here: another submitter may join while the operation is on its way. A key whose job
        ends so is free again: a retry under it gets a new job, instead of an end that it did not ask for.
        """
        _, wall, rows = operation[:3]
        self.clock = max(self.clock, wall)
        for origin, epoch, number, tries, worker, *_ in rows:
            source = self.sources.get((origin, epoch))
            job = None if source is None else source.jobs.get(number)
            if source is None or job is None or job.key is None or job.outcome >= 0:
                continue
            if job.also:
                if (source, number) in job.also:
                    job.also.remove((source, number))
                else:
                    job.source, job.number = job.also.pop(0)
                del source.jobs[number]
                if number >= source.floor:
                    source.gone.add(number)
                changes.detached.append((source, number, job))
                continue
            del self.keys[job.spec.kind, job.key]
            changes.cancelled.append((job, job.worker))
            self.kept[job.serial] = job
            job.tries, job.worker = tries, worker
            self._ended(job, wall, _CANCELLED, ("cancelled", f"by {origin}"), changes)

    def _received(self, operation: Op, changes: Changes) -> None:
        _, origin, epoch, floor, numbers = operation[:5]
        source = self.sources.get((origin, epoch))
        if source is None:
            return
        self._let_go(source, numbers, changes)
        self._raise_floor(source, floor, changes)

    def _let_go(self, source: Source, numbers: Iterable[int], changes: Changes) -> None:
        """Forget finished jobs of a submitter; those with a key are kept for other submitters."""
        jobs, of_source, kept, gone = self.jobs, source.jobs, self.kept, source.gone
        for number in numbers:
            job = of_source.get(number)
            if job is None or job.outcome < 0:
                continue
            del of_source[number]
            gone.add(number)
            if job.key is None or job.serial in kept:
                del jobs[job.serial]
                kept.pop(job.serial, None)
                self.bytes -= _kept_bytes(job)
                changes.forgotten += 1
            elif job.also and (source, number) in job.also:
                job.also.remove((source, number))

    def _raise_floor(self, source: Source, floor: int, changes: Changes) -> None:
        """Forget what is known of the numbers below the floor, unless they are unfinished."""
        before = source.floor
        if floor <= before:
            return
        source.floor = floor
        few = floor - before <= len(source.jobs) + len(source.gone)
        below = range(before, floor) if few else [each for each in source.jobs if each < floor]
        if source.jobs:
            self._let_go(source, below, changes)
        if few:
            source.gone.difference_update(range(before, floor))
        else:
            source.gone = {each for each in source.gone if each >= floor}

    def _forget(self, operation: Op, changes: Changes) -> None:
        for serial in operation[1]:
            job = self.jobs.get(serial)
            if job is None or job.outcome < 0:
                continue
            del self.jobs[serial]
            self.kept.pop(serial, None)
            self.kept_keys.pop(serial, None)
            self.bytes -= _kept_bytes(job)
            changes.forgotten += 1
            if job.key is not None and self.keys.get((job.spec.kind, job.key)) is job:
                del self.keys[job.spec.kind, job.key]
            for source, number in [(job.source, job.number), *(job.also or ())]:
                if source.jobs.get(number) is job:
                    del source.jobs[number]
                    if number >= source.floor:
                        source.gone.add(number)

    def _forget_sources(self, operation: Op, _: Changes) -> None:
        for origin, epoch, *_ in operation[1]:
            source = self.sources.get((origin, epoch))
            if source is not None and not source.jobs:
                del self.sources[origin, epoch]

    def _shared(self, spec: Spec) -> Spec:
        """Return the one object that equal specs share."""
        if len(self._specs) >= MOST_SPECS:
            self._specs.clear()
        return self._specs.setdefault(spec, spec)

    # ---- snapshots

    def snapshot(self) -> bytes:
        """Return the whole table. Equal tables give equal bytes."""
        order = sorted(self.sources)
        places = {name: place for place, name in enumerate(order)}
        sources = []
        for name in order:
            source = self.sources[name]
            rows = sorted((number, job.serial) for number, job in source.jobs.items())
            sources.append([*name, source.floor, source.last, [*map(list, rows)], sorted(source.gone)])
        specs: dict[Spec, int] = {}
        jobs = []
        for serial, job in sorted(self.jobs.items()):
            spec = specs.setdefault(job.spec, len(specs))
            name = job.source.origin, job.source.epoch
            first = places.get(name, name)  # a job with a key may outlive its submitter's row
            also = [[each.origin, each.epoch, number] for each, number in job.also or ()]
            end = None
            if job.outcome >= 0:
                texts = (*job.error, job.worker) if job.outcome else ("", "", "")
                end = [job.outcome, job.result, *texts, job.finished]
            jobs.append([serial, first, job.number, spec, job.payload, job.key, job.queued, job.tries, also, end])
        sources += [["", outcome, 1, total, [], []] for outcome, total in enumerate(self.totals) if total]
        sources += [
            ["", serial, 1, round(job.not_before * 1000), [], []]
            for serial, job in sorted(self.jobs.items())
            if job.outcome < 0 and job.tries and job.not_before
        ]
        kept = [*self.kept], [*self.kept_keys]
        return encode([VERSION, self._next, sources, [spec.row() for spec in specs], jobs, *kept])

    def restore(self, snapshot: bytes) -> None:
        """Replace the table by a snapshot. Raises BadMessage for one of a newer version."""
        content = decode(snapshot, what=_WHAT, limit=MOST_SNAPSHOT)
        if type(content) is not list or len(content) != 7 or content[0] != VERSION:
            raise BadMessage(_WHAT, "a snapshot is not of a known version")
        self.__init__()  # type: ignore[misc]
        _, self._next, all_sources, spec_rows, jobs, kept, kept_keys = content
        order = [(row[0], row[1]) for row in all_sources]
        sources = [row for row in all_sources if row[0]]
        without_key = set(kept)
        for origin, epoch, floor, last, _, gone in sources:
            source = self.sources[origin, epoch] = Source(origin, epoch)
            source.floor, source.last, source.top, source.gone = floor, last, last, set(gone)
        specs = [self._shared(Spec(*row[:SPEC])) for row in spec_rows]
        for serial, first, number, spec, payload, key, queued, tries, also, end in jobs:
            name = order[first] if type(first) is int else tuple(first)
            start = 0.0 if tries else _first_start(specs[spec], queued)
            job = Job(serial, self._source_of(name), number, specs[spec], payload, key, queued, start)
            job.tries = tries
            self.clock = max(self.clock, queued)
            job.also = [(self._source_of((origin, epoch)), other) for origin, epoch, other in also] or None
            if end is not None:
                job.outcome, job.result, kind, text, job.worker, job.finished = end
                if job.outcome:
                    job.error = kind, text
                self.clock = max(self.clock, job.finished)
                self.bytes += _kept_bytes(job)
            else:
                self.unfinished += 1
                self.bytes += job.spec.sized((payload,))
            self.jobs[serial] = job
            if key is not None and serial not in without_key:
                self.keys[job.spec.kind, key] = job
        for origin, epoch, _, _, rows, _ in sources:
            self.sources[origin, epoch].jobs = {number: self.jobs[serial] for number, serial in rows}
        for _, name, _, value, *_ in (row for row in all_sources if not row[0]):
            if name < len(self.totals):
                self.totals[name] = value
            elif (paused := self.jobs.get(name)) is not None and paused.outcome < 0:
                paused.not_before = value / 1000
        self.kept = {serial: self.jobs[serial] for serial in kept}
        self.kept_keys = {serial: self.jobs[serial] for serial in kept_keys}

    def _source_of(self, name: tuple[str, int]) -> Source:
        """Return the submitter; one that is forgotten is only a name."""
        return self.sources.get(name) or Source(*name)


def _first_start(spec: Spec, queued: float) -> float:
    """Return `not_before` of a new job."""
    return queued + spec.delay if spec.delay else 0.0


def _kept_bytes(job: Job) -> int:
    return job.spec.sized((job.result,)) + (sum(map(len, job.error)) if job.outcome else 0)
