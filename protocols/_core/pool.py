"""One pool of descriptors for all connections that this process accepts, with a share for strangers.

::

    strangers    peers whose handshake is not done: an eighth of the process's soft limit of descriptors, and 16 of each
                 other host. One more takes the place of the oldest
    members      peers that are let in: three quarters, or as many as `limit_pipes` says. One more is refused

So neither silent peers nor members take the descriptors that files, dialed connections and other sockets need.

May not know: connections, sockets.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from nngkit.instruments import Gauge

try:
    import resource
except ImportError:  # other systems than Unix have no such limit
    resource = None  # type: ignore[assignment]

STRANGERS: Final = 8  # one in so many descriptors
FROM_A_HOST: Final = 16  # strangers: what one host needs at once, with a dialer each in some programs
MEMBERS: Final = 3, 4  # three of four

Evict = Callable[[str], object]


def descriptors() -> int | None:
    """Return the soft limit of descriptors of this process; None without one."""
    if resource is None:
        return None
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def other_host(where: str) -> str | None:
    """Return the host in the address of a peer; None if it is on this machine.

    >>> other_host("tcp://192.0.2.7:4000"), other_host("tls+tcp://[2001:db8::1]:4000"), other_host("tcp://127.0.0.1:1")
    ('192.0.2.7', '2001:db8::1', None)
    """
    host, address = _host(where)
    return None if address is None or address.is_loopback else host


def loopback(where: str) -> bool:
    """Return True if the address of a peer is one of loopback."""
    address = _host(where)[1]
    return address is not None and address.is_loopback


def _host(where: str) -> tuple[str, IPv4Address | IPv6Address | None]:
    host = where.partition("://")[2].rpartition(":")[0].strip("[]")
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:  # a path
        return host, None
    return host, getattr(address, "ipv4_mapped", None) or address


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Accepted connections of a process, and its limits; 0 for none."""

    strangers: Gauge
    """Accepted connections whose handshake is not done."""
    members: Gauge
    """Accepted connections that are let in."""
    descriptors: Gauge
    """Soft limit of descriptors of this process; 0 without one."""
    most: Gauge
    """Most members by `limit_pipes`; 0 if the descriptors alone limit them."""


class Pool:
    """Accepted connections of a process by number. Thread-safe.

    ``limit`` returns the number of descriptors that there may be, or None.
    """

    def __init__(self, limit: Callable[[], int | None] = descriptors) -> None:
        self._limit = limit
        self.most: int | None = None  # members, if the program says so
        self.forget_all()

    def forget_all(self) -> None:
        """Begin anew, in a forked child, which has none of the threads that may hold the lock."""
        self._lock = threading.Lock()
        self._strangers: dict[int, Evict] = {}  # oldest first
        self._of: dict[int, str] = {}  # hosts of strangers
        self._hosts: dict[str, dict[int, None]] = {}  # strangers of a host, oldest first
        self._members: set[int] = set()

    def enter(self, number: int, host: str | None, evict: Evict) -> Callable[[], object] | None:
        """Count a stranger; return what is to be called, without a lock, if one has to go for it.

        ``evict(why)`` ends the stranger ``number``. ``host``: its host, if that is not this machine.
        """
        limit = self._limit()
        with self._lock:
            self._strangers[number] = evict
            if host is not None:
                self._of[number] = host
                theirs = self._hosts.setdefault(host, {})
                theirs[number] = None
                if len(theirs) > FROM_A_HOST:
                    return self._evict(next(iter(theirs)), f"more than {FROM_A_HOST} handshakes from {host}")
            if limit is not None and len(self._strangers) > max(1, limit // STRANGERS):
                why = f"more than {max(1, limit // STRANGERS)} handshakes in this process"
                return self._evict(next(iter(self._strangers)), why)
        return None

    def _evict(self, number: int, why: str) -> Callable[[], object]:
        evict = self._strangers[number]
        self._forget(number)
        return lambda: evict(why)

    def let_in(self, number: int) -> str | None:
        """Make a stranger a member; return the reason if there are too many members."""
        limit, (part, of) = self._limit(), MEMBERS
        bounds = [most for most in (self.most, None if limit is None else limit * part // of) if most is not None]
        with self._lock:
            self._forget(number)
            if bounds and len(self._members) >= min(bounds):
                return f"more than {min(bounds)} connections in this process"
            self._members.add(number)
        return None

    def leave(self, number: int) -> None:
        """Forget a connection. Idempotent."""
        with self._lock:
            self._forget(number)
            self._members.discard(number)

    def _forget(self, number: int) -> None:
        """Forget a stranger. A signal handler may raise in between: called again, it continues."""
        host = self._of.get(number)
        theirs = None if host is None else self._hosts.get(host)
        if host is not None and theirs is not None:
            theirs.pop(number, None)
            if not theirs:
                self._hosts.pop(host, None)
        self._of.pop(number, None)
        self._strangers.pop(number, None)

    @property
    def stats(self) -> PoolStats:
        """Its present connections and limits."""
        strangers, members = self.counts
        return PoolStats(strangers, members, self._limit() or 0, self.most or 0)

    @property
    def counts(self) -> tuple[int, int]:
        """Numbers of strangers and members."""
        return len(self._strangers), len(self._members)


pool = Pool()


def limit_pipes(most: int | None) -> None:
    """Let at most ``most`` accepted connections join, those of all sockets of this process; None: no limit of its own.

    Three quarters of the soft limit of descriptors stay a limit. Connections on inproc, and those that we dial, are not
    counted. Those that are there stay.
    """
    pool.most = most


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.forget_all)
