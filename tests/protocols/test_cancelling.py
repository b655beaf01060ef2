"""Receiving and sending with cancellations: nothing lost, duplicated or reordered, nothing left behind.

Short runs are part of every test run; the forty long ones, of 15,000 messages each, are ``slow``.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from nngkit.errors import Closed, TimedOut
from nngkit.protocols import Pair0, Pull, Push
from nngkit.testing import eventually
from tests.protocols.wires import WAIT, said

SECONDS = 50.0


def produce(push: Push, count: int, seed: int) -> None:
    """Send at full speed with random stops, so that the receiver is met full, empty and in between."""
    chance = random.Random(seed)
    for number in range(count):
        push.send(b"%d" % number, timeout=SECONDS)
        if chance.random() < 0.01:
            time.sleep(chance.random() * 0.003)  # the stop lets the receiver run dry


async def consume_trio(pull: Pull, got: list[bytes], count: int, chance: random.Random) -> int:
    cancels = 0
    while len(got) < count:
        # a third of them over before they begin, so that there are cancellations on any machine
        with trio.move_on_after(max(0.0, chance.uniform(-0.001, 0.002))) as scope:
            if chance.random() < 0.3:
                got.append(await pull.arecv())
            else:
                got.extend(await pull.arecv_many(chance.choice((1, 7, 256))))
        cancels += scope.cancelled_caught
    return cancels


async def consume_asyncio(pull: Pull, got: list[bytes], count: int, chance: random.Random) -> int:
    cancels = 0
    while len(got) < count:
        try:
            async with asyncio.timeout(max(0.0, chance.uniform(-0.001, 0.002))):
                if chance.random() < 0.3:
                    got.append(await pull.arecv())
                else:
                    got.extend(await pull.arecv_many(chance.choice((1, 7, 256))))
        except TimeoutError:
            cancels += 1
    return cancels


Consumer = Callable[[Pull, list[bytes], int, random.Random], Awaitable[int]]


def run(loop: str, url: str, depth: int, count: int, seed: int) -> int:
    got: list[bytes] = []
    with Push(listen=url, send_buffer=100) as push, Pull(dial=push.address, recv_buffer=depth) as pull:
        producer = threading.Thread(target=produce, args=(push, count, seed))
        producer.start()
        chance = random.Random(seed + 1)
        if loop == "trio":

            async def bounded() -> int:
                with trio.fail_after(SECONDS):
                    return await consume_trio(pull, got, count, chance)

            cancels = trio.run(bounded)
        else:

            async def limited() -> int:
                return await asyncio.wait_for(consume_asyncio(pull, got, count, chance), SECONDS)

            cancels = asyncio.run(limited())
        producer.join(SECONDS)
    assert got == [b"%d" % number for number in range(count)]
    return cancels


def address(transport: str, name: str, folder: Path) -> str:
    return {"tcp": "tcp://127.0.0.1:0", "inproc": f"inproc://{name}", "ipc": f"ipc://{folder}/{name}"}[transport]


@pytest.mark.parametrize("depth", [1, 64])
@pytest.mark.parametrize("transport", ["tcp", "inproc"])
@pytest.mark.parametrize("loop", ["trio", "asyncio"])
def test_random_cancellations_lose_and_duplicate_nothing(loop: str, transport: str, depth: int, tmp_path: Path) -> None:
    cancels = run(loop, address(transport, f"short-{loop}-{depth}", tmp_path), depth, 4000, depth)
    assert cancels, "the test has to cancel to mean anything"


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("depth", [1, 64])
@pytest.mark.parametrize("transport", ["tcp", "inproc"])
@pytest.mark.parametrize("loop", ["trio", "asyncio"])
def test_forty_long_runs_lose_and_duplicate_nothing(
    loop: str, transport: str, depth: int, seed: int, tmp_path: Path
) -> None:
    run(loop, address(transport, f"long-{loop}-{depth}-{seed}", tmp_path), depth, 15000, seed)


def mixed_run(name: str, count: int, seed: int) -> None:
    """Run blocking, trio and asyncio receivers on one socket, with cancellations, and close it from outside."""
    got: list[list[bytes]] = [[], [], []]
    ended: list[str] = []
    done = threading.Event()

    def count_up() -> None:
        if sum(map(len, got)) >= count:
            done.set()

    with Push(listen="tcp://127.0.0.1:0", send_buffer=100, name=name) as push, Pull(dial=push.address) as pull:

        def blocking() -> None:
            chance = random.Random(seed)
            try:
                while True:
                    try:
                        got[0] += pull.recv_many(chance.choice((1, 7)), timeout=chance.random() * 0.003)
                    except TimedOut:
                        continue
                    count_up()
            except Closed:
                ended.append("blocking")

        async def in_asyncio() -> None:
            chance = random.Random(seed + 1)
            try:
                while True:
                    try:
                        async with asyncio.timeout(chance.random() * 0.003):
                            got[1] += await pull.arecv_many(chance.choice((1, 7)))
                    except TimeoutError:
                        continue
                    count_up()
            except Closed:
                ended.append("asyncio")

        async def in_trio() -> None:
            chance = random.Random(seed + 2)
            try:
                while True:
                    with trio.move_on_after(chance.random() * 0.003):
                        got[2] += await pull.arecv_many(chance.choice((1, 7)))
                    count_up()
            except Closed:
                ended.append("trio")

        threads = [
            threading.Thread(target=blocking),
            threading.Thread(target=lambda: asyncio.run(in_asyncio())),
            threading.Thread(target=trio.run, args=(in_trio,)),
            threading.Thread(target=produce, args=(push, count, seed)),
        ]
        for thread in threads:
            thread.start()
        everything = done.wait(SECONDS)
        pull.close()
        for thread in threads:
            thread.join(SECONDS)
    assert everything
    assert sorted(int(body) for part in got for body in part) == list(range(count))
    assert sorted(ended) == ["asyncio", "blocking", "trio"]


def test_three_kinds_of_waiters_share_one_socket() -> None:
    mixed_run("mixed-short", 2000, 1)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(5))
def test_three_kinds_of_waiters_share_one_socket_for_long(seed: int) -> None:
    mixed_run(f"mixed-{seed}", 15000, seed)


# ---- single cancellations --------------------------------------------------------------------------------------------


def test_a_cancellation_that_races_with_a_message_leaves_it_queued() -> None:
    async def main() -> None:
        with Pair0(listen="tcp://127.0.0.1:0") as one, Pair0(dial=one.address) as other:
            for _ in range(20):
                task = asyncio.ensure_future(one.arecv())
                await asyncio.sleep(0)
                await asyncio.sleep(0)  # now it waits
                read_before = one.stats.read
                other.send(b"x")
                # the loop has not seen it: none of its tasks runs meanwhile
                eventually(lambda before=read_before: one.stats.read > before)  # type: ignore[misc]
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert await one.arecv(timeout=WAIT) == b"x"

    asyncio.run(main())


async def test_a_cancellation_that_races_with_a_message_leaves_it_queued_under_trio() -> None:
    with Pair0(listen="tcp://127.0.0.1:0") as one, Pair0(dial=one.address) as other:
        for _ in range(20):
            got: list[bytes] = []

            async def receive(into: list[bytes] = got) -> None:
                into.append(await one.arecv())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive)
                await trio.testing.wait_all_tasks_blocked()
                read_before = one.stats.read
                other.send(b"x")
                eventually(lambda before=read_before: one.stats.read > before)  # type: ignore[misc]
                nursery.cancel_scope.cancel()
            assert got in ([], [b"x"])  # it was there before the cancellation
            if not got:
                assert await one.arecv(timeout=WAIT) == b"x"


# 60 messages of 1 MiB that no peer takes, each abandoned after a moment; prints the growth of the process in MiB
LEAK = """
    import asyncio, gc, json, resource, trio
    from nngkit.errors import TimedOut
    from nngkit.protocols import Push

    def resident():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize() >> 20

    async def timed_out(send, times):
        for _ in range(times):
            try:
                await send(bytes([7]) * (1 << 20))
            except TimedOut:
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
        run[0](*run[1:], 5)  # allocated once
        gc.collect()
        before = resident()
        run[0](*run[1:], 60)
        gc.collect()
        return resident() - before

    with Push(send_buffer=0, send_timeout=0.002, linger=0) as push:
        timeout = grown(trio.run, timed_out, push.asend)
    with Push(send_buffer=0, linger=0) as push:
        cancel = grown(trio.run, cancelled, push.asend)
    with Push(send_buffer=0, linger=0) as push:
        other = grown(lambda *all: asyncio.run(cancelled_asyncio(*all)), push.asend)
    print(json.dumps([timeout, cancel, other]))
"""


def test_a_send_that_timed_out_or_was_cancelled_frees_its_message() -> None:
    assert max(json.loads(said(LEAK, timeout=50))) < 20
