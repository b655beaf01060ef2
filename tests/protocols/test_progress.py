"""Progress without a waiting caller: connections are made, read and lost while the program does something else.

The main thread runs pure Python for a second, without calling nngkit or releasing the interpreter by itself; the peers
are a process of their own.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest
import trio

from nngkit.protocols import Bus, PeerEvent, Pipe, Pull, Push, Rep, Req, Respondent, Sub, Surveyor
from nngkit.testing import Background, eventually
from tests.protocols.raw_peer import PULL, REQ, WORD, RawPeer
from tests.protocols.wires import ROOT, WAIT

TCP = "tcp://127.0.0.1:0"
BUSY = 1.0  # seconds
MANY = 3000  # messages

# Connects as PUB, BUS and PUSH on command; one more PUSH connects and leaves. Prints how long that took, then sends.
PEERS = """
import socket, struct, sys, time

def peer(address, protocol):
    host, port = address.removeprefix("tcp://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    connection.sendall(struct.pack(">4sHH", b"\\0SP\\0", protocol, 0))
    assert len(connection.recv(8, socket.MSG_WAITALL)) == 8
    return connection

sub, bus, pull, many = *sys.argv[1:4], int(sys.argv[4])
print("ready", flush=True)
sys.stdin.readline()
start = time.monotonic()
peers = [peer(sub, 32), peer(bus, 112), peer(pull, 80)]
guest = peer(pull, 80)
guest.shutdown(socket.SHUT_WR)
assert not guest.recv(1)  # until that was noticed
print(time.monotonic() - start, flush=True)
frames = b"".join(struct.pack(">Q", 6) + b"%06d" % number for number in range(many))
for one in peers:
    one.settimeout(0.1)
    try:
        one.sendall(frames)
    except TimeoutError:
        pass  # it is held back
sys.stdin.readline()
"""


@contextmanager
def peers(sub: Sub, bus: Bus, pull: Pull) -> Iterator[tuple[IO[str], IO[str]]]:
    """Yield the peers, ready to connect: the pipes for commands to them and for their output."""
    arguments = [sub.address, bus.address, pull.address, str(MANY)]
    process = subprocess.Popen(
        [sys.executable, "-c", PEERS, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process.stdin, process.stdout
    finally:
        process.kill()
        process.wait(WAIT)
        process.stdin.close()
        process.stdout.close()


def busy() -> None:
    """Run pure Python for BUSY seconds."""
    end, number = time.perf_counter() + BUSY, 0
    while time.perf_counter() < end:
        number += 1


@pytest.mark.slow
@pytest.mark.parametrize("where", ["a thread", "a trio task"])
def test_connections_are_made_and_read_while_the_main_thread_is_busy(where: str) -> None:
    admitted: list[Pipe] = []
    events: list[PeerEvent] = []
    with (
        Sub(listen=TCP, topics="", recv_buffer=8) as sub,
        Bus(listen=TCP, recv_buffer=8) as bus,
        Pull(listen=TCP, recv_buffer=8, admit=lambda pipe: not admitted.append(pipe)) as pull,  # type: ignore[func-returns-value]
        peers(sub, bus, pull) as (go, heard),
    ):
        pull.on_peer(events.append)
        go.write("go\n")
        go.flush()
        if where == "a thread":
            busy()
        else:

            async def main() -> None:
                busy()

            trio.run(main)
        over = time.monotonic()
        stats = sub.stats, bus.stats, pull.stats
        assert [one.read for one in stats] == [MANY, MANY, 8]  # and no more from the one that holds its peers back
        assert [one.dropped for one in stats] == [MANY - 8, MANY - 8, 0]
        assert len(admitted) == 2
        # Two NNG threads wait for the interpreter in turn, so the events of two connections have no order among them.
        lives = [[event.kind for event in events if event.pipe.id == pipe.id] for pipe in admitted]
        assert sorted(lives) == [["joined"], ["joined", "left"]]
        assert all(event.time <= over for event in events)
        assert float(heard.readline()) < BUSY / 2  # until all of them have joined


def test_queued_messages_are_written_while_the_main_thread_is_busy() -> None:
    program = """
import sys
from nngkit.protocols import Pull
with Pull(dial=sys.argv[1], recv_buffer=8) as pull:
    for number in range(20_000):
        assert pull.recv(timeout=20) == b"%d" % number
    print("all", flush=True)
"""
    with Push(listen=TCP, send_buffer=8192) as push:
        process = subprocess.Popen(
            [sys.executable, "-c", program, push.address], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        try:
            sent = push.send_many([b"%d" % number for number in range(8000)])
            push.wait_for_peers(1, WAIT)
            sent += push.send_many([b"%d" % number for number in range(sent, 16_000)], timeout=WAIT)
            before = push.stats.unwritten
            busy()
            assert push.stats.unwritten < max(before, 1)
            push.send_many([b"%d" % number for number in range(sent, 20_000)], timeout=WAIT)
            assert push.drain(WAIT)
            assert process.stdout is not None
            assert process.stdout.readline() == "all\n"
            process.stdout.close()
        finally:
            process.kill()
            process.wait(WAIT)


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["trio", "asyncio"])
def test_a_tasks_message_is_written_at_once_though_its_loop_is_busy_afterwards(loop: str) -> None:
    with Push(listen=TCP) as push, RawPeer(push.address, PULL) as pull, Rep(listen=TCP) as rep:
        push.wait_for_peers(1, WAIT)
        with RawPeer(rep.address, REQ) as requester:
            took: list[float] = []

            def read() -> None:
                start = time.monotonic()
                for _ in range(3):
                    pull.recv()
                    requester.recv()
                took.append(time.monotonic() - start)

            for number in range(3):
                requester.send(WORD.pack(0x80000000 + number) + b"?")

            async def main() -> None:
                requests = [await rep.arecv(timeout=WAIT) for _ in range(3)]
                reading = Background(read)
                for request in requests:
                    await push.asend(b"x")
                    await request.areply(b"!")
                busy()
                reading.result()

            if loop == "trio":
                trio.run(main)
            else:
                asyncio.run(main())
            assert took[0] < BUSY / 2


def test_replies_are_read_while_no_caller_waits() -> None:
    with Rep(listen=TCP) as rep, Req(dial=rep.address) as req:

        def answer_all() -> None:
            for _ in range(100):
                rep.recv(timeout=WAIT).reply(b"")

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                replies: list[bytes] = []

                async def ask(number: int) -> None:
                    replies.append(await req.arequest(b"%d" % number, timeout=WAIT))

                for number in range(100):
                    nursery.start_soon(ask, number)
                await trio.to_thread.run_sync(eventually, lambda: rep.stats.received == 100)
                answering = Background(answer_all)
                busy()  # this loop runs nothing else meanwhile
                answering.result()
                assert req.stats.received == 100
                assert replies == []
            assert len(replies) == 100

        trio.run(main)


def test_a_survey_completes_without_a_waiting_caller() -> None:
    with Surveyor(listen=TCP) as surveyor, Respondent(dial=surveyor.address) as respondent:
        surveyor.wait_for_peers(1, WAIT)
        with surveyor.start(b"who?", timeout=WAIT) as survey:
            query = respondent.recv(timeout=WAIT)
            for number in range(1000):
                query.reply(b"%d" % number)
            eventually(lambda: surveyor.stats.received == 1000)
            assert [int(reply.body) for reply in survey.fresh()] == list(range(1000))
