"""A bar on standard error for work of a known length; nothing of it in a pipe.

Drawn by a thread: a terminal that stalls (Ctrl-S, a slow line) stalls the bar, and not the work. A bar that is being
drawn at the end is waited for before it is wiped, so that no result is written behind it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

__all__ = ["bar", "shown"]

WIDTH = 20
PATIENCE = 0.2  # seconds a terminal that stalls may hold up the end
TICK = 0.1  # seconds between two looks of it


def bar(label: str, passed: float, seconds: float) -> str:
    """The bar when `passed` of `seconds` are over."""
    done = min(1.0, passed / seconds)
    return f"[{'#' * int(WIDTH * done):<{WIDTH}}] {label} {min(passed, seconds):.1f} of {seconds:g} s"


@asynccontextmanager
async def shown(label: str, seconds: float) -> AsyncIterator[None]:
    """Show a bar while the block runs, and take it away, if standard error is a terminal that can."""
    stream = sys.stderr
    if stream is None or not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return

    async def show() -> None:
        start = trio.current_time()
        while True:
            await draw(bar(label, trio.current_time() - start, seconds))
            await trio.sleep(TICK)

    drawing, ended = threading.Lock(), False

    def write(text: str) -> None:
        with drawing:
            if not (text and ended):
                os.write(2, f"\r\033[K{text}".encode())

    async def draw(text: str) -> None:
        await trio.to_thread.run_sync(write, text, abandon_on_cancel=True)

    failed: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(show)
        try:
            yield
        except Exception as error:  # as it is: the nursery would make a group of it
            failed = error
        finally:
            nursery.cancel_scope.cancel()
            ended = True
            with trio.move_on_after(PATIENCE, shield=True):
                await draw("")
    if failed is not None:
        raise failed
