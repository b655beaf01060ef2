"""Names and rights in a cluster: what nodes may call themselves, who hosts, joins, carries, submits and works."""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from nngkit.cluster import ClusterMessage, Host, JobRun, Member
from nngkit.cluster.frames import Channel, local_frame, pack_body, routed_frame
from nngkit.cluster.jobs.messages import Finished, Holding, Ref, Results, pack
from nngkit.cluster.tree.messages import KINDS, Alive, Members
from nngkit.cluster.tree.messages import Member as MemberRow
from nngkit.discovery import Bid, Daemon, DaemonSettings, Service
from nngkit.errors import AccessDenied, ConfigError, TimedOut
from nngkit.mesh.wire import data_frame, key_of
from nngkit.protocols import TLS
from nngkit.testing import aeventually
from nngkit.trust.realm import Realm
from tests.cli.commands import nngkit
from tests.trust.one_realm import OneRealm

ANY = "tls+tcp://127.0.0.1:0"
WAIT = 15.0
SHORT = 0.5  # seconds in which an honest node has long joined
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
    """Return a free port below those that the system gives to others meanwhile."""
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


async def refused(node: Member, words: str) -> None:
    """Wait until `joined` raises AccessDenied with these words."""
    with trio.fail_after(WAIT):
        while True:
            with contextlib.suppress(TimedOut):
                try:
                    await node.joined(SHORT)
                except AccessDenied as error:
                    if re.search(words, str(error)):
                        return


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
            await refused(forger, rf"binding: render\.w2 may not call itself '{honest.id}'")
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
        async def render(job: JobRun) -> bytes:
            ran.append(job.payload)
            return b"done"

        await worker.joined(WAIT)
        assert worker.host == node.id
        with trio.move_on_after(SHORT):
            await (await stranger.submit("render", b"evil")).result(timeout=SHORT)
        assert (seen, ran) == ([], [])


@pytest.mark.slow
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


# ---- rights ----------------------------------------------------------------------------------------------------------


def rendering(node: Member, ran: list[str | None], kind: str = "render") -> None:
    """Have a node do jobs, and note whose they are."""

    @node.work(kind)
    async def render(job: JobRun) -> bytes:
        ran.append(job.submitter)
        return job.payload


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("shop.w1", ""),
        ("voter.b", ""),
        ("guest.ada", r"right: guest\.ada may not join farm"),
    ],
)
async def test_joining_takes_the_right_to(realm: OneRealm, name: str, says: str) -> None:
    async with host(realm) as node, Member("farm", dial=node.address, trust=realm.trust(name)) as applicant:
        if says:
            await refused(applicant, says)
            assert node.refused == {"right": node.refused["right"]}
        else:
            await applicant.joined(WAIT)
            assert applicant.host == "voter.a"


@pytest.mark.slow
async def test_a_member_leaves_a_host_that_may_not_be_one(realm: OneRealm, tmp_path: Path) -> None:
    other = OneRealm(tmp_path / "other")  # a host with a policy of its own making
    other.policy('* | vote = ["farm"] | join = ["farm"] | carry = ["cluster:farm"]')
    async with (
        Host("farm", listen=ANY, trust=other.trust("render.w1")) as node,
        Member("farm", dial=node.address, trust=realm.trust("render.w2")) as applicant,
    ):
        await refused(applicant, r"right: render\.w1 may not carry cluster:farm")
        realm.policy(WORKERS, 'render.w1 | carry = ["cluster:farm"]')
        await refused(applicant, r"right: render\.w1 may not vote farm")
        assert applicant.refused["right"] >= 2


async def test_jobs_go_from_a_submitter_with_the_right_to_a_worker_with_the_right(realm: OneRealm) -> None:
    ran: list[str | None] = []
    wrong: list[str | None] = []
    async with (
        host(realm) as node,
        member(realm, "render.w1", node.address) as worker,
        member(realm, "shop.w1", node.address) as shop,
    ):
        rendering(worker, ran)
        rendering(shop, wrong)
        results = [result async for result in shop.map("render", [b"%d" % each for each in range(20)])]
        assert results == [b"%d" % each for each in range(20)]
        assert set(ran) == {shop.id}
        assert len(ran) == 20
        assert wrong == []
        with pytest.raises(AccessDenied, match=r"right: shop\.w1 may not submit farm/thumb"):
            await shop.submit("thumb", b"")
        with pytest.raises(AccessDenied, match=r"right: render\.w1 may not submit farm/render"):
            await worker.submit("render", b"")
        with pytest.raises(AccessDenied, match=r"right: voter\.a may not submit farm/render"):
            await node.submit("render", b"")
        assert (await shop.status()).refused == node.refused


@pytest.mark.slow
async def test_a_policy_takes_work_away_and_gives_it_back(realm: OneRealm) -> None:
    ran: list[str | None] = []
    async with (
        host(realm) as node,
        member(realm, "render.w1", node.address) as worker,
        member(realm, "shop.w1", node.address) as shop,
    ):
        rendering(worker, ran)
        assert await (await shop.submit("render", b"1")).result(WAIT) == b"1"
        realm.policy(VOTERS, SHOPS, 'render.* | join = ["farm"]')
        await trio.sleep(0.2)  # for grants that are on their way
        waiting = await shop.submit("render", b"2")
        with pytest.raises(TimedOut):
            await waiting.result(0.5)
        assert len(ran) == 1
        realm.policy(VOTERS, WORKERS, SHOPS)
        assert await waiting.result(WAIT) == b"2"
        realm.policy(VOTERS, WORKERS, 'shop.* | join = ["farm"]')
        with pytest.raises(AccessDenied, match=r"right: shop\.w1 may not submit farm/render"):
            await shop.submit("render", b"3")


@pytest.mark.slow
async def test_a_policy_takes_a_member_out_and_lets_it_come_back(realm: OneRealm) -> None:
    async with host(realm) as node, member(realm, "render.w1", node.address) as worker:
        realm.policy(VOTERS, SHOPS)
        await aeventually(lambda: not worker.path)
        await refused(worker, r"right: render\.w1 may not join farm")
        realm.policy(VOTERS, SHOPS, WORKERS)
        await worker.joined(WAIT)


async def test_having_children_takes_the_right_to_carry(realm: OneRealm) -> None:
    realm.policy(VOTERS, WORKERS, SHOPS, 'inner.* | join = ["farm"] | carry = ["cluster:farm"]')
    ran: list[str | None] = []
    async with (
        Host("farm", listen=ANY, trust=realm.trust("voter.a"), fanout=2) as node,
        member(realm, "inner.a", node.address, ANY) as inner,
        member(realm, "render.w1", node.address, ANY) as first,
        member(realm, "render.w2", node.address) as second,
        member(realm, "shop.w1", node.address) as shop,
    ):
        assert first.children == ()
        assert {second.parent, shop.parent} <= {"voter.a", inner.id}
        assert inner.children
        rendering(second, ran)
        heard: list[bytes] = []

        @node.on("chat")
        async def hear(message: ClusterMessage) -> None:
            heard.append(message.body)

        await second.send("chat", b"to all")
        await second.send("chat", b"to one", to=node.id)
        assert await (await shop.submit("render", b"deep")).result(WAIT) == b"deep"
        await aeventually(lambda: sorted(heard) == [b"to all", b"to one"])
        assert ran == [shop.id]
        assert (node.refused, inner.refused) == ({}, {})
        realm.policy(VOTERS, WORKERS, SHOPS, 'inner.* | join = ["farm"]')
        await aeventually(lambda: not inner.children and inner.id not in (second.path + shop.path))


async def test_a_forged_result_or_answer_counts_for_nothing(realm: OneRealm) -> None:
    started, going_on = trio.Event(), trio.Event()
    async with (
        host(realm) as node,
        member(realm, "render.w1", node.address) as worker,
        member(realm, "shop.w1", node.address) as shop,
        member(realm, "shop.x", node.address) as forger,
    ):

        @worker.work("render")
        async def render(job: JobRun) -> bytes:
            started.set()
            await going_on.wait()
            return b"true"

        job = await shop.submit("render", b"1")
        await started.wait()
        run = next(iter(worker._node.work.crew._running.values()))
        grant = Ref(run.serial, run.term, run.fence, run.attempt)
        before = sum(node.refused.values())
        of_work = [
            Results(worker.id, run.term, [run.serial], [run.fence], [b"forged"], [1], []),
            Results(forger.id, run.term, [run.serial], [run.fence], [b"forged"], [1], []),
            Holding([grant]),
        ]
        forge(forger, *(local_frame(Channel.WORK, pack(each)) for each in of_work))
        finished = pack(Finished(shop.epoch, [job.number], [b"forged"], []))
        drain = [0, 1, "drain", worker.id]
        forge(
            forger,
            routed_frame(Channel.WORK, shop.id, forger.id, forger.epoch, finished),
            routed_frame(Channel.WORK, shop.id, node.id, node.epoch, finished),
            routed_frame(Channel.QUERY, worker.id, forger.id, forger.epoch, drain),
        )
        await aeventually(lambda: sum(node.refused.values()) == before + 4)
        await aeventually(lambda: shop.refused == {"right": 1} and worker.refused == {"right": 1})
        with pytest.raises(AccessDenied, match=r"right: shop\.x may not vote farm"):
            await forger.drain(worker.id)
        going_on.set()
        assert await job.result(WAIT) == b"true"
        assert worker.role == "member"


async def test_without_a_policy_all_names_may_do_all_under_their_own(tmp_path: Path) -> None:
    realm = OneRealm(tmp_path)
    ran: list[str | None] = []
    async with (
        host(realm) as node,
        member(realm, "any.worker", node.address, ANY) as worker,
        member(realm, "any.shop", worker.address or "") as shop,
    ):
        rendering(worker, ran)
        assert await (await shop.submit("render", b"1")).result(WAIT) == b"1"
        assert ran == [shop.id]
        assert node.refused == worker.refused == shop.refused == {}


async def test_nodes_of_this_machine_without_a_pass_may_join_where_they_may_carry(tmp_path: Path) -> None:
    realm = OneRealm(tmp_path)
    plain = "tcp://127.0.0.1:0"
    async with (
        Host("farm", listen=plain, trust=realm.trust("voter.a")) as node,
        Member("farm", dial=node.address, id="of no realm") as stranger,
        Member("farm", dial=node.address, trust=realm.trust("render.w1")) as worker,
    ):
        await stranger.joined(WAIT)
        await worker.joined(WAIT)
        realm.policy(VOTERS, WORKERS)
        await aeventually(lambda: not stranger.path and not worker.path)
        realm.policy(VOTERS, WORKERS, '@local | vote = ["farm"] | carry = ["cluster:farm"]')
        await stranger.joined(WAIT)
        await worker.joined(WAIT)


# ---- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_commands_are_told_what_they_may_not(realm: OneRealm) -> None:
    async def fails(*arguments: str, name: str, words: str) -> None:
        own = ("--trust", str(realm.file(name)))
        done = await trio.to_thread.run_sync(lambda: nngkit(*arguments, *own))
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        assert words in done.stderr

    async with host(realm) as node, member(realm, "render.w1", node.address) as worker:
        rendering(worker, [])
        to = ("farm", "--dial", node.address)
        await fails("join", *to, name="guest.ada", words="right: guest.ada may not join farm")
        await fails("submit", *to, "--kind", "render", "x", name="render.w2", words="may not submit farm/render")
        await fails("cluster", "drain", *to[:1], worker.id, *to[1:], name="shop.w1", words="shop.w1 may not vote farm")
        own = ("--trust", str(realm.file("shop.w1")))
        status = await trio.to_thread.run_sync(lambda: nngkit("cluster", "status", *to, "--json", *own))
        assert json.loads(status.stdout)["refused"]["right"] >= 3
        shown = await trio.to_thread.run_sync(lambda: nngkit("cluster", "status", *to, *own))
        assert "refused: " in shown.stdout
