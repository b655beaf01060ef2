"""Run a task that SIGINT and SIGTERM cancel, so that it can still report its results."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

import trio

from nngkit.cli.streams import notify


async def until_signal(work: Callable[[], Awaitable[object]]) -> int:
    """Run `work` and return 0; on SIGINT or SIGTERM cancel it and return 128 plus the signal's number.

    Errors of `work` are raised unwrapped, not in a nursery's group: callers handle BrokenPipeError.
    """
    code = 0
    failed: Exception | None = None
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:

            async def cancel_on_signal() -> None:
                nonlocal code
                async for number in signals:
                    notify.stopping()
                    code = 128 + number
                    nursery.cancel_scope.cancel()

            nursery.start_soon(cancel_on_signal)
            try:
                await work()
            except Exception as error:
                failed = error
            nursery.cancel_scope.cancel()
    if failed is not None:
        raise failed
    return code
