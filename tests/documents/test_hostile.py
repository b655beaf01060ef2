"""Hostile BUS messages end no task: they are refused and counted, with the sender's address."""

from __future__ import annotations

import random

import pytest
import trio

from nngkit.documents.sync.exchange import Exchange
from nngkit.documents.sync.local_copy import LocalCopy
from nngkit.documents.sync.messages import Aware, Bye, Refused, Updates
from nngkit.documents.sync.wire import encode
from nngkit.documents.versions import Edit, EditStream, Versions
from nngkit.errors import NngkitError
from nngkit.protocols import Rep
from tests.documents.greetings import UNPRINTABLE, heartbeat, hello

ME, ADA, BOB = (EditStream(bytes([n]) * 8, n) for n in range(3))
AT = "tcp://10.0.0.9:51234"


class ExchangeHost:
    """A host without documents that records refusals."""

    def __init__(self) -> None:
        self.refusals: list[tuple[str, str, str]] = []

    def accepts(self, doc: str) -> bool:
        return False

    def why_closed(self, doc: str) -> str:
        return "not open"

    def document_changed(self, copy: LocalCopy, *, content: bool) -> None:
        raise AssertionError("there is no document")

    def receive_awareness(self, message: Aware) -> bool:
        raise AssertionError("there is no document")

    def peer_opened(self, peer: EditStream, docs: set[str]) -> None:
        """Do nothing."""

    def peer_left(self, peer: EditStream) -> None:
        """Do nothing."""

    def edit_refused(self, copy: LocalCopy, peer: EditStream, why: str) -> None:
        raise AssertionError("there is no document")

    def record_refusal(self, peer: str, what: str, why: str, *, level: int = 30) -> None:
        self.refusals.append((peer, what, why))

    async def wait_for_versions(self, copy: LocalCopy, versions: Versions, durable: bool, wait: float) -> bool:
        return False

    async def room(self) -> None:
        """Return at once."""


def opened(host: ExchangeHost) -> Exchange:
    return Exchange(
        ME,
        host,
        rng=random.Random(1),
        heartbeat=(0.02, 0.2),
        limit=1 << 20,
        relay=False,
        token=None,
        name=None,
        tls=None,
        trust=None,
        admit=None,
        faults=None,
    )


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"nonsense",
        b"\x9b" + b"\xff" * 8,
        b"\x00" * 300_000,
        encode(heartbeat(ME)),
        encode(heartbeat(BOB)),
        encode(Bye(BOB)),
        encode(Aware(BOB, "minutes", 1, b"\xff")),
        encode(Updates(BOB, "minutes", 1, (Edit(b"\0", {}),))),
    ],
    ids=lambda said: said[:24].hex(),
)
async def test_hostile_message_is_refused_with_its_sender_and_the_next_is_handled(said: bytes) -> None:
    host = ExchangeHost()
    exchange = opened(host)
    try:
        exchange.receiver.receive(encode(heartbeat(ADA)), 1, AT)
        assert host.refusals == []
        exchange.receiver.receive(said, 1, AT)
        ((peer, _, why),) = host.refusals
        assert AT in peer + why
        exchange.receiver.receive(encode(heartbeat(ADA, name="ada")), 1, AT)
        assert [member.name for member in exchange.members.present()] == ["ada"]
        assert len(host.refusals) == 1
    finally:
        await exchange.close()


@pytest.mark.parametrize("text", UNPRINTABLE)
@pytest.mark.parametrize("code", ["token", "behind", "busy", "refused", "unknown-document", None])
async def test_reasons_of_a_peer_are_escaped(code: str | None, text: str) -> None:
    exchange = opened(ExchangeHost())
    try:
        async with Rep(listen="tcp://127.0.0.1:0") as rep, trio.open_nursery() as nursery:

            async def refuse() -> None:
                async for question in rep:
                    await question.areply(encode(Refused(ADA, text if code is None else code, text)))

            nursery.start_soon(refuse)
            exchange.receiver.receive(encode(heartbeat(ADA, repair=(rep.address,))), 1, AT)
            with pytest.raises(NngkitError) as told:
                await exchange.ask(ADA, hello(ME), 10.0)
            assert str(told.value).isprintable()
            assert len(str(told.value)) <= 400
            nursery.cancel_scope.cancel()
    finally:
        await exchange.close()


@pytest.mark.parametrize(
    "place",
    ["tcp://10.0.0.9", "tcp://10.0.0.9:99999999", "tls+tcp://10.0.0.9:4711", "ipc://" + "x" * 500, "tcp://\0:1"],
)
async def test_invalid_repair_address_fails_only_the_request(place: str) -> None:
    exchange = opened(ExchangeHost())
    try:
        exchange.receiver.receive(encode(heartbeat(ADA, repair=(place,))), 1, AT)
        with pytest.raises(NngkitError):
            await exchange.ask(ADA, hello(ME), 0.1)
        exchange.receiver.receive(encode(heartbeat(ADA, name="ada")), 1, AT)
        assert [member.name for member in exchange.members.present()] == ["ada"]
    finally:
        await exchange.close()
