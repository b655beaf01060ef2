"""Rights of consumers: who consumes under which name, and whose a session is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from nngkit.errors import AccessDenied
from nngkit.fanout import Consumer, ConsumerServer
from nngkit.fanout.durable.messages import (
    REQUESTS,
    ChangeRequest,
    DeleteRequest,
    Done,
    Fetched,
    FetchRequest,
    InfoRequest,
    Infos,
    LeaveRequest,
    Opened,
    OpenRequest,
    Settled,
    SettleRequest,
    owner_of,
    pack_runs,
    parse_reply,
)
from nngkit.protocols import Req
from nngkit.trust import OPEN
from tests.fanout.journals import numbers, write
from tests.trust.one_realm import OneRealm

ANY = "tls+tcp://127.0.0.1:0"
WAIT = 15.0
PAY, OTHER = owner_of("pay") + "1", owner_of("other") + "1"
BILLING = 'consume = ["billing"]'


@pytest.fixture
def farm(tmp_path: Path) -> OneRealm:
    return OneRealm(tmp_path / "farm")


@pytest.fixture
async def served(farm: OneRealm, tmp_path: Path) -> AsyncIterator[ConsumerServer]:
    await write(tmp_path / "j", numbers(0, 10))
    async with ConsumerServer(tmp_path / "j", listen=ANY, trust=farm.trust("hub")) as server:
        yield server


Ask = Callable[[Any, type[Any]], Awaitable[Any]]


@asynccontextmanager
async def asking(url: str, farm: OneRealm, name: str) -> AsyncIterator[Ask]:
    """Give a function that sends a request as it is."""
    async with Req(dial=url, trust=farm.trust(name)) as req:

        async def ask(request: Any, kind: type[Any]) -> Any:
            return parse_reply(await req.arequest(REQUESTS.encode(request), timeout=WAIT), kind)

        yield ask


async def take(consumer: Consumer, count: int) -> list[bytes]:
    found = []
    with trio.fail_after(WAIT):
        for _ in range(count):
            delivery = await consumer.receive()
            found.append(delivery.value)
            await delivery.ack()
    return found


def fetch(session: str) -> FetchRequest:
    return FetchRequest("billing", session, 0, 5, 1 << 20, 1 << 20, 0.1)


async def test_another_member_reads_settles_changes_and_deletes_nothing(farm: OneRealm, served: ConsumerServer) -> None:
    farm.policy(pay=BILLING, thief='consume = ["own*"]')
    async with Consumer("billing", served.address, trust=farm.trust("pay")) as honest:
        assert await take(honest, 2) == [b"0", b"1"]
        before = served.consumers("billing")
        async with asking(served.address, farm, "thief") as ask:
            session = owner_of("thief") + "1"
            for request, kind in (
                (OpenRequest("billing", session, None), Opened),
                (fetch(session), Fetched),
                (SettleRequest("billing", session, "ack", 0, pack_runs([(0, 10)])), Settled),
                (ChangeRequest("billing", {"max_deliver": 1}), Done),
                (LeaveRequest("billing", session, 0), Done),
                (InfoRequest("billing"), Infos),
                (DeleteRequest("billing"), Done),
            ):
                with pytest.raises(AccessDenied, match="right: thief may not consume billing"):
                    await ask(request, kind)
            assert (await ask(OpenRequest("own1", session, None), Opened)).options is not None
            assert {each.name for each in (await ask(InfoRequest(""), Infos)).infos} == {"own1"}
        assert served.refused == {"right": 7}
        assert [each.cursor for each in served.consumers("billing")] == [each.cursor for each in before]
        assert await take(honest, 8) == numbers(2, 10)


async def test_a_session_is_used_by_its_name_only(farm: OneRealm, served: ConsumerServer) -> None:
    farm.policy(pay=BILLING, other=BILLING, relay=BILLING + '\ncarry = ["device"]')
    async with asking(served.address, farm, "pay") as pay, asking(served.address, farm, "other") as other:
        await pay(OpenRequest("billing", PAY, None), Opened)
        assert len((await pay(fetch(PAY), Fetched)).batches) == 1
        for request, kind in (
            (OpenRequest("billing", PAY, None), Opened),
            (fetch(PAY), Fetched),
            (SettleRequest("billing", PAY, "ack", 0, pack_runs([(0, 5)])), Settled),
            (LeaveRequest("billing", PAY, 0), Done),
        ):
            with pytest.raises(AccessDenied, match=f"binding: other may not use the session '{PAY}'"):
                await other(request, kind)
        own = SettleRequest("billing", OTHER, "ack", 0, pack_runs([(0, 5)]))
        with pytest.raises(AccessDenied, match="not delivered to this session"):
            await other(own, Settled)
        await pay(SettleRequest("billing", PAY, "ack", 0, pack_runs([(0, 5)])), Settled)
        assert served.consumers("billing")[0].cursor == 5
    async with asking(served.address, farm, "relay") as relay:  # speaks for others
        assert len((await relay(fetch(PAY), Fetched)).batches) == 1
    assert served.refused == {"binding": 4}


async def test_a_right_is_taken_away_and_given_back_while_running(farm: OneRealm, served: ConsumerServer) -> None:
    farm.policy(pay=BILLING)
    async with Consumer("billing", served.address, records=1, trust=farm.trust("pay")) as consumer:
        assert await take(consumer, 1) == [b"0"]
        farm.policy(pay='consume = ["shipping"]')
        with pytest.raises(AccessDenied, match="right: pay may not consume billing"):
            await take(consumer, 10)
    farm.policy(pay=BILLING)
    async with Consumer("billing", served.address, trust=farm.trust("pay"), ack_wait=None) as consumer:
        assert (await take(consumer, 1))[0] in numbers(1, 10)


async def test_without_a_trust_sessions_and_names_are_free(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 3))
    async with (
        ConsumerServer(tmp_path / "j", listen="tcp://127.0.0.1:0", trust=OPEN) as server,
        Consumer("billing", server.address, trust=OPEN) as consumer,
    ):
        assert await take(consumer, 3) == numbers(0, 3)
        assert server.refused == {}
