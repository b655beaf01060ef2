"""Acknowledged edits survive kill -9, a full disk and a failing disk."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from nngkit.documents.store import Store
from nngkit.errors import Broken
from tests.documents.stores import ADA, PROGRAMS, WAIT, content, edit
from tests.preloaded import Popen

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("NNGKIT_KILLS", "60"))
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def writing(path: Path, *limit: str, under: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    command = [*under, sys.executable, str(PROGRAMS / "writing.py"), str(path), *limit]
    return Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


class Ledger:
    """The acknowledged edits of a store over all its runs."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, set[str]] = {"one": set(), "two": set()}
        self.ended = ""

    def read(self, lines: str) -> None:
        for line in lines.splitlines(keepends=True):
            if line.startswith("ended"):
                self.ended = line
            elif line.endswith("\n"):
                name, epoch, seq = line.split()
                self.acknowledged[name].add(f"{epoch}:{seq}")

    def check(self, path: Path) -> None:
        with Store.open(path) as store:
            for name, acknowledged in self.acknowledged.items():
                loaded = store.load(name)
                has = content(loaded).split(";")
                assert acknowledged <= set(has)
                assert len(has) == len(set(has))
                for stream, seq in loaded.versions.items():
                    assert {f"{stream.epoch}:{number}" for number in range(1, seq + 1)} <= set(has)
                if name in store.names():
                    assert len(list(store.log(name))) == len(has) - 1
                    for saved in store.versions(name):
                        assert store.version(name, saved.name)


def kill_again_and_again(path: Path, times: int, seed: int = 0) -> None:
    ledger, chance = Ledger(), random.Random(20261104 + seed)
    for _ in range(times):
        with writing(path) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            trio.run(trio.sleep, chance.uniform(0, 0.15))  # the time of death is under test, not an event to wait for
            process.kill()
            ledger.read(first + process.stdout.read())
        ledger.check(path)
    assert all(ledger.acknowledged.values())
    assert not ledger.ended


@pytest.mark.slow
@pytest.mark.timeout(60 + KILLS)
def test_a_killed_writer_loses_no_acknowledged_edit(tmp_path: Path) -> None:
    for each in range(KILLS // 20):  # separate files: one with the data of 200 runs takes long to check
        kill_again_and_again(tmp_path / f"{each}.sqlite", 20, seed=each)


ONE_AFTER_THE_OTHER = """
import os, sys, trio
from nngkit.documents.store import Store
from tests.documents.stores import edit

async def main():
    async with Store.open(sys.argv[1]) as store:
        for seq in range(1, 51):
            await store.synced(store.append("doc", edit(seq)))
            os.write(1, b"acknowledged")

trio.run(main)
"""


@pytest.mark.slow
@pytest.mark.needs_program("strace")
def test_every_acknowledgement_follows_a_sync(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    under = ["strace", "-f", "-qq", "-y", "-o", str(trace), "-e", "trace=fsync,fdatasync,write"]
    command = [*under, sys.executable, "-c", ONE_AFTER_THE_OTHER, str(tmp_path / "docs.sqlite")]
    subprocess.run(command, check=True, timeout=WAIT * 2, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    before_each = trace.read_text().split('"acknowledged"')
    assert len(before_each) == 51
    for lines in before_each[:-1]:
        assert re.search(r"(fsync|fdatasync)(\(\d+<.*docs\.sqlite-wal>| resumed>).*\) *= 0", lines)


@pytest.mark.slow
@pytest.mark.needs_program("strace")
@pytest.mark.parametrize("after", [5, 11])
def test_nothing_is_acknowledged_after_a_failed_sync(tmp_path: Path, after: int) -> None:
    """strace counts by thread: the opening thread syncs fewer than 20 times, so only the writer gets this far."""
    path = tmp_path / "docs.sqlite"
    inject = f"inject=fsync,fdatasync:error=EIO:when={20 + after}+"
    under = ("strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", "trace=fsync,fdatasync", "-e", inject)
    ledger = Ledger()
    with writing(path, under=under) as process:
        out, _ = process.communicate(timeout=WAIT * 2)
    ledger.read(out)
    trace = (tmp_path / "trace").read_text()
    assert "(INJECTED)" in trace
    assert re.match(r"ended 17 Broken: .*docs\.sqlite: disk I/O error", ledger.ended)  # 16 that wrote, one compacted
    assert ledger.acknowledged["one"]
    ledger.check(path)


def test_file_size_limit_raises_in_all_waiters(tmp_path: Path) -> None:
    path = tmp_path / "docs.sqlite"
    ledger = Ledger()
    with writing(path, "400000") as process:
        out, _ = process.communicate(timeout=WAIT * 2)
    ledger.read(out)
    assert re.match(r"ended 17 Broken: .*docs\.sqlite: (disk I/O error|database or disk is full)", ledger.ended)
    assert ledger.acknowledged["one"]
    ledger.check(path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB, which fails when full."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


async def test_full_disk_raises_in_all_waiters_and_loses_no_acknowledged_edit(small_disk: Path) -> None:
    path = small_disk / "docs.sqlite"
    acknowledged: list[int] = []
    failed: list[str] = []
    seqs = iter(range(1, 1_000_000))

    async def write(store: Store) -> None:
        try:
            while True:
                seq = next(seqs)
                await store.synced(store.append("doc", edit(seq, update=b"x" * 2000)))
                acknowledged.append(seq)
        except Broken as error:
            failed.append(str(error))

    with trio.fail_after(WAIT):
        store = Store.open(path)
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(write, store)
        with pytest.raises(Broken, match=r"docs\.sqlite"):
            store.append("doc", edit(1))
        with pytest.raises(Broken):
            await store.room()
        with pytest.raises(Broken):
            store.load("doc")
        with pytest.raises(Broken):
            await store.aclose()
    assert len(failed) == 10
    assert {error.split(": ", 1)[1] for error in failed} == {"database or disk is full (SQLITE_FULL)"}
    assert len(acknowledged) > 50
    await trio.run_process(["mount", "-o", "remount,size=4m", str(small_disk)])
    async with Store.open(path) as store:
        loaded = store.load("doc")
        assert loaded.versions[ADA] >= max(acknowledged)
        assert len(loaded.records) == loaded.versions[ADA]
        await store.synced(store.append("doc", edit(1_000_000)))


async def test_open_on_a_full_disk_raises(small_disk: Path) -> None:
    (small_disk / "other").write_bytes(b"x" * (1 << 20))
    with pytest.raises(Broken, match=r"docs\.sqlite"):
        Store.open(small_disk / "docs.sqlite")
    (small_disk / "other").unlink()
    Store.open(small_disk / "docs.sqlite").close()
