"""The receiving half of a socket: what waits for an inbox, in the three ways a program can wait.

The calls below hold what they took in a list until they return, and give it back to the inbox if they raise: a timeout,
a cancellation or a Ctrl-C loses no message. That is why they are written out here, in the frame the caller sees, and
not behind one more call. May not know: protocols.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic, TypeVar

from nngkit.errors import Closed, TimedOut

from ._connection import Connection
from ._core import Core
from ._inbox import Inbox
from ._pipe import Pipe
from ._timeout import DEFAULT, Default, Timeout
from ._waiters import ThreadWaiter, in_trio, task_waiter

BURST = 64  # items an async receive hands out of what was read ahead before it yields to other tasks
BURST_OF_BATCHES = 1024  # the same where they come in batches, and cost little each

Item = TypeVar("Item")


class Receiver(Generic[Item]):
    """Receiving, blocking or awaited (trio and asyncio), from as many threads and tasks at once as there are.

    Each message goes to exactly one caller. ``timeout`` is in seconds, None waits for ever, and what is left out is
    the socket's ``recv_timeout``. All raise TimedOut, Closed, Forked.
    """

    _core: Core
    _inbox: Inbox
    _recv_timeout: float | None
    _burst = 0
    _most_burst = BURST

    def recv(self, timeout: Timeout = DEFAULT) -> Item:
        """One message, waiting for it; a signal handler that raises (Ctrl-C) ends the wait and loses nothing."""
        inbox = self._inbox
        if inbox.ready:
            try:
                for item in inbox.pops:
                    return item  # type: ignore[no-any-return]
            except IndexError:  # another thread was first
                pass
        out: list[Any] = []
        try:
            self._fill(out, 1, timeout)
            return out[0]  # type: ignore[no-any-return]
        except BaseException:
            inbox.put_back(out)
            raise

    def recv_many(self, max: int = 256, timeout: Timeout = DEFAULT) -> list[Item]:
        """1 to ``max`` messages: what is there, or the first to come."""
        out: list[Any] = []
        try:
            self._fill(out, _positive(max), timeout)
            return out
        except BaseException:
            self._inbox.put_back(out)
            raise

    async def arecv(self, timeout: Timeout = DEFAULT) -> Item:
        """One message. Cancelled, it has taken none. It yields when it waits, and at least every 64 messages."""
        inbox = self._inbox
        if self._burst and inbox.ready:
            self._burst -= 1
            try:
                for item in inbox.pops:
                    return item  # type: ignore[no-any-return]
            except IndexError:
                pass
        out: list[Any] = []
        try:
            await self._afill(out, 1, timeout)
            return out[0]  # type: ignore[no-any-return]
        except BaseException:
            inbox.put_back(out)
            raise

    async def arecv_many(self, max: int = 256, timeout: Timeout = DEFAULT) -> list[Item]:
        """1 to ``max`` messages. Cancelled, it has taken none."""
        out: list[Any] = []
        try:
            await self._afill(out, _positive(max), timeout)
            return out
        except BaseException:
            self._inbox.put_back(out)
            raise

    def _fill(self, out: list[Any], most: int, timeout: Timeout) -> None:
        inbox = self._inbox
        if inbox.poll(most, out):
            return
        seconds = self._recv_timeout if isinstance(timeout, Default) else timeout
        deadline = None if seconds is None else time.monotonic() + seconds
        poller, waiter = self._core.poller, ThreadWaiter()
        inbox.waiters.add(waiter)
        try:
            # looked at again once the waiter is known: what comes from then on wakes it
            while not inbox.poll(most, out):
                if not poller.wait(waiter, deadline) and not inbox.poll(most, out):
                    raise TimedOut(f"{self!r}: nothing received in {seconds} s{self._hint()}", seconds)
                if out:
                    return
        finally:
            inbox.waiters.discard(waiter)

    async def _afill(self, out: list[Any], most: int, timeout: Timeout) -> None:
        inbox = self._inbox
        trio_task = in_trio()
        if trio_task:
            await sys.modules["trio"].lowlevel.checkpoint_if_cancelled()
        elif self._burst < self._most_burst:
            # asyncio delivers a cancellation at the first await: it has to come before anything is taken.
            # After a call that had to wait, which yielded by itself, there is nothing to make up for.
            await sys.modules["asyncio"].sleep(0)
        self._burst = self._most_burst - 1
        if inbox.poll(most, out):
            if trio_task:
                await sys.modules["trio"].lowlevel.cancel_shielded_checkpoint()
            return
        seconds = self._recv_timeout if isinstance(timeout, Default) else timeout
        deadline = None if seconds is None else time.monotonic() + seconds
        poller, waiter = self._core.poller, task_waiter()
        inbox.waiters.add(waiter)
        try:
            while not inbox.poll(most, out):
                poller.watch_for(waiter)
                woken = await waiter.wait(deadline)
                if inbox.poll(most, out):
                    break
                if not woken:
                    raise TimedOut(f"{self!r}: nothing received in {seconds} s{self._hint()}", seconds)
            self._burst = self._most_burst
        finally:
            inbox.waiters.discard(waiter)

    def _hint(self) -> str:
        """Return why nothing can be received, for the text of an error; "" if there is no reason to be seen."""
        return ""

    def __iter__(self) -> Iterator[Item]:
        """Message after message, blocking, until the socket is closed; ``recv_timeout`` holds for each."""
        return self

    def __next__(self) -> Item:
        try:
            return self.recv()
        except Closed:
            raise StopIteration from None

    def __aiter__(self) -> AsyncIterator[Item]:
        """Message after message until the socket is closed; ``recv_timeout`` holds for each."""
        return _Iteration(self)


class _Iteration(Generic[Item]):
    """``async for``: ``arecv`` again and again, with what it looks at for every item at hand."""

    __slots__ = ("_left", "_pops", "_receiver")

    def __init__(self, receiver: Receiver[Item]) -> None:
        self._receiver = receiver
        self._pops: Iterator[Item] = receiver._inbox.pops
        self._left = 0  # items until it yields

    def __aiter__(self) -> _Iteration[Item]:
        return self

    async def __anext__(self) -> Item:
        if self._left:
            self._left -= 1
            try:
                for item in self._pops:
                    return item
            except IndexError:
                pass
        receiver = self._receiver
        receiver._burst = 0
        try:
            item = await receiver.arecv()
        except Closed:
            raise StopAsyncIteration from None
        self._left = receiver._most_burst
        return item


class Message(bytes):
    """A received message that knows the ``pipe`` it came by, None if that left long ago. It is its own ``body``."""

    pipe: Pipe | None

    def __new__(cls, body: bytes, pipe: Pipe | None) -> Message:
        message = super().__new__(cls, body)
        message.pipe = pipe
        return message

    @property
    def body(self) -> bytes:
        """The bytes, without the pipe."""
        return bytes(self)


class MessageReceiver(Receiver[bytes]):
    """A Receiver of bytes that can tell, for whoever asks, which connection they came by."""

    def recv_msg(self, timeout: Timeout = DEFAULT) -> Message:
        """``recv``, with the pipe."""
        self._name_pipes()
        out: list[Any] = []
        try:
            self._fill(out, 1, timeout)
            return self._message(out[0])
        except BaseException:
            self._inbox.put_back(out)
            raise

    async def arecv_msg(self, timeout: Timeout = DEFAULT) -> Message:
        """``arecv``, with the pipe."""
        self._name_pipes()
        out: list[Any] = []
        try:
            await self._afill(out, 1, timeout)
            return self._message(out[0])
        except BaseException:
            self._inbox.put_back(out)
            raise

    def recv_msgs(self, max: int = 256, timeout: Timeout = DEFAULT) -> list[Message]:
        """``recv_many``, with the pipes."""
        self._name_pipes()
        return [self._message(item) for item in self.recv_many(max, timeout)]

    async def arecv_msgs(self, max: int = 256, timeout: Timeout = DEFAULT) -> list[Message]:
        """``arecv_many``, with the pipes. Cancelled, it has taken none."""
        self._name_pipes()
        return [self._message(item) for item in await self.arecv_many(max, timeout)]

    def _message(self, item: bytes) -> Message:
        # what was read ahead before the first recv_msg does not know its pipe
        return item if isinstance(item, Message) else Message(item, None)

    def _name_pipes(self) -> None:
        """From now on every message read knows its pipe; most programs never ask and do not pay for it."""
        if self._inbox.wrap is None:
            self._inbox.name_pipes(_named)


def _named(connection: Connection, item: bytes) -> Message:
    return Message(item, connection.pipe)


def _positive(number: int) -> int:
    if number < 1:
        raise ValueError(f"max must be at least 1, not {number}")
    return number
