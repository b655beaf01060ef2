"""PUBSUB: a publisher sends to all subscribers; each takes the messages that begin with a topic it asked for.

::

    with Pub(listen="tcp://127.0.0.1:0") as pub, Sub(dial=pub.address, topics="weather.") as sub:
        pub.wait_for_peers(1)
        pub.send(b"weather.oslo 3")
        sub.recv()

A topic is a prefix of bytes. NNG matches it at the subscriber, so a publisher sends everything to everybody. Best
effort: a subscriber whose queue is full loses messages and nobody is told (NNG has no event for it). Numbered messages
make the loss visible: with ``sequence=True`` on both ends each message carries a trailer that ``Sub`` takes off and
counts gaps by (``stats.lost``)::

    message = topic  body  origin: 8 bytes  number: u64  topic length: u32          (big-endian; docs/wire.md)

Numbers run per topic, so that a subscriber of some topics sees no gaps in those it did not ask for. A subscriber that
joins late begins with the first number it sees. Protocol numbers 32 (PUB) and 33 (SUB).
"""

from __future__ import annotations

import os
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, ClassVar

from nngkit.errors import ConfigError

from ._nng import as_buffer, check, lib
from ._receiving import DEFAULT, MessageReceiver, Timeout
from ._ring import SKIP
from ._sending import Sender, WhenFull
from ._socket import Socket

__all__ = ["Pub", "Sub"]

TRAILER = struct.Struct(">8sQI")
MOST_TOPICS = 65536  # numbered topics remembered; over that the one longest unused is forgotten (and starts anew)

Topic = bytes | str


class Pub(Sender, Socket):
    """Publishes to all subscribers. ``send_buffer`` is a queue for each of them (1 to 8192). ``send`` never waits.

    ``sequence``: number the messages of each topic; then a subscriber needs ``sequence=True`` too.
    """

    _opener: ClassVar[Any] = lib.nng_pub0_open
    _nng_send_buffer: ClassVar[bool] = True
    _sends_to_all: ClassVar[bool] = True
    _drains: ClassVar[bool] = True
    _policies: ClassVar[tuple[WhenFull, ...]] = ("drop",)

    def __init__(self, *, sequence: bool = False, **options: Any) -> None:
        self._origin = os.urandom(8)
        self._numbers: OrderedDict[bytes, int] | None = OrderedDict() if sequence else None
        self._numbering = threading.Lock()
        super().__init__(**options)

    def send(self, data: Any, timeout: Timeout = DEFAULT, *, topic: Topic = b"") -> None:
        """Publish ``topic`` followed by ``data``."""
        if self._numbers is None:
            super().send(_topic(topic) + bytes(as_buffer(data)) if topic else data, timeout)
        else:
            self._publish((data,), topic)

    async def asend(self, data: Any, timeout: Timeout = DEFAULT, *, topic: Topic = b"") -> None:
        """``send`` for a task. Yields at least every 64 messages."""
        if self._numbers is None:
            await super().asend(_topic(topic) + bytes(as_buffer(data)) if topic else data, timeout)
        else:
            await self._breathe()
            self._publish((data,), topic)

    def send_many(self, items: Iterable[Any], timeout: Timeout = DEFAULT, *, topic: Topic = b"") -> int:
        """Publish each of ``items`` behind ``topic``; the number published."""
        if self._numbers is None:
            head = _topic(topic)
            return super().send_many([head + bytes(as_buffer(item)) for item in items] if head else items, timeout)
        return self._publish(items, topic)

    async def asend_many(self, items: Iterable[Any], timeout: Timeout = DEFAULT, *, topic: Topic = b"") -> int:
        """``send_many`` for a task."""
        if self._numbers is None:
            head = _topic(topic)
            framed = [head + bytes(as_buffer(item)) for item in items] if head else items
            return await super().asend_many(framed, timeout)
        await self._breathe()
        return self._publish(items, topic)

    def _publish(self, items: Iterable[Any], topic: Topic) -> int:
        numbers, head = self._numbers, _topic(topic)
        assert numbers is not None
        count = 0
        with self._numbering:  # so that numbers go out in their order; a publisher never waits for room
            for data in items:
                number = numbers.pop(head, 0)
                numbers[head] = number + 1
                if len(numbers) > MOST_TOPICS:
                    numbers.popitem(last=False)
                self._queue.offer(b"".join((head, as_buffer(data), TRAILER.pack(self._origin, number, len(head)))))
                count += 1
        return count


class Sub(MessageReceiver, Socket):
    """Receives what begins with one of its topics; ``b""`` is everything, and without a topic there is nothing.

    ``recv_buffer`` (default 1024) messages are kept for a slow reader; NNG then drops the oldest. ``topics``: one or
    several to begin with. ``sequence``: the publishers number their messages: gaps are counted as ``lost``, what comes
    twice (by two ways) as ``duplicate``, and what has no trailer is dropped and counted as ``bad``.
    """

    _opener: ClassVar[Any] = lib.nng_sub0_open
    _nng_recv_buffer: ClassVar[bool] = True
    _reads_at_once: ClassVar[bool] = True

    def __init__(self, *, topics: Topic | Iterable[Topic] = (), sequence: bool = False, **options: Any) -> None:
        self._first_topics = [topics] if isinstance(topics, (bytes, str)) else list(topics)
        self._sequence = sequence
        self._next: OrderedDict[tuple[bytes, bytes], int] = OrderedDict()
        self._lost = self._duplicate = self._bad = 0
        super().__init__(**options)

    def _set_up(self) -> None:
        if self._sequence:
            self._ring.unpack = self._unnumber
        for topic in self._first_topics:
            self.subscribe(topic)

    def subscribe(self, topic: Topic) -> None:
        """Receive messages that begin with ``topic`` too. Idempotent."""
        self._change(lib.nng_sub0_socket_subscribe, topic)

    def unsubscribe(self, topic: Topic) -> None:
        """Receive them no more. Raises ConfigError if it was not subscribed to."""
        self._change(lib.nng_sub0_socket_unsubscribe, topic)

    def _change(self, function: Any, topic: Topic) -> None:
        data = _topic(topic)
        with self._life:
            self._check_open()
            if (code := function(self._socket_id, data, len(data))) == lib.NNG_ENOENT:
                raise ConfigError("topic", f"not subscribed to {topic!r}", topic)
            check(code, repr(self))

    def _unnumber(self, message: Any, body: bytes) -> Any:
        # A signal handler that raises may have a message looked at twice: it must come out again, so a number seen
        # before is counted and let through, not dropped.
        if len(body) < TRAILER.size:
            self._bad += 1
            return SKIP
        origin, number, length = TRAILER.unpack_from(body, len(body) - TRAILER.size)
        if length > len(body) - TRAILER.size:
            self._bad += 1
            return SKIP
        key = (origin, body[:length])
        expected = self._next.pop(key, number)
        if number < expected:
            self._duplicate += 1
        else:
            self._lost += number - expected
        self._next[key] = max(expected, number + 1)
        if len(self._next) > MOST_TOPICS:
            self._next.popitem(last=False)
        return body[: -TRAILER.size]

    def _counters(self) -> dict[str, int]:
        return {"lost": self._lost, "duplicate": self._duplicate, "bad": self._bad}


def _topic(topic: Topic) -> bytes:
    return topic.encode() if isinstance(topic, str) else bytes(topic)
