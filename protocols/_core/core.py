"""Core of a socket: its connections, its queues, and the one lock for all of them.

::

    Listener, Dialer -> complete_handshake (hello received; `admit`) -> join -> inbox, outbox -> lose

    core.poller     reading, by a waiting caller or by the reader thread (`_poller.py`)
    core.guard      limits on connections, and the record of cuts (`_limits.py`)
    core.watch      ends TCP connections to peers that cannot be reached (`_peer_watch.py`)

A core does not refer to its socket, so an abandoned socket is garbage although NNG's threads and ours still call the
core. Callbacks of users (``on_peer``, ``admit``) and wake-ups run without the lock: a thread that has released it calls
``notify``. Connections are made on NNG's threads (inproc: on the alarm thread), whether or not a caller waits. Any
thread that reads or writes may find a connection lost.

May not know: the meaning of a message.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from nngkit.errors import Closed, NngkitError
from nngkit.protocols._core.connection import Connection
from nngkit.protocols._core.guard import Guard, Limits
from nngkit.protocols._core.inbox import Inbox
from nngkit.protocols._core.outbox import Outbox
from nngkit.protocols._core.peer_watch import PeerWatch
from nngkit.protocols._core.pipe import PeerEvent, Pipe
from nngkit.protocols._core.poller import Poller
from nngkit.protocols._core.read_half import MOST
from nngkit.protocols._core.transfer import ASKING, CLOSED, JOINED
from nngkit.protocols._nng import streams
from nngkit.protocols._nng.addresses import Address
from nngkit.protocols._nng.dialer import Dialer
from nngkit.protocols._nng.library import IOVS, ffi, lib, new_aio, uninitialized
from nngkit.protocols._nng.listener import Listener
from nngkit.protocols._nng.operations import CALLBACKS, atomically, wait_until_ended
from nngkit.protocols._waiting.alarm import Alarm
from nngkit.protocols._waiting.faults import check_ours, internal
from nngkit.protocols._waiting.waiters import wake_all
from nngkit.protocols.routing import PRIORITY

log = logging.getLogger("nngkit.protocols")

REASONS: Final = 3  # unreached addresses that an error message names


class Core:
    """Connections and queues of one socket.

    ``machine`` makes the machine of a new connection; ``alone``: one peer at a time (PAIR).
    """

    def __init__(
        self,
        *,
        machine: Callable[[Address, bool], Any],
        alone: bool,
        admit: Callable[[Pipe], bool] | None,
        verifies: bool,
        limits: Limits,
        inbox: dict[str, Any],
        outbox: dict[str, Any],
    ) -> None:
        self.lock = threading.Lock()
        self.reason: Closed | None = None
        self.lingers = False  # accepted messages are still written
        self._shutting = threading.Lock()
        self._freed = False  # `shut` is done
        self.verifies = verifies
        self.inbox = Inbox(self, **inbox)
        self.outbox = Outbox(self, **outbox)
        # for operations tried at once, under the lock
        self.iov = ffi.new("nng_iov[]", IOVS)
        self.sync_aio = new_aio()
        self.buffer = uninitialized("char[]", MOST)  # the system allocates only the pages that are used
        self.view = ffi.buffer(self.buffer)
        self.reading: Connection | None = None
        self.writing: Connection | None = None
        self.poller = Poller(self)
        self.guard = Guard(self, limits)
        self.watch = PeerWatch(self, limits.peer)
        # connections
        self.present: dict[int, Connection] = {}
        self.joined_ever = 0
        self.left_ever = 0
        self.refused_ever = 0
        self.read_gone = 0
        self.written_gone = 0
        self._machine = machine
        self._alone = alone
        self._admit = admit
        self.handshaking: dict[int, Connection] = {}  # not joined yet: handshake, or `admit`, in progress
        self._listeners: list[Listener] = []
        self._dialers: list[Dialer] = []
        # notifications, which are made without the lock
        self.wake_receivers = False
        self.wake_senders = False
        self.peer_waiters: set[Any] = set()
        self._events: deque[PeerEvent] = deque()
        self._notifying = threading.Lock()
        self._followers: dict[object, Callable[[PeerEvent], None]] = {}
        self._told: set[int] = set()  # the peers of which all followers know that they have joined
        self._calls: deque[Callable[[object], None]] = deque()

    def check_open(self) -> None:
        """Raise the reason why the socket is closed, if it is."""
        if (reason := self.reason) is not None:
            raise reason.again()

    # ------------------------------------------------------------------ addresses

    def listen(self, address: Address, tls: Any, ipc_mode: int | None) -> Listener:
        """Accept connections at ``address``. Raises as ``Listener``."""
        listener = Listener(address, tls, self._accepted, self._take_over, ipc_mode)
        try:
            with self.lock:
                self.check_open()
                self._listeners.append(listener)
            listener.start()
        except BaseException:  # closed, or a signal handler that raised: the caller may listen again
            listener.close()
            wait_until_ended(listener.numbers, CALLBACKS)
            raise
        return listener

    def dial(self, address: Address, tls: Any, longest: float, priority: int = PRIORITY) -> None:
        """Connect to ``address``, again and again. Raises as ``Dialer``."""
        dialer = Dialer(address, tls, longest, self._connected, priority)
        try:
            with self.lock:
                if priority != PRIORITY:
                    self.outbox.prioritize()
                self.check_open()
                self._dialers.append(dialer)
            dialer.start()
        except BaseException:  # closed, or a signal handler that raised: the caller may dial again
            dialer.close()
            wait_until_ended(dialer.numbers, CALLBACKS)
            with self.lock:
                for connection in [*self.present.values(), *self.handshaking.values()]:
                    if connection.dialer is dialer:
                        self.lose(connection, "dialing was interrupted")
            self.notify()
            raise

    def _accepted(self, stream: Any, descriptor: int | None, listener: Listener) -> None:
        self._begin(stream, descriptor, listener.address, listener.bound, listener=listener)

    def _connected(self, stream: Any, descriptor: int | None, dialer: Dialer) -> None:
        self._begin(stream, descriptor, dialer.address, dialer.address.url, dialer=dialer)

    def _take_over(self, stream: Any, descriptor: int | None, listener: Listener, received: bytes) -> None:
        """Continue a handshake that another socket's listener at the same port began."""
        self._begin(stream, descriptor, listener.address, listener.bound, listener=listener, received=received)

    def _begin(
        self,
        stream: Any,
        descriptor: int | None,
        address: Address,
        url: str,
        *,
        dialer: Dialer | None = None,
        listener: Listener | None = None,
        received: bytes = b"",
    ) -> None:
        connection: Connection | None = None
        with self.lock:
            refused = (self.reason is not None and not self.lingers) or (dialer is not None and dialer.closed)
            why = self.guard.too_many() if dialer is None else None
            if not refused and why is None:
                try:
                    self.guard.watch(tls=address.tls)
                    machine = self._machine(address, dialer is not None)
                    connection = Connection(self, stream, descriptor, machine, address, url, dialer, listener)
                    self.handshaking[connection.number] = connection
                    self.watch.begin(connection)
                except Exception as wrong:
                    why = str(internal(wrong))
                    log.exception("%s: the connection ends", url)
            if why is not None:
                where = f"{address.scheme}://{streams.remote(stream)}" if address.ported else url
                self.guard.cut(where, why)
                if dialer is not None:
                    dialer.lost(joined=False)
            if connection is None:
                streams.close(stream)
                return
        connection.start(received)

    def unreached(self) -> str:
        """Return why dialers have not connected, for an error message; "" if nothing is known."""
        problems = [f"{one.address.url}: {one.problem}" for one in list(self._dialers) if one.problem]
        more = f"; and {len(problems) - REASONS} more" if len(problems) > REASONS else ""
        return "".join(f"; {problem}" for problem in problems[:REASONS]) + more

    # ------------------------------------------------------------------ joining

    def complete_handshake(self, connection: Connection) -> None:
        """Ask ``admit`` about a peer after its hello, and let it join. Without the lock, on an NNG thread."""
        with self.lock:
            if connection.stage != ASKING:
                return  # its stream is closed
            try:
                pipe = connection.describe()
            except Exception as wrong:
                connection.crash(wrong)
                self.lose(connection)
                return
        reason = self._objection(pipe)
        joined = False
        with self.lock:
            if connection.stage != ASKING:
                return
            if reason is None and self._alone and self.present:
                reason = "already connected to a peer"
            if reason is None and (reason := self.guard.too_many_from(pipe)) is not None:
                self.guard.cut(pipe.address, reason)
            try:
                self._answer_handshake(connection, refuse=reason is not None)
            except Exception as wrong:
                connection.crash(wrong)
            if reason is not None and not connection.crashed:
                connection.fault = reason
            if connection.fault is None:
                self.outbox.distribute()  # to the present peers only, not to the new one
                connection.pipe = pipe
                connection.stage = JOINED
                self.handshaking.pop(connection.number, None)
                self.present[connection.number] = connection
                self.joined_ever += 1
                self.guard.joined(pipe)
                self._events.append(PeerEvent("joined", pipe, time.monotonic()))
                self.outbox.after_write(connection)  # waiting messages are shared with it
                joined = True
            else:
                self.lose(connection)
        self.notify()
        if not joined:
            return
        with self.lock:
            self.outbox.resume_waiting()
            if connection.stage == JOINED:
                try:
                    connection.start_reading()
                except Exception as wrong:
                    connection.crash(wrong)
                if connection.fault is not None:
                    self.lose(connection)
        self.notify()

    def _answer_handshake(self, connection: Connection, *, refuse: bool) -> None:
        machine = connection.machine
        if machine.awaits_accept:
            if refuse:
                machine.refuse()
            else:
                machine.accept()
            connection.write(now=True)

    def _objection(self, pipe: Pipe) -> str | None:
        if self._admit is None:
            return None
        try:
            if self._admit(pipe):
                return None
        except Exception:
            log.exception("admit failed for %s: refused", pipe.address)
        self.refused_ever += 1
        return "refused"

    # ------------------------------------------------------------------ leaving

    def hand_off(self, connection: Connection) -> None:
        """Forget a connection whose handshake another socket continues. Under the lock."""
        self.handshaking.pop(connection.number, None)
        connection.detach()

    def lose(self, connection: Connection, reason: str | None = None) -> None:
        """End a connection. Under the lock. Its dialer tries again.

        Called again, it continues where a signal handler that raised interrupted it.
        """
        number = connection.number
        joined = number in self.present
        if not joined and number not in self.handshaking:
            return
        where = connection.pipe.address if connection.pipe is not None else connection.where()
        if connection.stage != CLOSED:
            if joined:
                self.outbox.distribute()  # to this peer too, so that each message counts as written or dropped
                if number not in self.present:
                    return  # distributing found it lost
            if reason is not None:
                connection.fault = reason
            elif joined and not connection.crashed:
                try:
                    self.inbox.take_remaining(connection)
                except Exception as wrong:
                    connection.crash(wrong)
        fault = connection.fault
        self.inbox.forget(connection)
        connection.close()
        self.outbox.lost(connection)
        if connection.dialer is not None and (self.reason is None or self.lingers):
            connection.dialer.lost(joined=joined)
        steps: list[tuple[Any, ...]] = [(self.present.pop, number, None), (self.handshaking.pop, number, None)]
        if joined and (pipe := connection.pipe) is not None:
            self.guard.left(pipe)
            event = PeerEvent("left", pipe, time.monotonic(), str(fault or ""))
            steps += [
                (setattr, self, "left_ever", self.left_ever + 1),
                (setattr, self, "read_gone", self.read_gone + connection.machine.count),
                (setattr, self, "written_gone", self.written_gone + connection.written),
                (self._events.append, event),
            ]
        atomically(*steps)
        if isinstance(fault, NngkitError):
            if hasattr(fault, "peer"):
                fault.peer = where
            self.guard.cut(where, str(fault))
            self.inbox.count_fault(fault)
        if self.outbox.lanes is not None:
            self.outbox.resume_waiting()  # peers of the next lane

    def advance(self, connection: Connection, *, now: bool = False) -> None:
        """Let a connection read on; lose it if it has ended. Under the lock."""
        try:
            connection.advance(now=now)
        except Exception as wrong:
            connection.crash(wrong)
        if connection.fault is not None:
            self.lose(connection)

    def disconnect(self, pipe: Pipe) -> bool:
        """Cut one connection; return False if it had ended."""
        try:
            with self.lock:
                connection = self.present.get(pipe.id)
                if connection is not None:
                    self.lose(connection, "disconnected")
            self.notify()
        except BaseException:
            self.resume()
            raise
        return connection is not None

    # ------------------------------------------------------------------ present peers

    @property
    def count(self) -> int:
        """Number of joined connections."""
        return len(self.present)

    @property
    def told(self) -> int:
        """Number of joined connections of which all followers know, for callers that wait for peers."""
        return sum(number in self.present for number in list(self._told))

    def has_told(self, n: int) -> bool:
        """Return True if there are so many. Cheap as long as they are too few, as it is asked after each that joins."""
        return len(self._told) >= n and self.told >= n

    def joined(self) -> Sequence[Connection]:
        """Return the joined connections, oldest first. Under the lock."""
        return list(self.present.values())

    def pipes(self) -> tuple[Pipe, ...]:
        """Return the pipes of the joined connections, oldest first. On any thread."""
        return tuple(one.pipe for one in list(self.present.values()) if one.pipe is not None)

    def follow(self, callback: Callable[[PeerEvent], None]) -> Callable[[], None]:
        """Call ``callback`` for every event, without the lock; return a function that unregisters it."""
        key = object()
        self._followers[key] = callback

        def end() -> None:
            self._followers.pop(key, None)

        return end

    # ------------------------------------------------------------------ notifications, without the lock

    def call_later(self, call: Callable[[object], None]) -> None:
        """Call ``call(loop)`` once the lock is free; ``loop`` is the loop it runs in, or None."""
        self._calls.append(call)

    def notify(self, loop: object = None) -> None:
        """Make the pending notifications, in ``loop`` or a thread (None). Called whenever the lock was released."""
        while self.wake_receivers or self.wake_senders or self._events or self._calls:
            # in a `for` statement: a signal handler that raised after a call would leave the lock held for ever
            for acquired in map(self._notifying.acquire, (False,)):
                if not acquired:
                    return  # its holder checks again
                try:
                    self._notify_once(loop)
                finally:
                    self._notifying.release()

    def _notify_once(self, loop: object) -> None:
        """Make each pending notification once; one that a raising signal handler interrupts is made again."""
        while self._calls:
            try:
                self._calls[0](loop)
            except Exception as wrong:
                check_ours(wrong)
                log.exception("a notification failed")
            self._calls.popleft()
        if self.wake_receivers:
            self.wake_receivers = False
            try:
                wake_all(self.inbox.waiters, loop)
            except BaseException:
                self.wake_receivers = True
                raise
        if self.wake_senders:
            self.wake_senders = False
            try:
                self.outbox.wake()
            except BaseException:
                self.wake_senders = True
                raise
        while self._events:
            event = self._events[0]
            for follower in list(self._followers.values()):
                try:
                    follower(event)
                except Exception:
                    log.exception("on_peer callback failed")
            if event.kind == "joined":
                self._told.add(event.pipe.id)
            else:
                self._told.discard(event.pipe.id)
            self.wake_peers()
            self._events.popleft()

    def wake_peers(self) -> None:
        """Wake the callers that wait for peers."""
        wake_all(self.peer_waiters)

    # ------------------------------------------------------------------ interrupted calls

    def resume(self) -> None:
        """Let every connection continue: a signal handler that raised may have interrupted this thread."""
        with self.lock:
            if self.reason is not None and not self.lingers:
                return
            self.finish_interrupted()
            for connection in self.joined():
                if connection.stage != CLOSED:
                    try:
                        connection.resume()
                    except Exception as wrong:
                        connection.crash(wrong)
                if connection.fault is not None or connection.stage == CLOSED:
                    self.lose(connection)
            self.outbox.resume()
        self.notify()

    def finish_interrupted(self) -> None:
        """Finish the operation on ``sync_aio`` that a signal handler interrupted, if any. Under the lock."""
        for connection, finish in ((self.reading, Connection.finish_read), (self.writing, Connection.finish_write)):
            if connection is not None:
                if lib.nng_aio_busy(self.sync_aio):
                    lib.nng_aio_cancel(self.sync_aio)
                    lib.nng_aio_wait(self.sync_aio)
                try:
                    finish(connection)
                except Exception as wrong:
                    connection.crash(wrong)

    # ------------------------------------------------------------------ the end

    def refuse(self, reason: Closed) -> bool:
        """Refuse new work and wake all waiters; return False if that was done before."""
        with self.lock:
            if self.reason is not None:
                return False
            self.reason = reason
            self.lingers = True
        self.outbox.refuse(reason)
        self.inbox.refuse(reason)
        self.wake_peers()
        return True

    def refuse_later(self, reason: Closed) -> None:
        """Close everything soon, on the alarm thread: a finalizer may run while its thread holds the lock."""
        BackgroundClose(self, reason)

    def free_addresses(self) -> None:
        """Close the listeners only. Called without the lock."""
        for listener in self._listeners:
            listener.close()

    def shut(self) -> None:
        """Close everything. After ``refuse``; idempotent, on any thread but NNG's.

        Called again, it continues where a signal handler that raised interrupted it.
        """
        if self._freed:
            return
        with self._shutting:
            self._shut()

    def _shut(self) -> None:
        with self.lock:
            if self._freed:
                return
            self.lingers = False
            connections = [*self.present.values(), *self.handshaking.values()]
            ends: list[Any] = [*self._listeners, *self._dialers]
        self.guard.close()
        self.watch.close()
        self.poller.close()
        for one in ends:
            one.close()
        with self.lock:
            for connection in connections:
                self.lose(connection, "closed")
            self.outbox.abandon()
        self.notify()
        numbers = [number for end in ends for number in end.numbers] + [one.number for one in connections]
        if late := wait_until_ended(numbers, CALLBACKS):
            log.warning("NNG's callbacks have not come in %g s: %s", CALLBACKS, ", ".join(map(repr, late)))
        with self.lock:
            self.poller.release()
            atomically((setattr, self, "_freed", True), (lib.nng_aio_reap, self.sync_aio))

    def forked(self, reason: Closed) -> None:
        """Refuse everything in a forked child, without a call into NNG."""
        self.lock = threading.Lock()
        self._notifying = threading.Lock()
        self.reason = reason
        self.lingers = False
        self._freed = True
        self.outbox.free = 0
        self.inbox.ready.clear()
        self.present = {}


class BackgroundClose:
    """Close an abandoned core on the alarm thread."""

    _busy: ClassVar[set[BackgroundClose]] = set()

    def __init__(self, core: Core, reason: Closed) -> None:
        self._core, self._reason = core, reason
        self._working = threading.Lock()
        self._busy.add(self)
        core.free_addresses()
        self._alarm = Alarm(self._clean)
        self._alarm.now()

    def _clean(self) -> None:
        with self._working:
            self._core.refuse(self._reason)
            self._core.shut()
            self._busy.discard(self)

    @classmethod
    def finish(cls) -> None:
        """Finish pending closes before the interpreter exits."""
        for one in list(cls._busy):
            one._clean()


atexit.register(BackgroundClose.finish)  # runs before the hook of _process.py, which was registered earlier
