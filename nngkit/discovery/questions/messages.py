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
from typing import Annotated, Final, TypeAlias

from msgspec import Meta
from msgspec.structs import force_setattr, replace

from nngkit import envelope
from nngkit.discovery.domains import Domain
from nngkit.discovery.messages import FIRST_VERSION, VERSION_WHAT
from nngkit.discovery.provider import (
    MAX_ADDRESS,
    PROTOCOL_VERSION,
    Id,
    IdText,
    Record,
    ServiceName,
    check_address,
    check_name,
)
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
from nngkit.headers import Headers, WireHeaders, check_headers, pack_headers
from nngkit.messages import ANY_TEXT, Fields, Flag, Maps, Natural63, Seconds, always

ASK: Final = "ask"
"""Kind of a question that `on_question` answers; other kinds are reserved questions."""
MAX_KIND: Final = 16
MAX_MESSAGE: Final = 480  # bytes: 120 printable characters
MAX_COUNT: Final = 2**31
PAGE_ROWS: Final = 256
PAGE_SIZE: Final = 640 * 1024  # bytes of answers in a page; with 256 records, under the limit of a reply, 1 MiB
REPLY_LIMIT: Final = 1024 * 1024

AddressText: TypeAlias = Annotated[str, Meta(max_length=MAX_ADDRESS, extra=ANY_TEXT)]
Price: TypeAlias = Annotated[float, Meta(ge=-MAX_PRICE, le=MAX_PRICE)]
Text: TypeAlias = Annotated[str, Meta(max_length=MAX_MESSAGE, extra=ANY_TEXT)]


def is_question(body: bytes) -> bool:
    """Return True if `body` may be a SurveyQuestion; quick, for `parse_survey_question` decides."""
    return b"\x68question" in body


def is_ask_query(body: bytes) -> bool:
    """Return True if `body` may be an AskQuery; quick, for `parse_ask_query` decides."""
    return b"\x6cask-question" in body


class Asked(Fields, frozen=True, omit_defaults=True):
    """Fields that queries and questions have in common."""

    id: Id
    body: Annotated[bytes, Meta(max_length=MAX_QUESTION)] = b""
    kind: Annotated[str, Meta(max_length=MAX_KIND, extra=ANY_TEXT)] = ASK
    name: ServiceName | None = None
    timeout: Annotated[float, Meta(ge=0, le=MAX_TIMEOUT)] = always(1.0)


class AskQuery(Asked, frozen=True, tag="ask-question"):
    """Query of a caller to a daemon: an ask, without its choice of answers.

    id      new for each ask: daemons and services that get it twice ask once
    kind    "ask", or a reserved question
    count   answers after which it ends; None: all
    after   requests the outcomes after so many
    """

    count: Annotated[int, Meta(ge=1, le=MAX_COUNT)] | None = None
    after: Annotated[int, Meta(ge=0, le=MAX_COUNT)] = 0
    headers: WireHeaders | None = None

    def encode(self, after: int = 0) -> bytes:
        """Encode the message, for the outcomes after the first `after`. Raises TooLarge."""
        return ASKS.encode(replace(self, after=after) if after else self)


def make_ask(
    id: str, question: bytes | Reserved, name: str | None, until: Until, headers: Headers | None = None
) -> AskQuery:
    """Return the query for the arguments of an `ask`. Raises ConfigError, TooLarge, TypeError."""
    if name is not None:
        try:
            check_name(name)
        except ValueError as error:
            raise ConfigError("name", str(error), name) from error
    checked = (check_headers(headers) or None) if headers is not None else None
    if isinstance(question, Reserved):
        return AskQuery(id, b"", question.value, name, until.timeout, until.count, headers=checked)
    if not isinstance(question, (bytes, bytearray, memoryview)):
        raise TypeError(f"question must be bytes, PING, INFO or STATS, not {type(question).__name__}")
    body = bytes(question)
    size = len(body) + (0 if checked is None else len(pack_headers(checked)))
    if size > MAX_QUESTION:
        raise TooLarge(size, MAX_QUESTION)
    return AskQuery(id, body, ASK, name, until.timeout, until.count, headers=checked)


def with_headers(ask: AskQuery, headers: dict[str, str | bytes]) -> AskQuery:
    """Return the query with checked headers in place of its own; as it is if they leave no room for its body."""
    if len(ask.body) + len(pack_headers(headers)) > MAX_QUESTION:
        return ask
    return replace(ask, headers=headers or None)


def parse_ask_query(body: bytes, peer: str | None = None) -> AskQuery | None:
    """Decode the query; None for any other message. Raises BadMessage, TooLarge."""
    return ASKS.decode_known(body, peer)


# ---- daemon and services ---------------------------------------------------------------------------------------------


class SurveyQuestion(Asked, frozen=True, tag="question", kw_only=True):
    """A question to all services, or to those of one name. `timeout`: seconds that the daemon waits for the answer."""

    daemon: Id
    domain: Domain = ""
    headers: WireHeaders | None = None

    @classmethod
    def of(cls, ask: AskQuery, daemon: str, domain: str = "") -> SurveyQuestion:
        """Return the question of a query."""
        return cls(ask.id, ask.body, ask.kind, ask.name, ask.timeout, daemon=daemon, domain=domain, headers=ask.headers)

    def encode(self) -> bytes:
        """Encode the message. Raises TooLarge."""
        return QUESTIONS.encode(self)


def parse_survey_question(body: bytes, peer: str | None = None) -> SurveyQuestion | None:
    """Decode a question; None for any other message. Raises BadMessage, TooLarge."""
    return QUESTIONS.decode_known(body, peer)


class SurveyAnswer(Fields, frozen=True, tag="answer", omit_defaults=True):
    """The answer of the provider with this key: `body` and perhaps a `price`; or `declined`; or `failed`, with why."""

    provider: tuple[ServiceName, AddressText, Id, Natural63]
    body: Annotated[bytes, Meta(max_length=MAX_ANSWER)] = b""
    price: Price | None = None
    declined: Flag = False
    failed: Text = ""

    def __post_init__(self) -> None:
        if self.failed:
            force_setattr(self, "failed", envelope.shown(self.failed))

    def encode(self) -> bytes:
        """Encode the message. Raises TooLarge, TypeError."""
        if len(self.body) > MAX_ANSWER:
            raise TooLarge(len(self.body), MAX_ANSWER)
        return ANSWERS.encode(self)


ASKS: Final = Maps[AskQuery](
    "daemon query", AskQuery, version=FIRST_VERSION, reads=PROTOCOL_VERSION, version_what=VERSION_WHAT
)
QUESTIONS: Final = Maps[SurveyQuestion](
    "discovery question", SurveyQuestion, version=FIRST_VERSION, reads=PROTOCOL_VERSION, version_what=VERSION_WHAT
)
ANSWERS: Final = Maps[SurveyAnswer](
    "answer to a question", SurveyAnswer, version=FIRST_VERSION, reads=PROTOCOL_VERSION, version_what=VERSION_WHAT
)


def parse_survey_answer(body: bytes, peer: str | None = None) -> SurveyAnswer:
    """Decode an answer. Raises BadMessage, TooLarge."""
    answer = ANSWERS.decode(body, peer)
    try:
        check_address(answer.provider[1])
    except ValueError as error:
        raise BadMessage(ANSWERS.what, str(error), peer) from error
    return answer


# ---- daemon and caller -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskReply:
    """A page of outcomes in order of arrival. `after` requests the next page; None on the last."""

    daemon: str
    outcomes: tuple[Outcome, ...]
    after: int | None = None

    def encode(self) -> bytes:
        """Encode the message."""
        rows = tuple(OutcomeRecord.of(outcome) for outcome in self.outcomes)
        return REPLIES.encode(AnswersMessage(self.daemon, rows, self.after))


class OutcomeRecord(Fields, frozen=True, omit_defaults=True):
    """Outcome on the wire. `body`, `rtt`: of an answer."""

    provider: Record
    outcome: Kind
    body: Annotated[bytes, Meta(max_length=MAX_ANSWER)] | None = None
    price: Price | None = None
    rtt: Seconds | None = None
    message: Text = ""

    @classmethod
    def of(cls, outcome: Outcome) -> OutcomeRecord:
        """Return the record of an outcome."""
        record, message = Record.of(outcome.provider), outcome.message and envelope.shown(outcome.message)
        if outcome.kind != "answered":
            return cls(record, outcome.kind, message=message)
        return cls(record, outcome.kind, outcome.body, outcome.price, outcome.rtt, message)

    def result(self) -> Outcome:
        """Return the outcome. Raises ValueError."""
        message = envelope.shown(self.message)
        return Outcome(self.provider.provider(), self.outcome, self.body or b"", self.price, self.rtt or 0.0, message)


class AnswersMessage(Fields, frozen=True, tag="answers", omit_defaults=True):
    """AskReply on the wire."""

    daemon: IdText
    rows: Annotated[tuple[OutcomeRecord, ...], Meta(max_length=PAGE_ROWS)]
    after: Annotated[int, Meta(ge=1, le=MAX_COUNT)] | None = None


REPLIES: Final = Maps[AnswersMessage](
    "daemon reply", AnswersMessage, version=PROTOCOL_VERSION, version_what=VERSION_WHAT, limit=REPLY_LIMIT
)


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
    found = REPLIES.decode_known(body, peer)
    if found is None:
        return None
    try:
        return AskReply(found.daemon, tuple(row.result() for row in found.rows), found.after)
    except ValueError as error:
        raise BadMessage(REPLIES.what, str(error), peer) from error
