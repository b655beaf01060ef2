"""Reading: by the thread or loop that waits for a socket, otherwise by one reader thread for all sockets.

::

    wait(waiter, deadline)      a thread waits: one of the waiting threads polls, and reads for all of them
    watch_for(waiter)           a task is about to wait: its loop polls from now on
    ReaderThread                polls the sockets without waiters, and for room to write; one thread for the process

A poller is an epoll of the descriptors of one socket's connections, edge-triggered: it reports new data once, and the
connection is then read until nothing is left. No NNG thread stands between the kernel and a waiting caller. Data that
arrives while no caller waits is read by the reader thread, which polls the pollers. If a waiter polls too, the reader
thread lets it read first; a waiter that has not read after GRACE seconds is busy, and the reader thread reads in its
place.

A thread that polls may take one whole message where it is read, with ``deliver`` (`Connection.read_small`).

A connection whose descriptor is unknown (systems other than Linux) is read by NNG's callbacks instead. May not
know: protocols, messages, NNG's operations.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable
from functools import partial
from threading import get_ident
from time import monotonic, perf_counter
from typing import Any, ClassVar, Final

from nngkit.protocols._core.connection import AWAITING, Connection
from nngkit.protocols._core.state import State
from nngkit.protocols._nng.operations import atomically
from nngkit.protocols._nng.process import block_signals
from nngkit.protocols._waiting.faults import check_ours
from nngkit.protocols._waiting.waiters import MOST, TaskWaiter, ThreadWaiter, first_wait
from nngkit.protocols._waiting.wakeup import WakeupDescriptor, Watch, watch

log = logging.getLogger("nngkit.protocols")

Deliver = Callable[[Connection, bytes], bool]

GRACE: Final = 0.005  # seconds after which the reader thread reads if the waiters are busy
_EPOLL: Final = hasattr(select, "epoll")
_NEWS: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET if _EPOLL else 0
_ROOM: Final = select.EPOLLOUT | select.EPOLLONESHOT if _EPOLL else 0
_WAKES: Final = select.EPOLLIN | select.EPOLLET if _EPOLL else 0  # without a read: each `set` is an event
_DATA: Final = select.EPOLLIN if _EPOLL else 0
_ENDS: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR if _EPOLL else 0


class Poller:
    """Polling of one socket.

    ``add``, ``remove`` and ``repeat`` need the lock; the other methods must not hold it. ``epoll`` is None until
    a caller waits, so a socket that only sends needs no descriptor for it; the reader thread then polls its connections
    directly. ``looks`` counts reads by waiters and waits of tasks, ``looks_when_busy`` is that count when the reader
    thread last found the waiters busy.
    """

    def __init__(self, state: State[Connection]) -> None:
        self._state = state
        self.epoll: select.epoll | None = None
        self.looks = 0
        self.looks_when_busy = -1
        self._connections: dict[int, Connection] = {}  # by descriptor
        self._wakeup: WakeupDescriptor | None = None  # in the epoll: wakes the polling thread
        self._polled_by = 0  # the thread that polls, or polled last, by its ident
        self._watches: dict[object, Watch] = {}
        self._polling = threading.Lock()
        self._threads: set[ThreadWaiter] = set()

    # ------------------------------------------------------------------ connections, under the lock

    def add(self, connection: Connection) -> bool:
        """Poll ``connection`` from now on; return False if its descriptor cannot be polled."""
        number = connection.descriptor
        assert number is not None
        try:
            if self.epoll is None:
                reader_thread().register(self, number)
            else:
                self.epoll.register(number, _NEWS)
        except (OSError, RuntimeError):  # no descriptors, no thread, or a closed descriptor
            return False
        self._connections[number] = connection
        return True

    def remove(self, connection: Connection) -> None:
        """Stop polling ``connection``, before its descriptor is closed and may be given to the next one."""
        number = connection.descriptor
        assert number is not None
        if self._connections.get(number) is connection:
            del self._connections[number]
            try:
                if self.epoll is None:
                    reader_thread().unregister(self, number)
                else:
                    self.epoll.unregister(number)
            except OSError:  # repeated after a signal handler interrupted it
                log.debug("descriptor %d was not polled", number)
        if connection.awaited:
            reader_thread().forget_room(connection)

    def await_room(self, connection: Connection) -> bool:
        """Let ``connection.room`` be called once its descriptor has room; return False if that is not possible."""
        try:
            reader_thread().await_room(connection)
        except (OSError, RuntimeError):
            return False
        return True

    def repeat(self, connection: Connection) -> None:
        """Report ``connection`` again, as data is left."""
        number = connection.descriptor
        assert number is not None
        if self._connections.get(number) is connection:
            if self.epoll is None:
                reader_thread().repeat(self, number)
            else:
                self.epoll.modify(number, _NEWS)

    def _open(self) -> select.epoll | None:
        """Return the epoll, created on the first call; None without connections, or without a descriptor for it.

        Under the lock.
        """
        if self.epoll is None and self._connections and self._state.reason is None:
            try:
                epoll, wakeup = select.epoll(), WakeupDescriptor()
                epoll.register(wakeup.fd, _WAKES)
                self._wakeup = wakeup
                reader_thread().hand_over(self, epoll, list(self._connections))
            except OSError:
                return None
        return self.epoll

    def _opened(self) -> select.epoll | None:
        with self._state.lock:
            return self._open()

    # ------------------------------------------------------------------ waiting

    def watch_for(self, waiter: TaskWaiter) -> None:
        """Let the loop of a task that is about to wait read arriving data. Called in that loop."""
        loop = waiter.loop
        self.looks += 1  # a turn of a loop takes longer than GRACE with thousands of tasks, which all come here
        if loop in self._watches or self._state.reason is not None:
            return
        epoll = self.epoll or self._opened()  # this reference keeps it open if another thread closes the socket
        if epoll is None:
            return
        for other, old in list(self._watches.items()):
            if old.ended:
                self._watches.pop(other, None)
                old.close()
        found = watch(waiter, epoll.fileno(), partial(self.read_for, loop))
        if found is None:
            return
        self._watches[loop] = found
        if self._state.reason is not None:  # closed by another thread, which may have missed this watch
            found.close()

    def wait(self, waiter: ThreadWaiter, deadline: float | None, deliver: Deliver | None = None) -> bool:
        """Like ``waiter.wait(deadline)``, but read arriving data meanwhile: one thread reads for all that wait.

        Return True too once ``deliver`` has taken a message.
        """
        if self.epoll is not None or self._opened() is not None:
            # in a `for` statement: a signal handler that raised after a call would leave the lock held for ever
            for acquired in map(self._polling.acquire, (False,)):
                if acquired:
                    try:
                        return self._poll_until_woken(waiter, deadline, deliver)
                    finally:
                        waiter.wake_poll = None
                        self._polling.release()
                        if self._threads:
                            self._hand_over()
        self._threads.add(waiter)
        try:
            return waiter.wait(deadline)
        finally:
            self._threads.discard(waiter)

    def _poll_until_woken(self, waiter: ThreadWaiter, deadline: float | None, deliver: Deliver | None) -> bool:
        """Poll and read until ``waiter`` is woken; return False at the deadline."""
        epoll, wakeup = self.epoll, self._wakeup  # these references keep them open if another thread closes the socket
        if epoll is None or wakeup is None:
            return waiter.wait(deadline)
        waiter.thread = self._polled_by = get_ident()
        waiter.wake_poll = wakeup.set
        first = longest = first_wait(waiter.thread)
        state, woken = self._state, waiter.lock.acquire
        try:
            while not woken(False):
                if deadline is None:
                    left = longest
                elif (left := deadline - monotonic()) <= 0:
                    return False
                elif left > longest:
                    left = longest
                events = epoll.poll(left)
                if longest < MOST:
                    longest *= 4
                if events:
                    longest = first
                    self.looks += 1
                    with state.lock:
                        if self._read(events, deliver):
                            return True
                    state.notify()
        except BaseException:
            state.resume()  # what the epoll has reported is reported again
            raise
        return True

    def _hand_over(self) -> None:
        """Wake one of the waiting threads, which then reads for the others."""
        for waiter in self._threads.copy():
            try:
                waiter.wake()
            except Exception as wrong:
                check_ours(wrong)
                log.exception("a waiter could not be woken")
            else:
                return

    @property
    def has_polling_waiter(self) -> bool:
        """True if a waiter polls too."""
        return self._polling.locked() or any(not found.ended for found in list(self._watches.values()))

    # ------------------------------------------------------------------ reading

    def read_for(self, loop: object) -> None:
        """Read arrived data on behalf of a waiter, in the loop ``loop`` or in a thread (None)."""
        self.looks += 1
        self.read_ready(loop)
        self._state.read_at = perf_counter()

    def read_ready(self, loop: object = None) -> bool:
        """Read every connection with data; return False if there is none."""
        state = self._state
        try:
            # Polled under the lock: an event is reported once. A thread that waits with it for the lock or the
            # interpreter would have others served hundreds of times before that peer, and after a close lose another's
            # wake-up.
            with state.lock:
                epoll = self.epoll
                if epoll is None or (state.reason is not None and not state.lingers) or not (events := epoll.poll(0)):
                    return False
                self._read(events)
            state.notify(loop)
        except BaseException:
            state.resume()
            raise
        return True

    def read_one(self, number: int, event: int) -> None:
        """Read one connection with data. For the reader thread, while there is no epoll."""
        state = self._state
        with state.lock:
            if state.reason is None or state.lingers:
                self._read([(number, event)])
        state.notify()

    def read_now(self) -> None:
        """Read every connection with data. Under the lock."""
        state = self._state
        epoll = self.epoll or self._open()  # not left to the reader thread, which may have to wait for the interpreter
        if epoll is not None and (state.reason is None or state.lingers):
            self._read(epoll.poll(0))

    def _read(self, events: list[tuple[int, int]], deliver: Deliver | None = None) -> bool:
        """Read what has data; return True if ``deliver`` has taken a message, the only one that came."""
        connections, state = self._connections, self._state
        if state.reason is not None and not state.lingers:
            return False
        if deliver is not None and len(events) > 1:
            deliver = None
        for number, event in events:
            connection = connections.get(number)
            if connection is None:
                self._pass_on(number)
            elif event == _DATA and connection.small:
                if connection.read_small(deliver):
                    return True
            else:
                if event & _ENDS:
                    connection.peer_finished = True
                connection.read_on()
        return False

    def _pass_on(self, number: int) -> None:
        """Report a wake-up of the polling thread again that another thread has read."""
        wakeup = self._wakeup
        if wakeup is not None and number == wakeup.fd and self._polling.locked() and self._polled_by != get_ident():
            wakeup.set()

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Stop polling. Called without the lock."""
        for found in list(self._watches.values()):
            found.close()
        if self.epoll is not None:
            reader_thread().remove(self, self.epoll)

    def release(self) -> None:
        """Free the descriptors now instead of at garbage collection. After ``close``."""
        self.epoll = self._wakeup = None
        self._watches = {}


class ReaderThread:
    """Reads the sockets without waiters, on a thread that starts with the first of them."""

    _one: ClassVar[ReaderThread | None] = None
    _starting: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._rooms = select.epoll()  # of descriptors of connections that have awaited room
        self._epoll.register(self._rooms.fileno(), select.EPOLLIN)
        self._awaiting: dict[int, Connection] = {}  # by those descriptors
        self._lock = threading.Lock()
        self._direct: dict[int, Poller] = {}  # pollers without an epoll, by the descriptors of their connections
        self._pollers: dict[int, Poller] = {}  # pollers with one, by its descriptor
        # pollers whose waiters may read first, with their counts of reads
        self._deferred: dict[int, tuple[Poller, int]] = {}
        self._check_at = 0.0
        # daemon: it ends with the process, and is idle once all sockets are closed
        threading.Thread(target=self._run, name="nngkit-reader", daemon=True).start()

    def register(self, poller: Poller, number: int) -> None:
        """Poll this connection of ``poller``, which has no epoll. Raises OSError."""
        with self._lock:
            atomically((self._epoll.register, number, _NEWS), (self._direct.__setitem__, number, poller))

    def unregister(self, poller: Poller, number: int) -> None:
        """Stop polling it. Idempotent; call before the descriptor is closed."""
        with self._lock:
            if self._direct.get(number) is poller:
                atomically((self._epoll.unregister, number), (self._direct.pop, number))

    def repeat(self, poller: Poller, number: int) -> None:
        """Report it again, as data is left."""
        with self._lock:
            if self._direct.get(number) is poller:
                self._epoll.modify(number, _NEWS)

    def hand_over(self, poller: Poller, epoll: select.epoll, numbers: list[int]) -> None:
        """Give ``poller`` an epoll, and poll that in place of its connections. Raises OSError."""
        with self._lock:
            self._epoll.register(epoll.fileno(), select.EPOLLIN)
            steps: list[tuple[Any, ...]] = [(self._pollers.__setitem__, epoll.fileno(), poller)]
            for number in numbers:  # data that came before is reported at once
                steps += [(self._epoll.unregister, number), (self._direct.pop, number), (epoll.register, number, _NEWS)]
            atomically(*steps, (setattr, poller, "epoll", epoll))

    def remove(self, poller: Poller, epoll: select.epoll) -> None:
        """Stop reading it. Idempotent; call before its epoll is closed."""
        number = epoll.fileno()
        with self._lock:
            if self._pollers.get(number) is poller:
                atomically((self._epoll.unregister, number), (self._pollers.pop, number))

    def await_room(self, connection: Connection) -> None:
        """Call ``connection.room`` once there is room to write. Raises OSError."""
        number = connection.descriptor
        assert number is not None
        with self._lock:
            known = self._awaiting.get(number) is connection
            atomically(
                (self._rooms.modify if known else self._rooms.register, number, _ROOM),
                (self._awaiting.__setitem__, number, connection),
                (setattr, connection, "awaited", True),
                (setattr, connection, "tx_state", AWAITING),
            )

    def forget_room(self, connection: Connection) -> None:
        """Undo ``await_room``. Idempotent; call before the descriptor is closed."""
        number = connection.descriptor
        assert number is not None
        with self._lock:
            if self._awaiting.get(number) is connection:
                atomically((self._awaiting.pop, number), (self._rooms.unregister, number))

    def _run(self) -> None:
        block_signals()
        while True:
            try:
                self._turn()
            except Exception:
                log.exception("error in the reader thread")

    def _turn(self) -> None:
        for number, event in self._epoll.poll(GRACE if self._deferred else None):
            try:
                self._ready(number, event)
            except Exception:  # the other sockets are read: a direct connection is reported once
                log.exception("error in the reader thread")
        if self._deferred and monotonic() >= self._check_at:
            self._check()

    def _ready(self, number: int, event: int) -> None:
        """Read what has data, or let its waiters; write what has room."""
        if number == self._rooms.fileno():
            found = self._rooms.poll(0)
            with self._lock:  # an event may come before `await_room` has noted the connection
                waiting = [self._awaiting.get(with_room) for with_room, _ in found]
            for connection in waiting:
                if connection is not None:
                    connection.room()
            return
        if (one := self._direct.get(number)) is not None:
            one.read_one(number, event)
            return
        poller = self._pollers.get(number)
        if poller is None:
            return
        if poller.has_polling_waiter and poller.looks != poller.looks_when_busy:
            if not self._deferred:
                self._check_at = monotonic() + GRACE
            self._deferred[number] = poller, poller.looks
            self._listen(number, poller, 0)
            return
        poller.read_ready()

    def _check(self) -> None:
        """Read in place of waiters that have not read for GRACE seconds."""
        self._check_at = monotonic() + GRACE
        for number, (poller, looks) in list(self._deferred.items()):
            if self._pollers.get(number) is poller:
                if poller.looks != looks:
                    self._deferred[number] = poller, poller.looks
                    continue
                if poller.read_ready():
                    poller.looks_when_busy = poller.looks
                self._listen(number, poller, select.EPOLLIN)
            del self._deferred[number]

    def _listen(self, number: int, poller: Poller, events: int) -> None:
        with self._lock:
            if self._pollers.get(number) is poller:  # and no other poller that has the number now
                self._epoll.modify(number, events)


def reader_thread() -> ReaderThread:
    """Return the reader thread of this process."""
    with ReaderThread._starting:
        if ReaderThread._one is None:
            ReaderThread._one = ReaderThread()
        return ReaderThread._one


def _forked() -> None:
    # thread and epoll are the parent's
    ReaderThread._one = None
    ReaderThread._starting = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
