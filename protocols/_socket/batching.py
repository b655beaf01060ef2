"""Sending side of ``batch=``: messages that were accepted and are not queued yet, and when they are.

::

    send -> open batch: item ... item     full, or its delay over          no room in the queue
            appended, no lock, no C    -> one batch, offered at once    -> again when the outbox has room

A message is accepted once it is in an open batch. A send that finds no room waits before it appends: if cancelled or
timed out, it has sent nothing. The send that fills a batch, the alarm thread and a flush all queue batches through
``_offer``, which never waits, under one lock. Queued messages leave the open batch in the same step, so a signal
handler that raises neither loses nor duplicates them.

PUB has an open batch for each topic, the other sockets have one. May not know: protocols, event loops.
"""

from __future__ import annotations

import itertools
import operator
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from nngkit.errors import Closed, NngkitError
from nngkit.protocols._core.core import Outbox
from nngkit.protocols._waiting.alarm import Alarm
from nngkit.protocols.batch import HEAD, Batch

MOST_OPEN_BATCHES: Final = 1024  # topics with an open batch; beyond that the oldest is queued as it is

Pack = Callable[[bytes, Sequence[bytes]], bytes]


class OpenBatch:
    """Messages collected for one batch.

    Fast path of a send: a message of at most ``small`` bytes is appended to ``items`` while there are fewer than
    ``fast_limit`` (one step for Python, so it needs no lock), then ``arm`` is called unless ``armed``.
    Everything else goes through ``Batcher.add_many``.
    """

    __slots__ = ("armed", "batcher", "capacity", "fast_limit", "items", "key", "since", "small")

    def __init__(self, batcher: Batcher, key: bytes, small: int, most: int) -> None:
        self.batcher = batcher
        self.key = key
        self.small = small
        self.items: list[bytes] = []
        self.capacity = most  # items of a full batch, less those whose place larger messages take
        self.fast_limit = most - 1  # the last item takes the slow path, which queues the batch
        self.armed = False
        self.since = 0.0  # time.monotonic() of its first message, or a little before


class Batcher:
    """Batches of one socket. ``pack(key, items)`` returns the bytes of one."""

    def __init__(self, outbox: Outbox, batch: Batch, pack: Pack) -> None:
        self._outbox = outbox
        self._pack = pack
        self._most = batch.items
        # a full batch of messages of ``small`` bytes is within ``size``; a larger one takes several places
        self._small = max(1, batch.size // batch.items)
        self._delay = batch.delay
        self._open_batches: OrderedDict[bytes, OpenBatch] = OrderedDict()
        self.handed_over = 0
        self._lost = 0
        self._closed: Closed | None = None
        self._lock = threading.Lock()
        self._blocked = False  # a batch found no room
        self._alarm = Alarm(self._due)
        self.waiters: set[Any] = set()

    def open(self) -> OpenBatch:
        """Return the one open batch of a socket without topics."""
        with self._lock:
            return self._open_batch(b"")

    @property
    def accepted(self) -> int:
        """Messages accepted since the socket was opened."""
        with self._lock:
            return self.handed_over + self._lost + self.waiting

    @property
    def waiting(self) -> int:
        """Messages accepted and not queued."""
        return sum(len(open_batch.items) for open_batch in list(self._open_batches.values()))

    def arm(self, open_batch: OpenBatch) -> None:
        """Queue ``open_batch`` when its delay is over."""
        with self._lock:
            self._arm(open_batch)

    def resume(self) -> None:
        """Let all batches be queued in time, after a signal handler that raised between two steps."""
        with self._lock:
            for open_batch in self._open_batches.values():
                self._reset_capacity(open_batch)  # its last message was appended, or its batch queued
                if open_batch.items:
                    self._arm(open_batch)

    def _add(self, open_batch: OpenBatch, data: bytes) -> bool:
        """Accept one message; return False if there is no room for it. Raises Closed."""
        with self._lock:
            if not self._has_room(open_batch):
                return False
            open_batch.items.append(data)
            if len(data) > self._small:
                self._use_capacity(open_batch, data)
            self._added(open_batch)
        return True

    def add_many(self, open_batch: OpenBatch, data: Sequence[bytes]) -> int:
        """Accept the first of ``data``, as many as there is room for; return their number. Raises Closed."""
        try:
            return self._add_many(open_batch, data)
        except BaseException:
            self.resume()
            raise

    def _add_many(self, open_batch: OpenBatch, data: Sequence[bytes]) -> int:
        done = 0
        while done < len(data):
            chunk = data[done : done + self._most]
            if max(map(len, chunk)) > self._small:
                for item in chunk:
                    if not self._add(open_batch, item):
                        return done
                    done += 1
                continue
            with self._lock:
                if not self._has_room(open_batch):
                    return done
                room = open_batch.capacity - len(open_batch.items)
                # no calls, so no signal handler runs in between
                if room < len(chunk):
                    open_batch.items += chunk[:room]
                    done += room
                else:
                    open_batch.items += chunk
                    done += len(chunk)
                self._added(open_batch)
        return done

    def publish(self, key: bytes, data: Sequence[bytes]) -> None:
        """Accept all of ``data`` for the topic ``key``. For PUB, which always has room. Raises Closed."""
        try:
            for item in data:
                with self._lock:
                    open_batch = self._open_batch(key)
                    self._has_room(open_batch)
                    open_batch.items.append(item)
                    if len(item) > self._small:
                        self._use_capacity(open_batch, item)
                    self._added(open_batch)
        except BaseException:
            self.resume()
            raise

    def flush(self) -> bool:
        """Queue all batches, full or not, as far as there is room; return True if nothing is left. Raises Closed."""
        with self._lock:
            for open_batch in list(self._open_batches.values()):
                self._offer(open_batch, full=False)
            return not self.waiting

    def wake(self) -> None:
        """Note that there is room: the alarm retries, and senders check."""
        if self._blocked:
            self._alarm.now()
        for waiter in self.waiters.copy():
            waiter.wake()

    # ------------------------------------------------------------------ under the lock

    def _open_batch(self, key: bytes) -> OpenBatch:
        open_batch = self._open_batches.get(key)
        if open_batch is None:
            while len(self._open_batches) >= MOST_OPEN_BATCHES:
                oldest = next(iter(self._open_batches.values()))
                self._offer(oldest, full=False)
                del self._open_batches[oldest.key]
            open_batch = self._open_batches[key] = OpenBatch(self, key, self._small, self._most)
        return open_batch

    def _has_room(self, open_batch: OpenBatch) -> bool:
        if self._closed is not None:
            raise self._closed.again()
        if len(open_batch.items) >= open_batch.capacity:
            self._offer(open_batch, full=True)
        return len(open_batch.items) < open_batch.capacity

    def _use_capacity(self, open_batch: OpenBatch, data: bytes) -> None:
        open_batch.capacity = max(0, open_batch.capacity + 1 - -(-(len(data) + HEAD) // self._small))
        open_batch.fast_limit = open_batch.capacity - 1

    def _added(self, open_batch: OpenBatch) -> None:
        if len(open_batch.items) >= open_batch.capacity:
            self._offer(open_batch, full=True)
        elif not open_batch.armed:
            self._arm(open_batch)

    def _arm(self, open_batch: OpenBatch) -> None:
        if not open_batch.armed and self._closed is None:
            open_batch.since = time.monotonic()
            steps = [] if self._alarm.is_set else self._alarm.steps(self._delay)
            # in one call into C: interrupted after the first step, the alarm would seem set and never be called
            deque(itertools.starmap(operator.call, [*steps, (setattr, open_batch, "armed", True)]), 0)

    def _offer(self, open_batch: OpenBatch, *, full: bool) -> None:
        """Queue a full batch or, with ``full=False``, a partial one. Never waits."""
        count = len(open_batch.items)
        if not count or (full and count < open_batch.capacity):
            return
        packed = self._pack(open_batch.key, open_batch.items[:count])
        # added to the waiters first, so that room found later is notified
        self._outbox.waiters.add(self)
        if not self._outbox.add_batch(packed, open_batch.items, count, self):
            self._blocked = True
            return
        self._outbox.waiters.discard(self)
        self._blocked = False
        open_batch.since = time.monotonic()
        self._reset_capacity(open_batch)

    def _reset_capacity(self, open_batch: OpenBatch) -> None:
        open_batch.capacity = self._most
        for item in open_batch.items if max(map(len, open_batch.items), default=0) > self._small else ():
            if len(item) > self._small:
                self._use_capacity(open_batch, item)
        open_batch.fast_limit = open_batch.capacity - 1 if self._closed is None else 0

    def _due(self) -> float | None:
        # On the alarm thread. The flags are cleared before the batches are examined: a message appended earlier is
        # seen, and a later one finds the flag cleared, so its sender arms again.
        again = None
        with self._lock:
            open_batches = list(self._open_batches.values())
            for open_batch in open_batches:
                open_batch.armed = False
            self._blocked = False  # an interrupted call may have left it; the loop below sets it again
            try:
                now = time.monotonic()
                for open_batch in open_batches:
                    if (
                        open_batch.items and (left := open_batch.since + self._delay - now) > 0
                    ):  # full ones were queued meanwhile
                        open_batch.armed = True
                        again = left if again is None else min(again, left)
                        continue
                    self._offer(open_batch, full=False)
                    if open_batch.key and not open_batch.items:
                        del self._open_batches[open_batch.key]
            except NngkitError:
                return None  # the queue has closed; the rest is dropped, and counted by ``free``
            if self._blocked and self._closed is None:  # ``wake`` calls this when there is room
                again = None
                for open_batch in self._open_batches.values():
                    open_batch.armed = True
        for waiter in self.waiters.copy():
            waiter.wake()
        return again

    # ------------------------------------------------------------------ the end

    def refuse(self, reason: Closed) -> None:
        """Accept nothing more; accepted messages may still be flushed. Idempotent."""
        with self._lock:
            self._closed = self._closed or reason
            for open_batch in self._open_batches.values():
                open_batch.fast_limit = 0
        for waiter in self.waiters.copy():
            waiter.wake()

    def free(self) -> int:
        """Free everything, after the queue refuses; return how many accepted messages were not queued.

        Called again, it returns those not returned before.
        """
        self._alarm.close()
        with self._lock:
            lost, none = self.waiting, OrderedDict[bytes, OpenBatch]()
            # no calls from here: see _connection.py
            self._lost += lost
            self._open_batches = none
        return lost

    def forked(self, reason: Closed) -> None:
        """Refuse everything in a forked child, and free nothing."""
        self._lock = threading.Lock()
        self._closed = reason
        for open_batch in self._open_batches.values():
            open_batch.fast_limit = 0
