"""Work that a signal ends in order, with what was measured so far."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

import trio

__all__ = ["until_signal"]


async def until_signal(work: Callable[[], Awaitable[None]]) -> int:
    """Run `work` until it ends (0), or cancel it when SIGINT or SIGTERM comes (128 and the signal's number).

    Raises what `work` raises, as it is: a nursery would wrap it, and a reader that went away is no group.
    """
    code = 0
    failed: Exception | None = None
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:

            async def heed_signals() -> None:
                nonlocal code
                async for number in signals:
                    code = 128 + number
                    nursery.cancel_scope.cancel()

            nursery.start_soon(heed_signals)
            try:
                await work()
            except Exception as error:
                failed = error
            nursery.cancel_scope.cancel()
    if failed is not None:
        raise failed
    return code
