"""Finds the descriptor of a stream, which NNG does not expose: a caller that polls it waits for no NNG thread.

::

    by_names(local, remote)         TCP: the one socket between these two ends
    Index().find(local, remote)     the same, later and among any number of descriptors
    newcomer(path, dialed=True)     Unix: the only socket to ``path`` that is new since the last search

A TCP socket is searched for at the lowest descriptor that was free before it was opened, then where the last search has
passed it, then just below the lowest free one now, then among all of the process; a Unix socket among all. In a process
with more than ``MOST`` descriptors they are not all searched for each. The descriptor belongs to NNG: it is polled,
gets options that NNG does not offer, and is asked for its state. NNG reads. One that is not found costs speed, and the
times of ``_peer_watch.py``.

Linux only, like /proc/self/fd and epoll. May not know: NNG, connections.
"""

from __future__ import annotations

import itertools
import operator
import os
import select
import socket as sockets
import stat
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal, TypeVar

Answer = TypeVar("Answer")
HostPort = tuple[str, int]  # host as inet_ntop writes it, port
Ends = tuple[HostPort, HostPort]  # of a TCP connection, the local one first

ESTABLISHED, SYN_RECEIVED = 1, 3  # of the kernel's states of TCP
BACKLOG: Final = 4_096  # the most that Linux allows by default (net.core.somaxconn)
MOST: Final = 1024  # descriptors up to which all are searched: 6 ms for a TCP socket, 2 ms for a Unix one
NEAR: Final = 32  # descriptors near the lowest free one that are tried before all others

_POLLED: Final = hasattr(select, "epoll") and hasattr(os, "eventfd")  # what a poller needs
available: Final = _POLLED and sys.platform == "linux" and os.path.isdir("/proc/self/fd")
one_at_a_time: Final = threading.Lock()  # held while a Unix socket is created, until it is found

Kind = tuple[bytes, bool]  # of a Unix socket: its path, and whether it dialed

# TCP connections that the last search among all has passed. Of 1,000 that are dialed at once none has the expected
# descriptor, and a search for each took seconds of CPU: the dialers gave up, and the listener took them for hostile.
_passed: dict[Ends, int] = {}
_known: dict[int, Kind | None] = {}  # by inode; None: not a Unix stream
_seen: dict[Kind, set[int]] = {}  # inodes seen before
MOST_PATHS: Final = 1024  # paths in `_seen`; after a reset the next connection at each path is not found


def by_names(local: HostPort, remote: HostPort, expected: int | None = None) -> int | None:
    """Return the descriptor of the TCP connection between two ends; None if it is not found.

    ``expected``: the result of ``lowest_free`` before the connection was opened.
    """
    global _passed
    names = local, remote

    def fits(one: sockets.SocketType) -> bool:
        return _names(one) == names

    for number in (expected, _passed.pop(names, None)):
        if number is not None and ask(number, fits):
            return number
    free = lowest_free()
    near = () if free is None else range(free - 1, max(-1, free - 1 - NEAR), -1)
    number = next((number for number in near if ask(number, fits)), None)
    if number is None:
        _passed = _search(limited=True)
        number = _passed.pop(names, None)
    return number


def _search(*, limited: bool) -> dict[Ends, int]:
    """Return the descriptors of all TCP connections by their ends."""
    return {ends: number for number in _all(limited=limited) if (ends := ask(number, _names))}


class Index:
    """Descriptors of all TCP connections, for those that ``by_names`` did not search for (TLS) or find among so many.

    It is made anew at a look-up that fails, which takes a twentieth of the time at most. For use on one thread.
    """

    def __init__(self) -> None:
        self._numbers: dict[Ends, int] = {}
        self._next = 0.0  # time.monotonic() from which it may be made again

    def find(self, local: HostPort, remote: HostPort) -> int | None:
        """Return the descriptor of the TCP connection between two ends; None if it is not known yet."""
        names = local, remote
        number = self._numbers.get(names)
        begun = time.monotonic()
        if number is None and begun >= self._next:
            self._numbers = _search(limited=False)
            self._next = begun + 20 * (time.monotonic() - begun)
            number = self._numbers.get(names)
        # it may have been closed since, and another file may have its number
        return number if number is not None and ask(number, _names) == names else None


def raise_backlog(port: int, expected: int) -> bool:
    """Let ``BACKLOG`` connections wait for the listener at TCP ``port``; False if it is not found.

    NNG lets 128 wait. The kernel drops those above, which retry after 1 s, 2 s, 4 s: thousands of services that
    reconnect to a restarted daemon took minutes. ``expected``: the result of ``lowest_free`` before the listener.
    """

    def lengthen(one: sockets.SocketType) -> bool:
        one.listen(BACKLOG)  # a second call only changes the length of the queue
        return True

    return ask_listener(port, expected, lengthen)


def ask_listener(port: int, expected: int, question: Callable[[sockets.SocketType], bool]) -> bool:
    """Return ``question(socket)`` for the listener at TCP ``port``; False if it is not found. See ``raise_backlog``."""

    def fits(one: sockets.SocketType) -> bool:
        bound = _host_port(one.getsockname())
        found = (
            bound is not None and bound[1] == port and bool(one.getsockopt(sockets.SOL_SOCKET, sockets.SO_ACCEPTCONN))
        )
        return found and question(one)

    if ask(expected, fits):
        return True
    free = lowest_free()
    near = () if free is None else range(free - 1, max(-1, free - 1 - NEAR), -1)
    return any(ask(number, fits) for number in itertools.chain(near, _all()))


def peek(one: sockets.socket) -> bytes | None:
    """Return the first 8 bytes that were received, which stay; None if nothing came yet; empty after its end."""
    try:
        return one.recv(8, sockets.MSG_PEEK | sockets.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def has_left(one: sockets.SocketType) -> bool:
    """Return True if the other end of a TCP connection has closed its side, whatever it said before."""
    try:
        return one.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_INFO, 1)[0] not in (ESTABLISHED, SYN_RECEIVED)
    except OSError:
        return True


def peer_name(number: int) -> tuple[Any, ...] | None:
    """Return the system's name of the other end of the TCP connection with that descriptor; None without one."""

    def name(one: sockets.SocketType) -> tuple[Any, ...] | None:
        there = one.getpeername()
        return there if _host_port(there) is not None else None

    return ask(number, name) or None


def look(path: bytes, *, dialed: bool) -> None:
    """Note the existing Unix sockets to ``path``. Hold ``one_at_a_time``."""
    newcomer(path, dialed=dialed)


def newcomer(path: bytes, *, dialed: bool) -> int | None:
    """Return the Unix socket to ``path`` that is new since the last look; None unless there is exactly one.

    ``path`` of an abstract socket begins with a null byte. Hold ``one_at_a_time``.
    """

    global _known
    wanted, there, known = (path, dialed), dict[int, int](), dict[int, Kind | None]()
    for number in _all():
        try:
            status = os.fstat(number)
        except OSError:  # closed meanwhile
            continue
        if not stat.S_ISSOCK(status.st_mode):
            continue
        inode = status.st_ino
        kind = _known[inode] if inode in _known else ask(number, _kind)
        if kind is not False:  # a socket that is not connected yet may still become one
            known[inode] = kind
        if kind == wanted:
            there[inode] = number
    _known = known
    seen = _seen.pop(wanted, set())
    if there:
        if len(_seen) >= MOST_PATHS:
            _seen.clear()
        _seen[wanted] = set(there)
    new = [number for inode, number in there.items() if inode not in seen]
    return new[0] if len(new) == 1 else None


def lowest_free() -> int | None:
    """Return the descriptor that the next file or socket gets; None if there is none left."""
    import fcntl  # not on Windows

    try:
        free = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 0)
    except OSError:  # or descriptor 0 is closed
        return None
    os.close(free)
    return free


def _all(*, limited: bool = True) -> list[int]:
    """Return all descriptors of the process, none if they are more than MOST and ``limited``."""
    try:
        numbers = os.listdir("/proc/self/fd")
    except OSError:  # no descriptor left to read it with
        return []
    return [] if limited and len(numbers) > MOST else list(map(int, numbers))


def ask(number: int, question: Callable[[sockets.SocketType], Answer]) -> Answer | Literal[False]:
    """Return ``question(socket)`` for the stream socket with that descriptor; False on OSError or without one."""
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return False
        # Declared non-blocking: otherwise the program's default timeout would be set on it. The type in C and the `for`
        # statement: a signal handler that raised between its creation and the `try` would close NNG's descriptor.
        make = partial(sockets.SocketType, type=sockets.SOCK_STREAM | sockets.SOCK_NONBLOCK, fileno=number)
        for one in map(operator.call, (make,)):
            try:
                return one.getsockopt(sockets.SOL_SOCKET, sockets.SO_TYPE) == sockets.SOCK_STREAM and question(one)
            finally:
                one.detach()  # NNG closes it
    except OSError:
        pass
    return False


def _kind(one: sockets.SocketType) -> Kind | None:
    if one.family != sockets.AF_UNIX or one.getsockopt(sockets.SOL_SOCKET, sockets.SO_ACCEPTCONN):
        return None
    theirs = one.getpeername()  # raises if it is not connected
    ours = one.getsockname()
    return (_path(ours), False) if ours else (_path(theirs), True)


def _names(one: sockets.SocketType) -> Ends | None:
    """Return both ends of a TCP connection, the local one first; None for other sockets."""
    local, remote = _host_port(one.getsockname()), _host_port(one.getpeername())
    return None if local is None or remote is None else (local, remote)


def _host_port(name: object) -> HostPort | None:
    # A netlink socket's name has two numbers. The family is not used, as the descriptor may be reused by now.
    if isinstance(name, tuple) and len(name) >= 2 and isinstance(name[0], str):
        return name[0].partition("%")[0], name[1]  # without the interface
    return None


def _path(name: object) -> bytes:
    return name if isinstance(name, bytes) else os.fsencode(str(name))
