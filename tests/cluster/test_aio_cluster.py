"""Nodes of a cluster under asyncio: handlers and work functions in the program's loop, iteration, cancellation."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from nngkit import Closed, ConfigError, JobFailed, NotStored, TimedOut
from nngkit.aio import Host, Member
from nngkit.calls import Proceed, Reply
from nngkit.cluster import ClusterMessage, JobRun
from tests.cluster.tally import Tally
from tests.under_asyncio import WAIT, under_asyncio

ANY = "tcp://127.0.0.1:0"


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Host, Member]]:
    async with Host("c", listen=ANY, id="host") as host, Member("c", dial=str(host.address), id="member") as member:
        await member.joined(WAIT)
        yield host, member


class Heard:
    """Values, and a wait for a number of them."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._changed = asyncio.Event()

    def put(self, value: Any) -> None:
        self.values.append(value)
        self._changed.set()

    async def until(self, count: int) -> list[Any]:
        while len(self.values) < count:
            self._changed.clear()
            await self._changed.wait()
        return self.values


@under_asyncio
async def test_handlers_are_tasks_of_the_programs_loop() -> None:
    loop, heard = asyncio.get_running_loop(), Heard()
    async with pair() as (host, member):

        @host.on("chat")
        async def listen(message: ClusterMessage) -> None:
            await asyncio.sleep(0)
            assert asyncio.get_running_loop() is loop
            heard.put((message.origin, message.body, message.direct))

        await member.send("chat", b"to all")
        await member.send("chat", b"to one", to="host")
        assert await member.send_many("chat", [b"x", b"y"]) == 2
        values = await heard.until(4)
        assert sorted(values) == [
            ("member", b"to all", False),
            ("member", b"to one", True),
            ("member", b"x", False),
            ("member", b"y", False),
        ]


@under_asyncio
async def test_middleware_of_jobs_runs_in_the_programs_loop() -> None:
    loop, word = asyncio.get_running_loop(), ContextVar("word", default="")

    async def around(run: JobRun, proceed: Proceed) -> Reply:
        assert asyncio.get_running_loop() is loop
        word.set("around")
        return await proceed(run)

    async with Host("c", listen=ANY, middleware=[around]) as host:

        @host.work("task")
        async def task(run: JobRun) -> bytes:
            assert asyncio.get_running_loop() is loop
            return word.get().encode()

        @host.work("thread")
        def thread(run: JobRun) -> bytes:
            return word.get().encode()

        for kind in ("task", "thread"):
            assert await (await host.submit(kind, b"")).result(WAIT) == b"around"


@under_asyncio
async def test_news_of_clients_come_in_the_programs_loop() -> None:
    thread, heard = threading.current_thread(), Heard()
    async with Host("c", listen=ANY, id="host") as host:
        host.on_client_added(lambda one: heard.put(("added", one, threading.current_thread() is thread)))
        host.on_client_removed(lambda one: heard.put(("removed", one, threading.current_thread() is thread)))
        async with Member("c", dial=str(host.address), id="m") as member:
            await member.joined(WAIT)
            assert (member.role, member.host, member.parent, member.path) == ("member", "host", "host", ("host", "m"))
            assert await heard.until(1) == [("added", "m", True)]
            assert host.children == ("m",)
            assert [one.id for one in (await host.tree()).members] == ["host", "m"]
            assert (await member.status()).members == 2
        assert (await heard.until(2))[1] == ("removed", "m", True)


@under_asyncio
async def test_jobs_are_done_by_async_plain_and_generator_functions() -> None:
    loop = asyncio.get_running_loop()
    async with Host("c", listen=ANY, id="host") as host:
        member = Member("c", dial=str(host.address))

        @member.work("double")
        async def double(job: JobRun) -> bytes:
            await asyncio.sleep(0)
            assert asyncio.get_running_loop() is loop
            job.progress(0.5)
            return job.payload * 2

        @member.work("thread")
        def thread(job: JobRun) -> bytes:
            assert threading.current_thread() is not threading.main_thread()
            return job.payload.upper()

        @member.work("parts")
        async def parts(job: JobRun) -> AsyncIterator[bytes]:
            for number in range(3):
                yield job.payload + b"%d" % number

        async with member:
            job = await member.submit("double", b"ab")
            assert await job.result(WAIT) == b"abab"
            assert (job.done, job.kind) == (True, "double")
            assert await (await host.submit("thread", b"ab")).result(WAIT) == b"AB"
            streamed = await host.submit("parts", b"p", stream=True)
            assert [part async for part in streamed.parts()] == [b"p0", b"p1", b"p2"]


@under_asyncio
async def test_map_takes_iterables_of_each_kind_and_yields_in_order() -> None:
    async with Host("c", listen=ANY, id="host") as host:
        thread, counted = threading.current_thread(), Heard()

        def plain() -> Iterator[bytes]:
            for number in range(200):
                assert threading.current_thread() is thread
                yield b"%d" % number

        async def slow() -> AsyncIterator[bytes]:
            for number in range(5):
                await asyncio.sleep(0)
                assert threading.current_thread() is thread
                yield b"%d" % number

        async with Member("c", dial=str(host.address)) as member:

            @member.work("same", concurrency=8)
            async def same(job: JobRun) -> bytes:
                return job.payload

            expected = [b"%d" % number for number in range(200)]
            assert [each async for each in host.map("same", plain(), progress=counted.put)] == expected
            assert (await counted.until(200))[-1] == 200
            assert [each async for each in host.map("same", slow(), in_flight=2)] == expected[:5]
            assert [each async for each in host.map("same", expected[:3])] == expected[:3]


@under_asyncio
async def test_a_failing_iterable_fails_its_map() -> None:
    def broken() -> Iterator[bytes]:
        yield b"1"
        raise KeyError("mine")

    async with pair() as (host, _):
        with pytest.raises(KeyError, match="mine"):
            async for _ in host.map("nothing", broken()):
                pass


@under_asyncio
async def test_errors_timeouts_and_cancellation() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()
    async with pair() as (host, member):

        @member.work("fail")
        async def fail(job: JobRun) -> bytes:
            raise JobFailed("no such scene")

        @member.work("hang")
        async def hang(job: JobRun) -> bytes:
            started.set()
            try:
                await asyncio.sleep(WAIT * 4)
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return b""

        with pytest.raises(JobFailed, match="no such scene"):
            await (await host.submit("fail", b"")).result(WAIT)
        job = await host.submit("hang", b"")
        with pytest.raises(TimedOut):
            await job.result(0.01)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await job.result()
        await started.wait()
        job.cancel()
        with pytest.raises(JobFailed) as told:
            await job.result(WAIT)
        assert told.value.outcome == "cancelled"
        await cancelled.wait()
        with pytest.raises(ConfigError):
            member.work("hang")(hang)


@under_asyncio
async def test_a_node_leaves_and_its_jobs_say_so() -> None:
    async with Host("c", listen=ANY, id="host") as host:
        async with Member("c", dial=str(host.address), id="m") as member:
            await member.joined(WAIT)
            job = await member.submit("unknown", b"")
            waiting = asyncio.create_task(job.result())
            await asyncio.sleep(0)
        with pytest.raises(Closed):
            await waiting
        with pytest.raises(Closed, match="async with"):
            await member.send("chat", b"")


def _fill_the_disk(file: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@asynccontextmanager
async def host_that_fails(
    folder: Path, monkeypatch: pytest.MonkeyPatch, submitted: list[asyncio.Task[object]]
) -> AsyncIterator[None]:
    """Run a host whose disk is full from its first job on, which is added to `submitted`."""
    async with Host("c", listen=ANY, id="host", store=folder) as host:
        await host.joined(WAIT)
        monkeypatch.setattr(os, "fdatasync", _fill_the_disk)
        submitted.append(asyncio.create_task(host.submit("x", b"")))
        yield


@under_asyncio
async def test_the_end_of_a_node_cancels_its_block_and_is_raised_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    submitted: list[asyncio.Task[object]] = []

    async def serve() -> None:
        async with host_that_fails(tmp_path, monkeypatch, submitted):
            await asyncio.Event().wait()

    with pytest.raises(NotStored, match="No space left on device"):
        await serve()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    with pytest.raises(NotStored, match="No space left on device"):
        await submitted[0]
    assert caplog.text.count("host: the node has ended") == 1
    await asyncio.sleep(0)  # no cancellation is left


@under_asyncio
async def test_a_cancellation_of_the_programs_own_is_not_lost_when_the_node_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[asyncio.Task[object]] = []

    async def serve() -> None:
        async with host_that_fails(tmp_path, monkeypatch, submitted):
            try:
                await asyncio.Event().wait()
            finally:
                serving.cancel()

    serving = asyncio.create_task(serve())
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert serving.cancelled()
    with pytest.raises(NotStored):
        await submitted[0]


@under_asyncio
async def test_a_work_function_cannot_drain_its_own_node() -> None:
    async with pair() as (host, member), asyncio.timeout(WAIT):
        beside: list[asyncio.Task[None]] = []

        @member.work("x")
        async def function(job: JobRun) -> bytes:
            for own in (None, member.id):
                with pytest.raises(RuntimeError, match="its own end"):
                    await member.drain(own)
            beside.append(asyncio.create_task(member.drain()))
            return b"done"

        assert await (await host.submit("x", b"", tries=1)).result() == b"done"
        await beside[0]


@under_asyncio
async def test_documents_are_edited_at_both_nodes() -> None:
    async with pair() as (host, member):
        ours, theirs = host.document("minutes"), member.document("minutes")
        assert member.document("minutes") is theirs
        ours.text("body").insert(0, "hello")
        await theirs.joined(WAIT)
        while str(theirs.text("body")) != "hello":  # noqa: ASYNC110 - an object in another thread
            await asyncio.sleep(0.002)
        member.request_full_document("minutes")


@pytest.mark.slow
@under_asyncio
async def test_shared_objects_change_in_one_order() -> None:
    async with pair() as (host, member):
        here, there = host.share("tally", Tally()), member.share("tally", Tally())
        await there.change(b"1", WAIT)
        await here.change(b"2", WAIT)
        while len(there.content.numbers) < 2:
            await there.wait_for_change()
        assert here.content.numbers == there.content.numbers == [1, 2]
        assert not here.behind
