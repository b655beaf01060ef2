"""Messages about jobs: between submitters, the host, and the workers of a tree. Pure: messages to rows, and back.

::

    message = Received(epoch=1, floor=8, numbers=[5, 7])
    pack(message)                     # [2, 1, 8, [5, 7]]: what envelope.encode takes
    parse([2, 1, 8, [5, 7]], "ada")   # Received(epoch=1, floor=8, numbers=[5, 7])
    parse([99], "ada")                # None: a kind that a later version has added
    parse([2, "x"], "ada")            # raises BadMessage

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

from collections.abc import Iterator, Sequence
from itertools import repeat
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypeVar

from msgspec import Meta
from msgspec.structs import force_setattr

from nngkit.errors import BadMessage
from nngkit.headers import MOST_PACKED
from nngkit.messages import ANY_TEXT, Flag, Natural, Row, Rows

OUTCOMES: Final = ("result", "failed", "dead", "cancelled")
"""Ends of a job; messages carry the index. dead: its tries are used up."""
PRIORITIES: Final = 16  # 0 to 15, higher first: enough to order kinds of work, few enough for a queue each
MOST_ID: Final = 64  # bytes of a node's id, as in the mesh
MOST_KIND: Final = 64  # bytes of a kind of work
MOST_KEY: Final = 256  # bytes of an idempotency key: a hash, a path or a URL
MOST_ERROR: Final = 4096  # bytes of an error's text: the end of a traceback
MOST_ROWS: Final = 10_000  # jobs in one message: more than a window holds, and decoded in milliseconds
MOST_BATCH_BYTES: Final = 128 * 1024  # payloads after which a batch is closed; one more job may follow
MOST_GROUPS: Final = 256  # groups of kinds in one Demand
MOST_KINDS: Final = 256  # kinds in one group
MOST_TRIES: Final = 1000
MOST_SECONDS: Final = 10 * 365 * 86400.0  # of a visibility, a delay or a deadline: longer than any cluster runs

Name: TypeAlias = Annotated[str, Meta(max_length=MOST_ID)]
Kind: TypeAlias = Annotated[str, Meta(max_length=MOST_KIND)]
ErrorKind: TypeAlias = Annotated[str, Meta(max_length=MOST_KIND, extra=ANY_TEXT)]
ErrorText: TypeAlias = Annotated[str, Meta(max_length=MOST_ERROR, extra=ANY_TEXT)]
Key: TypeAlias = Annotated[bytes, Meta(min_length=1, max_length=MOST_KEY)]
Span: TypeAlias = Annotated[float, Meta(ge=0, le=MOST_SECONDS)]
Running: TypeAlias = Annotated[float, Meta(ge=0.01, le=MOST_SECONDS)]
PackedHeaders: TypeAlias = Annotated[bytes, Meta(min_length=1, max_length=MOST_PACKED)]
Change: TypeAlias = Annotated[int, Meta(ge=-MOST_ROWS * MOST_GROUPS, le=MOST_ROWS * MOST_GROUPS)]
Fraction: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
T = TypeVar("T")
ROWS: Final = Meta(max_length=MOST_ROWS)
Numbers: TypeAlias = Annotated[list[Natural], ROWS]
Blobs: TypeAlias = Annotated[list[bytes], ROWS]
if TYPE_CHECKING:
    OneOr: TypeAlias = list[int]  # once it is read
    Submitters: TypeAlias = list[str]
else:
    OneOr = Natural | Numbers
    Submitters = Name | Annotated[list[Name], ROWS]


class Message(Row, frozen=True):
    """A message about jobs."""


class Spec(Row, frozen=True):
    """Properties that jobs of one batch share. Times are in seconds.

    ``visibility``: without a sign of the worker's node, until a job is given to another. ``deadline``: from its
    acceptance, or None. ``delay``: until it may start. ``stream``: its parts are sent to the submitter. ``timeout``:
    that its function may run; None, which is left out of a row as rows had no such field once: for ever. ``headers``:
    of the jobs, as CBOR that only the worker reads; left out as well.
    """

    kind: Annotated[str, Meta(min_length=1, max_length=MOST_KIND)]
    priority: Annotated[int, Meta(ge=0, lt=PRIORITIES)] = 0
    tries: Annotated[int, Meta(ge=1, le=MOST_TRIES)] = 3
    visibility: Running = 30.0
    deadline: Span | None = None
    delay: Span = 0.0
    stream: Flag = False
    timeout: Running | None = None
    headers: PackedHeaders | None = None

    def row(self) -> list[Any]:
        """Return it as a row of a message or an entry."""
        row = [self.kind, self.priority, self.tries, self.visibility, self.deadline, self.delay, self.stream]
        if self.headers is not None:
            return [*row, self.timeout, self.headers]
        return row if self.timeout is None else [*row, self.timeout]

    def sized(self, payloads: Sequence[bytes]) -> int:
        """Return the bytes of jobs with these payloads: each is counted with its headers."""
        size = sum(map(len, payloads))
        return size if self.headers is None else size + len(payloads) * len(self.headers)


class SubmitGroup(Row, frozen=True):
    """Jobs with one Spec: columns. ``keys`` is None if no job has an idempotency key."""

    spec: Spec
    numbers: Numbers
    payloads: Blobs
    keys: Annotated[list[Key | None], ROWS] | None

    def check(self) -> None:
        """Raise ValueError unless the numbers ascend, and the columns are of one length."""
        numbers = self.numbers
        if not numbers or numbers[0] < 1 or sorted(set(numbers)) != numbers:  # both in C: a few ns a number
            raise ValueError("numbers of jobs do not ascend from 1")
        _spread(self, len(numbers), "payloads", *(() if self.keys is None else ("keys",)))


class _OfRun(Message, frozen=True):
    epoch: Natural  # of the submitter: its run


class Submit(_OfRun, frozen=True, tag=1):
    """Jobs to accept. Numbers ascend in a group; ``floor``: the submitter waits for no number below it."""

    floor: Natural
    groups: Annotated[list[SubmitGroup], ROWS]


class Received(_OfRun, frozen=True, tag=2):
    """Results have arrived at the submitter: they may be forgotten."""

    floor: Natural
    numbers: Numbers


class Cancel(_OfRun, frozen=True, tag=3):
    """The submitter wants no results of these jobs."""

    numbers: Numbers


class Waiting(_OfRun, frozen=True, tag=4):
    """Accepted jobs without a result: asks for those results that exist, and for the numbers that are unknown."""

    floor: Natural
    numbers: Numbers


class Accepted(_OfRun, frozen=True, tag=10):
    """Jobs that a majority of the voters has, with their serials: 0 for one that ended and was forgotten.

    ``jobs`` and ``bytes`` are the window: unfinished jobs at most. Serials that ascend one by one are written as the
    first of them.
    """

    term: Natural
    numbers: Numbers
    serials: OneOr
    jobs: Natural
    bytes: Natural

    def check(self) -> None:
        """Raise ValueError unless the columns are of one length."""
        first: object = self.serials
        if isinstance(first, int):
            force_setattr(self, "serials", list(range(first, first + len(self.numbers))))
        _spread(self, len(self.numbers), "serials")


class Ended(Row, frozen=True):
    """A job that ended without a result. ``outcome``: index of OUTCOMES."""

    number: Natural
    outcome: Annotated[int, Meta(gt=0, lt=len(OUTCOMES))]
    error: ErrorKind
    text: ErrorText
    tries: Natural
    worker: Name


class Finished(_OfRun, frozen=True, tag=11):
    """Results, and jobs that ended otherwise."""

    numbers: Numbers
    results: Blobs
    others: Annotated[list[Ended], ROWS]

    def check(self) -> None:
        """Raise ValueError unless the columns are of one length."""
        _spread(self, len(self.numbers), "results")


class Missing(_OfRun, frozen=True, tag=12):
    """Numbers of a Waiting that the host of ``term`` does not know. If it is not an old host, all voters lost them."""

    term: Natural
    numbers: Numbers


class NotAccepted(Row, frozen=True):
    """The reason why a job is never accepted."""

    number: Natural
    why: ErrorText


class Refused(_OfRun, frozen=True, tag=13):
    """Submissions that are never accepted."""

    rows: Annotated[list[NotAccepted], ROWS]


class JobPart(Row, frozen=True):
    """The next part of a result; ``place`` counts from 0 in each attempt."""

    number: Natural
    attempt: Natural
    place: Natural
    data: bytes


class JobParts(_OfRun, frozen=True, tag=14):
    """Parts of results, for their submitter."""

    rows: Annotated[list[JobPart], ROWS]


class JobProgressed(Row, frozen=True):
    """Progress of a job, from 0 to 1."""

    number: Natural
    attempt: Natural
    fraction: Fraction


class JobProgress(_OfRun, frozen=True, tag=15):
    """Progress of jobs, for their submitter."""

    rows: Annotated[list[JobProgressed], ROWS]


class Ref(Row, frozen=True):
    """A grant: ``attempt`` is the number of the start it allows, from 1; 0 allows none yet, see Starting."""

    serial: Natural
    term: Natural
    fence: Natural
    attempt: Natural


class _Refs(Message, frozen=True):
    refs: Annotated[list[Ref], ROWS]


class Wanted(Row, frozen=True):
    """Credit of one group: its number, kinds (None: as before), the change of its credit, and its slots (absolute).

    ``idle``: the change of the part of its credit that would start at once; 0 is left out of a row, as rows had no such
    field once.
    """

    group: Natural
    kinds: Annotated[list[Kind], Meta(min_length=1, max_length=MOST_KINDS)] | None
    change: Change
    slots: Natural
    idle: Change = 0


class Demand(Message, frozen=True, tag=20):
    """Credit for jobs."""

    rows: Annotated[list[Wanted], Meta(max_length=MOST_GROUPS)]


class Failed(Row, frozen=True):
    """Failure of a job; ``took`` is in milliseconds."""

    serial: Natural
    fence: Natural
    retry: Flag
    error: ErrorKind
    text: ErrorText
    took: Natural


class Results(Message, frozen=True, tag=21):
    """Results of one worker under one term: columns; ``took`` is in milliseconds."""

    worker: Name
    term: Natural
    serials: Numbers
    fences: OneOr
    results: Blobs
    took: OneOr
    failures: Annotated[list[Failed], ROWS]

    def check(self) -> None:
        """Raise ValueError unless the columns are of one length."""
        _spread(self, len(self.serials), "fences", "results", "took")


class Holding(_Refs, frozen=True, tag=22):
    """Jobs that the subtree of the sender has, running or waiting. It renews their visibility."""


class Lost(_Refs, frozen=True, tag=23):
    """Grants that are not below the sender any more: its link to the child is down, whose workers may be dead or attach
    elsewhere. Also the answer to a Stop."""


class Returned(_Refs, frozen=True, tag=24):
    """Jobs that were not started and never will be, under this grant."""


class Part(Row, frozen=True):
    """One part of a result; ``place`` counts from 0 in each attempt."""

    serial: Natural
    term: Natural
    fence: Natural
    place: Natural
    data: bytes


class Parts(Message, frozen=True, tag=25):
    """Parts of results, on their way to the host."""

    rows: Annotated[list[Part], ROWS]


class Progressed(Row, frozen=True):
    """Progress of a job under a grant."""

    serial: Natural
    term: Natural
    fence: Natural
    fraction: Fraction


class Progress(Message, frozen=True, tag=26):
    """Progress, on its way to the host. It renews the visibility of the jobs, as parts do."""

    rows: Annotated[list[Progressed], ROWS]


class Starting(_Refs, frozen=True, tag=27):
    """Jobs that have a worker's slot under grants that allow no start yet: the host counts it, and sends Start."""


class Block(Row, frozen=True):
    """Granted jobs of one kind for the credit of one group: columns.

    ``timeout``: None is left out of a row. ``submitters``: ids of the nodes that the jobs come from; None, where no
    names are proven, is left out of a row too, and so are ``headers`` that jobs without any do not have.
    """

    group: Natural
    kind: Kind
    visibility: Span
    stream: Flag
    serials: Numbers
    fences: OneOr
    attempts: OneOr
    payloads: Blobs
    timeout: Span | None = None
    submitters: Submitters | None = None
    headers: PackedHeaders | None = None

    def check(self) -> None:
        """Raise ValueError unless the columns are of one length."""
        _spread(self, len(self.serials), "fences", "attempts", "payloads")
        if self.submitters is not None:
            _spread(self, len(self.serials), "submitters")


class Grant(Message, frozen=True, tag=30):
    """Jobs to do, under one term."""

    term: Natural
    blocks: Annotated[list[Block], ROWS]


class Stop(_Refs, frozen=True, tag=31):
    """Grants that are void: their jobs are cancelled or given to others."""


class Start(_Refs, frozen=True, tag=32):
    """Jobs that have asked may start now: ``attempt`` is the number of the start."""


class Taken(Message, frozen=True, tag=40):
    """Results that the worker need not keep: taken, or refused because the grant was void."""

    serials: Numbers
    refused: Numbers


KINDS: Final = Rows[Message]("work message", Message)
parse = KINDS.parse


def pack(message: Message) -> list[Any]:
    """Return the message as a row for `nngkit.envelope.encode`."""
    row = KINDS.pack(message)
    match row[0]:
        case 1:
            for group in row[3]:
                _trim(group[0], 7)
        case 10:
            row[4] = _ascending(row[4])
        case 20:
            for wanted in row[1]:
                _trim(wanted, 4)
        case 21:
            row[4], row[6] = _uniform(row[4]), _uniform(row[6])
        case 30:
            for block in row[2]:
                block[5], block[6] = _uniform(block[5]), _uniform(block[6])
                if block[9] is not None:
                    block[9] = _uniform(block[9])
                _trim(block, 8)
    return row


def _trim(row: list[Any], least: int) -> None:
    """Leave last items out that are None or 0."""
    while len(row) > least and row[-1] in (None, 0):
        del row[-1]


def _uniform(column: Sequence[Any]) -> Any:
    """Return the value if all are equal, else the column."""
    return column[0] if column and column.count(column[0]) == len(column) else column


def _ascending(column: list[int]) -> int | list[int]:
    """Return the first value if each is one more than the one before, as serials of new jobs are, else the column."""
    first, count = column[0] if column else 0, len(column)
    return first if column == list(range(first, first + count)) else column


def _spread(row: Row, count: int, *names: str) -> None:
    """Make columns of values that stand for equal ones. Raises ValueError for a column of another length."""
    for name in names:
        column = getattr(row, name)
        if type(column) in (int, str):
            force_setattr(row, name, [column] * count)
        elif len(column) != count:
            raise ValueError(f"field {name!r} has {len(column)} values instead of {count}")


class _Job(Spec, frozen=True, tag=0):
    """A Spec as a message of its own."""


_JOBS: Final = Rows[_Job]("job", _Job)


def grants_in(message: Message) -> Iterator[tuple[int, int, int]]:
    """Yield serial, term and fence of the grants that a child's message is about."""
    match message:
        case Results(term=term, serials=serials, fences=fences, failures=failures):
            yield from zip(serials, repeat(term), fences)
            yield from ((failed.serial, term, failed.fence) for failed in failures)
        case _Refs(refs=refs):
            yield from ((ref.serial, ref.term, ref.fence) for ref in refs)
        case Parts(rows=rows) | Progress(rows=rows):
            yield from ((row.serial, row.term, row.fence) for row in rows)


def batches(rows: list[T], most: int = MOST_ROWS) -> Iterator[list[T]]:
    """Yield rows in parts of at most `most`."""
    for at in range(0, len(rows), most):
        yield rows[at : at + most]


def pieces(sizes: Sequence[int], most: int, rows: int = MOST_ROWS) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and bytes of pieces of what has these sizes: `most` bytes, or one item, and `rows` items."""
    total = sum(sizes)
    if sizes and total <= most and len(sizes) <= rows:
        yield 0, len(sizes), total
        return
    start = size = 0
    for place, more in enumerate(sizes):
        if place > start and (size + more > most or place - start >= rows):
            yield start, place, size
            start, size = place, 0
        size += more
    if start < len(sizes):
        yield start, len(sizes), size


def check_spec(spec: Spec) -> str | None:
    """Return what is wrong with the properties of a job; None if nothing is."""
    try:
        _JOBS.parse([0, *spec.row()])
    except BadMessage as error:
        return error.why.partition(": ")[2]
    return None


def is_seconds(value: object) -> bool:
    """Return True for a time that messages may carry: 0 s to 10 years."""
    return type(value) in (int, float) and isfinite(value) and 0 <= value <= MOST_SECONDS  # type: ignore[arg-type,operator]
