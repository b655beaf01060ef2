"""SURVEY: a question to all peers, and every reply until a deadline.

::

    with Surveyor(listen="tcp://127.0.0.1:0") as surveyor, Respondent(dial=surveyor.address) as respondent:
        ...                                       # in one thread or task:
        for query in respondent:
            query.reply(b"here")
        ...                                       # in another:
        result = surveyor.survey(b"status?", timeout=0.5)
        result.replies, result.expected, result.answered

Many surveys may be in progress on one socket. Each keeps the replies that were not taken yet, up to ``recv_buffer``
replies and ``recv_window`` bytes; replies beyond are dropped and counted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Self, Unpack

from nngkit.protocols._core.connection import Connection
from nngkit.protocols._core.peer_queues import PeerQueues
from nngkit.protocols._core.pipe import PeerEvent, Pipe
from nngkit.protocols._core.send_queue import WhenFull
from nngkit.protocols._nng.library import Payload, as_bytes
from nngkit.protocols._socket.answering import Answerer, Question
from nngkit.protocols._socket.asking import Asking
from nngkit.protocols._socket.options import SurveyOptions
from nngkit.protocols._socket.socket import Socket
from nngkit.protocols._waiting.waiters import (
    DEFAULT,
    Default,
    ThreadWaiter,
    Timeout,
    Waiter,
    checkpoint_before,
    task_waiter,
    weakly,
)
from nngkit.protocols.sp import HEADROOM, MIB, RESPONDENT, SURVEYOR

SURVEY_TIME = 1.0  # seconds: NNG's default


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply, from ``pipe``, ``elapsed`` seconds after the survey was sent."""

    body: bytes
    pipe: Pipe | None
    elapsed: float


@dataclass(frozen=True, slots=True)
class SurveyResult:
    """All replies in order of arrival, ``expected``: peers connected at the start, ``answered``: peers that replied.

    A peer may reply more than once (a device relays many), so ``len(replies)`` may exceed ``answered``. ``dropped``
    counts replies without room (``recv_buffer``, ``recv_window``); their peers have answered.
    """

    replies: tuple[Reply, ...]
    expected: int
    answered: int
    elapsed: float
    dropped: int = 0


class Survey:
    """A survey in progress, from ``Surveyor.start`` or ``astart``: its replies as they arrive, until its deadline.

    Iterate over it once (``for``, or ``async for`` if a task started it), or call ``fresh`` for the replies that have
    arrived. Closing it, also by ``with``, drops the other replies.
    """

    def __init__(self, surveyor: Surveyor, waiter: Waiter, timeout: float | None, *, each: bool, early: bool) -> None:
        self.waiter = waiter
        self.header = b""
        self.dropped = 0
        """Replies dropped because ``recv_buffer`` replies or ``recv_window`` bytes were unread."""
        self._surveyor = surveyor
        self._started = time.monotonic()
        self._deadline = None if timeout is None else self._started + timeout
        self._expected = 0
        self._missing: set[int] = set()
        self._answered: set[int] = set()
        self._replies: deque[Reply] = deque()  # each is given out once, so that a survey without end does not grow
        self._size = 0  # bytes of their bodies
        self._each = each
        self._early = early
        self._last: object = None

    # ---- for the socket

    def _expect(self, pipes: set[int]) -> None:
        """Note the ids of the connections that the survey is sent to."""
        self._expected = len(pipes)
        self._missing = pipes

    def take(self, message: bytes, body: bytes, connection: Connection) -> bool:
        """Keep one reply, or drop and count it; return True to wake the waiter. Under the lock."""
        if message is not self._last:
            reply = Reply(body, connection.pipe, time.monotonic() - self._started)
            surveyor, inbox = self._surveyor, self._surveyor._inbox
            kept, size = len(self._replies), self._size + len(body)
            # no calls from here: no signal handler can run between keeping a reply and noting it
            if not kept or (kept < surveyor._recv_buffer and size <= surveyor._recv_window):
                self._replies += (reply,)
                self._size = size
            else:
                self.dropped += 1
                inbox.dropped += 1
                connection.dropped += 1
            self._last = message
        self._answered.add(connection.number)
        self._missing.discard(connection.number)
        return self._each or self._complete

    def _peer_left(self, pipe: int) -> None:
        """Stop expecting a reply from this connection. On any thread."""
        if pipe in self._missing:
            self._missing.discard(pipe)
            self.waiter.wake()

    @property
    def _complete(self) -> bool:
        """True if the survey may end before its deadline, and every peer has replied or left."""
        return self._early and not self._missing

    def _waits(self) -> Iterator[float | None]:
        """Yield until when to wait for more replies; end with the survey."""
        while True:
            # Checked after the deadline too: replies that arrived by then count, even if the program was busy.
            late = self._deadline is not None and time.monotonic() >= self._deadline
            self._surveyor._check_open()
            if late or self._complete:
                return
            yield self._deadline

    # ---- for the program

    def fresh(self) -> list[Reply]:
        """Return the replies that have arrived and were not returned before, without waiting. Raises Closed."""
        self._surveyor._check_open()
        if not self._replies:
            return []
        empty: deque[Reply] = deque()
        with self._surveyor._state.lock:  # replies come in under it
            taken, self._replies, self._size = self._replies, empty, 0
        return list(taken)

    def result(self) -> SurveyResult:
        """Return the replies that neither ``fresh`` nor an iteration has returned, and the counts of all."""
        elapsed = time.monotonic() - self._started
        with self._surveyor._state.lock:  # replies and counts of one moment
            return SurveyResult(tuple(self._replies), self._expected, len(self._answered), elapsed, self.dropped)

    def __iter__(self) -> Iterator[Reply]:
        waiter, poller = self.waiter, self._surveyor._core.poller
        if not isinstance(waiter, ThreadWaiter):
            raise TypeError("this survey was started by a task: use `async for`")
        for until in self._waits():
            yield from self.fresh()
            poller.wait(waiter, until)
        yield from self.fresh()

    async def __aiter__(self) -> AsyncGenerator[Reply, None]:
        waiter, poller = self.waiter, self._surveyor._core.poller
        if isinstance(waiter, ThreadWaiter):
            raise TypeError("this survey was started by a thread: use `for`")
        for until in self._waits():
            for reply in self.fresh():
                yield reply
            poller.watch_for(waiter)
            await waiter.wait(until)
        for reply in self.fresh():
            yield reply

    def close(self) -> None:
        """Drop replies from now on; they count as late. Idempotent."""
        self._surveyor._asking.leave(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Surveyor(Socket):
    """Send surveys and collect the responses. A slow peer never delays a survey.

    ``recv_timeout`` is the length of a survey: 1 s by default, None for ever. ``send_buffer`` surveys are queued for
    each peer; over this cap the newest is dropped, or with ``when_full="drop_oldest"`` the oldest.

    ``recv_buffer`` and ``recv_window`` cap the unread replies of each survey; further replies are dropped, and counted
    in ``stats.dropped`` and ``Survey.dropped``.
    """

    _protocol: ClassVar[int] = SURVEYOR
    _outbox: PeerQueues
    _header_room: ClassVar[int] = HEADROOM
    _prioritizes: ClassVar[bool] = True
    _default_recv_buffer: ClassVar[int] = 65_536  # replies of each survey: six times those of 10,000 peers
    _most_recv_buffer: ClassVar[int] = 1 << 20
    _default_recv_window: ClassVar[int] = 64 * MIB  # as a send queue
    _least_send_buffer: ClassVar[int] = 1
    _policies: ClassVar[tuple[WhenFull, ...]] = ("drop", "drop_oldest")

    def __init__(self, **options: Unpack[SurveyOptions]) -> None:
        options.setdefault("recv_timeout", SURVEY_TIME)
        super().__init__(**options)

    def _set_up(self) -> None:
        self._asking = Asking(self._core, self._largest)
        self._state.follow(weakly(self._peer))

    def survey(self, data: Payload, timeout: Timeout = DEFAULT, *, early: bool = False) -> SurveyResult:
        """Send a survey and collect replies for ``timeout`` seconds; no reply is not an error.

        ``early``: return as soon as every peer that was connected at the start has replied or left. Raises Closed,
        Forked.
        """
        waiter = ThreadWaiter()
        with self._begin(waiter, data, timeout, each=False, early=early) as survey:
            for until in survey._waits():
                self._core.poller.wait(waiter, until)
        return survey.result()

    async def asurvey(self, data: Payload, timeout: Timeout = DEFAULT, *, early: bool = False) -> SurveyResult:
        """Like ``survey``, for a task. If cancelled, replies are dropped; later ones count in ``stats.late``."""
        await checkpoint_before()
        waiter = task_waiter()
        with self._begin(waiter, data, timeout, each=False, early=early) as survey:
            for until in survey._waits():
                self._core.poller.watch_for(waiter)
                await waiter.wait(until)
        return survey.result()

    def start(self, data: Payload, timeout: Timeout = DEFAULT, *, early: bool = False) -> Survey:
        """Send a survey and return it without waiting for replies. Arguments as for ``survey``."""
        return self._begin(ThreadWaiter(), data, timeout, each=True, early=early)

    async def astart(
        self, data: Payload, timeout: Timeout = DEFAULT, *, early: bool = False, to: Collection[int] | None = None
    ) -> Survey:
        """Like ``start``, for a task. If cancelled, no survey was sent. ``to``: ids of the only pipes to ask."""
        await checkpoint_before()
        return self._begin(task_waiter(), data, timeout, each=True, early=early, to=to)

    def survey_iter(self, data: Payload, timeout: Timeout = DEFAULT, *, early: bool = False) -> Iterator[Reply]:
        """Yield the replies of a survey as they arrive, blocking. It is sent when iteration begins."""
        with self.start(data, timeout, early=early) as survey:
            yield from survey

    async def asurvey_iter(
        self, data: Payload, timeout: Timeout = DEFAULT, *, early: bool = False
    ) -> AsyncIterator[Reply]:
        """Like ``survey_iter``, for a task."""
        with await self.astart(data, timeout, early=early) as survey:
            async for reply in survey:
                yield reply

    def _begin(
        self,
        waiter: Waiter,
        data: Payload,
        timeout: Timeout,
        *,
        each: bool,
        early: bool,
        to: Collection[int] | None = None,
    ) -> Survey:
        """Send a survey to all peers, or ``to`` some. ``each``: wake ``waiter`` for each reply, not at the end."""
        self._check_open()
        seconds = self._recv_timeout if isinstance(timeout, Default) else timeout
        survey = Survey(self, waiter, seconds, each=each, early=early)
        try:
            message = self._asking.enter(survey) + as_bytes(data)
            lanes = self._outbox.lanes
            present = {pipe.id for pipe in self.pipes} if lanes is None else {one.number for one in lanes.best()}
            survey._expect(present if to is None else present.intersection(to))
            if to is None:
                self._outbox.add_many((message,))
            else:
                self._outbox.to_some(message, to)
            # a peer that left after it was counted could not be taken off yet
            survey._missing &= self._state.present.keys()
        except BaseException:
            survey.close()
            raise
        return survey

    def _peer(self, event: PeerEvent) -> None:
        if event.kind == "left":
            for survey in self._asking.requesters():
                if isinstance(survey, Survey):
                    survey._peer_left(event.pipe.id)

    def _counters(self) -> dict[str, int]:
        # the inbox of a Surveyor drops nothing but replies
        return {"late": self._asking.late, "received": self._asking.received - self._inbox.dropped}

    def _woken(self) -> None:
        self._asking.wake_all()


class Query(Question):
    """A received survey. ``reply`` or ``areply`` may be called any number of times, or never."""

    __slots__ = ()


class Respondent(Answerer[Query]):
    """Reply to surveys. ``recv`` and iteration return each Query. ``send_buffer`` replies are queued for each peer."""

    _protocol: ClassVar[int] = RESPONDENT
    _question: ClassVar[type[Question]] = Query
