"""Questions: values and messages, which answers count, and asking services over real sockets."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import cbor2
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from nngkit import ConfigError, Service, ServiceDiscovery
from nngkit.discovery import (
    INFO,
    PING,
    STATS,
    AskResult,
    Bid,
    Provider,
    Question,
    Reason,
    State,
    Status,
    Until,
    bids,
    deadline,
    first,
)
from nngkit.discovery.question_messages import (
    AskQuery,
    SurveyAnswer,
    SurveyQuestion,
    make_ask,
    parse_ask_query,
    parse_survey_answer,
    parse_survey_question,
)
from nngkit.discovery.question_round import OutcomeMerger, QuestionRound
from nngkit.discovery.questions import MAX_ANSWER, MAX_QUESTION, Outcome, make_result
from nngkit.errors import BadMessage, Closed, NngkitError, TooLarge
from nngkit.testing import aeventually
from tests.discovery.peers import WAIT, RawPeer, record, says, states

ANY = "tcp://127.0.0.1:0"
LONG = deadline(WAIT)
QUESTION = AskQuery("q1", b"which record?", name="answer", timeout=0.5)


def status(provider: Provider, *pipes: int, state: State = State.UP) -> Status:
    return Status(provider, state, Reason.ANSWERED, 0.0, 0, None, None, False, pipes, 1)


def keys(providers: tuple[Provider, ...]) -> list[str]:
    return [provider.address.removeprefix("tcp://") for provider in providers]


# ---- values and messages ---------------------------------------------------------------------------------------------


def test_messages_survive_encoding() -> None:
    for ask in (QUESTION, AskQuery("q2"), AskQuery("q3", kind="stats", name="a b", timeout=60.0)):
        question = SurveyQuestion(ask, "d1", "staging")
        assert parse_survey_question(question.encode()) == question
        assert parse_ask_query(ask.encode()) == (ask, 0)
    counted = AskQuery("q4", b"x", count=3)
    assert parse_ask_query(counted.encode(7)) == (counted, 7)
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
    assert len(SurveyQuestion(largest, "d" * 64, "x" * 64).encode()) < 64 * 1024


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


# ---- over sockets ----------------------------------------------------------------------------------------------------


def echo(question: Question) -> bytes:
    return b"plain " + question.body


async def aecho(question: Question) -> bytes:
    return b"async " + question.body


@asynccontextmanager
async def asking(*answering: Any, **options: Any) -> AsyncIterator[ServiceDiscovery]:
    """Run a discovery with a service `answer` for each `on_question`; wait until they are up."""
    async with ServiceDiscovery(listen=ANY, deadline=WAIT, interval=0.05) as discovery, AsyncExitStack() as stack:
        for number, on_question in enumerate(answering, 1):
            address = record(number=number).address
            service = Service("answer", address, discovery=discovery.address, on_question=on_question, **options)
            await stack.enter_async_context(service)
        await aeventually(lambda: len(discovery.snapshot().get("answer", ())) == len(answering))
        yield discovery


async def test_all_providers_answer_and_the_ask_ends_with_the_last_one() -> None:
    async with asking(echo, aecho, lambda question: None, None) as discovery:
        result = await discovery.ask(b"x", "answer", until=LONG)
        assert {answer.body for answer in result.answers} == {b"plain x", b"async x"}
        assert keys(result.expected) == [f"10.0.0.{n}:9000" for n in (1, 2, 3, 4)]
        assert sorted(keys(result.declined)) == ["10.0.0.3:9000", "10.0.0.4:9000"]
        assert (result.missing, result.failed) == ((), ())
        assert result.elapsed < WAIT / 2
        assert all(0 < answer.rtt < WAIT / 2 for answer in result.answers)
        assert discovery.stats.counters["questions"] == 1
        assert discovery.stats.counters["answers"] == 4


async def test_a_name_restricts_the_question_and_without_one_all_are_asked() -> None:
    async with (
        asking(echo) as discovery,
        Service("other", "tcp://10.0.0.9:1", discovery=discovery.address, on_question=aecho) as other,
    ):
        await aeventually(lambda: "other" in discovery.snapshot())
        assert len((await discovery.ask(b"x", until=LONG)).answers) == 2
        (answer,) = (await discovery.ask(b"x", "other", until=LONG)).answers
        assert answer.provider == other.provider
        assert (await discovery.ask(b"x", "unknown", until=LONG)).expected == ()


async def test_the_first_answers_end_the_ask() -> None:
    async def never(question: Question) -> bytes:
        await trio.sleep_forever()
        return b""

    async with asking(never, echo, never) as discovery:
        result = await discovery.ask(b"x", "answer", until=first(1, timeout=WAIT))
        assert [answer.body for answer in result.answers] == [b"plain x"]
        assert len(result.missing) == 2
        assert result.elapsed < WAIT / 2


async def test_the_lowest_bid_comes_first() -> None:
    async with asking(lambda q: Bid(3, b"three"), lambda q: Bid(1.5, b"one"), lambda q: None, aecho) as discovery:
        result = await discovery.ask(b"1 kg to Oslo", "answer", until=bids(2, timeout=WAIT))
        assert [(answer.bid, answer.body) for answer in result.answers] == [(1.5, b"one"), (3.0, b"three")]
        assert len(result.answered) == 3
        assert result.best == result.answers[0]


async def test_the_question_has_its_fields_and_plain_functions_run_in_threads() -> None:
    seen: list[tuple[Question, int]] = []

    def on_question(question: Question) -> bytes:
        seen.append((question, threading.get_ident()))
        return b""

    async with asking(on_question) as discovery:
        await discovery.ask(b"x", "answer", until=LONG)
        await discovery.ask(memoryview(b"y"), until=deadline(2))  # type: ignore[arg-type]  # any buffer
        (one, thread), (two, _) = seen
        assert thread != threading.get_ident()
        assert (one.body, one.name, one.timeout, one.daemon) == (b"x", "answer", WAIT, discovery.id)
        assert (two.body, two.name, two.timeout) == (b"y", None, 2.0)
        assert one.id != two.id


async def test_reserved_questions_are_answered_by_all_services() -> None:
    async with asking(None, info={"methods": ["add"]}, stats=lambda: {"calls": 7}) as discovery:
        (ping,) = (await discovery.ask(PING, "answer", until=LONG)).answers
        assert (ping.body, ping.provider.name) == (b"", "answer")
        (info,) = (await discovery.ask(INFO, until=LONG)).answers
        assert info.fields["name"] == "answer"
        assert info.fields["addr"] == ping.provider.address
        assert info.fields["info"] == {"methods": ["add"]}
        (stats,) = (await discovery.ask(STATS, until=LONG)).answers
        assert stats.fields["stats"] == {"calls": 7}
        assert stats.fields["discovery"]["questions"] == 3
        with pytest.raises(BadMessage):
            _ = ping.fields


async def test_a_draining_service_declines_and_answers_reserved_questions() -> None:
    async with (
        asking(echo) as discovery,
        Service("answer", "tcp://10.0.0.9:1", discovery=discovery.address, on_question=echo) as leaving,
    ):
        leaving.drain()
        await aeventually(lambda: states(discovery).get("tcp://10.0.0.9:1") is State.DRAINING)
        result = await discovery.ask(b"x", until=first(2, timeout=0.2))
        assert keys(result.answered) == ["10.0.0.1:9000"]
        assert leaving.provider not in result.missing
        assert len((await discovery.ask(PING, until=LONG)).answers) == 2


async def test_failures_are_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def raises(question: Question) -> bytes:
        raise KeyError("no such record\nsecond line")

    async with asking(raises, lambda q: "text", lambda q: bytes(MAX_ANSWER + 1), lambda q: Bid("x")) as discovery:  # type: ignore[arg-type]
        result = await discovery.ask(b"x", until=LONG)
        again = await discovery.ask(b"x", until=LONG)
        messages = {failure.provider.address[-6]: failure.message for failure in result.failed}
        assert messages["1"] == "KeyError: 'no such record\\nsecond line'"
        assert messages["2"] == "TypeError: on_question returned str, not bytes, None or a Bid"
        assert messages["3"].startswith("TooLarge: message of 61441 bytes")
        assert messages["4"].startswith("ValueError: price is not a finite number")
        assert len(again.failed) == 4
    failed = [each for each in caplog.records if "on_question of answer failed" in each.message]
    assert len(failed) == 8
    assert sum(bool(each.exc_info) for each in failed) == 4  # of each service once


async def test_info_that_fails_is_a_failure_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL):
        async with asking(None, info=lambda: {"when": object()}) as discovery:
            (failure,) = (await discovery.ask(INFO, until=LONG)).failed
            assert failure.message == "TypeError: type object is not supported"
            assert len((await discovery.ask(PING, until=LONG)).answers) == 1


async def test_answers_that_come_too_late_are_missing_and_cancelled() -> None:
    ended = trio.Event()

    async def slow(question: Question) -> bytes:
        try:
            await trio.sleep(question.timeout + WAIT)
        finally:
            ended.set()
        return b"late"

    async with asking(slow) as discovery:
        result = await discovery.ask(b"x", until=deadline(0.05))
        assert len(result.missing) == 1
        assert 0.05 <= result.elapsed < WAIT / 2
        with trio.fail_after(WAIT):
            await ended.wait()


async def test_a_plain_function_that_never_returns_holds_up_nothing_else() -> None:
    release = threading.Event()

    def stuck(question: Question) -> bytes:
        release.wait(WAIT)
        return b""

    try:
        async with asking(stuck, echo) as discovery:
            assert len((await discovery.ask(b"x", until=deadline(0.1))).answered) == 1
            assert len((await discovery.ask(PING, until=LONG)).answers) == 2
    finally:
        release.set()


async def test_several_asks_may_be_in_progress() -> None:
    async with asking(aecho, echo) as discovery, trio.open_nursery() as nursery:
        found: dict[int, set[bytes]] = {}

        async def one(number: int) -> None:
            result = await discovery.ask(b"%d" % number, until=LONG)
            found[number] = {answer.body for answer in result.answers}

        for number in range(20):
            nursery.start_soon(one, number)
        await aeventually(lambda: len(found) == 20)
        assert all(found[n] == {b"async %d" % n, b"plain %d" % n} for n in found)


async def test_services_that_were_not_surveyed_yet_are_surveyed_with_the_question() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=WAIT) as discovery,
        Service("answer", "tcp://10.0.0.1:1", discovery=discovery.address, on_question=echo),
    ):
        assert (await discovery.ask(b"x", until=LONG)).expected == ()  # without services, at once
        await discovery.wait_for_peers(timeout=WAIT)
        assert len((await discovery.ask(b"x", "answer", until=LONG)).answers) == 1


async def test_services_without_questions_are_missing() -> None:
    async with (
        asking(echo) as discovery,
        await RawPeer.connect(discovery.address) as older,
        await RawPeer.connect(discovery.address) as article,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(answer_surveys, older, says(record(number=7)))
        nursery.start_soon(answer_surveys, article, b"answer|tcp://10.0.0.8:9000")
        await aeventually(lambda: len(discovery.snapshot().get("answer", ())) == 3)
        result = await discovery.ask(b"x", "answer", until=deadline(0.1))
        assert keys(result.missing) == ["10.0.0.7:9000", "10.0.0.8:9000"]
        assert len(result.answers) == 1
        nursery.cancel_scope.cancel()


async def answer_surveys(peer: RawPeer, body: bytes) -> None:
    while True:
        header, message = await peer.recv()
        if b"equery" in message:
            await peer.send(header, body)


async def test_a_connection_that_is_lost_is_no_longer_waited_for() -> None:
    asked = trio.Event()

    async def never(question: Question) -> bytes:
        asked.set()
        await trio.sleep_forever()
        return b""

    async with ServiceDiscovery(listen=ANY, deadline=WAIT, interval=0.05) as discovery, trio.open_nursery() as nursery:
        results: list[AskResult] = []

        async def ask() -> None:
            results.append(await discovery.ask(b"x", until=LONG))

        async with Service("answer", "tcp://10.0.0.1:1", discovery=discovery.address, on_question=never):
            await aeventually(discovery.snapshot)
            nursery.start_soon(ask)
            with trio.fail_after(WAIT):
                await asked.wait()
        await aeventually(lambda: results)
        assert len(results[0].missing) == 1
        assert results[0].elapsed < WAIT / 2


async def test_hostile_answers_affect_no_other_provider() -> None:
    async with (
        asking(echo) as discovery,
        await RawPeer.connect(discovery.address) as peer,
        trio.open_nursery() as nursery,
    ):
        mine, theirs = record(number=7), next(iter(discovery.snapshot()["answer"]))

        async def lie() -> None:
            while True:
                header, message = await peer.recv()
                if b"equery" in message:
                    await peer.send(header, says(mine))
                elif b"hquestion" in message:
                    for _ in range(2):
                        await peer.send(header, SurveyAnswer(theirs.key, b"lie").encode())
                    await peer.send(header, SurveyAnswer(record(number=99).key, b"phantom").encode())
                    await peer.send(header, b"\xa1garbage")
                    await peer.send(header, SurveyAnswer(mine.key, b"mine").encode())
                    await peer.send(header, SurveyAnswer(mine.key, b"again").encode())

        nursery.start_soon(lie)
        await aeventually(lambda: len(discovery.snapshot()["answer"]) == 2)
        result = await discovery.ask(b"x", "answer", until=LONG)
        assert {answer.provider: answer.body for answer in result.answers} == {theirs: b"plain x", mine: b"mine"}
        result = await discovery.ask(b"x", "answer", until=LONG)
        assert len(result.answers) == 2
        counters = discovery.stats.counters
        assert counters["foreign answers"] >= 3
        assert counters["bad answers"] >= 1
        nursery.cancel_scope.cancel()


async def test_an_answer_of_10_mb_costs_its_connection_alone() -> None:
    async with (
        asking(echo) as discovery,
        await RawPeer.connect(discovery.address) as peer,
        trio.open_nursery() as nursery,
    ):

        async def flood() -> None:
            while True:
                header, message = await peer.recv()
                if b"equery" in message:
                    await peer.send(header, says(record(number=7)))
                elif b"hquestion" in message:
                    await peer.send_bytes((10_000_000).to_bytes(8, "big") + header)
                    await trio.sleep_forever()

        nursery.start_soon(flood)
        await aeventually(lambda: len(discovery.snapshot()["answer"]) == 2)
        result = await discovery.ask(b"x", "answer", until=LONG)
        assert keys(result.missing) == ["10.0.0.7:9000"]
        assert len(result.answers) == 1
        assert result.elapsed < WAIT / 2
        nursery.cancel_scope.cancel()


async def test_questions_of_another_domain_are_not_answered() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=WAIT, interval=0.05) as discovery,
        Service("answer", "tcp://10.0.0.1:1", discovery=discovery.address, domain="a", on_question=echo) as other,
    ):
        await aeventually(lambda: other.stats.other_domain)
        result = await discovery.ask(b"x", until=deadline(0.1))
        assert result.expected == ()
        await aeventually(lambda: other.stats.questions == 1)


async def test_closing_and_cancelling_end_an_ask() -> None:
    async def never(question: Question) -> bytes:
        await trio.sleep_forever()
        return b""

    async with asking(never) as discovery:
        with trio.move_on_after(0.05) as scope:
            await discovery.ask(b"x", until=LONG)
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(Closed):
                    await discovery.ask(b"x", until=LONG)

            nursery.start_soon(ask)
            await aeventually(lambda: discovery.stats.counters["questions"] == 2)
            started = time.monotonic()
            await discovery.aclose()
        assert time.monotonic() - started < WAIT / 2
    with pytest.raises(NngkitError):
        await discovery.ask(b"x")
