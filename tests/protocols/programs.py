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
from typing import IO, Self

import pytest

from nngkit.testing import Wire

WAIT = 30.0  # seconds for a line or an end: a busy machine takes some to start a command
PACKAGES = {"nngcat": "nng-utils", "nanocat": "nanomsg-utils"}
# Seconds between messages of a program that repeats them, which makes the start-up order irrelevant: a publisher that
# listens would send once, before any peer is connected. nngcat accepts whole seconds only.
INTERVAL = {"nngcat": "1", "nanocat": "0.2"}
# A survey of nngcat's ends after 1 s. Another begun at that moment stops NNG 1.5.2, one time in fifty: it holds the
# socket's lock and waits for the old survey's timer, which waits for the lock.
BETWEEN_SURVEYS = INTERVAL | {"nngcat": "2"}


def needed(program: str) -> pytest.MarkDecorator:
    """Return the mark that skips a test if ``program`` is missing."""
    return pytest.mark.needs_program(program, package=PACKAGES[program])


class Program:
    """One run of ``name``: its output by lines, with bounded waits. Leaving the block kills it."""

    def __init__(self, name: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [name, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.unread: dict[int, bytes] = {}  # by descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def line(self, timeout: float = WAIT) -> str:
        """Return the next line it prints, without its end.

        Raises AssertionError, with the output so far, if none comes.
        """
        return self.line_of(self.process.stdout, timeout)

    def line_of(self, stream: IO[bytes] | None, timeout: float) -> str:
        """Return the next line of a stream."""
        assert stream is not None
        deadline, unread = time.monotonic() + timeout, self.unread.get(stream.fileno(), b"")
        while b"\n" not in unread:
            readable, _, _ = select.select([stream], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"{self.process.args!r} printed no line in {timeout} s, only {unread!r}"
            more = os.read(stream.fileno(), 65536)
            assert more, f"{self.process.args!r} ended: {self.ended()}, last words {unread!r}, {self.rest()}"
            unread += more
        line, _, self.unread[stream.fileno()] = unread.partition(b"\n")
        return line.decode()

    def rest(self) -> tuple[str, str]:
        """Return the rest of stdout and stderr after its end."""
        found = []
        for stream in (self.process.stdout, self.process.stderr):
            text = b"" if stream is None else self.unread.pop(stream.fileno(), b"") + stream.read()
            found.append(text.decode())
        return found[0], found[1]

    def ended(self, timeout: float = WAIT) -> int:
        """Return its exit code, once it has ended by itself."""
        return self.process.wait(timeout)


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
