"""Documents, shared objects, the journal and discovery of a cluster's endpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from nngkit.cluster import Host, Member
from nngkit.cluster.records import parse_ends, parse_host_change, parse_message
from nngkit.discovery.daemon import Daemon
from nngkit.discovery.settings import DaemonSettings
from nngkit.errors import Closed, ConfigError
from nngkit.testing import aeventually
from nngkit.testing.cluster_memory import ClusterMemory

VOTERS = {name: f"mem://{name}" for name in "abc"}


class Total:
    """A shared object: a sum that depends on the order of its changes."""

    def __init__(self) -> None:
        self.value = 1

    def update(self, fragment: bytes) -> None:
        sign, number = fragment[:1], int(fragment[1:])
        self.value = self.value * number if sign == b"*" else self.value + number

    def full_state(self) -> bytes:
        return b"%d" % self.value

    def load(self, full: bytes) -> None:
        self.value = int(full)


class Journal:
    """A recorder that keeps its records in a list."""

    def __init__(self, room: int = 1000) -> None:
        self.records: list[tuple[str, bytes]] = []
        self.room = room

    def put(self, value: bytes, *, topic: str, protocol: str, **options: Any) -> bool:
        assert protocol == "cluster"
        if len(self.records) >= self.room:
            return False
        self.records.append((topic, value))
        return True


async def test_a_document_is_edited_by_all_nodes(autojump_clock: MockClock) -> None:
    memory = ClusterMemory()
    async with Host("c", transport=memory.transport("a"), id="a") as a, trio.open_nursery() as nursery:
        nodes: list[Host | Member] = [a]

        async def run(name: str, task_status: Any) -> None:
            async with Member("c", dial="mem://a", transport=memory.transport(name), id=name, fanout=1) as node:
                nodes.append(node)
                task_status.started()
                await trio.sleep_forever()

        for name in "bcd":
            await nursery.start(run, name)
        documents = [node.document("minutes") for node in nodes]
        await trio.sleep(2.0)
        for number, document in enumerate(documents):
            document.text("body").insert(0, f"line {number}\n")
        await trio.sleep(3.0)
        await nursery.start(run, "e")
        documents.append(nodes[-1].document("minutes"))
        await documents[-1].joined(5.0)
        await trio.sleep(1.0)
        texts = {str(document.text("body")) for document in documents}
        assert len(texts) == 1
        assert sorted(texts.pop().split()) == sorted(["line", "0", "line", "1", "line", "2", "line", "3"])
        nursery.cancel_scope.cancel()


async def test_a_shared_object_has_one_order_although_the_host_dies(autojump_clock: MockClock) -> None:
    memory = ClusterMemory()
    async with trio.open_nursery() as nursery:
        nodes: dict[str, Any] = {}
        scopes: dict[str, trio.CancelScope] = {}

        async def run(name: str, task_status: Any) -> None:
            preference = "cba".index(name)
            with trio.CancelScope() as scopes[name]:
                async with Host(
                    "c", transport=memory.transport(name), id=name, voters=VOTERS, preference=preference
                ) as node:
                    nodes[name] = node.share("total", Total())
                    task_status.started()
                    await trio.sleep_forever()

        for name in "abc":
            await nursery.start(run, name)
        await trio.sleep(3.0)

        async def change(name: str, count: int) -> None:
            for number in range(count):
                await nodes[name].change(b"*%d" % (number % 3 + 1) if number % 2 else b"+%d" % number)

        async with trio.open_nursery() as changing:
            for name in "abc":
                changing.start_soon(change, name, 20)
        await trio.sleep(1.0)
        values = {name: shared.content.value for name, shared in nodes.items()}
        assert len(set(values.values())) == 1
        memory.kill("a")
        scopes["a"].cancel()
        del nodes["a"]
        with trio.fail_after(20.0):
            await nodes["b"].change(b"+1000")
            await nodes["c"].change(b"*2")
        await trio.sleep(1.0)
        assert {shared.content.value for shared in nodes.values()} == {(values["b"] + 1000) * 2}
        nursery.cancel_scope.cancel()


async def test_a_node_is_opened_once() -> None:
    async with Host("c", transport=ClusterMemory().transport("a"), id="a") as host:
        with pytest.raises(Closed, match="has been opened before"):
            await host.__aenter__()
        await host.joined(5.0)
    with pytest.raises(Closed, match="has been opened before"):
        await host.__aenter__()


async def test_waits_of_a_shared_object_end_with_their_node(autojump_clock: MockClock) -> None:
    memory = ClusterMemory()
    ended: list[str] = []

    async def wait(name: str, function: Callable[[], Awaitable[None]]) -> None:
        with pytest.raises(Closed):
            await function()
        ended.append(name)

    with trio.fail_after(5.0):
        async with trio.open_nursery() as nursery, Host("c", transport=memory.transport("a"), id="a"):
            async with Member("c", dial="mem://a", transport=memory.transport("m", listens=False)) as member:
                await member.joined(5.0)
                shared = member.share("not at the host", Total())
                nursery.start_soon(wait, "change", partial(shared.change, b"+1"))
                nursery.start_soon(wait, "wait", shared.wait_for_change)
                await wait_all_tasks_blocked()
            await wait_all_tasks_blocked()
            assert sorted(ended) == ["change", "wait"]
            with pytest.raises(Closed):
                await shared.wait_for_change()


async def test_what_a_cluster_does_is_in_the_journal(autojump_clock: MockClock) -> None:
    memory, journal = ClusterMemory(), Journal()
    host = Host("c", transport=memory.transport("a"), id="a", journal=journal, journal_messages=True)

    @host.work("double")
    async def double(job: Any) -> bytes:
        return bytes(job.payload * 2)

    async with host, Member("c", dial="mem://a", transport=memory.transport("b"), id="b") as member:
        await member.joined(5.0)
        await member.send("chat", b"hello")
        await (await member.submit("double", b"ab", key="k")).result(5.0)
        await trio.sleep(1.0)
    change = parse_host_change(next(value for topic, value in journal.records if topic == "cluster.hosts"))
    assert (change.host, change.cluster) == ("a", "c")
    (ended,) = parse_ends(next(value for topic, value in journal.records if topic == "cluster.jobs")).jobs
    assert (ended.kind, ended.key, ended.submitter, ended.worker, ended.outcome) == ("double", b"k", "b", "a", "result")
    message = parse_message(next(value for topic, value in journal.records if topic == "cluster.messages"))
    assert (message.kind, message.origin, message.body) == ("chat", "b", b"hello")


async def test_a_full_journal_does_not_stop_the_cluster(autojump_clock: MockClock) -> None:
    memory, journal = ClusterMemory(), Journal(room=1)
    host = Host("c", transport=memory.transport("a"), id="a", journal=journal)

    @host.work("double")
    async def double(job: Any) -> bytes:
        return bytes(job.payload * 2)

    async with host:
        assert await (await host.submit("double", b"ab")).result(5.0) == b"abab"
        assert host.journal_dropped == 1


async def test_a_member_finds_its_cluster_by_discovery() -> None:
    async with Daemon(
        DaemonSettings(listen=("tcp://127.0.0.1:0",), query=("tcp://127.0.0.1:0",), deadline=0.2, interval=0.1)
    ) as daemon:
        await _join_by(daemon)


async def _join_by(daemon: Daemon) -> None:
    surveys, queries = daemon.addresses[0], daemon.query_addresses[0]
    async with (
        Host("farm", listen="tcp://127.0.0.1:0", discovery=surveys, fanout=1) as host,
        Member("farm", daemons=queries, listen="tcp://127.0.0.1:0", discovery=surveys) as first,
    ):
        await first.joined(10.0)
        assert first.host == host.id
        async with Member("farm", daemons=queries) as second:  # the host is full and declines
            await second.joined(10.0)
            assert second.parent == first.id


async def test_a_full_cluster_refuses_more_members(autojump_clock: MockClock) -> None:
    memory = ClusterMemory()
    async with (
        Host("c", transport=memory.transport("a"), id="a", max_members=2) as host,
        Member("c", dial="mem://a", transport=memory.transport("b"), id="b") as b,
    ):
        await b.joined(5.0)
        async with Member("c", dial="mem://a", transport=memory.transport("d"), id="d") as d:
            await trio.sleep(3.0)
            assert d.role == "joining"
            assert {member.id for member in (await host.tree()).members} == {"a", "b"}


async def test_a_host_that_is_drained_hands_over(autojump_clock: MockClock) -> None:
    memory = ClusterMemory()
    async with (
        Host("c", transport=memory.transport("a"), id="a", voters=VOTERS, preference=3) as a,
        Host("c", transport=memory.transport("b"), id="b", voters=VOTERS, preference=2) as b,
        Host("c", transport=memory.transport("c"), id="c", voters=VOTERS, preference=1) as c,
    ):
        await c.joined(10.0)
        assert a.role == "host"
        await a.drain()
        await aeventually(lambda: b.host == c.host and b.host in ("b", "c"))  # the first that has the whole log


@pytest.mark.parametrize("pause", [0.0, 0.1, 0.5, 1.0])
async def test_a_document_is_opened_whole_right_after_a_change_of_the_host(
    pause: float, autojump_clock: MockClock
) -> None:
    memory = ClusterMemory()
    async with (
        Host("c", transport=memory.transport("a"), id="a", voters=VOTERS, preference=3) as a,
        Host("c", transport=memory.transport("b"), id="b", voters=VOTERS, preference=2),
        Host("c", transport=memory.transport("c"), id="c", voters=VOTERS, preference=1),
        Member("c", dial=[*VOTERS.values()], transport=memory.transport("d"), id="d") as d,
        Member("c", dial=[*VOTERS.values()], transport=memory.transport("e"), id="e") as e,
    ):
        await d.joined(10.0)
        await e.joined(10.0)
        d.document("minutes").text("body").insert(0, "hello")
        await trio.sleep(1.0)
        await a.drain()
        await aeventually(lambda: e.host in ("b", "c"))
        await trio.sleep(pause)
        document = e.document("minutes")
        await document.joined(5.0)
        assert str(document.text("body")) == "hello"


@pytest.mark.parametrize("option", ["token", "ticket", "authenticator"])
def test_a_secret_that_is_no_text_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        Host("c", listen="tcp://127.0.0.1:0", **{option: 5})  # type: ignore[arg-type]


def test_a_voter_has_to_be_among_the_voters_and_to_listen() -> None:
    with pytest.raises(ConfigError, match="not among them"):
        Host("c", listen="tcp://127.0.0.1:0", id="z", voters=VOTERS)
    with pytest.raises(ConfigError, match="accepts members"):
        Host("c")
    with pytest.raises(ConfigError, match="needs the address"):
        Member("c")
    with pytest.raises(ConfigError, match="only they keep a log"):
        Member("c", dial="tcp://127.0.0.1:1", store="x")
