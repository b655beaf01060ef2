"""Asking questions on the SURVEYOR socket of a SurveyRunner: each is a survey of its own, several may be in progress.

question_round.py decides which answers count. Here they are read as they arrive, and providers are followed in the
registry, so that an ask ends as soon as none is left to wait for.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import trio

from nngkit.discovery.questions.messages import AskQuery, SurveyQuestion
from nngkit.discovery.questions.round import COUNTERS, QuestionRound
from nngkit.discovery.questions.values import Outcome
from nngkit.discovery.survey_runner import SurveyRunner
from nngkit.errors import Closed
from nngkit.protocols import Reply, Survey

FLOOD: Final = 16_384  # answers of one connection to one question: 1,024 services behind it send less


class Asking:
    """Questions to the services of `surveys`. `grace`: seconds to wait for connections that never answered."""

    def __init__(self, surveys: SurveyRunner, *, id: str, domain: str, grace: float) -> None:
        self.counters = dict.fromkeys(COUNTERS, 0)
        self._surveys = surveys
        self._id = id
        self._domain = domain
        self._grace = grace

    async def outcomes(self, ask: AskQuery, limit: int) -> tuple[Outcome, ...]:
        """Ask; return an outcome for each expected provider, within `ask.timeout` seconds. Raises Closed, TooLarge."""
        body = SurveyQuestion.of(ask, self._id, self._domain).encode()
        socket = self._surveys.socket
        pipes = {pipe.id for pipe in socket.pipes}
        if ask.name is not None:  # the others would only decline to answer
            with self._surveys.lock:
                pipes &= self._surveys.registry.pipes_of(ask.name)
        this = QuestionRound(ask, pipes, limit=limit)
        self.counters["questions"] += 1
        self._see(this, ask.name)
        with await socket.astart(body, timeout=None, to=pipes) as survey:
            with trio.move_on_after(ask.timeout):
                await self._until_complete(this, ask, survey)
            if socket.closed:
                raise Closed("the discovery is closed")
            self._see(this, ask.name)
            for reply in survey.fresh():  # arrived during our own stall
                _receive(this, reply)
        outcomes = this.end()
        for kind, count in this.counters.items():
            self.counters[kind] += count
        return outcomes

    async def _until_complete(self, this: QuestionRound, ask: AskQuery, survey: Survey) -> None:
        joining = True
        done = trio.Event()
        if this.complete():
            return

        def check() -> None:
            if this.complete(joining=joining):
                done.set()

        async def collect() -> None:
            received: Counter[int] = Counter()
            try:
                async for reply in survey:
                    if reply.pipe is not None:
                        received[reply.pipe.id] += 1
                        if received[reply.pipe.id] > FLOOD:
                            self._surveys.cut += self._surveys.socket.disconnect(reply.pipe)
                            continue
                    _receive(this, reply)
                    check()
            except Closed:
                done.set()

        async def follow() -> None:
            feed = self._surveys.feed
            while not feed.ended:
                version = feed.version
                self._see(this, ask.name)
                check()
                await feed.wait(version)
            done.set()

        async def end_grace() -> None:
            nonlocal joining
            await trio.sleep(self._grace)
            joining = False
            check()

        async with trio.open_nursery() as nursery:
            for task in (collect, follow, end_grace):
                nursery.start_soon(task)
            await done.wait()
            nursery.cancel_scope.cancel()

    def _see(self, this: QuestionRound, name: str | None) -> None:
        surveys = self._surveys
        with surveys.lock:
            rows, joining = surveys.registry.named(name), surveys.registry.joining
        this.see(rows, joining)


def _receive(this: QuestionRound, reply: Reply) -> None:
    if reply.pipe is not None:
        this.receive(reply.pipe.id, reply.body, reply.elapsed)
