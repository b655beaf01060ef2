"""Messages that are lent and not copied: whole for as long as anybody looks at them, and freed after that."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from nngkit.errors import ConfigError
from nngkit.protocols import Bus, Pair0, Pair1, Pub, Pull, Push, Rep, Req, Respondent, Sub, Surveyor
from tests.protocols.alarms import alarms_raise
from tests.protocols.soaking import forget_peak, peak, resident
from tests.protocols.wires import WAIT, Wire

MIB = 1 << 20


def patterned(number: int, size: int) -> bytes:
    return (number.to_bytes(4, "big") * (size // 4 + 1))[:size]


def send_patterns(push: Push, count: int, size: int) -> None:
    for number in range(count):
        push.send(patterned(number, size), timeout=WAIT)


def test_a_lent_message_is_a_view_of_the_same_bytes(wire: Wire) -> None:
    with (
        Pull(listen=wire.address(), copy=False, **wire.options) as pull,
        Push(dial=pull.address, **wire.options) as push,
    ):
        for size in (0, 1, 1000, 100_000):
            push.send(patterned(7, size))
            got: Any = pull.recv(timeout=WAIT)
            assert bytes(got) == patterned(7, size)
            assert size == 0 or (isinstance(got, memoryview) and got.readonly)
        push.send(b"known")
        message = pull.recv_msg(timeout=WAIT)
        assert (message, message.body) == (b"known", b"known")
        assert message.pipe is not None


def test_what_is_lent_stays_as_it_is_while_more_comes_and_when_the_socket_has_closed() -> None:
    with Pull(listen="tcp://127.0.0.1:0", copy=False) as pull, Push(dial=pull.address) as push:
        sending = threading.Thread(target=send_patterns, args=(push, 300, 50_000))
        sending.start()
        kept: list[Any] = [pull.recv(timeout=WAIT) for _ in range(300)]
        sending.join(WAIT)
    part = kept[17][100:200]
    for number, view in enumerate(kept):
        assert view == patterned(number, 50_000)
    del view
    kept.clear()
    gc.collect()
    assert part == patterned(17, 50_000)[100:200]


def test_what_was_lent_is_freed() -> None:
    before = resident()
    forget_peak()  # other tests of this process may have been larger
    with Pull(listen="tcp://127.0.0.1:0", copy=False) as pull, Push(dial=pull.address, send_buffer=4) as push:
        sending = threading.Thread(target=send_patterns, args=(push, 1000, MIB))
        sending.start()
        for _ in range(1000):
            assert len(pull.recv(timeout=WAIT)) == MIB
        sending.join(WAIT)
        # 1,000 MiB came by; kept, they would show
        assert peak() - before < 500 * MIB


class Interrupted(Exception):
    pass


def test_a_signal_handler_that_raises_at_any_time_loses_and_frees_none() -> None:
    total, interrupts = 3000, 0
    got: list[bytes] = []
    with (
        Pull(listen="tcp://127.0.0.1:0", copy=False) as pull,
        Push(dial=pull.address) as push,
        alarms_raise(Interrupted),
    ):
        sending = threading.Thread(target=send_patterns, args=(push, total, 3000))
        sending.start()
        while len(got) < total:
            batch: list[Any] = []
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
            got += map(bytes, batch)
        sending.join(WAIT)
    assert interrupts > 0
    assert got == [patterned(number, 3000) for number in range(total)]


@pytest.mark.parametrize("kind", [Bus, Pair0, Pair1, Pull, Sub])
def test_what_lends(kind: Callable[..., Any]) -> None:
    with kind(copy=False):
        pass
    with pytest.raises(ConfigError, match="copy"):
        kind(copy=False, batch=True)


@pytest.mark.parametrize("kind", [Push, Pub, Req, Rep, Surveyor, Respondent])
def test_what_has_nothing_to_lend_says_so(kind: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="copy"):
        kind(copy=False)


def test_numbered_messages_are_not_lent() -> None:
    with pytest.raises(ConfigError, match="copy"):
        Sub(copy=False, sequence=True)
