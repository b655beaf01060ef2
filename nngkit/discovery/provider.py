"""A provider of a service, and its state, reasons and events. Pure values, no behaviour.

::

    Provider(name="answer", address="tcp://10.0.0.7:9000", id="3f9c...", epoch=1767225600123)

A provider is identified by its `key`: name, address, id and epoch together. `id` and `epoch` are new at every start of
a process (a configured `id` stays, then `epoch` alone tells the starts apart), so a restarted process is a new provider
and never mistaken for the one that died. A provider known only by the text form has no id and no epoch; name and
address identify it.

All other fields describe the provider at the moment and may change between two replies. `load` changes continually, so
it takes no part in equality: two snapshots that differ in load alone are equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta
from msgspec.structs import astuple

from nngkit import envelope
from nngkit.messages import ANY_TEXT, Fields, Flag, Maps, Natural63, Seconds

PROTOCOL_VERSION: Final = 2
"""Highest version read, and the version of messages with records: since 2, the lowest priority is tried first."""

Key: TypeAlias = tuple[str, str, str, int]
"""(name, address, id, epoch)"""

# Limits are in UTF-8 bytes. Together they keep a record under 2 KiB, which bounds the memory that one pipe can use.
MAX_NAME: Final = 128
MAX_ADDRESS: Final = 256  # an ipc path is at most 107 bytes, a ws URL may carry a path
MAX_ID: Final = 64  # a UUID has 36 characters
MAX_WORD: Final = 64  # version, zone, one tag
MAX_TAGS: Final = 16
MAX_EPOCH: Final = 2**63 - 1  # Natural63; fits every database's integer
PRIORITIES: Final = (1, 16)  # as nanomsg's NN_SNDPRIO and NN_RCVPRIO, which default to 8 as well
PRIORITY: Final = 8
WEIGHTS: Final = (0, 65535)  # as in a DNS SRV record (RFC 2782)
MAX_LOAD: Final = 1e9
NO_LOAD: Final = 0.0
MAX_PIPES_SENT: Final = 8  # pipes of a status over the wire: bounds the size of a page of statuses

ServiceName: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=MAX_NAME, pattern=r"^(?! )[^|]+(?<! )\Z")  # as check_name
]
Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_ID, pattern=r"^[A-Za-z0-9._:@-]+\Z")]  # as check_id
ServiceText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, extra=ANY_TEXT)]
IdText: TypeAlias = Annotated[str, Meta(max_length=MAX_ID, extra=ANY_TEXT)]
WordText: TypeAlias = Annotated[str, Meta(max_length=MAX_WORD, extra=ANY_TEXT)]
WireKey: TypeAlias = tuple[str, str, str, Natural63]
Version: TypeAlias = Annotated[int, Meta(ge=1)]

_ID = re.compile(r"[A-Za-z0-9._:@-]+")  # no "/" and no "|": never mistaken for an address or a text reply
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.+")


class State(StrEnum):
    """State of a provider; registry.py's docstring has the table of transitions."""

    JOINING = "joining"
    UP = "up"
    SUSPECT = "suspect"
    DRAINING = "draining"
    DOWN = "down"


class Reason(StrEnum):
    """Reason for a state."""

    ANSWERED = "answered"
    LATE = "late reply"
    MISSED = "missed"
    PIPE_LOST = "pipe lost"
    BYE = "bye"
    DRAINING = "draining"
    WITHDRAWN = "withdrawn"
    REPLACED = "replaced"
    CHANGED = "changed"


def check_name(text: str) -> str:
    """Return `text`; ValueError unless it is a service name: 1-128 printable bytes, no `|`, no outer spaces."""
    _check_text("name", text, MAX_NAME, required=True)
    if "|" in text:
        raise ValueError("name has a '|', which ends a name in the text form")
    if text != text.strip():
        raise ValueError("name begins or ends with a space")
    return text


def short_name(text: str) -> str:
    """Return the beginning of `text` that fits a socket's name: a service's may be twice as long."""
    return text.encode()[:63].decode(errors="ignore")


def check_address(text: str) -> str:
    """Return `text`; ValueError unless it is an address: at most 256 printable bytes, scheme://something.

    Only a path (ipc, inproc) may have spaces.
    """
    _check_text("address", text, MAX_ADDRESS, required=True)
    if not _ADDRESS.fullmatch(text):
        raise ValueError(f"address is not scheme://something: {envelope.shown(text)}")
    if not envelope.is_address(text):
        raise ValueError(f"address has a space: {envelope.shown(text)}")
    return text


def check_id(text: str, what: str = "id") -> str:
    """Return `text`; ValueError unless it is 1 to 64 of the characters A-Z a-z 0-9 . _ : @ -"""
    _check_text(what, text, MAX_ID, required=True)
    if not _ID.fullmatch(text):
        raise ValueError(f"{what} has characters other than A-Z a-z 0-9 . _ : @ -")
    return text


def _check_text(what: str, text: object, limit: int, *, required: bool = False) -> None:
    if not isinstance(text, str):
        raise ValueError(f"{what} is not text")
    if required and not text:
        raise ValueError(f"{what} is empty")
    # isprintable() also refuses line ends, escapes, bidirectional overrides, other kinds of space and lone surrogates,
    # so that a terminal, a log line and an environment file show the text unchanged.
    if not text.isprintable():
        raise ValueError(f"{what} has characters that cannot be printed")
    if len(text.encode()) > limit:
        raise ValueError(f"{what} has {len(text.encode())} bytes, over the limit of {limit}")


def _check_number(what: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{what} is not a whole number from {low} to {high}")


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider of one service, with the values that it reports. Raises ValueError for a field over its limit.

    name        of the service: 1-128 bytes, printable, no `|`
    address     that callers dial: scheme://..., at most 256 bytes
    id          1-64 of A-Z a-z 0-9 . _ : @ - ; "" and epoch 0 if it replies in the text form only
    epoch       higher at each start of the process, such as milliseconds since 1970; 0 to 2**63-1
    version     of the service, for people; at most 64 bytes
    zone        location; callers of the same zone prefer it; at most 64 bytes
    priority    1 to 16, the lowest is tried first; a standby has one over the default, 8
    weight      share among equals, 0 to 65535; 0 is chosen only if all have 0
    tags        for people and filters: at most 16 of at most 64 bytes
    load        load as reported by the provider, 0 to 1e9, in its own units
    draining    it finishes its current work and accepts no new callers
    """

    name: str
    address: str
    id: str = ""
    epoch: int = 0
    version: str = ""
    zone: str = ""
    priority: int = PRIORITY
    weight: int = 100
    tags: frozenset[str] = frozenset()
    load: float = field(default=0.0, compare=False)
    draining: bool = False

    def __post_init__(self) -> None:
        check_name(self.name)
        check_address(self.address)
        _check_number("epoch", self.epoch, 0, MAX_EPOCH)
        if self.id != "":
            check_id(self.id)
        elif self.epoch:
            raise ValueError("epoch without an id")
        _check_text("version", self.version, MAX_WORD)
        _check_text("zone", self.zone, MAX_WORD)
        _check_number("priority", self.priority, *PRIORITIES)
        _check_number("weight", self.weight, *WEIGHTS)
        object.__setattr__(self, "tags", frozenset((self.tags,) if isinstance(self.tags, str) else self.tags))
        if len(self.tags) > MAX_TAGS:
            raise ValueError(f"{len(self.tags)} tags, over the limit of {MAX_TAGS}")
        for tag in self.tags:
            _check_text("tag", tag, MAX_WORD, required=True)
        if type(self.load) not in (int, float) or not 0 <= self.load <= MAX_LOAD:  # NaN is in no range
            raise ValueError("load is not a number from 0 to 1e9")
        object.__setattr__(self, "load", float(self.load))
        if type(self.draining) is not bool:
            raise ValueError("draining is not true or false")

    @property
    def key(self) -> Key:
        """Identity of the provider; listings are in this order."""
        return (self.name, self.address, self.id, self.epoch)

    def as_map(self, version: int = PROTOCOL_VERSION) -> dict[str, Any]:
        """Return the record as a map for the wire (docs/wire.md), without fields at their defaults.

        For a reader of version 1, also without the priority, whose order was reversed there.
        """
        return RECORDS.pack(Record.of(self, version))


class Record(Fields, frozen=True, omit_defaults=True):
    """Provider on the wire: the same fields, in the same order. Names, addresses and ids are checked by Provider."""

    name: ServiceText
    addr: Annotated[str, Meta(min_length=1, max_length=MAX_ADDRESS, extra=ANY_TEXT)]
    id: IdText = ""
    epoch: Natural63 = 0
    version: WordText = ""
    zone: WordText = ""
    priority: Annotated[int, Meta(ge=PRIORITIES[0], le=PRIORITIES[1])] = PRIORITY
    weight: Annotated[int, Meta(ge=WEIGHTS[0], le=WEIGHTS[1])] = 100
    tags: Annotated[tuple[WordText, ...], Meta(max_length=MAX_TAGS)] = ()
    load: Annotated[float, Meta(ge=0, le=MAX_LOAD)] = NO_LOAD
    draining: Flag = False

    @classmethod
    def of(cls, provider: Provider, version: int = PROTOCOL_VERSION) -> Record:
        """Return the record of a provider, for a reader of `version`."""
        return cls(
            provider.name,
            provider.address,
            provider.id,
            provider.epoch,
            provider.version,
            provider.zone,
            provider.priority if version > 1 else PRIORITY,
            provider.weight,
            tuple(sorted(provider.tags)),
            provider.load or NO_LOAD,  # the same object as the default, which is left out
            provider.draining,
        )

    def provider(self) -> Provider:
        """Return the provider. Raises ValueError."""
        return Provider(*astuple(self))


RECORDS: Final = Maps[Record]("provider record", Record)


@dataclass(frozen=True, slots=True)
class Event:
    """One change of one provider: states `old` and `new`, reason, time (seconds on the registry's clock), and round.

    `provider` is the record after the change. `old` is JOINING for an unknown provider. `old` equals `new` only with
    Reason.CHANGED: the record changed (weight, zone, tags, but not the load).
    """

    name: str
    provider: Provider
    old: State
    new: State
    reason: Reason
    time: float
    round: int


@dataclass(frozen=True, slots=True)
class Status:
    """State of one provider, for display. Times are seconds on the clock of the object that returned it.

    `since`: time at which `state` began, for `reason`. `misses`: consecutive surveys without a reply. `last_reply` and
    `rtt` (seconds from query to reply): None before the first. `stale`: it was silent together with most others, and
    the miss was not counted. `pipes`: the connections that carry it. `round`: the last one that it answered.
    """

    provider: Provider
    state: State
    reason: Reason
    since: float
    misses: int = 0
    last_reply: float | None = None
    rtt: float | None = None
    stale: bool = False
    pipes: tuple[int, ...] = ()
    round: int = 0


class StatusRecord(Fields, frozen=True, omit_defaults=True):
    """Status on the wire: times become ages, because two hosts share no clock."""

    provider: Record
    state: State
    reason: Reason
    age: Seconds
    misses: Natural63
    stale: Flag
    pipes: Annotated[tuple[int, ...], Meta(max_length=MAX_PIPES_SENT)]
    round: Natural63
    silent: Seconds | None = None
    rtt: Seconds | None = None

    @classmethod
    def of(cls, status: Status, now: float, version: int = PROTOCOL_VERSION) -> StatusRecord:
        """Return the record of a status. `now`: the current time on its clock."""
        return cls(
            Record.of(status.provider, version),
            status.state,
            status.reason,
            max(0.0, now - status.since),
            status.misses,
            status.stale,
            status.pipes[:MAX_PIPES_SENT],
            status.round,
            None if status.last_reply is None else max(0.0, now - status.last_reply),
            status.rtt,
        )

    def status(self, now: float) -> Status:
        """Return the status, with times on the clock of `now`. Raises ValueError."""
        return Status(
            self.provider.provider(),
            self.state,
            self.reason,
            now - self.age,
            self.misses,
            None if self.silent is None else now - self.silent,
            self.rtt,
            self.stale,
            self.pipes,
            self.round,
        )


@dataclass(frozen=True, slots=True)
class RoundFigures:
    """Figures of one round. `asked` and `answered` count pipes; `due`, `missed` and `held` count providers.

    `due`: expected to reply. `missed`: due, but silent. `held`: misses not counted, because most providers were silent
    at once. `started`, `ended`: seconds, the registry's clock.
    """

    number: int
    reask: bool
    started: float
    ended: float
    asked: int
    answered: int
    due: int
    missed: int
    held: int
