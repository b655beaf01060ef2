"""The same objects for programs without an event loop: `with` instead of `async with`, and calls that wait.

::

    from nngkit.blocking import Service, ServiceDiscovery

    with ServiceDiscovery(listen="tcp://127.0.0.1:5555", timeout=0.5) as discovery:
        print(discovery.discover())
        print(discovery.resolve("answer").address)
        for event in discovery.events(): ...

They are no twins: each class here names a class of the async side and the methods that it lends, and everything runs
there, under trio, in one daemon thread: the portal. It starts with the first object and ends with the process, when
what is still open is closed in its own way (a Service says good-bye). Names, arguments, results and errors are the
async side's, and so are the docstrings; type checkers and editors see the real signatures.

Any thread may call. A Ctrl-C ends a wait: what was waited for is cancelled, as trio would cancel it. After fork() the
objects of the parent raise Forked in the child, which may make its own only by starting anew (see docs/protocols.md).
"""

from __future__ import annotations

import atexit
import functools
import os
import queue
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import TracebackType
from typing import Any, ClassVar, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, cast, overload

import trio

from nngkit.discovery import _sigterm
from nngkit.discovery import client as _client
from nngkit.discovery import daemon as _daemon
from nngkit.discovery import resolver as _resolver
from nngkit.discovery import service as _service
from nngkit.discovery import service_discovery as _discovery
from nngkit.documents import document as _document
from nngkit.documents import peer as _peer
from nngkit.documents.threads import Document, as_in
from nngkit.errors import Closed, Forked, NngkitError

__all__ = ["Daemon", "DaemonClient", "DocumentPeer", "Resolver", "Service", "ServiceDiscovery"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

ENDING: Final = 3.0
"""Seconds that all open objects together may take to close at the end of the process: noticed, but no hang."""
NOTICED: Final = 1.0
"""Seconds until a thread is noticed that ended in a transaction."""


# ---- the portal ------------------------------------------------------------------------------------------------------


class _Wait:
    """A thread waits for something in the loop: a gate to wait at, and how it ended."""

    def __init__(self) -> None:
        self._value: Any = None
        self._error: BaseException | None = None
        self._over = False
        self._gate = threading.Lock()
        self._gate.acquire()

    def over(self, value: Any = None, error: BaseException | None = None) -> None:
        """In the loop: it has ended; the first time counts."""
        if not self._over:
            self._over = True
            self._value, self._error = value, error
            self._gate.release()

    def wait(self) -> Any:
        """In the thread. A lock's acquire is ended by signals, so Ctrl-C works."""
        self._gate.acquire()
        error, self._error = self._error, None  # kept, error and frame would hold each other
        if error is not None:
            raise error
        return self._value


def _ended() -> Closed:
    return Closed("nngkit.blocking has ended with the process")


class _Hold:
    """The loop at the service of one thread. A thread that ends without letting go of it is noticed within a second."""

    def __init__(self) -> None:
        self._thread = threading.current_thread()
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], _Wait] | None] = queue.SimpleQueue()

    def do(self, function: Callable[[], R]) -> R:
        """In the thread: have it called."""
        done = _Wait()
        self._work.put((function, done))
        return cast(R, done.wait())

    def end(self) -> None:
        """In the thread: let go of the loop."""
        self._work.put(None)

    def serve(self) -> None:
        """In the loop: do what the thread says, until it lets go."""
        while True:
            try:
                work = self._work.get(timeout=NOTICED)
            except queue.Empty:
                if self._thread.is_alive():
                    continue
                return
            if work is None:
                return
            function, done = work
            try:
                done.over(function())
            except BaseException as error:  # it belongs to the thread, whatever it is
                done.over(error=error)
            del function, done, work


class _Portal:
    """Trio in a daemon thread, with a nursery for calls and one for the objects that live there."""

    def __init__(self) -> None:
        started = _Wait()
        self._holder = threading.local()
        self._thread = threading.Thread(target=self._run, args=(started,), name="nngkit.blocking", daemon=True)
        self._thread.start()
        started.wait()

    def _run(self, started: _Wait) -> None:
        trio.run(self._main, started)

    async def _main(self, started: _Wait) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self.closing = trio.Event()
        async with trio.open_nursery() as calls:
            with trio.CancelScope() as bound:
                async with trio.open_nursery() as lives:
                    self._calls, self._lives = calls, lives
                    started.over()
                    await self.closing.wait()
                    bound.deadline = trio.current_time() + ENDING
            calls.cancel_scope.cancel()

    def soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Have it called in the loop. Raises Closed at the process's end, NngkitError while this thread holds it."""
        if self._holds() is not None:
            raise NngkitError("nothing can be waited for in a transaction: the loop stands still until it ends")
        try:
            self._token.run_sync_soon(function, *arguments)
        except trio.RunFinishedError:
            raise _ended() from None

    def call(self, function: Callable[..., Awaitable[R]], *arguments: Any, **options: Any) -> R:
        """What `function` returns or raises in the loop. Interrupted (Ctrl-C), it is cancelled there."""
        end, scope = _Wait(), trio.CancelScope()

        async def run() -> None:
            try:
                with scope:
                    end.over(await function(*arguments, **options))
            except trio.Cancelled:
                raise
            except BaseException as error:  # it belongs to the caller, whatever it is
                end.over(error=error)
            finally:
                end.over(error=_ended())

        self.soon(self._start, False, run, end)
        try:
            return cast(R, end.wait())
        except BaseException:
            self.soon(scope.cancel)  # harmless if it has ended
            raise

    def do(self, function: Callable[..., R], *arguments: Any, **options: Any) -> R:
        """What `function`, which does not wait, returns or raises in the loop; also while this thread holds it."""
        if (hold := self._holds()) is not None:
            return hold.do(functools.partial(function, *arguments, **options))

        async def there() -> R:
            return function(*arguments, **options)

        return self.call(there)

    def _holds(self) -> _Hold | None:
        hold: _Hold | None = getattr(self._holder, "hold", None)
        return hold

    @contextmanager
    def hold(self) -> Generator[None, None, None]:
        """The loop does what this thread says with `do`, and nothing else, until the end of the block."""
        if self._holds() is not None:
            yield
            return
        hold = _Hold()
        try:
            self.soon(hold.serve)
            self._holder.hold = hold
            yield
        finally:
            self._holder.hold = None
            hold.end()

    def live(self, function: Callable[[], Awaitable[None]], opened: _Wait) -> None:
        """Run `function` until it ends; at the end of the process it sees `closing`, and has ENDING seconds."""
        self.soon(self._start, True, function, opened)

    def spawn(self, function: Callable[[], Awaitable[None]], done: _Wait) -> None:
        """Run `function` until it ends; at the end of the process it is cancelled."""
        self.soon(self._start, False, function, done)

    def _start(self, lives: bool, function: Callable[[], Awaitable[None]], end: _Wait) -> None:
        if self.closing.is_set():
            end.over(error=_ended())
        else:
            (self._lives if lives else self._calls).start_soon(function)

    def end(self) -> None:
        """Close what is open, and the loop."""
        try:
            self.soon(self.closing.set)
        except Closed:
            return
        self._thread.join(ENDING + 1)


_portal: _Portal | None = None
_one = threading.Lock()


def _the_portal() -> _Portal:
    global _portal
    with _one:
        if _portal is None:
            _portal = _Portal()
        return _portal


def _end() -> None:
    if _portal is not None:
        _portal.end()


def _after_fork() -> None:
    # The loop's thread did not come along. Its objects say so; NNG says the rest.
    global _portal, _one
    _portal, _one = None, threading.Lock()


atexit.register(_end)  # after nngkit.protocols registered its own, hence run before: sockets close last
os.register_at_fork(after_in_child=_after_fork)


class _Host:
    """The task in which an async object lives: `async with` has to be entered and left by the same one."""

    def __init__(self, portal: _Portal, inner: Any) -> None:
        self.portal = portal
        self._inner = inner
        self._opened, self._left = _Wait(), _Wait()
        self._leave = False
        self._leaving: trio.Event | None = None
        portal.live(self._live, self._opened)
        try:
            self._opened.wait()
        except BaseException:
            portal.soon(self._go)
            raise

    async def _live(self) -> None:
        self._leaving = trio.Event()
        try:
            async with self._inner:
                self._opened.over()
                if not self._leave:
                    async with trio.open_nursery() as nursery:
                        for event in (self._leaving, self.portal.closing):
                            nursery.start_soon(self._until, event, nursery.cancel_scope)
        except trio.Cancelled:
            self._opened.over(error=_ended())
            raise
        except BaseException as error:
            self._opened.over(error=error)
            self._left.over(error=error)
        finally:
            self._left.over()

    async def _until(self, event: trio.Event, scope: trio.CancelScope) -> None:
        await event.wait()
        scope.cancel()

    def _go(self) -> None:
        self._leave = True
        if self._leaving is not None:
            self._leaving.set()

    def close(self) -> None:
        """Have it leave, and wait until it has. Raises what made it fail."""
        try:
            self.portal.soon(self._go)
        except Closed:
            return  # with the end of the process it has closed by itself
        self._left.wait()


# ---- lending methods -------------------------------------------------------------------------------------------------


class Blocking(Generic[T]):
    """An object of the async side, hosted by the portal between `__enter__` and `__exit__`."""

    _of: ClassVar[Callable[..., Any]]

    def _construct(self, *arguments: Any, **options: Any) -> None:
        self._inner: T = self._of(*arguments, **options)
        self._pid = os.getpid()
        self._host: _Host | None = None

    def _there(self) -> tuple[_Portal, T]:
        if self._pid != os.getpid():
            raise Forked(f"this {type(self).__name__} belongs to the process that made it")
        if self._host is None:
            raise Closed(f"this {type(self).__name__} is not open: use it in a `with`")
        return self._host.portal, self._inner

    def __enter__(self) -> Self:
        _sigterm.install()  # only a main thread can; the loop is in another
        self._host = _Host(_the_portal(), self._inner)
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
) -> Callable[Concatenate[Blocking[T], P], Iterator[R]]:
    """An async generator method, as an iterator that waits; closing the iterator closes the generator."""

    @functools.wraps(method)
    def call(self: Blocking[T], /, *arguments: P.args, **options: P.kwargs) -> Generator[R, None, None]:
        portal, inner = self._there()
        yield from _pump(portal, method(inner, *arguments, **options))

    return call


def _pump(portal: _Portal, source: AsyncGenerator[R, None]) -> Generator[R, None, None]:
    # A task owns the generator and hands over item by item: one that is taken but not asked for is not lost.
    send, receive = trio.open_memory_channel[R](0)

    async def pour() -> None:
        async with send:
            try:
                async for item in source:
                    await send.send(item)
            except trio.BrokenResourceError:
                pass
            finally:
                with trio.CancelScope(shield=True):
                    await source.aclose()

    done, scope = _Wait(), trio.CancelScope()

    async def run() -> None:
        try:
            with scope:
                await pour()
        except trio.Cancelled:
            raise
        except BaseException as error:
            done.over(error=error)
        finally:
            done.over()

    portal.spawn(run, done)
    try:
        while True:
            try:
                yield portal.call(receive.receive)
            except trio.EndOfChannel:
                done.wait()
                return
    finally:
        with suppress(Closed):
            portal.soon(scope.cancel)


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
    """The property of a class; type checkers take it for its getter, at run time it has one."""
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
    address = _reads(_discovery.ServiceDiscovery.address)
    addresses = _reads(_discovery.ServiceDiscovery.addresses)
    counts = _reads(_discovery.ServiceDiscovery.counts)
    rounds = _reads(_discovery.ServiceDiscovery.rounds)
    stats = _reads(_discovery.ServiceDiscovery.stats)


class Service(Blocking[_service.Service]):
    """One provider of a service, found until it is closed: see nngkit.Service."""

    _of = _service.Service

    @_opens(_service.Service)
    def __init__(self) -> None: ...

    wait_for_peers = _waits(_service.Service.await_for_peers)
    update = _tells(_service.Service.update)
    drain = _tells(_service.Service.drain)
    provider = _reads(_service.Service.provider)
    counts = _reads(_service.Service.counts)
    stats = _reads(_service.Service.stats)


class Resolver(Blocking[_resolver.Resolver]):
    """Knows who can be called, from several daemons: see nngkit.discovery.Resolver."""

    _of = _resolver.Resolver

    @_opens(_resolver.Resolver)
    def __init__(self) -> None: ...

    find = _waits(_resolver.Resolver.find)
    events = _iterates(_resolver.Resolver.events)
    resolve = _does(_resolver.Resolver.resolve)
    snapshot = _does(_resolver.Resolver.snapshot)
    fresh = _reads(_resolver.Resolver.fresh)


class Daemon(Blocking[_daemon.Daemon]):
    """A discovery daemon, in a program that has other things to do: see nngkit.discovery.Daemon."""

    _of = _daemon.Daemon

    @_opens(_daemon.Daemon)
    def __init__(self) -> None: ...

    run = _waits(_daemon.Daemon.run)
    addresses = _reads(_daemon.Daemon.addresses)
    query_addresses = _reads(_daemon.Daemon.query_addresses)


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
    me = _reads(_peer.DocumentPeer.me)
    wait_for_peers = _waits(_peer.DocumentPeer.wait_for_peers)
    dial = _tells(_peer.DocumentPeer.dial)
    address = _reads(_peer.DocumentPeer.address)
    addresses = _reads(_peer.DocumentPeer.addresses)
    repair_addresses = _reads(_peer.DocumentPeer.repair_addresses)
    peers = _reads(_peer.DocumentPeer.peers)
    stats = _reads(_peer.DocumentPeer.stats)
    refusals = _reads(_peer.DocumentPeer.refusals)


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

    def iterate(self, source: AsyncGenerator[R, None]) -> Generator[R, None, None]:
        portal, _ = self._peer._there()
        return _pump(portal, source)

    def hold(self) -> AbstractContextManager[None]:
        portal, _ = self._peer._there()
        return portal.hold()
