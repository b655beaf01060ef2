"""Lending memory: a writable buffer that is sent when its block ends, on shm without a copy.

May not know: protocols.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from nngkit.protocols._shm import memory
from nngkit.protocols._shm.sharing import Sharing, Slot
from nngkit.protocols._waiting.waiters import ThreadWaiter, Waiter, checkpoint_before, task_waiter


class Loan:
    """Block that yields a writable buffer of ``size`` bytes: ``with`` in a thread, ``async with`` in a task.

    When it ends without an error, ``send`` or ``asend`` gets ``prefix`` and the buffer. The buffer is in the memory of
    ``sharing``, if there is some. A loan is used once. Experimental.
    """

    # by the id of the buffer: those that are not sent at their end
    _open: ClassVar[WeakValueDictionary[int, Loan]] = WeakValueDictionary()

    def __init__(
        self,
        sharing: Sharing | None,
        size: int,
        seconds: float | None,
        send: Callable[[bytes], object] | None = None,
        asend: Callable[[bytes], Awaitable[object]] | None = None,
        prefix: bytes = b"",
    ) -> None:
        if size < 0:
            raise ValueError(f"a loan of {size} bytes")
        self._sharing = sharing
        self._size = size
        self._seconds = seconds
        self._send = send
        self._asend = asend
        self._prefix = prefix
        self._found: list[Slot] = []
        self._buffer: memoryview | None = None

    @classmethod
    def of(cls, buffer: Any) -> Loan | None:
        """Return the open loan of a buffer that is not sent at its end; None if it is none's."""
        found = cls._open.get(id(buffer))
        return found if found is not None and found._buffer is buffer else None

    def _find(self) -> bool:
        """Find memory if there is some now; return False to wait for it by ``_finding``."""
        if self._buffer is not None:
            raise RuntimeError("a loan is used once")
        whole, sharing = len(self._prefix) + self._size, self._sharing
        if sharing is None or whole < sharing.least:
            return True
        slot = sharing.find(whole)
        if slot is None:
            return False
        self._found.append(slot)
        return True

    def _finding(self, waiter: Waiter) -> Iterator[float]:
        """Find memory; yield each time to wait until."""
        assert self._sharing is not None
        deadline = None if self._seconds is None else time.monotonic() + self._seconds
        yield from self._sharing.finding(len(self._prefix) + self._size, self._found, waiter, deadline)

    def _lend(self) -> memoryview:
        if self._found:
            slot, start = self._found[0], len(self._prefix)
            if start:
                memory.fill(slot.address, self._prefix)
            self._buffer = buffer = slot.view(start, start + self._size)
        else:
            self._buffer = buffer = memoryview(bytearray(self._size))
        if self._send is None:
            self._open[id(buffer)] = self
        return buffer

    def message(self) -> bytes:
        """Return what was lent as a message; later calls copy it."""
        if self._found and self._sharing is not None:
            return self._sharing.reference(b"", self._found.pop(), len(self._prefix) + self._size)
        assert self._buffer is not None
        return b"".join((self._prefix, self._buffer))

    def _end(self) -> None:
        self._found.clear()
        if self._buffer is not None:
            if self._send is None:
                self._open.pop(id(self._buffer), None)
            try:
                self._buffer.release()
            except BufferError:  # an array made of it keeps its memory, which is not used again meanwhile
                return

    def __enter__(self) -> memoryview:
        if not self._find():
            waiter = ThreadWaiter()
            for until in self._finding(waiter):
                waiter.wait(until)
        return self._lend()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._send is not None:
                self._send(self.message())
        finally:
            self._end()

    async def __aenter__(self) -> memoryview:
        await checkpoint_before()
        if not self._find():
            waiter = task_waiter()
            for until in self._finding(waiter):
                await waiter.wait(until)
        return self._lend()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._asend is not None:
                await self._asend(self.message())
        finally:
            self._end()
