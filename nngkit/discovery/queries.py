"""What callers ask a daemon over REQ/REP, and what it answers; and the daemon's side of it as one pure function.

::

    AskSnapshot(name, everything, after)  ->  Snapshot(daemon, rows, after)         a page of at most 256 providers
    AskResolve(name, zone)                ->  Resolved(daemon, provider)
    AskRounds(last)                       ->  Rounds(daemon, rounds, counts, silent)
    anything that cannot be answered      ->  Refused(daemon, kind, message)

All are CBOR maps with `v` and `type` (docs/wire.md has the CDDL). Those with records are of version 2, or of 1 for a
caller that reads no more; the others of version 1 (messages.py). Two hosts share no clock: times cross the wire as
ages in seconds and are put on the reader's clock when parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from nngkit import envelope
from nngkit.discovery.liveness import Chance
from nngkit.discovery.messages import FIRST_VERSION, VERSION_WHAT, answer_version
from nngkit.discovery.provider import (
    MAX_EPOCH,
    PROTOCOL_VERSION,
    Key,
    Provider,
    RoundFigures,
    Status,
    check_name,
)
from nngkit.discovery.registry import Registry
from nngkit.errors import BadMessage, Broken, NngkitError, ServiceNotFound, TooLarge

__all__ = [
    "ANSWER_LIMIT",
    "PAGE",
    "Answer",
    "Ask",
    "AskResolve",
    "AskRounds",
    "AskSnapshot",
    "Refused",
    "Resolved",
    "Rounds",
    "Snapshot",
    "answer",
    "answer_bytes",
    "page",
    "parse_answer",
    "parse_ask",
]

PAGE: Final = 256
"""Statuses in one answer: at 2 KiB for the largest, half of a socket's default limit of 1 MiB."""
ANSWER_LIMIT: Final = 1024 * 1024
MAX_ROUNDS: Final = 64
MAX_COUNTS: Final = 64
_ASK = "discovery request"
_ANSWER = "discovery answer"

Kind: TypeAlias = Literal["not found", "bad message", "unavailable"]


def _message(kind: str, fields: Mapping[str, object], limit: int, version: int = FIRST_VERSION) -> bytes:
    return envelope.encode({"v": version, "type": kind, **fields}, limit=limit)


@dataclass(frozen=True, slots=True)
class AskSnapshot:
    """Who is there, of `name` or all; with `everything`, also who cannot be resolved. The page behind `after`."""

    name: str | None = None
    everything: bool = False
    after: Key | None = None
    speaks: int = field(default=PROTOCOL_VERSION, compare=False)

    def encode(self) -> bytes:
        """As bytes."""
        fields: dict[str, object] = {"everything": self.everything, "speaks": self.speaks}
        if self.name is not None:
            fields["name"] = self.name
        if self.after is not None:
            fields["after"] = list(self.after)
        return _message("ask-snapshot", fields, envelope.CONTROL_LIMIT)


@dataclass(frozen=True, slots=True)
class AskResolve:
    """One provider of `name`, of `zone` if there is one. `speaks`, here and above: the highest version understood."""

    name: str
    zone: str = ""
    speaks: int = field(default=PROTOCOL_VERSION, compare=False)

    def encode(self) -> bytes:
        """As bytes."""
        fields = {"name": self.name, "zone": self.zone, "speaks": self.speaks}
        return _message("ask-resolve", fields, envelope.CONTROL_LIMIT)


@dataclass(frozen=True, slots=True)
class AskRounds:
    """The figures of the `last` rounds, at most 64, and the counters."""

    last: int = 16

    def encode(self) -> bytes:
        """As bytes."""
        return _message("ask-rounds", {"last": self.last}, envelope.CONTROL_LIMIT)


Ask: TypeAlias = AskSnapshot | AskResolve | AskRounds


def parse_ask(body: bytes, peer: str | None = None) -> Ask:
    """What a caller asks. Raises BadMessage or TooLarge."""
    fields, kind, version = _fields(body, _ASK, envelope.CONTROL_LIMIT, peer)
    if kind == "ask-snapshot":
        return AskSnapshot(
            name=_name(fields, peer) if "name" in fields else None,
            everything=envelope.field(fields, "everything", bool, what=_ASK, peer=peer, default=False),
            after=_key(fields, _ASK, peer),
            speaks=answer_version(fields, version, _ASK, peer),
        )
    if kind == "ask-resolve":
        zone = envelope.field(fields, "zone", str, what=_ASK, peer=peer, default="", max_len=64)
        return AskResolve(_name(fields, peer), zone, answer_version(fields, version, _ASK, peer))
    if kind == "ask-rounds":
        last = envelope.field(fields, "last", int, what=_ASK, peer=peer, default=16, low=1, high=MAX_ROUNDS)
        return AskRounds(last)
    raise BadMessage(_ASK, f"type is {envelope.shown(kind)!r}", peer)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A page of providers in the order of their keys; `after` asks for the next one, None on the last."""

    daemon: str
    rows: tuple[Status, ...]
    after: Key | None = None
    version: int = field(default=PROTOCOL_VERSION, compare=False)

    def encode(self, now: float) -> bytes:
        """As bytes; `now` on the clock of the rows."""
        rows = [row.as_map(now, self.version) for row in self.rows]
        fields: dict[str, object] = {"daemon": self.daemon, "rows": rows}
        if self.after is not None:
            fields["after"] = list(self.after)
        return _message("snapshot", fields, ANSWER_LIMIT, self.version)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The provider that the daemon chose."""

    daemon: str
    provider: Provider
    version: int = field(default=PROTOCOL_VERSION, compare=False)

    def encode(self, now: float = 0.0) -> bytes:
        """As bytes."""
        fields = {"daemon": self.daemon, "provider": self.provider.as_map(self.version)}
        return _message("resolved", fields, ANSWER_LIMIT, self.version)


@dataclass(frozen=True, slots=True)
class Rounds:
    """The newest rounds, oldest first; the registry's counts; how many pipes have said nothing yet."""

    daemon: str
    rounds: tuple[RoundFigures, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    silent: int = 0

    def encode(self, now: float) -> bytes:
        """As bytes; `now` on the clock of the rounds."""
        rows = [
            {
                "number": r.number,
                "reask": r.reask,
                "age": max(0.0, now - r.ended),
                "took": max(0.0, r.ended - r.started),
                **{name: getattr(r, name) for name in _ROUND_COUNTS},
            }
            for r in self.rounds
        ]
        fields = {"daemon": self.daemon, "rounds": rows, "counts": dict(self.counts), "silent": self.silent}
        return _message("rounds", fields, ANSWER_LIMIT)


@dataclass(frozen=True, slots=True)
class Refused:
    """Why there is no answer: "not found", "bad message" (the question was), "unavailable" (ask again or elsewhere)."""

    daemon: str
    kind: Kind
    message: str

    def encode(self, now: float = 0.0) -> bytes:
        """As bytes."""
        fields = {"daemon": self.daemon, "kind": self.kind, "message": envelope.shown(self.message)}
        return _message("refused", fields, ANSWER_LIMIT)

    def error(self, name: str = "") -> NngkitError:
        """The same as an exception for the caller to raise; `name` is what was asked for."""
        if self.kind == "not found":
            return ServiceNotFound(name or self.message)
        if self.kind == "bad message":
            return BadMessage(_ASK, self.message, self.daemon)
        return Broken(f"discovery daemon {self.daemon}: {self.message}")


Answer: TypeAlias = Snapshot | Resolved | Rounds | Refused

_ROUND_COUNTS = ("asked", "answered", "due", "missed", "held")


def parse_answer(body: bytes, now: float, peer: str | None = None) -> Answer:
    """What the daemon answered, with times on the clock of `now`. Raises BadMessage or TooLarge."""
    fields, kind, version = _fields(body, _ANSWER, ANSWER_LIMIT, peer)
    daemon = envelope.field(fields, "daemon", str, what=_ANSWER, peer=peer, max_len=64)
    if kind == "snapshot":
        rows = envelope.field(fields, "rows", list, what=_ANSWER, peer=peer, max_len=PAGE)
        statuses = tuple(Status.from_map(row, now, what=_ANSWER, peer=peer, version=version) for row in rows)
        return Snapshot(daemon, statuses, _key(fields, _ANSWER, peer), version)
    if kind == "resolved":
        provider = Provider.from_map(fields.get("provider"), what=_ANSWER, peer=peer, version=version)
        return Resolved(daemon, provider, version)
    if kind == "rounds":
        rounds = envelope.field(fields, "rounds", list, what=_ANSWER, peer=peer, max_len=MAX_ROUNDS)
        counts = envelope.field(fields, "counts", dict, what=_ANSWER, peer=peer, max_len=MAX_COUNTS)
        if not all(type(count) is int for count in counts.values()):
            raise BadMessage(_ANSWER, "counts are not numbers", peer)
        silent = envelope.field(fields, "silent", int, what=_ANSWER, peer=peer, low=0)
        return Rounds(daemon, tuple(_figures(row, now, peer) for row in rounds), counts, silent)
    if kind == "refused":
        why = envelope.field(fields, "kind", str, what=_ANSWER, peer=peer)
        for known in get_args(Kind):
            if why == known:
                message = envelope.field(fields, "message", str, what=_ANSWER, peer=peer)
                return Refused(daemon, known, envelope.shown(message))
        raise BadMessage(_ANSWER, f"refused as {envelope.shown(why)!r}", peer)
    raise BadMessage(_ANSWER, f"type is {envelope.shown(kind)!r}", peer)


def page(rows: Iterable[Status], after: Key | None) -> tuple[tuple[Status, ...], Key | None]:
    """The first PAGE of `rows` behind the key `after`, in order, and the key that asks for the next page.

    A key, not a number: what comes and goes between two pages shifts nothing.
    """
    rest = sorted((row for row in rows if after is None or row.provider.key > after), key=lambda row: row.provider.key)
    first = tuple(rest[:PAGE])
    return first, first[-1].provider.key if len(rest) > PAGE else None


def answer(registry: Registry, ask: Ask, daemon: str, rng: Chance, now: float) -> Answer:
    """What a daemon with this registry says to `ask`."""
    match ask:
        case AskSnapshot(name, everything, after, speaks):
            rows: Iterable[Status] = registry.view(now)
            if name is not None:
                rows = (row for row in rows if row.provider.name == name)
            if not everything:
                known = registry.snapshot(now)
                rows = (row for row in rows if row.provider in known.get(row.provider.name, ()))
            return Snapshot(daemon, *page(rows, after), speaks)
        case AskResolve(name, zone, speaks):
            try:
                return Resolved(daemon, registry.resolve(name, rng, zone), speaks)
            except ServiceNotFound as error:
                return Refused(daemon, "not found", str(error))
        case AskRounds(last):
            return Rounds(daemon, registry.figures[-last:], registry.counts, len(registry.joining))


def answer_bytes(
    registry: Registry, body: bytes, daemon: str, rng: Chance, now: float, peer: str | None = None
) -> bytes:
    """Question to answer in bytes, for the daemon's REP socket. What is not understood is Refused; nothing raises."""
    try:
        ask = parse_ask(body, peer)
    except (BadMessage, TooLarge) as error:
        return Refused(daemon, "bad message", str(error)).encode()
    return answer(registry, ask, daemon, rng, now).encode(now)


def _fields(body: bytes, what: str, limit: int, peer: str | None) -> tuple[dict[str, Any], str, int]:
    fields = envelope.as_map(envelope.decode(body, what=what, limit=limit, peer=peer), what=what, peer=peer)
    version = envelope.check_version(fields, PROTOCOL_VERSION, what=VERSION_WHAT, peer=peer)
    return fields, envelope.field(fields, "type", str, what=what, peer=peer), version


def _name(fields: dict[str, Any], peer: str | None) -> str:
    try:
        return check_name(envelope.field(fields, "name", str, what=_ASK, peer=peer))
    except ValueError as error:
        raise BadMessage(_ASK, str(error), peer) from error


def _key(fields: dict[str, Any], what: str, peer: str | None) -> Key | None:
    parts = envelope.field(fields, "after", list, what=what, peer=peer, default=None)
    if parts is None:
        return None
    if [type(part) for part in parts] != [str, str, str, int] or not 0 <= parts[3] <= MAX_EPOCH:
        raise BadMessage(what, "after is not [name, address, id, epoch]", peer)
    return (parts[0], parts[1], parts[2], parts[3])


def _figures(value: object, now: float, peer: str | None) -> RoundFigures:
    fields = envelope.as_map(value, what=_ANSWER, peer=peer)
    ended = now - envelope.field(fields, "age", float, what=_ANSWER, peer=peer, low=0)
    return RoundFigures(
        number=envelope.field(fields, "number", int, what=_ANSWER, peer=peer, low=0),
        reask=envelope.field(fields, "reask", bool, what=_ANSWER, peer=peer),
        started=ended - envelope.field(fields, "took", float, what=_ANSWER, peer=peer, low=0),
        ended=ended,
        **{name: envelope.field(fields, name, int, what=_ANSWER, peer=peer, low=0) for name in _ROUND_COUNTS},
    )
