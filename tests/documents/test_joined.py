"""`await doc.joined()` brings everything that any reachable peer had at the call, also during edits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio

from nngkit.documents import Document, DocumentPeer, NetworkFaults
from nngkit.errors import TimedOut

HERE = "tcp://127.0.0.1:0"
PATIENCE = 20.0  # seconds per operation on a busy machine
PACES = (0, 1, 5, 10, 33, 100)  # edits per second


@asynccontextmanager
async def typing(document: Document, pace: int) -> AsyncIterator[None]:
    """Append letters to the text `body`, `pace` per second, during the block."""

    async def type_on() -> None:
        while True:
            document.text("body").insert(0, "x")
            await trio.sleep(1 / pace)

    async with trio.open_nursery() as nursery:
        document.text("body").insert(0, "what was there before. ")
        if pace:
            nursery.start_soon(type_on)
        yield
        nursery.cancel_scope.cancel()


async def whole(how: str, pace: int, times: int) -> int:
    """Join an editing peer `times` times; return how often everything from before the call was there."""
    found = 0
    async with DocumentPeer(listen=HERE) as ada, typing(ours := ada.open("minutes"), pace):
        for _ in range(times):
            options = {"join": ada.repair_addresses} if how == "join" else {"dial": ada.address}
            async with DocumentPeer(**options) as bob:
                theirs = bob.open("minutes")
                had = ada.versions("minutes")
                length = len(ours.text("body"))
                await theirs.joined(PATIENCE)
                here = bob.versions("minutes")
                found += len(theirs.text("body")) >= length and all(here[one] >= seq for one, seq in had.items())
    return found


@pytest.mark.parametrize("how", ["join", "dial"])
@pytest.mark.parametrize("pace", [0, 33])
async def test_joined_during_edits_has_all_edits(how: str, pace: int) -> None:
    assert await whole(how, pace, 4) == 4


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["join", "dial"])
async def test_joined_has_all_edits_200_of_200_times(how: str) -> None:
    times = [34] * 4 + [32] * 2
    found = [await whole(how, pace, count) for pace, count in zip(PACES, times, strict=True)]
    assert (sum(times), found) == (200, times)


async def test_each_joined_brings_the_state_of_its_call() -> None:
    async with DocumentPeer(listen=HERE) as ada, DocumentPeer(dial=ada.address) as bob:
        ours, theirs = ada.open("minutes"), bob.open("minutes")
        for n in range(20):
            ours.text("body").append(f"line {n}\n")
            await theirs.joined(PATIENCE)
            assert str(theirs.text("body")) == str(ours.text("body"))


async def test_joined_brings_all_edits_of_several_peers() -> None:
    cut: set[bytes] = set()
    async with AsyncExitStack() as stack:
        ada = await stack.enter_async_context(DocumentPeer(listen=HERE, faults=NetworkFaults(cut=cut)))
        bob = await stack.enter_async_context(DocumentPeer(listen=HERE))
        cut.add(bob.me.origin)
        ada.open("minutes").text("body").append("Ada's")
        bob.open("minutes").map("meta")["title"] = "Bob's"
        cy = await stack.enter_async_context(DocumentPeer(dial=[ada.address, bob.address]))
        await cy.wait_for_peers(2, PATIENCE)
        doc = cy.open("minutes")
        await doc.joined(PATIENCE)
        assert doc.plain() == {"body": "Ada's", "meta": {"title": "Bob's"}}


async def test_joined_judges_a_peer_without_rep_by_its_heartbeats() -> None:
    async with DocumentPeer(listen=HERE) as home, DocumentPeer(dial=home.address, repair=()) as outside:
        outside.open("minutes").text("body").append("x" * 400_000)  # too large for the BUS
        ours = home.open("minutes")
        await ours.joined(PATIENCE)
        assert len(ours.text("body")) == 400_000


async def test_joined_does_not_wait_for_peers_without_the_document() -> None:
    async with DocumentPeer(listen=HERE) as ada, DocumentPeer(listen=HERE) as bob:
        ada.open("minutes").text("body").append("hello")
        bob.open("something else")
        async with DocumentPeer(dial=[ada.address, bob.address]) as cy:
            await cy.wait_for_peers(2, PATIENCE)
            doc = cy.open("minutes")
            await doc.joined(PATIENCE)
            assert str(doc.text("body")) == "hello"
            nothing = cy.open("nothing")
            with pytest.raises(TimedOut, match="none of the 2 reachable peers"):
                await nothing.joined(0.5)
            assert not cy.refusals  # a peer without the document is not refused
            bob.open("nothing").text("body").append("now")
            await nothing.joined(PATIENCE)
            assert str(nothing.text("body")) == "now"
