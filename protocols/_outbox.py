"""Send queues of a socket: messages that were accepted and are not written yet.

::

    shared      one queue for all peers (PUSH, PAIR, REQ): each takes its share when it has room, in turn; what had not
                begun to be written when a connection ended goes to the next
    single      a queue for each peer (PUB, BUS, SURVEYOR, answers), capped by messages and bytes

A message that finds its peer idle is written at once, by the caller. In a burst NNG writes it, and what is appended
meanwhile goes out together when NNG calls back. The callback has to get the interpreter for that: who appends lets it
go every BREATH messages. A burst to all peers is queued once, in ``company``, and distributed at COMPANY messages or
CHUNK bytes, or by an alarm after SOON.

May not know: protocols, event loops.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from nngkit.errors import Closed, Full

from ._alarm import Alarm
from ._connection import APART_LIMIT, CHUNK, JOINED, PIECES, Connection
from ._nng import lib
from ._streams import atomically
from ._waiters import soon
from .routing import Rotation, share

if TYPE_CHECKING:
    from ._core import Core

_strerror = lib.nng_strerror

WhenFull = Literal["block", "drop", "drop_oldest", "raise"]

TOGETHER: Final = 128  # messages of a loop's turn after which a write need not wait for its end
COMPANY: Final = 256  # messages of a burst to all peers after which they are distributed
SOON: Final = 0.001  # seconds after which fewer are
BREATH: Final = 128  # messages appended between two moments in which NNG's callback may take the interpreter
QUIET: Final = 30e-6  # seconds between two sends: closer ones are a burst, and worth waiting for company
TURN: Final = 100e-6  # seconds between two sends of tasks: closer ones are mostly of one turn of their loop
OVERDUE: Final = 0.05  # seconds after which a loop that was to flush is taken to have ended, or to be stuck
SMALL: Final = 4096  # bytes of a message up to which a queue is capped by their number alone


class Tally(Protocol):
    """Counter of messages in batches that were accepted."""

    handed: int


class Outbox:
    """See above. ``cap`` messages and ``window`` bytes, of each queue; ``when_full``: what then.

    ``taken`` counts messages of the shared queue that went to a connection, ``fanned`` those accepted for single
    queues; ``dropped`` what was let go, ``broken`` those that were being written when their connection ended.
    """

    def __init__(self, core: Core, *, shared: bool, cap: int, window: int, when_full: WhenFull, where: str) -> None:
        self._core = core
        self.shared = shared
        self.cap = cap
        self.free = cap  # places for the fast way of a send: none once the socket is closed
        self.window = window
        self.when_full = when_full
        self._where = where
        self.queue: list[bytes] = []
        self.company: list[bytes] = []  # a burst to all peers, not distributed yet
        self._company_bytes = 0
        self._most_company = min(COMPANY, cap)
        self.large = 0  # bytes in the queue of messages over SMALL
        self.idle: Rotation[Connection] = Rotation()
        self.taken = 0
        self.fanned = 0
        self.dropped = 0
        self.broken = 0
        self.waiters: set[Any] = set()
        self.weigh: Callable[[bytes], int] | None = None  # messages in one of ours, where they are batches
        # told which connection took messages of the shared queue (None: they are back in it), under the lock
        self.took: Callable[[Connection | None, Sequence[bytes]], None] | None = None
        # until when a flush at the end of a loop's turn is relied upon, and to whom
        self._due = 0.0
        self._due_to: dict[Connection, None] = {}
        self._flusher = Alarm(self._flush_all)
        self._fanned_out = 0
        self._seen = 0  # messages accepted when the alarm last looked
        self._last = 0.0
        self._turn: Connection | None = None

    # ------------------------------------------------------------------ the shared queue

    @property
    def sent(self) -> int:
        """Messages accepted."""
        return self.taken + len(self.queue) + self.fanned

    def add(self, data: bytes) -> bool:
        """Accept one message; False if it has to wait. Raises Closed and Full."""
        core = self._core
        try:
            with core.lock:
                core.check_open()
                if self.queue and self.idle.peers:
                    self._flush(many=True)  # what tasks added, and waits for the end of their loop's turn
                while self._full(len(data)):
                    if not self._make_room():
                        return self._refused()
                self._append(data)
                self._flush()
        except BaseException:
            self._core.mend()
            raise
        finally:
            core.tell()
        return True

    def add_soon(self, data: bytes) -> bool:
        """``add`` for a task: what its loop's tasks add in one turn is written together at the end of it."""
        queue = self.queue
        if len(queue) >= self.free or len(data) >= SMALL:
            return self.add(data)
        try:
            queue += (data,)
            if self._due:
                if len(queue) >= TOGETHER and self.idle.peers:
                    self.kick()
                elif perf_counter() > self._due:  # that loop has ended, or is stuck
                    self.expect()
            elif self.idle.peers and perf_counter() - self._last > TURN:
                self.kick()
            else:
                self.expect()
        except BaseException:
            self._core.mend()
            raise
        return True

    def expect(self) -> None:
        """Have what tasks of the running loop add from now on written together, at the end of its turn."""
        self._due = perf_counter() + OVERDUE
        soon(self._flush_now)
        self._flusher.set(SOON)  # the loop's next turn may be long in coming

    def _flush_now(self) -> None:
        self._due = 0.0
        core = self._core
        with core.lock:
            if core.reason is None or core.lingers:
                self._flush(many=True)
                due, self._due_to = self._due_to, {}
                for connection in due:
                    if connection.stage == JOINED:
                        connection.write(now=True)
                        if connection.fault is not None:
                            core.lose(connection)
        core.tell()

    def add_many(self, items: Sequence[bytes]) -> int:
        """Accept as many of ``items``, from the first on, as find room; how many."""
        core, count = self._core, 0
        try:
            with core.lock:
                core.check_open()
                queue = self.queue
                total = len(items)
                while count < total:
                    room = self.cap - len(queue)
                    if room > 0 and not self.large:
                        some = items[count : count + room] if count or room < total else items
                        if max(map(len, some)) < SMALL:
                            # in lines without a call, where no signal handler can come between
                            size = len(some)
                            queue += some
                            count += size
                            self._flush(many=True)
                            continue
                    if self._full(len(items[count])):
                        break
                    size, large = self._fitting(items, count)
                    some = items[count : count + size]
                    # the same
                    queue += some
                    self.large += large
                    count += size
                    self._flush(many=True)
        except BaseException:
            self._core.mend()
            raise
        finally:
            core.tell()
        return count

    def add_batch(self, packed: bytes, items: list[bytes], count: int, tally: Tally) -> bool:
        """Accept ``packed``, which holds the first ``count`` of ``items``: they leave the list with it.

        False if there is no room, whatever the policy: nothing has happened then. Raises Closed.
        """
        core = self._core
        try:
            with core.lock:
                if not core.lingers:
                    core.check_open()
                if self.shared:
                    while self._full(len(packed)):
                        if not self._make_room():
                            return False
                    size = len(packed)
                    queue, large = self.queue, size if size >= SMALL else 0
                    # from here no call: see _connection.py
                    queue += (packed,)
                    self.large += large
                    tally.handed += count
                    del items[:count]
                    self._flush()
                else:
                    tally.handed += count
                    del items[:count]
                    self._fan_out((packed,))
        except BaseException:
            self._core.mend()
            raise
        finally:
            core.tell()
        return True

    def _append(self, data: bytes) -> None:
        size = len(data)
        queue = self.queue
        queue += (data,)
        if size >= SMALL:
            self.large += size

    def _full(self, size: int) -> bool:
        if not self.cap:  # handed to a peer that has nothing to do, or not at all
            return bool(self.queue) or not self.idle
        if len(self.queue) >= self.cap:
            return True
        return bool(self.queue) and self.large + size > self.window

    def _fitting(self, items: Sequence[bytes], start: int) -> tuple[int, int]:
        """Return how many of ``items`` from ``start`` on find room, where one does, and the bytes of the large ones."""
        count = large = 0
        for data in itertools.islice(items, start, start + max(1, self.cap - len(self.queue))):
            size = len(data)
            if count and self.large + large + size > self.window:
                break
            count += 1
            if size >= SMALL:
                large += size
        return count, large

    def _weight(self, bodies: Sequence[bytes]) -> int:
        """Return how many messages ``bodies`` are."""
        return len(bodies) if self.weigh is None else sum(map(self.weigh, bodies))

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
            raise Full(f"{self._where}: the sending queue is full")
        if self.when_full == "block":
            return False
        self.dropped += 1
        return True

    def kick(self) -> None:
        """See that what is queued goes on its way."""
        core = self._core
        with core.lock:
            if core.reason is None or core.lingers:
                self._flush()
        core.tell()

    def _flush(self, *, many: bool = False) -> None:
        """Under the lock: give what is queued to peers that have room."""
        at = perf_counter()
        burst = at - self._last < QUIET and not many
        self._last = at
        while self.queue:
            connection = self.idle.first()
            if connection is None:
                break
            self.idle.discard(connection)
            self._turn = connection
            connection.write(now=not burst)
            self.settled(connection)

    def mend(self) -> None:
        """Go on where a signal handler that raised cut a thread short. Under the lock."""
        if self.shared:
            for connection in self._core.joined():
                self.settled(connection)
        self._flush()

    def go_on(self) -> None:
        """Under the lock: a connection has written; have the others look, if they have nothing to do."""
        if self.queue and self.idle:
            self._flush()

    def settled(self, connection: Connection) -> None:
        """It wrote what it could: it is idle again, or lost, or goes on by itself."""
        if connection.fault is not None:
            self._core.lose(connection)
        elif self.shared and connection.stage == JOINED and not connection.writing:
            self.idle.add(connection)
            self._drained()

    def gather(self, connection: Connection) -> bool:
        """Have ``connection`` hold what it is to write next; False if there is nothing."""
        machine = connection.machine
        if machine.said:
            said = b"".join(machine.said)
            frames, empty, size = [said], (), len(said)
            connection.held = frames
            connection.bodies = empty
            connection.done = 0
            connection.total = size
            machine.said = []
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
        elif self.idle and self._turn is not connection:  # it has had its share, and others wait
            self.idle.add(connection)
            return False
        else:
            most = share(len(queue), self._core.count)
        self._turn = None
        bodies, size = _portion(queue, most)
        frames = machine.frames(bodies)
        total, count = sum(map(len, frames)), len(bodies)
        large = 0 if own or not self.large else sum(len(body) for body in bodies if len(body) >= SMALL)
        # from here no call: see _connection.py
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
            self._core.makes_room = True
        return True

    def _drained(self) -> None:
        if self.waiters:
            self._core.makes_room = True

    # ------------------------------------------------------------------ queues of single peers

    def offer(self, connection: Connection, data: bytes) -> bool:
        """Queue one answer for one peer; False if there is no room. Under the lock."""
        size = len(data)
        if connection.out and not connection.tx_state and not self._fits(connection, 1, size):
            connection.write(now=True)  # it waited for the end of a loop's turn
            if connection.fault is not None:
                self._core.lose(connection)
                return False
        out = connection.out
        if out and not self._fits(connection, 1, size):
            return False
        out += (data,)
        connection.out_bytes += size
        return True

    def go(self, connection: Connection) -> None:
        """Write what was offered. Under the lock."""
        if connection.tx_state:
            return  # its callback takes it along
        at = perf_counter()
        burst = at - connection.went_at < QUIET  # to this peer: others' messages are no company
        connection.went_at = at
        connection.write(now=not burst)
        if connection.fault is not None:
            self._core.lose(connection)

    def go_soon(self, connection: Connection) -> None:
        """``go`` for a task: at the end of its loop's turn, if more may come. Under the lock."""
        if connection.tx_state:
            return
        at = perf_counter()
        if at - connection.went_at > TURN and not self._due_to:
            self.go(connection)
            return
        self._due_to[connection] = None
        if at > self._due:
            self.expect()

    def to_all(self, items: Sequence[bytes]) -> None:
        """Queue ``items`` for every peer; what finds no room for one is dropped for it, and counted. Raises Closed."""
        core = self._core
        try:
            with core.lock:
                core.check_open()
                self._fan_out(items)
        except Closed:
            raise
        except BaseException:
            core.mend()
            raise
        finally:
            core.tell()
        self._fanned_out += len(items)
        if self._fanned_out >= BREATH:
            self._fanned_out = 0
            self.breathe()

    def to_others(self, items: Sequence[tuple[bytes, int | None]]) -> None:
        """Queue each message for every peer but the one of that number. As ``to_all`` else. Raises Closed."""
        core = self._core
        try:
            with core.lock:
                core.check_open()
                self.distribute()  # what was sent before goes first
                self.fanned += len(items)
                for connection in core.joined():
                    theirs = [data for data, number in items if number != connection.number]
                    if theirs:
                        steps, lost = self._queued(connection, theirs, sum(map(len, theirs)))
                        atomically(*steps, (setattr, self, "dropped", self.dropped + lost))
                        self.go(connection)
        except Closed:
            raise
        except BaseException:
            core.mend()
            raise
        finally:
            core.tell()
        self.breathe()

    def breathe(self) -> None:
        """Let other threads have the interpreter for a moment, if they wait for it."""
        _strerror(0)  # any call into C that lets go of it

    def _fan_out(self, items: Sequence[bytes]) -> None:
        """Under the lock: accept ``items`` for all who are here now."""
        for start in range(0, len(items), COMPANY):  # written as it goes, so that a queue need not hold all of it
            some = items[start : start + COMPANY]
            size, count = sum(map(len, some)), len(some)
            # from here no call: see _connection.py
            self.company += some
            self._company_bytes += size
            self.fanned += count
            at = perf_counter()
            burst = at - self._last < QUIET
            self._last = at
            if not burst or len(self.company) >= self._most_company or self._company_bytes >= CHUNK:
                self.distribute()
                self._last = perf_counter()
            elif not self._flusher.ticking:
                self._flusher.set(SOON)

    def distribute(self) -> None:
        """Under the lock: give what waits for company to all who are here, and write it."""
        if not self.company:
            return
        joined = self._core.joined()
        self._give(joined)
        for connection in joined:
            if not connection.tx_state:  # else its callback takes along what it finds
                connection.write(now=True)
                if connection.fault is not None:
                    self._core.lose(connection)

    def decide(self) -> None:
        """Distribute what waits for company, so that the counters say what became of each message."""
        core = self._core
        if not self.company:
            return
        try:
            with core.lock:
                if core.reason is None:  # else the alarm does, or it is a forked child's, which writes nothing
                    self.distribute()
        except BaseException:
            core.mend()
            raise
        finally:
            core.tell()

    def _give(self, joined: Sequence[Connection]) -> None:
        """Give the company to each connection; all of that happens, or nothing (see `atomically`)."""
        items, size = self.company, self._company_bytes
        framed: dict[object, tuple[list[bytes], int]] = {}  # once for all whose framing is alike
        steps: list[tuple[Any, ...]] = []
        lost = 0
        for connection in joined:
            machine, out = connection.machine, connection.out
            alike = machine.alike
            idle = not out and not connection.bodies and not connection.total and not connection.tx_state
            if alike is not None and idle and not machine.said and size <= APART_LIMIT:
                if alike not in framed:
                    frames = machine.frames(items)
                    framed[alike] = frames, sum(map(len, frames))
                frames, total = framed[alike]
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
            (setattr, self, "company", []),
            (setattr, self, "_company_bytes", 0),
        )

    def _queued(self, connection: Connection, items: Sequence[bytes], size: int) -> tuple[list[tuple[Any, ...]], int]:
        """Return the steps that queue ``items`` for one peer, and how many messages those steps drop."""
        if not self._fits(connection, len(items), size) and not connection.tx_state:
            connection.write(now=True)  # it waited for company; a fault is seen to by the caller
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
        """Return what of a single peer's queue finds room, and how many messages do not; the first ``there`` had it."""
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

    def _flush_all(self) -> float | None:
        """On the alarm's thread: write what waits for company, or for a loop's next turn, and neither comes."""
        core = self._core
        sent = self.sent
        if sent != self._seen and core.reason is None and not self.company:
            self._seen = sent
            return SOON  # it does come, and who sends writes
        with core.lock:
            if core.reason is None or core.lingers:
                self._due = 0.0
                self._due_to = {}
                self.distribute()
                self._flush(many=True)
                for connection in core.joined():
                    if connection.out and not connection.tx_state:
                        connection.write(now=True)
                        if connection.fault is not None:
                            core.lose(connection)
        core.tell()
        return None

    # ------------------------------------------------------------------ the end

    def withdraw(self, data: bytes) -> None:
        """Take a message back that no peer has taken yet."""
        with self._core.lock:
            for index, queued in enumerate(self.queue):
                if queued is data:
                    del self.queue[index]
                    self.taken += 1  # it was accepted, and stays counted
                    break

    def lost(self, connection: Connection) -> None:
        """A connection has ended: what had not begun to be written goes to the next, or is dropped. Under the lock."""
        self.idle.discard(connection)
        begun, unbegun = connection.unbegun()
        own = not self.shared
        gone = self._weight(connection.out) + self._weight(unbegun)
        connection.bodies = ()
        connection.total = 0
        connection.done = 0
        self.broken += begun
        if own:
            self.dropped += gone
            connection.out = []
            connection.out_bytes = 0
        elif unbegun:
            large = sum(len(body) for body in unbegun if len(body) >= SMALL)
            count = len(unbegun)
            self.queue[:0] = unbegun
            self.taken -= count
            self.large += large
            if self.took is not None:
                self.took(None, unbegun)
        self._drained()

    def abandon(self) -> None:
        """Count what is still queued as dropped: the socket has closed, and its peers are gone. Under the lock."""
        self.company = []
        self.dropped += self._weight(self.queue)
        self.taken += len(self.queue)
        self.queue = []

    @property
    def unwritten(self) -> int:
        """Messages accepted and not written: queued, or being written. Under the lock."""
        there = self._core.joined()
        waiting = len(self.queue) + len(self.company) * len(there)
        return waiting + sum(len(one.out) + len(one.bodies) - one.written_now() for one in there)

    def refuse(self, reason: Closed) -> None:
        """Accept nothing more."""
        self.free = 0
        self.wake()

    def wake(self) -> None:
        """Wake those who wait for room, or for the last message to be written."""
        for waiter in self.waiters.copy():
            waiter.wake()


def _portion(queue: list[bytes], most: int) -> tuple[list[bytes], int]:
    """Return the first of ``queue``, at most ``most``, that make one write, and their bytes."""
    bodies = queue[:most]
    size = sum(map(len, bodies))
    if size <= APART_LIMIT:
        return bodies, size
    count = size = apart = 0
    for body in bodies:
        length = len(body)
        apart += length >= APART_LIMIT
        if count and (size + length > CHUNK or apart * 2 + 1 > PIECES):
            break
        size += length
        count += 1
    return bodies[:count], size
