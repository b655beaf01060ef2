"""Processes of a pipeline are killed at random under load: each acknowledged record arrives, exactly once.

::

    client -- REQ --> the query's own recorder -> journal -> Spark -- REQ --> a second recorder -> journal

Kills the two recorders, the driver (its Java dies with it), the process that plans the stream, and workers. 6 kills;
set NNGKIT_KILLS=100 for more.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from nngkit.errors import NngkitError
from nngkit.journal import open_journal, read
from nngkit.journal.verify import verify
from nngkit.protocols import Req
from nngkit.testing import aeventually
from tests.cli.commands import ROOT, command, environment
from tests.journal.ingest_client import ask
from tests.spark.sessions import kill, kill_session, running

RUNS = int(os.environ.get("NNGKIT_KILLS", "6"))
SEED = int(os.environ.get("NNGKIT_KILLS_SEED", time.time_ns() % 100_000))
IN_FLIGHT = 50  # pending requests at any time
PAUSE = 0.1  # seconds between a reply and the next request: some 400 records a second, which leaves Spark the CPU
PATIENCE = 90  # seconds for a record to arrive after a kill; a driver takes ten to restart, longer on a busy machine

# local[2,4]: a task may fail three times, as on a cluster; with plain local[2], a dead worker would end the query.
DRIVER = """
import json, sys
from nngkit.spark import session
from nngkit.spark.session import SMALL
told = json.loads(sys.argv[1])
with session("local[2,4]", conf=SMALL | {"spark.driver.memory": "1g"}) as spark:
    rows = spark.readStream.format("nng").option("includeHeaders", "true")
    for name in ("listen", "protocol", "topic"):
        rows = rows.option(name, told[name])
    # Each record keeps its id, so that deduplication at the end covers both recorders.
    rows = rows.load(told["journal"]).selectExpr("value", "filter(headers, h -> h.key = 'id')[0].value as id")
    out = rows.writeStream.format("nng").option("protocol", "req").option("dial", told["dial"])
    out.option("checkpointLocation", told["checkpoint"]).start().awaitTermination()
"""


class Pipeline:
    """The whole pipeline. `mend` restarts what has ended, as a supervisor would; Spark restarts its own recorder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.into = f"ipc://{folder}/in.sock"
        self.first, self.second = folder / "first", folder / "second"
        self._log = folder / "driver.log"
        address = f"ipc://{folder}/out.sock"
        recording = command("record", str(self.second), "--stream", f"out=rep listen={address}")
        told = {"listen": self.into, "protocol": "rep", "topic": "in", "journal": str(self.first), "dial": address}
        told["checkpoint"] = str(folder / "checkpoint")
        self._commands = {"recorder": recording, "driver": [sys.executable, "-c", DRIVER, json.dumps(told)]}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._values: set[bytes] = set()
        self._read = 0  # end offset of `_values`

    def mend(self) -> None:
        """Start the processes that are not running."""
        for name, words in self._commands.items():
            process = self._processes.get(name)
            if process is None or process.poll() is not None:
                if process is not None:
                    kill_session(process.pid)  # a driver's Java and Python may outlive it
                with self._log.open("ab") as said:
                    self._processes[name] = subprocess.Popen(
                        words,
                        cwd=ROOT,
                        env=environment(),
                        stdin=subprocess.DEVNULL,
                        stdout=said,
                        stderr=said,
                        start_new_session=True,
                    )

    async def keep_mending(self) -> None:
        while True:
            self.mend()
            await trio.sleep(0.05)

    def kill(self, kind: str, chance: random.Random) -> bool:
        """Kill a process of that kind; return False if there was none."""
        driver = self._processes["driver"].pid
        mine = [each for each in running() if each.session == driver]
        daemons = {each.pid for each in mine if "pyspark.daemon" in each.words}
        match kind:
            case "its own recorder":
                return kill(self._own())
            case "second recorder":
                return kill(self._processes["recorder"].pid)
            case "source":
                pids = [each.pid for each in mine if "streaming_source_runner" in each.words]
            case "worker":  # forked by a daemon, with the same command line
                pids = [each.pid for each in mine if each.pid in daemons and each.parent in daemons]
            case _:
                if there := kill(driver):
                    kill_session(driver)
                return there
        return bool(pids) and kill(chance.choice(pids))

    def _own(self) -> int:
        lease = self.first.with_name(self.first.name + ".lease")
        return int(json.loads(lease.read_text())["pid"])

    def end(self) -> None:
        for process in self._processes.values():
            kill_session(process.pid)
            kill(process.pid)
            process.wait()
        with contextlib.suppress(OSError, ValueError):  # it may never have started
            if any(each.pid == self._own() and str(self.first) in each.words for each in running()):
                kill(self._own())

    def arrived(self) -> int:
        """Return the number of records in the last journal, duplicates included."""
        try:
            return open_journal(self.second).end(0)
        except NngkitError:  # the journal does not exist yet
            return 0

    def values(self) -> set[bytes]:
        """Return the values in the last journal; reads only new records."""
        end = self.arrived()
        if end > self._read:
            self._values.update(each.value for each in read(self.second, start=self._read, end=end, partition=0))
            self._read = end
        return self._values

    async def until(self, true: Callable[[], bool], what: str) -> None:
        await aeventually(true, PATIENCE, what=lambda: f"{what}: {self._log.read_text()[-2000:]}", poll=0.05)


KINDS = ("its own recorder", "second recorder", "driver", "source", "worker")


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(120 + 30 * RUNS)
async def test_no_acknowledged_record_is_lost_or_arrives_twice(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    acknowledged: set[bytes] = set()
    killed: Counter[str] = Counter()
    pipeline = Pipeline(tmp_path)
    stopping = trio.Event()

    def passed(than: int) -> Callable[[], bool]:
        return lambda: pipeline.arrived() > than

    try:
        async with trio.open_nursery() as mending, Req(dial=pipeline.into) as req:
            mending.start_soon(pipeline.keep_mending)
            async with trio.open_nursery() as asking:
                for worker in range(IN_FLIGHT):
                    asking.start_soon(ask, req, worker, acknowledged, stopping, PAUSE)
                while killed.total() < RUNS:
                    # Kill only under load: after each kill, a record must arrive again.
                    await pipeline.until(passed(pipeline.arrived()), f"nothing arrived after {dict(killed)}")
                    await trio.sleep(chance.random())
                    kind = chance.choice(KINDS)
                    killed[kind] += pipeline.kill(kind, chance)
                await pipeline.until(passed(pipeline.arrived()), "nothing arrived at the end")
                stopping.set()  # pending requests still get their replies
            await pipeline.until(lambda: acknowledged <= pipeline.values(), "not all records arrived")
            mending.cancel_scope.cancel()
    finally:
        pipeline.end()

    for journal in (pipeline.first, pipeline.second):
        assert [each for each in verify(open_journal(journal)) if each.bad] == []
    every = [record.value for record in read(pipeline.second)]
    once = [record.value for record in read(pipeline.second, distinct=True)]
    told = f"{RUNS} kills, seed {SEED} ({', '.join(f'{n} {kind}' for kind, n in sorted(killed.items()))}): "
    told += f"{len(acknowledged)} acknowledged, {len(acknowledged - set(once))} lost, "
    sys.stdout.write(told + f"{len(every) - len(once)} repeated, {len(once) - len(set(once))} doubled\n")
    assert set(once) == acknowledged
    assert len(once) == len(set(once)), "duplicates after deduplication"
