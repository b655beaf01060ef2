"""The descriptor of a stream, which NNG does not tell: a caller that polls it waits for no thread of NNG's.

::

    by_names(local, remote)         TCP: the socket between these two endpoints, of which there is one
    newcomer(path, dialed=True)     a Unix socket: the only one to ``path`` that was not there at the last look

A TCP socket is looked for just below the lowest free descriptor, where the system mostly puts it, then among all of the
process; a Unix socket among all. Of a process with more than ``MOST`` they are not all searched. The descriptor stays
NNG's: it is only ever polled, and NNG then reads. One that is not found costs speed, and nothing else.

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

MOST: Final = 4096  # descriptors in a process whose descriptors are all searched: 2 ms
NEAR: Final = 32  # descriptors looked at before all are

_POLLED: Final = hasattr(select, "epoll") and hasattr(os, "eventfd")  # what a poller is made of
available: Final = _POLLED and sys.platform == "linux" and os.path.isdir("/proc/self/fd")
one_at_a_time: Final = threading.Lock()  # held while a Unix socket comes to be, and until it was found

_seen: dict[tuple[bytes, bool], set[int]] = {}  # inodes of the Unix sockets to a path that are no newcomers
MOST_PATHS: Final = 1024  # of them; what is forgotten costs the next connection to each its descriptor


def by_names(local: Endpoint, remote: Endpoint) -> int | None:
    """Return the descriptor of the TCP connection between two endpoints, None if it is not found."""

    def fits(one: sockets.socket) -> bool:
        return _endpoint(one.getpeername()) == remote and _endpoint(one.getsockname()) == local

    for number in _near():
        if _is(number, fits):
            return number
    return next((number for number in _all() if _is(number, fits)), None)


def look(path: bytes, *, dialed: bool) -> None:
    """Note which Unix sockets to ``path`` there are. Hold ``one_at_a_time``."""
    newcomer(path, dialed=dialed)


def newcomer(path: bytes, *, dialed: bool) -> int | None:
    """Return the Unix socket to ``path`` that came since the last look; None if it is none, or one of several.

    ``path`` of an abstract one begins with a null byte. Hold ``one_at_a_time``.
    """

    def fits(one: sockets.socket) -> bool:
        if one.family != sockets.AF_UNIX or one.getsockopt(sockets.SOL_SOCKET, sockets.SO_ACCEPTCONN):
            return False
        return _path(one.getpeername() if dialed else one.getsockname()) == path

    there: dict[int, int] = {}
    for number in _all():
        if _is(number, fits):
            try:
                there[os.fstat(number).st_ino] = number
            except OSError:  # closed meanwhile
                continue
    seen = _seen.pop((path, dialed), set())
    if there:
        if len(_seen) >= MOST_PATHS:
            _seen.clear()
        _seen[path, dialed] = set(there)
    new = [number for inode, number in there.items() if inode not in seen]
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
        # said to be non-blocking: else a default timeout, if the program has set one, would be given to it
        one = sockets.socket(type=sockets.SOCK_STREAM | sockets.SOCK_NONBLOCK, fileno=number)
    except OSError:
        return False
    try:
        return one.getsockopt(sockets.SOL_SOCKET, sockets.SO_TYPE) == sockets.SOCK_STREAM and fits(one)
    except OSError:
        return False
    finally:
        one.detach()  # it is not ours to close


def _endpoint(name: object) -> Endpoint | None:
    # a netlink socket's has two numbers; not told by its family, as the descriptor may be another's by now
    if isinstance(name, tuple) and len(name) >= 2 and isinstance(name[0], str):
        return name[0].partition("%")[0], name[1]  # without an interface
    return None


def _path(name: object) -> bytes:
    return name if isinstance(name, bytes) else os.fsencode(str(name))
