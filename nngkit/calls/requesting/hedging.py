"""Hedging: a second attempt of an operation if the first takes long; the first result wins. For trio and asyncio.

The loser is cancelled. An error counts once both have failed, or if the second has not begun: an operation that fails
quickly is not tried again here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nngkit.calls.requesting.changes import under_trio

Attempt = Callable[[], Awaitable[Any]]


async def race(first: Attempt, second: Attempt, delay: float, may: Callable[[], bool]) -> tuple[Any, bool]:
    """Return (result, True if the second won). Raises the first error if none succeeds.

    The second begins after `delay` seconds, if `may` returns True then.
    """
    return await (_under_trio if under_trio() else _under_asyncio)(first, second, delay, may)


async def _under_trio(first: Attempt, second: Attempt, delay: float, may: Callable[[], bool]) -> tuple[Any, bool]:
    import trio

    results: list[tuple[Any, bool]] = []
    errors: list[Exception] = []
    running = 0
    ended = trio.Event()

    async def run(attempt: Attempt, late: bool) -> None:
        nonlocal running
        running += 1
        try:
            results.append((await attempt(), late))
        except Exception as error:
            errors.append(error)
        running -= 1
        if results or not running:
            ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, first, False)
        with trio.move_on_after(delay):
            await ended.wait()
        if not ended.is_set() and may():
            nursery.start_soon(run, second, True)
        await ended.wait()
        nursery.cancel_scope.cancel()
    if not results:
        raise errors[0]
    return results[0]


async def _under_asyncio(first: Attempt, second: Attempt, delay: float, may: Callable[[], bool]) -> tuple[Any, bool]:
    import asyncio

    async def run(attempt: Attempt) -> Any:
        return await attempt()

    tasks = [asyncio.ensure_future(run(first))]
    try:
        done, _ = await asyncio.wait(tasks, timeout=delay)
        if not done and may():
            tasks.append(asyncio.ensure_future(run(second)))
        while True:
            winner = next((task for task in tasks if task.done() and task.exception() is None), None)
            if winner is not None:
                return winner.result(), winner is not tasks[0]
            waiting = [task for task in tasks if not task.done()]
            if not waiting:
                failed = next(error for task in tasks if (error := task.exception()) is not None)
                raise failed
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
