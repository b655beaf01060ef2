"""When queued messages are written: at once, at the end of a loop's turn, or by an alarm.

A message for an idle peer is written at once, by the caller. In a burst NNG's thread writes it, and messages appended
meanwhile are written together when NNG calls back. That callback needs the interpreter (GIL), so a sender yields it
every YIELD_EVERY messages.

May not know: protocols, the queue that a message is in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final, Literal

from nngkit.protocols._core.connection import JOINED, Connection
from nngkit.protocols._core.state import State
from nngkit.protocols._nng.library import lib
from nngkit.protocols._waiting.alarm import Alarm
from nngkit.protocols._waiting.waiters import soon, wake_all
from nngkit.protocols.routing import Lanes

_strerror = lib.nng_strerror

WhenFull = Literal["block", "drop", "drop_oldest", "raise"]

BURST_DELAY: Final = 0.001  # seconds after which a smaller burst is written
YIELD_EVERY: Final = 128  # messages appended between two yields of the interpreter to NNG's callback
BURST_GAP: Final = 30e-6  # seconds between two sends of a burst: closer messages are worth writing together
TURN_GAP: Final = 100e-6  # seconds between two sends of tasks: closer ones are mostly of one turn of their loop
FLUSH_OVERDUE: Final = 0.05  # seconds after which a loop that should have flushed is considered ended or stuck


class WriteTiming:
    """Base of the send queues: their common state, and delayed flushes."""

    when_full: WhenFull

    def __init__(self, state: State[Connection], cap: int, window: int) -> None:
        self._state = state
        self.cap = cap
        self.window = window
        self.burst: list[bytes] = []  # a burst to all peers, not distributed yet
        self.lanes: Lanes[Connection] | None = None  # once a peer has a priority
        self.dropped = 0
        self.waiters = state.senders
        self.weigh: Callable[[bytes], int] | None = None  # returns the number of messages in a batch
        # time until which a flush at the end of a loop's turn is expected, and its peers
        self._due = 0.0
        self._due_peers: dict[Connection, None] = {}
        self._flusher = Alarm(self._flush_late)
        self._seen = 0  # messages accepted at the alarm's last call
        self._last = 0.0

    @property
    def sent(self) -> int:
        """Messages accepted."""
        raise NotImplementedError

    def _flush(self, *, many: bool = False) -> None:
        """Write the shared queue. Under the lock."""
        raise NotImplementedError

    def distribute(self) -> None:
        """Queue the burst for each peer, and write it. Under the lock."""
        raise NotImplementedError

    def expect(self) -> None:
        """Write what tasks of the running loop send from now on together, at the end of the loop's turn."""
        self._due = perf_counter() + FLUSH_OVERDUE
        soon(self._flush_turn)
        self._flusher.set(BURST_DELAY)  # in case the loop's turn takes long

    def _flush_turn(self) -> None:
        self._due = 0.0
        state = self._state
        with state.lock:
            if state.reason is None or state.lingers:
                self._flush(many=True)
                due, self._due_peers = self._due_peers, {}
                for connection in due:
                    if connection.stage == JOINED:
                        connection.write(now=True)
                        if connection.fault is not None:
                            state.lose(connection)
        state.notify()

    def _flush_late(self) -> float | None:
        """Write a burst, or a loop's messages, that nothing has written in time. On the alarm thread."""
        state = self._state
        sent = self.sent
        if sent != self._seen and state.reason is None and not self.burst:
            self._seen = sent
            return BURST_DELAY  # more was sent meanwhile, and its senders write
        with state.lock:
            if state.reason is None or state.lingers:
                self._due = 0.0
                self._due_peers = {}
                self.distribute()
                self._flush(many=True)
                for connection in state.joined():
                    if connection.out and not connection.tx_state:
                        connection.write(now=True)
                        if connection.fault is not None:
                            state.lose(connection)
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
