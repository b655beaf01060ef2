"""Operations on the table of jobs, as the host writes them into the log: see work_state.py. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nngkit.cluster.jobs.messages import Spec
from nngkit.cluster.jobs.table import VERSION, Source
from nngkit.envelope import encode

__all__ = [
    "Op",
    "cancel_op",
    "end_op",
    "entry",
    "finish_op",
    "forget_op",
    "pause_op",
    "received_op",
    "sources_op",
    "submit_op",
    "tries_op",
]

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
