"""The async classes for asyncio programs: `async with`, `await` and `async for` under asyncio.

::

    from nngkit.aio import Client, Server

    async with Client("answer", daemons=["tcp://daemon:5556"]) as answer:
        async with asyncio.timeout(1.0):
            print(await answer.request(b"?"))

Names, arguments, results, errors and docstrings are those of the classes under trio. The objects live in a background
thread with a trio loop, the portal, as those of nngkit.blocking do; a call of a `Client` is made in the program's own
loop, and the handlers of a `Server` are tasks of it. The sockets of nngkit.protocols need no wrapper.

A cancelled or timed-out call is cancelled in the portal too, and has ended there when it raises. Methods that never
wait (`resolve`, `stats`, edits of a document) are plain functions here too; those of a document run in the portal's
thread, and the loop waits for them, some 0.1 ms. docs/asyncio.md compares this with trio's guest mode.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast

import trio

from nngkit.calls import client as _calls_client
from nngkit.calls import server as _calls_server
from nngkit.calls.handlers import Calling, takes_two
from nngkit.calls.stream import Stream
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
from nngkit.documents import threads as _threads
from nngkit.documents.changes import Change
from nngkit.documents.records import Saved
from nngkit.documents.versions import EditStream
from nngkit.errors import Closed, ConfigError
from nngkit.hosted import Hosted, HostedProperty, direct_call, hosted_property, loop_call, signature_of
from nngkit.journal import recorder as _recorder
from nngkit.portal import Host, Portal, Pump, Wait, end, the_portal
from nngkit.protocols import DEFAULT, Timeout

__all__ = [
    "AsyncioIterator",
    "Client",
    "Daemon",
    "DaemonClient",
    "Document",
    "DocumentPeer",
    "Recorder",
    "Resolver",
    "Server",
    "Service",
    "ServiceDiscovery",
]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

STOPPING = 1.0
"""Seconds that a cancelled handler may take before its caller gets the error."""

atexit.register(end)  # after nngkit.protocols registered its own, hence run before: sockets close last


# ---- waiting for the portal ------------------------------------------------------------------------------------------


class _LoopWait(Wait):
    """Wait of a task of the running loop; the portal sets the outcome."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()

    def over(self, value: Any = None, error: BaseException | None = None) -> None:
        """Set the result; only the first call counts. In the portal's thread."""
        if self._over:
            return
        super().over(value, error)
        with suppress(RuntimeError):  # the program's loop has ended
            self._loop.call_soon_threadsafe(self._set)

    def _set(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def result(self) -> Any:
        """Return or raise the outcome."""
        await asyncio.shield(self._future)
        return self.wait()  # it is there

    async def settled(self) -> asyncio.CancelledError | None:
        """Wait for the outcome, even if cancelled; return the cancellation, which the caller raises."""
        cancelled = None
        while not self._future.done():
            try:
                await asyncio.wait([self._future])
            except asyncio.CancelledError as error:
                cancelled = error
        return cancelled


async def _in_portal(
    portal: Portal, call: Callable[[], Awaitable[R]], unused: Callable[[R], object] | None = None
) -> R:
    """Run a coroutine function in the portal. If cancelled, it was cancelled there, and has ended.

    unused   gets the result of a call that returned although it was cancelled
    """
    end, scope = _LoopWait(), trio.CancelScope()
    portal.begin(call, end, scope)
    try:
        return cast(R, await end.result())
    except asyncio.CancelledError:
        portal.later(scope.cancel)
        await end.settled()
        with suppress(BaseException):  # the caller gets the cancellation
            value = end.wait()
            if unused is not None:
                unused(value)
        raise


class Aio(Hosted[T]):
    """Base class: an async object, hosted by the portal between `__aenter__` and `__aexit__`."""

    _block = "an `async with`"

    async def __aenter__(self) -> Self:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            why = "it runs under asyncio, and no asyncio loop is running; trio programs use the class of the same name"
            raise ConfigError(type(self).__name__, f"{why} in nngkit") from None
        _sigterm.install()  # only the main thread may; the portal is another
        host = Host(the_portal(), self._inner, _LoopWait)
        opened = cast(_LoopWait, host.opened)
        try:
            await opened.result()
        except BaseException:
            with suppress(Closed):
                host.portal.soon(host.go)
            await cast(_LoopWait, host.left).settled()
            raise
        self._host = host
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the object, as leaving the `async with` does; also when cancelled. Idempotent."""
        host, self._host = self._host, None
        if host is None:
            return
        try:
            host.portal.soon(host.go)
        except Closed:
            return  # it was closed at the end of the process
        left = cast(_LoopWait, host.left)
        cancelled = await left.settled()
        left.wait()
        if cancelled is not None:
            raise cancelled


def _awaited(
    method: Callable[Concatenate[T, P], Awaitable[R]],
) -> Callable[Concatenate[Aio[T], P], Coroutine[Any, Any, R]]:
    """Wrap a coroutine method: it runs in the portal."""

    @functools.wraps(method)
    async def call(self: Aio[T], /, *arguments: P.args, **options: P.kwargs) -> R:
        portal, inner = self._open_object()
        return await _in_portal(portal, functools.partial(method, inner, *arguments, **options))

    return call


class AsyncioIterator(AsyncIterator[R], Generic[R]):
    """Async iterator over an async generator in the portal. `aclose` ends it; so does garbage collection.

    A cancelled wait takes no item.
    """

    def __init__(self, portal: Portal, source: AsyncGenerator[R, None]) -> None:
        self._portal = portal
        self._pump = Pump(source)
        self._begun = False
        self._closed = False
        self._kept: deque[R] = deque()  # items that arrived while their wait was cancelled

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> R:
        if self._closed:
            raise StopAsyncIteration
        if self._kept:
            return self._kept.popleft()
        if not self._begun:
            self._begun = True
            self._portal.spawn(self._pump.run)
        try:
            return await _in_portal(self._portal, self._pump.receive.receive, self._kept.append)
        except trio.EndOfChannel:
            failure, self._pump.failure = self._pump.failure, None
            if failure is not None:
                raise failure from None
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """End the iteration. Idempotent."""
        self._end()
        await asyncio.sleep(0)

    def _end(self) -> None:
        self._closed = True
        if self._begun:
            self._portal.later(self._pump.scope.cancel)

    def close(self) -> None:
        """End the iteration, without a checkpoint. Idempotent."""
        self._end()

    def __del__(self) -> None:
        self._end()


def _iterated(
    method: Callable[Concatenate[T, P], AsyncGenerator[R, None]],
) -> Callable[Concatenate[Aio[T], P], AsyncioIterator[R]]:
    """Wrap an async generator method; closing the iterator closes the generator."""

    @functools.wraps(method)
    def call(self: Aio[T], /, *arguments: P.args, **options: P.kwargs) -> AsyncioIterator[R]:
        portal, inner = self._open_object()
        return AsyncioIterator(portal, method(inner, *arguments, **options))

    return call


# ---- functions of the program, called from the portal ----------------------------------------------------------------


class _Bridge:
    """Handlers of an asyncio program, as handlers of a server in the portal. `loop`: the program's, once it runs."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None

    def handler(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a handler for the portal; plain functions run in its worker threads as they are."""
        if inspect.isasyncgenfunction(function):
            return self._generator(function)
        if not inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
        ):
            return function
        two = takes_two(function)

        async def bridged(body: Any, calling: Calling) -> Any:
            return await self.run(functools.partial(function, body, calling))

        async def bridged_body(body: Any) -> Any:
            return await self.run(functools.partial(function, body))

        return bridged if two else bridged_body

    def _generator(self, function: Callable[..., AsyncGenerator[Any, None]]) -> Callable[..., Any]:
        two = takes_two(function)

        async def bridged(body: Any, calling: Calling | None = None) -> AsyncGenerator[Any, None]:
            made = function(body, calling) if two else function(body)
            try:
                while True:
                    try:
                        part = await self.run(made.__anext__)
                    except StopAsyncIteration:
                        return
                    yield part
            finally:
                with trio.CancelScope(shield=True), trio.move_on_after(STOPPING):
                    await self.run(made.aclose)

        return bridged

    def callback(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a callback for the portal, such as a health check; a plain function is called there as it is."""
        if not inspect.iscoroutinefunction(function):
            return function

        async def bridged(*arguments: Any) -> Any:
            return await self.run(functools.partial(function, *arguments))

        return bridged

    def callbacks(self, options: dict[str, Any]) -> None:
        """Replace the callbacks among the arguments of a Service or Server."""
        for name in ("on_question", "healthy"):
            if callable(options.get(name)):
                options[name] = self.callback(options[name])

    async def run(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Run a coroutine function as a task of the program's loop, from the portal. Cancelling cancels the task."""
        loop, token = self.loop, trio.lowlevel.current_trio_token()
        assert loop is not None
        done = trio.Event()
        tasks: list[asyncio.Task[Any]] = []

        async def main() -> Any:
            return await call()

        def finished(task: asyncio.Task[Any]) -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(done.set)

        def start() -> None:
            task = loop.create_task(main())
            tasks.append(task)
            task.add_done_callback(finished)

        def cancel() -> None:
            for task in tasks:
                task.cancel()

        try:
            loop.call_soon_threadsafe(start)
        except RuntimeError:
            raise Closed("the asyncio loop of this server has ended") from None
        try:
            await done.wait()
        except trio.Cancelled:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(cancel)
            with trio.CancelScope(shield=True), trio.move_on_after(STOPPING):
                await done.wait()
                if tasks and not tasks[0].cancelled():
                    tasks[0].exception()  # seen: asyncio would report it
            raise
        if tasks[0].cancelled():
            raise Closed("the handler's task was cancelled")
        return tasks[0].result()


# ---- discovery -------------------------------------------------------------------------------------------------------


class ServiceDiscovery(Aio[_discovery.ServiceDiscovery]):
    """Surveys all connected services: see nngkit.ServiceDiscovery."""

    _of = _discovery.ServiceDiscovery

    @signature_of(_discovery.ServiceDiscovery)
    def __init__(self) -> None: ...

    ask = _awaited(_discovery.ServiceDiscovery.ask)
    resolution = direct_call(_discovery.ServiceDiscovery.resolution)
    discover = _awaited(_discovery.ServiceDiscovery.discover)
    wait_for_peers = _awaited(_discovery.ServiceDiscovery.wait_for_peers)
    events = _iterated(_discovery.ServiceDiscovery.events)
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
        self._bridge = _Bridge()
        self._bridge.callbacks(options)
        super()._construct(*arguments, **options)

    async def __aenter__(self) -> Self:
        with suppress(RuntimeError):  # reported below
            self._bridge.loop = asyncio.get_running_loop()
        return await super().__aenter__()

    wait_for_peers = _awaited(_service.Service.wait_for_peers)
    update = loop_call(_service.Service.update)
    drain = loop_call(_service.Service.drain)
    provider: HostedProperty[Provider] = hosted_property(_service.Service.provider)
    stats: HostedProperty[_service.ServiceStats] = hosted_property(_service.Service.stats)


class Resolver(Aio[_resolver.Resolver]):
    """View of the providers, from several daemons: see nngkit.discovery.Resolver."""

    _of = _resolver.Resolver

    @signature_of(_resolver.Resolver)
    def __init__(self) -> None: ...

    ask = _awaited(_resolver.Resolver.ask)
    resolution = direct_call(_resolver.Resolver.resolution)
    find = _awaited(_resolver.Resolver.find)
    events = _iterated(_resolver.Resolver.events)
    resolve = direct_call(_resolver.Resolver.resolve)
    snapshot = direct_call(_resolver.Resolver.snapshot)
    answers = direct_call(_resolver.Resolver.answers)
    fresh: HostedProperty[bool] = hosted_property(_resolver.Resolver.fresh)


class Daemon(Aio[_daemon.Daemon]):
    """Discovery daemon inside another program: see nngkit.discovery.Daemon."""

    _of = _daemon.Daemon

    @signature_of(_daemon.Daemon)
    def __init__(self) -> None: ...

    run = _awaited(_daemon.Daemon.run)
    addresses: HostedProperty[tuple[str, ...]] = hosted_property(_daemon.Daemon.addresses)
    query_addresses: HostedProperty[tuple[str, ...]] = hosted_property(_daemon.Daemon.query_addresses)


class DaemonClient(Aio[_client.DaemonClient]):
    """Client of one daemon: see nngkit.discovery.DaemonClient."""

    _of = _client.DaemonClient

    @signature_of(_client.DaemonClient)
    def __init__(self) -> None: ...

    ask = _awaited(_client.DaemonClient.ask)
    resolve = _awaited(_client.DaemonClient.resolve)
    snapshot = _awaited(_client.DaemonClient.snapshot)
    rounds = _awaited(_client.DaemonClient.rounds)
    watch = _awaited(_client.DaemonClient.watch)


# ---- calls -----------------------------------------------------------------------------------------------------------


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

    wait_for_providers = _awaited(_calls_client.Client.wait_for_providers)
    stats: HostedProperty[_calls_client.ClientStats] = hosted_property(_calls_client.Client.stats)


class Server(Aio[_calls_server.Server]):
    """A provider of a service: see nngkit.Server. Async handlers are tasks of the program's loop."""

    _of = _calls_server.Server

    @signature_of(_calls_server.Server)
    def __init__(self) -> None: ...

    def _construct(self, name: str, handler: Callable[..., Any] | None = None, **options: Any) -> None:
        self._bridge = _Bridge()
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

    wait_for_daemons = _awaited(_calls_server.Server.wait_for_daemons)
    drain = loop_call(_calls_server.Server.drain)

    def update(self, **changes: Any) -> None:
        portal, inner = self._open_object()
        portal.do(inner.update, **changes)

    update.__doc__ = _calls_server.Server.update.__doc__

    address: HostedProperty[str] = hosted_property(_calls_server.Server.address)
    provider: HostedProperty[Provider] = hosted_property(_calls_server.Server.provider)
    stats: HostedProperty[_calls_server.ServerStats] = hosted_property(_calls_server.Server.stats)


# ---- journal ---------------------------------------------------------------------------------------------------------


class Recorder(Aio[_recorder.Recorder]):
    """Recorder of one partition of a journal: see nngkit.Recorder."""

    _of = _recorder.Recorder

    @signature_of(_recorder.Recorder)
    def __init__(self) -> None: ...

    put = loop_call(_recorder.Recorder.put)
    store = _awaited(_recorder.Recorder.store)
    flush = _awaited(_recorder.Recorder.flush)
    wait_for_room = _awaited(_recorder.Recorder.wait_for_room)
    recorded = loop_call(_recorder.Recorder.recorded)
    record = _awaited(_recorder.Recorder.record)
    stats: HostedProperty[_recorder.RecorderStats] = hosted_property(_recorder.Recorder.stats)


# ---- documents -------------------------------------------------------------------------------------------------------


class Document(_threads.Document):
    """A document of nngkit.documents, for asyncio. `DocumentPeer.open` returns it.

    Edits are plain calls; `durable`, `synced`, `joined` and `save_version` are awaited, `changes` is an async iterator.
    """

    _loop: _PeerLoop

    async def durable(self) -> None:  # type: ignore[override]
        await self._loop.awaiting(self._inner.durable)

    async def synced(self, n: int = 1, timeout: float | None = None) -> None:  # type: ignore[override]
        await self._loop.awaiting(self._inner.synced, n, timeout)

    async def joined(self, timeout: float | None = None) -> None:  # type: ignore[override]
        await self._loop.awaiting(self._inner.joined, timeout)

    async def save_version(self, name: str) -> Saved:  # type: ignore[override]
        return await self._loop.awaiting(self._inner.save_version, name)

    def changes(self) -> AsyncioIterator[Change]:  # type: ignore[override]
        """Iterate over transactions from now on, local and remote. Raises Full: see changes.py."""
        return cast(AsyncioIterator[Change], super().changes())

    def at(self, name: str) -> Document:
        return Document(self._loop.do(self._inner.at, name), self._loop)

    durable.__doc__ = _document.Document.durable.__doc__
    synced.__doc__ = _document.Document.synced.__doc__
    joined.__doc__ = _document.Document.joined.__doc__
    save_version.__doc__ = _document.Document.save_version.__doc__
    at.__doc__ = _document.Document.at.__doc__


class DocumentPeer(Aio[_peer.DocumentPeer]):
    """A peer that edits documents concurrently with others: see nngkit.documents.DocumentPeer."""

    _of = _peer.DocumentPeer

    @signature_of(_peer.DocumentPeer)
    def __init__(self) -> None: ...

    def _construct(self, *arguments: Any, **options: Any) -> None:
        super()._construct(*arguments, **options)
        self._documents: dict[str, tuple[_document.Document, Document]] = {}
        self._opening = threading.Lock()

    @_threads.as_in(_peer.DocumentPeer.open)
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
    dial = loop_call(_peer.DocumentPeer.dial)
    wait_for_peers = _awaited(_peer.DocumentPeer.wait_for_peers)
    me: HostedProperty[EditStream] = hosted_property(_peer.DocumentPeer.me)
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
        raise TypeError("a wait is awaited: Document.durable() and its kin are coroutines here")

    async def awaiting(self, function: Callable[P, Awaitable[R]], *arguments: P.args, **options: P.kwargs) -> R:
        """Await a coroutine function of the document in the portal."""
        portal, _ = self._peer._open_object()
        return await _in_portal(portal, functools.partial(function, *arguments, **options))

    def iterate(self, source: AsyncGenerator[R, None]) -> Any:
        """Return an async iterator over `source`."""
        portal, _ = self._peer._open_object()
        return AsyncioIterator(portal, source)

    def hold(self) -> AbstractContextManager[None]:
        portal, _ = self._peer._open_object()
        return portal.hold()
