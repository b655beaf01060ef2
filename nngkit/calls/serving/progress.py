"""Progress of a server: the call of each worker, the number of calls, and their times."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

import trio

from nngkit.calls.handlers import Handler
from nngkit.calls.messages import CallRequest
from nngkit.histogram import Histogram
from nngkit.protocols import Payload, Request

log = logging.getLogger("nngkit.calls")

RECENT: Final = 256  # times counted together, see Histogram.add_many
STUCK: Final = 10.0
"""Seconds without one call that ends, while `concurrency` calls run, after which a warning says so."""


class Worker:
    """A task that runs calls, one after the other, and the call that it runs.

    `request`: None between calls. `began`, `deadline`: of the call, on time.monotonic(). `waits`: its handler waits in
    `scope`, which ends it. `handler`: None if `scope` is not to end it. `reply`: what is to be sent outside of `scope`.

    One scope serves all calls of a worker until it has ended one: a scope of its own would cost a call a tenth of its
    time, and only a handler that waits can be ended.
    """

    __slots__ = ("began", "call", "deadline", "handler", "reply", "request", "scope", "waits")

    scope: trio.CancelScope

    def __init__(self) -> None:
        self.request: Request | None = None
        self.call: CallRequest | None = None
        self.handler: Handler | None = None
        self.reply: Payload | None = None
        self.began = 0.0
        self.deadline = float("inf")
        self.waits = False


class Progress:
    """Counts of one server's calls. `in_progress`: with replies that wait for room in a connection.

    `watched`: `watch` runs.
    """

    def __init__(self, name: str, concurrency: int) -> None:
        self._name = name
        self.concurrency = concurrency
        self.in_progress = 0
        self.requests = 0
        self.replies = 0
        self.watched = False
        self._recent: list[float] = []
        self._times = Histogram()
        self._less: trio.Event | None = None

    def finish(self, worker: Worker) -> float:
        """Note that the call of `worker` has ended; return time.monotonic()."""
        now = time.monotonic()
        worker.request = worker.call = worker.handler = worker.reply = None
        self.in_progress -= 1
        recent = self._recent
        recent.append(now - worker.began)
        if len(recent) >= RECENT:
            _ = self.times
        if self._less is not None:
            self.changed()
        return now

    @property
    def times(self) -> Histogram:
        """Times of the calls that have ended."""
        self._times.add_many(self._recent)
        self._recent.clear()
        return self._times

    def changed(self) -> None:
        """Wake `until`: something is no longer in progress."""
        if self._less is not None:
            self._less.set()
            self._less = None

    async def until(self, idle: Callable[[], bool]) -> None:
        """Wait until `idle` returns True; it is called again after each change."""
        while not idle():
            if self._less is None:
                self._less = trio.Event()
            await self._less.wait()

    async def watch(self) -> None:
        """Warn if all slots are taken and none becomes free. Ends when one is free."""
        warned = False
        while self.in_progress >= self.concurrency:
            finished = self.times.count
            await trio.sleep(STUCK)
            if finished == self.times.count and not warned:
                warned = True
                log.warning("%s: all %d calls in progress run for over %g s", self._name, self.concurrency, STUCK)
        self.watched = False
