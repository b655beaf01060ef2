"""Waits of threads on behalf of an asyncio loop: they end when the loop does.

::

    async with asyncio.timeout(1.0):
        await asyncio.to_thread(discovery.wait_for_peers)      # nngkit.blocking

The timeout ends the task and not the thread, and asyncio does not tell the thread. It waits on, and `asyncio.run` joins
it at its end: without this module, for ever. So what waits notes the loop in whose thread it was looked up, and what a
task's context carries from there (`asyncio.to_thread` copies it, `run_in_executor` does not). It is ended when that
loop finalizes its asynchronous generators: `asyncio.run` does so after it has cancelled the tasks and before it joins
the threads (PEP 525, `loop.shutdown_asyncgens`). A thread that no loop has sent waits on, and so does one that a loop
has sent without having touched any of our objects before.

Knows asyncio where a program has imported it, and nothing else.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import MethodType
from typing import Any, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

__all__ = ["LoopWaits", "asked_by", "on_behalf"]

P = ParamSpec("P")
R = TypeVar("R")


class LoopWaits:
    """The waits on behalf of one loop. Made in its thread."""

    def __init__(self) -> None:
        self.over = False
        self._ends: dict[object, Callable[[], object]] = {}
        self._lock = threading.Lock()
        self._last = self._until_finalized()
        with suppress(StopIteration):  # at its yield: from here on the loop finalizes it
            self._last.__anext__().send(None)

    async def _until_finalized(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self.end()

    def end(self) -> None:
        """End all waits; there will be no more."""
        with self._lock:
            self.over = True
            ends = [*self._ends.values()]
        for end in ends:
            end()

    @contextmanager
    def attending(self, end: Callable[[], object]) -> Iterator[None]:
        """Have `end` called, on the loop's thread, if the loop ends inside this block. It must not block or raise."""
        key = object()
        with self._lock:
            over = self.over
            self._ends[key] = end
        try:
            if over:
                end()
            yield
        finally:
            self._ends.pop(key, None)

    def run(self, function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        """Call `function`, in any thread, on behalf of the loop."""
        token = _asked_by.set(self)
        try:
            return function(*arguments, **options)
        finally:
            _asked_by.reset(token)


_asked_by: ContextVar[LoopWaits | None] = ContextVar("asked_by", default=None)  # asyncio.to_thread takes it along
_loops: WeakKeyDictionary[Any, LoopWaits] = WeakKeyDictionary()
_one = threading.Lock()


def asked_by() -> LoopWaits | None:
    """Return the waits, which may be over, of the loop that runs in this thread or has sent it; None without one."""
    loop = _running()
    if loop is None:
        return _asked_by.get()
    with _one:
        found = _loops.get(loop)
        if found is None:
            for other in [other for other in _loops if other.is_closed()]:  # without having finalized anything
                _loops.pop(other).end()
            found = _loops[loop] = LoopWaits()
    mine = None if found.over else found  # it goes on after it has finalized: not as asyncio.run does
    _asked_by.set(mine)
    return mine


def _running() -> Any:
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None:
        with suppress(RuntimeError):
            return asyncio.get_running_loop()
    return None


class _OnBehalf:
    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __get__(self, of: object, cls: type) -> Callable[..., Any]:
        if of is None:
            return self._function
        bound, loop = MethodType(self._function, of), asked_by()
        return bound if loop is None else functools.partial(loop.run, bound)


def on_behalf(function: Callable[P, R]) -> Callable[P, R]:
    """A method that waits: looked up in the thread of an asyncio loop, it waits on behalf of that, in any thread."""
    return cast(Callable[P, R], _OnBehalf(function))
