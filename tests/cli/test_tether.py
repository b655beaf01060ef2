"""Programs that --exec has started die with their command, also if it is killed; what ended before is left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import pytest

from nngkit.testing import eventually
from tests.cli.commands import ROOT, environment

TREE = """\
trap '' TERM HUP
echo $$ >> pids
(trap '' TERM HUP; sh -c 'echo $$ >> pids; read line; sleep 60' | cat) &
setsid sh -c 'echo $$ >> pids; exec sleep 60' &
wait
"""
WAYS = {
    "a command for each": "await run_shell(script, b'', shell_environment(), 60)",
    "its output is captured": "await run_shell(script, b'', shell_environment(), 60, most=100)",
    "line workers": """
        async with LineWorkers(script, shell_environment(), timeout=60, limit=100) as workers: await workers.run(b'x')
    """,
    "replies of cat": """
        from types import SimpleNamespace
        from nngkit.cli.cat.exec_command import answer_by
        answer_by(script, 'rep', print)(SimpleNamespace(pipe=None, body=b''))
    """,
}


def _program(way: str) -> str:
    return dedent(
        f"""
        import sys, trio
        from nngkit.cli.streams.line_workers import LineWorkers
        from nngkit.cli.streams.shell import run_shell, shell_environment

        async def main():
            script = sys.argv[1]
            {dedent(WAYS[way]).strip().replace(chr(10), chr(10) + " " * 12)}

        trio.run(main)
        """
    )


@contextmanager
def program(way: str, script: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", _program(way), script],
        cwd=folder,
        env=environment(PYTHONPATH=str(ROOT)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("way", WAYS)
def test_what_was_started_dies_with_a_process_that_is_killed(way: str, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with program(way, TREE, tmp_path) as process:
        eventually(lambda: pids.exists() and len(pids.read_text().split()) == 3, timeout=10.0)
        tree = [int(pid) for pid in pids.read_text().split()]
        assert all(map(_lives, tree))
        process.kill()
        eventually(lambda: not any(map(_lives, tree)), timeout=10.0)


def test_what_an_ended_command_has_left_behind_goes_on(tmp_path: Path) -> None:
    way, script = "its output is captured", "sh -c 'echo $$ > left; exec sleep 60' >&- 2>&- & sleep 0.1"
    with program(way, script, tmp_path) as process:
        assert process.wait(10.0) == 0
        left = int((tmp_path / "left").read_text())
        assert _lives(left)
        os.kill(left, 9)
