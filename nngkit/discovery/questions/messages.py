"""Messages of questions, in CBOR: between daemon and services by survey, between caller and daemon over REQ/REP. Pure.

::

    daemon  -> all services   SurveyQuestion(ask, daemon, domain)                   a survey of its own
    service -> daemon         SurveyAnswer(provider, body, price | declined | failed)
    caller  -> daemon         AskQuery(id, kind, name, body, timeout, count), after answered once the survey has ended
    daemon  -> caller         AskReply(daemon, outcomes, after)                     a page of the outcomes

A service of a version without questions counts a SurveyQuestion as a bad query and stays silent. A caller may send an
AskQuery again, on another connection too: one id is one survey, and `after` (a count of outcomes) requests the page
after those. docs/wire.md has the bytes, as CDDL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast, get_args

from nngkit import envelope
from nngkit.discovery.domains import domain_field
from nngkit.discovery.messages import FIRST_VERSION, VERSION_WHAT
from nngkit.discovery.provider import MAX_EPOCH, PROTOCOL_VERSION, Key, Provider, check_address, check_id, check_name
from nngkit.discovery.questions.values import (
    MAX_ANSWER,
    MAX_PRICE,
    MAX_QUESTION,
    MAX_TIMEOUT,
    Kind,
    Outcome,
    Reserved,
    Until,
)
from nngkit.errors import BadMessage, ConfigError, TooLarge

__all__ = [
    "ASK",
    "AskQuery",
    "AskReply",
    "SurveyAnswer",
    "SurveyQuestion",
    "is_ask_query",
    "is_question",
    "make_ask",
    "pages",
    "parse_ask_query",
    "parse_ask_reply",
    "parse_survey_answer",
    "parse_survey_question",
]

ASK: Final = "ask"
"""Kind of a question that `on_question` answers; other kinds are reserved questions."""
MAX_KIND: Final = 16
MAX_MESSAGE: Final = 480  # bytes: 120 printable characters
MAX_COUNT: Final = 2**31
PAGE_ROWS: Final = 256
PAGE_SIZE: Final = 640 * 1024  # bytes of answers in a page; with 256 records, under the limit of a reply, 1 MiB
REPLY_LIMIT: Final = 1024 * 1024
_QUESTION = "discovery question"
_ANSWER = "answer to a question"
_QUERY = "daemon query"
_REPLY = "daemon reply"


def is_question(body: bytes) -> bool:
    """Return True if `body` may be a SurveyQuestion; quick, for `parse_survey_question` decides."""
    return b"\x68question" in body


def is_ask_query(body: bytes) -> bool:
    """Return True if `body` may be an AskQuery; quick, for `parse_ask_query` decides."""
    return b"\x6cask-question" in body


@dataclass(frozen=True, slots=True)
class AskQuery:
    """Query of a caller to a daemon: an ask, without its choice of answers.

    id      new for each ask: daemons and services that get it twice ask once
    kind    "ask", or a reserved question
    count   answers after which it ends; None: all
    """

    id: str
    body: bytes = b""
    kind: str = ASK
    name: str | None = None
    timeout: float = 1.0
    count: int | None = None

    def encode(self, after: int = 0) -> bytes:
        """Encode the message, for the outcomes after the first `after`. Raises TooLarge."""
        fields = _asked(self) | {"v": FIRST_VERSION, "type": "ask-question"}
        if self.count is not None:
            fields["count"] = self.count
        if after:
            fields["after"] = after
        return envelope.encode(fields, limit=envelope.CONTROL_LIMIT)


def make_ask(id: str, question: bytes | Reserved, name: str | None, until: Until) -> AskQuery:
    """Return the query for the arguments of an `ask`. Raises ConfigError, TooLarge, TypeError."""
    if name is not None:
        try:
            check_name(name)
        except ValueError as error:
            raise ConfigError("name", str(error), name) from error
    if isinstance(question, Reserved):
        return AskQuery(id, b"", question.value, name, until.timeout, until.count)
    if not isinstance(question, (bytes, bytearray, memoryview)):
        raise TypeError(f"question must be bytes, PING, INFO or STATS, not {type(question).__name__}")
    body = bytes(question)
    if len(body) > MAX_QUESTION:
        raise TooLarge(len(body), MAX_QUESTION)
    return AskQuery(id, body, ASK, name, until.timeout, until.count)


def parse_ask_query(body: bytes, peer: str | None = None) -> tuple[AskQuery, int] | None:
    """Decode the query and its `after`; None for any other message. Raises BadMessage, TooLarge."""
    fields = _fields(body, "ask-question", _QUERY, envelope.CONTROL_LIMIT, peer, FIRST_VERSION)
    if fields is None:
        return None
    count = envelope.field(fields, "count", int, what=_QUERY, peer=peer, default=None, low=1, high=MAX_COUNT)
    after = envelope.field(fields, "after", int, what=_QUERY, peer=peer, default=0, low=0, high=MAX_COUNT)
    return AskQuery(**_question_fields(fields, _QUERY, peer), count=count), after


# ---- daemon and services ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SurveyQuestion:
    """A question to all services, or to those of one name. `timeout`: seconds that the daemon waits for the answer."""

    ask: AskQuery
    daemon: str
    domain: str = ""

    def encode(self) -> bytes:
        """Encode the message. Raises TooLarge."""
        fields = _asked(self.ask) | {"v": FIRST_VERSION, "type": "question", "daemon": self.daemon}
        if self.domain:
            fields["domain"] = self.domain
        return envelope.encode(fields, limit=envelope.CONTROL_LIMIT)


def parse_survey_question(body: bytes, peer: str | None = None) -> SurveyQuestion | None:
    """Decode a question; None for any other message. Raises BadMessage, TooLarge."""
    fields = _fields(body, "question", _QUESTION, envelope.CONTROL_LIMIT, peer, PROTOCOL_VERSION)
    if fields is None:
        return None
    daemon = envelope.field(fields, "daemon", str, what=_QUESTION, peer=peer)
    try:
        check_id(daemon, "daemon")
    except ValueError as error:
        raise BadMessage(_QUESTION, str(error), peer) from error
    domain = domain_field(fields, what=_QUESTION, peer=peer)
    return SurveyQuestion(AskQuery(**_question_fields(fields, _QUESTION, peer)), daemon, domain)


@dataclass(frozen=True, slots=True)
class SurveyAnswer:
    """The answer of the provider with this key: `body` and perhaps a `price`; or `declined`; or `failed`, with why."""

    provider: Key
    body: bytes = b""
    price: float | None = None
    declined: bool = False
    failed: str = ""

    def encode(self) -> bytes:
        """Encode the message. Raises TooLarge, TypeError."""
        if len(self.body) > MAX_ANSWER:
            raise TooLarge(len(self.body), MAX_ANSWER)
        fields: dict[str, object] = {"v": FIRST_VERSION, "type": "answer", "provider": list(self.provider)}
        optional = (("body", self.body, b""), ("price", self.price, None), ("declined", self.declined, False))
        fields.update((key, value) for key, value, default in optional if value != default)
        if self.failed:
            fields["failed"] = envelope.shown(self.failed)
        return envelope.encode(fields, limit=envelope.CONTROL_LIMIT)


def parse_survey_answer(body: bytes, peer: str | None = None) -> SurveyAnswer:
    """Decode an answer. Raises BadMessage, TooLarge."""
    fields = _fields(body, "answer", _ANSWER, envelope.CONTROL_LIMIT, peer, PROTOCOL_VERSION)
    if fields is None:
        raise BadMessage(_ANSWER, "type is not answer", peer)
    parts = envelope.field(fields, "provider", list, what=_ANSWER, peer=peer)
    if [type(part) for part in parts] != [str, str, str, int] or not 0 <= parts[3] <= MAX_EPOCH:
        raise BadMessage(_ANSWER, "provider is not [name, address, id, epoch]", peer)
    try:
        key = (check_name(parts[0]), check_address(parts[1]), check_id(parts[2]), parts[3])
    except ValueError as error:
        raise BadMessage(_ANSWER, str(error), peer) from error
    return SurveyAnswer(
        key,
        body=envelope.field(fields, "body", bytes, what=_ANSWER, peer=peer, default=b"", max_len=MAX_ANSWER),
        price=_price(fields, _ANSWER, peer),
        declined=envelope.field(fields, "declined", bool, what=_ANSWER, peer=peer, default=False),
        failed=_message(fields, "failed", _ANSWER, peer),
    )


# ---- daemon and caller -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskReply:
    """A page of outcomes in order of arrival. `after` requests the next page; None on the last."""

    daemon: str
    outcomes: tuple[Outcome, ...]
    after: int | None = None

    def encode(self) -> bytes:
        """Encode the message."""
        fields: dict[str, object] = {
            "v": PROTOCOL_VERSION,
            "type": "answers",
            "daemon": self.daemon,
            "rows": [_row(outcome) for outcome in self.outcomes],
        }
        if self.after is not None:
            fields["after"] = self.after
        return envelope.encode(fields, limit=REPLY_LIMIT)


def pages(daemon: str, outcomes: Sequence[Outcome]) -> Iterator[tuple[int, AskReply]]:
    """Yield the pages of `outcomes`, each with the `after` that requests it; the first has 0."""
    start = 0
    while True:
        end, size = start, 0
        while end < len(outcomes) and end - start < PAGE_ROWS:
            size += len(outcomes[end].body)
            if size > PAGE_SIZE and end > start:
                break
            end += 1
        last = end >= len(outcomes)
        yield start, AskReply(daemon, tuple(outcomes[start:end]), None if last else end)
        if last:
            return
        start = end


def parse_ask_reply(body: bytes, peer: str | None = None) -> AskReply | None:
    """Decode a page; None for any other message, such as a refusal. Raises BadMessage, TooLarge."""
    fields = _fields(body, "answers", _REPLY, REPLY_LIMIT, peer, PROTOCOL_VERSION)
    if fields is None:
        return None
    rows = envelope.field(fields, "rows", list, what=_REPLY, peer=peer, max_len=PAGE_ROWS)
    return AskReply(
        envelope.field(fields, "daemon", str, what=_REPLY, peer=peer, max_len=64),
        tuple(_outcome(row, peer) for row in rows),
        envelope.field(fields, "after", int, what=_REPLY, peer=peer, default=None, low=1, high=MAX_COUNT),
    )


def _row(outcome: Outcome) -> dict[str, object]:
    row: dict[str, object] = {"provider": outcome.provider.as_map(), "outcome": outcome.kind}
    if outcome.kind == "answered":
        row |= {"body": outcome.body, "rtt": outcome.rtt}
        if outcome.price is not None:
            row["price"] = outcome.price
    if outcome.message:
        row["message"] = envelope.shown(outcome.message)
    return row


def _outcome(value: object, peer: str | None) -> Outcome:
    fields = envelope.as_map(value, what=_REPLY, peer=peer)
    kind = envelope.field(fields, "outcome", str, what=_REPLY, peer=peer)
    if kind not in get_args(Kind):
        raise BadMessage(_REPLY, f"outcome is {envelope.shown(kind)!r}", peer)
    return Outcome(
        Provider.from_map(fields.get("provider"), what=_REPLY, peer=peer),
        cast(Kind, kind),
        body=envelope.field(fields, "body", bytes, what=_REPLY, peer=peer, default=b"", max_len=MAX_ANSWER),
        price=_price(fields, _REPLY, peer),
        rtt=envelope.field(fields, "rtt", float, what=_REPLY, peer=peer, default=0.0, low=0),
        message=_message(fields, "message", _REPLY, peer),
    )


# ---- fields ----------------------------------------------------------------------------------------------------------


def _asked(ask: AskQuery) -> dict[str, object]:
    fields: dict[str, object] = {"id": ask.id, "timeout": ask.timeout}
    if ask.kind != ASK:
        fields["kind"] = ask.kind
    if ask.name is not None:
        fields["name"] = ask.name
    if ask.body:
        fields["body"] = ask.body
    return fields


def _question_fields(fields: dict[str, Any], what: str, peer: str | None) -> dict[str, Any]:
    """Return the arguments of an AskQuery that queries and questions have in common. Raises BadMessage."""
    name = envelope.field(fields, "name", str, what=what, peer=peer, default=None)
    number = envelope.field(fields, "id", str, what=what, peer=peer)
    try:
        check_id(number)
        if name is not None:
            check_name(name)
    except ValueError as error:
        raise BadMessage(what, str(error), peer) from error
    timeout = envelope.field(fields, "timeout", float, what=what, peer=peer, low=0, high=MAX_TIMEOUT)
    return {
        "id": number,
        "name": name,
        "timeout": timeout,
        "kind": envelope.field(fields, "kind", str, what=what, peer=peer, default=ASK, max_len=MAX_KIND),
        "body": envelope.field(fields, "body", bytes, what=what, peer=peer, default=b"", max_len=MAX_QUESTION),
    }


def _price(fields: dict[str, Any], what: str, peer: str | None) -> float | None:
    return envelope.field(fields, "price", float, what=what, peer=peer, default=None, low=-MAX_PRICE, high=MAX_PRICE)


def _message(fields: dict[str, Any], key: str, what: str, peer: str | None) -> str:
    return envelope.shown(envelope.field(fields, key, str, what=what, peer=peer, default="", max_len=MAX_MESSAGE))


def _fields(body: bytes, kind: str, what: str, limit: int, peer: str | None, version: int) -> dict[str, Any] | None:
    """Return the fields of a message of the type `kind`; None for another. Raises BadMessage, TooLarge."""
    fields = envelope.as_map(envelope.decode(body, what=what, limit=limit, peer=peer), what=what, peer=peer)
    if fields.get("type") != kind:
        return None
    envelope.check_version(fields, max(version, PROTOCOL_VERSION), what=VERSION_WHAT, peer=peer)
    return fields
