"""Mesh over real sockets: several hops, rings, cuts, slow programs, other loops."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

import nngkit.aio
import nngkit.blocking
from nngkit.errors import Closed, ConfigError, TimedOut, TooLarge, Unreachable
from nngkit.fanout import Mesh, MeshGap, MeshMessage
from nngkit.mesh.wire import CONTROL, Digest, Line, data_frame, key_of
from nngkit.protocols import Bus
from nngkit.testing import aeventually

ANY = "tcp://127.0.0.1:0"
WAIT = 10.0  # seconds; none of these waits takes one on an idle machine


@contextlib.asynccontextmanager
async def nodes(names: str, links: str, **options: Any) -> AsyncIterator[dict[str, Mesh]]:
    """Open nodes of one letter each; `links` such as "ab bc": a is dialed by b, b by c."""
    async with contextlib.AsyncExitStack() as stack:
        found: dict[str, Mesh] = {}
        for name in names:
            dial = [found[link[0]].address for link in links.split() if link[1] == name]
            found[name] = await stack.enter_async_context(Mesh(listen=ANY, dial=dial, id=name, **options))
        for name, node in found.items():
            await node.wait_for_neighbours(sum(name in link for link in links.split()), WAIT)
        yield found


async def take(node: Mesh, count: int) -> list[MeshMessage]:
    with trio.fail_after(WAIT):
        return [await node.recv() for _ in range(count)]


async def test_a_message_goes_over_several_hops_once_to_each_node() -> None:
    async with nodes("abcdef", "ab bc cd de ef af ad be cf") as mesh:
        for name, node in mesh.items():
            assert await node.send(name.encode()) == 1
        for name, node in mesh.items():
            heard = await take(node, 5)
            assert sorted((each.origin, each.sequence, each.body) for each in heard) == [
                (other, 1, other.encode()) for other in sorted(mesh) if other != name
            ]
        await mesh["a"].send(b"end")  # what came twice would come before it
        for name, node in mesh.items():
            if name != "a":
                assert [each.body for each in await take(node, 1)] == [b"end"]
        assert sum(node.stats.duplicates for node in mesh.values()) > 0
        assert all(node.stats.gaps == 0 for node in mesh.values())


async def test_many_messages_keep_their_order_over_three_hops() -> None:
    async with nodes("abcd", "ab bc cd") as mesh:
        count = 5000

        async with trio.open_nursery() as nursery:
            nursery.start_soon(mesh["a"].send_many, [b"%d" % number for number in range(count)])
            heard = await take(mesh["d"], count)
        assert [int(each.body) for each in heard] == list(range(count))
        assert [each.sequence for each in heard] == list(range(1, count + 1))


async def test_a_node_that_was_cut_off_gets_what_it_missed() -> None:
    async with nodes("ab", "ab", digest=0.05) as mesh:
        a, b = mesh["a"], mesh["b"]
        await a.send(b"1")
        await take(b, 1)
        events = []
        a._bus.on_peer(lambda event: events.append(event.kind))
        a._bus.disconnect(a._bus.pipes[0])
        for number in range(2, 300):
            await a.send(b"%d" % number)
        assert [int(each.body) for each in await take(b, 298)] == list(range(2, 300))
        assert "joined" in events
        assert b.stats.gaps == 0


async def test_messages_without_a_neighbour_are_kept_for_the_next_one() -> None:
    async with Mesh(listen=ANY, id="a") as a, Mesh(dial=a.address, id="b") as b:
        await b.wait_for_neighbours(1, WAIT)
        async with Mesh(listen=ANY, id="c") as c:  # begins before a's first message
            await a.send(b"early")
            assert (await take(b, 1))[0].body == b"early"
            b._bus.dial(c.address)
            assert (await take(c, 1))[0].body == b"early"


async def test_a_program_that_reads_too_slowly_is_told_what_it_missed() -> None:
    async with nodes("ab", "ab", recv_buffer=10) as mesh:
        a, b = mesh["a"], mesh["b"]
        await a.send_many([b"x"] * 100)
        await aeventually(lambda: b.stats.delivered == 100, timeout=WAIT)
        seen: list[MeshMessage | MeshGap] = []
        with trio.fail_after(WAIT):
            async for event in b.events():
                seen.append(event)
                if isinstance(event, MeshGap):
                    break
        assert [event.sequence for event in seen[:-1] if isinstance(event, MeshMessage)] == list(range(1, 11))
        assert isinstance(seen[-1], MeshGap)
        assert (seen[-1].first, seen[-1].last, seen[-1].count, seen[-1].reason) == (11, 100, 90, "unread")
        assert b.stats.unread == 90
        await a.send(b"later")
        assert (await take(b, 1))[0].sequence == 101


async def test_without_time_to_wait_it_takes_what_is_there() -> None:
    async with nodes("ab", "ab") as mesh:
        await mesh["a"].send(b"x")
        await aeventually(lambda: mesh["b"].stats.delivered == 1, timeout=WAIT)
        assert (await mesh["b"].recv(timeout=0)).body == b"x"
        with pytest.raises(TimedOut):
            await mesh["b"].recv(timeout=0)


async def test_queued_bytes_have_a_limit() -> None:
    async with nodes("ab", "ab", recv_bytes=10_000) as mesh:
        await mesh["a"].send_many([bytes(1000)] * 50)
        await aeventually(lambda: mesh["b"].stats.delivered == 50, timeout=WAIT)
        assert mesh["b"].stats.unread == 50 - 10_000 // 1200


async def test_a_message_that_cannot_be_sent_is_refused_before_it_is_numbered() -> None:
    async with nodes("ab", "ab", recv_max_size=100) as mesh:
        with pytest.raises(TypeError, match="bytes-like"):
            await mesh["a"].send(5)  # type: ignore[arg-type]
        with pytest.raises(TooLarge):
            await mesh["a"].send(bytes(101))
        assert await mesh["a"].send(bytes(100)) == 1
        assert len((await take(mesh["b"], 1))[0].body) == 100


async def test_a_stranger_on_the_bus_is_counted_and_harmless() -> None:
    async with nodes("ab", "ab") as mesh:
        with Bus(dial=mesh["a"].address) as stranger:
            await stranger.await_for_peers(1, WAIT)
            for frame in (b"", b"\xd1", b"\xd1" + bytes(40), b"\xa1\x61v\x18", b"\xff" * 1000):
                await stranger.asend(frame)
            await aeventually(lambda: mesh["a"].stats.bad == 5, timeout=WAIT)
        await mesh["b"].send(b"still here")
        assert (await take(mesh["a"], 1))[0].body == b"still here"


async def test_an_id_that_is_used_twice_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with nodes("ab", "ab", digest=0.05) as mesh:
        b = mesh["b"]
        with Bus(dial=b.address) as liar:
            await liar.await_for_peers(1, WAIT)
            claim = Line("b", b._state.epoch, 1, 10, 9, 1000)
            await liar.asend(CONTROL.encode(Digest("liar", 1, (claim,))))
            await aeventually(lambda: b.stats.clashes == 1, timeout=WAIT)
        assert "two nodes have one id" in caplog.text
        assert await b.send(b"still here") == 1
        assert (await take(mesh["a"], 1))[0].body == b"still here"


async def test_neighbours_and_counters() -> None:
    async with nodes("abc", "ab bc") as mesh:
        await aeventually(lambda: {each.id for each in mesh["b"].neighbours} == {"a", "c"}, timeout=WAIT)
        await mesh["a"].send(b"x")
        await take(mesh["c"], 1)
        assert mesh["b"].stats.relayed == 1
        assert mesh["a"].stats.sent == 1
        assert mesh["b"].stats.streams == 1
        assert mesh["b"].address in mesh["b"].addresses
        assert mesh["b"].socket_stats.dropped == 0


async def test_waiting_for_neighbours_has_a_limit() -> None:
    async with Mesh(listen=ANY) as alone:
        with pytest.raises(TimedOut):
            await alone.wait_for_neighbours(1, 0.01)
        with Bus(dial=alone.address), pytest.raises(TimedOut, match="no neighbour has sent a digest"):
            await alone.wait_for_neighbours(1, 0.2)


async def test_leaving_the_block_ends_the_iterations() -> None:
    async with trio.open_nursery() as nursery:
        seen: list[MeshMessage] = []

        async def read(node: Mesh) -> None:
            async for message in node:
                seen.append(message)  # noqa: PERF401  # read by the test meanwhile

        async with nodes("ab", "ab") as mesh:
            nursery.start_soon(read, mesh["b"])
            await mesh["a"].send(b"x")
            await aeventually(lambda: len(seen) == 1, timeout=WAIT)
        with pytest.raises(Closed):
            await mesh["a"].send(b"x")
        with pytest.raises(Closed):
            await mesh["b"].recv()


@pytest.mark.parametrize(
    "options",
    [
        {"id": ""},
        {"id": "x" * 65},
        {"id": "a\nb"},
        {"id": "\ud800"},
        {"recv_buffer": 0},
        {"buffer_bytes": 0},
        {"patience": 0},
    ],
)
async def test_unusable_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Mesh(listen=ANY, **options)


async def test_an_address_in_use_is_told() -> None:
    async with Mesh(listen=ANY) as node:
        with pytest.raises(Unreachable):
            async with Mesh(listen=node.address):
                pass


def test_outside_a_loop_it_names_the_alternatives() -> None:
    with pytest.raises(Closed, match="blocking"):
        Mesh(listen=ANY).address  # noqa: B018


def test_threads_use_the_mesh() -> None:
    with nngkit.blocking.Mesh(listen=ANY, id="a") as a, nngkit.blocking.Mesh(dial=a.address, id="b") as b:
        b.wait_for_neighbours(1, WAIT)
        assert a.send(b"x") == 1
        assert b.recv(timeout=WAIT).body == b"x"
        assert a.send_many([b"y", b"z"]) == 2
        with contextlib.closing(b.messages()) as messages:
            assert [next(messages).body, next(messages).body] == [b"y", b"z"]
        assert b.stats.delivered == 3


def test_asyncio_uses_the_mesh() -> None:
    import asyncio

    async def main() -> None:
        async with nngkit.aio.Mesh(listen=ANY, id="a") as a, nngkit.aio.Mesh(dial=a.address, id="b") as b:
            await b.wait_for_neighbours(1, WAIT)
            await a.send(b"x")
            async with asyncio.timeout(WAIT):
                assert (await b.recv()).body == b"x"

    asyncio.run(main())


async def test_a_forged_number_of_a_passing_stranger_takes_no_message_of_a_quiet_node() -> None:
    async with nodes("abc", "ab bc", patience=0.5, digest=0.1) as mesh:
        await mesh["a"].send(b"first")
        (first,) = await take(mesh["c"], 1)
        with Bus(dial=mesh["b"].address) as stranger:
            await stranger.await_for_peers(1, timeout=WAIT)
            await stranger.asend(data_frame(key_of("a", first.epoch), 60_000, b"forged"))
            await aeventually(lambda: mesh["c"].stats.held_bytes > 0, WAIT)
        await aeventually(lambda: mesh["c"].stats.unconfirmed == 59_999, WAIT)
        for _ in range(100):
            await mesh["a"].send(b"true")
        assert [each.body for each in await take(mesh["c"], 100)] == [b"true"] * 100
        assert mesh["c"].stats.gaps == mesh["b"].stats.gaps == 0
