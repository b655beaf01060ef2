"""Send queue shared by all peers (PUSH, PAIR, REQ): each peer with room takes its share, in turn.

May not know: protocols, event loops.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Protocol

from nngkit.errors import Full
from nngkit.protocols._core.connection import JOINED, SMALL, Connection
from nngkit.protocols._core.send_queue import (
    BURST_GAP,
    LOOP_MESSAGES,
    TURN_GAP,
    BatchCounter,
    SendQueue,
    WhenFull,
    portion,
)
from nngkit.protocols._core.state import State
from nngkit.protocols._waiting.faults import check_ours
from nngkit.protocols.routing import share


class Taken(Protocol):
    """A request whose message a peer takes: ``peer``; or that is still ``queued``."""

    peer: Connection | None
    queued: bool


class SharedQueue(SendQueue):
    """Queue with ``cap`` messages, and ``window`` bytes of messages of SMALL bytes and more."""

    def __init__(self, state: State[Connection], *, cap: int, window: int, when_full: WhenFull, where: str) -> None:
        super().__init__(state, cap=cap, window=window, when_full=when_full, where=where)
        self.free = cap  # 0 once the socket is closed
        self.large = 0  # bytes of queued messages of SMALL bytes and more
        # called under the lock with the connection that took messages; None: they are queued again
        self.took: Callable[[Connection | None, Sequence[bytes]], None] | None = None
        self._turn: Connection | None = None

    def _at_cap(self) -> bool:
        return len(self.queue) >= max(self.cap, 1) or self.large >= self.window

    def add(self, data: bytes) -> bool:
        """Accept one message; return False if it has to wait. Raises Closed, Full."""
        state = self._state
        if type(data) is not bytes and self.send_now(data):  # it refers to shared memory
            return True
        try:
            with state.lock:
                state.check_open()
                if self.queue and self.idle.peers:
                    self._flush(many=True)  # messages of tasks, waiting for the end of their loop's turn
                while self._full(len(data)):
                    if not self._make_room():
                        return self._refused()
                self._append(data)
                self._flush()
        except BaseException:
            self._state.resume()
            raise
        finally:
            state.notify()
        return True

    def send_now(self, data: bytes, request: Taken | None = None) -> bool:
        """Write a small message to an idle peer past the queue; return False, without a change, if it has to be queued.

        ``request`` is told its peer, in place of ``took``.
        """
        state, peers = self._state, self.idle.peers
        if state.reason is not None or self.queue or self.lanes is not None:
            return False
        try:
            with state.lock:
                connection = next(iter(peers), None)
                if connection is None or state.reason is not None or self.queue or not connection.send_small(data):
                    return False
                if request is not None:
                    request.peer = connection
                    request.queued = False
                elif self.took is not None:
                    self.took(connection, (data,))
                if connection.done < connection.total or connection.fault is not None:
                    self.idle.discard(connection)
                    self.after_write(connection)
                elif len(peers) > 1:
                    self.idle.turn(connection)
            if connection.fault is not None:
                state.notify()
        except BaseException:
            state.resume()
            raise
        return True

    def add_at_turn_end(self, data: bytes, request: Taken | None = None) -> bool:
        """Like ``add``, for a task: messages of one turn of its loop are written together at the end of it.

        Those of tasks that were woken together are written as soon as all of them are here.
        """
        queue = self.queue
        if len(queue) >= self.free or len(data) >= SMALL:
            return self.add(data)
        try:
            due, at, coming = self._due, perf_counter(), self.coming
            alone = not due and not coming and at - self._last > TURN_GAP
            if alone and self.idle.peers:
                self._last = at
                if self.send_now(data, request):
                    return True
            queue += (data,)
            if len(queue) >= (coming or LOOP_MESSAGES) and self.idle.peers:
                self.kick()
            elif due:
                if at > due:  # the loop has ended or is stuck
                    self.expect()
            elif alone and self.idle.peers:
                self.kick()
            else:
                self.expect()
        except BaseException:
            self._state.resume()
            raise
        return True

    def add_many(self, items: Sequence[bytes]) -> int:
        """Accept the first of ``items``, as many as there is room for; return their number."""
        state, count = self._state, 0
        try:
            with state.lock:
                state.check_open()
                queue = self.queue
                total = len(items)
                while count < total:
                    room = self.cap - len(queue)
                    if room > 0 and not self.large:
                        some = items[count : count + room] if count or room < total else items
                        if max(map(len, some)) < SMALL:
                            # no calls, so no signal handler runs in between
                            size = len(some)
                            queue += some
                            count += size
                            self._flush(many=True)
                            continue
                    if self._full(len(items[count])):
                        break
                    size, large = self._fitting(items, count)
                    some = items[count : count + size]
                    # no calls
                    queue += some
                    self.large += large
                    count += size
                    self._flush(many=True)
        except BaseException:
            self._state.resume()
            raise
        finally:
            state.notify()
        return count

    def _append(self, data: bytes) -> None:
        size = len(data)
        queue = self.queue
        queue += (data,)
        if size >= SMALL:
            self.large += size

    def _full(self, size: int) -> bool:
        if not self.cap:  # accepted only if a peer is idle
            return bool(self.queue) or not self.idle
        if len(self.queue) >= self.cap:
            return True
        return bool(self.queue) and self.large + size > self.window

    def _fitting(self, items: Sequence[bytes], start: int) -> tuple[int, int]:
        """Return how many of ``items`` from ``start`` on fit, at least one, and the bytes of the large ones."""
        count = large = 0
        for data in itertools.islice(items, start, start + max(1, self.cap - len(self.queue))):
            size = len(data)
            if count and self.large + large + size > self.window:
                break
            count += 1
            if size >= SMALL:
                large += size
        return count, large

    def _make_room(self) -> bool:
        if self.when_full != "drop_oldest" or not self.queue:
            return False
        first = self.queue[0]
        oldest, weight = len(first), self._weight((first,))
        del self.queue[0]
        if oldest >= SMALL:
            self.large -= oldest
        self.dropped += weight
        self.taken += 1  # it was accepted, and stays counted
        return True

    def _refused(self) -> bool:
        if self.when_full == "raise":
            raise Full(f"{self._where}: the send queue is full")
        if self.when_full == "block":
            return False
        self.dropped += 1
        return True

    def _accept_batch(self, packed: bytes, items: list[bytes], count: int, counter: BatchCounter) -> bool:
        size = len(packed)
        while self._full(size):
            if not self._make_room():
                return False
        queue, large = self.queue, size if size >= SMALL else 0
        # no calls from here: see connection.py
        queue += (packed,)
        self.large += large
        counter.handed_over += count
        del items[:count]
        self._flush()
        return True

    # ------------------------------------------------------------------ writing

    def _flush(self, *, many: bool = False) -> None:
        """Give queued messages to idle peers. Under the lock."""
        at = perf_counter()
        in_burst = at - self._last < BURST_GAP and not many
        self._last = at
        if self.queue:
            self.coming = 0
        while self.queue:
            connection = self.idle.first()
            if connection is None:
                break
            self.idle.discard(connection)
            self._turn = connection
            connection.write(now=not in_burst)
            self.after_write(connection)

    def resume(self) -> None:
        """Continue after a signal handler that raised. Under the lock."""
        for connection in self._state.joined():
            self.after_write(connection)
        self._flush()

    def after_write(self, connection: Connection) -> None:
        """Note that a connection has written what it could: it is idle, lost, or still writing."""
        if connection.fault is not None:
            self._state.lose(connection)
        elif connection.stage == JOINED and not connection.writing and not connection.waits_for_memory:
            self.idle.add(connection)
            self._drained()

    def next_write(self, connection: Connection) -> bool:
        """Give ``connection``, which has joined, its share to write; return False if there is none."""
        queue = self.queue
        if not queue:
            self.idle.add(connection)
            self._drained()
            return False
        if self._turn is not connection and (self.idle or (self.lanes and not self.lanes.may_take(connection))):
            self.idle.add(connection)  # it has had its share, and other peers wait
            return False
        most = share(len(queue), len(self._state.present))
        if connection.machine.metered and not (most := connection.machine.allowance(queue, most)):
            return False  # its peer must release memory first
        self._turn = None
        bodies, _ = portion(queue, most)
        try:
            frames = connection.machine.frames(bodies)
        except Exception as wrong:
            check_ours(wrong)
            # the next peer would end the same way
            del queue[: len(bodies)]
            self.taken += len(bodies)
            self.broken += len(bodies)
            self.large = sum(len(body) for body in queue if len(body) >= SMALL)
            raise
        total, count = sum(map(len, frames)), len(bodies)
        large = 0 if not self.large else sum(len(body) for body in bodies if len(body) >= SMALL)
        # no calls from here: see connection.py
        connection.held = frames
        connection.bodies = bodies
        connection.done = 0
        connection.total = total
        del queue[:count]
        self.taken += count
        self.large -= large
        if self.took is not None:
            self.took(connection, bodies)
        if self.waiters and len(queue) <= self.cap >> 1:
            self._state.wake_senders = True
        return True

    def lost(self, connection: Connection) -> None:
        """Requeue the messages that a lost connection had not begun to write. Under the lock."""
        self.idle.discard(connection)
        written, begun, unstarted = connection.progress_of_write()
        count, large = len(unstarted), sum(len(body) for body in unstarted if len(body) >= SMALL)
        if unstarted and self.took is not None:
            self.took(None, unstarted)
        # no calls from here: see connection.py
        connection.bodies = ()
        connection.total = 0
        connection.done = 0
        connection.written += written
        self.broken += begun
        self.queue[:0] = unstarted
        self.taken -= count
        self.large += large
        self._drained()

    def withdraw(self, data: bytes) -> bool:
        """Remove a message that no peer has taken; return False if one has."""
        with self._state.lock:
            for index, queued in enumerate(self.queue):
                if queued is data:
                    del self.queue[index]
                    self.taken += 1  # it was accepted, and stays counted
                    return True
        return False
