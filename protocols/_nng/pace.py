"""When a listener looks at connections before it pays for them. Pure: callers pass `now`.

To accept a connection and refuse it costs a quarter of a millisecond of CPU, its handshake of TLS twice that; a peer
that connects, says something wrong and leaves pays a tenth. Above a rate of failed handshakes new connections are
screened: looked at for 20 us, and closed if they can only fail. Handshakes of TLS take turns then.
"""

from __future__ import annotations

from typing import Final

AT_ONCE: Final = 128  # failed handshakes before anything changes ...
A_SECOND: Final = 16.0  # ... and so many more each second; a handshake of TLS keeps a core busy for a millisecond


class Pace:
    """Connections of one listener that fail: without a handshake, or by a violation after it. Others cost nothing."""

    __slots__ = ("_at", "_level")

    def __init__(self) -> None:
        self._at = 0.0
        self._level = 0.0

    def failed(self, now: float) -> None:
        """Count a connection that ended before it joined; ``now`` in seconds."""
        self._level, self._at = min(self._now(now) + 1.0, AT_ONCE + A_SECOND), now  # a second of calm ends it

    def exceeded(self, now: float) -> bool:
        """Return True while too many fail."""
        return self._now(now) > AT_ONCE

    def _now(self, now: float) -> float:
        return max(0.0, self._level - max(0.0, now - self._at) * A_SECOND)


def hopeless(said: bytes, *, tls: bool, web: bool) -> bool:
    """Return True if a handshake that begins with these bytes, at most 8 of them, can only fail."""
    first = b"\x16\x03" if tls else b"GET " if web else b"\0SP\0"
    return not first.startswith(said[: len(first)]) or not said
