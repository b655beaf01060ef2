"""What a program sees of sending: one message or many, blocking or awaited, as they are or in batches.

May not know: protocols.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nngkit.errors import Closed, Full, TimedOut

from ._batching import Batcher, Lane
from ._nng import as_buffer, as_bytes
from ._receiving import DEFAULT, Default, Timeout
from ._sending import Sending
from ._waiters import ThreadWaiter, Waiter, checkpoint_after, in_trio, sleep, task_waiter

_BYTES_ONLY = frozenset((bytes,))


class Sender(Sending):
    """Sending, blocking or awaited (trio and asyncio), from as many threads and tasks at once as there are.

    A message is bytes or any contiguous buffer, copied before the call returns. ``timeout`` is in seconds, None waits
    for ever, and what is left out is the socket's ``send_timeout``; 0 does not wait. With the queue full,
    ``when_full="block"`` waits (TimedOut), ``"drop"`` drops and counts, ``"raise"`` raises Full. Accepted means
    queued in this process: only an answer from the peer proves more. All raise Closed, Forked.

    With ``batch=`` a message waits for company: until its batch is full, its delay is over, or ``flush``. "Queue full"
    then means that a whole batch finds no room in NNG's queue.
    """

    _batcher: Batcher | None = None
    _lane: Lane | None = None
    _reason: Closed | None

    def _frame(self, data: Any) -> Any:
        """What goes on the wire for ``data``; protocols with a frame of their own override it."""
        return as_buffer(data)

    def send(self, data: Any, timeout: Timeout = DEFAULT) -> None:
        """Queue one message. Interrupted or timed out, it was sent whole or not at all."""
        lane = self._lane
        if lane is None:
            self._send(self._frame(data), b"", timeout)
        elif type(data) is bytes and len(data) <= lane.small and len(lane.items) < lane.nearly:
            lane.items.append(data)
            if not lane.armed:
                lane.batcher.arm(lane)
        else:
            waiter = ThreadWaiter()
            for until in self._fill_lane(lane, (as_bytes(data),), waiter, timeout):
                waiter.wait(until)

    async def asend(self, data: Any, timeout: Timeout = DEFAULT) -> None:
        """Queue one message. Cancelled, it was sent whole or not at all. Yields at least every 64, or once a batch."""
        lane = self._lane
        if lane is None:
            await self._asend(self._frame(data), b"", timeout)
        elif type(data) is bytes and len(data) <= lane.small and len(lane.items) < lane.nearly:
            lane.items.append(data)
            if not lane.armed:
                lane.batcher.arm(lane)
        else:
            await sleep(0)
            waiter = task_waiter()
            for until in self._fill_lane(lane, (as_bytes(data),), waiter, timeout):
                await waiter.wait(until)

    def send_many(self, items: Iterable[Any], timeout: Timeout = DEFAULT) -> int:
        """Queue the messages in order; the number sent, which a TimedOut carries as ``sent``.

        ``timeout`` holds for each message that has to wait. Interrupted, a first part of them was sent.
        """
        if (lane := self._lane) is not None:
            held, waiter = messages(items), ThreadWaiter()
            for until in self._fill_lane(lane, held, waiter, timeout):
                waiter.wait(until)
            return len(held)
        frames = [self._frame(item) for item in items]
        done = 0
        while True:
            done += self._queue.offer_many(frames[done:] if done else frames)
            if done == len(frames):
                return done
            try:
                self._send(frames[done], b"", timeout)
            except TimedOut as late:
                late.sent = done
                raise
            done += 1

    async def asend_many(self, items: Iterable[Any], timeout: Timeout = DEFAULT) -> int:
        """``send_many`` for a task. Cancelled, a first part of them was sent."""
        if (lane := self._lane) is not None:
            held, waiter = messages(items), task_waiter()
            await sleep(0)
            for until in self._fill_lane(lane, held, waiter, timeout):
                await waiter.wait(until)
            return len(held)
        frames = [self._frame(item) for item in items]
        trio_task = in_trio()
        await _yield(trio_task)
        done = 0
        while True:
            done += self._queue.offer_many(frames[done:] if done else frames)
            if done == len(frames):
                await checkpoint_after(trio_task)
                return done
            try:
                await self._asend(frames[done], b"", timeout)
            except TimedOut as late:
                late.sent = done
                raise
            done += 1

    def flush(self, timeout: Timeout = DEFAULT) -> None:
        """Hand all that waits in batches to NNG, waiting for room. Without ``batch=`` nothing ever waits there.

        Raises TimedOut, Closed; what was accepted stays so.
        """
        waiter = ThreadWaiter()
        for until in self._flushing(waiter, timeout):
            waiter.wait(until)

    async def aflush(self, timeout: Timeout = DEFAULT) -> None:
        """``flush`` for a task. Cancelled, what was accepted stays so."""
        await sleep(0)
        waiter = task_waiter()
        for until in self._flushing(waiter, timeout):
            await waiter.wait(until)

    def _fill_lane(
        self, lane: Lane, items: Sequence[bytes], waiter: Waiter, timeout: Timeout
    ) -> Iterator[float | None]:
        """Accept all of ``items``, for whoever can wait: yields until when."""
        done, batcher, queue = 0, lane.batcher, self._queue
        seconds, deadline = self._until(timeout)
        batcher.waiters.add(waiter)
        try:
            while True:
                done += batcher.add_many(lane, items[done:] if done else items)
                if done == len(items):
                    return
                if queue.when_full == "drop":
                    queue.dropped += len(items) - done
                    return
                if queue.when_full == "raise":
                    raise Full(f"{self!r}: the sending queue is full")
                if deadline is not None and time.monotonic() >= deadline:
                    late = TimedOut(f"{self!r}: no room to send in {seconds} s", seconds)
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
                if self._reason is not None:
                    raise type(self._reason)(str(self._reason))
                if batcher is None or batcher.push():
                    return
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimedOut(f"{self!r}: not flushed in {seconds} s", seconds)
                yield deadline
        finally:
            if batcher is not None:
                batcher.waiters.discard(waiter)

    def _until(self, timeout: Timeout) -> tuple[float | None, float | None]:
        seconds = self._send_timeout if isinstance(timeout, Default) else timeout
        return seconds, None if seconds is None else time.monotonic() + seconds


def messages(items: Iterable[Any]) -> Sequence[bytes]:
    """``items`` as bytes that stay what they are while they wait."""
    held = items if type(items) is list else list(items)
    if _BYTES_ONLY.issuperset(map(type, held)):
        return held
    return [as_bytes(item) for item in held]


async def _yield(trio_task: bool) -> None:
    """Let others run, and let a cancellation in, while nothing has been handed over yet."""
    if trio_task:
        await sys.modules["trio"].lowlevel.checkpoint_if_cancelled()
    else:
        await sys.modules["asyncio"].sleep(0)
