"""Queries to a daemon over REQ/REP and its replies, and the daemon's side as one pure function.

::

    SnapshotQuery(name, everything, after)  ->  SnapshotReply(daemon, rows, after)       a page of at most 256 providers
    ResolveQuery(name, preference)          ->  ResolveReply(daemon, provider)
    RoundsQuery(last)                       ->  RoundsReply(daemon, rounds, counters, silent)
    a query that cannot be answered         ->  RefusedReply(daemon, kind, message)

All are CBOR maps with `v` and `type` (CDDL in docs/wire.md). Messages with records are of version 2, or of 1 for a
caller that reads no more; the others are of version 1 (messages.py). Two hosts share no clock: times cross the wire as
ages in seconds and are converted to the reader's clock when parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from nngkit import envelope
from nngkit.chance import RandomSource
from nngkit.discovery.lanes import ANY, MAX_PREFERRED, Preference
from nngkit.discovery.messages import FIRST_VERSION, VERSION_WHAT, answer_version
from nngkit.discovery.provider import (
    MAX_EPOCH,
    MAX_TAGS,
    PROTOCOL_VERSION,
    Key,
    Provider,
    RoundFigures,
    Status,
    check_name,
)
from nngkit.discovery.registry.registry import Registry
from nngkit.errors import BadMessage, Broken, ConfigError, NngkitError, ServiceNotFound, TooLarge

__all__ = [
    "PAGE",
    "REPLY_LIMIT",
    "DaemonQuery",
    "DaemonReply",
    "RefusedReply",
    "ResolveQuery",
    "ResolveReply",
    "RoundsQuery",
    "RoundsReply",
    "SnapshotQuery",
    "SnapshotReply",
    "answer_query",
    "answer_query_bytes",
    "page",
    "parse_daemon_query",
    "parse_daemon_reply",
]

PAGE: Final = 256
"""Statuses in one reply: at 2 KiB for the largest, half of a socket's default limit of 1 MiB."""
REPLY_LIMIT: Final = 1024 * 1024
MAX_ROUNDS: Final = 64
MAX_COUNTERS: Final = 64
_QUERY = "daemon query"
_REPLY = "daemon reply"

RefusalKind: TypeAlias = Literal["not found", "bad message", "unavailable"]


def _message(kind: str, fields: Mapping[str, object], limit: int, version: int = FIRST_VERSION) -> bytes:
    return envelope.encode({"v": version, "type": kind, **fields}, limit=limit)


@dataclass(frozen=True, slots=True)
class SnapshotQuery:
    """Query for the providers of `name` or of all services: the page after the key `after`.

    `everything`: include those that cannot be resolved. `speaks`: the highest version understood.
    """

    name: str | None = None
    everything: bool = False
    after: Key | None = None
    speaks: int = field(default=PROTOCOL_VERSION, compare=False)

    def encode(self) -> bytes:
        """Encode the message."""
        fields: dict[str, object] = {"everything": self.everything, "speaks": self.speaks}
        if self.name is not None:
            fields["name"] = self.name
        if self.after is not None:
            fields["after"] = list(self.after)
        return _message("ask-snapshot", fields, envelope.CONTROL_LIMIT)


@dataclass(frozen=True, slots=True)
class ResolveQuery:
    """Query for one provider of `name`, by the caller's preference. `speaks`: the highest version understood."""

    name: str
    preference: Preference = ANY
    speaks: int = field(default=PROTOCOL_VERSION, compare=False)

    def encode(self) -> bytes:
        """Encode the message."""
        wanted = self.preference
        zone = wanted.prefer[0] if wanted.prefer else ""  # all that daemons without `prefer` know
        fields: dict[str, object] = {"name": self.name, "zone": zone, "speaks": self.speaks}
        if len(wanted.prefer) > 1:
            fields["prefer"] = list(wanted.prefer)
        if wanted.tags:
            fields["tags"] = sorted(wanted.tags)
        if wanted.version:
            fields["version"] = wanted.version
        if wanted.suspects != "last":
            fields["suspects"] = wanted.suspects
        return _message("ask-resolve", fields, envelope.CONTROL_LIMIT)


@dataclass(frozen=True, slots=True)
class RoundsQuery:
    """Query for the figures of the `last` rounds, at most 64, and for the counters."""

    last: int = 16

    def encode(self) -> bytes:
        """Encode the message."""
        return _message("ask-rounds", {"last": self.last}, envelope.CONTROL_LIMIT)


DaemonQuery: TypeAlias = SnapshotQuery | ResolveQuery | RoundsQuery


def parse_daemon_query(body: bytes, peer: str | None = None) -> DaemonQuery:
    """Decode a query. Raises BadMessage or TooLarge."""
    fields, kind, version = _fields(body, _QUERY, envelope.CONTROL_LIMIT, peer)
    if kind == "ask-snapshot":
        return SnapshotQuery(
            name=_name(fields, peer) if "name" in fields else None,
            everything=envelope.field(fields, "everything", bool, what=_QUERY, peer=peer, default=False),
            after=_key(fields, _QUERY, peer),
            speaks=answer_version(fields, version, _QUERY, peer),
        )
    if kind == "ask-resolve":
        return ResolveQuery(
            _name(fields, peer), _preference(fields, peer), answer_version(fields, version, _QUERY, peer)
        )
    if kind == "ask-rounds":
        last = envelope.field(fields, "last", int, what=_QUERY, peer=peer, default=16, low=1, high=MAX_ROUNDS)
        return RoundsQuery(last)
    raise BadMessage(_QUERY, f"type is {envelope.shown(kind)!r}", peer)


@dataclass(frozen=True, slots=True)
class SnapshotReply:
    """A page of providers in the order of their keys. `after` requests the next page; None on the last."""

    daemon: str
    rows: tuple[Status, ...]
    after: Key | None = None
    version: int = field(default=PROTOCOL_VERSION, compare=False)

    def encode(self, now: float) -> bytes:
        """Encode the message. `now`: the current time on the clock of the rows."""
        rows = [row.as_map(now, self.version) for row in self.rows]
        fields: dict[str, object] = {"daemon": self.daemon, "rows": rows}
        if self.after is not None:
            fields["after"] = list(self.after)
        return _message("snapshot", fields, REPLY_LIMIT, self.version)


@dataclass(frozen=True, slots=True)
class ResolveReply:
    """The provider that the daemon chose."""

    daemon: str
    provider: Provider
    version: int = field(default=PROTOCOL_VERSION, compare=False)

    def encode(self, now: float = 0.0) -> bytes:
        """Encode the message."""
        fields = {"daemon": self.daemon, "provider": self.provider.as_map(self.version)}
        return _message("resolved", fields, REPLY_LIMIT, self.version)


@dataclass(frozen=True, slots=True)
class RoundsReply:
    """The newest rounds, oldest first; the daemon's counters; the number of pipes that have not answered yet."""

    daemon: str
    rounds: tuple[RoundFigures, ...]
    counters: Mapping[str, int] = field(default_factory=dict)
    silent: int = 0

    def encode(self, now: float) -> bytes:
        """Encode the message. `now`: the current time on the clock of the rounds."""
        rows = [
            {
                "number": r.number,
                "reask": r.reask,
                "age": max(0.0, now - r.ended),
                "took": max(0.0, r.ended - r.started),
                **{name: getattr(r, name) for name in _ROUND_FIGURES},
            }
            for r in self.rounds
        ]
        fields = {"daemon": self.daemon, "rounds": rows, "counts": dict(self.counters), "silent": self.silent}
        return _message("rounds", fields, REPLY_LIMIT)


@dataclass(frozen=True, slots=True)
class RefusedReply:
    """A refusal: "not found", "bad message" (of the query), or "unavailable" (retry, or use another daemon)."""

    daemon: str
    kind: RefusalKind
    message: str

    def encode(self, now: float = 0.0) -> bytes:
        """Encode the message."""
        fields = {"daemon": self.daemon, "kind": self.kind, "message": envelope.shown(self.message)}
        return _message("refused", fields, REPLY_LIMIT)

    def error(self, name: str = "") -> NngkitError:
        """Return the refusal as an exception for the caller to raise; `name` is the name that was queried."""
        if self.kind == "not found":
            return ServiceNotFound(name or self.message, self.message.partition(f": {name}: ")[2])
        if self.kind == "bad message":
            return BadMessage(_QUERY, self.message, self.daemon)
        return Broken(f"discovery daemon {self.daemon}: {self.message}")


DaemonReply: TypeAlias = SnapshotReply | ResolveReply | RoundsReply | RefusedReply

_ROUND_FIGURES = ("asked", "answered", "due", "missed", "held")


def parse_daemon_reply(body: bytes, now: float, peer: str | None = None) -> DaemonReply:
    """Decode a reply, with times on the clock of `now`. Raises BadMessage or TooLarge."""
    fields, kind, version = _fields(body, _REPLY, REPLY_LIMIT, peer)
    daemon = envelope.field(fields, "daemon", str, what=_REPLY, peer=peer, max_len=64)
    if kind == "snapshot":
        rows = envelope.field(fields, "rows", list, what=_REPLY, peer=peer, max_len=PAGE)
        statuses = tuple(Status.from_map(row, now, what=_REPLY, peer=peer, version=version) for row in rows)
        return SnapshotReply(daemon, statuses, _key(fields, _REPLY, peer), version)
    if kind == "resolved":
        provider = Provider.from_map(fields.get("provider"), what=_REPLY, peer=peer, version=version)
        return ResolveReply(daemon, provider, version)
    if kind == "rounds":
        rounds = envelope.field(fields, "rounds", list, what=_REPLY, peer=peer, max_len=MAX_ROUNDS)
        counters = envelope.field(fields, "counts", dict, what=_REPLY, peer=peer, max_len=MAX_COUNTERS)
        if not all(type(count) is int for count in counters.values()):
            raise BadMessage(_REPLY, "counters are not numbers", peer)
        silent = envelope.field(fields, "silent", int, what=_REPLY, peer=peer, low=0)
        return RoundsReply(daemon, tuple(_figures(row, now, peer) for row in rounds), counters, silent)
    if kind == "refused":
        why = envelope.field(fields, "kind", str, what=_REPLY, peer=peer)
        for known in get_args(RefusalKind):
            if why == known:
                message = envelope.field(fields, "message", str, what=_REPLY, peer=peer)
                return RefusedReply(daemon, known, envelope.shown(message))
        raise BadMessage(_REPLY, f"refused as {envelope.shown(why)!r}", peer)
    raise BadMessage(_REPLY, f"type is {envelope.shown(kind)!r}", peer)


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


def answer_query_bytes(
    registry: Registry, body: bytes, daemon: str, rng: RandomSource, now: float, peer: str | None = None
) -> bytes:
    """Answer an encoded query for the daemon's REP socket. Unparsable requests get a refusal; no input raises."""
    try:
        query = parse_daemon_query(body, peer)
    except (BadMessage, TooLarge) as error:
        return RefusedReply(daemon, "bad message", str(error)).encode()
    return answer_query(registry, query, daemon, rng, now).encode(now)


def _fields(body: bytes, what: str, limit: int, peer: str | None) -> tuple[dict[str, Any], str, int]:
    fields = envelope.as_map(envelope.decode(body, what=what, limit=limit, peer=peer), what=what, peer=peer)
    version = envelope.check_version(fields, PROTOCOL_VERSION, what=VERSION_WHAT, peer=peer)
    return fields, envelope.field(fields, "type", str, what=what, peer=peer), version


def _name(fields: dict[str, Any], peer: str | None) -> str:
    try:
        return check_name(envelope.field(fields, "name", str, what=_QUERY, peer=peer))
    except ValueError as error:
        raise BadMessage(_QUERY, str(error), peer) from error


def _preference(fields: dict[str, Any], peer: str | None) -> Preference:
    zone = envelope.field(fields, "zone", str, what=_QUERY, peer=peer, default="")
    try:
        return Preference(
            prefer=_texts(fields, "prefer", MAX_PREFERRED, peer) or (zone,),
            tags=frozenset(_texts(fields, "tags", MAX_TAGS, peer)),
            version=envelope.field(fields, "version", str, what=_QUERY, peer=peer, default=""),
            suspects="near" if fields.get("suspects") == "near" else "last",
        )
    except ConfigError as error:
        raise BadMessage(_QUERY, str(error), peer) from error


def _texts(fields: dict[str, Any], key: str, most: int, peer: str | None) -> tuple[str, ...]:
    texts = envelope.field(fields, key, list, what=_QUERY, peer=peer, default=[], max_len=most)
    if not all(type(text) is str for text in texts):
        raise BadMessage(_QUERY, f"{key} are not texts", peer)
    return tuple(texts)


def _key(fields: dict[str, Any], what: str, peer: str | None) -> Key | None:
    parts = envelope.field(fields, "after", list, what=what, peer=peer, default=None)
    if parts is None:
        return None
    if [type(part) for part in parts] != [str, str, str, int] or not 0 <= parts[3] <= MAX_EPOCH:
        raise BadMessage(what, "after is not [name, address, id, epoch]", peer)
    return (parts[0], parts[1], parts[2], parts[3])


def _figures(value: object, now: float, peer: str | None) -> RoundFigures:
    fields = envelope.as_map(value, what=_REPLY, peer=peer)
    ended = now - envelope.field(fields, "age", float, what=_REPLY, peer=peer, low=0)
    return RoundFigures(
        number=envelope.field(fields, "number", int, what=_REPLY, peer=peer, low=0),
        reask=envelope.field(fields, "reask", bool, what=_REPLY, peer=peer),
        started=ended - envelope.field(fields, "took", float, what=_REPLY, peer=peer, low=0),
        ended=ended,
        **{name: envelope.field(fields, name, int, what=_REPLY, peer=peer, low=0) for name in _ROUND_FIGURES},
    )
