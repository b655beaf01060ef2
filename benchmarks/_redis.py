"""A Redis server for a measurement, on a free port of the loopback, without persistence: Debian's `redis-server`."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from _tied import TIED

from _child import fail
from _contenders import BOUND


def server() -> str | None:
    """Return the path of the program; None if it is not installed."""
    # Debian installs it in /usr/bin, some others outside a normal user's PATH
    return shutil.which("redis-server", path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/bin")


@contextmanager
def redis() -> Iterator[tuple[int, int]]:
    """Run a server; yield its port and process id."""
    program = server()
    assert program is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # nothing is written to disk: what is measured is the passing of jobs, as with nngkit's voters without a store
    options = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"]
    null = subprocess.DEVNULL
    process = subprocess.Popen([*TIED, program, *options], stdout=null, stderr=null)
    try:
        _wait(process, port)
        yield port, process.pid
    finally:
        process.kill()
        process.wait(BOUND)


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + BOUND
    while time.monotonic() < end:
        if process.poll() is not None:
            fail(f"redis-server ended early with exit code {process.returncode}")
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), BOUND) as link:
            link.sendall(b"PING\r\n")
            if link.recv(64).startswith(b"+PONG"):
                return
        time.sleep(0.01)
    fail("redis-server does not answer")
