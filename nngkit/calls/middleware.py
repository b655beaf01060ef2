"""Middleware: async functions around each call, of a client or of a server, and around each try of a job.

::

    async def timing(call, proceed):
        began = time.monotonic()
        reply = await proceed(call)                 # the next one; after the last, the call itself
        print(call.method, time.monotonic() - began, reply.headers)
        return reply

    Client("answer", middleware=[timing], ...)      # `call` is a ClientCall
    Server("answer", handler, middleware=[timing])  # `call` is the handler's Calling
    Host("cluster", middleware=[timing], ...)       # `call` is the work function's JobRun, and has `kind`, no `method`

The first function is the outermost. `proceed` raises what the call raises, and returns its Reply: of a stream once it
has ended, with None for its body. A function may call `proceed` with another call (`dataclasses.replace`), return
another Reply, raise, or, of a call without a stream, call `proceed` again.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from nngkit.calls.handlers import target
from nngkit.calls.messages import Codec
from nngkit.errors import ConfigError

MOST_ATTEMPTS: Final = 64  # recorded of one call, which makes 12, or twice as many if it is hedged


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply: its body, its headers, and on the client's side the address of the provider that sent it."""

    body: Any = None
    headers: dict[str, str | bytes] = field(default_factory=dict)
    provider: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request of a call to one provider.

    began    time.monotonic() at its begin; it took `seconds`
    outcome  "reply", "error" (of the handler), "refused", "lost", "timeout", "bad" (unintelligible), "cancelled"
    """

    provider: str
    began: float
    seconds: float
    outcome: str


@dataclass(slots=True)
class Wait:
    """Period in which a call had no connected provider. Most calls have none.

    began     time.monotonic() at its begin; `ended` at its end, None if the call has ended first
    daemons   addresses of those that answered at its end
    provider  address of the provider that was chosen then, and the reason
    """

    began: float
    ended: float | None = None
    daemons: tuple[str, ...] = ()
    provider: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ClientCall:
    """A call as a client's middleware sees it. `headers` can be changed, and are sent if there is a codec.

    timeout   seconds for the call, from each `proceed` on; None: for ever
    stream    its reply is a stream
    attempts  requests to providers that have ended so far
    waits     periods without a connected provider, so far
    """

    service: str
    method: str
    body: Any
    headers: dict[str, str | bytes]
    timeout: float | None
    idempotent: bool | None
    hedge: float | None
    stream: bool
    codec: Codec | None
    attempts: list[Attempt] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)


Proceed: TypeAlias = Callable[[Any], Coroutine[Any, Any, Reply]]
Middleware: TypeAlias = Callable[[Any, Proceed], Awaitable[Reply]]


def check_middleware(functions: Iterable[Middleware]) -> tuple[Middleware, ...]:
    """Return the functions. Raises ConfigError for one that is not async."""
    found = tuple(functions)
    for each in found:
        if not callable(each) or not inspect.iscoroutinefunction(target(each)):
            raise ConfigError("middleware", f"{each!r} is not an async function", each)
    return found


def chain(functions: tuple[Middleware, ...], core: Proceed) -> Proceed:
    """Return `core` with the functions around it, the first one outermost."""
    for function in reversed(functions):
        core = _around(function, core)
    return core


def _around(function: Middleware, proceed: Proceed) -> Proceed:
    async def around(call: Any) -> Reply:
        reply = await function(call, proceed)
        if not isinstance(reply, Reply):
            raise TypeError(f"the middleware {function!r} returned {type(reply).__name__}, not the Reply of `proceed`")
        return reply

    return around


def run_plainly(running: Coroutine[Any, Any, Reply]) -> Reply:
    """Run functions around a call that blocks, in a thread without a loop. Raises ConfigError if one waits itself."""
    try:
        running.send(None)
    except StopIteration as end:
        reply: Reply = end.value
        return reply
    running.close()
    raise ConfigError("middleware", "in a thread it can await nothing but `proceed`: there is no loop")
