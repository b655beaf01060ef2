"""Documents under a trust: whose streams are whose, and who may edit and view."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from nngkit.discovery import Daemon, DaemonClient, DaemonSettings
from nngkit.documents import DocumentPeer
from nngkit.documents.document import Document
from nngkit.documents.store import Store, recover
from nngkit.documents.sync import messages
from nngkit.documents.sync.replica import Replica
from nngkit.documents.sync.rights import OWNED, DocumentRights
from nngkit.documents.sync.wire import decode_reply, decode_request, encode
from nngkit.documents.versions import Edit, EditStream
from nngkit.errors import ConfigError, EditRefused, TimedOut
from nngkit.protocols import Bus, Rep, Req
from nngkit.testing import aeventually
from nngkit.trust import Realm, Trust
from tests.trust.one_realm import FARM, OneRealm

ANY = "tls+tcp://127.0.0.1:0"
WAIT = 15.0
QUIET = 0.6  # seconds in which an edit has long arrived where it may
EDITORS = 'desk.* hub | edit = ["minutes", "plans/*"]'
VIEWERS = 'guest.* | view = ["minutes"]'
RELAYS = 'relay.* | carry = ["doc"] | edit = ["minutes"]'


@pytest.fixture
def farm(tmp_path: Path) -> OneRealm:
    return ruled(tmp_path)


def ruled(path: Path, *more: str, realm: Realm = FARM) -> OneRealm:
    farm = OneRealm(path, realm)
    farm.policy(EDITORS, VIEWERS, *more)
    return farm


@asynccontextmanager
async def hub(farm: OneRealm, name: str = "hub", **options: object) -> AsyncIterator[DocumentPeer]:
    async with DocumentPeer(listen=ANY, trust=farm.trust(name), **options) as peer:  # type: ignore[arg-type]
        peer.open("minutes").text("body").insert(0, "hello")
        yield peer


def dialer(farm: OneRealm, name: str, peer: DocumentPeer, **options: object) -> DocumentPeer:
    return DocumentPeer(dial=peer.address, trust=farm.trust(name), **options)  # type: ignore[arg-type]


def body(peer: DocumentPeer, doc: str = "minutes") -> str:
    return str(peer.open(doc).text("body"))


# ---- edit and view ---------------------------------------------------------------------------------------------------


async def test_an_editor_edits_and_a_viewer_views(farm: OneRealm) -> None:
    async with hub(farm) as peer, dialer(farm, "desk.ada", peer) as ada, dialer(farm, "guest.bob", peer) as bob:
        with trio.fail_after(WAIT):
            await aeventually(lambda: (body(ada), body(bob)) == ("hello", "hello"), WAIT)
            ada.open("minutes").text("body").append(" ada")
            await aeventually(lambda: (body(peer), body(bob)) == ("hello ada", "hello"), WAIT)  # the hub does not relay
            peer.open("minutes").text("body").append("!")
            await aeventually(lambda: body(bob) == "hello ada!", WAIT)


async def test_an_edit_of_a_viewer_is_refused_with_the_right_and_honest_peers_go_on(farm: OneRealm) -> None:
    async with hub(farm) as peer, dialer(farm, "desk.ada", peer) as ada, dialer(farm, "guest.bob", peer) as bob:
        await aeventually(lambda: (body(ada), body(bob)) == ("hello", "hello"), WAIT)
        minutes = bob.open("minutes")
        minutes.text("body").insert(0, "FORGED ")
        await aeventually(lambda: minutes.refused != (), WAIT)
        assert "right: guest.bob may not edit minutes" in str(minutes.refused[0])
        with pytest.raises(EditRefused, match=r"right: guest\.bob may not edit minutes"):
            await minutes.synced(1, timeout=WAIT)
        ada.open("minutes").text("body").append(" ada")
        await aeventually(lambda: body(peer) == "hello ada", WAIT)
        assert peer.stats.refused["right"] >= 1
        with trio.fail_after(WAIT):
            await peer.open("minutes").joined(timeout=WAIT)  # the viewer has nothing to wait for


async def test_a_peer_without_a_right_gets_neither_content_nor_name(farm: OneRealm) -> None:
    async with hub(farm) as peer, dialer(farm, "guest.bob", peer) as bob, dialer(farm, "desk.ada", peer) as ada:
        peer.open("plans/secret").text("body").insert(0, "salary 4711")
        seen = bob.open("plans/secret")
        await aeventually(lambda: (body(bob), body(ada, "plans/secret")) == ("hello", "salary 4711"), WAIT)
        peer.open("plans/secret").text("body").append(", live")
        await aeventually(lambda: body(ada, "plans/secret") == "salary 4711, live", WAIT)
        await trio.sleep(QUIET)
        assert str(seen.text("body")) == ""
        (info,) = bob.peers
        assert info.documents == {"minutes"}


@pytest.mark.slow
async def test_a_right_that_is_taken_and_given_back_counts_at_once(farm: OneRealm) -> None:
    async with hub(farm) as peer, dialer(farm, "desk.ada", peer) as ada, dialer(farm, "desk.eve", peer) as eve:
        await aeventually(lambda: (body(ada), body(eve)) == ("hello", "hello"), WAIT)
        farm.policy(EDITORS.replace("desk.*", "desk.eve"), VIEWERS.replace("guest.*", "desk.ada"))
        minutes = ada.open("minutes")
        with trio.fail_after(WAIT):
            while not minutes.refused:  # until the files have been read
                minutes.text("body").append("+")
                await trio.sleep(0.1)
        assert str(minutes.refused[0]).endswith("right: desk.ada may not edit minutes")
        eve.open("minutes").text("body").insert(0, "eve: ")
        await aeventually(lambda: body(peer).startswith("eve: hello"), WAIT)
        assert body(peer).count("+") < body(ada).count("+")
        farm.policy(EDITORS, VIEWERS)
        await aeventually(lambda: body(peer) == body(ada) == body(eve) and not minutes.refused, WAIT)


async def test_a_viewer_opens_no_document_there(farm: OneRealm) -> None:
    farm.policy(EDITORS, VIEWERS.replace("minutes", "*"))
    async with (
        hub(farm, accept=lambda name: True) as peer,
        dialer(farm, "guest.bob", peer) as bob,
        dialer(farm, "desk.ada", peer) as ada,
    ):
        bob.open("plans/bob")
        ada.open("plans/ada").text("body").append("x")
        await aeventually(lambda: "plans/ada" in peer.documents, WAIT)
        await trio.sleep(QUIET)
        assert set(peer.documents) == {"minutes", "plans/ada"}


# ---- binding ---------------------------------------------------------------------------------------------------------


def heartbeat(stream: EditStream, *, relay: bool = False) -> bytes:
    return encode(messages.Heartbeat(stream, messages.About(relay=relay), ()))


def written(text: str) -> tuple[bytes, EditStream]:
    """Return the update of a document of another author."""
    document = Document("minutes")
    document.text("body").insert(0, text)
    return document.engine.changes_since(None), EditStream(b"evilevil", 1)


FORGED: dict[str, Callable[[EditStream, EditStream], list[bytes]]] = {
    "heartbeat": lambda ada, own: [heartbeat(ada)],
    "update": lambda ada, own: [
        heartbeat(own, relay=True),
        encode(messages.Updates(ada, "minutes", 2, (Edit(written("FORGED")[0], {}),))),
    ],
    "update of another epoch": lambda ada, own: [
        heartbeat(own, relay=True),
        encode(
            messages.Updates(EditStream(ada.origin, ada.epoch + 1), "minutes", 1, (Edit(written("FORGED")[0], {}),))
        ),
    ],
    "update of a stranger": lambda ada, own: [
        heartbeat(own, relay=True),
        encode(messages.Updates(EditStream(b"stranger", 1), "minutes", 1, (Edit(written("FORGED")[0], {}),))),
    ],
    "awareness": lambda ada, own: [heartbeat(own, relay=True), encode(messages.Aware(ada, "minutes", 99, None))],
}


@pytest.mark.parametrize("what", FORGED)
async def test_a_member_that_speaks_in_the_name_of_another_is_refused(farm: OneRealm, what: str) -> None:
    _, own = written("")
    async with hub(farm) as peer, dialer(farm, "desk.ada", peer) as ada:
        await aeventually(lambda: body(ada) == "hello", WAIT)
        ada.open("minutes").text("body").append(" ada")
        ada.open("minutes").awareness.local = {"user": "ada"}
        await aeventually(lambda: body(peer) == "hello ada", WAIT)
        with Bus(dial=peer.address, trust=farm.trust("desk.mal")) as bus:
            await bus.await_for_peers(1, timeout=WAIT)
            for message in FORGED[what](ada.me, own):
                await bus.asend(message)
            await aeventually(lambda: peer.stats.refused.get("binding", 0) >= 1, WAIT)
        ada.open("minutes").text("body").append(" goes on")
        await aeventually(lambda: body(peer) == "hello ada goes on", WAIT)
        assert any(info.stream == ada.me for info in peer.peers)
        assert {"user": "ada"} in peer.open("minutes").awareness.states.values()


@pytest.mark.parametrize("kind", ["Hello", "Nack", "Want", "Give", "Have"])
async def test_a_request_in_the_name_of_another_is_refused(farm: OneRealm, kind: str) -> None:
    async with hub(farm) as peer, dialer(farm, "desk.ada", peer) as ada:
        await aeventually(lambda: body(ada) == "hello", WAIT)
        requests: dict[str, messages.SyncRequest] = {
            "Hello": messages.Hello(ada.me, None, messages.Introduction()),
            "Nack": messages.Nack(ada.me, None, "minutes", (messages.Range(*peer.me, 1, 1),)),
            "Want": messages.Want(ada.me, None, "minutes", None, {}),
            "Give": messages.Give(ada.me, None, "minutes", written("FORGED")[0], {ada.me: 1}),
            "Have": messages.Have(ada.me, None, "minutes", {}, False, 0.0),
        }
        with Req(dial=peer.repair_addresses, trust=farm.trust("desk.mal")) as req:
            reply = decode_reply(await req.arequest(encode(requests[kind]), timeout=WAIT))
        assert isinstance(reply, messages.Refused)
        assert (reply.code, reply.why) == ("binding", "binding: the stream is not of desk.mal")
        assert body(peer) == "hello"


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("guest.bob", "Want", "right"),
        ("guest.bob", "Nack", "right"),
        ("guest.bob", "Have", "right"),
        ("guest.bob", "Give", "refused"),
        ("desk.ada", "Want", None),
        ("desk.ada", "Give", None),
    ],
)
async def test_requests_need_the_right(farm: OneRealm, name: str, kind: str, code: str | None) -> None:
    _, own = written("")
    async with hub(farm) as peer:
        peer.open("plans/secret").text("body").insert(0, "salary 4711")
        requests: dict[str, messages.SyncRequest] = {
            "Nack": messages.Nack(own, None, "plans/secret", (messages.Range(*peer.me, 1, 1),)),
            "Want": messages.Want(own, None, "plans/secret", None, {}),
            "Give": messages.Give(own, None, "plans/secret", written("mine ")[0], {own: 1}),
            "Have": messages.Have(own, None, "plans/secret", {}, False, 0.0),
        }
        with Req(dial=peer.repair_addresses, trust=farm.trust(name)) as req:
            reply = decode_reply(await req.arequest(encode(requests[kind]), timeout=WAIT))
            hello = decode_reply(
                await req.arequest(encode(messages.Hello(own, None, messages.Introduction())), timeout=WAIT)
            )
        assert (reply.code if isinstance(reply, messages.Refused) else None) == code
        assert isinstance(hello, messages.Welcome)
        assert hello.about.docs == (("minutes",) if name == "guest.bob" else ("minutes", "plans/secret"))
        assert ("mine" in body(peer, "plans/secret")) == (kind == "Give" and code is None)


async def test_a_reply_with_edits_of_another_is_refused(farm: OneRealm) -> None:
    update, own = written("FORGED")
    async with hub(farm) as peer, dialer(farm, "desk.ada", peer) as ada:
        await aeventually(lambda: body(ada) == "hello", WAIT)
        forged = messages.Updates(ada.me, "minutes", 1, (Edit(update, {}),))
        mal = farm.trust("desk.mal")
        with Rep(listen=ANY, trust=mal) as rep, Bus(dial=peer.address, trust=mal) as bus:
            await bus.await_for_peers(1, timeout=WAIT)
            news = messages.DocumentHeartbeat("minutes", None, None, {own: 2})
            await bus.asend(encode(messages.Heartbeat(own, messages.About(repair=(rep.address,)), (news,))))
            asked = []
            with trio.fail_after(WAIT):
                while "Nack" not in asked:
                    request = await rep.arecv()
                    asked.append(type(decode_request(request.body)).__name__)
                    await request.areply(encode(messages.Resent(own, "minutes", (forged,), False)))
            await aeventually(lambda: peer.stats.refused.get("binding", 0) >= 1, WAIT)
        ada.open("minutes").text("body").append(" ada")
        await aeventually(lambda: body(peer) == "hello ada", WAIT)


async def test_two_processes_of_one_pass_both_edit(farm: OneRealm) -> None:
    async with hub(farm) as peer, dialer(farm, "desk.ada", peer) as one, dialer(farm, "desk.ada", peer) as other:
        await aeventually(lambda: (body(one), body(other)) == ("hello", "hello"), WAIT)
        one.open("minutes").text("body").append(" one")
        other.open("minutes").text("body").insert(0, "other ")
        await aeventually(lambda: body(peer) == "other hello one", WAIT)


async def test_a_number_that_another_claims_does_not_keep_edits_from_being_taken(farm: OneRealm) -> None:
    update, own = written("mine ")
    async with hub(farm) as peer, dialer(farm, "desk.ada", peer) as ada:
        await aeventually(lambda: body(ada) == "hello", WAIT)
        ada.open("minutes").text("body").append(" ada")
        await aeventually(lambda: body(peer) == "hello ada", WAIT)
        with Req(dial=peer.repair_addresses, trust=farm.trust("desk.mal")) as req:
            give = messages.Give(own, None, "minutes", update, {own: 1, ada.me: 10**6})
            with Bus(dial=peer.address, trust=farm.trust("desk.mal")) as bus:
                await bus.await_for_peers(1, timeout=WAIT)
                await bus.asend(heartbeat(own))
                await aeventually(lambda: any(info.stream == own for info in peer.peers), WAIT)
                reply = decode_reply(await req.arequest(encode(give), timeout=WAIT))
        assert isinstance(reply, messages.Given)
        assert peer.versions("minutes")[ada.me] == 1
        ada.open("minutes").text("body").append(" goes on")
        await aeventually(lambda: "hello ada goes on" in body(peer), WAIT)
        assert peer.versions("minutes")[ada.me] == 2


# ---- carry -----------------------------------------------------------------------------------------------------------


async def test_a_relay_speaks_for_others_if_it_may_carry(farm: OneRealm) -> None:
    farm.policy(EDITORS, VIEWERS, RELAYS)
    async with (
        hub(farm, "relay.r", relay=True) as relay,
        dialer(farm, "desk.ada", relay) as ada,
        dialer(farm, "desk.eve", relay) as eve,
        dialer(farm, "guest.bob", relay) as bob,
    ):
        await aeventually(lambda: {body(each) for each in (ada, eve, bob)} == {"hello"}, WAIT)
        ada.open("minutes").text("body").append(" ada")
        await aeventually(lambda: {body(each) for each in (eve, bob, relay)} == {"hello ada"}, WAIT)
        bob.open("minutes").text("body").insert(0, "FORGED ")
        await aeventually(lambda: bob.open("minutes").refused != (), WAIT)
        assert {body(each) for each in (ada, eve, relay)} == {"hello ada"}


async def test_what_a_relay_passes_on_that_may_not_carry_is_refused(farm: OneRealm) -> None:
    farm.policy(EDITORS, VIEWERS, 'relay.* | view = ["*"]')
    async with (
        DocumentPeer(listen=ANY, trust=farm.trust("relay.r"), relay=True) as relay,
        dialer(farm, "desk.ada", relay) as ada,
        dialer(farm, "desk.eve", relay) as eve,
    ):
        for each in (relay, ada, eve):
            each.open("minutes")
        await aeventually(lambda: len(relay.peers) == 2, WAIT)
        ada.open("minutes").text("body").append("ada")
        await aeventually(lambda: body(relay) == "ada" and eve.stats.refused.get("binding", 0) >= 1, WAIT)
        assert body(eve) == ""


# ---- owners ----------------------------------------------------------------------------------------------------------


async def test_the_owner_of_an_origin_is_kept_in_the_store(farm: OneRealm, tmp_path: Path) -> None:
    store = tmp_path / "hub.sqlite"
    async with hub(farm, store=store) as peer, dialer(farm, "desk.ada", peer, store=tmp_path / "ada.sqlite") as ada:
        await aeventually(lambda: body(ada) == "hello", WAIT)
        origin = ada.me.origin
    with Store.open(store) as kept:
        assert kept.owners == {origin: "desk.ada"}
    async with DocumentPeer(listen=ANY, trust=farm.trust("hub"), store=store) as peer:
        with Bus(dial=peer.address, trust=farm.trust("desk.mal")) as bus:
            await bus.await_for_peers(1, timeout=WAIT)
            await bus.asend(heartbeat(EditStream(origin, 2**50)))
            await aeventually(lambda: peer.stats.refused == {"binding": 1}, WAIT)


def test_owners_survive_a_recovery_and_make_room_for_newer_ones(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "a.sqlite")
    rights = DocumentRights(None, EditStream(b"hub-----", 1), store.owners, store.own)
    for number in range(OWNED + 3):
        assert rights.introduce("guest.a", b"a%07d" % number) is None
    assert rights.introduce("guest.b", b"bbbbbbbb") is None
    store.close()
    recover(tmp_path / "a.sqlite", tmp_path / "b.sqlite")
    for name in ("a.sqlite", "b.sqlite"):
        with Store.open(tmp_path / name) as again:
            assert len(again.owners) == OWNED + 1
            assert again.owners[b"bbbbbbbb"] == "guest.b"
            assert b"a0000002" not in again.owners


NAMES = st.sampled_from(["desk.ada", "desk.mal", "relay.r", "guest.bob"])
ORIGINS = st.sampled_from([b"aaaaaaaa", b"bbbbbbbb", b"hub-----"])


@pytest.fixture(scope="module")
def hub_of_relays(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return ruled(tmp_path_factory.mktemp("ruled"), RELAYS).trust("hub")


@given(st.lists(st.tuples(NAMES, ORIGINS, st.booleans()), max_size=20))
def test_an_origin_has_one_owner_for_ever(hub_of_relays: Trust, steps: list[tuple[str, bytes, bool]]) -> None:
    rights = DocumentRights(hub_of_relays, EditStream(b"hub-----", 1))
    model = {b"hub-----": "hub"}
    for who, origin, direct in steps:
        if direct:
            model.setdefault(origin, who)
            assert (rights.introduce(who, origin) is None) == (who in (model[origin], "relay.r"))
        else:
            assert rights.speaks(who, origin) == (who in (model.get(origin), "relay.r"))
        assert rights.owner(origin) == model.get(origin)


def test_a_peer_says_no_more_of_a_present_peers_stream_than_that_one() -> None:
    me, ada, mal = (EditStream(origin, 1) for origin in (b"meeeeeee", b"adaadaad", b"malmalma"))
    replica = Replica("minutes", me, rng=random.Random(1))
    replica.joined(ada, True, carries=False)
    replica.joined(mal, True, carries=False)
    gone = EditStream(b"gonegone", 1)
    assert replica.believed(mal, {ada: 9, mal: 2, gone: 3}) == {mal: 2, gone: 3}
    replica.heard(messages.Updates(ada, "minutes", 1, (Edit(b"x", {}),)), ada, 0.0)
    assert replica.believed(mal, {ada: 9, EditStream(ada.origin, 2): 4}) == {ada: 1}
    replica.joined(mal, True)
    assert replica.believed(mal, {ada: 9}) == {ada: 9}


# ---- no token, no secret path ----------------------------------------------------------------------------------------


def test_a_token_and_a_trust_exclude_each_other(farm: OneRealm) -> None:
    with pytest.raises(ConfigError, match="takes the place of a token"):
        DocumentPeer(listen=ANY, trust=farm.trust("hub"), token="x" * 32)


async def registered(client: DaemonClient) -> str:
    while True:
        for status in await client.snapshot():
            return status.provider.address
        await trio.sleep(0.05)


async def test_discovery_publishes_nothing_by_which_a_stranger_reads_or_writes(farm: OneRealm, tmp_path: Path) -> None:
    other = ruled(tmp_path / "other", realm=Realm.new("farm"))
    settings = DaemonSettings(listen=("tcp://127.0.0.1:0",), query=("tcp://127.0.0.1:0",), interval=0.2, deadline=0.5)
    async with Daemon(settings) as daemon:
        victim = DocumentPeer(listen=ANY, trust=farm.trust("desk.ada"), discovery=daemon.addresses)
        async with victim, DaemonClient(daemon.query_addresses[0]) as client:
            victim.open("minutes").text("body").insert(0, "salary 4711")
            with trio.fail_after(WAIT):
                address = await registered(client)
            assert address == victim.address
            assert re.fullmatch(r"tls\+tcp://127\.0\.0\.1:\d+", address)
            async with DocumentPeer(dial=address, trust=other.trust("desk.ada")) as stranger:
                theirs = stranger.open("minutes")
                theirs.text("body").insert(0, "FORGED")
                with pytest.raises(TimedOut):
                    await stranger.wait_for_peers(1, timeout=QUIET)
                assert str(theirs.text("body")) == "FORGED"
            assert body(victim) == "salary 4711"
