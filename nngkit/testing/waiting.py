"""Waits for conditions that have no event, such as counters: the condition is polled until it is true.

::

    eventually(lambda: push.stats.written == 10)            # in a thread
    await aeventually(lambda: peer.peers)                   # in a task, under trio or asyncio
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

import trio

TIMEOUT: Final = 15.0  # seconds: far more than a condition takes, also on a busy machine
POLL: Final = 0.002  # seconds between two calls of the condition

T = TypeVar("T")


def eventually(
    condition: Callable[[], T], timeout: float = TIMEOUT, *, what: str | Callable[[], str] = "", poll: float = POLL
) -> T:
    """Call `condition` until its result is true, and return this result. Blocks the calling thread.

    Args:
        condition: Called every `poll` seconds. Its exceptions are passed on.
        timeout: Seconds. The condition is called at least once, and once more at the timeout.
        what: Description of the condition for the error; a function is called when the wait fails. The default is the
            function's name, file and line.
        poll: Seconds between two calls.

    Raises:
        AssertionError: The condition was not true within `timeout` seconds. The text names the condition.
    """
    end = time.monotonic() + timeout
    while not (value := condition()):
        left = end - time.monotonic()
        if left <= 0:
            raise _failed(condition, timeout, what)
        time.sleep(min(poll, left))
    return value


async def aeventually(
    condition: Callable[[], T], timeout: float = TIMEOUT, *, what: str | Callable[[], str] = "", poll: float = POLL
) -> T:
    """Like `eventually`, for a task under trio or asyncio. Other tasks run between two calls of the condition.

    The timeout is measured on the loop's clock, so it follows trio.testing.MockClock. Cancelling ends the wait at once
    and leaves nothing behind.

    Args:
        condition: A plain function, not a coroutine function.
        timeout: Seconds.
        what: As for `eventually`.
        poll: Seconds between two calls.

    Raises:
        AssertionError: The condition was not true within `timeout` seconds.
    """
    under_trio = trio.lowlevel.in_trio_task()
    now = trio.current_time if under_trio else asyncio.get_running_loop().time
    sleep = trio.sleep if under_trio else asyncio.sleep
    end = now() + timeout
    while not (value := condition()):
        left = end - now()
        if left <= 0:
            raise _failed(condition, timeout, what)
        await sleep(min(poll, left))
    return value


def _failed(condition: Callable[[], object], timeout: float, what: str | Callable[[], str]) -> AssertionError:
    description = what() if callable(what) else what
    if not description:
        code = getattr(condition, "__code__", None)
        place = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
        description = f"{getattr(condition, '__qualname__', None) or repr(condition)}{place}"
    return AssertionError(f"not true within {timeout:g} s: {description}")
