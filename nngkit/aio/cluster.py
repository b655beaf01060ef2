"""Clusters for asyncio programs: nodes, whose handlers and work functions are tasks of the program's loop.

::

    from nngkit.aio import Member

    async with Member("render", dial=["tcp://a:7000"], slots=4) as node:
        await node.joined(timeout=5)

        @node.work("render")
        async def render(job): return await draw(job.payload)

        async for picture in node.map("render", scenes): ...

The node itself lives in the portal: a program that computes, or blocks by mistake, is not taken for a dead neighbour.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from nngkit.aio._base import Aio, AsyncioIterator, awaited, in_portal
from nngkit.aio._bridge import Bridge
from nngkit.cluster import endpoint as _endpoint
from nngkit.cluster import hosting as _hosting
from nngkit.cluster.containing import plain
from nngkit.cluster.shell import jobs as _jobs
from nngkit.cluster.shell import sharing as _sharing
from nngkit.documents.threads import as_in
from nngkit.hosted import HostedProperty, hosted_property, loop_call, signature_of
from nngkit.portal import Calls

if TYPE_CHECKING:
    from nngkit.aio.documents import Document

__all__ = ["Host", "Member"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

CHUNK: Final = 64  # payloads taken from an iterable at once: a trip to the program's loop costs as much as 60 jobs
CHUNK_TIME: Final = 0.005  # seconds after which an iterable that takes its time gives what it has


class _Block:
    """The block of a node, in the task that entered it: cancelled once if the node fails, as by asyncio.timeout."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[Any] | None = task
        self._before = task.cancelling()
        self._requested = False

    def cancel_soon(self) -> None:
        """Cancel the block. In the portal's thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:  # else the block ends already, and raises the failure
            self._requested = self._task.cancel()

    def end(self) -> bool:
        """Take the request back. Return True if the program has cancelled the task, too."""
        task, self._task = self._task, None
        if task is None:
            return False
        return (task.uncancel() if self._requested else task.cancelling()) > self._before


class Job:
    """A submitted job, which the host has accepted: see nngkit.cluster.Job."""

    def __init__(self, inner: _jobs.Job, portal: Calls) -> None:
        self._inner = inner
        self._portal = portal
        self.id = inner.id
        self.kind = inner.kind

    @property
    def progress(self) -> float:
        """The last progress that its worker has reported, from 0 to 1; 0.0 before."""
        return self._inner.progress

    @property
    def lost_parts(self) -> int:
        """Parts that were dropped as they were not read."""
        return self._inner.lost_parts

    @property
    def done(self) -> bool:
        """True once it has ended, whatever its outcome."""
        return self._inner.done

    @as_in(_jobs.Job.result)
    async def result(self, timeout: float | None = None) -> bytes:
        return await in_portal(self._portal, functools.partial(self._inner.result, timeout))

    @as_in(_jobs.Job.parts)
    def parts(self) -> AsyncioIterator[bytes]:
        return AsyncioIterator(self._portal, self._inner.parts())

    @as_in(_jobs.Job.cancel)
    def cancel(self) -> None:
        self._portal.later(self._inner.cancel)

    def __repr__(self) -> str:
        return repr(self._inner)


class Shared:
    """Handle of a shared object: see nngkit.cluster.Shared. The object is called in the background thread."""

    def __init__(self, inner: _sharing.Shared, portal: Calls) -> None:
        self._inner = inner
        self._portal = portal
        self.name = inner.name
        self.content = inner.content
        self._seen = inner._changed  # set by the next change, so that none between two waits is missed

    @property
    def behind(self) -> bool:
        """True while the full state or changes are missing here, as far as is known."""
        return self._portal.do(lambda: self._inner.behind)

    @as_in(_sharing.Shared.change)
    async def change(self, fragment: bytes, timeout: float | None = None) -> None:
        await in_portal(self._portal, functools.partial(self._inner.change, fragment, timeout))

    async def wait_for_change(self) -> None:
        """Wait until the object has changed, by whichever node, since the last wait or `share`. Raises Closed."""
        await in_portal(self._portal, self._wait)

    async def _wait(self) -> None:
        await self._seen.wait()
        self._seen = self._inner._changed
        self._inner._check()


class _Node(Aio[Any]):  # an Endpoint, whose methods come from several classes
    """Node of a cluster: see nngkit.cluster.Endpoint.

    Async handlers and work functions are tasks of the program's loop; so is `progress` of `map` called there, and the
    functions of `on_gap`, `on_client_added` and `on_client_removed`. Plain handlers and work functions run in worker
    threads, an authenticator and a shared object in the background thread: they must be quick.
    """

    def _construct(self, *arguments: Any, **options: Any) -> None:
        self._bridge = Bridge()
        self._work_bridge = Bridge()
        self._documents: dict[str, tuple[Any, Document]] = {}
        self._opening = threading.Lock()
        if isinstance(journal := options.get("journal"), Aio):
            options["journal"] = journal._open_object()[1]
        super()._construct(*arguments, **options)

    async def __aenter__(self) -> Self:
        with suppress(RuntimeError):  # reported below
            self._bridge.loop = self._work_bridge.loop = asyncio.get_running_loop()
        await super().__aenter__()
        self._block_of = _Block()
        assert self._host is not None
        self._host.watch(self._block_of.cancel_soon)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        cancelled = self._block_of.end()
        try:
            await super().__aexit__(kind, value, traceback)
        except Exception:
            if not (cancelled and isinstance(value, asyncio.CancelledError)):
                raise
            # the program's own cancellation goes on; the failure is in the log

    # ---- what it is

    @property
    def id(self) -> str:
        """Id of this node."""
        return str(self._inner.id)

    @property
    def epoch(self) -> int:
        """Run of this node: microseconds since 1970 at its start."""
        return int(self._inner.epoch)

    @property
    def cluster(self) -> str:
        """Name of the cluster."""
        return str(self._inner.cluster)

    address: HostedProperty[str | None] = hosted_property(_endpoint.Endpoint.address)
    role: HostedProperty[str] = hosted_property(_endpoint.Endpoint.role)
    holds_lease: HostedProperty[bool] = hosted_property(_endpoint.Endpoint.holds_lease)
    term: HostedProperty[int] = hosted_property(_endpoint.Endpoint.term)
    host: HostedProperty[str | None] = hosted_property(_endpoint.Endpoint.host)
    path: HostedProperty[tuple[str, ...]] = hosted_property(_endpoint.Endpoint.path)
    parent: HostedProperty[str | None] = hosted_property(_endpoint.Endpoint.parent)
    children: HostedProperty[tuple[str, ...]] = hosted_property(_endpoint.Endpoint.children)
    journal_dropped: HostedProperty[int] = hosted_property(_endpoint.Endpoint.journal_dropped)
    joined = awaited(_endpoint.Endpoint.joined)
    wait_for_change = awaited(_endpoint.Endpoint.wait_for_change)
    status = awaited(_endpoint.Endpoint.status)
    tree = awaited(_endpoint.Endpoint.tree)

    @as_in(_endpoint.Endpoint.drain)
    async def drain(self, id: str | None = None, timeout: float | None = 5.0) -> None:
        portal, inner = self._open_object()
        if id is None or id == inner.id:
            inner._workers.refuse_drain(asyncio.current_task() in self._work_bridge.tasks)
        await in_portal(portal, functools.partial(inner.drain, id, timeout))

    # ---- messages

    @as_in(_endpoint.Endpoint.on)
    def on(self, kind: str | None = None) -> Callable[[F], F]:
        def decorate(function: F) -> F:
            self._inner.on(kind)(self._bridge.handler(function))
            return function

        return decorate

    @as_in(_endpoint.Endpoint.on_gap)
    def on_gap(self, function: Callable[[Any], object]) -> None:
        self._inner.on_gap(self._in_loop(function))

    @as_in(_endpoint.Endpoint.on_client_added)
    def on_client_added(self, function: Callable[[str], object]) -> None:
        self._inner.on_client_added(self._in_loop(function))

    @as_in(_endpoint.Endpoint.on_client_removed)
    def on_client_removed(self, function: Callable[[str], object]) -> None:
        self._inner.on_client_removed(self._in_loop(function))

    def _in_loop(self, function: Callable[[Any], object]) -> Callable[[Any], None]:
        """Return a function that has `function` called by the program's loop. Raises ConfigError for an async one."""
        plain(function)

        def call(argument: Any) -> None:
            if self._bridge.loop is not None:
                with suppress(RuntimeError):  # the loop has ended
                    self._bridge.loop.call_soon_threadsafe(function, argument)

        return call

    send = awaited(_endpoint.Endpoint.send)
    send_many = awaited(_endpoint.Endpoint.send_many)

    # ---- jobs

    @as_in(_endpoint.Endpoint.work)
    def work(self, kind: str, *, concurrency: int = 1, timeout: float | None = None) -> Callable[[F], F]:
        def decorate(function: F) -> F:
            register = functools.partial(
                self._inner.work(kind, concurrency=concurrency, timeout=timeout), self._work_bridge.handler(function)
            )
            if self._host is None:
                register()
            else:
                self._host.portal.do(register)
            return function

        return decorate

    @as_in(_endpoint.Endpoint.submit)
    async def submit(
        self,
        kind: str,
        payload: bytes,
        *,
        key: bytes | str | None = None,
        priority: int = 0,
        tries: int = 3,
        visibility: float = 30.0,
        deadline: float | None = None,
        delay: float = 0.0,
        stream: bool = False,
        timeout: float | None = None,
    ) -> Job:
        portal, inner = self._open_object()
        submit = functools.partial(
            inner.submit,
            key=key,
            priority=priority,
            tries=tries,
            visibility=visibility,
            deadline=deadline,
            delay=delay,
            stream=stream,
            timeout=timeout,
        )

        def unused(job: _jobs.Job) -> None:  # accepted at the moment of the cancellation; see Endpoint.submit
            if key is None:
                portal.later(job.cancel)

        return Job(await in_portal(portal, lambda: submit(kind, payload), unused), portal)

    @as_in(_endpoint.Endpoint.map)
    def map(
        self,
        kind: str,
        payloads: Iterable[bytes] | AsyncIterable[bytes],
        *,
        in_flight: int = 1000,
        progress: Callable[[int], object] | None = None,
        **options: Any,
    ) -> AsyncioIterator[bytes]:
        portal, inner = self._open_object()
        counted = None if progress is None else self._in_loop(progress)
        given = payloads if isinstance(payloads, Sequence) else self._taken(payloads)
        results = inner.map(kind, given, in_flight=in_flight, progress=counted, **options)
        return AsyncioIterator(portal, results, whole=True)

    async def _taken(self, payloads: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
        """Yield payloads of an iterable, which is iterated over in the program's loop; in the portal."""
        if isinstance(payloads, AsyncIterable):
            source = aiter(payloads)
            while (chunk := await self._bridge.run(functools.partial(_next, source))) is not None:
                yield chunk
            return
        iterator = iter(payloads)
        while chunk := await self._bridge.run(functools.partial(_some, iterator)):
            for payload in chunk:
                yield payload

    # ---- documents

    @as_in(_endpoint.Endpoint.document)
    def document(self, name: str) -> Document:
        portal, inner = self._open_object()
        opened = portal.do(inner.document, name)
        documents = import_module("nngkit.aio.documents")  # without the extra, only programs with documents fail
        with self._opening:
            known, document = self._documents.get(name, (None, None))
            if document is None or known is not opened:
                document = documents.Document(opened, documents.HostedLoop(self))
                self._documents[name] = opened, document
            return document

    @as_in(_endpoint.Endpoint.share)
    def share(self, name: str, content: Any) -> Shared:
        portal, inner = self._open_object()
        return portal.do(lambda: Shared(inner.share(name, content), portal))

    request_full_document = loop_call(_endpoint.Endpoint.request_full_document)


async def _next(source: AsyncIterator[bytes]) -> bytes | None:
    return await anext(source, None)


async def _some(iterator: Iterator[bytes]) -> list[bytes]:
    """Return the next payloads of an iterator; none at its end."""
    found: list[bytes] = []
    until = time.monotonic() + CHUNK_TIME
    for payload in iterator:
        found.append(payload)
        if len(found) == CHUNK or time.monotonic() >= until:
            break
    return found


class Host(_Node):
    """Node that may be the host of its cluster: see nngkit.cluster.Host."""

    _of = _hosting.Host
    address: HostedProperty[str] = hosted_property(_hosting.Host.address)

    @signature_of(_hosting.Host)
    def __init__(self) -> None: ...


class Member(_Node):
    """Node that joins a cluster: see nngkit.cluster.Member."""

    _of = _hosting.Member

    @signature_of(_hosting.Member)
    def __init__(self) -> None: ...
