"""A program that also uses pynng itself, before, after and at the same time: one NNG serves both.

Each test runs in a Python of its own, which must exit with 0 and print nothing to standard error.
"""

from __future__ import annotations

import time

import pytest

from tests.protocols.wires import run_python, said

pytestmark = pytest.mark.slow  # programs of seconds; CI runs them

BEGIN = """
    import asyncio, gc, sys, threading, time
    import pynng
    import trio
    from nngkit.errors import Closed, NngkitError, TimedOut
    from nngkit.protocols import *

    TCP = "tcp://127.0.0.1:0"

    def theirs_alone(round):
        with pynng.Pair0(recv_timeout=15000) as left, pynng.Pair0(dial=None, recv_timeout=15000) as right:
            url = f"inproc://theirs-{round}"
            left.listen(url)
            right.dial(url)
            right.send(b"theirs")
            assert left.recv() == b"theirs"
        with pynng.Rep0(listen=f"inproc://asked-{round}", recv_timeout=15000) as rep:
            with pynng.Req0(dial=f"inproc://asked-{round}", recv_timeout=15000) as req, req.new_context() as context:
                context.send(b"?")
                assert rep.recv() == b"?"
                rep.send(b"!")
                assert context.recv() == b"!"

    def ours_alone():
        with Push(listen=TCP) as push, Pull(dial=push.address) as pull:
            push.send(b"ours")
            assert pull.recv(timeout=15) == b"ours"
        with Rep(listen=TCP) as rep, Req(dial=rep.address) as req:
            asking = threading.Thread(target=lambda: rep.recv(timeout=15).reply(b"!"))
            asking.start()
            assert req.request(b"?", timeout=15) == b"!"
            asking.join()
"""


def test_pynng_works_before_and_after_ours() -> None:
    program = """
    for round in range(3):
        theirs_alone(round)
        ours_alone()
    theirs_alone("last")
    print("done")
"""
    assert said(BEGIN + program) == "done"


def test_pynng_is_first_imported_after_nngkit_was_used() -> None:
    program = """
    from nngkit.protocols import Pull, Push
    with Push(listen="tcp://127.0.0.1:0") as push, Pull(dial=push.address) as pull:
        push.send(b"x")
        pull.recv(timeout=15)
        import pynng
        with pynng.Pull0(dial=push.address, recv_timeout=15000) as theirs:
            push.wait_for_peers(2, 15)
            push.send_many([b"y", b"y"])
            assert theirs.recv() == pull.recv(timeout=15) == b"y"
    print("done")
"""
    assert said(program) == "done"


def test_pynng_and_nngkit_exchange_messages_in_one_process() -> None:
    program = """
    with Push(listen=TCP) as push, pynng.Pull0(dial=push.address, recv_timeout=15000) as pull:
        push.send_many([b"%d" % number for number in range(100)])
        assert [pull.recv() for _ in range(100)] == [b"%d" % number for number in range(100)]
    with Pull(listen=TCP) as pull, pynng.Push0(dial=pull.address, send_timeout=15000) as push:
        for number in range(100):
            push.send(b"%d" % number)
        assert [pull.recv(timeout=15) for _ in range(100)] == [b"%d" % number for number in range(100)]
    with Pub(listen=TCP) as pub, pynng.Sub0(dial=pub.address, topics=b"", recv_timeout=15000) as sub:
        pub.wait_for_peers(1, 15)
        pub.send(b"news")
        assert sub.recv() == b"news"
    print("done")
"""
    assert said(BEGIN + program) == "done"


def test_inproc_addresses_are_separate() -> None:
    """Ours are pairs of sockets in this process, not NNG's inproc: both may have the same name."""
    program = """
    with Pull(listen="inproc://name") as ours, Push(dial="inproc://name") as push:
        with pynng.Push0() as unrelated:
            try:
                unrelated.dial("inproc://name", block=True)
            except pynng.ConnectionRefused:
                pass
            else:
                raise AssertionError("it met our socket")
        with pynng.Pull0(listen="inproc://name", recv_timeout=15000) as theirs:
            with pynng.Push0(dial="inproc://name", send_timeout=15000) as their_push:
                their_push.send(b"theirs")
                push.send(b"ours")
                assert theirs.recv() == b"theirs"
                assert ours.recv(timeout=15) == b"ours"
    print("done")
"""
    assert said(BEGIN + program) == "done"


def test_callbacks_and_errors_of_pynng_are_its_own() -> None:
    program = """
    joined, left = threading.Event(), threading.Event()
    with pynng.Pull0(recv_timeout=20) as theirs:
        theirs.add_post_pipe_connect_cb(lambda pipe: joined.set())
        theirs.add_post_pipe_remove_cb(lambda pipe: left.set())
        theirs.listen(TCP)
        port = theirs.listeners[0].local_address
        with Push(dial=f"tcp://{port}") as push:
            assert joined.wait(15)
            try:
                theirs.recv()
            except pynng.Timeout as error:
                assert not isinstance(error, NngkitError)
        assert left.wait(15)
    try:
        theirs.recv()
    except pynng.Closed as error:
        assert not isinstance(error, NngkitError)
    with Pull() as ours:
        try:
            ours.recv(timeout=0.02)
        except TimedOut as error:
            assert not isinstance(error, pynng.NNGException)
    print("done")
"""
    assert said(BEGIN + program) == "done"


MIXED = """
    COUNT = 300

    async def their_half(push, pull, got):
        for number in range(COUNT):
            await push.asend(b"%d" % number)
            got.append(await pull.arecv())

    async def our_half(push, pull, got):
        for number in range(COUNT):
            await push.asend(b"%d" % number)
            got.append(await pull.arecv())

    ours, theirs, cancelled = [], [], []

    def check():
        assert ours == theirs == [b"%d" % number for number in range(COUNT)], (len(ours), len(theirs))
        assert len(cancelled) == 2
        print("done")
"""


def test_both_are_awaited_under_trio() -> None:
    program = """
    async def given_up(receive):
        with trio.move_on_after(0.02) as scope:
            await receive()
        assert scope.cancelled_caught
        cancelled.append(receive)

    async def main():
        with pynng.Push0(listen="inproc://a") as push, pynng.Pull0(dial="inproc://a") as pull:
            async with Push(listen=TCP) as our_push, Pull(dial=our_push.address) as our_pull:
                with trio.fail_after(15):
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(their_half, push, pull, theirs)
                        nursery.start_soon(our_half, our_push, our_pull, ours)
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(given_up, pull.arecv)
                        nursery.start_soon(given_up, our_pull.arecv)
    trio.run(main)
    check()
"""
    assert said(BEGIN + MIXED + program) == "done"


def test_both_are_awaited_under_asyncio() -> None:
    program = """
    async def given_up(receive):
        try:
            async with asyncio.timeout(0.02):
                await receive()
        except TimeoutError:
            cancelled.append(receive)

    async def main():
        with pynng.Push0(listen="inproc://a") as push, pynng.Pull0(dial="inproc://a") as pull:
            async with Push(listen=TCP) as our_push, Pull(dial=our_push.address) as our_pull:
                async with asyncio.timeout(15):
                    await asyncio.gather(their_half(push, pull, theirs), our_half(our_push, our_pull, ours))
                await asyncio.gather(given_up(pull.arecv), given_up(our_pull.arecv))
    asyncio.run(main())
    check()
"""
    assert said(BEGIN + MIXED + program) == "done"


def test_pynng_and_nngkit_exchange_messages_under_trio() -> None:
    program = """
    async def main():
        with pynng.Rep0() as rep:
            async with Req(listen=TCP) as req:
                rep.dial(req.address)

                async def answer():
                    for _ in range(50):
                        await rep.asend((await rep.arecv()).upper())

                with trio.fail_after(15):
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(answer)
                        for number in range(50):
                            assert await req.arequest(b"q%d" % number) == b"Q%d" % number
    trio.run(main)
    print("done")
"""
    assert said(BEGIN + program) == "done"


@pytest.mark.parametrize("order", ["theirs first", "ours first"])
def test_both_may_be_left_open_at_exit(order: str) -> None:
    opening = ["their_pull = pynng.Pull0(listen='inproc://exit')", "our_pull = Pull(listen=TCP)"]
    opening += ["their_push = pynng.Push0(dial='inproc://exit')", "our_push = Push(dial=our_pull.address)"]
    if order == "ours first":
        opening.sort(key=lambda line: line.startswith("their"))
    lines = "".join(f"    {line}\n" for line in opening)
    program = """
    our_push.wait_for_peers(1, 15)
    threading.excepthook = lambda _: None  # ours raises Closed
    threading.Thread(target=our_pull.recv, daemon=True).start()
    print(time.monotonic(), flush=True)
"""
    done = run_python(BEGIN + lines + program)
    took = time.monotonic() - float(done.stdout or 0)
    assert done.returncode == 0, done.stderr
    assert took <= 4.0, f"{took} s"


def test_pynngs_sockets_outlive_ours() -> None:
    program = """
    with pynng.Pair1(listen="inproc://outlive", recv_timeout=15000) as left:
        with pynng.Pair1(dial="inproc://outlive", recv_timeout=15000) as right:
            for number in range(20):
                ours_alone()
                forgotten = Pull(listen=TCP)
                right.send(b"%d" % number)
                assert left.recv() == b"%d" % number
                del forgotten
                gc.collect()
    print("done")
"""
    assert said(BEGIN + program) == "done"
