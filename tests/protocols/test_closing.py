"""End of a socket: garbage collection, interpreter exit, and lingering."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable
from typing import Any

import pytest
import trio

from nngkit.errors import TimedOut
from nngkit.protocols import (
    Pair0,
    Pull,
    Push,
)
from nngkit.protocols._core.state import BUFFER
from nngkit.testing import ASYNCIO, BLOCKING, TRIO, Background, Caller, Wire
from tests.protocols.kinds_of_sockets import TCP, every_kind
from tests.protocols.raw_peer import PAIR0, PULL, RawPeer
from tests.protocols.wires import WAIT, run_python

LARGE = b"x" * 65536


# ---- garbage collection and exit -------------------------------------------------------------------------------------


@pytest.mark.slow
@every_kind
def test_an_unclosed_socket_gives_a_warning_and_is_closed(kind: Callable[..., Any], tcp: Wire) -> None:
    with tcp.reserved() as address:
        sock = kind(listen=address, name="forgotten")
        with pytest.warns(ResourceWarning, match="unclosed <.* forgotten>"):  # noqa: PT031
            del sock
            gc.collect()
        kind(listen=address).close()  # the port is free again


OPEN_AT_EXIT = """
    import asyncio, sys, threading, time
    import trio
    from nngkit.protocols import *

    kinds = (Pair0, Pair1, Req, Rep, Push, Pull, Bus, Pub, Sub, Surveyor, Respondent)
    opposite = dict(zip(kinds, (Pair0, Pair1, Rep, Req, Pull, Push, Bus, Sub, Pub, Respondent, Surveyor)))
    ours = [kind(listen="tcp://127.0.0.1:0", **({"topics": ""} if kind is Sub else {})) for kind in kinds]
    theirs = [opposite[kind](dial=sock.address) for kind, sock in zip(kinds, ours)]
    for sock in ours + theirs:
        sock.wait_for_peers(1, 15)
    takers = [sock for sock in ours + theirs if hasattr(sock, "arecv")]
    req = ours[2]
"""
ENDINGS = {
    "idle": "",
    "daemon threads": """
    for sock in takers:
        threading.Thread(target=sock.recv, daemon=True).start()
    threading.Thread(target=req.request, args=(b"?",), daemon=True).start()
""",
    "asyncio": """
    async def main():
        tasks = [asyncio.create_task(sock.arecv()) for sock in takers]
        tasks.append(asyncio.create_task(req.arequest(b"?")))
        await asyncio.sleep(0.05)
    asyncio.run(main())
""",
    "trio": """
    async def main():
        async with trio.open_nursery() as nursery:
            for sock in takers:
                nursery.start_soon(sock.arecv)
            nursery.start_soon(req.arequest, b"?")
            await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
    trio.run(main)
""",
    "loops in daemon threads": """
    running = threading.Semaphore(0)
    async def in_asyncio():
        tasks = [asyncio.create_task(sock.arecv()) for sock in takers]
        running.release()
        await asyncio.gather(*tasks)
    async def in_trio():
        async with trio.open_nursery() as nursery:
            for sock in takers:
                nursery.start_soon(sock.arecv)
            running.release()
    threading.Thread(target=lambda: asyncio.run(in_asyncio()), daemon=True).start()
    threading.Thread(target=trio.run, args=(in_trio,), daemon=True).start()
    running.acquire(), running.acquire()
""",
    "messages without a receiver": """
    push = ours[4]
    theirs[4].close()
    push.send_many([b"x" * 1000] * 100)
""",
}
# the same over ws
OVER_WS = """
    for one, other in ((Pair0, Pair0), (Pair1, Pair1), (Push, Pull), (Rep, Req), (Bus, Bus), (Pub, Sub),
                       (Surveyor, Respondent)):
        listener = one(listen="ws://127.0.0.1:0/brick")
        dialer = other(dial=listener.address)
        listener.wait_for_peers(1, 15)
        ours.append(listener)
        theirs.append(dialer)
    takers += [sock for sock in ours[11:] + theirs[11:] if hasattr(sock, "arecv")]
"""
QUIET_THREADS = """
    threading.excepthook = lambda _: None  # their sockets are closed while they run, which may raise
"""


def exits(ending: str) -> None:
    program = OPEN_AT_EXIT + OVER_WS + QUIET_THREADS + ENDINGS[ending] + "\n    print(time.monotonic(), flush=True)\n"
    done = run_python(program, timeout=2 * WAIT)
    took = time.monotonic() - float(done.stdout.strip() or 0)
    assert done.returncode == 0, done.stderr
    assert took <= 4.0, f"{took} s\n{done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_interpreter_exits_with_sockets_open(ending: str) -> None:
    exits(ending)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_interpreter_exits_with_sockets_open_five_times(ending: str) -> None:
    for _ in range(5):
        exits(ending)


# ---- lingering -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closer", [BLOCKING, TRIO, ASYNCIO], ids=lambda caller: caller.name)
@pytest.mark.parametrize("wire", ["tcp", "ipc", "ws"], indirect=True)
@pytest.mark.parametrize("sender_listens", [True, False], ids=["sender listens", "sender dials"])
def test_messages_sent_before_close_arrive(wire: Wire, closer: Caller, sender_listens: bool) -> None:
    bodies = [b"%03d" % number + b"x" * 1000 for number in range(500)]
    push, pull = Push(linger=WAIT), Pull()
    with pull:
        if sender_listens:
            pull.dial(push.listen(wire.address()))
        else:
            push.dial(pull.listen(wire.address()))
        push.wait_for_peers(1, WAIT)
        pull.wait_for_peers(1, WAIT)
        assert push.send_many(bodies) == 500
        closing = closer.start(push.close)
        assert [pull.recv(timeout=WAIT) for _ in bodies] == bodies
        closing.result()


def test_close_lingers_until_a_slow_peer_has_all_messages() -> None:
    total = 200  # of 64 KiB, far more than the network's buffers take
    with Push(listen=TCP, send_buffer=1000) as push, RawPeer(push.address, PULL) as slow:
        push.wait_for_peers(1, WAIT)
        for _ in range(total):
            push.send(LARGE)
        closing = Background(push.close, linger=WAIT)
        for _ in range(total):
            assert slow.recv() == LARGE
        closing.result()
        assert slow.closed()
        assert (push.stats.written, push.stats.unwritten, push.stats.dropped) == (total, 0, 0)


def test_messages_that_close_could_not_write_are_counted_as_dropped_or_broken() -> None:
    push, peer = stalled(0.0)
    with peer:
        push.close()
        stats = push.stats
        assert stats.dropped > 0
        assert stats.broken <= 1
        assert stats.sent == stats.written + stats.dropped + stats.broken


def stalled(linger: float) -> tuple[Push, RawPeer]:
    """Yield a socket with more sent than its peer, which does not read, will ever take."""
    push = Push(listen=TCP, send_timeout=0.05, linger=linger)
    peer = RawPeer(push.address, PULL)
    push.wait_for_peers(1, WAIT)
    with pytest.raises(TimedOut):
        push.send_many([LARGE] * 2000)
    return push, peer


def test_close_takes_at_most_linger_if_the_peer_does_not_read(caller: Caller) -> None:
    push, peer = stalled(0.3)
    with peer:
        start = time.monotonic()
        caller.call(push.close)
        took = time.monotonic() - start
    assert 0.3 <= took <= 5.0


def test_close_accepts_a_shorter_linger(caller: Caller) -> None:
    push, peer = stalled(60.0)
    with peer:
        start = time.monotonic()
        caller.call(push.close, linger=0.0)
        assert time.monotonic() - start <= 5.0


def test_lingering_uses_no_cpu_while_the_peer_sends() -> None:
    """Arriving data is read or left where it is; no thread is kept busy."""
    pair = Pair0(listen=TCP, recv_buffer=4, send_timeout=0.05)
    with RawPeer(pair.address, PAIR0) as peer:
        with pytest.raises(TimedOut):
            pair.send_many([LARGE] * 2000)
        closing = Background(pair.close, linger=0.6)
        began = time.process_time()
        for _ in range(20):
            peer.send(b"and another")
            time.sleep(0.02)
        closing.result()
        assert time.process_time() - began < 0.25


def test_an_interrupt_does_not_linger() -> None:
    push, peer = stalled(60.0)
    with peer:
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt), push:
            raise KeyboardInterrupt
        assert time.monotonic() - start <= 5.0


def test_a_cancelled_aclose_closes_at_once() -> None:
    push, peer = stalled(60.0)

    async def close() -> None:
        with trio.move_on_after(0.05):
            await push.aclose()

    with peer:
        start = time.monotonic()
        trio.run(close)
        assert time.monotonic() - start <= 5.0
    assert push.closed


def test_drain_returns_whether_all_is_written(caller: Caller) -> None:
    push, peer = stalled(0.0)
    with peer, push:
        start = time.monotonic()
        assert caller.call(push.drain, 0.1) is False
        assert time.monotonic() - start >= 0.1
        assert caller.call(push.drain, 0.0) is False
        sent = push.stats.sent
        reading = Background(lambda: [peer.recv() for _ in range(sent)])
        assert caller.call(push.drain, WAIT) is True
        assert len(reading.result()) == sent == push.stats.written
        push.send(b"a drained socket sends on")
        assert peer.recv() == b"a drained socket sends on"


def test_drain_without_messages_returns_at_once(caller: Caller) -> None:
    with Push(listen=TCP) as push:
        assert caller.call(push.drain, 0.0) is True


def test_drain_waits_for_a_peer(tcp: Wire) -> None:
    with Push(listen=tcp.address()) as push:
        push.send(b"early")
        assert push.drain(0.05) is False
        draining = Background(push.drain, WAIT)
        with Pull(dial=push.address) as pull:
            assert pull.recv(timeout=WAIT) == b"early"
            assert draining.result() is True


def test_drain_takes_linger_by_default_and_none_waits_for_ever() -> None:
    with Push(listen=TCP, linger=0.05) as push:
        push.send(b"x")
        assert push.drain() is False
        drained = Background(lambda: push.drain(None))
        with Pull(dial=push.address) as pull:
            assert pull.recv(WAIT) == b"x"
            assert drained.result() is True


def test_close_with_linger_none_waits_until_all_is_written() -> None:
    push = Push(listen=TCP, linger=0)
    push.send(b"x")
    closed = Background(lambda: push.close(linger=None))
    with Pull(dial=push.address) as pull:
        assert pull.recv(WAIT) == b"x"
        closed.result()


# ---- memory ----------------------------------------------------------------------------------------------------------

ALLOCATED = getattr(ctypes.CDLL(None), "mallinfo2", None)  # glibc's


class MallInfo(ctypes.Structure):
    """Result of mallinfo2; ``sizes[4]`` is in mappings of their own, ``sizes[7]`` in the heap."""

    _fields_ = (("sizes", ctypes.c_size_t * 10),)


def allocated() -> int:
    """Return the bytes that C's allocator has given out, at which Python's own tracer does not look."""
    assert ALLOCATED is not None
    ALLOCATED.restype = MallInfo
    sizes = ALLOCATED().sizes
    return int(sizes[4] + sizes[7])


@pytest.mark.skipif(ALLOCATED is None, reason="needs glibc 2.33")
def test_a_closed_socket_keeps_no_buffer(wire: Wire) -> None:
    """It may be garbage for long before the collector comes: a program that calls once now and then opens many."""
    closed: list[Push | Pull] = []

    def meet() -> None:
        with Push(listen=wire.address(), **wire.options) as push, Pull(dial=push.address, **wire.options) as pull:
            push.send(b"once")
            assert pull.recv(timeout=WAIT) == b"once"
        closed.extend((push, pull))

    meet()
    gc.collect()
    before = allocated()
    for _ in range(10):
        meet()
    assert allocated() - before < 10 * 2 * BUFFER // 4
