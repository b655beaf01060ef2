"""Event loops that share a socket: concurrently, with threads, one after the other, and what they leave behind."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import trio

from nngkit.errors import Closed
from nngkit.protocols import Rep, Req, Respondent, Surveyor
from nngkit.testing import eventually
from tests.protocols.wires import WAIT

TCP = "tcp://127.0.0.1:0"
RUNS = {"trio": trio.run, "asyncio": lambda main: asyncio.run(main())}

runs = pytest.mark.parametrize("runner", RUNS.values(), ids=RUNS)
Run = Callable[[Callable[[], Awaitable[Any]]], Any]


def echo(rep: Rep) -> threading.Thread:
    """Run a thread that replies until the socket is closed."""

    def answer() -> None:
        for request in rep:
            request.reply(request.body)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@runs
def test_one_socket_serves_successive_loops_and_keeps_nothing_of_them(runner: Run) -> None:
    with Rep(listen=TCP) as rep, Req(dial=rep.address) as req:

        async def ask() -> bytes:
            return await req.arequest(b"hello", timeout=WAIT)

        def answer_late() -> None:
            request = rep.recv(WAIT)
            time.sleep(0.5)  # the question's task waits by then, and has opened its descriptors
            request.reply(request.body)

        rep.wait_for_peers(1, WAIT)
        req.wait_for_peers(1, WAIT)
        late = threading.Thread(target=answer_late)
        late.start()
        eventually(lambda: rep._core.poller.has_polling_waiter)  # it has opened its descriptors, too
        assert runner(ask) == b"hello"
        late.join()
        echo(rep)
        before = descriptors()
        for _ in range(50):
            assert runner(ask) == b"hello"
        assert descriptors() <= before  # each loop removes the watch of the one before


@runs
def test_a_socket_closed_after_its_loops_frees_their_descriptors(runner: Run) -> None:
    before = 0
    for number in range(21):
        if number == 1:  # after the first sockets of the process, with which NNG's threads begin
            before = descriptors()
        with Rep(listen=TCP) as rep, Req(dial=rep.address) as req:
            echo(rep)

            async def ask(req: Req = req) -> bytes:
                return await req.arequest(b"hello", timeout=WAIT)

            assert runner(ask) == b"hello"

    def all_freed() -> bool:
        gc.collect()  # an ended loop is garbage in a cycle of its library's, and keeps its watch until then
        return descriptors() <= before + 1

    eventually(all_freed)


@runs
def test_a_thread_and_a_loop_may_share_a_socket(runner: Run) -> None:
    """The loop was first and reads for all; it must wake the threads for which it reads."""
    with Rep(listen=TCP) as rep, Req(dial=rep.address) as req, ThreadPoolExecutor(4) as pool:
        echo(rep)

        def in_a_thread(number: int) -> list[bytes]:
            return [req.request(b"%d %d" % (number, count), timeout=WAIT) for count in range(200)]

        async def in_a_loop() -> list[bytes]:
            first = [await req.arequest(b"first", timeout=WAIT)]
            threads = [pool.submit(in_a_thread, number) for number in range(4)]
            mine = [await req.arequest(b"%d" % count, timeout=WAIT) for count in range(400)]
            while not all(thread.done() for thread in threads):
                mine.append(await req.arequest(b"more", timeout=WAIT))
            for number, thread in enumerate(threads):
                assert thread.result() == [b"%d %d" % (number, count) for count in range(200)]
            return first + mine[:400]

        assert runner(in_a_loop) == [b"first", *(b"%d" % count for count in range(400))]


def test_two_loops_and_a_thread_share_one_socket_on_both_sides() -> None:
    with Rep(listen=TCP) as rep, Req(dial=rep.address) as req:
        asked: list[list[bytes]] = []

        async def answer() -> None:
            try:
                async for request in rep:
                    await request.areply(request.body)
            except Closed:
                pass

        async def ask() -> None:
            asked.append([await req.arequest(b"%d" % count, timeout=WAIT) for count in range(300)])

        servers = [
            threading.Thread(target=asyncio.run, args=(answer(),)),
            threading.Thread(target=trio.run, args=(answer,)),
        ]
        clients = [
            threading.Thread(target=asyncio.run, args=(ask(),)),
            threading.Thread(target=trio.run, args=(ask,)),
            threading.Thread(target=lambda: asked.append([req.request(b"%d" % n, timeout=WAIT) for n in range(300)])),
        ]
        threads = [echo(rep), *servers, *clients]
        for thread in servers + clients:
            thread.start()
        for thread in clients:
            thread.join(WAIT)
        assert asked == [[b"%d" % count for count in range(300)]] * 3
        rep.close()
        for thread in threads:
            thread.join(WAIT)
            assert not thread.is_alive()


class LoopWithoutWatches(asyncio.SelectorEventLoop):
    """A loop that cannot watch descriptors, like Windows' proactor."""

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> Any:  # type: ignore[override]
        raise NotImplementedError


def test_a_loop_that_cannot_watch_descriptors_is_still_woken() -> None:
    with Rep(listen=TCP) as rep, Req(dial=rep.address) as req, Respondent(listen=TCP) as respondent:

        async def main() -> None:
            async def answer() -> None:
                async for request in rep:
                    await request.areply(request.body)

            server = asyncio.create_task(answer())
            for count in range(100):
                assert await req.arequest(b"%d" % count, timeout=WAIT) == b"%d" % count
            server.cancel()

        with asyncio.Runner(loop_factory=LoopWithoutWatches) as runner:
            runner.run(main())

        async def survey() -> None:
            async with Surveyor(dial=respondent.address) as surveyor:
                await surveyor.await_for_peers(1, WAIT)
                threading.Thread(target=lambda: respondent.recv(timeout=WAIT).reply(b"here")).start()
                result = await surveyor.asurvey(b"who", timeout=WAIT, early=True)
                assert [reply.body for reply in result.replies] == [b"here"]

        with asyncio.Runner(loop_factory=LoopWithoutWatches) as runner:
            runner.run(survey())


@runs
def test_requests_left_unread_do_not_keep_the_loop_busy(runner: Run) -> None:
    """No caller waits, so none is woken, however many requests are queued."""
    with Rep(listen=TCP) as rep, Req(dial=rep.address) as req:

        async def main() -> float:
            asking = [threading.Thread(target=req.request, args=(b"x",)) for _ in range(5)]
            for thread in asking:
                thread.start()
            first = await rep.arecv(timeout=WAIT)
            sleep = trio.sleep if runner is trio.run else asyncio.sleep
            await sleep(0.1)
            used = os.times()
            await sleep(0.5)
            now = os.times()
            await first.areply(b"")
            for _ in asking[1:]:
                await (await rep.arecv(timeout=WAIT)).areply(b"")
            for thread in asking:
                thread.join(WAIT)
            return now.user + now.system - used.user - used.system

        assert runner(main) < 0.25


def test_an_abandoned_socket_with_a_pending_resend_is_garbage_at_once() -> None:
    """The alarm of a resend, a minute later, must not keep it alive."""
    with Rep(listen=TCP) as rep:
        echo(rep)
        req = Req(dial=rep.address)
        assert req.request(b"hello", timeout=WAIT) == b"hello"
        gone, held = weakref.ref(req), [req]
        del req

        def let_go() -> None:
            held.clear()
            gc.collect()

        with pytest.warns(ResourceWarning, match="unclosed"):
            let_go()
        assert gone() is None
