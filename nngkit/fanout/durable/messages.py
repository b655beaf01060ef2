"""Requests and replies between a consumer and its server. Pure; docs/wire.md has them as CDDL.

::

    consumer -> server   OpenRequest(name, session, options)          create the consumer, or attach to it
                         ChangeRequest(name, changes)                 change its options
                         FetchRequest(name, session, ...)             the next records; waits for some
                         SettleRequest(name, how, partition, runs)    ack, term, nak, release, progress
                         LeaveRequest(name, session)                  give back what has not been received
                         InfoRequest(name)  DeleteRequest(name)
    server -> consumer   [1, ...] by kind; [0, code, why]             an error

Records travel as columns: a batch of thousands is a few byte strings, and its fields are cut out only when they are
read. All integers in columns are big-endian. Bytes from a peer are decoded with limits; what they do not allow raises
BadMessage or TooLarge.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar, get_args

from msgspec import Meta, field
from msgspec.structs import replace

from nngkit.errors import AccessDenied, BadMessage, ConfigError, NngkitError, NotFound, NotStored, TooLarge
from nngkit.fanout.durable.partition import MOST_PENDING, Limits, Runs, check_name
from nngkit.messages import ANY_TEXT, Fields, Flag, Maps, Natural63, Row, Rows

REPLY_LIMIT: Final = (1 << 30) + (2 << 20)  # one record of the largest size, and the columns around it
MOST_TOPICS: Final = 256
MOST_WHY: Final = 1000  # characters of an error
LONGEST_WAIT: Final = 60.0
MOST_RECORDS: Final = 65_536  # records of one reply: one row group of a segment
_BATCH: Final = "consumer batch"
_LITTLE: Final = sys.byteorder == "little"

USUAL: Final = Limits()
CHANGEABLE: Final = ("topics", "ack_wait", "max_deliver", "max_ack_pending")

How: TypeAlias = Literal["ack", "term", "nak", "release", "progress"]
Start: TypeAlias = Literal["earliest", "latest", "offset", "time"]


Text: TypeAlias = Annotated[str, Meta(extra=ANY_TEXT)]
Session: TypeAlias = Annotated[str, Meta(max_length=32, extra=ANY_TEXT)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]


class Options(Fields, frozen=True):
    """Options of a named consumer, set when it is created and kept on disk. `topics`: None selects all.

    `value`: the offset, or the time in microseconds since 1970, at which it starts. Raises ConfigError.
    """

    start: Start = "earliest"
    value: Natural63 = 0
    topics: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=MOST_TOPICS)] | None = None
    ack_wait: float = USUAL.ack_wait
    max_deliver: int | None = USUAL.max_deliver
    max_ack_pending: int = USUAL.max_ack_pending

    def __post_init__(self) -> None:
        if self.start not in get_args(Start) or not 0 <= self.value < 1 << 63:
            raise ConfigError("start", f"{self.start!r}, {self.value!r} is no start of a consumer", self.start)
        if self.topics is not None and not 1 <= len(self.topics) <= MOST_TOPICS:
            raise ConfigError("topics", f"{len(self.topics)} topics are not from 1 to {MOST_TOPICS}", self.topics)
        _ = self.limits

    @property
    def limits(self) -> Limits:
        """The limits among them."""
        return Limits(self.ack_wait, self.max_deliver, self.max_ack_pending)

    def changed(self, changes: dict[str, Any]) -> Options:
        """Return the options with those of `changes`, which are by the names of `fields`. Raises BadMessage."""
        return OPTIONS.parse(self.fields() | {name: changes[name] for name in CHANGEABLE if name in changes})

    def fields(self) -> dict[str, Any]:
        """Return the options as a map."""
        return OPTIONS.pack(self)


OPTIONS: Final = Maps[Options]("consumer options", Options)


class OpenRequest(Row, frozen=True, tag="open"):
    """Create a consumer, or attach to it. `options`: None for those that it has, or the defaults."""

    name: Text
    session: Session
    options: Options | None = None


class ChangeRequest(Row, frozen=True, tag="change"):
    """Change options of a consumer, by their names; it keeps its position, and the options that are not named."""

    name: Text
    changes: dict[str, Any]


class FetchRequest(Row, frozen=True, tag="fetch"):
    """Next records: up to `records` and about `size` bytes, after at most `wait` seconds.

    `seen`: number of the last reply that arrived; records of a later one are delivered again at once. `largest`: bytes
    that a reply may have.
    """

    name: Text
    session: Session
    seen: Natural63
    records: Positive
    size: Positive
    largest: Positive
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT)]


class SettleRequest(Row, frozen=True, tag="settle"):
    """Settle or postpone records of a partition. `flat`: their runs (`pack_runs`). `delay`: seconds, for "nak".

    "release" gives records back that the session received and did not look at: their delivery does not count.
    """

    name: Text
    session: Session
    how: How
    partition: int
    flat: bytes = field(name="runs")
    delay: Annotated[float, Meta(ge=0, le=86_400 * 30)] = 0.0

    @property
    def runs(self) -> Runs:
        """The runs. Raises BadMessage."""
        return unpack_runs(self.flat)


class LeaveRequest(Row, frozen=True, tag="leave"):
    """The session ends. Its waiting fetch returns; records of a reply after `seen` are delivered again at once."""

    name: Text
    session: Session
    seen: int


class InfoRequest(Row, frozen=True, tag="info"):
    """State of one consumer; of all with an empty name."""

    name: Text = ""


class DeleteRequest(Row, frozen=True, tag="delete"):
    """Delete a consumer and its state."""

    name: Text


Request: TypeAlias = (
    OpenRequest | ChangeRequest | FetchRequest | SettleRequest | LeaveRequest | InfoRequest | DeleteRequest
)

REQUESTS: Final = Rows[Request]("consumer request", *get_args(Request), version=1)


def parse_request(body: bytes, *, peer: str | None = None) -> Request:
    """Decode a request. Raises BadMessage, TooLarge; ConfigError for an invalid name."""
    request = REQUESTS.decode(body, peer)
    if request.name or not isinstance(request, InfoRequest):
        check_name(request.name)
    if isinstance(request, FetchRequest) and request.records > MOST_RECORDS:
        return replace(request, records=MOST_RECORDS)
    if isinstance(request, SettleRequest) and sum(count for _, count in request.runs) > MOST_PENDING:
        raise BadMessage(REQUESTS.what, f"more than {MOST_PENDING} records at once", peer)
    return request


def pack_runs(runs: Runs) -> bytes:
    """Return runs as pairs of integers."""
    return pack(number for run in runs for number in run)


def unpack_runs(flat: object, peer: str | None = None) -> Runs:
    """Return runs from pairs of integers. Raises BadMessage."""
    numbers = _unpack("q", flat, peer)
    runs = list(zip(numbers[::2], numbers[1::2], strict=False))
    if len(numbers) % 2 or any(first < 0 or count < 1 for first, count in runs):
        raise BadMessage(REQUESTS.what, "invalid runs of offsets", peer)
    return runs


# ---- replies ---------------------------------------------------------------------------------------------------------

_CODES: Final[dict[str, type[NngkitError]]] = {
    "stored": NotStored,
    "missing": NotFound,
    "large": TooLarge,
    "denied": AccessDenied,
}


def owner_of(name: str) -> str:
    """Return the beginning of a session's id that belongs to a name, which itself may be too long for it."""
    return blake2b(name.encode(), digest_size=8).hexdigest()


def encode_error(error: NngkitError) -> bytes:
    """Return the reply for a refused request."""
    code = next((code for code, kind in _CODES.items() if isinstance(error, kind)), "refused")
    why = error.why if isinstance(error, ConfigError) else str(error)
    line = "".join(letter if letter.isprintable() else "?" for letter in why[:MOST_WHY])
    return REPLIES[Done].encode(Failure(code, line))


class Failure(Row, frozen=True, tag=0):
    """Reply to a refused request. `code`: "stored", "missing", "large", "denied" or "refused"."""

    code: Text
    why: Text


class ConsumerInfo(Row, frozen=True):
    """State of a consumer in one partition. `behind`: offsets between its cursor and the partition's `end`.

    `pending`: records in flight or ready for redelivery. `skipped`: offsets that retention or damage took before they
    were settled, as far as that is known; kept on disk. Counters (`settled`, `redelivered`, `given_up`) begin with the
    server.
    """

    name: Text
    partition: int
    cursor: int
    floor: int
    end: int
    pending: int
    settled: int
    redelivered: int
    given_up: int
    skipped: int

    @property
    def behind(self) -> int:
        """Offsets that have not been delivered yet."""
        return max(0, self.end - self.cursor)


class Batch(Row, frozen=True):
    """Columns on the wire."""

    partition: int
    offsets: bytes
    times: bytes
    counts: bytes | None
    topics: Annotated[list[Text], Meta(min_length=1)]
    topic_of: bytes | None
    sizes: bytes
    values: bytes
    key_sizes: bytes | None
    keys: bytes
    headers: list[list[tuple[Text, bytes]]] | None


class Opened(Row, frozen=True, tag=1):
    """Reply to OpenRequest."""

    options: Options
    infos: tuple[ConsumerInfo, ...]


class Fetched(Row, frozen=True, tag=1):
    """Reply to FetchRequest. `number`: for the `seen` of later ones."""

    number: int
    batches: tuple[Batch, ...]


class Settled(Row, frozen=True, tag=1):
    """Reply to SettleRequest: the records concerned; an ack is on disk."""

    count: int


class Done(Row, frozen=True, tag=1):
    """Reply to ChangeRequest, LeaveRequest and DeleteRequest."""

    done: Flag = True


class Infos(Row, frozen=True, tag=1):
    """Reply to InfoRequest."""

    infos: tuple[ConsumerInfo, ...]


R = TypeVar("R", Opened, Fetched, Settled, Done, Infos)

REPLIES: Final[dict[type, Rows[Any]]] = {
    kind: Rows("consumer reply", Failure, kind) for kind in (Opened, Fetched, Settled, Done, Infos)
}


def encode_reply(reply: Opened | Fetched | Settled | Done | Infos) -> bytes:
    """Return the reply for a request that was carried out."""
    return REPLIES[type(reply)].encode(reply)


def parse_reply(body: bytes, kind: type[R], *, peer: str | None = None) -> R:
    """Return the reply. Raises BadMessage; the server's error as the class it names."""
    reply: R | Failure = REPLIES[kind].decode(body, peer, limit=REPLY_LIMIT)
    if not isinstance(reply, Failure):
        return reply
    if reply.code == "large":
        raise _too_large(reply.why)
    raise _CODES[reply.code](reply.why) if reply.code in _CODES else ConfigError("consumer", reply.why)


def _too_large(why: str) -> TooLarge:
    error = TooLarge(None, None)
    error.args = (why,)
    return error


def pack(numbers: Iterable[int], kind: str = "q") -> bytes:
    """Return integers as big-endian bytes: `q` of 8 bytes, `i` of 4, `H` of 2."""
    packed = numbers if isinstance(numbers, array) else array(kind, numbers)
    if _LITTLE:
        packed = packed[:]
        packed.byteswap()
    return packed.tobytes()


def _unpack(kind: str, data: object, peer: str | None) -> Any:
    numbers = array(kind)
    if type(data) is not bytes or len(data) % numbers.itemsize:
        raise BadMessage(_BATCH, "a column has a wrong length", peer)
    numbers.frombytes(data)
    if _LITTLE:
        numbers.byteswap()
    return numbers


@dataclass(slots=True)
class Columns:
    """Records of one partition as columns, in offset order. Optional columns are None if they hold nothing.

    `counts`: number of each delivery; None: all are the first. `topic_of`: index into `topics`; None: all have the
    first. Sizes are in bytes; a key of size -1 is null. `headers`: for each record a list of [name, value].
    """

    partition: int
    offsets: Any
    times: Any
    counts: Any | None
    topics: list[str]
    topic_of: Any | None
    sizes: Any
    data: bytes
    key_sizes: Any | None = None
    key_data: bytes = b""
    headers: list[Any] | None = None

    def batch(self) -> Batch:
        """Return the columns for the wire."""
        counts, topics, keys = self.counts, self.topic_of, self.key_sizes
        return Batch(
            self.partition,
            pack(self.offsets),
            pack(self.times),
            None if counts is None else pack(counts, "i"),
            self.topics,
            None if topics is None else pack(topics, "i"),
            pack(self.sizes, "i"),
            self.data,
            None if keys is None else pack(keys, "i"),
            self.key_data,
            self.headers,
        )

    @classmethod
    def of(cls, batch: Batch, *, peer: str | None = None) -> Columns:
        """Return the columns of a batch. Raises BadMessage unless all agree."""
        offsets, times = _unpack("q", batch.offsets, peer), _unpack("q", batch.times, peer)
        sizes = _unpack("i", batch.sizes, peer)
        counts, topic_of, keys = (
            None if each is None else _unpack("i", each, peer)
            for each in (batch.counts, batch.topic_of, batch.key_sizes)
        )
        topics, data, key_data, headers = batch.topics, batch.values, batch.keys, batch.headers
        rows = len(offsets)
        columns = (times, counts, topic_of, sizes, keys, headers)
        if not rows or any(each is not None and len(each) != rows for each in columns):
            raise BadMessage(_BATCH, "the columns differ in length, or are empty", peer)
        if topic_of is not None and not 0 <= min(topic_of) <= max(topic_of) < len(topics):
            raise BadMessage(_BATCH, "a topic is missing", peer)
        if min(sizes) < 0 or sum(sizes) != len(data):
            raise BadMessage(_BATCH, "the sizes of values do not add up", peer)
        if (0 if keys is None else sum(_lengths(keys))) != len(key_data):
            raise BadMessage(_BATCH, "the sizes of keys do not add up", peer)
        return cls(batch.partition, offsets, times, counts, topics, topic_of, sizes, data, keys, key_data, headers)

    def values(self) -> list[bytes]:
        """Return the values."""
        return cut(self.data, self.sizes)

    def keys(self) -> list[bytes | None]:
        """Return the keys."""
        if self.key_sizes is None:
            return [None] * len(self.offsets)
        found = cut(self.key_data, _lengths(self.key_sizes))
        return [None if size < 0 else key for size, key in zip(self.key_sizes, found, strict=True)]


def _lengths(sizes: Sequence[int]) -> Sequence[int]:
    return [size if size > 0 else 0 for size in sizes]


def cut(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Cut `data` into parts of these sizes."""
    return [data[first:end] for first, end in pairwise(accumulate(sizes, initial=0))]
