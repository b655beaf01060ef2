"""Questions to services, and their answers: values that the asking and the answering side share. Pure.

::

    result = await discovery.ask(b"record 7", "archive", until=deadline(0.5))   # every answer within 0.5 s
    result = await discovery.ask(b"record 7", "archive", until=first(1))        # the first answer
    result = await discovery.ask(b"1 kg to Oslo", "carrier", until=bids())      # the lowest price
    result = await discovery.ask(STATS, "archive")                              # a reserved question
    result.answers, result.expected, result.answered, result.declined, result.failed, result.missing

    Service(..., on_question=f)     f(question) -> bytes | None (declined) | Bid(price, body)

Every expected provider is in exactly one of `answered`, `declined`, `failed` and `missing`. An ask ends early once none
is left to wait for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias

from nngkit import envelope
from nngkit.discovery.provider import Provider
from nngkit.errors import ConfigError

MAX_QUESTION: Final = 60 * 1024
"""Bytes of a question: with its other fields it fits a control message."""
MAX_ANSWER: Final = 60 * 1024
"""Bytes of an answer. Larger values are for calls: answer with the key of the value, and call the provider."""
MAX_TIMEOUT: Final = 60.0
"""Seconds that a question may take."""
MAX_PRICE: Final = 1e300

Kind: TypeAlias = Literal["answered", "declined", "failed", "missing"]
Facts: TypeAlias = Mapping[str, object] | Callable[[], Mapping[str, object]]
"""A map of values that CBOR carries, or a quick function that returns one."""


class Reserved(StrEnum):
    """Questions that every Service answers by itself."""

    PING = "ping"
    INFO = "info"
    STATS = "stats"


PING: Final = Reserved.PING
"""Answered with no bytes: the provider is alive, and `rtt` is the time to it."""
INFO: Final = Reserved.INFO
"""Answered with the provider's record and the `info` of its Service (Answer.fields)."""
STATS: Final = Reserved.STATS
"""Answered with the counters of the Service, and its `stats` (Answer.fields)."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question as `on_question` gets it.

    body      the bytes that were asked
    name      the service that was asked; None: all services
    timeout   seconds that the answer is awaited; it is cancelled then
    id        of the question, the same from all daemons that pass it on: a service is asked once
    daemon    id of the daemon that surveys
    headers   of the caller
    """

    body: bytes
    name: str | None
    timeout: float
    id: str
    daemon: str
    headers: dict[str, str | bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bid:
    """An answer with a price: of several, `bids` puts the lowest first. Raises ValueError unless it is finite."""

    price: float
    body: bytes = b""

    def __post_init__(self) -> None:
        if type(self.price) not in (int, float) or not abs(self.price) <= MAX_PRICE:  # NaN is in no range
            raise ValueError(f"price is not a finite number: {self.price!r}")
        object.__setattr__(self, "price", float(self.price))


@dataclass(frozen=True, slots=True)
class Until:
    """When an ask ends and what it returns: `deadline`, `first` and `bids` make one.

    timeout   seconds, over 0 and up to 60
    count     answers after which it ends; None: it waits for all
    best      lowest prices that it returns; None: the order of arrival
    """

    timeout: float
    count: int | None = None
    best: int | None = None

    def __post_init__(self) -> None:
        number = isinstance(self.timeout, (int, float)) and not isinstance(self.timeout, bool)
        if not number or not 0 < self.timeout <= MAX_TIMEOUT:
            why = f"{self.timeout!r} is not over 0 and up to {MAX_TIMEOUT:g} seconds"
            raise ConfigError("until", why, self.timeout)
        for n in (self.count, self.best):
            if n is not None and (type(n) is not int or n < 1):
                raise ConfigError("until", f"{n!r} is not a whole number over 0", n)
        object.__setattr__(self, "timeout", float(self.timeout))


def deadline(seconds: float) -> Until:
    """Wait for all expected providers, at most `seconds`. Raises ConfigError."""
    return Until(seconds)


def first(n: int = 1, *, timeout: float = 1.0) -> Until:
    """Wait for the first `n` answers, at most `timeout` seconds. Raises ConfigError."""
    return Until(timeout, count=n)


def bids(n: int = 1, *, timeout: float = 1.0) -> Until:
    """Wait as `deadline` does; return the `n` answers of the lowest prices, the lowest first. Raises ConfigError.

    Answers without a price come last, in order of arrival.
    """
    return Until(timeout, best=n)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one provider. `bid`: its price, None without one. `rtt`: seconds from question to answer."""

    provider: Provider
    body: bytes
    bid: float | None
    rtt: float

    @property
    def fields(self) -> dict[str, Any]:
        """The answer to INFO or STATS as a map. Raises BadMessage."""
        what = "answer"
        value = envelope.decode(self.body, what=what, peer=self.provider.address)
        return envelope.as_map(value, what=what, peer=self.provider.address)


@dataclass(frozen=True, slots=True)
class Failure:
    """A provider whose `on_question` raised or returned something unusable; `message`: one line."""

    provider: Provider
    message: str


@dataclass(frozen=True, slots=True)
class AskResult:
    """Answers to a question, and the providers that were asked.

    answers    in order of arrival; of `first(n)` the first n, of `bids(n)` the n lowest prices
    expected   all below: the providers that were up or suspect when they were asked, and all others that answered
    answered   providers that answered; declined: that have no answer; failed: with the reason
    missing    providers that had not answered at the end. Those of versions without questions always are
    elapsed    seconds
    """

    answers: tuple[Answer, ...]
    expected: tuple[Provider, ...]
    answered: tuple[Provider, ...]
    declined: tuple[Provider, ...]
    failed: tuple[Failure, ...]
    missing: tuple[Provider, ...]
    elapsed: float

    @property
    def best(self) -> Answer | None:
        """The first of `answers`; None without one."""
        return self.answers[0] if self.answers else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer of one provider, or why there is none. Internal: an AskResult is made of them."""

    provider: Provider
    kind: Kind
    body: bytes = b""
    price: float | None = None
    rtt: float = 0.0
    message: str = ""


def make_result(outcomes: Iterable[Outcome], until: Until, elapsed: float) -> AskResult:
    """Return the result of an ask from its outcomes, in order of arrival."""
    found = tuple(outcomes)
    of = {kind: [each for each in found if each.kind == kind] for kind in ("answered", "declined", "failed", "missing")}
    answers = [Answer(each.provider, each.body, each.price, each.rtt) for each in of["answered"]]
    if until.best is not None:
        answers.sort(key=lambda answer: math.inf if answer.bid is None else answer.bid)  # stable
    return AskResult(
        answers=tuple(answers[: until.best or until.count]),
        expected=tuple(sorted((each.provider for each in found), key=lambda provider: provider.key)),
        answered=tuple(each.provider for each in of["answered"]),
        declined=tuple(each.provider for each in of["declined"]),
        failed=tuple(Failure(each.provider, each.message) for each in of["failed"]),
        missing=tuple(each.provider for each in of["missing"]),
        elapsed=elapsed,
    )
