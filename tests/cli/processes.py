"""Commands that run until stopped, as processes that are killed at the end of a block."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.cli.commands import ROOT, WAIT, command, environment
from tests.preloaded import Popen
from tests.protocols.programs import Program


def listens(path: str) -> bool:
    """Return True if there is a listener at that ipc path."""
    with socket.socket(socket.AF_UNIX) as stream:
        try:
            stream.connect(path)
        except OSError:
            return False
    return True


class Running(Program):
    """`nngkit ...` under test, with its diagnostics apart."""

    def __init__(self, *arguments: str, stdout: int = subprocess.PIPE, **variables: str) -> None:
        self.process = Popen(
            command(*arguments),
            cwd=ROOT,
            env=environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )
        self.unread = {}

    def says(self, timeout: float = WAIT) -> str:
        """Return the next line of stderr."""
        return self.line_of(self.process.stderr, timeout)

    def addresses(self) -> list[str]:
        """Return the address in its first line of stderr."""
        return re.findall(r"listens at ([^\s,;]+)", self.says())

    def end(self, number: int = signal.SIGINT) -> int:
        """Stop it and return its exit code."""
        self.process.send_signal(number)
        return self.ended()


@contextmanager
def running(*arguments: str, stdin: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[bytes]]:
    """Run `nngkit ARGUMENTS` by exec until the block ends; its output is bytes."""
    output = subprocess.PIPE
    with subprocess.Popen(
        command(*arguments), cwd=ROOT, env=environment(), stdin=stdin, stdout=output, stderr=output
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[bytes], data: bytes | None = None) -> tuple[bytes, str, int]:
    out, err = process.communicate(data, timeout=WAIT)
    return out, err.decode(), process.returncode


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
