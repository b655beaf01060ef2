"""Questions without sockets: values and messages, and which answers count."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nngkit import ConfigError
from nngkit.discovery import (
    AskResult,
    Bid,
    Provider,
    Reason,
    State,
    Status,
    Until,
    bids,
    deadline,
    first,
)
from nngkit.discovery.questions.messages import (
    AskQuery,
    SurveyAnswer,
    SurveyQuestion,
    make_ask,
    parse_ask_query,
    parse_survey_answer,
    parse_survey_question,
)
from nngkit.discovery.questions.round import OutcomeMerger, QuestionRound
from nngkit.discovery.questions.values import MAX_ANSWER, MAX_QUESTION, Outcome, make_result
from nngkit.errors import BadMessage, TooLarge
from tests.discovery.peers import record

QUESTION = AskQuery("q1", b"which record?", name="answer", timeout=0.5)


def status(provider: Provider, *pipes: int, state: State = State.UP) -> Status:
    return Status(provider, state, Reason.ANSWERED, 0.0, 0, None, None, False, pipes, 1)


# ---- values and messages ---------------------------------------------------------------------------------------------


def test_messages_survive_encoding() -> None:
    for ask in (QUESTION, AskQuery("q2"), AskQuery("q3", kind="stats", name="a b", timeout=60.0)):
        question = SurveyQuestion.of(ask, "d1", "staging")
        assert parse_survey_question(question.encode()) == question
        assert parse_ask_query(ask.encode()) == ask
    counted = AskQuery("q4", b"x", count=3)
    assert parse_ask_query(counted.encode(7)) == replace(counted, after=7)
    for answer in (
        SurveyAnswer(record().key),
        SurveyAnswer(record().key, b"body", -2.5),
        SurveyAnswer(record().key, declined=True),
        SurveyAnswer(record().key, failed="ValueError: x"),
    ):
        assert parse_survey_answer(answer.encode()) == answer


def test_other_messages_are_no_questions() -> None:
    other = cbor2.dumps({"v": 9, "type": "hello", "text": "question"})
    assert parse_survey_question(other) is None
    assert parse_ask_query(other) is None
    with pytest.raises(BadMessage):
        parse_survey_answer(other)


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "a/b"},
        {"id": 1},
        {"id": ""},
        {"name": "a|b"},
        {"timeout": -1},
        {"timeout": math.nan},
        {"timeout": 61},
        {"timeout": None},
        {"kind": "x" * 17},
        {"body": "text"},
        {"daemon": " "},
        {"domain": 5},
        {"v": 99},
    ],
)
def test_a_malformed_question_is_refused(wrong: dict[str, Any]) -> None:
    good = {"v": 1, "type": "question", "id": "q1", "timeout": 1.0, "daemon": "d1", "body": b""}
    assert parse_survey_question(cbor2.dumps(good)) is not None
    with pytest.raises(BadMessage):
        parse_survey_question(cbor2.dumps(good | wrong))


@pytest.mark.parametrize(
    "wrong",
    [
        {"provider": ["answer", "tcp://a:1", "id", -1]},
        {"provider": ["answer", "tcp://a:1", "id"]},
        {"provider": ["answer", "a", "id", 1]},
        {"provider": ["answer", "tcp://a:1", "", 0]},
        {"provider": None},
        {"body": 7},
        {"body": bytes(MAX_ANSWER + 1)},
        {"price": math.inf},
        {"price": math.nan},
        {"price": "1"},
        {"declined": 1},
        {"failed": "x" * 1000},
        {"type": "reply"},
    ],
)
def test_a_malformed_answer_is_refused(wrong: dict[str, Any]) -> None:
    good = {"v": 1, "type": "answer", "provider": ["answer", "tcp://a:1", "id", 1]}
    assert parse_survey_answer(cbor2.dumps(good)).body == b""
    with pytest.raises(BadMessage):
        parse_survey_answer(cbor2.dumps(good | wrong))


@given(st.binary(max_size=200))
def test_garbage_raises_only_bad_message(body: bytes) -> None:
    for parse in (parse_survey_question, parse_survey_answer, parse_ask_query):
        with suppress(BadMessage, TooLarge):
            parse(body)


def test_unusable_arguments_are_refused() -> None:
    for make in (
        lambda: deadline(0),
        lambda: deadline(61),
        lambda: deadline(math.nan),
        lambda: deadline(True),
        lambda: first(0),
        lambda: bids(1.5),  # type: ignore[arg-type]
        lambda: first(1, timeout=-1),
        lambda: make_ask("q", b"", "a|b", deadline(1)),
    ):
        with pytest.raises(ConfigError):
            make()
    with pytest.raises(TooLarge):
        make_ask("q", bytes(MAX_QUESTION + 1), None, deadline(1))
    with pytest.raises(TypeError, match="question must be bytes, PING, INFO or STATS, not str"):
        make_ask("q", "text", None, deadline(1))  # type: ignore[arg-type]
    for price in (math.nan, math.inf, "1", None):
        with pytest.raises(ValueError, match="price"):
            Bid(price)  # type: ignore[arg-type]
    largest = make_ask("q" * 64, bytes(MAX_QUESTION), "n" * 128, deadline(1.1))
    assert len(SurveyQuestion.of(largest, "d" * 64, "x" * 64).encode()) < 64 * 1024


# ---- which answers count ---------------------------------------------------------------------------------------------


def outcome(this: QuestionRound) -> AskResult:
    return make_result(this.end(), deadline(1), 0.0)


def test_every_expected_provider_has_one_outcome() -> None:
    one, two, three, four, text, down = (record(number=n) for n in range(1, 7))
    text = Provider("answer", text.address)
    this = QuestionRound(QUESTION, [1, 2, 3, 4, 5])
    rows = [*map(status, (one, two, three, four, text), (1, 2, 3, 4, 5)), status(down, state=State.DOWN)]
    this.see(rows)
    assert not this.complete()
    this.receive(1, SurveyAnswer(one.key, b"1").encode(), 0.1)
    this.receive(2, SurveyAnswer(two.key, declined=True).encode(), 0.1)
    this.receive(3, SurveyAnswer(three.key, failed="why").encode(), 0.1)
    assert not this.complete()
    this.see([status(four, state=State.DOWN), *rows[:3], *rows[4:]])  # its connection is lost
    assert this.complete()
    result = outcome(this)
    assert (result.answered, result.declined, result.missing) == ((one,), (two,), (four, text))
    assert [(each.provider, each.message) for each in result.failed] == [(three, "why")]
    assert result.expected == (one, two, three, four, text)
    assert this.counters == {"answers": 3, "foreign answers": 0}


def test_a_peer_answers_for_its_own_providers_and_once() -> None:
    one, two = record(number=1), record(number=2)
    this = QuestionRound(QUESTION, [1, 2])
    this.see([status(one, 1), status(two, 2)])
    liar = SurveyAnswer(two.key, b"lie").encode()
    this.receive(1, liar, 0.1)
    this.receive(1, SurveyAnswer(record("other", 1).key, b"other name").encode(), 0.1)
    this.receive(1, b"garbage", 0.1)
    for body in (b"first", b"second"):
        this.receive(1, SurveyAnswer(one.key, body).encode(), 0.1)
    this.receive(1, SurveyAnswer(record(number=3).key, b"phantom").encode(), 0.1)
    result = outcome(this)
    assert [(each.provider, each.body) for each in result.answers] == [(one, b"first")]
    assert result.missing == (two,)
    assert this.counters == {"answers": 1, "duplicate answers": 1, "foreign answers": 2, "bad answers": 2}


def test_an_answer_of_an_unknown_provider_counts_once_a_survey_has_told_of_it() -> None:
    one = record(number=1)
    this = QuestionRound(QUESTION, [1])
    this.see([], joining=[1, 9])
    assert not this.complete()
    assert this.complete(joining=False)
    this.receive(1, SurveyAnswer(one.key, b"1").encode(), 0.1)
    this.receive(1, SurveyAnswer(one.key, b"1").encode(), 0.1)
    assert not this.complete()
    this.see([status(one, 1)])
    assert this.complete()
    assert outcome(this).answered == (one,)
    assert this.counters["duplicate answers"] == 1


def test_draining_providers_are_expected_for_reserved_questions_alone() -> None:
    rows = [status(record(), 1, state=State.DRAINING)]
    for kind, expected in (("ask", 0), ("stats", 1)):
        this = QuestionRound(AskQuery("q1", kind=kind), [1])
        this.see(rows)
        assert len(outcome(this).expected) == expected


def test_answers_over_the_limit_together_are_failures() -> None:
    one, two = record(number=1), record(number=2)
    this = QuestionRound(QUESTION, [1, 2], limit=10)
    this.see([status(one, 1), status(two, 2)])
    this.receive(1, SurveyAnswer(one.key, bytes(8)).encode(), 0.1)
    this.receive(2, SurveyAnswer(two.key, bytes(8)).encode(), 0.1)
    result = outcome(this)
    assert result.answered == (one,)
    assert "over 10 bytes" in result.failed[0].message


def test_the_result_has_the_first_answers_or_the_lowest_prices() -> None:
    prices = [3.0, None, 1.0, 2.0, 1.0]
    outcomes = [Outcome(record(number=n), "answered", str(n).encode(), price, 0.1) for n, price in enumerate(prices, 1)]

    def bodies(until: Until) -> list[bytes]:
        return [answer.body for answer in make_result(outcomes, until, 1.0).answers]

    assert bodies(deadline(1)) == [b"1", b"2", b"3", b"4", b"5"]
    assert bodies(first(2)) == [b"1", b"2"]
    assert bodies(bids(2)) == [b"3", b"5"]  # of equals the first
    assert bodies(bids(9)) == [b"3", b"5", b"4", b"1", b"2"]
    best = make_result(outcomes, bids(), 1.0).best
    assert best is not None
    assert best.bid == 1.0
    assert make_result([], bids(), 1.0).best is None


def test_outcomes_of_several_daemons_are_merged() -> None:
    one, two, three = (record(number=n) for n in (1, 2, 3))
    merged = OutcomeMerger(2)
    merged.add([Outcome(one, "missing"), Outcome(two, "answered", b"2"), Outcome(three, "declined")])
    assert not merged.enough
    merged.add([Outcome(one, "answered", b"1"), Outcome(two, "missing"), Outcome(three, "failed", message="x")])
    assert merged.enough
    assert {each.provider: each.kind for each in merged.outcomes()} == {
        one: "answered",
        two: "answered",
        three: "failed",
    }
