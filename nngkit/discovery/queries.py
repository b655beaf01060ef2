"""Queries to a daemon over REQ/REP and its replies, and the daemon's side as one pure function.

::

    SnapshotQuery(name, everything, after)  ->  SnapshotReply(daemon, rows, after)       a page of at most 256 providers
    ResolveQuery(name, preference, headers) ->  ResolveReply(daemon, provider)
    RoundsQuery(last)                       ->  RoundsReply(daemon, rounds, counters, silent)
    HistoryQuery(age, name, after)          ->  HistoryReply(daemon, changes, after)     a page of at most 256 changes
    a query that cannot be answered         ->  RefusedReply(daemon, kind, message)

All are CBOR maps with `v` and `type` (CDDL in docs/wire.md). Messages with records are of version 2, or of 1 for a
caller that reads no more; the others are of version 1 (messages.py). Two hosts share no clock: times cross the wire as
ages in seconds and are converted to the reader's clock when parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta
from msgspec.structs import force_setattr

from nngkit import envelope
from nngkit.chance import RandomSource
from nngkit.discovery.lanes import ANY, MAX_PREFERRED, Preference
from nngkit.discovery.messages import FIRST_VERSION, VERSION_WHAT, read
from nngkit.discovery.provider import (
    MAX_TAGS,
    PROTOCOL_VERSION,
    IdText,
    Key,
    Provider,
    Record,
    RoundFigures,
    ServiceName,
    Status,
    StatusRecord,
    Version,
    WireKey,
    WordText,
)
from nngkit.discovery.registry.registry import Registry
from nngkit.errors import BadMessage, Broken, ConfigError, NngkitError, ServiceNotFound
from nngkit.headers import Headers, WireHeaders
from nngkit.messages import ANY_TEXT, Fields, Flag, Maps, Natural63, Row, Seconds, always

PAGE: Final = 256
"""Statuses in one reply: at 2 KiB for the largest, half of a socket's default limit of 1 MiB."""
REPLY_LIMIT: Final = 1024 * 1024
MAX_ROUNDS: Final = 64
MAX_COUNTERS: Final = 64
NO_HISTORY: Final = "this daemon keeps no history"

RefusalKind: TypeAlias = Literal["not found", "bad message", "unavailable"]


class SnapshotQuery(Fields, frozen=True, tag="ask-snapshot", omit_defaults=True):
    """Query for the providers of `name` or of all services: the page after the key `after`.

    `everything`: include those that cannot be resolved. `speaks`: the highest version understood.
    """

    name: ServiceName | None = None
    everything: Flag = always(False)
    after: WireKey | None = None
    speaks: Version = always(PROTOCOL_VERSION)

    def encode(self) -> bytes:
        """Encode the message."""
        return QUERIES.encode(self)


@dataclass(frozen=True, slots=True)
class ResolveQuery:
    """Query for one provider of `name`, by the caller's preference. `speaks`: the highest version understood.

    `headers`: metadata beside it, such as the context of a span; a daemon of a version before ignores them.
    """

    name: str
    preference: Preference = ANY
    speaks: int = field(default=PROTOCOL_VERSION, compare=False)
    headers: Headers | None = None

    def encode(self) -> bytes:
        """Encode the message."""
        wanted = self.preference
        zone = wanted.prefer[0] if wanted.prefer else ""  # all that daemons without `prefer` know
        prefer = wanted.prefer if len(wanted.prefer) > 1 else ()
        tags = tuple(sorted(wanted.tags))
        headers = dict(self.headers) if self.headers else None
        return QUERIES.encode(
            ResolveMessage(self.name, zone, prefer, tags, wanted.version, wanted.suspects, self.speaks, headers)
        )


class ResolveMessage(Fields, frozen=True, tag="ask-resolve", omit_defaults=True):
    """ResolveQuery on the wire. `suspects`: "last" or "near"."""

    name: ServiceName
    zone: WordText = always("")
    prefer: Annotated[tuple[WordText, ...], Meta(max_length=MAX_PREFERRED)] = ()
    tags: Annotated[tuple[WordText, ...], Meta(max_length=MAX_TAGS)] = ()
    version: WordText = ""
    suspects: WordText = "last"
    speaks: Version = always(PROTOCOL_VERSION)
    headers: WireHeaders | None = None

    def query(self) -> ResolveQuery:
        """Return the query. Raises ConfigError."""
        suspects: Literal["last", "near"] = "near" if self.suspects == "near" else "last"
        preference = Preference(self.prefer or (self.zone,), frozenset(self.tags), self.version, suspects)
        return ResolveQuery(self.name, preference, self.speaks, self.headers)


class RoundsQuery(Fields, frozen=True, tag="ask-rounds"):
    """Query for the figures of the `last` rounds, at most 64, and for the counters."""

    last: Annotated[int, Meta(ge=1, le=MAX_ROUNDS)] = 16

    def encode(self) -> bytes:
        """Encode the message."""
        return QUERIES.encode(self)


class HistoryQuery(Fields, frozen=True, tag="ask-history", omit_defaults=True):
    """Query for the changes of the last `age` seconds, of `name` or of all services: the page after number `after`."""

    age: Seconds
    name: ServiceName | None = None
    after: Natural63 = 0

    def encode(self) -> bytes:
        """Encode the message."""
        return QUERIES.encode(self)


DaemonQuery: TypeAlias = SnapshotQuery | ResolveQuery | RoundsQuery

QUERIES: Final = Maps[Any](
    "daemon query",
    SnapshotQuery,
    ResolveMessage,
    RoundsQuery,
    HistoryQuery,
    version=FIRST_VERSION,
    reads=PROTOCOL_VERSION,
    version_what=VERSION_WHAT,
)


def parse_daemon_query(body: bytes, peer: str | None = None) -> DaemonQuery | HistoryQuery:
    """Decode a query. Raises BadMessage or TooLarge."""
    found: SnapshotQuery | ResolveMessage | RoundsQuery | HistoryQuery = QUERIES.parse(read(QUERIES, body, peer), peer)
    if not isinstance(found, ResolveMessage):
        return found
    try:
        return found.query()
    except ConfigError as error:
        raise BadMessage(QUERIES.what, str(error), peer) from error


@dataclass(frozen=True, slots=True)
class SnapshotReply:
    """A page of providers in the order of their keys. `after` requests the next page; None on the last."""

    daemon: str
    rows: tuple[Status, ...]
    after: Key | None = None
    version: int = field(default=PROTOCOL_VERSION, compare=False)

    def encode(self, now: float) -> bytes:
        """Encode the message. `now`: the current time on the clock of the rows."""
        rows = tuple(StatusRecord.of(row, now, self.version) for row in self.rows)
        return REPLIES.encode(SnapshotMessage(self.daemon, rows, self.after, self.version))


@dataclass(frozen=True, slots=True)
class ResolveReply:
    """The provider that the daemon chose."""

    daemon: str
    provider: Provider
    version: int = field(default=PROTOCOL_VERSION, compare=False)

    def encode(self, now: float = 0.0) -> bytes:
        """Encode the message."""
        return REPLIES.encode(ResolvedMessage(self.daemon, Record.of(self.provider, self.version), self.version))


@dataclass(frozen=True, slots=True)
class RoundsReply:
    """The newest rounds, oldest first; the daemon's counters; the number of pipes that have not answered yet.

    `release`: of nngkit; "" from an older daemon. `clock`: the daemon's, in seconds since 1970; None from an older one.
    """

    daemon: str
    rounds: tuple[RoundFigures, ...]
    counters: Mapping[str, int] = field(default_factory=dict)
    silent: int = 0
    release: str = ""
    clock: float | None = None

    def encode(self, now: float) -> bytes:
        """Encode the message. `now`: the current time on the clock of the rounds."""
        rounds = tuple(RoundRecord.of(figures, now) for figures in self.rounds)
        counters = dict(self.counters)
        return REPLIES.encode(RoundsMessage(self.daemon, rounds, counters, self.silent, self.release, self.clock))


class ChangeRecord(Row, frozen=True):
    """A change of a provider: ``age`` seconds ago its state was `was`, and became `state`, for `reason`."""

    age: Seconds
    name: ServiceName
    address: Annotated[str, Meta(extra=ANY_TEXT)]
    id: IdText
    was: WordText
    state: WordText
    reason: WordText


class HistoryReply(Fields, frozen=True, tag="history", omit_defaults=True):
    """A page of changes, the oldest first. `after` requests the next page; unset on the last."""

    daemon: IdText
    changes: Annotated[tuple[ChangeRecord, ...], Meta(max_length=PAGE)]
    after: Natural63 | None = None

    def encode(self, now: float = 0.0) -> bytes:
        """Encode the message."""
        return REPLIES.encode(self)


class RefusedReply(Fields, frozen=True, tag="refused"):
    """A refusal: "not found", "bad message" (of the query), or "unavailable" (retry, or use another daemon)."""

    daemon: IdText
    kind: RefusalKind
    message: Annotated[str, Meta(extra=ANY_TEXT)]

    def __post_init__(self) -> None:
        force_setattr(self, "message", envelope.shown(self.message))

    def encode(self, now: float = 0.0) -> bytes:
        """Encode the message."""
        return REPLIES.encode(self)

    def error(self, name: str = "") -> NngkitError:
        """Return the refusal as an exception for the caller to raise; `name` is the name that was queried."""
        if self.kind == "not found":
            return ServiceNotFound(name or self.message, self.message.partition(f": {name}: ")[2])
        if self.kind == "bad message":
            return BadMessage(QUERIES.what, self.message, self.daemon)
        return Broken(f"discovery daemon {self.daemon}: {self.message}")


DaemonReply: TypeAlias = SnapshotReply | ResolveReply | RoundsReply | HistoryReply | RefusedReply


class SnapshotMessage(Fields, frozen=True, tag="snapshot", omit_defaults=True):
    """SnapshotReply on the wire."""

    daemon: IdText
    rows: Annotated[tuple[StatusRecord, ...], Meta(max_length=PAGE)]
    after: WireKey | None = None
    v: Version = PROTOCOL_VERSION


class ResolvedMessage(Fields, frozen=True, tag="resolved", omit_defaults=True):
    """ResolveReply on the wire."""

    daemon: IdText
    provider: Record
    v: Version = PROTOCOL_VERSION


class RoundRecord(Fields, frozen=True):
    """RoundFigures on the wire. `age`: seconds since the end."""

    number: Natural63
    reask: Flag
    age: Seconds
    took: Seconds
    asked: Natural63
    answered: Natural63
    due: Natural63
    missed: Natural63
    held: Natural63

    @classmethod
    def of(cls, figures: RoundFigures, now: float) -> RoundRecord:
        """Return the record of a round."""
        counts = {name: getattr(figures, name) for name in _ROUND_FIGURES}
        age, took = max(0.0, now - figures.ended), max(0.0, figures.ended - figures.started)
        return cls(number=figures.number, reask=figures.reask, age=age, took=took, **counts)

    def figures(self, now: float) -> RoundFigures:
        """Return the figures, with times on the clock of `now`."""
        ended = now - self.age
        counts = {name: getattr(self, name) for name in _ROUND_FIGURES}
        return RoundFigures(self.number, self.reask, ended - self.took, ended, **counts)


class RoundsMessage(Fields, frozen=True, tag="rounds", omit_defaults=True):
    """RoundsReply on the wire."""

    daemon: IdText
    rounds: Annotated[tuple[RoundRecord, ...], Meta(max_length=MAX_ROUNDS)]
    counts: Annotated[dict[Annotated[str, Meta(extra=ANY_TEXT)], int], Meta(max_length=MAX_COUNTERS)]
    silent: Natural63
    release: WordText = ""
    clock: Seconds | None = None


REPLIES: Final = Maps[Any](
    "daemon reply",
    SnapshotMessage,
    ResolvedMessage,
    RoundsMessage,
    HistoryReply,
    RefusedReply,
    version=FIRST_VERSION,
    reads=PROTOCOL_VERSION,
    version_what=VERSION_WHAT,
    limit=REPLY_LIMIT,
)

_ROUND_FIGURES = ("asked", "answered", "due", "missed", "held")


def parse_daemon_reply(body: bytes, now: float, peer: str | None = None) -> DaemonReply:
    """Decode a reply, with times on the clock of `now`. Raises BadMessage or TooLarge."""
    found = REPLIES.parse(read(REPLIES, body, peer), peer)
    try:
        match found:
            case SnapshotMessage():
                return SnapshotReply(found.daemon, tuple(row.status(now) for row in found.rows), found.after, found.v)
            case ResolvedMessage():
                return ResolveReply(found.daemon, found.provider.provider(), found.v)
            case RoundsMessage():
                rounds = tuple(row.figures(now) for row in found.rounds)
                return RoundsReply(found.daemon, rounds, found.counts, found.silent, found.release, found.clock)
            case _:
                other: HistoryReply | RefusedReply = found
                return other
    except ValueError as error:
        raise BadMessage(REPLIES.what, str(error), peer) from error


def page(rows: Iterable[Status], after: Key | None) -> tuple[tuple[Status, ...], Key | None]:
    """Return the first PAGE of `rows` after the key `after`, in order, and the key that requests the next page.

    The position is a key and not a number, so rows added or removed between two pages do not shift the position.
    """
    rest = sorted((row for row in rows if after is None or row.provider.key > after), key=lambda row: row.provider.key)
    first = tuple(rest[:PAGE])
    return first, first[-1].provider.key if len(rest) > PAGE else None


def answer_query(registry: Registry, query: DaemonQuery, daemon: str, rng: RandomSource, now: float) -> DaemonReply:
    """Return the reply of the daemon with this registry to `query`."""
    match query:
        case SnapshotQuery(name, everything, after, speaks):
            rows: Iterable[Status] = registry.view(now)
            if name is not None:
                rows = (row for row in rows if row.provider.name == name)
            if not everything:
                known = registry.snapshot(now)
                rows = (row for row in rows if row.provider in known.get(row.provider.name, ()))
            return SnapshotReply(daemon, *page(rows, after), speaks)
        case ResolveQuery(name, preference, speaks):
            try:
                return ResolveReply(daemon, registry.resolve(name, rng, preference), speaks)
            except ServiceNotFound as error:
                return RefusedReply(daemon, "not found", str(error))
        case RoundsQuery(last):
            return RoundsReply(daemon, registry.figures[-last:], registry.counters, len(registry.joining))
