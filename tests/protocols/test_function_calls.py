"""Function calls of a request, at each end: unlike its time, they do not depend on the machine or its load."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import pytest
import trio

from nngkit.protocols import TLS, Pub, Pull, Push, Rep, Req, Sub
from nngkit.protocols._core import peer_queues
from nngkit.protocols._waiting.waiters import in_trio
from nngkit.protocols._wire.tls_layer import Layer
from nngkit.testing import Background
from tests.protocols.wires import WAIT

REQUESTS = 200
MOST = 40  # Python's and C's, of one request: 170 when each message passed by the machine, the inbox and the queues
MOST_OF_TASKS = 128  # of both ends together
FLIGHT = 64  # requests in progress at once
EACH = REQUESTS // 4
MOST_IN_FLIGHT = 58  # of both ends together, of one of FLIGHT: 62 when each reply decided when it is written
MOST_OF_LOAN = 105  # of 1 MiB in shared memory: 170 when each passed by the queue, and releases were read before each
MOST_OF_VIEW = 75  # of it, which is waited for: 130 when each passed by the machine and the inbox
MOST_OF_BURST = 6.1  # of one published message: 7 when each looked for waiters to wake
MOST_POLLS = 7  # each end is told that there is data, reads it, and wakes its task in the loop's next turn


def calls(function: Callable[[], object]) -> float:
    """Return how many functions are called by one of REQUESTS calls of `function`, which is not counted."""
    counted: Counter[str] = Counter()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            counted[argument.__qualname__ if event == "c_call" else frame.f_code.co_qualname] += 1

    for _ in range(REQUESTS // 10):
        function()
    sys.setprofile(note)
    try:
        for _ in range(REQUESTS):
            function()
    finally:
        sys.setprofile(None)
    return sum(counted.values()) / REQUESTS - 1


@pytest.mark.parametrize("scheme", ["tcp://127.0.0.1:0", "tls+tcp://127.0.0.1:0", "abstract://"])
def test_a_request_of_a_thread_takes_few_function_calls(scheme: str, shared_tls: TLS) -> None:
    with Rep(listen=scheme, tls=shared_tls) as rep, Req(dial=rep.address, tls=shared_tls) as req:

        def serve() -> None:
            for request in rep:
                request.reply(request.body)

        server = Background(serve)
        assert calls(lambda: req.request(b"x" * 16, timeout=WAIT)) <= MOST
        rep.close()
        server.result()


@pytest.mark.parametrize("scheme", ["tcp://127.0.0.1:0", "tls+tcp://127.0.0.1:0", "abstract://"])
def test_a_reply_of_a_thread_takes_few_function_calls(scheme: str, shared_tls: TLS) -> None:
    with Rep(listen=scheme, tls=shared_tls) as rep, Req(dial=rep.address, tls=shared_tls) as req:
        total = REQUESTS + REQUESTS // 10
        client = Background(lambda: [req.request(b"x" * 16, timeout=WAIT) for _ in range(total)])
        assert calls(lambda: rep.recv(timeout=WAIT).reply(b"x" * 16)) <= MOST
        assert len(client.result()) == total


def test_a_request_under_tls_is_a_record_each_way(shared_tls: TLS, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each end encrypts once and decrypts once: no read is tried in vain, and no frame is two records."""
    counted: list[str] = []
    begin = Layer.__init__

    def counting(self: Layer, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        for name in ("put", "read", "write"):
            setattr(self, name, partial(count, name, getattr(self, name)))

    def count(name: str, call: Callable[..., object], *arguments: object) -> object:
        counted.append(name)  # in one step of C, as both ends do
        return call(*arguments)

    monkeypatch.setattr(Layer, "__init__", counting)
    with Rep(listen="tls+tcp://127.0.0.1:0", tls=shared_tls) as rep, Req(dial=rep.address, tls=shared_tls) as req:

        def serve() -> None:
            for request in rep:
                request.reply(request.body)

        server = Background(serve)
        for number in range(REQUESTS + 10):
            if number == 10:
                counted.clear()
            req.request(b"x" * 16, timeout=WAIT)
        assert Counter(counted) == dict.fromkeys(("put", "read", "write"), 2 * REQUESTS)
        rep.close()
        server.result()


@pytest.mark.skipif(sys.platform != "linux", reason="shared memory needs Linux")
def test_a_loan_and_a_view_take_few_function_calls(tmp_path: Path) -> None:
    size, total = 1 << 20, REQUESTS + REQUESTS // 10
    with Push(listen=f"shm://{tmp_path}/shared") as push, Pull(dial=push.address) as pull:
        seen = threading.Lock()  # one call each, whether it waits or not
        seen.acquire()

        def lend() -> None:
            with push.loan(size, timeout=WAIT) as buffer:
                buffer[0] = 1
            assert seen.acquire(timeout=WAIT)

        def look() -> None:
            pull.recv_view(timeout=WAIT)
            seen.release()

        def repeat(function: Callable[[], None]) -> None:
            for _ in range(total):
                function()

        viewer = Background(repeat, look)
        assert calls(lend) <= MOST_OF_LOAN
        viewer.result()
        lender = Background(repeat, lend)
        assert calls(look) <= MOST_OF_VIEW
        lender.result()
        assert push.stats.shared == 2 * total
        assert push.stats.copied == 0


def test_a_message_of_a_burst_takes_few_function_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_queues, "BURST_GAP", inf)  # however slow the machine is
    monkeypatch.setattr(peer_queues, "BURST_DELAY", 600.0)
    with Pub(listen="tcp://127.0.0.1:0") as pub, Sub(dial=pub.address, topics=b""):
        pub.wait_for_peers(1, WAIT)
        assert calls(lambda: pub.send(b"x" * 16)) <= MOST_OF_BURST


async def _request_and_reply(
    began: Callable[[], object], ended: Callable[[], object], flight: int = 1, each: int = REQUESTS
) -> None:
    """Make ``each`` requests of each of ``flight`` tasks, to a task of the same loop."""
    async with Rep(listen="tcp://127.0.0.1:0") as rep, Req(dial=rep.address) as req:

        async def serve(number: int) -> None:
            async for request in rep:
                await request.areply(request.body)
                number -= 1
                if not number:
                    return

        async def ask(number: int) -> None:
            for _ in range(number):
                await req.arequest(b"x" * 16, timeout=WAIT)

        for number, note in ((each // 10, began), (each, ended)):
            if in_trio():
                with trio.fail_after(WAIT):
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(serve, number * flight)
                        for _ in range(flight):
                            nursery.start_soon(ask, number)
            else:
                asking = (ask(number) for _ in range(flight))
                await asyncio.wait_for(asyncio.gather(serve(number * flight), *asking), WAIT)
            note()


RUNS = pytest.mark.parametrize("run", [trio.run, lambda main: asyncio.run(main())], ids=["trio", "asyncio"])


@RUNS
def test_a_request_beside_others_takes_few_function_calls(run: Callable[[Any], None]) -> None:
    """Both ends together, without the calls by the loop itself."""
    ours = 0

    def note(frame: Any, event: str, _: Any) -> None:
        nonlocal ours
        ours += event in ("call", "c_call") and frame.f_globals["__name__"].startswith("nngkit.")

    async def main() -> None:
        await _request_and_reply(lambda: sys.setprofile(note), lambda: sys.setprofile(None), FLIGHT, EACH)

    run(main)
    assert ours / EACH / FLIGHT <= MOST_IN_FLIGHT


@RUNS
def test_a_request_between_tasks_takes_few_function_calls_and_polls(run: Callable[[Any], None]) -> None:
    """Both ends together; of the calls by the loop itself only its polls are counted."""
    counted: Counter[str] = Counter()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            counted["ours"] += frame.f_globals["__name__"].startswith("nngkit.")
            counted["polls"] += event == "c_call" and argument.__qualname__ == "epoll.poll"

    async def main() -> None:
        await _request_and_reply(lambda: sys.setprofile(note), lambda: sys.setprofile(None))

    run(main)
    assert counted["ours"] / REQUESTS <= MOST_OF_TASKS
    assert counted["polls"] / REQUESTS < MOST_POLLS
