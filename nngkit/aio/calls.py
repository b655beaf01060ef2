"""Calls by name for asyncio programs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ParamSpec, Self, TypeVar

from nngkit.aio._base import Aio, awaited
from nngkit.aio._bridge import Bridge
from nngkit.calls import client as _calls_client
from nngkit.calls import server as _calls_server
from nngkit.calls.stream import Stream
from nngkit.discovery.provider import Provider
from nngkit.hosted import HostedProperty, hosted_property, loop_call, signature_of
from nngkit.protocols import DEFAULT, Timeout

__all__ = ["Client", "Server"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


class Client(Aio[_calls_client.Client]):
    """Calls a service by its name: see nngkit.Client. `discovery` takes objects of this module.

    Calls are made in the program's own loop.
    """

    _of = _calls_client.Client

    @signature_of(_calls_client.Client)
    def __init__(self) -> None: ...

    def _construct(self, *arguments: Any, **options: Any) -> None:
        source = options.get("discovery")
        if isinstance(source, Aio):
            options["discovery"] = source._open_object()[1]
        super()._construct(*arguments, **options)

    async def request(
        self,
        body: Any,
        *,
        timeout: Timeout = DEFAULT,
        method: str = "",
        idempotent: bool | None = None,
        hedge: float | None = None,
    ) -> Any:
        _, inner = self._open_object()
        return await inner.request(body, timeout=timeout, method=method, idempotent=idempotent, hedge=hedge)

    request.__doc__ = _calls_client.Client.request.__doc__

    def stream(self, body: Any, *, timeout: Timeout = DEFAULT, method: str = "") -> Stream:
        _, inner = self._open_object()
        return inner.stream(body, timeout=timeout, method=method)

    stream.__doc__ = _calls_client.Client.stream.__doc__

    wait_for_providers = awaited(_calls_client.Client.wait_for_providers)
    stats: HostedProperty[_calls_client.ClientStats] = hosted_property(_calls_client.Client.stats)


class Server(Aio[_calls_server.Server]):
    """A provider of a service: see nngkit.Server. Async handlers are tasks of the program's loop."""

    _of = _calls_server.Server

    @signature_of(_calls_server.Server)
    def __init__(self) -> None: ...

    def _construct(self, name: str, handler: Callable[..., Any] | None = None, **options: Any) -> None:
        self._bridge = Bridge()
        if handler is not None and callable(handler):
            handler = self._bridge.handler(handler)
        self._bridge.callbacks(options)
        super()._construct(name, handler, **options)

    async def __aenter__(self) -> Self:
        with suppress(RuntimeError):  # reported below
            self._bridge.loop = asyncio.get_running_loop()
        return await super().__aenter__()

    def method(self, handler: Any) -> Any:
        if isinstance(handler, str):
            name = handler

            def register(function: Callable[..., Any]) -> Callable[..., Any]:
                self._inner.method(name)(self._bridge.handler(function))
                return function

            return register
        self._inner.method(handler.__name__)(self._bridge.handler(handler))
        return handler

    method.__doc__ = _calls_server.Server.method.__doc__

    wait_for_daemons = awaited(_calls_server.Server.wait_for_daemons)
    drain = loop_call(_calls_server.Server.drain)

    def update(self, **changes: Any) -> None:
        portal, inner = self._open_object()
        portal.do(inner.update, **changes)

    update.__doc__ = _calls_server.Server.update.__doc__

    address: HostedProperty[str] = hosted_property(_calls_server.Server.address)
    provider: HostedProperty[Provider] = hosted_property(_calls_server.Server.provider)
    stats: HostedProperty[_calls_server.ServerStats] = hosted_property(_calls_server.Server.stats)
