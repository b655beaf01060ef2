"""Maps: results come as soon as they are there, over whichever source, and an end of any kind cancels the rest."""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import pytest
import trio
from trio.testing import MockClock

import nngkit.aio
import nngkit.blocking
from nngkit.cluster import Host, JobRun
from nngkit.errors import Closed
from nngkit.testing import aeventually, eventually
from nngkit.testing.cluster_memory import ClusterMemory


def echoing() -> Host:
    """Return a host with a function that takes no time, and one that does."""
    host = Host("c", transport=ClusterMemory(delay=0.001).transport("a"), id="a")

    @host.work("echo", concurrency=8)
    async def echo(job: JobRun) -> bytes:
        return job.payload

    @host.work("slow", concurrency=4)
    async def slow(job: JobRun) -> bytes:
        await trio.sleep(10.0)
        return job.payload

    return host


async def test_a_result_does_not_wait_for_the_next_payload(autojump_clock: MockClock) -> None:
    async def seldom() -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"%d" % number
            await trio.sleep(100.0)

    async with echoing() as host:
        began = trio.current_time()
        times = [trio.current_time() - began async for _ in host.map("echo", seldom())]
        assert [round(each) for each in times] == [0, 100, 200]


async def test_the_next_payload_may_depend_on_the_last_result(autojump_clock: MockClock) -> None:
    send, receive = trio.open_memory_channel[bytes](1)
    async with echoing() as host:
        await send.send(b"0")
        with trio.fail_after(10.0):
            async with aclosing(host.map("echo", receive)) as results:
                async for result in results:
                    if result == b"5":
                        break
                    await send.send(b"%d" % (int(result) + 1))


async def test_an_asynchronous_source_is_pulled_within_the_limit_and_in_order(autojump_clock: MockClock) -> None:
    pulled = 0
    closed = False

    async def source() -> AsyncIterator[bytes]:
        nonlocal pulled, closed
        try:
            for number in range(1000):
                pulled += 1
                yield b"%d" % number
        finally:
            closed = True

    async with echoing() as host:
        taken = 0
        async with aclosing(host.map("echo", source(), in_flight=5)) as results:
            async for result in results:
                assert result == b"%d" % taken
                taken += 1
                assert pulled <= taken + 5
                if taken == 300:
                    break
        await trio.testing.wait_all_tasks_blocked()
        assert closed
        assert [result async for result in host.map("echo", source())] == [b"%d" % number for number in range(1000)]


async def test_what_the_payloads_raise_ends_the_map_at_once_and_its_jobs(autojump_clock: MockClock) -> None:
    async def fails() -> AsyncIterator[bytes]:
        yield b"1"
        await trio.sleep(1.0)
        raise RuntimeError("as drawn")

    async with echoing() as host:
        with pytest.raises(RuntimeError, match="as drawn"), trio.fail_after(3.0):
            async for _ in host.map("slow", fails()):
                pass
        with pytest.raises(TypeError, match="a payload must be bytes"):
            async for _ in host.map("slow", [b"%d" % number for number in range(50)] + ["text"]):  # type: ignore[list-item]
                pass
        await aeventually(lambda: not host._node.work.submitter.unfinished, 3.0)


async def test_closing_the_node_ends_a_map_that_waits_for_a_payload(autojump_clock: MockClock) -> None:
    async def never() -> AsyncIterator[bytes]:
        await trio.sleep_forever()
        yield b""

    async with trio.open_nursery() as nursery, echoing() as host:

        async def take() -> None:
            with pytest.raises(Closed), trio.fail_after(10.0):
                async for _ in host.map("echo", never()):
                    pass

        nursery.start_soon(take)
        await trio.sleep(1.0)


def test_an_iterable_may_block_until_it_gets_the_last_result() -> None:
    with nngkit.blocking.Host("c", listen="tcp://127.0.0.1:0") as host:
        host.work("echo")(bytes_of)
        found: queue.Queue[bytes] = queue.Queue()
        found.put(b"0")
        ended = threading.Event()

        def source() -> Iterator[bytes]:
            try:
                while True:
                    yield found.get(timeout=10.0)
            finally:
                ended.set()

        results = host.map("echo", source())
        for result in results:
            found.put(b"%d" % (int(result) + 1))
            if result == b"5":
                break
        results.close()

        def released() -> bool:
            found.put(b"")  # it learns of the end when it yields
            return ended.is_set()

        eventually(released)
        assert [*host.map("echo", (b"%d" % number for number in range(500)))] == [
            b"%d" % number for number in range(500)
        ]

        def fails() -> Iterator[bytes]:
            yield b"1"
            raise RuntimeError("as drawn")

        with pytest.raises(RuntimeError, match="as drawn"):
            [*host.map("echo", fails())]


def test_closing_the_node_ends_a_map_whose_iterable_blocks() -> None:
    released, waits = threading.Event(), threading.Event()

    def blocks() -> Iterator[bytes]:
        waits.set()
        released.wait(10.0)
        yield b""

    with nngkit.blocking.Host("c", listen="tcp://127.0.0.1:0") as host:
        results = host.map("echo", blocks())

        def close() -> None:
            waits.wait(10.0)
            host.close()

        threading.Thread(target=close).start()
        with pytest.raises(Closed):
            next(results)
        assert not released.is_set()
        released.set()


def bytes_of(job: JobRun) -> bytes:
    return job.payload


def test_a_map_under_asyncio_that_is_cut_off_cancels_its_jobs_while_the_exception_is_kept() -> None:
    async def main() -> None:
        async with nngkit.aio.Host("c", listen="tcp://127.0.0.1:0") as host:
            began = asyncio.Event()

            @host.work("slow", concurrency=4)
            async def slow(job: JobRun) -> bytes:
                began.set()
                await asyncio.sleep(100.0)
                return b""

            results = host.map("slow", [b""] * 20)

            async def take() -> None:
                async for _ in results:
                    pass

            task = asyncio.create_task(take())
            async with asyncio.timeout(10.0):
                await began.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                submitter = host._inner._node.work.submitter
                await asyncio.to_thread(eventually, lambda: not submitter.unfinished, 5.0)
            with pytest.raises(StopAsyncIteration):
                await anext(results)

    gc.disable()  # what only the collector ends does not count
    try:
        asyncio.run(main())
    finally:
        gc.enable()
