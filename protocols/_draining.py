"""Waiting until NNG has written what a socket accepted. May not know: messages, protocols.

NNG closes without lingering and says neither that a queue is empty nor how long it is. What it does count, on most
transports, is messages written to each connection; so draining compares that with what was accepted, again and again,
with pauses that grow from half a millisecond to ten.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import ClassVar

from nngkit.errors import NngkitError

from ._batching import Batcher
from ._pipes import Pipes
from ._sending import Queue
from ._waiters import checkpoint_before, sleep

QUIET = 0.05  # seconds without progress after which a fan-out is taken as drained: what is left was dropped


class Draining:
    """The end of a socket's sending."""

    _drains: ClassVar[bool] = False
    _sends_to_all: ClassVar[bool] = False
    linger: float
    _pipes: Pipes
    _queue: Queue
    _batcher: Batcher | None
    _gone: bool

    def drain(self, timeout: float | None = None) -> bool:
        """Block until NNG has written what was accepted, ``timeout`` seconds at most (None: ``linger``).

        True if it has, as far as NNG can tell: written to the network is not received by the peer, and on ws, wss and
        inproc, where NNG does not count, it is a short wait.
        """
        for pause in self._draining(self.linger if timeout is None else timeout):
            time.sleep(pause)
        return self._drained

    async def adrain(self, timeout: float | None = None) -> bool:
        """``drain`` for a task. Cancelled, it ends."""
        await checkpoint_before()
        for pause in self._draining(self.linger if timeout is None else timeout):
            await sleep(pause)
        return self._drained

    _drained = True

    def _draining(self, seconds: float) -> Iterator[float]:
        """Yield pauses until nothing is left to write. NNG has no event for it, so this looks again and again."""
        last = time.monotonic()
        deadline, progress, pause = last + seconds, -1, 0.0005
        self._drained = True
        while self._batcher is not None and not self._gone:
            try:
                if self._batcher.push():
                    break
            except NngkitError:  # what NNG will not take is lost, and counted as dropped
                break
            if time.monotonic() >= deadline:
                self._drained = False
                return
            yield max(0.0, min(pause, deadline - time.monotonic()))
            pause = min(pause * 1.5, 0.01)
        while self._drains and self._queue.sent and not self._gone:
            written = self._pipes.written()[0] + self._pipes.written_to_gone
            now = time.monotonic()
            if written != progress:
                progress, last = written, now
            if self._unwritten(written) <= 0:
                return
            blind = self._pipes.blind()
            quiet = now - last >= QUIET and (blind or bool(self._pipes.present))
            if quiet and (self._sends_to_all or not self._pipes.counted or blind):
                return
            if now >= deadline:
                self._drained = False
                return
            yield min(pause, deadline - now)
            pause = min(pause * 1.5, 0.01)

    def _unwritten(self, written: int) -> int:
        if self._sends_to_all:
            sent = self._queue.sent
            due = sum(sent - self._pipes.sent_at_join.get(pipe, sent) for pipe in list(self._pipes.present))
            return due - (written - self._pipes.written_to_gone)
        return self._queue.sent - written
