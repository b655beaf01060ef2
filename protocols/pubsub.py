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
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from nngkit.errors import BadMessage, ConfigError

from ._nng import as_bytes, check, lib
from ._receiving import DEFAULT, MessageReceiver, Timeout
from ._ring import SKIP
from ._sender import Sender, messages
from ._sending import WhenFull
from ._socket import Socket
from .batch import pack, pack_topic, split_topic, unpack

__all__ = ["Pub", "Sub"]

TRAILER = struct.Struct(">8sQI")
MOST_TOPICS = 65536  # numbered topics remembered; over that the one longest unused is forgotten (and starts anew)

Topic = bytes | str


class Pub(Sender, Socket):
    """Publishes to all subscribers. ``send_buffer`` is a queue for each of them (1 to 8192). ``send`` never waits.

    ``sequence``: number the messages of each topic; then a subscriber needs ``sequence=True`` too. With ``batch`` a
    batch holds messages of one ``topic=``, and it is what NNG matches by: say it there and not in the data.
    """

    _opener: ClassVar[Any] = lib.nng_pub0_open
    _batches_out: ClassVar[bool] = True
    _batches_by_topic: ClassVar[bool] = True
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
        if self._numbers is None and self._batcher is None:
            super().send(_topic(topic) + as_bytes(data) if topic else data, timeout)
        else:
            self._publish((data,), topic)

    async def asend(self, data: Any, timeout: Timeout = DEFAULT, *, topic: Topic = b"") -> None:
        """``send`` for a task. Yields at least every 64 messages."""
        if self._numbers is None and self._batcher is None:
            await super().asend(_topic(topic) + as_bytes(data) if topic else data, timeout)
        else:
            await self._breathe()
            self._publish((data,), topic)

    def send_many(self, items: Iterable[Any], timeout: Timeout = DEFAULT, *, topic: Topic = b"") -> int:
        """Publish each of ``items`` behind ``topic``; the number published."""
        if self._numbers is None and self._batcher is None:
            head = _topic(topic)
            return super().send_many([head + as_bytes(item) for item in items] if head else items, timeout)
        return self._publish(items, topic)

    async def asend_many(self, items: Iterable[Any], timeout: Timeout = DEFAULT, *, topic: Topic = b"") -> int:
        """``send_many`` for a task."""
        if self._numbers is None and self._batcher is None:
            head = _topic(topic)
            framed = [head + as_bytes(item) for item in items] if head else items
            return await super().asend_many(framed, timeout)
        await self._breathe()
        return self._publish(items, topic)

    def _publish(self, items: Iterable[Any], topic: Topic) -> int:
        head = _topic(topic)
        if self._batcher is not None:
            held = messages(items)
            self._batcher.publish(head, held)
            return len(held)
        count = 0
        with self._numbering:  # so that numbers go out in their order; a publisher never waits for room
            for data in items:
                self._queue.offer(b"".join((head, as_bytes(data), self._trailer(head, 1))))
                count += 1
        return count

    def _pack(self, topic: bytes, items: Sequence[bytes]) -> bytes:
        if self._numbers is None:
            return pack_topic(topic, items)
        return b"".join((topic, pack(items), self._trailer(topic, len(items))))

    def _trailer(self, topic: bytes, count: int) -> bytes:
        """The numbers of the next ``count`` messages, in order: whoever asks holds a lock."""
        numbers = self._numbers
        assert numbers is not None
        number = numbers.pop(topic, 0)
        numbers[topic] = number + count
        if len(numbers) > MOST_TOPICS:
            numbers.popitem(last=False)
        return TRAILER.pack(self._origin, number, len(topic))


class Sub(MessageReceiver, Socket):
    """Receives what begins with one of its topics; ``b""`` is everything, and without a topic there is nothing.

    ``recv_buffer`` (default 1024) messages are kept for a slow reader; NNG then drops the oldest. ``topics``: one or
    several to begin with. ``sequence``: the publishers number their messages: gaps are counted as ``lost``, what comes
    twice (by two ways) as ``duplicate``, and what has no trailer is dropped and counted as ``bad``.
    """

    _opener: ClassVar[Any] = lib.nng_sub0_open
    _batches_in: ClassVar[bool] = True
    _nng_recv_buffer: ClassVar[bool] = True
    _reads_at_once: ClassVar[bool] = True
    _lends: ClassVar[bool] = True

    def __init__(self, *, topics: Topic | Iterable[Topic] = (), sequence: bool = False, **options: Any) -> None:
        self._first_topics = [topics] if isinstance(topics, (bytes, str)) else list(topics)
        self._sequence = sequence
        self._topics: set[bytes] = set()
        self._next: OrderedDict[tuple[bytes, bytes], int] = OrderedDict()
        self._lost = self._duplicate = self._bad = 0
        super().__init__(**options)

    def _set_up(self) -> None:
        if self._sequence:
            if self._ring.lends:
                raise ConfigError("copy", "numbered messages are taken apart: they cannot be lent", False)
            self._ring.unpack = self._unnumber
        for topic in self._first_topics:
            self.subscribe(topic)

    @property
    def topics(self) -> tuple[bytes, ...]:
        """What it is subscribed to, the longest first: the first that a message begins with says most about it."""
        return tuple(sorted(self._topics.copy(), key=lambda topic: (-len(topic), topic)))

    def subscribe(self, topic: Topic) -> None:
        """Receive messages that begin with ``topic`` too. Idempotent."""
        self._change(lib.nng_sub0_socket_subscribe, topic)
        self._topics.add(_topic(topic))

    def unsubscribe(self, topic: Topic) -> None:
        """Receive them no more. Raises ConfigError if it was not subscribed to."""
        self._change(lib.nng_sub0_socket_unsubscribe, topic)
        self._topics.discard(_topic(topic))

    def _change(self, function: Any, topic: Topic) -> None:
        data = _topic(topic)
        with self._life:
            self._check_open()
            if (code := function(self._socket_id, data, len(data))) == lib.NNG_ENOENT:
                raise ConfigError("topic", f"not subscribed to {topic!r}", topic)
            check(code, repr(self))

    def _unnumber(self, message: Any, body: bytes) -> Any:
        if (numbered := _numbered(body)) is None:
            self._bad += 1
            return SKIP
        origin, number, topic = numbered
        self._account((origin, topic), number, 1)
        return body[: -TRAILER.size]

    def _account(self, key: tuple[bytes, bytes], number: int, count: int) -> None:
        # A signal handler that raises may have a message looked at twice: it must come out again, so a number seen
        # before is counted and let through, not dropped.
        expected = self._next.pop(key, number)
        if number < expected:
            self._duplicate += count
        else:
            self._lost += number - expected
        self._next[key] = max(expected, number + count)
        if len(self._next) > MOST_TOPICS:
            self._next.popitem(last=False)

    def _split(self, message: Any, body: bytes) -> list[Any]:
        peer = self._peer_of(message)
        if self._sequence:
            if (numbered := _numbered(body)) is None:
                raise BadMessage("batch", "no number where one was expected", peer)
            origin, number, topic = numbered
            items = unpack(body[len(topic) : -TRAILER.size], largest=self._largest, peer=peer)
            self._account((origin, topic), number, len(items))
        else:
            topic, packed = split_topic(body, peer)
            items = unpack(packed, largest=self._largest, peer=peer)
        return [topic + item for item in items] if topic else items

    def _counters(self) -> dict[str, int]:
        return {"lost": self._lost, "duplicate": self._duplicate, "bad": self._bad + self._ring.bad}


def _numbered(body: bytes) -> tuple[bytes, int, bytes] | None:
    """Origin, number and topic in the trailer of ``body``; None if it cannot be one."""
    if len(body) < TRAILER.size:
        return None
    origin, number, length = TRAILER.unpack_from(body, len(body) - TRAILER.size)
    return (origin, number, body[:length]) if length <= len(body) - TRAILER.size else None


def _topic(topic: Topic) -> bytes:
    return topic.encode() if isinstance(topic, str) else bytes(topic)
