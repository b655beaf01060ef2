"""Core of a socket: it joins the parts, and connections begin and end here.

::

    Listener, Dialer -> complete_handshake (hello received; `admit`) -> join -> inbox, outbox -> lose

    core.state      the one lock, and what all parts share (`state.py`)
    core.inbox      received messages (`inbox.py`)
    core.outbox     accepted messages: one queue for all peers, or one for each (`send_queue.py`)
    core.poller     reading, by a waiting caller or by the reader thread (`poller.py`)
    core.guard      limits on connections, and the record of cuts (`guard.py`)
    core.watch      ends TCP connections to peers that cannot be reached (`peer_watch.py`)

A core does not refer to its socket, so an abandoned socket is garbage although NNG's threads and ours still call the
core. Callbacks of users (``on_peer``, ``admit``) and wake-ups run without the lock. Connections are made on NNG's
threads (inproc: on the alarm thread), whether or not a caller waits. Any thread that reads or writes may find a
connection lost.

May not know: the meaning of a message.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from nngkit.errors import AccessDenied, Closed, NngkitError
from nngkit.protocols._core.connection import ASKING, CLOSED, JOINED, SHAKING, Connection, finish_interrupted
from nngkit.protocols._core.guard import Guard, Limits
from nngkit.protocols._core.identity import Identity
from nngkit.protocols._core.inbox import Inbox
from nngkit.protocols._core.peer_queues import PeerQueues
from nngkit.protocols._core.peer_watch import PeerWatch
from nngkit.protocols._core.pipe import PeerEvent, Pipe
from nngkit.protocols._core.poller import Poller
from nngkit.protocols._core.pool import other_host, pool
from nngkit.protocols._core.shared_queue import SharedQueue
from nngkit.protocols._core.state import State
from nngkit.protocols._nng import streams
from nngkit.protocols._nng.addresses import Address
from nngkit.protocols._nng.dialer import Dialer
from nngkit.protocols._nng.library import lib
from nngkit.protocols._nng.listener import Listener
from nngkit.protocols._nng.operations import CALLBACKS, atomically, wait_until_ended
from nngkit.protocols._shm.joining import SharedListener, connect
from nngkit.protocols._shm.link import Link
from nngkit.protocols._waiting.alarm import Alarm
from nngkit.protocols._waiting.faults import internal
from nngkit.protocols._waiting.waiters import wake_all
from nngkit.protocols._wire.tls_layer import Layer
from nngkit.protocols.routing import PRIORITY
from nngkit.trust.refusals import heard, is_refusal
from nngkit.trust.standing import Refusal

log = logging.getLogger("nngkit.protocols")

Outbox = SharedQueue | PeerQueues

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
        identity: Identity,
        limits: Limits,
        inbox: dict[str, Any],
        outbox: Callable[[State[Connection]], Outbox],
    ) -> None:
        self.state = state = State[Connection]()
        self.poller = state.poller = Poller(state)
        self.inbox = state.inbox = Inbox(state, self.poller, **inbox)
        self.outbox = state.outbox = outbox(state)
        state.identity = identity
        self.guard = Guard(state, self.inbox, limits)
        self.watch = state.watch = PeerWatch(state, self.guard, limits.peer)
        state.lose, state.resume, state.complete_handshake = self.lose, self.resume, self.complete_handshake
        self.joined_ever = 0
        self.left_ever = 0
        self.refused_ever = 0
        self.read_gone = 0
        self.written_gone = 0
        self._machine = machine
        self._alone = alone
        self._admit = admit
        self._listeners: list[Listener | SharedListener] = []
        self._dialers: list[Dialer] = []
        self._shutting = threading.Lock()
        self._freed = False  # `shut` is done

    # ------------------------------------------------------------------ addresses

    def listen(self, address: Address, tls: Any, ipc_mode: int | None) -> Listener | SharedListener:
        """Accept connections at ``address``. Raises as ``Listener``."""
        listener: Listener | SharedListener
        if address.shared:
            listener = SharedListener(address, self._accepted, ipc_mode)
        else:
            listener = Listener(address, tls, self._accepted, self._take_over, ipc_mode, self._turned_away)
        try:
            with self.state.lock:
                self.state.check_open()
                self._listeners.append(listener)
            listener.start()
        except BaseException:  # closed, or a signal handler that raised: the caller may listen again
            listener.close()
            wait_until_ended(list(listener.numbers), CALLBACKS)
            raise
        return listener

    def dial(self, address: Address, tls: Any, longest: float, priority: int = PRIORITY) -> None:
        """Connect to ``address``, again and again. Raises as ``Dialer``."""
        state = self.state
        dialer = Dialer(address, tls, longest, self._connected, priority, connect if address.shared else None)
        try:
            with state.lock:
                if priority != PRIORITY:
                    self.outbox.prioritize()
                state.check_open()
                self._dialers.append(dialer)
            dialer.start()
        except BaseException:  # closed, or a signal handler that raised: the caller may dial again
            dialer.close()
            wait_until_ended(dialer.numbers, CALLBACKS)
            with state.lock:
                for connection in [*state.present.values(), *state.handshaking.values()]:
                    if connection.dialer is dialer:
                        self.lose(connection, "dialing was interrupted")
            state.notify()
            raise

    def undial(self, url: str) -> None:
        """End the first dialer of ``url``; its connection stays. Called again, it continues."""
        dialer = next((one for one in self._dialers if one.address.url == url), None)
        if dialer is None:
            return
        dialer.close()
        wait_until_ended(dialer.numbers, CALLBACKS)
        with self.state.lock:
            self._dialers.remove(dialer)

    def _accepted(
        self, stream: Any, descriptor: int | None, listener: Listener | SharedListener, link: Link | None = None
    ) -> None:
        self._begin(stream, descriptor, listener.address, listener.bound, listener=listener, link=link)

    def _connected(self, stream: Any, descriptor: int | None, dialer: Dialer, link: Link | None) -> None:
        self._begin(stream, descriptor, dialer.address, dialer.address.url, dialer=dialer, link=link)

    def _turned_away(self, peers: Sequence[str]) -> None:
        """Count peers that were turned away unheard. Called without the lock."""
        with self.state.lock:
            for where in peers:
                self.guard.cut(where, "turned away: its handshake could only fail, as many did")

    def _take_over(
        self, stream: Any, descriptor: int | None, listener: Listener, received: bytes, tls: Layer | None
    ) -> None:
        """Continue a handshake that another socket's listener at the same port began."""
        self._begin(stream, descriptor, listener.address, listener.bound, listener=listener, received=received, tls=tls)

    def _begin(
        self,
        stream: Any,
        descriptor: int | None,
        address: Address,
        url: str,
        *,
        dialer: Dialer | None = None,
        listener: Listener | SharedListener | None = None,
        received: bytes = b"",
        tls: Layer | None = None,
        link: Link | None = None,
    ) -> None:
        state = self.state
        connection: Connection | None = None
        if state.identity.trust is not None:
            state.identity.trust.refresh(now=True)  # it reads files: not under the lock
        with state.lock:
            refused = (state.reason is not None and not state.lingers) or (dialer is not None and dialer.closed)
            why = self.guard.too_many() if dialer is None else None
            if not refused and why is None:
                try:
                    self.guard.watch()
                    machine = self._machine(address, dialer is not None)
                    source: Any = dialer or listener
                    if tls is None and source.contexts is not None:
                        tls = source.contexts.layer()
                    connection = Connection(state, stream, descriptor, tls, machine, address, url, dialer, listener)
                    if link is not None:
                        machine.begin(link, connection, state)
                        connection.link = link
                    state.handshaking[connection.number] = connection
                    self.watch.begin(connection)
                except Exception as wrong:
                    why = str(internal(wrong))
                    log.exception("%s: the connection ends", url)
            if why is not None:
                where = f"{address.scheme}://{streams.remote(stream, descriptor)}" if address.ported else url
                self.guard.cut(where, why)
                if dialer is not None:
                    dialer.lost(joined=False)
            if connection is None:
                streams.close(stream)
                if link is not None:
                    link.close()
                return
        if dialer is None and (address.ported or address.local):
            self._count(connection)
        connection.start(received)

    def _count(self, connection: Connection) -> None:
        """Count an accepted connection in the process's pool. Called without a lock."""
        connection.host = other_host(connection.where())
        evict = pool.enter(connection.number, connection.host, partial(self._evict, connection))
        if connection.stage == CLOSED:  # it has ended meanwhile
            pool.leave(connection.number)
        if evict is not None:
            evict()

    def _evict(self, connection: Connection, why: str) -> None:
        """End a handshake for want of room in the pool. Called without a lock."""
        with self.state.lock:
            if connection.stage in (SHAKING, ASKING):
                self.guard.cut(connection.where(), why)
                self.lose(connection, why)
        self.state.notify()

    def unreached(self) -> str:
        """Return why dialers have not connected, for an error message; "" if nothing is known."""
        problems = [f"{one.address.url}: {one.problem}" for one in list(self._dialers) if one.problem]
        more = f"; and {len(problems) - REASONS} more" if len(problems) > REASONS else ""
        return "".join(f"; {problem}" for problem in problems[:REASONS]) + more

    def refusals(self) -> str:
        """Return what its dialers are refused for, for an error message; "" if nothing is."""
        return "".join(f"; {one.refusal}" for one in list(self._dialers) if one.refusal is not None)

    # ------------------------------------------------------------------ joining

    def complete_handshake(self, connection: Connection) -> None:
        """Ask ``admit`` about a peer after its hello, and let it join. Without the lock, on an NNG thread."""
        state = self.state
        pipe: Any = None
        with state.lock:
            if connection.stage != ASKING:
                return  # its stream is closed
            try:
                pipe = connection.describe()
            except AccessDenied as denied:
                connection.fault = denied
            except Exception as wrong:
                connection.crash(wrong)
            if connection.fault is not None:
                self.lose(connection)
                return
        reason = self._objection(pipe)
        joined = False
        with state.lock:
            if connection.stage != ASKING:
                return
            if reason is None and self._alone and state.present:
                reason = "already connected to a peer"
            if reason is None and (reason := self.guard.too_many_from(pipe) or self._let_in(connection)) is not None:
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
                state.handshaking.pop(connection.number, None)
                state.present[connection.number] = connection
                self.joined_ever += 1
                self.guard.joined(pipe)
                state.events.append(PeerEvent("joined", pipe, time.monotonic()))
                self.outbox.after_write(connection)  # waiting messages are shared with it
                if connection.dialer is not None:
                    connection.dialer.no_refusal()
                joined = True
            else:
                self.lose(connection)
        state.notify()
        if not joined:
            return
        with state.lock:
            self.outbox.resume_waiting()
            if connection.stage == JOINED:
                try:
                    connection.start_reading()
                except Exception as wrong:
                    connection.crash(wrong)
                if connection.fault is not None:
                    self.lose(connection)
        state.notify()

    def _answer_handshake(self, connection: Connection, *, refuse: bool) -> None:
        machine = connection.machine
        if machine.awaits_accept:
            if refuse:
                machine.refuse()
            else:
                machine.accept()
            connection.write(now=True)

    def _let_in(self, connection: Connection) -> str | None:
        counts = connection.dialer is None and (connection.address.ported or connection.address.local)
        return pool.let_in(connection.number) if counts else None

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

    def lose(self, connection: Connection, reason: str | None = None) -> None:
        """End a connection. Under the lock. Its dialer tries again.

        Called again, it continues where a signal handler that raised interrupted it.
        """
        state = self.state
        number = connection.number
        joined = number in state.present
        if not joined and number not in state.handshaking:
            return
        where = connection.pipe.address if connection.pipe is not None else connection.where()
        if connection.stage != CLOSED:
            if joined:
                self.outbox.distribute()  # to this peer too, so that each message counts as written or dropped
                if number not in state.present:
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
        if connection.link is not None:
            connection.link.close()
        if connection.dialer is not None and (state.reason is None or state.lingers):
            connection.dialer.lost(joined=joined, refusal=None if joined else self._refusal(connection))
        elif isinstance(connection.listener, Listener) and (
            not joined or isinstance(fault, NngkitError) or connection.machine.begun
        ):
            connection.listener.pace.failed(time.monotonic())
        steps: list[tuple[Any, ...]] = [
            (state.present.pop, number, None),
            (state.handshaking.pop, number, None),
        ]
        if joined and (pipe := connection.pipe) is not None:
            self.guard.left(pipe)
            event = PeerEvent("left", pipe, time.monotonic(), str(fault or ""))
            steps += [
                (setattr, self, "left_ever", self.left_ever + 1),
                (setattr, self, "read_gone", self.read_gone + connection.machine.count),
                (setattr, self, "written_gone", self.written_gone + connection.written),
                (state.events.append, event),
            ]
        pool.leave(number)
        atomically(*steps)
        if isinstance(fault, NngkitError):
            if hasattr(fault, "peer"):
                fault.peer = where
            self.guard.cut(where, str(fault))
            if not joined and connection.dialer is None:
                self.guard.not_understood(connection.url, where, str(fault))
            self.inbox.count_fault(fault)
        if self.outbox.lanes is not None:
            self.outbox.resume_waiting()  # peers of the next lane

    def _refusal(self, connection: Connection) -> Refusal | None:
        """Return what a dialer is told that one side refuses the other; None of another end."""
        fault, trust = connection.fault, self.state.identity.trust
        if not isinstance(fault, NngkitError) or not is_refusal(why := str(fault)):
            return None
        theirs = connection.heard or heard(why)
        return Refusal(connection.address.url, "" if trust is None else trust.name, why, theirs)

    def disconnect(self, pipe: Pipe) -> bool:
        """Cut one connection; return False if it had ended."""
        state = self.state
        try:
            with state.lock:
                connection = state.present.get(pipe.id)
                if connection is not None:
                    self.lose(connection, "disconnected")
            state.notify()
        except BaseException:
            self.resume()
            raise
        return connection is not None

    def pipes(self) -> tuple[Pipe, ...]:
        """Return the pipes of the joined connections, oldest first. On any thread."""
        return tuple(one.pipe for one in list(self.state.present.values()) if one.pipe is not None)

    # ------------------------------------------------------------------ interrupted calls

    def resume(self) -> None:
        """Let every connection continue: a signal handler that raised may have interrupted this thread."""
        state = self.state
        with state.lock:
            if state.reason is not None and not state.lingers:
                return
            finish_interrupted(state)
            for connection in state.joined():
                if connection.stage != CLOSED:
                    try:
                        connection.resume()
                    except Exception as wrong:
                        connection.crash(wrong)
                if connection.fault is not None or connection.stage == CLOSED:
                    self.lose(connection)
            self.outbox.resume()
        state.notify()

    # ------------------------------------------------------------------ the end

    def refuse(self, reason: Closed) -> bool:
        """Refuse new work and wake all waiters; return False if that was done before."""
        state = self.state
        with state.lock:
            if state.reason is not None:
                return False
            state.reason = reason
            state.lingers = True
        self.outbox.refuse()
        self.inbox.refuse(reason)
        wake_all(state.peer_waiters)
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
        state = self.state
        with state.lock:
            if self._freed:
                return
            state.lingers = False
            connections = [*state.present.values(), *state.handshaking.values()]
            ends: list[Any] = [*self._listeners, *self._dialers]
        self.guard.close()
        self.watch.close()
        self.poller.close()
        for one in ends:
            one.close()
        with state.lock:
            for connection in connections:
                self.lose(connection, "closed")
            self.outbox.abandon()
        state.notify()
        numbers = [number for end in ends for number in end.numbers] + [one.number for one in connections]
        if late := wait_until_ended(numbers, CALLBACKS):
            log.warning("NNG's callbacks have not come in %g s: %s", CALLBACKS, ", ".join(map(repr, late)))
        with state.lock:
            self.poller.release()
            state.free_buffer()
            atomically((setattr, self, "_freed", True), (lib.nng_aio_reap, state.sync_aio))

    def forked(self, reason: Closed) -> None:
        """Refuse everything in a forked child, without a call into NNG."""
        for connection in self.state.joined():
            connection.release_descriptor()
        self.state.forked(reason)
        self._freed = True
        self.outbox.free = 0
        self.inbox.ready.clear()


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


atexit.register(BackgroundClose.finish)  # runs before the hook of process.py, which was registered earlier
