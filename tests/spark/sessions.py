"""Processes by their session, and kills of all of one: a Spark driver has its Java and its Python workers in its own.

Shared by test_killed.py and benchmarks/kills.py, so it needs only what benchmarks have installed.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import NamedTuple

__all__ = ["Process", "kill", "kill_session", "running"]


class Process(NamedTuple):
    """Running process, from /proc."""

    pid: int
    parent: int
    session: int
    words: str


def running() -> list[Process]:
    """Return the processes of this machine that have not ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            state, parent, _group, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if state != "Z":
                found.append(Process(int(folder.name), int(parent), int(session), words))
    return found


def kill(pid: int) -> bool:
    """Send SIGKILL; return False if there is no such process."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def kill_session(session: int) -> None:
    """Send SIGKILL to all processes of a session, which may outlive its first one."""
    for each in running():
        if each.session == session:
            kill(each.pid)
