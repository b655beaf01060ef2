"""Message counts and rates by peer and topic, in a bounded number of rows. Pure.

::

    traffic = Traffic(now, topics=(b"weather.",))
    traffic.add(b"weather.oslo 3", "tcp://10.0.0.7:5555", now)
    rows = traffic.rows(now)        # busiest first; rates since the last call
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MOST_ROWS: Final = 1000  # peers times topics: random topics must not fill the memory
MOST_TOPIC: Final = 32  # bytes of a topic that are shown
ENDS: Final = b" \t\n\0|,;"  # bytes that end the first word of a message


@dataclass(slots=True)
class TrafficRow:
    """Messages of one peer and topic. Rates are per second, since the last call of `rows`."""

    peer: str | None
    topic: str | None
    messages: int = 0
    size: int = 0
    smallest: int = 0
    largest: int = 0
    last: float = 0.0
    per_second: float = 0.0
    bytes_per_second: float = 0.0
    _before: tuple[int, int] = (0, 0)

    def count(self, size: int, now: float) -> None:
        """Count a message."""
        self.smallest = size if not self.messages else min(self.smallest, size)
        self.largest = max(self.largest, size)
        self.messages += 1
        self.size += size
        self.last = now

    def rate(self, seconds: float) -> None:
        """Update the rates, `seconds` after the last update."""
        messages, size = self._before
        self.per_second = (self.messages - messages) / seconds if seconds > 0 else 0.0
        self.bytes_per_second = (self.size - size) / seconds if seconds > 0 else 0.0
        self._before = self.messages, self.size


class Traffic:
    """Counts messages by the longest matching one of `topics`; with `words`, else by their first word."""

    def __init__(self, now: float, topics: Sequence[bytes] = (), *, words: bool = False) -> None:
        self.total = TrafficRow(None, None)
        self._topics = sorted(topics, key=len, reverse=True)
        self._words = words
        self._rows: dict[tuple[str | None, str | None], TrafficRow] = {}
        self._looked = now

    def add(self, message: bytes, peer: str | None, now: float) -> None:
        """Count a received message."""
        key = peer, self._topic(message)
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= MOST_ROWS:
                key = None, "(others)"
            row = self._rows.setdefault(key, TrafficRow(*key))
        row.count(len(message), now)
        self.total.count(len(message), now)

    def rows(self, now: float) -> list[TrafficRow]:
        """Return all rows, the busiest first, with their rates since the last call."""
        seconds, self._looked = now - self._looked, now
        self.total.rate(seconds)
        for row in self._rows.values():
            row.rate(seconds)
        return sorted(
            self._rows.values(), key=lambda row: (-row.per_second, -row.messages, row.peer or "", row.topic or "")
        )

    def _topic(self, message: bytes) -> str | None:
        for topic in self._topics:
            if topic and message.startswith(topic):
                return _shown(topic)
        if not self._words:
            return None
        end = next((place for place, byte in enumerate(message[:MOST_TOPIC]) if byte in ENDS), MOST_TOPIC)
        return _shown(message[:end])


def _shown(topic: bytes) -> str:
    """Return text for a terminal, without control characters."""
    text = topic.decode("utf-8", "backslashreplace")
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
