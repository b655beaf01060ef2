"""Answers of a Service to questions: by its `on_question`, and by itself to the reserved ones.

One id is answered once: a question that comes from several daemons runs `on_question` once, and each gets that answer.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Final, TypeAlias

import trio

from nngkit import envelope, tracing
from nngkit.background import Background, Calling
from nngkit.discovery.provider import Provider
from nngkit.discovery.questions.messages import ASK, SurveyAnswer, SurveyQuestion, parse_survey_question
from nngkit.discovery.questions.values import Bid, Facts, Question, Reserved
from nngkit.errors import BadMessage, NngkitError, TooLarge
from nngkit.protocols import Query
from nngkit.release import __version__

log = logging.getLogger("nngkit.discovery")

Answered: TypeAlias = bytes | Bid | None
OnQuestion: TypeAlias = Callable[[Question], Answered | Awaitable[Answered]]

RUNNING: Final = 64  # calls of on_question at once, threads included
OPEN: Final = 256  # questions in progress: those over RUNNING are refused, those over this are left unanswered
REMEMBERED: Final = 64  # answers kept for other daemons that ask the same; at most 4 MiB


@dataclass(eq=False, repr=False)
class _Kept:
    """The answer to one id, for all daemons that pass the question on. None: too late for an answer."""

    done: trio.Event = field(default_factory=trio.Event)
    answer: bytes | None = None


@dataclass(eq=False, repr=False)
class Answering:
    """Answers questions for a Service. `provider`: its current record; `counters`: of ServiceStats.

    `speaks(who, daemon)`: True if the peer `who` may call itself so.
    """

    _: KW_ONLY
    domain: str
    on_question: OnQuestion | None
    info: Facts | None
    stats: Facts | None
    provider: Callable[[], Provider]
    speaks: Callable[[str | None, str], bool]
    counters: MutableMapping[str, int]
    background: Background

    def __post_init__(self) -> None:
        self._started = time.monotonic()
        self._open = 0
        self._running = 0
        self._failed = False
        self._kept: OrderedDict[tuple[str, str, bytes], _Kept] = OrderedDict()
        self._threads: trio.CapacityLimiter | None = None

    def receive(self, query: Query) -> bool:
        """Answer a survey in the background if it is a question; return False if it is none."""
        assert query.pipe is not None
        try:
            question = parse_survey_question(query.body, query.pipe.address)
        except (BadMessage, TooLarge) as error:
            self.counters["bad"] += 1
            log.debug("%s", error)
            return True
        if question is None:
            return False
        self.counters["questions"] += 1
        if not self.speaks(query.pipe.who, question.daemon):
            return True
        if question.domain != self.domain:
            self.counters["other_domain"] += 1
        elif question.name not in (None, self.provider().name):
            pass
        elif self._open >= OPEN:
            self.counters["skipped"] += 1
        else:
            self._open += 1
            self.background.start_calling(self._reply, query, question)
        return True

    async def _reply(self, _: Calling, query: Query, question: SurveyQuestion) -> None:
        try:
            answer = await (self._asked(question) if question.kind == ASK else self._reserved(question.kind))
            if answer is not None:
                await query.areply(answer)
                self.counters["answers"] += 1
        except NngkitError as error:  # closed, or the daemon has disconnected
            log.debug("not answered: %s", error)
        finally:
            self._open -= 1

    # Reserved questions

    async def _reserved(self, kind: str) -> bytes:
        provider = self.provider()
        try:
            if kind == Reserved.PING:
                return SurveyAnswer(provider.key).encode()
            uptime = round(time.monotonic() - self._started, 3)
            if kind == Reserved.INFO:
                facts = {**provider.as_map(), "uptime": uptime, "info": _map(self.info)}
                facts |= {"release": __version__, "clock": time.time()}
            elif kind == Reserved.STATS:
                counters = dict(self.counters)
                facts = {"uptime": uptime, "load": provider.load, "discovery": counters, "stats": _map(self.stats)}
            else:  # of a later version
                return SurveyAnswer(provider.key, declined=True).encode()
            return SurveyAnswer(provider.key, envelope.encode(facts)).encode()
        except Exception as error:
            return self._failure(provider, error, kind)

    # Questions of programs

    async def _asked(self, question: SurveyQuestion) -> bytes | None:
        provider = self.provider()
        if self.on_question is None or provider.draining:
            return SurveyAnswer(provider.key, declined=True).encode()
        place = (question.id, question.name or "", question.body)
        kept = self._kept.get(place)
        if kept is not None:
            with trio.move_on_after(question.timeout):
                await kept.done.wait()
            return kept.answer
        if self._running >= RUNNING:
            why = f"busy: {RUNNING} questions are being answered"
            return SurveyAnswer(provider.key, failed=why).encode()
        if len(self._kept) >= REMEMBERED:  # those in progress stay: another daemon's would begin a second run
            for over in [each for each, answer in self._kept.items() if answer.done.is_set()][:1]:
                del self._kept[over]
        self._kept[place] = kept = _Kept()
        self._running += 1
        try:
            with trio.move_on_after(question.timeout):
                kept.answer = await self._run(provider, question)
        finally:
            self._running -= 1
            kept.done.set()
        return kept.answer

    async def _run(self, provider: Provider, asked: SurveyQuestion) -> bytes:
        question = Question(asked.body, asked.name, asked.timeout, asked.id, asked.daemon, asked.headers or {})
        try:
            if (spans := tracing.spans) is None:
                value = await self._call(question)
            else:
                with spans.answering("ask", asked.name or provider.name, asked.headers):
                    value = await self._call(question)
            if value is None:
                return SurveyAnswer(provider.key, declined=True).encode()
            if isinstance(value, Bid):
                return SurveyAnswer(provider.key, _bytes(value.body), value.price).encode()
            return SurveyAnswer(provider.key, _bytes(value)).encode()
        except Exception as error:
            return self._failure(provider, error, "on_question")

    async def _call(self, question: Question) -> Answered:
        function = self.on_question
        assert function is not None
        if inspect.iscoroutinefunction(function):
            found: Answered | Awaitable[Answered] = function(question)
        else:
            # A limiter of its own, so that functions that never return take no thread from others
            self._threads = self._threads or trio.CapacityLimiter(RUNNING)
            call = partial(_boxed, function, question)
            [found] = await trio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._threads)
        return await found if inspect.isawaitable(found) else found

    def _failure(self, provider: Provider, error: Exception, where: str) -> bytes:
        """Log the failure, the first one with its traceback; return the answer that reports it."""
        line = f"{type(error).__name__}: {error}".splitlines()[0]
        if not self._failed:
            self._failed = True
            log.error("%s of %s failed", where, provider.name, exc_info=error)
        else:
            log.warning("%s of %s failed: %s", where, provider.name, envelope.shown(line))
        return SurveyAnswer(provider.key, failed=line).encode()


def _boxed(function: OnQuestion, question: Question) -> list[Answered | Awaitable[Answered]]:
    """Return the answer in a list: trio refuses a thread's coroutine, as a lambda around an async function has."""
    return [function(question)]


def _bytes(value: object) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"on_question returned {type(value).__name__}, not bytes, None or a Bid")
    return bytes(value)


def _map(facts: Facts | None) -> dict[str, object]:
    if facts is None:
        return {}
    found = facts if isinstance(facts, Mapping) else facts()
    return dict(found)
