"""Edits that a peer cannot take: not received, not relayed, and their author is told."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest
import trio

from nngkit.documents import Document, DocumentPeer
from nngkit.documents.engine import yjs
from nngkit.documents.engine.interface import load_engine
from nngkit.documents.engine.yjs_update import uint
from nngkit.documents.sync.local_copy import WARY, LocalCopy, Step
from nngkit.documents.sync.messages import Diff, DocumentHeartbeat, Give, Refusal, Refused, Updates
from nngkit.documents.sync.refused import FOLLOWS
from nngkit.documents.sync.replica import AskAll, Replica
from nngkit.documents.sync.wire import encode
from nngkit.documents.versions import Edit, EditStream, Versions
from nngkit.errors import EditRefused
from nngkit.protocols import Bus
from nngkit.testing import aeventually
from tests.documents.greetings import UNPRINTABLE, heartbeat
from tests.documents.schedules import Watched

ME, ADA, BOB, EVE = (EditStream(bytes([n]) * 8, n) for n in range(4))
HERE = "tcp://127.0.0.1:0"
PATIENCE = 10.0
INSIDE_A_NUMBER = bytes.fromhex(  # an item in an array whose parent is a number: pycrdt panics, and is damaged
    "0107d4bab3c4e3c1bb0600040104626f647902686581d4bab3c4e3c1bb06010384d4bab3c4e3c1bb0603086f20f09f988020782701016d0161"
    "000800d4bab3c4e3c1bb060a067c3f800000760101787c402000007e787701737401712701016d0162012800d4bab3c4e3c1bb0611017a017c"
    "3f80000001d4bab3c4e3c1bb06010202"
)


class World:
    """A copy on the real engine, and the edits of Ada and Bob."""

    def __init__(self, *, relay: bool = False, askable: bool = True) -> None:
        self.content = load_engine().new(1)
        self.refusals: list[tuple[EditStream | None, str]] = []
        self.cut: list[EditStream] = []
        self.replica = Replica("minutes", ME, rng=Random(1), askable=askable)
        self.copy = LocalCopy(
            self.replica,
            Watched(self.content),
            relay=relay,
            refused=lambda peer, why: self.refusals.append((peer, why)),
            cut=self.cut.append,
        )
        self.now = 100.0
        for peer in (ADA, BOB):
            self.replica.joined(peer, True)

    def hear(self, stream: EditStream, seq: int, payload: bytes, deps: Versions | None = None) -> None:
        self.copy.heard(Updates(stream, "minutes", seq, (Edit(payload, deps or {}),)), stream, self.now)

    def step(self, seconds: float = 0.0) -> Step:
        self.now += seconds
        return self.copy.step(self.now)


def letters(client: int, text: str) -> list[bytes]:
    """Return one update for each letter."""
    author = load_engine().new(client)
    made: list[bytes] = []
    author.observe(lambda update, origin: made.append(update))
    body = author.root("body", "text")
    for at, letter in enumerate(text):
        body.insert(at, letter)
    return made


def write_unfit(document: Document) -> None:
    """Make an edit that peers refuse, past the checks of `Map`, as a peer of a later version might."""
    value: object = "bottom"
    for _ in range(40):
        value = [value]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yjs, "_FOUR_BYTES", re.compile(b"(?!)"))  # its own engine does not parse the edit
        document.engine.root("deep", "map").set("value", value)


def test_versions_end_before_a_refused_edit_and_what_follows_is_held_with_it() -> None:
    world = World(relay=True)
    ada, bob = letters(2, "abc"), letters(3, "x")
    world.hear(ADA, 1, ada[0])
    world.hear(ADA, 2, b"\0nonsense")
    world.hear(ADA, 3, ada[2])
    world.hear(BOB, 1, bob[0], {ADA: 2})
    assert world.replica.versions == {ADA: 1}
    assert world.content.content() == {"body": "a"}
    step = world.step()
    assert step.refused
    assert [(one.stream, one.first) for one in step.publish if isinstance(one, Updates)] == [(ADA, 1)]
    assert [peer for peer, _ in world.refusals] == [ADA]
    refused = {one.stream: one for one in world.replica.history.refused}
    assert (refused[ADA].seq, refused[BOB].seq) == (2, 1)
    assert refused[BOB].why.startswith(FOLLOWS)
    assert world.copy.refusal({ADA: 1}) is None
    assert world.copy.refusal({ADA: 5}) is not None
    world.copy.heard(DocumentHeartbeat("minutes", None, None, {ADA: 3, BOB: 1}), ADA, world.now)
    assert [world.step(1.0).ask for _ in range(3)] == [[], [], []], "a refused edit is not requested"


def test_refused_edit_withdraws_what_one_message_released_after_it() -> None:
    world = World()
    ada, bob = letters(2, "ab"), letters(3, "x")
    world.hear(BOB, 1, bob[0], {ADA: 2})
    world.copy.heard(Updates(ADA, "minutes", 1, (Edit(b"\0nonsense", {}), Edit(ada[1], {}))), ADA, world.now)
    assert world.replica.versions == {}
    assert world.content.content() == {}
    assert world.replica.counts.delivered == 0
    assert world.replica.resend(()) == ((), False)
    assert {one.stream for one in world.replica.history.refused} == {ADA, BOB}
    assert world.replica.held == 0


def test_update_that_brings_a_refused_edit_ends_its_refusal_and_those_that_followed() -> None:
    world = World()
    ada, bob = load_engine().new(2), letters(3, "x")
    for letter in "ab":
        ada.root("body", "text").insert(0, letter)
    world.hear(ADA, 1, b"\0nonsense")
    world.hear(BOB, 1, bob[0], {ADA: 1})
    body = ada.changes_since()
    world.copy.replied(AskAll(ADA, False), Diff(ADA, "minutes", body, {ADA: 2}), world.now, body=body)
    assert list(world.replica.history.refused) == []
    world.hear(BOB, 1, bob[0], {ADA: 1})
    assert world.replica.versions == {ADA: 2, BOB: 1}


def test_peer_whose_whole_content_is_refused_is_asked_again_only_after_a_change() -> None:
    world = World()
    world.copy.heard(DocumentHeartbeat("minutes", b"8 bytes.", b"?" * 16, {}), ADA, world.now)
    ((ask, _),) = world.step().ask
    world.copy.replied(ask, Diff(ADA, "minutes", b"?", {ADA: 1}), world.now, body=b"nonsense")
    assert not any(world.step(5.0).ask for _ in range(10))


def test_give_is_refused_with_the_reason_and_a_damaging_one_cuts_its_sender() -> None:
    world = World()
    reply = world.copy.given(Give(ADA, None, "minutes", b"\0nonsense", {ADA: 1}), world.now)
    assert isinstance(reply, Refused)
    assert reply.code == "refused"
    assert "byte" in reply.why
    assert world.cut == []
    world.copy.given(Give(EVE, None, "minutes", INSIDE_A_NUMBER, {EVE: 1}), world.now)
    assert world.cut == [EVE]


def test_single_edit_that_was_given_is_refused_by_number_and_of_several_none() -> None:
    world = World()
    world.copy.given(Give(ADA, None, "minutes", b"\0nonsense", {ADA: 3}), world.now)
    world.copy.given(Give(ADA, None, "minutes", b"\0nonsense", {BOB: 1}), world.now)  # not the sender's
    assert list(world.replica.history.refused) == []
    world.copy.given(Give(ADA, None, "minutes", b"\0nonsense", {ADA: 1}), world.now)
    assert [(one.stream, one.seq) for one in world.replica.history.refused] == [(ADA, 1)]
    assert world.step().refused


def test_new_streams_wait_after_a_damaging_update_and_known_ones_do_not() -> None:
    world = World()
    ada, bob = letters(2, "ab"), letters(3, "x")
    world.hear(ADA, 1, ada[0])
    world.hear(EVE, 1, INSIDE_A_NUMBER)
    assert world.cut == [EVE]
    world.hear(ADA, 2, ada[1])
    world.hear(BOB, 1, bob[0])
    reply = world.copy.given(Give(BOB, None, "minutes", bob[0], {BOB: 1}), world.now)
    assert isinstance(reply, Refused)
    assert reply.code == "busy"
    assert world.replica.versions == {ADA: 2}
    world.now += WARY
    world.hear(BOB, 1, bob[0])
    assert world.replica.versions == {ADA: 2, BOB: 1}


def inside_a_letter(client: int, clock: int) -> bytes:
    """Return an update with an item inside a letter of the document: it passes the parser, and damages the engine."""
    head = b"\x01\x01" + uint(5 + clock) + b"\x00"  # one client, one item, number 0
    return head + b"\x08\x00" + uint(client) + uint(clock) + b"\x01\x7e" + b"\x00"  # null, in that letter; no deletes


@pytest.mark.parametrize("known", [True, False], ids=["found by the parser", "found by the engine"])
async def test_flood_of_damaging_updates_costs_one_rebuild_and_its_sender_the_connection(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilt: list[int] = []
    renew = yjs.YjsDocument._renew

    def counted(self: yjs.YjsDocument) -> None:
        rebuilt.append(1)
        renew(self)

    monkeypatch.setattr(yjs.YjsDocument, "_renew", counted)
    async with DocumentPeer(listen=HERE) as home, DocumentPeer(dial=home.address) as other:
        doc, theirs = home.open("minutes"), other.open("minutes")
        body = doc.text("body")
        for _ in range(300):
            body.insert(len(body), "ab")
        await aeventually(lambda: len(theirs.text("body")) == 600, timeout=PATIENCE)
        theirs.text("body").insert(0, "known ")  # new streams have to wait after a damaging update
        await aeventually(lambda: len(body) == 606, timeout=PATIENCE)
        async with Bus(dial=home.address, linger=0.0) as bus:
            await bus.await_for_peers(1, PATIENCE)
            bus.send(encode(heartbeat(EVE)))
            for seq in range(1, 201):
                payload = INSIDE_A_NUMBER if known else inside_a_letter(doc.client_id, seq)
                bus.send(encode(Updates(EVE, "minutes", seq, (Edit(payload, {}),))))
            await aeventually(lambda: any(one.peer == str(EVE) for one in home.refusals), timeout=PATIENCE)
            await aeventually(lambda: all(info.stream != EVE for info in home.peers), timeout=PATIENCE)
        theirs.text("body").insert(0, "still here ")
        await aeventually(lambda: str(doc.text("body")).startswith("still here"), timeout=PATIENCE)
        assert len(rebuilt) == (0 if known else 1)
        assert [one.peer for one in home.refusals] == [str(EVE)]
        assert EVE not in home.versions("minutes")


async def test_author_is_told_at_once_and_a_third_peer_gets_what_came_before() -> None:
    async with (
        DocumentPeer(listen=HERE, relay=True) as middle,
        DocumentPeer(dial=middle.address, name="ada") as ada,
        DocumentPeer(dial=middle.address) as cy,
    ):
        docs = [peer.open("minutes") for peer in (ada, middle, cy)]
        docs[0].text("body").insert(0, "before")
        await aeventually(lambda: str(docs[2].text("body")) == "before", timeout=PATIENCE)
        write_unfit(docs[0])
        docs[0].text("body").insert(0, "after ")
        await aeventually(lambda: bool(docs[0].refused), timeout=PATIENCE)
        (refusal,) = docs[0].refused
        assert "32 deep" in refusal.why
        assert refusal.peer == str(middle.me)
        assert any("32 deep" in one.why and "minutes" in one.what for one in ada.refusals)
        assert [one.peer for one in middle.refusals] == [str(ada.me)]
        docs[2].text("body").insert(0, "cy ")
        await aeventually(lambda: str(docs[0].text("body")) in ("after cy before", "cy after before"), timeout=PATIENCE)
        assert str(docs[1].text("body")) == str(docs[2].text("body")) == "cy before"
        assert cy.versions("minutes").get(ada.me) == 1
        assert cy.refusals == ()


@pytest.mark.parametrize("text", UNPRINTABLE)
async def test_reason_of_a_refusal_is_escaped(text: str) -> None:
    async with DocumentPeer(listen=HERE) as home, Bus(dial=home.address, linger=0.0) as bus:
        doc = home.open("minutes")
        doc.text("body").insert(0, "x")
        await bus.await_for_peers(1, PATIENCE)
        docs = (DocumentHeartbeat("minutes", None, None, {}),)
        bus.send(encode(heartbeat(EVE, docs, refused=(Refusal("minutes", *home.me, 1, text),))))
        await aeventually(lambda: bool(doc.refused), timeout=PATIENCE)
        (refusal,) = doc.refused
        assert refusal.why.isprintable()
        assert len(refusal.why) <= 200


async def test_synced_raises_at_once_while_an_edit_is_refused_and_after_a_restart_of_the_other(tmp_path: Path) -> None:
    async with DocumentPeer(listen=HERE) as ada:
        doc = ada.open("minutes")
        write_unfit(doc)
        for _ in range(2):
            async with DocumentPeer(dial=ada.address, store=tmp_path / "docs.sqlite") as home:
                home.open("minutes")
                await ada.wait_for_peers(1, PATIENCE)
                with trio.fail_after(PATIENCE), pytest.raises(EditRefused, match="32 deep"):
                    await doc.synced(1)
                await aeventually(lambda: bool(doc.refused), timeout=PATIENCE)
                assert home.versions("minutes") == {}
            await aeventually(lambda: not ada.peers, timeout=PATIENCE)
            assert doc.refused == ()
