"""Paths of Unix sockets: which may be taken, and which may be removed.

::

    with reserved(path, url):       the path is free, or held a dead listener's socket, which is removed
        listen; mine = identity(path)
    close(path, mine, close)        close NNG's listener, which removes whatever is at its path, and keep others' files

NNG removes whatever a connection is refused by before it listens (a regular file too), and at its close whatever is at
the path by then. A lock on the folder (flock, no file of its own) makes listeners of nngkit do this one after the
other: of several that start at once, one listens. Programs without nngkit do not take it.

POSIX only: on other systems NNG's ipc is no file. May not know: NNG, listeners.
"""

from __future__ import annotations

import errno
import os
import socket as sockets
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from nngkit.errors import Unreachable
from nngkit.protocols._nng.operations import atomically
from nngkit.protocols._nng.process import block_signals

available: Final = hasattr(sockets, "AF_UNIX") and os.name == "posix"
PATIENCE: Final = 5.0  # seconds to wait for the folder's lock, which others hold for microseconds
OWN_UMASK: Final = 0x200  # CLONE_FS of <linux/sched.h>
PAUSE: Final = 0.005  # seconds between two tries to take it

Identity = tuple[int, int]  # device and inode: of a socket that is bound the inode is not used again


def identity(path: str) -> Identity | None:
    """Return what identifies the file at ``path``; None if there is none."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def reserved(path: str, url: str) -> Iterator[None]:
    """Hold the folder's lock while ``path`` is taken; remove a dead listener's socket first.

    Raises Unreachable if something else is there, or if another program holds the lock.
    """
    with _locked(path) as locked:
        if not locked:
            raise Unreachable(url, f"cannot listen: its folder is locked by another program for {PATIENCE:g} s")
        if (obstacle := _obstacle(path)) is not None:
            raise Unreachable(url, f"cannot listen: {obstacle}")
        yield


def with_permissions(mode: int, listen: Callable[..., int], *arguments: Any) -> int:
    """Call ``listen(*arguments)``, a C function that makes a socket's file, and return its result.

    On Linux the file has no permission beyond ``mode`` from its first moment. NNG changes them between bind and listen,
    but a connection that was permitted before may get its turn after: so it is bound under an umask, of a thread that
    shares its own with no other. A signal handler that raises waits for it, some microseconds.
    """
    results: list[int] = []

    def run() -> None:
        block_signals()
        if sys.platform == "linux":
            import ctypes  # here, as few listeners have permissions

            if ctypes.CDLL(None).unshare(OWN_UMASK) == 0:
                os.umask(0o777 & ~mode)
        results.append(listen(*arguments))

    thread = threading.Thread(target=run, name="nngkit-listen", daemon=True)
    thread.start()
    interrupted: BaseException | None = None
    while thread.is_alive():
        try:
            thread.join()
        except BaseException as raised:
            interrupted = raised
    if interrupted is not None:
        raise interrupted
    return results[0]


def close(path: str, mine: Identity | None, close: Callable[..., Any], *arguments: Any) -> None:
    """Call ``close(*arguments)``, a C function that removes ``path``; keep the file there unless it is ``mine``."""
    with _locked(path):
        there = identity(path)
        if there is None or there == mine:
            close(*arguments)
            return
        aside = f"{path}.{os.getpid()}"
        try:
            atomically((os.rename, path, aside), (close, *arguments), (os.rename, aside, path))
        except OSError:  # the folder cannot be changed, by NNG neither
            close(*arguments)  # no effect if it was made


def remove(path: str, mine: Identity | None) -> None:
    """Remove ``path``, if it is still ``mine``."""
    with _locked(path), suppress(OSError):
        if mine is not None and identity(path) == mine:
            os.unlink(path)


def _obstacle(path: str) -> str | None:
    """Return what keeps a listener from ``path``; None if nothing does. Removes a dead listener's socket."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return "there is a file that is no socket"
    except OSError:  # nothing there, or NNG finds out and says why
        return None
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe:
        probe.setblocking(False)
        code = probe.connect_ex(path)
    if code == errno.ENOENT:
        return None
    if code != errno.ECONNREFUSED:  # EAGAIN: it has no room for more; EPROTOTYPE: another kind of socket; EACCES
        return "address in use"
    try:
        os.unlink(path)
    except OSError as refused:
        return f"a dead listener's socket cannot be removed: {refused.strerror}"
    return None


@contextmanager
def _locked(path: str) -> Iterator[bool]:
    """Hold the lock of the folder of ``path``, if it can be read; yield False if others hold it for PATIENCE."""
    import fcntl  # not on Windows

    try:
        folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # NNG says why, or works without it
        yield True
        return
    try:
        end, locked = time.monotonic() + PATIENCE, False
        while not locked:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked = True
            except BlockingIOError:
                if time.monotonic() >= end:
                    break
                time.sleep(PAUSE)
            except OSError:  # a file system without locks
                locked = True
        yield locked
    finally:
        os.close(folder)
