"""Blocking versions of the async classes, for programs without an event loop: `with` instead of `async with`.

::

    from nngkit.blocking import Service, ServiceDiscovery

    with ServiceDiscovery(listen="tcp://127.0.0.1:5555", deadline=0.5) as discovery:
        print(discovery.discover())
        print(discovery.resolve("answer").address)
        for event in discovery.events(): ...

Each class lists methods of an async class, which run under trio in one daemon thread, the portal. The portal starts
with the first object and ends with the process, when open objects are closed in order (a Service says goodbye). Names,
arguments, results, errors and docstrings are those of the async class; type checkers and editors see the real
signatures.

Any thread may call. Ctrl-C ends a wait and cancels the call, as in trio. In a thread started by an asyncio loop
(`asyncio.to_thread`), a wait raises Closed when that loop ends (loop_waits.py). After fork() the parent's objects raise
Forked in the child, and new ones need a new process (docs/protocols.md).
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, overload

from nngkit.calls import client as _calls_client
from nngkit.calls import server as _calls_server
from nngkit.discovery import _sigterm
from nngkit.discovery import client as _client
from nngkit.discovery import daemon as _daemon
from nngkit.discovery import resolver as _resolver
from nngkit.discovery import service as _service
from nngkit.discovery import service_discovery as _discovery
from nngkit.discovery.provider import Provider, RoundFigures
from nngkit.documents import PeerInfo, PeerStats, Refusal
from nngkit.documents import document as _document
from nngkit.documents import peer as _peer
from nngkit.documents.threads import Document, as_in
from nngkit.documents.versions import EditStream
from nngkit.fanout import consumer as _consumer
from nngkit.fanout import mesh as _mesh
from nngkit.fanout import publisher as _publisher
from nngkit.fanout import subscriber as _subscriber
from nngkit.fanout.backlog import Unread
from nngkit.fanout.delivery import Delivery
from nngkit.fanout.mesh_events import MeshMessage, MeshNeighbour, MeshStats
from nngkit.fanout.synchronizing import Synchronized
from nngkit.hosted import Hosted, HostedProperty, direct_call, hosted_property, loop_call, signature_of
from nngkit.loop_waits import asked_by, on_behalf
from nngkit.portal import BlockingIterator, Host, end, the_portal
from nngkit.protocols import DEFAULT, Stats, Timeout

__all__ = [
    "Client",
    "Consumer",
    "Daemon",
    "DaemonClient",
    "DocumentPeer",
    "Mesh",
    "Publisher",
    "Resolver",
    "Server",
    "Service",
    "ServiceDiscovery",
    "Subscriber",
]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

atexit.register(end)  # after nngkit.protocols registered its own, hence run before: sockets close last


# ---- wrapping methods ------------------------------------------------------------------------------------------------


class Blocking(Hosted[T]):
    """Base class: an async object, hosted by the portal between `__enter__` and `__exit__`."""

    _block = "a `with`"

    def _construct(self, *arguments: Any, **options: Any) -> None:
        super()._construct(*arguments, **options)
        asked_by()  # registers this thread's asyncio loop, if any, for the threads that it starts from now on

    def __enter__(self) -> Self:
        _sigterm.install()  # only the main thread may; the loop runs in another
        host = Host(the_portal(), self._inner)
        host.open()
        self._host = host
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the object, as leaving the `with` does. Idempotent."""
        host, self._host = self._host, None
        if host is not None and self._pid == os.getpid():
            host.close()


def _blocking_call(method: Callable[Concatenate[T, P], Awaitable[R]]) -> Callable[Concatenate[Blocking[T], P], R]:
    """Wrap a coroutine method: the call blocks until it returns."""

    @on_behalf
    @functools.wraps(method)
    def call(self: Blocking[T], /, *arguments: P.args, **options: P.kwargs) -> R:
        portal, inner = self._open_object()
        return portal.call(method, inner, *arguments, **options)

    return call


def _iterator(
    method: Callable[Concatenate[T, P], AsyncGenerator[R, None]],
) -> Callable[Concatenate[Blocking[T], P], BlockingIterator[R]]:
    """Wrap an async generator method as a blocking iterator; closing it closes the generator."""

    @functools.wraps(method)
    def call(self: Blocking[T], /, *arguments: P.args, **options: P.kwargs) -> BlockingIterator[R]:
        portal, inner = self._open_object()
        return BlockingIterator(portal, method(inner, *arguments, **options))

    return call


# ---- the objects -----------------------------------------------------------------------------------------------------


class ServiceDiscovery(Blocking[_discovery.ServiceDiscovery]):
    """Surveys all connected services: see nngkit.ServiceDiscovery."""

    _of = _discovery.ServiceDiscovery

    @signature_of(_discovery.ServiceDiscovery)
    def __init__(self) -> None: ...

    resolution = direct_call(_discovery.ServiceDiscovery.resolution)
    discover = _blocking_call(_discovery.ServiceDiscovery.discover)
    ask = _blocking_call(_discovery.ServiceDiscovery.ask)
    wait_for_peers = _blocking_call(_discovery.ServiceDiscovery.wait_for_peers)
    events = _iterator(_discovery.ServiceDiscovery.events)
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

    wait_for_peers = _blocking_call(_service.Service.wait_for_peers)
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
    find = _blocking_call(_resolver.Resolver.find)
    ask = _blocking_call(_resolver.Resolver.ask)
    events = _iterator(_resolver.Resolver.events)
    resolve = direct_call(_resolver.Resolver.resolve)
    snapshot = direct_call(_resolver.Resolver.snapshot)
    fresh: HostedProperty[bool] = hosted_property(_resolver.Resolver.fresh)


class Daemon(Blocking[_daemon.Daemon]):
    """Discovery daemon inside another program: see nngkit.discovery.Daemon."""

    _of = _daemon.Daemon

    @signature_of(_daemon.Daemon)
    def __init__(self) -> None: ...

    run = _blocking_call(_daemon.Daemon.run)
    addresses: HostedProperty[tuple[str, ...]] = hosted_property(_daemon.Daemon.addresses)
    query_addresses: HostedProperty[tuple[str, ...]] = hosted_property(_daemon.Daemon.query_addresses)
    watching: HostedProperty[int] = hosted_property(_daemon.Daemon.watching)


class DaemonClient(Blocking[_client.DaemonClient]):
    """Client of one daemon: see nngkit.discovery.DaemonClient."""

    _of = _client.DaemonClient

    @signature_of(_client.DaemonClient)
    def __init__(self) -> None: ...

    resolve = _blocking_call(_client.DaemonClient.resolve)
    snapshot = _blocking_call(_client.DaemonClient.snapshot)
    rounds = _blocking_call(_client.DaemonClient.rounds)
    ask = _blocking_call(_client.DaemonClient.ask)
    watch = _blocking_call(_client.DaemonClient.watch)


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

    wait_for_providers = _blocking_call(_calls_client.Client.wait_for_providers)
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

    wait_for_daemons = _blocking_call(_calls_server.Server.wait_for_daemons)
    drain = loop_call(_calls_server.Server.drain)
    address: HostedProperty[str] = hosted_property(_calls_server.Server.address)
    provider: HostedProperty[Provider] = hosted_property(_calls_server.Server.provider)
    stats: HostedProperty[_calls_server.ServerStats] = hosted_property(_calls_server.Server.stats)


class Mesh(Blocking[_mesh.Mesh]):
    """A node of a mesh: see nngkit.Mesh."""

    _of = _mesh.Mesh

    @signature_of(_mesh.Mesh)
    def __init__(self) -> None: ...

    def __iter__(self) -> BlockingIterator[MeshMessage]:
        """Yield the messages of other nodes, in each origin's order."""
        return self.messages()

    send = _blocking_call(_mesh.Mesh.send)
    send_many = _blocking_call(_mesh.Mesh.send_many)
    recv = _blocking_call(_mesh.Mesh.recv)
    messages = _iterator(_mesh.Mesh.messages)
    events = _iterator(_mesh.Mesh.events)
    wait_for_neighbours = _blocking_call(_mesh.Mesh.wait_for_neighbours)
    address: HostedProperty[str] = hosted_property(_mesh.Mesh.address)
    addresses: HostedProperty[tuple[str, ...]] = hosted_property(_mesh.Mesh.addresses)
    neighbours: HostedProperty[tuple[MeshNeighbour, ...]] = hosted_property(_mesh.Mesh.neighbours)
    stats: HostedProperty[MeshStats] = hosted_property(_mesh.Mesh.stats)
    socket_stats: HostedProperty[Stats] = hosted_property(_mesh.Mesh.socket_stats)


class Consumer(Blocking[_consumer.Consumer]):
    """Durable consumer of a journal: see nngkit.fanout.Consumer. Acknowledge with `ack`, not by a delivery's method."""

    _of = _consumer.Consumer

    @signature_of(_consumer.Consumer)
    def __init__(self) -> None: ...

    def __iter__(self) -> Iterator[Delivery]:
        while True:
            yield self.receive()

    receive = _blocking_call(_consumer.Consumer.receive)

    receive_batch = _blocking_call(_consumer.Consumer.receive_batch)
    ack = _blocking_call(_consumer.Consumer.ack)
    nak = _blocking_call(_consumer.Consumer.nak)
    term = _blocking_call(_consumer.Consumer.term)
    flush = _blocking_call(_consumer.Consumer.flush)
    info = _blocking_call(_consumer.Consumer.info)
    delete = _blocking_call(_consumer.Consumer.delete)
    stats: HostedProperty[_consumer.ConsumerStats] = hosted_property(_consumer.Consumer.stats)


class Publisher(Blocking[_publisher.Publisher]):
    """Numbered PUB: see nngkit.Publisher."""

    _of = _publisher.Publisher

    @signature_of(_publisher.Publisher)
    def __init__(self) -> None: ...

    publish = loop_call(_publisher.Publisher.publish)
    publish_many = loop_call(_publisher.Publisher.publish_many)
    subscribers = loop_call(_publisher.Publisher.subscribers)
    cut = loop_call(_publisher.Publisher.cut)
    wait_for_peers = _blocking_call(_publisher.Publisher.wait_for_peers)
    address: HostedProperty[str] = hosted_property(_publisher.Publisher.address)
    plain_address: HostedProperty[str] = hosted_property(_publisher.Publisher.plain_address)
    number: HostedProperty[int] = hosted_property(_publisher.Publisher.number)
    stats: HostedProperty[_publisher.PublisherStats] = hosted_property(_publisher.Publisher.stats)


class Subscriber(Blocking[_subscriber.Subscriber]):
    """SUB that accounts for every number: see nngkit.Subscriber."""

    _of = _subscriber.Subscriber

    @signature_of(_subscriber.Subscriber)
    def __init__(self) -> None: ...

    def __iter__(self) -> Iterator[Unread | Synchronized]:
        while True:
            yield self.receive()

    receive = _blocking_call(_subscriber.Subscriber.receive)
    receive_many = _blocking_call(_subscriber.Subscriber.receive_many)
    messages = _iterator(_subscriber.Subscriber.messages)
    lag = loop_call(_subscriber.Subscriber.lag)
    wait_for_peers = _blocking_call(_subscriber.Subscriber.wait_for_peers)
    connected: HostedProperty[int] = hosted_property(_subscriber.Subscriber.connected)
    left: HostedProperty[bool] = hosted_property(_subscriber.Subscriber.left)
    stats: HostedProperty[_subscriber.SubscriberStats] = hosted_property(_subscriber.Subscriber.stats)


class DocumentPeer(Blocking[_peer.DocumentPeer]):
    """A peer that edits documents concurrently with others: see nngkit.documents.DocumentPeer.

    `open` returns documents whose calls run in the loop's thread (nngkit/documents/threads.py): any thread may edit.
    """

    _of = _peer.DocumentPeer

    @signature_of(_peer.DocumentPeer)
    def __init__(self) -> None: ...

    def _construct(self, *arguments: Any, **options: Any) -> None:
        super()._construct(*arguments, **options)
        self._documents: dict[str, tuple[_document.Document, Document]] = {}
        self._opening = threading.Lock()

    @as_in(_peer.DocumentPeer.open)
    def open(self, name: str) -> Document:
        portal, peer = self._open_object()
        return self._wrapped(portal.do(peer.open, name))

    def _wrapped(self, inner: _document.Document) -> Document:
        with self._opening:
            known, document = self._documents.get(inner.name, (None, None))
            if document is None or known is not inner:
                document = Document(inner, _PeerLoop(self))
                self._documents[inner.name] = inner, document
            return document

    @property
    def documents(self) -> dict[str, Document]:
        portal, peer = self._open_object()
        return {name: self._wrapped(inner) for name, inner in portal.do(lambda: peer.documents).items()}

    documents.__doc__ = _peer.DocumentPeer.documents.__doc__

    close_document = loop_call(_peer.DocumentPeer.close_document)
    versions = loop_call(_peer.DocumentPeer.versions)
    name_of = loop_call(_peer.DocumentPeer.name_of)
    me: HostedProperty[EditStream] = hosted_property(_peer.DocumentPeer.me)
    wait_for_peers = _blocking_call(_peer.DocumentPeer.wait_for_peers)
    dial = loop_call(_peer.DocumentPeer.dial)
    address: HostedProperty[str] = hosted_property(_peer.DocumentPeer.address)
    addresses: HostedProperty[tuple[str, ...]] = hosted_property(_peer.DocumentPeer.addresses)
    repair_addresses: HostedProperty[tuple[str, ...]] = hosted_property(_peer.DocumentPeer.repair_addresses)
    peers: HostedProperty[tuple[PeerInfo, ...]] = hosted_property(_peer.DocumentPeer.peers)
    stats: HostedProperty[PeerStats] = hosted_property(_peer.DocumentPeer.stats)
    refusals: HostedProperty[tuple[Refusal, ...]] = hosted_property(_peer.DocumentPeer.refusals)


class _PeerLoop:
    """Access to a peer's loop while it is open: a documents.threads.Loop."""

    def __init__(self, peer: DocumentPeer) -> None:
        self._peer = peer

    def do(self, function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        portal, _ = self._peer._open_object()
        return portal.do(function, *arguments, **options)

    def wait(self, function: Callable[P, Awaitable[R]], *arguments: P.args, **options: P.kwargs) -> R:
        portal, _ = self._peer._open_object()
        return portal.call(function, *arguments, **options)

    def iterate(self, source: AsyncGenerator[R, None]) -> BlockingIterator[R]:
        portal, _ = self._peer._open_object()
        return BlockingIterator(portal, source)

    def hold(self) -> AbstractContextManager[None]:
        portal, _ = self._peer._open_object()
        return portal.hold()
