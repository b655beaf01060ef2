"""Other programs as peers: nngcat (NNG's) and nanocat (nanomsg's), each run bounded in time and killed by pid.

::

    with place("tcp", sockets) as address, Program("nanocat", "--pull", "--bind", address, "--quoted") as program:
        push.send(b"x")
        assert program.line() == '"x"'

Both understand --bind, --connect, --data, --quoted, --subscribe and --interval.
"""

import contextlib
import os
import select
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from nngkit.testing import Wire
from tests.protocols.wires import WAIT

PACKAGES = {"nngcat": "nng-utils", "nanocat": "nanomsg-utils"}
# Seconds between messages of a program that repeats them, which makes the start-up order irrelevant: a publisher that
# listens would send once, before any peer is connected. nngcat accepts whole seconds only.
INTERVAL = {"nngcat": "1", "nanocat": "0.2"}


def needed(program: str) -> pytest.MarkDecorator:
    """Return the mark that skips a test if ``program`` is missing."""
    return pytest.mark.needs_program(program, package=PACKAGES[program])


class Program:
    """One run of ``name``. Leaving the block kills it."""

    def __init__(self, name: str, *arguments: str) -> None:
        self.name = name
        self.command = [name, *arguments]
        self._process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        self._unread = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def line(self, timeout: float = WAIT) -> str:
        """Return the next line it prints, without its end.

        Raises AssertionError, with the output so far, if none comes.
        """
        deadline = time.monotonic() + timeout
        while b"\n" not in self._unread:
            left = max(0.0, deadline - time.monotonic())
            readable, _, _ = select.select([self._output], [], [], left)
            assert readable, f"{self.command} printed no line in {timeout} s, only {self._unread!r}"
            more = os.read(self._output, 65536)
            assert more, f"{self.command} ended: {self.ended()}, last words {self._unread!r}"
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def ended(self, timeout: float = WAIT) -> int:
        """Return its exit code, once it has ended by itself."""
        return self._process.wait(timeout)


def own_place(transport: str, folder: Path) -> str:
    """Return an address for us to listen at."""
    return Wire("ipc", folder).address() if transport == "ipc" else f"{transport}://127.0.0.1:0"


@contextlib.contextmanager
def place(transport: str, folder: Path) -> Iterator[str]:
    """Yield an address for a program to listen at; no other socket gets its port during the block.

    nanocat refuses port 0. So the kernel picks the port for a socket of ours that is bound and never listens. With
    SO_REUSEADDR on both (both programs set it) Linux lets the program listen there, and gives the port to no other
    socket.
    """
    if transport == "ipc":
        yield own_place(transport, folder)
        return
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield f"{transport}://127.0.0.1:{holder.getsockname()[1]}"
