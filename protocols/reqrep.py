"""REQREP: a request goes to one of the peers, its reply comes back to who asked.

::

    with Rep(listen="tcp://127.0.0.1:0") as rep, Req(dial=rep.address) as req:
        ...                                       # in one thread or task:
        for request in rep:
            request.reply(request.body.upper())
        ...                                       # in any others, at once:
        req.request(b"hello", timeout=1.0)

Many requests are under way on one socket, from threads and tasks alike, and many are open on one ``Rep``. At least
once: a request whose peer was lost is sent again, so it may run twice. Both ends are raw sockets of NNG with our own
ids, deadlines and resends; on the wire they are plain REQ (48) and REP (49), and talk to cooked peers.

What is sent again when a peer is lost: NNG does not say which peer took a request. With one peer it was that one. With
several, each unanswered request that may have gone to the lost one is sent again, after a short grace (a few round
trips) in which the replies of the others arrive; a request that takes longer than that may then run on two of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, ClassVar

from nngkit.errors import TimedOut

from ._alarm import Alarm
from ._nng import as_buffer, lib
from ._pipes import PeerEvent, Pipe
from ._raw import Answerer, Pump, Question, alive, header_of
from ._receiving import DEFAULT, Default, Timeout
from ._ring import QueueRing, Ring
from ._sending import Handover, Sending
from ._socket import MOST_BUFFER, Socket
from ._waiters import ThreadWaiter, TrioWaiter, Waiter, task_waiter

__all__ = ["Rep", "Req", "Request"]

RESEND = 60.0  # seconds without a reply after which a request is sent again, as nanomsg and NNG do
GRACE = (0.02, 1.0)  # seconds, least and most, that a survivor of a loss gets to answer


class _Call:
    """One request under way."""

    __slots__ = ("__weakref__", "handed_at", "hurried", "number", "ordinal", "reply", "resend_at", "waiter")

    def __init__(self, waiter: Waiter) -> None:
        self.waiter = waiter
        self.number = 0
        self.reply: tuple[int, bytes, int] | None = None
        self.ordinal: int | None = None
        self.handed_at = 0.0
        self.resend_at: float | None = None
        self.hurried = False  # whether to wake up for that in time, and not just at some time after

    def take(self, reply: tuple[int, bytes, int]) -> bool:
        first = self.reply is None
        if first:
            self.reply = reply
        return first


class Req(Sending, Socket):
    """Asks. Requests go in turn to the peers that have room, and wait while there is none.

    ``resend``: seconds after which an unanswered request is sent again, None never (it still is when its peer is lost).
    """

    _opener: ClassVar[Any] = lib.nng_req0_open_raw
    _ring_kind: ClassVar[type[Ring]] = QueueRing
    _nng_recv_buffer: ClassVar[bool] = True
    _nng_send_buffer: ClassVar[bool] = True
    _default_send_buffer: ClassVar[int] = MOST_BUFFER  # so that thousands in flight need no wait for room

    def __init__(self, *, resend: float | None = RESEND, **options: Any) -> None:
        self._resend = resend
        self._resent = 0
        self._round_trip = 0.0
        self._alarm: Alarm | None = None
        super().__init__(**options)

    def _set_up(self) -> None:
        self._pump = Pump(self._ring)
        self._alarm = Alarm(self._overdue)
        self._pipes.follow(self._peer)

    def request(self, data: Any, timeout: Timeout = DEFAULT) -> bytes:
        """The reply to ``data``. ``timeout`` seconds (left out: ``recv_timeout``) bound it all, waiting for a peer too.

        Interrupted or timed out, the request may have run; its reply will be dropped (``stats.late``).
        Raises TimedOut, Closed, Forked.
        """
        call = _Call(waiter := ThreadWaiter())
        try:
            for until in self._converse(call, as_buffer(data), timeout):
                waiter.wait(until)
            assert call.reply is not None
            return call.reply[1]
        finally:
            self._pipes.waiters.discard(waiter)
            self._pump.leave(call)

    async def arequest(self, data: Any, timeout: Timeout = DEFAULT) -> bytes:
        """``request`` for a task. Cancelled, the request may have run; its reply will be dropped."""
        call = _Call(waiter := task_waiter())
        if isinstance(waiter, TrioWaiter):
            await waiter.checkpoint_if_cancelled()
        try:
            for until in self._converse(call, as_buffer(data), timeout):
                await waiter.wait(until)
            assert call.reply is not None
            return call.reply[1]
        finally:
            self._pipes.waiters.discard(waiter)
            self._pump.leave(call)

    def _converse(self, call: _Call, body: Any, timeout: Timeout) -> Iterator[float | None]:
        """One request from beginning to end, for whoever can wait: yields until when, returns with the reply there."""
        seconds = self._recv_timeout if isinstance(timeout, Default) else timeout
        deadline = None if seconds is None else time.monotonic() + seconds
        home = None if isinstance(call.waiter, ThreadWaiter) else call.waiter.home
        self._check_open()
        self._pump.enter(call)
        header = header_of(call.number)
        while True:
            # Nothing is handed to NNG while nobody is there: it would keep it for the next peer, however late.
            if not self._pipes.present:
                self._pipes.waiters.add(call.waiter)
                while not self._pipes.present:
                    self._check(deadline, seconds, "no peer is connected")
                    yield deadline
                self._pipes.waiters.discard(call.waiter)
            call.ordinal = self._queue.sent
            if not self._queue.offer_message(body, header):
                handover = Handover(call.waiter)
                try:
                    try:
                        self._queue.begin(handover, body, header)
                        while not handover.done:
                            self._check(deadline, seconds, "the peers take no more")
                            yield deadline
                    finally:
                        code = self._queue.finish(handover)
                except BaseException:
                    self._queue.finish(handover)  # see Sending._send
                    raise
                if code:
                    self._queue.raise_for(code, seconds)
            call.handed_at = now = time.monotonic()
            call.hurried = False
            if self._resend is None:
                call.resend_at = None
            else:
                call.resend_at = now + self._resend
                assert self._alarm is not None
                self._alarm.set(self._resend)
            while True:
                # with a bell that will ring for it, there is nothing to look for
                if call.reply is None and not self._pump.will_ring(home):
                    self._pump.run(home)
                if call.reply is not None:
                    self._round_trip += (time.monotonic() - call.handed_at - self._round_trip) / 8
                    return
                if (again := call.resend_at) is not None and time.monotonic() >= again:
                    break
                self._check(deadline, seconds, "no reply")
                if again is None or not call.hurried:
                    yield deadline
                else:
                    yield again if deadline is None else min(deadline, again)
            self._resent += 1

    def _check(self, deadline: float | None, seconds: float | None, what: str) -> None:
        self._check_open()
        if deadline is not None and time.monotonic() >= deadline:
            raise TimedOut(f"{self!r}: {what} in {seconds} s", seconds)

    def _peer(self, event: PeerEvent) -> None:
        # NNG thread. A request still in NNG's queue is not lost with a pipe: it goes to the next one by itself.
        if event.kind == "joined":
            return
        pipes = self._pipes
        if pipes.blind() or not pipes.counted:
            taken = self._queue.sent
        else:
            # one message a pipe may have been taken and not been written
            taken = pipes.written()[0] + pipes.written_to_gone + pipes.left + len(pipes.present)
        grace = min(max(GRACE[0], 4 * self._round_trip), GRACE[1]) if pipes.present else 0.0
        again = time.monotonic() + grace
        for call in alive(self._pump.asking):
            if isinstance(call, _Call) and call.ordinal is not None and call.ordinal < taken:
                if call.resend_at is None or again < call.resend_at:
                    call.resend_at = again
                    call.hurried = True
                call.waiter.wake()

    def _overdue(self) -> float | None:
        # One alarm for all requests: a timer each would cost more than the rest of the wait. Those that are to be sent
        # again sooner than that (``hurried``) wait until then by themselves.
        now = time.monotonic()
        due = [
            (call.resend_at, call)
            for call in alive(self._pump.asking)
            if isinstance(call, _Call) and call.resend_at is not None
        ]
        for at, call in due:
            if at <= now:
                call.waiter.wake()
        return min((at - now for at, _ in due if at > now), default=None)

    def _counters(self) -> dict[str, int]:
        self._pump.run()
        return {"late": self._pump.late, "resent": self._resent}

    def _woken(self) -> None:
        self._pump.wake_all()

    def _free(self) -> None:
        if self._alarm is not None:
            self._alarm.close()


class Request(Question):
    """A request to be answered, once, by ``reply`` or ``areply``; in any order with others, from any thread or task.

    Answering it again raises RuntimeError: the peer has stopped listening to that id.
    """

    __slots__ = ("_answered",)

    def __init__(self, socket: Answerer[Any], body: bytes, header: bytes, pipe: Pipe | None) -> None:
        super().__init__(socket, body, header, pipe)
        self._answered = False

    def _answering(self) -> None:
        if self._answered:
            raise RuntimeError("this request was answered already")
        self._answered = True


class Rep(Answerer[Request]):
    """Answers. ``recv`` and iteration give each Request; ``recv_buffer`` (default 1024) wait their turn.

    Replies to one peer are held back before NNG's 64 places for it are full, as it would drop the rest.
    """

    _opener: ClassVar[Any] = lib.nng_rep0_open_raw
    _question: ClassVar[type[Question]] = Request
    _queued: ClassVar[int] = 64
