"""kill -9 at random times: acknowledged edits are on disk, and reach other peers."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from nngkit.documents import DocumentPeer
from tests.preloaded import Popen

PROGRAM = Path(__file__).parent / "programs" / "editing.py"
PATIENCE = 30.0


async def kill_again_and_again(store: Path, times: int, seed: int) -> int:
    """Return the number of acknowledged edits, after checking that none is missing."""
    chance = random.Random(seed)
    acknowledged: set[str] = set()
    async with DocumentPeer(listen="tcp://127.0.0.1:0") as other:
        doc = other.open("minutes")
        for _ in range(times):
            command = [sys.executable, str(PROGRAM), str(store), other.address]
            process = Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            try:
                assert process.stdout is not None
                with trio.fail_after(PATIENCE):
                    line = await trio.to_thread.run_sync(process.stdout.readline)
                await trio.sleep(chance.uniform(0.0, 0.3))
            finally:
                process.kill()
                rest = await trio.to_thread.run_sync(process.stdout.read)  # type: ignore[union-attr]
                await trio.to_thread.run_sync(process.wait)
                process.stdout.close()  # type: ignore[union-attr]
            said = (line + rest).decode()
            acknowledged |= {mark for mark in said.split("\n")[:-1] if mark}
        async with DocumentPeer(dial=other.address, store=store) as again:
            kept = again.open("minutes")
            assert acknowledged <= set(str(kept.text("body")).split(";")), "what was acknowledged is not on the disk"
            with trio.fail_after(PATIENCE):
                while kept.digest() != doc.digest():  # noqa: ASYNC110
                    await trio.sleep(0.01)
        marks = str(doc.text("body")).split(";")[:-1]
        assert len(marks) == len(set(marks)), "an edit came twice"
        assert acknowledged <= set(marks)
    return len(acknowledged)


@pytest.mark.slow
async def test_kill_9_loses_no_acknowledged_edit(tmp_path: Path) -> None:
    assert await kill_again_and_again(tmp_path / "docs.sqlite", 8, seed=1) > 8


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(8))
async def test_kill_9_loses_no_acknowledged_edit_200_times(tmp_path: Path, seed: int) -> None:
    assert await kill_again_and_again(tmp_path / "docs.sqlite", 25, seed) > 25
