"""Defects of bare pynng (0.9, NNG 1.11) that the bricks must not have, one test each: queues.

Where it can be shown safely, the same is done first on pynng itself, in a process of its own; the day one of those
assertions fails, NNG or pynng has mended it.
"""

from __future__ import annotations

import pytest

from nngkit.protocols import Bus, Pair0, Pub, Push, Rep, Req, Sub
from tests.protocols.defects import TCP, bare
from tests.protocols.raw_peer import BUS, PAIR0, PULL, RawPeer, connect, hello, read
from tests.protocols.wires import WAIT, Background, eventually, said

LARGE = b"x" * 65536


def test_close_has_no_linger() -> None:
    total = 200  # of 64 KiB, far more than the network's own buffers take
    kept = bare(
        """
        import sys
        with pynng.Push0(listen=TCP, send_buffer_size=1000) as push:
            slow = stranger(push, 81)
            joined(push)
            for _ in range(int(sys.argv[1])):
                push.send(b"x" * 65536)
        got = 0
        try:
            while more := slow.recv(1 << 20):
                got += len(more)
        except ConnectionResetError:
            pass
        print(got // (65536 + 8))
        """,
        str(total),
    )
    assert int(kept) < total
    with Push(listen=TCP, send_buffer=1000) as push, RawPeer(push.address, PULL) as slow:
        push.wait_for_peers(1, WAIT)
        for _ in range(total):
            push.send(LARGE)
        closing = Background(push.close, linger=WAIT)
        for _ in range(total):
            assert slow.recv() == LARGE
        closing.result()
        assert slow.closed()


def test_bus_has_buffers_of_16_messages_and_drops_silently() -> None:
    burst = 1000
    assert (
        int(
            bare("""
            with pynng.Bus0(listen=TCP) as one, pynng.Bus0(dial=address(one)) as other:
                joined(one)
                for _ in range(1000):
                    one.send(b"x")
                print(count(other))
        """)
        )
        < burst
    )
    with Bus(listen=TCP) as one, Bus(dial=one.address) as other:
        one.wait_for_peers(1, WAIT)
        for number in range(burst):
            one.send(b"%d" % number)
        assert [int(other.recv(timeout=WAIT)) for _ in range(burst)] == list(range(burst))


def test_bus_reaches_every_connected_pipe_authenticated_or_not() -> None:
    assert (
        bare("""
        with pynng.Bus0(listen=TCP) as bus:
            connection = stranger(bus, 112)
            joined(bus)
            bus.send(b"secret")
            print(connection.recv(14, socket.MSG_WAITALL)[8:])
    """)
        == "b'secret'"
    )
    strangers: set[str] = set()
    with (
        Bus(listen=TCP, admit=lambda pipe: pipe.address not in strangers) as bus,
        connect(bus.address) as connection,
        Bus(dial=bus.address) as honest,
    ):
        strangers.add("tcp://{}:{}".format(*connection.getsockname()))
        connection.sendall(hello(BUS))
        eventually(lambda: bus.stats.refused == 1)
        bus.wait_for_peers(1, WAIT)
        bus.send(b"secret")
        assert honest.recv(timeout=WAIT) == b"secret"
        assert read(connection, 8) == hello(BUS)
        with pytest.raises(EOFError) as end:
            read(connection, 1)
        assert end.value.args == (b"",)


def test_pub_never_fails_and_drops_and_sub_keeps_the_newest_128() -> None:
    total = 1000
    assert (
        int(
            bare("""
            with pynng.Pub0(listen=TCP) as pub, pynng.Sub0(dial=address(pub), topics="") as sub:
                joined(pub)
                for _ in range(1000):
                    pub.send(b"x")
                print(count(sub))
        """)
        )
        < total
    )
    with (
        Pub(listen=TCP, sequence=True, send_buffer=8) as pub,
        Sub(dial=pub.address, topics="", sequence=True, recv_buffer=8) as sub,
    ):
        pub.wait_for_peers(1, WAIT)
        pub.send(b"first")
        assert sub.recv(timeout=WAIT) == b"first"
        for number in range(total):
            pub.send(b"%d" % number)
        got = [int(sub.recv(timeout=WAIT))]
        while got[-1] != total - 1:
            got.append(int(sub.recv(timeout=WAIT)))
        assert len(got) < total
        assert len(got) + sub.stats.lost == total


def test_pair0_belongs_to_the_first_connection_and_a_stranger_can_starve_the_honest_peer() -> None:
    assert (
        bare("""
        with pynng.Pair0(listen=TCP, recv_timeout=1500) as pair:
            connection = stranger(pair, 16)
            joined(pair)
            with pynng.Pair0(dial=address(pair), send_buffer_size=10) as honest:
                honest.send(b"it is me")
                try:
                    print(pair.recv())
                except pynng.Timeout:
                    print("starved")
    """)
        == "starved"
    )
    strangers: set[str] = set()
    with (
        Pair0(listen=TCP, admit=lambda pipe: pipe.address not in strangers) as pair,
        connect(pair.address) as connection,
    ):
        strangers.add("tcp://{}:{}".format(*connection.getsockname()))
        connection.sendall(hello(PAIR0))
        eventually(lambda: pair.stats.refused == 1)
        with Pair0(dial=pair.address) as honest:
            honest.send(b"it is me")
            assert pair.recv(timeout=WAIT) == b"it is me"


def test_a_reply_sent_before_nng_has_announced_the_pipe_is_not_lost() -> None:
    """Four clients at once, each with its first request; test_queues.py holds the announcement back instead."""
    for _ in range(20):
        with Rep(listen=TCP) as rep:

            def answer(rep: Rep = rep) -> None:
                for _ in range(4):
                    request = rep.recv(timeout=WAIT)
                    request.reply(request.body.upper())

            def ask(body: bytes, url: str = rep.address) -> bytes:
                with Req(dial=url) as req:
                    return req.request(body, timeout=WAIT)

            answering = Background(answer)
            asking = [Background(ask, b"q%d" % number) for number in range(4)]
            assert [one.result() for one in asking] == [b"Q%d" % number for number in range(4)]
            answering.result()
            assert (rep.stats.sent, rep.stats.dropped) == (4, 0)


def test_a_raw_socket_with_a_small_queue_survives_many_requests_at_once() -> None:
    """NNG keeps a pointer to a message it has refused, if others wait for room: not to be shown safely."""
    program = """
        import trio
        from nngkit.errors import Closed
        from nngkit.protocols import Rep, Req

        async def answer(rep):
            async for request in rep:
                await request.areply(request.body)

        async def ask(req, number, answered):
            assert await req.arequest(b"%d" % number, timeout=40) == b"%d" % number
            answered.append(number)

        async def main():
            answered = []
            async with Rep(listen="tcp://127.0.0.1:0", send_buffer=16) as rep, \\
                       Req(dial=rep.address, send_buffer=16) as req, trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(answer, rep)
                for at_once in (64, 200, 500, 1000, 1000, 1000, 1000, 236):
                    async with trio.open_nursery() as asking:
                        for number in range(at_once):
                            asking.start_soon(ask, req, number, answered)
                nursery.cancel_scope.cancel()
            print(len(answered), rep.stats.dropped)

        trio.run(main)
    """
    assert said(program, timeout=55) == "5000 0"
