"""View of the providers that `nngkit watch` keeps from events, and its JSON. Pure.

A provider is usable if callers are sent to it: it is up, or suspect while no other of its service is up.
"""

from __future__ import annotations

from typing import Any

from nngkit.cli.streams.output import provider_fields, utc
from nngkit.discovery.provider import Event, Key, State


class Watched:
    """The last event of every provider that is not down, of one service or of all."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self._events: dict[Key, Event] = {}
        self._since: dict[Key, float] = {}

    def clear(self) -> None:
        """Forget all providers: the current state follows as events."""
        self._events.clear()

    def apply(self, event: Event) -> bool:
        """Record an event; return False for one of another service."""
        if self.name is not None and event.name != self.name:
            return False
        key = event.provider.key
        if event.new is State.DOWN:
            self._events.pop(key, None)
            self._since.pop(key, None)
        else:
            before = self._events.get(key)
            if before is None or before.new is not event.new:
                self._since[key] = event.time
            self._events[key] = event
        return True

    def rows(self) -> list[tuple[Event, float]]:
        """Return the last event of each provider and the time of its last change of state, in the order of listings."""
        return [(self._events[key], self._since[key]) for key in sorted(self._events)]

    def usable(self) -> dict[str, list[Event]]:
        """Return the providers that callers are sent to, by service; empty lists for services that have none."""
        found: dict[str, list[Event]] = {}
        for event, _ in self.rows():
            found.setdefault(event.name, []).append(event)
        for name, events in found.items():
            up = [event for event in events if event.new is State.UP]
            found[name] = up or [event for event in events if event.new is State.SUSPECT]
        return found

    def fields(self, wall: float, now: float, fresh: bool) -> dict[str, Any]:
        """Return the state as JSON, docs/schemas/watch.json; `wall`: time.time() minus the clock of the events."""
        usable = {event.provider.key for events in self.usable().values() for event in events}
        return {
            "time": utc(now),
            "name": self.name,
            "fresh": fresh,
            "providers": [
                {
                    **provider_fields(event.provider),
                    "state": event.new.value,
                    "reason": event.reason.value,
                    "since": utc(since + wall),
                    "usable": event.provider.key in usable,
                }
                for event, since in self.rows()
            ],
        }
