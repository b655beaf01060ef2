"""Voters with a store: what they have accepted outlives all of them."""

from __future__ import annotations

import errno
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from nngkit.cluster import Host
from nngkit.cluster.election import replica
from nngkit.cluster.node import voting
from nngkit.errors import ConfigError, NngkitError, NotStored
from nngkit.testing import aeventually
from nngkit.testing.cluster_memory import ClusterMemory

VOTERS = {name: f"mem://{name}" for name in "abc"}


@pytest.mark.slow
async def test_jobs_outlive_all_voters(tmp_path: Path) -> None:
    done: list[bytes] = []
    for life in range(2):
        memory = ClusterMemory()
        async with trio.open_nursery() as nursery:
            hosts: list[Host] = []

            async def run(
                name: str,
                life: int = life,
                memory: ClusterMemory = memory,
                hosts: list[Host] = hosts,
                *,
                task_status: Any,
            ) -> None:
                host = Host("c", transport=memory.transport(name), id=name, voters=VOTERS, store=tmp_path / name)
                if life == 1:

                    @host.work("note")
                    async def note(job: Any) -> bytes:
                        done.append(job.payload)
                        return b""

                async with host:
                    hosts.append(host)
                    task_status.started()
                    await trio.sleep_forever()

            for name in VOTERS:
                await nursery.start(run, name)
            for host in hosts:
                await host.joined(10.0)
            if life == 0:
                for number in range(5):  # no node has a function for it yet
                    await hosts[0].submit("note", b"%d" % number)
                for name in VOTERS:
                    memory.kill(name)
            else:
                await aeventually(lambda: len(done) == 5, 20.0)
            nursery.cancel_scope.cancel()
    assert sorted(done) == [b"0", b"1", b"2", b"3", b"4"]


async def test_three_voters_with_stores_start_at_once(tmp_path: Path) -> None:
    """Connections come while the stores are still being read."""
    addresses = {name: f"ipc://{tmp_path}/{name}.ipc" for name in VOTERS}

    async def run(name: str) -> None:
        options: dict[str, Any] = {"listen": addresses[name], "store": tmp_path / name}
        async with Host("c", id=name, voters=addresses, **options) as host:
            await host.joined(20.0)
            joined.add(name)
            await aeventually(lambda: len(joined) == len(VOTERS), 20.0)

    joined: set[str] = set()
    async with trio.open_nursery() as nursery:
        for name in VOTERS:
            nursery.start_soon(run, name)
    assert joined == set(VOTERS)


async def test_a_voter_whose_disk_is_full_ends_and_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    memory = ClusterMemory()

    async def lose_the_disk() -> None:
        async with Host("c", transport=memory.transport("a"), id="a", store=tmp_path) as host:
            await host.joined(5.0)
            monkeypatch.setattr(os, "fdatasync", full)
            await host.submit("x", b"")

    with pytest.raises(NotStored, match=f"^{re.escape(str(tmp_path))}: No space left on device; this voter ends"):
        await lose_the_disk()
    monkeypatch.undo()
    async with Host("c", transport=memory.transport("a"), id="a", store=tmp_path) as host:
        await host.joined(5.0)


async def test_a_job_is_accepted_once_it_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one that comes while the disk writes is accepted after the next write, not with this one."""
    writes: list[int] = []
    accepted: list[bytes] = []
    go_on, real = threading.Semaphore(0), os.fdatasync

    def wait(file: int) -> None:
        writes.append(file)
        assert go_on.acquire(timeout=10.0)
        real(file)

    async def submit(payload: bytes) -> None:
        await host.submit("x", payload)
        accepted.append(payload)

    async with (
        Host("c", transport=ClusterMemory().transport("a"), id="a", store=tmp_path) as host,
        trio.open_nursery() as nursery,
    ):
        await host.submit("x", b"")  # what a new host writes is on disk then
        await trio.testing.wait_all_tasks_blocked()
        monkeypatch.setattr(os, "fdatasync", wait)
        nursery.start_soon(submit, b"one")
        await aeventually(lambda: len(writes) == 1, 5.0)
        nursery.start_soon(submit, b"two")
        await trio.testing.wait_all_tasks_blocked()
        assert accepted == []
        go_on.release()
        await aeventually(lambda: len(writes) == 2, 5.0)
        await trio.testing.wait_all_tasks_blocked()
        assert accepted == [b"one"]
        go_on.release(100)
        await aeventually(lambda: len(accepted) == 2, 5.0)


async def test_a_host_that_cannot_start_leaves_its_store_to_the_next(tmp_path: Path) -> None:
    host = Host("c", listen=f"ipc://{tmp_path}/missing/socket", id="a", store=tmp_path / "a")
    with pytest.raises(NngkitError):
        async with host:
            pass
    async with Host("c", transport=ClusterMemory().transport("a"), id="a", store=tmp_path / "a") as host:
        await host.joined(5.0)


async def test_a_store_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    host = Host("c", transport=ClusterMemory().transport("a"), id="a", store=tmp_path / "file")
    with pytest.raises(ConfigError, match=f"^store: {re.escape(str(tmp_path))}/file: File exists"):
        async with host:
            pass


@pytest.mark.parametrize(("cluster", "id"), [("c", "b"), ("d", "a")])
async def test_the_store_of_another_voter_is_refused(tmp_path: Path, cluster: str, id: str) -> None:
    memory = ClusterMemory()
    async with Host("c", transport=memory.transport("a"), id="a", store=tmp_path):
        pass
    with pytest.raises(ConfigError, match=f"is the store of 'a' of the cluster 'c', not of '{id}' of '{cluster}'"):
        async with Host(cluster, transport=memory.transport("a"), id=id, store=tmp_path):
            pass
    async with Host("c", transport=memory.transport("a"), id="a", store=tmp_path) as host:
        await host.joined(5.0)


async def test_a_store_that_does_not_say_whose_it_is_becomes_that_of_its_voter(tmp_path: Path) -> None:
    memory = ClusterMemory()
    for _ in range(2):
        async with Host("c", transport=memory.transport("a"), id="a", store=tmp_path):
            pass
        assert (tmp_path / "owner").read_text() == "c\na\n"
        (tmp_path / "owner").unlink()  # as before nngkit wrote it


async def test_a_log_without_unfinished_jobs_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voting, "LEAST_LOG", 2000)
    monkeypatch.setattr(replica, "LEAST_KEPT", 500)
    async with Host("c", transport=ClusterMemory().transport("a"), id="a", voters={"a": "mem://a"}) as host:

        @host.work("note")
        async def note(job: Any) -> bytes:
            return bytes(job.payload)

        for _ in range(100):
            await (await host.submit("note", b"ten bytes.")).result()
        election = host.stats.election
        assert election is not None
        assert election.proposed > 100
        assert election.log_bytes < 4000
