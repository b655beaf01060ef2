"""Rights of calls: which callers a server lets in, what they may call, and what both ends say of a refusal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from nngkit.calls import Client, Server
from nngkit.calls.handlers import Calling
from nngkit.calls.messages import CallRequest, Codec, ErrorReply, parse_reply
from nngkit.errors import AccessDenied
from nngkit.protocols import Req
from nngkit.testing import aeventually
from nngkit.trust import Trust
from tests.trust.one_realm import OneRealm
from tests.trust.rooms import ANY, WAIT

HOST = 'host.* | offer = ["pay"]'
HEADS = 'head | call = ["pay"]'
CHARGING = 'desk.* | call = ["pay/charge"]'
PAYING = 'desk.* | call = ["pay"]'


@pytest.fixture
def farm(tmp_path: Path) -> OneRealm:
    realm = OneRealm(tmp_path)
    realm.policy(HOST, HEADS, CHARGING)
    return realm


@asynccontextmanager
async def paying(trust: Trust, codec: Codec | None = "cbor") -> AsyncIterator[Server]:
    """Serve `pay`, whose handlers return who calls."""

    async def whole(body: Any, calling: Calling) -> Any:
        return calling.who if codec else str(calling.who).encode()

    async def parts(body: Any, calling: Calling) -> AsyncIterator[Any]:
        yield calling.who

    server = Server("pay", whole, listen=ANY, trust=trust, codec=codec, discovery=())
    if codec is not None:
        server.method("charge")(whole)
        server.method("refund")(whole)
        server.method("list")(parts)
    async with server:
        yield server


def client(server: Server, trust: Trust | None, codec: Codec | None = "cbor", **more: Any) -> Client:
    return Client("pay", addresses=server.address, trust=trust, codec=codec, timeout=WAIT, **more)


@pytest.mark.parametrize("codec", ["cbor", "json"])
async def test_a_caller_may_call_what_is_granted_and_hears_what_is_not(farm: OneRealm, codec: Codec) -> None:
    async with paying(farm.trust("host.a"), codec) as server, client(server, farm.trust("desk.ada"), codec) as desk:
        assert await desk.request(1, method="charge") == "desk.ada"
        for method in ("refund", "", "list", "none"):
            with pytest.raises(AccessDenied) as denied:
                await desk.request(1, method=method)
            target = f"pay/{method}" if method else "pay"
            assert str(denied.value) == f"host.a refused desk.ada: it may not call {target}"
        assert server.stats.refused == {"right": 4}
        assert server.stats.errors["access denied"] == 4
        assert desk.stats.retried == 0


async def test_streams_too(farm: OneRealm) -> None:
    async with (
        paying(farm.trust("host.a")) as server,
        client(server, farm.trust("desk.ada")) as desk,
        client(server, farm.trust("head")) as head,
    ):
        assert [part async for part in head.stream(1, method="list")] == ["head"]
        with pytest.raises(AccessDenied, match=r"host\.a refused desk\.ada: it may not call pay/list"):
            await anext(desk.stream(1, method="list"))


async def test_a_service_stands_for_its_methods(farm: OneRealm) -> None:
    async with paying(farm.trust("host.a")) as server, client(server, farm.trust("head")) as head:
        for method in ("charge", "refund", ""):
            assert await head.request(1, method=method) == "head"


@pytest.mark.parametrize("codec", ["cbor", None])
async def test_a_caller_that_may_call_nothing_is_not_let_in_and_does_not_wait(
    farm: OneRealm, codec: Codec | None
) -> None:
    farm.policy(HOST, HEADS, 'desk.* | call = ["quotes"]')
    async with (
        paying(farm.trust("host.a"), codec) as server,
        client(server, farm.trust("head"), codec) as head,
        client(server, farm.trust("desk.ada"), codec) as desk,
    ):
        began = trio.current_time()
        with pytest.raises(AccessDenied, match=r"^right: desk\.ada may not call pay \(at tls\+tcp://"):
            await desk.request(b"secret")
        with pytest.raises(AccessDenied):
            await desk.wait_for_providers(timeout=WAIT)
        assert trio.current_time() - began < WAIT / 3
        assert server.stats.requests == 0
        assert server.stats.refused["right"] >= 1
        assert await head.request(b"x") == ("head" if codec else b"head")
        assert server.stats.socket.joined == 1


async def test_threads_hear_of_it_too(farm: OneRealm) -> None:
    async with paying(farm.trust("host.a")) as server, client(server, farm.trust("desk.ada")) as desk:

        def ask() -> None:
            assert desk.request_blocking(1, method="charge") == "desk.ada"
            with pytest.raises(AccessDenied, match=r"it may not call pay/refund"):
                desk.request_blocking(1, method="refund")

        await trio.to_thread.run_sync(ask)


async def test_a_policy_that_is_read_again_holds_for_the_next_call(farm: OneRealm) -> None:
    async with paying(farm.trust("host.a")) as server, client(server, farm.trust("desk.ada")) as desk:
        assert await desk.request(1, method="charge") == "desk.ada"
        farm.policy(HOST, 'desk.* | call = ["pay/refund"]')
        with pytest.raises(AccessDenied, match="it may not call pay/charge"):
            await desk.request(1, method="charge")
        assert await desk.request(1, method="refund") == "desk.ada"
        farm.policy(HOST, CHARGING)
        assert await desk.request(1, method="charge") == "desk.ada"
        assert server.stats.socket.left == 0


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["cbor", None])
async def test_a_caller_whose_last_right_is_taken_leaves_and_comes_back_with_it(
    farm: OneRealm, codec: Codec | None
) -> None:
    farm.policy(HOST, PAYING)
    async with paying(farm.trust("host.a"), codec) as server, client(server, farm.trust("desk.ada"), codec) as desk:
        assert await desk.request(b"x") == ("desk.ada" if codec else b"desk.ada")
        farm.policy(HOST)
        with pytest.raises(AccessDenied):
            await desk.request(b"x", idempotent=True)
        await aeventually(lambda: server.stats.socket.left == 1)
        farm.policy(HOST, PAYING)
        await desk_is_back(desk)
        assert await desk.request(b"x") == ("desk.ada" if codec else b"desk.ada")


async def desk_is_back(desk: Client) -> None:
    with trio.fail_after(WAIT):
        while True:
            try:
                await desk.wait_for_providers(timeout=WAIT)
            except AccessDenied:
                await trio.sleep(0.05)
            else:
                return


async def test_a_client_of_an_older_version_reads_the_reply_as_an_error(farm: OneRealm) -> None:
    async with paying(farm.trust("host.a")) as server, Req(dial=server.address, trust=farm.trust("desk.ada")) as raw:
        body = CallRequest("1", 1, "refund", WAIT).encode("cbor")
        reply = parse_reply(await raw.arequest(body, timeout=WAIT), "cbor", limit=1 << 20)
        assert reply == ErrorReply("access denied", "desk.ada: it may not call pay/refund", ran=False)


async def test_on_this_machine_callers_are_named_by_their_place_and_without_a_trust_by_nothing(farm: OneRealm) -> None:
    async def who(body: Any, calling: Calling) -> Any:
        return calling.who

    plain = "tcp://127.0.0.1:0"
    farm.policy('@local | call = ["pay"] | offer = ["pay"]')
    async with Server("pay", who, listen=plain, trust=farm.trust("host.a"), codec="cbor", discovery=()) as server:
        for trust in (None, farm.trust("desk.ada")):
            async with client(server, trust) as desk:
                assert await desk.request(1) == "@local"
    async with Server("pay", who, listen=plain, codec="cbor", discovery=()) as server, client(server, None) as desk:
        assert await desk.request(1) == "@local"
        assert (server.stats.refused, desk.stats.denied) == ({}, {})
