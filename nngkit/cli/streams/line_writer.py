"""LineWriter written by a thread, so that a slow reader or disk does not block the event loop.

::

    lines = LineWriter(fd, most=64 << 20)
    nursery.start_soon(lines.write_all)     # until cancelled; raises OSError
    lines.put("one")                        # never waits; beyond `most` bytes it is dropped and counted
    await lines.finish(1.0)

    lines = to_stdout(most)                 # the same for standard output
    async with printed(lines):
        lines.put("one")
        await lines.finish(math.inf)        # otherwise the block's end waits a second at most
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from nngkit.background import Background

PATIENCE: Final = 1.0  # seconds that a stalled reader may delay the end
SLICE: Final = 1 << 20  # bytes passed to the thread at once: they are lost if it hangs


class LineWriter:
    """Queue of lines for `fd`, at most `most` bytes. Counts lines `written`, and `dropped` by the cap or an error."""

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
        """Queue `line`, of any length if the queue is empty."""
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
        """Write until cancelled. Raises OSError; the queue and all later lines are then dropped."""
        while True:
            await self._new.wait()
            self._new = trio.Event()
            while self._waiting:
                some = self._some()
                try:
                    await trio.to_thread.run_sync(write_to, self._fd, b"".join(some), abandon_on_cancel=True)
                except OSError:
                    self._failed = True
                    self.dropped += len(some) + len(self._waiting)
                    self._waiting.clear()
                    self._idle.set()
                    raise
                self.written += len(some)
            self._idle.set()

    async def finish(self, seconds: float) -> None:
        """Wait until the queue is written, at most `seconds`."""
        with trio.move_on_after(seconds):
            await self._idle.wait()

    def _some(self) -> list[bytes]:
        some, size = [], 0
        while self._waiting and size < SLICE:
            some.append(self._waiting.popleft())
            size += len(some[-1])
        self._size -= size
        return some


def to_stdout(most: int) -> LineWriter:
    """Return a writer for standard output. It bypasses sys.stdout, whose lock a blocked thread would keep."""
    if sys.stdout is None:  # closed; nngkit.cli.main has opened /dev/null in its place
        return LineWriter(1, most)
    sys.stdout.flush()
    return LineWriter(1, most, sys.stdout.encoding)


@asynccontextmanager
async def printed(lines: LineWriter) -> AsyncIterator[None]:
    """Write `lines` while the block runs, and for at most a second after it. An OSError cancels the block.

    Errors are raised unwrapped, not in a nursery's group: callers handle BrokenPipeError.
    """
    async with Background() as tasks:
        tasks.start(lines.write_all)
        try:
            yield
        finally:
            await lines.finish(PATIENCE)


async def every(seconds: float, show: Callable[[], object]) -> None:
    """Call `show` again and again, with this pause before each call."""
    while True:
        await trio.sleep(seconds)
        show()


def write_to(fd: int, data: bytes) -> None:
    """Write all of `data`, in a thread. Raises OSError."""
    while data:
        data = data[os.write(fd, data) :]
