"""Operations on the table of jobs, as the host writes them into the log: see table.py. Pure.

::

    operations += result_ops(wall, [(job, b"result"), ...])
    overdue, more = forgetting_ops(table, limits, now, wall)
    entries = entries_of(operations)              # each under 256 KiB, or with one larger operation
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from nngkit.cluster.jobs.messages import Spec, pieces
from nngkit.cluster.jobs.table import VERSION, Job, JobTable, Source
from nngkit.cluster.jobs.values import ENTRY_BYTES, FORGETTING, WorkLimits
from nngkit.envelope import encode

MOST_FORGOTTEN: Final = 5000  # finished jobs forgotten at once: an entry of 80 KiB

Op = list[Any]


def entry(operations: Sequence[Op]) -> bytes:
    """Return an entry of the log."""
    return encode([VERSION, *operations])


def submit_op(
    source: Source,
    floor: int,
    wall: float,
    spec: Spec,
    numbers: Sequence[int],
    payloads: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
) -> Op:
    """Return the operation that accepts jobs; numbers ascend."""
    return [1, source.origin, source.epoch, floor, wall, int(wall * 1e6), spec.row(), numbers, payloads, keys]


def finish_op(wall: float, serials: Sequence[int], results: Sequence[bytes], tries: Sequence[int]) -> Op:
    """Return the operation that ends jobs with results."""
    return [2, wall, serials, results, tries[0] if tries.count(tries[0]) == len(tries) else tries]


def end_op(wall: float, rows: Sequence[tuple[int, int, str, str, int, str]]) -> Op:
    """Return the operation that ends jobs otherwise: rows of serial, outcome, error kind, error text, tries, worker.

    Without rows it tells the time only.
    """
    return [3, wall, rows]


def cancel_op(wall: float, rows: Sequence[tuple[str, int, int, int, str]]) -> Op:
    """Return the operation that cancels jobs with a key: rows of origin, epoch, number, tries, worker."""
    return [8, wall, rows]


def tries_op(serials: Sequence[int], tries: Sequence[int]) -> Op:
    """Return the operation that records starts."""
    return [4, serials, tries]


def pause_op(serials: Sequence[int], tries: Sequence[int], dues: Sequence[int]) -> Op:
    """Return the operation that records failed starts, and in ms of the log's clock when the next may follow.

    A voter of an earlier version takes the starts, and ignores the times.
    """
    return [4, serials, tries, dues]


def received_op(source: Source, floor: int, numbers: Sequence[int]) -> Op:
    """Return the operation that forgets received results."""
    return [5, source.origin, source.epoch, floor, numbers]


def forget_op(serials: Sequence[int]) -> Op:
    """Return the operation that forgets finished jobs."""
    return [6, serials]


def sources_op(sources: Iterable[Source]) -> Op:
    """Return the operation that forgets submitters without jobs."""
    return [7, [[source.origin, source.epoch] for source in sources]]


def result_ops(wall: float, done: Sequence[tuple[Job, bytes]]) -> list[Op]:
    """Return the operations that end jobs with results."""
    sizes = [len(result) + 16 for _, result in done]
    return [_finish(wall, done[start:end]) for start, end, _ in pieces(sizes, ENTRY_BYTES)]


def _finish(wall: float, done: Sequence[tuple[Job, bytes]]) -> Op:
    serials = [job.serial for job, _ in done]
    return finish_op(wall, serials, [result for _, result in done], [job.attempts for job, _ in done])


def forgetting_ops(table: JobTable, limits: WorkLimits, now: float, wall: float) -> tuple[int, list[Op]]:
    """Return the operations for finished jobs that were kept long enough, and for submitters without jobs.

    The first value counts jobs whose submitter has not come for the result. What is proposed is marked.
    """
    operations = []
    serials: list[int] = []
    for serial, job in table.kept.items():
        if job.finished > wall - limits.keep_results or len(serials) >= MOST_FORGOTTEN:
            break
        if job.status != FORGETTING:
            job.status = FORGETTING
            serials.append(serial)
    overdue = len(serials)
    surplus = len(table.kept_keys) - limits.keys
    for serial, job in table.kept_keys.items():
        if (job.finished > wall - limits.keep_keys and surplus <= 0) or len(serials) >= MOST_FORGOTTEN:
            break
        surplus -= 1
        if job.status != FORGETTING:
            job.status = FORGETTING
            serials.append(serial)
    if serials:
        operations.append(forget_op(serials))
    idle = [
        source
        for source in table.sources.values()
        if source.used < now - limits.forget_sources and not source.jobs and not source.pending
    ]
    if idle:
        for source in idle:
            source.used = now  # it is proposed once
        operations.append(sources_op(idle))
    return overdue, operations


def entries_of(operations: Sequence[Op]) -> list[bytes]:
    """Return the operations as entries of the log, in their order."""
    sizes = list(map(_size, operations))
    return [entry(operations[start:end]) for start, end, _ in pieces(sizes, ENTRY_BYTES)]


def _size(operation: Op) -> int:
    """Return about the bytes of an operation: 8 for an integer of a column, and what it carries."""
    match operation[0]:
        case 1:
            return 8 * len(operation[7]) + sum(map(len, operation[8])) + sum(map(len, filter(None, operation[9] or ())))
        case 2:
            return 16 * len(operation[2]) + sum(map(len, operation[3]))
        case 8:
            return 192 * len(operation[2])  # two ids of 64 bytes
        case 3:
            return sum(len(row[3]) + 32 for row in operation[2])
        case _:
            return 16 * len(operation[-1])
