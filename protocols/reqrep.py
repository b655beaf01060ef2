"""REQREP: a request goes to one of the peers, which returns a reply.

::

    with Rep(listen="tcp://127.0.0.1:0") as rep, Req(dial=rep.address) as req:
        ...                                       # in one thread or task:
        for request in rep:
            request.reply(request.body.upper())
        ...                                       # in any others, at once:
        req.request(b"hello", timeout=1.0)

Many requests may be in progress on one socket, from threads and tasks, and many may be open on one ``Rep``. Delivery is
at least once: a request whose peer was lost is sent again, so it may run twice. A Req knows which peer took which
request; it resends those of a lost peer and no others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, ClassVar, Literal, Unpack

from nngkit.errors import ConfigError, Lost, TimedOut
from nngkit.protocols._core.connection import Connection
from nngkit.protocols._core.core import Outbox
from nngkit.protocols._core.pipe import PeerEvent
from nngkit.protocols._core.shared_queue import SharedQueue
from nngkit.protocols._nng.library import Payload, as_bytes
from nngkit.protocols._shm.sharing import Message, Slot, plain, view_of
from nngkit.protocols._socket.answering import Answerer, Question
from nngkit.protocols._socket.asking import Asking
from nngkit.protocols._socket.lending import Loan
from nngkit.protocols._socket.options import MOST_BUFFER, CallOptions
from nngkit.protocols._socket.socket import Socket
from nngkit.protocols._waiting.alarm import Alarm
from nngkit.protocols._waiting.waiters import (
    DEFAULT,
    Default,
    ThreadWaiter,
    Timeout,
    TrioWaiter,
    Waiter,
    task_waiter,
    weakly,
)
from nngkit.protocols.sp import HEADROOM, REP, REQ

RESEND = 60.0  # seconds without a reply after which a request is sent again, as in nanomsg and NNG


class _Call:
    """One request in progress. ``queued``: it waits for a peer; ``peer``: the connection that took it.

    ``seconds``, ``deadline``: its timeout. ``lost``: the peer left, and the caller wants to know.
    """

    __slots__ = (
        "__weakref__",
        "_asking",
        "deadline",
        "header",
        "lost",
        "message",
        "peer",
        "queued",
        "reply",
        "resend_at",
        "seconds",
        "waiter",
    )

    seconds: float | None

    def __init__(self, asking: Asking, waiter: Waiter) -> None:
        self._asking = asking
        self.waiter = waiter
        self.header = self.message = b""
        self.reply: Message | None = None
        self.queued = self.lost = False
        self.peer: Connection | None = None
        self.resend_at: float | None = None
        self.deadline: float | None = None

    def take(self, message: Any, body: Message, connection: Connection) -> bool:
        first = self.reply is None
        if first:
            self.reply = body
        return first

    def deliver(self, connection: Connection, message: bytes) -> bool:
        """Take a reply where it is read; return False if it is not the one. See `Connection.read_small`."""
        asking = self._asking
        if self.reply is not None or message[:4] != self.header or len(message) > asking.longest:
            return False
        body, state, machine = message[4:], asking.state, connection.machine
        # no calls from here
        self.reply = body
        asking.received += 1
        machine.count += 1
        connection.taken_in += 1
        machine.referred = None
        state.reading = None
        return True


class Req(Socket):
    """Send requests and return their replies.

    Requests go in turn to the peers with room, and wait while no peer has room.

    ``resend``: seconds after which a request without a reply is sent again; None: only when its peer is lost.
    ``lost``: "resend" to the next peer the requests of a lost one, or "raise" Lost in their callers; then a request
    without a peer raises Lost too, at once.
    """

    _protocol: ClassVar[int] = REQ
    _header_room: ClassVar[int] = HEADROOM
    _queues: ClassVar[type[Outbox]] = SharedQueue
    _outbox: SharedQueue
    _prioritizes: ClassVar[bool] = True
    _default_send_buffer: ClassVar[int] = MOST_BUFFER  # so that thousands of requests need not wait for room

    def __init__(
        self,
        *,
        resend: float | None = RESEND,
        lost: Literal["resend", "raise"] = "resend",
        **options: Unpack[CallOptions],
    ) -> None:
        if lost not in ("resend", "raise"):
            raise ConfigError("lost", f"{lost!r} is neither 'resend' nor 'raise'", lost)
        self._resend = resend
        self._raises = lost == "raise"
        self._resent = 0
        self._alarm: Alarm | None = None
        super().__init__(**options)

    def _set_up(self) -> None:
        self._asking = Asking(self._core, self._largest)
        self._sharing.lazy = True  # each caller copies its reply, or takes a view
        self._alarm = Alarm(self._overdue)
        self._outbox.took = weakly(self._took)
        self._state.follow(weakly(self._peer))

    def request(self, data: Payload, timeout: Timeout = DEFAULT) -> bytes:
        """Return the reply to ``data``.

        ``timeout`` (default: ``recv_timeout``) includes the wait for a peer. If interrupted or timed out, the request
        may have been processed; its reply is dropped (``stats.late``). Raises TimedOut, Closed, Forked.
        """
        call = _Call(self._asking, waiter := ThreadWaiter())
        try:
            if begun := self._begin(call, data, timeout, at_once=True):
                self._core.poller.wait(waiter, call.deadline, call.deliver)
            if call.reply is None:
                for until in self._converse(call, data, begun, at_once=True):
                    self._core.poller.wait(waiter, until, call.deliver)
            assert call.reply is not None
            return call.reply if type(call.reply) is bytes else plain(call.reply)
        finally:
            if call.queued:
                self._outbox.withdraw(call.message)
            self._asking.leave(call)

    def request_view(self, data: Payload, timeout: Timeout = DEFAULT) -> memoryview:
        """Like ``request``, with the reply as a read-only view; see ``Pull.recv_view``. Experimental."""
        call = _Call(self._asking, waiter := ThreadWaiter())
        try:
            begun = self._begin(call, data, timeout, at_once=True)
            for until in self._converse(call, data, begun, at_once=True):
                self._core.poller.wait(waiter, until, call.deliver)
            assert call.reply is not None
            return view_of(call.reply)
        finally:
            if call.queued:
                self._outbox.withdraw(call.message)
            self._asking.leave(call)

    async def arequest(self, data: Payload, timeout: Timeout = DEFAULT) -> bytes:
        """Like ``request``, for a task. If cancelled, the request may have been processed; its reply is dropped."""
        call = _Call(self._asking, waiter := task_waiter())
        if type(waiter) is TrioWaiter:
            await waiter.lowlevel.checkpoint_if_cancelled()
        try:
            if begun := self._begin(call, data, timeout):
                self._core.poller.watch_for(waiter)
                await waiter.wait(call.deadline)
            if call.reply is None:
                for until in self._converse(call, data, begun):
                    self._core.poller.watch_for(waiter)
                    await waiter.wait(until)
            assert call.reply is not None
            return call.reply if type(call.reply) is bytes else plain(call.reply)
        finally:
            if call.queued:
                self._outbox.withdraw(call.message)
            self._asking.leave(call)

    async def arequest_view(self, data: Payload, timeout: Timeout = DEFAULT) -> memoryview:
        """Like ``request_view``, for a task. If cancelled, the request may have been processed."""
        call = _Call(self._asking, waiter := task_waiter())
        if type(waiter) is TrioWaiter:
            await waiter.lowlevel.checkpoint_if_cancelled()
        try:
            begun = self._begin(call, data, timeout)
            for until in self._converse(call, data, begun):
                self._core.poller.watch_for(waiter)
                await waiter.wait(until)
            assert call.reply is not None
            return view_of(call.reply)
        finally:
            if call.queued:
                self._outbox.withdraw(call.message)
            self._asking.leave(call)

    def loan(self, size: int, timeout: Timeout = DEFAULT) -> Loan:
        """Lend a writable buffer of ``size`` bytes for one request. Experimental.

        ::

            with req.loan(size) as buffer:          # in a task: async with
                camera.readinto(buffer)
                reply = req.request(buffer)

        On shm the buffer is the memory that the peer reads, otherwise it is copied. Do not write into it after the
        request. ``timeout`` is for the wait for memory.
        """
        self._check_open()
        seconds = self._send_timeout if isinstance(timeout, Default) else timeout
        return Loan(self._sharing if self._sharing.active else None, size, seconds)

    def _placing(self, call: _Call, data: Payload) -> Generator[float, None, bytes]:
        """Return the message, in shared memory if it belongs there; yield each time to wait until."""
        if (loan := Loan.of(data)) is not None:
            data = loan.message()
        found: list[Slot] = []
        if size := self._sharing.wants(data):
            yield from self._sharing.finding(size, found, call.waiter, call.deadline)
        return self._sharing.message(call.header, data, size, found)

    def _begin(self, call: _Call, body: Payload, timeout: Timeout, *, at_once: bool = False) -> bool:
        """Send a request if nothing has to be waited for first; return False otherwise. `_converse` goes on.

        ``at_once``: for a thread, which does nothing else meanwhile; requests of tasks are written together.
        """
        call.seconds = seconds = self._recv_timeout if type(timeout) is Default else timeout
        now, state = time.monotonic(), self._state
        if seconds is not None:
            call.deadline = now + seconds
        if state.reason is not None:
            state.check_open()
        header = self._asking.enter(call)
        if self._sharing.active:
            return False
        call.message = header + (body if type(body) is bytes else as_bytes(body))
        # Nothing is queued without a peer: the next peer would get it, however late.
        return bool(state.present) and self._queue(call, now, at_once)

    def _queue(self, call: _Call, now: float, at_once: bool) -> bool:
        """Queue a request for a peer; return False if there is no room."""
        outbox, resend = self._outbox, self._resend
        call.queued = True
        call.resend_at = None if resend is None else now + resend
        if resend is not None and (alarm := self._alarm) is not None and not alarm.is_set:
            alarm.set(resend)
        if at_once:
            return outbox.send_now(call.message, call) or outbox.add(call.message)
        return outbox.add_at_turn_end(call.message, call)

    def _converse(self, call: _Call, body: Payload, begun: bool, *, at_once: bool = False) -> Iterator[float | None]:
        """Send a request unless it has ``begun``; yield each time to wait until; return at the reply."""
        state = self._state
        if not call.message:
            call.message = yield from self._placing(call, body)
        while call.reply is None:
            now = time.monotonic()
            if begun and call.resend_at is not None and now >= call.resend_at and not call.queued:
                self._resent += 1
                begun = False
            if not begun:
                if not state.present:
                    if self._raises:
                        raise Lost(f"{self!r}: no peer is connected{self._last_cut()}", sent=False)
                    yield from self._until(lambda: bool(state.present), state.peer_waiters, call)
                yield from self._until(lambda: self._queue(call, time.monotonic(), at_once), self._outbox.waiters, call)
                begun = True
            if state.reason is not None or (call.deadline is not None and now >= call.deadline):
                self._check(call, "no reply")
            if call.lost:
                call.queued, sent = False, not (call.queued and self._outbox.withdraw(call.message))
                why = "may have run" if sent else "was not sent"
                raise Lost(f"{self!r}: the peer left; the request {why}", sent=sent)
            yield call.deadline

    def _until(self, done: Callable[[], bool], waiters: set[Any], call: _Call) -> Iterator[float | None]:
        waiters.add(call.waiter)
        try:
            while not done():
                self._check(call, "no peer has room" if self._state.present else "no peer is connected")
                yield call.deadline
        finally:
            waiters.discard(call.waiter)

    def _check(self, call: _Call, what: str) -> None:
        self._state.check_open()
        if call.deadline is not None and time.monotonic() >= call.deadline:
            why = "" if self._state.present else self._last_cut()
            raise TimedOut(f"{self!r}: {what} in {call.seconds} s{why}", call.seconds)

    def _took(self, connection: Connection | None, messages: Sequence[bytes]) -> None:
        """Note that ``connection`` took requests or, if None, that they are queued again. Under the lock."""
        asking, queued = self._asking, connection is None
        if asking.relay is not None:
            asking.relay.took(connection, messages)
        for call in asking.found(messages):
            assert isinstance(call, _Call)
            call.peer = connection
            call.queued = queued

    def _peer(self, event: PeerEvent) -> None:
        """Resend the requests that a lost peer had taken, or tell their callers. On the thread that noticed."""
        if event.kind == "joined":
            return
        alone = self._raises and not self._state.present
        for call in self._asking.requesters():
            if isinstance(call, _Call):
                taken = call.peer is not None and call.peer.number == event.pipe.id
                if taken and not self._raises:
                    call.resend_at = 0.0
                    call.waiter.wake()
                elif taken or alone:
                    call.lost = True
                    call.waiter.wake()

    def _overdue(self) -> float | None:
        now = time.monotonic()
        due = [
            (call.resend_at, call)
            for call in self._asking.requesters()
            if isinstance(call, _Call) and call.resend_at is not None
        ]
        for at, call in due:
            if at <= now:
                call.waiter.wake()
        return min((at - now for at, _ in due if at > now), default=None)

    def _counters(self) -> dict[str, int]:
        return {"late": self._asking.late, "received": self._asking.received, "resent": self._resent}

    def _woken(self) -> None:
        self._asking.wake_all()

    def _free(self) -> None:
        if self._alarm is not None:
            self._alarm.close()


class Request(Question):
    """A received request. ``reply`` or ``areply`` answers it, in any order with others, from any thread or task.

    A second reply raises RuntimeError: a request has one reply.
    """

    __slots__ = ()

    def _answering(self) -> None:
        if self._answered:
            raise RuntimeError("this request was already answered")
        self._answered = True


class Rep(Answerer[Request]):
    """Reply to requests. ``recv`` and iteration return each Request.

    Up to ``recv_buffer`` (default 1024) requests wait in a queue. ``send_buffer`` (default 1024) replies are queued for
    each peer.
    """

    _protocol: ClassVar[int] = REP
    _question: ClassVar[type[Question]] = Request
