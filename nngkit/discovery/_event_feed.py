"""Ordered feed of registry events: published from any thread, read in full by trio tasks.

The owner of the registry's lock calls `publish` with that lock held, so followers see events in registry order. A
follower with more than 65,536 unread events gets Full and must start again. That is cheap: `ServiceDiscovery.events`
begins with the current state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Iterable
from typing import Final

from nngkit.background import WakeUp
from nngkit.discovery.provider import Event, State, Status
from nngkit.errors import Full

UNREAD: Final = 65_536
"""Cap on the unread events of a follower: four for each row of the registry, under 32 MiB."""


class EventFeed:
    """Count of published events (`version`), and a queue of them for each follower. Create it inside trio."""

    def __init__(self) -> None:
        self.version = 0
        self.ended = False
        self._queues: dict[object, deque[Event]] = {}
        self._wake_up = WakeUp()

    def publish(self, events: Iterable[Event]) -> None:
        """Append events to every follower's queue. Call it from any thread, under the lock that orders them."""
        new = tuple(events)
        if not new:
            return
        self.version += len(new)
        for queue in tuple(self._queues.values()):  # one C call: a follower may unsubscribe meanwhile
            queue.extend(new)
        self.wake()

    def wake(self) -> None:
        """Wake all waiters, from any thread."""
        self._wake_up.wake_soon()

    def end(self) -> None:
        """Publish no more: followers end once they have read the rest."""
        self.ended = True
        self._wake_up.wake()

    def subscribe(self) -> object:
        """Start to queue events; return the key for `follow`."""
        key = object()
        self._queues[key] = deque(maxlen=UNREAD + 1)
        return key

    async def follow(self, key: object, known: Iterable[Status]) -> AsyncGenerator[Event, None]:
        """Yield what was `known` at `subscribe`, as events from `joining`, then the events since, until `end`.

        Providers that are down are left out. Cancelling or closing it unsubscribes, once it was begun. Raises Full.
        """
        queue = self._queues[key]
        try:
            for row in known:
                if row.state is not State.DOWN:
                    name = row.provider.name
                    yield Event(name, row.provider, State.JOINING, row.state, row.reason, row.since, row.round)
            while True:
                while queue:
                    if len(queue) > UNREAD:
                        raise Full(f"more than {UNREAD} events unread")
                    yield queue.popleft()
                if self.ended:
                    return
                await self._wake_up.wait()
        finally:
            del self._queues[key]

    async def wait(self, version: int) -> None:
        """Wait until the feed is past `version`, or ended. May return early; the caller checks and calls again."""
        if self.version == version and not self.ended:
            await self._wake_up.wait()
