"""Rights in discovery: no peer speaks for the provider of another, and callers check certificates."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
import trio

from nngkit.calls import Client, Server
from nngkit.discovery import Daemon, DaemonSettings, Provider, Service, ServiceDiscovery, State
from nngkit.discovery.client import DaemonClient
from nngkit.discovery.messages import TEXT_QUERY, SurveyQuery, SurveyReply, TextReply, is_cbor
from nngkit.discovery.questions.messages import is_question
from nngkit.discovery.questions.values import Question, deadline
from nngkit.errors import AccessDenied, ConfigError, ServiceNotFound
from nngkit.protocols import Respondent, Surveyor
from nngkit.testing import aeventually
from nngkit.trust import Trust
from tests.trust.one_realm import OneRealm
from tests.trust.rooms import ANY, WAIT

HONEST = "tls+tcp://127.0.0.1:9000"
FALSE = "tls+tcp://127.0.0.1:6666"
PAY = 'pay.* | offer = ["pay"]'
OTHER = 'desk.* | offer = ["desk"]'
RELAY = 'relay.* | carry = ["discovery"]'


@pytest.fixture
def farm(tmp_path: Path) -> OneRealm:
    realm = OneRealm(tmp_path)
    realm.policy(PAY, OTHER, RELAY)
    return realm


@asynccontextmanager
async def surveys(farm: OneRealm) -> AsyncIterator[ServiceDiscovery]:
    async with ServiceDiscovery(listen=ANY, interval=0.05, deadline=0.5, trust=farm.trust("daemon")) as discovery:
        yield discovery


@asynccontextmanager
async def says(trust: Trust, address: str, *bodies: bytes, asked: list[bytes] | None = None) -> AsyncIterator[None]:
    """Answer each survey with `bodies`, whatever they say; questions go to `asked`."""

    async def answer(respondent: Respondent) -> None:
        async for query in respondent:
            if is_question(query.body) and asked is not None:
                asked.append(query.body)
            elif is_cbor(query.body) and not is_question(query.body):
                for body in bodies:
                    await query.areply(body)

    async with Respondent(dial=address, trust=trust) as respondent, trio.open_nursery() as nursery:
        nursery.start_soon(answer, respondent)
        yield
        nursery.cancel_scope.cancel()


def reply(*records: Provider, relay: bool = False, sender: str = "raw") -> bytes:
    return SurveyReply(sender, records, relay=relay).encode()


async def pay_is_up(discovery: ServiceDiscovery) -> Provider:
    await aeventually(lambda: "pay" in discovery.snapshot())
    return discovery.resolve("pay")


async def later_rounds(discovery: ServiceDiscovery, n: int = 3) -> None:
    last = discovery.rounds[-1].number if discovery.rounds else 0
    await aeventually(lambda: bool(discovery.rounds) and discovery.rounds[-1].number >= last + n)


async def test_no_peer_repeats_drains_or_replaces_the_provider_of_another(farm: OneRealm) -> None:
    async with (
        surveys(farm) as discovery,
        Service("pay", HONEST, discovery=discovery.address, trust=farm.trust("pay.a"), sigterm=False),
    ):
        real = await pay_is_up(discovery)
        assert real.id.startswith("pay.a:")
        repeated = Provider(*real.key, draining=True)
        own = Provider("pay", FALSE, "desk.eve:1", 1, priority=1)
        other = Provider("pay", FALSE, "pay.b:1", 1, priority=1)
        async with says(farm.trust("desk.eve"), discovery.address, *map(reply, (repeated, own, other))):
            await aeventually(lambda: discovery.stats.refused.get("binding", 0) >= 4)
            assert discovery.stats.refused["right"] >= 2
            await later_rounds(discovery)
            assert discovery.snapshot() == {"pay": frozenset({real})}
            assert [row.state for row in discovery.view()] == [State.UP]
        assert discovery.resolve("pay") == real


async def test_each_member_offers_what_is_granted_as_instances_of_its_name(farm: OneRealm) -> None:
    mine = Provider("pay", HONEST, "pay.a", 1), Provider("pay", "tls+tcp://127.0.0.1:9001", "pay.a:2", 1)
    async with surveys(farm) as discovery, says(farm.trust("pay.a"), discovery.address, reply(*mine)):
        await aeventually(lambda: discovery.snapshot() == {"pay": frozenset(mine)})
        assert not discovery.stats.refused


@pytest.mark.slow
async def test_a_relay_states_providers_of_others_that_may_offer_them_if_it_may_carry(farm: OneRealm) -> None:
    pay, desk = Provider("pay", HONEST, "pay.a:1", 1), Provider("pay", FALSE, "desk.eve:1", 1)
    async with surveys(farm) as discovery:
        async with says(farm.trust("relay.x"), discovery.address, reply(pay, desk, relay=True)):
            assert await pay_is_up(discovery) == pay
            await later_rounds(discovery)
            assert discovery.snapshot() == {"pay": frozenset({pay})}
            assert set(discovery.stats.refused) == {"right"}
        await aeventually(lambda: not discovery.snapshot())
        async with says(farm.trust("desk.eve"), discovery.address, reply(pay, relay=True)):
            await aeventually(lambda: "binding" in discovery.stats.refused)
            assert not discovery.snapshot()


async def test_a_policy_that_is_read_again_takes_a_provider_out_and_brings_it_back(farm: OneRealm) -> None:
    async with (
        surveys(farm) as discovery,
        Service("pay", HONEST, discovery=discovery.address, trust=farm.trust("pay.a"), sigterm=False),
        Service("desk", HONEST, discovery=discovery.address, trust=farm.trust("desk.ada"), sigterm=False),
    ):
        await aeventually(lambda: set(discovery.snapshot()) == {"pay", "desk"})
        farm.policy(OTHER)
        await aeventually(lambda: set(discovery.snapshot()) == {"desk"})
        with pytest.raises(ServiceNotFound):
            discovery.resolve("pay")
        farm.policy(OTHER, PAY)
        await aeventually(lambda: set(discovery.snapshot()) == {"pay", "desk"})


async def test_questions_go_to_those_that_may_offer_the_service_and_only_their_answers_count(farm: OneRealm) -> None:
    def answers(question: Question) -> bytes:
        return b"mine"

    stolen: list[bytes] = []
    async with (
        surveys(farm) as discovery,
        Service(
            "pay", HONEST, discovery=discovery.address, trust=farm.trust("pay.a"), on_question=answers, sigterm=False
        ),
    ):
        real = await pay_is_up(discovery)
        eve, silent = farm.trust("desk.eve"), farm.trust("desk.mute")
        takes = reply(real, relay=True), reply(real, sender="second")
        async with (
            says(eve, discovery.address, *takes, asked=stolen),
            says(silent, discovery.address, asked=stolen),
        ):
            await discovery.wait_for_peers(3, WAIT)
            await later_rounds(discovery)
            result = await discovery.ask(b"secret", "pay", until=deadline(1.0))
        assert [(each.provider, each.body) for each in result.answers] == [(real, b"mine")]
        assert stolen == []


async def test_the_articles_services_need_a_pass_and_get_an_id_of_its_name(farm: OneRealm) -> None:
    text = TextReply("pay", HONEST).encode()

    @asynccontextmanager
    async def article(name: str, address: str) -> AsyncIterator[None]:
        async def answer(respondent: Respondent) -> None:
            async for query in respondent:
                if query.body == TEXT_QUERY:
                    await query.areply(text)

        async with Respondent(dial=address, trust=farm.trust(name)) as respondent, trio.open_nursery() as nursery:
            nursery.start_soon(answer, respondent)
            yield
            nursery.cancel_scope.cancel()

    async with surveys(farm) as discovery, article("pay.a", discovery.address):
        assert (await pay_is_up(discovery)).id == "pay.a:text"
        async with article("pay.b", discovery.address), article("desk.eve", discovery.address):
            await aeventually(lambda: len(discovery.snapshot()["pay"]) == 2)
            await aeventually(lambda: "right" in discovery.stats.refused)
            assert {each.id for each in discovery.snapshot()["pay"]} == {"pay.a:text", "pay.b:text"}
            result = await discovery.ask(b"anyone?", "pay", until=deadline(WAIT))
            assert len(result.missing) == 2
            assert result.elapsed < WAIT / 2


async def test_a_service_answers_no_daemon_under_the_name_of_another(farm: OneRealm) -> None:
    async with (
        Surveyor(listen=ANY, trust=farm.trust("desk.eve")) as false,
        Service("pay", HONEST, discovery=false.address, trust=farm.trust("pay.a"), sigterm=False) as service,
    ):
        await false.await_for_peers(1, WAIT)
        await false.astart(SurveyQuery("daemon", 1).encode(), timeout=None)
        await aeventually(lambda: service.stats.refused == {"binding": 1})
        survey = await false.astart(SurveyQuery("desk.eve:1", 2).encode(), timeout=WAIT)
        async with aclosing(aiter(survey)) as answers:
            assert is_cbor((await anext(answers)).body)
        assert service.stats.answers == 1


def test_an_id_of_another_is_an_error_at_once(farm: OneRealm) -> None:
    pay, daemon = farm.trust("pay.a"), farm.trust("daemon")
    for other in ("pay.b", "pay.b:1", "pay.a:", "x"):
        with pytest.raises(ConfigError, match=r"neither 'pay\.a', which the pass says, nor pay\.a:WORD"):
            Service("pay", HONEST, discovery="tcp://127.0.0.1:9", id=other, trust=pay)
    with pytest.raises(ConfigError, match=r"'pay\.a' is neither 'daemon'"):
        ServiceDiscovery(listen=ANY, id="pay.a", trust=daemon)
    for own in ("pay.a", "pay.a:2"):
        assert Service("pay", HONEST, discovery="tcp://127.0.0.1:9", id=own, trust=pay).provider.id == own
    assert ServiceDiscovery(listen=ANY, trust=daemon).id.startswith("daemon:")


async def test_rounds_tell_how_many_records_were_refused(farm: OneRealm) -> None:
    settings = DaemonSettings(listen=(ANY,), query=(ANY,), interval=0.05, deadline=0.5)
    own = Provider("pay", FALSE, "desk.eve:1", 1)
    async with (
        Daemon(settings, trust=farm.trust("daemon")) as daemon,
        says(farm.trust("desk.eve"), daemon.addresses[0], reply(own)),
        DaemonClient(daemon.query_addresses[0], timeout=WAIT, trust=farm.trust("desk.ada")) as client,
    ):
        await aeventually(lambda: daemon.discovery.stats.refused.get("right", 0) > 0)
        assert (await client.rounds()).counters["refused: right"] > 0
        assert not await client.snapshot()  # any member may ask


# ---- callers ---------------------------------------------------------------------------------------------------------


async def echo(body: object) -> object:
    return body


async def test_a_provider_without_the_right_gets_no_request_whatever_a_daemon_says(farm: OneRealm) -> None:
    farm.policy(PAY, 'desk.* | call = ["pay"]')
    false, ada = farm.trust("desk.eve"), farm.trust("desk.ada")
    async with Server("pay", echo, listen=ANY, trust=false, discovery=()) as impostor:
        async with Client("pay", addresses=impostor.address, trust=ada, timeout=1.0) as client:
            with pytest.raises(AccessDenied, match=r"right: desk\.eve may not offer pay"):
                await client.request(b"secret")
            assert client.stats.denied["right"] >= 1
        async with (
            Server("pay", echo, listen=ANY, trust=farm.trust("pay.a"), discovery=()) as honest,
            Client("pay", addresses=[impostor.address, honest.address], trust=ada, timeout=WAIT) as client,
        ):
            for _ in range(10):
                assert await client.request(b"secret") == b"secret"
        assert impostor.stats.requests == 0
        assert impostor.stats.socket.joined == 0


async def test_a_plain_address_of_another_machine_is_not_dialed(farm: OneRealm) -> None:
    stripped = Provider("pay", "tcp://192.0.2.1:9000", "pay.a:1", 1)
    settings = DaemonSettings(listen=(ANY,), query=(ANY,), interval=0.05, deadline=0.5)
    async with (
        Daemon(settings, trust=farm.trust("daemon")) as daemon,
        says(farm.trust("pay.a"), daemon.addresses[0], reply(stripped)),
    ):
        await aeventually(lambda: "pay" in daemon.discovery.snapshot())
        async with Client("pay", daemons=daemon.query_addresses, trust=farm.trust("desk.ada"), timeout=0.5) as client:
            await aeventually(lambda: client.stats.unusable == 1)
            with pytest.raises(ServiceNotFound):
                await client.request(b"secret")


async def test_without_a_trust_ids_are_free_and_nothing_is_refused() -> None:
    async with (
        ServiceDiscovery(listen="tcp://127.0.0.1:0", interval=0.05, deadline=0.5) as discovery,
        Service("pay", HONEST, discovery=discovery.address, id="any", sigterm=False),
    ):
        assert (await pay_is_up(discovery)).id == "any"
        assert (discovery.stats.refused, len(discovery.id)) == ({}, 32)
