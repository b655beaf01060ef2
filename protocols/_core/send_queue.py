"""Common to both kinds of send queue: their counters, and the times at which messages are written.

::

    SharedQueue    one queue for all peers (PUSH, PAIR, REQ): each peer with room takes its share, in turn; messages
                   that were not being written when their connection ended go to the next peer
    PeerQueues     a queue for each peer (PUB, BUS, SURVEYOR, answers), capped by messages and bytes

A message for an idle peer is written at once, by the caller. In a burst NNG's thread writes it, and messages appended
meanwhile are written together when NNG calls back. That callback needs the interpreter (GIL), so a sender yields it
every YIELD_EVERY messages. Messages of tasks are written at the end of their loop's turn, or by an alarm.

May not know: protocols, event loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final, Literal, Protocol

from nngkit.protocols._core.connection import CHUNK, JOINED, Connection
from nngkit.protocols._core.state import State
from nngkit.protocols._nng.library import lib
from nngkit.protocols._waiting.alarm import Alarm
from nngkit.protocols._waiting.waiters import soon, wake_all
from nngkit.protocols.routing import Lanes, Rotation
from nngkit.protocols.sp import APART

_strerror = lib.nng_strerror

WhenFull = Literal["block", "drop", "drop_oldest", "raise"]

LOOP_MESSAGES: Final = 128  # messages of a loop's turn that are written before the turn ends
BURST_DELAY: Final = 0.001  # seconds after which a smaller burst is written
YIELD_EVERY: Final = 128  # messages appended between two yields of the interpreter to NNG's callback
BURST_GAP: Final = 30e-6  # seconds between two sends of a burst: closer messages are worth writing together
TURN_GAP: Final = 100e-6  # seconds between two sends of tasks: closer ones are mostly of one turn of their loop
FEW: Final = 16  # messages that are measured before all that may fit one write
LARGE_CHUNK: Final = 256 * 1024  # bytes of large messages in one write, which are not copied
# Seconds after which the messages of a loop's turn that takes long are written. Another thread waits as long for the
# interpreter, and each look of it costs the loop as much as ten messages.
TURN_DELAY: Final = 0.005
FLUSH_OVERDUE: Final = 0.05  # seconds after which a loop that should have flushed is considered ended or stuck


class BatchCounter(Protocol):
    """Counter of messages in accepted batches."""

    handed_over: int


class SendQueue:
    """Base of SharedQueue and PeerQueues: ``cap`` messages and ``window`` bytes; ``when_full``: the policy beyond that.

    ``taken`` counts messages of the shared queue that went to a connection, ``fanned`` those accepted for single peers,
    ``dropped`` dropped ones, and ``broken`` those being written when their connection ended. ``free`` is the cap of the
    fast path of ``Sender.send``, which appends to ``queue`` and calls ``kick`` if a peer is ``idle``; 0: there is none.
    """

    def __init__(self, state: State[Connection], *, cap: int, window: int, when_full: WhenFull, where: str) -> None:
        self._state = state
        self.cap = cap
        self.window = window
        self.when_full = when_full
        self._where = where
        self.queue: list[bytes] = []  # messages for any peer
        self.free = 0
        self.idle: Rotation[Connection] = Rotation()
        self.burst: list[bytes] = []  # a burst to all peers, not distributed yet
        self.lanes: Lanes[Connection] | None = None  # once a peer has a priority
        self.taken = self.fanned = self.dropped = self.broken = 0
        self.waiters = state.senders
        self.weigh: Callable[[bytes], int] | None = None  # returns the number of messages in a batch
        # time until which a flush at the end of a loop's turn is expected, and its peers
        self._due = 0.0
        self.due_peers: dict[Connection, None] = {}
        self.coming = 0  # messages, up to LOOP_MESSAGES, that tasks of a loop are about to send: they were just woken
        self._flusher = Alarm(self._flush_burst)
        self._distributed = 0.0  # perf_counter() of the last distribution: what is in the burst came after it
        self._watchdog = Alarm(self._flush_overdue)  # of a loop's turn
        self._seen = 0  # messages accepted at the alarm's last call
        self._last = 0.0

    @property
    def sent(self) -> int:
        """Messages accepted."""
        return self.taken + len(self.queue) + self.fanned

    def prioritize(self) -> None:
        """Serve peers by priority from now on: ``idle`` becomes ``lanes``. Under the lock."""
        if self.lanes is None:
            self.lanes = Lanes(_priority, self._state.joined, self._at_cap)
            for connection in self.idle:
                self.lanes.add(connection)
            self.idle = self.lanes

    def _at_cap(self) -> bool:
        """Return True if the queue has no room left."""
        return False

    def add_batch(self, packed: bytes, items: list[bytes], count: int, counter: BatchCounter) -> bool:
        """Accept ``packed``, which holds the first ``count`` of ``items``; remove these from the list.

        Return False, without a change, if there is no room, for any policy. Raises Closed.
        """
        state = self._state
        try:
            with state.lock:
                if not state.lingers:
                    state.check_open()
                return self._accept_batch(packed, items, count, counter)
        except BaseException:
            state.resume()
            raise
        finally:
            state.notify()

    def _accept_batch(self, packed: bytes, items: list[bytes], count: int, counter: BatchCounter) -> bool:
        raise NotImplementedError

    # ------------------------------------------------------------------ writing

    def _flush(self, *, many: bool = False) -> None:
        """Write the shared queue, if there is one. Under the lock."""

    def distribute(self) -> None:
        """Queue the burst for each peer, if there is one, and write it. Under the lock."""

    def settle_burst(self) -> None:
        """Distribute the burst, so that the counters are complete."""
        state = self._state
        if not self.burst:
            return
        try:
            with state.lock:
                if state.reason is None:  # else the alarm does it, or this is a forked child, which writes nothing
                    self.distribute()
        except BaseException:
            state.resume()
            raise
        finally:
            state.notify()

    def kick(self) -> None:
        """Start writing the queued messages."""
        state = self._state
        with state.lock:
            if state.reason is None or state.lingers:
                self._flush()
        state.notify()

    def resume_waiting(self) -> None:
        """Let idle peers take queued messages, after a connection has written. Under the lock."""
        if self.queue and self.idle:
            self._flush()

    def expect(self) -> None:
        """Write what tasks of the running loop send from now on together, at the end of the loop's turn."""
        soon(self._flush_turn)
        self._due = perf_counter() + FLUSH_OVERDUE  # not before: interrupted, nothing would be written in time
        if not self._watchdog.is_set:
            self._watchdog.set(TURN_DELAY)

    def _flush_turn(self) -> None:
        self._due = 0.0
        state = self._state
        with state.lock:
            if state.reason is None or state.lingers:
                self._flush(many=True)
                due, self.due_peers = self.due_peers, {}
                for connection in due:
                    if connection.stage == JOINED:
                        connection.write_on(now=True)
        state.notify()

    def _flush_overdue(self) -> float | None:
        """Write the messages of a loop that it has not written in time. On the alarm thread."""
        if self._state.reason is None:
            if due := self._due:
                if (left := due - FLUSH_OVERDUE + TURN_DELAY - perf_counter()) > 0:
                    return left
            elif (sent := self.sent) != self._seen:
                self._seen = sent
                return TURN_DELAY  # more was sent meanwhile, and its loop is about to send again
        return self._flush_late()

    def _flush_burst(self) -> float | None:
        """Distribute a burst that has waited for BURST_DELAY. On the alarm thread.

        While bursts are distributed without it, it looks on and takes no lock: setting it for each would cost the
        sender two changes of threads.
        """
        left = self._distributed + BURST_DELAY - perf_counter()
        return left if left > 0 else self._flush_late()

    def _flush_late(self) -> float | None:
        """Write all that waits to be written together. On the alarm thread."""
        state = self._state
        with state.lock:
            if state.reason is None or state.lingers:
                self._due = 0.0
                self.due_peers = {}
                self.distribute()
                self._flush(many=True)
                for connection in state.joined():
                    if connection.out and not connection.tx_state:
                        connection.write_on(now=True)
        state.notify()
        return None

    def yield_gil(self) -> None:
        """Let other threads that wait for the interpreter run."""
        _strerror(0)  # any call into C that releases the interpreter

    def _weight(self, bodies: Sequence[bytes]) -> int:
        """Return the number of messages in ``bodies``, which may be batches."""
        return len(bodies) if self.weigh is None else sum(map(self.weigh, bodies))

    def _drained(self) -> None:
        if self.waiters:
            self._state.wake_senders = True

    def wake(self) -> None:
        """Wake the callers that wait for room, or until all is written."""
        wake_all(self.waiters)

    # ------------------------------------------------------------------ the end

    def abandon(self) -> None:
        """Count queued messages as dropped, after the socket has closed. Under the lock."""
        dropped, taken = self._weight(self.queue), len(self.queue)
        # no calls from here: see connection.py
        self.burst = []
        self.dropped += dropped
        self.taken += taken
        self.queue = []

    @property
    def unwritten(self) -> int:
        """Messages accepted and not written, those being written included. Under the lock."""
        there = self._state.joined()
        waiting = len(self.queue) + len(self.burst) * len(there)
        return waiting + sum(len(one.out) + len(one.bodies) - one.written_now() for one in there)

    def refuse(self) -> None:
        """Accept nothing more."""
        self.free = 0
        self.wake()


def _priority(connection: Connection) -> int:
    return connection.priority


def portion(queue: list[bytes], most: int) -> tuple[list[bytes], int]:
    """Return the first of ``queue``, at most ``most``, that fit one write, and their bytes."""
    few = queue[: min(most, FEW)]
    room = CHUNK if len(few[0]) < APART else LARGE_CHUNK
    if sum(map(len, few)) <= room:  # else a long queue of large messages is not measured for each write
        few = queue[:most]
        size = sum(map(len, few))
        if size <= APART:
            return few, size
    count = size = 0
    for body in few:
        length = len(body)
        if count and size + length > room:
            break
        size += length
        count += 1
    return few[:count], size
