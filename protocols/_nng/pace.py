"""When a listener looks at connections before it pays for them. Pure: callers pass `now`.

To accept a connection and refuse it costs a quarter of a millisecond of CPU, its handshake of TLS twice that; a peer
that connects, says something wrong and leaves pays a tenth. Above a rate of failed handshakes new connections are
screened: looked at for 20 us, and closed if they can only fail. Handshakes of TLS take turns then, as do their hosts:
one with many waits as long as one with few.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

T = TypeVar("T")

AT_ONCE: Final = 128  # failed handshakes before anything changes ...
A_SECOND: Final = 16.0  # ... and so many more each second; a handshake of TLS keeps a core busy for a millisecond
LET_IN: Final = 160.0  # screened connections that are accepted in a second: 4 % of a core ...
BURST: Final = 8  # ... and so many at once
# More peers than are let in may be honest, after an outage. So the rate doubles after each ``GROWTH`` seconds in which
# it was used up and no accepted connection failed, up to ``MOST_LET_IN``, and is as before after one that did.
GROWTH: Final = 0.05
MOST_LET_IN: Final = 1280.0


class Pace:
    """Connections of one listener that fail: without a handshake, or by a violation after it. Others cost nothing."""

    __slots__ = ("_at", "_grown_at", "_level", "_rate", "_room", "_room_at", "_used_up")

    def __init__(self) -> None:
        self._at = 0.0
        self._level = 0.0
        self._rate = LET_IN
        self._room = float(BURST)
        self._room_at = 0.0
        self._grown_at = 0.0
        self._used_up = False  # since `_grown_at` a look has let in as many as it could

    def failed(self, now: float) -> None:
        """Count an accepted connection that ended before it joined; ``now`` in seconds."""
        self._rate, self._grown_at, self._used_up = LET_IN, now, False
        self.turned_away(1, now)

    def turned_away(self, count: int, now: float) -> None:
        """Count connections that were screened, and closed."""
        self._level, self._at = min(self._now(now) + count, AT_ONCE + A_SECOND), now  # a second of calm ends it

    def exceeded(self, now: float) -> bool:
        """Return True while too many fail."""
        return self._now(now) > AT_ONCE

    def room(self, now: float) -> int:
        """Return how many screened connections may be let in now."""
        if now - self._grown_at >= GROWTH:
            self._rate = min(2 * self._rate, MOST_LET_IN) if self._used_up else LET_IN
            self._grown_at, self._used_up = now, False
        most = BURST * self._rate / LET_IN
        self._room = min(most, self._room + max(0.0, now - self._room_at) * self._rate)
        self._room_at = now
        return int(self._room)

    def let_in(self, count: int) -> None:
        """Count connections that were let in, at most as many as there was room for."""
        self._room -= count
        self._used_up = self._used_up or self._room < 1.0

    def _now(self, now: float) -> float:
        return max(0.0, self._level - max(0.0, now - self._at) * A_SECOND)


class Turns(Generic[T]):
    """Queue in which hosts have their turns one after the other, each with its oldest entry. Not thread-safe."""

    __slots__ = ("_hosts",)

    def __init__(self) -> None:
        self._hosts: dict[str | None, deque[T]] = {}  # the next one first

    def __bool__(self) -> bool:
        return bool(self._hosts)

    def add(self, host: str | None, one: T) -> None:
        """Add one that waits; ``host``: None for this machine."""
        self._hosts.setdefault(host, deque()).append(one)

    def take(self) -> T:
        """Remove and return the one whose turn it is. Raises StopIteration without one."""
        host = next(iter(self._hosts))
        waiting = self._hosts.pop(host)
        one = waiting.popleft()
        if waiting:
            self._hosts[host] = waiting
        return one


def hopeless(said: bytes, *, tls: bool, web: bool) -> bool:
    """Return True if a handshake that begins with these bytes, at most 8 of them, can only fail."""
    first = b"\x16\x03" if tls else b"GET " if web else b"\0SP\0"
    return not first.startswith(said[: len(first)]) or not said
