"""DocumentPeer, over real sockets."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from nngkit.documents import Document, DocumentPeer, EditStream, NetworkFaults
from nngkit.documents.store.sqlite import Store
from nngkit.documents.store.writer import Writer
from nngkit.documents.sync import exchange, proofs
from nngkit.documents.sync.messages import (
    Aware,
    Diff,
    DocumentHeartbeat,
    Introduction,
    Invitation,
    Manifest,
    Nack,
    Proof,
    Prove,
    Range,
    Updates,
    Want,
    Welcome,
)
from nngkit.documents.sync.wire import decode_reply, decode_request, encode
from nngkit.documents.versions import Edit
from nngkit.errors import AccessDenied, Broken, Closed, ConfigError, NotFound, TimedOut
from nngkit.protocols import Bus, Rep, Req
from nngkit.testing import aeventually
from tests.documents.greetings import heartbeat, hello

HERE = "tcp://127.0.0.1:0"
PATIENCE = 20.0  # seconds per operation on a busy machine; events are awaited, not times
STRANGER = EditStream(b"stranger", 1)


@asynccontextmanager
async def mesh(n: int, **options: Any) -> AsyncIterator[list[DocumentPeer]]:
    """Open `n` peers that are all connected."""
    async with AsyncExitStack() as stack:
        peers: list[DocumentPeer] = []
        for _ in range(n):
            dial = [peer.address for peer in peers]
            peers.append(await stack.enter_async_context(DocumentPeer(listen=HERE, dial=dial, **options)))
        for peer in peers:
            await peer.wait_for_peers(n - 1, PATIENCE)
        yield peers


async def alike(*documents: Document) -> None:
    await aeventually(lambda: len({document.digest() for document in documents}) == 1)


# ---- edits


async def test_edit_reaches_every_peer() -> None:
    async with mesh(3) as peers:
        docs = [peer.open("minutes") for peer in peers]
        docs[0].text("body").insert(0, "hello")
        await aeventually(lambda: all(str(doc.text("body")) == "hello" for doc in docs))


async def test_concurrent_edits_converge() -> None:
    async with mesh(4) as peers:
        docs = [peer.open("minutes") for peer in peers]
        for round_ in range(20):
            for number, doc in enumerate(docs):
                doc.text("body").insert(0, f"{number}ö\U0001f600")
                doc.map("table")[f"cell {round_}"] = number
                doc.array("list").append([number, round_])
            await trio.lowlevel.checkpoint()
        await aeventually(lambda: all(len(doc.text("body")) == 4 * 20 * 3 for doc in docs))
        await alike(*docs)
        assert len(docs[0].array("list")) == 80


async def test_documents_are_independent() -> None:
    async with mesh(2) as (a, b):
        a.open("one").text("body").insert(0, "1")
        a.open("two").text("body").insert(0, "2")
        one = b.open("one")
        await aeventually(lambda: str(one.text("body")) == "1")
        assert set(b.documents) == {"one"}
        await aeventually(lambda: b.stats.not_open > 0)
        delivered = b.stats.delivered
        b.close_document("one")
        assert b.stats.delivered == delivered > 0  # a total does not fall


async def test_change_names_its_author() -> None:
    async with mesh(2) as (a, b):
        ours, theirs = a.open("minutes"), b.open("minutes")
        async with trio.open_nursery() as nursery:
            seen = []

            async def read() -> None:
                async for change in theirs.changes():
                    seen.append(change)
                    return

            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked(0.01)
            ours.text("body").insert(0, "x")
        assert seen[0].peer == str(a.me)


async def test_late_peer_gets_all_edits() -> None:
    async with DocumentPeer(listen=HERE) as a:
        doc = a.open("minutes")
        doc.text("body").insert(0, "long ago")
        async with DocumentPeer(dial=a.address) as b:
            late = b.open("minutes")
            await late.joined(PATIENCE)
            assert str(late.text("body")) == "long ago"


async def test_large_document_is_transferred_in_verified_chunks() -> None:
    async with DocumentPeer(listen=HERE) as a:
        doc = a.open("book")
        doc.text("body").insert(0, "".join(chr(97 + i * i % 23) for i in range(3 << 20)))
        async with DocumentPeer(dial=a.address) as b:
            late = b.open("book")
            await late.joined(PATIENCE)
            assert late.digest() == doc.digest()
            assert a.stats.answered["Pull"] >= 1


async def test_edit_too_large_for_the_bus_arrives() -> None:
    async with mesh(2) as (a, b):
        ours, theirs = a.open("book"), b.open("book")
        await theirs.joined(PATIENCE)
        ours.text("body").insert(0, "x" * (2 << 20))
        ours.text("body").insert(0, "y")
        await aeventually(lambda: len(theirs.text("body")) == (2 << 20) + 1)


async def test_peer_without_rep_pushes_lost_edits_of_a_document_too_large_to_push() -> None:
    async with (
        DocumentPeer(listen=HERE, faults=NetworkFaults(loss=0.5)) as home,
        DocumentPeer(dial=home.address, repair=()) as outside,
    ):
        texts = [peer.open("minutes").text("body") for peer in (home, outside)]
        await home.wait_for_peers(1, PATIENCE)
        texts[0].append("x" * 6_000_000)  # over the limit of 4 MiB for a request
        await aeventually(lambda: len(texts[1]) == 6_000_000)
        asked = outside.stats.request_bytes
        texts[1].append("y" * 400_000)  # too large for the BUS
        for _ in range(40):
            texts[1].append("z")
            await trio.sleep(0.002)
        await aeventually(lambda: len(texts[0]) == 6_400_040)
        assert not home.refusals
        assert not outside.refusals
        assert 400_000 < outside.stats.request_bytes - asked < 2_000_000


async def test_joined_times_out_without_peers() -> None:
    async with DocumentPeer(listen=HERE) as a:
        with pytest.raises(TimedOut, match="no peer was reached"):
            await a.open("minutes").joined(0.05)


# ---- bad networks


@pytest.mark.slow
@pytest.mark.parametrize("loss", [0.3, 0.7])
async def test_lost_messages_are_repaired(loss: float) -> None:
    async with mesh(3, faults=NetworkFaults(loss=loss, delay=0.005)) as peers:
        docs = [peer.open("minutes") for peer in peers]
        for number in range(60):
            docs[number % 3].text("body").insert(0, "x")
            await trio.sleep(0.002)
        await aeventually(lambda: all(len(doc.text("body")) == 60 for doc in docs))
        await alike(*docs)


async def test_partition_heals() -> None:
    weathers = [NetworkFaults() for _ in range(4)]
    async with AsyncExitStack() as stack:
        peers: list[DocumentPeer] = []
        for faults in weathers:
            dial = [peer.address for peer in peers]
            peers.append(await stack.enter_async_context(DocumentPeer(listen=HERE, dial=dial, faults=faults)))
        for peer in peers:
            await peer.wait_for_peers(3, PATIENCE)
        docs = [peer.open("minutes") for peer in peers]
        docs[0].text("body").insert(0, "before ")
        await alike(*docs)
        halves = [{peer.me.origin for peer in half} for half in (peers[:2], peers[2:])]
        for number, faults in enumerate(weathers):
            faults.cut = halves[number < 2]
        docs[1].text("body").insert(0, "left ")
        docs[2].text("body").insert(0, "right ")
        await aeventually(lambda: "left" in str(docs[0].text("body")) and "right" in str(docs[3].text("body")))
        assert "right" not in str(docs[0].text("body"))
        for faults in weathers:
            faults.cut = set()
        await alike(*docs)
        assert sorted(str(docs[0].text("body")).split()) == ["before", "left", "right"]


async def test_chain_of_relays_forwards_all_edits() -> None:
    async with AsyncExitStack() as stack:
        peers: list[DocumentPeer] = []
        for _ in range(4):
            dial = [peers[-1].address] if peers else []
            peers.append(await stack.enter_async_context(DocumentPeer(listen=HERE, dial=dial, relay=True)))
        docs = [peer.open("minutes") for peer in peers]
        for peer in peers:
            await peer.wait_for_peers(1, PATIENCE)
        docs[0].text("body").insert(0, "from one end")
        docs[3].text("body").insert(0, "from the other ")
        await aeventually(lambda: all(len(doc.text("body")) == 27 for doc in docs))
        await alike(*docs)


async def test_ring_of_relays_does_not_loop() -> None:
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(DocumentPeer(listen=HERE, relay=True)) for _ in range(3)]
        for number, peer in enumerate(peers):
            peer.dial(peers[number - 1].address)
        docs = [peer.open("minutes") for peer in peers]
        for peer in peers:
            await peer.wait_for_peers(2, PATIENCE)
        docs[0].text("body").insert(0, "x")
        await alike(*docs)
        said = [peer.stats.sent for peer in peers]
        await trio.sleep(0.5)
        # Heartbeats only, at most ten per second.
        assert all(peer.stats.sent - before < 10 for peer, before in zip(peers, said, strict=True))


# ---- the disk


async def test_durable_edits_outlive_the_peer(tmp_path: Path) -> None:
    store = tmp_path / "docs.sqlite"
    async with DocumentPeer(store=store) as peer:
        doc = peer.open("minutes")
        doc.text("body").insert(0, "kept")
        await doc.durable()
        first = peer.me
    async with DocumentPeer(store=store) as peer:
        assert str(peer.open("minutes").text("body")) == "kept"
        assert peer.me.origin == first.origin
        assert peer.me.epoch > first.epoch


async def test_durable_requires_a_store() -> None:
    async with DocumentPeer() as peer:
        with pytest.raises(ConfigError, match="store"):
            await peer.open("minutes").durable()


async def test_synced_counts_disks_of_other_peers(tmp_path: Path) -> None:
    async with (
        DocumentPeer(listen=HERE, store=tmp_path / "a") as a,
        DocumentPeer(dial=a.address, store=tmp_path / "b") as b,
        DocumentPeer(dial=a.address) as forgetful,
    ):
        doc = a.open("minutes")
        b.open("minutes")
        forgetful.open("minutes")
        await a.wait_for_peers(2, PATIENCE)
        doc.text("body").insert(0, "x")
        await doc.synced(1, PATIENCE)
        with pytest.raises(TimedOut, match="1 of 2"):
            await doc.synced(2, 0.3)


async def test_restarted_peer_gets_its_own_edits_back(tmp_path: Path) -> None:
    store = tmp_path / "docs.sqlite"
    async with DocumentPeer(listen=HERE) as other:
        theirs = other.open("minutes")
        async with DocumentPeer(dial=other.address, store=store) as peer:
            doc = peer.open("minutes")
            doc.text("body").insert(0, "mine")
            await aeventually(lambda: str(theirs.text("body")) == "mine")
        store.unlink()  # the disk is lost: everything comes back from other peers
        async with DocumentPeer(dial=other.address, store=store) as peer:
            doc = peer.open("minutes")
            await aeventually(lambda: str(doc.text("body")) == "mine")


async def test_unsent_edits_are_sent_after_a_restart(tmp_path: Path) -> None:
    store = tmp_path / "docs.sqlite"
    async with DocumentPeer(store=store) as alone:
        alone.open("minutes").text("body").insert(0, "unsent")
    async with DocumentPeer(listen=HERE) as other, DocumentPeer(dial=other.address, store=store) as peer:
        theirs = other.open("minutes")
        peer.open("minutes")
        await aeventually(lambda: str(theirs.text("body")) == "unsent")


async def test_saved_versions_can_be_read(tmp_path: Path) -> None:
    async with DocumentPeer(store=tmp_path / "docs.sqlite") as peer:
        doc = peer.open("minutes")
        doc.text("body").insert(0, "first")
        await doc.save_version("one")
        doc.text("body").insert(0, "second ")
        assert [saved.name for saved in doc.saved_versions()] == ["one"]
        assert str(doc.at("one").text("body")) == "first"
        with pytest.raises(NotFound):
            doc.at("two")
        with pytest.raises(ConfigError):
            doc.at("one").text("body").insert(0, "x")


# ---- joining


@pytest.mark.parametrize("what", ["name", "token"])
@pytest.mark.parametrize(("text", "why"), [("a\ud83d", "lone surrogate"), ("é" * 513, "longer than 1024")])
def test_name_or_token_that_cannot_be_sent_is_rejected(what: str, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"^{what}: .*{why}"):
        DocumentPeer(**{what: text})  # type: ignore[arg-type]


async def test_joining_needs_an_address_and_the_token() -> None:
    async with DocumentPeer(listen="ws://127.0.0.1:0/notes", token="secret") as a:
        doc = a.open("minutes")
        doc.text("body").insert(0, "told to friends")
        [repair] = a.repair_addresses
        async with DocumentPeer(join=repair, token="secret") as friend:
            theirs = friend.open("minutes")
            await aeventually(lambda: str(theirs.text("body")) == "told to friends")
        async with DocumentPeer(join=repair, token="wrong") as stranger:
            with pytest.raises(AccessDenied, match="token"):
                await stranger.wait_for_peers(1, PATIENCE)
            with pytest.raises(AccessDenied, match="token"):
                await stranger.open("minutes").joined(PATIENCE)
        assert any("token" in refusal.why for refusal in a.refusals)


async def test_refusal_after_a_restart_is_reported_as_at_first_contact_and_ends_with_the_right_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "JOIN_RETRY", 0.05)
    monkeypatch.setattr(exchange, "DENIED_RETRY", 0.1)

    def home(token: str, port: int = 0) -> DocumentPeer:
        return DocumentPeer(listen=f"ws://127.0.0.1:{port}", token=token, accept=lambda _: True)

    async with home("first") as first:
        [repair] = first.repair_addresses
    port = int(repair.split(":")[2].split("/")[0])
    async with DocumentPeer(join=repair, token="first") as friend:
        doc = friend.open("minutes")
        async with home("first", port):
            await friend.wait_for_peers(1, PATIENCE)
        async with home("second", port):
            await aeventually(lambda: any("AccessDenied" in one.why for one in friend.refusals), timeout=PATIENCE)
            assert [one.what for one in friend.refusals] == ["join"]
            for wait in (doc.joined, doc.synced):
                with trio.fail_after(PATIENCE), pytest.raises(AccessDenied, match="token"):
                    await wait()
        async with home("first", port) as again:
            await aeventually(lambda: any(info.stream == again.me for info in friend.peers), timeout=PATIENCE)
            await doc.joined(PATIENCE)


async def test_with_a_token_a_peer_is_joined_and_not_dialed() -> None:
    async with DocumentPeer(listen="ws://127.0.0.1:0", token="secret") as a:
        with Bus(dial=a.address) as bus, pytest.raises(TimedOut, match="403 Forbidden"):
            await bus.await_for_peers(1, timeout=0.3)
        with pytest.raises(ConfigError, match=r"^dial: .*join its REP address"):
            async with DocumentPeer(dial=a.address, token="secret"):
                raise AssertionError("entered")


async def test_a_peer_that_has_joined_with_a_token_comes_back_after_each_loss() -> None:
    async with (
        DocumentPeer(listen="ws://127.0.0.1:0", token="secret") as a,
        DocumentPeer(join=a.repair_addresses, token="secret") as b,
    ):
        ours, theirs = a.open("minutes").text("body"), b.open("minutes").text("body")
        for number in range(3):
            ours.append(str(number))
            await aeventually(lambda: str(theirs) == str(ours), timeout=PATIENCE)
            await aeventually(lambda: not b._exchange.bus.dialed, timeout=PATIENCE)  # what was used is not dialed again
            (pipe,) = a._exchange.bus.pipes
            a._exchange.bus.disconnect(pipe)
        await aeventually(lambda: len(a._exchange.bus.pipes) == 1, timeout=PATIENCE)


async def test_a_peer_that_is_joined_at_two_addresses_with_a_token_stays_connected() -> None:
    async with (
        DocumentPeer(listen=["ws://127.0.0.1:0", "ws://127.0.0.1:0"], token="secret") as a,
        DocumentPeer(join=a.repair_addresses, token="secret") as b,
    ):
        await b.wait_for_peers(1, PATIENCE)
        await aeventually(lambda: not b._exchange.bus.dialed, timeout=PATIENCE)
        pipes, heard = b._exchange.bus.pipes, b.stats.received
        await aeventually(lambda: b.stats.received > heard + 4, timeout=PATIENCE)
        assert set(pipes) <= set(b._exchange.bus.pipes)


async def test_token_requires_a_websocket_bus() -> None:
    with pytest.raises(ConfigError, match="ws://"):
        DocumentPeer(listen=HERE, token="secret")


async def test_accept_opens_announced_documents() -> None:
    async with (
        DocumentPeer(listen=HERE, accept=lambda name: name.startswith("open/")) as a,
        DocumentPeer(dial=a.address) as b,
    ):
        b.open("open/minutes").text("body").insert(0, "x")
        b.open("closed/minutes").text("body").insert(0, "x")
        await aeventually(lambda: "open/minutes" in a.documents)
        await aeventually(lambda: str(a.documents["open/minutes"].text("body")) == "x")
        assert "closed/minutes" not in a.documents


# ---- awareness


async def test_awareness_is_seen_by_all_and_ends_with_the_peer() -> None:
    async with DocumentPeer(listen=HERE) as a:
        doc = a.open("minutes")
        doc.awareness.local = {"user": "Ada"}
        async with DocumentPeer(dial=a.address) as b:
            theirs = b.open("minutes")
            await aeventually(lambda: {"user": "Ada"} in theirs.awareness.states.values())
            theirs.awareness.local = {"user": "Grace"}
            await aeventually(lambda: {"user": "Grace"} in doc.awareness.states.values())
        await aeventually(lambda: list(doc.awareness.states.values()) == [{"user": "Ada"}])


async def test_new_peer_of_a_relay_sees_awareness_behind_it_at_once() -> None:
    async with (
        DocumentPeer(listen=HERE, relay=True, accept=lambda name: True) as home,
        DocumentPeer(dial=home.address) as early,
    ):
        early.open("minutes").awareness.local = {"user": "Ada"}
        await aeventually(lambda: "minutes" in home.documents)
        await aeventually(lambda: {"user": "Ada"} in home.documents["minutes"].awareness.states.values())
        async with DocumentPeer(dial=home.address) as late:
            theirs = late.open("minutes")
            theirs.awareness.local = {"user": "Grace"}
            with trio.fail_after(5.0):  # long before the next renewal
                await aeventually(lambda: {"user": "Ada"} in theirs.awareness.states.values())
            await aeventually(lambda: {"user": "Grace"} in early.documents["minutes"].awareness.states.values())
            assert [peer.refusals for peer in (home, early, late)] == [(), (), ()]  # an echo is not refused
        with trio.fail_after(5.0):
            await aeventually(lambda: list(early.documents["minutes"].awareness.states.values()) == [{"user": "Ada"}])


@pytest.mark.slow
async def test_relay_forwards_awareness_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nngkit.documents._host.RENEW", 0.1)
    monkeypatch.setattr("nngkit.documents.awareness.TIMEOUT", 1.0)
    async with (
        DocumentPeer(listen=HERE, relay=True, accept=lambda name: True) as home,
        DocumentPeer(dial=home.address) as one,
        DocumentPeer(dial=home.address) as other,
    ):
        one.open("minutes").awareness.local = {"user": "Ada"}
        theirs = other.open("minutes")
        await aeventually(lambda: {"user": "Ada"} in theirs.awareness.states.values())
        watched = trio.current_time() + 2.0
        while trio.current_time() < watched:
            assert {"user": "Ada"} in theirs.awareness.states.values()
            await trio.sleep(0.05)


async def test_peers_report_names_and_documents() -> None:
    async with DocumentPeer(listen=HERE, name="left") as a, DocumentPeer(dial=a.address, name="right") as b:
        b.open("minutes")
        await aeventually(lambda: any("minutes" in peer.documents for peer in a.peers))
        [info] = a.peers
        assert (info.name, info.stream, info.askable) == ("right", b.me, True)


# ---- hostile input


@asynccontextmanager
async def stranger(peer: DocumentPeer, me: EditStream = STRANGER) -> AsyncIterator[Bus]:
    """A connection to the BUS that sends an honest heartbeat first."""
    async with Bus(dial=peer.address) as bus:
        await bus.await_for_peers(1, PATIENCE)
        bus.send(encode(heartbeat(me)))
        await aeventually(lambda: any(info.stream == me for info in peer.peers))
        yield bus


async def refused(peer: DocumentPeer, word: str) -> None:
    await aeventually(lambda: any(word in refusal.why for refusal in peer.refusals))


async def test_garbage_is_refused_with_its_sender() -> None:
    async with DocumentPeer(listen=HERE) as peer:
        doc = peer.open("minutes")
        doc.text("body").insert(0, "safe")
        async with stranger(peer) as bus:
            bus.send(b"\xff" * 100)
            await aeventually(lambda: bool(peer.refusals))
            assert "127.0.0.1" in peer.refusals[0].peer
            assert str(doc.text("body")) == "safe"


async def test_messages_in_the_name_of_another_peer_are_refused() -> None:
    async with mesh(2) as (a, b):
        doc = a.open("minutes")
        b.open("minutes").text("body").insert(0, "said by b")
        await aeventually(lambda: str(doc.text("body")) == "said by b")
        async with stranger(a) as bus:
            before = doc.digest()
            bus.send(encode(Updates(b.me, "minutes", 2, (Edit(b"\0\0", {}),))))
            await refused(a, f"it sends for {b.me}")
            bus.send(encode(heartbeat(b.me)))
            await aeventually(lambda: sum("it sends for" in one.why for one in a.refusals) == 2)
            assert doc.digest() == before


async def test_invalid_update_changes_nothing() -> None:
    async with DocumentPeer(listen=HERE) as peer:
        doc = peer.open("minutes")
        doc.text("body").insert(0, "safe")
        async with stranger(peer) as bus:
            bus.send(encode(Updates(STRANGER, "minutes", 1, (Edit(b"this is no update", {}),))))
            await refused(peer, "edit 1")
            assert str(doc.text("body")) == "safe"


async def test_messages_before_the_first_heartbeat_are_ignored() -> None:
    async with DocumentPeer(listen=HERE) as peer, Bus(dial=peer.address) as bus:
        peer.open("minutes")
        await bus.await_for_peers(1, PATIENCE)
        bus.send(encode(Updates(STRANGER, "minutes", 1, (Edit(b"\0\0", {}),))))
        await aeventually(lambda: peer.stats.early == 1)
        assert peer.stats.delivered == 0


async def test_name_that_would_leave_its_folder_is_refused() -> None:
    async with DocumentPeer(listen=HERE, accept=lambda name: True) as peer:
        async with stranger(peer) as bus:
            wire = encode(heartbeat(STRANGER, (DocumentHeartbeat("minutes", None, None, {}),)))
            bus.send(wire.replace(b"gminutes", b"g../etc."))
            await refused(peer, "segment")
        assert not peer.documents


async def test_awareness_of_a_megabyte_is_refused() -> None:
    async with DocumentPeer(listen=HERE) as peer:
        peer.open("minutes")
        async with stranger(peer) as bus:
            bus.send(encode(Aware(STRANGER, "minutes", 1, b"x" * 20_000)))
            await refused(peer, "Aware: field 'state'")


async def test_announced_gigabyte_is_not_fetched() -> None:
    """A hostile peer answers a Want with a manifest over `max_document`."""
    from nngkit.documents.sync.messages import Diff
    from nngkit.protocols import Rep

    async with Rep(listen=HERE) as rep, DocumentPeer(listen=HERE, max_document=1 << 20) as peer:
        peer.open("minutes")
        async with stranger(peer) as bus, trio.open_nursery() as nursery:

            async def lie() -> None:
                async for question in rep:
                    size = 1 << 30
                    manifest = Manifest(b"t" * 16, size, 1 << 18, b"h" * 32, (b"h" * 32,) * (size >> 18))
                    await question.areply(encode(Diff(STRANGER, "minutes", manifest, {STRANGER: 1000})))

            nursery.start_soon(lie)
            heads = {STRANGER: 1000}
            bus.send(
                encode(heartbeat(STRANGER, (DocumentHeartbeat("minutes", None, None, heads),), repair=(rep.address,)))
            )
            await refused(peer, "over the limit")
            nursery.cancel_scope.cancel()


async def ask(req: Req, message: Any) -> Any:
    return decode_reply(await req.arequest(message if isinstance(message, bytes) else encode(message), PATIENCE))


async def test_requests_are_refused_with_a_reason() -> None:
    async with DocumentPeer(listen=HERE) as peer, Req(dial=peer.repair_addresses[0]) as req:
        doc = peer.open("minutes")
        doc.text("body").insert(0, "x")
        reply = await ask(req, b"\xff")
        assert reply.code == "bad"
        newer = encode(hello(STRANGER)).replace(b"\xa1\x61v\x01", b"\xa1\x61v\x02")
        reply = await ask(req, newer)
        assert (reply.code, "version 2" in reply.why) == ("version", True)
        reply = await ask(req, Want(STRANGER, None, "elsewhere", None, {}))
        assert reply.code == "unknown-document"
        reply = await ask(req, Want(STRANGER, None, "minutes", b"\xff\xff\xff\xff\xff", {}))
        assert reply.code == "bad"
        reply = await ask(req, Nack(STRANGER, None, "minutes", (Range(*STRANGER, 1, 2**53 - 1),)))
        assert (reply.updates, reply.rest) == ((), True)


async def test_request_for_another_store_is_refused_before_the_token_is_checked() -> None:
    async with DocumentPeer(listen="ws://127.0.0.1:0/notes", token="secret") as peer:
        with Req(dial=peer.repair_addresses[0]) as req:
            for token in ("secret", "of the other store", None):
                reply = await ask(req, hello(STRANGER, token, store=b"another_"))
                assert (reply.code, reply.why) == ("store", "another store is served here now")
            reply = await ask(req, hello(STRANGER, "secret", store=peer.me.origin))
            assert isinstance(reply, Prove)  # the token itself counts for nothing
            reply = await ask(req, proof(reply, "wrong"))
            assert reply.code == "token"


def proof(asked: Prove, token: str, **about: Any) -> Proof:
    own = secrets.token_bytes(32)
    tag = proofs.mac(token, proofs.ASKING, asked.nonce, own, STRANGER)
    return Proof(STRANGER, asked.nonce, own, tag, Introduction(**about))


async def test_a_token_is_proven_on_each_connection_and_by_both_ends() -> None:
    async with DocumentPeer(listen="ws://127.0.0.1:0/notes", token="secret") as peer:
        peer.open("minutes").text("body").insert(0, "hello")
        want = Want(STRANGER, "secret", "minutes", None, {})
        with Req(dial=peer.repair_addresses[0]) as req, Req(dial=peer.repair_addresses[0]) as other:
            asked = await ask(req, hello(STRANGER))
            assert await ask(req, want) == asked
            proven = proof(asked, "secret")
            welcome = await ask(req, proven)
            assert welcome.about.mac == proofs.mac("secret", proofs.ASKED, proven.nonce, proven.own, STRANGER)
            (url,) = welcome.about.bus
            assert url.partition("?")[0] == peer.address
            assert isinstance(await ask(req, want), Diff)
            assert (await ask(other, proven)).code == "token"  # it was used
            assert isinstance(await ask(other, want), Prove)


async def test_a_session_has_a_path_of_its_own_for_one_connection() -> None:
    async with DocumentPeer(listen="ws://127.0.0.1:0/notes", token="secret") as peer:
        with Req(dial=peer.repair_addresses[0]) as req:
            welcome = await ask(req, proof(await ask(req, hello(STRANGER)), "secret"))
            other = await ask(req, hello(STRANGER))  # proven now
        (url,), (second,) = welcome.about.bus, other.about.bus
        base, _, session = url.partition("?")
        assert peer.address.startswith(base)
        assert (len(session), url != second) == (32, True)
        for wrong in (base, f"{base}?", f"{base}?{'0' * 32}"):
            with Bus(dial=wrong) as bus, pytest.raises(TimedOut):
                await bus.await_for_peers(1, timeout=0.3)
        with Bus(dial=url) as bus, Bus(dial=second) as another:
            for each in (bus, another):
                await each.await_for_peers(1, timeout=PATIENCE)
            with Bus(dial=url) as again, pytest.raises(TimedOut):
                await again.await_for_peers(1, timeout=0.3)


async def test_a_peer_that_does_not_have_the_token_is_not_joined() -> None:
    """It asks for a proof, and answers with a welcome of its own."""
    with Rep(listen="ws://127.0.0.1:0/repair") as rep:

        async def answer() -> None:
            async for question in rep:
                request = decode_request(question.body)
                reply = Welcome(STRANGER, Invitation(1, mac=b"x" * 32))
                asked = isinstance(request, Proof)
                await question.areply(encode(reply if asked else Prove(STRANGER, b"n" * 32)))

        async with trio.open_nursery() as nursery, DocumentPeer(join=rep.address, token="secret") as peer:
            nursery.start_soon(answer)
            with pytest.raises(AccessDenied, match="does not prove the token"):
                await peer.wait_for_peers(1, PATIENCE)
            nursery.cancel_scope.cancel()


def test_challenges_and_sessions_end_in_ten_seconds_and_are_bounded() -> None:
    gate = proofs.Gate("secret")
    asked = Prove(STRANGER, gate.challenge(1, b"n" * 32, 0.0))
    assert gate.check(proof(asked, "secret"), 10.1) is None
    assert not gate.has_proven(1)
    assert gate.challenge(1, b"n" * 32, 0.0) == gate.challenge(1, b"o" * 32, 5.0) == b"n" * 32
    assert gate.challenge(2, b"p" * 32, 0.0) != gate.challenge(2, b"o" * 32, 5.1)
    assert gate.check(proof(asked, "secret"), 10.0) is not None
    assert gate.has_proven(1)
    old, new = gate.session(b"a" * 16, 0.0), gate.session(b"b" * 16, 0.0)
    assert not gate.enter(old, 1, 10.1)
    assert gate.enter(new, 1, 10.0)
    assert not gate.enter(new, 1, 10.0)
    first = gate.session(b"c" * 16, 0.0)
    for number in range(proofs.MOST):
        gate.session(number.to_bytes(16, "big"), 0.0)
    assert not gate.enter(first, 1, 0.0)


# ---- the end


async def test_last_edits_are_published_before_leaving() -> None:
    async with DocumentPeer(listen=HERE) as a:
        doc = a.open("minutes")
        async with DocumentPeer(dial=a.address) as b:
            theirs = b.open("minutes")
            await theirs.joined(PATIENCE)
            theirs.text("body").insert(0, "good-bye")
        await aeventually(lambda: str(doc.text("body")) == "good-bye")
        assert not a.peers


async def test_closed_peer_opens_no_document() -> None:
    async with DocumentPeer() as peer:
        doc = peer.open("minutes")
    with pytest.raises(Closed):
        peer.open("other")
    with pytest.raises(Closed):
        await doc.durable()


async def test_store_belongs_to_one_peer(tmp_path: Path) -> None:
    async with DocumentPeer(store=tmp_path / "docs.sqlite"):
        with pytest.raises(ConfigError, match=r"docs\.sqlite"):
            async with DocumentPeer(store=tmp_path / "docs.sqlite"):
                raise AssertionError("entered")


async def test_failed_disk_raises_in_waiters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with DocumentPeer(store=tmp_path / "docs.sqlite") as peer:
        doc = peer.open("minutes")
        store = peer._host.store
        assert store is not None

        def broken(*_: object) -> int:
            raise Broken("no space left")

        monkeypatch.setattr(type(store), "append", broken)
        doc.text("body").insert(0, "x")
        with pytest.raises(Broken, match="no space"):
            await doc.durable()
        assert str(doc.text("body")) == "x"


async def test_a_document_is_closed_after_its_last_edits_and_its_awareness_have_gone() -> None:
    async with mesh(2) as (one, other):
        there = other.open("minutes")
        here = one.open("minutes")
        here.awareness.local = {"name": "Ada"}
        await aeventually(lambda: there.awareness.states)
        here.text("body").append("the last words")
        one.close_document("minutes")
        await aeventually(lambda: there.plain() == {"body": "the last words"})
        await aeventually(lambda: not there.awareness.states, 2.0)


async def test_closing_a_document_ends_the_wait_for_it() -> None:
    async with mesh(2) as (one, _), trio.open_nursery() as nursery:

        async def wait() -> None:
            with pytest.raises(Closed), trio.fail_after(PATIENCE):
                await document.joined()

        document = one.open("only here")
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked(0.1)
        one.close_document("only here")


async def test_a_document_that_is_opened_again_has_edits_that_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nngkit.documents.peer.Store.open", partial(Store.open, waiting=1))  # one edit at a time
    words = [str(number) for number in range(100)]
    async with DocumentPeer(store=tmp_path / "store") as peer:
        for word in words:
            peer.open("minutes").array("words").append(word)
            versions = peer.versions("minutes")
            peer.close_document("minutes")
            document = peer.open("minutes")
            assert (document.array("words")[-1], peer.versions("minutes")) == (word, versions)
        peer.close_document("minutes")
    async with DocumentPeer(store=tmp_path / "store") as peer:
        assert peer.open("minutes").plain() == {"words": words}


async def test_the_path_of_a_store_may_have_any_bytes(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"no\xfftext")
    async with DocumentPeer(store=path) as peer:
        peer.open("minutes").text("body").append("x")
    async with DocumentPeer(store=path) as peer:
        assert peer.open("minutes").plain() == {"body": "x"}


async def test_a_peer_whose_disk_has_failed_goes_on_when_others_open_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def edited_after_the_failure() -> None:
        async with (
            DocumentPeer(listen=HERE, store=tmp_path / "store", accept=lambda _: True) as peer,
            DocumentPeer(dial=peer.address) as other,
        ):
            await other.wait_for_peers(1, PATIENCE)
            here, there = peer.open("minutes"), other.open("minutes")
            monkeypatch.setattr(Writer, "_commit", full)
            here.text("body").append("not on disk")
            with pytest.raises(Broken):
                await here.durable()
            with pytest.raises(TimedOut):
                await other.open("more").joined(0.5)
            await alike(here, there)
            there.text("body").append(", but here")
            await alike(here, there)
            assert set(peer.documents) == {"minutes"}
            texts.append(str(here.text("body")))

    texts: list[str] = []
    with pytest.raises(Broken, match="No space left"):  # when it leaves: not all is on disk
        await edited_after_the_failure()
    assert texts == ["not on disk, but here"]
