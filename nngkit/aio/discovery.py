"""Service discovery for asyncio programs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, ParamSpec, Self, TypeVar

from nngkit.aio._base import Aio, awaited, iterated
from nngkit.aio._bridge import Bridge
from nngkit.discovery import client as _client
from nngkit.discovery import daemon as _daemon
from nngkit.discovery import resolver as _resolver
from nngkit.discovery import service as _service
from nngkit.discovery import service_discovery as _discovery
from nngkit.discovery.provider import Provider, RoundFigures
from nngkit.hosted import HostedProperty, direct_call, hosted_property, loop_call, signature_of

__all__ = ["Daemon", "DaemonClient", "Resolver", "Service", "ServiceDiscovery"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


class ServiceDiscovery(Aio[_discovery.ServiceDiscovery]):
    """Surveys all connected services: see nngkit.ServiceDiscovery."""

    _of = _discovery.ServiceDiscovery

    @signature_of(_discovery.ServiceDiscovery)
    def __init__(self) -> None: ...

    ask = awaited(_discovery.ServiceDiscovery.ask)
    resolution = direct_call(_discovery.ServiceDiscovery.resolution)
    discover = awaited(_discovery.ServiceDiscovery.discover)
    wait_for_peers = awaited(_discovery.ServiceDiscovery.wait_for_peers)
    events = iterated(_discovery.ServiceDiscovery.events)
    resolve = direct_call(_discovery.ServiceDiscovery.resolve)
    snapshot = direct_call(_discovery.ServiceDiscovery.snapshot)
    view = direct_call(_discovery.ServiceDiscovery.view)
    address: HostedProperty[str] = hosted_property(_discovery.ServiceDiscovery.address)
    addresses: HostedProperty[tuple[str, ...]] = hosted_property(_discovery.ServiceDiscovery.addresses)
    rounds: HostedProperty[tuple[RoundFigures, ...]] = hosted_property(_discovery.ServiceDiscovery.rounds)
    stats: HostedProperty[_discovery.DiscoveryStats] = hosted_property(_discovery.ServiceDiscovery.stats)


class Service(Aio[_service.Service]):
    """One provider of a service, announced until it is closed: see nngkit.Service.

    An async `on_question` is a task of the program's loop.
    """

    _of = _service.Service

    @signature_of(_service.Service)
    def __init__(self) -> None: ...

    def _construct(self, *arguments: Any, **options: Any) -> None:
        self._bridge = Bridge()
        self._bridge.callbacks(options)
        super()._construct(*arguments, **options)

    async def __aenter__(self) -> Self:
        with suppress(RuntimeError):  # reported below
            self._bridge.loop = asyncio.get_running_loop()
        return await super().__aenter__()

    wait_for_peers = awaited(_service.Service.wait_for_peers)
    update = loop_call(_service.Service.update)
    drain = loop_call(_service.Service.drain)
    provider: HostedProperty[Provider] = hosted_property(_service.Service.provider)
    stats: HostedProperty[_service.ServiceStats] = hosted_property(_service.Service.stats)


class Resolver(Aio[_resolver.Resolver]):
    """View of the providers, from several daemons: see nngkit.discovery.Resolver."""

    _of = _resolver.Resolver

    @signature_of(_resolver.Resolver)
    def __init__(self) -> None: ...

    ask = awaited(_resolver.Resolver.ask)
    resolution = direct_call(_resolver.Resolver.resolution)
    find = awaited(_resolver.Resolver.find)
    events = iterated(_resolver.Resolver.events)
    resolve = direct_call(_resolver.Resolver.resolve)
    snapshot = direct_call(_resolver.Resolver.snapshot)
    answers = direct_call(_resolver.Resolver.answers)
    fresh: HostedProperty[bool] = hosted_property(_resolver.Resolver.fresh)


class Daemon(Aio[_daemon.Daemon]):
    """Discovery daemon inside another program: see nngkit.discovery.Daemon."""

    _of = _daemon.Daemon

    @signature_of(_daemon.Daemon)
    def __init__(self) -> None: ...

    run = awaited(_daemon.Daemon.run)
    addresses: HostedProperty[tuple[str, ...]] = hosted_property(_daemon.Daemon.addresses)
    query_addresses: HostedProperty[tuple[str, ...]] = hosted_property(_daemon.Daemon.query_addresses)
    watching: HostedProperty[int] = hosted_property(_daemon.Daemon.watching)


class DaemonClient(Aio[_client.DaemonClient]):
    """Client of one daemon: see nngkit.discovery.DaemonClient."""

    _of = _client.DaemonClient

    @signature_of(_client.DaemonClient)
    def __init__(self) -> None: ...

    ask = awaited(_client.DaemonClient.ask)
    resolve = awaited(_client.DaemonClient.resolve)
    snapshot = awaited(_client.DaemonClient.snapshot)
    rounds = awaited(_client.DaemonClient.rounds)
    watch = awaited(_client.DaemonClient.watch)
