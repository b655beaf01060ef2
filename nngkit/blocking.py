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
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

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
from nngkit.errors import Closed, Forked
from nngkit.loop_waits import asked_by, on_behalf
from nngkit.portal import BlockingIterator, Host, Portal, end, the_portal

__all__ = ["Daemon", "DaemonClient", "DocumentPeer", "Resolver", "Service", "ServiceDiscovery"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

atexit.register(end)  # after nngkit.protocols registered its own, hence run before: sockets close last


# ---- wrapping methods ------------------------------------------------------------------------------------------------


class Blocking(Generic[T]):
    """Base class: an async object, hosted by the portal between `__enter__` and `__exit__`."""

    _of: ClassVar[Callable[..., Any]]

    def _construct(self, *arguments: Any, **options: Any) -> None:
        self._inner: T = self._of(*arguments, **options)
        self._pid = os.getpid()
        self._host: Host | None = None
        asked_by()  # registers this thread's asyncio loop, if any, for the threads that it starts from now on

    def _open_object(self) -> tuple[Portal, T]:
        if self._pid != os.getpid():
            raise Forked(f"this {type(self).__name__} belongs to the process that made it")
        if self._host is None:
            raise Closed(f"this {type(self).__name__} is not open: use it in a `with`")
        return self._host.portal, self._inner

    def __enter__(self) -> Self:
        _sigterm.install()  # only the main thread may; the loop runs in another
        self._host = Host(the_portal(), self._inner)
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


def _signature_of(cls: Callable[P, Any]) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Give `__init__` the signature of `cls`."""

    def decorate(_: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        def init(self: Any, /, *arguments: P.args, **options: P.kwargs) -> None:
            self._construct(*arguments, **options)

        init.__wrapped__ = cls.__init__  # type: ignore[attr-defined]  # for help() and inspect.signature
        return init

    return decorate


def _blocking_call(method: Callable[Concatenate[T, P], Awaitable[R]]) -> Callable[Concatenate[Blocking[T], P], R]:
    """Wrap a coroutine method: the call blocks until it returns."""

    @on_behalf
    @functools.wraps(method)
    def call(self: Blocking[T], /, *arguments: P.args, **options: P.kwargs) -> R:
        portal, inner = self._open_object()
        return portal.call(method, inner, *arguments, **options)

    return call


def _direct_call(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[Blocking[T], P], R]:
    """Wrap a thread-safe method that never waits: runs in the calling thread."""

    @functools.wraps(method)
    def call(self: Blocking[T], /, *arguments: P.args, **options: P.kwargs) -> R:
        _, inner = self._open_object()
        return method(inner, *arguments, **options)

    return call


def _loop_call(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[Blocking[T], P], R]:
    """Wrap a method that never waits but is not thread-safe: runs in the loop's thread."""

    @functools.wraps(method)
    def call(self: Blocking[T], /, *arguments: P.args, **options: P.kwargs) -> R:
        portal, inner = self._open_object()
        return portal.do(method, inner, *arguments, **options)

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


class _Property(Generic[R]):
    """Thread-safe property that never waits."""

    def __init__(self, getter: Callable[[Any], R], doc: str | None) -> None:
        self._getter = getter
        self.__doc__ = doc

    @overload
    def __get__(self, of: None, cls: type) -> Self: ...
    @overload
    def __get__(self, of: Blocking[Any], cls: type) -> R: ...
    def __get__(self, of: Blocking[Any] | None, cls: type) -> R | Self:
        if of is None:
            return self
        return self._getter(of._open_object()[1])


def _property(attribute: Callable[[T], R]) -> _Property[R]:
    """Wrap a property. Annotate the result: mypy infers its type from the getter, pyright does not."""
    wrapped = cast(property, attribute)
    return _Property(cast(Callable[[Any], R], wrapped.fget), wrapped.__doc__)


# ---- the objects -----------------------------------------------------------------------------------------------------


class ServiceDiscovery(Blocking[_discovery.ServiceDiscovery]):
    """Surveys all connected services: see nngkit.ServiceDiscovery."""

    _of = _discovery.ServiceDiscovery

    @_signature_of(_discovery.ServiceDiscovery)
    def __init__(self) -> None: ...

    discover = _blocking_call(_discovery.ServiceDiscovery.discover)
    ask = _blocking_call(_discovery.ServiceDiscovery.ask)
    wait_for_peers = _blocking_call(_discovery.ServiceDiscovery.wait_for_peers)
    events = _iterator(_discovery.ServiceDiscovery.events)
    resolve = _direct_call(_discovery.ServiceDiscovery.resolve)
    snapshot = _direct_call(_discovery.ServiceDiscovery.snapshot)
    view = _direct_call(_discovery.ServiceDiscovery.view)
    address: _Property[str] = _property(_discovery.ServiceDiscovery.address)
    addresses: _Property[tuple[str, ...]] = _property(_discovery.ServiceDiscovery.addresses)
    rounds: _Property[tuple[RoundFigures, ...]] = _property(_discovery.ServiceDiscovery.rounds)
    stats: _Property[_discovery.DiscoveryStats] = _property(_discovery.ServiceDiscovery.stats)


class Service(Blocking[_service.Service]):
    """One provider of a service, announced until it is closed: see nngkit.Service."""

    _of = _service.Service

    @_signature_of(_service.Service)
    def __init__(self) -> None: ...

    wait_for_peers = _blocking_call(_service.Service.wait_for_peers)
    update = _loop_call(_service.Service.update)
    drain = _loop_call(_service.Service.drain)
    provider: _Property[Provider] = _property(_service.Service.provider)
    stats: _Property[_service.ServiceStats] = _property(_service.Service.stats)


class Resolver(Blocking[_resolver.Resolver]):
    """View of the providers, from several daemons: see nngkit.discovery.Resolver."""

    _of = _resolver.Resolver

    @_signature_of(_resolver.Resolver)
    def __init__(self) -> None: ...

    find = _blocking_call(_resolver.Resolver.find)
    ask = _blocking_call(_resolver.Resolver.ask)
    events = _iterator(_resolver.Resolver.events)
    resolve = _direct_call(_resolver.Resolver.resolve)
    snapshot = _direct_call(_resolver.Resolver.snapshot)
    fresh: _Property[bool] = _property(_resolver.Resolver.fresh)


class Daemon(Blocking[_daemon.Daemon]):
    """Discovery daemon inside another program: see nngkit.discovery.Daemon."""

    _of = _daemon.Daemon

    @_signature_of(_daemon.Daemon)
    def __init__(self) -> None: ...

    run = _blocking_call(_daemon.Daemon.run)
    addresses: _Property[tuple[str, ...]] = _property(_daemon.Daemon.addresses)
    query_addresses: _Property[tuple[str, ...]] = _property(_daemon.Daemon.query_addresses)


class DaemonClient(Blocking[_client.DaemonClient]):
    """Client of one daemon: see nngkit.discovery.DaemonClient."""

    _of = _client.DaemonClient

    @_signature_of(_client.DaemonClient)
    def __init__(self) -> None: ...

    resolve = _blocking_call(_client.DaemonClient.resolve)
    snapshot = _blocking_call(_client.DaemonClient.snapshot)
    rounds = _blocking_call(_client.DaemonClient.rounds)
    ask = _blocking_call(_client.DaemonClient.ask)
    watch = _blocking_call(_client.DaemonClient.watch)


class DocumentPeer(Blocking[_peer.DocumentPeer]):
    """A peer that edits documents concurrently with others: see nngkit.documents.DocumentPeer.

    `open` returns documents whose calls run in the loop's thread (nngkit/documents/threads.py): any thread may edit.
    """

    _of = _peer.DocumentPeer

    @_signature_of(_peer.DocumentPeer)
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

    close_document = _loop_call(_peer.DocumentPeer.close_document)
    versions = _loop_call(_peer.DocumentPeer.versions)
    name_of = _loop_call(_peer.DocumentPeer.name_of)
    me: _Property[EditStream] = _property(_peer.DocumentPeer.me)
    wait_for_peers = _blocking_call(_peer.DocumentPeer.wait_for_peers)
    dial = _loop_call(_peer.DocumentPeer.dial)
    address: _Property[str] = _property(_peer.DocumentPeer.address)
    addresses: _Property[tuple[str, ...]] = _property(_peer.DocumentPeer.addresses)
    repair_addresses: _Property[tuple[str, ...]] = _property(_peer.DocumentPeer.repair_addresses)
    peers: _Property[tuple[PeerInfo, ...]] = _property(_peer.DocumentPeer.peers)
    stats: _Property[PeerStats] = _property(_peer.DocumentPeer.stats)
    refusals: _Property[tuple[Refusal, ...]] = _property(_peer.DocumentPeer.refusals)


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
