"""Sending half of a socket: one message or many, blocking or awaited, single or in batches.

May not know: protocols.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from nngkit.errors import Full, TimedOut
from nngkit.protocols._core.connection import SMALL, Connection
from nngkit.protocols._core.core import Core, Outbox
from nngkit.protocols._core.send_queue import YIELD_EVERY
from nngkit.protocols._core.state import State
from nngkit.protocols._nng.library import Payload, as_bytes, size_of
from nngkit.protocols._shm.sharing import Sharing, Slot
from nngkit.protocols._socket.batching import Batcher, OpenBatch
from nngkit.protocols._socket.lending import Loan
from nngkit.protocols._socket.receiving import BURST
from nngkit.protocols._waiting.waiters import (
    DEFAULT,
    Default,
    ThreadWaiter,
    Timeout,
    Waiter,
    checkpoint_after,
    in_trio,
    sleep,
    task_waiter,
)
from nngkit.protocols.batch import BYTES_ONLY


class Sender:
    """Blocking and awaited sending (trio and asyncio), from any number of threads and tasks at once.

    A message is bytes or any contiguous buffer, copied before the call returns. ``timeout`` is in seconds; None waits
    for ever, 0 does not wait, and the default is the socket's ``send_timeout``. With a full queue ``when_full="block"``
    waits (TimedOut), ``"drop"`` and ``"drop_oldest"`` drop and count, ``"raise"`` raises Full. Accepted means queued in
    this process; only a reply from the peer proves more. All methods raise Closed, Forked.

    With ``batch=`` a message waits in its batch until that is full, its delay is over, or ``flush``. The queue is then
    full when it has no room for a whole batch.
    """

    _state: State[Connection]
    _core: Core
    _outbox: Outbox
    _sharing: Sharing
    _send_timeout: float | None
    _batcher: Batcher | None = None
    _open_batch: OpenBatch | None = None
    _header: bytes
    _sends = 0

    def send(self, data: Payload, timeout: Timeout = DEFAULT) -> None:
        """Queue one message. Interrupted or timed out, it was sent whole or not at all."""
        outbox = self._outbox
        queue = outbox.queue
        if len(queue) < outbox.free and type(data) is bytes and len(data) < SMALL:
            try:
                if header := self._header:
                    data = header + data
                # this append is one step for Python: it needs no lock, and no signal handler divides it
                queue += (data,)
                if outbox.idle.peers:
                    outbox.kick()
                elif not len(queue) % YIELD_EVERY:
                    outbox.yield_gil()
            except BaseException:
                self._state.resume()
                raise
            return
        self._send_slowly(data, timeout)

    def _send_slowly(self, data: Payload, timeout: Timeout) -> None:
        open_batch = self._open_batch
        if open_batch is None:
            body = self._placed(data, timeout) if self._sharing.active else self._header + as_bytes(data)
            if not self._outbox.add(body):
                self._send(body, timeout)
        elif type(data) is bytes and len(data) <= open_batch.small and len(open_batch.items) < open_batch.fast_limit:
            try:
                open_batch.items.append(data)
                if not open_batch.armed:
                    open_batch.batcher.arm(open_batch)
            except BaseException:
                open_batch.batcher.resume()
                raise
        else:
            waiter = ThreadWaiter()
            for until in self._add_to_batch(open_batch, (as_bytes(data),), waiter, timeout):
                waiter.wait(until)

    async def asend(self, data: Payload, timeout: Timeout = DEFAULT) -> None:
        """Like ``send``, for a task. If cancelled, the message was sent whole or not at all.

        Yields at least every 64 messages, or once per batch.
        """
        outbox = self._outbox
        queue = outbox.queue
        if len(queue) < outbox.free and type(data) is bytes and len(data) < SMALL and self._sends < BURST:
            self._sends += 1
            try:
                if header := self._header:
                    data = header + data
                queue += (data,)
                if outbox.idle.peers:
                    outbox.kick()
                elif not len(queue) % YIELD_EVERY:
                    outbox.yield_gil()
            except BaseException:
                self._state.resume()
                raise
            return
        open_batch = self._open_batch
        if open_batch is None:
            await self._checkpoint_sometimes()
            body = await self._aplaced(data, timeout) if self._sharing.active else self._header + as_bytes(data)
            if not outbox.add(body):
                await self._asend(body, timeout)
        elif type(data) is bytes and len(data) <= open_batch.small and len(open_batch.items) < open_batch.fast_limit:
            try:
                open_batch.items.append(data)
                if not open_batch.armed:
                    open_batch.batcher.arm(open_batch)
            except BaseException:
                open_batch.batcher.resume()
                raise
        else:
            await sleep(0)
            waiter = task_waiter()
            for until in self._add_to_batch(open_batch, (as_bytes(data),), waiter, timeout):
                await waiter.wait(until)

    def _frames(self, items: Iterable[Payload]) -> Sequence[bytes]:
        """Return the wire messages that carry ``items``."""
        held = messages(items)
        return [self._header + item for item in held] if self._header else held

    def send_many(self, items: Iterable[Payload], timeout: Timeout = DEFAULT) -> int:
        """Queue the messages in order; return the number sent, which a TimedOut carries as ``sent``.

        ``timeout`` applies to each message that has to wait. If interrupted, the first messages were sent.
        """
        if (open_batch := self._open_batch) is not None:
            held, waiter = messages(items), ThreadWaiter()
            for until in self._add_to_batch(open_batch, held, waiter, timeout):
                waiter.wait(until)
            return len(held)
        if self._sharing.active and max(map(size_of, items := list(items)), default=0) >= self._sharing.least:
            done = 0
            for item in items:
                try:
                    self.send(item, timeout)
                except TimedOut as late:
                    late.sent = done
                    raise
                done += 1
            return done
        frames = self._frames(items)
        done, waiter = 0, ThreadWaiter()
        while True:
            done += self._outbox.add_many(frames[done:] if done else frames)
            if done == len(frames):
                return done
            try:
                self._send(frames[done], timeout, waiter)
            except TimedOut as late:
                late.sent = done
                raise
            done += 1

    async def asend_many(self, items: Iterable[Payload], timeout: Timeout = DEFAULT) -> int:
        """Like ``send_many``, for a task. If cancelled, the first messages were sent."""
        if (open_batch := self._open_batch) is not None:
            held, waiter = messages(items), task_waiter()
            await sleep(0)
            for until in self._add_to_batch(open_batch, held, waiter, timeout):
                await waiter.wait(until)
            return len(held)
        if self._sharing.active and max(map(size_of, items := list(items)), default=0) >= self._sharing.least:
            done = 0
            for item in items:
                try:
                    await self.asend(item, timeout)
                except TimedOut as late:
                    late.sent = done
                    raise
                done += 1
            return done
        frames = self._frames(items)
        trio_task = in_trio()
        await _yield(trio_task)
        done = 0
        while True:
            done += self._outbox.add_many(frames[done:] if done else frames)
            if done == len(frames):
                await checkpoint_after(trio_task)
                return done
            try:
                await self._checkpoint_sometimes()
                await self._asend(frames[done], timeout)
            except TimedOut as late:
                late.sent = done
                raise
            done += 1

    def flush(self, timeout: Timeout = DEFAULT) -> None:
        """Queue all batches, full or not, waiting for room. Without ``batch=`` it does nothing.

        Raises TimedOut, Closed; accepted messages stay accepted.
        """
        waiter = ThreadWaiter()
        for until in self._flushing(waiter, timeout):
            waiter.wait(until)

    async def aflush(self, timeout: Timeout = DEFAULT) -> None:
        """Like ``flush``, for a task. If cancelled, accepted messages stay accepted."""
        await sleep(0)
        waiter = task_waiter()
        for until in self._flushing(waiter, timeout):
            await waiter.wait(until)

    # ------------------------------------------------------------------ shared memory

    def loan(self, size: int, timeout: Timeout = DEFAULT) -> Loan:
        """Lend a writable buffer of ``size`` bytes, which is sent when the block ends. Experimental.

        ::

            with push.loan(size) as buffer:         # in a task: async with
                camera.readinto(buffer)

        On shm it is the memory that the peers read, otherwise it is copied. If the block raises, nothing is sent. Do
        not write into it after the block. ``timeout`` is for the wait for memory, and for the sending.
        """
        return self._lend(size, timeout)

    def _lend(self, size: int, timeout: Timeout, prefix: bytes = b"") -> Loan:
        self._state.check_open()
        sharing = self._sharing if self._sharing.active and self._batcher is None else None
        send, asend = partial(self.send, timeout=timeout), partial(self.asend, timeout=timeout)
        return Loan(sharing, size, self._until(timeout)[0], send, asend, prefix)

    def _placed(self, data: Payload, timeout: Timeout) -> bytes:
        """Return the message that carries ``data``, in shared memory if it belongs there, waiting for some."""
        found: list[Slot] = []
        if size := self._sharing.wants(data):
            waiter = ThreadWaiter()
            for until in self._sharing.finding(size, found, waiter, self._until(timeout)[1]):
                waiter.wait(until)
        return self._sharing.message(self._header, data, size, found)

    async def _aplaced(self, data: Payload, timeout: Timeout) -> bytes:
        found: list[Slot] = []
        if size := self._sharing.wants(data):
            waiter = task_waiter()
            for until in self._sharing.finding(size, found, waiter, self._until(timeout)[1]):
                await waiter.wait(until)
        return self._sharing.message(self._header, data, size, found)

    # ------------------------------------------------------------------ one message that may have to wait

    def _send(self, body: bytes, timeout: Timeout, waiter: ThreadWaiter | None = None) -> None:
        outbox = self._outbox
        seconds, deadline = self._until(timeout)
        waiter = waiter or ThreadWaiter()
        outbox.waiters.add(waiter)
        try:
            while not outbox.add(body):
                if waiter.wait(deadline):
                    continue
                if outbox.add(body):
                    return
                raise TimedOut(f"{self!r}: no room to send in {seconds} s{self._core.refusals()}", seconds)
        finally:
            outbox.waiters.discard(waiter)

    async def _asend(self, body: bytes, timeout: Timeout) -> None:
        outbox = self._outbox
        seconds, deadline = self._until(timeout)
        waiter = task_waiter()
        outbox.waiters.add(waiter)
        try:
            while not outbox.add(body):
                woken = await waiter.wait(deadline)
                if outbox.add(body):
                    break
                if not woken:
                    raise TimedOut(f"{self!r}: no room to send in {seconds} s{self._core.refusals()}", seconds)
        finally:
            outbox.waiters.discard(waiter)
        self._sends = 0

    async def _checkpoint_sometimes(self) -> None:
        """Yield to other tasks, and to a cancellation, every 64 calls, before a message is queued."""
        self._sends += 1
        if self._sends >= BURST:
            self._sends = 0
            await sys.modules["trio" if in_trio() else "asyncio"].sleep(0)

    # ------------------------------------------------------------------ batches

    def _add_to_batch(
        self, open_batch: OpenBatch, items: Sequence[bytes], waiter: Waiter, timeout: Timeout
    ) -> Iterator[float | None]:
        """Accept ``items``; without room for them, yield each time to wait until."""
        batcher, outbox = open_batch.batcher, self._outbox
        done = batcher.add_many(open_batch, items)
        if done == len(items):
            return
        seconds, deadline = self._until(timeout)
        batcher.waiters.add(waiter)
        try:
            while True:
                done += batcher.add_many(open_batch, items[done:] if done else items)
                if done == len(items):
                    return
                if outbox.when_full == "drop":
                    outbox.dropped += len(items) - done
                    return
                if outbox.when_full == "raise":
                    raise Full(f"{self!r}: the send queue is full")
                if deadline is not None and time.monotonic() >= deadline:
                    late = TimedOut(f"{self!r}: no room to send in {seconds} s{self._core.refusals()}", seconds)
                    late.sent = done
                    raise late
                yield deadline
        finally:
            batcher.waiters.discard(waiter)

    def _flushing(self, waiter: Waiter, timeout: Timeout) -> Iterator[float | None]:
        seconds, deadline = self._until(timeout)
        batcher = self._batcher
        if batcher is not None:
            batcher.waiters.add(waiter)
        try:
            while True:
                self._state.check_open()
                if batcher is None or batcher.flush():
                    return
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimedOut(f"{self!r}: not flushed in {seconds} s{self._core.refusals()}", seconds)
                yield deadline
        finally:
            if batcher is not None:
                batcher.waiters.discard(waiter)

    def _until(self, timeout: Timeout) -> tuple[float | None, float | None]:
        seconds = self._send_timeout if isinstance(timeout, Default) else timeout
        return seconds, None if seconds is None else time.monotonic() + seconds


def messages(items: Iterable[Payload]) -> Sequence[bytes]:
    """Return ``items`` as immutable bytes."""
    held: list[Any] = items if type(items) is list else list(items)
    if BYTES_ONLY.issuperset(map(type, held)):
        return held
    return [as_bytes(item) for item in held]


async def _yield(trio_task: bool) -> None:
    """Yield to other tasks, and to a cancellation, before anything is queued."""
    if trio_task:
        await sys.modules["trio"].lowlevel.checkpoint_if_cancelled()
    else:
        await sys.modules["asyncio"].sleep(0)
