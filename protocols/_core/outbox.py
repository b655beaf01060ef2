"""Send queues of a socket: messages accepted and not written yet.

::

    shared     one queue for all peers (PUSH, PAIR, REQ): each peer with room takes its share, in turn; messages that
               were not being written when their connection ended go to the next peer
    single     a queue for each peer (PUB, BUS, SURVEYOR, answers), capped by messages and bytes

May not know: protocols, event loops.
"""

from __future__ import annotations

from typing import Protocol

from nngkit.errors import Closed
from nngkit.protocols._core.connection import APART_LIMIT, CHUNK, JOINED, Connection
from nngkit.protocols._core.peer_queues import PeerQueues
from nngkit.protocols._core.shared_queue import SMALL, SharedQueue
from nngkit.protocols._core.state import State
from nngkit.protocols._core.write_timing import WhenFull
from nngkit.protocols._waiting.faults import check_ours
from nngkit.protocols.routing import share


class BatchCounter(Protocol):
    """Counter of messages in accepted batches."""

    handed_over: int


class Outbox(SharedQueue, PeerQueues):
    """Send queues of one socket: ``cap`` messages and ``window`` bytes each; ``when_full``: the policy beyond that.

    ``taken`` counts messages of the shared queue that went to a connection, ``fanned`` those accepted for single
    queues, ``dropped`` dropped ones, and ``broken`` those being written when their connection ended.
    """

    def __init__(
        self, state: State[Connection], *, shared: bool, cap: int, window: int, when_full: WhenFull, where: str
    ) -> None:
        super().__init__(state, shared=shared, cap=cap, window=window, when_full=when_full, where=where)
        self.broken = 0

    @property
    def sent(self) -> int:
        """Messages accepted."""
        return self.taken + len(self.queue) + self.fanned

    def add_batch(self, packed: bytes, items: list[bytes], count: int, counter: BatchCounter) -> bool:
        """Accept ``packed``, which holds the first ``count`` of ``items``; remove these from the list.

        Return False, without a change, if there is no room, for any policy. Raises Closed.
        """
        state = self._state
        try:
            with state.lock:
                if not state.lingers:
                    state.check_open()
                size = len(packed)
                if self.shared:
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
                else:
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
        except BaseException:
            self._state.resume()
            raise
        finally:
            state.notify()
        return True

    def next_write(self, connection: Connection) -> bool:
        """Give ``connection`` its next messages to write; return False if there are none."""
        machine = connection.machine
        if machine.to_send:
            said = b"".join(machine.to_send)
            frames, empty, size = [said], (), len(said)
            connection.held = frames
            connection.bodies = empty
            connection.done = 0
            connection.total = size
            machine.to_send = []
            return True
        if connection.stage != JOINED:
            return False
        own = bool(connection.out)
        queue = connection.out if own else self.queue
        if not queue:
            if self.shared:
                self.idle.add(connection)
            self._drained()
            return False
        if own:
            most = len(queue)
        elif self._turn is not connection and (self.idle or (self.lanes and not self.lanes.may_take(connection))):
            self.idle.add(connection)  # it has had its share, and other peers wait
            return False
        else:
            most = share(len(queue), len(self._state.present))
        self._turn = None
        bodies, size = _portion(queue, most)
        try:
            frames = machine.frames(bodies)
        except Exception as wrong:
            check_ours(wrong)
            if not own:  # the next peer would end the same way
                del queue[: len(bodies)]
                self.taken += len(bodies)
                self.broken += len(bodies)
                self.large = sum(len(body) for body in queue if len(body) >= SMALL)
            raise
        total, count = sum(map(len, frames)), len(bodies)
        large = 0 if own or not self.large else sum(len(body) for body in bodies if len(body) >= SMALL)
        # no calls from here: see connection.py
        connection.held = frames
        connection.bodies = bodies
        connection.done = 0
        connection.total = total
        del queue[:count]
        if own:
            connection.out_bytes -= size
        else:
            self.taken += count
            self.large -= large
            if self.took is not None:
                self.took(connection, bodies)
        if self.waiters and (own or len(self.queue) <= self.cap >> 1):
            self._state.wake_senders = True
        return True

    # ------------------------------------------------------------------ the end

    def lost(self, connection: Connection) -> None:
        """Requeue the messages that a lost connection had not begun to write, or drop them. Under the lock."""
        self.idle.discard(connection)
        try:
            written, begun, unstarted = connection.progress_of_write()
        except Exception as wrong:
            connection.crash(wrong)
            written, begun, unstarted = 0, len(connection.bodies), []
        own, count = not self.shared, len(unstarted)
        gone = self._weight(connection.out) + self._weight(unstarted)
        large = sum(len(body) for body in unstarted if len(body) >= SMALL)
        if not own and unstarted and self.took is not None:
            self.took(None, unstarted)
        # no calls from here: see connection.py
        connection.bodies = ()
        connection.total = 0
        connection.done = 0
        connection.written += written
        self.broken += begun
        if own:
            self.dropped += gone
            connection.out = []
            connection.out_bytes = 0
        else:
            self.queue[:0] = unstarted
            self.taken -= count
            self.large += large
        self._drained()

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

    def refuse(self, reason: Closed) -> None:
        """Accept nothing more."""
        self.free = 0
        self.wake()


def _portion(queue: list[bytes], most: int) -> tuple[list[bytes], int]:
    """Return the first of ``queue``, at most ``most``, that fit one write, and their bytes."""
    bodies = queue[:most]
    size = sum(map(len, bodies))
    if size <= APART_LIMIT:
        return bodies, size
    count = size = 0
    for body in bodies:
        length = len(body)
        if count and size + length > CHUNK:
            break
        size += length
        count += 1
    return bodies[:count], size
