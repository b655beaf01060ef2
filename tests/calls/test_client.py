"""Client: calls over real sockets, to providers at fixed addresses and to those that discovery finds."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from typing import Any

import pytest
import trio

from nngkit.calls import Client, Ejection
from nngkit.discovery import Daemon, DaemonSettings, Resolver, Service, ServiceDiscovery
from nngkit.errors import Closed, ConfigError, Lost, ServiceNotFound, TimedOut
from nngkit.testing import aeventually
from tests.calls.providers import ANY, WAIT, provider
from tests.switches import many_switches

NOWHERE = "tcp://127.0.0.1:1"
SETTINGS = DaemonSettings(listen=(ANY,), deadline=1.0, interval=1000)


# ---- one provider ----------------------------------------------------------------------------------------------------


async def test_a_call_returns_the_reply() -> None:
    async with provider() as there, Client("answer", addresses=there.address) as answer:
        assert await answer.request(b"hi", timeout=WAIT) == there.address.encode() + b" hi"
        stats = answer.stats
        assert (stats.requests, stats.failed, stats.retried) == (1, 0, 0)
        one = stats.providers[there.address]
        assert (one.requests, one.outcomes["reply"], one.outstanding, one.connected) == (1, 1, 0, True)
        assert one.p50 is not None
        assert 0 < one.p50 < WAIT


async def test_a_thousand_calls_are_in_progress_at_once() -> None:
    async with provider() as there, Client("answer", addresses=there.address, timeout=WAIT) as answer:
        there.handler = there.keep
        replies: list[bytes] = []

        async def call(number: int) -> None:
            replies.append(await answer.request(b"%d" % number))

        async with trio.open_nursery() as nursery:
            for number in range(1000):
                nursery.start_soon(call, number)
            await aeventually(lambda: len(there.held) == 1000)
            assert answer.stats.providers[there.address].outstanding == 1000
            for request in reversed(there.held):
                await request.areply(request.body)
        assert sorted(map(int, replies)) == list(range(1000))


async def test_a_late_reply_raises_timed_out_and_names_the_provider() -> None:
    async with provider() as there, Client("answer", addresses=there.address) as answer:
        await answer.wait_for_providers(timeout=WAIT)
        there.handler = there.keep
        with pytest.raises(TimedOut, match=rf"^answer: no reply from {there.address} in 0\.\d+ s") as told:
            await answer.request(b"x", timeout=0.1)
        assert told.value.seconds == 0.1
        assert answer.stats.providers[there.address].outcomes["timeout"] == 1


async def test_without_a_provider_the_error_says_what_is_missing() -> None:
    async with Client("answer", addresses=NOWHERE) as answer:
        with pytest.raises(TimedOut, match=f"its provider {NOWHERE} is not connected after 0.1 s"):
            await answer.request(b"x", timeout=0.1)
    async with ServiceDiscovery(listen=ANY) as discovery, Client("answer", discovery=discovery) as answer:
        with pytest.raises(ServiceNotFound, match="service not found: answer"):
            await answer.request(b"x", timeout=0.1)


async def test_a_call_waits_for_the_first_provider() -> None:
    async with (
        Daemon(SETTINGS) as daemon,
        provider() as there,
        Client("answer", daemons=daemon.query_addresses) as answer,
        trio.open_nursery() as nursery,
    ):
        replies = []

        async def call() -> None:
            replies.append(await answer.request(b"x", timeout=WAIT))

        nursery.start_soon(call)
        async with Service("answer", there.address, discovery=daemon.addresses):
            await aeventually(lambda: replies)


async def test_a_lost_provider_raises_lost_unless_idempotent() -> None:
    async with provider() as first, Client("answer", addresses=first.address) as answer, trio.open_nursery() as nursery:
        await answer.wait_for_providers(timeout=WAIT)
        first.handler = first.keep

        async def close() -> None:
            await aeventually(lambda: first.held)
            first.close()

        nursery.start_soon(close)
        with pytest.raises(Lost, match="may have run; idempotent=True would") as told:
            await answer.request(b"x", timeout=WAIT)
        assert told.value.sent


async def test_closing_ends_calls_in_progress() -> None:
    async with provider() as there, Client("answer", addresses=there.address) as answer:
        await answer.wait_for_providers(timeout=WAIT)
        there.handler = there.keep
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                with pytest.raises(Closed):
                    await answer.request(b"x", timeout=WAIT)

            nursery.start_soon(call)
            await aeventually(lambda: there.held)
            await answer.aclose()
        with pytest.raises(Closed, match="answer: this client is closed"):
            await answer.request(b"x")


async def test_a_cancelled_call_leaves_nothing_behind() -> None:
    async with provider() as there, Client("answer", addresses=there.address) as answer:
        await answer.wait_for_providers(timeout=WAIT)
        there.handler = there.keep
        with trio.move_on_after(0.05):
            await answer.request(b"x")
        one = answer.stats.providers[there.address]
        assert (one.outstanding, one.outcomes["cancelled"]) == (0, 1)


async def test_tasks_of_asyncio_and_threads_call_too() -> None:
    async with provider() as there, Client("answer", addresses=there.address, timeout=WAIT) as answer:
        want = there.address.encode() + b" x"

        def under_asyncio() -> list[bytes]:
            async def main() -> list[Any]:
                return await asyncio.gather(*(answer.request(b"x") for _ in range(10)))

            return asyncio.run(main())

        assert await trio.to_thread.run_sync(under_asyncio) == [want] * 10


# ---- several providers -----------------------------------------------------------------------------------------------


async def test_calls_are_shared_among_providers() -> None:
    async with (
        provider() as first,
        provider() as second,
        Client("answer", addresses=[first.address, second.address], rng=random.Random(3), timeout=WAIT) as answer,
    ):
        await answer.wait_for_providers(2, timeout=WAIT)
        for _ in range(40):
            await answer.request(b"x")
        assert min(len(first.seen), len(second.seen)) > 5


async def test_an_idempotent_call_moves_to_another_provider_when_its_own_is_lost() -> None:
    async with (
        provider() as first,
        provider() as second,
        Client(
            "answer", addresses=[first.address, second.address], rng=random.Random(3), timeout=WAIT, idempotent=True
        ) as answer,
    ):
        await answer.wait_for_providers(2, timeout=WAIT)
        for each in (first, second):
            each.handler = each.keep
        async with trio.open_nursery() as nursery:
            replies: list[bytes] = []

            async def call() -> None:
                replies.append(await answer.request(b"x"))

            nursery.start_soon(call)
            await aeventually(lambda: first.held or second.held)
            asked, other = (first, second) if first.held else (second, first)
            other.handler = other.echo
            asked.close()
        assert replies == [other.address.encode() + b" x"]
        assert answer.stats.retried == 1


async def test_a_frozen_provider_costs_an_idempotent_call_its_attempt_timeout() -> None:
    async with (
        provider() as first,
        provider() as second,
        Client(
            "answer", addresses=[first.address, second.address], rng=random.Random(3), timeout=WAIT, attempt_timeout=0.1
        ) as answer,
    ):
        await answer.wait_for_providers(2, timeout=WAIT)
        first.handler = first.keep
        replies = [await answer.request(b"x", idempotent=True) for _ in range(6)]
        assert set(replies) == {second.address.encode() + b" x"}


async def test_a_hedged_call_asks_a_second_provider_and_takes_the_first_reply() -> None:
    async with (
        provider() as first,
        provider() as second,
        Client("answer", addresses=[first.address, second.address], rng=random.Random(3), timeout=WAIT) as answer,
    ):
        await answer.wait_for_providers(2, timeout=WAIT)
        first.handler = first.keep
        assert {await answer.request(b"x", hedge=0.02) for _ in range(12)} == {second.address.encode() + b" x"}
        stats = answer.stats
        assert stats.hedged == stats.hedge_wins == len(first.held) > 0
        assert stats.providers[first.address].outstanding == 0
        second.close()
        first.handler = first.echo
        assert await answer.request(b"y", hedge=0.02) == first.address.encode() + b" y"


def test_a_hedged_call_of_an_asyncio_task_is_the_same() -> None:
    async def main() -> None:
        async with (
            provider() as first,
            provider() as second,
            Client("answer", addresses=[first.address, second.address], rng=random.Random(3), timeout=WAIT) as answer,
        ):
            await answer.wait_for_providers(2, timeout=WAIT)
            first.handler = first.keep

            def calls() -> set[bytes]:
                async def several() -> set[bytes]:
                    return {await answer.request(b"x", hedge=0.02) for _ in range(12)}

                return asyncio.run(several())

            assert await trio.to_thread.run_sync(calls) == {second.address.encode() + b" x"}
            assert answer.stats.hedge_wins > 0

    trio.run(main)


async def test_a_provider_that_fails_again_and_again_is_ejected() -> None:
    async with (
        provider() as first,
        provider() as second,
        Client(
            "answer",
            addresses=[first.address, second.address],
            rng=random.Random(3),
            ejection=Ejection(failures=2, shortest=60.0, longest=60.0),
        ) as answer,
    ):
        await answer.wait_for_providers(2, timeout=WAIT)
        first.handler = first.keep
        failed = 0
        for _ in range(40):
            try:
                await answer.request(b"x", timeout=0.5)
            except TimedOut:
                failed += 1
        assert failed == 2
        assert answer.stats.ejections == 1
        assert answer.stats.providers[first.address].ejected


async def test_a_preferred_zone_is_called_until_its_last_provider_is_gone() -> None:
    async with (
        ServiceDiscovery(listen=ANY, interval=1000) as discovery,
        provider() as near,
        provider() as far,
        Service("answer", far.address, discovery=discovery.address, zone="london"),
        Client("answer", discovery=discovery, prefer=["ny", "london"], timeout=WAIT, idempotent=True) as answer,
    ):
        await answer.wait_for_providers(1, timeout=WAIT)
        assert await answer.request(b"1") == far.address.encode() + b" 1"
        async with Service("answer", near.address, discovery=discovery.address, zone="ny") as service:
            await answer.wait_for_providers(2, timeout=WAIT)
            assert {await answer.request(b"2") for _ in range(20)} == {near.address.encode() + b" 2"}
            service.drain()
            await aeventually(lambda: near.address not in answer.stats.providers)
            assert await answer.request(b"3") == far.address.encode() + b" 3"


async def test_a_draining_provider_finishes_its_calls_before_it_is_disconnected() -> None:
    async with (
        ServiceDiscovery(listen=ANY, interval=1000) as discovery,
        provider() as there,
        Client("answer", discovery=discovery, timeout=WAIT) as answer,
        trio.open_nursery() as nursery,
    ):
        replies: list[bytes] = []
        async with Service("answer", there.address, discovery=discovery.address):
            await answer.wait_for_providers(1, timeout=WAIT)
            there.handler = there.keep

            async def call() -> None:
                replies.append(await answer.request(b"x"))

            nursery.start_soon(call)
            await aeventually(lambda: there.held)
        await aeventually(lambda: answer.stats.providers[there.address].state == "down")
        assert there.rep.pipes
        await there.held[0].areply(b"done")
        await aeventually(lambda: not there.rep.pipes)
        assert replies == [b"done"]
        assert not answer.stats.providers


async def test_a_resolver_of_the_program_is_shared_and_stays_open() -> None:
    async with (
        Daemon(SETTINGS) as daemon,
        provider() as there,
        Service("answer", there.address, discovery=daemon.addresses),
        Resolver(daemon.query_addresses) as resolver,
    ):
        for _ in range(2):
            async with Client("answer", discovery=resolver, timeout=WAIT) as answer:
                await answer.request(b"x")
        assert (await resolver.find("answer", timeout=WAIT)).address == there.address


async def test_tags_filter_and_a_lack_is_explained() -> None:
    async with (
        ServiceDiscovery(listen=ANY, interval=1000) as discovery,
        provider() as plain,
        provider() as gpu,
        Service("answer", plain.address, discovery=discovery.address),
        Service("answer", gpu.address, discovery=discovery.address, tags=["gpu"]),
        Client("answer", discovery=discovery, tags="gpu", timeout=WAIT) as tagged,
        Client("answer", discovery=discovery, tags=["tpu"]) as missing,
    ):
        assert {await tagged.request(b"x") for _ in range(10)} == {gpu.address.encode() + b" x"}
        await aeventually(lambda: len(discovery.snapshot().get("answer", ())) == 2)
        with pytest.raises(ServiceNotFound, match="all 2 providers lack the tag tpu"):
            await missing.request(b"x", timeout=0.3)


async def test_an_address_that_cannot_be_dialed_is_counted_and_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        ServiceDiscovery(listen=ANY, interval=1000) as discovery,
        provider() as there,
        Service("answer", "gopher://hole:70", discovery=discovery.address),
        Service("answer", there.address, discovery=discovery.address),
        Client("answer", discovery=discovery, timeout=WAIT) as answer,
    ):
        await aeventually(lambda: answer.stats.unusable == 1)
        await answer.request(b"x")
        assert len([record for record in caplog.records if "cannot be called" in record.message]) == 1


# ---- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"addresses": []}, "addresses"),
        ({"addresses": ["x"]}, "addresses"),
        ({"daemons": NOWHERE, "addresses": NOWHERE}, "daemons"),
        ({"daemons": []}, "daemons"),
        ({"addresses": NOWHERE, "codec": "xml"}, "codec"),
        ({"addresses": NOWHERE, "policy": "best"}, "policy"),
        ({"addresses": NOWHERE, "prefer": ["z" * 65]}, "prefer"),
        ({"addresses": NOWHERE, "hedge": -1}, "hedge"),
        ({"addresses": NOWHERE, "connections": 0}, "connections"),
    ],
)
def test_an_unusable_value_is_named(options: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError) as told:
        Client("answer", **options)
    assert told.value.what == what


async def test_methods_and_streams_need_a_codec() -> None:
    async with Client("answer", addresses=NOWHERE) as answer:
        with pytest.raises(ConfigError, match="codec"):
            await answer.request(b"", method="add")
        with pytest.raises(ConfigError, match="codec"):
            answer.stream(b"")
    with pytest.raises(ConfigError, match="name"):
        Client("a|b", addresses=NOWHERE)


async def test_many_callers_on_many_threads_leave_the_counters_right() -> None:
    async with (
        provider() as first,
        provider() as second,
        Client("answer", addresses=[first.address, second.address], rng=random.Random(3), timeout=WAIT) as answer,
    ):
        await answer.wait_for_providers(2, timeout=WAIT)

        def calls() -> None:
            async def main() -> None:
                for _ in range(50):
                    await answer.request(b"x")

            asyncio.run(main())

        threads = [threading.Thread(target=calls) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await trio.to_thread.run_sync(thread.join)
        counted = Counter({address: each.outcomes["reply"] for address, each in answer.stats.providers.items()})
        assert counted.total() == 200 == answer.stats.requests
        assert all(each.outstanding == 0 for each in answer.stats.providers.values())


async def test_calls_of_several_threads_are_counted_exactly() -> None:
    """The usual call takes no lock, so threads switch as often as they can."""

    async def many(client: Client) -> None:
        for _ in range(400):
            await client.request(b"x")

    async with provider() as there, Client("counted", addresses=there.address, timeout=WAIT) as client:
        await client.wait_for_providers(1, WAIT)
        with many_switches():
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(trio.to_thread.run_sync, trio.run, many, client)
        [told] = client.stats.providers.values()
        assert client.stats.requests == told.requests == told.outcomes["reply"] == told.times.count == 1200
        assert told.outstanding == 0
