"""Measurements of the guarantees in docs/discovery.md: no false misses at scale, and fast removal of dead providers."""

# ruff: noqa: T201 - the figures are printed, for runs with -s

from __future__ import annotations

import random
import signal
import statistics
import time

import pytest
import trio

from nngkit import ServiceDiscovery, ServiceNotFound
from nngkit.discovery import RoundFigures, State
from nngkit.testing import Background, aeventually
from tests.discovery.peers import WAIT, Watcher, program, states

ANY = "tcp://127.0.0.1:0"
CROWD, ROUNDS, STALL = 400, 20, 0.3
KILLS = 11
SLACK = 0.25  # seconds that a busy machine may add to a bound: both of its cores may be taken


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_20_rounds_over_400_services_with_a_stalling_loop_cause_no_false_misses() -> None:
    figures: list[RoundFigures] = []
    rng = random.Random(4)
    async with (
        ServiceDiscovery(listen=ANY, deadline=1.0, interval=0.1, on_round=figures.append) as discovery,
        trio.open_nursery() as nursery,
    ):
        port = discovery.address.rpartition(":")[2]
        watcher = Watcher(discovery)
        nursery.start_soon(watcher.run)
        with (
            program("fleet", "crowd", "360", port),
            program("services", "crowd", "40", discovery.address),
        ):
            await aeventually(lambda: len(discovery.snapshot().get("crowd", ())) == CROWD, 60)
            await discovery.discover()
            figures.clear()
            watcher.seen.clear()
            while len(figures) < ROUNDS:
                await trio.sleep(rng.uniform(0.0, 0.15))
                time.sleep(STALL)  # noqa: ASYNC251 - the stall
            assert [event for event in watcher.seen if event.new is not State.UP] == []
            assert set(states(discovery).values()) == {State.UP}
            complete = [each for each in figures if each.asked == CROWD]
            assert len(complete) >= ROUNDS
            assert sum(each.missed + each.held for each in complete) == 0
            answers = sum(each.answered for each in complete)
            print(f"{len(figures)} rounds, {answers} of {len(complete) * CROWD} answers, no false alarm")
            nursery.cancel_scope.cancel()


async def resolved_until(discovery: ServiceDiscovery, address: str, limit: float = WAIT) -> float:
    """Return the time when `address` was last resolved; the loop runs meanwhile."""
    last = time.monotonic()
    with trio.fail_after(limit):
        while True:
            try:
                # twenty choices between two: missing a present one has odds of one in a million
                there = any(discovery.resolve("victim").address == address for _ in range(20))
            except ServiceNotFound:
                there = False
            if not there:
                return last
            last = time.monotonic()
            await trio.sleep(0.0005)


@pytest.mark.slow
async def test_killed_provider_is_last_resolved_within_20_ms() -> None:
    """The kernel's notice of the end is as late as ours on a busy machine: it is taken off."""
    stale, notices = [], []
    async with ServiceDiscovery(listen=ANY, deadline=0.5, interval=0.5) as discovery:
        for number in range(KILLS):
            address = f"tcp://10.0.0.{number + 1}:9000"
            with program("provider", "victim", address, discovery.address) as process:
                await aeventually(lambda: "victim" in discovery.snapshot())
                await trio.sleep(random.uniform(0.0, 0.5))  # at a random point of the interval
                ended = Background(lambda: (process.wait(WAIT), time.monotonic())[1])
                process.kill()
                killed = time.monotonic()
                stale.append(max(0.0, await resolved_until(discovery, address) - killed))
                notices.append(await trio.to_thread.run_sync(ended.result) - killed)
    median = statistics.median(stale)
    print(
        f"SIGKILL: last stale resolve after {median * 1000:.1f} ms (median of {KILLS}), {max(stale) * 1000:.1f} at most"
    )
    assert median - statistics.median(notices) <= 0.020


@pytest.mark.slow
async def test_frozen_provider_leaves_resolve_within_an_interval_and_two_deadlines() -> None:
    interval, deadline, stale = 0.4, 0.3, []
    async with (
        ServiceDiscovery(listen=ANY, deadline=deadline, interval=interval) as discovery,
        trio.open_nursery() as nursery,
    ):
        with program("provider", "victim", "tcp://10.0.0.100:9000", discovery.address):
            for number in range(5):
                address = f"tcp://10.0.0.{number + 1}:9000"
                with program("provider", "victim", address, discovery.address) as process:
                    await aeventually(lambda: states(discovery).get(address) is State.UP)  # noqa: B023 - called here
                    await trio.sleep(random.uniform(0.0, interval))
                    process.send_signal(signal.SIGSTOP)
                    stopped = time.monotonic()
                    stale.append(await resolved_until(discovery, address) - stopped)
                    assert states(discovery)[address] is State.SUSPECT  # not down: that cannot be known
                    process.send_signal(signal.SIGCONT)
                    await aeventually(lambda: states(discovery)[address] is State.UP)  # noqa: B023 - called here
        nursery.cancel_scope.cancel()
    print(f"SIGSTOP: last resolved after {max(stale):.2f} s at most, {interval + 2 * deadline:.2f} promised")
    assert max(stale) <= interval + 2 * deadline + SLACK
