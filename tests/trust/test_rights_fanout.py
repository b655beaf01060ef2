"""Rights in fan-out: who publishes and who subscribes to which topics, and whose id a publisher has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from nngkit.devices import Device, forward
from nngkit.errors import AccessDenied, ConfigError
from nngkit.fanout import Gap, Keep, Published, Publisher, Subscriber, Synchronized
from nngkit.fanout.numbered.granted import publisher_id
from nngkit.fanout.numbered.lag import HEARTBEAT, MAGIC_HEADERS, pack_trailer, sized_headers, stamp
from nngkit.fanout.numbered.messages import HEARTBEATS, REPLIES, REQUESTS, Position, PublisherHeartbeat, RefusedQuery
from nngkit.protocols import Pub, Req, Sub
from nngkit.testing import aeventually
from nngkit.trust import OPEN
from tests.trust.one_realm import OneRealm

ANY = "tls+tcp://127.0.0.1:0"
WAIT = 15.0
ALL = 'publish = [""]'


@pytest.fixture
def farm(tmp_path: Path) -> OneRealm:
    return OneRealm(tmp_path)


async def joined(subscriber: Subscriber, publisher: Publisher) -> None:
    """Wait until messages reach the subscriber, and its publisher has heard from it."""
    with trio.fail_after(WAIT):
        await subscriber.wait_for_peers(1, WAIT)
        await aeventually(lambda: any(each.id == subscriber.id for each in publisher.subscribers()))


async def refused(socket: Sub | Req, why: str) -> None:
    await aeventually(lambda: any(why in cut.reason for cut in socket.cuts))


async def read(subscriber: Subscriber, until: Callable[[Any], bool]) -> list[Any]:
    found: list[Any] = []
    with trio.fail_after(WAIT):
        async for event in subscriber:
            found.append(event)
            if until(event):
                return found
    raise AssertionError("unreachable")


async def bodies(subscriber: Subscriber, last: bytes) -> list[bytes]:
    """Return the bodies up to the last one; nothing else may come, no gap above all."""
    events = await read(subscriber, lambda event: isinstance(event, Published) and event.body == last)
    assert all(isinstance(event, Published) for event in events)
    return [event.body for event in events]


async def test_each_subscriber_gets_what_it_may_and_no_gap(farm: OneRealm) -> None:
    farm.policy(
        hub=ALL, shop='subscribe = ["orders."]', desk='subscribe = ["orders.eu", "news"]', boss='subscribe=[""]'
    )
    async with Publisher(ANY, trust=farm.trust("hub"), heartbeat=0.1) as publisher:
        subscribers = {name: Subscriber(publisher.address, trust=farm.trust(name)) for name in ("shop", "desk", "boss")}
        async with subscribers["shop"] as shop, subscribers["desk"] as desk, subscribers["boss"] as boss:
            for each in (shop, desk, boss):
                await joined(each, publisher)
            for topic in ("orders.us", "news", "secret", "orders.eu", "secret", "orders.eu", "secret", "news"):
                publisher.publish(topic, topic.encode() + b" %d" % (publisher.number + 1))
            publisher.publish("orders.eu", b"end")
            assert await bodies(shop, b"end") == [b"orders.us 1", b"orders.eu 4", b"orders.eu 6", b"end"]
            assert await bodies(desk, b"end") == [b"news 2", b"orders.eu 4", b"orders.eu 6", b"news 8", b"end"]
            assert len(await bodies(boss, b"end")) == 9
            assert (shop.stats.withheld, desk.stats.withheld, boss.stats.withheld) == (5, 4, 0)
            assert (shop.stats.missed, desk.stats.missed) == (0, 0)
            publisher.publish("secret", b"last")
            await aeventually(lambda: shop.stats.withheld == 6)  # told by a heartbeat
            await aeventually(lambda: all(each.behind == 0 for each in publisher.subscribers()))


@pytest.mark.slow
async def test_a_right_that_is_taken_away_and_given_back_while_running(farm: OneRealm) -> None:
    both, one = 'subscribe = ["a", "b"]', 'subscribe = ["b"]'
    farm.policy(hub=ALL, shop=both, desk='subscribe = ["b"]')
    async with (
        Publisher(ANY, trust=farm.trust("hub"), heartbeat=0.1) as publisher,
        Subscriber(publisher.address, trust=farm.trust("shop")) as shop,
        Subscriber(publisher.address, trust=farm.trust("desk")) as desk,
    ):
        await joined(shop, publisher)
        await joined(desk, publisher)
        for step, grant in enumerate((both, one, both)):
            farm.policy(hub=ALL, shop=grant, desk='subscribe = ["b"]')
            publisher.publish_many([("a", b"a%d" % step), ("b", b"b%d" % step)])
        assert await bodies(shop, b"b2") == [b"a0", b"b0", b"b1", b"a2", b"b2"]
        assert await bodies(desk, b"b2") == [b"b0", b"b1", b"b2"]
        farm.policy(hub=ALL, desk='subscribe = ["b"]')
        await aeventually(lambda: not shop.connected)
        assert publisher.stats.refused["right"] >= 1
        publisher.publish("b", b"more")
        assert await bodies(desk, b"more") == [b"more"]
        farm.policy(hub=ALL, shop=both, desk='subscribe = ["b"]')
        await joined(shop, publisher)


async def test_last_values_and_plain_addresses_are_held_to_the_same_right(farm: OneRealm) -> None:
    farm.policy(hub=ALL, shop='subscribe = ["orders."]', boss='subscribe = [""]')
    async with Publisher(ANY, trust=farm.trust("hub"), keep=Keep(), plain=ANY) as publisher:
        for topic in ("orders.us", "secret", "orders.eu"):
            publisher.publish(topic, topic.encode())
        for name, bodies in (("shop", [b"orders.us", b"orders.eu"]), ("boss", [b"orders.us", b"secret", b"orders.eu"])):
            async with Subscriber(publisher.address, last=True, trust=farm.trust(name)) as subscriber:
                events = await read(
                    subscriber, lambda event: isinstance(event, Published) and event.body == b"orders.eu"
                )
                assert isinstance(events[0], Synchronized)
                assert events[0].count == len(bodies)
                assert [event.body for event in events[1:]] == bodies
        async with Sub(dial=publisher.plain_address, topics=b"", trust=farm.trust("boss")) as boss:
            await boss.await_for_peers(1, WAIT)
            with Sub(dial=publisher.plain_address, topics=b"", trust=farm.trust("shop")) as shop:
                await refused(shop, "right: shop may not subscribe")
            publisher.publish("secret", b"x")
            assert await boss.arecv(WAIT) == b"secretx"


async def test_who_may_not_subscribe_at_all_hears_why_also_at_the_control_address(farm: OneRealm) -> None:
    farm.policy(hub=ALL, shop='subscribe = ["orders."]', desk='call = ["x"]')
    async with (
        Publisher(ANY, trust=farm.trust("hub"), control=ANY) as publisher,
        Subscriber(publisher.address, trust=farm.trust("shop")) as shop,
    ):
        await joined(shop, publisher)
        control = publisher._rep.address
        for socket in (
            Sub(dial=publisher.address, topics=b"", trust=farm.trust("desk")),
            Req(dial=control, trust=farm.trust("desk")),
        ):
            with socket:
                await refused(socket, "right: desk may not subscribe any topic")
        publisher.publish("orders.", b"x")
        assert await bodies(shop, b"x") == [b"x"]


async def test_a_subscriber_reports_under_its_own_id_only(farm: OneRealm) -> None:
    farm.policy(hub=ALL, shop='subscribe = [""]', desk='subscribe = [""]')
    with pytest.raises(ConfigError, match="id"):
        Subscriber(ANY, trust=farm.trust("shop"), id="desk")
    async with (
        Publisher(ANY, trust=farm.trust("hub")) as publisher,
        Subscriber(publisher.address, trust=farm.trust("shop"), id="shop:2") as shop,
    ):
        await joined(shop, publisher)
        before = publisher.subscribers()
        async with Req(dial=publisher._rep.address, trust=farm.trust("desk")) as req:
            lie = REQUESTS.encode(Position("shop:2", publisher.epoch, 0, 7, 7, 1.0))
            reply = REPLIES.decode(await req.arequest(lie, timeout=WAIT))
            assert reply == RefusedQuery("binding: desk is not 'shop:2'")
            own = REQUESTS.encode(Position("desk:x", publisher.epoch, 0, 0, 0, 0.0))
            assert not isinstance(REPLIES.decode(await req.arequest(own, timeout=WAIT)), RefusedQuery)
        assert before[0].id == "shop:2"
        assert publisher.stats.refused == {"binding": 1}
        assert next(each for each in publisher.subscribers() if each.id == "shop:2").missed == 0


def forged(publisher: bytes, topic: bytes, body: bytes, number: int = 1, epoch: int = 1) -> bytes:
    return topic + body + pack_trailer(publisher, epoch, number, stamp(1, len(topic)))


async def test_a_member_does_not_publish_under_the_id_of_another(farm: OneRealm) -> None:
    farm.policy(hub=ALL, thief=ALL, shop='subscribe = [""]')
    with pytest.raises(ConfigError, match="id"):
        Publisher(ANY, trust=farm.trust("thief"), id="hub")
    with Pub(listen=ANY, trust=farm.trust("thief")) as thief:
        async with (
            Publisher(ANY, trust=farm.trust("hub"), id="hub:a") as hub,
            Subscriber([hub.address, thief.address], trust=farm.trust("shop")) as shop,
        ):
            await joined(shop, hub)
            await shop.wait_for_peers(2, WAIT)
            hub.publish("a", b"1")
            assert await bodies(shop, b"1") == [b"1"]
            thief.send(forged(hub.id, b"a", b"lie", 2**62, hub.epoch))  # would silence it
            heartbeat = HEARTBEATS.encode(PublisherHeartbeat(0.1, "tls+tcp://127.0.0.1:1"))
            thief.send(HEARTBEAT + heartbeat + pack_trailer(hub.id, hub.epoch + 1, 2**62, 1))
            thief.send(pack_trailer(hub.id, hub.epoch, 2**62, 1))
            sized = sized_headers({"a": "b"})
            thief.send(b"a" + sized + pack_trailer(hub.id, hub.epoch, 2**62, stamp(1, 1), MAGIC_HEADERS))
            thief.send(forged(publisher_id("thief"), b"a", b"own"))
            assert await bodies(shop, b"own") == [b"own"]
            hub.publish("a", b"2")
            assert await bodies(shop, b"2") == [b"2"]
            assert shop.stats.refused["binding"] == 4


async def test_a_name_that_may_carry_publishes_for_others(farm: OneRealm) -> None:
    farm.policy(relay=ALL, shop='subscribe = [""]', hub=ALL)
    with Pub(listen=ANY, trust=farm.trust("relay")) as relay:
        async with Subscriber(relay.address, trust=farm.trust("shop")) as shop:
            await shop.wait_for_peers(1, WAIT)
            relay.send(forged(publisher_id("hub:a"), b"a", b"1"))
            await aeventually(lambda: shop.stats.refused.get("binding") == 1)
            farm.policy(relay=ALL + '\ncarry = ["device"]', shop='subscribe = [""]', hub=ALL)
            relay.send(forged(publisher_id("hub:a"), b"a", b"2"))
            assert await bodies(shop, b"2") == [b"2"]


async def test_a_publisher_is_held_to_its_topics(farm: OneRealm) -> None:
    farm.policy(hub='publish = ["a."]', shop='subscribe = [""]', thief='subscribe = [""]')
    hub_trust = farm.trust("hub")
    async with (
        Publisher(ANY, trust=hub_trust, keep=Keep()) as hub,
        Publisher(ANY, trust=farm.trust("thief")) as thief,
        Subscriber([hub.address, thief.address], trust=farm.trust("shop")) as shop,
    ):
        await joined(shop, hub)
        hub.publish_many([("a.x", b"1"), ("b.x", b"2"), ("a.x", b"3")])
        events = await read(shop, lambda event: isinstance(event, Published) and event.body == b"3")
        assert [each.body for each in events if isinstance(each, Published)] == [b"1", b"3"]
        assert [each.count for each in events if isinstance(each, Gap)] == [1]
        assert shop.stats.refused["right"] >= 2  # the topic, and the publisher that may publish nothing
        assert shop.connected == 1
        async with Subscriber(hub.address, last=True, trust=farm.trust("shop")) as late:
            events = await read(late, lambda event: isinstance(event, Published))
            assert events[0].count == 1
            assert events[1].body == b"3"


async def test_without_a_policy_every_name_publishes_and_subscribes(tmp_path: Path) -> None:
    farm = OneRealm(tmp_path)
    async with (
        Publisher(ANY, trust=farm.trust("hub")) as hub,
        Subscriber(hub.address, trust=farm.trust("shop")) as shop,
    ):
        await joined(shop, hub)
        hub.publish("a", b"1")
        assert await bodies(shop, b"1") == [b"1"]


async def test_without_a_trust_ids_are_free(farm: OneRealm) -> None:
    async with (
        Publisher("tcp://127.0.0.1:0", trust=OPEN, id="any") as hub,
        Subscriber(hub.address, trust=OPEN, id="any one") as shop,
    ):
        await joined(shop, hub)
        hub.publish("a", b"1")
        assert await bodies(shop, b"1") == [b"1"]
        assert hub.stats.refused == {}
        assert "right" not in shop.stats.refused


async def test_a_device_speaks_for_the_publisher_behind_it_if_it_may_carry(farm: OneRealm) -> None:
    relayed = 'publish = [""]\nsubscribe = [""]'
    farm.policy(relay=relayed, shop='subscribe = [""]', hub=ALL)
    trust = farm.trust("relay")
    async with (
        Publisher(ANY, trust=farm.trust("hub"), heartbeat=0.1) as hub,
        Sub(dial=hub.address, topics=b"", trust=trust) as front,
        Pub(listen=ANY, trust=trust) as back,
    ):
        with pytest.raises(AccessDenied, match="right: relay may not carry device"):
            Device(front, back, trust=trust)
        async with Subscriber(back.address, trust=farm.trust("shop")) as shop, forward(front, back):
            await shop.wait_for_peers(1, WAIT)
            await front.await_for_peers(1, WAIT)
            hub.publish("a", b"1")
            await aeventually(lambda: shop.stats.refused.get("binding", 0) > 0)
        farm.policy(relay=relayed + '\ncarry = ["device"]', shop='subscribe = [""]', hub=ALL)
        async with (
            forward(front, back, trust=trust),
            Subscriber(back.address, trust=farm.trust("shop")) as shop,
        ):
            await joined(shop, hub)  # it reports to the publisher itself, whose address the heartbeats tell
            hub.publish("a", b"2")
            assert await bodies(shop, b"2") == [b"2"]
            assert "binding" not in shop.stats.refused
