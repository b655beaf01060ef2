"""nngkit.aio: the async objects under asyncio, cancellation, timeouts, and the end of the loop and the process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from nngkit import ConfigError, RemoteError, ServiceNotFound, TimedOut
from nngkit.aio import (
    Client,
    Consumer,
    ConsumerServer,
    Daemon,
    DocumentPeer,
    DocumentRecorder,
    Following,
    Host,
    Outbox,
    Publisher,
    Recorder,
    Resolver,
    Server,
    Service,
    ServiceDiscovery,
)
from nngkit.aio._base import Aio
from nngkit.calls import Calling
from nngkit.cluster import JobRun
from nngkit.discovery import DaemonSettings, Question, first
from nngkit.errors import Closed, Unreachable
from nngkit.protocols import Rep, Req, Sub
from tests.under_asyncio import WAIT, under_asyncio

ROOT = Path(__file__).parent.parent
ANY = "tcp://127.0.0.1:0"
SETTINGS = DaemonSettings(listen=(ANY,), deadline=1.0, interval=1000)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT):
        while not condition():  # noqa: ASYNC110 - conditions of objects in another thread
            await asyncio.sleep(0.002)


async def echo(body: Any) -> Any:
    return body


# ---- discovery -------------------------------------------------------------------------------------------------------


@under_asyncio
async def test_a_service_is_discovered_and_resolved() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=WAIT) as discovery,
        Service("answer", "tcp://10.0.0.1:9000", discovery=discovery.address) as service,
    ):
        await discovery.wait_for_peers(timeout=WAIT)
        assert set(await discovery.discover(early=True)) == {"answer"}
        assert discovery.resolve("answer") == service.provider
        service.update(weight=7)
        await until(lambda: discovery.resolve("answer").weight == 7)
        with pytest.raises(ServiceNotFound):
            discovery.resolve("absent")


@under_asyncio
async def test_a_resolver_follows_a_daemon_and_yields_events() -> None:
    async with Daemon(SETTINGS) as daemon, Resolver(daemon.query_addresses) as resolver:
        events = resolver.events()
        async with Service("answer", "tcp://10.0.0.1:9000", discovery=daemon.addresses):
            assert (await anext(events)).new == "up"
            assert (await resolver.find("answer", timeout=WAIT)).name == "answer"
        async for event in events:
            if event.new == "down":
                break
        await events.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(events)


@under_asyncio
async def test_errors_are_those_of_the_objects_and_never_groups() -> None:
    with Rep(listen=ANY) as taken, pytest.raises(Unreachable):
        await ServiceDiscovery(listen=taken.address).__aenter__()
    with pytest.raises(KeyError, match="mine"):
        async with ServiceDiscovery(listen=ANY):
            raise KeyError("mine")
    with pytest.raises(ConfigError, match="deadline"):
        ServiceDiscovery(deadline=-1)
    closed = ServiceDiscovery()
    with pytest.raises(Closed, match="use it in an `async with`"):
        closed.snapshot()
    async with Resolver("tcp://127.0.0.1:1", timeout=0.05) as resolver:
        with pytest.raises(ServiceNotFound):
            await resolver.find("answer", timeout=0.05)


@under_asyncio
async def test_questions_are_answered_by_tasks_of_the_programs_loop() -> None:
    loop = asyncio.get_running_loop()

    async def bid(question: Question) -> bytes:
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is loop
        return question.body.upper()

    async with (
        ServiceDiscovery(listen=ANY, deadline=WAIT) as discovery,
        Service("answer", "tcp://10.0.0.1:9000", discovery=discovery.address, on_question=bid),
    ):
        await discovery.wait_for_peers(timeout=WAIT)
        result = await discovery.ask(b"who?", until=first(1, timeout=WAIT))
        assert [answer.body for answer in result.answers] == [b"WHO?"]


@under_asyncio
async def test_a_program_that_computes_delays_no_survey() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=WAIT, interval=0.02) as discovery,
        Service("answer", "tcp://10.0.0.1:9000", discovery=discovery.address),
    ):
        await until(lambda: discovery.rounds and discovery.rounds[-1].answered == 1)
        before = discovery.rounds[-1].number
        time.sleep(0.5)  # noqa: ASYNC251 - the program computes
        assert discovery.rounds[-1].number >= before + 5
        assert discovery.rounds[-1].answered == 1


# ---- timeouts and cancellation ---------------------------------------------------------------------------------------


@under_asyncio
async def test_asyncio_timeout_ends_every_wait() -> None:
    async with ServiceDiscovery(listen=ANY, deadline=WAIT) as discovery:
        waits: list[Callable[[], Coroutine[Any, Any, Any]]] = [
            discovery.discover,
            discovery.wait_for_peers,
            lambda: anext_of(discovery.events()),
        ]
        for wait in waits:
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await wait()
            assert time.monotonic() - began < 5


async def both(*calls: Coroutine[Any, Any, Any]) -> None:
    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(call)


async def anext_of(events: AsyncIterator[Any]) -> Any:
    return await anext(events)


@under_asyncio
async def test_a_cancelled_call_has_ended_in_the_background_too() -> None:
    async with ServiceDiscovery(listen=ANY) as discovery:
        task = asyncio.create_task(discovery.wait_for_peers())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        again = asyncio.create_task(discovery.wait_for_peers())
        async with Service("answer", "tcp://10.0.0.1:9000", discovery=discovery.address):
            await asyncio.wait_for(again, WAIT)


@under_asyncio
async def test_a_cancelled_wait_takes_no_event() -> None:
    async with ServiceDiscovery(listen=ANY, interval=1000) as discovery:
        events = discovery.events()
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await anext(events)
        async with Service("answer", "tcp://10.0.0.1:9000", discovery=discovery.address):
            assert (await anext(events)).name == "answer"


@under_asyncio
async def test_an_event_that_arrives_while_its_wait_is_cancelled_is_kept() -> None:
    async with ServiceDiscovery(listen=ANY, interval=1000) as discovery:
        events, seen = discovery.events(), []
        async with Service("answer", "tcp://10.0.0.1:9000", discovery=discovery.address) as service:
            for weight in range(2, 42):
                service.update(weight=weight)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.0005 * (weight % 5)):
                        while True:
                            seen.append(await anext(events))
            while not seen or seen[-1].provider.weight != 41:
                seen.append(await anext(events))
        weights = [event.provider.weight for event in seen]
        assert weights == sorted(set(weights))


@under_asyncio
async def test_leaving_closes_the_object_and_then_raises_the_cancellation() -> None:
    discovery = ServiceDiscovery(listen=ANY)
    entered, after = asyncio.Event(), False

    async def work() -> None:
        nonlocal after
        async with discovery:
            entered.set()
        await asyncio.sleep(0)
        after = True

    task = asyncio.create_task(work())
    await entered.wait()
    task.cancel()  # while it leaves
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not after
    with pytest.raises(Closed):
        discovery.snapshot()


@under_asyncio
async def test_a_cancelled_opening_is_cancelled_in_the_background() -> None:
    class Never:
        async def __aenter__(self) -> None:
            await trio.sleep_forever()

        async def __aexit__(self, *_: object) -> None: ...

    class Hosts(Aio[Never]):
        def __init__(self) -> None:
            super().__init__()
            self._inner = Never()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), Hosts():
            pass


def test_use_under_trio_is_reported() -> None:
    async def main() -> None:
        async with ServiceDiscovery(listen=ANY):
            pass

    with pytest.raises(ConfigError, match="no asyncio loop is running"):
        trio.run(main)


@under_asyncio
async def test_an_error_of_a_task_group_member_is_the_only_one_in_the_group() -> None:
    async with ServiceDiscovery(listen=ANY, deadline=WAIT) as discovery:
        with pytest.raises(ExceptionGroup) as told:
            await both(discovery.discover(), discovery.wait_for_peers(timeout=0.02))
        assert [type(each) for each in told.value.exceptions] == [TimedOut]


# ---- calls -----------------------------------------------------------------------------------------------------------


@under_asyncio
async def test_a_server_runs_its_handlers_in_the_programs_loop() -> None:
    loop = asyncio.get_running_loop()

    async def where(body: Any, calling: Calling) -> list[Any]:
        await asyncio.sleep(0)
        return [asyncio.get_running_loop() is loop, calling.method, 0 < calling.remaining <= WAIT]

    async def count(body: int) -> AsyncIterator[int]:
        for number in range(body):
            await asyncio.sleep(0)
            yield number

    server = Server("calc", codec="cbor")
    server.method("where")(where)
    server.method(count)
    async with server, Client("calc", addresses=server.address, codec="cbor", timeout=WAIT) as calc:
        assert await calc.request(None, method="where") == [True, "where", True]
        assert [number async for number in calc.stream(5, method="count")] == [0, 1, 2, 3, 4]
        assert server.stats.replies == 2


@under_asyncio
async def test_handlers_raise_and_are_cancelled_as_under_trio() -> None:
    cancelled = asyncio.Event()

    async def handler(body: str) -> str:
        if body == "fail":
            raise RemoteError("no", kind="declined")
        try:
            await asyncio.sleep(WAIT * 2)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return body

    async with (
        Server("answer", handler, codec="cbor") as server,
        Client("answer", addresses=server.address, codec="cbor", timeout=WAIT) as answer,
    ):
        with pytest.raises(RemoteError, match="declined: no"):
            await answer.request("fail")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await answer.request("wait")
        await asyncio.wait_for(cancelled.wait(), WAIT)
        cancelled.clear()
        with pytest.raises(TimedOut):
            await answer.request("wait", timeout=0.1)
        await asyncio.wait_for(cancelled.wait(), WAIT)


@under_asyncio
async def test_a_client_follows_a_discovery_of_the_program() -> None:
    well = True

    async def healthy() -> bool:
        return well

    async with (
        ServiceDiscovery(listen=ANY, interval=1000) as discovery,
        Server("answer", echo, discovery=discovery.address, healthy=healthy, health_interval=0.02) as server,
        Client("answer", discovery=discovery, timeout=WAIT) as answer,
    ):
        sent = [b"%d" % n for n in range(50)]
        assert await asyncio.gather(*map(answer.request, sent)) == sent
        assert answer.stats.requests == 50
        well = False
        await until(lambda: "answer" not in discovery.snapshot())
        assert server.provider.draining


@under_asyncio
async def test_functions_that_an_object_calls_close_it_without_waiting_for_themselves() -> None:
    closed: list[str] = []

    async def answer(question: Question) -> bytes:
        await service.aclose()
        closed.append("service")
        return b""

    async with ServiceDiscovery(listen=ANY, interval=0.05) as discovery:
        async with Service("x", "tcp://10.0.0.1:9", discovery=discovery.address, on_question=answer) as service:
            await discovery.wait_for_peers(1, WAIT)
            await discovery.ask(b"?")
            await until(lambda: closed == ["service"])
        await until(lambda: "x" not in discovery.snapshot())
    async with Host("c", listen=ANY) as host:

        @host.work("close")
        async def close(job: JobRun) -> None:
            await host.aclose()
            closed.append("host")

        with suppress(Closed):
            await (await host.submit("close", b"")).result(WAIT)
        await until(lambda: closed[1:] == ["host"])


@under_asyncio
async def test_the_bricks_serve_the_same_client() -> None:
    with Rep(listen=ANY) as rep:

        async def serve() -> None:
            async for request in rep:
                await request.areply(request.body.upper())

        task = asyncio.create_task(serve())
        async with Client("answer", addresses=rep.address, timeout=WAIT) as answer:
            assert await answer.request(b"x", hedge=5.0) == b"X"
        task.cancel()
    async with Server("answer", echo) as server:
        with Req(dial=server.address) as req:
            assert await req.arequest(b"y", timeout=WAIT) == b"y"


# ---- documents and journal -------------------------------------------------------------------------------------------


@under_asyncio
async def test_documents_are_edited_followed_and_synchronized(tmp_path: Path) -> None:
    async with DocumentPeer(listen=ANY, store=tmp_path / "a.sqlite") as one, DocumentPeer(dial=one.addresses) as other:
        here, there = one.open("minutes"), other.open("minutes")
        assert one.open("minutes") is here
        changes = there.changes()
        with here.transaction():
            here.text("body").insert(0, "hello")
        await here.durable()
        await asyncio.wait_for(anext(changes), WAIT)
        await until(lambda: str(there.text("body")) == "hello")
        await there.joined(timeout=WAIT)
        await changes.aclose()
        saved = await here.save_version("first")
        assert str(here.at(saved.name).text("body")) == "hello"


@pytest.mark.slow
@under_asyncio
async def test_a_recorder_records(tmp_path: Path) -> None:
    async with Recorder(tmp_path / "journal") as recorder:
        recorder.put(b"x", topic="t", protocol="sub")
        await recorder.flush()
        assert recorder.stats.end == 1


# ---- journals and fan-out --------------------------------------------------------------------------------------------


@under_asyncio
async def test_what_an_outbox_stores_is_recorded_and_consumed(tmp_path: Path) -> None:
    values = [b"0", b"1", b"2"]
    with Rep(listen=ANY) as rep, Req(dial=rep.address) as req:
        async with Recorder(tmp_path / "j") as recorder, Outbox(tmp_path / "o", req, form="record") as outbox:
            recording = asyncio.create_task(recorder.record(rep, "orders"))
            assert await outbox.put_many(values) == 0
            await outbox.flush()
            assert outbox.stats.acknowledged == 3
            rep.close()
            await recording
    async with ConsumerServer(tmp_path / "j", listen=ANY) as server, Consumer("c", server.address) as consumer:
        async for batch in consumer.batches():
            assert batch.values == values
            await consumer.ack(batch)
            break
        assert [each.settled for each in server.consumers("c")] == [3]


@under_asyncio
async def test_a_journal_is_followed_until_the_live_messages(tmp_path: Path) -> None:
    async with Publisher(ANY, heartbeat=0.05) as publisher, Recorder(tmp_path / "j") as recorder:
        with Sub(dial=publisher.address, topics="") as recorded:
            recording = asyncio.create_task(recorder.record(recorded, "t"))
            await publisher.wait_for_peers(1, WAIT)
            publisher.publish_many([(b"", b"%d" % number) for number in range(10)])
            await until(lambda: recorder.stats.end >= 10)
            with Sub(dial=publisher.address, topics="") as sub:
                async with Following(sub, tmp_path / "j", topic="t") as following:
                    found = [await anext(following) for _ in range(10)]
                    await publisher.wait_for_peers(2, WAIT)
                    publisher.publish(b"", b"10")
                    found.append(await anext(following))
                    assert found == [b"%d" % number for number in range(11)]
                    sub.close()
                    assert [each async for each in following] == []
        await recording


@under_asyncio
async def test_a_recorder_of_documents_records(tmp_path: Path) -> None:
    async with DocumentPeer(listen=ANY) as ada, Recorder(tmp_path / "j") as recorder:
        async with DocumentRecorder(recorder, dial=ada.address) as kept:
            ada.open("minutes").text("body").insert(0, "hello")
            await until(lambda: kept.digests.get("minutes") == ada.open("minutes").digest())
            await kept.synced()
            assert kept.versions("minutes") == {ada.me: 1}
        assert len(list(recorder.recorded("documents"))) == 1


# ---- the end ---------------------------------------------------------------------------------------------------------


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=30,
        cwd=ROOT,
    )


def test_a_loop_that_ends_with_open_objects_does_not_hang() -> None:
    done = run(
        """if True:
        import asyncio
        from nngkit.aio import ServiceDiscovery
        async def main():
            asyncio.get_running_loop().slow_callback_duration = 30.0  # a busy machine is no fault
            discovery = ServiceDiscovery(listen="tcp://127.0.0.1:0")
            await discovery.__aenter__()
            asyncio.create_task(discovery.wait_for_peers())
            await asyncio.sleep(0.05)
        asyncio.run(main())
        print("over")
        """
    )
    assert (done.stdout, done.stderr, done.returncode) == ("over\n", "", 0)


def test_ctrl_c_ends_the_program() -> None:
    done = run(
        """if True:
        import asyncio, os, signal, threading
        from nngkit.aio import Server
        async def echo(body): return body
        async def main():
            asyncio.get_running_loop().slow_callback_duration = 30.0  # a busy machine is no fault
            async with Server("answer", echo):
                threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
                await asyncio.sleep(20)
        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)


def test_importing_starts_no_thread() -> None:
    done = run("import threading, nngkit.aio; print(threading.active_count())")
    assert (done.stdout, done.returncode) == ("1\n", 0)


def test_callers_need_no_extra() -> None:
    done = run(
        """if True:
        import sys
        for name in ("pyarrow", "pycrdt", "google_crc32c"):
            sys.modules[name] = None
        from nngkit.aio import Client, Server, ServiceDiscovery
        from nngkit import ConfigError
        try:
            from nngkit.aio import Recorder
        except ConfigError as error:
            print(error)
        """
    )
    assert (done.stdout.startswith("journal: "), done.stderr) == (True, "")
