"""SURVEY: a question to all peers at once, and every answer until the deadline.

::

    with Surveyor(listen="tcp://127.0.0.1:0") as surveyor, Respondent(dial=surveyor.address) as respondent:
        ...                                       # in one thread or task:
        for query in respondent:
            query.reply(b"here")
        ...                                       # in another:
        result = surveyor.survey(b"who is there?", timeout=0.5)
        result.replies, result.expected, result.answered

Many surveys may be under way on one socket. Both ends are raw sockets of NNG: a cooked surveyor keeps 128 unread
replies and silently drops the rest, a raw one takes them all (1,000 of 1,000, also with the program busy for 300 ms in
between). On the wire they are plain SURVEYOR (98) and RESPONDENT (99), and talk to cooked peers.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Self

from ._nng import as_buffer, lib
from ._pipes import PeerEvent, Pipe
from ._raw import Answerer, Pump, Question, alive, header_of
from ._receiving import DEFAULT, Default, Timeout
from ._ring import QueueRing, Ring
from ._sending import Sending
from ._socket import Socket
from ._waiters import ThreadWaiter, Waiter, checkpoint_before, task_waiter

__all__ = ["Query", "Reply", "Respondent", "Survey", "SurveyResult", "Surveyor"]

SURVEY_TIME = 1.0  # seconds, NNG's own default for a survey
QUEUED = 16  # surveys NNG queues for one pipe before it drops
UNHEARD = 8  # surveys after which it is worth asking NNG what it has written
PATIENCE = 0.25  # seconds that a burst of surveys waits for a pipe before it is taken to stand still


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
    """

    replies: tuple[Reply, ...]
    expected: int
    answered: int
    elapsed: float


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
        self._asked = surveyor._pipes.present.copy()
        self._missing = set(self._asked)
        self._answered: set[int] = set()
        self._replies: deque[Reply] = deque()  # given out once, so that a survey without end does not grow
        self._each = each
        self._early = early
        self._last: object = None
        self.number = 0

    def take(self, reply: tuple[int, bytes, int]) -> bool:
        """For the pump: one reply."""
        if reply is self._last:
            return False
        _, body, pipe = reply
        where = self._asked.get(pipe) or self._surveyor._pipes.find(pipe)
        self._replies.append(Reply(body, where, time.monotonic() - self._started))
        self._last = reply
        self._answered.add(pipe)
        self._missing.discard(pipe)
        return self._each or self._complete

    def gone(self, pipe: int) -> None:
        """For the surveyor, on an NNG thread: who left will not answer."""
        if pipe in self._missing:
            self._missing.discard(pipe)
            self.waiter.wake()

    @property
    def _complete(self) -> bool:
        return self._early and not self._missing

    def fresh(self) -> list[Reply]:
        """The replies that have arrived by now and were not given out before; never waits. Raises Closed."""
        self._surveyor._collect(self)
        fresh = []
        while self._replies:
            fresh.append(self._replies.popleft())
        return fresh

    def result(self) -> SurveyResult:
        """The replies so far that ``fresh`` or an iteration has not given out, and the counts of all."""
        elapsed = time.monotonic() - self._started
        return SurveyResult(tuple(self._replies), len(self._asked), len(self._answered), elapsed)

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
        for until in self._waits():
            yield from self.fresh()
            waiter.wait(until)
        yield from self.fresh()

    async def __aiter__(self) -> AsyncIterator[Reply]:
        waiter = self.waiter
        if isinstance(waiter, ThreadWaiter):
            raise TypeError("this survey was started by a thread: use `for`")
        for until in self._waits():
            for reply in self.fresh():
                yield reply
            await waiter.wait(until)
        for reply in self.fresh():
            yield reply

    def close(self) -> None:
        """Its replies are wanted no longer; those still to come count as late. Idempotent."""
        self._surveyor._pump.leave(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Surveyor(Sending, Socket):
    """Asks all peers at once."""

    _opener: ClassVar[Any] = lib.nng_surveyor0_open_raw
    _ring_kind: ClassVar[type[Ring]] = QueueRing
    _nng_recv_buffer: ClassVar[bool] = True
    _nng_send_buffer: ClassVar[bool] = True

    def _set_up(self) -> None:
        self._pump = Pump(self._ring)
        self._unheard = 0
        self._seen: dict[int, int] = {}
        self._still: set[int] = set()
        self._forgiven: dict[int, int] = {}
        self._pipes.follow(self._peer)

    def survey(self, data: Any, timeout: Timeout = DEFAULT, *, early: bool = False) -> SurveyResult:
        """Ask and collect for ``timeout`` seconds (left out: ``recv_timeout``, else 1 s); no reply is no error.

        ``early``: return as soon as every peer connected when asked has replied or left. Raises Closed, Forked.
        """
        waiter = ThreadWaiter()
        with self._begin(waiter, timeout, each=False, early=early) as survey:
            for until in self._hand_over(survey, data):
                waiter.wait(until)
            for until in survey._waits():
                waiter.wait(until)
        return survey.result()

    async def asurvey(self, data: Any, timeout: Timeout = DEFAULT, *, early: bool = False) -> SurveyResult:
        """``survey`` for a task. Cancelled, the replies are dropped (``stats.late`` counts those still to come)."""
        await checkpoint_before()
        waiter = task_waiter()
        with self._begin(waiter, timeout, each=False, early=early) as survey:
            for until in self._hand_over(survey, data):
                await waiter.wait(until)
            for until in survey._waits():
                await waiter.wait(until)
        return survey.result()

    def start(self, data: Any, timeout: Timeout = DEFAULT, *, early: bool = False) -> Survey:
        """Ask, and return once NNG has the question; what is returned gives the replies. Times as for ``survey``."""
        waiter = ThreadWaiter()
        survey = self._begin(waiter, timeout, each=True, early=early)
        try:
            for until in self._hand_over(survey, data):
                waiter.wait(until)
        except BaseException:
            survey.close()
            raise
        return survey

    async def astart(self, data: Any, timeout: Timeout = DEFAULT, *, early: bool = False) -> Survey:
        """``start`` for a task. Cancelled, nothing is asked, or nobody listens to the replies."""
        await checkpoint_before()
        waiter = task_waiter()
        survey = self._begin(waiter, timeout, each=True, early=early)
        try:
            for until in self._hand_over(survey, data):
                await waiter.wait(until)
        except BaseException:
            survey.close()
            raise
        return survey

    def survey_iter(self, data: Any, timeout: Timeout = DEFAULT, *, early: bool = False) -> Iterator[Reply]:
        """``survey``, reply by reply as they come, blocking; asks when first iterated, ends at the deadline."""
        with self.start(data, timeout, early=early) as survey:
            yield from survey

    async def survey_stream(
        self, data: Any, timeout: Timeout = DEFAULT, *, early: bool = False
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

    def _hand_over(self, survey: Survey, data: Any) -> Iterator[float | None]:
        """Give the question to NNG; yields until when to wait before."""
        self._pump.enter(survey)
        # who left since they were counted was not there to be taken off
        survey._missing &= self._pipes.present.keys()
        for pause in self._paced():
            yield time.monotonic() + pause
        self._send(as_buffer(data), header_of(survey.number), 0.0)

    def _collect(self, survey: Survey) -> None:
        self._check_open()
        self._pump.run(None if isinstance(survey.waiter, ThreadWaiter) else survey.waiter.home)

    def _peer(self, event: PeerEvent) -> None:
        if event.kind == "left":
            for survey in alive(self._pump.asking):
                if isinstance(survey, Survey):
                    survey.gone(event.pipe.id)

    def _paced(self) -> Iterator[float]:
        """Yield pauses while one more survey might overrun what NNG queues for a pipe that is not standing still."""
        self._unheard += 1
        if self._unheard < UNHEARD:
            return
        start, pause = time.monotonic(), 0.0005
        written = first = self._pipes.written_by_pipe()
        for pipe in [pipe for pipe in self._still if first.get(pipe) != self._seen.get(pipe)]:
            # It moves again. What NNG dropped for it meanwhile will never be written, so its count starts anew.
            self._still.discard(pipe)
            self._forgiven[pipe] = self._behind(pipe, first.get(pipe, 0)) + self._forgiven.get(pipe, 0)
        while full := {pipe for pipe in written if self._behind(pipe, written[pipe]) > QUEUED - UNHEARD} - self._still:
            if time.monotonic() - start > PATIENCE:
                self._still |= {pipe for pipe in full if written[pipe] == first[pipe]}
                break
            yield pause
            pause = min(pause * 2, 0.01)
            written = self._pipes.written_by_pipe()
        self._seen = written
        self._forgiven = {pipe: count for pipe, count in self._forgiven.items() if pipe in written}
        self._unheard = 0

    def _behind(self, pipe: int, written: int) -> int:
        """Surveys that NNG may hold for a pipe."""
        sent = self._queue.sent
        return sent - self._pipes.sent_at_join.get(pipe, sent) - written - self._forgiven.get(pipe, 0)

    def _counters(self) -> dict[str, int]:
        self._pump.run()
        return {"late": self._pump.late}

    def _woken(self) -> None:
        self._pump.wake_all()


class Query(Question):
    """A question of a surveyor; ``reply`` or ``areply`` answers it, as often as there is something to say, or never."""

    __slots__ = ()


class Respondent(Answerer[Query]):
    """Answers surveys. ``recv`` and iteration give each Query.

    Answers to one peer are held back before NNG's 2 places for it are full, as it would drop the rest.
    """

    _opener: ClassVar[Any] = lib.nng_respondent0_open_raw
    _question: ClassVar[type[Question]] = Query
    _queued: ClassVar[int] = 2
