"""Long jobs: a node says that it does them; a timeout stops them; what waits behind one goes to another worker."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from nngkit.cluster import Host, JobRun, Member
from nngkit.cluster.shell import workers as working
from nngkit.errors import ConfigError, JobFailed, TooLarge
from nngkit.testing import aeventually
from nngkit.testing.cluster_memory import ClusterMemory


@asynccontextmanager
async def farm(*names: str) -> AsyncIterator[tuple[ClusterMemory, Host, list[Member]]]:
    """Run a host and workers, which listen and have joined."""
    memory = ClusterMemory(delay=0.001)
    async with Host("c", transport=memory.transport("a"), id="a") as host, trio.open_nursery() as nursery:

        async def run(name: str, *, task_status: trio.TaskStatus[Member]) -> None:
            async with Member("c", dial="mem://a", transport=memory.transport(name), id=name) as worker:
                await worker.joined(5.0)
                task_status.started(worker)
                await trio.sleep_forever()

        yield memory, host, [await nursery.start(run, name) for name in names]
        nursery.cancel_scope.cancel()


async def test_a_job_of_many_visibilities_is_started_once(autojump_clock: MockClock) -> None:
    starts: list[bytes] = []
    async with farm("w0", "w1") as (_, host, workers):
        for worker in workers:

            @worker.work("x", concurrency=2)
            async def x(job: JobRun) -> bytes:
                starts.append(job.payload)
                await trio.sleep(35.0)
                return b"done"

        jobs = [await host.submit("x", b"%d" % number, visibility=number + 0.5) for number in range(4)]
        assert [await job.result(60.0) for job in jobs] == [b"done"] * 4
        assert sorted(starts) == [b"0", b"1", b"2", b"3"]


async def test_a_node_that_is_cut_off_for_longer_than_the_visibility_loses_its_job(autojump_clock: MockClock) -> None:
    starts: list[str] = []
    async with farm("w0", "w1") as (memory, host, workers):
        for worker in workers:

            @worker.work("x")
            async def x(job: JobRun, name: str = worker.id) -> bytes:
                starts.append(name)
                await trio.sleep(20.0 if len(starts) == 1 else 1.0)
                return name.encode()

        job = await host.submit("x", b"", visibility=3.0)
        await aeventually(lambda: starts)
        memory.split({starts[0]})
        result = await job.result(30.0)
        assert len(starts) == 2
        assert result.decode() == starts[1] != starts[0]
        memory.heal()
        await trio.sleep(30.0)
        assert len(starts) == 2


async def test_the_headers_of_a_job_are_there_in_each_try_and_are_capped(autojump_clock: MockClock) -> None:
    seen: list[tuple[int, dict[str, str | bytes]]] = []
    trace: dict[str, str | bytes] = {
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "k": b"\0",
    }
    async with farm("w0") as (memory, host, (worker,)):
        async with Member("c", dial="mem://w0", transport=memory.transport("below"), id="below") as below:
            await below.joined(5.0)

            @below.work("x")
            async def x(job: JobRun) -> bytes:
                seen.append((job.try_number, job.headers))
                if job.try_number < 2:
                    raise ValueError("again")
                return b""

            await (await host.submit("x", b"", headers=trace)).result(20.0)
            await (await worker.submit("x", b"", tries=2)).result(20.0)
            assert [each async for each in host.map("x", [b"", b""], headers={"a": "b"})] == [b"", b""]
            assert seen[:4] == [(1, trace), (2, trace), (1, {}), (2, {})]
            assert seen[4:] == [(1, {"a": "b"}), (1, {"a": "b"}), (2, {"a": "b"}), (2, {"a": "b"})]
        with pytest.raises(TooLarge, match="headers of 8193 bytes"):
            await host.submit("x", b"", headers={"a": "x" * 8192})


async def test_a_timeout_stops_a_function_and_each_try_has_its_own(autojump_clock: MockClock) -> None:
    ended: list[float] = []
    async with farm("w0") as (_, host, (worker,)):

        @worker.work("x")
        async def x(job: JobRun) -> bytes:
            start = trio.current_time()
            try:
                for _ in range(100):
                    job.progress(0.5)  # it does not make the time longer
                    await trio.sleep(0.1)
            finally:
                ended.append(trio.current_time() - start)
            return b""

        @worker.work("y", timeout=2.0)
        async def y(job: JobRun) -> bytes:
            await trio.sleep_forever()
            return b""

        with pytest.raises(JobFailed, match="not done within 1 s") as failed:
            await (await host.submit("x", b"", timeout=1.0, tries=2)).result(20.0)
        assert (failed.value.outcome, failed.value.tries) == ("dead", 2)
        assert ended == pytest.approx([1.0, 1.0], abs=0.1)
        for timeout in (None, 60.0):
            with pytest.raises(JobFailed, match="not done within 2 s"):
                await (await host.submit("y", b"", timeout=timeout, tries=1)).result(20.0)
        with pytest.raises(ConfigError):
            await host.submit("x", b"", timeout=0.0)
        with pytest.raises(ConfigError):
            worker.work("z", timeout=-1.0)(y)


async def test_a_thread_that_hangs_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(working, "HANGS", 0.05)
    released = threading.Event()
    async with farm("w0") as (_, host, (worker,)):

        @worker.work("x")
        def wait_for_it(job: JobRun) -> bytes:
            released.wait(20.0)
            return b""

        try:
            job = await host.submit("x", b"", timeout=0.05, tries=1)
            with pytest.raises(JobFailed):
                await job.result(10.0)
            await aeventually(lambda: any("hangs" in record.message for record in caplog.records))
            (line,) = [record.message for record in caplog.records if "hangs" in record.message]
            assert f"w0: job {job.id} of 'x' was stopped, and its function " in line
            assert f"wait_for_it has not returned since: the thread 'job {job.id} (x)' hangs" in line
        finally:
            released.set()
            await aeventually(lambda: not any("(x)" in thread.name for thread in threading.enumerate()))


async def test_what_waits_behind_a_long_job_goes_to_an_idle_worker(autojump_clock: MockClock) -> None:
    async with farm("w0", "w1") as (_, host, workers):
        for worker in workers:

            @worker.work("x")
            async def x(job: JobRun) -> bytes:
                await trio.sleep(20.0 if job.payload == b"long" else 0.0001)
                return b""

        start = trio.current_time()
        ends: dict[bytes, float] = {}

        async def one(payload: bytes) -> None:
            await (await host.submit("x", payload)).result(60.0)
            ends[payload] = trio.current_time() - start

        async with trio.open_nursery() as nursery:
            for number in range(1000):
                nursery.start_soon(one, b"long" if number == 500 else b"%d" % number)
        long = ends.pop(b"long")
        assert long < 21.0
        assert max(ends.values()) < 1.5  # the same without the long one, and twice the patience of a node


async def test_jobs_of_a_node_that_leaves_run_beside_each_other_elsewhere(autojump_clock: MockClock) -> None:
    async with farm("w0") as (memory, host, (worker,)):
        starts: list[int] = []

        async def x(job: JobRun) -> bytes:
            starts.append(job.try_number)
            await trio.sleep(2.0)
            return b""

        async with Member("c", dial="mem://a", transport=memory.transport("w1"), id="w1") as leaving:
            leaving.work("x", concurrency=8)(x)
            await leaving.joined(5.0)
            jobs = [await host.submit("x", b"", tries=2) for _ in range(8)]
            await aeventually(lambda: len(starts) == 8)
            worker.work("x", concurrency=8)(x)
        left = trio.current_time()
        for job in jobs:
            await job.result(20.0)
        assert trio.current_time() - left < 3.0
        assert starts == [1] * 8 + [2] * 8


async def test_a_job_that_kills_its_workers_takes_no_other_with_it(autojump_clock: MockClock) -> None:
    starts: dict[bytes, int] = {}
    beside: list[int] = []
    memory = ClusterMemory(delay=0.001)
    async with Host("c", transport=memory.transport("a"), id="a") as host, trio.open_nursery() as nursery:

        async def run(name: str) -> None:
            while True:
                died = trio.Event()
                node = Member("c", dial="mem://a", transport=memory.transport(name), id=name)
                running = 0

                @node.work("x", concurrency=4)
                async def x(job: JobRun, died: trio.Event = died) -> bytes:
                    nonlocal running
                    starts[job.payload] = starts.get(job.payload, 0) + 1
                    running += 1
                    try:
                        if job.payload == b"poison":
                            await trio.sleep(0.3)
                            beside.append(running - 1)
                            died.set()
                            await trio.sleep_forever()
                        await trio.sleep(0.5)
                        return b""
                    finally:
                        running -= 1

                async with node:
                    await died.wait()
                    memory.kill(name)
                    node._left = True
                await trio.sleep(0.5)

        for name in ("w0", "w1"):
            nursery.start_soon(run, name)
        payloads = [b"poison" if number == 20 else b"%d" % number for number in range(40)]
        jobs = [await host.submit("x", payload) for payload in payloads]
        ended: list[str] = []
        for job in jobs:
            try:
                await job.result(60.0)
            except JobFailed as error:
                ended.append(error.outcome)
        nursery.cancel_scope.cancel()
    assert ended == ["dead"]
    assert starts.pop(b"poison") == 3
    assert beside[1:] == [0, 0]
    assert max(starts.values()) <= 2
    assert sum(count == 2 for count in starts.values()) == beside[0]
