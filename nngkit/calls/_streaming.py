"""One streaming reply at the provider: the parts that the handler made and the caller has not fetched yet.

The handler runs ahead of the caller by at most MAX_PARTS parts, then waits. A caller that fetches nothing for IDLE
seconds has gone: the handler is cancelled.
"""

from __future__ import annotations

from collections import deque
from contextlib import aclosing
from typing import Any, Final

import trio

from nngkit.calls.handlers import Calling, Handler
from nngkit.calls.messages import MAX_PARTS, Codec, ErrorReply, PartsReply
from nngkit.errors import TooLarge

__all__ = ["IDLE", "Streaming"]

IDLE: Final = 30.0
"""Seconds without a request for more parts; a caller that lives asks as soon as it has read the last ones."""


class Streaming:
    """Parts of one reply, between the handler's task and the caller's requests. `drained`: all parts were fetched."""

    def __init__(self) -> None:
        self.drained = trio.Event()
        self.asked = False  # a request for parts is waiting
        self._parts: deque[Any] = deque()
        self._changed = trio.Event()
        self._ended = False
        self._error: ErrorReply | None = None

    async def produce(self, handler: Handler, body: Any, calling: Calling | None) -> None:
        """Run the handler to its end. Raises its exception."""
        async with aclosing(handler.parts(body, calling)) as parts:
            async for part in parts:
                self._parts.append(part)
                self._change()
                while len(self._parts) >= MAX_PARTS:
                    with trio.fail_after(IDLE):
                        await self._changed.wait()

    def end(self, error: ErrorReply | None = None) -> None:
        """Note that no more parts follow, or an error after those that are there. The first one counts."""
        if not self._ended:
            self._ended, self._error = True, error
            self._change()

    async def reply(self, codec: Codec, limit: int) -> bytes:
        """Return the next parts as an encoded reply, once there are any, or the end, or the error."""
        while not self._parts and not self._ended:
            await self._changed.wait()
        if not self._parts:
            self.drained.set()
            return (self._error or PartsReply((), True)).encode(codec, limit)
        count = min(len(self._parts), MAX_PARTS)
        while True:
            parts = tuple(self._parts[index] for index in range(count))
            last = self._ended and self._error is None and count == len(self._parts)
            try:
                data = PartsReply(parts, last).encode(codec, limit)
            except TooLarge as error:
                if count > 1:
                    count //= 2
                    continue
                self._parts.clear()
                self.end()
                self._error = ErrorReply("too large", str(error))
                return self._error.encode(codec, limit)
            break
        for _ in range(count):
            self._parts.popleft()
        self._change()
        if last:
            self.drained.set()
        return data

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
