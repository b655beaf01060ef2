"""A server that runs while a block does, and whose streams end before the block has.

::

    async with serving(door, host="127.0.0.1", port=8080) as server:
        print(server.url)
        await trio.sleep_forever()      # cancelled: requests and streams end, within a second
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from nngkit.background import Background
from nngkit.errors import NngkitError
from nngkit.web.exchange import App
from nngkit.web.server import Server, serve


@asynccontextmanager
async def serving(app: App, **options: Any) -> AsyncIterator[Server]:
    """Serve `app` with the options of `serve` while the block runs; then `Server.aclose`, also when cancelled.

    Raises ConfigError, Unreachable as `serve`; those of the block.
    """
    started = _Started()
    async with Background() as background:

        async def run() -> None:
            try:
                await serve(app, **options, task_status=started)
            except NngkitError as error:
                if started.event.is_set():
                    raise
                started.error = error
                started.event.set()

        background.start(run)
        await started.event.wait()
        if started.server is None:
            raise started.error or AssertionError
        try:
            yield started.server
        finally:
            await started.server.aclose()


class _Started:
    """Task status of the server: its start, or the error."""

    def __init__(self) -> None:
        self.event = trio.Event()
        self.server: Server | None = None
        self.error: NngkitError | None = None

    def started(self, server: Server | None = None) -> None:
        """Note that it listens."""
        self.server = server
        self.event.set()
