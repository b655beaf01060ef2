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
from typing import Annotated, Any, Final

from msgspec import Meta

from nngkit import envelope
from nngkit.discovery.domains import Domain
from nngkit.discovery.provider import (
    MAX_ADDRESS,
    MAX_NAME,
    PROTOCOL_VERSION,
    Id,
    Key,
    Provider,
    Record,
    Version,
    check_address,
    check_id,
    check_name,
)
from nngkit.errors import BadMessage, TooLarge
from nngkit.messages import ANY_TEXT, Fields, Flag, Maps, Natural63, Seconds, always

FIRST_VERSION: Final = 1
"""Version of queries, and of replies without records: they have not changed since."""
TEXT_QUERY: Final = b"service query"
TEXT_INSTANCE: Final = ":text"
"""End of the ids that text replies get under a trust, after the name of the peer; their epoch is 0."""
MAX_RECORDS: Final = 64
"""Cap on the providers in one reply: more than one process offers."""
MAX_TEXT: Final = MAX_NAME + 1 + MAX_ADDRESS + 16  # bytes of a text reply; 16 for line ends and padding NULs
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


class SurveyQuery(Fields, frozen=True, tag="query", omit_defaults=True):
    """A daemon's survey query. `daemon`: its id. `round`: its own count, for logs. Unknown flags have no meaning.

    `speaks`: the highest version that the daemon reads. `domain`: of the daemon (domains.py). `every`: seconds after
    which the next query follows, at the latest; None: at no certain time. A service that hears none connects again.
    """

    daemon: Id
    round: Natural63
    flags: Annotated[frozenset[Annotated[str, Meta(extra=ANY_TEXT)]], Meta(max_length=MAX_FLAGS)] = frozenset()
    speaks: Version = always(PROTOCOL_VERSION)
    domain: Domain = ""
    every: Seconds | None = None
    v: Version = FIRST_VERSION

    def encode(self) -> bytes:
        """Encode the message. Raises ValueError for a daemon id that check_id refuses."""
        check_id(self.daemon, "daemon")
        return QUERIES.encode(self)


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
        records = tuple(Record.of(provider, self.version) for provider in self.providers)
        return REPLIES.encode(ReplyMessage(self.sender, records, self.relay, self.bye, self.domain, self.version))


class ReplyMessage(Fields, frozen=True, tag="reply", omit_defaults=True):
    """SurveyReply on the wire."""

    sender: Id
    providers: Annotated[tuple[Record, ...], Meta(max_length=MAX_RECORDS)]
    relay: Flag = False
    bye: Flag = False
    domain: Domain = ""
    v: Version = PROTOCOL_VERSION


QUERIES: Final = Maps[SurveyQuery]("discovery query", SurveyQuery, version=PROTOCOL_VERSION, version_what=VERSION_WHAT)
REPLIES: Final = Maps[ReplyMessage](
    "discovery reply", ReplyMessage, version=PROTOCOL_VERSION, version_what=VERSION_WHAT
)


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
    return QUERIES.parse(read(QUERIES, body, peer), peer)


def parse_survey_reply(body: bytes, peer: str | None = None) -> SurveyReply | TextReply:
    """Decode a reply. Raises BadMessage or TooLarge."""
    if not is_cbor(body):
        return _parse_text(body, peer)
    found = REPLIES.parse(read(REPLIES, body, peer), peer)
    try:
        providers = tuple(record.provider() for record in found.providers)
        _check_records(providers)
    except ValueError as error:
        raise BadMessage(REPLIES.what, str(error), peer) from error
    return SurveyReply(found.sender, providers, found.relay, found.bye, found.v, found.domain)


def read(kinds: Maps[Any], body: bytes, peer: str | None = None) -> Any:
    """Decode a message for `kinds` to parse; one of version 1 becomes as of version 2. Raises BadMessage, TooLarge.

    Its priorities are dropped, and so read as 8: there the highest was tried first. It speaks 1 unless it says more.
    """
    value = envelope.decode(body, what=kinds.what, limit=kinds.limit or envelope.CONTROL_LIMIT, peer=peer)
    if type(value) is dict:
        version = value.get("v")
        if version == FIRST_VERSION and b"\x68priority" in body:
            _drop_priorities(value)
        speaks = value.get("speaks", version)
        if type(speaks) is int:
            value["speaks"] = min(PROTOCOL_VERSION, speaks)
    return value


def _drop_priorities(value: Any) -> None:
    if type(value) is dict:
        value.pop("priority", None)
        value = list(value.values())
    if type(value) is list:
        for each in value:
            _drop_priorities(each)


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
