"""One question to the services of a daemon: which answers count, and when none is left to wait for. Pure.

Rules
-----
 * Expected are the providers that are up or suspect and carried by a connection that was asked; for reserved questions,
   the draining ones too. Others are added when they answer.
 * An answer counts if its provider is carried by the connection that it came on: a peer speaks for itself only. The
   first one counts. An answer of a provider that is not known yet is held back until a survey has told of it.
 * A provider is no longer waited for once it has answered, or its connection is lost. One in text form cannot answer,
   and is missing from the start.
 * Connections that have not answered any survey yet may have providers: they are waited for too, for a while.
 * Bodies of answers take at most `limit` bytes together; providers beyond that have failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from nngkit.discovery.messages import TEXT_INSTANCE
from nngkit.discovery.provider import Key, Provider, State, Status
from nngkit.discovery.questions.messages import ASK, AskQuery, SurveyAnswer, parse_survey_answer
from nngkit.discovery.questions.values import Outcome
from nngkit.errors import BadMessage, TooLarge

COUNTERS: Final = ("questions", "answers", "bad answers", "foreign answers", "duplicate answers")
MAX_TOTAL: Final = 64 * 1024 * 1024
"""Bytes of all answers to one question, as a survey's unread replies may take."""
MAX_HELD: Final = 1024  # answers of providers that are not known yet


class QuestionRound:
    """State of one question. `pipes`: the connections that it is sent to. `counters`: answers, see COUNTERS."""

    def __init__(self, ask: AskQuery, pipes: Collection[int], *, limit: int = MAX_TOTAL) -> None:
        self.counters: Counter[str] = Counter()
        self._ask = ask
        self._pipes = frozenset(pipes)
        self._limit = limit
        self._states = {State.UP, State.SUSPECT} | ({State.DRAINING} if ask.kind != ASK else set())
        self._rows: dict[Key, Status] = {}
        self._expected: dict[Key, Provider] = {}
        self._waiting: set[Key] = set()
        self._joining: frozenset[int] = frozenset()
        self._outcomes: dict[Key, Outcome] = {}
        self._held: dict[tuple[Key, int], tuple[SurveyAnswer, float]] = {}
        self._size = 0
        self._answered = 0

    def see(self, rows: Iterable[Status], joining: Iterable[int] = ()) -> None:
        """Note the current providers of the name (of all, without one), and connections that may have more."""
        self._rows = {row.provider.key: row for row in rows}
        self._joining = self._pipes.intersection(joining)
        for key, row in self._rows.items():
            if row.state in self._states and not self._pipes.isdisjoint(row.pipes):
                self._expected.setdefault(key, row.provider)
        self._waiting = {key for key in self._expected if key not in self._outcomes and self._can_answer(key)}
        for (key, pipe), (answer, rtt) in list(self._held.items()):
            if key in self._rows:
                del self._held[key, pipe]
                self.counters[self._accept(pipe, answer, rtt)] += 1

    def receive(self, pipe: int, body: bytes, rtt: float) -> None:
        """Take the bytes of an answer, and count it. Bytes of a peer never raise."""
        try:
            answer = parse_survey_answer(body)
        except (BadMessage, TooLarge):
            self.counters["bad answers"] += 1
            return
        place = answer.provider, pipe
        if self._ask.name not in (None, answer.provider[0]):
            self.counters["bad answers"] += 1
        elif answer.provider in self._rows:
            self.counters[self._accept(pipe, answer, rtt)] += 1
        elif place in self._held:
            self.counters["duplicate answers"] += 1
        elif len(self._held) >= MAX_HELD:
            self.counters["foreign answers"] += 1
        else:
            self._held[place] = answer, rtt

    def complete(self, *, joining: bool = True) -> bool:
        """Return True if there is no answer to wait for. `joining`: wait for connections without any reply so far."""
        if self._ask.count is not None and self._answered >= self._ask.count:
            return True
        return not self._waiting and not (joining and self._joining)

    def end(self) -> tuple[Outcome, ...]:
        """Return an outcome for each expected provider: in order of arrival, then those that are missing."""
        self.counters["foreign answers"] += len(self._held)
        self._held.clear()
        missing = (
            Outcome(self._provider(key), "missing") for key in sorted(self._expected) if key not in self._outcomes
        )
        return (*self._outcomes.values(), *missing)

    def _can_answer(self, key: Key) -> bool:
        row = self._rows.get(key)
        in_text = not key[2] or (key[2].endswith(TEXT_INSTANCE) and not key[3])
        alive = row is not None and row.state is not State.DOWN and not self._pipes.isdisjoint(row.pipes)
        return alive and not in_text

    def _accept(self, pipe: int, answer: SurveyAnswer, rtt: float) -> str:
        key = answer.provider
        if pipe not in self._rows[key].pipes:
            return "foreign answers"
        if key in self._outcomes:
            return "duplicate answers"
        self._expected.setdefault(key, self._rows[key].provider)
        self._waiting.discard(key)
        self._outcomes[key] = outcome = self._judged(answer, rtt)
        self._answered += outcome.kind == "answered"
        return "answers"

    def _judged(self, answer: SurveyAnswer, rtt: float) -> Outcome:
        provider = self._provider(answer.provider)
        if answer.failed:
            return Outcome(provider, "failed", rtt=rtt, message=answer.failed)
        if answer.declined:
            return Outcome(provider, "declined", rtt=rtt)
        if self._size + len(answer.body) > self._limit:
            why = f"its answer was dropped: all answers together are over {self._limit} bytes"
            return Outcome(provider, "failed", rtt=rtt, message=why)
        self._size += len(answer.body)
        return Outcome(provider, "answered", answer.body, answer.price, rtt)

    def _provider(self, key: Key) -> Provider:
        row = self._rows.get(key)
        return self._expected[key] if row is None else row.provider


class OutcomeMerger:
    """Outcomes of one question that several daemons asked. A provider's best outcome counts, the first of equals."""

    _RANK: Final = {"answered": 0, "failed": 1, "declined": 2, "missing": 3}

    def __init__(self, count: int | None) -> None:
        self._count = count
        self._best: dict[Key, Outcome] = {}

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Add the outcomes of one daemon."""
        for outcome in outcomes:
            key = outcome.provider.key
            known = self._best.get(key)
            if known is None or self._RANK[outcome.kind] < self._RANK[known.kind]:
                self._best.pop(key, None)  # the order is that of arrival
                self._best[key] = outcome

    @property
    def enough(self) -> bool:
        """True if as many have answered as were to."""
        answered = sum(outcome.kind == "answered" for outcome in self._best.values())
        return self._count is not None and answered >= self._count

    def outcomes(self) -> tuple[Outcome, ...]:
        """Return one outcome for each provider."""
        return tuple(self._best.values())
