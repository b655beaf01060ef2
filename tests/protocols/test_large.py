"""Large messages: received directly into their final bytes, intact whatever follows, and freed afterwards."""

from __future__ import annotations

import contextlib
import gc
import platform
import select
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nngkit.errors import TimedOut
from nngkit.protocols import UNLIMITED, Pair0, PeerEvent, Pull, Push
from nngkit.protocols._core.poller import reader_thread
from nngkit.testing import Background, Wire
from tests.protocols.alarms import alarms_raise
from tests.protocols.raw_peer import PAIR0, RawPeer
from tests.protocols.soaking import forget_peak, peak, resident
from tests.protocols.wires import WAIT, said

MIB = 1 << 20


def patterned(number: int, size: int) -> bytes:
    return (number.to_bytes(4, "big") * (size // 4 + 1))[:size]


def send_patterns(push: Push, count: int, size: int) -> None:
    for number in range(count):
        push.send(patterned(number, size), timeout=WAIT)


def test_messages_of_every_size_arrive_as_they_were_sent(wire: Wire) -> None:
    sizes = [
        0,
        1,
        1000,
        *(edge + more for edge in (4096, 16384, 32768, 65536, 262_144) for more in (-1, 0, 1)),
        900_000,
    ]
    with Pull(listen=wire.address(), **wire.options) as pull, Push(dial=pull.address, **wire.options) as push:
        for _ in range(2):
            sending = threading.Thread(
                target=push.send_many, args=([patterned(number, size) for number, size in enumerate(sizes)],)
            )
            sending.start()
            for number, size in enumerate(sizes):
                got: Any = pull.recv(timeout=WAIT)
                assert type(got) is bytes
                assert got == patterned(number, size)
            sending.join(WAIT)


def test_a_received_message_stays_intact_while_more_arrive_and_after_close() -> None:
    with Pull(listen="tcp://127.0.0.1:0") as pull, Push(dial=pull.address) as push:
        sending = threading.Thread(target=send_patterns, args=(push, 300, 50_000))
        sending.start()
        kept = [pull.recv(timeout=WAIT) for _ in range(300)]
        sending.join(WAIT)
    gc.collect()
    for number, message in enumerate(kept):
        assert message == patterned(number, 50_000)


@pytest.mark.slow
def test_a_received_message_is_freed(tcp: Wire) -> None:
    before = resident()
    forget_peak()  # other tests of this process may have used more
    with Pull(listen=tcp.address()) as pull, Push(dial=pull.address, send_buffer=4) as push:
        sending = threading.Thread(target=send_patterns, args=(push, 1000, MIB))
        sending.start()
        for _ in range(1000):
            assert len(pull.recv(timeout=WAIT)) == MIB
        sending.join(WAIT)
        # 1,000 MiB were received; kept, they would show
        assert peak() - before < 500 * MIB


class Interrupted(Exception):
    pass


def interrupted(total: int, size: int) -> None:
    """Receive ``total`` messages while a signal handler raises at random times."""
    interrupts = 0
    got: list[bytes] = []
    with (
        Pull(listen="tcp://127.0.0.1:0") as pull,
        Push(dial=pull.address) as push,
        alarms_raise(Interrupted),
    ):
        sending = threading.Thread(target=send_patterns, args=(push, total, size))
        sending.start()
        while len(got) < total:
            batch: list[bytes] = []
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0003)
                batch = pull.recv_many(64, timeout=WAIT)
            except Interrupted:
                interrupts += 1
            finally:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except Interrupted:
                    interrupts += 1
            got += batch
        sending.join(WAIT)
    assert interrupts > 0
    assert got == [patterned(number, size) for number in range(total)]


def test_a_signal_handler_that_raises_at_any_time_loses_nothing() -> None:
    interrupted(3000, 3000)


def look_until_interrupted(pull: Pull) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    while True:
        with contextlib.suppress(TimedOut):
            pull.recv(timeout=0)


def test_a_signal_handler_that_raises_in_an_on_peer_callback_loses_nothing() -> None:
    told, go_on = threading.Event(), threading.Event()

    def callback(event: PeerEvent) -> None:
        told.set()
        assert go_on.wait(WAIT)

    with Pull(listen="tcp://127.0.0.1:0") as pull, alarms_raise(Interrupted):
        pull.on_peer(callback)
        with Push(dial=pull.address) as push:
            push.send(b"came")
            assert told.wait(WAIT)
            for _ in range(50):
                with pytest.raises(Interrupted):
                    look_until_interrupted(pull)
            go_on.set()
            assert pull.recv(timeout=WAIT) == b"came"
            push.send(b"on")
            assert pull.recv(timeout=WAIT) == b"on"


def test_a_signal_handler_that_raises_within_large_messages_loses_nothing() -> None:
    interrupted(500, 100_000)


class SlowToRegister:
    """An epoll whose `register` returns late: what is registered may be reported before."""

    def __init__(self, epoll: select.epoll) -> None:
        self._epoll = epoll

    def register(self, number: int, events: int) -> None:
        self._epoll.register(number, events)
        time.sleep(0.05)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoll, name)


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "abstract://"])
def test_room_that_comes_as_a_write_begins_to_await_it_is_not_missed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed: the reader thread found no connection for the only report of room, and the write stayed."""
    reader = reader_thread()
    monkeypatch.setattr(reader, "_rooms", SlowToRegister(reader._rooms))
    body = b"x" * (16 << 20)
    with Pull(listen=url, recv_max_size=UNLIMITED) as pull, Push(dial=pull.address) as push:
        push.wait_for_peers(1, WAIT)
        sending = Background(lambda: push.send(body))
        assert pull.recv(timeout=WAIT) == body
        sending.result()


def test_a_unix_socket_takes_a_large_message_that_its_default_buffer_does_not(sockets: Path) -> None:
    """300 KiB: more than Linux's default of 208 KiB, less than it allows any program."""
    with Pair0(listen=f"ipc://{sockets}/room") as pair, RawPeer(pair.address, PAIR0) as peer:
        peer.send(b"hello")
        assert pair.recv(timeout=WAIT) == b"hello"  # so the descriptor is read and written directly
        pair.send(patterned(1, 300 << 10), timeout=WAIT)
        assert pair.drain(timeout=WAIT)
        assert peer.recv() == patterned(1, 300 << 10)


PAGES = """
import resource, sys, threading
from nngkit.protocols import Pull, Push

path, size = sys.argv[1], int(sys.argv[2])
in_one = (1 << 20) // size

def send(push):
    for _ in range(150):
        push.send_many([body] * in_one, timeout=20)

def receive(pull, count):
    while count > 0:
        count -= len(pull.recv_many(min(in_one, count), timeout=20))

body = b"x" * size
with Pull(listen="ipc://" + path) as pull, Push(dial=pull.address) as push:
    sending = threading.Thread(target=send, args=(push,))
    sending.start()
    receive(pull, 50 * in_one)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    receive(pull, 100 * in_one)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 100)
    sending.join(20)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="is about glibc's malloc")
@pytest.mark.parametrize("size", [1 << 10, 1 << 20])
def test_the_memory_of_received_messages_is_used_again(size: int, tmp_path: Path) -> None:
    """In a process of its own: one that has freed a larger block keeps more anyway."""
    assert float(said(PAGES, str(tmp_path / "s"), str(size))) < 8  # page faults a MiB, of its 256 pages
