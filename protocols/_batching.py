"""The sending side of ``batch=``: messages accepted and not yet in the queue, and what hands them over.

::

    send -> lane: items ... items       full, or its delay over          no room in the queue
            appended, no lock, no C  -> one batch, offered at once   ->  again when the outbox says that there is

A message is accepted once it stands in a lane. A send that finds no room waits before it appends: cancelled or timed
out, it has sent nothing. Who hands over: the send that fills a batch, the alarm thread, and whoever flushes;
all through ``_pump``, which never waits, under one lock. What is handed over leaves its lane in the step in which it
went, so that a signal handler that raises neither loses nor doubles it.

There is one lane a topic on PUB, one in all elsewhere. May not know: protocols, event loops.
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

from ._alarm import Alarm
from ._outbox import Outbox
from .batch import HEAD, Batch

MOST_LANES: Final = 1024  # topics with a batch begun; over that the oldest goes as it is

Pack = Callable[[bytes, Sequence[bytes]], bytes]


class Lane:
    """A batch begun. The fast way of a send is its own: a message of at most ``small`` bytes is appended to ``items``
    while there are less than ``nearly`` (one step for Python, so it needs no lock), and the batcher is told to ``arm``
    unless the lane is ``armed``. All else goes through ``Batcher.add``.
    """

    __slots__ = ("armed", "batcher", "items", "key", "nearly", "places", "since", "small")

    def __init__(self, batcher: Batcher, key: bytes, small: int, most: int) -> None:
        self.batcher = batcher
        self.key = key
        self.small = small
        self.items: list[bytes] = []
        self.places = most  # as many as a batch holds, less those that larger messages take on top of their own
        self.nearly = most - 1  # the last place is the slow way's, which then hands the batch over
        self.armed = False
        self.since = 0.0  # time.monotonic() at which its first message came, or a little before


class Batcher:
    """The batches of one socket. ``pack(key, items)`` makes the bytes of one."""

    def __init__(self, outbox: Outbox, batch: Batch, pack: Pack, where: str) -> None:
        self._outbox = outbox
        self._pack = pack
        self._where = where
        self._most = batch.items
        # that many messages of ``small`` bytes are within ``size``; a larger one takes the places of several
        self._small = max(1, batch.size // batch.items)
        self._delay = batch.delay
        self._lanes: OrderedDict[bytes, Lane] = OrderedDict()
        self.handed = 0
        self._lost = 0
        self._closed: Closed | None = None
        self._lock = threading.Lock()
        self._stuck = False  # a batch found no room
        self._alarm = Alarm(self._due)
        self.waiters: set[Any] = set()

    def open(self) -> Lane:
        """The one lane of a socket without topics."""
        with self._lock:
            return self._lane(b"")

    @property
    def accepted(self) -> int:
        """Messages accepted for sending since the beginning."""
        with self._lock:
            return self.handed + self._lost + self.waiting

    @property
    def waiting(self) -> int:
        """Messages accepted and not handed over."""
        return sum(len(lane.items) for lane in list(self._lanes.values()))

    def arm(self, lane: Lane) -> None:
        """See that what is in ``lane`` is sent when its delay is over."""
        with self._lock:
            self._arm(lane)

    def add(self, lane: Lane, data: bytes) -> bool:
        """Accept one message; False if there is no room for it now. Raises Closed."""
        with self._lock:
            if not self._has_room(lane):
                return False
            lane.items.append(data)
            if len(data) > self._small:
                self._take_places(lane, data)
            self._added(lane)
        return True

    def add_many(self, lane: Lane, data: Sequence[bytes]) -> int:
        """Accept as many of ``data``, from the first on, as there is room for; how many. Raises as ``add``."""
        done = 0
        while done < len(data):
            chunk = data[done : done + self._most]
            if max(map(len, chunk)) > self._small:
                for item in chunk:
                    if not self.add(lane, item):
                        return done
                    done += 1
                continue
            with self._lock:
                if not self._has_room(lane):
                    return done
                room = lane.places - len(lane.items)
                # in steps without a call, where no signal handler can come between
                if room < len(chunk):
                    lane.items += chunk[:room]
                    done += room
                else:
                    lane.items += chunk
                    done += len(chunk)
                self._added(lane)
        return done

    def publish(self, key: bytes, data: Sequence[bytes]) -> None:
        """Accept all of ``data`` for the topic ``key``. For PUB, which always has room. Raises as ``add``."""
        for item in data:
            with self._lock:
                lane = self._lane(key)
                self._has_room(lane)
                lane.items.append(item)
                if len(item) > self._small:
                    self._take_places(lane, item)
                self._added(lane)

    def push(self) -> bool:
        """Hand over what there is, full or not, as far as there is room; whether nothing is left. Raises as ``add``."""
        with self._lock:
            for lane in list(self._lanes.values()):
                self._pump(lane, full=False)
            return not self.waiting

    def wake(self) -> None:
        """There is room again: the alarm takes it from here, and senders look."""
        if self._stuck:
            self._alarm.now()
        for waiter in self.waiters.copy():
            waiter.wake()

    # ------------------------------------------------------------------ under the lock

    def _lane(self, key: bytes) -> Lane:
        lane = self._lanes.get(key)
        if lane is None:
            while len(self._lanes) >= MOST_LANES:
                oldest = next(iter(self._lanes.values()))
                self._pump(oldest, full=False)
                del self._lanes[oldest.key]
            lane = self._lanes[key] = Lane(self, key, self._small, self._most)
        return lane

    def _has_room(self, lane: Lane) -> bool:
        if self._closed is not None:
            raise type(self._closed)(str(self._closed))
        if len(lane.items) >= lane.places:
            self._pump(lane, full=True)
        return len(lane.items) < lane.places

    def _take_places(self, lane: Lane, data: bytes) -> None:
        lane.places = max(0, lane.places + 1 - -(-(len(data) + HEAD) // self._small))
        lane.nearly = lane.places - 1

    def _added(self, lane: Lane) -> None:
        if len(lane.items) >= lane.places:
            self._pump(lane, full=True)
        elif not lane.armed:
            self._arm(lane)

    def _arm(self, lane: Lane) -> None:
        if not lane.armed and self._closed is None:
            lane.since = time.monotonic()
            steps = [] if self._alarm.ticking else self._alarm.steps(self._delay)
            # in one call into C: cut short after the first step, the alarm would seem set and never be called
            deque(itertools.starmap(operator.call, [*steps, (setattr, lane, "armed", True)]), 0)

    def _pump(self, lane: Lane, *, full: bool) -> None:
        """Offer a batch of ``lane``: a full one, or with ``full=False`` whatever there is. Never waits."""
        count = len(lane.items)
        if not count or (full and count < lane.places):
            return
        packed = self._pack(lane.key, lane.items[:count])
        # among the waiters first: room that comes after the look is told
        self._outbox.waiters.add(self)
        if not self._outbox.add_batch(packed, lane.items, count, self):
            self._stuck = True
            return
        self._outbox.waiters.discard(self)
        self._stuck = False
        lane.since = time.monotonic()
        self._clear_places(lane)

    def _clear_places(self, lane: Lane) -> None:
        lane.places = self._most
        for item in lane.items if max(map(len, lane.items), default=0) > self._small else ():
            if len(item) > self._small:
                self._take_places(lane, item)
        lane.nearly = lane.places - 1 if self._closed is None else 0

    def _due(self) -> float | None:
        # On the alarm thread. The flags go down before the look: a message appended before that is seen by it, one that
        # is appended after finds its lane's flag down, and its sender arms again.
        again = None
        with self._lock:
            lanes = list(self._lanes.values())
            for lane in lanes:
                lane.armed = False
            self._stuck = False  # a look that was cut short may have left it; what follows says it again
            try:
                now = time.monotonic()
                for lane in lanes:
                    if lane.items and (left := lane.since + self._delay - now) > 0:  # full ones went meanwhile
                        lane.armed = True
                        again = left if again is None else min(again, left)
                        continue
                    self._pump(lane, full=False)
                    if lane.key and not lane.items:
                        del self._lanes[lane.key]
            except NngkitError:
                return None  # the queue has closed; what is left is lost, and counted by ``free``
            if self._stuck and self._closed is None:  # ``wake`` has it called when there is room
                again = None
                for lane in self._lanes.values():
                    lane.armed = True
        for waiter in self.waiters.copy():
            waiter.wake()
        return again

    # ------------------------------------------------------------------ the end

    def refuse(self, reason: Closed) -> None:
        """Accept nothing more; what was accepted may still be pushed. Idempotent."""
        with self._lock:
            self._closed = self._closed or reason
            for lane in self._lanes.values():
                lane.nearly = 0
        for waiter in self.waiters.copy():
            waiter.wake()

    def free(self) -> int:
        """Give everything back, after the queue has refused; how many messages were accepted and did not go."""
        self._alarm.close()
        with self._lock:
            self._lost = self.waiting
            self._lanes.clear()
        return self._lost

    def forked(self, reason: Closed) -> None:
        """In a forked child: refuse everything and free nothing."""
        self._lock = threading.Lock()
        self._closed = reason
        for lane in self._lanes.values():
            lane.nearly = 0
