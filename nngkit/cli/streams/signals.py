"""Run a task that SIGINT and SIGTERM cancel, so that it can still report its results."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

import trio

from nngkit.background import Background
from nngkit.cli.streams import notify


async def until_signal(work: Callable[[], Awaitable[object]], drain: Callable[[], bool] = lambda: False) -> int:
    """Run `work` and return 0; on SIGINT or SIGTERM cancel it and return 128 plus the signal's number.

    At the first signal `drain` is called; if it returns True, `work` ends by itself, and the second one cancels it.
    Errors of `work` are raised unwrapped, not in a nursery's group: callers handle BrokenPipeError.
    """
    code = 0
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals, trio.CancelScope() as scope:

        async def cancel_on_signal() -> None:
            nonlocal code
            async for number in signals:
                notify.stopping()
                first, code = not code, 128 + number
                if not first or not drain():
                    scope.cancel()

        async with Background() as tasks:
            tasks.start(cancel_on_signal)
            await work()
    return code
