"""Messages about jobs: between submitters, the host, and the workers of a tree. Pure: messages to rows.

::

    message = Received(epoch=1, floor=8, numbers=[5, 7])
    pack(message)                     # [2, 1, 8, [5, 7]]: what envelope.encode takes

`work_reading.parse` is the other direction.

| from, to | messages |
|---|---|
| submitter -> host, unicast | Submit, Received, Cancel, Waiting |
| host -> submitter, unicast | Accepted, Finished, Missing, Refused, JobParts, JobProgress |
| child -> parent, hop by hop to the host | Demand, Results, Holding, Lost, Returned, Parts, Progress, Starting |
| parent -> child, hop by hop to the worker | Grant, Start, Stop |
| host -> worker, unicast | Taken |

A message carries many jobs as columns: a column of integers or bytes costs a fifth of rows in CBOR (measured, 500 jobs:
0.4 us a job against 1.7). A column whose values are all equal is written as the value.

A submitter's job has a number (its own, from 1) until the host's table gives it a `serial`. A grant is named by serial,
term and fence: the fence counts the grants of the job in the term.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any, Final, NamedTuple, TypeAlias

__all__ = [
    "MOST_BATCH_BYTES",
    "MOST_ERROR",
    "MOST_GROUPS",
    "MOST_ID",
    "MOST_KEY",
    "MOST_KIND",
    "MOST_KINDS",
    "MOST_NUMBER",
    "MOST_ROWS",
    "OUTCOMES",
    "PRIORITIES",
    "Accepted",
    "Block",
    "Cancel",
    "Demand",
    "Finished",
    "Grant",
    "Holding",
    "JobParts",
    "JobProgress",
    "Lost",
    "Message",
    "Missing",
    "Part",
    "Parts",
    "Progress",
    "Received",
    "Ref",
    "Refused",
    "Results",
    "Returned",
    "Spec",
    "Start",
    "Starting",
    "Stop",
    "Submit",
    "SubmitGroup",
    "Taken",
    "Waiting",
    "check_spec",
    "is_seconds",
    "pack",
]

OUTCOMES: Final = ("result", "failed", "dead", "cancelled")
"""Ends of a job; messages carry the index. dead: its tries are used up."""
PRIORITIES: Final = 16  # 0 to 15, higher first: enough to order kinds of work, few enough for a queue each
MOST_ID: Final = 64  # bytes of a node's id, as in the mesh
MOST_KIND: Final = 64  # bytes of a kind of work
MOST_KEY: Final = 256  # bytes of an idempotency key: a hash, a path or a URL
MOST_ERROR: Final = 4096  # bytes of an error's text: the end of a traceback
MOST_NUMBER: Final = (1 << 53) - 1  # every CBOR reader has these integers
MOST_ROWS: Final = 10_000  # jobs in one message: more than a window holds, and decoded in milliseconds
MOST_BATCH_BYTES: Final = 128 * 1024  # payloads after which a batch is closed; one more job may follow
MOST_GROUPS: Final = 256  # groups of kinds in one Demand
MOST_KINDS: Final = 256  # kinds in one group
MOST_TRIES: Final = 1000
MOST_SECONDS: Final = 10 * 365 * 86400.0  # of a visibility, a delay or a deadline: longer than any cluster runs


class Spec(NamedTuple):
    """Properties that jobs of one batch share. Times are in seconds.

    ``visibility``: without a sign of the worker's node, until a job is given to another. ``deadline``: from its
    acceptance, or None. ``delay``: until it may start. ``stream``: its parts are sent to the submitter. ``timeout``:
    that its function may run; None, which is left out of a row as rows had no such field once: for ever.
    """

    kind: str
    priority: int = 0
    tries: int = 3
    visibility: float = 30.0
    deadline: float | None = None
    delay: float = 0.0
    stream: bool = False
    timeout: float | None = None

    def row(self) -> list[Any]:
        """Return it as a row of a message or an entry."""
        return list(self if self.timeout is not None else self[:-1])


class SubmitGroup(NamedTuple):
    """Jobs with one Spec: columns. ``keys`` is None if no job has an idempotency key."""

    spec: Spec
    numbers: list[int]
    payloads: list[bytes]
    keys: list[bytes | None] | None


class Submit(NamedTuple):
    """Jobs to accept. Numbers ascend in a group; ``floor``: the submitter waits for no number below it."""

    epoch: int
    floor: int
    groups: list[SubmitGroup]


class Received(NamedTuple):
    """Results have arrived at the submitter: they may be forgotten."""

    epoch: int
    floor: int
    numbers: list[int]


class Cancel(NamedTuple):
    """The submitter wants no results of these jobs."""

    epoch: int
    numbers: list[int]


class Waiting(NamedTuple):
    """Accepted jobs without a result: asks for those results that exist, and for the numbers that are unknown."""

    epoch: int
    floor: int
    numbers: list[int]


class Accepted(NamedTuple):
    """Jobs that a majority of the voters has, with their serials: 0 for one that ended and was forgotten.

    ``jobs`` and ``bytes`` are the window: unfinished jobs at most.
    """

    epoch: int
    term: int
    numbers: list[int]
    serials: list[int]
    jobs: int
    bytes: int


class Finished(NamedTuple):
    """Results, and jobs that ended otherwise: rows of number, outcome, error kind, error text, tries, worker."""

    epoch: int
    numbers: list[int]
    results: list[bytes]
    others: list[tuple[int, int, str, str, int, str]]


class Missing(NamedTuple):
    """Numbers of a Waiting that the host of ``term`` does not know. If it is not an old host, all voters lost them."""

    epoch: int
    term: int
    numbers: list[int]


class Refused(NamedTuple):
    """Submissions that are never accepted: rows of number and reason."""

    epoch: int
    rows: list[tuple[int, str]]


class JobParts(NamedTuple):
    """Parts of results: rows of number, attempt, place of the part (from 0), data."""

    epoch: int
    rows: list[tuple[int, int, int, bytes]]


class JobProgress(NamedTuple):
    """Progress of jobs: rows of number, attempt, fraction from 0 to 1."""

    epoch: int
    rows: list[tuple[int, int, float]]


class Ref(NamedTuple):
    """A grant: ``attempt`` is the number of the start it allows, from 1; 0 allows none yet, see Starting."""

    serial: int
    term: int
    fence: int
    attempt: int


class Demand(NamedTuple):
    """Credit for jobs: rows of group number, kinds (None: as before), change of the credit, slots (absolute)."""

    rows: list[tuple[int, list[str] | None, int, int]]


class Results(NamedTuple):
    """Results of one worker under one term: columns; ``took`` is in milliseconds.

    ``failures``: rows of serial, fence, whether to retry, error kind, error text, took.
    """

    worker: str
    term: int
    serials: list[int]
    fences: list[int]
    results: list[bytes]
    took: list[int]
    failures: list[tuple[int, int, bool, str, str, int]]


class Holding(NamedTuple):
    """Jobs that the subtree of the sender has, running or waiting. It renews their visibility."""

    refs: list[Ref]


class Lost(NamedTuple):
    """Grants that are not below the sender any more: its link to the child is down, whose workers may be dead or attach
    elsewhere. Also the answer to a Stop."""

    refs: list[Ref]


class Returned(NamedTuple):
    """Jobs that were not started and never will be, under this grant."""

    refs: list[Ref]


class Part(NamedTuple):
    """One part of a result; ``place`` counts from 0 in each attempt."""

    serial: int
    term: int
    fence: int
    place: int
    data: bytes


class Parts(NamedTuple):
    """Parts of results, on their way to the host."""

    rows: list[Part]


class Progress(NamedTuple):
    """Progress: rows of serial, term, fence, fraction. It renews the visibility of the job, as parts do."""

    rows: list[tuple[int, int, int, float]]


class Starting(NamedTuple):
    """Jobs that have a worker's slot under grants that allow no start yet: the host counts it, and sends Start."""

    refs: list[Ref]


class Block(NamedTuple):
    """Granted jobs of one kind for the credit of one group: columns."""

    group: int
    kind: str
    visibility: float
    stream: bool
    serials: list[int]
    fences: list[int]
    attempts: list[int]
    payloads: list[bytes]
    timeout: float | None = None


class Grant(NamedTuple):
    """Jobs to do, under one term."""

    term: int
    blocks: list[Block]


class Start(NamedTuple):
    """Jobs that have asked may start now: ``attempt`` is the number of the start."""

    refs: list[Ref]


class Stop(NamedTuple):
    """Grants that are void: their jobs are cancelled or given to others."""

    refs: list[Ref]


class Taken(NamedTuple):
    """Results that the worker need not keep: taken, or refused because the grant was void."""

    serials: list[int]
    refused: list[int]


Message: TypeAlias = (
    Submit
    | Received
    | Cancel
    | Waiting
    | Accepted
    | Finished
    | Missing
    | Refused
    | JobParts
    | JobProgress
    | Demand
    | Results
    | Holding
    | Lost
    | Returned
    | Parts
    | Progress
    | Starting
    | Grant
    | Stop
    | Start
    | Taken
)

_KINDS: Final[dict[type, int]] = {
    Submit: 1,
    Received: 2,
    Cancel: 3,
    Waiting: 4,
    Accepted: 10,
    Finished: 11,
    Missing: 12,
    Refused: 13,
    JobParts: 14,
    JobProgress: 15,
    Demand: 20,
    Results: 21,
    Holding: 22,
    Lost: 23,
    Returned: 24,
    Parts: 25,
    Progress: 26,
    Starting: 27,
    Grant: 30,
    Stop: 31,
    Start: 32,
    Taken: 40,
}


def pack(message: Message) -> list[Any]:
    """Return the message as a row for `nngkit.envelope.encode`."""
    if isinstance(message, Submit):
        groups = [[each.spec.row(), each.numbers, each.payloads, each.keys] for each in message.groups]
        return [1, message.epoch, message.floor, groups]
    if isinstance(message, Accepted):
        epoch, term, numbers, serials, jobs, size = message
        return [10, epoch, term, numbers, _ascending(serials), jobs, size]
    if isinstance(message, Results):
        worker, term, serials, fences, results, took, failures = message
        return [21, worker, term, serials, _uniform(fences), results, _uniform(took), failures]
    if isinstance(message, Grant):
        blocks = [
            [group, kind, visibility, stream, serials, _uniform(fences), _uniform(attempts), payloads]
            + ([] if timeout is None else [timeout])
            for group, kind, visibility, stream, serials, fences, attempts, payloads, timeout in message.blocks
        ]
        return [30, message.term, blocks]
    if isinstance(message, Holding | Lost | Returned | Starting | Start | Stop):
        return [_KINDS[type(message)], [*map(list, message.refs)]]
    if isinstance(message, Parts):
        return [25, [*map(list, message.rows)]]
    return [_KINDS[type(message)], *message]


def _uniform(column: Sequence[Any]) -> Any:
    """Return the value if all are equal, else the column."""
    return column[0] if column and column.count(column[0]) == len(column) else column


def _ascending(column: list[int]) -> int | list[int]:
    """Return the first value if each is one more than the one before, as serials of new jobs are, else the column."""
    first, count = column[0] if column else 0, len(column)
    return first if column == list(range(first, first + count)) else column


def check_spec(spec: Spec) -> str | None:
    """Return what is wrong with the properties of a job; None if nothing is."""
    kind, priority, tries, visibility, deadline, delay, stream, timeout = spec
    if type(kind) is not str or not kind or len(kind.encode()) > MOST_KIND or not kind.isprintable():
        return f"the kind is not printable text of 1 to {MOST_KIND} bytes"
    if type(priority) is not int or not 0 <= priority < PRIORITIES:
        return f"the priority is not an integer from 0 to {PRIORITIES - 1}"
    if type(tries) is not int or not 1 <= tries <= MOST_TRIES:
        return f"tries is not an integer from 1 to {MOST_TRIES}"
    if not is_seconds(visibility) or visibility < 0.01:
        return "the visibility is not a time from 0.01 s to 10 years"
    if deadline is not None and not is_seconds(deadline):
        return "the deadline is not a time from 0 s to 10 years"
    if not is_seconds(delay):
        return "the delay is not a time from 0 s to 10 years"
    if type(stream) is not bool:
        return "stream is not a bool"
    if timeout is not None and (not is_seconds(timeout) or timeout < 0.01):
        return "the timeout is not a time from 0.01 s to 10 years"
    return None


def is_seconds(value: object) -> bool:
    """Return True for a time that messages may carry: 0 s to 10 years."""
    return type(value) in (int, float) and isfinite(value) and 0 <= value <= MOST_SECONDS  # type: ignore[arg-type,operator]
