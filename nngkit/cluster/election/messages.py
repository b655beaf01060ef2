"""Messages between voters. Pure: rows of CBOR values in and out.

::

    pack(Survey(epoch, term, number))  ->  [4, epoch, term, number]
    parse([4, 1, 2, 3], "b")           ->  Survey(1, 2, 3);  None for a kind of a later version

Each row is the kind and the fields of its class, in their order. `epoch` is always the sender's: see `election.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from nngkit.errors import BadMessage

__all__ = [
    "MOST_ID",
    "MOST_VOTERS",
    "Append",
    "AppendReply",
    "Message",
    "Recover",
    "RecoverReply",
    "SnapshotPart",
    "SnapshotReply",
    "Stale",
    "Stand",
    "Survey",
    "SurveyReply",
    "VoteReply",
    "VoteRequest",
    "pack",
    "parse",
]

MOST_NUMBER: Final = (1 << 53) - 1  # every reader of CBOR has these integers
MOST_ID: Final = 64  # bytes of an id, as in the mesh
MOST_VOTERS: Final = 15  # more than these make commits slow and elections no safer; also bounds the lists of epochs
MOST_ENTRIES: Final = 65_536  # of one Append, so that a row of empty entries is bounded
_WHAT: Final = "election message"

Epochs: TypeAlias = tuple[tuple[str, int], ...]
"""Known epochs of voters, by id."""


class Append(NamedTuple):
    """Entries after `prev_index`, all of the term `entry_term`; without entries: a heartbeat.

    `stamp`: the host's clock in microseconds, which the reply returns.
    """

    epoch: int
    term: int
    prev_index: int
    prev_term: int
    entry_term: int
    entries: tuple[bytes, ...]
    commit: int
    stamp: int


class AppendReply(NamedTuple):
    """Reply to Append. `match`: last index known to equal the host's and stored; if not `ok`: where to try next.

    `stamp`: from the Append, 0 if this is no promise. `blank`: the sender does not count for commits.
    """

    epoch: int
    term: int
    ok: bool
    match: int
    stamp: int
    blank: bool


class SnapshotPart(NamedTuple):
    """Bytes from `offset` of the snapshot at `index`, which has `total` bytes."""

    epoch: int
    term: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which no caller needs
    index_term: int
    total: int
    offset: int
    data: bytes
    stamp: int


class SnapshotReply(NamedTuple):
    """Reply to SnapshotPart: the bytes before `offset` have arrived."""

    epoch: int
    term: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which no caller needs
    offset: int
    stamp: int
    blank: bool


class Survey(NamedTuple):
    """Question of a voter without a host."""

    epoch: int
    term: int
    number: int


class SurveyReply(NamedTuple):
    """State of a voter. `term`: a new term must be greater.

    `remaining`: milliseconds of its promise to a host. `beyond`: it is blank, and would vote as the last resort.
    `load`: in thousandths.
    """

    epoch: int
    term: int
    number: int
    remaining: int
    blank: bool
    beyond: bool
    willing: bool
    preference: int
    load: int
    last_term: int
    last_index: int


class Stand(NamedTuple):
    """Nomination: stand for a new term. `over`: the term of a host that hands over, else 0."""

    epoch: int
    term: int
    over: int


class VoteRequest(NamedTuple):
    """Request for a vote in `term`."""

    epoch: int
    term: int
    last_term: int
    last_index: int
    over: int


class VoteReply(NamedTuple):
    """Vote or refusal, and the epochs that the voter knew."""

    epoch: int
    term: int
    granted: bool
    epochs: Epochs


class Recover(NamedTuple):
    """Question of a blank voter; its epoch is the nonce."""

    epoch: int
    number: int


class RecoverReply(NamedTuple):
    """Reply to Recover. `nonce`, `number`: from the question. `hosting`: the sender is host of `term`.

    `began`: the voters that were all blank when the cluster began, with their epochs then.
    """

    epoch: int
    nonce: int
    number: int
    blank: bool
    term: int
    hosting: bool
    last_term: int
    last_index: int
    epochs: Epochs
    began: Epochs


class Stale(NamedTuple):
    """The receiver's epoch is older than `known`: messages of it are ignored."""

    epoch: int
    known: int


Message: TypeAlias = (
    Append
    | AppendReply
    | SnapshotPart
    | SnapshotReply
    | Survey
    | SurveyReply
    | Stand
    | VoteRequest
    | VoteReply
    | Recover
    | RecoverReply
    | Stale
)

_KINDS: Final[tuple[type[Any], ...]] = (
    Append,
    AppendReply,
    SnapshotPart,
    SnapshotReply,
    Survey,
    SurveyReply,
    Stand,
    VoteRequest,
    VoteReply,
    Recover,
    RecoverReply,
    Stale,
)
_NUMBER_OF: Final = {kind: number for number, kind in enumerate(_KINDS)}


def pack(message: Message) -> list[Any]:
    """Return the row of a message."""
    return [_NUMBER_OF[type(message)], *message]


def _natural(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST_NUMBER


def _integer(value: Any) -> bool:
    return type(value) is int and -MOST_NUMBER <= value <= MOST_NUMBER


def _flag(value: Any) -> bool:
    return type(value) is bool


def _bytes(value: Any) -> bool:
    return type(value) is bytes


def _entries(value: Any) -> bool:
    return type(value) in (list, tuple) and len(value) <= MOST_ENTRIES and all(type(one) is bytes for one in value)


def _epochs(value: Any) -> bool:
    return (
        type(value) in (list, tuple)
        and len(value) <= MOST_VOTERS
        and all(
            type(pair) in (list, tuple)
            and len(pair) == 2
            and type(pair[0]) is str
            and 0 < len(pair[0].encode()) <= MOST_ID
            and _natural(pair[1])
            for pair in value
        )
    )


_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    "int": _natural,
    "bool": _flag,
    "bytes": _bytes,
    "tuple[bytes, ...]": _entries,
    "Epochs": _epochs,
}


def _shape(kind: type[Any]) -> tuple[Callable[[Any], bool], ...]:
    types = {name: getattr(each, "__forward_arg__", each) for name, each in kind.__annotations__.items()}
    return tuple(_integer if name == "preference" else _CHECKS[str(each)] for name, each in types.items())


_SHAPES: Final = tuple(map(_shape, _KINDS))


def parse(row: object, peer: str | None = None) -> Message | None:
    """Return the message in a row; None for a kind of a later version. Raises BadMessage."""
    if type(row) is not list or not row or not _natural(row[0]):
        raise BadMessage(_WHAT, "it is not an array that begins with a kind", peer)
    if row[0] >= len(_KINDS):
        return None
    kind, shape = _KINDS[row[0]], _SHAPES[row[0]]
    if len(row) != len(shape) + 1:
        raise BadMessage(_WHAT, f"{kind.__name__} has {len(row) - 1} fields instead of {len(shape)}", peer)
    for check, value, name in zip(shape, row[1:], kind._fields, strict=True):
        if not check(value):
            raise BadMessage(_WHAT, f"field {name!r} of {kind.__name__} is not valid", peer)
    if kind is Append:
        row[6] = tuple(row[6])
    elif kind in (VoteReply, RecoverReply):
        row = [tuple(map(tuple, each)) if type(each) is list else each for each in row]
    message: Message = kind(*row[1:])
    return message
