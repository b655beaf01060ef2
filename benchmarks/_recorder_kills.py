"""A recorder killed while it seals, and `nngkit journal compact` killed while it merges. See kills.py.

The load, the kills and the audit are those of tests/journal/test_killed.py. Each measurement has a journal of its own.
"""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import trio

from _child import fail, report

sys.path.insert(0, str(Path(__file__).parent.parent))  # load and audit are the tests'
from tests.journal.recorder_kills import Audit, Killed, Load, audit, load

TRIES = 10  # recorders beyond those that kills need, at most: a compaction may end before its kill
TOGETHER = 5  # kills of compactions between two recorders

Work = Callable[[Killed, Load, random.Random], Awaitable[tuple[int, int]]]


def sealing(task: dict[str, Any]) -> None:
    """Kill a recorder so many times, each time once it has sealed a log."""

    async def work(killed: Killed, flow: Load, chance: random.Random) -> tuple[int, int]:
        kills = midway = 0
        for _ in range(task["kills"]):
            code = await killed.kill_recorder(flow, chance)
            if code != -signal.SIGKILL:
                fail(f"the recorder ended by itself, with exit code {code}")
            kills, midway = kills + 1, midway + killed.unfinished()
        return kills, midway

    _measured(task, work)


def merging(task: dict[str, Any]) -> None:
    """Kill a compaction so many times once it has begun to write. Kills of the recorders between do not count."""

    async def work(killed: Killed, flow: Load, chance: random.Random) -> tuple[int, int]:
        kills = midway = 0
        for _ in range(TRIES + task["kills"]):
            if kills == task["kills"]:
                break
            await killed.kill_recorder(flow, chance)  # it has sealed more segments, which can be merged
            for _ in range(min(TOGETHER, task["kills"] - kills)):
                before = killed.unlisted()
                if not await killed.kill_compaction(chance.random()):
                    break
                kills, midway = kills + 1, midway + bool(killed.unlisted() - before)
        return kills, midway

    _measured(task, work)


def _measured(task: dict[str, Any], work: Work) -> None:
    """Run `work` under load, let a last recorder end in order, and report the audit. Keep a journal that is wrong."""
    folder = Path(tempfile.mkdtemp(prefix="kills"))
    killed = Killed(folder)

    async def run() -> tuple[tuple[int, int], Load]:
        with trio.fail_after(task["seconds"]):
            async with load(killed) as flow:
                done = await work(killed, flow, random.Random(task["seed"]))
                last = await killed.last(flow)
            last.send_signal(signal.SIGTERM)
            try:
                code = await trio.to_thread.run_sync(last.wait, 120)
            finally:
                last.kill()
        if code != 128 + signal.SIGTERM:
            fail(f"the last recorder ended with exit code {code}")
        return done, flow

    (kills, midway), flow = trio.run(run)
    found = audit(killed.journal, flow)
    if _told(found):
        sys.stderr.write(f"the journal is kept in {folder}\n")
    else:
        shutil.rmtree(folder)
    report(
        kills=kills,
        midway=midway,
        records=found.acknowledged,
        repeated=found.repeated,
        lost=found.lost,
        doubled=found.doubled,
        wrong=len(found.wrong),
    )


def _told(found: Audit) -> bool:
    """Write what is wrong to stderr; return True if anything is."""
    sys.stderr.writelines(f"{each}\n" for each in found.wrong)
    return bool(found.wrong or found.lost or found.doubled)
