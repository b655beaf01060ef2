"""One streaming reply at the provider: the parts that the handler made and the caller has not fetched yet.

The handler runs ahead of the caller by at most MAX_PARTS parts, then waits. A caller that fetches nothing for IDLE
seconds has gone: the handler is cancelled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Final

import trio

from nngkit.calls.handlers import Calling, Handler
from nngkit.calls.messages import MAX_PARTS, Codec, ErrorReply, PartsReply
from nngkit.errors import TooLarge
from nngkit.headers import check_headers
from nngkit.protocols import Pipe

IDLE: Final = 30.0
"""Seconds without a request for more parts; a caller that lives asks as soon as it has read the last ones."""


class Unread(Exception):
    """The caller has fetched no parts for IDLE seconds. Not a TooSlowError, which a handler may raise itself."""


class Streaming:
    """Parts of one reply, between the handler's task and the caller's requests.

    `drained`: all parts were fetched, or the caller has gone. `caller`: the connection of the call. `headers`: the
    handler's, sent when they have changed.
    """

    def __init__(self, caller: Pipe | None, headers: dict[str, str | bytes]) -> None:
        self.caller = caller
        self._headers = headers
        self._sent: dict[str, str | bytes] = {}
        self.drained = trio.Event()
        self.asked = False  # a request for parts is waiting
        self._parts: deque[Any] = deque()
        self._changed = trio.Event()
        self._ended = False
        self._error: ErrorReply | None = None

    async def produce(self, handler: Handler, body: Any, calling: Calling | None) -> None:
        """Run the handler to its end. Raises its exception."""
        contract = handler.contract
        typed = contract is not None and contract.reply is not None
        async with aclosing(handler.parts(body, calling)) as parts:
            async for part in parts:
                self._parts.append(contract.write(part) if contract is not None and typed else part)
                self._change()
                while len(self._parts) >= MAX_PARTS:
                    with trio.move_on_after(IDLE) as idle:
                        await self._changed.wait()
                    if idle.cancelled_caught:
                        raise Unread

    def end(self, error: ErrorReply | None = None) -> None:
        """Note that no more parts follow, or an error after those that are there. The first one counts."""
        if not self._ended:
            self._ended, self._error = True, error
            self._change()

    def stop(self) -> None:
        """End it because the caller has gone."""
        self.end()
        self.drained.set()

    async def reply(self, codec: Codec, limit: int, failed: Callable[[ErrorReply, Codec, int], bytes]) -> bytes:
        """Return the next parts as an encoded reply, once there are any, or the end, or the error (by `failed`)."""
        while not self._parts and not self._ended:
            await self._changed.wait()
        if not self._parts:
            self.drained.set()
            if self._error is not None:
                return failed(self._error, codec, limit)
            return PartsReply((), True, self._changed_headers()).encode(codec, limit)
        count = min(len(self._parts), MAX_PARTS)
        headers = self._changed_headers()
        while True:
            parts = tuple(self._parts[index] for index in range(count))
            last = self._ended and self._error is None and count == len(self._parts)
            try:
                data = PartsReply(parts, last, headers).encode(codec, limit)
            except TooLarge as error:
                if count > 1:
                    count //= 2
                    continue
                self._parts.clear()
                self.end()
                self._error = ErrorReply("too large", str(error))
                return failed(self._error, codec, limit)
            break
        for _ in range(count):
            self._parts.popleft()
        self._change()
        if last:
            self.drained.set()
        return data

    def _changed_headers(self) -> dict[str, str | bytes] | None:
        if self._headers == self._sent:
            return None
        self._sent = check_headers(self._headers)
        return self._sent

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
