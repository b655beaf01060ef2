"""What several daemons see, put together: one view to resolve from, and what changed in it. Pure.

Daemons know nothing of each other, and services dial all of them, so each sees everybody, unless something is wrong:

======================================  ==========================================================================
what is wrong                           what is believed
======================================  ==========================================================================
a daemon cannot reach a service         the others: whoever is up for one daemon is up
a service is draining, says one         it: only the service itself can have said so
a daemon is gone or does not answer     the others; if there is no other, what was seen last (`fresh` is False then)
a daemon was restarted, and is empty    for 3 s, what its predecessor saw as well: services reconnect in that time
======================================  ==========================================================================

A provider here is up, suspect or draining; whoever is none of it is not here. The events that `take_events` returns,
applied in order to an empty table, give `merged`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from nngkit.discovery.liveness import Chance, choose, shortlists
from nngkit.discovery.provider import Event, Key, Provider, Reason, State, Status
from nngkit.errors import ServiceNotFound

__all__ = ["RESTART_GRACE", "Views"]

RESTART_GRACE: Final = 3.0
"""Seconds: services reconnect within 0.2 s of a daemon's return and are asked at once; a busy machine takes longer."""
_RANK = {State.DRAINING: 0, State.UP: 1, State.SUSPECT: 2}


@dataclass(slots=True, eq=False)
class _View:
    """One daemon: who it is, what it sees, why others are down, what its predecessor saw and until when that counts."""

    daemon: str = ""
    answers: bool = False
    rows: dict[Key, Status] = field(default_factory=dict)
    down: dict[Key, Reason] = field(default_factory=dict)
    before: dict[Key, Status] = field(default_factory=dict)
    before_until: float = 0.0


class Views:
    """The views of several daemons by address. Not thread-safe: one task owns it."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._views = {address: _View() for address in addresses}
        self._merged: dict[Key, Status] = {}
        self._names: dict[str, list[Status]] = {}
        self._events: list[Event] = []

    # Inputs

    def saw(self, address: str, daemon: str, rows: Iterable[Status], now: float) -> None:
        """The daemon at `address`, whose id is `daemon`, sees exactly `rows` now."""
        view = self._views[address]
        if view.daemon not in ("", daemon):
            view.before, view.before_until = view.rows, now + RESTART_GRACE
        view.daemon, view.answers = daemon, True
        view.rows, view.down = {}, {}
        for row in rows:
            if row.state in _RANK:
                view.rows[row.provider.key] = row
            else:
                view.down[row.provider.key] = row.reason
        self._merge(now)

    def silent(self, address: str, now: float) -> None:
        """The daemon at `address` does not answer."""
        self._views[address].answers = False
        self._merge(now)

    def expire(self, now: float) -> float | None:
        """Forget what predecessors saw, when its time is over; the seconds until there is more to forget."""
        self._merge(now)
        return min((view.before_until - now for view in self._views.values() if view.before), default=None)

    # Questions

    @property
    def fresh(self) -> bool:
        """Whether at least one daemon answers."""
        return any(view.answers for view in self._views.values())

    def answers(self, address: str) -> bool:
        """Whether the daemon at `address` does."""
        return self._views[address].answers

    def resolve(self, name: str, rng: Chance, zone: str = "") -> Provider:
        """One provider of `name`: of those up, or else of the suspects, by zone, priority, weight. ServiceNotFound."""
        lists = shortlists(self._names.get(name, ()))
        if not lists:
            raise ServiceNotFound(name)
        return choose(lists, rng, zone)

    def snapshot(self) -> dict[str, frozenset[Provider]]:
        """What `resolve` chooses from, by name."""
        found = {}
        for name, rows in self._names.items():
            for wanted in (State.UP, State.SUSPECT):
                if best := frozenset(row.provider for row in rows if row.state is wanted):
                    found[name] = best
                    break
        return found

    @property
    def merged(self) -> Mapping[Key, Status]:
        """Everybody, as the daemon saw it that counts."""
        return self._merged

    def take_events(self) -> tuple[Event, ...]:
        """What changed since the last call."""
        events = tuple(self._events)
        self._events.clear()
        return events

    # The merging

    def _merge(self, now: float) -> None:
        for view in self._views.values():
            if view.before and now >= view.before_until:
                view.before = {}
        voices = [view for view in self._views.values() if view.answers] or list(self._views.values())
        steady = any(not view.before for view in voices)  # with one that was there all the time, no memory is needed
        merged: dict[Key, Status] = {}
        for view in voices:
            before = {} if steady else view.before
            for row in (before | view.rows).values():
                known = merged.get(row.provider.key)
                if known is None or _RANK[row.state] < _RANK[known.state]:
                    merged[row.provider.key] = row
        self._note(merged, now)
        self._merged = merged
        self._names = {}
        for row in merged.values():
            self._names.setdefault(row.provider.name, []).append(row)

    def _note(self, merged: Mapping[Key, Status], now: float) -> None:
        for key, row in merged.items():
            before = self._merged.get(key)
            old = State.JOINING if before is None else before.state
            if before is None or old is not row.state:
                self._events.append(
                    Event(row.provider.name, row.provider, old, row.state, row.reason, row.since, row.round)
                )
            elif before.provider != row.provider:
                changed = Reason.CHANGED
                self._events.append(Event(row.provider.name, row.provider, old, old, changed, now, row.round))
        for key, row in self._merged.items():
            if key not in merged:
                reasons = (view.down.get(key) for view in self._views.values() if view.answers)
                why = next(filter(None, reasons), Reason.MISSED)  # not even as one that is down: it did not come back
                self._events.append(Event(row.provider.name, row.provider, row.state, State.DOWN, why, now, row.round))
