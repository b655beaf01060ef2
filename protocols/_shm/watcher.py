"""One thread that waits for listening sockets and side channels of the process; it sleeps while none needs it.

May not know: connections, memory.
"""

from __future__ import annotations

import logging
import os
import select
import socket as sockets
import threading
from contextlib import suppress
from typing import Any, ClassVar, Protocol

from nngkit.protocols._nng.process import block_signals

log = logging.getLogger("nngkit.protocols")


class Watched(Protocol):
    """Owner of a socket that is watched."""

    def events(self) -> int:
        """Return what is waited for; 0: nothing."""

    def ready(self) -> None:
        """Handle what has come. On the watching thread; it is watched again only if this calls ``arm``."""


class Watcher:
    """The thread and its epoll. All methods may be called on any thread; they take no lock and do not wait."""

    _one: ClassVar[Watcher | None] = None
    _starting: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, Watched] = {}
        # daemon: it ends with the process
        threading.Thread(target=self._run, name="nngkit-shm", daemon=True).start()

    def arm(self, sock: sockets.socket, one: Watched) -> None:
        """Call ``one.ready`` once, as soon as what it waits for has come."""
        number = sock.fileno()
        with suppress(OSError):  # it was closed meanwhile
            while wanted := one.events():
                self._watched[number] = one
                try:
                    self._epoll.modify(number, wanted | select.EPOLLONESHOT)
                except FileNotFoundError:
                    with suppress(FileExistsError):  # another thread was first
                        self._epoll.register(number, wanted | select.EPOLLONESHOT)
                if one.events() == wanted:  # else another thread armed it meanwhile
                    return

    def forget(self, sock: sockets.socket) -> None:
        """Stop watching, before the socket is closed. Idempotent."""
        if (number := sock.fileno()) >= 0 and self._watched.pop(number, None) is not None:
            with suppress(OSError):
                self._epoll.unregister(number)

    def _run(self) -> None:
        block_signals()
        while True:
            for number, _ in self._epoll.poll():
                one: Any = self._watched.get(number)
                try:
                    if one is not None:
                        one.ready()
                except Exception:
                    log.exception("error in the thread for shared memory")
                one = None  # else it stays alive until the next event


def watcher() -> Watcher:
    """Return the watcher of this process."""
    if Watcher._one is None:
        with Watcher._starting:
            if Watcher._one is None:
                Watcher._one = Watcher()
    return Watcher._one


def _forked() -> None:
    # thread and epoll are the parent's
    Watcher._one = None
    Watcher._starting = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
