"""Delays, pauses and deadlines go on at the next host, whatever its wall clock says; so do the totals."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from nngkit.cluster import Host, Member
from nngkit.cluster.jobs.messages import Cancel
from nngkit.cluster.jobs.table import JobTable
from nngkit.cluster.log_clock import LogClock
from nngkit.envelope import decode
from nngkit.errors import JobFailed
from nngkit.testing.cluster_memory import ClusterMemory
from tests.cluster.test_endpoint import VOTERS, cluster
from tests.cluster.test_work import Bench


def next_term(bench: Bench, *, after: float = 0.0, restored: bool = False) -> Bench:
    """Return the queue of the next host, `after` seconds later by the log's clock; `restored`: from a snapshot."""
    table = bench.host.table
    if restored:
        table = JobTable()
        table.restore(bench.host.table.snapshot())
        assert table.snapshot() == bench.host.table.snapshot()
    return Bench(table=table, term=8, wall=bench.now + bench.host._wall + after)


@pytest.mark.parametrize("restored", [False, True])
def test_a_delay_goes_on_in_the_next_term(restored: bool) -> None:
    bench = Bench()
    bench.submit(1, delay=20.0)
    bench.turn(5.0)
    later = next_term(bench, after=5.0, restored=restored)
    later.demand(9)
    later.turn(9.8)
    assert not later.granted()
    later.turn(0.3)
    assert [row[2] for row in later.granted()] == [1]


@pytest.mark.parametrize("restored", [False, True])
def test_the_pause_after_a_failure_goes_on_in_the_next_term(restored: bool) -> None:
    bench = Bench()
    bench.host._rng = Random(3)  # of the longest pause, 0.2 s before the second try, it takes 0.05 s
    bench.submit(1, tries=9)
    ((serial, fence, _),) = bench.demand(9)
    bench.fail(serial, fence)
    bench.turn()
    pause = bench.host.table.jobs[serial].not_before - bench.now - bench.host._wall
    assert 0.0 < pause < 0.2
    later = next_term(bench, restored=restored)
    later.demand(9)
    later.turn(pause * 0.9)
    assert not later.granted()
    later.turn(pause * 0.2)
    assert [row[2] for row in later.granted()] == [2]
    later.result(serial, fence)  # of the start that has failed
    later.turn()
    assert later.host.stats.refused_results == 1


def test_a_worker_keeps_a_failure_until_the_pause_is_committed() -> None:
    bench = Bench()
    bench.submit(1)
    ((serial, fence, _),) = bench.demand(9)
    bench.fail(serial, fence)
    effects = bench.host.take(bench.now)
    assert effects.entries
    assert not effects.unicasts
    bench.fail(serial, fence)  # it is sent again
    assert not bench.host.take(bench.now).unicasts
    bench.host.committed(effects.entries, bench.now)
    assert bench.host.take(bench.now).unicasts


def test_a_job_whose_delay_was_over_waits_for_its_worker_only() -> None:
    bench = Bench()
    bench.submit(1, delay=1.0)
    bench.turn(1.1)
    later = next_term(bench)
    later.demand(9)
    assert not later.granted()
    later.turn(1.1)
    assert len(later.granted()) == 1


def test_totals_outlive_a_term_and_a_snapshot() -> None:
    bench = Bench()
    bench.submit(1, 2, 3, tries=1)
    (one, two, three) = bench.demand(3)
    bench.result(*one[:2])
    bench.fail(*two[:2])
    bench.fail(*three[:2], retry=False)
    bench.submit(4)
    bench.host.unicast("ada", Cancel(1, [4]), bench.now)
    bench.turn()
    for restored in (False, True):
        assert next_term(bench, restored=restored).host.table.totals == [1, 1, 1, 1]


def test_an_earlier_version_reads_totals_and_pauses_as_submitters_without_jobs() -> None:
    bench = Bench()
    bench.submit(1, 2, tries=9)
    (one, two) = bench.demand(2)
    bench.result(*one[:2])
    bench.fail(*two[:2])
    bench.turn()
    content = decode(bench.host.table.snapshot(), what="snapshot", limit=1 << 20)
    assert len(content) == 7
    own = [row for row in content[2] if not row[0]]
    assert [row[1] for row in own] == [0, two[0]]
    assert all(len(row) == 6 and row[2] == 1 and row[4:] == [[], []] for row in own)


def test_a_host_goes_on_from_the_clock_of_the_one_before() -> None:
    for wall in (-3600.0, 0.0, 3600.0):
        clock = LogClock()
        clock.heard(1, 5000.0, 10.0)
        assert clock.lead(5000.0, 12.0, 5002.0 + wall) == 5002.0


def test_an_entry_that_comes_late_does_not_hold_up_the_clock_and_drift_is_followed() -> None:
    clock = LogClock()
    clock.heard(1, 5000.0, 10.0)
    clock.heard(1, 5001.0, 71.0)  # the voter was stopped for a minute
    assert 5060.9 < clock.lead(5001.0, 71.0, 0.0) <= 5061.0
    clock = LogClock()
    for day in range(30):  # the host's clock loses 4 s a day
        clock.heard(1, day * 86_396.0, day * 86_400.0)
    assert clock.lead(0.0, 29 * 86_400.0, 0.0) == 29 * 86_396.0
    clock.heard(2, 100.0, 29 * 86_400.0)  # of a host that goes on from what it heard later
    assert clock.lead(100.0, 29 * 86_400.0, 0.0) == 100.0


def test_after_a_restart_of_all_voters_the_wall_clock_says_how_long_they_were_down() -> None:
    assert LogClock().lead(5000.0, 1.0, 6000.0) == 6000.0
    assert LogClock().lead(5000.0, 1.0, 4000.0) == 5000.0


async def test_a_delayed_job_waits_although_its_host_dies(autojump_clock: MockClock) -> None:
    async with cluster() as c:  # time passes in memory only: each wall clock stands still
        for name in VOTERS:
            await c.host(name, voters=VOTERS)
        worker = Member("c", dial=list(VOTERS.values()), transport=c.memory.transport("w"), id="w")
        ran: dict[bytes, float] = {}

        @worker.work("r", concurrency=4)
        async def r(job: Any) -> bytes:
            ran[job.payload] = trio.current_time()
            return b""

        await c._enter(worker)
        await c.hosts()
        start = trio.current_time()
        late = await worker.submit("r", b"late", delay=12.0)
        over = await worker.submit("never", b"", deadline=16.0)
        doomed = await worker.submit("r", b"doomed", delay=14.0)
        for _ in range(2):
            await trio.sleep(3.0)
            host = await c.hosts()
            await c.kill(host)
            await c.host(host, voters=VOTERS)
        await trio.sleep(3.0)
        doomed.cancel()
        with pytest.raises(JobFailed, match="by w"):
            await doomed.result(5.0)
        await late.result(20.0)
        assert 12.0 <= ran[b"late"] - start < 12.5
        with pytest.raises(JobFailed, match="within 16"):
            await over.result(20.0)
        assert 16.0 <= trio.current_time() - start < 16.5
        status = await worker.status()
        assert (status.jobs[0].done, status.jobs[0].failed, status.jobs[0].cancelled) == (1, 1, 1)
        assert set(ran) == {b"late"}


async def test_a_delayed_job_waits_over_a_restart_from_stores(tmp_path: Path) -> None:
    started = time.monotonic()
    for life in range(2):
        memory = ClusterMemory()
        host = Host("c", transport=memory.transport("a"), id="a", store=tmp_path / "a")
        async with host:
            await host.joined(5.0)
            if life == 0:
                await host.submit("r", b"", delay=1.0)
                memory.kill("a")
                host._left = True
                continue
            ran = trio.Event()

            @host.work("r")
            async def r(job: Any, ran: trio.Event = ran) -> bytes:
                ran.set()
                return b""

            with trio.fail_after(10.0):
                await ran.wait()
    assert time.monotonic() - started >= 1.0
