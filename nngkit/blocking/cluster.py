"""Clusters without an event loop: nodes, whose handlers and work functions are plain functions in worker threads.

::

    from nngkit.blocking import Member

    with Member("render", dial=["tcp://a:7000"], slots=4) as node:
        node.joined(timeout=5)

        @node.work("render")
        def render(job): return draw(job.payload)

        for picture in node.map("render", scenes): ...
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Self, TypeVar

from nngkit.background import WakeUp
from nngkit.blocking._base import Blocking, blocking_call
from nngkit.blocking.documents import HostedLoop
from nngkit.cluster import endpoint as _endpoint
from nngkit.cluster import hosting as _hosting
from nngkit.cluster.shell import jobs as _jobs
from nngkit.cluster.shell import sharing as _sharing
from nngkit.cluster.shell.map import Payloads
from nngkit.documents.threads import Document, as_in
from nngkit.hosted import HostedProperty, hosted_property, loop_call, signature_of
from nngkit.loop_waits import on_behalf
from nngkit.portal import BlockingIterator, Calls

__all__ = ["Host", "Member"]

F = TypeVar("F", bound=Callable[..., Any])

CHUNK: Final = 64  # payloads that a thread finds ahead in an iterable: handing each over costs as much as some jobs


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

    @on_behalf
    @as_in(_jobs.Job.result)
    def result(self, timeout: float | None = None) -> bytes:
        return self._portal.call(self._inner.result, timeout)

    @as_in(_jobs.Job.parts)
    def parts(self) -> BlockingIterator[bytes]:
        return BlockingIterator(self._portal, self._inner.parts())

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

    @on_behalf
    @as_in(_sharing.Shared.change)
    def change(self, fragment: bytes, timeout: float | None = None) -> None:
        self._portal.call(self._inner.change, fragment, timeout)

    @on_behalf
    def wait_for_change(self) -> None:
        """Wait until the object has changed, by whichever node, since the last wait or `share`. Raises Closed."""
        self._portal.call(self._wait)

    async def _wait(self) -> None:
        await self._seen.wait()
        self._seen = self._inner._changed
        self._inner._check()


class _Node(Blocking[Any]):  # an Endpoint, whose methods come from several classes
    """Node of a cluster: see nngkit.cluster.Endpoint.

    Handlers and work functions are plain functions, which run in worker threads; a generator yields the parts of a
    result. The functions of `on_gap`, `on_client_added`, `on_client_removed` and `progress`, an authenticator and a
    shared object are called in the loop's thread: they must be quick.
    """

    def _construct(self, *arguments: Any, **options: Any) -> None:
        self._documents: dict[str, tuple[Any, Document]] = {}
        self._opening = threading.Lock()
        if isinstance(journal := options.get("journal"), Blocking):
            options["journal"] = journal._open_object()[1]
        super()._construct(*arguments, **options)

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
    joined = blocking_call(_endpoint.Endpoint.joined)
    wait_for_change = blocking_call(_endpoint.Endpoint.wait_for_change)
    status = blocking_call(_endpoint.Endpoint.status)
    tree = blocking_call(_endpoint.Endpoint.tree)

    @on_behalf
    @as_in(_endpoint.Endpoint.drain)
    def drain(self, id: str | None = None, timeout: float | None = 5.0) -> None:
        portal, inner = self._open_object()
        if id is None or id == inner.id:
            inner._workers.refuse_drain(inner._workers.in_this_thread)
        portal.call(inner.drain, id, timeout)

    # ---- messages

    @as_in(_endpoint.Endpoint.on)
    def on(self, kind: str | None = None) -> Callable[[F], F]:
        decorate: Callable[[F], F] = self._inner.on(kind)
        return decorate

    @as_in(_endpoint.Endpoint.on_gap)
    def on_gap(self, function: Callable[[Any], object]) -> None:
        self._inner.on_gap(function)

    @as_in(_endpoint.Endpoint.on_client_added)
    def on_client_added(self, function: Callable[[str], object]) -> None:
        self._inner.on_client_added(function)

    @as_in(_endpoint.Endpoint.on_client_removed)
    def on_client_removed(self, function: Callable[[str], object]) -> None:
        self._inner.on_client_removed(function)

    send = blocking_call(_endpoint.Endpoint.send)
    send_many = blocking_call(_endpoint.Endpoint.send_many)

    # ---- jobs

    @as_in(_endpoint.Endpoint.work)
    def work(self, kind: str, *, concurrency: int = 1, timeout: float | None = None) -> Callable[[F], F]:
        def decorate(function: F) -> F:
            register: Callable[[F], F] = self._inner.work(kind, concurrency=concurrency, timeout=timeout)
            return register(function) if self._host is None else self._host.portal.do(register, function)

        return decorate

    @on_behalf
    @as_in(_endpoint.Endpoint.submit)
    def submit(
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
        submitted = portal.call(
            inner.submit,
            kind,
            payload,
            key=key,
            priority=priority,
            tries=tries,
            visibility=visibility,
            deadline=deadline,
            delay=delay,
            stream=stream,
            timeout=timeout,
        )
        return Job(submitted, portal)

    @as_in(_endpoint.Endpoint.map)
    def map(
        self,
        kind: str,
        payloads: Iterable[bytes],
        *,
        in_flight: int = 1000,
        progress: Callable[[int], object] | None = None,
        **options: Any,
    ) -> BlockingIterator[bytes]:
        portal, inner = self._open_object()
        given = payloads if isinstance(payloads, Sequence) else _Taken(payloads)
        return BlockingIterator(portal, inner.map(kind, given, in_flight=in_flight, progress=progress, **options))

    # ---- documents

    @as_in(_endpoint.Endpoint.document)
    def document(self, name: str) -> Document:
        portal, inner = self._open_object()
        opened = portal.do(inner.document, name)
        with self._opening:
            known, document = self._documents.get(name, (None, None))
            if document is None or known is not opened:
                document = Document(opened, HostedLoop(self))
                self._documents[name] = opened, document
            return document

    @as_in(_endpoint.Endpoint.share)
    def share(self, name: str, content: Any) -> Shared:
        portal, inner = self._open_object()
        return portal.do(lambda: Shared(inner.share(name, content), portal))

    request_full_document = loop_call(_endpoint.Endpoint.request_full_document)


class _Feed:
    """Payloads of an iterable, as a thread finds them."""

    def __init__(self, payloads: Iterable[bytes]) -> None:
        self._payloads = payloads
        self._free = threading.Semaphore(CHUNK)
        self._stopped = False
        self.arrived = WakeUp()
        self.found: deque[bytes] = deque()
        self.failure: BaseException | None = None
        self.ended = False

    def run(self) -> None:
        """Find payloads until the end, at most `CHUNK` more than were taken; in the thread."""
        payloads, self._payloads = self._payloads, ()  # a generator that is not exhausted is closed when this returns
        try:
            for payload in payloads:
                self.found.append(payload)
                if len(self.found) == 1:  # else the loop has not taken the one before, and looks again by itself
                    self.arrived.wake_soon()
                self._free.acquire()
                if self._stopped:
                    break
        except BaseException as error:  # passed on to the program, whatever it is
            self.failure = error
        finally:
            self.ended = True
            self.arrived.wake_soon()

    def take(self) -> bytes:
        """Return the oldest payload; in the loop."""
        self._free.release()
        return self.found.popleft()

    def stop(self) -> None:
        """Have the thread end as soon as the iterable returns."""
        self._stopped = True
        self._free.release()


class _Taken(Payloads):
    """Payloads of an iterable, which a thread iterates over: it may block, and what it has found before comes at once.

    The thread is one of its own: a pool would be used up by iterables that wait for long.
    """

    def __init__(self, payloads: Iterable[bytes]) -> None:
        self._payloads: Iterable[bytes] | None = payloads
        self._feed: _Feed | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        feed = self._feed
        if feed is None:
            assert self._payloads is not None
            feed = self._feed = _Feed(self._payloads)
            self._payloads = None
            threading.Thread(target=feed.run, name="nngkit.map", daemon=True).start()
        while not feed.found:
            if feed.ended and not feed.found:
                failure, feed.failure = feed.failure, None
                if failure is None:
                    raise StopAsyncIteration
                raise failure
            await feed.arrived.wait()
        return feed.take()

    def close(self) -> None:
        if self._feed is not None:
            self._feed.stop()


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
