"""Calls of a program that wait for an answer of the host: until it has come, or the endpoint has ended."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

from nngkit.cluster.node.questions import Answered, Questions
from nngkit.errors import Broken, TimedOut

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds until the host is asked again; the parents tell it in some 10 ms
MAY_REFUSE: Final = "drain"  # the question whose refusal is for its caller to explain


@dataclass(slots=True, eq=False)
class _Call:
    ended: trio.Event = field(default_factory=trio.Event)
    answer: Answered | None = None


class Asking:
    """Waiting calls of one endpoint, by the numbers of their questions.

    `act`: has the node's effects carried out soon. `check`: raises Closed, or why the cluster does not want the node.
    """

    def __init__(self, name: str, questions: Questions, act: Callable[[], object], check: Callable[[], object]) -> None:
        self._name = name
        self._questions = questions
        self._act, self._check = act, check
        self._calls: dict[int, _Call] = {}

    def answered(self, answer: Answered) -> None:
        """Wake the call that waits for this answer."""
        if (call := self._calls.get(answer.number)) is not None:
            call.answer = answer
            call.ended.set()

    def wake(self) -> None:
        """Have all calls look whether the endpoint is still open."""
        for call in self._calls.values():
            call.ended.set()

    @contextmanager
    def _asked(self, what: str, argument: str) -> Iterator[_Call]:
        """Ask the host, again and again until the block ends."""
        self._check()
        number = self._questions.ask(what, argument, trio.current_time())
        call = self._calls[number] = _Call()
        self._act()
        try:
            yield call
        finally:
            del self._calls[number]
            self._questions.forget(number)

    async def ask(self, what: str, argument: str = "", timeout: float | None = None) -> Answered:
        """Return the host's answer; of a drain, a refusal too. Raises TimedOut, Broken, and what `check` raises."""
        with self._asked(what, argument) as call, trio.move_on_after(math.inf if timeout is None else timeout):
            await call.ended.wait()
        if call.answer is None:
            self._check()
            raise TimedOut(f"{self._name}: the host has not answered {what!r} in {timeout} s", timeout)
        if call.answer.why is not None and what != MAY_REFUSE:
            raise Broken(f"the host {call.answer.sender!r} refuses {what!r}: {call.answer.why}")
        return call.answer

    async def confirmed(self, epoch: int, has_way: Callable[[], bool]) -> bool:
        """Return True once the host has answered that this run is a member; False to look at the place again."""
        pause = FIRST_PAUSE
        with self._asked("joined", str(epoch)) as call:
            while has_way() and not call.ended.is_set():
                with trio.move_on_after(pause):
                    await call.ended.wait()
                    break
                pause = min(LONGEST_PAUSE, 2 * pause)
                self._questions.attached(trio.current_time())
                self._act()
        # another answer is one to the other node of this id; an earlier version refuses the question
        answer = call.answer
        return answer is not None and (answer.content == str(epoch) or answer.why is not None)
