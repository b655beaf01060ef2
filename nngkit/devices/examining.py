"""Functions that see a device's messages: tap, filter, transform; and bodies forwarded once. Pure.

May not know: sockets, time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal

from nngkit.errors import ConfigError
from nngkit.instruments import BytesTotal, Total

MOST_REMEMBERED: Final = 65_536  # bodies that `Once` remembers; the oldest beyond are forgotten
BURST: Final = 0.05  # seconds of a rate that may be forwarded at once

Side = Literal["front", "back"]


@dataclass(frozen=True, slots=True)
class TappedMessage:
    """A message as the device received it, with its side, its peer (None if disconnected) and its kind.

    `number` is the same for a request and its reply, and counts from 1; None for other messages.
    """

    side: Side
    what: Literal["message", "request", "reply"]
    body: bytes
    peer: str | None
    number: int | None = None


@dataclass(slots=True)
class DirectionStats:
    """Counters of one direction."""

    received: Total = 0
    """Messages received."""
    passed: Total = 0
    """Messages passed on (queue, up: requests answered)."""
    size: BytesTotal = 0
    """Bytes received."""
    dropped: Total = 0
    """Messages that a filter, or `once`, has left out."""


class Once:
    """Memory of the bodies of the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        if not isinstance(seconds, (int, float)) or not seconds > 0:
            raise ConfigError("once", f"{seconds!r} is not a number of seconds above 0", seconds)
        self._seconds = seconds
        self._seen: dict[bytes, float] = {}  # digests and the times until which they count, oldest first

    def is_new(self, body: bytes, now: float) -> bool:
        """Return True, and remember `body`, if it was not seen within the time."""
        seen, digest = self._seen, blake2b(body, digest_size=16).digest()
        if seen.get(digest, 0.0) > now:
            return False
        seen.pop(digest, None)
        seen[digest] = now + self._seconds
        while seen:
            oldest = next(iter(seen))
            if seen[oldest] > now and len(seen) <= MOST_REMEMBERED:
                break
            del seen[oldest]
        return True


class Rate:
    """A token bucket: `per_second` messages, in bursts of up to 50 ms of them."""

    def __init__(self, per_second: float) -> None:
        if not isinstance(per_second, (int, float)) or not 0 < per_second < float("inf"):
            raise ConfigError("rate", f"{per_second!r} is not a number of messages a second", per_second)
        self.per_second = per_second
        self._most = max(1.0, per_second * BURST)
        self._tokens = self._most
        self._at: float | None = None

    def allowed(self, now: float) -> int:
        """Return how many messages may be forwarded now."""
        if self._at is not None:
            self._tokens = min(self._most, self._tokens + (now - self._at) * self.per_second)
        self._at = now
        return int(self._tokens)

    def use(self, count: int) -> None:
        """Note that `count` messages were forwarded."""
        self._tokens -= count

    @property
    def wait(self) -> float:
        """Seconds until the next message is allowed."""
        return max(0.0, (1.0 - self._tokens) / self.per_second)


class Examination:
    """The functions of one device. `wanted`: there are some, so that messages have to be looked at."""

    def __init__(
        self,
        tap: Callable[[TappedMessage], object] | None,
        filter: Callable[[TappedMessage], object] | None,
        transform: Callable[[TappedMessage], bytes] | None,
        once: float | None,
    ) -> None:
        self._tap = tap
        self._filter = filter
        self._transform = transform
        self._once = {} if once is None else {"front": Once(once), "back": Once(once)}
        self.wanted = tap is not None or filter is not None or transform is not None or once is not None

    def examine(self, message: TappedMessage, now: float, stats: DirectionStats) -> bytes | None:
        """Return the body to forward; None to drop the message, which is counted."""
        if self._tap is not None:
            self._tap(message)
        # of replies, equal ones are usual: each belongs to a request of its own
        repeated = self._once and message.what != "reply" and not self._once[message.side].is_new(message.body, now)
        if repeated or (self._filter is not None and not self._filter(message)):
            stats.dropped += 1
            return None
        return message.body if self._transform is None else self._transform(message)
