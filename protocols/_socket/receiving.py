"""Receiving half of a socket: blocking and awaited receive calls.

Each call keeps what it took in a list until it returns, and gives it back to the inbox if it raises: a timeout, a
cancellation and Ctrl-C lose no message. For that the calls are written out in the frame that the caller sees, not
behind another call. May not know: protocols.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

from nngkit.errors import Closed, TimedOut
from nngkit.protocols._core.connection import Connection
from nngkit.protocols._core.core import Core
from nngkit.protocols._core.inbox import Inbox
from nngkit.protocols._core.pipe import Pipe
from nngkit.protocols._shm.sharing import Shared, Sharing, plain, view_of
from nngkit.protocols._waiting.waiters import DEFAULT, Default, ThreadWaiter, Timeout, in_trio, task_waiter
from nngkit.protocols.batch import Batch

BURST = 64  # items that an async receive returns from the queue before it yields to other tasks
BURST_OF_BATCHES = 1024  # the same for batches, whose items cost little each

Item = TypeVar("Item")


class Receiver(Generic[Item]):
    """Blocking and awaited receiving (trio and asyncio), from any number of threads and tasks at once.

    Each message goes to exactly one caller. ``timeout`` is in seconds; None waits for ever, and the default is the
    socket's ``recv_timeout``. All methods raise TimedOut, Closed, Forked.
    """

    _core: Core
    _inbox: Inbox
    _sharing: Sharing
    _recv_timeout: float | None
    _burst = 0
    _most_burst = BURST

    def recv(self, timeout: Timeout = DEFAULT) -> Item:
        """Return one message, waiting for it. A signal handler that raises (Ctrl-C) loses nothing."""
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
            return bytes(out[0]) if type(out[0]) is Shared else out[0]  # type: ignore[return-value]
        except BaseException:
            inbox.put_back(out)
            raise

    def recv_many(self, max: int = 256, timeout: Timeout = DEFAULT) -> list[Item]:
        """Return 1 to ``max`` messages: those available, or else the first to arrive."""
        out: list[Any] = []
        try:
            self._fill(out, max, timeout)
            return self._plain(out)
        except BaseException:
            self._inbox.put_back(out)
            raise

    async def arecv(self, timeout: Timeout = DEFAULT) -> Item:
        """Return one message. If cancelled, it has taken none. Yields when it waits, and at least every 64 messages."""
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
            return bytes(out[0]) if type(out[0]) is Shared else out[0]  # type: ignore[return-value]
        except BaseException:
            inbox.put_back(out)
            raise

    async def arecv_many(self, max: int = 256, timeout: Timeout = DEFAULT) -> list[Item]:
        """Like ``recv_many``, for a task. If cancelled, it has taken none."""
        out: list[Any] = []
        try:
            await self._afill(out, max, timeout)
            return self._plain(out)
        except BaseException:
            self._inbox.put_back(out)
            raise

    def _fill(self, out: list[Any], most: int, timeout: Timeout) -> None:
        if most < 1:
            raise ValueError(f"max must be at least 1, not {most}")
        inbox = self._inbox
        seconds = self._recv_timeout if type(timeout) is Default else timeout
        deadline = None if seconds is None else time.monotonic() + seconds
        poller, waiter = self._core.poller, ThreadWaiter()
        inbox.waiters.add(waiter)
        try:
            # checked after the waiter was added: later messages wake it
            while inbox.idle() or not inbox.poll(most, out):
                woken = poller.wait(waiter, deadline, partial(inbox.take_small, out=out))
                if out:
                    return
                if not woken and not inbox.poll(most, out):
                    raise self._late(seconds)
                if out:
                    return
        finally:
            inbox.waiters.discard(waiter)

    async def _afill(self, out: list[Any], most: int, timeout: Timeout) -> None:
        if most < 1:
            raise ValueError(f"max must be at least 1, not {most}")
        inbox = self._inbox
        trio_task = in_trio()
        if trio_task:
            await sys.modules["trio"].lowlevel.checkpoint_if_cancelled()
        elif self._burst < self._most_burst:
            # asyncio delivers a cancellation at the first await, which must come before anything is taken. A previous
            # call that waited has yielded already.
            await sys.modules["asyncio"].sleep(0)
        self._burst = self._most_burst - 1
        if not inbox.idle() and inbox.poll(most, out):
            if trio_task:
                await sys.modules["trio"].lowlevel.cancel_shielded_checkpoint()
            return
        seconds = self._recv_timeout if type(timeout) is Default else timeout
        deadline = None if seconds is None else time.monotonic() + seconds
        poller, waiter = self._core.poller, task_waiter()
        inbox.waiters.add(waiter)
        try:
            woken = True
            while inbox.idle() or not inbox.poll(most, out):
                if not woken:
                    raise self._late(seconds)
                poller.watch_for(waiter)
                woken = await waiter.wait(deadline)
            self._burst = self._most_burst
        finally:
            inbox.waiters.discard(waiter)

    def _plain(self, out: list[Any]) -> list[Any]:
        """Return received items, with copies in place of those in shared memory."""
        if self._sharing.lazy:
            out[:] = map(plain, out)
        return out

    def _late(self, seconds: float | None) -> TimedOut:
        why = self._hint() + self._core.refusals()
        return TimedOut(f"{self!r}: nothing received in {seconds} s{why}", seconds)

    def _hint(self) -> str:
        """Return the reason why nothing can be received, for an error message; "" if there is none."""
        return ""

    def __iter__(self) -> Iterator[Item]:
        """Yield messages, blocking, until the socket is closed; ``recv_timeout`` applies to each."""
        return self

    def __next__(self) -> Item:
        try:
            return self.recv()
        except Closed:
            raise StopIteration from None

    def __aiter__(self) -> AsyncIterator[Item]:
        """Yield messages until the socket is closed; ``recv_timeout`` applies to each."""
        return _Iteration(self)


class _Iteration(Generic[Item]):
    """``async for``: repeated ``arecv``, with everything it needs for each item at hand."""

    __slots__ = ("_inbox", "_left", "_receiver")

    def __init__(self, receiver: Receiver[Item]) -> None:
        self._receiver = receiver
        self._inbox = receiver._inbox
        self._left = 0  # items until it yields

    def __aiter__(self) -> _Iteration[Item]:
        return self

    async def __anext__(self) -> Item:
        if self._left:
            self._left -= 1
            try:
                for item in self._inbox.pops:
                    return item  # type: ignore[no-any-return]
            except IndexError:
                pass
        receiver = self._receiver
        if self._left < receiver._most_burst - 1:  # else nothing was taken since `arecv`, which may have yielded
            receiver._burst = 0
        try:
            item = await receiver.arecv()
        except Closed:
            raise StopAsyncIteration from None
        self._left = receiver._most_burst
        return item


class Message(bytes):
    """A received message and the ``pipe`` that it came from; None if that is no longer known."""

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
    """A Receiver of bytes that can also return a view of each message, and its connection."""

    _batch: Batch | None

    def recv_view(self, timeout: Timeout = DEFAULT) -> memoryview:
        """Return one message as a read-only view, on shm of the memory that the peer has written. Experimental.

        The memory is kept as long as anything refers to the view: a slice, an array made of it. A program that keeps
        many views gets copies (``stats.copied``). Otherwise like ``recv``.
        """
        self._stay_shared()
        out: list[Any] = []
        try:
            self._fill(out, 1, timeout)
            return view_of(out[0])
        except BaseException:
            self._inbox.put_back(out)
            raise

    async def arecv_view(self, timeout: Timeout = DEFAULT) -> memoryview:
        """Like ``recv_view``, for a task. If cancelled, it has taken none."""
        self._stay_shared()
        out: list[Any] = []
        try:
            await self._afill(out, 1, timeout)
            return view_of(out[0])
        except BaseException:
            self._inbox.put_back(out)
            raise

    def _stay_shared(self) -> None:
        """Leave bodies in shared memory until they are taken, from now on; programs that use no views do not pay."""
        if not self._sharing.lazy and self._batch is None:
            self._inbox.pops = iter(deque[Any]().popleft, None)  # finds nothing: each item is looked at
            self._sharing.lazy = True

    def recv_msg(self, timeout: Timeout = DEFAULT) -> Message:
        """Like ``recv``, with the pipe."""
        self._name_pipes()
        out: list[Any] = []
        try:
            self._fill(out, 1, timeout)
            return self._message(out[0])
        except BaseException:
            self._inbox.put_back(out)
            raise

    async def arecv_msg(self, timeout: Timeout = DEFAULT) -> Message:
        """Like ``arecv``, with the pipe."""
        self._name_pipes()
        out: list[Any] = []
        try:
            await self._afill(out, 1, timeout)
            return self._message(out[0])
        except BaseException:
            self._inbox.put_back(out)
            raise

    def recv_msgs(self, max: int = 256, timeout: Timeout = DEFAULT) -> list[Message]:
        """Like ``recv_many``, with the pipes."""
        self._name_pipes()
        out: list[Any] = []
        try:
            self._fill(out, max, timeout)
            return [self._message(item) for item in out]
        except BaseException:
            self._inbox.put_back(out)
            raise

    async def arecv_msgs(self, max: int = 256, timeout: Timeout = DEFAULT) -> list[Message]:
        """Like ``arecv_many``, with the pipes. If cancelled, it has taken none."""
        self._name_pipes()
        out: list[Any] = []
        try:
            await self._afill(out, max, timeout)
            return [self._message(item) for item in out]
        except BaseException:
            self._inbox.put_back(out)
            raise

    def _message(self, item: bytes) -> Message:
        # unknown for a message that was read ahead long before the first recv_msg
        return item if isinstance(item, Message) else Message(plain(item), None)

    def _name_pipes(self) -> None:
        """Have every message know its pipe from now on; programs that never ask do not pay for it."""
        if self._inbox.wrap is None:
            self._inbox.name_pipes(_named)


def _named(connection: Connection, item: bytes) -> Message:
    return Message(plain(item), connection.pipe)
