"""Jobs under a key: what a cancellation, by whichever submitter, leaves to the others and to a retry."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from nngkit.cluster import Host, JobRun, Member
from nngkit.errors import JobFailed
from nngkit.testing.cluster_memory import ClusterMemory


@pytest.fixture
def autojump_clock() -> MockClock:
    return MockClock(autojump_threshold=0)


async def test_a_submit_that_was_cut_off_is_found_by_its_retry_under_the_key(autojump_clock: MockClock) -> None:
    memory = ClusterMemory(delay=0.001)
    async with (
        Host("c", transport=memory.transport("a"), id="a") as host,
        Member("c", dial="mem://a", transport=memory.transport("w", listens=False), id="w") as member,
    ):
        runs: list[bytes] = []

        @host.work("slow", concurrency=20)
        async def slow(job: JobRun) -> bytes:
            runs.append(job.payload)
            await trio.sleep(0.5)
            return b"done"

        await member.joined(5.0)
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
    memory = ClusterMemory(delay=0.001)
    async with (
        Host("c", transport=memory.transport("a"), id="a") as host,
        Member("c", dial="mem://a", transport=memory.transport("w", listens=False), id="w") as member,
    ):
        runs: list[bytes] = []

        @host.work("slow", concurrency=2)
        async def slow(job: JobRun) -> bytes:
            runs.append(job.payload)
            await trio.sleep(0.5)
            return b"done"

        await member.joined(5.0)
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
