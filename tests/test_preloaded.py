"""`preloaded.Popen` starts the same programs as `subprocess.Popen`, with the same arguments, descriptors and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import preloaded

pytestmark = pytest.mark.slow  # programs of seconds; CI runs them

SHOW = """
import json, os, sys, threading
print(json.dumps({
    "argv": sys.argv, "folder": os.getcwd(), "path": sys.path[0], "variable": os.environ.get("GIVEN"),
    "name": __name__, "parent": os.getppid() == int(sys.argv[1]), "session": os.getsid(0) == os.getpid(),
    "read": sys.stdin.read(), "thread": threading.current_thread().name, "tty": [os.isatty(fd) for fd in (0, 1, 2)],
    "encoding": [sys.stdout.encoding, sys.stdout.errors, sys.stderr.errors, sys.stdout.line_buffering],
    "descriptors": sorted(os.listdir("/proc/self/fd"))[:3],
}, sort_keys=True))
print("to stderr", file=sys.stderr)
sys.exit(7)
"""
WAIT = 30


@pytest.fixture
def show(tmp_path: Path) -> list[str]:
    path = tmp_path / "show.py"
    path.write_text(SHOW)
    return [sys.executable, str(path), str(os.getpid()), "an argument"]


@pytest.mark.parametrize("session", [False, True])
def test_a_program_finds_the_same(show: list[str], tmp_path: Path, session: bool) -> None:
    found = []
    kinds: list[Any] = [subprocess.Popen, preloaded.Popen]
    for start in kinds:
        given: dict[str, Any] = {"cwd": tmp_path, "env": {**os.environ, "GIVEN": "1"}, "start_new_session": session}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with start(show, text=True, **given, **pipes) as process:
            found.append((process.communicate("to stdin", WAIT), process.returncode))
    assert found[0] == found[1]
    assert found[0][1] == 7


def test_the_interpreters_settings_are_respected(show: list[str]) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = preloaded.run(show, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=WAIT)
    assert b'"latin-1"' in done.stdout.replace(b"iso8859-1", b"latin-1")


def test_a_program_takes_signals_and_is_reaped(tmp_path: Path) -> None:
    (path := tmp_path / "wait.py").write_text("import time\nprint('waits', flush=True)\ntime.sleep(60)\n")
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
        with preloaded.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"waits\n"
            process.send_signal(number)
            assert process.wait(WAIT) == -number
        with pytest.raises(ChildProcessError):
            os.waitpid(process.pid, 0)


def test_passed_descriptors_keep_their_numbers(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    (path := tmp_path / "write.py").write_text("import os, sys\nos.write(int(sys.argv[1]), b'here')\n")
    try:
        with preloaded.Popen([sys.executable, str(path), str(writing)], pass_fds=[writing]) as process:
            assert process.wait(WAIT) == 0
    finally:
        os.close(writing)
    with open(reading, "rb") as file:
        assert file.read() == b"here"
