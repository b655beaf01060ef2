"""Messages that a subscriber has received and its program has not read: capped, and their age known. Pure.

What happens at the high-water mark is the policy:

    report   the oldest messages are dropped, and reported in their place as a Gap with the reason "slow"
    raise    the backlog is given up as a whole, and reading raises SlowSubscriber
    resync   it is given up as a whole, and the program continues with the newest state

Before that, `Lagging` tells a program that still reads that it falls behind, and `CaughtUp` that it no longer does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from nngkit.errors import ConfigError
from nngkit.fanout.numbered.lag import Event, Gap, Heartbeat, Published

Policy = Literal["report", "resync", "raise"]
OVERHEAD: Final = 250  # bytes that Python needs for an unread message beside its data
MOST_MERGED: Final = 1024  # events in front of the unread messages; of further publishers only counters tell


@dataclass(frozen=True, slots=True)
class HighWater:
    """Most that may be unread: `messages`, `bytes` (with 250 for each message), `age` in seconds of the oldest one.

    `warn`: seconds that a message may wait until `Lagging` is reported. None: no limit. Raises ConfigError.
    """

    messages: int | None = 100_000
    bytes: int | None = 64 << 20
    age: float | None = None
    warn: float | None = 0.5

    def __post_init__(self) -> None:
        for name in ("messages", "bytes", "age", "warn"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not value > 0):
                raise ConfigError(name, f"{value!r} is not a positive number", value)


class Lagging(NamedTuple):
    """The program reads more slowly than messages arrive: so many are unread, the oldest for `age` seconds."""

    messages: int
    bytes: int
    age: float


class CaughtUp(NamedTuple):
    """Nothing is unread any more, after `seconds` of lagging."""

    seconds: float


def weight_of(message: Published) -> int:
    """Return the bytes that an unread message takes."""
    headers = message.headers or {}
    return len(message.data) + OVERHEAD + sum(OVERHEAD + len(name) + len(value) for name, value in headers.items())


Unread = Event | Lagging | CaughtUp


class Backlog:
    """Events in order, capped. `now`: seconds on one monotonic clock."""

    def __init__(self, high_water: HighWater, policy: Policy) -> None:
        self.dropped = 0
        self._mark = high_water
        self._policy = policy
        self._queue: deque[tuple[Any, float]] = deque()
        self._front: dict[object, Any] = {}  # what is reported instead of dropped messages
        self._bytes = 0
        self._lagging: float | None = None  # since when
        self._told = 0.0  # the age that the last Lagging had

    def __len__(self) -> int:
        return len(self._queue)

    def lag(self, now: float) -> Lagging:
        """Return what is unread."""
        age = max(0.0, now - self._queue[0][1]) if self._queue else 0.0
        return Lagging(len(self._queue), self._bytes, age)

    def put(self, events: Iterable[Any], now: float, *, forced: bool = False) -> bool:
        """Append events. Return True if the mark is exceeded and the policy gives the backlog up.

        `forced`: whatever their number, as those of a snapshot.
        """
        queue = self._queue
        for event in events:
            queue.append((event, now))
            if type(event) is Published:
                self._bytes += len(event.data) + OVERHEAD if event.headers is None else weight_of(event)
        if forced or not self._over(now):
            return False
        if self._policy != "report":
            return True
        while self._over(now):
            self._drop()
        return False

    def take(self, now: float) -> Any:
        """Return the next event; None if there is none."""
        warn = self._mark.warn
        if not self._queue:
            if self._front:
                return self._front.pop(next(iter(self._front)))
            if self._lagging is None:
                return None
            since, self._lagging = self._lagging, None
            return CaughtUp(now - since)
        event, since = self._queue[0]
        if warn is not None and now - since >= max(warn, 2 * self._told if self._lagging is not None else 0.0):
            self._lagging = since if self._lagging is None else self._lagging
            self._told = now - since
            return self.lag(now)
        if self._front:
            return self._front.pop(next(iter(self._front)))
        self._queue.popleft()
        if type(event) is Published:
            self._bytes -= len(event.data) + OVERHEAD if event.headers is None else weight_of(event)
        return event

    def clear(self) -> int:
        """Give up everything; return the number of messages."""
        count = sum(type(event) is Published for event, _ in self._queue)
        self.dropped += count
        self._queue.clear()
        self._front.clear()
        self._bytes = 0
        self._lagging = None
        return count

    def _over(self, now: float) -> bool:
        mark, queue = self._mark, self._queue
        return bool(queue) and (
            (mark.messages is not None and len(queue) > mark.messages)
            or (mark.bytes is not None and self._bytes > mark.bytes)
            or (mark.age is not None and now - queue[0][1] > mark.age)
        )

    def _drop(self) -> None:
        """Replace the oldest event by its report."""
        event, _ = self._queue.popleft()
        if type(event) is Published:
            self._bytes -= len(event.data) + OVERHEAD if event.headers is None else weight_of(event)
            self.dropped += 1
            event = Gap(event.publisher, event.epoch, event.number, event.number, 1, "slow")
        if type(event) is Heartbeat:
            return
        key: object = event
        if type(event) is Gap:
            key = (event.publisher, event.epoch, event.reason)
            if type(before := self._front.get(key)) is Gap:
                first, last = min(before.first, event.first), max(before.last, event.last)
                event = Gap(event.publisher, event.epoch, first, last, before.count + event.count, event.reason)
        if key in self._front or len(self._front) < MOST_MERGED:
            self._front[key] = event
