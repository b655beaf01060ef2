"""Peers of a socket as its user sees them: pipes, events, waiting, disconnecting.

May not know: messages, protocols.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable

from nngkit.errors import Full, TimedOut
from nngkit.protocols._core.core import Core
from nngkit.protocols._core.guard import Cut
from nngkit.protocols._core.pipe import PeerEvent, Pipe, PipeStats
from nngkit.protocols._waiting.waiters import ThreadWaiter, checkpoint_before, task_waiter

EVENTS = 65536  # unread events of an iteration: beyond that it ends with Full instead of using more memory


class Peers:
    """Connections of a socket: pipes, events, counters."""

    _core: Core

    def _check_open(self) -> None:
        self._core.check_open()

    @property
    def pipes(self) -> tuple[Pipe, ...]:
        """The current connections, oldest first."""
        return self._core.pipes()

    @property
    def pipe_stats(self) -> dict[Pipe, PipeStats]:
        """Counters of each current connection."""
        found, core = {}, self._core
        core.outbox.settle_burst()
        with core.lock:
            for one in core.joined():
                if one.pipe is not None:
                    going = one.written_now()
                    queued = len(one.out) + len(one.bodies) + len(core.outbox.burst) - going
                    found[one.pipe] = PipeStats(one.machine.count, one.written + going, queued, one.dropped)
        return found

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """The last 64 connections that were cut: for breaking a rule, for silence or by an internal error."""
        return tuple(self._core.guard.cuts)

    def disconnect(self, pipe: Pipe) -> bool:
        """Cut one connection; return False if it had ended.

        Its dialer tries again: use ``admit`` to keep a peer out.
        """
        self._check_open()
        return self._core.disconnect(pipe)

    def on_peer(self, callback: Callable[[PeerEvent], None]) -> Callable[[], None]:
        """Call ``callback(event)`` for each peer that joins or leaves; return a function that unregisters it.

        It runs on the thread that detected the change: NNG's, nngkit's or a caller's. It must be quick and must not
        close sockets.
        """
        return self._core.follow(callback)

    async def apeer_events(self) -> AsyncIterator[PeerEvent]:
        """Yield an event for each present peer, then for each that joins or leaves, until the socket is closed.

        Raises Full if the caller leaves 65,536 events unread.
        """
        await checkpoint_before()
        waiter = task_waiter()
        events: deque[PeerEvent] = deque(maxlen=EVENTS + 1)
        self._core.peer_waiters.add(waiter)
        present = {}
        end = self._core.follow(events.append)
        try:
            for pipe in self.pipes:
                present[pipe.id] = pipe
                yield PeerEvent("joined", pipe, time.monotonic())
            while True:
                while events:
                    if len(events) > EVENTS:
                        raise Full(f"{self!r}: {EVENTS} peer events are unread")
                    event = events.popleft()
                    # an event between reading `pipes` and `follow` is yielded once
                    if event.kind == "joined" and present.pop(event.pipe.id, None) is not None:
                        continue
                    present.pop(event.pipe.id, None)
                    yield event
                if self._core.reason is not None:
                    return
                await waiter.wait()
        finally:
            end()
            self._core.peer_waiters.discard(waiter)

    def wait_for_peers(self, n: int = 1, timeout: float | None = None) -> None:
        """Block until ``n`` peers are connected, and callbacks of `on_peer` have returned. Raises TimedOut, Closed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        waiter = ThreadWaiter()
        self._core.peer_waiters.add(waiter)
        try:
            while not self._has_peers(n):
                if not waiter.wait(deadline):
                    raise self._too_few(n, timeout)
        finally:
            self._core.peer_waiters.discard(waiter)

    async def await_for_peers(self, n: int = 1, timeout: float | None = None) -> None:
        """Like ``wait_for_peers``, for a task. Cancelling it has no effect on the socket."""
        await checkpoint_before()
        deadline = None if timeout is None else time.monotonic() + timeout
        waiter = task_waiter()
        self._core.peer_waiters.add(waiter)
        try:
            while not self._has_peers(n):
                if not await waiter.wait(deadline):
                    raise self._too_few(n, timeout)
        finally:
            self._core.peer_waiters.discard(waiter)

    def _has_peers(self, n: int) -> bool:
        self._check_open()
        return self._core.has_told(n)

    def _too_few(self, n: int, timeout: float | None) -> TimedOut:
        there = self._core.told
        return TimedOut(
            f"{self!r}: {there} of {n} peers connected in {timeout} s{self._core.unreached()}{self._last_cut()}",
            timeout,
        )

    def _last_cut(self) -> str:
        """Return the text about the last cut for an error message; "" if there was none."""
        cuts = self.cuts
        return f"; {cuts[-1].address} was cut: {cuts[-1].reason}" if cuts else ""
