"""Worker processes of `nngkit serve --lines`: lines in and out, and every way in which a worker fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from nngkit.cli.streams.line_workers import LineWorkers, WorkerFailed
from nngkit.cli.streams.shell import shell_environment


def workers(script: str, timeout: float = 10, limit: int = 100) -> LineWorkers:
    return LineWorkers(script, shell_environment(), timeout=timeout, limit=limit)


async def test_a_worker_answers_line_after_line() -> None:
    async with workers('n=0; while read -r x; do n=$((n+1)); echo "$n $x"; done') as pool:
        assert [await pool.run(line) for line in (b"a", b"", b"c\r")] == [b"1 a", b"2 ", b"3 c"]
        assert pool.started == 1


async def test_workers_run_at_once() -> None:
    replies: list[bytes] = []
    async with workers("while read -r x; do echo $$; done") as pool, trio.open_nursery() as nursery:

        async def one() -> None:
            replies.append(await pool.run(b""))

        for _ in range(3):
            nursery.start_soon(one)
    assert len(set(replies)) == pool.started == 3


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("exit 3", "exit code 3 instead of a line"),
        ("read x; kill -9 $$", "ended by signal 9 instead of a line"),
        ("sleep 9", "killed: it took too long"),
        ("read x; printf 'a\\nb\\n'; sleep 9", "killed: it wrote more than one line"),
        ("yes | tr -d '\\n'", "killed: its line is longer than 100 bytes"),
    ],
)
async def test_a_worker_that_fails_is_replaced(script: str, says: str, tmp_path: Path) -> None:
    mark = tmp_path / "first"
    async with workers(f"if mkdir {mark} 2>/dev/null; then {script}; else cat; fi", timeout=0.5) as pool:
        with pytest.raises(WorkerFailed, match=says):
            await pool.run(b"x")
        assert await pool.run(b"again") == b"again"
        assert pool.started == 2


async def test_lines_without_a_request_answer_no_call(tmp_path: Path) -> None:
    late = tmp_path / "late"
    os.mkfifo(late)
    script = f"read x; echo reply; cat {late}; echo done > {late}; cat"
    async with workers(script) as pool:
        assert await pool.run(b"x") == b"reply"
        await trio.to_thread.run_sync(late.write_text, "unasked\n")
        assert await trio.to_thread.run_sync(late.read_text) == "done\n"  # it has written the line
        late.unlink()
        assert await pool.run(b"y") == b"reply"  # of another worker
        assert pool.started == 2


async def test_a_cancelled_line_kills_its_worker() -> None:
    async with workers("sleep 9") as pool:
        with trio.move_on_after(0.05):
            await pool.run(b"x")
        with pytest.raises(WorkerFailed, match="several lines"):
            await pool.run(b"a\nb")
