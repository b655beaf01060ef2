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

from collections.abc import Sequence
from math import isfinite
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from msgspec import Meta, field
from msgspec.structs import astuple, replace

from nngkit.cluster.jobs.messages import MOST_ID, MOST_KEY, MOST_KIND
from nngkit.cluster.jobs.values import JobEnd
from nngkit.envelope import encode
from nngkit.messages import ANY_TEXT, Fields, Maps, Natural, Row

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


class ClusterRecord(NamedTuple):
    """Arguments of `Recorder.put`."""

    value: bytes
    topic: str
    protocol: str
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    peer: str | None


def _texts(most: int) -> Meta:
    """Limit the bytes of each text in a column."""

    def check(column: list[str]) -> None:
        for text in set(column):  # most columns have few different values
            if len(text) * 4 > most and len(text.encode(errors="replace")) > most:
                raise ValueError(f"a text is over {most} bytes")

    return Meta(max_length=MOST_ENDS, extra={"check": check})


def _finite(column: list[float]) -> None:
    if not all(map(isfinite, column)):
        raise ValueError("a time is not a finite number")


Cluster: TypeAlias = Annotated[str, Meta(max_length=MOST_CLUSTER, extra=ANY_TEXT)]
Node: TypeAlias = Annotated[str, Meta(max_length=MOST_ID, extra=ANY_TEXT)]
Reason: TypeAlias = Annotated[str, Meta(max_length=4 * MOST_TEXT, extra=ANY_TEXT)]
Time: TypeAlias = Annotated[float, Meta(ge=0, le=MOST_TIME)]
COLUMN: Final = Meta(max_length=MOST_ENDS)
Nodes: TypeAlias = Annotated[list[str], _texts(MOST_ID)]
Numbers: TypeAlias = Annotated[list[Natural], COLUMN]
Times: TypeAlias = Annotated[list[Time], Meta(max_length=MOST_ENDS, extra={"check": _finite})]


class HostChange(Fields, frozen=True):
    """A node has learned that ``host`` is the host of ``term``, or, with None, that the term has no host any more.

    ``at``: wall clock seconds of that node; ``why``: one line, for people. Every voter should record its own: the
    host that is killed records no end, and the next one only the beginning of its own term.
    """

    cluster: Cluster
    term: Natural
    host: Node | None
    at: Time
    why: Reason


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


class Columns(Row, frozen=True):
    """The fields of EndedJob, each of all jobs of a record."""

    id: Numbers
    kind: Annotated[list[str], _texts(MOST_KIND)]
    key: Annotated[list[Annotated[bytes, Meta(max_length=MOST_KEY)] | None], COLUMN]
    submitter: Nodes
    worker: Nodes
    outcome: Annotated[list[Literal["result", "failed", "dead", "cancelled"]], COLUMN]
    error: Annotated[list[str], _texts(4 * MOST_ERROR)]
    text: Annotated[list[str], _texts(4 * MOST_TEXT)]
    tries: Numbers
    term: Numbers
    queued: Times
    started: Times
    finished: Times
    payload: Numbers
    result: Numbers

    def check(self) -> None:
        """Raise ValueError unless the columns are of one length, which is not 0."""
        if not self.id or len(set(map(len, astuple(self)))) != 1:
            raise ValueError("a column is empty, or longer than another")


class EndsRecord(Fields, frozen=True):
    """A record of ended jobs as it is written."""

    cluster: Cluster
    host: Node
    jobs: Columns


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

    cluster: Cluster
    kind: Annotated[str, Meta(max_length=MOST_KIND, extra=ANY_TEXT)]
    origin: Node
    epoch: Natural
    sequence: Natural = field(name="seq")
    to: Node | None
    body: bytes


ENDS: Final = Maps[EndsRecord]("record of ended jobs", EndsRecord, version=VERSION, limit=MOST_VALUE)
CHANGES: Final = Maps[HostChange]("record of a host", HostChange, version=VERSION, limit=MOST_VALUE)
LETTERS: Final = Maps[MessageRecord]("record of a message", MessageRecord, version=VERSION, limit=MOST_MESSAGE)


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
            self._record(self._jobs, at, {"host": self._node, "jobs": _columns(ends[start : start + MOST_ENDS])})
            for start in range(0, len(ends), MOST_ENDS)
        ]

    def host_change(self, change: HostChange) -> ClusterRecord:
        """Return the record of a change. ``why`` is cut after 480 characters."""
        return self._record(self._hosts, change.at, CHANGES.pack(replace(change, why=change.why[:MOST_TEXT])))

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
        message = MessageRecord(self._cluster, kind, origin, epoch, sequence, to, body)
        identity = f"{origin}/{epoch}/{sequence}" if to is None else f"{origin}/{epoch}/{sequence}/{to}"
        headers = (("id", identity.encode()), ("from", origin.encode()))
        return ClusterRecord(LETTERS.encode(message), self._messages, PROTOCOL, kind.encode(), headers, peer)

    def _record(self, topic: str, at: float, fields: dict[str, Any]) -> ClusterRecord:
        number = self._written[topic] = self._written[topic] + 1
        headers = (
            ("id", f"{self._run}{number}".encode()),
            self._from,
            ("seq", number.to_bytes(8, "big")),
            ("sent", int(at * 1e6).to_bytes(8, "big", signed=True)),
        )
        value = encode({"v": VERSION, "cluster": self._cluster, **fields})
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
    record = ENDS.decode(value)
    return Ends(record.cluster, record.host, astuple(record.jobs))


def parse_host_change(value: bytes) -> HostChange:
    """Return the content of a record of a host. Raises BadMessage, TooLarge."""
    return CHANGES.decode(value)


def parse_message(value: bytes) -> MessageRecord:
    """Return the content of a record of a message. Raises BadMessage, TooLarge."""
    return LETTERS.decode(value)
