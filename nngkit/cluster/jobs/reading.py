"""Reading of messages about jobs: what a peer sent, checked. Pure: rows in, messages out.

::

    parse([2, 1, 8, [5, 7]], "ada")   # Received(epoch=1, floor=8, numbers=[5, 7])
    parse([99], "ada")                # None: a kind that a later version has added
    parse([2, "x"], "ada")            # raises BadMessage

Columns are checked as wholes, by functions in C: 0.1 us a job (measured, 500 jobs). The lists of a message are those
of the decoded row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from nngkit.cluster.jobs.messages import (
    MOST_ERROR,
    MOST_GROUPS,
    MOST_ID,
    MOST_KEY,
    MOST_KIND,
    MOST_KINDS,
    MOST_NUMBER,
    MOST_ROWS,
    OUTCOMES,
    Accepted,
    Block,
    Cancel,
    Demand,
    Finished,
    Grant,
    Holding,
    JobParts,
    JobProgress,
    Lost,
    Message,
    Missing,
    Part,
    Parts,
    Progress,
    Received,
    Ref,
    Refused,
    Results,
    Returned,
    Spec,
    Start,
    Starting,
    Stop,
    Submit,
    SubmitGroup,
    Taken,
    Waiting,
    check_spec,
    is_seconds,
)
from nngkit.errors import BadMessage

__all__ = ["parse"]

_WHAT: Final = "work message"


def parse(row: object, peer: str | None = None) -> Message | None:
    """Return the message in a decoded row; None if its kind is of a later version. Raises BadMessage."""
    if type(row) is not list or not row or type(row[0]) is not int:
        _bad("it is not an array that begins with its kind", peer)
    reader = _READERS.get(row[0])
    if reader is None:
        return None
    arity, read = reader
    if len(row) != arity + 1:
        _bad(f"kind {row[0]} has {len(row) - 1} fields instead of {arity}", peer)
    return read(row, peer)


def _bad(why: str, peer: str | None) -> NoReturn:
    raise BadMessage(_WHAT, why, peer)


def _number(value: object, peer: str | None) -> int:
    if type(value) is not int or not 0 <= value <= MOST_NUMBER:
        _bad("a number is not an integer from 0 to 2^53 - 1", peer)
    return value


def _text(value: object, most: int, peer: str | None) -> str:
    if type(value) is not str or len(value) > most or len(value.encode()) > most:
        _bad(f"a text is not of at most {most} bytes", peer)
    return value


def _numbers(column: object, peer: str | None) -> list[int]:
    if type(column) is not list or len(column) > MOST_ROWS or (column and set(map(type, column)) != {int}):
        _bad(f"a column is not an array of at most {MOST_ROWS} integers", peer)
    if column and (min(column) < 0 or max(column) > MOST_NUMBER):
        _bad("a number is not an integer from 0 to 2^53 - 1", peer)
    return column


def _column(value: object, count: int, peer: str | None) -> list[int]:
    """Return a column of `count` integers, which may be written as one."""
    if type(value) is int:
        return [_number(value, peer)] * count
    column = _numbers(value, peer)
    if len(column) != count:
        _bad("the columns are not of one length", peer)
    return column


def _bytes(column: object, count: int, peer: str | None) -> list[bytes]:
    if type(column) is not list or len(column) != count or (column and set(map(type, column)) != {bytes}):
        _bad("a column is not an array of byte strings, one for each job", peer)
    return column


def _rows(value: object, width: int, peer: str | None) -> list[list[Any]]:
    if type(value) is not list or len(value) > MOST_ROWS:
        _bad(f"it is not an array of at most {MOST_ROWS} rows", peer)
    for row in value:
        if type(row) is not list or len(row) != width:
            _bad(f"a row is not an array of {width} fields", peer)
    return value


def _fraction(value: object, peer: str | None) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1:  # type: ignore[operator]
        _bad("a fraction is not a number from 0 to 1", peer)
    return float(value)  # type: ignore[arg-type]


def _submit(row: list[Any], peer: str | None) -> Submit:
    groups = []
    for spec_row, numbers, payloads, keys in _rows(row[3], 4, peer):
        if type(spec_row) is not list or len(spec_row) < len(Spec._fields) - 1:
            _bad(f"the properties of jobs are not an array of {len(Spec._fields) - 1} fields or more", peer)
        spec = Spec(*spec_row[: len(Spec._fields)])
        if (wrong := check_spec(spec)) is not None:
            _bad(wrong, peer)
        _numbers(numbers, peer)
        if not numbers or numbers[0] < 1 or any(map(int.__ge__, numbers, numbers[1:])):
            _bad("numbers of jobs do not ascend from 1", peer)
        _bytes(payloads, len(numbers), peer)
        if keys is not None:
            if type(keys) is not list or len(keys) != len(numbers):
                _bad("the columns are not of one length", peer)
            for key in keys:
                if key is not None and (type(key) is not bytes or not 0 < len(key) <= MOST_KEY):
                    _bad(f"a key is not a byte string of 1 to {MOST_KEY} bytes", peer)
        groups.append(SubmitGroup(spec, numbers, payloads, keys))
    return Submit(_number(row[1], peer), _number(row[2], peer), groups)


def _received(row: list[Any], peer: str | None) -> Received:
    return Received(_number(row[1], peer), _number(row[2], peer), _numbers(row[3], peer))


def _cancel(row: list[Any], peer: str | None) -> Cancel:
    return Cancel(_number(row[1], peer), _numbers(row[2], peer))


def _waiting(row: list[Any], peer: str | None) -> Waiting:
    return Waiting(_number(row[1], peer), _number(row[2], peer), _numbers(row[3], peer))


def _accepted(row: list[Any], peer: str | None) -> Accepted:
    numbers, serials = _numbers(row[3], peer), row[4]
    if type(serials) is int:
        first = _number(serials, peer)
        serials = list(range(first, first + len(numbers)))
    elif len(_numbers(serials, peer)) != len(numbers):
        _bad("the columns are not of one length", peer)
    jobs, size = _number(row[5], peer), _number(row[6], peer)
    return Accepted(_number(row[1], peer), _number(row[2], peer), numbers, serials, jobs, size)


def _finished(row: list[Any], peer: str | None) -> Finished:
    numbers = _numbers(row[2], peer)
    others = []
    for number, outcome, kind, text, tries, worker in _rows(row[4], 6, peer):
        if type(outcome) is not int or not 0 < outcome < len(OUTCOMES):
            _bad("an outcome is unknown", peer)
        kind, text = _text(kind, MOST_KIND, peer), _text(text, MOST_ERROR, peer)
        worker = _text(worker, MOST_ID, peer)
        others.append((_number(number, peer), outcome, kind, text, _number(tries, peer), worker))
    return Finished(_number(row[1], peer), numbers, _bytes(row[3], len(numbers), peer), others)


def _missing(row: list[Any], peer: str | None) -> Missing:
    return Missing(_number(row[1], peer), _number(row[2], peer), _numbers(row[3], peer))


def _refused(row: list[Any], peer: str | None) -> Refused:
    rows = [(_number(number, peer), _text(why, MOST_ERROR, peer)) for number, why in _rows(row[2], 2, peer)]
    return Refused(_number(row[1], peer), rows)


def _job_parts(row: list[Any], peer: str | None) -> JobParts:
    rows = []
    for number, attempt, index, data in _rows(row[2], 4, peer):
        _bytes([data], 1, peer)
        rows.append((_number(number, peer), _number(attempt, peer), _number(index, peer), data))
    return JobParts(_number(row[1], peer), rows)


def _job_progress(row: list[Any], peer: str | None) -> JobProgress:
    rows = [
        (_number(number, peer), _number(attempt, peer), _fraction(fraction, peer))
        for number, attempt, fraction in _rows(row[2], 3, peer)
    ]
    return JobProgress(_number(row[1], peer), rows)


def _demand(row: list[Any], peer: str | None) -> Demand:
    rows: list[tuple[int, list[str] | None, int, int]] = []
    for group, kinds, change, slots in _rows(row[1], 4, peer):
        if kinds is not None:
            if type(kinds) is not list or not 0 < len(kinds) <= MOST_KINDS:
                _bad(f"a group has not 1 to {MOST_KINDS} kinds", peer)
            for kind in kinds:
                _text(kind, MOST_KIND, peer)
        if type(change) is not int or abs(change) > MOST_ROWS * MOST_GROUPS:
            _bad("a change of credit is not an integer, or absurd", peer)
        rows.append((_number(group, peer), kinds, change, _number(slots, peer)))
    if len(rows) > MOST_GROUPS:
        _bad(f"there are more than {MOST_GROUPS} groups of kinds", peer)
    return Demand(rows)


def _results(row: list[Any], peer: str | None) -> Results:
    serials = _numbers(row[3], peer)
    count = len(serials)
    failures = []
    for serial, fence, retry, kind, text, took in _rows(row[7], 6, peer):
        if type(retry) is not bool:
            _bad("retry is not a bool", peer)
        kind, text = _text(kind, MOST_KIND, peer), _text(text, MOST_ERROR, peer)
        failures.append((_number(serial, peer), _number(fence, peer), retry, kind, text, _number(took, peer)))
    worker = _text(row[1], MOST_ID, peer)
    fences, took = _column(row[4], count, peer), _column(row[6], count, peer)
    return Results(worker, _number(row[2], peer), serials, fences, _bytes(row[5], count, peer), took, failures)


def _refs(row: list[Any], peer: str | None) -> list[Ref]:
    return [Ref(*_numbers(ref, peer)) for ref in _rows(row[1], 4, peer)]


def _parts(row: list[Any], peer: str | None) -> Parts:
    rows = []
    for serial, term, fence, place, data in _rows(row[1], 5, peer):
        _numbers([serial, term, fence, place], peer)
        _bytes([data], 1, peer)
        rows.append(Part(serial, term, fence, place, data))
    return Parts(rows)


def _progress(row: list[Any], peer: str | None) -> Progress:
    rows = []
    for serial, term, fence, fraction in _rows(row[1], 4, peer):
        _numbers([serial, term, fence], peer)
        rows.append((serial, term, fence, _fraction(fraction, peer)))
    return Progress(rows)


def _grant(row: list[Any], peer: str | None) -> Grant:
    blocks = []
    if type(row[2]) is not list or len(row[2]) > MOST_ROWS:
        _bad(f"it is not an array of at most {MOST_ROWS} rows", peer)
    for each in row[2]:
        if type(each) is not list or len(each) < 8:
            _bad("a row is not an array of 8 fields or more", peer)
        group, kind, visibility, stream, serials, fences, attempts, payloads = each[:8]
        timeout = each[8] if len(each) > 8 else None
        _text(kind, MOST_KIND, peer)
        if timeout is not None and not is_seconds(timeout):
            _bad("the timeout of a block is not a time", peer)
        if not is_seconds(visibility) or type(stream) is not bool:
            _bad("the visibility of a block is not a time, or stream not a bool", peer)
        count = len(_numbers(serials, peer))
        fences, attempts = _column(fences, count, peer), _column(attempts, count, peer)
        payloads = _bytes(payloads, count, peer)
        number = _number(group, peer)
        blocks.append(Block(number, kind, visibility, stream, serials, fences, attempts, payloads, timeout))
    return Grant(_number(row[1], peer), blocks)


def _taken(row: list[Any], peer: str | None) -> Taken:
    return Taken(_numbers(row[1], peer), _numbers(row[2], peer))


_READERS: Final[dict[int, tuple[int, Callable[[list[Any], str | None], Message]]]] = {
    1: (3, _submit),
    2: (3, _received),
    3: (2, _cancel),
    4: (3, _waiting),
    10: (6, _accepted),
    11: (4, _finished),
    12: (3, _missing),
    13: (2, _refused),
    14: (2, _job_parts),
    15: (2, _job_progress),
    20: (1, _demand),
    21: (7, _results),
    22: (1, lambda row, peer: Holding(_refs(row, peer))),
    23: (1, lambda row, peer: Lost(_refs(row, peer))),
    24: (1, lambda row, peer: Returned(_refs(row, peer))),
    25: (1, _parts),
    26: (1, _progress),
    27: (1, lambda row, peer: Starting(_refs(row, peer))),
    30: (2, _grant),
    31: (1, lambda row, peer: Stop(_refs(row, peer))),
    32: (1, lambda row, peer: Start(_refs(row, peer))),
    40: (2, _taken),
}
