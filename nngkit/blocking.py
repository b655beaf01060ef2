"""The same objects for programs without an event loop: `with` instead of `async with`, and calls that wait.

::

    from nngkit.blocking import Service, ServiceDiscovery

    with ServiceDiscovery(listen="tcp://127.0.0.1:5555", deadline=0.5) as discovery:
        print(discovery.discover())
        print(discovery.resolve("answer").address)
        for event in discovery.events(): ...

They are no twins: each class here names a class of the async side and the methods that it lends, and everything runs
there, under trio, in one daemon thread: the portal. It starts with the first object and ends with the process, when
what is still open is closed in its own way (a Service says good-bye). Names, arguments, results and errors are the
async side's, and so are the docstrings; type checkers and editors see the real signatures.

Any thread may call. A Ctrl-C ends a wait: what was waited for is cancelled, as trio would cancel it. A wait in a thread
that an asyncio loop has sent (`asyncio.to_thread`) raises Closed when that loop ends (loop_waits.py). After fork() the
objects of the parent raise Forked in the child, which may make its own only by starting anew (see docs/protocols.md).
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
from nngkit.documents.versions import Stream
from nngkit.errors import Closed, Forked
from nngkit.loop_waits import asked_by, on_behalf
from nngkit.portal import BlockingIterator, Host, Portal, end, the_portal
from nngkit.protocols import Stats

__all__ = ["Daemon", "DaemonClient", "DocumentPeer", "Resolver", "Service", "ServiceDiscovery"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

atexit.register(end)  # after nngkit.protocols registered its own, hence run before: sockets close last


# ---- lending methods -------------------------------------------------------------------------------------------------


class Blocking(Generic[T]):
    """An object of the async side, hosted by the portal between `__enter__` and `__exit__`."""

    _of: ClassVar[Callable[..., Any]]

    def _construct(self, *arguments: Any, **options: Any) -> None:
        self._inner: T = self._of(*arguments, **options)
        self._pid = os.getpid()
        self._host: Host | None = None
        asked_by()  # what the loop of this thread, if it runs one, sends to others from now on

    def _there(self) -> tuple[Portal, T]:
        if self._pid != os.getpid():
            raise Forked(f"this {type(self).__name__} belongs to the process that made it")
        if self._host is None:
            raise Closed(f"this {type(self).__name__} is not open: use it in a `with`")
        return self._host.portal, self._inner

    def __enter__(self) -> Self:
        _sigterm.install()  # only a main thread can; the loop is in another
        self._host = Host(the_portal(), self._inner)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """What leaving the `with` does; again is harmless."""
        host, self._host = self._host, None
        if host is not None and self._pid == os.getpid():
            host.close()


def _opens(cls: Callable[P, Any]) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """An `__init__` with the signature of `cls`."""

    def decorate(_: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        def init(self: Any, /, *arguments: P.args, **options: P.kwargs) -> None:
            self._construct(*arguments, **options)

        init.__wrapped__ = cls.__init__  # type: ignore[attr-defined]  # for help() and inspect.signature
        return init

    return decorate


def _waits(method: Callable[Concatenate[T, P], Awaitable[R]]) -> Callable[Concatenate[Blocking[T], P], R]:
    """A coroutine method, waited for."""

    @on_behalf
    @functools.wraps(method)
    def call(self: Blocking[T], /, *arguments: P.args, **options: P.kwargs) -> R:
        portal, inner = self._there()
        return portal.call(method, inner, *arguments, **options)

    return call


def _does(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[Blocking[T], P], R]:
    """A method that never waits, and that any thread may call: called where the caller is."""

    @functools.wraps(method)
    def call(self: Blocking[T], /, *arguments: P.args, **options: P.kwargs) -> R:
        _, inner = self._there()
        return method(inner, *arguments, **options)

    return call


def _tells(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[Blocking[T], P], R]:
    """A method that never waits, but belongs to the loop: called there."""

    @functools.wraps(method)
    def call(self: Blocking[T], /, *arguments: P.args, **options: P.kwargs) -> R:
        portal, inner = self._there()
        return portal.do(method, inner, *arguments, **options)

    return call


def _iterates(
    method: Callable[Concatenate[T, P], AsyncGenerator[R, None]],
) -> Callable[Concatenate[Blocking[T], P], BlockingIterator[R]]:
    """An async generator method, as an iterator that waits; closing the iterator closes the generator."""

    @functools.wraps(method)
    def call(self: Blocking[T], /, *arguments: P.args, **options: P.kwargs) -> BlockingIterator[R]:
        portal, inner = self._there()
        return BlockingIterator(portal, method(inner, *arguments, **options))

    return call


class _Read(Generic[R]):
    """A property that never waits and that any thread may read."""

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
        return self._getter(of._there()[1])


def _reads(attribute: Callable[[T], R]) -> _Read[R]:
    """The property of a class; at run time it has a getter. mypy takes it for that, pyright for a property without a
    type: so what is made of it is annotated with its type.
    """
    lent = cast(property, attribute)
    return _Read(cast(Callable[[Any], R], lent.fget), lent.__doc__)


# ---- the objects -----------------------------------------------------------------------------------------------------


class ServiceDiscovery(Blocking[_discovery.ServiceDiscovery]):
    """Surveys all who connect: see nngkit.ServiceDiscovery."""

    _of = _discovery.ServiceDiscovery

    @_opens(_discovery.ServiceDiscovery)
    def __init__(self) -> None: ...

    discover = _waits(_discovery.ServiceDiscovery.discover)
    wait_for_peers = _waits(_discovery.ServiceDiscovery.await_for_peers)
    events = _iterates(_discovery.ServiceDiscovery.events)
    resolve = _does(_discovery.ServiceDiscovery.resolve)
    snapshot = _does(_discovery.ServiceDiscovery.snapshot)
    view = _does(_discovery.ServiceDiscovery.view)
    address: _Read[str] = _reads(_discovery.ServiceDiscovery.address)
    addresses: _Read[tuple[str, ...]] = _reads(_discovery.ServiceDiscovery.addresses)
    counts: _Read[dict[str, int]] = _reads(_discovery.ServiceDiscovery.counts)
    rounds: _Read[tuple[RoundFigures, ...]] = _reads(_discovery.ServiceDiscovery.rounds)
    stats: _Read[Stats] = _reads(_discovery.ServiceDiscovery.stats)


class Service(Blocking[_service.Service]):
    """One provider of a service, found until it is closed: see nngkit.Service."""

    _of = _service.Service

    @_opens(_service.Service)
    def __init__(self) -> None: ...

    wait_for_peers = _waits(_service.Service.await_for_peers)
    update = _tells(_service.Service.update)
    drain = _tells(_service.Service.drain)
    provider: _Read[Provider] = _reads(_service.Service.provider)
    counts: _Read[_service.ServiceCounts] = _reads(_service.Service.counts)
    stats: _Read[Stats] = _reads(_service.Service.stats)


class Resolver(Blocking[_resolver.Resolver]):
    """Knows who can be called, from several daemons: see nngkit.discovery.Resolver."""

    _of = _resolver.Resolver

    @_opens(_resolver.Resolver)
    def __init__(self) -> None: ...

    find = _waits(_resolver.Resolver.find)
    events = _iterates(_resolver.Resolver.events)
    resolve = _does(_resolver.Resolver.resolve)
    snapshot = _does(_resolver.Resolver.snapshot)
    fresh: _Read[bool] = _reads(_resolver.Resolver.fresh)


class Daemon(Blocking[_daemon.Daemon]):
    """A discovery daemon, in a program that has other things to do: see nngkit.discovery.Daemon."""

    _of = _daemon.Daemon

    @_opens(_daemon.Daemon)
    def __init__(self) -> None: ...

    run = _waits(_daemon.Daemon.run)
    addresses: _Read[tuple[str, ...]] = _reads(_daemon.Daemon.addresses)
    query_addresses: _Read[tuple[str, ...]] = _reads(_daemon.Daemon.query_addresses)


class DaemonClient(Blocking[_client.DaemonClient]):
    """Asks one daemon: see nngkit.discovery.DaemonClient."""

    _of = _client.DaemonClient

    @_opens(_client.DaemonClient)
    def __init__(self) -> None: ...

    resolve = _waits(_client.DaemonClient.resolve)
    snapshot = _waits(_client.DaemonClient.snapshot)
    rounds = _waits(_client.DaemonClient.rounds)
    watch = _waits(_client.DaemonClient.watch)


class DocumentPeer(Blocking[_peer.DocumentPeer]):
    """A peer among those that edit the same documents: see nngkit.documents.DocumentPeer.

    `open` gives documents whose calls are made in the loop's thread (nngkit/documents/threads.py): any thread may edit.
    """

    _of = _peer.DocumentPeer

    @_opens(_peer.DocumentPeer)
    def __init__(self) -> None: ...

    def _construct(self, *arguments: Any, **options: Any) -> None:
        super()._construct(*arguments, **options)
        self._documents: dict[str, tuple[_document.Document, Document]] = {}
        self._opening = threading.Lock()

    @as_in(_peer.DocumentPeer.open)
    def open(self, name: str) -> Document:
        portal, peer = self._there()
        return self._lent(portal.do(peer.open, name))

    def _lent(self, inner: _document.Document) -> Document:
        with self._opening:
            known, document = self._documents.get(inner.name, (None, None))
            if document is None or known is not inner:
                document = Document(inner, _Reach(self))
                self._documents[inner.name] = inner, document
            return document

    @property
    def documents(self) -> dict[str, Document]:
        """Those that are open."""
        portal, peer = self._there()
        return {name: self._lent(inner) for name, inner in portal.do(lambda: peer.documents).items()}

    close_document = _tells(_peer.DocumentPeer.close_document)
    versions = _tells(_peer.DocumentPeer.versions)
    name_of = _tells(_peer.DocumentPeer.name_of)
    me: _Read[Stream] = _reads(_peer.DocumentPeer.me)
    wait_for_peers = _waits(_peer.DocumentPeer.wait_for_peers)
    dial = _tells(_peer.DocumentPeer.dial)
    address: _Read[str] = _reads(_peer.DocumentPeer.address)
    addresses: _Read[tuple[str, ...]] = _reads(_peer.DocumentPeer.addresses)
    repair_addresses: _Read[tuple[str, ...]] = _reads(_peer.DocumentPeer.repair_addresses)
    peers: _Read[tuple[PeerInfo, ...]] = _reads(_peer.DocumentPeer.peers)
    stats: _Read[PeerStats] = _reads(_peer.DocumentPeer.stats)
    refusals: _Read[tuple[Refusal, ...]] = _reads(_peer.DocumentPeer.refusals)


class _Reach:
    """The way to a peer's documents, as long as it is open: a documents.threads.Loop."""

    def __init__(self, peer: DocumentPeer) -> None:
        self._peer = peer

    def do(self, function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        portal, _ = self._peer._there()
        return portal.do(function, *arguments, **options)

    def wait(self, function: Callable[P, Awaitable[R]], *arguments: P.args, **options: P.kwargs) -> R:
        portal, _ = self._peer._there()
        return portal.call(function, *arguments, **options)

    def iterate(self, source: AsyncGenerator[R, None]) -> BlockingIterator[R]:
        portal, _ = self._peer._there()
        return BlockingIterator(portal, source)

    def hold(self) -> AbstractContextManager[None]:
        portal, _ = self._peer._there()
        return portal.hold()
