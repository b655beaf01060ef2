"""When queued messages are written: at once, at the end of a loop's turn, or by an alarm.

A message that finds its peer idle is written at once, by the caller. In a burst NNG writes it, and what is appended
meanwhile goes out together when NNG calls back. The callback has to get the interpreter for that: who appends lets it
go every YIELD_EVERY messages.

May not know: protocols, which queue a message is in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from ._alarm import Alarm
from ._connection import Connection
from ._nng import lib
from ._transfer import JOINED
from ._waiters import soon

if TYPE_CHECKING:
    from ._core import Core

_strerror = lib.nng_strerror

BURST_DELAY: Final = 0.001  # seconds after which fewer are
YIELD_EVERY: Final = 128  # messages appended between two moments in which NNG's callback may take the interpreter
BURST_GAP: Final = 30e-6  # seconds between two sends: closer ones are a burst, and worth waiting for company
TURN_GAP: Final = 100e-6  # seconds between two sends of tasks: closer ones are mostly of one turn of their loop
FLUSH_OVERDUE: Final = 0.05  # seconds after which a loop that was to flush is taken to have ended, or to be stuck


class WriteTiming:
    """Base of the send queues: what they share, and the flushes that come later."""

    def __init__(self, core: Core, cap: int, window: int) -> None:
        self._core = core
        self.cap = cap
        self.window = window
        self.burst: list[bytes] = []  # a burst to all peers, not distributed yet
        self.dropped = 0
        self.waiters: set[Any] = set()
        self.weigh: Callable[[bytes], int] | None = None  # messages in one of ours, where they are batches
        # until when a flush at the end of a loop's turn is relied upon, and to whom
        self._due = 0.0
        self._due_peers: dict[Connection, None] = {}
        self._flusher = Alarm(self._flush_late)
        self._seen = 0  # messages accepted when the alarm last looked
        self._last = 0.0

    @property
    def sent(self) -> int:
        """Messages accepted."""
        raise NotImplementedError

    def _flush(self, *, many: bool = False) -> None:
        """Under the lock: write what the shared queue holds."""
        raise NotImplementedError

    def distribute(self) -> None:
        """Under the lock: give the burst to all peers, and write it."""
        raise NotImplementedError

    def expect(self) -> None:
        """Have what tasks of the running loop add from now on written together, at the end of its turn."""
        self._due = perf_counter() + FLUSH_OVERDUE
        soon(self._flush_turn)
        self._flusher.set(BURST_DELAY)  # the loop's next turn may be long in coming

    def _flush_turn(self) -> None:
        self._due = 0.0
        core = self._core
        with core.lock:
            if core.reason is None or core.lingers:
                self._flush(many=True)
                due, self._due_peers = self._due_peers, {}
                for connection in due:
                    if connection.stage == JOINED:
                        connection.write(now=True)
                        if connection.fault is not None:
                            core.lose(connection)
        core.notify()

    def _flush_late(self) -> float | None:
        """On the alarm's thread: write what waits for company, or for a loop's next turn, and neither comes."""
        core = self._core
        sent = self.sent
        if sent != self._seen and core.reason is None and not self.burst:
            self._seen = sent
            return BURST_DELAY  # it does come, and who sends writes
        with core.lock:
            if core.reason is None or core.lingers:
                self._due = 0.0
                self._due_peers = {}
                self.distribute()
                self._flush(many=True)
                for connection in core.joined():
                    if connection.out and not connection.tx_state:
                        connection.write(now=True)
                        if connection.fault is not None:
                            core.lose(connection)
        core.notify()
        return None

    def yield_gil(self) -> None:
        """Let other threads have the interpreter for a moment, if they wait for it."""
        _strerror(0)  # any call into C that lets go of it

    def _weight(self, bodies: Sequence[bytes]) -> int:
        """Return how many messages ``bodies`` are."""
        return len(bodies) if self.weigh is None else sum(map(self.weigh, bodies))

    def _drained(self) -> None:
        if self.waiters:
            self._core.wake_senders = True

    def wake(self) -> None:
        """Wake those who wait for room, or for the last message to be written."""
        for waiter in self.waiters.copy():
            waiter.wake()
