"""Defects of bare pynng (0.9, NNG 1.11) that the bricks must not have, one test each: messages and options.

Where it can be shown safely, the same is done first on pynng itself, in a process of its own; the day one of those
assertions fails, NNG or pynng has mended it. What cooked
REQ/REP and SURVEY lose is in test_cooked.py, and what strangers send in test_hostile.py.
"""

from __future__ import annotations

import asyncio
import json
import textwrap
from typing import Any

import pytest

from nngkit.errors import ConfigError
from nngkit.protocols import Pair0, Pull, Push
from tests.protocols.defects import BARE, TCP, bare
from tests.protocols.wires import WAIT, Caller, eventually, run_python, said

# ---- sizes and options -----------------------------------------------------------------------------------------------


def test_recv_max_size_is_unlimited_by_default_and_one_message_aborts_the_process() -> None:
    # what the bricks do with that message is in test_hostile.py
    done = run_python(
        BARE
        + textwrap.dedent("""
            with pynng.Pull0(listen=TCP, recv_timeout=20000) as pull:
                assert pull.recv_max_size == 0
                stranger(pull, 80).sendall(struct.pack(">Q", 2**64 - 40))
                pull.recv()
        """),
        timeout=50,
    )
    assert done.returncode < 0
    with Pull(listen=TCP) as pull:
        assert pull._nng.recv_max_size == (1 << 20) + 64  # our limit is for bodies, NNG's for headers too


def test_option_setters_swallow_errors() -> None:
    assert (
        bare("""
        with pynng.Push0() as push:
            push.reconnect_time_min = -5
            push.send_timeout = -7
            print(push.reconnect_time_min, push.send_timeout)
    """)
        == "1000 -1"
    )
    with Push() as push, pytest.raises(ConfigError):
        push._option("reconnect_time_min", -5)
    for name, wrong in (("reconnect", -5), ("send_timeout", -7), ("send_buffer", 8193), ("recv_max_size", 1 << 31)):
        options: dict[str, Any] = {name: wrong}
        with pytest.raises(ConfigError):
            Push(**options)


# ---- single messages -------------------------------------------------------------------------------------------------


def test_recv_raises_on_an_empty_message(caller: Caller) -> None:
    with Pair0(listen=TCP) as one, Pair0(dial=one.address) as other:
        for _ in range(3):
            caller.call(one.send, b"")
            assert caller.call(other.recv, timeout=WAIT) == b""
        assert other.stats.received == 3


def test_bare_recv_raises_on_an_empty_message() -> None:
    assert (
        bare("""
        with pynng.Pair0(listen=TCP) as one, pynng.Pair0(dial=address(one), recv_timeout=20000) as other:
            one.send(b"")
            try:
                other.recv()
            except RuntimeError as error:
                print("RuntimeError")
    """)
        == "RuntimeError"
    )


# 60 messages of 1 MiB that nobody takes, each given up after a moment; how many MiB the process has grown by
LEAK = """
import gc, json, sys, trio, asyncio, resource

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() >> 20

async def give_up(send, errors, times):
    for _ in range(times):
        try:
            await send(bytes([7]) * (1 << 20))
        except errors:
            pass

async def cancelled(send, times):
    for _ in range(times):
        with trio.move_on_after(0.002):
            await send(bytes([7]) * (1 << 20))

async def cancelled_asyncio(send, times):
    for _ in range(times):
        try:
            await asyncio.wait_for(send(bytes([7]) * (1 << 20)), 0.002)
        except asyncio.TimeoutError:
            pass

def grown(*run):
    run[0](*run[1:], 5)  # what is allocated once
    gc.collect()
    before = resident()
    run[0](*run[1:], 60)
    gc.collect()
    return resident() - before
"""


def test_asend_leaks_the_message_on_timeout_or_cancellation() -> None:
    # one message is accepted though nobody is there (the socket's own place for it) unless the queue has none
    leaks = json.loads(
        said(
            LEAK
            + textwrap.dedent("""
                import pynng
                with pynng.Push0(send_timeout=2) as push:
                    timeout = grown(trio.run, give_up, push.asend, pynng.Timeout)
                with pynng.Push0() as push:
                    cancel = grown(trio.run, cancelled, push.asend)
                print(json.dumps([timeout, cancel]))
            """),
            timeout=50,
        )
    )
    assert min(leaks) > 40
    grown = json.loads(
        said(
            LEAK
            + textwrap.dedent("""
                from nngkit.protocols import Push
                from nngkit.errors import TimedOut
                with Push(send_buffer=0, send_timeout=0.002, linger=0) as push:
                    timeout = grown(trio.run, give_up, push.asend, TimedOut)
                with Push(send_buffer=0, linger=0) as push:
                    cancel = grown(trio.run, cancelled, push.asend)
                with Push(send_buffer=0, linger=0) as push:
                    other = grown(lambda *all: asyncio.run(cancelled_asyncio(*all)), push.asend)
                print(json.dumps([timeout, cancel, other]))
            """),
            timeout=50,
        )
    )
    assert max(grown) < 20


def test_asyncio_a_cancel_that_races_with_a_message_is_swallowed() -> None:
    assert (
        bare("""
        async def main():
            with pynng.Pair0(listen=TCP) as one, pynng.Pair0(dial=address(one)) as other:
                task = asyncio.ensure_future(one.arecv())
                await asyncio.sleep(0.2)
                other.send(b"x")
                time.sleep(0.5)  # the message is there, and the loop has not seen it
                task.cancel()
                print(await task)
        asyncio.run(main())
    """)
        == "b'x'"
    )

    async def main() -> None:
        with Pair0(listen=TCP) as one, Pair0(dial=one.address) as other:
            for _ in range(20):
                task = asyncio.ensure_future(one.arecv())
                await asyncio.sleep(0)
                await asyncio.sleep(0)  # now it waits
                read_before = one.stats.read
                other.send(b"x")
                eventually(lambda before=read_before: one.stats.read > before)  # type: ignore[misc]
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert await one.arecv(timeout=WAIT) == b"x"

    asyncio.run(main())
