"""Nodes of clusters: their part in an asyncio program's loop.

The node itself lives in the portal: a program that computes, or blocks by mistake, is not taken for a dead neighbour.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import suppress
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from nngkit.aio._base import AsyncioIterator, Handle
from nngkit.aio._bridge import Bridge
from nngkit.aio._documents import Opening
from nngkit.aio._waits import in_portal
from nngkit.cluster.containing import plain
from nngkit.cluster.endpoint import Endpoint
from nngkit.cluster.shell.jobs import Job
from nngkit.cluster.shell.sharing import Shared

__all__ = ["Node", "Sharing"]

E = TypeVar("E", bound=Endpoint)
P = ParamSpec("P")

CHUNK: Final = 64  # payloads taken from an iterable at once: a trip to the program's loop costs as much as 60 jobs
CHUNK_TIME: Final = 0.005  # seconds after which an iterable that takes its time gives what it has


class _Block:
    """The block of a node, in the task that entered it: cancelled once if the node fails, as by asyncio.timeout."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[Any] | None = task
        self._before = task.cancelling()
        self._requested = False

    def cancel_soon(self) -> None:
        """Cancel the block. In the portal's thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:  # else the block ends already, and raises the failure
            self._requested = self._task.cancel()

    def end(self) -> bool:
        """Take the request back. Return True if the program has cancelled the task, too."""
        task, self._task = self._task, None
        if task is None:
            return False
        return (task.uncancel() if self._requested else task.cancelling()) > self._before


class Sharing(Handle[Shared]):
    """Base of `Shared`: no change between two waits is missed."""

    _seen = 0

    async def _next_change(self) -> None:
        self._seen = await self._wait(Shared._changes_after, self._seen)


class Node(Opening[E]):
    """Base of the nodes."""

    def __init__(self) -> None:
        super().__init__()
        self._work_bridge = Bridge()

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._work_bridge.loop = self._bridge.loop
        self._block_of = _Block()
        assert self._host is not None
        self._host.watch(self._block_of.cancel_soon)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        cancelled = self._block_of.end()
        try:
            await super().__aexit__(kind, value, traceback)
        except Exception:
            if not (cancelled and isinstance(value, asyncio.CancelledError)):
                raise
            # the program's own cancellation goes on; the failure is in the log

    async def _drained(self, id: str | None, timeout: float | None) -> None:
        inner = self._opened
        if id is None or id == inner.id:
            inner._workers.refuse_drain(asyncio.current_task() in self._work_bridge.tasks)
        await self._wait(Endpoint.drain, id, timeout)

    def _in_loop(self, function: Callable[[Any], object]) -> Callable[[Any], None]:
        """Return a function that has `function` called by the program's loop. Raises ConfigError for an async one."""
        plain(function)

        def call(argument: Any) -> None:
            if self._bridge.loop is not None:
                with suppress(RuntimeError):  # the loop has ended
                    self._bridge.loop.call_soon_threadsafe(function, argument)

        return call

    async def _submitted(
        self, key: object, call: Callable[Concatenate[E, P], Awaitable[Job]], /, *arguments: P.args, **options: P.kwargs
    ) -> Job:
        calls, inner = self._open_object()

        def unused(job: Job) -> None:  # accepted at the moment of the cancellation; see Endpoint.submit
            if key is None:
                calls.later(job.cancel)

        return await in_portal(calls, functools.partial(call, inner, *arguments, **options), unused)

    def _mapped(
        self,
        kind: str,
        payloads: Iterable[bytes] | AsyncIterable[bytes],
        *,
        in_flight: int,
        progress: Callable[[int], object] | None,
        **options: Any,
    ) -> AsyncioIterator[bytes]:
        calls, inner = self._open_object()
        counted = None if progress is None else self._in_loop(progress)
        given = payloads if isinstance(payloads, Sequence) else self._taken(payloads)
        results = inner.map(kind, given, in_flight=in_flight, progress=counted, **options)
        return AsyncioIterator(calls, results, whole=True)

    async def _taken(self, payloads: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
        """Yield payloads of an iterable, which is iterated over in the program's loop; in the portal."""
        if isinstance(payloads, AsyncIterable):
            source = aiter(payloads)
            while (chunk := await self._bridge.run(functools.partial(_next, source))) is not None:
                yield chunk
            return
        iterator = iter(payloads)
        while chunk := await self._bridge.run(functools.partial(_some, iterator)):
            for payload in chunk:
                yield payload


async def _next(source: AsyncIterator[bytes]) -> bytes | None:
    return await anext(source, None)


async def _some(iterator: Iterator[bytes]) -> list[bytes]:
    """Return the next payloads of an iterator; none at its end."""
    found: list[bytes] = []
    until = time.monotonic() + CHUNK_TIME
    for payload in iterator:
        found.append(payload)
        if len(found) == CHUNK or time.monotonic() >= until:
            break
    return found
