"""Watches of callers: requests that are answered once something has changed (watch.py has the messages).

One task answers all of them, so that a change costs a daemon with many watchers little more than the replies
themselves; those that wait for the same change get the same encoded bytes.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Final

import trio

from nngkit.discovery.domains import with_domain
from nngkit.discovery.service_discovery import ServiceDiscovery
from nngkit.discovery.watch import WatchQuery, WatchReply
from nngkit.errors import Closed
from nngkit.protocols import Rep, Request

OF_ONE: Final = 8  # open watches of one connection; further ones are answered at once
OF_ALL: Final = 2048  # and of all connections
SHARED: Final = 0.1  # seconds for which encoded changes are shared: the ages in them are as wrong as that
TURN: Final = 64  # replies in one turn of the loop


class WatchDesk:
    """Answers watches on `rep` with the changes of `discovery`."""

    def __init__(self, discovery: ServiceDiscovery, rep: Rep) -> None:
        self._discovery = discovery
        self._rep = rep
        self._waiting: dict[Request, tuple[WatchQuery, float]] = {}  # until when, on the loop's clock
        self._of: Counter[int] = Counter()
        self._next = float("inf")
        self._encoded: tuple[int, int, float, bytes] | None = None

    def __len__(self) -> int:
        """Return the number of open watches."""
        return len(self._waiting)

    def add(self, query: WatchQuery, request: Request) -> None:
        """Answer a watch now if something has changed since, or too many are open; else keep it for `run`."""
        pipe = _number(request)
        if self._changed(query) or not query.wait or self._of[pipe] >= OF_ONE or len(self._waiting) >= OF_ALL:
            self._answer(query, request)
            return
        until = trio.current_time() + query.wait
        self._waiting[request] = (query, until)
        self._of[pipe] += 1
        if until < self._next:
            self._next = until
            self._discovery.wake()

    async def run(self) -> None:
        """Answer watches at each change, and when their time is over; forget those of lost connections."""
        while True:
            version = self._discovery.version
            with trio.move_on_at(self._next):
                await self._discovery.wait_for_change(version)
            if self._discovery.version == version:
                self._forget_lost()
            now = trio.current_time()
            over = [
                request for request, (query, until) in self._waiting.items() if until <= now or self._changed(query)
            ]
            for number, request in enumerate(over, 1):
                query, _ = self._take(request)
                self._answer(query, request)
                if number % TURN == 0:
                    await trio.lowlevel.checkpoint()
            self._next = min((until for _, until in self._waiting.values()), default=float("inf"))

    def _changed(self, query: WatchQuery) -> bool:
        return (query.daemon, query.version) != (self._discovery.id, self._discovery.version)

    def _take(self, request: Request) -> tuple[WatchQuery, float]:
        pipe = _number(request)
        self._of[pipe] -= 1
        if not self._of[pipe]:
            del self._of[pipe]
        return self._waiting.pop(request)

    def _forget_lost(self) -> None:
        here = {pipe.id for pipe in self._rep.pipes}
        for request in [request for request in self._waiting if _number(request) not in here]:
            self._take(request)

    def _answer(self, query: WatchQuery, request: Request) -> None:
        with contextlib.suppress(Closed):  # the daemon ends
            request.reply_nowait(self._reply(query))

    def _reply(self, query: WatchQuery) -> bytes:
        discovery = self._discovery
        if not query.changes or query.daemon != discovery.id:
            return with_domain(WatchReply(discovery.id, discovery.version).encode(), discovery.domain)
        since, version, now = query.version, discovery.version, discovery.now()
        if (known := self._encoded) is None or known[:2] != (since, version) or now - known[2] > SHARED:
            body = with_domain(discovery.changes(since).encode(now), discovery.domain)
            known = self._encoded = (since, version, now, body)
        return known[3]


def _number(request: Request) -> int:
    return request.pipe.id if request.pipe else 0
