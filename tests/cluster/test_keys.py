"""Jobs under a key: what a cancellation, by whichever submitter, leaves to the others and to a retry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import nngkit.aio
from nngkit.cluster import Endpoint, Host, JobRun, Member
from nngkit.errors import JobFailed
from nngkit.testing import aeventually
from nngkit.testing.cluster_memory import ClusterMemory


@asynccontextmanager
async def slow_jobs(concurrency: int) -> AsyncIterator[tuple[Host, Member, list[bytes]]]:
    """Open a host that takes 0.5 s for a job, and a member; yield both, and the payloads of jobs that have begun."""
    memory, runs = ClusterMemory(delay=0.001), list[bytes]()
    async with (
        Host("c", transport=memory.transport("a"), id="a") as host,
        Member("c", dial="mem://a", transport=memory.transport("w", listens=False), id="w") as member,
    ):

        @host.work("slow", concurrency=concurrency)
        async def slow(job: JobRun) -> bytes:
            runs.append(job.payload)
            await trio.sleep(0.5)
            return b"done"

        await member.joined(5.0)
        yield host, member, runs


async def test_a_submit_that_was_cut_off_is_found_by_its_retry_under_the_key(autojump_clock: MockClock) -> None:
    async with slow_jobs(20) as (_, member, runs):
        for number in range(8):
            key = b"%d" % number
            with trio.move_on_after(0.001 * number):
                await member.submit("slow", key, key=key)
            job = await member.submit("slow", key, key=key)
            if number % 2:
                assert await job.result(5.0) == b"done"
            else:  # the number that was cut off waits for nothing, and keeps the job from ending no more than another
                job.cancel()
                with pytest.raises(JobFailed) as told:
                    await job.result(0.3)
                assert told.value.outcome == "cancelled"
        assert len(runs) == len(set(runs))


async def test_a_cancellation_is_for_one_submitter_and_frees_the_key_with_the_last(autojump_clock: MockClock) -> None:
    async with slow_jobs(2) as (host, member, runs):
        first = await member.submit("slow", b"1", key="k")
        other = await host.submit("slow", b"1", key="k")
        assert first.id == other.id
        first.cancel()
        with pytest.raises(JobFailed, match="cancelled: by w"):
            await first.result(0.3)
        assert await other.result(5.0) == b"done"
        assert await (await member.submit("slow", b"1", key="k")).result(5.0) == b"done"
        assert runs == [b"1"]

        alone = await member.submit("slow", b"2", key="l")
        alone.cancel()
        with pytest.raises(JobFailed):
            await alone.result(5.0)
        assert await (await member.submit("slow", b"2", key="l")).result(5.0) == b"done"


@pytest.mark.parametrize("key", [None, b"k"])
def test_a_submit_under_asyncio_that_is_cut_off_once_accepted_cancels_a_job_without_a_key(
    key: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = Endpoint.submit

    async def main() -> None:
        async with nngkit.aio.Host("c", listen="tcp://127.0.0.1:0") as host:
            begun, loop = asyncio.Event(), asyncio.get_running_loop()

            async def accepted(*arguments: Any, **options: Any) -> Any:
                loop.call_soon_threadsafe(begun.set)
                with trio.CancelScope(shield=True):  # the acceptance is faster than the cancellation
                    return await submit(*arguments, **options)

            monkeypatch.setattr(Endpoint, "submit", accepted)
            task = asyncio.create_task(host.submit("none", b"", key=key))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            monkeypatch.undo()
            work = host._inner._node.work
            if key is None:
                await aeventually(lambda: not work.submitter.unfinished, 5.0)
            else:
                assert work.host is not None
                assert (await host.submit("none", b"", key=key)).id == work.host.table.keys["none", key].serial
                assert work.submitter.unfinished == 2

    asyncio.run(main())
