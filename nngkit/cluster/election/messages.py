"""Messages between voters. Pure: rows of CBOR values in and out.

::

    KINDS.pack(Survey(epoch, term, number))  ->  [4, epoch, term, number]
    KINDS.parse([4, 1, 2, 3], "b")           ->  Survey(1, 2, 3);  None for a kind of a later version

`epoch` is always the sender's: see `voter.py`.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from nngkit.cluster.frames import Id
from nngkit.messages import Flag, Integer, Natural, Row, Rows

MOST_VOTERS: Final = 15  # more than these make commits slow and elections no safer; also bounds the lists of epochs
MOST_ENTRIES: Final = 65_536  # of one Append, so that a row of empty entries is bounded

Epochs: TypeAlias = Annotated[tuple[tuple[Id, Natural], ...], Meta(max_length=MOST_VOTERS)]
"""Known epochs of voters, by id."""


class Message(Row, frozen=True):
    """A message between voters."""

    epoch: Natural


class Append(Message, frozen=True, tag=0):
    """Entries after `prev_index`, all of the term `entry_term`; without entries: a heartbeat.

    `stamp`: the host's clock in microseconds, which the reply returns.
    """

    term: Natural
    prev_index: Natural
    prev_term: Natural
    entry_term: Natural
    entries: Annotated[tuple[bytes, ...], Meta(max_length=MOST_ENTRIES)]
    commit: Natural
    stamp: Natural


class AppendReply(Message, frozen=True, tag=1):
    """Reply to Append. `match`: last index known to equal the host's and stored; if not `ok`: where to try next.

    `stamp`: from the Append, 0 if this is no promise. `blank`: the sender does not count for commits.
    """

    term: Natural
    ok: Flag
    match: Natural
    stamp: Natural
    blank: Flag


class SnapshotPart(Message, frozen=True, tag=2):
    """Bytes from `offset` of the snapshot at `index`, which has `total` bytes."""

    term: Natural
    index: Natural
    index_term: Natural
    total: Natural
    offset: Natural
    data: bytes
    stamp: Natural


class SnapshotReply(Message, frozen=True, tag=3):
    """Reply to SnapshotPart: the bytes before `offset` have arrived."""

    term: Natural
    index: Natural
    offset: Natural
    stamp: Natural
    blank: Flag


class Survey(Message, frozen=True, tag=4):
    """Question of a voter without a host."""

    term: Natural
    number: Natural


class SurveyReply(Message, frozen=True, tag=5):
    """State of a voter. `term`: a new term must be greater.

    `remaining`: milliseconds of its promise to a host. `beyond`: it is blank, and would vote as the last resort.
    `load`: in thousandths.
    """

    term: Natural
    number: Natural
    remaining: Natural
    blank: Flag
    beyond: Flag
    willing: Flag
    preference: Integer
    load: Natural
    last_term: Natural
    last_index: Natural


class Stand(Message, frozen=True, tag=6):
    """Nomination: stand for a new term. `over`: the term of a host that hands over, else 0."""

    term: Natural
    over: Natural


class VoteRequest(Message, frozen=True, tag=7):
    """Request for a vote in `term`."""

    term: Natural
    last_term: Natural
    last_index: Natural
    over: Natural


class VoteReply(Message, frozen=True, tag=8):
    """Vote or refusal, and the epochs that the voter knew."""

    term: Natural
    granted: Flag
    epochs: Epochs


class Recover(Message, frozen=True, tag=9):
    """Question of a blank voter; its epoch is the nonce."""

    number: Natural


class RecoverReply(Message, frozen=True, tag=10):
    """Reply to Recover. `nonce`, `number`: from the question. `hosting`: the sender is host of `term`.

    `began`: the voters that were all blank when the cluster began, with their epochs then.
    """

    nonce: Natural
    number: Natural
    blank: Flag
    term: Natural
    hosting: Flag
    last_term: Natural
    last_index: Natural
    epochs: Epochs
    began: Epochs


class Stale(Message, frozen=True, tag=11):
    """The receiver's epoch is older than `known`: messages of it are ignored."""

    known: Natural


KINDS: Final = Rows[Message]("election message", Message)
