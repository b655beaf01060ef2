"""The end of a socket: waiting until all is written, and closing. May not know: protocols."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterator
from types import TracebackType
from typing import ClassVar, Self

from nngkit.errors import Closed, Forked, NngkitError
from nngkit.protocols._core.core import Core
from nngkit.protocols._core.outbox import Outbox
from nngkit.protocols._nng.process import unregister
from nngkit.protocols._socket.batching import Batcher
from nngkit.protocols._waiting.timeout import DEFAULT, Default, Timeout
from nngkit.protocols._waiting.waiters import ThreadWaiter, Waiter, checkpoint_before, task_waiter


class Closing:
    """Methods that drain and close a socket."""

    linger: float | None
    _core: Core
    _outbox: Outbox
    _batcher: Batcher | None
    _drains: ClassVar[bool] = False

    def drain(self, timeout: Timeout = DEFAULT) -> bool:
        """Block until every accepted message is written, for ``timeout`` seconds at most (default: ``linger``).

        Return True if all are written. A written message is not necessarily received by the peer.
        """
        waiter = ThreadWaiter()
        for until in self._draining(timeout, waiter):
            waiter.wait(until)
        return self._drained

    async def adrain(self, timeout: Timeout = DEFAULT) -> bool:
        """Like ``drain``, for a task. Cancelling it has no effect on the messages."""
        await checkpoint_before()
        waiter = task_waiter()
        for until in self._draining(timeout, waiter):
            await waiter.wait(until)
        return self._drained

    _drained = True

    def _draining(self, timeout: Timeout, waiter: Waiter) -> Iterator[float | None]:
        """Yield until when to wait, as long as messages are left to write."""
        seconds = self.linger if isinstance(timeout, Default) else timeout
        deadline = None if seconds is None else time.monotonic() + seconds
        self._drained = True
        if not self._drains:
            return
        core, outbox, batcher = self._core, self._outbox, self._batcher
        outbox.waiters.add(waiter)
        if batcher is not None:
            batcher.waiters.add(waiter)
        try:
            while True:
                pushed = True
                with contextlib.suppress(NngkitError):  # closed meanwhile: the rest is dropped and counted
                    pushed = batcher is None or batcher.flush()
                with core.lock:
                    left = outbox.unwritten if core.reason is None or core.lingers else 0
                if pushed and not left:
                    return
                if deadline is not None and time.monotonic() >= deadline:
                    self._drained = False
                    return
                yield deadline
        finally:
            outbox.waiters.discard(waiter)
            if batcher is not None:
                batcher.waiters.discard(waiter)

    @property
    def closed(self) -> bool:
        """True once close has begun."""
        return self._core.reason is not None

    def close(self, linger: Timeout = DEFAULT) -> None:
        """Send accepted messages for at most ``linger`` seconds (default: the socket's ``linger``), then close.

        From any thread, at any time, any number of times. Callers that wait on the socket raise Closed at once.
        """
        try:
            if self._refuse():
                self.drain(linger)
                self._shut()
        except BaseException:
            self._shut()  # also continues where a signal handler that raised interrupted it
            raise

    async def aclose(self, linger: Timeout = DEFAULT) -> None:
        """Like ``close``, for a task. If cancelled, it closes without sending the rest."""
        first = False
        try:
            first = self._refuse()
            if first:
                await self.adrain(linger)
                self._shut()
        except BaseException:
            self._shut()
            raise
        if not first:
            await checkpoint_before()

    def _refuse(self) -> bool:
        """Refuse new work and wake all waiters; return False if that was done before."""
        reason = Closed(f"{self!r} is closed")
        if not self._core.refuse(reason):
            return False
        if self._batcher is not None:
            self._batcher.refuse(reason)  # messages it has accepted may still be sent
        self._woken()
        return True

    def _shut(self) -> None:
        """Close all connections and free everything. Idempotent."""
        self._refuse()
        if isinstance(self._core.reason, Forked):
            return
        if self._batcher is not None:
            self._outbox.dropped += self._batcher.free()
        self._core.shut()
        self._free()
        unregister(self)

    def _free(self) -> None:
        """Free the protocol's resources, after all is closed."""

    def _woken(self) -> None:
        """Wake the protocol's waiters, after the socket has closed."""

    def _forked(self, reason: Forked) -> None:
        self._core.forked(reason)
        if self._batcher is not None:
            self._batcher.forked(reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Ctrl-C and cancellation do not linger
        self.close(0.0 if kind is not None and not issubclass(kind, Exception) else DEFAULT)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            self.close(0.0)
        else:
            await self.aclose()

    def __del__(self) -> None:
        core = getattr(self, "_core", None)  # __init__ may have failed earlier
        if core is None or (not core.lingers and core.reason is not None):
            return
        # not here: a finalizer may run anywhere, also while its thread holds the lock
        core.refuse_later(Closed(f"{type(self).__name__} was not closed"))
        warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
