"""Listening and dialing on ``shm:///path``: a Unix socket whose dialer passes one end of the side channel first.

After the greeting NNG gets the stream, and it is like one of ipc. May not know: SP, messages, nngkit's sockets.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket as sockets
import stat
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet

from nngkit.errors import Unreachable
from nngkit.protocols._nng import streams, unix_paths
from nngkit.protocols._nng.addresses import Address
from nngkit.protocols._shm.formats import GREETING
from nngkit.protocols._shm.link import Link
from nngkit.protocols._shm.watcher import watcher
from nngkit.protocols._waiting.alarm import Alarm

log = logging.getLogger("nngkit.protocols")

BACKLOG: Final = 128
MODE: Final = 0o600
GREETING_TIME: Final = 5.0  # seconds; the greeting comes with the connection
MOST_GREETING: Final = 64  # connections without a greeting; the oldest beyond is closed
ACCEPT_PAUSE: Final = 0.05  # seconds before the next accept after one failed for lack of descriptors
_PEER: Final = struct.Struct("3i")  # pid, uid, gid

_listeners: WeakSet[SharedListener] = WeakSet()


def connect(address: Address) -> tuple[Any, int | None, Link]:
    """Connect to the listener at ``address``; return stream, descriptor and side channel. Raises OSError."""
    data = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
    try:
        data.setblocking(False)  # its queue may be full
        data.connect(_path(address))
        ours, theirs = sockets.socketpair(sockets.AF_UNIX, sockets.SOCK_SEQPACKET)
        with theirs:
            try:
                sockets.send_fds(data, [GREETING], [theirs.fileno()])
                return _adopt(data, ours)
            except BaseException:
                ours.close()
                raise
    except BaseException:
        data.close()
        raise


def _adopt(data: sockets.socket, side: sockets.socket) -> tuple[Any, int | None, Link]:
    """Return the stream of a connection, its descriptor and its side channel."""
    pid, _, _ = _PEER.unpack(data.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, _PEER.size))
    data.setblocking(True)  # as NNG expects it
    return *streams.wrap(data), Link(side, pid or None)


def _path(address: Address) -> str:
    return address.url.partition("://")[2]


class SharedListener:
    """Accept connections at ``address`` for one socket. Raises Unreachable.

    ``accepted(stream, descriptor, listener, link)`` is called on the watching thread and owns the stream and the link.
    """

    numbers: tuple[int, ...] = ()  # of NNG's objects, whose end a close waits for: there are none
    contexts: None = None  # no TLS

    def __init__(
        self, address: Address, accepted: Callable[[Any, int | None, Any, Link], None], mode: int | None
    ) -> None:
        self.address = address
        self.bound = address.url
        self._accepted = accepted
        self._file: unix_paths.Identity | None = None
        self._closed = False
        self._greeting: dict[Greeting, float] = {}
        self._lock = threading.Lock()
        self._alarm = Alarm(self._sweep)
        self._socket = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM | sockets.SOCK_NONBLOCK)
        _listeners.add(self)
        path = _path(address)
        try:
            with unix_paths.reserved(path, address.url):
                self._socket.bind(path)
                self._file = unix_paths.identity(path)
                os.chmod(path, MODE if mode is None else mode)  # nobody can connect yet
                self._socket.listen(BACKLOG)
        except OSError as refused:
            self.close()
            text = refused.strerror or str(refused)
            raise Unreachable(address.url, f"cannot listen: {text[:1].lower()}{text[1:]}") from refused
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Begin to accept."""
        watcher().arm(self._socket, self)

    def events(self) -> int:
        """Return what the watching thread waits for: connections."""
        return 0 if self._closed else select.EPOLLIN

    def ready(self) -> None:
        """Accept what has come. On the watching thread."""
        try:
            while True:
                data, _ = self._socket.accept()
                self._greet(data)
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                log.warning("%s: out of descriptors, cannot accept connections", self.address.url)
                self._alarm.set(ACCEPT_PAUSE)
                return
            if self._closed:
                return
        self.start()

    def _greet(self, data: sockets.socket) -> None:
        greeting = Greeting(self, data)
        with self._lock:
            self._greeting[greeting] = time.monotonic() + GREETING_TIME
            late = next(iter(self._greeting)) if len(self._greeting) > MOST_GREETING else None
        if late is not None:
            late.close()
        self._alarm.set(GREETING_TIME)
        watcher().arm(data, greeting)

    def greeted(self, greeting: Greeting, side: sockets.socket | None) -> None:
        """Give a connection to the socket; None: it has not greeted as it should."""
        with self._lock:
            if self._greeting.pop(greeting, None) is None:
                side, closed = None, True
            else:
                closed = self._closed
        if side is None or closed:
            if side is not None:
                side.close()
            greeting.data.close()
            return
        try:
            stream, descriptor, link = _adopt(greeting.data, side)
        except Exception:
            log.exception("%s: a connection was not accepted", self.address.url)
            side.close()
            greeting.data.close()
            return
        self._accepted(stream, descriptor, self, link)

    def _sweep(self) -> float | None:
        """Close connections without a greeting, and accept again. On the alarm thread."""
        now = time.monotonic()
        with self._lock:
            late = [one for one, end in self._greeting.items() if end <= now]
            more = len(self._greeting) > len(late)
        for one in late:
            one.close()
        self.start()
        return GREETING_TIME if more else None

    def left(self, greeting: Greeting) -> None:
        """Forget a connection that was closed."""
        with self._lock:
            self._greeting.pop(greeting, None)

    def close(self) -> None:
        """Stop accepting. The address is free when this returns. Idempotent."""
        self._closed = True
        self._alarm.close()
        if self._file is not None:
            unix_paths.remove(_path(self.address), self._file)
        watcher().forget(self._socket)
        self._socket.close()
        for one in list(self._greeting):
            one.close()

    def forked(self) -> None:
        """Close the child's copies; the path is the parent's."""
        self._closed = True
        self._socket.close()
        for one in self._greeting:
            one.data.close()


class Greeting:
    """An accepted connection that has not greeted yet."""

    def __init__(self, listener: SharedListener, data: sockets.socket) -> None:
        data.setblocking(False)
        self.data = data
        self._listener = listener

    def events(self) -> int:
        """Return what the watching thread waits for: the greeting."""
        return select.EPOLLIN

    def ready(self) -> None:
        """Read the greeting. On the watching thread."""
        passed: list[int] = []
        try:
            flags = sockets.MSG_CMSG_CLOEXEC
            greeting, passed, _, _ = sockets.recv_fds(self.data, len(GREETING), 1, flags)
        except BlockingIOError:
            watcher().arm(self.data, self)
            return
        except OSError:
            greeting = b""
        watcher().forget(self.data)
        side = None
        if greeting == GREETING and len(passed) == 1 and _is_side(passed[0]):
            side = sockets.socket(fileno=passed[0])
        else:
            for number in passed:
                os.close(number)
        self._listener.greeted(self, side)

    def close(self) -> None:
        """Close the connection."""
        watcher().forget(self.data)
        self._listener.left(self)
        self.data.close()


def _is_side(descriptor: int) -> bool:
    """Return True if a descriptor is a Unix socket of the kind of a side channel."""
    with suppress(OSError):
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            copy = sockets.socket(fileno=os.dup(descriptor))
            with copy:
                return copy.family == sockets.AF_UNIX and copy.type == sockets.SOCK_SEQPACKET
    return False


def _forked() -> None:
    for listener in list(_listeners):
        listener.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
