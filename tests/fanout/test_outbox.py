"""Outbox: on disk, in order, acknowledged records never twice; away peers, restarts, kills, caps."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from nngkit.errors import BadMessage, Closed, ConfigError, Damaged, Full
from nngkit.fanout import Outbox, OutboxReceiver, encode_entries
from nngkit.journal import Recorder, read
from nngkit.protocols import Pair0, Pull, Push, Rep, Req
from tests.cli.commands import ROOT, environment
from tests.fanout.journals import numbers


class Receiver:
    """REP that keeps what it receives, and drops duplicates."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.receiver = OutboxReceiver()

    async def run(self, rep: Rep) -> None:
        async for request in rep:
            self.values += self.receiver.accept(request.body)
            await request.areply(b"")


@asynccontextmanager
async def receiving(url: str) -> AsyncIterator[tuple[Receiver, str]]:
    receiver = Receiver()
    async with Rep(listen=url) as rep, trio.open_nursery() as nursery:
        nursery.start_soon(receiver.run, rep)
        yield receiver, rep.address
        nursery.cancel_scope.cancel()


async def test_records_are_sent_in_order_when_the_peer_is_back(tmp_path: Path) -> None:
    url = f"ipc://{tmp_path}/s"
    async with Req(dial=url, reconnect=0.01) as req, Outbox(tmp_path / "o", req) as outbox:
        for value in numbers(0, 5):
            await outbox.put(value)
        assert (await outbox.put_many(numbers(5, 1000)), outbox.stats.stored) == (5, 1000)
        async with receiving(url) as (receiver, _):
            with trio.fail_after(5):
                await outbox.flush()
            assert receiver.values == numbers(0, 1000)
            assert outbox.stats.size == 0


async def test_a_restart_sends_what_was_not_acknowledged_and_nothing_else(tmp_path: Path) -> None:
    async with receiving("tcp://127.0.0.1:0") as (receiver, url):
        async with Req(dial=url) as req, Outbox(tmp_path / "o", req) as outbox:
            await outbox.put_many(numbers(0, 10))
            await outbox.flush()
        async with Req() as req, Outbox(tmp_path / "o", req) as outbox:
            await outbox.put_many(numbers(10, 20))
        async with Req(dial=url) as req, Outbox(tmp_path / "o", req) as outbox:
            with trio.fail_after(5):
                await outbox.flush()
            assert outbox.stats.sent == 10
        assert receiver.values == numbers(0, 20)
        assert receiver.receiver.duplicates == receiver.receiver.missing == 0


async def test_logs_are_deleted_once_acknowledged(tmp_path: Path) -> None:
    async with receiving("tcp://127.0.0.1:0") as (_, url), Req(dial=url) as req:
        async with Outbox(tmp_path / "o", req, segment_bytes=1000) as outbox:
            for _ in range(10):
                await outbox.put(b"x" * 1000)
            with trio.fail_after(5):
                await outbox.flush()
        assert len(list((tmp_path / "o").glob("*.log"))) <= 1


@pytest.mark.parametrize("when_full", ["raise", "drop"])
async def test_the_cap_is_kept(tmp_path: Path, when_full: str) -> None:
    async with Req() as req:
        async with Outbox(tmp_path / "o", req, cap_bytes=1000, when_full=when_full) as outbox:  # type: ignore[arg-type]
            await outbox.put(b"x" * 900)
            if when_full == "raise":
                with pytest.raises(Full):
                    await outbox.put(b"x" * 100)
            else:
                assert await outbox.put(b"x" * 100) is None
            assert outbox.stats.refused == 1
        async with Outbox(tmp_path / "o", req, cap_bytes=1000, when_full="raise") as outbox:
            assert outbox.stats.size == 964
            with pytest.raises(Full):
                await outbox.put(b"")


async def test_a_full_outbox_blocks_until_there_is_room(tmp_path: Path) -> None:
    url = f"ipc://{tmp_path}/s"
    async with Req(dial=url, reconnect=0.01) as req, Outbox(tmp_path / "o", req, cap_bytes=1000) as outbox:
        await outbox.put(b"x" * 900)
        with trio.move_on_after(0.05) as blocked:
            await outbox.put(b"y" * 900)
        assert blocked.cancelled_caught
        async with receiving(url) as (receiver, _):
            with trio.fail_after(5):
                await outbox.put(b"z" * 900)
                await outbox.flush()
            assert receiver.values == [b"x" * 900, b"z" * 900]


async def test_push_sends_in_order_to_a_pull_that_comes_late(tmp_path: Path) -> None:
    async with Push(listen="tcp://127.0.0.1:0") as push, Outbox(tmp_path / "o", push, form="plain") as outbox:
        await outbox.put_many(numbers(0, 1000))
        async with Pull(dial=push.address) as pull:
            with trio.fail_after(5):
                assert [await pull.arecv() for _ in range(1000)] == numbers(0, 1000)
                await outbox.flush()


async def test_an_outbox_of_records_ends_in_a_journal_once(tmp_path: Path) -> None:
    async with (
        Recorder(tmp_path / "j") as recorder,
        Rep(listen="tcp://127.0.0.1:0") as rep,
        Req(dial=rep.address) as req,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(recorder.record, rep, "orders")
        async with Outbox(tmp_path / "o", req, form="record") as outbox:
            await outbox.put_many(numbers(0, 300))
            with trio.fail_after(5):
                await outbox.flush()
        nursery.cancel_scope.cancel()
    assert [record.value for record in read(tmp_path / "j", distinct=True)] == numbers(0, 300)


async def test_wrong_use_is_one_clear_line(tmp_path: Path) -> None:
    async with Req() as req, Push() as push, Pair0() as pair:
        with pytest.raises(ConfigError, match="Pair0 is neither"):
            Outbox(tmp_path, pair)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="form"):
            Outbox(tmp_path, push, form="record")
        async with Outbox(tmp_path / "o", req):
            with pytest.raises(ConfigError, match="another process has it"):
                async with Outbox(tmp_path / "o", req):
                    pass
        (tmp_path / "o" / "position").write_bytes(b"x" * 88)
        with pytest.raises(Damaged, match="position"):
            async with Outbox(tmp_path / "o", req):
                pass


CHILD = """
import sys, trio
from nngkit.fanout import Outbox
from nngkit.protocols import Req
async def main(folder, url):
    async with Req(dial=url, reconnect=0.01) as req, Outbox(folder, req) as outbox:
        while True:
            number = await outbox.put(b"%d" % outbox.stats.stored)
            print(number, flush=True)
trio.run(main, *sys.argv[1:])
"""


def started(argv: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(argv, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
async def test_a_killed_sender_loses_nothing_that_was_stored(tmp_path: Path) -> None:
    stored = -1
    async with receiving(f"ipc://{tmp_path}/s") as (receiver, url):
        for _ in range(4):
            argv = [sys.executable, "-c", CHILD, str(tmp_path / "o"), url]
            with started(argv) as child:
                assert child.stdout is not None
                lines = child.stdout
                for _ in range(50):
                    stored = int(await trio.to_thread.run_sync(lines.readline))
                child.send_signal(signal.SIGKILL)
        async with Req(dial=url) as req, Outbox(tmp_path / "o", req) as outbox:
            with trio.fail_after(10):
                await outbox.flush()
            assert outbox.stats.stored > stored
            assert receiver.values == numbers(0, outbox.stats.stored)
            assert receiver.receiver.missing == 0


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5))))
def test_a_receiver_yields_each_number_at_most_once_in_order(messages: list[tuple[int, int]]) -> None:
    receiver, found = OutboxReceiver(), list[int]()
    for first, count in messages:
        values = [b"%d" % number for number in range(first, first + count)]
        found += map(int, receiver.accept(encode_entries(b"o" * 16, first, values)))
    assert found == sorted(set(found))


@pytest.mark.parametrize("body", [b"", b"\x80", encode_entries(b"short", 0, [b""]), encode_entries(b"o" * 16, 0, [])])
def test_hostile_messages_are_refused(body: bytes) -> None:
    with pytest.raises(BadMessage):
        OutboxReceiver().accept(body)


async def test_leaving_the_block_ends_the_waits_of_other_tasks(tmp_path: Path) -> None:
    ended = []

    async def wait(call: Callable[[], Awaitable[object]]) -> None:
        with pytest.raises(Closed, match="closed"):
            await call()
        ended.append(call)

    async with Req(dial=f"ipc://{tmp_path}/s") as req, trio.open_nursery() as nursery:
        async with Outbox(tmp_path / "o", req, cap_bytes=100) as outbox:
            await outbox.put(b"value")
            nursery.start_soon(wait, lambda: outbox.put(b"no room" * 5))
            nursery.start_soon(wait, outbox.flush)
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.deadline = trio.current_time() + 5
    assert len(ended) == 2


async def test_a_flush_ends_with_the_socket(tmp_path: Path) -> None:
    async with Req(dial=f"ipc://{tmp_path}/s") as req, Outbox(tmp_path / "o", req) as outbox:
        await outbox.put(b"value")
        await req.aclose()
        with trio.fail_after(5), pytest.raises(Closed):
            await outbox.flush()


WITHOUT_DESCRIPTORS = """
import os, resource, sys, trio
from nngkit.fanout import Outbox, OutboxReceiver
from nngkit.protocols import Rep, Req
from nngkit.testing import aeventually

async def main():
    receiver, values = OutboxReceiver(), []
    async with (
        Rep(listen="tcp://127.0.0.1:0") as rep,
        Req(dial=rep.address) as req,
        Outbox(sys.argv[1], req) as outbox,
        trio.open_nursery() as nursery,
    ):
        async def receive():
            async for request in rep:
                values.extend(receiver.accept(request.body))
                await request.areply(b"")

        nursery.start_soon(receive)
        await outbox.put(b"before")
        await outbox.flush()
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
        await outbox.put(b"meanwhile")
        await aeventually(lambda: outbox.stats.failure is not None, 5.0)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        await outbox.put(b"after")
        with trio.fail_after(5.0):
            await outbox.flush()
        assert values == [b"before", b"meanwhile", b"after"], values
        nursery.cancel_scope.cancel()

trio.run(main)
"""


def test_an_outbox_without_a_descriptor_to_read_its_log_goes_on_once_there_is_one(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WITHOUT_DESCRIPTORS, str(tmp_path / "o")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, cwd=ROOT, env=environment())
    assert done.returncode == 0, done.stderr


async def test_an_outbox_survives_a_wrong_value_and_a_log_without_a_header(tmp_path: Path) -> None:
    url = f"ipc://{tmp_path}/s"
    async with receiving(url) as (receiver, address), Req(dial=address) as req:
        for number in range(2):  # the second one finds the log that a kill has left
            async with Outbox(tmp_path / "o", req) as outbox:
                with pytest.raises(TypeError):
                    await outbox.put("text")  # type: ignore[arg-type]
                with trio.fail_after(5):
                    await outbox.put(b"%d" % number)
                    await outbox.flush()
            (tmp_path / "o" / f"{number + 1:020}.log").touch()
        assert receiver.values == [b"0", b"1"]
    assert not list((tmp_path / "o").glob("*.failed-*"))
