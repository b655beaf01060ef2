"""Functions of an asyncio program, called from the portal: handlers, health checks, answers to questions."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast

import trio

from nngkit.aio._waits import in_portal
from nngkit.calls.handlers import Calling, name_of, takes_two
from nngkit.calls.middleware import Middleware, Proceed, Reply, chain, check_middleware
from nngkit.errors import Closed
from nngkit.portal import the_portal

F = TypeVar("F")
C = TypeVar("C", bound=Callable[..., Any])

STOPPING = 1.0
"""Seconds that a cancelled handler may take before its caller gets the error."""


class Bridge:
    """Handlers of an asyncio program, as handlers of a server in the portal.

    loop    the program's, once it runs
    tasks   of the loop, in which handlers run
    """

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.tasks: set[asyncio.Task[Any]] = set()

    def handler(self, function: F) -> F:
        """Return a handler for the portal; plain functions run in its worker threads as they are."""
        return cast(F, self._handler(function)) if callable(function) else function

    def _handler(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.isasyncgenfunction(function):
            return self._generator(function)
        if not inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
        ):
            return function
        two = takes_two(function)

        async def bridged(body: Any, calling: Calling) -> Any:
            return await self.run(functools.partial(function, body, calling))

        async def bridged_body(body: Any) -> Any:
            return await self.run(functools.partial(function, body))

        return _as(function, bridged if two else bridged_body)

    def _generator(self, function: Callable[..., AsyncGenerator[Any, None]]) -> Callable[..., Any]:
        two = takes_two(function)

        async def bridged(body: Any, calling: Calling | None = None) -> AsyncGenerator[Any, None]:
            made = function(body, calling) if two else function(body)
            try:
                while True:
                    try:
                        part = await self.run(made.__anext__)
                    except StopAsyncIteration:
                        return
                    yield part
            finally:
                with trio.CancelScope(shield=True), trio.move_on_after(STOPPING):
                    await self.run(made.aclose)

        return _as(function, bridged)

    def middleware(self, functions: Iterable[Middleware]) -> tuple[Middleware, ...]:
        """Return middleware for the portal: one function, in which those of the program run as one task."""
        own = check_middleware(functions)
        if not own:
            return ()

        async def bridged(call: Any, proceed: Proceed) -> Reply:
            async def inward(changed: Any) -> Reply:  # in the program's loop
                return await in_portal(the_portal(), partial(proceed, changed))

            reply: Reply = await self.run(partial(chain(own, inward), call))
            return reply

        return (bridged,)

    def callback(self, function: F) -> F:
        """Return a callback for the portal, such as a health check; a plain function is called there as it is."""
        if not inspect.iscoroutinefunction(function):
            return function

        async def bridged(*arguments: Any) -> Any:
            return await self.run(functools.partial(function, *arguments))

        return cast(F, bridged)

    def registering(self, register: Callable[[Any], object]) -> Callable[[C], C]:
        """Return a decorator that registers a handler of the program."""

        def decorate(function: C) -> C:
            register(self.handler(function))
            return function

        return decorate

    def method(self, register: Callable[[str], Callable[[Any], object]], handler: Any) -> Any:
        """Register a handler by its method's name, or return the decorator that does."""
        if isinstance(handler, str):
            return self.registering(register(handler))
        return self.registering(register(name_of(handler)))(handler)

    async def run(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Run a coroutine function as a task of the program's loop, from the portal. Cancelling cancels the task."""
        loop, token = self.loop, trio.lowlevel.current_trio_token()
        assert loop is not None
        done = trio.Event()
        tasks: list[asyncio.Task[Any]] = []

        async def main() -> Any:
            return await call()

        def finished(task: asyncio.Task[Any]) -> None:
            self.tasks.discard(task)
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(done.set)

        def start() -> None:
            task = loop.create_task(main())
            tasks.append(task)
            self.tasks.add(task)
            task.add_done_callback(finished)

        def cancel() -> None:
            for task in tasks:
                task.cancel()

        try:
            loop.call_soon_threadsafe(start)
        except RuntimeError:
            raise Closed("the asyncio loop of this server has ended") from None
        try:
            await done.wait()
        except trio.Cancelled:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(cancel)
            with trio.CancelScope(shield=True), trio.move_on_after(STOPPING):
                await done.wait()
                if tasks and not tasks[0].cancelled():
                    tasks[0].exception()  # seen: asyncio would report it
            raise
        if tasks[0].cancelled():
            raise Closed("the handler's task was cancelled")
        return tasks[0].result()


def _as(function: Callable[..., Any], bridged: C) -> C:
    """Note which function is bridged: its annotations and its name are those of the handler."""
    bridged.__wrapped__ = function  # type: ignore[attr-defined]
    return bridged
