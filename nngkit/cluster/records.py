"""Records of a cluster for a journal: ended jobs, changes of the host, messages. Pure: no clock, no file, no socket.

Three topics; values are CBOR (docs/wire.md), the protocol of all is ``cluster``::

    cluster.jobs        a record for up to 256 ended jobs, in columns, by the host
    cluster.hosts       a record for each HostChange that a node sees
    cluster.messages    a record for each message of the cluster

Each record has the arguments of `nngkit.journal.Recorder.put`::

    records = ClusterRecords("render", "a", epoch)
    for record in records.ends(effects.ended, time.time()):
        recorder.put(**record._asdict())            # False if the journal's buffer is full: counted there

The values of jobs and hosts are read by `parse_ends` and `parse_host_change`, those of messages by `parse_message`.
Bytes of a journal may come from anybody that writes to its recorder, so they are as hostile as those of a peer.

Jobs are in columns, many in a record, because a host ends 20,000 of them a second: with 256 in a record a job costs
3.1 us, with 32 4.0, alone 31; as rows of a record the encoding alone would take 3.8 instead of 2.1 (CPython 3.11).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite
from typing import Annotated, Any, Final, NamedTuple, NoReturn, TypeAlias

from msgspec import Meta, field
from msgspec.structs import replace

from nngkit.cluster.frames import MOST_KIND
from nngkit.cluster.jobs.messages import MOST_KEY, OUTCOMES
from nngkit.cluster.jobs.values import JobEnd
from nngkit.errors import BadMessage
from nngkit.mesh.wire import MOST_ORIGIN
from nngkit.messages import ANY_TEXT, MOST_NUMBER, Fields, Maps, Natural

__all__ = [
    "HOSTS",
    "JOBS",
    "MESSAGES",
    "MOST_ENDS",
    "PROTOCOL",
    "ClusterRecord",
    "ClusterRecords",
    "EndedJob",
    "Ends",
    "HostChange",
    "MessageRecord",
    "parse_ends",
    "parse_host_change",
    "parse_message",
]

PROTOCOL: Final = "cluster"  # of all these records
JOBS: Final = "jobs"  # topics behind the prefix
HOSTS: Final = "hosts"
MESSAGES: Final = "messages"
VERSION: Final = 1
MOST_ENDS: Final = 256  # jobs of a record: beyond, a job gets no cheaper; 20 KB usually
MOST_TEXT: Final = 480  # characters of an error's text or of a reason: the line that names it; the rest is cut off
MOST_ERROR: Final = 64  # characters of an error's kind, which is a word or the name of a class
MOST_CLUSTER: Final = 256  # bytes of a cluster's name
MOST_VALUE: Final = 1024 * 1024  # bytes of jobs or of a change: 256 jobs with all fields at their limits take 0.8 MB
MOST_MESSAGE: Final = 1 << 30  # bytes of a message's record: the largest message of a socket
MOST_TIME: Final = 253_402_300_799.0  # seconds since 1970, the end of the year 9999: the last time that Spark prints

_Cluster: TypeAlias = Annotated[str, Meta(max_length=MOST_CLUSTER, extra=ANY_TEXT)]
_Id: TypeAlias = Annotated[str, Meta(max_length=MOST_ORIGIN, extra=ANY_TEXT)]


class ClusterRecord(NamedTuple):
    """Arguments of `Recorder.put`."""

    value: bytes
    topic: str
    protocol: str
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    peer: str | None


class HostChange(Fields, frozen=True):
    """A node has learned that ``host`` is the host of ``term``, or, with None, that the term has no host any more.

    ``at``: wall clock seconds of that node; ``why``: one line, for people. Every voter should record its own: the
    host that is killed records no end, and the next one only the beginning of its own term.
    """

    cluster: _Cluster
    term: Natural
    host: _Id | None
    at: Annotated[float, Meta(ge=0, le=MOST_TIME)]
    why: Annotated[str, Meta(max_length=4 * MOST_TEXT, extra=ANY_TEXT)]


class EndedJob(NamedTuple):
    """One job of a record. Times are wall clock seconds; ``started`` is 0.0 if it never started.

    ``id``: its number in the cluster; ``outcome``: "result", "failed", "dead" or "cancelled"; ``payload`` and
    ``result`` are in bytes.
    """

    id: int
    kind: str
    key: bytes | None
    submitter: str
    worker: str
    outcome: str
    error: str
    text: str
    tries: int
    term: int
    queued: float
    started: float
    finished: float
    payload: int
    result: int


class Ends(NamedTuple):
    """Content of a record of ended jobs; ``columns`` are those of EndedJob, all of the same length."""

    cluster: str
    host: str
    columns: tuple[list[Any], ...]

    @property
    def jobs(self) -> list[EndedJob]:
        """The jobs, one by one."""
        return list(map(EndedJob, *self.columns))


class MessageRecord(Fields, frozen=True):
    """A message of the cluster. ``to``: its receiver, None for all nodes."""

    cluster: _Cluster
    kind: Annotated[str, Meta(max_length=MOST_KIND, extra=ANY_TEXT)]
    origin: _Id
    epoch: Natural
    sequence: Natural = field(name="seq")
    to: _Id | None
    body: bytes


class JobColumns(Fields, frozen=True):
    cluster: _Cluster
    host: _Id
    jobs: list[Any]


_JOB_COLUMNS: Final = Maps[JobColumns]("record of ended jobs", JobColumns, version=VERSION, limit=MOST_VALUE)
_HOST_CHANGES: Final = Maps[HostChange]("record of a host", HostChange, version=VERSION, limit=MOST_VALUE)
_MESSAGES: Final = Maps[MessageRecord]("record of a message", MessageRecord, version=VERSION, limit=MOST_MESSAGE)


class ClusterRecords:
    """Records of one node. ``prefix`` begins the topics; ``epoch``: the start of the node, in microseconds since 1970.

    Records of jobs and hosts have the headers `from`, `sent`, `seq` (this node's count on that topic, so that records
    which a full journal refused are seen to be missing) and `id`. A message has its origin in `from` and `id`; it has
    no `seq`, as a node's numbers also count what is not recorded.
    """

    def __init__(self, cluster: str, node: str, epoch: int, *, prefix: str = "cluster") -> None:
        self._cluster = cluster
        self._name = cluster.encode()
        self._node = node
        self._from = ("from", node.encode())
        self._run = f"{node}/{epoch}/"
        self._jobs, self._hosts, self._messages = (f"{prefix}.{each}" for each in (JOBS, HOSTS, MESSAGES))
        self._written = {self._jobs: 0, self._hosts: 0}

    def ends(self, ends: Sequence[JobEnd], at: float) -> list[ClusterRecord]:
        """Return the records of ended jobs, whose host is this node. ``at``: wall clock seconds."""
        return [
            self._record(
                self._jobs,
                at,
                _JOB_COLUMNS.encode(JobColumns(self._cluster, self._node, _columns(ends[start : start + MOST_ENDS]))),
            )
            for start in range(0, len(ends), MOST_ENDS)
        ]

    def host_change(self, change: HostChange) -> ClusterRecord:
        """Return the record of a change. ``why`` is cut after 480 characters."""
        value = _HOST_CHANGES.encode(replace(change, why=change.why[:MOST_TEXT]))
        return self._record(self._hosts, change.at, value)

    def message(
        self,
        kind: str,
        origin: str,
        epoch: int,
        sequence: int,
        body: bytes,
        *,
        to: str | None = None,
        peer: str | None = None,
    ) -> ClusterRecord:
        """Return the record of a message. ``peer``: the address that it came from."""
        value = _MESSAGES.encode(MessageRecord(self._cluster, kind, origin, epoch, sequence, to, body))
        identity = f"{origin}/{epoch}/{sequence}" if to is None else f"{origin}/{epoch}/{sequence}/{to}"
        headers = (("id", identity.encode()), ("from", origin.encode()))
        return ClusterRecord(value, self._messages, PROTOCOL, kind.encode(), headers, peer)

    def _record(self, topic: str, at: float, value: bytes) -> ClusterRecord:
        number = self._written[topic] = self._written[topic] + 1
        headers = (
            ("id", f"{self._run}{number}".encode()),
            self._from,
            ("seq", number.to_bytes(8, "big")),
            ("sent", int(at * 1e6).to_bytes(8, "big", signed=True)),
        )
        return ClusterRecord(value, topic, PROTOCOL, self._name, headers, None)


def _columns(ends: Sequence[JobEnd]) -> list[Sequence[Any]]:
    ids, kinds, keys, submitters, workers, outcomes, errors, tries, terms, *times, payloads, results = zip(
        *ends, strict=True
    )
    failed = errors.count(("", "")) < len(errors)
    return [
        ids,
        kinds,
        keys,
        submitters,
        workers,
        outcomes,
        [kind[:MOST_ERROR] for kind, _text in errors] if failed else [""] * len(errors),
        [text[:MOST_TEXT] for _kind, text in errors] if failed else [""] * len(errors),
        tries,
        terms,
        *times,
        list(map(len, payloads)),
        list(map(len, results)),
    ]


def parse_ends(value: bytes) -> Ends:
    """Return the content of a record of ended jobs. Raises BadMessage, TooLarge."""
    found = _JOB_COLUMNS.decode(value)
    columns = found.jobs
    if len(columns) < len(EndedJob._fields):  # a later version may append columns
        _bad(f"{len(columns)} columns instead of {len(EndedJob._fields)}")
    columns = columns[: len(EndedJob._fields)]
    if any(type(column) is not list for column in columns) or len(set(map(len, columns))) != 1:
        _bad("a column is not an array, or is longer than another")
    if not 0 < len(columns[0]) <= MOST_ENDS:
        _bad(f"{len(columns[0])} jobs instead of 1 to {MOST_ENDS}")
    for name, column in zip(EndedJob._fields, columns, strict=True):
        _CHECKS[name](name, column)
    return Ends(found.cluster, found.host, tuple(columns))


def _texts(name: str, column: list[Any], most: int) -> None:
    if not {str}.issuperset(map(type, column)):
        _bad(f"{name} is not text")
    for text in set(column):  # most columns have few different values
        if len(text) * 4 > most and len(text.encode()) > most:
            _bad(f"a text of {name} is over {most} bytes")


def _keys(name: str, column: list[Any]) -> None:
    for key in column:
        if key is not None and (type(key) is not bytes or len(key) > MOST_KEY):
            _bad(f"a {name} is neither null nor a byte string of at most {MOST_KEY} bytes")


def _outcomes(name: str, column: list[Any]) -> None:
    _texts(name, column, MOST_KIND)
    if not set(OUTCOMES).issuperset(column):
        _bad(f"an {name} is not one of {', '.join(OUTCOMES)}")


def _numbers(name: str, column: list[Any]) -> None:
    if not {int}.issuperset(map(type, column)) or min(column) < 0 or max(column) > MOST_NUMBER:
        _bad(f"{name} is not an integer from 0 to 2^53 - 1")


def _times(name: str, column: list[Any]) -> None:
    if not {float, int}.issuperset(map(type, column)) or not all(map(isfinite, column)):
        _bad(f"{name} is not a finite number")
    if min(column) < 0 or max(column) > MOST_TIME:
        _bad(f"{name} is not a time from 1970 to 9999")
    column[:] = map(float, column)


_CHECKS: Final[dict[str, Callable[[str, list[Any]], None]]] = {
    "kind": partial(_texts, most=MOST_KIND),
    "key": _keys,
    **dict.fromkeys(("submitter", "worker"), partial(_texts, most=MOST_ORIGIN)),
    "outcome": _outcomes,
    "error": partial(_texts, most=4 * MOST_ERROR),
    "text": partial(_texts, most=4 * MOST_TEXT),
    **dict.fromkeys(("id", "tries", "term", "payload", "result"), _numbers),
    **dict.fromkeys(("queued", "started", "finished"), _times),
}


def parse_host_change(value: bytes) -> HostChange:
    """Return the content of a record of a host. Raises BadMessage, TooLarge."""
    return _HOST_CHANGES.decode(value)


def parse_message(value: bytes) -> MessageRecord:
    """Return the content of a record of a message. Raises BadMessage, TooLarge."""
    return _MESSAGES.decode(value)


def _bad(why: str) -> NoReturn:
    raise BadMessage(_JOB_COLUMNS.what, why)
