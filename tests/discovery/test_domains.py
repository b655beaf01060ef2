"""Domains: daemons, services and callers of one work together; those of another are counted and not shown."""

from __future__ import annotations

import time
from typing import Any

import cbor2
import pytest
import trio

from nngkit import ConfigError, Resolver, Service, ServiceDiscovery, ServiceNotFound
from nngkit.discovery import Daemon, DaemonClient, DaemonSettings
from nngkit.discovery.domains import check_domain, domain_of, with_domain
from nngkit.discovery.messages import TEXT_QUERY, SurveyQuery, SurveyReply, parse_survey_query, parse_survey_reply
from nngkit.discovery.queries import ResolveQuery
from nngkit.discovery.settings import ClientSettings, ServiceSettings
from nngkit.discovery.watch import WatchReply
from nngkit.errors import BadMessage, Broken
from nngkit.protocols import Rep, Surveyor
from nngkit.testing import aeventually
from tests.discovery.peers import WAIT, RawPeer, found, record, says

ANY = "tcp://127.0.0.1:0"
HERE = "tcp://127.0.0.1:9000"


# ---- messages --------------------------------------------------------------------------------------------------------


def test_the_domain_is_in_queries_and_replies_unless_it_is_the_default() -> None:
    query = SurveyQuery("d1", 1, domain="staging")
    reply = SurveyReply("p1", (record(),), domain="staging")
    assert parse_survey_query(query.encode()) == query
    assert parse_survey_reply(reply.encode()) == reply
    assert b"domain" not in SurveyQuery("d1", 1).encode() + SurveyReply("p1", (record(),)).encode()


def test_an_encoded_message_gets_a_domain() -> None:
    body = ResolveQuery("domain").encode()
    assert domain_of(body) == ""
    assert with_domain(body, "") == body
    assert domain_of(with_domain(body, "staging")) == "staging"
    assert domain_of(b"\x66domain") == ""  # unintelligible: refused by the parser of queries


@pytest.mark.parametrize("wrong", ["a\nb", " a", "x" * 65, "\ud800", 5])
def test_an_unusable_domain_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="domain"):
        check_domain(wrong)
    for make in (
        lambda: Service("answer", HERE, discovery=ANY, domain=wrong),
        lambda: ServiceDiscovery(listen=ANY, domain=wrong),
        lambda: Resolver(ANY, domain=wrong),
    ):
        with pytest.raises(ConfigError, match="domain"):
            make()
    if wrong != "\ud800":  # which CBOR cannot carry
        with pytest.raises(BadMessage, match="domain"):
            parse_survey_query(cbor2.dumps({"v": 1, "type": "query", "daemon": "d", "round": 1, "domain": wrong}))


def test_the_variable_is_read_by_all() -> None:
    environ = {"NNGKIT_DOMAIN": "staging"}
    read = (DaemonSettings, ServiceSettings, ClientSettings)
    assert [each.from_environment(environ).domain for each in read] == ["staging"] * 3
    assert [each.from_environment({}).domain for each in read] == [""] * 3
    with pytest.raises(ConfigError, match="NNGKIT_DOMAIN: domain is over 64 bytes"):
        DaemonSettings.from_environment({"NNGKIT_DOMAIN": "x" * 65})


# ---- services and daemons --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ours", "theirs"), [("a", "b"), ("", "b"), ("a", "")])
async def test_a_service_of_another_domain_is_counted_and_not_shown(ours: str, theirs: str) -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=WAIT, interval=0.02, domain=ours) as discovery,
        Service("answer", HERE, discovery=discovery.address, domain=theirs) as other,
    ):
        await aeventually(lambda: discovery.stats.counters["other domain"] >= 2)  # and no round waits for the deadline
        assert discovery.view() == ()
        assert other.stats.other_domain >= 2
        async with Service("answer", HERE, discovery=discovery.address, domain=ours):
            await aeventually(found(discovery))
            assert len(discovery.view()) == 1
        assert other.stats.answers >= 2


async def test_a_service_does_not_tell_a_daemon_of_another_domain_its_name() -> None:
    async with (
        Surveyor(listen=ANY) as daemon,
        Service("answer", HERE, discovery=daemon.address, domain="a") as service,
    ):
        await daemon.await_for_peers(timeout=WAIT)
        (reply,) = (await daemon.asurvey(SurveyQuery("d1", 1).encode(), WAIT, early=True)).replies
        assert parse_survey_reply(reply.body) == SurveyReply(reply_sender(reply.body), domain="a")
        assert not (await daemon.asurvey(TEXT_QUERY, timeout=0.05)).replies
        assert service.stats.other_domain == 2
        service.update(weight=7)  # changes are not reported there either
        (reply,) = (await daemon.asurvey(SurveyQuery("d1", 2, domain="a").encode(), WAIT, early=True)).replies
        assert parse_survey_reply(reply.body) == SurveyReply(reply_sender(reply.body), (service.provider,), domain="a")


def reply_sender(body: bytes) -> str:
    reply = parse_survey_reply(body)
    assert isinstance(reply, SurveyReply)
    return reply.sender


async def test_replies_without_a_domain_and_in_text_are_of_the_default_domain() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=WAIT, domain="a") as discovery,
        await RawPeer.connect(discovery.address) as older,
        await RawPeer.connect(discovery.address) as article,
    ):
        await discovery.wait_for_peers(2, timeout=WAIT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(discovery.discover)
            for peer, body in ((older, says(record())), (article, b"answer|tcp://10.0.0.1:9000")):
                header, query = await peer.query()
                assert query is not None
                assert query.flags == frozenset()  # no text query follows
                await peer.send(header, body)
            await aeventually(lambda: discovery.stats.counters["other domain"] == 2)
            assert discovery.view() == ()
            nursery.cancel_scope.cancel()


# ---- callers ---------------------------------------------------------------------------------------------------------


async def test_callers_of_another_domain_are_refused_with_both_names() -> None:
    settings = DaemonSettings(listen=(ANY,), deadline=WAIT, interval=0.02, domain="a")
    async with Daemon(settings) as daemon, Service("answer", HERE, discovery=daemon.addresses, domain="a"):
        await aeventually(found(daemon.discovery))
        address = daemon.query_addresses[0]
        async with DaemonClient(address, timeout=WAIT, domain="a") as client:
            assert (await client.resolve("answer")).address == HERE
            assert len(await client.snapshot()) == 1
        for domain, named in (("b", "the domain 'b'"), ("", "the default domain")):
            async with DaemonClient(address, timeout=WAIT, domain=domain) as client:
                for ask in (client.resolve("answer"), client.snapshot(), client.watch("", 0, wait=0.0)):
                    with pytest.raises(Broken, match=f"it is of the domain 'a', not of {named}"):
                        await ask
        assert daemon.stats.other_domain == 6


async def test_a_resolver_uses_daemons_of_its_domain_alone() -> None:
    there = DaemonSettings(listen=(ANY,), deadline=WAIT, interval=0.02)
    async with (
        Daemon(there) as other,
        Daemon(DaemonSettings(listen=(ANY,), deadline=WAIT, interval=0.02, domain="a")) as daemon,
        Service("answer", HERE, discovery=[*daemon.addresses, *other.addresses], domain="a"),
        Service("other", HERE, discovery=[*daemon.addresses, *other.addresses]),
    ):
        daemons = [*other.query_addresses, *daemon.query_addresses]
        async with Resolver(daemons, timeout=WAIT, domain="a") as resolver:
            assert (await resolver.find("answer", timeout=WAIT)).address == HERE
            with pytest.raises(ServiceNotFound):
                resolver.resolve("other")
            assert [resolver.answers(each) for each in daemons] == [False, True]
        async with Resolver(daemons, timeout=WAIT) as resolver:
            assert (await resolver.find("other", timeout=WAIT)).address == HERE
            assert list(resolver.snapshot()) == ["other"]


async def test_a_daemon_without_domains_is_of_the_default_domain() -> None:
    async def old_daemon(rep: Rep) -> None:
        async for request in rep:
            await request.areply(WatchReply("old", 1).encode())

    async with Rep(listen=ANY) as rep, trio.open_nursery() as nursery:
        nursery.start_soon(old_daemon, rep)
        started = time.monotonic()
        async with DaemonClient(rep.address, timeout=WAIT, domain="a") as client:
            with pytest.raises(Broken, match="it is of the default domain, not of the domain 'a'"):
                await client.resolve("answer")
        assert time.monotonic() - started < WAIT
        async with DaemonClient(rep.address, timeout=WAIT) as client:
            assert (await client.watch("", 0, wait=0.0)).daemon == "old"
        nursery.cancel_scope.cancel()
