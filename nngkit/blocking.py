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
that an asyncio loop has sent (`asyncio.to_thread`) raises Closed when that loop ends (loops.py). After fork() the
objects of the parent raise Forked in the child, which may make its own only by starting anew (see docs/protocols.md).
"""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import MethodType, TracebackType
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

from nngkit.discovery import _sigterm
from nngkit.discovery import client as _client
from nngkit.discovery import daemon as _daemon
from nngkit.discovery import resolver as _resolver
from nngkit.discovery import service as _service
from nngkit.discovery import service_discovery as _discovery
from nngkit.discovery.provider import Provider, RoundFigures
from nngkit.documents import Change, Document, PeerInfo, PeerStats, Refusal, Saved
from nngkit.documents import peer as _peer
from nngkit.errors import Closed, Forked
from nngkit.loops import asked_by
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


class _Lent:
    """A method that waits. Looked up in the thread of an asyncio loop, it waits on behalf of that, in any thread."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __get__(self, of: object, cls: type) -> Callable[..., Any]:
        if of is None:
            return self._function
        bound, loop = MethodType(self._function, of), asked_by()
        return bound if loop is None else functools.partial(loop.run, bound)


def _lent(function: Callable[P, R]) -> Callable[P, R]:
    return cast(Callable[P, R], _Lent(function))


def _waits(method: Callable[Concatenate[T, P], Awaitable[R]]) -> Callable[Concatenate[Blocking[T], P], R]:
    """A coroutine method, waited for."""

    @_lent
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

    async def there(*arguments: Any, **options: Any) -> R:
        return method(*arguments, **options)

    @functools.wraps(method)
    def call(self: Blocking[T], /, *arguments: P.args, **options: P.kwargs) -> R:
        portal, inner = self._there()
        return portal.call(there, inner, *arguments, **options)

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

    A document is not for several threads at once, and here it lives in the loop's. So what is done with one is given as
    a function, which is called there with the document, and must not wait::

        peer.edit("minutes", lambda doc: doc.text("body").insert(0, "hello"))       # one transaction
        peer.read("minutes", lambda doc: str(doc.text("body")))
    """

    _of = _peer.DocumentPeer

    @_opens(_peer.DocumentPeer)
    def __init__(self) -> None: ...

    @_lent
    def edit(self, name: str, function: Callable[[Document], R]) -> R:
        """What `function` returns, called with the document in a transaction; what it raises is raised here."""
        return self._inside(name, function, edits=True)

    @_lent
    def read(self, name: str, function: Callable[[Document], R]) -> R:
        """What `function` returns, called with the document. Give back plain values, not parts of the document."""
        return self._inside(name, function, edits=False)

    def _inside(self, name: str, function: Callable[[Document], R], edits: bool) -> R:
        portal, inner = self._there()

        async def there() -> R:
            document = inner.open(name)
            if not edits:
                return function(document)
            with document.transaction():
                return function(document)

        return portal.call(there)

    @_lent
    def durable(self, name: str) -> None:
        """All of it that is here is on our disk. Raises ConfigError (no store), Broken (the disk)."""
        portal, _ = self._there()
        portal.call(self.read(name, lambda document: document.durable))

    @_lent
    def synced(self, name: str, n: int = 1, timeout: float | None = None) -> None:
        """All of it that is here is on the disks of `n` others. Raises TimedOut."""
        portal, _ = self._there()
        portal.call(self.read(name, lambda document: document.synced), n, timeout)

    @_lent
    def joined(self, name: str, timeout: float | None = None) -> None:
        """Some peer had the same content once. Raises TimedOut, AccessDenied."""
        portal, _ = self._there()
        portal.call(self.read(name, lambda document: document.joined), timeout)

    @_lent
    def save_version(self, name: str, version: str) -> Saved:
        """Keep the content as it is now under `version`."""
        portal, _ = self._there()
        return portal.call(self.read(name, lambda document: document.save_version), version)

    def changes(self, name: str) -> BlockingIterator[Change]:
        """Every transaction from now on, ours and others'; closing the iterator ends it. Raises Full: see Document."""
        portal, _ = self._there()
        reader = self.read(name, lambda document: document.changes())

        async def each() -> AsyncGenerator[Change, None]:
            async for change in reader:
                yield change

        return BlockingIterator(portal, each())

    wait_for_peers = _waits(_peer.DocumentPeer.wait_for_peers)
    dial = _tells(_peer.DocumentPeer.dial)
    address: _Read[str] = _reads(_peer.DocumentPeer.address)
    addresses: _Read[tuple[str, ...]] = _reads(_peer.DocumentPeer.addresses)
    repair_addresses: _Read[tuple[str, ...]] = _reads(_peer.DocumentPeer.repair_addresses)
    peers: _Read[tuple[PeerInfo, ...]] = _reads(_peer.DocumentPeer.peers)
    stats: _Read[PeerStats] = _reads(_peer.DocumentPeer.stats)
    refusals: _Read[tuple[Refusal, ...]] = _reads(_peer.DocumentPeer.refusals)
