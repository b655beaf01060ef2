"""Nodes of clusters: their part in threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from typing import Any, Final, Self, TypeVar

from nngkit.background import WakeUp
from nngkit.blocking._base import Handle
from nngkit.blocking._documents import Opening
from nngkit.cluster.endpoint import Endpoint
from nngkit.cluster.shell.map import Payloads
from nngkit.cluster.shell.sharing import Shared
from nngkit.portal import BlockingIterator

__all__ = ["Node", "Sharing"]

E = TypeVar("E", bound=Endpoint)

CHUNK: Final = 64  # payloads that a thread finds ahead in an iterable: handing each over costs as much as some jobs


class Sharing(Handle[Shared]):
    """Base of `Shared`: no change between two waits is missed."""

    _seen = 0

    def _next_change(self) -> None:
        self._seen = self._wait(Shared._changes_after, self._seen)


class Node(Opening[E]):
    """Base of the nodes."""

    def _drained(self, id: str | None, timeout: float | None) -> None:
        inner = self._opened
        if id is None or id == inner.id:
            inner._workers.refuse_drain(inner._workers.in_this_thread)
        self._wait(Endpoint.drain, id, timeout)

    def _mapped(
        self,
        kind: str,
        payloads: Iterable[bytes] | AsyncIterable[bytes],
        *,
        in_flight: int,
        progress: Callable[[int], object] | None,
        **options: Any,
    ) -> BlockingIterator[bytes]:
        calls, inner = self._open_object()
        given = payloads if isinstance(payloads, Sequence | AsyncIterable) else _Taken(payloads)
        return BlockingIterator(calls, inner.map(kind, given, in_flight=in_flight, progress=progress, **options))


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
