"""A recorder, and `nngkit journal compact`, are killed repeatedly: each acknowledged record is stored, once.

20 kills of a recorder under load, and between them 10 of a compaction; set NNGKIT_KILLS=100 for more.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trio

from nngkit.journal import open_journal, read
from nngkit.journal.verify import verify
from nngkit.protocols import Push, Req
from tests.cli.commands import ROOT, command, environment
from tests.journal.ingest_client import ask

RUNS = int(os.environ.get("NNGKIT_KILLS", "20"))
IN_FLIGHT = 200  # pending requests at any time


class Killed:
    """Recorder process, restarted after each kill."""

    def __init__(self, folder: Path) -> None:
        self.orders = f"ipc://{folder}/orders.sock"
        self.jobs = f"ipc://{folder}/jobs.sock"
        self.journal = folder / "journal"
        self._argv = command(
            "record",
            str(self.journal),
            "--stream",
            f"orders=rep listen={self.orders}",
            "--stream",
            f"jobs=pull listen={self.jobs}",
            "--segment-size",
            "60000",
        )
        self._compacting = command("journal", "compact", str(self.journal), "--target", "2000000")

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._argv, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )

    def kill_compaction(self, seconds: float) -> bool:
        """Kill a compaction that has begun to write, after some time; return False if it had ended."""
        process = subprocess.Popen(
            self._compacting, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        folder = self.journal / "partition-00000"
        while process.poll() is None and not any(folder.glob("*.tmp")):
            time.sleep(0.001)
        time.sleep(seconds)
        process.kill()
        return process.wait() == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.timeout(60 + 15 * RUNS)
async def test_no_acknowledged_record_is_lost_or_stored_twice(tmp_path: Path) -> None:
    killed = Killed(tmp_path)
    chance = random.Random(time.time_ns())
    acknowledged: set[bytes] = set()
    pushed: list[int] = []
    kills: list[int] = []
    compactions: list[bool] = []
    async with (
        Req(dial=killed.orders) as req,
        Push(dial=killed.jobs, send_buffer=1) as push,
        trio.open_nursery() as flow,
    ):
        stopping = trio.Event()

        async def work() -> None:
            number = 0
            while not stopping.is_set():
                await push.asend(b"%d" % number)
                pushed.append(number)
                number += 1
                await trio.sleep(0.0005)

        async with trio.open_nursery() as asking:
            for worker in range(IN_FLIGHT):
                asking.start_soon(ask, req, worker, acknowledged, stopping)
            flow.start_soon(work)
            for run in range(RUNS):
                if run % 2:
                    compactions.append(await trio.to_thread.run_sync(killed.kill_compaction, chance.random() * 0.05))
                process = killed.start()
                before = len(acknowledged)
                try:
                    with trio.fail_after(60):
                        while len(acknowledged) < before + 300:  # noqa: ASYNC110 - it flows
                            await trio.sleep(0.005)
                    await trio.sleep(chance.random() * 0.3)
                finally:
                    process.kill()
                    kills.append(await trio.to_thread.run_sync(process.wait))
            process = killed.start()
            stopping.set()  # the last recorder replies to all pending requests
        flow.cancel_scope.cancel()
    process.send_signal(signal.SIGTERM)
    assert await trio.to_thread.run_sync(process.wait) == 128 + signal.SIGTERM
    assert kills == [-signal.SIGKILL] * RUNS

    found = [each for each in verify(open_journal(killed.journal)) if each.state != "good"]
    assert found == []
    assert sum(compactions) >= RUNS // 8, "most compactions ended before they were killed"
    assert not list((killed.journal / "partition-00000").glob("*.orphan"))
    records = list(read(killed.journal))
    assert [record.offset for record in records] == list(range(len(records))), "offsets have gaps or duplicates"
    stored = [record.value for record in records if record.topic == "orders"]
    once = [record.value for record in read(killed.journal, topics="orders", distinct=True)]
    lost = acknowledged - set(once)
    sys.stdout.write(
        f"{RUNS} kills: {len(acknowledged)} acknowledged, {len(lost)} lost, {len(stored) - len(once)} repeated\n"
    )
    assert lost == set()
    assert len(once) == len(set(once)), "duplicates after deduplication"
    # PULL: at most once and in order; messages are numbered, so losses can be counted
    jobs = [int(record.value) for record in records if record.topic == "jobs"]
    assert jobs == sorted(set(jobs))
    missing = len(pushed) - len(set(jobs) & set(pushed))
    sys.stdout.write(f"PULL: {len(pushed)} pushed, {missing} lost by {RUNS} kills\n")
    assert missing < RUNS * 5000, "more than the sockets and the kernel buffer for one peer"
