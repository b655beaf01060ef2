"""What is below the face of a socket: its connections, its queues, and one lock for all of it.

::

    Listener, Dialer -> greet (hello heard; `admit`) -> join -> inbox, outbox -> lose

A core does not know its socket, so a socket that nobody holds is garbage although NNG's threads still call back here.
What users are told (``on_peer``, ``admit``, waking who waits) is told without the lock: whoever lets go of it calls
``tell``. Connections are made, shaken hands with, read and lost on NNG's threads, whether or not somebody waits.

May not know: what a message means.
"""

from __future__ import annotations

import atexit
import logging
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from nngkit.errors import Closed, NngkitError

from . import _streams as streams
from ._addresses import Address
from ._alarm import Alarm
from ._connection import ASKING, CLOSED, JOINED, LISTENING, SHAKING, Connection, PeerEvent, Pipe
from ._inbox import Inbox, WhenBehind
from ._nng import ffi, lib, new_aio
from ._outbox import Outbox, WhenFull
from ._streams import Dialer, Listener, wait_until_ended
from ._waiters import TaskWaiter, ThreadWaiter
from ._wakeup import Nudge, WakeUp, Watch, watch

__all__ = ["Core", "Cut", "Limits"]

log = logging.getLogger("nngkit.protocols")

GONE: Final = 64  # connections remembered that ended, for those who read what they said last
TICK: Final = 0.005  # seconds after which somebody else reads if those who wait are busy
MOST_LISTENED: Final = 16  # connections up to which those who wait look at each; beyond, callbacks say which it is
BUSY: Final = 10.0  # callbacks a second and connection from which to look at all of them is cheaper
SPARSE: Final = 64  # one in so many has to have something for a look to have been worth it
VAIN: Final = 8  # looks in a row that were not, after which callbacks come again
GHOST: Final = 0.5  # seconds between two looks whether TLS peers are there: NNG tells only who reads at that moment
CALLBACKS: Final = 5.0  # seconds that a close waits for NNG's callbacks, which come at once unless the machine stalls


@dataclass(frozen=True, slots=True)
class Limits:
    """What a stranger may cost. Seconds, and numbers of connections (0: no limit)."""

    handshake: float
    idle: float
    pipes: int
    pipes_per_host: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A connection that ended against the rules: who it was, and why. ``time`` is time.monotonic() seconds."""

    address: str
    reason: str
    time: float


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
        self.now = new_aio()
        self.reading: Connection | None = None
        self.writing: Connection | None = None
        # reading by those who wait: see _wakeup.py
        self.wakeup: WakeUp | None = None
        self._nudge: Nudge | None = None  # for the thread that reads
        self.listens = False
        self._moves = 0  # times that somebody who waits has read
        self._seen_moves = 0
        self._watches: dict[object, Watch] = {}
        self._driving = threading.Lock()
        self._threads: set[ThreadWaiter] = set()
        self._ticker = Alarm(self._tick)
        self.callbacks = 0  # of receptions
        self._counted = 0  # of them, when their rate was taken
        self._counted_at = 0.0
        self._rate = 0.0  # a second
        self._turn = 0  # with whom a look begins
        self._in_vain = 0  # looks in a row that found little
        # connections
        self.present: dict[int, Connection] = {}
        self.joined_ever = 0
        self.left_ever = 0
        self.refused_ever = 0
        self.cut_ever = 0
        self.read_gone = 0
        self.written_gone = 0
        self.cuts: deque[Cut] = deque(maxlen=GONE)
        self._machine = machine
        self._alone = alone
        self._admit = admit
        self._limits = limits
        self._strangers: dict[int, Connection] = {}  # shaking hands, or being asked about
        self._gone: dict[int, Pipe] = {}
        self._listeners: list[Listener] = []
        self._dialers: list[Dialer] = []
        self._hosts: dict[str, int] = {}
        # what is told without the lock
        self.wakes = False  # receivers
        self.makes_room = False  # senders
        self.peer_waiters: set[Any] = set()
        self._events: deque[PeerEvent] = deque()
        self._telling = threading.Lock()
        self._followers: dict[object, Callable[[PeerEvent], None]] = {}
        self._later: deque[Callable[[object], None]] = deque()
        self._tls = False
        self._sweeper = Alarm(self._sweep)

    def check_open(self) -> None:
        """Raise why the socket is closed, if it is."""
        if (reason := self.reason) is not None:
            raise type(reason)(str(reason))

    # ------------------------------------------------------------------ addresses

    def listen(self, address: Address, tls: Any) -> Listener:
        """Accept connections there. Raises as ``Listener``."""
        listener = Listener(address, tls, self._accepted, self._inherit)
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

    def _accepted(self, stream: Any, listener: Listener) -> None:
        self._begin(stream, listener.address, listener.bound, listener=listener)

    def _connected(self, stream: Any, dialer: Dialer) -> None:
        self._begin(stream, dialer.address, dialer.address.url, dialer=dialer)

    def _inherit(self, stream: Any, listener: Listener, heard: bytes) -> None:
        """Go on with a handshake that another socket's listener at the same port began."""
        self._begin(stream, listener.address, listener.bound, listener=listener, heard=heard)

    def _begin(
        self,
        stream: Any,
        address: Address,
        url: str,
        *,
        dialer: Dialer | None = None,
        listener: Listener | None = None,
        heard: bytes = b"",
    ) -> None:
        with self.lock:
            refused = self.reason is not None and not self.lingers
            full = dialer is None and self._limits.pipes and self._accepted_now() >= self._limits.pipes
            if not refused and not full:
                machine = self._machine(address, dialer is not None)
                connection = Connection(self, stream, machine, address, url, dialer, listener)
                self._strangers[connection.number] = connection
            else:
                if full:
                    where = f"{address.scheme}://{streams.remote(stream)}" if address.ported else url
                    self._cut(where, f"more than {self._limits.pipes} connections")
                streams.close(stream)
                return
        self._tls = self._tls or address.tls
        self._watch()
        connection.start(heard)

    def _accepted_now(self) -> int:
        """Connections accepted that are here, or shake hands; under the lock."""
        return sum(one.dialer is None for one in (*self.present.values(), *self._strangers.values()))

    # ------------------------------------------------------------------ coming

    def greet(self, connection: Connection) -> None:
        """It has said hello: ask whether it may join, and let it in. Without the lock, on an NNG thread."""
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
            if reason is None and (reason := self._too_many(pipe)) is not None:
                self._cut(pipe.address, reason)
            machine = connection.machine
            if machine.asks:
                if reason is None:
                    machine.accept()
                else:
                    machine.refuse()
                connection.write(now=True)
            if reason is not None:
                connection.fault = reason
            if connection.fault is None:
                connection.pipe = pipe
                connection.stage = JOINED
                self._strangers.pop(connection.number, None)
                self.present[connection.number] = connection
                self.joined_ever += 1
                self._count_host(pipe, 1)
                self._events.append(PeerEvent("joined", pipe, time.monotonic()))
                self.outbox.settled(connection)  # who waited for it counts on its share
                told = True
            else:
                self.lose(connection)
        self.tell()
        if not told:
            return
        with self.lock:
            self.outbox.go_on()
            if connection.stage == JOINED:
                self.inbox.take_in(connection)  # what came with the hello
                connection.advance(now=False)
                if connection.fault is not None:
                    self.lose(connection)
        self.tell()

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

    def _too_many(self, pipe: Pipe) -> str | None:
        most = self._limits.pipes_per_host
        if most and not pipe.dialed and self._hosts.get(_host(pipe), 0) >= most:
            return f"more than {most} connections from {_host(pipe)}"
        return None

    def _count_host(self, pipe: Pipe, by: int) -> None:
        if not pipe.dialed:
            host = _host(pipe)
            self._hosts[host] = self._hosts.get(host, 0) + by
            if not self._hosts[host]:
                del self._hosts[host]

    # ------------------------------------------------------------------ going

    def hand_over(self, connection: Connection) -> None:
        """Forget a connection whose handshake goes on with another socket; under the lock."""
        self._strangers.pop(connection.number, None)
        connection.leave()

    def lose(self, connection: Connection, reason: str | None = None) -> None:
        """End a connection; under the lock. Its dialer tries again."""
        if connection.stage == CLOSED:
            return
        fault = connection.fault if reason is None else reason
        joined = connection.stage == JOINED
        where = connection.pipe.address if connection.pipe is not None else connection.where()
        if joined and reason is None:
            self.inbox.take_rest(connection)
        self.inbox.forget(connection)
        connection.close()
        self.outbox.lost(connection)
        self.present.pop(connection.number, None)
        self._strangers.pop(connection.number, None)
        if joined and connection.pipe is not None:
            pipe = connection.pipe
            self.left_ever += 1
            self.read_gone += connection.machine.count
            self.written_gone += connection.written
            self._count_host(pipe, -1)
            self._gone[pipe.id] = pipe
            if len(self._gone) > GONE:
                del self._gone[next(iter(self._gone))]
            self._events.append(PeerEvent("left", pipe, time.monotonic(), str(fault or "")))
        if isinstance(fault, NngkitError):
            if hasattr(fault, "peer"):
                fault.peer = where
            self._cut(where, str(fault))
            self.inbox.blame(fault)
        if connection.dialer is not None and (self.reason is None or self.lingers):
            connection.dialer.lost(joined=joined)

    def _cut(self, where: str, why: str) -> None:
        self.cut_ever += 1
        self.cuts.append(Cut(where, why, time.monotonic()))
        log.info("%s: cut: %s", where, why)

    def disconnect(self, pipe: Pipe) -> bool:
        """Cut one connection; False if it has gone."""
        with self.lock:
            connection = self.present.get(pipe.id)
            if connection is not None:
                self.lose(connection, "disconnected")
        self.tell()
        return connection is not None

    # ------------------------------------------------------------------ who is there

    @property
    def count(self) -> int:
        """Connections that joined and are here."""
        return len(self.present)

    def joined(self) -> Sequence[Connection]:
        """They, oldest first; under the lock."""
        return list(self.present.values())

    def pipes(self) -> tuple[Pipe, ...]:
        """The same as pipes; from anywhere."""
        return tuple(one.pipe for one in list(self.present.values()) if one.pipe is not None)

    def find(self, number: int) -> Pipe | None:
        """The pipe of that id, if it is here."""
        connection = self.present.get(number)
        return None if connection is None else connection.pipe

    def whose(self, number: int) -> Pipe | None:
        """The pipe of that id; it may have left since. None if that is long ago."""
        return self.find(number) or self._gone.get(number)

    def follow(self, callback: Callable[[PeerEvent], None]) -> Callable[[], None]:
        """Have ``callback`` called for every event, without the lock; what is returned ends it."""
        key = object()
        self._followers[key] = callback

        def end() -> None:
            self._followers.pop(key, None)

        return end

    # ------------------------------------------------------------------ telling, without the lock

    def later(self, call: Callable[[object], None]) -> None:
        """Have ``call(home)`` made as soon as the lock is free, in the loop ``home`` if it is not None."""
        self._later.append(call)

    def tell(self, home: object = None) -> None:
        """Tell what happened meanwhile. Whoever has let go of the lock calls this; ``home``: in which loop."""
        while self.wakes or self.makes_room or self._events or self._later:
            # a loop's step: a signal handler that raises after a call would leave the lock taken for ever
            for mine in map(self._telling.acquire, (False,)):
                if not mine:
                    return  # who has it looks again
                try:
                    self._tell(home)
                finally:
                    self._telling.release()

    def _tell(self, home: object) -> None:
        """What is cut short by a signal handler that raises is told once more."""
        while self._later:
            self._later[0](home)
            self._later.popleft()
        if self.wakes:
            self.wakes = False
            try:
                for waiter in self.inbox.waiters.copy():
                    waiter.wake_from(home)
            except BaseException:
                self.wakes = True
                raise
        if self.makes_room:
            self.makes_room = False
            try:
                self.outbox.wake()
            except BaseException:
                self.makes_room = True
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
        """Have all who wait for peers look again."""
        for waiter in self.peer_waiters.copy():
            waiter.wake()

    # ------------------------------------------------------------------ reading by those who wait

    def _listen(self) -> bool:
        """From now on wake who waits instead of calling back, as long as they read; whether that can be."""
        if self.listens:
            return True
        if not WakeUp.available or self.reason is not None or not self._worth_looking():
            return False
        with self.lock:
            if self.wakeup is None:
                self.wakeup = WakeUp()
            self.wakeup.arm()
            self._ticker.set(TICK)  # before it listens: cut short in between, nothing would end it
            self.listens = True
        return True

    def _worth_looking(self) -> bool:
        """Whether to look at each connection costs less than to be called back by those that have something."""
        count = len(self.present)
        if count <= MOST_LISTENED:
            return True
        at = time.monotonic()
        if at - self._counted_at > TICK:
            self._rate = (self.callbacks - self._counted) / (at - self._counted_at)
            self._counted_at, self._counted = at, self.callbacks
        return self._rate > count * BUSY

    def attend(self, waiter: TaskWaiter) -> None:
        """A task is about to wait: have its loop read when something comes. In that loop."""
        if not self._listen():
            return
        home = waiter.home
        if home in self._watches:
            return
        for other, old in list(self._watches.items()):
            if old.ended:
                self._watches.pop(other, None)
                old.close()
        wakeup = self.wakeup  # kept open by this name, whoever closes the socket
        if wakeup is None:
            return
        found = watch(waiter, wakeup.fd, partial(self.read_rung, home))
        if found is None:
            return
        self._watches[home] = found
        if self.reason is not None:  # closed by another thread, which may not have seen it
            found.close()

    def wait(self, waiter: ThreadWaiter, deadline: float | None) -> bool:
        """``waiter.wait(deadline)``, reading what comes meanwhile: one thread does, for all that wait."""
        if waiter.woken():
            return True
        if self._listen():
            # a loop's step: a signal handler that raises after a call would leave the lock taken for ever
            for mine in map(self._driving.acquire, (False,)):
                if mine:
                    try:
                        return self._drive(waiter, deadline)
                    finally:
                        waiter.polls = None
                        self._driving.release()
                        if self._threads:
                            self._hand_over()
        self._threads.add(waiter)
        try:
            return waiter.wait(deadline)
        finally:
            self._threads.discard(waiter)

    def _drive(self, waiter: ThreadWaiter, deadline: float | None) -> bool:
        wakeup, nudge = self.wakeup, self._nudge  # kept open by these names, whoever closes the socket
        if wakeup is None:
            return waiter.wait(deadline)
        if nudge is None:
            nudge = self._nudge = Nudge()
        poll = select.poll()
        poll.register(wakeup.fd, select.POLLIN)
        poll.register(nudge.fd, select.POLLIN)  # the other may be cleared by a loop that reads too
        waiter.thread = threading.get_ident()
        waiter.polls = nudge.set
        self.read_rung()
        while not waiter.woken():
            left = None if deadline is None else (deadline - time.monotonic()) * 1000
            if left is not None and left <= 0:
                return False
            if not self.listens:
                self._listen()
                self.read_rung()
                if waiter.woken():
                    return True
            for fd, _ in poll.poll(None if left is None else min(left, 1e9)):
                if fd == nudge.fd:
                    nudge.clear()
                else:
                    self.read_rung()
        return True

    def _hand_over(self) -> None:
        """Let one of the threads that wait read from now on."""
        for waiter in self._threads.copy():
            waiter.wake()
            return

    def read_rung(self, home: object = None) -> None:
        """Read what has come; ``home``: the loop this runs in."""
        self._moves += 1
        wakeup = self.wakeup
        if wakeup is None or self.reason is not None:
            return
        try:
            wakeup.clear()
            with self.lock:
                if self.listens:
                    wakeup.arm()  # before the look: what comes after it is told
                    self._look()
            self.tell(home)
        except BaseException:
            self.mend()
            raise

    def _look(self) -> None:
        found = 0
        joined = self.joined()
        self._turn = turn = (self._turn + 1) % len(joined) if joined else 0
        for connection in (*joined[turn:], *joined[:turn]):  # another one first each time, so that none is favoured
            if connection.heard:
                found += 1
                connection.advance(now=False)
                if connection.fault is not None:
                    self.lose(connection)
        if found * SPARSE > len(joined) or len(joined) <= MOST_LISTENED:
            self._in_vain = 0
        else:
            self._in_vain += 1

    def _tick(self) -> float | None:
        """While those who wait read: see that it goes on when they are busy, and end it when nothing comes."""
        with self.lock:
            if self.reason is not None:
                return None
            moved, self._seen_moves = self._moves != self._seen_moves, self._moves
            if moved and self._in_vain < VAIN:
                self._look()
            else:
                self.listens = False
                self._in_vain = 0
                for connection in self.joined():
                    if connection.rx_state == LISTENING:
                        connection.unlisten()
                        if connection.fault is not None:
                            self.lose(connection)
            again = TICK if self.listens else None
        self.tell()
        return again

    # ------------------------------------------------------------------ what was cut short

    def mend(self) -> None:
        """Have every connection go on: a signal handler that raised may have kept this thread from it."""
        with self.lock:
            if self.reason is not None and not self.lingers:
                return
            self.settle()
            for connection in self.joined():
                connection.mend()
                if connection.fault is not None:
                    self.lose(connection)
            self.outbox.mend()
        self.tell()

    def settle(self) -> None:
        """Finish the operation on ``now`` that a signal handler cut short, if there is one. Under the lock."""
        for connection, settled in ((self.reading, Connection.read_settled), (self.writing, Connection.write_settled)):
            if connection is not None:
                if lib.nng_aio_busy(self.now):
                    lib.nng_aio_cancel(self.now)
                    lib.nng_aio_wait(self.now)
                settled(connection)

    # ------------------------------------------------------------------ time limits

    def _watch(self) -> None:
        period = self._period()
        if period is not None:
            self._sweeper.set(period)

    def _period(self) -> float | None:
        limits = [limit for limit in (self._limits.handshake, self._limits.idle) if limit]
        if self._tls:
            limits.append(2 * GHOST)
        return max(0.01, min(limits) / 2) if limits else None

    def _sweep(self) -> float | None:
        """End handshakes and messages that take too long. On the alarm's thread."""
        now, limits = time.monotonic(), self._limits
        with self.lock:
            if self.reason is not None:
                return None
            for connection in list(self._strangers.values()):
                if limits.handshake and now - connection.since > limits.handshake and connection.stage == SHAKING:
                    self._cut(connection.where(), f"no handshake in {limits.handshake} s")
                    self.lose(connection, "no handshake")
            for connection in self.joined():
                if connection.address.tls and streams.remote(connection.stream) is None:
                    self.lose(connection, "the peer closed")
                elif limits.idle:
                    self._sweep_half(connection, now)
            more = bool(self.present or self._strangers)
        self.tell()
        return self._period() if more else None

    def _sweep_half(self, connection: Connection, now: float) -> None:
        machine = connection.machine
        progress = connection.progress_made()
        if not machine.begun or self.inbox.holds_back(connection) or progress != connection.progress:
            connection.progress = progress
            connection.since = now
        elif now - connection.since > self._limits.idle:
            assert connection.pipe is not None
            self._cut(connection.pipe.address, f"half a message, and nothing for {self._limits.idle} s")
            self.lose(connection, "half a message")

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
        Janitor(self, reason)

    def let_go(self) -> None:
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
            connections = [*self.present.values(), *self._strangers.values()]
        self._sweeper.close()
        self._ticker.close()
        for found in list(self._watches.values()):
            found.close()
        ends: list[Any] = [*listeners, *dialers]
        for one in ends:
            one.close()
        with self.lock:
            for connection in connections:
                self.lose(connection, "closed")
            self.outbox.abandon()
        self.tell()
        numbers = [one.number for one in (*ends, *connections)]
        if not wait_until_ended(numbers, CALLBACKS):
            log.warning("NNG's callbacks of %d connections have not come in %g s", len(numbers), CALLBACKS)
        with self.lock:
            lib.nng_aio_reap(self.now)
            # now, and not when the collector comes round: they are descriptors
            self.wakeup = self._nudge = None
            self._watches = {}

    def forked(self, reason: Closed) -> None:
        """In a forked child: refuse everything, and touch nothing of NNG's."""
        self.lock = threading.Lock()
        self._telling = threading.Lock()
        self.reason = reason
        self.lingers = False
        self.outbox.free = 0
        self.inbox.ready.clear()
        self.present = {}


class Janitor:
    """Closes a core that nobody holds any more."""

    _busy: ClassVar[set[Janitor]] = set()

    def __init__(self, core: Core, reason: Closed) -> None:
        self._core, self._reason = core, reason
        self._working = threading.Lock()
        self._busy.add(self)
        core.let_go()
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


atexit.register(Janitor.finish)  # runs before the hook of _nng.py, which was registered before


def _host(pipe: Pipe) -> str:
    return pipe.address.partition("://")[2].rpartition(":")[0] or pipe.address


__all__ += ["WhenBehind", "WhenFull"]
