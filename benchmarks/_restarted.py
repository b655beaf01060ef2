"""Processes that a fault run starts, kills and starts again, and ports that survive them."""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from _contenders import HERE

WAIT = 60.0  # seconds for any one event


@contextmanager
def _process(task: dict[str, Any], function: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """Run `function`, "module:name", in a process; `namespace`: in that host."""
    words = [sys.executable, str(HERE / "_child.py"), function, json.dumps({**task, **more})]
    if namespace := more.get("namespace"):
        words = ["ip", "netns", "exec", namespace, *words]  # replaces itself: the pid is the program's
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    list_process(task, process.pid)
    try:
        yield process
    finally:
        process.kill()
        process.wait(WAIT)
        assert process.stdout is not None
        process.stdout.close()


def list_process(task: dict[str, Any], pid: int) -> None:
    """Add a process to those of the measurement."""
    with open(task["processes"], "a") as listed:
        listed.write(f"{pid}\n")


def said(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"{process.args}: ended early")  # contexts end the others
    told: dict[str, Any] = json.loads(line)
    return told


class Restarted:
    """A process that is killed and started again."""

    def __init__(self, task: dict[str, Any], function: str, **more: Any) -> None:
        self._make = lambda: _process(task, function, **more)
        self._context: Any = None
        self.process: subprocess.Popen[str]

    def start(self) -> dict[str, Any]:
        """Start it, and return the line it prints when it is ready."""
        self._context = self._make()
        self.process = self._context.__enter__()
        return said(self.process)

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        if self._context is not None:
            self.process.send_signal(signal.SIGKILL)
            self._context.__exit__(None, None, None)
            self._context = None


def ports(count: int) -> list[str]:
    """Return free addresses below those that the system gives to others meanwhile, for processes started again."""
    found: dict[str, None] = {}
    while len(found) < count:
        port = random.SystemRandom().randrange(12_000, 30_000)
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            found[f"tcp://127.0.0.1:{port}"] = None
    return list(found)
