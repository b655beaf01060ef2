"""Handlers of topics: functions that a subscriber calls with each of its messages.

::

    sub = Sub(dial=...)

    @sub.on("orders.")
    def order(message): ...

    @sub.on(Pattern("orders.*.eu"))
    async def european(message): ...

    await sub.aserve()

Each message goes to one handler, the most specific, as to one receive call: which of several would be called first, and
what becomes of the others if one fails, are no questions. May not know: how messages are received.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

from nngkit.errors import ConfigError
from nngkit.protocols._nng.library import as_bytes
from nngkit.protocols._topics.patterns import Pattern
from nngkit.protocols._topics.topics import Routes

log = logging.getLogger("nngkit.protocols")

Handler = Callable[[bytes], object]
AnyHandler = TypeVar("AnyHandler", bound=Handler)


class Serving:
    """Calling handlers. Mixed into a subscriber."""

    def _set_up_handlers(self) -> None:
        self._routes: Routes[Handler] = Routes()
        self._routing = threading.Lock()
        self._unhandled = 0

    def on(self, topic: bytes | bytearray | memoryview | str | Pattern) -> Callable[[AnyHandler], AnyHandler]:
        """Subscribe to a topic or Pattern; ``serve`` and ``aserve`` call the decorated function with its messages.

        Of several that match a message, the most specific is called: the one with the most bytes given, a Pattern's
        wildcards not counted. The function may be a coroutine function, for ``aserve``. Raises ConfigError for a topic
        that has a handler.
        """
        wanted = topic if isinstance(topic, Pattern) else topic.encode() if isinstance(topic, str) else as_bytes(topic)

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

    def subscribe(self, topic: bytes | Pattern) -> None:
        """Add a topic or Pattern."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[bytes]:
        raise NotImplementedError

    def __aiter__(self) -> AsyncIterator[bytes]:
        raise NotImplementedError

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
