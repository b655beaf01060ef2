"""Names and rights in a cluster: what nodes may call themselves, who hosts, joins, carries, submits and works."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from nngkit.cluster import ClusterMessage, Host, Member
from nngkit.cluster.frames import Channel, local_frame, pack_body, routed_frame
from nngkit.cluster.tree.messages import KINDS, Alive, Members
from nngkit.cluster.tree.messages import Member as MemberRow
from nngkit.discovery import Bid, Daemon, DaemonSettings, Service
from nngkit.errors import AccessDenied, ConfigError
from nngkit.mesh.wire import data_frame, key_of
from nngkit.protocols import TLS
from nngkit.testing import aeventually
from nngkit.trust.realm import Realm
from tests.trust.one_realm import OneRealm

ANY = "tls+tcp://127.0.0.1:0"
WAIT = 15.0
SHORT = 1.0  # seconds in which an honest node has long joined
VOTERS = 'voter.* | vote = ["farm"] | carry = ["cluster:farm"]'
WORKERS = 'render.* | join = ["farm"] | work = ["farm/render"]'
SHOPS = 'shop.* | join = ["farm"] | submit = ["farm/render"]'


@pytest.fixture
def realm(tmp_path: Path) -> OneRealm:
    realm = OneRealm(tmp_path / "realm")
    realm.policy(VOTERS, WORKERS, SHOPS)
    return realm


@contextlib.asynccontextmanager
async def host(realm: OneRealm) -> AsyncIterator[Host]:
    async with Host("farm", listen=ANY, trust=realm.trust("voter.a")) as node:
        yield node


@contextlib.asynccontextmanager
async def member(realm: OneRealm, name: str, dial: str, listen: str | None = None) -> AsyncIterator[Member]:
    async with Member("farm", dial=dial, listen=listen, trust=realm.trust(name)) as node:
        await node.joined(WAIT)
        yield node


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def forge(node: Member, *frames: bytes) -> None:
    """Send frames to the parent of a node, as a program that is not nngkit would."""
    parent = node._node.place.parent
    assert parent is not None
    node._transport.send(parent, frames)


# ---- binding ---------------------------------------------------------------------------------------------------------


def test_ids_are_names_of_passes(realm: OneRealm) -> None:
    own = realm.trust("render.w1")
    ids = {Member("farm", dial="tls+tcp://127.0.0.1:9", trust=own).id for _ in range(2)}
    assert len(ids) == 2, "two members of one pass"
    assert all(each.startswith("render.w1:") for each in ids)
    assert Host("farm", listen=ANY, trust=own).id == "render.w1"
    for said in ("render.w1", "render.w1:2"):
        assert Member("farm", dial="tls+tcp://127.0.0.1:9", trust=own, id=said).id == said
    with pytest.raises(ConfigError, match=r"neither 'render\.w1'"):
        Member("farm", dial="tls+tcp://127.0.0.1:9", trust=own, id="render.w2")
    with pytest.raises(ConfigError, match="a trust takes its place"):
        Member("farm", dial="tls+tcp://127.0.0.1:9", trust=own, token="secret")
    with pytest.raises(ConfigError, match="a trust takes its place"):
        Host("farm", listen=ANY, trust=own, ticket="t")


async def test_a_member_greets_under_its_own_name_only(realm: OneRealm) -> None:
    async with host(realm) as node, member(realm, "render.w1", node.address) as honest:
        assert honest.id.startswith("render.w1:")
        forger = Member("farm", dial=node.address, trust=realm.trust("render.w2"))
        forger.id = forger._settings["id"] = honest.id
        async with forger:
            with pytest.raises(AccessDenied, match=rf"binding: render\.w2 may not call itself '{honest.id}'"):
                await forger.joined(SHORT)
        assert node.refused["binding"] >= 1
        assert (await node.status()).members == 2
        assert honest.role == "member"


async def test_a_leaf_that_speaks_for_another_is_refused(realm: OneRealm) -> None:
    heard: list[ClusterMessage] = []
    async with host(realm) as node, member(realm, "render.w1", node.address) as honest:
        async with member(realm, "render.w2", node.address) as forger:

            @node.on()
            async def hear(message: ClusterMessage) -> None:
                heard.append(message)

            letter = routed_frame(Channel.LETTERS, node.id, honest.id, honest.epoch, [0, 1, 1, "chat", b"forged"])
            number = data_frame(key_of(honest.id, honest.epoch), 1, pack_body("chat", b"forged"))
            far = data_frame(key_of(honest.id, honest.epoch), 60_000, pack_body("chat", b"forged"))
            below = MemberRow(honest.id, honest.epoch + 1, 1, forger.id, None, 0, {})
            claim = local_frame(Channel.PLACE, KINDS.pack(Members((below,), ())))
            alive = local_frame(Channel.PLACE, KINDS.pack(Alive(honest.id, honest.epoch - 1, "here")))
            election = local_frame(Channel.ELECTION, [0])
            before = sum(node.refused.values())
            forge(forger, letter, number, far, claim, alive, election)
            await aeventually(lambda: sum(node.refused.values()) == before + 6)
            assert node.refused == {"binding": 4, "right": 2}
            for number_of in range(100):
                await honest.send("chat", b"%d" % number_of)
            await honest.send("chat", b"own", to=node.id)
            await forger.send("chat", b"of the forger")
            await aeventually(lambda: len(heard) == 102)
        by = {honest.id: [each.body for each in heard if each.origin == honest.id and not each.direct]}
        assert by[honest.id] == [b"%d" % number_of for number_of in range(100)]
        assert {each.body for each in heard if each.origin != honest.id or each.direct} == {b"own", b"of the forger"}


async def test_a_stranger_in_an_open_discovery_sees_no_applicant_and_runs_no_job(
    realm: OneRealm, tmp_path: Path
) -> None:
    evil = OneRealm(tmp_path / "evil", Realm.new("farm"))
    seen: list[object] = []
    ran: list[bytes] = []

    def look(applicant: object) -> bool:
        seen.append(applicant)
        return True

    plain = "tcp://127.0.0.1:0"
    settings = DaemonSettings(listen=(plain,), query=(plain,), interval=0.2, deadline=0.5)
    async with (
        Daemon(settings) as daemon,
        host(realm) as node,
        Host("farm", listen=ANY, trust=evil.trust("voter.a"), authenticator=look) as stranger,
        Service(
            "cluster.farm",
            stranger.address,
            discovery=daemon.addresses[0],
            on_question=lambda _: Bid(-1.0, stranger.address.encode()),
        ),
        Member("farm", daemons=daemon.query_addresses[0], dial=node.address, trust=realm.trust("render.w1")) as worker,
    ):

        @worker.work("render")
        async def render(job: object) -> bytes:
            ran.append(job.payload)  # type: ignore[attr-defined]
            return b"done"

        await worker.joined(WAIT)
        assert worker.host == node.id
        with trio.move_on_after(SHORT):
            await (await stranger.submit("render", b"evil")).result(timeout=SHORT)
        assert (seen, ran) == ([], [])


async def test_a_workers_pass_as_an_absent_voter_is_refused_by_both_others(realm: OneRealm) -> None:
    voters = {f"voter.{name}": f"tls+tcp://127.0.0.1:{free_port()}" for name in "abc"}
    own = realm.trust("render.w1").own
    worker = TLS(ca=own.authorities, cert=own.chain, key=own.key, verify=False)  # without nngkit's own check
    async with contextlib.AsyncExitStack() as stack:
        nodes = {
            name: await stack.enter_async_context(
                Host("farm", listen=at, voters=voters, trust=realm.trust(name), preference=5 * (name == "voter.a"))
            )
            for name, at in voters.items()
            if name != "voter.c"
        }
        async with Host("farm", listen=voters["voter.c"], voters=voters, trust=realm.trust("voter.c")):
            for node in nodes.values():
                await node.joined(WAIT)
        before = {name: node.refused.get("binding", 0) for name, node in nodes.items()}
        async with Host(
            "farm", id="voter.c", listen=voters["voter.c"], voters=voters, tls=worker, preference=99
        ) as forger:
            await aeventually(
                lambda: all(node.refused.get("binding", 0) > before[name] for name, node in nodes.items())
            )
            await trio.sleep(SHORT)
            assert forger.role == "joining"
        assert {node.host for node in nodes.values()} == {"voter.a"}
