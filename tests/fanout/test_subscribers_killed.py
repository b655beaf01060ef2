"""Processes that subscribe and are slow, paused, killed, cut off: received and reported add up to what was sent."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nngkit.fanout import Publisher
from nngkit.testing import aeventually, eventually
from tests.cli.commands import ROOT, environment
from tests.fanout.subscribing import publish
from tests.hosts import Hosts, hosts  # noqa: F401 - a fixture

Start = Callable[..., "subprocess.Popen[bytes]"]
SECONDS = 25.0


def argv(url: str, log: Path, *, pause: float = 0.0, high_water: int = 100_000) -> list[str]:
    return [sys.executable, "-m", "tests.fanout.subscribing", "subscribe", url, str(log), str(pause), str(high_water)]


@contextmanager
def processes() -> Iterator[Start]:
    """Start subscribers that end with the block."""
    started: list[subprocess.Popen[bytes]] = []

    def start(arguments: list[str]) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(arguments, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL))
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            process.kill()
            process.wait(10)


def runs(log: Path) -> list[tuple[str, int, int]]:
    """Return (word, first, last); a killed process may have torn its last line."""
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return [(word, int(first), int(last)) for word, first, last in map(str.split, lines)]


def check(log: Path, sent: int) -> dict[str, int]:
    """Check that from the first number on, each is in one run, and return the counts by word."""
    found = runs(log)
    counts = dict.fromkeys(("got", "gap"), 0)
    due = found[0][1]
    for word, first, last in found:
        assert first == due, f"{log.name}: {word} {first} to {last} instead of {due}"
        counts[word] += last - first + 1
        due = last + 1
    assert due == sent + 1
    assert sum(counts.values()) == sent - found[0][1] + 1
    return counts


def last(log: Path) -> int:
    found = runs(log)
    return found[-1][2] if found else 0


@pytest.mark.slow
@pytest.mark.alone
async def test_slow_paused_and_killed_subscribers_know_what_they_missed(tmp_path: Path) -> None:
    logs = {name: tmp_path / name for name in ("good", "slow", "paused", "killed", "again")}
    with processes() as start:
        async with Publisher("tcp://127.0.0.1:0", heartbeat=0.1, send_buffer=1000) as publisher:
            url = publisher.address
            start(argv(url, logs["good"]))
            start(argv(url, logs["slow"], pause=0.05, high_water=700))
            paused, killed = (start(argv(url, logs[name], high_water=2000)) for name in ("paused", "killed"))
            await publisher.wait_for_peers(4, SECONDS)
            await publish(publisher, 2000, 10_000)
            await aeventually(lambda: min(last(logs[name]) for name in ("paused", "killed")) > 0, SECONDS)
            paused.send_signal(signal.SIGSTOP)
            killed.kill()
            before = {each.id for each in publisher.subscribers()}
            start(argv(url, logs["again"], high_water=2000))
            await aeventually(lambda: {each.id for each in publisher.subscribers()} - before, SECONDS)
            await publish(publisher, 20_000, 20_000)
            paused.send_signal(signal.SIGCONT)
            await publish(publisher, 2000, 10_000)
            rest = [logs[name] for name in logs if name != "killed"]
            await aeventually(lambda: all(last(log) == publisher.number for log in rest), SECONDS)
            counts = {log.name: check(log, publisher.number) for log in rest}
            assert counts["good"]["gap"] == 0
            assert counts["slow"]["gap"] > 0
            assert counts["paused"]["gap"] > 0
            check(logs["killed"], last(logs["killed"]))  # up to its end


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_subscribers_behind_a_link_that_is_cut(seed: int, hosts: Hosts, tmp_path: Path) -> None:  # noqa: F811
    chance = random.Random(seed)
    here, there = hosts.add("here"), hosts.add("there")
    hosts.link("here", "there")
    logs, url = [tmp_path / "one", tmp_path / "two"], f"tcp://{here.address}:7000"
    options = {"cwd": ROOT, "env": environment(), "text": True}
    words = [sys.executable, "-m", "tests.fanout.subscribing", "publish", url]
    publisher = here.popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
    for log in logs:
        there.popen(argv(url, log), stdin=subprocess.DEVNULL, **options)
    assert publisher.stdin is not None
    assert publisher.stdout is not None

    def published(count: int, rate: int) -> tuple[int, int]:
        publisher.stdin.write(f"{count} {rate}\n")  # type: ignore[union-attr]
        publisher.stdin.flush()  # type: ignore[union-attr]
        number, peers = map(int, publisher.stdout.readline().split())  # type: ignore[union-attr]
        return number, peers

    eventually(lambda: published(50, 5000)[1] == 2, SECONDS)
    for _ in range(3):
        hosts.cut("here", "there", how=chance.choice(["dropped", "unplugged"]))
        published(chance.randrange(2000, 40_000), 40_000)
        hosts.heal("here", "there")
        published(1000, 5000)
    eventually(lambda: all(last(log) == sent for sent in (published(50, 5000)[0],) for log in logs), SECONDS)
    for log in logs:
        check(log, last(log))
