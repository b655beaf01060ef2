"""Ownership of a partition: one process at a time seals, merges and rebuilds, and deletes what is unlisted.

A lock on the partition's local folder excludes other processes of the machine. On shared storage, which has no lock, a
partition belongs to a spool, whose name the manifest has.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from pathlib import Path

from nngkit.errors import ConfigError
from nngkit.file_modes import make_file, mode
from nngkit.journal.files import LOCK, sync_file, sync_folder


def lock_partition(folder: Path) -> int:
    """Lock the partition's folder; return the descriptor that holds the lock. Raises ConfigError, OSError."""
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, mode())
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        by = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
        os.close(descriptor)
        if not isinstance(error, BlockingIOError):
            raise
        raise ConfigError(
            "partition",
            f"{folder / LOCK}: another recorder has this partition ({by or 'unknown'}); "
            "use another partition (--partition), or stop that recorder",
            str(folder),
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return descriptor


def owner_of(folder: Path, partition: int, *, shared: bool) -> str:
    """Return the partition's owner: on shared storage, which has no lock, a name kept in the spool."""
    if not shared:
        return "local"
    path = folder / "owner"
    with contextlib.suppress(FileNotFoundError):
        return path.read_text().strip()
    name = f"{socket.gethostname()}-{partition}-{os.urandom(4).hex()}"
    make_file(path)
    path.write_text(name + "\n")
    sync_file(path)
    sync_folder(folder)
    return name
