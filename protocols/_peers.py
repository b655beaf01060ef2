"""A socket's peers, for its user: who is connected, who comes and goes, waiting for them, cutting them off.

May not know: messages, protocols.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable

from nngkit.errors import Full, TimedOut

from ._core import Core
from ._limits import Cut
from ._pipe import PeerEvent, Pipe, PipeStats
from ._waiters import ThreadWaiter, checkpoint_before, task_waiter

EVENTS = 65536  # unread events a follower may leave: over that it is told, instead of eating memory


class Peers:
    """Connections of a socket: who is there, events, counters."""

    _core: Core

    def _check_open(self) -> None:
        self._core.check_open()

    @property
    def pipes(self) -> tuple[Pipe, ...]:
        """The connections there are now, oldest first."""
        return self._core.pipes()

    @property
    def pipe_stats(self) -> dict[Pipe, PipeStats]:
        """Counters of each of these connections."""
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
        """The last connections that were cut for breaking the rules, and why: 64 at most."""
        return tuple(self._core.guard.cuts)

    def disconnect(self, pipe: Pipe) -> bool:
        """Cut one connection; False if it had gone. A dialler tries again, so who must stay out needs ``admit``."""
        self._check_open()
        return self._core.disconnect(pipe)

    def on_peer(self, callback: Callable[[PeerEvent], None]) -> Callable[[], None]:
        """Have ``callback(event)`` run for each peer that comes or goes; calling what is returned ends that.

        It runs on whichever thread noticed, NNG's, ours or a caller's: it has to be quick and must not close sockets.
        """
        return self._core.follow(callback)

    async def apeer_events(self) -> AsyncIterator[PeerEvent]:
        """Peers as they come and go, those present first, until the socket is closed.

        Cancelled, it ends. Raises Full if the caller leaves 65,536 events unread.
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
                        raise Full(f"{self!r}: {EVENTS} peer events were left unread")
                    event = events.popleft()
                    # one that came between the two looks is told once
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
        """Block until ``n`` peers are connected. Raises TimedOut, Closed."""
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
        """``wait_for_peers`` for a task. Cancelled, nothing has happened."""
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
        return self._core.count >= n

    def _too_few(self, n: int, timeout: float | None) -> TimedOut:
        there = self._core.count
        return TimedOut(f"{self!r}: {there} of {n} peers connected in {timeout} s{self._last_cut()}", timeout)

    def _last_cut(self) -> str:
        """Return which connection was cut last, and why, for the text of an error; "" if none was."""
        cuts = self.cuts
        return f"; {cuts[-1].address} was cut: {cuts[-1].reason}" if cuts else ""
