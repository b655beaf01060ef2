"""Subscribed prefixes and patterns together, and values by them. Pure: may not know sockets, threads, clocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from nngkit.protocols._topics.patterns import Pattern, Patterns
from nngkit.protocols._topics.prefixes import Prefixes

Value = TypeVar("Value")


class Topics:
    """Set of prefixes and patterns."""

    def __init__(self) -> None:
        self.prefixes = Prefixes()
        self.patterns = Patterns()

    def __bool__(self) -> bool:
        return bool(len(self.patterns)) or bool(len(self.prefixes))

    def __contains__(self, topic: bytes | Pattern) -> bool:
        return topic in self.patterns if isinstance(topic, Pattern) else topic in self.prefixes

    def add(self, topic: bytes | Pattern) -> bool:
        """Add a prefix or pattern; return False if it was there."""
        return self.patterns.add(topic) if isinstance(topic, Pattern) else self.prefixes.add(topic)

    def remove(self, topic: bytes | Pattern) -> bool:
        """Remove a prefix or pattern; return False if it was not there."""
        return self.patterns.remove(topic) if isinstance(topic, Pattern) else self.prefixes.remove(topic)

    def match(self, message: bytes) -> bool:
        """Return True if the message begins with one of them."""
        return self.prefixes.match(message) or self.patterns.match(message)

    def select(self, messages: Sequence[bytes]) -> Sequence[bytes]:
        """Return the messages that begin with one of them."""
        if not len(self.patterns):
            return self.prefixes.select(messages)
        return [message for message in messages if self.match(message)]


class Routes(Generic[Value]):
    """Values by prefix and pattern; a message finds that of the most specific one.

    The most specific is the one with the most bytes given: the length of a prefix, ``literal`` of a pattern. Of two
    alike it is the prefix.
    """

    def __init__(self) -> None:
        self._topics = Topics()
        self._values: dict[bytes | Pattern, Value] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, topic: bytes | Pattern) -> bool:
        return topic in self._values

    def add(self, topic: bytes | Pattern, value: Value) -> None:
        """Set the value of a prefix or pattern."""
        self._values[topic] = value
        self._topics.add(topic)

    def find(self, message: bytes) -> Value | None:
        """Return the value of the most specific prefix or pattern that matches; None if none does."""
        prefix = self._topics.prefixes.longest(message)
        if len(self._topics.patterns):
            pattern = self._topics.patterns.best(message)
            if pattern is not None and (prefix is None or pattern.literal > len(prefix)):
                return self._values[pattern]
        return None if prefix is None else self._values[prefix]
