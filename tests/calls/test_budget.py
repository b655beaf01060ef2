"""The budget of retries and hedges: what a client adds to the load of a slow service."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from nngkit.calls import Client, RetryBudget, Server
from nngkit.calls.budget import WINDOW, Balance
from nngkit.errors import ConfigError, Lost, NngkitError, RemoteError, TimedOut
from nngkit.protocols import Request
from nngkit.testing import aeventually
from tests.calls.providers import WAIT, Provider, provider
from tests.calls.servers import direct

CALLS = 100


async def called(providers: list[Provider], seconds: float, **options: Any) -> tuple[int, Any]:
    """Make CALLS idempotent calls at once; return how many requests the providers got, and the client's counters."""
    addresses = [each.address for each in providers]
    async with Client("slow", addresses=addresses, timeout=seconds, idempotent=True, **options) as client:
        await client.wait_for_providers(len(providers), WAIT)

        async def call() -> None:
            with pytest.raises(NngkitError):
                await client.request(b"?")

        async with trio.open_nursery() as nursery:
            for _ in range(CALLS):
                nursery.start_soon(call)
        return sum(len(each.seen) for each in providers), client.stats


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"attempt_timeout": 0.02},
        {"attempt_timeout": 0.02, "hedge": 0.01},
        {"hedge": 0.01},
    ],
    ids=["retries", "both", "hedges"],
)
async def test_slow_providers_get_a_fifth_more_and_ten_a_second(options: dict[str, float]) -> None:
    async with AsyncExitStack() as stack:
        providers = [await stack.enter_async_context(provider()) for _ in range(3)]
        for each in providers:
            each.handler = each.keep
        began = trio.current_time()
        requests, stats = await called(providers, 1.5, **options)  # not too short for a busy machine to send all
        allowed = CALLS + 0.2 * CALLS + 10 * (1 + trio.current_time() - began)
        assert CALLS < requests <= allowed
        assert stats.requests == stats.failed == CALLS
        assert stats.errors == 0
        # the deadline may come between an attempt and its arrival
        assert requests - CALLS <= stats.retried + stats.hedged <= allowed - CALLS
        assert stats.over_budget >= CALLS // 2


@pytest.mark.slow
async def test_a_client_without_a_budget_makes_no_further_attempt() -> None:
    async with provider() as one, provider() as other:
        for each in (one, other):
            each.handler = each.keep
        nothing = RetryBudget(share=0, per_second=0)
        # not too short for a busy machine to come to the hedge of each call
        requests, stats = await called([one, other], 1.5, attempt_timeout=0.02, hedge=0.01, retry_budget=nothing)
        assert (requests, stats.retried, stats.hedged) == (CALLS, 0, 0)
        assert stats.over_budget >= CALLS


async def test_without_a_retry_left_a_call_waits_on_for_the_reply_that_it_has_asked_for() -> None:
    async with provider() as slow:

        async def later(request: Request) -> None:
            await trio.sleep(0.05)
            await request.areply(b"late")

        slow.handler = later
        async with Client(
            "slow",
            addresses=slow.address,
            idempotent=True,
            attempt_timeout=0.01,
            timeout=WAIT,
            retry_budget=RetryBudget(0, 0),
        ) as client:
            assert await client.request(b"?") == b"late"
            assert client.stats.over_budget == 1
            assert client.stats.failed == 0


async def test_a_retry_that_was_not_needed_goes_back() -> None:
    async with (
        provider() as quick,
        Client(
            "quick",
            addresses=quick.address,
            idempotent=True,
            attempt_timeout=WAIT / 2,
            timeout=WAIT,
            retry_budget=RetryBudget(0, 1),
        ) as client,
    ):
        for _ in range(20):
            await client.request(b"?")
        assert client.stats.over_budget == 0


async def test_lost_replies_are_retried_within_the_budget() -> None:
    async with AsyncExitStack() as stack:
        providers = [await stack.enter_async_context(provider()) for _ in range(3)]
        for each in providers:
            each.handler = each.keep
        addresses = [each.address for each in providers]
        budget = RetryBudget(share=0, per_second=2)
        async with Client("x", addresses=addresses, idempotent=True, timeout=1.0, retry_budget=budget) as client:
            await client.wait_for_providers(3, WAIT)
            raised: list[NngkitError] = []

            async def call() -> None:
                with pytest.raises((Lost, TimedOut)) as told:  # TimedOut: no provider is there for the retry
                    await client.request(b"?")
                raised.append(told.value)

            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(call)
                await aeventually(lambda: sum(len(each.held) for each in providers) == 10)
                for each in providers:
                    each.close()
            assert client.stats.over_budget >= 8
            assert sum(isinstance(error, Lost) and error.sent for error in raised) >= 8


async def test_calls_that_were_surely_not_run_go_elsewhere_whatever_the_budget() -> None:
    """A rolling restart loses no call: a reroute adds nothing to the load."""
    async with (
        Server("answer", lambda body: body, codec="cbor") as leaving,
        Server("answer", lambda body: body, codec="cbor") as other,
        Client(
            "answer",
            addresses=[leaving.address, other.address],
            codec="cbor",
            timeout=WAIT,
            retry_budget=RetryBudget(0, 0),
        ) as client,
    ):
        await client.wait_for_providers(2, WAIT)
        leaving.drain()
        assert [await client.request(number) for number in range(20)] == list(range(20))
        assert client.stats.retried > 0


async def test_a_busy_service_is_not_asked_again_and_again() -> None:
    gate = trio.Event()

    async def wait(body: Any) -> Any:
        await gate.wait()
        return body

    async with (
        Server("answer", wait, codec="cbor", concurrency=1, queue=0) as server,
        direct(server, codec="cbor", retry_budget=RetryBudget(0, 5)) as client,
    ):
        await client.wait_for_providers(1, WAIT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.request, b"first")
            await aeventually(lambda: server.stats.in_progress == 1)
            for _ in range(10):
                with pytest.raises(RemoteError) as told:
                    await client.request(b"?")
                assert told.value.kind == "busy"
            gate.set()
        assert client.stats.retried < 40
        assert client.stats.over_budget > 0


async def test_an_error_of_the_handler_is_told_from_one_of_the_network() -> None:
    async def fail(body: Any) -> Any:
        raise ValueError("no")

    async with Server("answer", fail, codec="cbor") as server, direct(server, codec="cbor") as client:
        for _ in range(3):
            with pytest.raises(RemoteError):
                await client.request(b"?")
        stats = client.stats
        [told] = stats.providers.values()
        assert (stats.failed, stats.errors) == (3, 3)
        assert (told.outcomes["error"], told.outcomes["reply"]) == (3, 0)
        assert told.p50 is not None
    async with provider() as silent:
        silent.handler = silent.keep
        async with Client("x", addresses=silent.address, timeout=0.02) as client:
            await client.wait_for_providers(1, WAIT)
            with pytest.raises(TimedOut):
                await client.request(b"?")
            stats = client.stats
            [told] = stats.providers.values()
            assert (stats.failed, stats.errors) == (1, 0)
            assert (told.outcomes["timeout"], told.outcomes["error"]) == (1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("codec", [None, "cbor"])
async def test_a_timeout_names_the_whole_time_that_was_asked_for(codec: Any) -> None:
    async with provider() as silent, provider() as leaving:
        silent.handler = silent.keep

        async def leave(request: Request) -> None:
            await trio.sleep(0.02)
            leaving.close()

        leaving.handler = leave
        async with Client(
            "x",
            addresses=[leaving.address, silent.address],
            timeout=0.2,
            idempotent=True,
            attempt_timeout=0.15,
            codec=codec,
            retry_budget=RetryBudget(0, 2),
        ) as client:
            await client.wait_for_providers(2, WAIT)
            for _ in range(4):
                with pytest.raises(TimedOut, match=r"no reply from tcp://\S+ in 0\.(2|15) s$") as told:
                    await client.request(b"?")
                assert told.value.seconds == 0.2


@pytest.mark.parametrize("wrong", [{"share": -1}, {"per_second": -0.1}, {"share": float("nan")}, {"share": None}])
def test_an_unusable_budget_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="retry_budget"):
        RetryBudget(**wrong)


def test_a_budget_has_bounds() -> None:
    RetryBudget(share=0, per_second=0)
    RetryBudget(share=1e9 - 1, per_second=1e9 - 1)
    for wrong in ({"share": 1e9}, {"per_second": 1e9}, {"share": True}):
        with pytest.raises(ConfigError, match="retry_budget"):
            RetryBudget(**wrong)


def test_what_calls_have_earned_lasts_ten_seconds() -> None:
    balance = Balance(RetryBudget(share=0.5, per_second=0), 0.0)
    for _ in range(4):
        balance.call(0.0)
    assert [balance.take(WINDOW) for _ in range(3)] == [True, True, False]
    for _ in range(4):
        balance.call(20.0)
    assert not balance.take(21.0 + WINDOW)


def test_the_reserve_is_that_of_one_second() -> None:
    balance = Balance(RetryBudget(share=0, per_second=3), 0.0)
    assert [balance.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert not balance.take(100.3)
    assert balance.take(100.34)


@given(st.lists(st.tuples(st.floats(0, 3), st.sampled_from(["call", "take", "back"])), max_size=200))
def test_no_more_is_taken_than_was_allowed(steps: list[tuple[float, str]]) -> None:
    now, calls, taken = 0.0, 0, 0
    balance = Balance(RetryBudget(share=0.2, per_second=2), now)
    for pause, step in steps:
        now += pause
        if step == "call":
            balance.call(now)
            calls += 1
        elif step == "take":
            taken += balance.take(now)
        elif taken:
            balance.put_back(now)
            taken -= 1
        assert taken <= 0.2 * calls + 2 * (1 + now) + 1e-6
