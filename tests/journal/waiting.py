"""Wait in trio for what another thread or peer does."""

from __future__ import annotations

from collections.abc import Callable

import trio

WAIT = 30.0  # seconds: far more than anything here takes, also on a busy machine


async def eventually(true: Callable[[], object], timeout: float = WAIT) -> None:
    """Return once `true()` holds. Raises trio.TooSlowError."""
    with trio.fail_after(timeout):
        while not true():  # noqa: ASYNC110 - threads set no trio.Event
            await trio.sleep(0.002)
