"""Tests that are asyncio coroutines."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Final

WAIT: Final = 15.0


def under_asyncio(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an asyncio loop, with a timeout."""

    @wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        async def main() -> None:
            async with asyncio.timeout(WAIT * 2):
                await test(*arguments, **options)

        asyncio.run(main())

    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return run
