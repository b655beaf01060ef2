"""Lines written by a thread, so that whoever does not read them, or a slow disk, does not stop the loop.

::

    lines = Lines(fd, most=64 << 20)
    nursery.start_soon(lines.write_all)     # until cancelled; raises OSError
    lines.put("one")                        # never waits; over `most` bytes it is dropped, and counted
    await lines.finish(1.0)

    lines = to_stdout(most)
    async with printed(lines):              # the same with less, for standard output
        lines.put("one")
        await lines.finish(math.inf)        # or it has a second
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

__all__ = ["Lines", "printed", "to_stdout"]

PATIENCE: Final = 1.0  # seconds that a reader who stalls may hold up the end
SLICE: Final = 1 << 20  # bytes handed to the thread at once: what cannot be taken back when it hangs


class Lines:
    """What is to be written to `fd`: lines `written`, and `dropped` for want of room, or because writing failed."""

    def __init__(self, fd: int, most: int, encoding: str = "utf-8") -> None:
        self._fd = fd
        self._most = most
        self._encoding = encoding
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._failed = False
        self._new = trio.Event()
        self._idle = trio.Event()
        self._idle.set()
        self.written = 0
        self.dropped = 0

    def put(self, line: str, end: str = "\n") -> None:
        """Have `line` written. One that finds nothing before it is taken however long it is."""
        data = f"{line}{end}".encode(self._encoding, "backslashreplace")
        if self._failed or (self._waiting and self._size + len(data) > self._most):
            self.dropped += 1
            return
        self._waiting.append(data)
        self._size += len(data)
        if self._idle.is_set():
            self._idle = trio.Event()
        self._new.set()

    async def write_all(self) -> None:
        """Write until cancelled. Raises OSError; then what was not written is dropped, as all that comes after."""
        while True:
            await self._new.wait()
            self._new = trio.Event()
            while self._waiting:
                some = self._some()
                try:
                    await trio.to_thread.run_sync(_write, self._fd, b"".join(some), abandon_on_cancel=True)
                except OSError:
                    self._failed = True
                    self.dropped += len(some) + len(self._waiting)
                    self._waiting.clear()
                    self._idle.set()
                    raise
                self.written += len(some)
            self._idle.set()

    async def finish(self, seconds: float) -> None:
        """Wait until all is written, or that long."""
        with trio.move_on_after(seconds):
            await self._idle.wait()

    def _some(self) -> list[bytes]:
        some, size = [], 0
        while self._waiting and size < SLICE:
            some.append(self._waiting.popleft())
            size += len(some[-1])
        self._size -= size
        return some


def to_stdout(most: int) -> Lines:
    """For standard output, in its encoding; not through sys.stdout, whose lock a thread that hangs would keep."""
    if sys.stdout is None:  # closed, and nngkit.cli.main has something harmless in its place
        return Lines(1, most)
    sys.stdout.flush()
    return Lines(1, most, sys.stdout.encoding)


@asynccontextmanager
async def printed(lines: Lines) -> AsyncIterator[None]:
    """Write `lines` while the block runs, and at most a second after it. Raises OSError, and ends the block.

    Errors leave as they are: a nursery would wrap them, and a reader that went away is no group.
    """
    failed: OSError | None = None
    raised: Exception | None = None
    async with trio.open_nursery() as nursery:

        async def write() -> None:
            nonlocal failed
            try:
                await lines.write_all()
            except OSError as error:
                failed = error
                nursery.cancel_scope.cancel()

        nursery.start_soon(write)
        try:
            yield
        except Exception as error:
            raised = error
        await lines.finish(PATIENCE)
        nursery.cancel_scope.cancel()
    if failed is not None or raised is not None:
        raise failed or raised  # type: ignore[misc]


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
