"""Commands that run until stopped, as processes that are killed at the end of a block."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Self

from tests.cli.commands import ROOT, WAIT, command, environment
from tests.preloaded import Popen


def listens(path: str) -> bool:
    """Return True if there is a listener at that ipc path."""
    with socket.socket(socket.AF_UNIX) as stream:
        try:
            stream.connect(path)
        except OSError:
            return False
    return True


class Running:
    """`nngkit ...` under test: its output and diagnostics by lines, with bounded waits."""

    def __init__(self, *arguments: str, stdout: int = subprocess.PIPE, **variables: str) -> None:
        self.process = Popen(
            command(*arguments),
            cwd=ROOT,
            env=environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )
        self._unread: dict[int, bytes] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def line(self, timeout: float = WAIT) -> str:
        """Return the next line of stdout."""
        assert self.process.stdout is not None
        return self._line(self.process.stdout.fileno(), timeout)

    def says(self, timeout: float = WAIT) -> str:
        """Return the next line of stderr."""
        assert self.process.stderr is not None
        return self._line(self.process.stderr.fileno(), timeout)

    def addresses(self) -> list[str]:
        """Return the address in its first line of stderr."""
        return re.findall(r"listens at ([^\s,;]+)", self.says())

    def end(self, number: int = signal.SIGINT) -> int:
        """Stop it and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(WAIT)

    def rest(self) -> tuple[str, str]:
        """Return the rest of stdout and stderr after its end."""
        found = []
        for stream in (self.process.stdout, self.process.stderr):
            text = b"" if stream is None else self._unread.pop(stream.fileno(), b"") + stream.read()
            found.append(text.decode())
        return found[0], found[1]

    def _line(self, fd: int, timeout: float) -> str:
        deadline, unread = time.monotonic() + timeout, self._unread.get(fd, b"")
        while b"\n" not in unread:
            readable, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"no line in {timeout} s, only {unread!r}"
            more = os.read(fd, 65536)
            assert more, f"ended with {self.process.wait(WAIT)}, last words {unread!r}, {self.rest()}"
            unread += more
        line, _, self._unread[fd] = unread.partition(b"\n")
        return line.decode()


@contextmanager
def unread() -> Iterator[tuple[int, Callable[[], bytes]]]:
    """Return the write end of a full pipe, for a command's output, and a function that reads the output."""
    reading, writing = os.pipe()
    filled = 0
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            filled += os.write(writing, b"." * 4096)
    os.set_blocking(writing, True)

    def read() -> bytes:
        nonlocal writing
        os.close(writing)
        writing = -1
        return b"".join(iter(lambda: os.read(reading, 65536), b""))[filled:]

    try:
        yield writing, read
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)
