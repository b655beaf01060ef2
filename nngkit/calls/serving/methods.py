"""Methods of a server: their handlers, the types of their bodies and replies, and which calls of them are let in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import trio

from nngkit.calls.handlers import Calling, Handler
from nngkit.calls.messages import (
    BAD_REQUEST,
    DENIED,
    DRAINING,
    MAX_METHOD,
    NO_METHOD,
    UNHEALTHY,
    CallRequest,
    Codec,
    ErrorReply,
)
from nngkit.calls.middleware import Middleware, Proceed, Reply, chain
from nngkit.calls.serving.permits import Permits
from nngkit.calls.texts import text_of
from nngkit.calls.typed import Contract, contract_of
from nngkit.errors import ConfigError
from nngkit.protocols import Request
from nngkit.trust import Trust

MOST_METHODS: Final = 256


@dataclass(frozen=True, slots=True)
class Method:
    """`contract`: the types of its body and reply, see typed.py. `around`: the handler within the middleware, if any.

    The middleware of a stream is put around each stream, as it ends with it.
    """

    handler: Handler
    contract: Contract | None
    around: Proceed | None


class Methods:
    """Methods by name; "" is for calls that name none. `draining`, `unhealthy` (why): no further calls are let in."""

    def __init__(
        self, name: str, codec: Codec | None, concurrency: int, trust: Trust | None, middleware: tuple[Middleware, ...]
    ) -> None:
        self._name = name
        self._codec = codec
        self._concurrency = concurrency
        self.middleware = middleware
        self.permits = None if trust is None else Permits(trust, name, lambda: self.by_name)
        self.by_name: dict[str, Method] = {}
        self.draining = False
        self.unhealthy = ""
        self._threads: trio.CapacityLimiter | None = None

    def add(self, method: str, function: Callable[..., Any]) -> None:
        """Register the handler of a method. Raises ConfigError."""
        if method and self._codec is None:
            raise ConfigError("method", "methods need a codec: codec='cbor' or 'json'", method)
        if text_of(method) != method or len(method.encode()) > MAX_METHOD:
            raise ConfigError("method", f"{method!r:.80} is not UTF-8 text of at most {MAX_METHOD} bytes", method)
        if method in self.by_name:
            raise ConfigError("method", f"{method!r} has a handler already", method)
        if len(self.by_name) >= MOST_METHODS:
            raise ConfigError("method", f"over the limit of {MOST_METHODS} methods", method)
        handler = Handler(function, self._limiter)
        if handler.streams and self._codec is None:
            raise ConfigError("handler", "a generator needs a codec: codec='cbor' or 'json'", function)

        async def proceed(calling: Calling) -> Reply:
            return Reply(await handler.call(calling.body, calling), calling.reply_headers)

        around = chain(self.middleware, proceed) if self.middleware else None
        self.by_name[method] = Method(handler, contract_of(function, self._codec, handler.streams), around)

    def check(self) -> None:
        """Raise ConfigError without a handler."""
        if not self.by_name:
            raise ConfigError("handler", f"{self._name} has none: give one, or register methods")

    def names(self) -> list[str]:
        """Return the names of the methods."""
        return sorted(filter(None, self.by_name))

    def described(self) -> dict[str, dict[str, Any]]:
        """Return what is known of each method: JSON Schemas of body and reply."""
        return {name: each.contract.described() for name, each in self.by_name.items() if each.contract is not None}

    def refusal(self, call: CallRequest, request: Request) -> ErrorReply | None:
        """Return why a call is not let in; None if it is."""
        permits = self.permits
        if permits is not None:
            who = None if request.pipe is None else request.pipe.who
            if not permits.may(who, call.method):
                return ErrorReply(DENIED, f"{who}: it may not call {permits.target(call.method)}", ran=False)
        if self.draining:
            return ErrorReply(DRAINING, f"{self._name} is leaving", ran=False)
        if self.unhealthy:
            return ErrorReply(UNHEALTHY, self.unhealthy, ran=False)
        method = self.by_name.get(call.method)
        if method is None:
            known = ", ".join(self.names()) or "none"
            what = f"no method {call.method!r}" if call.method else "a method must be named"
            return ErrorReply(NO_METHOD, f"{what}; known: {known}", ran=False)
        if method.handler.streams and not call.stream:
            return ErrorReply(BAD_REQUEST, "its reply is a stream: call it with stream()", ran=False)
        return None

    def _limiter(self) -> trio.CapacityLimiter:
        if self._threads is None:
            self._threads = trio.CapacityLimiter(self._concurrency)
        return self._threads

    @property
    def threads(self) -> int:
        """Threads in which handlers run."""
        return 0 if self._threads is None else int(self._threads.borrowed_tokens)
