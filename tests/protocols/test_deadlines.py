"""Deadlines of waiting tasks share one alarm: each wait ends at its own, whatever others wait for."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from nngkit.errors import TimedOut
from nngkit.protocols import Pair0, Req
from nngkit.protocols._waiting.waiters import Deadlines
from nngkit.testing import Background
from tests.protocols.wires import WAIT
from tests.switches import many_switches

Runner = Callable[[Callable[[], Awaitable[Any]]], Any]
LATE = 1.0  # seconds: the machine may be busy


def _asyncio(main: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        return await asyncio.wait_for(main(), WAIT)

    return asyncio.run(bounded())


async def _all_at_once(calls: list[Callable[[], Awaitable[None]]], *, under_trio: bool) -> None:
    if under_trio:
        with trio.fail_after(WAIT):
            async with trio.open_nursery() as nursery:
                for call in calls:
                    nursery.start_soon(call)
    else:
        await asyncio.gather(*(call() for call in calls))


@pytest.mark.parametrize(("run", "under_trio"), [(trio.run, True), (_asyncio, False)], ids=["trio", "asyncio"])
def test_each_of_many_waits_ends_at_its_own_deadline(run: Runner, under_trio: bool) -> None:
    """Longer ones first and last, so that the alarm is moved forward, and set again when it comes."""
    seconds = [0.3, *(0.02 + 0.0005 * (number * 7 % 400) for number in range(400)), 0.01, 0.3]
    ended: list[tuple[float, float]] = []

    async def main() -> None:
        with Pair0(listen="inproc://deadlines") as pair:

            async def one(timeout: float) -> None:
                began = time.monotonic()
                with pytest.raises(TimedOut):
                    await pair.arecv(timeout=timeout)
                ended.append((timeout, time.monotonic() - began))

            await _all_at_once([lambda each=each: one(each) for each in seconds], under_trio=under_trio)  # type: ignore[misc]

    run(main)
    assert len(ended) == len(seconds)
    for timeout, took in ended:
        assert timeout <= took < timeout + LATE


@pytest.mark.parametrize(("run", "under_trio"), [(trio.run, True), (_asyncio, False)], ids=["trio", "asyncio"])
def test_a_short_wait_ends_beside_a_long_one_and_what_comes_later_is_taken(run: Runner, under_trio: bool) -> None:
    async def main() -> None:
        with Pair0(listen="tcp://127.0.0.1:0") as pair, Pair0(dial=pair.address) as other:
            taken: list[bytes] = []

            async def long() -> None:
                taken.append(await pair.arecv(timeout=WAIT))

            async def short() -> None:
                for _ in range(5):
                    with pytest.raises(TimedOut):
                        await other.arecv(timeout=0.01)
                await other.asend(b"at last")

            await _all_at_once([long, short], under_trio=under_trio)
            assert taken == [b"at last"]

    run(main)


def test_under_a_clock_of_tests_time_is_that_of_the_clock() -> None:
    async def main() -> None:
        with Pair0(listen="inproc://virtual") as pair:
            began = time.monotonic()
            for _ in range(3):
                with pytest.raises(TimedOut):
                    await pair.arecv(timeout=1000)
            assert time.monotonic() - began < LATE

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_a_request_times_out_in_both_kinds_of_loop() -> None:
    async def main() -> None:
        async with Req(listen="tcp://127.0.0.1:0") as req:
            began = time.monotonic()
            with pytest.raises(TimedOut, match=r"no peer is connected in 0\.05 s"):
                await req.arequest(b"q", timeout=0.05)
            assert 0.05 <= time.monotonic() - began < LATE

    trio.run(main)
    _asyncio(main)


class _Waiting(threading.Event):
    """A wait that ends where its deadline is noticed."""

    def call(self, function: Callable[[], None]) -> bool:
        function()
        return True

    def release(self) -> None:
        self.set()


def test_an_alarm_that_comes_while_it_is_set_is_not_the_last_one() -> None:
    """Three threads whose deadlines pass while others set the next alarm."""
    deadlines = Deadlines()

    def wait(step: int) -> None:
        for number in range(1500):
            waiting: Any = _Waiting()
            deadlines.add(waiting, time.monotonic() + number * step % 5 * 2e-5)
            assert waiting.wait(2)
            deadlines.waiting.pop(waiting, None)

    with many_switches():
        for waits in [Background(wait, step) for step in (1, 3, 7)]:
            waits.result()


class _Counting(Deadlines):
    alarms = 0

    def _due(self) -> None:
        self.alarms += 1
        super()._due()


def test_short_waits_beside_a_long_one_leave_no_alarms_behind() -> None:
    """Each alarm that came set the next one, also if another was to come before: one more for each short wait."""
    deadlines = _Counting()
    stays: Any = _Waiting()

    def stay() -> None:
        deadlines.waiting.pop(stays, None)
        deadlines.add(stays, time.monotonic() + 0.1)

    stay()
    for _ in range(100):
        short: Any = _Waiting()
        deadlines.add(short, time.monotonic() + 0.001)
        assert short.wait(WAIT)
        stay()
    before, until = deadlines.alarms, time.monotonic() + 0.3
    while time.monotonic() < until:
        time.sleep(0.01)
        stay()
    assert deadlines.alarms - before < 50
