"""A send queue for each peer (PUB, BUS, SURVEYOR, answers), capped by messages and bytes.

A burst to all peers is queued once, in ``burst``, and distributed at BURST_MESSAGES messages or CHUNK bytes, or by an
alarm after BURST_DELAY. May not know: protocols, event loops.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, MutableMapping, Sequence
from time import perf_counter
from typing import Any, Final, TypeAlias, TypeVar

from nngkit.errors import Closed
from nngkit.protocols._core.connection import CHUNK, JOINED, Connection
from nngkit.protocols._core.send_queue import (
    BURST_DELAY,
    BURST_GAP,
    TURN_GAP,
    YIELD_EVERY,
    BatchCounter,
    SendQueue,
    WhenFull,
    portion,
)
from nngkit.protocols._core.state import State
from nngkit.protocols._nng.operations import atomically
from nngkit.protocols.sp import APART

BURST_MESSAGES: Final = 256  # messages of a burst to all peers after which they are distributed

Result = TypeVar("Result")
Part: TypeAlias = tuple[Sequence[Any], Sequence[bytes], int, Sequence[tuple[Any, ...]]]
"""Connections, what they get of a burst, its bytes, and calls into C that are made as it is queued."""
Divide = Callable[[Sequence[bytes], Sequence[Any]], Sequence[Part]]


class PeerQueues(SendQueue):
    """Queues of single peers, each with ``cap`` messages and ``window`` bytes, and the fan-out to all."""

    def __init__(self, state: State[Connection], *, cap: int, window: int, when_full: WhenFull, where: str) -> None:
        super().__init__(state, cap=cap, window=window, when_full=when_full, where=where)
        self._burst_bytes = 0
        self._burst_limit = min(BURST_MESSAGES, cap)
        # number of the next message or batch: (mapping, key, value), set as it is accepted and in the same step
        self.numbered: tuple[MutableMapping[Any, Any], Any, Any] | None = None
        self._fanned_out = 0
        self.divide: Divide | None = None  # which connections get which messages of a burst; None: all get all

    # ------------------------------------------------------------------ to one peer

    def offer(self, connection: Connection, data: bytes) -> bool:
        """Queue an answer for its peer; return False if there is no room. Under the lock."""
        size = len(data)
        if connection.out and not connection.tx_state and not self._fits(connection, 1, size):
            connection.write_on(now=True)  # write what waits for the end of a loop's turn
            if connection.fault is not None:
                return False
        out = connection.out
        if out and not self._fits(connection, 1, size):
            return False
        out += (data,)
        connection.out_bytes += size
        return True

    def offer_many(self, connection: Connection, items: Sequence[bytes]) -> int:
        """Queue the first of these answers for their peer, as many as there is room for; return their number.

        Under the lock.
        """
        if connection.stage != JOINED:
            return 0
        size, count, out = sum(map(len, items)), len(items), connection.out
        if not self._fits(connection, count, size):
            for count, data in enumerate(items):
                if not self.offer(connection, data):
                    return count
            return len(items)
        # no calls: see connection.py
        out += items
        connection.out_bytes += size
        return count

    def send_now(self, connection: Connection, data: bytes, *, soon: bool) -> bool:
        """Write a small answer past the queue; return False, without a change, if it has to be queued.

        That is so too if others will be written with it. ``soon``: for a task. Under the lock.
        """
        state = self._state
        if state.reason is not None or connection.stage != JOINED:
            return False
        at = perf_counter()
        if at - connection.last_queued_at < (TURN_GAP if soon else BURST_GAP):
            return False
        if soon and (self.due_peers or state.inbox.ready) and self._more_follow(at):
            return False
        if not connection.send_small(data):
            return False
        # no calls: see connection.py
        connection.last_queued_at = at
        connection.stalled = False
        return True

    def add_at_turn_end(self, connection: Connection, data: bytes) -> bool:
        """Queue a task's answer for one of ``due_peers``; return False, without a change, if `offer` has to look at it.

        Under the lock.
        """
        out, size = connection.out, len(data)
        if (
            not self._due
            or connection.stage != JOINED
            or self._state.reason is not None
            or len(out) >= self.cap
            or connection.out_bytes + size > self.window
        ):
            return False
        # no calls: see connection.py
        out += (data,)
        connection.out_bytes += size
        connection.stalled = False
        self.fanned += 1
        return True

    def _more_follow(self, at: float) -> bool:
        """Return True if others will be written with a task's answer of time ``at``: some wait, or new questions do."""
        state = self._state
        return bool(self.due_peers) or (at - state.read_at < TURN_GAP and bool(state.inbox.ready))

    def write_to(self, connection: Connection) -> None:
        """Write the messages offered to this peer. Under the lock."""
        if connection.tx_state:
            return  # its callback writes them
        at = perf_counter()
        in_burst = at - connection.last_queued_at < BURST_GAP  # to this peer: only its messages are written together
        connection.last_queued_at = at
        connection.write_on(now=not in_burst)

    def write_at_turn_end(self, connection: Connection) -> None:
        """Like ``write_to``, for a task: at the end of its loop's turn, if more may follow. Under the lock."""
        if connection.tx_state:
            return
        at = perf_counter()
        if at - connection.last_queued_at > TURN_GAP and not self._more_follow(at):
            self.write_to(connection)
            return
        if at > self._due:
            self.expect()
        self.due_peers[connection] = None  # not before: interrupted, a later answer calls `expect`

    def to_one(self, items: Sequence[bytes], number: int) -> bool:
        """Queue ``items`` for the peer with this number; return False if it has left. Otherwise like ``add_many``."""

        def give() -> bool:
            if (connection := self._state.present.get(number)) is None:
                return False
            self._give_each([(connection, items)], len(items))
            return True

        return self._in_order(give)

    def whole_to_one(self, items: Sequence[bytes], number: int, most: int) -> bool:
        """Queue all of ``items`` for the peer with this number, or none; return False if it has left or has no room.

        No room: more than ``most`` messages, or more than the cap or the window, would be queued. Raises Closed.
        """
        count, size = len(items), sum(map(len, items))

        def give() -> bool:
            if (connection := self._state.present.get(number)) is None:
                return False
            if len(connection.out) + count > most or not self._fits(connection, count, size):
                if not connection.tx_state:
                    connection.write(now=True)  # write the burst that waits
                if len(connection.out) + count > most or not self._fits(connection, count, size):
                    return False
            atomically(
                (connection.out.extend, items),
                (setattr, connection, "out_bytes", connection.out_bytes + size),
                (setattr, self, "fanned", self.fanned + count),
            )
            self.write_to(connection)
            return True

        return self._in_order(give)

    def _in_order(self, give: Callable[[], Result]) -> Result:
        """Call ``give`` under the lock, after earlier messages to all peers were queued. Raises Closed."""
        state = self._state
        try:
            with state.lock:
                state.check_open()
                self.distribute()
                return give()
        except Closed:
            raise
        except BaseException:
            state.resume()
            raise
        finally:
            state.notify()

    # ------------------------------------------------------------------ to several

    def add(self, data: bytes) -> bool:
        """Like ``add_many``, for one message; return True. In line, as calls are most of what a message costs."""
        state, size = self._state, len(data)
        try:
            with state.lock:
                if state.reason is not None:
                    state.check_open()
                # no calls from here: see connection.py
                self.burst += (data,)
                self._burst_bytes += size
                self.fanned += 1
                at = perf_counter()
                waits = (
                    at - self._last < BURST_GAP
                    and self._flusher.is_set
                    and self._burst_bytes < CHUNK
                    and len(self.burst) < self._burst_limit
                )
                if waits:
                    self._last = at
                else:
                    self._burst_grew()
            if not waits:
                state.notify()  # else nothing was written, and there is nothing to tell
        except Closed:
            raise
        except BaseException:
            state.resume()
            state.notify()
            raise
        self._fanned_out += 1
        if self._fanned_out >= YIELD_EVERY:
            self._fanned_out = 0
            self.yield_gil()
        return True

    def add_many(self, items: Sequence[bytes]) -> int:
        """Queue ``items`` for every peer; drop and count those without room. Return their number. Raises Closed."""
        state = self._state
        try:
            with state.lock:
                state.check_open()
                self._fan_out(items)
        except Closed:
            raise
        except BaseException:
            state.resume()
            raise
        finally:
            state.notify()
        self._fanned_out += len(items)
        if self._fanned_out >= YIELD_EVERY:
            self._fanned_out = 0
            self.yield_gil()
        return len(items)

    def to_others(self, items: Sequence[tuple[bytes, int | None]]) -> None:
        """Queue each message for every peer except the one with its number. Otherwise like ``add_many``."""

        def give() -> None:
            queues = [(one, [data for data, number in items if number != one.number]) for one in self._state.joined()]
            self._give_each(queues, len(items))

        self._in_order(give)
        self.yield_gil()

    def to_some(self, item: bytes, numbers: Collection[int]) -> None:
        """Queue ``item`` for the peers with these numbers. Otherwise like ``add_many``."""

        def give() -> None:
            self._give_each([(one, [item]) for one in self._state.joined() if one.number in numbers], 1)

        self._in_order(give)
        self.yield_gil()

    def _fan_out(self, items: Sequence[bytes]) -> None:
        """Accept ``items`` for all present peers. Under the lock."""
        for start in range(0, len(items), BURST_MESSAGES):  # in parts, so that a queue need not hold all of it
            some = items[start : start + BURST_MESSAGES]
            size, count = sum(map(len, some)), len(some)
            # no calls from here: see connection.py
            self.burst += some
            self._burst_bytes += size
            self.fanned += count
            if self.numbered is not None:
                mapping, key, value = self.numbered
                mapping[key] = value
                self.numbered = None
            self._burst_grew()

    def _accept_batch(self, packed: bytes, items: list[bytes], count: int, counter: BatchCounter) -> bool:
        size = len(packed)
        # no calls from here: see connection.py
        self.burst += (packed,)
        self._burst_bytes += size
        self.fanned += 1
        if self.numbered is not None:
            mapping, key, value = self.numbered
            mapping[key] = value
            self.numbered = None
        counter.handed_over += count
        del items[:count]
        self._burst_grew()
        return True

    def _burst_grew(self) -> None:
        """Distribute the burst if it is large enough, or see to it that it is distributed soon. Under the lock."""
        at = perf_counter()
        in_burst = at - self._last < BURST_GAP
        self._last = at
        if not in_burst or len(self.burst) >= self._burst_limit or self._burst_bytes >= CHUNK:
            self.distribute()
            self._last = perf_counter()
        elif not self._flusher.is_set:
            self._flusher.set(BURST_DELAY)

    def distribute(self) -> None:
        """Queue the burst for each peer, and write it. Under the lock."""
        if not self.burst:
            return
        self._distributed = perf_counter()
        joined = self._state.joined() if self.lanes is None else self.lanes.best()
        self._give(joined)
        for connection in joined:
            if not connection.tx_state:  # else its callback writes what it finds
                connection.write_on(now=True)

    def _give(self, joined: Sequence[Connection]) -> None:
        """Queue the burst for each connection: for all or, if interrupted, for none (see `atomically`)."""
        burst = self.burst
        parts = ((joined, burst, self._burst_bytes, ()),) if self.divide is None else self.divide(burst, joined)
        steps: list[tuple[Any, ...]] = []
        lost = 0
        for connections, items, size, noted in parts:
            framed: dict[object, tuple[list[bytes], int]] = {}  # made once for all connections with equal framing
            steps += noted
            for connection in connections if items else ():
                machine, out = connection.machine, connection.out
                framing = machine.framing
                idle = not out and not connection.bodies and not connection.total and not connection.tx_state
                if framing is not None and idle and not machine.to_send and size <= APART:
                    try:
                        if framing not in framed:
                            frames = machine.frames(items)
                            framed[framing] = frames, sum(map(len, frames))
                    except Exception as wrong:
                        connection.crash(wrong)  # its write, which follows, does nothing, and the caller loses it
                        lost += self._weight(items)
                        continue
                    frames, total = framed[framing]
                    steps += [
                        (setattr, connection, "held", frames),
                        (setattr, connection, "bodies", items),
                        (setattr, connection, "done", 0),
                        (setattr, connection, "total", total),
                    ]
                    continue
                queued, dropped = self._queued(connection, items, size)
                steps += queued
                lost += dropped
        atomically(
            *steps,
            (setattr, self, "dropped", self.dropped + lost),
            (setattr, self, "burst", []),
            (setattr, self, "_burst_bytes", 0),
        )

    def _give_each(self, queues: Sequence[tuple[Connection, Sequence[bytes]]], accepted: int) -> None:
        """Queue and write messages for each of these peers: for all or, if interrupted, for none."""
        steps: list[tuple[Any, ...]] = []
        lost = 0
        for connection, items in queues:
            if items:
                queued, dropped = self._queued(connection, items, sum(map(len, items)))
                steps += queued
                lost += dropped
        atomically(
            *steps,
            (setattr, self, "dropped", self.dropped + lost),
            (setattr, self, "fanned", self.fanned + accepted),
        )
        for connection, items in queues:
            if items:
                self.write_to(connection)

    def _queued(self, connection: Connection, items: Sequence[bytes], size: int) -> tuple[list[tuple[Any, ...]], int]:
        """Return the calls that queue ``items`` for one peer, and how many messages they drop."""
        if not self._fits(connection, len(items), size) and not connection.tx_state:
            connection.write(now=True)  # write the burst that waits; the caller handles a fault
        if self._fits(connection, len(items), size):
            return [
                (connection.out.extend, items),
                (setattr, connection, "out_bytes", connection.out_bytes + size),
            ], 0
        kept, dropped = self._cut([*connection.out, *items], len(connection.out))
        return [
            (setattr, connection, "out", kept),
            (setattr, connection, "out_bytes", sum(map(len, kept))),
            (setattr, connection, "dropped", connection.dropped + dropped),
        ], dropped

    def _fits(self, connection: Connection, count: int, size: int) -> bool:
        return len(connection.out) + count <= self.cap and connection.out_bytes + size <= self.window

    def _cut(self, queue: list[bytes], there: int) -> tuple[list[bytes], int]:
        """Return the part of a queue that fits, and the number of messages that do not.

        The first ``there`` messages were queued before.
        """
        cap, window = self.cap, self.window
        if self.when_full == "drop_oldest":
            first, size = len(queue), 0
            while (
                first and len(queue) - first < cap and (first == len(queue) or size + len(queue[first - 1]) <= window)
            ):
                first -= 1
                size += len(queue[first])
            return queue[first:], self._weight(queue[:first])
        kept, gone, size = queue[:there], queue[:0], sum(map(len, queue[:there]))
        for data in queue[there:]:
            if len(kept) < cap and (not kept or size + len(data) <= window):
                kept.append(data)
                size += len(data)
            else:
                gone.append(data)
        return kept, self._weight(gone)

    # ------------------------------------------------------------------ writing

    def resume(self) -> None:
        """Continue after a signal handler that raised. Under the lock."""
        self.distribute()  # a burst may have been begun, with no alarm set for its end

    def after_write(self, connection: Connection) -> None:
        """Note that a connection has written what it could: it may be lost."""
        if connection.fault is not None:
            self._state.lose(connection)

    def next_write(self, connection: Connection) -> bool:
        """Give ``connection``, which has joined, its next messages to write; return False if there are none."""
        queue = connection.out
        if not queue:
            self._drained()
            return False
        most = len(queue)
        if connection.machine.metered and not (most := connection.machine.allowance(queue, most)):
            return False  # its peer must release memory first
        bodies, size = portion(queue, most)
        frames = connection.machine.frames(bodies)
        total, count = sum(map(len, frames)), len(bodies)
        # no calls from here: see connection.py
        connection.held = frames
        connection.bodies = bodies
        connection.done = 0
        connection.total = total
        del queue[:count]
        connection.out_bytes -= size
        if self.waiters:
            self._state.wake_senders = True
        return True

    def lost(self, connection: Connection) -> None:
        """Drop the messages for a lost connection that it had not begun to write. Under the lock."""
        written, begun, unstarted = connection.progress_of_write()
        gone = self._weight(connection.out) + self._weight(unstarted)
        # no calls from here: see connection.py
        connection.bodies = ()
        connection.total = 0
        connection.done = 0
        connection.written += written
        self.broken += begun
        self.dropped += gone
        connection.out = []
        connection.out_bytes = 0
        self._drained()
