"""Handlers of a server: async functions, plain functions in threads, and generators of either kind.

::

    async def handler(body): ...                  a task of the server
    def handler(body): ...                        a worker thread
    async def handler(body): yield part           a stream: async generator
    def handler(body): yield part                 a stream: each step in a worker thread

A handler with two positional parameters gets the Calling too: method, deadline, peer, who calls, and the headers.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import CoroutineType
from typing import Any, Final

import trio

from nngkit.errors import ConfigError
from nngkit.headers import Headers
from nngkit.protocols import Pipe

_END: Final = object()  # end of a plain generator: StopIteration cannot pass a coroutine
ORDERS: Final = (trio.Cancelled, KeyboardInterrupt, GeneratorExit)


@dataclass(frozen=True, slots=True)
class Calling:
    """A call as its handler sees it.

    deadline   time.monotonic() at which the caller gives up; infinite without one
    peer       the caller's connection, with its verified name under TLS; None if it has left
    headers    of the request; with a codec only
    reply_headers   set them, and the reply has them, an error too; those of a stream go with its first and last parts
    service, body   its name; what the handler gets
    stream     the caller reads the reply in parts
    """

    method: str = ""
    id: str = ""
    deadline: float = float("inf")
    peer: Pipe | None = None
    headers: Headers = field(default_factory=dict)
    reply_headers: dict[str, str | bytes] = field(default_factory=dict)
    service: str = ""
    body: Any = None
    stream: bool = False

    @property
    def who(self) -> str | None:
        """Name of the caller under a trust, as "desk.ada". See Pipe for other connections."""
        return None if self.peer is None else self.peer.who

    @property
    def remaining(self) -> float:
        """Seconds until the deadline; infinite without one."""
        return max(0.0, self.deadline - time.monotonic())


class Handler:
    """A handler, called the same way whatever its kind. Raises ConfigError.

    `streams`: it is a generator. `plain`: it runs in threads. `two`: it takes a Calling; the others get None instead,
    which costs less.
    """

    def __init__(self, function: Callable[..., Any], limiter: Callable[[], trio.CapacityLimiter]) -> None:
        if not callable(function):
            raise ConfigError("handler", f"{function!r} is not a function", function)
        self._function = function
        self._limiter = limiter
        self.two = takes_two(function)
        inner = target(function)
        self._async = inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner)
        self.plain = not self._async
        self.streams = inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner)

    def call(self, body: Any, calling: Calling | None) -> Coroutine[Any, Any, Any]:
        """Run the handler; return its result. If cancelled, a plain function's thread runs on, and is abandoned."""
        if self._async:
            made = self._function(body, calling) if self.two else self._function(body)
            return made if type(made) is CoroutineType else _awaited(made)
        function = partial(self._function, body, calling) if self.two else partial(self._function, body)
        return _in_thread(function, self._limiter())

    async def parts(self, body: Any, calling: Calling | None) -> AsyncGenerator[Any, None]:
        """Yield the parts of a streaming handler."""
        made = self._function(body, calling) if self.two else self._function(body)
        if self._async:
            try:
                async for part in made:
                    yield part
            finally:
                with trio.CancelScope(shield=True), trio.move_on_after(1.0):  # its own clean-up
                    await made.aclose()
            return
        try:
            while True:
                part = await trio.to_thread.run_sync(next, made, _END, abandon_on_cancel=True, limiter=self._limiter())
                if part is _END:
                    return
                yield part
        finally:
            with suppress(ValueError):  # a thread that was abandoned is still in it
                made.close()


async def call_plainly(function: Callable[[], Any], limiter: trio.CapacityLimiter) -> Any:
    """Call a function without arguments, async or plain (in a worker thread); return its result.

    A thread that is abandoned keeps its place in `limiter` until it returns.
    """
    return await (function() if inspect.iscoroutinefunction(target(function)) else _in_thread(function, limiter))


async def _in_thread(function: Callable[[], Any], limiter: trio.CapacityLimiter) -> Any:
    [result] = await trio.to_thread.run_sync(_boxed, function, abandon_on_cancel=True, limiter=limiter)
    return await result if isinstance(result, Awaitable) else result  # of a lambda around a coroutine function


async def _awaited(made: Awaitable[Any]) -> Any:
    return await made


def _boxed(function: Callable[[], Any]) -> list[Any]:
    """Return the result of a function in a list: trio refuses a thread's coroutine."""
    return [function()]


def cause(error: BaseException) -> BaseException:
    """Return the exception that a handler has raised, without the groups that its nurseries have put around it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def order_to_end(error: BaseException) -> BaseException | None:
    """Return the parts of a handler's exception that must be raised again: cancellations, Ctrl-C.

    Other exceptions are failures of the handler, also those that derive from BaseException: a library's SystemExit,
    the panic of one in Rust.
    """
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(ORDERS)
    return error if isinstance(error, ORDERS) else None


def target(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function inside partial objects, or the `__call__` of an object."""
    while isinstance(function, partial):
        function = function.func
    if not (inspect.isfunction(function) or inspect.ismethod(function)) and hasattr(function, "__call__"):  # noqa: B004
        return function.__call__  # type: ignore[no-any-return]
    return function


def name_of(function: Any) -> str:
    """Return the name of a function, which is that of its method. Raises ConfigError without one."""
    name = getattr(function, "__name__", "")
    if not isinstance(name, str) or not name:
        raise ConfigError("method", f'{function!r} has no name: give one, as in @server.method("name")', function)
    return name


def takes_two(function: Callable[..., Any]) -> bool:
    """Return True if a handler takes a Calling beside the body. Raises ConfigError if it cannot be a handler."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return False
    kinds = inspect.Parameter
    if any(each.kind is kinds.VAR_POSITIONAL for each in parameters):
        return True
    positional = [each for each in parameters if each.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    if not positional:
        raise ConfigError("handler", f"{function!r} takes no argument; it needs one for the body", function)
    alone = [each.name for each in parameters if each.kind is kinds.KEYWORD_ONLY and each.default is kinds.empty]
    if alone:
        raise ConfigError("handler", f"{function!r} takes {alone[0]!r} by name, which nothing gives", function)
    required = [each for each in positional if each.default is kinds.empty]
    if len(required) > 2:
        raise ConfigError(
            "handler", f"{function!r} takes {len(required)} arguments; body and calling are given", function
        )
    return len(required) == 2 or (len(positional) > 1 and positional[1].name in ("call", "calling"))
