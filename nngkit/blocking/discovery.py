"""Service discovery without an event loop."""

from __future__ import annotations

from nngkit.blocking._base import Blocking, blocking_call, iterated
from nngkit.discovery import client as _client
from nngkit.discovery import daemon as _daemon
from nngkit.discovery import resolver as _resolver
from nngkit.discovery import service as _service
from nngkit.discovery import service_discovery as _discovery
from nngkit.discovery.provider import Provider, RoundFigures
from nngkit.hosted import HostedProperty, direct_call, hosted_property, loop_call, signature_of

__all__ = ["Daemon", "DaemonClient", "Resolver", "Service", "ServiceDiscovery"]


class ServiceDiscovery(Blocking[_discovery.ServiceDiscovery]):
    """Surveys all connected services: see nngkit.ServiceDiscovery."""

    _of = _discovery.ServiceDiscovery

    @signature_of(_discovery.ServiceDiscovery)
    def __init__(self) -> None: ...

    resolution = direct_call(_discovery.ServiceDiscovery.resolution)
    discover = blocking_call(_discovery.ServiceDiscovery.discover)
    ask = blocking_call(_discovery.ServiceDiscovery.ask)
    wait_for_peers = blocking_call(_discovery.ServiceDiscovery.wait_for_peers)
    events = iterated(_discovery.ServiceDiscovery.events)
    resolve = direct_call(_discovery.ServiceDiscovery.resolve)
    snapshot = direct_call(_discovery.ServiceDiscovery.snapshot)
    view = direct_call(_discovery.ServiceDiscovery.view)
    address: HostedProperty[str] = hosted_property(_discovery.ServiceDiscovery.address)
    addresses: HostedProperty[tuple[str, ...]] = hosted_property(_discovery.ServiceDiscovery.addresses)
    rounds: HostedProperty[tuple[RoundFigures, ...]] = hosted_property(_discovery.ServiceDiscovery.rounds)
    stats: HostedProperty[_discovery.DiscoveryStats] = hosted_property(_discovery.ServiceDiscovery.stats)


class Service(Blocking[_service.Service]):
    """One provider of a service, announced until it is closed: see nngkit.Service."""

    _of = _service.Service

    @signature_of(_service.Service)
    def __init__(self) -> None: ...

    wait_for_peers = blocking_call(_service.Service.wait_for_peers)
    update = loop_call(_service.Service.update)
    drain = loop_call(_service.Service.drain)
    provider: HostedProperty[Provider] = hosted_property(_service.Service.provider)
    stats: HostedProperty[_service.ServiceStats] = hosted_property(_service.Service.stats)


class Resolver(Blocking[_resolver.Resolver]):
    """View of the providers, from several daemons: see nngkit.discovery.Resolver."""

    _of = _resolver.Resolver

    @signature_of(_resolver.Resolver)
    def __init__(self) -> None: ...

    resolution = direct_call(_resolver.Resolver.resolution)
    find = blocking_call(_resolver.Resolver.find)
    ask = blocking_call(_resolver.Resolver.ask)
    events = iterated(_resolver.Resolver.events)
    resolve = direct_call(_resolver.Resolver.resolve)
    snapshot = direct_call(_resolver.Resolver.snapshot)
    fresh: HostedProperty[bool] = hosted_property(_resolver.Resolver.fresh)


class Daemon(Blocking[_daemon.Daemon]):
    """Discovery daemon inside another program: see nngkit.discovery.Daemon."""

    _of = _daemon.Daemon

    @signature_of(_daemon.Daemon)
    def __init__(self) -> None: ...

    run = blocking_call(_daemon.Daemon.run)
    addresses: HostedProperty[tuple[str, ...]] = hosted_property(_daemon.Daemon.addresses)
    query_addresses: HostedProperty[tuple[str, ...]] = hosted_property(_daemon.Daemon.query_addresses)
    watching: HostedProperty[int] = hosted_property(_daemon.Daemon.watching)


class DaemonClient(Blocking[_client.DaemonClient]):
    """Client of one daemon: see nngkit.discovery.DaemonClient."""

    _of = _client.DaemonClient

    @signature_of(_client.DaemonClient)
    def __init__(self) -> None: ...

    resolve = blocking_call(_client.DaemonClient.resolve)
    snapshot = blocking_call(_client.DaemonClient.snapshot)
    rounds = blocking_call(_client.DaemonClient.rounds)
    ask = blocking_call(_client.DaemonClient.ask)
    watch = blocking_call(_client.DaemonClient.watch)
