"""The sending half of a socket: into NNG's queue without waiting where there is room, and a wait of our own where not.

A send that finds room is one call into C. One that does not hands its message to NNG in an aio of its own and waits
for that aio on a waiter, never inside NNG; NNG keeps those in order. Taken back after a timeout or a cancellation, the
aio says for certain whether the message went: a message is sent whole or not at all, and freed if it was not.

May not know: protocols, event loops (that is ``_waiters``).
"""

from __future__ import annotations

import itertools
import operator
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from nngkit.errors import Closed, Full, TimedOut

from ._nng import EAGAIN, NONBLOCK, error, ffi, lib, new_aio, new_message
from ._receiving import BURST, Default, Timeout
from ._waiters import ThreadWaiter, in_trio, task_waiter

WhenFull = Literal["block", "drop", "raise"]
CHUNK = 256  # messages of a send_many for which the lock is held at once: about 0.1 ms


@ffi.callback("void (*)(void *)")  # type: ignore[untyped-decorator]
def _completed(handle: Any) -> None:
    handover = ffi.from_handle(handle)
    # not nng_aio_busy: it is busy as long as this callback runs, which is longer than the waiter takes to look
    handover.done = True
    handover.called.release()
    handover.waiter.wake()


class Woken(Protocol):
    """Who is told that a hand-over is done, on an NNG thread."""

    def wake(self) -> None: ...


class Handover:
    """One message that waits in NNG for room, and who waits for it."""

    __slots__ = ("aio", "called", "done", "handle", "message", "waiter")

    def __init__(self, waiter: Woken) -> None:
        self.waiter = waiter
        self.handle = ffi.new_handle(self)
        self.aio: Any = None
        self.message: Any = None
        self.done = False
        self.called = threading.Lock()  # held until NNG has called back
        self.called.acquire()

    def settle(self) -> None:
        """Return when NNG is through with it, at once after it was cancelled.

        Not with nng_aio_wait alone: cancelled while it is just completing, an aio is idle for NNG before its callback
        has even been queued (nni_task_abort), and must not be freed yet.
        """
        with self.called:
            lib.nng_aio_wait(self.aio)


class Tally(Protocol):
    """What counts the messages in batches that went."""

    handed: int


class Queue:
    """NNG's sending queue of one socket, and those that wait for room in it.

    ``sent`` counts messages accepted, ``dropped`` those that ``when_full="drop"`` let go.
    """

    def __init__(self, socket_id: Any, *, when_full: WhenFull, where: str) -> None:
        self._socket_id = socket_id
        self.when_full = when_full
        self._where = where
        self._lock = threading.Lock()
        self._waiting: set[Handover] = set()
        self._closed: Closed | None = None
        self._forked = False
        self.sent = 0
        self.dropped = 0

    def offer(self, data: Any) -> bool:
        """Hand ``data`` to NNG if there is room. Raises Closed, and Full or a drop as ``when_full`` says."""
        with self._lock:
            if self._closed is not None:
                raise type(self._closed)(str(self._closed))
            # a call is where a signal handler may raise, the step of a loop is not: what went is counted, or did not go
            for code in itertools.starmap(lib.nng_send, ((self._socket_id, data, len(data), NONBLOCK),)):
                if not code:
                    self.sent += 1
                    return True
                break
        return self._refused(code)

    def offer_batch(self, packed: bytes, items: list[bytes], count: int, tally: Tally) -> int:
        """Hand over ``packed``, which holds the first ``count`` of ``items``: they leave the list if it goes.

        NNG's code; with no room nothing has happened, whatever the policy. Raises Closed.
        """
        code = EAGAIN
        with self._lock:
            if self._closed is not None:
                raise type(self._closed)(str(self._closed))
            for code in itertools.starmap(lib.nng_send, ((self._socket_id, packed, len(packed), NONBLOCK),)):
                if not code:  # and from here no call, see ``offer``
                    self.sent += 1
                    tally.handed += count
                    del items[:count]
                break
        return code

    def offer_message(self, body: Any, header: bytes) -> bool:
        """``offer`` for a raw socket: with the protocol's header.

        Not while others wait for room: raw sockets send through NNG's msgq, which frees a few places before it moves
        those who wait, and in that state queues a non-blocking send behind them, reports EAGAIN and keeps a pointer
        to the message (NNG 1.11: a crash within seconds).
        """
        if self._waiting:
            return False
        message = new_message(body, header)
        with self._lock:
            if self._closed is not None:
                lib.nng_msg_free(message)
                raise type(self._closed)(str(self._closed))
            if self._waiting:
                lib.nng_msg_free(message)
                return False
            for code in itertools.starmap(lib.nng_sendmsg, ((self._socket_id, message, NONBLOCK),)):
                if not code:
                    self.sent += 1
                    return True
                break
            lib.nng_msg_free(message)
        return self._refused(code)

    def offer_many(self, items: Sequence[Any]) -> int:
        """Hand over as many of ``items`` as there is room for, in one call into C a chunk; says how many."""
        done = 0
        while done < len(items):
            chunk = items[done : done + CHUNK]
            with self._lock:
                if self._closed is not None:
                    raise type(self._closed)(str(self._closed))
                codes = map(
                    lib.nng_send, itertools.repeat(self._socket_id), chunk, map(len, chunk), itertools.repeat(NONBLOCK)
                )
                for count in map(sum, (map(operator.not_, itertools.takewhile(operator.not_, codes)),)):
                    self.sent += count
            done += count
            if count < len(chunk):
                break
        return done

    def _refused(self, code: int) -> bool:
        if code != EAGAIN:
            raise error(code, self._where)
        if self.when_full == "block":
            return False
        if self.when_full == "raise":
            raise Full(f"{self._where}: the sending queue is full")
        self.dropped += 1
        return True

    # ------------------------------------------------------------------ with no room

    def begin(self, handover: Handover, body: Any, header: bytes) -> None:
        """Leave the message with NNG; the waiter is woken when it was taken, refused, or the socket closed."""
        message = new_message(body, header)
        with self._lock:
            if self._closed is not None:
                lib.nng_msg_free(message)
                raise type(self._closed)(str(self._closed))
            handover.message = message
            handover.aio = new_aio(_completed, handover.handle)
            # in one call into C: interrupted after the first step, finish would wait for a callback that never comes
            steps: list[tuple[Any, ...]] = [(self._waiting.add, handover), (lib.nng_aio_set_msg, handover.aio, message)]
            steps.append((lib.nng_send_aio, self._socket_id, handover.aio))
            deque(itertools.starmap(operator.call, steps), 0)

    def holds(self, handover: Handover) -> bool:
        """Whether it was begun and is not finished."""
        return handover in self._waiting

    def finish(self, handover: Handover) -> int:
        """Take the message back unless it went; NNG's code, 0 if it went. Idempotent."""
        try:
            return self._finish(handover)
        except BaseException:  # a signal handler that raises: what it cut short is done before it goes on
            self._finish(handover)
            raise

    def _finish(self, handover: Handover) -> int:
        with self._lock:
            if handover not in self._waiting:
                return 0
            if self._forked:
                return int(lib.NNG_ECLOSED)
            lib.nng_aio_cancel(handover.aio)
            handover.settle()
            code: int = lib.nng_aio_result(handover.aio)
            steps: list[tuple[Any, ...]] = [(lib.nng_aio_free, handover.aio), (self._waiting.discard, handover)]
            steps.append((lib.nng_msg_free, handover.message) if code else (setattr, self, "sent", self.sent + 1))
            # one call into C, which no signal handler can cut in half: until then the set keeps what NNG points to
            deque(itertools.starmap(operator.call, steps), 0)
        return code

    def raise_for(self, code: int, seconds: float | None) -> None:
        """What a hand-over that did not succeed means to its caller."""
        if self._closed is not None:
            raise type(self._closed)(str(self._closed))
        if code == lib.NNG_ECANCELED:
            raise TimedOut(f"{self._where}: no room to send in {seconds} s", seconds)
        raise error(code, self._where)

    def refuse(self, reason: Closed) -> None:
        """Nothing more is accepted; those that wait for room are woken and raise ``reason``."""
        with self._lock:
            if self._closed is not None:
                return
            self._closed = reason
            for handover in self._waiting:
                lib.nng_aio_cancel(handover.aio)

    def close(self) -> None:
        """Wait until NNG has let go of every hand-over, so that the socket may be closed. After ``refuse``."""
        with self._lock:
            for handover in self._waiting:
                handover.settle()

    def forked(self, reason: Closed) -> None:
        """In a forked child: refuse everything and free nothing, as any NNG call would abort the process."""
        self._lock = threading.Lock()
        self._closed = reason
        self._forked = True


class Sending:
    """How one message, with a raw socket's header or without, gets into the queue."""

    _queue: Queue
    _send_timeout: float | None
    _sends = 0

    def _send(self, body: Any, header: bytes, timeout: Timeout) -> None:
        queue = self._queue
        if queue.offer_message(body, header) if header else queue.offer(body):
            return
        seconds = self._send_timeout if isinstance(timeout, Default) else timeout
        deadline = None if seconds is None else time.monotonic() + seconds
        handover = Handover(waiter := ThreadWaiter())
        try:
            try:
                queue.begin(handover, body, header)
                while not handover.done:
                    if not waiter.wait(deadline):
                        break
            finally:
                code = queue.finish(handover)
        except BaseException:
            queue.finish(handover)  # once more: a signal handler may have raised before the first line of the first
            raise
        if code:
            queue.raise_for(code, seconds)

    async def _breathe(self) -> None:
        """Now and then let others run and a cancellation in, before anything is handed over."""
        self._sends += 1
        if self._sends >= BURST:
            self._sends = 0
            await sys.modules["trio" if in_trio() else "asyncio"].sleep(0)

    async def _asend(self, body: Any, header: bytes, timeout: Timeout) -> None:
        await self._breathe()
        queue = self._queue
        if queue.offer_message(body, header) if header else queue.offer(body):
            return
        seconds = self._send_timeout if isinstance(timeout, Default) else timeout
        deadline = None if seconds is None else time.monotonic() + seconds
        waiter = task_waiter()
        handover = Handover(waiter)
        try:
            try:
                queue.begin(handover, body, header)
                while not handover.done:
                    if not await waiter.wait(deadline):
                        break
            finally:
                code = queue.finish(handover)
        except BaseException:
            queue.finish(handover)
            raise
        self._sends = 0
        if code:
            queue.raise_for(code, seconds)
