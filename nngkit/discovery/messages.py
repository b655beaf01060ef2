"""Survey messages of discovery: the query and its replies, in CBOR and in the article's text form. Pure.

::

    daemon  -> all services   SurveyQuery(daemon, round, flags)               CBOR map
    daemon  -> all services   service query                                   text, in the same round
    service -> daemon         SurveyReply(sender, providers, relay, bye)      CBOR map
    service -> daemon         name|proto://host:port                          text, from the article's services

The first byte tells the form: a CBOR map begins with a byte that no UTF-8 text can begin with. docs/wire.md has the
bytes, as CDDL.

Versions. Messages with records are of version 2, in which the lowest priority is tried first; a record of version 1 is
read with priority 8. A query is of version 1, so that every peer understands it, and its `speaks` gives the highest
version that its sender reads; the reply is of that version, at most 2. A message of a version above 2 is refused with
both numbers in the error (`what` is then `VERSION_WHAT`). Unknown fields are ignored, so a newer peer may add fields
without a new version.

Goodbyes. A respondent can only answer surveys, so a service that stops says goodbye in two ways: it answers the newest
query once more with ``bye=True``, and closes its socket. The first arrives only while that survey is open, and gives
the loss its reason. The second always arrives, at once, and takes the provider out of the registry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from nngkit import envelope
from nngkit.discovery.domains import domain_field
from nngkit.discovery.provider import (
    MAX_ADDRESS,
    MAX_NAME,
    PROTOCOL_VERSION,
    Key,
    Provider,
    check_address,
    check_id,
    check_name,
)
from nngkit.errors import BadMessage, TooLarge

__all__ = [
    "FIRST_VERSION",
    "FLAG_REASK",
    "FLAG_TEXT",
    "MAX_RECORDS",
    "PROTOCOL_VERSION",
    "TEXT_QUERY",
    "SurveyQuery",
    "SurveyReply",
    "TextReply",
    "answer_version",
    "is_cbor",
    "parse_survey_query",
    "parse_survey_reply",
]

FIRST_VERSION: Final = 1
"""Version of queries, and of replies without records: they have not changed since."""
TEXT_QUERY: Final = b"service query"
MAX_RECORDS: Final = 64
"""Cap on the providers in one reply: more than one process offers."""
MAX_TEXT: Final = MAX_NAME + 1 + MAX_ADDRESS + 16  # bytes of a text reply; 16 for line ends and padding NULs
MAX_ROUND: Final = 2**63 - 1
MAX_FLAGS: Final = 16
VERSION_WHAT: Final = "discovery version"

FLAG_TEXT: Final = "text"
"""The text query follows: a peer that answers this query stays silent on that one."""
FLAG_REASK: Final = "reask"
"""This is the quick second query after a round that some have missed."""

_PADDING = b"\0 \t\r\n"  # appended by C programs and line-oriented ones


def is_cbor(body: bytes) -> bool:
    """Return True if `body` begins like a CBOR map (0xa0 to 0xbf: never the first byte of UTF-8 text)."""
    return bool(body) and body[0] & 0xE0 == 0xA0


@dataclass(frozen=True, slots=True)
class SurveyQuery:
    """A daemon's survey query. `daemon`: its id. `round`: its own count, for logs. Unknown flags have no meaning.

    `speaks`: the highest version that the daemon reads. `domain`: of the daemon (domains.py). `every`: seconds after
    which the next query follows, at the latest; None: at no certain time. A service that hears none connects again.
    """

    daemon: str
    round: int
    flags: frozenset[str] = frozenset()
    speaks: int = field(default=PROTOCOL_VERSION, compare=False)
    domain: str = ""
    every: float | None = None

    def encode(self) -> bytes:
        """Encode the message. Raises ValueError for a daemon id that check_id refuses."""
        check_id(self.daemon, "daemon")
        fields: dict[str, object] = {
            "v": FIRST_VERSION,
            "type": "query",
            "daemon": self.daemon,
            "round": self.round,
            "speaks": self.speaks,
        }
        if self.flags:
            fields["flags"] = sorted(self.flags)
        if self.domain:
            fields["domain"] = self.domain
        if self.every is not None:
            fields["every"] = self.every
        return envelope.encode(fields, limit=envelope.CONTROL_LIMIT)


@dataclass(frozen=True, slots=True)
class SurveyReply:
    """The reply of one process, with all its providers: a provider that it listed before and omits now is withdrawn.

    `sender`: an id, new at every start of the process. `relay`: other processes may answer on this pipe too, so one
    reply is not the last. `bye`: the sender is leaving, and all that it listed drains (`providers` is ignored).
    `version`: the message version that it is sent in. `domain`: of the sender. To a daemon of another domain a process
    says its domain alone, without providers: it is counted, and no round waits for it.
    """

    sender: str
    providers: tuple[Provider, ...] = ()
    relay: bool = False
    bye: bool = False
    version: int = field(default=PROTOCOL_VERSION, compare=False)
    domain: str = ""

    def encode(self) -> bytes:
        """Encode the message. Raises ValueError over MAX_RECORDS, a duplicate, a missing id; TooLarge over 64 KiB."""
        check_id(self.sender, "sender")
        if len(self.providers) > MAX_RECORDS:
            raise ValueError(f"{len(self.providers)} providers in a reply, over the limit of {MAX_RECORDS}")
        _check_records(self.providers)
        fields: dict[str, object] = {
            "v": self.version,
            "type": "reply",
            "sender": self.sender,
            "providers": [provider.as_map(self.version) for provider in self.providers],
        }
        if self.relay:
            fields["relay"] = True
        if self.bye:
            fields["bye"] = True
        if self.domain:
            fields["domain"] = self.domain
        return envelope.encode(fields, limit=envelope.CONTROL_LIMIT)


@dataclass(frozen=True, slots=True)
class TextReply:
    """The article's reply: `name|proto://host:port`."""

    name: str
    address: str

    def encode(self) -> bytes:
        """Encode the message. Raises ValueError for a name or an address that is not allowed."""
        return f"{check_name(self.name)}|{check_address(self.address)}".encode()

    @property
    def provider(self) -> Provider:
        """The provider it describes: no id, everything else at its default."""
        return Provider(self.name, self.address)


def parse_survey_query(body: bytes, peer: str | None = None) -> SurveyQuery | None:
    """Decode a query; return None for the text query. Raises BadMessage or TooLarge."""
    if not is_cbor(body):
        if len(body) > MAX_TEXT or body.rstrip(_PADDING) != TEXT_QUERY:
            raise BadMessage("discovery query", "neither a CBOR map nor 'service query'", peer)
        return None
    what = "discovery query"
    fields, version = _fields(body, "query", what, peer)
    daemon = envelope.field(fields, "daemon", str, what=what, peer=peer)
    flags = envelope.field(fields, "flags", list, what=what, peer=peer, default=[], max_len=MAX_FLAGS)
    if not all(type(flag) is str for flag in flags):
        raise BadMessage(what, "flags are not texts", peer)
    try:
        check_id(daemon, "daemon")
    except ValueError as error:
        raise BadMessage(what, str(error), peer) from error
    number = envelope.field(fields, "round", int, what=what, peer=peer, low=0, high=MAX_ROUND)
    speaks = answer_version(fields, version, what, peer)
    domain = domain_field(fields, what=what, peer=peer)
    every = envelope.field(fields, "every", float, what=what, peer=peer, default=None, low=0)
    return SurveyQuery(daemon, number, frozenset(flags), speaks, domain, every)


def parse_survey_reply(body: bytes, peer: str | None = None) -> SurveyReply | TextReply:
    """Decode a reply. Raises BadMessage or TooLarge."""
    if not is_cbor(body):
        return _parse_text(body, peer)
    what = "discovery reply"
    fields, version = _fields(body, "reply", what, peer)
    records = envelope.field(fields, "providers", list, what=what, peer=peer, max_len=MAX_RECORDS)
    reply = SurveyReply(
        sender=envelope.field(fields, "sender", str, what=what, peer=peer),
        providers=tuple(Provider.from_map(record, what=what, peer=peer, version=version) for record in records),
        relay=envelope.field(fields, "relay", bool, what=what, peer=peer, default=False),
        bye=envelope.field(fields, "bye", bool, what=what, peer=peer, default=False),
        version=version,
        domain=domain_field(fields, what=what, peer=peer),
    )
    try:
        check_id(reply.sender, "sender")
        _check_records(reply.providers)
    except ValueError as error:
        raise BadMessage(what, str(error), peer) from error
    return reply


def answer_version(fields: dict[str, object], version: int, what: str, peer: str | None) -> int:
    """Return the version in which to answer a query of `version` with these fields. Raises BadMessage."""
    return min(PROTOCOL_VERSION, envelope.field(fields, "speaks", int, what=what, peer=peer, default=version, low=1))


def _fields(body: bytes, kind: str, what: str, peer: str | None) -> tuple[dict[str, object], int]:
    fields = envelope.as_map(envelope.decode(body, what=what, peer=peer), what=what, peer=peer)
    version = envelope.check_version(fields, PROTOCOL_VERSION, what=VERSION_WHAT, peer=peer)
    found = envelope.field(fields, "type", str, what=what, peer=peer)
    if found != kind:
        raise BadMessage(what, f"type is {envelope.shown(found)!r}", peer)
    return fields, version


def _parse_text(body: bytes, peer: str | None) -> TextReply:
    # As tolerant as the article's Go code: split at the first `|`, ignore spaces around the parts.
    what = "discovery text reply"
    if len(body) > MAX_TEXT:
        raise TooLarge(len(body), MAX_TEXT, peer)
    try:
        name, bar, address = body.rstrip(_PADDING).decode().partition("|")
        if not bar:
            raise ValueError("no '|' between name and address")
        return TextReply(check_name(name.strip()), check_address(address.strip()))
    except ValueError as error:  # UnicodeDecodeError is one
        raise BadMessage(what, envelope.shown(error), peer) from error


def _check_records(providers: tuple[Provider, ...]) -> None:
    seen: set[Key] = set()
    for provider in providers:
        if not provider.id:
            raise ValueError(f"provider {provider.name} has no id")
        if provider.key in seen:
            raise ValueError(f"provider {provider.name} at {provider.address} twice in one reply")
        seen.add(provider.key)
