"""A recorder and `nngkit journal compact` that are killed, a load on the recorder, and what is lost or doubled.

::

    killed = Killed(folder)
    async with load(killed) as flow:
        await killed.kill_recorder(flow, random.Random(1))
        await killed.kill_compaction(0.2)
        process = await killed.last(flow)   # it replies to the pending requests
    process.send_signal(signal.SIGTERM)
    audit(killed.journal, flow)

Shared by test_killed.py and benchmarks/kills.py, so it needs only what benchmarks have installed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import trio

from nngkit.journal import open_journal, read
from nngkit.journal.files import SCRATCH, logs_in
from nngkit.journal.manifest import load_manifest
from nngkit.journal.storage import open_storage
from nngkit.journal.verify import verify
from nngkit.protocols import Push, Req
from tests.journal.ingest_client import ask

__all__ = ["Audit", "Killed", "Load", "audit", "load"]

ROOT = Path(__file__).parents[2]
IN_FLIGHT = 200  # pending requests at any time
PAUSE = 0.1  # seconds between a reply and the next request, so that sealing keeps up
LEAST = 300  # acknowledged requests between the start of a recorder and its kill
SEGMENT = 10_000  # bytes of a log: some twenty are sealed a second
WAIT = 60.0  # seconds


class Load(NamedTuple):
    """Messages of acknowledged requests, and the numbers of pushed messages, which nothing acknowledges."""

    acknowledged: set[bytes]
    pushed: list[int]

    async def passes(self, count: int) -> None:
        """Wait until so many more requests are acknowledged. Raises trio.TooSlowError."""
        due = len(self.acknowledged) + count
        with trio.fail_after(WAIT):
            while len(self.acknowledged) < due:  # noqa: ASYNC110 - it flows
                await trio.sleep(0.005)


class Audit(NamedTuple):
    """Comparison of a journal with the load on it.

    `repeated`: requests stored again as their reply was lost; `distinct=True` leaves one of each. `doubled`: those that
    it does not. `missing`: pushed messages that are not stored.
    """

    acknowledged: int
    stored: int
    repeated: int
    lost: int
    doubled: int
    missing: int
    wrong: tuple[str, ...]


class Killed:
    """Recorder and compaction of one journal, started again after each kill.

    Logs are so small that the recorder seals all the time, and that it does not merge what it sealed, as Parquet files
    are larger than an eighth of that: all merging is left to the compaction.
    """

    def __init__(self, folder: Path) -> None:
        self.orders = f"ipc://{folder}/orders.sock"
        self.jobs = f"ipc://{folder}/jobs.sock"
        self.journal = folder / "journal"
        self.folder = self.journal / "partition-00000"
        self._recording = [
            *("record", str(self.journal), "--segment-size", str(SEGMENT)),
            *("--stream", f"orders=rep listen={self.orders}", "--stream", f"jobs=pull listen={self.jobs}"),
        ]
        self._compacting = ["journal", "compact", str(self.journal), "--target", "2000000"]
        self._compacting_takes = 0.1  # seconds from the first file that it writes on

    async def last(self, flow: Load) -> subprocess.Popen[bytes]:
        """Start a recorder that is not killed; return it when it replies: it handles signals then."""
        process = _started(self._recording)
        try:
            await flow.passes(1)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return process

    async def kill_recorder(self, flow: Load, chance: random.Random) -> int:
        """Start a recorder; kill it some time after it has sealed a log under load; return its exit code.

        A recorder's first seal is half a second after its start, as it imports pyarrow: an earlier kill would hit none.
        """
        before = self._segments()
        process = _started(self._recording)
        try:
            await flow.passes(LEAST)
            with trio.fail_after(WAIT):
                while self._segments() <= before and process.poll() is None:  # noqa: ASYNC110 - of another process
                    await trio.sleep(0.005)
            await trio.sleep(chance.random() * 0.3)
        finally:
            process.kill()
            code = process.wait()
        return code

    async def kill_compaction(self, share: float) -> bool:
        """Kill a compaction after a share of the time that it writes; return False if it had ended.

        That time differs between machines by more than ten times: a compaction that ended tells it to the next.
        Files left by earlier kills do not count: a recorder that is killed while it seals leaves some.
        """
        before = self._scratch()
        process = _started(self._compacting)
        try:
            with trio.fail_after(WAIT):
                while process.poll() is None and self._scratch() <= before:  # noqa: ASYNC110 - as above
                    await trio.sleep(0.001)
            begun = trio.current_time()
            with trio.move_on_after(share * self._compacting_takes):
                if process.poll() is None:  # else nothing was to be merged
                    await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True)
                    self._compacting_takes = trio.current_time() - begun
        finally:
            process.kill()
            code = process.wait()
        if code not in (0, -signal.SIGKILL):
            raise RuntimeError(f"the compaction failed by itself, with exit code {code}")
        return code == -signal.SIGKILL

    def unfinished(self) -> bool:
        """Return True if a kill has left a log to be sealed beside the newest, or files that are not listed."""
        return len(logs_in(self.folder)) > 1 or bool(self.unlisted())

    def unlisted(self) -> set[tuple[str, int]]:
        """Return the files that are half written, and the segments that the manifest does not list."""
        manifest = load_manifest(open_storage(self.journal), 0)
        listed = set() if manifest is None else {each.file for each in (*manifest.segments, *manifest.retired)}
        return self._scratch() | {(name, 0) for name in self._segments() - listed}

    def _segments(self) -> set[str]:
        return {path.name for path in self.folder.glob("*.parquet")}

    def _scratch(self) -> set[tuple[str, int]]:
        found = set()
        with os.scandir(self.folder) as entries:
            for each in entries:
                if each.name.endswith(SCRATCH):
                    try:
                        found.add((each.name, each.stat().st_mtime_ns))
                    except FileNotFoundError:  # renamed meanwhile
                        found.add((each.name, -1))
        return found


def _started(words: list[str]) -> subprocess.Popen[bytes]:
    # Variables of nngkit would change what it does.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NNGKIT_")}
    return subprocess.Popen(
        [sys.executable, "-m", "nngkit", *words],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


@asynccontextmanager
async def load(killed: Killed) -> AsyncIterator[Load]:
    """Keep requests in flight and push messages; at the end of the block a recorder runs, which replies to the last."""
    flow = Load(set(), [])
    async with (
        Req(dial=killed.orders) as req,
        Push(dial=killed.jobs, send_buffer=1) as push,
        trio.open_nursery() as pushing,
    ):
        stopping = trio.Event()

        async def work() -> None:
            number = 0
            while not stopping.is_set():
                await push.asend(b"%d" % number)
                flow.pushed.append(number)
                number += 1
                await trio.sleep(0.0005)

        async with trio.open_nursery() as asking:
            for worker in range(IN_FLIGHT):
                asking.start_soon(ask, req, worker, flow.acknowledged, stopping, PAUSE)
            pushing.start_soon(work)
            yield flow
            stopping.set()
            asking.cancel_scope.deadline = trio.current_time() + WAIT
        if asking.cancel_scope.cancelled_caught:
            raise trio.TooSlowError(f"requests have no reply after {WAIT:g} s")
        pushing.cancel_scope.cancel()


def audit(journal: Path, flow: Load) -> Audit:
    """Compare a journal, whose recorder has ended, with the load on it."""
    wrong = [f"{each.file}: {each.state}, {each.why}" for each in verify(open_journal(journal)) if each.state != "good"]
    wrong += [f"{path.name} is left" for path in (journal / "partition-00000").glob("*.orphan")]
    records = list(read(journal))
    if [record.offset for record in records] != list(range(len(records))):
        wrong.append("offsets have gaps or duplicates")
    stored = [record.value for record in records if record.topic == "orders"]
    once = [record.value for record in read(journal, topics="orders", distinct=True)]
    if strange := {value for value in once if not _sent(value)}:
        wrong.append(f"{len(strange)} records that were not sent: {sorted(strange)[:3]}")
    # PULL: at most once and in order; messages are numbered, so losses can be counted
    jobs = [int(record.value) for record in records if record.topic == "jobs"]
    if jobs != sorted(set(jobs)):
        wrong.append("pushed messages are repeated or out of order")
    return Audit(
        acknowledged=len(flow.acknowledged),
        stored=len(records),
        repeated=len(stored) - len(once),
        lost=len(flow.acknowledged - set(once)),
        doubled=len(once) - len(set(once)),
        missing=len(set(flow.pushed) - set(jobs)),
        wrong=tuple(wrong),
    )


def _sent(value: bytes) -> bool:
    """Return True for messages of `ask`."""
    worker, _, number = value.partition(b"-")
    return worker.isdigit() and number.isdigit() and int(worker) < IN_FLIGHT
