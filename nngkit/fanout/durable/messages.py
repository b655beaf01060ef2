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
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from typing import Any, Final, Literal, TypeAlias, get_args

from nngkit import envelope
from nngkit.errors import BadMessage, ConfigError, NngkitError, NotFound, NotStored, TooLarge
from nngkit.fanout.durable.partition import MOST_PENDING, Limits, Runs, check_name

__all__ = [
    "ChangeRequest",
    "Columns",
    "ConsumerInfo",
    "DeleteRequest",
    "FetchRequest",
    "InfoRequest",
    "LeaveRequest",
    "OpenRequest",
    "Options",
    "SettleRequest",
    "encode_error",
    "encode_reply",
    "pack",
    "parse_reply",
    "parse_request",
    "unpack_runs",
]

VERSION: Final = 1
REPLY_LIMIT: Final = (1 << 30) + (2 << 20)  # one record of the largest size, and the columns around it
MOST_SESSION: Final = 32
MOST_TOPICS: Final = 256
MOST_WHY: Final = 1000  # characters of an error
LONGEST_WAIT: Final = 60.0
MOST_RECORDS: Final = 65_536  # records of one reply: one row group of a segment
_BATCH: Final = "consumer batch"
_REQUEST: Final = "consumer request"
_LITTLE: Final = sys.byteorder == "little"

USUAL: Final = Limits()
CHANGEABLE: Final = ("topics", "ack_wait", "max_deliver", "max_ack_pending")

How: TypeAlias = Literal["ack", "term", "nak", "release", "progress"]
Start: TypeAlias = Literal["earliest", "latest", "offset", "time"]


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a named consumer, set when it is created and kept on disk. `topics`: None selects all.

    `value`: the offset, or the time in microseconds since 1970, at which it starts. Raises ConfigError.
    """

    start: Start = "earliest"
    value: int = 0
    topics: tuple[str, ...] | None = None
    limits: Limits = USUAL

    def __post_init__(self) -> None:
        if self.start not in get_args(Start) or not 0 <= self.value < 1 << 63:
            raise ConfigError("start", f"{self.start!r}, {self.value!r} is no start of a consumer", self.start)
        if self.topics is not None and not 1 <= len(self.topics) <= MOST_TOPICS:
            raise ConfigError("topics", f"{len(self.topics)} topics are not from 1 to {MOST_TOPICS}", self.topics)

    def changed(self, changes: dict[str, Any]) -> Options:
        """Return the options with those of `changes`, which are by the names of `fields`. Raises as `parse` does."""
        fields = self.fields()
        fields.update((name, changes[name]) for name in CHANGEABLE if name in changes)
        return Options.parse(fields)

    def fields(self) -> dict[str, Any]:
        """Return the options as a map."""
        topics = None if self.topics is None else list(self.topics)
        return {"start": self.start, "value": self.value, "topics": topics, **asdict(self.limits)}

    @classmethod
    def parse(cls, fields: object, *, what: str = _REQUEST) -> Options:
        """Read a map. Raises BadMessage, ConfigError."""
        found = envelope.as_map(fields, what=what)
        topics = None if found.get("topics") is None else envelope.field(found, "topics", list, what=what)
        if topics is not None and not all(type(topic) is str for topic in topics):
            raise BadMessage(what, "a topic is not text")
        most = found.get("max_deliver")
        if most is not None:
            most = envelope.field(found, "max_deliver", int, what=what)
        limits = Limits(
            envelope.field(found, "ack_wait", float, what=what),
            most,
            envelope.field(found, "max_ack_pending", int, what=what),
        )
        start: Any = envelope.field(found, "start", str, what=what)
        value = envelope.field(found, "value", int, what=what)
        return cls(start, value, None if topics is None else tuple(topics), limits)


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """Create a consumer, or attach to it. `options`: None for those that it has, or the defaults."""

    name: str
    session: str
    options: Options | None = None

    def encode(self) -> bytes:
        """Encode the message."""
        options = None if self.options is None else self.options.fields()
        return envelope.encode([VERSION, "open", self.name, self.session, options])


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """Change options of a consumer, by their names; it keeps its position, and the options that are not named."""

    name: str
    changes: dict[str, Any]

    def encode(self) -> bytes:
        """Encode the message."""
        return envelope.encode([VERSION, "change", self.name, self.changes])


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Next records: up to `records` and about `size` bytes, after at most `wait` seconds.

    `seen`: number of the last reply that arrived; records of a later one are delivered again at once. `largest`: bytes
    that a reply may have.
    """

    name: str
    session: str
    seen: int
    records: int
    size: int
    largest: int
    wait: float

    def encode(self) -> bytes:
        """Encode the message."""
        return envelope.encode(
            [VERSION, "fetch", self.name, self.session, self.seen, self.records, self.size, self.largest, self.wait]
        )


@dataclass(frozen=True, slots=True)
class SettleRequest:
    """Settle or postpone records of a partition. `delay`: seconds, for "nak".

    "release" gives records back that the session received and did not look at: their delivery does not count.
    """

    name: str
    session: str
    how: How
    partition: int
    runs: Runs
    delay: float = 0.0

    def encode(self) -> bytes:
        """Encode the message."""
        flat = pack(number for run in self.runs for number in run)
        return envelope.encode([VERSION, "settle", self.name, self.session, self.how, self.partition, flat, self.delay])


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    """The session ends. Its waiting fetch returns; records of a reply after `seen` are delivered again at once."""

    name: str
    session: str
    seen: int

    def encode(self) -> bytes:
        """Encode the message."""
        return envelope.encode([VERSION, "leave", self.name, self.session, self.seen])


@dataclass(frozen=True, slots=True)
class InfoRequest:
    """State of one consumer; of all with an empty name."""

    name: str = ""

    def encode(self) -> bytes:
        """Encode the message."""
        return envelope.encode([VERSION, "info", self.name])


@dataclass(frozen=True, slots=True)
class DeleteRequest:
    """Delete a consumer and its state."""

    name: str

    def encode(self) -> bytes:
        """Encode the message."""
        return envelope.encode([VERSION, "delete", self.name])


Request: TypeAlias = (
    OpenRequest | ChangeRequest | FetchRequest | SettleRequest | LeaveRequest | InfoRequest | DeleteRequest
)


def parse_request(body: bytes, *, peer: str | None = None) -> Request:
    """Decode a request. Raises BadMessage, TooLarge; ConfigError for an invalid name or option."""
    fields = envelope.decode(body, what=_REQUEST, peer=peer)
    if type(fields) is not list or len(fields) < 3 or fields[0] != VERSION:
        raise BadMessage(_REQUEST, f"expected an array [{VERSION}, kind, name, ...]", peer)
    match fields[1:]:
        case ["open", name, str(session), options] if len(session) <= MOST_SESSION:
            return OpenRequest(check_name(name), session, None if options is None else Options.parse(options))
        case ["change", name, dict(changes)]:
            return ChangeRequest(check_name(name), changes)
        case ["fetch", name, str(session), int(seen), int(records), int(size), int(largest), (float() | int()) as wait]:
            if not (0 <= seen < 1 << 63 and records > 0 and size > 0 and largest > 0 and 0 <= wait <= LONGEST_WAIT):
                raise BadMessage(_REQUEST, "a number is out of range", peer)
            return FetchRequest(check_name(name), session, seen, min(records, MOST_RECORDS), size, largest, wait)
        case [
            "settle",
            name,
            str(session),
            ("ack" | "term" | "nak" | "release" | "progress") as how,
            int(partition),
            bytes(flat),
            delay,
        ]:
            runs = unpack_runs(flat, peer)
            if sum(count for _, count in runs) > MOST_PENDING:
                raise BadMessage(_REQUEST, f"more than {MOST_PENDING} records at once", peer)
            if type(delay) not in (int, float) or not 0 <= delay <= 86_400 * 30:
                raise BadMessage(_REQUEST, "the delay is out of range", peer)
            return SettleRequest(check_name(name), session, how, partition, runs, float(delay))
        case ["leave", name, str(session), int(seen)]:
            return LeaveRequest(check_name(name), session, seen)
        case ["info", str(name)]:
            return InfoRequest(check_name(name) if name else "")
        case ["delete", name]:
            return DeleteRequest(check_name(name))
        case _:
            raise BadMessage(_REQUEST, "of no known kind", peer)


def unpack_runs(flat: object, peer: str | None = None) -> Runs:
    """Return runs from pairs of integers. Raises BadMessage."""
    numbers = _unpack("q", flat, peer)
    runs = list(zip(numbers[::2], numbers[1::2], strict=False))
    if len(numbers) % 2 or any(first < 0 or count < 1 for first, count in runs):
        raise BadMessage(_REQUEST, "invalid runs of offsets", peer)
    return runs


# ---- replies ---------------------------------------------------------------------------------------------------------

_CODES: Final[dict[str, type[NngkitError]]] = {"stored": NotStored, "missing": NotFound, "large": TooLarge}


def encode_error(error: NngkitError) -> bytes:
    """Return the reply for a refused request."""
    code = next((code for code, kind in _CODES.items() if isinstance(error, kind)), "refused")
    why = error.why if isinstance(error, ConfigError) else str(error)
    line = "".join(letter if letter.isprintable() else "?" for letter in why[:MOST_WHY])
    return envelope.encode([0, code, line])


def encode_reply(*values: object) -> bytes:
    """Return the reply for a request that was carried out."""
    return envelope.encode([1, *values])


def parse_reply(body: bytes, count: int, *, peer: str | None = None) -> list[Any]:
    """Return the `count` values of a reply. Raises BadMessage; the server's error as the class it names."""
    fields = envelope.decode(body, what="consumer reply", limit=REPLY_LIMIT, peer=peer)
    match fields:
        case [0, str(code), str(why)]:
            if code == "large":
                raise _too_large(why)
            raise _CODES.get(code, ConfigError)(why) if code in _CODES else ConfigError("consumer", why)
        case [1, *values] if len(values) == count:
            return values
        case _:
            raise BadMessage("consumer reply", f"expected [1, ...] with {count} values", peer)


def _too_large(why: str) -> TooLarge:
    error = TooLarge(None, None)
    error.args = (why,)
    return error


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """State of a consumer in one partition. `behind`: offsets between its cursor and the partition's `end`.

    `pending`: records in flight or ready for redelivery. `skipped`: offsets that retention or damage took before they
    were settled, as far as that is known; kept on disk. Counters (`settled`, `redelivered`, `given_up`) begin with the
    server.
    """

    name: str
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

    def fields(self) -> list[Any]:
        """Return the columns as an array."""
        counts, topics, keys = self.counts, self.topic_of, self.key_sizes
        return [
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
        ]

    @classmethod
    def parse(cls, fields: object, *, peer: str | None = None) -> Columns:
        """Read an array. Raises BadMessage unless all columns agree."""
        if type(fields) is not list or len(fields) != 11 or type(fields[0]) is not int:
            raise BadMessage(_BATCH, "expected an array of eleven", peer)
        offsets, times = _unpack("q", fields[1], peer), _unpack("q", fields[2], peer)
        counts, topic_of, sizes, keys = (
            None if fields[place] is None else _unpack("i", fields[place], peer) for place in (3, 5, 6, 8)
        )
        topics, data, key_data, headers = fields[4], fields[7], fields[9], fields[10]
        rows = len(offsets)
        if headers is not None and not (type(headers) is list and all(map(_is_headers, headers))):
            raise BadMessage(_BATCH, "invalid headers", peer)
        columns = (times, counts, topic_of, sizes, keys, headers)
        if not rows or sizes is None or any(each is not None and len(each) != rows for each in columns):
            raise BadMessage(_BATCH, "the columns differ in length, or are empty", peer)
        if type(topics) is not list or not topics or not all(type(topic) is str for topic in topics):
            raise BadMessage(_BATCH, "it has no topics", peer)
        if topic_of is not None and not 0 <= min(topic_of) <= max(topic_of) < len(topics):
            raise BadMessage(_BATCH, "a topic is missing", peer)
        if type(data) is not bytes or min(sizes) < 0 or sum(sizes) != len(data):
            raise BadMessage(_BATCH, "the sizes of values do not add up", peer)
        if type(key_data) is not bytes or (0 if keys is None else sum(_lengths(keys))) != len(key_data):
            raise BadMessage(_BATCH, "the sizes of keys do not add up", peer)
        return cls(fields[0], offsets, times, counts, topics, topic_of, sizes, data, keys, key_data, headers)

    def values(self) -> list[bytes]:
        """Return the values."""
        return cut(self.data, self.sizes)

    def keys(self) -> list[bytes | None]:
        """Return the keys."""
        if self.key_sizes is None:
            return [None] * len(self.offsets)
        found = cut(self.key_data, _lengths(self.key_sizes))
        return [None if size < 0 else key for size, key in zip(self.key_sizes, found, strict=True)]


def _is_headers(value: object) -> bool:
    return type(value) is list and all(
        type(each) is list and len(each) == 2 and type(each[0]) is str and type(each[1]) is bytes for each in value
    )


def _lengths(sizes: Sequence[int]) -> Sequence[int]:
    return [size if size > 0 else 0 for size in sizes]


def cut(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Cut `data` into parts of these sizes."""
    return [data[first:end] for first, end in pairwise(accumulate(sizes, initial=0))]
