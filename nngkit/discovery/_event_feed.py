"""What has changed, for everybody who follows: noted from any thread, read by trio tasks, in order, none left out.

`note` is called by whoever owns the registry's lock, with that lock held, so followers see events in the order in which
the registry made them. A follower that falls behind by 65,536 events is told so (Full) and has to begin anew, which is
cheap: `ServiceDiscovery.events` starts with what is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from typing import Final

import trio

from nngkit.discovery.provider import Event
from nngkit.errors import Full

__all__ = ["Changes"]

UNREAD: Final = 65_536
"""Events that a follower may leave: four for each of the registry's rows, and under 32 MiB."""


class Changes:
    """A count of changes (`version`), and queues of them for those who follow. Made inside trio."""

    def __init__(self) -> None:
        self.version = 0
        self.ended = False
        self._queues: dict[object, deque[Event]] = {}
        self._token = trio.lowlevel.current_trio_token()
        self._bell = trio.Event()

    def note(self, events: Iterable[Event]) -> None:
        """Add events; from any thread, under the lock that orders them."""
        new = tuple(events)
        if not new:
            return
        self.version += len(new)
        for queue in tuple(self._queues.values()):  # one C call: a follower may leave meanwhile
            queue.extend(new)
        self.ring()

    def ring(self) -> None:
        """Have everybody who waits look again; from any thread."""
        with suppress(trio.RunFinishedError):  # a thread that is a moment late: nobody is left to be told
            self._token.run_sync_soon(self._rung, idempotent=True)

    def _rung(self) -> None:
        bell, self._bell = self._bell, trio.Event()
        bell.set()

    def end(self) -> None:
        """Nothing will change any more: followers end when they have read the rest."""
        self.ended = True
        self._rung()

    def subscribe(self) -> object:
        """What is noted from now on is kept for whoever calls `follow` with what this returns."""
        key = object()
        self._queues[key] = deque(maxlen=UNREAD + 1)
        return key

    async def follow(self, key: object) -> AsyncGenerator[Event, None]:
        """What was noted since `subscribe`, until `end`. Cancelled or closed, it ends. Raises Full."""
        queue = self._queues[key]
        try:
            while True:
                while queue:
                    if len(queue) > UNREAD:
                        raise Full(f"{UNREAD} changes were left unread")
                    yield queue.popleft()
                if self.ended:
                    return
                await self._bell.wait()
        finally:
            del self._queues[key]

    async def wait(self, version: int) -> None:
        """Return once there is a change that `version` does not count yet, or somebody rings, or nothing will."""
        if self.version == version and not self.ended:
            await self._bell.wait()
