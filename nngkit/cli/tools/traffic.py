"""What flows by, by peer and topic, in rows whose number is bounded. Pure.

::

    flows = Flows(topics=(b"weather.",))
    flows.add(b"weather.oslo 3", "tcp://10.0.0.7:5555", now)
    rows = flows.rows(now)          # busiest first; rates since the last call
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["MOST_ROWS", "Flows", "Row"]

MOST_ROWS: Final = 1000  # peers times topics: who invents topics must not eat the watcher's memory
MOST_TOPIC: Final = 32  # bytes of a topic that is shown: more is a message
ENDS: Final = b" \t\n\0|,;"  # what ends the first word of a message


@dataclass(slots=True)
class Row:
    """One peer's messages of one topic. Rates are per second, over the time between two looks."""

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
        """One more message."""
        self.smallest = size if not self.messages else min(self.smallest, size)
        self.largest = max(self.largest, size)
        self.messages += 1
        self.size += size
        self.last = now

    def rate(self, seconds: float) -> None:
        """The rates of what came since this was last called, `seconds` ago."""
        messages, size = self._before
        self.per_second = (self.messages - messages) / seconds if seconds > 0 else 0.0
        self.bytes_per_second = (self.size - size) / seconds if seconds > 0 else 0.0
        self._before = self.messages, self.size


class Flows:
    """Counts messages. `topics`: those to tell apart, the longest that fits; `words`: else by their first word."""

    def __init__(self, now: float, topics: Sequence[bytes] = (), *, words: bool = False) -> None:
        self.total = Row(None, None)
        self._topics = sorted(topics, key=len, reverse=True)
        self._words = words
        self._rows: dict[tuple[str | None, str | None], Row] = {}
        self._looked = now

    def add(self, message: bytes, peer: str | None, now: float) -> None:
        """One message has come."""
        key = peer, self._topic(message)
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= MOST_ROWS:
                key = None, "(others)"
            row = self._rows.setdefault(key, Row(*key))
        row.count(len(message), now)
        self.total.count(len(message), now)

    def rows(self, now: float) -> list[Row]:
        """All there are, the busiest first, with their rates since this was last called."""
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
    """Text for a terminal: a stranger's bytes must not move its cursor."""
    text = topic.decode("utf-8", "backslashreplace")
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
