"""Clusters of `nngkit host` and `nngkit join` alone: a host dies, a node is drained, jobs are recorded."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.cli.commands import ROOT, WAIT, command, environment, nngkit, valid
from tests.cli.processes import Running
from tests.preloaded import Popen

pytestmark = pytest.mark.slow


@contextmanager
def a_cluster(*options: str, slots: int = 2) -> Iterator[tuple[Running, Running, str]]:
    """Run a host, and a node w1 that does jobs of the kind `shout`; yield them and the host's address."""
    with Running("host", "render", "--listen", "tcp://127.0.0.1:0", "--json", *options) as host:
        address = valid(host.line(), "cluster-node.json")["address"]
        assert valid(host.line(), "cluster-node.json")["event"] == "host"
        work = ("--kind", "shout", "--exec", "tr a-z A-Z", "--slots", str(slots))
        with Running("join", "render", "--dial", address, "--id", "w1", *work) as worker:
            assert "w1 follows host, host of term" in worker.says()
            yield host, worker, address


def test_a_node_that_is_drained_by_order_ends_with_0() -> None:
    with a_cluster("-v") as (host, worker, address):
        done = nngkit("cluster", "drain", "render", "w1", "--dial", address, "--wait", "10")
        assert (done.returncode, done.stdout, done.stderr) == (0, "w1 has left render\n", "")
        assert worker.process.wait(WAIT) == 0
        assert "w1 was drained, and has left the cluster" in worker.rest()[1]
        members = set()
        while ("removed", "w1") not in members:
            told = valid(host.line(), "cluster-node.json")
            members.add((told["event"], told.get("member")))
        assert ("added", "w1") in members
        assert host.end(signal.SIGTERM) == 143


def test_jobs_and_hosts_are_recorded(tmp_path: Path) -> None:
    journal = str(tmp_path / "journal")
    with a_cluster("--journal", journal) as (host, _, address):
        done = nngkit("submit", "render", "--dial", address, "--kind", "shout", "hello")
        assert (done.returncode, done.stdout) == (0, "HELLO")
        assert host.end() == 130
    records = nngkit("journal", "export", journal, "--format", "json")
    assert records.returncode == 0, records.stderr
    assert len(records.stdout.splitlines()) >= 2  # the election, and the job


def test_a_host_is_killed_while_jobs_are_under_way(tmp_path: Path) -> None:
    addresses = {name: f"ipc://{tmp_path}/{name}" for name in "abc"}  # no ports that another process could take
    voters = [word for name, address in addresses.items() for word in ("--voter", f"{name}={address}")]
    dials = [word for address in addresses.values() for word in ("--dial", address)]
    work = ("--kind", "shout", "--exec", "sleep 0.05; tr a-z A-Z", "--slots", "2")
    with ExitStack() as opened:
        hosts = {}
        for name, address in addresses.items():
            hosts[name] = opened.enter_context(
                Running("host", "render", "--id", name, "--listen", address, "--json", *voters)
            )
        for name, host in hosts.items():
            assert valid(host.line(), "cluster-node.json")["event"] == "listening", name
        first = valid(hosts["a"].line(), "cluster-node.json")["host"]
        opened.enter_context(Running("join", "render", *dials, *work))
        with Popen(
            command("submit", "render", *dials, "--kind", "shout", "--lines", "--visibility", "5"),
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as submit:
            assert submit.stdin is not None
            assert submit.stdout is not None
            submit.stdin.write(b"".join(b"line %d\n" % number for number in range(200)))
            submit.stdin.close()
            results = [submit.stdout.readline()]
            hosts[first].process.kill()
            results += submit.stdout.readlines()
            assert submit.wait(WAIT) == 0
        assert results == [b"LINE %d\n" % number for number in range(200)]
        survivor = next(name for name in hosts if name != first)
        told = {"host": None}
        while told["host"] in (None, first):
            told = valid(hosts[survivor].line(), "cluster-node.json")
