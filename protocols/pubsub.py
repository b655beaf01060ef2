"""PUBSUB: a publisher sends to all subscribers; each receives the messages that begin with one of its topics.

::

    with Pub(listen="tcp://127.0.0.1:0") as pub, Sub(dial=pub.address, topics="weather.") as sub:
        pub.wait_for_peers(1)
        pub.send(b"weather.oslo 3")
        sub.recv()

A topic is a prefix of bytes. The subscriber matches it: a publisher sends everything to every subscriber. Best effort:
a message that finds a subscriber's queue full is dropped for it; the publisher counts that, the subscriber does not
notice. Numbered messages let the subscriber notice: with ``sequence=True`` at both ends each message has a trailer that
``Sub`` removes, and gaps are counted in ``stats.lost``::

    message = topic  body  origin: 8 bytes  number: u64  topic length: u32          (big-endian; docs/wire.md)

Numbers run per topic, so that a subscriber to some topics sees no gaps from others. A late subscriber starts with the
first number it sees. Protocol numbers 32 (PUB) and 33 (SUB).

Functions can handle the messages of topics::

    @sub.on("orders.")
    def order(message): ...

    @sub.on(Pattern("orders.*.eu"))
    async def european(message): ...

    await sub.aserve()

Each message goes to one handler, the most specific, as to one receive call: which of several would be called first, and
what becomes of the others if one fails, are no questions.
"""

from __future__ import annotations

import inspect
import itertools
import logging
import os
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar, Unpack

from nngkit.errors import BadMessage, ConfigError
from nngkit.protocols._core.connection import Connection
from nngkit.protocols._core.inbox import WhenBehind
from nngkit.protocols._core.peer_queues import Divide, PeerQueues
from nngkit.protocols._core.pipe import Pipe
from nngkit.protocols._core.send_queue import WhenFull
from nngkit.protocols._nng.library import Payload, as_bytes
from nngkit.protocols._shm.sharing import Message, Reference, plain
from nngkit.protocols._socket.lending import Loan
from nngkit.protocols._socket.options import BroadcastOptions, ReceiveOptions
from nngkit.protocols._socket.receiving import MessageReceiver
from nngkit.protocols._socket.sending import Sender, messages
from nngkit.protocols._socket.socket import Socket
from nngkit.protocols._topics.patterns import Pattern
from nngkit.protocols._topics.topics import Routes, Topics
from nngkit.protocols._waiting.waiters import DEFAULT, Timeout, weakly
from nngkit.protocols.batch import pack, pack_topic, split_topic, unpack
from nngkit.protocols.sp import PUB, SUB

log = logging.getLogger("nngkit.protocols")

TRAILER = struct.Struct(">8sQI")
UNHEARD = 2.0  # seconds without a topic after which a Sub logs that it drops messages
MOST_TOPICS = 65536  # numbered topics kept; beyond that the least recently used is forgotten and starts anew

MOST_START = 4096  # bytes of a message in shared memory that topics are compared with
STEP = 256  # topics that are added or removed at once, while messages wait: a millisecond

Topic = bytes | bytearray | memoryview | str
Wanted = Topic | Pattern
Handler = Callable[[bytes], object]
Sieve = Callable[[Pipe, Sequence[bytes]], Sequence[bytes]]
AnyHandler = TypeVar("AnyHandler", bound=Handler)
_WANTED = (bytes, bytearray, memoryview, str, Pattern)


class Pub(Sender, Socket):
    """Publish to all subscribers. ``send_buffer`` caps the queue of each, 1 to 8192. ``send`` never waits.

    A full queue drops its oldest message, with ``when_full="drop"`` the newest; both are counted.

    ``sequence``: number the messages of each topic; subscribers then need ``sequence=True`` too. With ``batch``, the
    messages of a batch have the same ``topic=``; subscriptions match this argument, not the data.
    """

    _protocol: ClassVar[int] = PUB
    _outbox: PeerQueues
    _never_receives: ClassVar[bool] = True
    _batches_out: ClassVar[bool] = True
    _batches_by_topic: ClassVar[bool] = True
    _drains: ClassVar[bool] = True
    _least_send_buffer: ClassVar[int] = 1
    _policies: ClassVar[tuple[WhenFull, ...]] = ("drop_oldest", "drop")

    def __init__(self, *, sequence: bool = False, **options: Unpack[BroadcastOptions]) -> None:
        self._origin = os.urandom(8)
        self._numbers: OrderedDict[bytes, tuple[bytes, int]] | None = OrderedDict() if sequence else None
        self._forgot = False  # a topic, since the origin is this one
        self._numbering = threading.Lock()
        super().__init__(**options)

    def send(self, data: Payload, timeout: Timeout = DEFAULT, *, topic: Topic = b"") -> None:
        """Publish ``topic`` followed by ``data``."""
        if self._numbers is not None or self._batcher is not None:
            self._publish((data,), topic)
        elif type(data) is bytes and not topic and not self._sharing.active:
            self._outbox.add(data)  # as Sender.send ends
        else:
            super().send(_topic(topic) + as_bytes(data) if topic else data, timeout)

    async def asend(self, data: Payload, timeout: Timeout = DEFAULT, *, topic: Topic = b"") -> None:
        """Like ``send``, for a task. Yields at least every 64 messages."""
        if self._numbers is None and self._batcher is None:
            await super().asend(_topic(topic) + as_bytes(data) if topic else data, timeout)
        else:
            await self._checkpoint_sometimes()
            self._publish((data,), topic)

    def send_many(self, items: Iterable[Payload], timeout: Timeout = DEFAULT, *, topic: Topic = b"") -> int:
        """Publish each of ``items``, preceded by ``topic``; return their number."""
        if self._numbers is None and self._batcher is None:
            head = _topic(topic)
            return super().send_many([head + as_bytes(item) for item in items] if head else items, timeout)
        return self._publish(items, topic)

    async def asend_many(self, items: Iterable[Payload], timeout: Timeout = DEFAULT, *, topic: Topic = b"") -> int:
        """Like ``send_many``, for a task."""
        if self._numbers is None and self._batcher is None:
            head = _topic(topic)
            framed = [head + as_bytes(item) for item in items] if head else items
            return await super().asend_many(framed, timeout)
        await self._checkpoint_sometimes()
        return self._publish(items, topic)

    def loan(self, size: int, timeout: Timeout = DEFAULT, *, topic: Topic = b"") -> Loan:
        """Lend a writable buffer, which is published behind ``topic`` when the block ends. See ``Push.loan``."""
        head = _topic(topic)
        if self._numbers is None and self._batcher is None:
            return self._lend(size, timeout, head)
        self._check_open()  # numbered, or in a batch: copied
        return Loan(None, size, None, partial(self.send, topic=head), partial(self.asend, topic=head))

    def divide(self, divide: Divide) -> None:
        """Have ``divide(messages, connections)`` say which of several messages go to which connections.

        It returns parts: connections, their messages, the bytes of these, and calls to make when they are queued. It is
        called on any thread, under the socket's lock, perhaps twice with the same messages. A connection has a
        ``pipe``. Not for bodies in shared memory.
        """
        self._outbox.divide = divide

    def _set_up(self) -> None:
        if self._outbox.when_full == "drop_oldest":
            self._sharing.shed = weakly(self._shed, False)

    def _shed(self) -> bool:
        """Drop the oldest message in shared memory that waits for the slowest subscriber; False if there is none."""
        with self._state.lock:
            joined = self._state.joined()
            if not joined:
                return False
            slowest = max(joined, key=lambda one: len(one.out))
            for index, body in enumerate(slowest.out):
                if isinstance(body, Reference):
                    size = len(body)
                    # no calls from here: see connection.py
                    del slowest.out[index]
                    slowest.out_bytes -= size
                    slowest.dropped += 1
                    self._outbox.dropped += 1
                    return True
        return False

    def _publish(self, items: Iterable[Payload], topic: Topic) -> int:
        head = _topic(topic)
        if self._batcher is not None:
            held = messages(items)
            self._batcher.publish(head, held)
            return len(held)
        count = 0
        with self._numbering:  # so that numbers are sent in order; a publisher never waits for room
            for data in items:
                body = b"".join((head, as_bytes(data), self._trailer(head, 1)))
                self._outbox.add_many((self._placed(body, 0.0) if self._sharing.active else body,))
                count += 1
        return count

    def _pack(self, topic: bytes, items: Sequence[bytes]) -> bytes:
        if self._numbers is None:
            return pack_topic(topic, items)
        return b"".join((topic, pack(items), self._trailer(topic, len(items))))

    def _trailer(self, topic: bytes, count: int) -> bytes:
        """Return the trailer of the next ``count`` messages. The caller holds a lock that keeps them in order.

        The numbers count as used once the messages are accepted: interrupted before, they are no gap.
        """
        numbers = self._numbers
        assert numbers is not None
        known = numbers.get(topic)
        if known is not None:
            numbers.move_to_end(topic)
        else:
            if self._forgot:  # perhaps this one: with the same origin, its numbers would look like duplicates
                self._origin = ((int.from_bytes(self._origin, "big") + 1) % (1 << 64)).to_bytes(8, "big")
                self._forgot = False
            known = self._origin, 0
            while len(numbers) >= MOST_TOPICS:
                self._forgot = True
                numbers.popitem(last=False)
        origin, number = known
        self._outbox.numbered = numbers, topic, (origin, number + count)
        return TRAILER.pack(origin, number, len(topic))


class Sub(MessageReceiver, Socket):
    """Receive messages that begin with a subscribed topic, or match a Pattern.

    ``b""`` matches every message; without a topic no message is received. ``recv_buffer`` (default 1024): the newest
    messages kept for a slow reader; older ones are dropped and counted. ``topics``: one or several initial topics; any
    number costs about the same for each message. ``sequence``: the publishers number their messages; gaps count as
    ``lost``, repeated numbers as ``duplicate``; a message without a trailer is dropped and counts as ``bad``.
    """

    _protocol: ClassVar[int] = SUB
    _when_behind: ClassVar[WhenBehind] = "newest"
    _batches_in: ClassVar[bool] = True

    def __init__(
        self, *, topics: Wanted | Iterable[Wanted] = (), sequence: bool = False, **options: Unpack[ReceiveOptions]
    ) -> None:
        self._routes: Routes[Handler] = Routes()
        self._routing = threading.Lock()
        self._unhandled = 0
        self._sieve: Sieve | None = None
        self._first_topics: Iterable[Wanted] = [topics] if isinstance(topics, _WANTED) else topics
        self._sequence = sequence
        self._topics = Topics()
        self._next: OrderedDict[tuple[bytes, int], int] = OrderedDict()  # by origin and hash of the topic
        self._lost = self._duplicate = self._bad = 0
        self._topicless_since: float | None = time.monotonic()  # None once it had a topic, or the warning was logged
        super().__init__(**options)

    def _set_up(self) -> None:
        self._unpacker = weakly(self._unpack, ())
        self._change()
        self.subscribe_many(self._first_topics)
        self._first_topics = ()

    def sift(self, sieve: Sieve) -> None:
        """Have ``sieve(pipe, messages)`` return which messages of a connection to receive, before topics are compared.

        It is called on any thread, under the socket's lock, perhaps twice with the same messages.
        """
        with self._state.lock:
            self._sieve = sieve
            self._change()

    @property
    def topics(self) -> tuple[bytes, ...]:
        """Subscribed topics, the longest first: the first that a message begins with is the most specific."""
        return tuple(self._topics.prefixes.members())

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """Subscribed patterns, in the order of their addition."""
        return self._topics.patterns.members()

    def topic_of(self, message: bytes) -> bytes | None:
        """Return the longest subscribed topic that the message begins with; None if there is none."""
        with self._state.lock:
            return self._topics.prefixes.longest(message)

    def subscribe(self, topic: Wanted) -> None:
        """Add a topic or Pattern: receive messages that begin with it. Idempotent."""
        self._subscribe((_wanted(topic),))

    def subscribe_many(self, topics: Iterable[Wanted]) -> None:
        """Add topics and Patterns."""
        wanted = map(_wanted, topics)
        while some := list(itertools.islice(wanted, STEP)):
            self._subscribe(some)

    def unsubscribe(self, topic: Wanted) -> None:
        """Remove a topic or Pattern, and drop its messages that were read ahead.

        In batches and with ``sequence`` messages read ahead are still received. Raises ConfigError if it was not
        subscribed to.
        """
        self._unsubscribe((_wanted(topic),))

    def unsubscribe_many(self, topics: Iterable[Wanted]) -> None:
        """Remove topics and Patterns. Raises ConfigError at the first that was not subscribed to."""
        unwanted = map(_wanted, topics)
        while some := list(itertools.islice(unwanted, STEP)):
            self._unsubscribe(some)

    def _subscribe(self, topics: Sequence[bytes | Pattern]) -> None:
        with self._state.lock:
            self._state.check_open()
            for topic in topics:
                self._topics.add(topic)
                self._topicless_since = None
            self._change()

    def _unsubscribe(self, topics: Sequence[bytes | Pattern]) -> None:
        try:
            with self._state.lock:
                self._state.check_open()
                for topic in topics:
                    if not self._topics.remove(topic):
                        raise ConfigError("topic", f"not subscribed to {topic!r}", topic)
        finally:
            self._drop_unwanted(topics)

    def _drop_unwanted(self, removed: Sequence[bytes | Pattern]) -> None:
        """Drop messages read ahead that only the removed topics matched."""
        with self._state.lock:
            self._change()
        if self._batch is not None or not self._inbox.ready:
            return
        match = self._topics.match
        begin = tuple(topic for topic in removed if isinstance(topic, bytes))
        if len(begin) == len(removed):  # most messages begin with none of them
            self._inbox.take_back(lambda item: item.startswith(begin) and not match(_start(item)))
        else:
            self._inbox.take_back(lambda item: not match(_start(item)))

    def _hint(self) -> str:
        return "" if self._topics else "; it has no topics: subscribe to b'' to receive everything"

    def _change(self) -> None:
        plain = self._topics.prefixes.everything and self._batch is None and not self._sequence and self._sieve is None
        self._inbox.unpack = None if plain else self._unpacker

    def _unpack(self, connection: Connection, messages: Sequence[bytes]) -> Sequence[Any]:
        """Return the messages that match our topics, without trailers. Under the lock."""
        if self._topicless_since is not None and messages and time.monotonic() - self._topicless_since > UNHEARD:
            self._topicless_since = None
            log.warning("%r drops received messages: it has no topics; subscribe to b'' to receive everything", self)
        if self._sieve is not None:
            messages = () if connection.pipe is None else self._sieve(connection.pipe, messages)
        if self._batch is not None:
            match = self._topics.match
            return self._split_all(connection, [message for message in messages if match(_topic_of_batch(message))])
        if self._sharing.lazy:
            match = self._topics.match
            ours: Sequence[Any] = [message for message in messages if match(_start(message))]
        else:
            ours = self._topics.select(messages)
        if not self._sequence:
            return ours
        return [body for message in map(plain, ours) if (body := self._unnumber(message)) is not None]

    def _unnumber(self, message: bytes) -> bytes | None:
        if (numbered := _numbered(message)) is None:
            self._bad += 1
            return None
        origin, number, topic = numbered
        self._account((origin, hash(topic)), number, 1)
        return message[: -TRAILER.size]

    def _account(self, key: tuple[bytes, int], number: int, count: int) -> None:
        # A signal handler that raises may cause a message to be examined twice, and it must come out both times. So a
        # number seen before is counted and let through, not dropped.
        expected = self._next.pop(key, number)
        if number < expected:
            self._duplicate += count
        else:
            self._lost += number - expected
        self._next[key] = max(expected, number + count)
        if len(self._next) > MOST_TOPICS:
            self._next.popitem(last=False)

    def _split(self, connection: Connection, message: bytes) -> list[Any]:
        peer = None if connection.pipe is None else connection.pipe.address
        if self._sequence:
            if (numbered := _numbered(message)) is None:
                raise BadMessage("batch", "no sequence number", peer)
            origin, number, topic = numbered
            items = unpack(message[len(topic) : -TRAILER.size], largest=self._largest, peer=peer)
            self._account((origin, hash(topic)), number, len(items))
        else:
            topic, packed = split_topic(message, peer)
            items = unpack(packed, largest=self._largest, peer=peer)
        return [topic + item for item in items] if topic else items

    # ------------------------------------------------------------------ handlers

    def on(self, topic: Wanted) -> Callable[[AnyHandler], AnyHandler]:
        """Subscribe to a topic or Pattern; ``serve`` and ``aserve`` call the decorated function with its messages.

        Of several that match a message, the most specific is called: the one with the most bytes given, a Pattern's
        wildcards not counted. The function may be a coroutine function, for ``aserve``. Raises ConfigError for a topic
        that has a handler.
        """
        wanted = _wanted(topic)

        def register(handler: AnyHandler) -> AnyHandler:
            with self._routing:
                if wanted in self._routes:
                    raise ConfigError("topic", f"{wanted!r} has a handler", wanted)
                self._routes.add(wanted, handler)
            self.subscribe(wanted)
            return handler

        return register

    def serve(self) -> None:
        """Receive messages and call their handlers, one after another, until the socket is closed.

        An exception of a handler ends this call; the next one continues with the next message. A message that is
        subscribed to and has no handler is dropped, and counts as ``dropped``. Raises ConfigError without handlers and
        for one that must be awaited, TimedOut after ``recv_timeout``.
        """
        self._check_handlers()
        for message in self:
            handler = self._handler(message)
            if handler is not None and inspect.isawaitable(result := handler(message)):
                if inspect.iscoroutine(result):
                    result.close()
                raise ConfigError("handler", f"{handler!r} is a coroutine function: await aserve()", handler)

    async def aserve(self) -> None:
        """Like ``serve``, for a task (trio or asyncio). It awaits a handler before it receives the next message."""
        self._check_handlers()
        async for message in self:
            handler = self._handler(message)
            if handler is not None and inspect.isawaitable(result := handler(message)):
                await result

    def _check_handlers(self) -> None:
        if not len(self._routes):
            raise ConfigError("handlers", f"{self!r} has none: decorate functions with its on()")

    def _handler(self, message: bytes) -> Handler | None:
        with self._routing:
            handler = self._routes.find(message)
            if handler is not None:
                return handler
            self._unhandled += 1
            first = self._unhandled == 1
        if first:
            log.warning("%r drops messages without a handler, the first is %.80r", self, message[:80])
        return None

    # ------------------------------------------------------------------ counters

    def _counters(self) -> dict[str, int]:
        return {
            "lost": self._lost,
            "duplicate": self._duplicate,
            "bad": self._bad + self._inbox.bad,
            "dropped": self._outbox.dropped + self._inbox.dropped + self._unhandled,
        }


def _start(message: Message) -> bytes:
    """Return what a topic is compared with: of a message in shared memory its beginning."""
    start: bytes = message if isinstance(message, bytes) else message[:MOST_START]
    return start


def _numbered(body: bytes) -> tuple[bytes, int, bytes] | None:
    """Return origin, number and topic from the trailer of ``body``; None if it has none."""
    if len(body) < TRAILER.size:
        return None
    origin, number, length = TRAILER.unpack_from(body, len(body) - TRAILER.size)
    return (origin, number, body[:length]) if length <= len(body) - TRAILER.size else None


def _topic_of_batch(message: bytes) -> bytes:
    """Return the topic of a batch, whose length comes last, with a trailer too; all of a malformed one."""
    length = int.from_bytes(message[-4:], "big")
    return message[:length] if length + 4 <= len(message) else message


def _topic(topic: Topic) -> bytes:
    if type(topic) is bytes:
        return topic
    return topic.encode() if isinstance(topic, str) else as_bytes(topic)


def _wanted(topic: Wanted) -> bytes | Pattern:
    return topic if isinstance(topic, Pattern) else _topic(topic)
