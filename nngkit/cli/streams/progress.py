"""Progress on standard error, as one line that is redrawn; nothing if that is not a terminal.

`shown` is a bar for work of known length, `drawn` any text.

A thread draws it, so that a stalled terminal (Ctrl-S, a slow line) does not delay the work. The end waits for a drawing
in progress and erases the line, so that results never follow it on the same line.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from nngkit.background import Background

WIDTH = 20
PATIENCE = 0.2  # seconds that a stalled terminal may delay the end
TICK = 0.1  # seconds between two drawings


def bar(label: str, passed: float, seconds: float) -> str:
    """Return the bar after `passed` of `seconds`."""
    done = min(1.0, passed / seconds)
    return f"[{'#' * int(WIDTH * done):<{WIDTH}}] {label} {min(passed, seconds):.1f} of {seconds:g} s"


@asynccontextmanager
async def shown(label: str, seconds: float) -> AsyncIterator[None]:
    """Show a bar while the block runs, and erase it, if standard error is a terminal that supports it."""
    start = trio.current_time()
    async with drawn(lambda: bar(label, trio.current_time() - start, seconds)):
        yield


@asynccontextmanager
async def drawn(text: Callable[[], str]) -> AsyncIterator[None]:
    """Show `text()` while the block runs, and erase it, if standard error is a terminal that supports it."""
    stream = sys.stderr
    if stream is None or not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return

    async def show() -> None:
        while True:
            await draw(text())
            await trio.sleep(TICK)

    drawing, ended = threading.Lock(), False

    def write(line: str) -> None:
        with drawing:
            if not (line and ended):
                os.write(2, f"\r\033[K{line}".encode())

    async def draw(line: str) -> None:
        await trio.to_thread.run_sync(write, line, abandon_on_cancel=True)

    async with Background() as tasks:
        tasks.start(show)
        try:
            yield
        finally:
            tasks.end()
            ended = True
            with trio.move_on_after(PATIENCE, shield=True):
                await draw("")
