"""Client with providers that flap, lie, share an id, or send too much; and over TLS."""

from __future__ import annotations

import random

import pytest
import trio
import trustme

from nngkit.calls import Client, Server
from nngkit.calls.handlers import Calling
from nngkit.discovery import Service, ServiceDiscovery
from nngkit.errors import Lost, RemoteError, TimedOut
from nngkit.protocols import TLS, Request
from nngkit.testing import aeventually
from tests.calls.providers import ANY, WAIT, provider


@pytest.mark.slow
async def test_no_call_fails_while_a_provider_flaps_a_hundred_times_a_second() -> None:
    async with (
        ServiceDiscovery(listen=ANY, interval=1000) as discovery,
        provider() as steady,
        provider() as flapping,
        Service("answer", steady.address, discovery=discovery.address),
        Service("answer", flapping.address, discovery=discovery.address) as service,
        Client("answer", discovery=discovery, timeout=WAIT) as answer,
    ):
        await answer.wait_for_providers(2, timeout=WAIT)
        flapped = trio.Event()

        async def flap() -> None:
            for number in range(100):
                service.update(draining=not number % 2)
                await trio.sleep(0.01)
            flapped.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flap)
            while not flapped.is_set():
                await answer.request(b"x")
        assert answer.stats.failed == 0
        assert len(answer.stats.providers) <= 2


async def test_providers_that_share_an_id_are_both_called() -> None:
    async with (
        ServiceDiscovery(listen=ANY, interval=1000) as discovery,
        provider() as first,
        provider() as second,
        Service("answer", first.address, discovery=discovery.address, id="same"),
        Service("answer", second.address, discovery=discovery.address, id="same"),
        Client("answer", discovery=discovery, timeout=WAIT, rng=random.Random(1)) as answer,
    ):
        await answer.wait_for_providers(2, timeout=WAIT)
        for _ in range(20):
            await answer.request(b"x")
        assert first.seen
        assert second.seen


async def test_a_reply_over_the_limit_costs_its_sender_the_connection_and_no_other_call() -> None:
    async def huge(request: Request) -> None:
        await request.areply(bytes(10 << 20))

    async with provider(handler=huge) as bad, provider() as good:
        async with Client("answer", addresses=bad.address) as answer:
            with pytest.raises(Lost):
                await answer.request(b"x", timeout=WAIT)
        both = [bad.address, good.address]
        async with Client("answer", addresses=both, timeout=WAIT, idempotent=True, rng=random.Random(2)) as answer:
            for _ in range(10):
                assert await answer.request(b"x") == good.address.encode() + b" x"


async def test_an_address_with_another_protocol_gets_no_call() -> None:
    """A provider that lies about its address: a listener there, but not a REP."""
    from nngkit.protocols import Pub

    with Pub(listen=ANY) as pub:
        async with Client("answer", addresses=pub.address) as answer:
            with pytest.raises(TimedOut, match="is not connected"):
                await answer.request(b"x", timeout=0.3)


@pytest.fixture(scope="module")
def certificates() -> tuple[TLS, TLS]:
    """TLS of a server whose callers must present a certificate, and of a caller named "caller"."""
    authority = trustme.CA()
    ca = authority.cert_pem.bytes().decode()

    def made(name: str) -> TLS:
        issued = authority.issue_cert(name, common_name=name)
        cert = "".join(blob.bytes().decode() for blob in issued.cert_chain_pems)
        return TLS(ca=ca, cert=cert, key=issued.private_key_pem.bytes().decode())

    return made("127.0.0.1"), made("caller")


async def test_both_ends_verify_each_other_over_tls(certificates: tuple[TLS, TLS]) -> None:
    async def names(body: None, calling: Calling) -> list[str | None]:
        assert calling.peer is not None
        return [calling.peer.peer_name, *calling.peer.alt_names]

    server_tls, caller_tls = certificates
    async with (
        ServiceDiscovery(listen=ANY, interval=1000) as discovery,
        Server(
            "answer", names, discovery=discovery.address, listen="tls+tcp://127.0.0.1:0", codec="cbor", tls=server_tls
        ) as server,
        Client("answer", discovery=discovery, codec="cbor", tls=caller_tls, timeout=WAIT) as answer,
        Client("answer", discovery=discovery, codec="cbor", tls=TLS(ca=caller_tls.ca)) as stranger,
    ):
        assert server.address.startswith("tls+tcp://127.0.0.1:")
        assert "caller" in await answer.request(None)
        with pytest.raises((TimedOut, RemoteError)):
            await stranger.request(None, timeout=0.5)
        await aeventually(lambda: server.stats.requests == 1)
