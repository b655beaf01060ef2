"""SURVEY: a question to all peers at once, and every answer until the deadline.

::

    with Surveyor(listen="tcp://127.0.0.1:0") as surveyor, Respondent(dial=surveyor.address) as respondent:
        ...                                       # in one thread or task:
        for query in respondent:
            query.reply(b"here")
        ...                                       # in another:
        result = surveyor.survey(b"who is there?", timeout=0.5)
        result.replies, result.expected, result.answered

Many surveys may be under way on one socket. Each keeps the replies that nobody has taken yet, up to ``recv_buffer``
replies and ``recv_window`` bytes; replies over that are dropped and counted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Self, Unpack

from ._answering import Answerer, Question
from ._asking import Asking
from ._connection import Connection
from ._nng import Payload, as_bytes
from ._options import MIB, SurveyOptions
from ._pipe import PeerEvent, Pipe
from ._receiving import DEFAULT, Default, Timeout
from ._shared_queue import WhenFull
from ._socket import Socket
from ._waiters import ThreadWaiter, Waiter, checkpoint_before, task_waiter
from ._weakly import weakly
from .sp import HEADROOM, RESPONDENT, SURVEYOR

__all__ = ["Query", "Reply", "Respondent", "Survey", "SurveyResult", "Surveyor"]

SURVEY_TIME = 1.0  # seconds, NNG's own default for a survey


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer, from ``pipe`` (None if that has gone), ``elapsed`` seconds after the question."""

    body: bytes
    pipe: Pipe | None
    elapsed: float


@dataclass(frozen=True, slots=True)
class SurveyResult:
    """All replies in the order they came, ``expected``: peers connected when asked, ``answered``: peers that replied.

    A peer may reply more than once (a device relays many), so ``len(replies)`` may be more than ``answered``.
    ``dropped`` counts replies dropped for want of room (``recv_buffer``, ``recv_window``); their peers have answered.
    """

    replies: tuple[Reply, ...]
    expected: int
    answered: int
    elapsed: float
    dropped: int = 0


class Survey:
    """One survey under way, started by ``Surveyor.start`` or ``astart``: its replies, as they come, until its deadline.

    Iterate over it (``for``, or ``async for`` where it was started by a task), once, or take what is there with
    ``fresh``; close it, or use ``with``, when its replies are wanted no longer.
    """

    def __init__(self, surveyor: Surveyor, waiter: Waiter, timeout: float | None, *, each: bool, early: bool) -> None:
        self.waiter = waiter
        self._surveyor = surveyor
        self._started = time.monotonic()
        self._deadline = None if timeout is None else self._started + timeout
        self._asked: dict[int, Pipe | None] = {}
        self._missing: set[int] = set()
        self._answered: set[int] = set()
        self._replies: deque[Reply] = deque()  # given out once, so that a survey without end does not grow
        self._size = 0  # bytes of their bodies
        self._dropped = 0
        self._each = each
        self._early = early
        self._last: object = None
        self.number = 0

    def asked(self, pipes: dict[int, Pipe | None]) -> None:
        """For the surveyor: who was asked."""
        self._asked = pipes
        self._missing = set(pipes)

    def take(self, message: bytes, body: bytes, connection: Connection) -> bool:
        """Keep one reply, or drop and count it; for the surveyor, under the core's lock. True: wake the waiter."""
        pipe = connection.number
        if message is not self._last:
            reply = Reply(body, connection.pipe, time.monotonic() - self._started)
            surveyor, inbox = self._surveyor, self._surveyor._inbox
            kept, size = len(self._replies), self._size + len(body)
            # from here in lines without a call: no signal handler can run between keeping a reply and noting it
            if not kept or (kept < surveyor._recv_buffer and size <= surveyor._recv_window):
                self._replies += (reply,)
                self._size = size
            else:
                self._dropped += 1
                inbox.dropped += 1
                connection.dropped += 1
            self._last = message
        self._answered.add(pipe)
        self._missing.discard(pipe)
        return self._each or self._complete

    def gone(self, pipe: int) -> None:
        """Expect no answer of a peer that has left; for the surveyor, on any thread."""
        if pipe in self._missing:
            self._missing.discard(pipe)
            self.waiter.wake()

    @property
    def _complete(self) -> bool:
        return self._early and not self._missing

    def fresh(self) -> list[Reply]:
        """The replies that have arrived by now and were not given out before; never waits. Raises Closed."""
        self._surveyor._collect(self)
        if not self._replies:
            return []
        empty: deque[Reply] = deque()
        with self._surveyor._core.lock:  # replies come in under it
            taken, self._replies, self._size = self._replies, empty, 0
        return list(taken)

    @property
    def dropped(self) -> int:
        """Replies dropped because ``recv_buffer`` replies or ``recv_window`` bytes were waiting to be taken."""
        return self._dropped

    def result(self) -> SurveyResult:
        """The replies so far that ``fresh`` or an iteration has not given out, and the counts of all."""
        elapsed = time.monotonic() - self._started
        with self._surveyor._core.lock:  # one moment for replies and counts
            return SurveyResult(tuple(self._replies), len(self._asked), len(self._answered), elapsed, self._dropped)

    def _waits(self) -> Iterator[float | None]:
        """Collect, and yield until when to wait for more, until there is nothing more to wait for."""
        while True:
            # Looked at after the deadline too: what has arrived by then counts, even if the program was busy.
            late = self._deadline is not None and time.monotonic() >= self._deadline
            self._surveyor._collect(self)
            if late or self._complete:
                return
            yield self._deadline

    def __iter__(self) -> Iterator[Reply]:
        waiter = self.waiter
        if not isinstance(waiter, ThreadWaiter):
            raise TypeError("this survey was started by a task: use `async for`")
        poller = self._surveyor._core.poller
        for until in self._waits():
            yield from self.fresh()
            poller.wait(waiter, until)
        yield from self.fresh()

    async def __aiter__(self) -> AsyncIterator[Reply]:
        waiter = self.waiter
        if isinstance(waiter, ThreadWaiter):
            raise TypeError("this survey was started by a thread: use `for`")
        for until in self._waits():
            for reply in self.fresh():
                yield reply
            self._surveyor._core.poller.attend(waiter)
            await waiter.wait(until)
        for reply in self.fresh():
            yield reply

    def close(self) -> None:
        """Its replies are wanted no longer; those still to come count as late. Idempotent."""
        self._surveyor._asking.leave(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Surveyor(Socket):
    """Asks all peers at once. ``send_buffer`` is a queue of surveys for each peer; what finds it full is dropped.

    ``recv_buffer`` and ``recv_window`` bound the replies of each survey that nobody has taken yet; replies over that
    are dropped and counted, in ``stats.dropped`` and in the survey's own ``dropped``.
    """

    _protocol: ClassVar[int] = SURVEYOR
    _header_room: ClassVar[int] = HEADROOM
    _default_recv_buffer: ClassVar[int] = 65_536  # replies, of each survey: six times what 10,000 peers say
    _most_recv_buffer: ClassVar[int] = 1 << 20
    _default_recv_window: ClassVar[int] = 64 * MIB  # as much as a queue for sending
    _least_send_buffer: ClassVar[int] = 1
    _policies: ClassVar[tuple[WhenFull, ...]] = ("drop", "drop_oldest")

    def __init__(self, **options: Unpack[SurveyOptions]) -> None:
        super().__init__(**options)

    def _set_up(self) -> None:
        self._asking = Asking(self._core, self._largest)
        self._core.follow(weakly(self._peer))

    def survey(self, data: Payload, timeout: Timeout = DEFAULT, *, early: bool = False) -> SurveyResult:
        """Ask and collect for ``timeout`` seconds (left out: ``recv_timeout``, else 1 s); no reply is no error.

        ``early``: return as soon as every peer connected when asked has replied or left. Raises Closed, Forked.
        """
        waiter = ThreadWaiter()
        with self._begin(waiter, timeout, each=False, early=early) as survey:
            self._ask(survey, data)
            for until in survey._waits():
                self._core.poller.wait(waiter, until)
        return survey.result()

    async def asurvey(self, data: Payload, timeout: Timeout = DEFAULT, *, early: bool = False) -> SurveyResult:
        """``survey`` for a task. Cancelled, the replies are dropped (``stats.late`` counts those still to come)."""
        await checkpoint_before()
        waiter = task_waiter()
        with self._begin(waiter, timeout, each=False, early=early) as survey:
            self._ask(survey, data)
            for until in survey._waits():
                self._core.poller.attend(waiter)
                await waiter.wait(until)
        return survey.result()

    def start(self, data: Payload, timeout: Timeout = DEFAULT, *, early: bool = False) -> Survey:
        """Ask, and return; what is returned gives the replies. Times as for ``survey``."""
        waiter = ThreadWaiter()
        survey = self._begin(waiter, timeout, each=True, early=early)
        try:
            self._ask(survey, data)
        except BaseException:
            survey.close()
            raise
        return survey

    async def astart(self, data: Payload, timeout: Timeout = DEFAULT, *, early: bool = False) -> Survey:
        """``start`` for a task. Cancelled, nothing is asked, or nobody listens to the replies."""
        await checkpoint_before()
        waiter = task_waiter()
        survey = self._begin(waiter, timeout, each=True, early=early)
        try:
            self._ask(survey, data)
        except BaseException:
            survey.close()
            raise
        return survey

    def survey_iter(self, data: Payload, timeout: Timeout = DEFAULT, *, early: bool = False) -> Iterator[Reply]:
        """``survey``, reply by reply as they come, blocking; asks when first iterated, ends at the deadline."""
        with self.start(data, timeout, early=early) as survey:
            yield from survey

    async def survey_stream(
        self, data: Payload, timeout: Timeout = DEFAULT, *, early: bool = False
    ) -> AsyncIterator[Reply]:
        """``survey``, reply by reply as they come; asks when first iterated, ends at the deadline."""
        with await self.astart(data, timeout, early=early) as survey:
            async for reply in survey:
                yield reply

    def _begin(self, waiter: Waiter, timeout: Timeout, *, each: bool, early: bool) -> Survey:
        self._check_open()
        if isinstance(timeout, Default):
            timeout = SURVEY_TIME if self._recv_timeout is None else self._recv_timeout
        return Survey(self, waiter, timeout, each=each, early=early)

    def _ask(self, survey: Survey, data: Payload) -> None:
        """Send the question to all who are there."""
        message = self._asking.enter(survey) + as_bytes(data)
        survey.asked({pipe.id: pipe for pipe in self.pipes})
        self._outbox.to_all((message,))
        # who left since they were counted was not there to be taken off
        survey._missing &= self._core.present.keys()

    def _collect(self, survey: Survey) -> None:
        self._check_open()

    def _peer(self, event: PeerEvent) -> None:
        if event.kind == "left":
            for survey in self._asking.askers():
                if isinstance(survey, Survey):
                    survey.gone(event.pipe.id)

    def _counters(self) -> dict[str, int]:
        # nothing else is dropped on the way in
        return {"late": self._asking.late, "received": self._asking.received - self._inbox.dropped}

    def _woken(self) -> None:
        self._asking.wake_all()


class Query(Question):
    """A question of a surveyor; ``reply`` or ``areply`` answers it, as often as there is something to say, or never."""

    __slots__ = ()


class Respondent(Answerer[Query]):
    """Answers surveys. ``recv`` and iteration give each Query. ``send_buffer`` answers are queued for each peer."""

    _protocol: ClassVar[int] = RESPONDENT
    _question: ClassVar[type[Question]] = Query
