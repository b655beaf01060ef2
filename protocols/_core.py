"""Core of a socket: its connections, its queues, and one lock for all of it.

::

    Listener, Dialer -> complete_handshake (hello received; `admit`) -> join -> inbox, outbox -> lose

    core.poller     reading, by whoever waits or by the reader thread (`_poller.py`)
    core.guard      limits on connections, and the cuts (`_limits.py`)

A core does not know its socket, so a socket that nobody holds is garbage although NNG's threads and ours still call
here. What users are told (``on_peer``, ``admit``, waking who waits) is told without the lock: whoever lets go of it
calls ``tell``. Connections are made and shaken hands with on NNG's threads (inproc: made on the alarm's), whether or
not a caller waits. Any thread that reads or writes may find one lost.

May not know: what a message means.
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

from . import _streams as streams
from ._addresses import Address
from ._alarm import Alarm
from ._connection import Connection
from ._dialer import Dialer
from ._inbox import Inbox
from ._limits import Guard, Limits
from ._listener import Listener
from ._nng import ffi, lib, new_aio, uninitialized
from ._operations import wait_until_ended
from ._outbox import Outbox
from ._pipe import PeerEvent, Pipe
from ._poller import Poller
from ._read_half import MOST
from ._transfer import ASKING, CLOSED, JOINED

log = logging.getLogger("nngkit.protocols")

CALLBACKS: Final = 5.0  # seconds that a close waits for NNG's callbacks, which come at once unless the machine stalls


class Core:
    """See above. ``machine`` makes the machine of a new connection; ``alone``: one peer at a time (PAIR)."""

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
        self.lingers = False  # what was accepted is still written
        self.verifies = verifies
        self.inbox = Inbox(self, **inbox)
        self.outbox = Outbox(self, **outbox)
        # for operations that are tried at once, under the lock
        self.iov = ffi.new("nng_iov[9]")
        self.sync_aio = new_aio()
        self.buffer = uninitialized("char[]", MOST)  # of which the system gives what is used
        self.view = ffi.buffer(self.buffer)
        self.reading: Connection | None = None
        self.writing: Connection | None = None
        self.poller = Poller(self)
        self.guard = Guard(self, limits)
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
        self.handshaking: dict[int, Connection] = {}  # shaking hands, or being asked about
        self._listeners: list[Listener] = []
        self._dialers: list[Dialer] = []
        # what is told without the lock
        self.wake_receivers = False  # receivers
        self.wake_senders = False  # senders
        self.peer_waiters: set[Any] = set()
        self._events: deque[PeerEvent] = deque()
        self._notifying = threading.Lock()
        self._followers: dict[object, Callable[[PeerEvent], None]] = {}
        self._calls: deque[Callable[[object], None]] = deque()

    def check_open(self) -> None:
        """Raise why the socket is closed, if it is."""
        if (reason := self.reason) is not None:
            raise reason.again()

    # ------------------------------------------------------------------ addresses

    def listen(self, address: Address, tls: Any) -> Listener:
        """Accept connections there. Raises as ``Listener``."""
        listener = Listener(address, tls, self._accepted, self._take_over)
        with self.lock:
            closed = self.reason is not None
            if not closed:
                self._listeners.append(listener)
        if closed:
            listener.close()
            self.check_open()
        listener.start()
        return listener

    def dial(self, address: Address, tls: Any, longest: float) -> None:
        """Connect there, for ever. Raises as ``Dialer``."""
        dialer = Dialer(address, tls, longest, self._connected)
        with self.lock:
            closed = self.reason is not None
            if not closed:
                self._dialers.append(dialer)
        if closed:
            dialer.close()
            self.check_open()
        dialer.start()

    def _accepted(self, stream: Any, descriptor: int | None, listener: Listener) -> None:
        self._begin(stream, descriptor, listener.address, listener.bound, listener=listener)

    def _connected(self, stream: Any, descriptor: int | None, dialer: Dialer) -> None:
        self._begin(stream, descriptor, dialer.address, dialer.address.url, dialer=dialer)

    def _take_over(self, stream: Any, descriptor: int | None, listener: Listener, received: bytes) -> None:
        """Go on with a handshake that another socket's listener at the same port began."""
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
        with self.lock:
            refused = self.reason is not None and not self.lingers
            full = self.guard.too_many() if dialer is None else None
            if not refused and not full:
                machine = self._machine(address, dialer is not None)
                connection = Connection(self, stream, descriptor, machine, address, url, dialer, listener)
                self.handshaking[connection.number] = connection
            else:
                if full:
                    where = f"{address.scheme}://{streams.remote(stream)}" if address.ported else url
                    self.guard.cut(where, full)
                streams.close(stream)
                return
        self.guard.watch(tls=address.tls)
        connection.start(received)

    # ------------------------------------------------------------------ coming

    def complete_handshake(self, connection: Connection) -> None:
        """The peer has said hello: ask whether it may join, and let it in. Without the lock, on an NNG thread."""
        with self.lock:
            if connection.stage != ASKING:
                return  # and its stream is gone
            pipe = connection.describe()
        reason = self._objection(pipe)
        told = False
        with self.lock:
            if connection.stage != ASKING:
                return
            if reason is None and self._alone and self.present:
                reason = "there is a peer already"
            if reason is None and (reason := self.guard.too_many_from(pipe)) is not None:
                self.guard.cut(pipe.address, reason)
            machine = connection.machine
            if machine.awaits_accept:
                if reason is None:
                    machine.accept()
                else:
                    machine.refuse()
                connection.write(now=True)
            if reason is not None:
                connection.fault = reason
            if connection.fault is None:
                self.outbox.distribute()  # to those who are here: it is not for this one
                connection.pipe = pipe
                connection.stage = JOINED
                self.handshaking.pop(connection.number, None)
                self.present[connection.number] = connection
                self.joined_ever += 1
                self.guard.count(pipe, 1)
                self._events.append(PeerEvent("joined", pipe, time.monotonic()))
                self.outbox.after_write(connection)  # who waited for it counts on its share
                told = True
            else:
                self.lose(connection)
        self.notify()
        if not told:
            return
        with self.lock:
            self.outbox.resume_waiting()
            if connection.stage == JOINED:
                connection.start_reading()
                if connection.fault is not None:
                    self.lose(connection)
        self.notify()

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

    # ------------------------------------------------------------------ going

    def hand_off(self, connection: Connection) -> None:
        """Forget a connection whose handshake goes on with another socket; under the lock."""
        self.handshaking.pop(connection.number, None)
        connection.detach()

    def lose(self, connection: Connection, reason: str | None = None) -> None:
        """End a connection; under the lock. Its dialer tries again."""
        if connection.stage == CLOSED:
            return
        fault = connection.fault if reason is None else reason
        joined = connection.stage == JOINED
        if joined:
            self.outbox.distribute()  # to this one too: it is counted as what it is, written or dropped
        if connection.stage == CLOSED:
            return  # that found it gone
        where = connection.pipe.address if connection.pipe is not None else connection.where()
        if joined and reason is None:
            self.inbox.take_remaining(connection)
        self.inbox.forget(connection)
        connection.close()
        self.outbox.lost(connection)
        self.present.pop(connection.number, None)
        self.handshaking.pop(connection.number, None)
        if joined and connection.pipe is not None:
            pipe = connection.pipe
            self.left_ever += 1
            self.read_gone += connection.machine.count
            self.written_gone += connection.written
            self.guard.count(pipe, -1)
            self._events.append(PeerEvent("left", pipe, time.monotonic(), str(fault or "")))
        if isinstance(fault, NngkitError):
            if hasattr(fault, "peer"):
                fault.peer = where
            self.guard.cut(where, str(fault))
            self.inbox.count_fault(fault)
        if connection.dialer is not None and (self.reason is None or self.lingers):
            connection.dialer.lost(joined=joined)

    def disconnect(self, pipe: Pipe) -> bool:
        """Cut one connection; False if it has gone."""
        with self.lock:
            connection = self.present.get(pipe.id)
            if connection is not None:
                self.lose(connection, "disconnected")
        self.notify()
        return connection is not None

    # ------------------------------------------------------------------ who is there

    @property
    def count(self) -> int:
        """Connections that joined and are here."""
        return len(self.present)

    def joined(self) -> Sequence[Connection]:
        """Return the connections that joined, oldest first; under the lock."""
        return list(self.present.values())

    def pipes(self) -> tuple[Pipe, ...]:
        """The same as pipes; from anywhere."""
        return tuple(one.pipe for one in list(self.present.values()) if one.pipe is not None)

    def follow(self, callback: Callable[[PeerEvent], None]) -> Callable[[], None]:
        """Have ``callback`` called for every event, without the lock; what is returned ends it."""
        key = object()
        self._followers[key] = callback

        def end() -> None:
            self._followers.pop(key, None)

        return end

    # ------------------------------------------------------------------ telling, without the lock

    def call_later(self, call: Callable[[object], None]) -> None:
        """Have ``call(loop)`` made as soon as the lock is free, in the loop ``loop`` if it is not None."""
        self._calls.append(call)

    def notify(self, loop: object = None) -> None:
        """Tell what happened meanwhile. Whoever has let go of the lock calls this; ``loop``: in which loop."""
        while self.wake_receivers or self.wake_senders or self._events or self._calls:
            # a loop's step: a signal handler that raises after a call would leave the lock taken for ever
            for mine in map(self._notifying.acquire, (False,)):
                if not mine:
                    return  # who has it looks again
                try:
                    self._notify_once(loop)
                finally:
                    self._notifying.release()

    def _notify_once(self, loop: object) -> None:
        """Tell once; a part that a raising signal handler cut short is told again."""
        while self._calls:
            self._calls[0](loop)
            self._calls.popleft()
        if self.wake_receivers:
            self.wake_receivers = False
            try:
                for waiter in self.inbox.waiters.copy():
                    waiter.wake_from(loop)
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
            self.wake_peers()
            self._events.popleft()

    def wake_peers(self) -> None:
        """Wake all who wait for peers."""
        for waiter in self.peer_waiters.copy():
            waiter.wake()

    # ------------------------------------------------------------------ what was cut short

    def resume(self) -> None:
        """Have every connection go on: a signal handler that raised may have kept this thread from it."""
        with self.lock:
            if self.reason is not None and not self.lingers:
                return
            self.finish_interrupted()
            for connection in self.joined():
                connection.resume()
                if connection.fault is not None:
                    self.lose(connection)
            self.outbox.resume()
        self.notify()

    def finish_interrupted(self) -> None:
        """Finish the operation on ``now`` that a signal handler cut short, if there is one. Under the lock."""
        for connection, finish in ((self.reading, Connection.finish_read), (self.writing, Connection.finish_write)):
            if connection is not None:
                if lib.nng_aio_busy(self.sync_aio):
                    lib.nng_aio_cancel(self.sync_aio)
                    lib.nng_aio_wait(self.sync_aio)
                finish(connection)

    # ------------------------------------------------------------------ the end

    def refuse(self, reason: Closed) -> bool:
        """Accept and hand out nothing more, and wake all who wait; False if that was done before."""
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
        """Close everything soon, on the alarm's thread: a finalizer may run while its thread holds the lock."""
        BackgroundClose(self, reason)

    def free_addresses(self) -> None:
        """Free the addresses, and nothing else; without the lock."""
        for listener in self._listeners:
            listener.close()

    def shut(self) -> None:
        """Close everything. After ``refuse``; idempotent, from any thread but NNG's."""
        with self.lock:
            if not self.lingers:
                return
            self.lingers = False
            listeners, dialers = self._listeners, self._dialers
            connections = [*self.present.values(), *self.handshaking.values()]
        self.guard.close()
        self.poller.close()
        ends: list[Any] = [*listeners, *dialers]
        for one in ends:
            one.close()
        with self.lock:
            for connection in connections:
                self.lose(connection, "closed")
            self.outbox.abandon()
        self.notify()
        numbers = [one.number for one in (*ends, *connections)]
        if not wait_until_ended(numbers, CALLBACKS):
            log.warning("NNG's callbacks of %d connections have not come in %g s", len(numbers), CALLBACKS)
        with self.lock:
            lib.nng_aio_reap(self.sync_aio)
            self.poller.release()

    def forked(self, reason: Closed) -> None:
        """In a forked child: refuse everything, and touch nothing of NNG's."""
        self.lock = threading.Lock()
        self._notifying = threading.Lock()
        self.reason = reason
        self.lingers = False
        self.outbox.free = 0
        self.inbox.ready.clear()
        self.present = {}


class BackgroundClose:
    """Closes a core that nobody holds any more."""

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
        """Close what is still to be closed, before the interpreter ends."""
        for one in list(cls._busy):
            one._clean()


atexit.register(BackgroundClose.finish)  # runs before the hook of _nng.py, which was registered before
