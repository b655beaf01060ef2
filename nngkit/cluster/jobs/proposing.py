"""Operations that the host proposes: results in pieces, what may be forgotten, and the entries for both. Pure.

::

    operations += result_ops(wall, [(job, b"result"), ...])
    overdue, more = forgetting_ops(table, limits, now, wall)
    entries = entries_of(operations)              # each under 256 KiB, or with one larger operation
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nngkit.cluster.jobs.operations import Op, entry, finish_op, forget_op, sources_op
from nngkit.cluster.jobs.table import Job, JobTable
from nngkit.cluster.jobs.values import ENTRY_BYTES, FORGETTING, WorkLimits

__all__ = ["entries_of", "forgetting_ops", "result_ops"]

MOST_FORGOTTEN: Final = 5000  # finished jobs forgotten at once: an entry of 80 KiB


def result_ops(wall: float, done: Sequence[tuple[Job, bytes]]) -> list[Op]:
    """Return the operations that end jobs with results."""
    operations = []
    start = size = 0
    for place, (_, result) in enumerate(done):
        more = len(result) + 16
        if place > start and size + more > ENTRY_BYTES:
            operations.append(_finish(wall, done[start:place]))
            start, size = place, 0
        size += more
    operations.append(_finish(wall, done[start:]))
    return operations


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
    entries = []
    batch: list[Op] = []
    size = 0
    for operation in operations:
        more = _size(operation)
        if batch and size + more > ENTRY_BYTES:
            entries.append(entry(batch))
            batch, size = [], 0
        batch.append(operation)
        size += more
    if batch:
        entries.append(entry(batch))
    return entries


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
