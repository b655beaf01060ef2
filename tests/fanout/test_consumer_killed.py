"""Server and consumers are killed under load: acknowledged records stay so, the others come again in time.

4 kills; set NNGKIT_KILLS=200 for more.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from nngkit.fanout import Consumer
from nngkit.journal import Recorder
from tests.cli.commands import ROOT, environment

KILLS = int(os.environ.get("NNGKIT_KILLS", "4"))
ACK_WAIT = 0.5
READ_AHEAD = 1.0  # seconds that a record may be in a consumer that has read ahead, while another acknowledges it
SLACK = 3.0  # seconds for a loaded machine, and for a server that was just killed


class Process:
    """Server or consumer, restarted after each kill."""

    def __init__(self, *arguments: str) -> None:
        self._argv = [sys.executable, "-m", "tests.fanout.killable", *arguments]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._argv, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)


@contextmanager
def running(folder: Path) -> Iterator[tuple[list[Process], list[Path], str]]:
    url = f"ipc://{folder}/server.sock"
    logs = [folder / "one.log", folder / "two.log", folder / "server.log"]
    processes = [Process("server", str(folder / "journal"), url, str(folder / "state"), str(logs[-1]))]
    try:
        processes += [Process("consumer", url, str(log), str(ACK_WAIT)) for log in logs[:2]]
        yield processes, logs, url
    finally:
        for process in processes:
            process.kill()


def size_of(logs: list[Path]) -> int:
    """Return the bytes that the consumers have written."""
    return sum(log.stat().st_size for log in logs[:2] if log.exists())


def events(logs: list[Path]) -> list[tuple[float, str, int]]:
    """Return (time, word, offset) of all processes; a killed one may have torn its last line."""
    found = []
    for log in logs:
        for line in log.read_text().splitlines() if log.exists() else ():
            match line.split():
                case [("got" | "ack" | "up") as word, offset, at] if at.count(".") == 1:
                    found.append((float(at), word, int(offset)))
    return sorted(found)


@pytest.mark.slow
@pytest.mark.timeout(60 + 5 * KILLS)
async def test_kills_lose_no_ack_and_redelivery_is_in_time(tmp_path: Path) -> None:
    chance = random.Random(16)
    async with Recorder(tmp_path / "journal") as recorder:
        await recorder.store([b"first"], topic="t", protocol="test")
        with running(tmp_path) as (processes, logs, url):
            recorded, kills = 1, list[float]()
            for _ in range(KILLS):
                before, steps = size_of(logs), chance.randrange(1, 20)
                with trio.fail_after(20):
                    while steps > 0 or size_of(logs) == before:  # until records were delivered
                        await recorder.store([b"x"] * 4, topic="t", protocol="test")
                        recorded += 4
                        steps -= size_of(logs) > before
                        await trio.sleep(0.02)
                victim = chance.choice(processes)
                kills.append(time.monotonic())
                await trio.to_thread.run_sync(victim.kill)
                victim.start()
            with trio.fail_after(20):
                async with Consumer("killed", url, timeout=None) as consumer:
                    while True:
                        (info,) = await consumer.info()
                        if info.floor == recorded and not info.pending:
                            break
                        await trio.sleep(0.05)  # nothing announces it
    seen = events(logs)
    got = {offset for _, word, offset in seen if word == "got"}
    assert got == set(range(recorded))
    confirmed: dict[int, float] = {}
    for at, word, offset in seen:
        if word == "ack":
            confirmed[offset] = min(at, confirmed.get(offset, at))
    after = [at - confirmed[offset] for at, word, offset in seen if word == "got" and offset in confirmed]
    waits = redelivery_waits(seen, kills)
    assert waits
    sys.stdout.write(
        f"{KILLS} kills, {recorded} records, {len(waits)} redeliveries after "
        f"{statistics.median(waits):.2f} s (median) to {max(waits):.2f} s without the time that a process was down, "
        f"{sum(each > 0 for each in after)} deliveries seen after their ack, by {max(after):.3f} s at most\n"
    )
    assert max(after) < READ_AHEAD
    assert max(waits) < ACK_WAIT + SLACK


def redelivery_waits(seen: list[tuple[float, str, int]], kills: list[float]) -> list[float]:
    """Return the seconds between a delivery that was not acknowledged and the next one.

    After a kill, the wait begins again when the process is up.
    """
    ups = [at for at, word, _ in seen if word == "up"]
    up = [(kill, next((at for at in ups if at > kill), kill)) for kill in kills]
    last: dict[int, float] = {}
    waits = []
    for at, word, offset in seen:
        if word == "ack":
            last.pop(offset, None)
        elif word == "got":
            if offset in last:
                begun = max([last[offset], *(min(at, back) for kill, back in up if last[offset] < kill < at)])
                waits.append(at - begun)
            last[offset] = at
    return waits
