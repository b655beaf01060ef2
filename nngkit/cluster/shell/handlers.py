"""Messages of a cluster as a program gets them: handlers by kind, in order for each origin, origins side by side.

A message waits in the queue of its origin. One task for each origin with messages takes them in turn, so a slow handler
holds up its own origin only; `at_once` of these tasks run a handler at a time. A full queue drops new messages, counts
them, and says so in the log once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import trio

from nngkit.background import Background, Calling
from nngkit.calls.handlers import Handler, order_to_end
from nngkit.cluster.containing import contained, plain
from nngkit.cluster.messages import ClusterGap, ClusterMessage
from nngkit.errors import ConfigError

log = logging.getLogger("nngkit.cluster")

AT_ONCE: Final = 64  # handlers that run at a time: as the threads of nngkit.Server
QUEUE: Final = 65_536  # messages that wait, of all origins; as a Mesh
QUEUE_BYTES: Final = 64 * 1024 * 1024
OVERHEAD: Final = 200  # bytes that Python needs for a queued message beside its body


class Dispatcher:
    """Handlers of one node, and the messages that wait for them."""

    def __init__(self, name: str, background: Background, at_once: int = AT_ONCE) -> None:
        self.dropped = 0
        self.failed = 0
        self.unknown = 0
        self._name = name
        self._background = background
        self._limiter = trio.CapacityLimiter(at_once)
        self._threads = trio.CapacityLimiter(at_once)
        self._handlers: dict[str, Handler] = {}
        self._any: Handler | None = None
        self._gap: Callable[[ClusterGap], object] | None = None
        self._queues: dict[str, deque[ClusterMessage]] = {}
        self._waiting = self._bytes = 0
        self._warned: set[str] = set()

    def register(self, kind: str | None, function: Callable[..., Any]) -> None:
        """Set the handler of a kind; None: of all kinds without one. Raises ConfigError."""
        handler = Handler(function, lambda: self._threads)
        if handler.streams:
            raise ConfigError("handler", f"{function!r} is a generator: a message has no reply", function)
        if kind is None:
            self._any = handler
        elif kind in self._handlers:
            raise ConfigError("kind", f"{kind!r} has a handler", kind)
        else:
            self._handlers[kind] = handler

    def on_gap(self, function: Callable[[ClusterGap], object]) -> None:
        """Set the function that is called with each gap. Raises ConfigError for an async one."""
        self._gap = plain(function)

    def report_gap(self, gap: ClusterGap) -> None:
        """Report messages that will not come. An exception of the program's function is logged."""
        if self._gap is None:
            log.warning(
                "%s: messages %d to %d of %s are missing: %s", self._name, gap.first, gap.last, gap.origin, gap.reason
            )
            return
        try:
            self._gap(gap)
        except BaseException as error:
            contained(error)
            self.failed += 1
            log.exception("%s: the function for gaps failed", self._name)

    def put(self, message: ClusterMessage) -> None:
        """Queue a message for its handler."""
        if message.kind not in self._handlers and self._any is None:
            self.unknown += 1
            self._warn(
                f"kind {message.kind}", f"no handler for messages of kind {message.kind!r}, as from {message.origin}"
            )
            return
        size = len(message.body) + OVERHEAD
        if self._waiting >= QUEUE or (self._waiting and self._bytes + size > QUEUE_BYTES):
            self.dropped += 1
            self._warn("full", f"{self._waiting} messages wait for their handlers: new ones are dropped")
            return
        self._waiting += 1
        self._bytes += size
        queue = self._queues.get(message.origin)
        if queue is not None:
            queue.append(message)
            return
        self._queues[message.origin] = deque((message,))
        self._background.start_calling(self._serve, message.origin)

    async def _serve(self, calling: Calling, origin: str) -> None:
        """Handle the messages of one origin until none is left."""
        queue = self._queues[origin]
        while queue:
            async with self._limiter:
                message = queue.popleft()
                self._waiting -= 1
                self._bytes -= len(message.body) + OVERHEAD
                handler = self._handlers.get(message.kind) or self._any
                assert handler is not None  # handlers are never removed
                try:
                    await handler.call(message, None)
                except BaseException as raised:
                    order = order_to_end(raised)
                    if order is raised:
                        raise
                    self.failed += 1
                    log.exception("%s: the handler of %r failed, message of %s", self._name, message.kind, origin)
                    if order is not None:
                        raise order from None
            if calling.put_off:
                calling.returned()
        del self._queues[origin]

    def _warn(self, about: str, line: str) -> None:
        """Log a line, once for each subject, 100 in all."""
        if about not in self._warned and len(self._warned) < 100:
            self._warned.add(about)
            log.warning("%s: %s", self._name, line)
