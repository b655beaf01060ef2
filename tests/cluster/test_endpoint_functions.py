"""Functions of jobs that misbehave: what they do ends their job, and nothing else of their node.

Tests of plain functions have the real clock: the other one does not wait for threads.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from nngkit.calls import Proceed, Reply
from nngkit.cluster import ClusterMessage, Host, JobRun, Member
from nngkit.cluster.shell import workers as working
from nngkit.errors import Closed, ConfigError, JobFailed, TimedOut
from nngkit.testing import aeventually
from nngkit.testing.cluster_memory import ClusterMemory


@asynccontextmanager
async def two_nodes() -> AsyncIterator[tuple[Host, Member]]:
    """Yield a host and a worker that has joined it."""
    memory = ClusterMemory(delay=0.001)
    async with (
        Host("c", transport=memory.transport("a"), id="a") as host,
        Member("c", dial="mem://a", transport=memory.transport("w", listens=False), id="w") as worker,
    ):
        await worker.joined(5.0)
        yield host, worker


class Exiting:
    """A shared object that raises SystemExit, but for its full state before the first change."""

    changed = False

    def update(self, fragment: bytes) -> None:
        self.changed = True
        raise SystemExit(5)

    def full_state(self) -> bytes:
        if self.changed:
            raise SystemExit(5)
        return b""

    def load(self, full: bytes) -> None:
        pass


def exiting(*arguments: object) -> None:
    raise SystemExit(5)


async def test_an_object_that_exits_ends_no_node(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with two_nodes() as (host, worker):
        there, here = host.share("x", Exiting()), worker.share("x", Exiting())
        await here.change(b"1", 5.0)
        await there.change(b"2", 5.0)
        worker.request_full_document("x")
        await trio.sleep(1.0)
        assert (host.role, worker.role) == ("host", "member")
    assert "x: update raised SystemExit: 5" in caplog.text
    assert "x: full_state raised SystemExit: 5" in caplog.text


class Waiting(Exiting):
    async def update(self, fragment: bytes) -> None:  # type: ignore[override]
        pass


class Half:
    def update(self, fragment: bytes) -> None:
        pass


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (Waiting(), "update of .* is async: it is called, and not awaited"),
        (Half(), "has no full_state, load"),
        (None, "has no update, full_state, load"),
    ],
)
async def test_an_object_that_cannot_be_shared_is_refused(value: Any, why: str, autojump_clock: MockClock) -> None:
    async with two_nodes() as (host, _):
        with pytest.raises(ConfigError, match=f"^shared object: .*{why}"):
            host.share("x", value)
        host.share("x", Exiting())


@pytest.mark.parametrize("error", [OSError(28, "full"), queue.Full(), SystemExit(5)])
async def test_a_journal_of_the_program_that_raises_is_one_that_is_full(
    error: BaseException, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Door:
        def put(self, value: bytes, **options: object) -> bool:
            raise error

    memory = ClusterMemory()
    async with Host("c", transport=memory.transport("a"), id="a", journal=Door(), journal_messages=True) as host:
        await host.send("x", b"1")
        await host.send("x", b"2")
        assert (host.role, host.journal_dropped) == ("host", 3)  # its election is a record too
    assert caplog.text.count("the journal takes no records") == 1
    assert type(error).__name__ in caplog.text


async def test_functions_for_clients_and_the_load_may_exit(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    memory = ClusterMemory()
    async with Host("c", transport=memory.transport("a"), id="a", load=exiting) as host:  # type: ignore[arg-type]
        host.on_client_added(exiting)
        host.on_client_removed(exiting)
        async with Member("c", dial="mem://a", transport=memory.transport("w"), id="w") as worker:
            await worker.joined(5.0)
            await trio.sleep(1.0)
        await trio.sleep(2.0)
        assert host.role == "host"
        assert host._dispatcher.failed == 2
    assert "`load` has failed" in caplog.text


async def test_a_function_for_clients_is_not_async() -> None:
    async def added(id: str) -> None:
        raise AssertionError

    host = Host("c", transport=ClusterMemory().transport("a"), id="a")
    for register in (host.on_client_added, host.on_client_removed, host.on_gap):
        with pytest.raises(ConfigError, match="is async: it is called, and not awaited"):
            register(added)  # type: ignore[arg-type]


async def test_jobs_may_be_cancelled_at_the_moment_they_end(autojump_clock: MockClock) -> None:
    rng = Random(1)
    async with two_nodes() as (host, worker):

        @worker.work("short", concurrency=4)
        async def short(job: JobRun) -> bytes:
            await trio.sleep(0.004 * rng.random())
            return b"done"

        outcomes: Counter[str] = Counter()

        async def submit(count: int) -> None:
            for _ in range(count):
                job = await host.submit("short", b"")
                await trio.sleep(0.006 * rng.random())
                job.cancel()
                try:
                    await job.result(10.0)
                    outcomes["result"] += 1
                except JobFailed as error:
                    outcomes[error.outcome] += 1

        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(submit, 50)
        assert outcomes.total() == 300
        assert outcomes.keys() == {"result", "cancelled"}


async def test_a_function_that_catches_its_cancellation_keeps_no_other_job_from_being_done(
    autojump_clock: MockClock,
) -> None:
    async with two_nodes() as (host, worker):

        @worker.work("x")
        async def stubborn(job: JobRun) -> bytes:
            try:
                await trio.sleep(10.0 if job.payload == b"long" else 0.001)
            except trio.Cancelled:
                if job.payload != b"long":
                    raise
            return job.payload

        async for _ in host.map("x", [b"short"] * 20):
            pass  # from now on the worker asks for jobs ahead
        long = await host.submit("x", b"long")
        others = [await host.submit("x", b"%d" % number) for number in range(5)]
        await trio.sleep(0.5)
        long.cancel()
        assert [await job.result(1.0) for job in others] == [b"%d" % number for number in range(5)]


class Unprintable(Exception):
    """An exception whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Panic(BaseException):
    """As of a library in Rust."""


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("error", "says"),
    [
        (Unprintable(), "Unprintable: <Unprintable without text>"),
        (SystemExit(2), "SystemExit: 2"),
        (Panic("at the disco"), "Panic: at the disco"),
        (ExceptionGroup("of a nursery", [ValueError("the cause")]), "ValueError: the cause"),
        (BaseExceptionGroup("of a nursery", [SystemExit(2)]), "SystemExit: 2"),
    ],
)
async def test_an_exception_of_any_kind_ends_the_job_alone(error: BaseException, says: str, plain: bool) -> None:
    async with two_nodes() as (host, worker):

        async def asynchronous(job: JobRun) -> bytes:
            if job.payload:
                raise error
            return b"done"

        def threaded(job: JobRun) -> bytes:
            if job.payload:
                raise error
            return b"done"

        worker.work("x")(threaded if plain else asynchronous)
        with pytest.raises(JobFailed) as caught:
            await (await host.submit("x", b"raise", tries=2)).result(10.0)
        assert (caught.value.message, caught.value.tries) == (says, 2)
        assert await (await host.submit("x", b"")).result(10.0) == b"done"


async def test_a_job_that_has_failed_for_good_may_say_so_inside_a_nursery(autojump_clock: MockClock) -> None:
    async with two_nodes() as (host, worker):

        async def child() -> None:
            raise JobFailed("for good")

        @worker.work("x")
        async def function(job: JobRun) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(child)

        with pytest.raises(JobFailed) as caught:
            await (await host.submit("x", b"")).result(10.0)
        assert (caught.value.outcome, caught.value.message) == ("failed", "for good")


async def test_a_clean_up_that_fails_ends_the_stopped_job_alone(autojump_clock: MockClock) -> None:
    async with two_nodes() as (host, worker):

        async def child() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("in the clean-up")

        @worker.work("x")
        async def function(job: JobRun) -> bytes:
            async with trio.open_nursery() as nursery:
                if job.payload:
                    nursery.start_soon(child)
                    nursery.start_soon(trio.sleep_forever)
            return b"done"

        job = await host.submit("x", b"wait")
        await trio.sleep(0.5)
        job.cancel()
        with pytest.raises(JobFailed, match="cancelled"):
            await job.result(10.0)
        assert await (await host.submit("x", b"")).result(10.0) == b"done"


async def test_a_message_whose_handler_exits_is_one_that_failed(autojump_clock: MockClock) -> None:
    heard: list[bytes] = []
    async with two_nodes() as (host, worker):

        @worker.on("chat")
        async def hear(message: ClusterMessage) -> None:
            heard.append(message.body)
            if message.body == b"exit":
                raise SystemExit(2)

        for body in (b"exit", b"go on"):
            await host.send("chat", body)
        await trio.sleep(1.0)
    assert heard == [b"exit", b"go on"]


@pytest.mark.parametrize("plain", [False, True])
async def test_a_part_that_is_too_large_ends_the_job_alone(plain: bool) -> None:
    async with two_nodes() as (host, worker):

        async def asynchronous(job: JobRun) -> bytes:
            job.part(bytes(int(job.payload)))
            return b"done"

        def threaded(job: JobRun) -> bytes:
            job.part(bytes(int(job.payload)))
            return b"done"

        worker.work("x")(threaded if plain else asynchronous)
        with pytest.raises(JobFailed, match="a part has 131073 bytes, over the limit of 131072") as caught:
            await (await host.submit("x", b"131073", stream=True)).result(10.0)
        assert caught.value.outcome == "failed"
        job = await host.submit("x", b"131072", stream=True)
        assert [len(part) async for part in job.parts()] == [131072]


@pytest.mark.parametrize("value", [5, "text", None, [1, 2]])
async def test_what_is_not_bytes_is_refused(value: Any, autojump_clock: MockClock) -> None:
    name = type(value).__name__
    async with two_nodes() as (host, worker):

        @worker.work("echo")
        async def echo(job: JobRun) -> bytes:
            return bytes(job.payload)

        @worker.work("parts")
        async def parts(job: JobRun) -> AsyncIterator[bytes]:
            yield value

        with pytest.raises(TypeError, match=f"a payload must be bytes, not {name}"):
            await host.submit("echo", value)
        with pytest.raises(TypeError, match=f"a payload must be bytes, not {name}"):
            async for _ in host.map("echo", [value]):
                pass
        with pytest.raises(TypeError, match=f"a message must be bytes, not {name}"):
            await host.send("chat", value)
        with pytest.raises(TypeError, match=f"a message must be bytes, not {name}"):
            await host.send_many("chat", [b"", value])
        with pytest.raises(JobFailed, match=f"a part must be bytes, not {name}"):
            await (await host.submit("parts", b"", tries=1)).result(10.0)
        if value not in (None, "text"):
            with pytest.raises(TypeError, match=f"a key must be bytes, not {name}"):
                await host.submit("echo", b"", key=value)
        like_bytes: Any = memoryview(b"ok")
        assert await (await host.submit("echo", like_bytes)).result(10.0) == b"ok"


async def test_the_jobs_of_a_map_have_no_key(autojump_clock: MockClock) -> None:
    async with two_nodes() as (host, _):
        with pytest.raises(ConfigError, match="key: jobs of a map have none"):
            async for _ in host.map("x", [b"1", b"2"], key=b"k"):
                pass


async def test_a_job_that_waits_behind_a_long_one_loses_no_try(autojump_clock: MockClock) -> None:
    tries: list[int] = []
    async with two_nodes() as (host, worker):

        @worker.work("x")
        async def function(job: JobRun) -> bytes:
            if job.payload == b"waits":
                tries.append(job.try_number)
            await trio.sleep(10.0 if job.payload == b"long" else 0.001)
            return b"done"

        async for _ in host.map("x", [b"short"] * 20):
            pass  # from now on the worker asks for jobs ahead
        long = await host.submit("x", b"long", visibility=60.0)
        await trio.sleep(0.5)
        job = await host.submit("x", b"waits", visibility=1.0, tries=1)
        assert (await job.result(20.0), await long.result(1.0), tries) == (b"done", b"done", [1])


async def test_a_drained_node_leaves_once_the_results_of_its_jobs_are_taken(autojump_clock: MockClock) -> None:
    starts: Counter[bytes] = Counter()
    async with two_nodes() as (host, worker):

        @worker.work("x", concurrency=4)
        async def function(job: JobRun) -> bytes:
            starts[job.payload] += 1
            await trio.sleep_until(end)  # all end at once: the last results wait for the next effects
            return job.payload

        end = trio.current_time() + 0.5
        jobs = [await host.submit("x", b"%d" % number, tries=1) for number in range(4)]
        await trio.sleep(0.1)
        with trio.fail_after(2.0):
            async with trio.open_nursery() as nursery:  # several may drain at once
                nursery.start_soon(worker.drain)
                await trio.sleep(0.1)
                nursery.start_soon(worker.drain)
        assert [await job.result(1.0) for job in jobs] == [b"0", b"1", b"2", b"3"]
        assert set(starts.values()) == {1}
        with pytest.raises(Closed, match="drained"):
            await worker.submit("x", b"")
        await worker.drain()


async def test_a_drained_node_returns_what_was_granted_before_its_parent_knew(autojump_clock: MockClock) -> None:
    memory = ClusterMemory(delay=0.05)
    async with (
        Host("c", transport=memory.transport("a"), id="a") as host,
        Member("c", dial="mem://a", transport=memory.transport("w", listens=False), id="w") as worker,
    ):
        await worker.joined(5.0)

        @worker.work("x", concurrency=4)
        async def function(job: JobRun) -> bytes:
            return b"done"

        await trio.sleep(1.0)
        jobs = [await host.submit("x", b"", tries=1) for _ in range(4)]  # on their way to the worker
        await worker.drain()

        @host.work("x")
        async def other(job: JobRun) -> bytes:
            return b"%d" % job.try_number

        assert [await job.result(0.9) for job in jobs] == [b"1"] * 4


async def test_a_host_that_is_drained_has_the_results_of_its_own_jobs_recorded(autojump_clock: MockClock) -> None:
    voters = {name: f"mem://{name}" for name in "abc"}
    memory = ClusterMemory(delay=0.001)
    async with (
        Host("c", transport=memory.transport("a"), id="a", voters=voters, preference=3) as host,
        Host("c", transport=memory.transport("b"), id="b", voters=voters) as other,
        Host("c", transport=memory.transport("c"), id="c", voters=voters),
    ):
        await other.joined(10.0)

        @host.work("x", concurrency=4)
        async def function(job: JobRun) -> bytes:
            await trio.sleep_until(end)
            return b"done"

        end = trio.current_time() + 0.5
        jobs = [await other.submit("x", b"", tries=1) for _ in range(4)]
        await host.drain()
        assert [await job.result(5.0) for job in jobs] == [b"done"] * 4


async def test_a_work_function_cannot_drain_its_own_node(autojump_clock: MockClock) -> None:
    async with two_nodes() as (host, worker), trio.open_nursery() as beside:

        @worker.work("x")
        async def function(job: JobRun) -> bytes:
            with pytest.raises(RuntimeError, match="its own end"):
                await worker.drain()
            async with trio.open_nursery() as inside:
                inside.start_soon(expect_refusal)
            beside.start_soon(worker.drain)
            return b"done"

        async def expect_refusal() -> None:
            with pytest.raises(RuntimeError, match="its own end"):
                await worker.drain()

        with trio.fail_after(5.0):
            assert await (await host.submit("x", b"", tries=1)).result() == b"done"


async def test_a_node_that_is_drained_without_a_host_waits_for_it_a_few_seconds(autojump_clock: MockClock) -> None:
    async with two_nodes() as (host, worker):

        @worker.work("x")
        async def function(job: JobRun) -> bytes:
            await trio.sleep(1.0)
            return b"done"

        await host.submit("x", b"")
        await trio.sleep(0.1)
        await host.aclose()
        with trio.fail_after(7.0):
            await worker.drain()


async def test_a_thread_that_hangs_takes_no_place_from_the_next_jobs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(working, "SPARE_THREADS", 0)
    monkeypatch.setattr(working, "THREADS_LOOK", 0.02)
    released = threading.Event()
    starts: list[bytes] = []
    threads: set[threading.Thread] = set()
    async with two_nodes() as (host, worker):

        @worker.work("x")
        def function(job: JobRun) -> bytes:
            starts.append(job.payload)
            threads.add(threading.current_thread())
            if job.payload == b"hangs":
                released.wait(20.0)
            return b"done"

        try:
            for _ in range(3):
                with pytest.raises(JobFailed, match="within"):
                    await (await host.submit("x", b"hangs", tries=1, timeout=0.1)).result(10.0)
                assert await (await host.submit("x", b"", tries=1)).result(10.0) == b"done"
            hangs = await host.submit("x", b"hangs", tries=1, timeout=0.1)  # the fourth: none is left for the next
            with pytest.raises(JobFailed):
                await hangs.result(10.0)
            await aeventually(lambda: any("threads" in record.message for record in caplog.records))
            job = await host.submit("x", b"later", tries=1)
            with pytest.raises(TimedOut):
                await job.result(0.3)
            assert b"later" not in starts
            released.set()
            assert await job.result(10.0) == b"done"
            assert [record.message for record in caplog.records if "threads" in record.message] == [
                "w: 4 threads of functions that hang: it takes no jobs of plain functions until some return (x)"
            ]
        finally:
            released.set()
            await aeventually(lambda: all(thread.name.startswith("Trio") for thread in threads))  # idle again


@pytest.mark.parametrize("other", [0, 3])
async def test_slots_over_the_concurrency_of_a_kind_cost_its_jobs_no_try(other: int, autojump_clock: MockClock) -> None:
    starts: Counter[bytes] = Counter()
    memory = ClusterMemory(delay=0.001)
    async with (
        Host("c", transport=memory.transport("a"), id="a") as host,
        Member("c", dial="mem://a", transport=memory.transport("w", listens=False), id="w", slots=4) as worker,
    ):
        await worker.joined(5.0)

        @worker.work("x")
        async def function(job: JobRun) -> bytes:
            starts[job.payload] += 1
            await trio.sleep(0.4)
            return b"done"

        if other:

            @worker.work("y", concurrency=other)
            async def free(job: JobRun) -> bytes:
                return b"free"

        jobs = [await host.submit("x", b"%d" % number, tries=1, visibility=1.0) for number in range(8)]
        if other:
            await trio.sleep(0.1)
            assert await (await host.submit("y", b"")).result(0.1) == b"free"
        assert [await job.result(10.0) for job in jobs] == [b"done"] * 8
        assert set(starts.values()) == {1}


@pytest.mark.parametrize("plain", [False, True])
async def test_middleware_is_around_each_try_of_a_job(plain: bool) -> None:
    seen: list[tuple[str, int]] = []

    async def outer(run: JobRun, proceed: Proceed) -> Reply:
        if run.headers.get("user") != "ada":
            raise JobFailed("no user")
        reply = await proceed(run)
        return replace(reply, body=b"%s!" % (reply.body or b"nothing"))

    async def inner(run: JobRun, proceed: Proceed) -> Reply:
        seen.append((run.kind, run.try_number))
        return await proceed(run)

    def fail_once(run: JobRun) -> bytes:
        if run.try_number == 1:
            raise OSError("not yet")
        return run.payload

    async def fail_once_async(run: JobRun) -> bytes:
        return fail_once(run)

    async def parts(run: JobRun) -> AsyncIterator[bytes]:
        yield b"1"
        yield b"2"

    memory = ClusterMemory()
    async with Host("c", transport=memory.transport("a"), id="a", middleware=[outer, inner]) as host:
        host.work("copy")(fail_once if plain else fail_once_async)
        host.work("count")(parts)
        user = {"user": "ada"}
        assert await (await host.submit("copy", b"x", headers=user)).result(5.0) == b"x!"
        counted = await host.submit("count", b"", headers=user, stream=True)
        assert [part async for part in counted.parts()] == [b"1", b"2"]
        assert await counted.result(5.0) == b"nothing!"
        with pytest.raises(JobFailed, match="no user"):
            await (await host.submit("copy", b"x")).result(5.0)
    assert seen == [("copy", 1), ("copy", 2), ("count", 1)]


async def test_a_middleware_that_is_unusable_is_refused_or_fails_the_try() -> None:
    async def label(run: JobRun, proceed: Proceed) -> Reply:
        return replace(await proceed(run), headers={"a": "b"})

    memory = ClusterMemory()
    with pytest.raises(ConfigError, match="not an async function"):
        Host("c", transport=memory.transport("a"), middleware=[exiting])  # type: ignore[list-item]
    async with Host("c", transport=memory.transport("a"), middleware=[label]) as host:

        @host.work("copy")
        async def copy(run: JobRun) -> bytes:
            return run.payload

        with pytest.raises(JobFailed, match="headers: the result of a job has none"):
            await (await host.submit("copy", b"x", tries=1)).result(5.0)
