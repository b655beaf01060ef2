"""Questions to services over real sockets: answers, failures, hostile peers, and the answering side."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import cbor2
import pytest
import trio

from nngkit import Service, ServiceDiscovery
from nngkit.discovery import (
    INFO,
    PING,
    STATS,
    AskResult,
    Bid,
    Provider,
    Question,
    State,
    bids,
    deadline,
    first,
)
from nngkit.discovery.questions.answering import REMEMBERED, RUNNING
from nngkit.discovery.questions.messages import (
    AskQuery,
    SurveyAnswer,
    SurveyQuestion,
    parse_survey_answer,
)
from nngkit.discovery.questions.values import MAX_ANSWER
from nngkit.errors import BadMessage, Closed, NngkitError, TooLarge
from nngkit.protocols import Surveyor
from nngkit.testing import aeventually
from tests.discovery.peers import WAIT, RawPeer, record, says, states

ANY = "tcp://127.0.0.1:0"
LONG = deadline(WAIT)


def keys(providers: tuple[Provider, ...]) -> list[str]:
    return [provider.address.removeprefix("tcp://") for provider in providers]


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


async def test_a_function_that_returns_an_awaitable_is_an_async_one() -> None:
    class Echo:
        async def __call__(self, question: Question) -> bytes:
            return b"object " + question.body

    async with asking(Echo(), lambda question: aecho(question) if question.body else None) as discovery:
        result = await discovery.ask(b"x", "answer", until=LONG)
        assert {answer.body for answer in result.answers} == {b"object x", b"async x"}


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


async def test_headers_of_a_question_reach_the_services_and_count_as_its_bytes() -> None:
    headers: dict[str, str | bytes] = {
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "k": b"\0",
    }
    seen: list[Question] = []

    async def on_question(question: Question) -> bytes:
        seen.append(question)
        return b""

    async with asking(on_question) as discovery:
        await discovery.ask(b"x", "answer", until=LONG, headers=headers)
        await discovery.ask(b"y", "answer", until=LONG)
        assert [each.headers for each in seen] == [headers, {}]
        with pytest.raises(TooLarge):
            await discovery.ask(bytes(61_440), until=LONG, headers=headers)


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
    async with ServiceDiscovery(listen=ANY, deadline=WAIT) as discovery:
        assert (await discovery.ask(b"x", until=LONG)).expected == ()  # without services, at once
        async with Service("answer", "tcp://10.0.0.1:1", discovery=discovery.address, on_question=echo):
            await discovery.wait_for_peers(timeout=WAIT)
            assert len((await discovery.ask(b"x", "answer", until=LONG)).answers) == 1


async def test_a_question_with_a_name_is_not_sent_to_other_services() -> None:
    got: list[bytes] = []

    async def listen(peer: RawPeer) -> None:
        while True:
            header, message = await peer.recv()
            got.append(message)
            if b"equery" in message:
                await peer.send(header, says(record("other")))

    async with (
        asking(echo) as discovery,
        await RawPeer.connect(discovery.address) as peer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(listen, peer)
        await aeventually(lambda: "other" in discovery.snapshot())
        assert len((await discovery.ask(b"by name", "answer", until=LONG)).answers) == 1
        await discovery.ask(b"to all", until=deadline(0.01))
        await aeventually(lambda: any(b"to all" in each for each in got))
        assert not any(b"by name" in each for each in got)
        nursery.cancel_scope.cancel()


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


# ---- the answering side ----------------------------------------------------------------------------------------------


async def test_malformed_questions_are_counted_and_not_answered() -> None:
    async with (
        Surveyor(listen=ANY) as daemon,
        Service("answer", "tcp://10.0.0.1:1", discovery=daemon.address, on_question=echo) as service,
    ):
        await daemon.await_for_peers(timeout=WAIT)
        good = {"v": 1, "type": "question", "id": "q1", "timeout": 1.0, "daemon": "d1", "body": b"x"}
        wrong: tuple[dict[str, Any], ...] = ({"id": 5}, {"v": 99}, {"body": "text"}, {"timeout": 1e9})
        for fields in wrong:
            await daemon.asurvey(cbor2.dumps(good | fields), timeout=0.0)
        await daemon.asurvey(b"\xa1\x68question", timeout=0.0)
        await aeventually(lambda: service.stats.bad == len(wrong) + 1)
        (reply,) = (await daemon.asurvey(cbor2.dumps(good | {"new": "field"}), WAIT, early=True)).replies
        assert parse_survey_answer(reply.body).body == b"plain x"
        (reply,) = (await daemon.asurvey(cbor2.dumps(good | {"kind": "later"}), WAIT, early=True)).replies
        assert parse_survey_answer(reply.body).declined  # a reserved question of a later version


async def test_questions_over_the_cap_are_refused_as_busy() -> None:
    async def never(question: Question) -> bytes:
        await trio.sleep_forever()
        return b""

    async with (
        Surveyor(listen=ANY) as daemon,
        Service("answer", "tcp://10.0.0.1:1", discovery=daemon.address, on_question=never) as service,
    ):
        await daemon.await_for_peers(timeout=WAIT)
        for number in range(RUNNING):
            await daemon.asurvey(SurveyQuestion.of(AskQuery(f"q{number}", timeout=WAIT), "d1").encode(), timeout=0.0)
        await aeventually(lambda: service.stats.questions == RUNNING)
        (reply,) = (await daemon.asurvey(SurveyQuestion.of(AskQuery("more"), "d1").encode(), WAIT, early=True)).replies
        assert parse_survey_answer(reply.body).failed == f"busy: {RUNNING} questions are being answered"
        (reply,) = (
            await daemon.asurvey(SurveyQuestion.of(AskQuery("p", kind="ping"), "d1").encode(), WAIT, early=True)
        ).replies
        assert parse_survey_answer(reply.body).provider == service.provider.key


async def test_one_id_is_answered_once() -> None:
    calls: list[bytes] = []

    def counting(question: Question) -> bytes:
        calls.append(question.body)
        return b"%d" % len(calls)

    async with (
        Surveyor(listen=ANY) as one,
        Surveyor(listen=ANY) as two,
        Service("answer", "tcp://10.0.0.1:1", discovery=[one.address, two.address], on_question=counting),
    ):
        bodies = []
        for daemon in (one, two):
            await daemon.await_for_peers(timeout=WAIT)
            question = SurveyQuestion.of(AskQuery("q1", b"x"), "d1").encode()
            (reply,) = (await daemon.asurvey(question, WAIT, early=True)).replies
            bodies.append(parse_survey_answer(reply.body).body)
        assert bodies == [b"1", b"1"]
        other = SurveyQuestion.of(AskQuery("q1", b"y"), "d1").encode()  # the id alone does not make it the same
        (reply,) = (await two.asurvey(other, WAIT, early=True)).replies
        assert parse_survey_answer(reply.body).body == b"2"


async def test_an_id_in_progress_is_not_forgotten_for_later_ones() -> None:
    calls: list[bytes] = []
    release = trio.Event()

    async def counting(question: Question) -> bytes:
        calls.append(question.body)
        if question.body == b"slow":
            await release.wait()
        return question.body

    def survey(id: str, body: bytes) -> bytes:
        return SurveyQuestion.of(AskQuery(id, body, timeout=WAIT), "d1").encode()

    async with (
        Surveyor(listen=ANY) as one,
        Surveyor(listen=ANY) as two,
        Service("answer", "tcp://10.0.0.1:1", discovery=[one.address, two.address], on_question=counting) as service,
        trio.open_nursery() as nursery,
    ):
        for daemon in (one, two):
            await daemon.await_for_peers(timeout=WAIT)
        nursery.start_soon(partial(one.asurvey, survey("q", b"slow"), WAIT, early=True))
        await aeventually(lambda: calls == [b"slow"])
        for number in range(REMEMBERED):
            await one.asurvey(survey(f"n{number}", b"quick"), WAIT, early=True)
        nursery.start_soon(partial(two.asurvey, survey("q", b"slow"), WAIT, early=True))
        await aeventually(lambda: service.stats.questions == REMEMBERED + 2)
        release.set()
        await aeventually(lambda: service.stats.answers == REMEMBERED + 2)
        assert calls.count(b"slow") == 1
