"""Which descriptor of this process is a stream's: NNG does not say, and the kernel tells who asks by descriptor sooner.

::

    by_names(local, remote)         TCP: the socket between these two endpoints, of which there is one
    newcomer(path, dialed=True)     a Unix socket: the only one to ``path`` that was not there at the last look

A descriptor is found among those below the lowest free one, where the system put it, else among all of the process; a
process with more than ``MOST`` is not searched. It stays NNG's: it is only ever asked whether there is something to
read, which NNG then reads. A descriptor that is not found costs speed, and nothing else.

Linux only, as /proc/self/fd and epoll are. May not know: NNG, connections.
"""

from __future__ import annotations

import os
import select
import socket as sockets
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["Endpoint", "available", "by_names", "look", "newcomer", "one_at_a_time"]

Endpoint = tuple[str, int]  # host as inet_ntop writes it, port

MOST: Final = 4096  # descriptors in a process that is searched: 2 ms
NEAR: Final = 32  # descriptors looked at before all are

_POLLED: Final = hasattr(select, "epoll") and hasattr(os, "eventfd")  # what a poller is made of
available: Final = _POLLED and sys.platform == "linux" and os.path.isdir("/proc/self/fd")
one_at_a_time: Final = threading.Lock()  # held while a Unix socket comes to be, and until it was found

_seen: set[int] = set()  # inodes of Unix sockets that are no newcomers


def by_names(local: Endpoint, remote: Endpoint) -> int | None:
    """Return the descriptor of the TCP connection between two endpoints, None if it is not found."""

    def fits(one: sockets.socket) -> bool:
        if one.family not in (sockets.AF_INET, sockets.AF_INET6):
            return False
        return _endpoint(one.getpeername()) == remote and _endpoint(one.getsockname()) == local

    for number in _near():
        if _is(number, fits):
            return number
    return next((number for number in _all() if _is(number, fits)), None)


def look() -> None:
    """Note which Unix sockets there are. Hold ``one_at_a_time``."""
    newcomer(b"", dialed=False)


def newcomer(path: bytes, *, dialed: bool) -> int | None:
    """Return the Unix socket to ``path`` that came since the last look; None if it is none, or one of several.

    ``path`` of an abstract one begins with a null byte. Hold ``one_at_a_time``.
    """

    def fits(one: sockets.socket) -> bool:
        if one.family != sockets.AF_UNIX or one.getsockopt(sockets.SOL_SOCKET, sockets.SO_ACCEPTCONN):
            return False
        return _path(one.getpeername() if dialed else one.getsockname()) == path

    new: list[int] = []
    there: set[int] = set()
    for number in _all():
        try:
            status = os.fstat(number)
        except OSError:
            continue
        if stat.S_ISSOCK(status.st_mode):
            there.add(status.st_ino)
            if status.st_ino not in _seen and _is(number, fits):
                new.append(number)
    _seen.clear()
    _seen.update(there)
    return new[0] if len(new) == 1 else None


def _near() -> Iterator[int]:
    import fcntl  # Windows has none

    try:
        free = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 0)
    except OSError:  # 0 is closed, or there are no descriptors left
        return
    os.close(free)
    yield from range(free - 1, max(-1, free - 1 - NEAR), -1)


def _all() -> list[int]:
    try:
        numbers = os.listdir("/proc/self/fd")
    except OSError:  # no descriptor left to read it with
        return []
    return list(map(int, numbers)) if len(numbers) <= MOST else []


def _is(number: int, fits: Callable[[sockets.socket], bool]) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return False
        one = sockets.socket(fileno=number)
    except OSError:
        return False
    try:
        return fits(one)
    except OSError:
        return False
    finally:
        one.detach()  # it is not ours to close


def _endpoint(name: tuple[str, int]) -> Endpoint:
    return name[0].partition("%")[0], name[1]  # without an interface


def _path(name: object) -> bytes:
    return name if isinstance(name, bytes) else os.fsencode(str(name))
