"""Hedging: a second attempt of an operation if the first takes long; the first result wins. For trio and asyncio.

The loser is cancelled. An error counts once both have failed, or if the second has not begun: an operation that fails
quickly is not tried again here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nngkit.calls.requesting.changes import make_event, under_trio, wait_for

Attempt = Callable[[], Awaitable[Any]]


async def race(first: Attempt, second: Attempt, delay: float, may: Callable[[], bool]) -> tuple[Any, bool]:
    """Return (result, True if the second won). Raises the first error if none succeeds.

    The second begins after `delay` seconds, if `may` returns True then.
    """
    results: list[tuple[Any, bool]] = []
    errors: list[Exception] = []
    running = 0
    ended = make_event()

    async def run(attempt: Attempt, late: bool) -> None:
        nonlocal running
        running += 1
        try:
            results.append((await attempt(), late))
        except Exception as error:
            errors.append(error)
        finally:
            running -= 1
            if results or not running:
                ended.set()

    async def both(start: Callable[..., object]) -> None:
        start(run, first, False)
        await wait_for(ended, delay)
        if not ended.is_set() and may():
            start(run, second, True)
        await ended.wait()

    await (_under_trio if under_trio() else _under_asyncio)(both)
    if not results:
        raise errors[0]
    return results[0]


async def _under_trio(both: Callable[..., Awaitable[None]]) -> None:
    import trio

    async with trio.open_nursery() as nursery:
        await both(nursery.start_soon)
        nursery.cancel_scope.cancel()


async def _under_asyncio(both: Callable[..., Awaitable[None]]) -> None:
    import asyncio

    tasks: list[asyncio.Task[None]] = []
    try:
        await both(lambda run, *arguments: tasks.append(asyncio.ensure_future(run(*arguments))))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
