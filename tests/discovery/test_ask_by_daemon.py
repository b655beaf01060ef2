"""Questions that a daemon asks for its callers: pages, limits, resent requests; and those that several daemons ask."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio

from nngkit import Resolver, Service, blocking
from nngkit.discovery import (
    PING,
    Bid,
    Daemon,
    DaemonClient,
    DaemonSettings,
    Question,
    bids,
    deadline,
    first,
)
from nngkit.discovery._ask_desk import OF_ONE
from nngkit.discovery.queries import RefusedReply, parse_daemon_reply
from nngkit.discovery.questions.messages import PAGE_SIZE, AskQuery, pages, parse_ask_reply
from nngkit.discovery.questions.values import MAX_ANSWER, Outcome
from nngkit.errors import BadMessage, Broken, TimedOut, TooLarge, Unreachable
from nngkit.protocols import Rep, Req
from nngkit.testing import aeventually
from tests.discovery.peers import WAIT, found, record

ANY = "tcp://127.0.0.1:0"
SETTINGS = DaemonSettings(listen=(ANY,), deadline=1.0, interval=0.05)
LONG = deadline(WAIT)


def echo(question: Question) -> bytes:
    return b"echo " + question.body


async def never(question: Question) -> bytes:
    await trio.sleep_forever()
    return b""


@asynccontextmanager
async def asked(*answering: object, daemons: int = 1) -> AsyncIterator[list[Daemon]]:
    """Run daemons, and a service `answer` for each `on_question`; wait until all daemons know them."""
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(Daemon(SETTINGS)) for _ in range(daemons)]
        there = [daemon.addresses[0] for daemon in running]
        for number, on_question in enumerate(answering, 1):
            service = Service("answer", record(number=number).address, discovery=there, on_question=on_question)  # type: ignore[arg-type]
            await stack.enter_async_context(service)
        for daemon in running:
            await aeventually(lambda: len(daemon.discovery.snapshot().get("answer", ())) == len(answering))  # noqa: B023
        yield running


# ---- pages -----------------------------------------------------------------------------------------------------------


def test_outcomes_are_paged_by_count_and_by_size() -> None:
    for body, count, most in ((b"", 600, 256), (bytes(MAX_ANSWER), 30, PAGE_SIZE // MAX_ANSWER)):
        outcomes = [Outcome(record(number=n), "answered", body, 1.5, 0.1) for n in range(count)]
        outcomes.append(Outcome(record(number=count), "failed", message="why"))
        again: list[Outcome] = []
        for after, page in pages("d1", outcomes):
            assert after == len(again)
            assert 1 <= len(page.outcomes) <= most + 1
            reply = parse_ask_reply(page.encode())
            assert reply == page
            again.extend(page.outcomes)
        assert again == outcomes
    ((after, page),) = pages("d1", [])
    assert (after, page.outcomes, page.after) == (0, (), None)


# ---- one daemon ------------------------------------------------------------------------------------------------------


async def test_a_caller_gets_the_answers_of_all_services() -> None:
    async with (
        asked(echo, lambda q: Bid(2, b"two"), lambda q: Bid(1, b"one"), None) as (daemon,),
        DaemonClient(daemon.query_addresses[0], timeout=WAIT) as client,
    ):
        result = await client.ask(b"x", "answer", until=LONG)
        assert {answer.body for answer in result.answers} == {b"echo x", b"two", b"one"}
        assert [each.address for each in result.declined] == [record(number=4).address]
        assert result.elapsed < WAIT / 2
        best = (await client.ask(b"x", until=bids(timeout=WAIT))).best
        assert best is not None
        assert (best.bid, best.body) == (1.0, b"one")
        assert best.provider == next(
            row.provider for row in await client.snapshot() if row.provider.address == best.provider.address
        )
        assert len((await client.ask(PING, until=LONG)).answers) == 4


async def test_large_results_come_in_pages() -> None:
    async with (
        asked(*[lambda q: bytes(MAX_ANSWER)] * 13) as (daemon,),
        DaemonClient(daemon.query_addresses[0], timeout=WAIT) as client,
    ):
        before = daemon.stats.requests
        result = await client.ask(b"x", until=LONG)
        assert [len(answer.body) for answer in result.answers] == [MAX_ANSWER] * 13
        assert daemon.stats.requests == before + 2


async def test_a_request_that_is_sent_again_is_one_question() -> None:
    calls: list[bytes] = []

    def counting(question: Question) -> bytes:
        calls.append(question.body)
        return b""

    query = AskQuery("q1", b"x", timeout=WAIT).encode()
    async with asked(counting) as (daemon,):
        replies = set()
        for _ in range(2):  # on two connections
            async with Req(dial=daemon.query_addresses[0]) as req:
                replies.add(await req.arequest(query, timeout=WAIT))
        assert len(replies) == 1
        assert calls == [b"x"]
        async with Req(dial=daemon.query_addresses[0]) as req:
            for wrong, kind in ((AskQuery("q1").encode(5), "bad message"), (AskQuery("q9").encode(5), "unavailable")):
                refused = parse_daemon_reply(await req.arequest(wrong, timeout=WAIT), 0.0)
                assert isinstance(refused, RefusedReply)
                assert refused.kind == kind


async def test_questions_over_the_cap_of_a_connection_are_refused() -> None:
    async with (
        asked(never) as (daemon,),
        DaemonClient(daemon.query_addresses[0], timeout=WAIT) as client,
        trio.open_nursery() as nursery,
    ):
        for _ in range(OF_ONE):
            nursery.start_soon(lambda: client.ask(b"x", until=LONG))
        await aeventually(lambda: daemon.discovery.stats.counters["questions"] == OF_ONE)
        with pytest.raises(Broken, match="too many questions in progress"):
            await client.ask(b"x", until=LONG)
        async with DaemonClient(daemon.query_addresses[0], timeout=WAIT) as other:
            assert (await other.ask(PING, until=LONG)).answers
        nursery.cancel_scope.cancel()


async def test_a_daemon_that_knows_no_questions_is_named() -> None:
    async def old_daemon(rep: Rep) -> None:
        async for request in rep:
            await request.areply(RefusedReply("old", "bad message", "bad query: type is 'ask-question'").encode())

    async with Rep(listen=ANY) as rep, trio.open_nursery() as nursery:
        nursery.start_soon(old_daemon, rep)
        async with DaemonClient(rep.address, timeout=WAIT) as client:
            with pytest.raises(Broken, match=f"{rep.address} is too old to ask questions"):
                await client.ask(b"x")
        nursery.cancel_scope.cancel()


async def test_a_daemon_whose_pages_do_not_end_is_refused() -> None:
    (_, page), *_ = pages("d1", [Outcome(record(), "missing")] * 300)

    async def liar(rep: Rep) -> None:
        async for request in rep:
            await request.areply(page.encode())

    async with Rep(listen=ANY) as rep, trio.open_nursery() as nursery:
        nursery.start_soon(liar, rep)
        async with DaemonClient(rep.address, timeout=WAIT) as client:
            with pytest.raises(BadMessage, match="its pages do not end"):
                await client.ask(b"x")
        nursery.cancel_scope.cancel()


async def test_a_question_that_is_too_large_is_not_sent() -> None:
    async with DaemonClient("tcp://127.0.0.1:1", timeout=WAIT) as client:
        with pytest.raises(TooLarge):
            await client.ask(bytes(70_000))


# ---- several daemons -------------------------------------------------------------------------------------------------


async def test_a_service_that_two_daemons_ask_is_asked_once() -> None:
    calls: list[str] = []

    async def counting(question: Question) -> Bid:
        calls.append(question.id)
        await trio.sleep(0.02)  # so that the second daemon's question finds the first one in progress
        return Bid(len(calls), question.body)

    async with (
        asked(counting, daemons=2) as (one, two),
        Resolver([*one.query_addresses, *two.query_addresses], timeout=WAIT) as resolver,
    ):
        await aeventually(lambda: all(map(resolver.answers, resolver.daemons)))
        result = await resolver.ask(b"x", "answer", until=LONG)
        assert [(answer.bid, answer.body) for answer in result.answers] == [(1.0, b"x")]
        assert result.missing == ()
        assert len(calls) == 1
        assert [daemon.discovery.stats.counters["answers"] for daemon in (one, two)] == [1, 1]


async def test_services_of_one_daemon_alone_are_asked_too() -> None:
    async with (
        asked(echo, daemons=2) as (one, two),
        Service("answer", "tcp://10.0.0.9:1", discovery=two.addresses, on_question=echo),
        Resolver([*one.query_addresses, *two.query_addresses], timeout=WAIT) as resolver,
    ):
        await aeventually(lambda: len(two.discovery.snapshot()["answer"]) == 2)
        await aeventually(lambda: all(map(resolver.answers, resolver.daemons)))
        assert len((await resolver.ask(b"x", "answer", until=LONG)).answers) == 2
        assert len((await resolver.ask(b"x", "answer", until=first(1, timeout=WAIT))).answers) == 1


async def test_a_daemon_that_does_not_reply_delays_the_others_little() -> None:
    async with asked(echo) as (daemon,), Rep(listen=ANY) as mute:
        async with Resolver([*daemon.query_addresses, mute.address], timeout=0.2) as resolver:
            await aeventually(found(daemon.discovery))
            started = time.monotonic()
            assert (await resolver.ask(b"x", until=deadline(0.2))).answers
            assert time.monotonic() - started < 2
        async with Resolver([mute.address], timeout=0.05) as resolver:
            with pytest.raises(TimedOut):
                await resolver.ask(b"x", until=deadline(0.05))


async def test_the_error_of_a_daemon_is_raised_if_none_replies() -> None:
    async with Resolver("tcp://127.0.0.1:1", timeout=0.05) as resolver:
        with pytest.raises(Unreachable):
            await resolver.ask(b"x", until=deadline(0.05))


# ---- without an event loop -------------------------------------------------------------------------------------------


def test_blocking_programs_ask() -> None:
    settings = DaemonSettings(listen=(ANY,), deadline=WAIT, interval=0.05)
    with (
        blocking.Daemon(settings) as daemon,
        blocking.Service("answer", "tcp://10.0.0.1:1", discovery=daemon.addresses, on_question=echo),
        blocking.Resolver(daemon.query_addresses, timeout=WAIT) as resolver,
        blocking.DaemonClient(daemon.query_addresses[0], timeout=WAIT) as client,
    ):
        resolver.find("answer", timeout=WAIT)
        for asking in (resolver, client):
            (answer,) = asking.ask(b"x", "answer", until=LONG).answers
            assert answer.body == b"echo x"
