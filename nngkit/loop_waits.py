"""Waits of threads on behalf of an asyncio loop: they end with the loop.

::

    async with asyncio.timeout(1.0):
        await asyncio.to_thread(discovery.wait_for_peers)      # nngkit.blocking

The timeout ends the task but not the thread, and asyncio does not inform the thread: it keeps waiting. `asyncio.run`
joins it at its end: without this module, for ever. So each wait records the loop in whose thread its method was
looked up, or the loop that the task's context carries (`asyncio.to_thread` copies it, `run_in_executor` does not).
The wait ends when that loop finalizes its asynchronous generators: `asyncio.run` does so after it has cancelled the
tasks and before it joins the threads (PEP 525, `loop.shutdown_asyncgens`). A thread that was not started by a loop
continues to wait, and so does one whose loop had used no object of nngkit before.

Uses asyncio only if the program has imported it; depends on nothing else.
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

P = ParamSpec("P")
R = TypeVar("R")


class LoopWaits:
    """Waits on behalf of one loop. Create it in the loop's thread."""

    def __init__(self) -> None:
        self.over = False
        self._ends: dict[object, Callable[[], object]] = {}
        self._lock = threading.Lock()
        self._last = self._until_finalized()
        with suppress(StopIteration):  # runs to its yield: from here on the loop finalizes it
            self._last.__anext__().send(None)

    async def _until_finalized(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self.end()

    def end(self) -> None:
        """End all waits, and any later ones."""
        with self._lock:
            self.over = True
            ends = [*self._ends.values()]
        for end in ends:
            end()

    @contextmanager
    def attending(self, end: Callable[[], object]) -> Iterator[None]:
        """Call `end`, on the loop's thread, if the loop ends inside this block. It must not block or raise."""
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


_asked_by: ContextVar[LoopWaits | None] = ContextVar("asked_by", default=None)  # asyncio.to_thread copies it
_loops: WeakKeyDictionary[Any, LoopWaits] = WeakKeyDictionary()
_one = threading.Lock()


def asked_by() -> LoopWaits | None:
    """Return the waits of the loop that runs in this thread, or that started it; None without one."""
    loop = _running()
    if loop is None:
        return _asked_by.get()
    with _one:
        found = _loops.get(loop)
        if found is None:
            for other in [other for other in _loops if other.is_closed()]:  # closed without finalizing anything
                _loops.pop(other).end()
            found = _loops[loop] = LoopWaits()
    mine = None if found.over else found  # the loop runs on after finalizing, which asyncio.run never does
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
    """Decorate a blocking method: looked up in the thread of an asyncio loop, it waits on behalf of that loop."""
    return cast(Callable[P, R], _OnBehalf(function))
