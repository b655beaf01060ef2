"""Many users of one socket at once: nothing is lost, duplicated or reordered."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import trio

from nngkit.errors import Closed, TimedOut
from nngkit.protocols import Pair1, Pull, Push, Rep, Req
from nngkit.testing import BLOCKING, Background, Wire, eventually
from tests.protocols.wires import WAIT
from tests.switches import many_switches

THREADS = 8
EACH = 500  # messages that each thread sends
LONG = 2 * WAIT


def numbered(thread: int, count: int = EACH) -> list[bytes]:
    return [b"%d %d" % (thread, number) for number in range(count)]


EVERYTHING = Counter(message for thread in range(THREADS) for message in numbered(thread))


def one_by_one(sock: Any, messages: list[bytes]) -> None:
    for message in messages:
        sock.send(message, timeout=LONG)


def in_tens(sock: Any, messages: list[bytes]) -> None:
    for start in range(0, len(messages), 10):
        assert sock.send_many(messages[start : start + 10], timeout=LONG) == 10


def take_one_by_one(sock: Any, got: list[bytes], enough: Callable[[], None]) -> None:
    for message in sock:
        got.append(message)
        enough()


def take_many(sock: Any, got: list[bytes], enough: Callable[[], None]) -> None:
    while True:
        try:
            got += sock.recv_many(7)
        except Closed:
            return
        enough()


# ---- many users ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 7, 10_000])
def test_recv_and_recv_many_share_one_queue(most: int) -> None:
    """Failed after 100,000 closes: one call was about to take messages that another had taken without the lock."""
    with Pull(listen="tcp://127.0.0.1:0", recv_buffer=8192) as pull, Push(dial=pull.address) as push:
        waiting = 0

        def until_empty(take: Callable[[], list[bytes]], got: list[bytes]) -> None:
            with contextlib.suppress(TimedOut):
                while True:
                    some = take()
                    assert 1 <= len(some) <= most
                    got += some

        takes = [lambda: [pull.recv(timeout=0)], lambda: pull.recv_many(most, timeout=0)]
        with many_switches():
            for count in [1, 2, 3, 20] * 100 + [8192]:
                sent = numbered(0, count)
                push.send_many(sent, timeout=LONG)
                waiting += count
                eventually(lambda: pull.stats.received == waiting)  # noqa: B023 - called within this turn
                got: list[list[bytes]] = [[], [], []]
                receivers = [Background(until_empty, takes[n % 2], mine) for n, mine in enumerate(got)]
                for receiver in receivers:
                    receiver.result()
                assert sorted(itertools.chain(*got)) == sorted(sent)


@pytest.mark.parametrize("kind", [(Push, Pull), (Pair1, Pair1)], ids=["pipeline", "pair"])
@pytest.mark.parametrize("room", [1, 1024], ids=["little room", "room"])
@pytest.mark.parametrize("wire", ["tcp", "inproc"], indirect=True)
def test_eight_threads_send_and_eight_receive_on_one_socket(wire: Wire, kind: Any, room: int) -> None:
    got: list[list[bytes]] = [[] for _ in range(THREADS)]
    done = threading.Event()

    def enough() -> None:
        if sum(map(len, got)) >= THREADS * EACH:
            done.set()

    with kind[0](listen=wire.address(), send_buffer=room) as sender, kind[1](dial=sender.address) as receiver:
        takers = itertools.cycle([take_one_by_one, take_many])
        taking = [Background(next(takers), receiver, part, enough) for part in got]
        givers = itertools.cycle([one_by_one, in_tens])
        giving = [Background(next(givers), sender, numbered(thread)) for thread in range(THREADS)]
        for thread in giving:
            thread.result(LONG)
        complete = done.wait(LONG)
        receiver.close()
        for thread in taking:
            thread.result()
        assert complete, f"{sum(map(len, got))} of {THREADS * EACH} arrived"
        assert sender.stats.sent == receiver.stats.received == THREADS * EACH
    assert Counter(message for part in got for message in part) == EVERYTHING


def test_one_thread_receives_messages_of_eight_in_their_order(tcp: Wire) -> None:
    with Push(listen=tcp.address(), send_buffer=4) as push, Pull(dial=push.address) as pull:
        giving = [Background(one_by_one, push, numbered(thread)) for thread in range(THREADS)]
        got = [pull.recv(timeout=WAIT) for _ in range(THREADS * EACH)]
        for thread in giving:
            thread.result()
    for number in range(THREADS):
        assert [message for message in got if message.startswith(b"%d " % number)] == numbered(number)


def answer(rep: Rep) -> None:
    """Reply to everything, in reverse order, until the socket is closed."""
    for question in rep:
        try:
            question.reply(question.body[::-1])
        except Closed:
            return


def ask_in_turn(req: Req, questions: list[bytes]) -> None:
    for question in questions:
        assert req.request(question, timeout=LONG) == question[::-1]


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["tcp", "inproc"], indirect=True)
def test_eight_threads_request_and_four_reply_on_one_socket_each(wire: Wire) -> None:
    with Rep(listen=wire.address()) as rep, Req(dial=rep.address) as req:
        answering = [Background(answer, rep) for _ in range(4)]
        asking = [Background(ask_in_turn, req, numbered(thread)[:200]) for thread in range(THREADS)]
        for thread in asking:
            thread.result(LONG)
        for stats in (rep.stats, req.stats):
            assert (stats.received, stats.sent, stats.read) == (1600, 1600, 1600)
            assert (stats.dropped, stats.broken, stats.bad, stats.too_large) == (0, 0, 0, 0)
        assert (req.stats.late, req.stats.resent) == (0, 0)
        rep.close()
        for thread in answering:
            thread.result()


@pytest.mark.parametrize("wire", ["tcp", "inproc"], indirect=True)
def test_a_reply_that_has_arrived_is_counted_as_sent(wire: Wire) -> None:
    # When it was counted after NNG had it, a reply arrived before its count: 1,599 of 1,600.
    with Rep(listen=wire.address()) as rep, Req(dial=rep.address) as req:
        answering = Background(answer, rep)
        for number in range(1, 2001):
            req.request(b"?", timeout=WAIT)
            stats = rep.stats
            assert (stats.received, stats.sent, req.stats.received) == (number, number, number)
        rep.close()
        answering.result()


def test_threads_trio_and_asyncio_tasks_request_on_one_socket(tcp: Wire) -> None:
    right: list[bytes] = []  # appending is one step

    async def ask(req: Req, question: bytes) -> None:
        assert await req.arequest(question, timeout=LONG) == question[::-1]
        right.append(question)

    async def in_trio(req: Req) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(500):
                nursery.start_soon(ask, req, b"trio %d" % number)

    async def in_asyncio(req: Req) -> None:
        await asyncio.gather(*(ask(req, b"asyncio %d" % number) for number in range(500)))

    def in_a_thread(req: Req, thread: int) -> None:
        for number in range(50):
            question = b"thread %d %d" % (thread, number)
            assert req.request(question, timeout=LONG) == question[::-1]
            right.append(question)

    with Rep(listen=tcp.address()) as rep, Req(dial=rep.address) as req:
        answering = Background(answer, rep)
        asking = [Background(in_a_thread, req, thread) for thread in range(THREADS)]
        asking += [Background(trio.run, in_trio, req), Background(lambda: asyncio.run(in_asyncio(req)))]
        for one in asking:
            one.result(LONG)
        assert (rep.stats.received, rep.stats.dropped, req.stats.late) == (1400, 0, 0)
        rep.close()
        answering.result()
    kinds = Counter(question.split()[0] for question in right)
    assert kinds == {b"trio": 500, b"asyncio": 500, b"thread": 400}
    assert len(set(right)) == 1400


def test_a_thousand_open_requests_are_answered_in_any_order(tcp: Wire) -> None:
    replies: dict[int, bytes] = {}

    async def ask(req: Req, number: int) -> None:
        replies[number] = await req.arequest(b"%d" % number, timeout=LONG)

    async def ask_all(req: Req) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(1000):
                nursery.start_soon(ask, req, number)

    with Rep(listen=tcp.address()) as rep, Req(dial=rep.address) as req:
        asking = Background(trio.run, ask_all, req)
        questions = [rep.recv(timeout=WAIT) for _ in range(1000)]
        for question in reversed(questions):
            BLOCKING.call(question.reply, b"to " + question.body)
        asking.result()
    assert replies == {number: b"to %d" % number for number in range(1000)}
