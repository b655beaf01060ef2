"""Faults of `faults.py`, each brought upon a running process, and ended.

==================  ===================================================================================================
SIGKILL, SIGSTOP    the signals
ENOSPC              its folder is a small tmpfs in a mount namespace of the cell, filled to the last byte; without root
                    the error comes as EIO does
EIO                 the kernel fails its writes and syncs there: `_fault_syscalls`
clock               its calls for the wall clock go to `_fault_clock.c`, preloaded, which adds an offset that jumps; the
                    monotonic clock goes on, and so do times of files
out of descriptors  its limit is set to the lowest free number, again and again; strangers connect to its listeners, or
                    its peers are killed, and it has to dial again. Afterwards each listener greets a new connection
memory limit        its address space is limited to what it has; senders add 256 KiB to each message
==================  ===================================================================================================
"""

from __future__ import annotations

import functools
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from _fault_syscalls import unavailable

from _contenders import clock

SPACE: Final = 32 << 20  # bytes of the small file system: more than a cell writes
DAY: Final = 86_400  # seconds
STRANGERS: Final = 20
GREETS: Final = 5.0  # seconds within which a listener greets a new connection, after the fault
SP: Final = b"\0SP\0"


def missing(fault: str) -> str | None:
    """Return why a fault cannot be brought about on this machine; None if it can."""
    if fault.startswith("clock"):
        return None if clock() else "no C compiler"
    return unavailable() if fault == "EIO" or (fault == "ENOSPC" and not can_mount()) else None


@functools.cache
def can_mount() -> bool:
    """Return True if a process may have a mount namespace of its own, and mount a file system there."""
    if os.geteuid() != 0 or (unshare := shutil.which("unshare")) is None:
        return False
    words = [unshare, "--mount", "mount", "-t", "tmpfs", "tmpfs", tempfile.gettempdir()]
    return subprocess.run(words, check=False, capture_output=True, timeout=10.0).returncode == 0


class Fault:
    """A fault, of which nothing is prepared, and that is over when it has happened: SIGKILL."""

    lasts = 0.0  # seconds

    def __init__(self, folder: Path, role: str, name: str) -> None:
        self.folder, self.role, self.name = folder, role, name
        self.data = folder / "data" / role

    @property
    def environment(self) -> dict[str, str]:
        """Return variables of the process that is hit."""
        return {}

    @property
    def trigger(self) -> str | None:
        """Return the file that makes its writes fail."""
        return None

    def begin(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    def hold(self, pid: int) -> None:
        """Go on with it, every few hundredths of a second, unless the process has ended."""

    def end(self, pid: int) -> list[str]:
        """End it; return what is wrong already. `pid` is another process if that has ended meanwhile."""
        return []

    def close(self) -> None:
        """Undo what has been prepared."""


class Stopped(Fault):
    lasts = 30.0

    def begin(self, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)

    def end(self, pid: int) -> list[str]:
        os.kill(pid, signal.SIGCONT)
        return []


class FailingWrites(Fault):
    lasts = 4.0

    @property
    def trigger(self) -> str | None:
        return str(self.folder / "trigger")

    def begin(self, pid: int) -> None:
        scratch = self.folder / "trigger.new"
        scratch.write_text(self.name)
        scratch.rename(self.folder / "trigger")

    def end(self, pid: int) -> list[str]:
        (self.folder / "trigger").unlink()
        return []


class FullDisk(Fault):
    """A file system without a free byte; what the process frees is taken again."""

    lasts = 4.0

    def __init__(self, folder: Path, role: str, name: str) -> None:
        super().__init__(folder, role, name)
        options = ["-t", "tmpfs", "-o", f"size={SPACE}", "tmpfs", str(self.data)]
        subprocess.run(["mount", *options], check=True, timeout=10.0)
        self._filler = -1

    def begin(self, pid: int) -> None:
        self._filler = os.open(self.data / "filler", os.O_WRONLY | os.O_CREAT)
        self.hold(pid)

    def hold(self, pid: int) -> None:
        size = 1 << 20
        while size:
            try:
                os.write(self._filler, bytes(size))
            except OSError:
                size //= 2

    def end(self, pid: int) -> list[str]:
        os.close(self._filler)
        (self.data / "filler").unlink()
        return []

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.data)], check=True, timeout=10.0)


class Clock(Fault):
    lasts = 4.0

    def __init__(self, folder: Path, role: str, name: str) -> None:
        super().__init__(folder, role, name)
        self._offset = folder / "clock"
        self._offset.write_bytes(bytes(8))

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(clock()), "NNGKIT_BENCH_CLOCK": str(self._offset)}

    def begin(self, pid: int) -> None:
        with self._offset.open("r+b") as file:
            file.write((int(self.name.split()[1]) * DAY).to_bytes(8, sys.byteorder, signed=True))


class Descriptors(Fault):
    lasts = 4.0

    def __init__(self, folder: Path, role: str, name: str) -> None:
        super().__init__(folder, role, name)
        self._strangers: list[socket.socket] = []
        self._pid, self._before = 0, (0, 0)

    def begin(self, pid: int) -> None:
        self._pid, self._before = pid, resource.prlimit(pid, resource.RLIMIT_NOFILE)
        self.hold(pid)
        for address in listeners(pid):
            for _ in range(STRANGERS):
                self._strangers.append(stranger := socket.socket())
                stranger.setblocking(False)
                stranger.connect_ex(address)

    def hold(self, pid: int) -> None:
        taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
        lowest = next(number for number in range(len(taken) + 1) if number not in taken)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest, self._before[1]))

    def end(self, pid: int) -> list[str]:
        if pid == self._pid:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, self._before)
        while self._strangers:
            self._strangers.pop().close()
        return [f"{place} does not greet a new connection" for place in listeners(pid) if not greets(place)]


class Memory(Fault):
    lasts = 4.0

    def begin(self, pid: int) -> None:
        (self.folder / "large").touch()
        time.sleep(0.5)  # its buffers grow as far as the messages need in common
        self.hold(pid)

    def hold(self, pid: int) -> None:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        resource.prlimit(pid, resource.RLIMIT_AS, (pages * resource.getpagesize(), resource.RLIM_INFINITY))

    def end(self, pid: int) -> list[str]:
        (self.folder / "large").unlink()
        resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return []


def listeners(pid: int) -> list[tuple[str, int]]:
    """Return the addresses at which a process listens, TCP over IPv4."""
    held = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            held.add(os.readlink(path))
    rows = (line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:])
    return [("127.0.0.1", int(row[1][-4:], 16)) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in held]


def greets(address: tuple[str, int]) -> bool:
    """Return True once a listener sends SP's first bytes to a new connection."""
    end = time.monotonic() + GREETS
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(address, GREETS / 2) as peer:
            peer.settimeout(GREETS / 2)
            if peer.recv(8).startswith(SP):
                return True
    return False


def make(fault: str, folder: Path, role: str) -> Fault:
    kinds: dict[str, Any] = {
        "SIGSTOP 30 s": Stopped,
        "ENOSPC": FullDisk if can_mount() else FailingWrites,
        "EIO": FailingWrites,
        "clock +1 day": Clock,
        "clock -1 day": Clock,
        "out of descriptors": Descriptors,
        "memory limit": Memory,
    }
    made: Fault = kinds.get(fault, Fault)(folder, role, fault)
    return made
