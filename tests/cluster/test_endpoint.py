"""Endpoints of a cluster over the in-memory network, with trio's virtual clock."""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, TypeVar

import pytest
import trio
from trio.testing import MockClock

from nngkit.cluster import ClusterMessage, Host, Member, issue_ticket
from nngkit.cluster.frames import Challenge, Greeting, Proof, greeting_frame
from nngkit.errors import AccessDenied, Closed, JobFailed, NotFound, TimedOut
from nngkit.protocols import Bus
from nngkit.testing.cluster_memory import ClusterMemory

N = TypeVar("N", Host, Member)

VOTERS = {name: f"mem://{name}" for name in "abc"}


class Cluster:
    """Nodes in memory; what each has heard."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.memory = ClusterMemory(delay=0.001)
        self.nodes: dict[str, Host | Member] = {}
        self.heard: dict[str, list[tuple[str, bytes]]] = {}
        self._stack = stack

    async def host(self, name: str, *, clock: float = 0.0, **options: Any) -> Host:
        """Start a host; `clock`: seconds by which its clock is ahead."""
        host = Host("c", transport=self.memory.transport(name), id=name, **options)
        host.epoch += int(clock * 1e6)
        return await self._enter(host)

    async def member(self, name: str, dial: str = "a", *, listens: bool = True, **options: Any) -> Member:
        transport = self.memory.transport(name, listens=listens)
        return await self._enter(Member("c", dial=f"mem://{dial}", transport=transport, id=name, **options))

    async def _enter(self, node: N) -> N:
        heard = self.heard[node.id] = []

        @node.on("chat")
        async def take(message: ClusterMessage) -> None:
            heard.append((message.origin, message.body))

        self.nodes[node.id] = node
        return await self._stack.enter_async_context(node)

    async def kill(self, name: str) -> None:
        """End a node as SIGKILL does: its links end, and it says nothing any more."""
        self.memory.kill(name)
        node = self.nodes.pop(name)
        node._left = True
        await node.aclose()

    async def hosts(self, timeout: float = 10.0) -> str:
        """Wait until all nodes follow one host, which is one of them; return its id."""
        with trio.fail_after(timeout):
            while True:
                hosts = {node.host for node in self.nodes.values()}
                if (
                    len(hosts) == 1
                    and (host := hosts.pop()) in self.nodes
                    and len(await self._members(host)) == len(self.nodes)
                ):
                    return host
                await trio.sleep(0.01)

    async def _members(self, host: str) -> list[str]:
        return [member.id for member in self.nodes[host]._node.questions.tree().members]


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        yield Cluster(stack)


async def test_a_message_comes_once_to_all_others(autojump_clock: MockClock) -> None:
    async with cluster() as c:
        await c.host("a")
        for name in "bcdefgh":
            await c.member(name, fanout=2)
        assert await c.hosts() == "a"
        await trio.sleep(2.0)
        for number in range(50):
            await c.nodes["e"].send("chat", b"%d" % number)
        await trio.sleep(1.0)
        expected = [("e", b"%d" % number) for number in range(50)]
        assert {name: heard for name, heard in c.heard.items() if name != "e"} == dict.fromkeys("abcdfgh", expected)
        assert c.heard["e"] == []


async def test_a_message_to_one_node(autojump_clock: MockClock) -> None:
    async with cluster() as c:
        await c.host("a")
        for name in "bcde":
            await c.member(name, fanout=1)
        await c.hosts()
        await c.nodes["b"].send("chat", b"for you", to="e")
        await c.nodes["b"].send("chat", b"for me", to="b")
        await trio.sleep(1.0)
        assert c.heard == {"a": [], "b": [("b", b"for me")], "c": [], "d": [], "e": [("b", b"for you")]}


async def test_jobs_are_done_by_the_members(autojump_clock: MockClock) -> None:
    async with cluster() as c:
        host = await c.host("a")
        workers = [Member("c", dial="mem://a", transport=c.memory.transport(f"w{n}"), id=f"w{n}") for n in range(4)]
        done: dict[str, int] = {}
        for worker in workers:

            @worker.work("double", concurrency=2)
            async def double(job: Any, name: str = worker.id) -> bytes:
                await trio.sleep(0.02)
                done[name] = done.get(name, 0) + 1
                return bytes(job.payload * 2)

            await c._enter(worker)
        await c.hosts()
        job = await host.submit("double", b"ab")
        assert await job.result(5.0) == b"abab"
        submitter = await c.member("s")
        results = [result async for result in submitter.map("double", [b"%d" % n for n in range(100)], in_flight=50)]
        assert results == [b"%d%d" % (n, n) for n in range(100)]
        assert sum(done.values()) == 101
        assert len(done) == 4
        status = await submitter.status()
        assert (status.host, status.members, status.grants) == ("a", 6, True)


async def test_a_job_that_fails_is_tried_again_and_then_dead(autojump_clock: MockClock) -> None:
    async with cluster() as c:
        host = Host("c", transport=c.memory.transport("a"), id="a")
        tries: list[int] = []
        ids: set[int] = set()

        @host.work("fail")
        async def fail(job: Any) -> bytes:
            tries.append(job.try_number)
            ids.add(job.id)
            if job.payload == b"no":
                raise JobFailed("never")
            raise ValueError("broken")

        await c._enter(host)
        job = await host.submit("fail", b"x", tries=3)
        with pytest.raises(JobFailed, match="ValueError: broken") as caught:
            await job.result(60.0)
        assert (caught.value.outcome, caught.value.tries, tries) == ("dead", 3, [1, 2, 3])
        assert (caught.value.worker, ids, caught.value.job) == ("a", {job.id}, job.id)
        with pytest.raises(JobFailed) as caught:
            await (await host.submit("fail", b"no")).result(60.0)
        assert (caught.value.outcome, caught.value.message, tries) == ("failed", "never", [1, 2, 3, 1])
        with pytest.raises(JobFailed, match="not finished within") as caught:
            await (await host.submit("unknown", b"", deadline=0.5)).result(60.0)
        assert caught.value.outcome == "expired"


async def test_another_voter_becomes_host(autojump_clock: MockClock) -> None:
    async with cluster() as c:
        for name in "abc":
            await c.host(name, voters=VOTERS, preference={"a": 2, "b": 1, "c": 0}[name])
        assert await c.hosts() == "a"
        for number in range(6):
            await c.member(f"m{number}", "bca"[number % 3], fanout=2)
        await c.hosts()
        term = c.nodes["b"].term
        await c.kill("a")
        assert await c.hosts() == "b"
        assert c.nodes["m3"].term > term
        await c.nodes["m3"].send("chat", b"still here")
        await trio.sleep(1.0)
        assert {name for name, heard in c.heard.items() if ("m3", b"still here") in heard} == {"b", "c"} | {
            f"m{number}" for number in (0, 1, 2, 4, 5)
        }


@pytest.mark.parametrize("voters", ["a", "abc"])
async def test_members_come_back_to_hosts_whose_clocks_were_set_back(autojump_clock: MockClock, voters: str) -> None:
    options: dict[str, Any] = {"voters": VOTERS} if len(voters) > 1 else {}
    async with cluster() as c:
        for name in voters:
            await c.host(name, **options)
        for name in ("m0", "m1"):
            await c.member(name, fanout=2)
        before = c.nodes[await c.hosts()].term
        for name in voters:
            await c.kill(name)
        for name in voters:
            await c.host(name, clock=-86_400.0, **options)
        host = c.nodes[await c.hosts(60.0)]
        assert host.term > before
        await host.send("chat", b"good morning")
        job = await c.nodes["m1"].submit("shout", b"hi")

        @host.work("shout")
        async def shout(job: Any) -> bytes:  # not a plain function: the clock would jump while its thread starts
            return bytes(job.payload.upper())

        assert await job.result(5.0) == b"HI"
        await trio.sleep(5.0)  # the message may be on its way still
        assert all((host.id, b"good morning") in c.heard[name] for name in ("m0", "m1"))


async def test_jobs_survive_the_host(autojump_clock: MockClock) -> None:
    async with cluster() as c:
        for name in "abc":
            await c.host(name, voters=VOTERS, preference={"a": 2, "b": 1, "c": 0}[name])
        runs: list[bytes] = []
        for number in range(3):
            worker = Member(
                "c", dial=list(VOTERS.values()), transport=c.memory.transport(f"w{number}"), id=f"w{number}"
            )

            @worker.work("slow", concurrency=2)
            async def slow(job: Any) -> bytes:
                await trio.sleep(0.5)
                runs.append(job.payload)
                return bytes(job.payload)

            await c._enter(worker)
        await c.hosts()
        jobs = [await c.nodes["w0"].submit("slow", b"%d" % number) for number in range(30)]
        await trio.sleep(1.2)
        await c.kill("a")
        assert [await job.result(60.0) for job in jobs] == [b"%d" % number for number in range(30)]
        assert len(runs) < 40  # those that ran when the host died are reported, not done again


async def test_a_wrong_token_is_refused_with_a_reason() -> None:
    async with cluster() as c:
        await c.host("a", token="right")
        member = await c.member("b", token="wrong")
        with pytest.raises(AccessDenied, match="wrong token"):
            await member.joined(0.5)
        await (await c.member("d", token="right")).joined(5.0)


@pytest.mark.slow
async def test_a_ticket_for_any_id_makes_no_voter(autojump_clock: MockClock) -> None:
    """Neither by dialing voters nor by being dialed, whatever that node itself admits."""
    until = time.time() + 600
    for stranger in "abc":
        async with cluster() as c:
            for name in "abc":
                await c.host(name, voters=VOTERS, token="s")
            await c.hosts()
            await c.kill(stranger)
            honest = list(c.nodes.values())
            permission = issue_ticket("s", "c", until=until)
            options: dict[str, Any] = {"ticket": permission, "authenticator": lambda _: True, "preference": 9}
            voter = await c.host(stranger, voters=VOTERS, **options)
            await trio.sleep(5.0)
            assert voter.role != "host"
            assert {node.host for node in honest} <= {node.id for node in honest}
            await c.kill(honest[0].id)
            await trio.sleep(20.0)
            assert "host" not in (voter.role, honest[1].role)  # one voter of three


async def test_a_voter_may_have_a_ticket_for_its_id(autojump_clock: MockClock) -> None:
    until = time.time() + 600
    for name in "abc":
        async with cluster() as c:
            for other in "abc":
                ticket = issue_ticket("s", "c", until=until, id=name)
                own: dict[str, Any] = {"ticket": ticket} if other == name else {"token": "s"}
                await c.host(other, voters=VOTERS, **own)
            assert await c.hosts() in VOTERS


@pytest.mark.slow
async def test_a_stranger_that_is_dialed_learns_no_secret_and_is_not_joined() -> None:
    secret, ticket = "the secret of the cluster", issue_ticket("the secret of the cluster", "c", until=time.time() + 60)
    owns: list[dict[str, Any]] = [{"token": secret}, {"ticket": ticket}]
    for own in owns:
        heard = bytearray()
        with Bus(listen="tcp://127.0.0.1:0") as stranger:

            async def lie(stranger: Bus = stranger, heard: bytearray = heard) -> None:
                heard.extend(await stranger.arecv())
                await stranger.asend(greeting_frame(Challenge("a", 1, bytes(16), b"")))
                heard.extend(await stranger.arecv())
                await stranger.asend(greeting_frame(Proof(bytes(16), b"", bytes(32))))
                await stranger.asend(greeting_frame(Greeting("c", "a", 1, False)))
                await trio.sleep_forever()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(lie)
                async with Member("c", dial=stranger.address, id="w", **own) as member:
                    with pytest.raises(AccessDenied, match="does not prove that it belongs to this cluster"):
                        await member.joined(1.0)
                nursery.cancel_scope.cancel()
        assert len(heard) > 50
        assert secret.encode() not in heard
        assert urlsafe_b64decode(ticket)[:32] not in heard
        assert ticket.encode() not in heard


async def test_without_a_timeout_a_refusal_ends_the_wait_as_well(autojump_clock: MockClock) -> None:
    async with cluster() as c:
        await c.host("a", token="right")
        member = await c.member("b", token="wrong")
        with trio.fail_after(20.0), pytest.raises(AccessDenied, match="not joined: mem://a: wrong token"):
            await member.joined()


async def test_a_node_waits_on_although_others_are_up_before_its_host(autojump_clock: MockClock) -> None:
    """It has dialed itself, and a node of another cluster, but one of its own may accept it in time."""
    async with cluster() as c:
        other = await c._stack.enter_async_context(Host("other", transport=c.memory.transport("o"), id="o"))
        member = await c.member("b", "b")
        member._found(["mem://b", "mem://o", "mem://a"])
        nursery = await c._stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(member.joined)
        await trio.sleep(2.0)
        assert member.role == "joining"
        await c.host("a")
        await member.joined(5.0)
        assert (member.role, other.children) == ("member", ())


@pytest.mark.parametrize("depth", [1, 4])
async def test_the_id_of_another_node_never_joins(depth: int, autojump_clock: MockClock) -> None:
    """Also if their nearest common parent is the host, or is not."""
    async with cluster() as c:
        await c.host("a", fanout=1 + (depth == 1))
        parent = "a"
        for number in range(depth - 1):
            parent = (await c.member(f"m{number}", fanout=1 + (number == 1))).id
            await c.nodes[parent].joined(5.0)
        first = await c.member("x", listens=False)
        await first.joined(5.0)
        for number in range(5):
            transport = c.memory.transport(f"x{number}", listens=False)
            async with Member("c", dial="mem://a", transport=transport, id="x") as second:
                with pytest.raises(AccessDenied, match="the id x is in use"):
                    await second.joined(20.0)
        assert first.role == "member"
        await first.joined(1.0)


@pytest.mark.parametrize("depth", [1, 4])
async def test_a_node_joins_once_a_silent_one_of_its_id_is_given_up(depth: int, autojump_clock: MockClock) -> None:
    """Until then the silent one may answer, and the later one would have to leave."""
    async with cluster() as c:
        await c.host("a", fanout=1 + (depth == 1))
        for number in range(depth - 1):
            await (await c.member(f"m{number}", fanout=1 + (number == 1))).joined(5.0)
        await (await c.member("x", listens=False)).joined(5.0)
        del c.nodes["x"]
        c.memory.split({"x"})
        transport = c.memory.transport("x2", listens=False)
        async with Member("c", dial="mem://a", transport=transport, id="x") as second:
            with pytest.raises(TimedOut, match="a, the host, has not confirmed it"):
                await second.joined(0.5)
            await second.joined(5.0)
            assert not any(node._node.place.has_earlier("x", second.epoch) for node in c.nodes.values())
            await second.joined(0.0)


async def test_a_node_that_comes_back_joins_once_its_earlier_run_is_gone(autojump_clock: MockClock) -> None:
    async with cluster() as c:
        await c.host("a")
        await (await c.member("b")).joined(5.0)
        await c.kill("b")
        again = await c.member("b")
        await again.joined(3.0)
        assert c.nodes["a"].children == ("b",)


async def test_an_id_that_is_in_use_is_refused_to_the_later_node(autojump_clock: MockClock) -> None:
    async with cluster() as c:
        await c.host("a")
        first = await c.member("b", listens=False)
        await first.joined(5.0)
        transport = c.memory.transport("b2", listens=False)
        second = await c._stack.enter_async_context(Member("c", dial="mem://a", transport=transport, id="b"))
        await trio.sleep(5.0)
        with pytest.raises(AccessDenied, match="the id b is in use by a node that does not listen"):
            await second.submit("x", b"")
        assert first.role == "member"


async def test_without_a_host_joining_times_out(autojump_clock: MockClock) -> None:
    async with cluster() as c:
        member = await c.member("b", "nowhere")
        with pytest.raises(TimedOut, match=r"no host in 3\.0 s: mem://nowhere: refused"):
            await member.joined(3.0)
        voter = await c.member("c", "a")
        await c.host("a", voters=VOTERS)
        with pytest.raises(TimedOut, match=r"no host in 3\.0 s: mem://a: connected, without a way to a host"):
            await voter.joined(3.0)


async def test_a_node_is_drained_by_order(autojump_clock: MockClock) -> None:
    async with cluster() as c:
        host = await c.host("a")
        for name in "bcde":
            await c.member(name, fanout=1)
        await c.hosts()
        with pytest.raises(NotFound):
            await host.drain("nowhere")
        await c.nodes["e"].drain("b")
        await trio.sleep(8.0)
        assert {member.id for member in (await host.tree()).members} == {"a", "c", "d", "e"}


async def test_an_order_to_leave_is_for_the_run_that_was_there(autojump_clock: MockClock) -> None:
    async with cluster() as c:
        host = await c.host("a")
        await c.member("b")
        await c.hosts()
        c.memory.split({"b"})  # it hangs, so it is killed, and comes back
        await host.drain("b")
        await c.kill("b")
        c.memory.heal()
        await trio.sleep(20.0)
        assert [member.id for member in (await host.tree()).members] == ["a"]
        again = await c.member("b")
        await again.joined(10.0)
        await trio.sleep(20.0)
        assert {member.id for member in (await host.tree()).members} == {"a", "b"}


async def test_changes_of_the_role_can_be_awaited_by_several(autojump_clock: MockClock) -> None:
    async with cluster() as c:
        for name in "abc":
            await c.host(name, voters=VOTERS)
        member = await c.member("m", dial="b")
        seen: list[tuple[str, str | None]] = []
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(member.joined)
            first = await c.hosts()
            assert [name for name, node in c.nodes.items() if node.holds_lease] == [first]
            await c.kill(first)
            while member.host in (None, first) or member.role != "member":
                await member.wait_for_change()
                seen.append((member.role, member.host))
        assert ("joining", None) in seen
        assert seen[-1] == ("member", member.host)
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                with suppress(Closed):
                    while True:
                        await member.wait_for_change()

            nursery.start_soon(wait)
            await trio.sleep(1.0)
            await member.aclose()


async def test_the_first_change_of_a_shared_object_is_soon_everywhere(autojump_clock: MockClock) -> None:
    class Lines:
        def __init__(self) -> None:
            self.lines: list[bytes] = []

        def update(self, fragment: bytes) -> None:
            self.lines.append(fragment)

        def full_state(self) -> bytes:
            return b",".join(self.lines)

        def load(self, full: bytes) -> None:
            self.lines = full.split(b",") if full else []

    async with cluster() as c:
        host = await c.host("a")
        member = await c.member("m")
        await member.joined(5)
        contents = Lines(), Lines()
        host.share("lines", contents[0])
        shared = member.share("lines", contents[1])
        began = trio.current_time()
        await shared.change(b"first")
        assert trio.current_time() - began < 1.0
        assert [each.lines for each in contents] == [[b"first"], [b"first"]]


@pytest.mark.slow
async def test_leaves_leave_a_host_that_has_too_much_to_do_and_come_back(autojump_clock: MockClock) -> None:
    load = {"a": 0.1, "b": 0.1, "x": 0.1}
    async with cluster() as c:
        await c.host("a", fanout=9, load=lambda: load["a"])
        await c.member("b", fanout=9, load=lambda: load["b"])
        await c.member("x", fanout=9, load=lambda: load["x"])
        for number in range(9):
            await c.member(f"l{number}", listens=False)

        def leaves() -> dict[str, int]:
            """Return how many leaves each node with children has."""
            return {
                name: sum(child.startswith("l") for child in node.children)
                for name, node in c.nodes.items()
                if not name.startswith("l")
            }

        await trio.sleep(5.0)
        assert leaves() == {"a": 3, "b": 3, "x": 3}
        load["b"] = 0.95
        await trio.sleep(20.0)
        assert 0 < leaves()["b"] < 3, "one by one"
        await trio.sleep(30.0)
        assert leaves() | {"a": 0} in ({"a": 0, "b": 0, "x": 4}, {"a": 0, "b": 0, "x": 5})
        load["b"] = 0.7  # not busy enough to give leaves away, and too busy to get them back
        await trio.sleep(20.0)
        assert leaves()["b"] == 0
        load["b"] = 0.2
        await trio.sleep(20.0)
        assert leaves() == {"a": 3, "b": 3, "x": 3}


async def test_a_function_for_the_load_that_fails_is_logged_and_left(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster() as c:
        calls = []

        def load() -> float:
            calls.append(1)
            raise ValueError("no such file")

        await c.host("a", load=load)
        await trio.sleep(20.0)
    assert len(calls) == 1
    assert "`load` has failed" in caplog.text


async def test_a_voter_with_another_list_of_voters_is_told(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster() as c:
        for name in "abc":
            await c.host(name, voters=VOTERS)
        await c.hosts()
        assert "same list" not in caplog.text
        await c.host("d", voters=VOTERS | {"d": "mem://d", "e": "mem://e"})
        await c.hosts()
    assert "d: the voters are a, b, c, d, e here and a, b, c at " in caplog.text
    assert "all voters need the same list" in caplog.text
