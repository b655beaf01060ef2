"""Last message of each topic, for subscribers that join. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from nngkit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Keep:
    """Caps on kept messages: the number of `topics`, and `bytes` of their messages. Raises ConfigError.

    Over a cap the topic that was not published for the longest time is forgotten.
    """

    topics: int = 100_000
    bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for name in ("topics", "bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(name, f"{value!r} is not a positive integer", value)


class LastMessages:
    """The newest message of each topic. `forgotten` counts topics over the caps."""

    def __init__(self, keep: Keep) -> None:
        self.forgotten = 0
        self._keep = keep
        self._rows: OrderedDict[bytes, tuple[int, int, bytes]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    def note(self, topic: bytes, number: int, stamp: int, data: bytes) -> None:
        """Keep a message: its number and stamp (lag.py), topic and body in one."""
        before = self._rows.pop(topic, None)
        self._rows[topic] = (number, stamp, data)
        self._bytes += len(data) - (0 if before is None else len(before[2]))
        while self._rows and (len(self._rows) > self._keep.topics or self._bytes > self._keep.bytes):
            _, (_, _, dropped) = self._rows.popitem(last=False)
            self._bytes -= len(dropped)
            self.forgotten += 1

    def rows(self) -> list[tuple[int, int, bytes]]:
        """Return (number, stamp, message) of all topics, in the order of the numbers."""
        return list(self._rows.values())
