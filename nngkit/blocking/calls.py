"""Calls by name without an event loop."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar, overload

from nngkit.blocking._base import Blocking, blocking_call
from nngkit.calls import client as _calls_client
from nngkit.calls import server as _calls_server
from nngkit.discovery.provider import Provider
from nngkit.documents.threads import as_in
from nngkit.hosted import HostedProperty, hosted_property, loop_call, signature_of
from nngkit.portal import BlockingIterator
from nngkit.protocols import DEFAULT, Timeout

__all__ = ["Client", "Server"]

F = TypeVar("F", bound=Callable[..., Any])


class Client(Blocking[_calls_client.Client]):
    """Calls a service by its name: see nngkit.Client. `discovery` takes objects of this module.

    Calls are made in the calling thread; hedged calls and streams in the loop's.
    """

    _of = _calls_client.Client

    @signature_of(_calls_client.Client)
    def __init__(self) -> None: ...

    def _construct(self, *arguments: Any, **options: Any) -> None:
        source = options.get("discovery")
        if isinstance(source, Blocking):
            options["discovery"] = source._open_object()[1]
        super()._construct(*arguments, **options)

    @as_in(_calls_client.Client.request)
    def request(
        self,
        body: Any,
        *,
        timeout: Timeout = DEFAULT,
        method: str = "",
        idempotent: bool | None = None,
        hedge: float | None = None,
    ) -> Any:
        portal, inner = self._open_object()
        if hedge is None and not inner.hedges:
            return inner.request_blocking(body, timeout=timeout, method=method, idempotent=idempotent)
        call = functools.partial(inner.request, timeout=timeout, method=method, idempotent=idempotent, hedge=hedge)
        return portal.call(call, body)

    @as_in(_calls_client.Client.stream)
    def stream(self, body: Any, *, timeout: Timeout = DEFAULT, method: str = "") -> BlockingIterator[Any]:
        portal, inner = self._open_object()

        async def parts() -> AsyncGenerator[Any, None]:
            async with inner.stream(body, timeout=timeout, method=method) as stream:
                async for part in stream:
                    yield part

        return BlockingIterator(portal, parts())

    wait_for_providers = blocking_call(_calls_client.Client.wait_for_providers)
    stats: HostedProperty[_calls_client.ClientStats] = hosted_property(_calls_client.Client.stats)


class Server(Blocking[_calls_server.Server]):
    """A provider of a service: see nngkit.Server. Handlers are plain functions, which run in worker threads."""

    _of = _calls_server.Server

    @signature_of(_calls_server.Server)
    def __init__(self) -> None: ...

    @overload
    def method(self, handler: str) -> Callable[[F], F]: ...
    @overload
    def method(self, handler: F) -> F: ...
    @as_in(_calls_server.Server.method)
    def method(self, handler: Any) -> Any:
        return self._inner.method(handler)

    @as_in(_calls_server.Server.update)
    def update(self, **changes: Any) -> None:
        portal, inner = self._open_object()
        portal.do(functools.partial(inner.update, **changes))

    wait_for_daemons = blocking_call(_calls_server.Server.wait_for_daemons)
    drain = loop_call(_calls_server.Server.drain)
    address: HostedProperty[str] = hosted_property(_calls_server.Server.address)
    provider: HostedProperty[Provider] = hosted_property(_calls_server.Server.provider)
    stats: HostedProperty[_calls_server.ServerStats] = hosted_property(_calls_server.Server.stats)
