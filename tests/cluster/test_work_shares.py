"""Shares of workers and the time of many jobs, in the simulator: with delays of 1 ms on each link."""

from __future__ import annotations

import pytest

from nngkit.cluster.jobs.values import CrewJob
from tests.cluster.work_network import Cluster, Node


def cluster_of(speeds: list[float], slots: int, *, job: float = 0.02) -> Cluster:
    cluster = Cluster(1, delay=(0.001, 0.001), commit=(0.002, 0.002), codec=False)

    def do(node: Node, job_: CrewJob) -> tuple[float, str]:
        return job / node.speed, "done"

    cluster.do = do
    host = cluster.add("host", slots=0, kinds=frozenset())
    cluster.elect(host)
    for number, speed in enumerate(speeds):
        cluster.attach(cluster.add(f"n{number}", slots=slots, speed=speed), host)
    submitter = cluster.add("submitter", slots=0, kinds=frozenset())
    cluster.attach(submitter, host)
    cluster.clock.run_until(cluster.clock.now + 0.1)
    return cluster


def run(cluster: Cluster, jobs: int) -> float:
    start = cluster.clock.now
    for number in range(jobs):
        cluster.submit(cluster.nodes["submitter"], b"%d" % number)
    assert cluster.clock.run_until(start + 100.0, lambda: not cluster.nodes["submitter"].submitter.unfinished)
    return cluster.clock.now - start


def test_jobs_of_20_ms_over_16_workers_take_at_most_a_tenth_more_than_ideal() -> None:
    cluster = cluster_of([1.0] * 4, 4)
    seconds = run(cluster, 800)
    assert seconds < 800 * 0.02 / 16 * 1.1, seconds


@pytest.mark.slow
def test_workers_get_shares_by_their_speed() -> None:
    cluster = cluster_of([1.0, 2.0, 4.0], 1)
    seconds = run(cluster, 1000)
    shares = [cluster.nodes[f"n{number}"].done for number in range(3)]
    assert sum(shares) == 1000
    for share, speed in zip(shares, [1, 2, 4], strict=True):
        assert abs(share - 1000 * speed / 7) < 0.1 * 1000 * speed / 7, (shares, seconds)
    assert seconds < 1000 * 0.02 / 7 * 1.1, seconds


def test_long_jobs_are_not_hoarded() -> None:
    cluster = cluster_of([1.0] * 4, 1, job=1.0)
    run(cluster, 4)
    seconds = run(cluster, 4)
    assert seconds < 1.05, seconds


def test_a_worker_with_twice_the_slots_gets_twice_the_jobs() -> None:
    cluster = cluster_of([1.0, 1.0], 2)
    node = cluster.nodes["n1"]
    node.crew.set_work({"work"}, 4, cluster.clock.now)
    node.act()
    run(cluster, 600)
    assert abs(node.done - 400) < 40
